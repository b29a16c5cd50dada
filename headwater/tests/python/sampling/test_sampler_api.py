"""`headwater.Sampler` as a training loop uses it, on the tiny store."""

from __future__ import annotations

import gc
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pyarrow as pa
import pytest
from databases import asked, typed
from headwater.sampling.statistics import bound_by
from large_batches import large
from tiny_store import DAY_US, write_tiny

SMALL: dict[str, Any] = {
    "default_batch_size": 4,
    "default_sequence_length": 32,
    "max_rows": 16,
    "text_budget": 64,
    "split_ratios": (0.6, 0.2, 0.2),
    "num_threads": 2,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def sampler(path: Path) -> Iterator[headwater.Sampler]:
    with headwater.Sampler(db_path=path, **SMALL) as sampler:
        yield sampler


def same(left: headwater.Batch, right: headwater.Batch) -> bool:
    return all(left[name].tobytes() == right[name].tobytes() for name in left) and all(
        left.info[name].tobytes() == right.info[name].tobytes() for name in left.info
    )


def seeds_of(batch: headwater.Batch) -> list[tuple[int, int]]:
    real = int(batch["num_sequences"][0])
    return [(int(batch["task_idx"][0]), int(seed)) for seed in batch.info["seed_index"][:real]]


# ---- the batch ---------------------------------------------------------------------------------


LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"layout": "dense"},
    "compact": {"layout": "compact"},
    "dense, masked": {"layout": "dense", "mask_ratio": 0.3},
    "compact, masked": {"layout": "compact", "mask_ratio": 0.3},
    "dense, packed": {"layout": "dense", "packing": True},
    "compact, packed": {"layout": "compact", "packing": True},
    "flat": {"layout": "flat", "attention_masks": False},
    "flat, masked": {"layout": "flat", "attention_masks": False, "mask_ratio": 0.3},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_is_what_the_format_says(layout: str, path: Path) -> None:
    options = {
        **SMALL,
        "with_rows": True,
        "targets": "separate",
        "attention_masks": True,
        **LAYOUTS[layout],
    }
    with headwater.Sampler(db_path=path, **options) as sampler:
        batch = sampler.next_train_batch()
        sizes = {
            "B": 4,
            "S": 32,
            "R": 16,
            "R+1": 17,
            "U": sampler.shape["text_budget"],
            "D_t": 8,
            "P": sampler.shape["parent_slots"],
            "T": sampler.shape["contexts_per_sequence"],
            "M": sampler.shape["max_targets_per_type"],
            "15": 15,
            "1": 1,
            "B+1": 5,
        }
        if layout.startswith("flat"):
            task = sampler.store.metadata["tasks"][int(batch["task_idx"][0])]["name"]
            flat = sampler.flat_shape(task)
            sizes |= {"N": flat["cells"], "R_n": flat["rows"], "R_n+1": flat["rows"] + 1}
        fields = [field for field in headwater.BATCH_FIELDS if is_there(field.when, layout)]
        assert [*batch, *batch.info] == [field.name for field in fields]
        for field in fields:
            array = (batch.info if field.info else batch)[field.name]
            assert array.shape == tuple(sizes[dim] for dim in dims_of(field, layout)), field.name
            assert array.dtype == np.dtype(dtype_of(field, layout)), field.name
            assert array.flags.c_contiguous
            assert not array.flags.writeable
            assert array.ctypes.data % 64 == 0
            assert field.info or array.dtype.itemsize <= 4


def is_there(when: str | None, layout: str) -> bool:
    """With every option on that adds an array, and texts in the batch."""
    layout, _, more = layout.partition(", ")
    option, _, layouts = (when or "").partition("layout=")
    if option == "attention_masks":
        return layout != "flat"
    if option == "text_mode=numbers":
        return False
    if option.startswith("packing"):
        return more == "packed" or layout in layouts.split(", ")
    if option.startswith("mask_ratio") and more != "masked":
        return False
    return not layouts or layout in layouts.split(", ")


def dtype_of(field: headwater.BatchField, layout: str) -> str:
    is_long = layout.startswith("flat") and field.name == "row_starts"
    return "uint32" if is_long else field.dtype


