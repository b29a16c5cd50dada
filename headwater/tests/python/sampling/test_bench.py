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
from headwater.cli.main import main
from headwater.sampling import bench
from tiny_store import write_tiny

SCRIPTS = Path(__file__).parents[3] / "bench"
MODULES = ("generate", "instructions", "hub", "figures")


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


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that are over at once."""
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    monkeypatch.setattr(bench, "REPEATS", 2)


@pytest.mark.usefixtures("brief")
def test_every_combination_gives_a_line_that_can_be_read_alone(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _run(
        capsys, tiny, "--threads", "1", "--threads", "2", "--layout", "dense", "--layout",
        "compact", "--task", "churn",
    )  # fmt: skip
    named = [(line["threads"], line["layout"]) for line in lines]
    assert named == [(1, "dense"), (1, "compact"), (2, "dense"), (2, "compact")]
    for line in lines:
        assert line["question"] == "throughput"
        assert (line["B"], line["S"], line["w"], line["repeats"]) == (32, 1024, 16, 2)
        assert line["task"] == "churn"
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


def measured(tiny: Path, length: int) -> dict[str, Any]:
    """The line of contexts of so many cells, four to a batch."""
    wanted = [bench.Configuration(length=length, batch_size=4, task="churn")]
    (line,) = bench.throughput(tiny, wanted, seconds=0.01, repeats=1)
    return line


def test_bytes_per_padded_cell_are_those_of_the_arrays(tiny: Path) -> None:
    line = measured(tiny, 64)
    with headwater.Sampler(
        tiny, default_batch_size=4, default_sequence_length=64, tasks=["churn"], num_prefetch=0
    ) as sampler:
        batch = sampler.batch("train", 0)
    size = sum(array.nbytes for array in batch.values()) / (4 * 64)
    assert line["bytes_per_padded_cell"] == pytest.approx(size, abs=0.01)


def test_the_text_share_is_of_cells(tiny: Path) -> None:
    """A context of 5 cells: the seed row's 2, and a customer's 3, of which one may be a text."""
    line = measured(tiny, 5)
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
    lines = _run(capsys, tiny, "--latency", "20", "--task", "churn", "--task", "quantity")
    assert [line["task"] for line in lines] == ["churn", "quantity"]
    for line in lines:
        assert (line["question"], line["B"], line["requests"]) == ("latency", 1, 20)
        for way in ("batch", "batches_for"):
            assert 0 < line[f"{way}_us_p50"] <= line[f"{way}_us_p99"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latency", "0"], "--latency is 0, expected at least 1"),
        (["--threads", "0"], "num_threads is 0, expected 1 to 256"),
        (["--task", "chur"], "did you mean 'churn'?"),
    ],
)
def test_bad_options_are_one_message(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["bench", str(tiny), *arguments]) == 1
    output = capsys.readouterr()
    assert message in output.err and not output.out


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

PROFILE = """\
positions: line
events: Ir

ob=(1) /build/bench_sampler
fl=(1) ../headwater/src/walk/walk.c
fn=(1) hwi_walk_seed
10 100
+2 50
cfi=(2) ../headwater/src/batch/emit.c
cfn=(2) hwi_emit_sequence
calls=3 20
12 7000
fi=(3) ../headwater/src/base/rng.h
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
    hot = {"walk/walk.c": "walk", "walk/child_draws.c": "walk", "batch/emit.c": "emit",
           "batch/cell_order.c": "permute", "batch/texts.c": "text"}  # fmt: skip
    sources = Path(__file__).parents[3] / "src"
    for name, stage in hot.items():
        assert (sources / name).exists() and stage_of(f"../headwater/src/{name}") == stage


def test_the_hub_is_compared_with_an_ordinary_place(scripts: Any, hub_store: Path) -> None:
    line = scripts("hub").compare(
        hub_store, bench.Configuration(length=64, batch_size=4), seconds=0.02, repeats=1
    )
    assert line["hub_children"] == 1000 and line["S"] == 64
    assert line["ratio"] == pytest.approx(line["hub_us"] / line["ordinary_us"], rel=0.01)
