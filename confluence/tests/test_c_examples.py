"""The C library without its sources, as a C program finds it: installed below an empty folder, with
examples/c built against that by pkg-config alone; then Python uses the store that they build. So is
the loop in C of docs/guides/own-training-loop.md, which prints the same as that in Python.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import headwater
import pytest
from headwater import shop
from headwater.binding import hash64
from small import SMALL, events

import confluence

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "c"
LONGEST = 60  # lines
_, LOOPS = (
    (ROOT / "docs" / "guides" / "own-training-loop.md")
    .read_text(encoding="utf-8")
    .split("\n## The same loop in Python, C and Rust\n")
)
LOOP = dict(re.findall(r"^```(\w+)\n(.*?)^```$", LOOPS.split("\n## ")[0], re.MULTILINE | re.DOTALL))
INSTALLED = {
    "include/headwater.h", "lib/libheadwater.so", "lib/libheadwater.so.0",
    f"lib/libheadwater.so.{headwater.__version__}", "lib/pkgconfig/headwater.pc",
}  # fmt: skip


def run(*command: str | Path, cwd: Path | None = None, **variables: Path) -> str:
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": tools, **{k: str(v) for k, v in variables.items()}}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def flags(prefix: Path) -> list[str]:
    """What `pkg-config --cflags --libs headwater` prints, or what it would."""
    folder = prefix / "lib" / "pkgconfig"
    if shutil.which("pkg-config") is not None:
        found = run("pkg-config", "--cflags", "--libs", "headwater", PKG_CONFIG_PATH=folder)
        return found.split()
    text = (folder / "headwater.pc").read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    lines = re.findall(r"^(?:Cflags|Libs): (.*)$", text, re.MULTILINE)
    for _ in values:
        lines = [re.sub(r"\$\{(\w+)\}", lambda name: values[name[1]], line) for line in lines]
    return " ".join(lines).split()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `build` and `epoch`, and with the library they are linked to; the sources that
    it was made from are gone."""
    folder = tmp_path_factory.mktemp("c")
    source, prefix = folder / "source", folder / "prefix"
    kept = shutil.ignore_patterns("python", "tests", "bench", "fuzz", "build", "build-*")
    shutil.copytree(ROOT / "headwater", source, ignore=kept)
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    run(*meson, "setup", folder / "made", source, "-Dpython=false", f"--prefix={prefix}",
        "--libdir=lib")  # fmt: skip
    run(*meson, "install", "-C", folder / "made")
    for gone in (source, folder / "made"):
        shutil.rmtree(gone)
    for name in ("build", "epoch"):
        shutil.copy(EXAMPLES / f"{name}.c", folder)
    (folder / "loop.c").write_text(LOOP["c"], encoding="utf-8")
    for name in ("build", "epoch", "loop"):
        run("cc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", name, f"{name}.c",
            *flags(prefix), cwd=folder)  # fmt: skip
    yield folder


@pytest.fixture(scope="module")
def store(programs: Path) -> Path:
    run("./build", "shop.hw", cwd=programs, LD_LIBRARY_PATH=programs / "prefix" / "lib")
    assert not (programs / "shop.hw.build").exists()
    return programs / "shop.hw"


def test_the_library_installs_what_a_c_program_needs_and_no_more(programs: Path) -> None:
    prefix = programs / "prefix"
    found = (path.relative_to(prefix) for path in prefix.rglob("*") if not path.is_dir())
    assert {*map(str, found)} == INSTALLED


def test_the_python_package_brings_neither_the_library_nor_its_pkg_config_file() -> None:
    files = [str(path) for path in importlib.metadata.files("headwater") or ()]
    assert "headwater/binding/_headwater.so" in files
    assert [name for name in files if "libheadwater" in name or name.endswith(".pc")] == []
    assert [name for name in files if name.endswith(".h")] == ["headwater/binding/headwater.h"]


@pytest.mark.parametrize("name", ["build.c", "epoch.c"])
def test_an_example_can_be_read_at_a_glance(name: str) -> None:
    lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST and max(map(len, lines)) <= 100


