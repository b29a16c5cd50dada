"""`headwater bench` and the scripts of headwater/bench: what they say, never how fast."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import pytest
from headwater import bench
from headwater.cli import main
from tiny_store import write_tiny

SCRIPTS = Path(__file__).parents[2] / "bench"
MODULES = ("generate", "instructions", "compare", "hub", "figures", "plot")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The scripts as modules, by name."""
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module
    sys.path.remove(str(SCRIPTS))
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def hub_store(scripts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    generate = scripts("generate")
    path: Path = tmp_path_factory.mktemp("hub") / "forum.hw"
    generate.generate(generate.Forum(rows=2000, text_share=0.2, hub=1000), path)
    return path


def _run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, Any]]:
    assert main(["bench", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# ---- the command -----------------------------------------------------------------------------


def test_every_combination_gives_a_line_that_can_be_read_alone(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _run(
        capsys, tiny, "--threads", "1", "--threads", "2", "--length", "32", "--length", "64",
        "--batch-size", "4", "--max-rows", "16", "--task", "churn", "--seconds", "0.02",
        "--repeats", "2",
    )  # fmt: skip
    assert [(line["threads"], line["S"]) for line in lines] == [(1, 32), (1, 64), (2, 32), (2, 64)]
    for line in lines:
        assert line["question"] == "throughput"
        assert (line["B"], line["R"], line["w"], line["repeats"]) == (4, 16, 16, 2)
        assert (line["layout"], line["load"], line["task"]) == ("dense", "mmap", "churn")
        low, middle, high = (line[f"padded_cells_per_s{end}"] for end in ("_min", "", "_max"))
        assert 0 < low <= middle <= high
        assert 0 < line["fill"] <= 1
        assert line["real_cells_per_s"] <= middle and line["padded_cells_per_cpu_s"] > 0
        assert 0 < line["batch_ms_p50"] <= line["batch_ms_p99"]
        assert sum(line["stage_shares"].values()) == pytest.approx(1, abs=1e-3)
        assert set(line["wait_shares"]) == {"producers", "consumer"}
        assert 0 < line["rss_map_bytes"] < line["rss_bytes"] <= line["rss_peak_bytes"]
        assert line["machine"]["cores"] >= 1 and line["machine"]["headwater"]
        assert line["store"]["name"] == "tiny" and line["store"]["rows"] == 30
        assert line["store"]["edges"] == 23 and line["store"]["open_ms"] > 0


def test_bytes_per_padded_cell_are_those_of_the_arrays(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ("--length", "64", "--batch-size", "4", "--threads", "1", "--task", "churn")
    (line,) = _run(capsys, tiny, *shape, "--seconds", "0.01", "--repeats", "1")
    with headwater.Sampler(
        tiny, default_batch_size=4, default_sequence_length=64, tasks=["churn"], num_prefetch=0
    ) as sampler:
        batch = sampler.batch("train", 0)
    size = sum(array.nbytes for array in batch.values()) / (4 * 64)
    assert line["bytes_per_padded_cell"] == pytest.approx(size, abs=0.01)


def test_the_text_share_is_of_cells(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A context of 5 cells: the seed row's 2, and a customer's 3, of which one may be a text."""
    shape = ("--length", "5", "--batch-size", "4", "--threads", "1", "--task", "churn")
    (line,) = _run(capsys, tiny, *shape, "--seconds", "0.01", "--repeats", "1")
    with headwater.Sampler(
        tiny, default_batch_size=4, default_sequence_length=5, tasks=["churn"], num_prefetch=0
    ) as sampler:
        batches = [sampler.batch("train", k) for k in range(bench.CONTENT_BATCHES)]
    with headwater.Store(tiny) as store:
        anchors = [row for batch in batches for row in batch.info["anchor_rows"].tolist()]
        names = [store.row(row)["cells"]["name"] for row in anchors]
    named = sum(name is not None for name in names)
    assert named > 0
    assert line["store"]["text_share_of_cells"] == pytest.approx(named / (5 * len(names)), abs=1e-4)
    assert line["store"]["cells_per_row"] == pytest.approx(5 / 2)


def test_latency_times_both_ways_of_asking(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(
        capsys, tiny, "--latency", "20", "--length", "64", "--task", "churn", "--task", "quantity"
    )
    assert [line["task"] for line in lines] == ["churn", "quantity"]
    for line in lines:
        assert (line["question"], line["B"], line["requests"]) == ("latency", 1, 20)
        for way in ("batch", "batches_for"):
            assert 0 < line[f"{way}_us_p50"] <= line[f"{way}_us_p99"]


def test_a_store_in_memory_has_no_map(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(
        capsys, tiny, "--load", "ram", "--threads", "1", "--length", "64", "--seconds", "0.01"
    )
    assert [line["rss_map_bytes"] for line in lines] == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "--seconds is 0, expected more than 0"),
        (["--repeats", "0"], "--repeats is 0, expected more than 0"),
        (["--latency", "0"], "--latency is 0, expected at least 1"),
        (["--threads", "0"], "num_threads is 0, expected at least 1"),
        (["--task", "chur"], "did you mean 'churn'?"),
    ],
)
def test_bad_options_are_one_message(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["bench", str(tiny), *arguments]) == 1
    output = capsys.readouterr()
    assert message in output.err and not output.out


def test_an_option_that_the_sampler_lacks_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class OlderSampler:
        def __init__(self, db_path: str) -> None: ...

    monkeypatch.setattr(bench, "Sampler", OlderSampler)
    with pytest.raises(ValueError, match=r"has no option layout \(here 'compact'\)"):
        bench.Configuration(layout="compact").options()


def test_thread_counts_end_at_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, expected in ((1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])):
        monkeypatch.setattr(bench.os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert bench.thread_counts() == expected


def test_a_quantile_is_a_value_that_occurred() -> None:
    values = list(range(100, 0, -1))
    assert bench.quantile(values, 0.5) == 51
    assert bench.quantile(values, 0.99) == 100
    assert bench.quantile([7.0], 0.99) == 7.0


# ---- the generator ---------------------------------------------------------------------------


def test_the_same_options_give_the_same_store(
    scripts: Any, hub_store: Path, tmp_path: Path
) -> None:
    generate = scripts("generate")
    forum = generate.Forum(rows=2000, text_share=0.2, hub=1000)
    generate.generate(forum, tmp_path / "again.hw")
    with headwater.Store(hub_store) as one, headwater.Store(tmp_path / "again.hw") as other:
        assert one.fingerprint == other.fingerprint
        assert one.verify() == []
    assert generate.is_built(forum, hub_store)
    assert not generate.is_built(generate.Forum(rows=2000, hub=1000), hub_store)
    assert not generate.is_built(forum, tmp_path / "absent.hw")


def test_the_hub_and_the_ordinary_places_have_the_degrees_promised(hub_store: Path) -> None:
    with headwater.Store(hub_store) as store:
        low, high = store.metadata["tables"][store.table_index("places")]["row_range"]
        degrees = [len(store.children(row)["visits.place_id"]) for row in range(low, high)]
        assert degrees == [1000, *[100] * 10]
        hub, ordinary = (store.task_seeds(name) for name in ("hub", "ordinary"))
        assert set(hub["anchor_row"].tolist()) == {low}
        assert sorted(ordinary["anchor_row"].tolist()) == list(range(low + 1, high))
        assert sorted(hub["obs_time"].tolist()) == sorted(ordinary["obs_time"].tolist())


def test_the_generated_contexts_have_the_text_share_asked_for(scripts: Any, tmp_path: Path) -> None:
    generate = scripts("generate")
    generate.generate(generate.Forum(rows=20_000, text_share=0.2), tmp_path / "forum.hw")
    (line,) = bench.throughput(
        tmp_path / "forum.hw",
        [bench.Configuration(task="answered", length=512)],
        seconds=0.01,
        repeats=1,
    )
    assert line["store"]["text_share_of_cells"] == pytest.approx(0.2, abs=0.02)
    assert line["store"]["cells_per_row"] == pytest.approx(6, abs=0.5)


def test_padded_rows_have_the_record_size_of_the_yardstick(scripts: Any, tmp_path: Path) -> None:
    """A record of 64 bytes and a time of 8 per row, after a header; 40, 48 and 24 without."""
    generate = scripts("generate")
    for pad, sizes in ((True, (64, 64, 64)), (False, (40, 48, 24))):
        forum = generate.Forum(rows=16_000, pad_rows=pad)
        generate.generate(forum, tmp_path / f"{pad}.hw")
        with headwater.Store(tmp_path / f"{pad}.hw") as store:
            folder = Path(store.core.directory()) / "tables"
        rows = (forum.users, forum.posts, forum.comments)
        for number, (count, size) in enumerate(zip(rows, sizes, strict=True)):
            stored = (folder / f"{number:05}.bin").stat().st_size
            assert (stored - 256) // count <= size + 8 <= stored // count + 1


@pytest.mark.parametrize(
    "options", [{"text_share": 0.5}, {"exponent": 0.5}, {"hub": 150}, {"hub": -100}]
)
def test_the_generator_refuses_what_it_cannot_make(scripts: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        scripts("generate").Forum(**options)


# ---- the other scripts -----------------------------------------------------------------------

OTHER_OUTPUT = """\
scale 0.4 mode BFS K= 8: 58.4M cells/s 102.4 ns/row 17.13 ns/cell, prefetches/row 3.49
scale 0.4 mode BFS+emit compact K=16: 46.9M cells/s 127.5 ns/row
scale 0.4 mode BFS+emit dense15 sparse-clear K= 8: 35.5M cells/s
built 6400000 rows
scale 0.4 mode +perms/adj K= 8: 28.7M cells/s ...
"""


def test_compare_reads_modes_and_rates(scripts: Any) -> None:
    assert scripts("compare").parse_rates(OTHER_OUTPUT) == {
        ("BFS", 8): 58.4e6,
        ("BFS+emit compact", 16): 46.9e6,
        ("BFS+emit dense15 sparse-clear", 8): 35.5e6,
        ("+perms/adj", 8): 28.7e6,
    }


def test_compare_gives_the_ratio_of_medians(scripts: Any) -> None:
    line = scripts("compare").summarise(
        "dense", "+perms/adj", [20e6, 10e6, 30e6], [(11e6, 12e6), (22e6, 24e6), (90e6, 95e6)]
    )
    assert (line["ratio"], line["ratio_of_best"]) == (1.1, 1.2)


def test_compare_runs_both_and_leaves_out_what_one_lacks(
    scripts: Any, hub_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    other = tmp_path / "other"
    other.write_text(f"#!/bin/sh\ncat <<'END'\n{OTHER_OUTPUT}END\n")
    other.chmod(0o755)
    arguments = ["compare", str(other), str(hub_store), "--times", "2", "--repeats", "1"]
    modes = ["--mode", "dense=+perms/adj", "--mode", "flat=BFS"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--seconds", "0.05", *modes])
    assert scripts("compare").main() == 0
    output = capsys.readouterr()
    (line,) = map(json.loads, output.out.splitlines())
    assert line["theirs"] == [28_700_000] * 2 and len(line["ours"]) == 2
    assert "without 'flat'" in output.err


PROFILE = """\
positions: line
events: Ir

ob=(1) /build/bench_sampler
fl=(1) ../headwater/src/walk.c
fn=(1) hwi_walk_seed
10 100
+2 50
cfi=(2) ../headwater/src/emit.c
cfn=(2) hwi_emit_sequence
calls=3 20
12 7000
fi=(3) ../headwater/src/rng.h
5 7
fe=(1)
14 3

fl=(2)
fn=(2)
20 4000
cob=(2) /lib/libc.so.6
cfi=(4) ./string/memset.S
cfn=(3) memset
calls=9 1
* 3000

ob=(2)
fl=(4)
fn=(3)
1 3000

ob=(1)
fl=(3)
fn=(4) hwi_rng_next
6 40
"""


def test_instructions_count_for_the_file_of_the_function_and_libc_for_its_caller(
    scripts: Any,
) -> None:
    instructions = scripts("instructions")
    costs = instructions.instructions_by_file(PROFILE)
    assert {Path(file).name: cost for file, cost in costs.items()} == {
        "walk.c": 160,
        "emit.c": 7000,
        "rng.h": 40,
    }
    assert instructions.per_stage(costs, 100) == {
        "total": 72.0, "walk": 2.0, "emit": 70.0, "permute": 0.0, "text": 0.0, "other": 0.0,
    }  # fmt: skip


def test_every_source_of_the_hot_path_has_a_stage(scripts: Any) -> None:
    """Files that are split or renamed must not fall into "other" unseen."""
    stage_of = scripts("instructions").stage_of
    hot = {"walk.c": "walk", "draw.c": "walk", "visible.c": "walk", "emit.c": "emit",
           "permute.c": "permute", "batch_texts.c": "text"}  # fmt: skip
    sources = Path(__file__).parents[2] / "src"
    for name, stage in hot.items():
        assert (sources / name).exists() and stage_of(f"../headwater/src/{name}") == stage


def test_the_hub_is_compared_with_an_ordinary_place(scripts: Any, hub_store: Path) -> None:
    line = scripts("hub").compare(
        hub_store, bench.Configuration(length=64, batch_size=4), seconds=0.02, repeats=1
    )
    assert line["hub_children"] == 1000 and line["S"] == 64
    assert line["ratio"] == pytest.approx(line["hub_us"] / line["ordinary_us"], rel=0.01)


def test_the_page_gets_machine_plot_and_tables(
    scripts: Any, hub_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    plot = scripts("plot")
    wanted = bench.configurations(threads=[1, 2], length=[64], task=["answered"])
    made = bench.throughput(hub_store, wanted, seconds=0.02, repeats=1)
    lines = [{"set": "threads", **line} for line in made]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{plot.BEGIN}\nold\n{plot.END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["plot", str(tmp_path / "lines"), "--page", str(page)])
    for _ in range(2):
        assert plot.main() == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert text.count("![padded cells per second") == 1
    rates = [f"| {line['padded_cells_per_s'] / 1e6:.1f} |" for line in lines]
    assert all(rate in text for rate in rates)
    assert (tmp_path / "page.svg").read_text().startswith("<?xml")


def test_the_page_of_the_documentation_has_the_marks(scripts: Any) -> None:
    pytest.importorskip("matplotlib")
    plot = scripts("plot")
    text = (Path(__file__).parents[3] / "docs" / "7-performance.md").read_text()
    assert text.index(plot.BEGIN) < text.index(plot.END)
