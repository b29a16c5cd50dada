"""What the Rust crates have of the header, of options and of arrays is what the library has today,
and their version is the library's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
RUST = ROOT / "bindings" / "rust"
HEADER = ROOT / "headwater" / "include" / "headwater.h"
WRITTEN = {
    RUST / "headwater-sys" / "src" / "bindings.rs": ["rust_bindings.py", str(HEADER)],
    RUST / "headwater" / "src" / "option_table.rs": ["rust_options.py"],
    RUST / "headwater" / "src" / "field_table.rs": ["rust_fields.py"],
}


def checked(script: list[str], file: Path) -> int:
    name, *arguments = script
    command = [sys.executable, str(ROOT / "tools" / name), *arguments, "--check", str(file)]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_a_written_file_is_as_its_script_writes_it(file: Path, tmp_path: Path) -> None:
    assert checked(WRITTEN[file], file) == 0
    edited = tmp_path / file.name
    edited.write_text(file.read_text(encoding="utf-8").replace("u32", "u64", 1), encoding="utf-8")
    assert checked(WRITTEN[file], edited) == 1


def test_the_crates_have_the_version_of_the_library() -> None:
    (version,) = re.findall('HW_VERSION "(.*)"', HEADER.read_text(encoding="utf-8"))
    manifests = [tomllib.loads(file.read_text()) for file in RUST.rglob("Cargo.toml")]
    packages = [manifest["package"] for manifest in manifests if "package" in manifest]
    assert {"headwater", "headwater-sys"} <= {package["name"] for package in packages}
    for package in packages:
        is_common = package["version"] == {"workspace": True}
        assert package["version"] == version or is_common or package.get("publish") is False
    for manifest in manifests:
        common = manifest.get("workspace", {}).get("package", {})
        assert common.get("version", version) == version
        for name, needed in manifest.get("dependencies", {}).items():
            if name.startswith("headwater"):
                is_published = manifest["package"].get("publish", True)
                assert needed.get("version") == version or not is_published


CARGO = """#!/bin/sh
case $1 in
--version) echo "cargo 1.{version}.0 (fake)" ;;
fetch) exit {fetch} ;;
info) exit {info} ;;
esac
"""


def told(tmp_path: Path, script: str, **cargo: int) -> tuple[int, str]:
    """The status and the last line of a script, with a cargo that does as it is told."""
    for name, text in {"cargo": CARGO.format(**cargo), "rustc": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", f"tools/{script}", sys.executable], cwd=ROOT, text=True, capture_output=True,
        check=False, env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()[-1]


def test_the_scripts_skip_what_cannot_be_here_and_nothing_else(tmp_path: Path) -> None:
    """The summary of the tests has it too, if Rust is skipped."""
    old = {"fetch": 0, "info": 0}
    rust, burn = "test_rust.sh", "test_burn.sh"
    line = "rust: skipped, no cargo of Rust 1.85 or later here (1.84)"
    assert told(tmp_path, rust, version=84, **old) == (0, line)
    line = "burn: skipped, no cargo of Rust 1.95 or later here (1.85)"
    assert told(tmp_path, burn, version=85, **old) == (0, line)
    line = "burn: skipped, crates cannot be fetched here"
    assert told(tmp_path, burn, version=95, fetch=1, info=1) == (0, line)
    line = "burn: the registry answers, but the crates cannot be fetched"
    assert told(tmp_path, burn, version=95, fetch=1, info=0) == (1, line)
    if shutil.which("cargo") is None:
        pytest.skip("no cargo: the Rust crates are not tested here")
    found = subprocess.run(["cargo", "--version"], text=True, capture_output=True, check=True)
    (minor,) = re.findall(r"^cargo 1\.(\d+)", found.stdout)
    if int(minor) < 95:
        pytest.skip(f"cargo 1.{minor}: headwater-burn, or all Rust crates, are not tested here")


def test_what_the_guide_of_burn_shows_stands_in_its_examples() -> None:
    """Tests compile and run the examples; their lines may be indented further."""
    guide = (ROOT / "docs" / "guides" / "burn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```rust\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    # Without its hidden lines, the program of the crate's documentation.
    shown = (RUST / "burn" / "src" / "lib.rs").read_text(encoding="utf-8")
    for hidden in ("^//! ?", r"^# (?:let stores|std::env).*\n", "^# "):
        shown = re.sub(hidden, "", shown, flags=re.MULTILINE)
    files = (RUST / "burn").glob("examples/**/*.rs")
    examples = [shown, *(file.read_text(encoding="utf-8") for file in files)]
    flat = [re.sub(r"\n +", "\n", text) for text in examples]
    assert len(blocks) >= 3
    for block in blocks:
        assert any("\n" + re.sub(r"\n +", "\n", block) in text for text in flat), block
    (line,) = re.findall(r"^burn = .*", guide, re.MULTILINE)
    manifest = tomllib.loads((RUST / "burn" / "Cargo.toml").read_text(encoding="utf-8"))
    assert tomllib.loads(line)["burn"]["version"] == manifest["dependencies"]["burn"]["version"]
