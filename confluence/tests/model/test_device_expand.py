"""Compact batches: the device makes what the host makes, and training on them changes nothing."""

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

from confluence.data.tasks import COMPACT_INPUT_FIELDS, INPUT_FIELDS, to_device
from confluence.model.expand import as_dense, expand

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


def assert_device_makes(dense: Any, compact: Any) -> None:
    """Every array of the dense batch, with its dtype, shape and bits; nothing wider than 32."""
    expanded = expand({name: jax.device_put(array) for name, array in compact.items()})
    assert set(expanded) == {*dense, "parents"}
    on_host = headwater.expand(compact)
    for name, array in dense.items():
        found = np.asarray(expanded[name])
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes() == on_host[name].tobytes(), name
        assert found.dtype.itemsize <= 4


@pytest.mark.parametrize("task", ["churn", "subscribed", "next_order", "device", "rating"])
@pytest.mark.parametrize(
    "more",
    [{}, {"targets": "separate"}, {"packing": True, "max_hops": 1}, {"mask_ratio": 0.4}],
)
def test_the_shop_expands_on_the_device_as_on_the_host(
    shop_store: Path, task: str, more: dict[str, Any]
) -> None:
    options = {"default_batch_size": 4, "default_sequence_length": 96, "max_rows": 24, **more}
    for dense, compact in batches_of(shop_store, task, **options):
        assert_device_makes(dense, compact)


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
            assert dense["is_null"].any() and dense["is_padding"][-1].all()
            times = dense["timestamp_values"][dense["semantic_types"] == 2]
            seen_times = max(seen_times, len(np.unique(times, axis=0)))
    assert seen_times == count  # a NULL, which is all zeros, among them


def test_arrays_that_nobody_reads_are_not_made(shop_store: Path) -> None:
    _, compact = next(batches_of(shop_store, "churn", default_sequence_length=64, max_rows=16))
    arrays = {name: jax.device_put(array) for name, array in compact.items()}

    def operations(*names: str) -> str:
        wanted = jax.jit(lambda batch: [expand(batch)[name] for name in names])
        return str(wanted.lower(arrays).compile().as_text())

    assert " sort(" in operations("col_perm")
    assert " gather(" in operations("timestamp_values")
    for operation in (" sort(", " gather(", " scatter("):
        assert operation not in operations("is_null", "column_ids", "numeric_values")


def test_only_what_the_model_needs_goes_to_the_device(shop_store: Path) -> None:
    dense, compact = next(batches_of(shop_store, "churn", default_sequence_length=64, max_rows=16))
    assert set(to_device(dense)) == set(INPUT_FIELDS)
    moved = to_device(compact)
    assert set(moved) == set(COMPACT_INPUT_FIELDS)
    assert set(INPUT_FIELDS) <= set(as_dense(moved))
    assert as_dense(to_device(dense)).keys() == set(INPUT_FIELDS)