def dims_of(field: headwater.BatchField, layout: str) -> tuple[str, ...]:
    if layout.startswith("flat"):
        along = {"S": "N", "R": "R_n", "R+1": "R_n+1"}
        if field.dims[0] == "B" and field.dims[1:2] and field.dims[1] in along:
            return ("1", along[field.dims[1]], *field.dims[2:])
        return ("1",) if field.name == "num_contexts" else field.dims
    by_context = field.dims in (("B",), ("B", "15")) and field.name != "num_contexts"
    return ("B", "T", *field.dims[1:]) if by_context and "packed" in layout else field.dims


def test_arrays_that_nobody_asked_for_are_absent(path: Path) -> None:
    with headwater.Sampler(db_path=path, **SMALL) as sampler:
        absent = {"row_depths", "target_values", "target_is_null", "cells", "row_order"}
        assert not absent & set(sampler.next_train_batch())


def test_batches_outlive_the_sampler(path: Path) -> None:
    sampler = headwater.Sampler(db_path=path, **SMALL)
    batch = sampler.next_train_batch()
    column = batch["column_ids"]
    before = column.copy()
    view = column[1:, ::2]
    sampler.shutdown()
    del sampler, batch, column
    gc.collect()
    assert (view == before[1:, ::2]).all()


def test_a_kept_epoch_is_not_overwritten(sampler: headwater.Sampler) -> None:
    kept = list(sampler.epoch("train"))
    assert len(kept) == sampler.batches_per_epoch("train") == len(sampler.epoch("train"))
    again = list(sampler.epoch("train"))
    assert all(same(left, right) for left, right in zip(kept, again, strict=True))


# ---- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_streams_are_the_pure_function_for_any_threads(
    path: Path, sampler: headwater.Sampler, threads: int, prefetch: int
) -> None:
    options = {**SMALL, "num_threads": threads, "num_prefetch": prefetch}
    with headwater.Sampler(db_path=path, **options) as other:
        for k in range(6):
            assert same(other.next_train_batch(), sampler.batch("train", k))
            assert same(other.next_val_batch(), sampler.batch("val", k))


def test_ranks_share_an_epoch(path: Path) -> None:
    found: list[tuple[int, int]] = []
    lengths = set()
    for rank in range(3):
        with headwater.Sampler(db_path=path, rank=rank, world_size=3, **SMALL) as sampler:
            run = sampler.epoch("train", index=5)
            lengths.add(len(run))
            batches = list(run)
            assert len(batches) == len(run)
            found += [seed for batch in batches for seed in seeds_of(batch)]
            expected = sampler.num_seeds("train")
    assert len(found) == len(set(found)) == expected
    assert len(lengths) == 1


