"""What the model reads, from batches of any layout: one axis of cells, with the sampler's bits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import headwater
import jax
import numpy as np
import pyarrow as pa
import pytest
from flat_layout import lay_out, spread

from confluence.data.tasks import (
    COMPACT_INPUT_FIELDS,
    FLAT_INPUT_FIELDS,
    INPUT_FIELDS,
    cell_count,
    context_count,
    to_device,
)
from confluence.model.expand import VALUE_FIELDS, as_flat

MOMENTS = [
    datetime(1600, 2, 29, 12, 30, 30),
    datetime(1900, 3, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    None,
    datetime(1972, 12, 31, 1, 2, 3),
    datetime(2023, 12, 31, 23),
    datetime(2024, 2, 29),
    datetime(9999, 12, 31, 23, 59, 59),
]


def batches_of(store: Path, task: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    """The dense and the compact batch of the same seeds, for every split."""
    with (
        headwater.Sampler(store, tasks=[task], **options) as dense,
        headwater.Sampler(store, tasks=[task], layout="compact", **options) as compact,
    ):
        for split in ("train", "val", "test"):
            if dense.num_seeds(split):
                yield next(dense.epoch(split)), next(compact.epoch(split))


def on_device(batch: Any) -> dict[str, Any]:
    return {name: jax.device_put(array) for name, array in batch.items()}


def assert_bits(found: Any, expected: Any, name: str) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    assert found.tobytes() == expected.tobytes(), name


def assert_values(found: Any, expected: Any, name: str, visible: Any) -> None:
    """The dense layout's bits, where cells are shown: a masked time is not emptied."""
    found = np.asarray(found)
    assert found.dtype == expected.dtype and found.dtype.itemsize <= 4, name
    assert found[visible].tobytes() == expected[visible].tobytes(), name


