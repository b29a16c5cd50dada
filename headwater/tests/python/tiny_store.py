"""`tiny`: a store of two tables and two tasks, written straight through the builder.

customers (no time)   rows 0..5    key 1..6, name text, vip boolean
orders (by at)        rows 6..29   key 1..24, customer_id = 1 + order % 5 (row 5 has no orders;
                                   order 24: dangling), quantity = order / 2 (order 3: NULL),
                                   status open or paid, at = day `order`

churn     derived boolean on customers: all six at days 10, 20 and 30; true where odd
quantity  cell of orders.quantity, cutoff exclusive: every order at its own time
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from headwater import binding

DAY_US = 86_400_000_000
TEXT_DIM = 8
ORDERS = range(1, 25)
STYPES = binding.SEMANTIC_TYPES


def write_tiny(folder: Path) -> Path:
    """Builds `folder`/tiny.hw."""
    builder = binding.Builder(folder / "building", name="tiny", stats_until_us=2**63 - 1)
    try:
        _declare(builder)
        builder.write_rows(0, _customers())
        builder.write_rows(1, _orders())
        parents = [order % 5 for order in ORDERS if order != 24]
        edges = {"child": pa.array(range(23)), "parent": pa.array(parents)}
        builder.write_edges(0, _stream(**edges), 0)
        builder.write_seeds(0, _churn())
        builder.write_seeds(1, _quantity())
        builder.set_embedder("hash", TEXT_DIM)
        builder.hash_texts()
        for kind, count in (("columns", 10), ("categories", 2)):
            vectors = np.arange(count * TEXT_DIM, dtype=np.float16).reshape(count, TEXT_DIM)
            builder.write_vectors(binding.EMBEDDING_KINDS[kind], vectors)
        metadata = _metadata([builder.column_stats(number) for number in range(8)])
        builder.finish(json.dumps(metadata).encode())
        builder.publish(folder / "tiny.hw")
    finally:
        builder.close()
    return folder / "tiny.hw"


def _declare(builder: binding.Builder) -> None:
    builder.add_table("customers", key_part_count=1)
    builder.add_table("orders", key_part_count=1, temporal=True)
    for name, stype in (("id", "identifier"), ("name", "text"), ("vip", "boolean")):
        builder.add_column(0, name, stype=STYPES[stype])
    for name, stype in (
        ("id", "identifier"), ("customer_id", "identifier"), ("quantity", "numerical"),
        ("status", "categorical"), ("at", "timestamp"),
    ):  # fmt: skip
        builder.add_column(1, name, stype=STYPES[stype], temporal=name == "at")
    builder.set_categories(6, ["open", "paid"])
    builder.add_key(1, 0, [4])
    builder.add_task(
        "churn", anchor_table=0, target_column=None, target_name="churned",
        target_stype=STYPES["boolean"], categories=[], hidden=[], exclusive=False,
        given_split=False, context_labels=1,
    )  # fmt: skip
    builder.add_task(
        "quantity", anchor_table=1, target_column=5, target_name="quantity",
        target_stype=STYPES["numerical"], categories=[], hidden=[], exclusive=True,
        given_split=False, context_labels=1,
    )  # fmt: skip


def _stream(**columns: pa.Array) -> pa.RecordBatchReader:
    return pa.table(columns).to_reader(max_chunksize=5)


def _customers() -> pa.RecordBatchReader:
    return _stream(
        key=pa.array([str(key) for key in range(1, 7)]),
        id=pa.array([True] * 6),
        name=pa.array(["Ann", "Bob", None, "Ann", "Eve", ""]),
        vip=pa.array([True, False, None, True, False, True]),
    )


def _orders() -> pa.RecordBatchReader:
    return _stream(
        time=pa.array([order * DAY_US for order in ORDERS], pa.int64()),
        key=pa.array([str(order) for order in ORDERS]),
        id=pa.array([True] * 24),
        customer_id=pa.array([True] * 24),
        quantity=pa.array([None if order == 3 else order / 2 for order in ORDERS], pa.float64()),
        status=pa.array([("open", "paid")[order % 2] for order in ORDERS]),
        at=pa.array([order * DAY_US for order in ORDERS], pa.int64()),
    )


def _churn() -> pa.RecordBatchReader:
    seeds = [(anchor, day) for anchor in range(6) for day in (10, 20, 30)]
    return _stream(
        anchor=pa.array([anchor for anchor, _ in seeds], pa.int32()),
        obs_time=pa.array([day * DAY_US for _, day in seeds], pa.int64()),
        target=pa.array([anchor % 2 == 1 for anchor, _ in seeds]),
        labelled=pa.array([True] * 18),
        split=pa.array([None] * 18, pa.int32()),
        position=pa.array(range(18), pa.int32()),
    )


def _quantity() -> pa.RecordBatchReader:
    return _stream(
        anchor=pa.array(range(24), pa.int32()),
        obs_time=pa.array([order * DAY_US for order in ORDERS], pa.int64()),
        target=pa.array([None if order == 3 else order / 2 for order in ORDERS], pa.float64()),
        labelled=pa.array([True] * 24),
        split=pa.array([None] * 24, pa.int32()),
        position=pa.array(range(24), pa.int32()),
    )


def _metadata(stats: list[dict[str, Any]]) -> dict[str, Any]:
    moments = {key: stats[5][key] for key in ("mean", "std", "min", "max")}
    categories = {"categories": ["open", "paid"], "cat_emb_start": stats[6]["category_start"]}
    names = [
        ("customers", "id", "identifier", {}), ("customers", "name", "text", {}),
        ("customers", "vip", "boolean", {}), ("orders", "id", "identifier", {}),
        ("orders", "customer_id", "identifier", {}), ("orders", "quantity", "numerical", moments),
        ("orders", "status", "categorical", categories), ("orders", "at", "timestamp", {}),
        (None, "obs_time", "timestamp", {}), (None, "churned", "boolean", {}),
    ]  # fmt: skip
    key = {
        "columns": ["customer_id"],
        "references": {"table": "customers", "columns": ["id"]},
        "edges": 23, "dangling": 1, "nulls": 0,
    }  # fmt: skip
    return {
        "name": "tiny",
        "format_version": binding.FORMAT_VERSION,
        "text": {"embedder": "hash", "dim": TEXT_DIM, "count": 4},
        "tables": [
            _table("customers", [0, 6], [0, 3], None, []),
            _table("orders", [6, 30], [3, 8], "at", [key]),
        ],
        "columns": [
            {"table": table, "name": name, "stype": stype, "stats": stats}
            for table, name, stype, stats in names
        ],
        "tasks": [
            _task("churn", "derived", "customers", "churned", "boolean", 9, 8),
            _task("quantity", "cell", "orders", "quantity", "numerical", 5, None),
        ],
    }


def _table(
    name: str, rows: list[int], columns: list[int], time: str | None, keys: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": name, "row_range": rows, "column_range": columns, "primary_key": ["id"],
        "temporal_column": time, "foreign_keys": keys,
    }  # fmt: skip


def _task(
    name: str, kind: str, anchor: str, target: str, stype: str, column: int, obs_time: int | None
) -> dict[str, Any]:
    return {
        "name": name, "kind": kind, "anchor_table": anchor, "target_column": target,
        "target_stype": stype, "target_column_id": column, "obs_time_column_id": obs_time,
        "seeds": {"train": 0, "val": 0, "test": 0, "unlabelled": 0}, "stats": {},
    }  # fmt: skip
