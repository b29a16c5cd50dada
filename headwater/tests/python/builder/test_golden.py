"""The golden store (see tests/c/store/test_golden.c) through the binding.

`bookstore` of tests/c/support/fixtures.h, whose rows stand there as a table. The C test compares
its bytes; this one reads it as a user of Python would.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from headwater import binding

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
DAY_US = 86_400_000_000
NO_TIME_US = 2**63 - 1


@pytest.fixture
def store() -> binding.Store:
    return binding.Store(GOLDEN)


def test_it_opens_and_verifies_clean(store: binding.Store) -> None:
    assert store.verify() == []
    assert store.fingerprint() == json.loads((GOLDEN / "manifest.json").read_text())["fingerprint"]


def test_its_size_is_that_of_the_bookstore(store: binding.Store) -> None:
    counts = store.counts()
    assert (counts["table_count"], counts["column_count"]) == (2, 13)
    assert (counts["row_count"], counts["text_count"]) == (9, 6)
    assert (counts["key_count"], counts["task_count"]) == (2, 2)


def test_its_rows_are_those_of_the_bookstore(store: binding.Store) -> None:
    rows = range(3, 9)
    assert [store.row_key(row) for row in range(9)] == [
        *[("1",), ("2",), ("3",)],
        *[("b1",), ("b2",), ("b3",), ("b4",), ("b5",), ("b6",)],
    ]
    days = [10, 20, 20, 30, 40, None]
    times = [NO_TIME_US if day is None else day * DAY_US for day in days]
    assert [store.row_time(row) for row in rows] == times
    assert [store.parent(row, 0) for row in rows] == [0, 0, 1, None, 1, 0]
    assert [store.parent(row, 1) for row in rows] == [None, 3, None, 4, None, 5]
    assert np.asarray(store.children(0, 0)).tolist() == [3, 4, 8]
    assert [store.text(index) for index in range(6)] == ["Ann", "Bob", "Cy", "Fog", "Fog II", ""]


def test_its_seeds_are_those_of_the_bookstore(store: binding.Store) -> None:
    price = {name: np.asarray(array) for name, array in store.seeds(0).items()}
    assert price["anchors"].tolist() == [3, 4, 6, 7]
    assert price["obs_times"].tolist() == [day * DAY_US for day in (10, 20, 30, 40)]
    assert price["targets"].view(np.float64).tolist() == [10, 20, 30, 40]
    assert price["positions"].tolist() == [3, 2, 1, 0]
    returns = {name: np.asarray(array) for name, array in store.seeds(1).items()}
    assert (returns["states"] & 15).tolist() == [0, 0, 1, 2]
    assert (returns["states"] >> 4).tolist() == [0, 1, 0, 2]