def assert_device_makes(dense: Any, compact: Any) -> None:
    """Of both the same cells, rows, parents and contexts, with the bits of the dense batch."""
    B, S = dense["is_padding"].shape
    R = dense["parents"].shape[1]
    is_cell = dense["is_padding"].reshape(-1) == 0
    visible = is_cell & (dense["is_target"].reshape(-1) == 0)
    made = jax.jit(as_flat)(on_device(compact))
    other = jax.jit(as_flat)(on_device(dense))
    for name in VALUE_FIELDS:
        expected = dense[name].reshape(B * S, *dense[name].shape[2:])
        assert_bits(other[name], expected, name)
        is_flag = name in ("is_padding", "is_target", "semantic_types", "is_null", "column_ids")
        assert_values(made[name], expected, name, is_cell if is_flag else visible)
    rows = dense["seq_row_ids"].astype(np.int32) + R * np.arange(B)[:, None]
    for flat in (made, other):
        assert (np.asarray(flat["row_ids"]) == rows.reshape(-1))[is_cell].all()
        assert_bits(flat["row_ages"], dense["row_ages"].reshape(-1), "row_ages")
        assert flat["context_cells"].tolist() == [S * b for b in range(B + 1)]
        assert flat["context_rows"].tolist() == [R * b for b in range(B + 1)]
        assert_bits(flat["row_tables"], dense["row_tables"].reshape(-1), "row_tables")
        parents = np.asarray(flat["parents"]).reshape(B, R, -1)
        assert np.array_equal(parents, dense["parents"])
        for b, i in np.argwhere(np.ones((B, R))):
            known = np.flatnonzero(dense["fk_adj"][b, i])
            assert sorted({p for p in parents[b, i] if p < R}) == known.tolist()
    targets = np.asarray(made["context_targets"])
    assert targets.tolist() == np.asarray(other["context_targets"]).tolist()
    count = int(dense["num_sequences"][0])
    assert (targets[:count] // S).tolist() == list(range(count)) and (targets[count:] == -1).all()
    assert (dense["is_target"].reshape(-1)[targets[:count]] == 1).all()


def assert_flat_is_the_same(compact: Any) -> None:
    """Laid side by side, contexts hold what they hold at a stride."""
    B, S = compact["cells"].shape
    batch = lay_out(compact)
    found, expected = jax.jit(as_flat)(on_device(batch)), jax.jit(as_flat)(on_device(compact))
    counts = compact["num_cells"].astype(int)
    alive = np.arange(S) < counts[:, None]
    assert (cell_count(batch), context_count(batch)) == (counts.sum(), (counts > 0).sum())
    for name in VALUE_FIELDS:
        array = np.asarray(expected[name])
        array = array.reshape(B, S, *array.shape[1:])
        assert_bits(spread(batch, np.asarray(found[name]), S)[alive], array[alive], name)
    first_rows = np.asarray(batch["context_rows"])[0, :-1, None]
    rows = spread(batch, np.asarray(found["row_ids"]), S) - first_rows
    strides = (
        np.asarray(expected["row_ids"]).reshape(B, S)
        - np.arange(B)[:, None] * (compact["parents"].shape[1])
    )
    assert (rows == strides)[alive].all()
    assert np.asarray(found["is_padding"])[counts.sum() :].all()
    starts = batch["context_cells"][0, :-1]
    targets = np.asarray(expected["context_targets"])
    within = np.where(targets >= 0, targets - S * np.arange(B) + starts, -1)
    assert np.asarray(found["context_targets"]).tolist() == within.tolist()


@pytest.mark.parametrize("task", ["churn", "subscribed", "next_order", "device", "rating"])
@pytest.mark.parametrize("more", [{}, {"mask_ratio": 0.4}])
def test_the_model_reads_the_same_from_every_layout(
    shop_store: Path, task: str, more: dict[str, Any]
) -> None:
    options = {"default_batch_size": 4, "default_sequence_length": 96, "max_rows": 24, **more}
    for dense, compact in batches_of(shop_store, task, **options):
        assert_device_makes(dense, compact)
        assert_flat_is_the_same(compact)


def test_positions_of_masked_cells_are_those_of_the_batch(shop_store: Path) -> None:
    _, compact = next(
        batches_of(shop_store, "device", default_batch_size=4, max_rows=24,
                   default_sequence_length=96, mask_ratio=0.4)
    )  # fmt: skip
    flat = as_flat(on_device(compact))
    for name, stype in (("numerical", 1), ("timestamp", 2), ("categorical", 4), ("text", 5)):
        given, found = compact[f"masked_{name}_indices"], flat[f"masked_{name}_indices"]
        assert (np.asarray(found) < 0).tolist() == (given < 0).tolist()
        used = np.asarray(found)[given >= 0]
        assert used.size and (np.asarray(flat["semantic_types"])[used] == stype).all(), name
        assert (used // 96).tolist() == np.argwhere(given >= 0)[:, 0].tolist()


def test_rows_of_the_store_next_to_a_batch_are_not_taken_for_those_of_its_cells(
    shop_store: Path,
) -> None:
    """Both are called `row_ids`."""
    options = {"default_batch_size": 4, "default_sequence_length": 32, "max_rows": 8}
    _, compact = next(batches_of(shop_store, "device", with_rows=True, **options))
    assert "row_ids" in compact
    assert as_flat(compact).keys() == as_flat(dict(compact)).keys() != compact.keys()


@pytest.mark.parametrize("put", [dict, to_device])
def test_a_packed_batch_is_refused_with_what_to_use_instead(put: Any, shop_store: Path) -> None:
    """`to_device` dropped `segment_ids`, and all contexts of a sequence were one to the model."""
    for batch in next(batches_of(shop_store, "churn", packing=True, max_hops=1)):
        with pytest.raises(
            ValueError, match=r"packing=True.*open the sampler with layout=\"flat\""
        ):
            as_flat(put(batch))


def test_nulls_padding_and_times_of_any_century_expand_on_the_device(tmp_path: Path) -> None:
    count = len(MOMENTS)
    people = pa.table(
        {
            "person_id": pa.array(range(count), pa.int64()),
            "mentor": pa.array([None, *range(count - 1)], pa.int64()),
            "born": pa.array(MOMENTS, pa.timestamp("us")),
            "seen": pa.array(MOMENTS[::-1], pa.timestamp("us")),
            "size": pa.array([None, 1.5, 2.0, None, -7.0, 0.0, 3.0, 4.0]),
            "likes": pa.array([True, None, False, True, True, None, False, True]),
            "note": pa.array(["a", None, "b b", "a", "", None, "c", "d"]),
        }
    )
    stypes = {
        "person_id": "identifier", "born": "timestamp", "seen": "timestamp", "size": "numerical",
        "likes": "boolean", "note": "text",
    }  # fmt: skip
    columns: dict[str, Any] = {name: {"stype": stype} for name, stype in stypes.items()}
    columns["mentor"] = {"stype": "identifier", "foreign_key": "people.person_id"}
    task = {
        "query": "SELECT person_id, seen FROM people", "anchor_table": "people",
        "target_column": "seen", "target_stype": "timestamp",
    }  # fmt: skip
    headwater.build(
        {"people": people}, tmp_path / "store",
        metadata={
            "name": "people",
            "tables": {"people": {"primary_key": "person_id", "columns": columns}},
            "tasks": {"seen": task},
        },
    )  # fmt: skip
    seen_times = 0
    for identifiers in ("all", "none"):
        for dense, compact in batches_of(
            tmp_path / "store", "seen", default_batch_size=count + 1, max_rows=12,
            default_sequence_length=48, split_ratios=(1.0, 0.0, 0.0), text_budget=40,
            identifier_cells=identifiers,
        ):  # fmt: skip
            assert_device_makes(dense, compact)
            assert_flat_is_the_same(compact)
            assert dense["is_null"].any() and dense["is_padding"][-1].all()
            times = dense["timestamp_values"][dense["semantic_types"] == 2]
            seen_times = max(seen_times, len(np.unique(times, axis=0)))
    assert seen_times == count  # a NULL, which is all zeros, among them


def test_arrays_that_nobody_reads_are_not_made(shop_store: Path) -> None:
    _, compact = next(batches_of(shop_store, "churn", default_sequence_length=64, max_rows=16))
    arrays = on_device(compact)

    def operations(*names: str) -> str:
        wanted = jax.jit(lambda batch: [as_flat(batch)[name] for name in names])
        return str(wanted.lower(arrays).compile().as_text())

    assert " gather(" in operations("timestamp_values")
    scatters = (" scatter(", " while(")  # until JAX 0.10 a processor's scatter is a loop
    assert any(operation in operations("row_ids") for operation in scatters)
    for operation in (" sort(", " gather(", *scatters):
        assert operation not in operations("is_null", "column_ids", "numeric_values")


def test_only_what_the_model_needs_goes_to_the_device(shop_store: Path) -> None:
    dense, compact = next(batches_of(shop_store, "churn", default_sequence_length=64, max_rows=16))
    for batch, fields in (
        (dense, INPUT_FIELDS), (compact, COMPACT_INPUT_FIELDS),
        (lay_out(compact), FLAT_INPUT_FIELDS),
    ):  # fmt: skip
        moved = to_device(batch)
        assert set(moved) == set(fields)
        flat = as_flat(moved)
        assert {*VALUE_FIELDS, "row_ids", "context_targets"} <= set(flat)
        assert as_flat(flat) is flat