@pytest.mark.parametrize(("world", "size"), [(1, 4), (1, 6), (2, 3), (3, 2)])
def test_a_resumed_run_goes_on_with_another_shape(
    path: Path, sampler: headwater.Sampler, world: int, size: int
) -> None:
    """With one task, the seeds after the state are those that would have come."""
    one = {**SMALL, "tasks": ["churn"], "max_rows": 16, "text_budget": None, "shard": "dealt"}
    with headwater.Sampler(db_path=path, **one) as first:
        for _ in range(3):
            first.next_train_batch()
        state = json.loads(json.dumps(first.state_dict()))
        expected = [seed for _ in range(6) for seed in seeds_of(first.next_train_batch())]
    found: dict[int, tuple[int, int]] = {}
    for rank in range(world):
        options = {**one, "default_batch_size": size, "rank": rank, "world_size": world}
        with headwater.Sampler(db_path=path, **options) as other:
            other.load_state_dict(state)
            for j in range(24 // (world * size)):
                for i, seed in enumerate(seeds_of(other.next_train_batch())):
                    found[(j * size + i) * world + rank] = seed
    assert [found[place] for place in sorted(found)] == expected


def test_a_rank_with_a_fixed_shard_resumes_with_another_batch_size_alone(path: Path) -> None:
    one = {**SMALL, "tasks": ["churn"], "max_rows": 16, "text_budget": None, "rank": 1}
    with headwater.Sampler(db_path=path, world_size=2, **one) as first:
        for _ in range(3):
            first.next_train_batch()
        state = json.loads(json.dumps(first.state_dict()))
        expected = [seed for _ in range(3) for seed in seeds_of(first.next_train_batch())]
        left = first.remaining("train")
    more = {**one, "default_batch_size": 6}
    with headwater.Sampler(db_path=path, world_size=2, **more) as other:
        own = len(range(1, other.num_seeds("train"), 2))
        assert other.remaining("train") == own
        other.load_state_dict(state)
        found = [seed for _ in range(2) for seed in seeds_of(other.next_train_batch())]
        assert found == expected
        assert other.remaining("train") == left == own - 24 % own
    for given, message in (
        ({"world_size": 3}, "world_size was 2 and is 3"),
        ({"world_size": 2, "shard": "dealt"}, "shard was 'fixed' and is 'dealt'"),
    ):
        with (
            headwater.Sampler(db_path=path, **one, **given) as other,
            pytest.raises(ValueError, match=message),
        ):
            other.load_state_dict(state)


def test_a_rank_without_seeds_warns_and_yields_empty_batches(path: Path) -> None:
    one = {**SMALL, "tasks": ["churn"], "rank": 999, "world_size": 1000}
    with headwater.Sampler(db_path=path, **one) as sampler:
        with pytest.warns(UserWarning, match=r"seeds in split 'train', none for rank 999 of 1000"):
            batch = sampler.next_train_batch()
        assert batch["num_sequences"][0] == 0 and not batch["is_labelled"].any()
        assert [int(b["num_sequences"][0]) for b in sampler.epoch("train")] == [0]
        assert sampler.remaining("train") == 0


def test_state_counts_what_was_handed_out_only(path: Path) -> None:
    with headwater.Sampler(db_path=path, **SMALL) as sampler:
        fresh = sampler.state_dict()
        time.sleep(0.05)  # prefetched by now
        assert sampler.state_dict() == fresh
        first = [sampler.next_train_batch() for _ in range(5)]
        sampler.next_val_batch()
        assert sampler.state_dict()["streams"]["train"]["batches"] == 5
        assert sum(sampler.state_dict()["streams"]["train"]["positions"].values()) == 20
        assert sampler.remaining("train") <= sampler.num_seeds("train")
        sampler.load_state_dict(fresh)
        assert all(same(sampler.next_train_batch(), batch) for batch in first)


def test_a_state_of_another_sampler_names_what_differs(
    path: Path, sampler: headwater.Sampler
) -> None:
    with headwater.Sampler(db_path=path, **{**SMALL, "seed": 1, "bfs_child_width": 3}) as other:
        with pytest.raises(ValueError, match="bfs_child_width was 16 and is 3; seed was 42"):
            other.load_state_dict(sampler.state_dict())
        with pytest.raises(ValueError, match="version"):
            other.load_state_dict({})
    dealt = ("1970-01-02", "1970-01-05")
    with (
        headwater.Sampler(db_path=path, **SMALL, time_split=dealt) as other,
        pytest.raises(ValueError, match="time_split"),
    ):
        other.load_state_dict(sampler.state_dict())


# ---- seeds given by the caller -----------------------------------------------------------------


def test_contexts_of_keys_come_in_their_order(sampler: headwater.Sampler) -> None:
    keys = [3, "1", 6, 1, 2]
    run = sampler.batches_for("churn", keys=keys, obs_time="1970-01-16")
    assert len(run) == 2
    batches = list(run)
    anchors = np.concatenate([b.info["anchor_rows"][: b["num_sequences"][0]] for b in batches])
    assert anchors.tolist() == [2, 0, 5, 0, 1]
    assert set(batches[0].info["obs_time"]) == {15 * DAY_US}
    assert not any(batch["is_labelled"].any() for batch in batches)
    assert list(sampler.batches_for("churn", keys=[], obs_time=0)) == []


def test_contexts_of_rows_are_those_of_their_keys(sampler: headwater.Sampler) -> None:
    rows = sampler.store.find_all("customers", [3, 1])
    by_row = next(sampler.batches_for("churn", rows=rows, obs_time="1970-01-16"))
    by_key = next(sampler.batches_for("churn", keys=[3, 1], obs_time="1970-01-16"))
    for name in by_key:
        assert np.array_equal(by_row[name], by_key[name]), name
    with pytest.raises(ValueError, match="either keys or rows"):
        sampler.batches_for("churn", keys=[1], rows=rows, obs_time=0)
    with pytest.raises(ValueError, match=r"anchors\[0\] is row 29, outside the anchor table"):
        sampler.batches_for("churn", rows=[29], obs_time="1960-01-01")
    with pytest.raises(ValueError, match="rows has 2 dimensions, expected 1"):
        sampler.batches_for("churn", rows=[[1], [2]], obs_time=0)


def test_keys_and_times_are_checked(sampler: headwater.Sampler) -> None:
    with pytest.raises(KeyError, match="'customers' has no rows with the keys 7, 'x'"):
        sampler.batches_for("churn", keys=[1, 7, "x"], obs_time=0)
    with pytest.raises(KeyError, match="the keys '6 ', did you mean 6"):
        sampler.batches_for("churn", keys=["6 "], obs_time=0)
    with pytest.raises(headwater.TaskError, match=r"needs the time of each .*: give obs_time$"):
        sampler.batches_for("churn", keys=[1])
    with pytest.raises(ValueError, match="2 entries for 1 keys"):
        sampler.batches_for("churn", keys=[1], obs_time=[0, 1])
    with pytest.raises(ValueError, match="did you mean 'churn'"):
        sampler.batches_for("chrn", keys=[1], obs_time=0)
    own = next(sampler.batches_for("quantity", keys=[4]))
    assert own.info["obs_time"][0] == 4 * DAY_US


def test_questions_before_their_anchor_came_to_be_are_refused(tmp_path: Path) -> None:
    """Such a row was answered, at an age of -30 days; a build drops such seeds."""
    query = "SELECT id, TIMESTAMP '2030-01-01' AS at, 1.0 AS y FROM books"
    books = {"id": [1, 2, 3], "born": ["2024-01-01 09:00:00", "2024-03-01 00:00:00", None]}
    task = asked(query, "books", "y numerical", "at")
    columns = typed("id identifier, born timestamp")
    for name, more in (("instant", {}), ("day", {}), ("kept", {"allow_future_anchor": True})):
        table = {"primary_key": "id", "temporal_column": "born", "columns": columns}
        resolution = {"time_resolution": "day" if name == "day" else "instant"}
        metadata = {"tables": {"books": table | resolution}, "tasks": {"t": task | more}}
        headwater.build({"books": pa.table(books)}, tmp_path / name, metadata)

    def refused(name: str, keys: list[int], times: Any) -> str:
        with headwater.Sampler(db_path=tmp_path / name, num_prefetch=0) as sampler:
            with pytest.raises(headwater.TaskError) as caught:
                sampler.batches_for("t", keys, times)
            return str(caught.value)

    def ages(name: str, keys: list[int], times: Any) -> list[float]:
        with headwater.Sampler(db_path=tmp_path / name, num_prefetch=0) as sampler:
            (batch,) = sampler.batches_for("t", keys, times)
            return list(batch["row_ages"][: len(keys), 1])

    assert refused("instant", [1, 2, 2], ["2024-01-01T09:00", "2024-02-29", "2024-02-01"]) == (
        "task 't': 2 of 3 questions are asked before the row of 'books' came to be: 2 at "
        "2024-02-29, but books.born is 2024-03-01; ask later, or build the store again with "
        '"allow_future_anchor": true in the task'
    )
    assert "1 of 1 questions is asked" in refused("instant", [1], "2024-01-01T08:59:59")
    assert "3 at 2030-01-01, but books.born is NULL there" in refused(
        "instant", [1, 3], "2030-01-01"
    )
    over = "1 at 2024-01-01 23:59:59, but the day in books.born is over at 2024-01-02;"
    assert over in refused("day", [1], "2024-01-01T23:59:59")
    assert ages("instant", [1, 2], ["2024-01-01T09:00", "2024-03-02"]) == [0, 1]
    assert ages("day", [1], "2024-01-02") == [0]
    assert ages("kept", [2, 3], "2024-01-31") == [-30, -1]


# ---- what it knows -----------------------------------------------------------------------------


def test_metadata_holds_the_splits_and_statistics_of_this_sampler(
    sampler: headwater.Sampler,
) -> None:
    metadata = sampler.database_metadata()
    churn, quantity = metadata["tasks"]
    for entry in (churn, quantity):
        counts = {split: sampler.num_seeds(split, entry["name"]) for split in ("train", "val")}
        assert {split: entry["seeds"][split] for split in counts} == counts
    seeds = sampler.store.task_seeds("quantity")
    train = (sampler.splits("quantity") == 0) & ~seeds["is_null"]
    assert quantity["stats"]["mean"] == pytest.approx(seeds["target"][train].mean())
    assert quantity["stats"]["p50"] == pytest.approx(np.quantile(seeds["target"][train], 0.5))
    labels = sampler.store.task_seeds("churn")["target"][sampler.splits("churn") == 0]
    assert churn["stats"]["positive"] == pytest.approx(labels.mean())
    assert metadata["fingerprint"] == sampler.store.fingerprint


def test_the_scale_of_times_is_in_the_metadata_of_every_task(path: Path) -> None:
    """Times are the 24 of the orders, a day apart: (24² - 1) / 12 is their variance."""
    scale = {"mean_us": 12.5 * DAY_US, "std_us": (575 / 12) ** 0.5 * DAY_US}
    assert headwater.Store(path).metadata["time"] == pytest.approx(scale)
    with headwater.Sampler(path, **SMALL, tasks=["quantity"]) as sampler:
        assert sampler.database_metadata()["time"] == pytest.approx(scale)
    cutoff = ("1970-01-05", "1970-01-09")  # of orders 1 to 4: 1.25 is the variance
    with headwater.Sampler(path, **SMALL, tasks=["quantity"], time_split=cutoff) as sampler:
        scale = {"mean_us": 2.5 * DAY_US, "std_us": 1.25**0.5 * DAY_US}
        assert sampler.database_metadata()["time"] == pytest.approx(scale)


def test_embeddings_are_copies(sampler: headwater.Sampler) -> None:
    columns = sampler.column_embeddings()
    columns[0] = 1
    assert columns.shape == (10, 8)
    assert sampler.column_embeddings()[0, 0] == 0
    assert sampler.categorical_embeddings().shape == (2, 8)


def test_warm_up_tells_how_much_there_is_and_that_it_is_done(sampler: headwater.Sampler) -> None:
    told: list[tuple[int, int]] = []
    sampler.warm_up(lambda done, total: told.append((done, total)))
    assert told[0][0] == 0 < told[-1][1]
    assert told[-1][0] == told[-1][1]


def test_statistics_count(sampler: headwater.Sampler) -> None:
    for _ in range(5):
        sampler.next_train_batch()
    stats = sampler.stats()
    assert stats["batches"] >= 5
    assert stats["sequences"] >= 20
    assert 0 < stats["fill"] <= 1
    assert stats["threads"] == 2
    text = sampler.stats_prometheus()
    assert "# TYPE headwater_sampler_batches_total counter\n" in text
    assert 'headwater_sampler_batches_total{rank="0"} ' in text
    assert "headwater_sampler_fill{" in text


def test_shares_of_the_time_add_up_and_a_window_counts_from_its_start(
    sampler: headwater.Sampler,
) -> None:
    for _ in range(5):
        sampler.next_train_batch()
    before = sampler.stats()
    parts = ("walk", "emit", "text", "producer_wait")
    assert sum(before[f"{part}_share"] for part in parts) == pytest.approx(1)
    assert 0 <= before["consumer_wait_share"] <= 1
    assert before["bound_by"] in ("consumer", "walk", "emit", "text")
    time.sleep(0.3)  # queues are full after a while: then nothing is made
    full = sampler.stats()
    time.sleep(0.05)
    window = sampler.stats(since=full)
    assert (window["sequences"], window["bound_by"]) == (0, "idle")
    assert window["producer_wait_share"] == pytest.approx(1)
    assert 0.05 <= window["elapsed_seconds"] < full["elapsed_seconds"] + 60
    assert window["threads"] == 2
    assert window["slab_bytes"] == full["slab_bytes"]
    assert full["bound_by"] == "consumer"  # both threads slept longer than it waited


def test_a_sampler_without_threads_is_bound_by_its_longest_stage(path: Path) -> None:
    with headwater.Sampler(db_path=path, **{**SMALL, "num_prefetch": 0}) as sampler:
        sampler.next_train_batch()
        stats = sampler.stats()
    stages = {stage: stats[f"{stage}_seconds"] for stage in ("walk", "emit", "text")}
    assert stats["threads"] == 0
    assert stats["bound_by"] == max(stages, key=lambda stage: stages[stage])


@pytest.mark.parametrize(
    ("changed", "bound"),
    [
        ({"sequences": 0}, "idle"),
        ({}, "walk"),  # the consumer waited 5 s, a thread 1 s
        ({"emit_seconds": 9.0}, "emit"),
        ({"text_seconds": 9.0}, "text"),
        ({"producer_wait_seconds": 10.0}, "consumer"),  # 5 s per thread, as long as the consumer
        ({"producer_wait_seconds": 9.9}, "walk"),
        ({"threads": 0, "producer_wait_seconds": 99.0}, "walk"),
    ],
)
def test_who_waits_longer_is_not_the_bound(changed: dict[str, float], bound: str) -> None:
    stats = {
        "sequences": 8,
        "threads": 2,
        "walk_seconds": 4.0,
        "emit_seconds": 3.0,
        "text_seconds": 1.0,
        "producer_wait_seconds": 2.0,
        "consumer_wait_seconds": 5.0,
    }
    assert bound_by({**stats, **changed}) == bound


def test_prometheus_names_the_bound(sampler: headwater.Sampler) -> None:
    sampler.next_train_batch()
    text = sampler.stats_prometheus()
    values = re.findall(r'headwater_sampler_bound_by\{rank="0",bound="(\w+)"\} ([01])\n', text)
    assert [name for name, _ in values] == ["consumer", "walk", "emit", "text", "idle"]
    assert sum(int(value) for _, value in values) == 1
    assert "# TYPE headwater_sampler_walk_share gauge\n" in text
    assert "# TYPE headwater_sampler_elapsed_seconds_total counter\n" in text


def test_batches_are_the_same_from_memory(path: Path) -> None:
    with (
        headwater.Sampler(db_path=path, **SMALL, load="ram") as loaded,
        headwater.Sampler(db_path=path, **SMALL) as mapped,
    ):
        assert same(loaded.batch("train", 3), mapped.batch("train", 3))


def test_samplers_share_a_store(path: Path) -> None:
    store = headwater.Store(path)
    with (
        headwater.Sampler(store=store, **SMALL) as first,
        headwater.Sampler(store=store, **SMALL) as second,
    ):
        store.close()
        assert same(first.next_train_batch(), second.next_train_batch())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"child_order": "oldest"}, "child_order is 'oldest', expected one of 'uniform', 'recent'"),
        ({"split_ratios": (0.5, 0.1, 0.1)}, "split_ratios sum to 0.7"),
        ({"tasks": ["chrn"]}, "did you mean 'churn'"),
        ({"task_weights": {"churn": 1.0}}, "expected one for each of"),
        ({"rank": 2, "world_size": 2}, "rank is 2"),
        ({"default_batch_size": 0}, "default_batch_size is 0"),
        ({"num_threads": 100_000}, "num_threads is 100000"),
        ({"visible_until": {"later": 0}}, "visible_until names"),
        ({"num_prefetch": -1}, "num_prefetch is -1"),
        ({"time_split": ("1970-01-02", "1970-01-02")}, "expected a time and a later one"),
        ({"time_split": "1970-01-02"}, "expected \\(at, until\\)"),
    ],
)
def test_bad_options_are_named(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        headwater.Sampler(db_path=path, **{**SMALL, **options})


def test_a_split_without_seeds_is_a_task_error_when_asked_for(path: Path) -> None:
    with headwater.Sampler(db_path=path, **{**SMALL, "split_ratios": (1, 0, 0)}) as sampler:
        sampler.next_train_batch()
        with pytest.raises(headwater.TaskError, match="split 'val' has no seeds"):
            sampler.next_val_batch()
        with pytest.raises(headwater.TaskError, match="task 'churn' has no seeds"):
            sampler.epoch("test", task="churn")


# ---- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_shutdown_is_idempotent_and_final(path: Path, prefetch: int) -> None:
    sampler = headwater.Sampler(db_path=path, **{**SMALL, "num_prefetch": prefetch})
    run = sampler.epoch("train")
    sampler.next_train_batch()
    sampler.shutdown()
    sampler.shutdown()
    for ask in (sampler.next_train_batch, sampler.next_val_batch, lambda: next(run)):
        with pytest.raises(headwater.SamplerShutdown):
            ask()
    with pytest.raises(headwater.SamplerShutdown):
        sampler.batch("train", 0)


def mapped(path: Path) -> bool:
    return f"{path}/" in Path("/proc/self/maps").read_text()


def test_shutdown_lets_go_of_a_store_that_the_sampler_opened(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path, **SMALL) as sampler:
        store, run = sampler.store, sampler.epoch("train")
        for _ in range(3):
            batch = sampler.next_train_batch()
        first, before = next(run), batch["column_ids"].copy()
        rows = store.task_seeds("churn")["anchor_row"]  # an array over the store
        assert mapped(path)
    assert mapped(path) and rows.tolist() == [row for row in range(6) for _ in range(3)]
    del rows
    assert not mapped(path)  # with batches, a pass and the closed store at hand
    assert (batch["column_ids"] == before).all() and first["num_sequences"][0] == 4
    state = sampler.state_dict()
    assert state["streams"]["train"]["batches"] == 3 and sampler.stats()["sequences"] >= 12
    for ask in (sampler.database_metadata, lambda: sampler.num_seeds("train"), lambda: next(run)):
        with pytest.raises(headwater.SamplerShutdown, match="the sampler was shut down"):
            ask()
    with pytest.raises(ValueError, match="the store is closed"):
        sampler.column_embeddings()
    with headwater.Sampler(path, **SMALL) as other:
        other.load_state_dict(state)


def test_shutdown_leaves_a_shared_store_open(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Store(path) as store:
        with headwater.Sampler(store=store, **SMALL) as sampler:
            sampler.next_train_batch()
        assert mapped(path) and sampler.column_embeddings().shape == (10, 8)
    assert not mapped(path)


def test_shutdown_wakes_waiting_threads(path: Path) -> None:
    sampler = headwater.Sampler(db_path=path, **SMALL)
    ended: list[str] = []

    def take() -> None:
        try:
            while True:
                sampler.next_train_batch()
        except headwater.SamplerShutdown:
            ended.append("ended")

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    sampler.shutdown()
    for thread in threads:
        thread.join(timeout=10)
    assert ended == ["ended"] * 4


def test_abandoned_passes_do_not_block(sampler: headwater.Sampler) -> None:
    for _ in range(50):
        run = sampler.epoch("train")
        next(run)
    run.close()
    assert list(run) == []
    sampler.next_train_batch()


def test_a_timeout_raises_and_the_batch_comes_later(path: Path) -> None:
    with large(path) as sampler:
        with pytest.raises(TimeoutError):
            sampler.next_train_batch(timeout=0)
        with pytest.raises(ValueError, match="timeout"):
            sampler.next_train_batch(timeout=-1)


SCRIPT = """
import sys; sys.path[:0] = {paths!r}
import headwater, large_batches
sampler = large_batches.large({path!r})
print("waiting", flush=True)
try:
    while True:
        sampler.next_train_batch()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait_and_the_interpreter_exits(path: Path) -> None:
    script = SCRIPT.format(paths=[str(Path(__file__).parents[1]), *sys.path], path=str(path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert output == "interrupted\n"
    assert process.returncode == 0


def test_a_forked_child_is_refused(sampler: headwater.Sampler) -> None:
    code = f"""
import os, sys; sys.path[:0] = {[str(Path(__file__).parents[1]), *sys.path]!r}
import headwater
sampler = headwater.Sampler(db_path={str(sampler.store.path)!r}, **{SMALL!r})
batch = sampler.next_train_batch()
child = os.fork()
if child == 0:
    try:
        sampler.next_train_batch()
    except RuntimeError as error:
        del batch, sampler
        sys.exit(0 if "forked" in str(error) else 1)
    sys.exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_memory_errors_name_the_settings(path: Path) -> None:
    with pytest.raises((MemoryError, ValueError), match=r"lower .*batch_size"):
        headwater.Sampler(
            db_path=path, default_batch_size=65_536, default_sequence_length=65_535,
            max_rows=65_535, text_budget=2**20,
        ).next_train_batch()  # fmt: skip


def test_batches_that_do_not_fit_into_memory_are_refused_by_the_constructor(path: Path) -> None:
    with pytest.raises(MemoryError, match=r"67 batches .* do not fit .* lower num_prefetch"):
        headwater.Sampler(
            db_path=path, default_batch_size=65_536, default_sequence_length=4096, max_rows=16,
            text_budget=2**20, num_prefetch=64, num_prefetch_val=2,
        )  # fmt: skip


def test_an_error_of_a_thread_is_raised_by_every_later_next(tmp_path: Path) -> None:
    broken = write_tiny(tmp_path)
    sampler = headwater.Sampler(db_path=broken, **SMALL)
    graph = next(broken.glob("*/graph.bin"))
    with graph.open("ab") as file:
        file.write(b"x")
    with pytest.raises(headwater.StoreError, match=r"graph\.bin"):
        for _ in range(20):
            sampler.next_train_batch()
    with pytest.raises(headwater.StoreError):
        sampler.next_val_batch()
    sampler.shutdown()


def test_what_is_no_time_is_refused(sampler: headwater.Sampler) -> None:
    """NaT was the time before all times: an empty context without a word."""
    with pytest.raises(ValueError, match=r"found np\.datetime64"):
        sampler.batches_for("churn", keys=[1], obs_time=np.datetime64("NaT", "us"))
    with pytest.raises(TypeError, match=r"expected a time .*, found 1.5"):
        sampler.batches_for("churn", keys=[1], obs_time=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keys is 1, expected a list"):
        sampler.batches_for("churn", keys=1, obs_time=0)  # type: ignore[arg-type]


def test_a_state_that_is_not_whole_is_refused_and_moves_nothing(
    sampler: headwater.Sampler,
) -> None:
    sampler.next_train_batch()
    before = sampler.state_dict()
    state = json.loads(json.dumps(before))
    state["streams"]["train"]["batches"] = 7
    del state["streams"]["val"]["positions"]
    with pytest.raises(ValueError, match="not whole: it lacks 'positions'"):
        sampler.load_state_dict(state)
    with pytest.raises(ValueError, match="lacks 'fingerprint'"):
        sampler.load_state_dict({"version": before["version"]})
    with pytest.raises(TypeError, match="the state is None"):
        sampler.load_state_dict(None)  # type: ignore[arg-type]
    assert sampler.state_dict() == before


def test_objects_say_what_they_are(sampler: headwater.Sampler, path: Path) -> None:
    assert repr(sampler).startswith(f"<Sampler of '{path}': ")
    assert repr(sampler.store) == f"<Store '{path}'>"
    shown = repr(sampler.batch("train", 0))
    assert "num_cells uint32[4]" in shown and "\n" not in shown


def test_a_task_without_seeds_in_a_split_is_left_out_with_one_warning(tmp_path: Path) -> None:
    people = pa.table({"id": [1, 2, 3, 4], "age": [30.0, 40.0, 50.0, 60.0]})
    columns = {"id": {"stype": "identifier"}, "age": {"stype": "numerical"}}
    tasks = {
        name: {
            "query": f"SELECT id, age > 35 AS {name}, {split} AS split FROM people",
            "anchor_table": "people",
            "anchor_key": "id",
            "target_column": name,
            "target_stype": "boolean",
            "split_column": "split",
        }
        for name, split in (
            ("old", "CASE WHEN id < 3 THEN 'train' ELSE 'val' END"),
            ("aged", "'train'"),
        )
    }
    metadata = {
        "name": "town",
        "tables": {"people": {"primary_key": "id", "columns": columns}},
        "tasks": tasks,
    }
    headwater.build({"people": people}, tmp_path / "town.hw", metadata=metadata)
    options = {**SMALL, "num_threads": 1}
    with pytest.raises(
        ValueError, match=r"split_ratios is \(0.6, 0.2, 0.2\), but the seeds of 'old', 'aged' say"
    ):
        headwater.Sampler(tmp_path / "town.hw", **options)
    options["split_ratios"] = (0.8, 0.1, 0.1)  # the default
    with headwater.Sampler(db_path=tmp_path / "town.hw", **options) as sampler:
        sampler.next_train_batch()
        with pytest.warns(UserWarning, match="'aged' has no seeds in split 'val'") as told:
            batches = [sampler.next_val_batch() for _ in range(3)]
        assert len(told) == 1
        assert {int(batch["task_idx"][0]) for batch in batches} == {0}
