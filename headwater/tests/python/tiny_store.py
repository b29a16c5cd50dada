"""`tiny`: a store of two tables and two tasks, built once and copied for each test.

customers (no time)   rows 0..5    key 1..6, name text, vip boolean
orders (by at)        rows 6..29   key 1..24, customer_id = 1 + order % 5 (row 5 has no orders;
                                   order 24: dangling), quantity = order / 2 (order 3: NULL),
                                   status open or paid, at = day `order`

churn     derived boolean on customers: all six at days 10, 20 and 30; true where the key is even
quantity  cell of orders.quantity, cutoff exclusive: every order at its own time
"""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from databases import TinyTable, arrow_tables, asked, sql_types, typed
from headwater.binding import hash_embed
from headwater.builder.build import build

DAY_US = 86_400_000_000
TEXT_DIM = 8
CUSTOMERS = TinyTable(
    {"id": "INTEGER", "name": "TEXT", "vip": "BOOLEAN"},
    [
        (1, "Ann", True), (2, "Bob", False), (3, None, None), (4, "Ann", True), (5, "Eve", False),
        (6, "", True),
    ],
)  # fmt: skip
ORDERS = TinyTable(
    sql_types("id INTEGER, customer_id INTEGER, quantity DOUBLE, status TEXT, at TIMESTAMP"),
    [
        (order, 99 if order == 24 else 1 + order % 5, None if order == 3 else order / 2,
         ("open", "paid")[order % 2], datetime(1970, 1, 1) + timedelta(days=order))
        for order in range(1, 25)
    ],
)  # fmt: skip
COLUMNS = {
    "customers": typed("id identifier, name text, vip boolean"),
    "orders": typed(
        "id identifier, customer_id identifier customers.id, quantity numerical, "
        "status categorical, at timestamp"
    ),
}
QUERY = """
    SELECT id, TIMESTAMP '1970-01-01' + to_days(day) AS seen, id % 2 = 0 AS churned
    FROM customers, (SELECT unnest([10, 20, 30]) AS day) ORDER BY id, day
"""
METADATA: dict[str, Any] = {
    "name": "tiny",
    "tables": {
        "customers": {"primary_key": "id", "columns": COLUMNS["customers"]},
        "orders": {"primary_key": "id", "temporal_column": "at", "columns": COLUMNS["orders"]},
    },
    "tasks": {
        "churn": asked(QUERY, "customers", "churned boolean", "seen"),
        "quantity": asked("SELECT id, quantity FROM orders", "orders", "quantity numerical"),
    },
}


def hashed(texts: list[str]) -> Any:
    """Vectors of which the first number is 0, and none of which is all zeros."""
    vectors = np.array(hash_embed(texts, TEXT_DIM))
    vectors[:, :2] = 0, 1
    return vectors


@cache
def built() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    tables = arrow_tables({"customers": CUSTOMERS, "orders": ORDERS})
    build(tables, Path(folder.name) / "tiny.hw", METADATA, embedder=hashed, cache=False)
    return folder


def write_tiny(folder: Path) -> Path:
    """A copy of the store, `folder`/tiny.hw."""
    return Path(shutil.copytree(Path(built().name) / "tiny.hw", folder / "tiny.hw"))