def test_the_readme_beside_the_examples_has_the_commands_that_are_tested() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert "meson setup build/library headwater -Dpython=false --prefix=" in text
    for name in ("build", "epoch"):
        assert f"cc -o {name} {name}.c $(pkg-config --cflags --libs headwater)" in text


def test_an_error_is_printed_and_is_the_status(programs: Path, tmp_path: Path) -> None:
    for name, reason in (("build", "cannot create '"), ("epoch", "cannot open store '")):
        place, library = tmp_path / "none" / "shop.hw", programs / "prefix" / "lib"
        with pytest.raises(AssertionError, match=rf"{reason}.*none/shop\.hw.*No such file"):
            run(programs / name, place, LD_LIBRARY_PATH=library)
        with pytest.raises(AssertionError, match=f"usage: {name} STORE"):
            run(programs / name, LD_LIBRARY_PATH=library)


def test_the_commands_of_headwater_take_a_store_made_in_c(store: Path) -> None:
    command = [sys.executable, "-m", "headwater"]
    listed = run(*command, "inspect", store)
    assert re.search(r"customers +4 +2 +customer_id", listed)
    assert re.search(r"orders +8 +3 +ordered_at +customers", listed)
    assert re.search(r"buys +derived +customers +buys \(boolean\) +3 +2 +1 +0", listed)
    shown = run(*command, "sample", store, "--task", "buys", "--split", "train")
    assert "customers 70" in shown and "The answer to the question mark, buys: yes" in shown
    assert run(*command, "verify", store).strip() == f"{store}: sound"
    with headwater.Store(store) as opened:
        row = opened.find("customers", 72)
        assert opened.row(row)["cells"] == {"customer_id": 72, "age": 61.0}
        (orders,) = opened.children(row).values()
        assert [opened.row(int(order))["cells"]["amount"] for order in orders] == [12.0, 2.0]


def test_an_epoch_in_c_is_python_s(programs: Path, store: Path) -> None:
    printed = run("./epoch", store, cwd=programs, LD_LIBRARY_PATH=programs / "prefix" / "lib")
    *lines, last = printed.splitlines()
    with headwater.Sampler(db_path=store, tasks=["buys"], default_sequence_length=64) as sampler:
        hashes = []
        for batch in sampler.epoch("train", "buys"):
            arrays = {**batch, **batch.info}
            hashes.append(
                sum(hash64(a.tobytes(), hash64(name.encode())) for name, a in arrays.items())
            )
    assert lines == [f"{k} {hash % 2**64:016x}" for k, hash in enumerate(hashes)]
    assert re.fullmatch(rf"{len(lines)} batches, \d+\.\d a second", last) and lines


def test_the_loop_in_c_prints_what_that_in_python_does_and_both_continue(
    programs: Path, tmp_path: Path
) -> None:
    source, examples = f"sqlite:///{tmp_path / 'shop.sqlite'}", ROOT / "examples" / "shop"
    shop.main([str(tmp_path / "shop.sqlite"), "--customers", "120"])
    headwater.build(source, tmp_path / "shop.store", examples / "shop.json")
    (tmp_path / "loop.py").write_text(LOOP["python"], encoding="utf-8")
    library = programs / "prefix" / "lib"
    shares = set()
    for _ in range(2):
        printed = run(sys.executable, "loop.py", cwd=tmp_path)
        assert run(programs / "loop", cwd=tmp_path, LD_LIBRARY_PATH=library) == printed
        line = r"epoch (\d): share (0\.\d{6}), error on val \d+\.\d{4}"
        lines = re.findall(rf"^{line}$", printed, re.MULTILINE)
        assert [epoch for epoch, _ in lines] == ["0", "1"]
        shares.update(share for _, share in lines)
    assert len(shares) == 4  # the second run is not the first again


def test_a_model_trains_on_a_store_made_in_c(store: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "steps": 1, "batch_size": 2}
    confluence.train(store, task="buys", trees=False, out=tmp_path / "run", **settings)
    (step,) = (entry for entry in events(tmp_path / "run") if entry["event"] == "train")
    assert step["step"] == 1 and math.isfinite(step["loss"])
