"""Counts, recencies and means of what is visible: worked out by hand, and against canaries.

customers  1, 2, 3 (no time)                       visits  of customers, no time: 1, 1, 2
orders     id  customer  day  amount  paid  rated   items  id  order  day  pieces
           10  1          1   10      2     -              100 10      1   2
           11  1          5   20      9     7              101 10      3   4
           12  1         40   30      41    41             102 12     40   6
           13  2          3    5      4     -
amount is known when paid, on `paid`; orders.agent_id (agents 7 and 8) on `rated`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pyarrow as pa
import pytest
from small import labelled, write_sqlite

from confluence.config import preset
from confluence.data.tasks import Labels
from confluence.data.verification import open_store
from confluence.trees.features import (
    history_features,
    seeds_of,
    until_of,
)
from confluence.trees.history import WINDOWS, History
from confluence.trees.time_lists import Lists, Moments, Seen, make_lists, value_features
from confluence.trees.tree_baselines import tree_baselines, visible_history

DAY = 86_400_000_000
ORDERS: dict[int, list[Any]] = {
    10: [1, 1, 10, 2, None, 7], 11: [1, 5, 20, 9, 7, 8], 12: [1, 40, 30, 41, 41, 7],
    13: [2, 3, 5, 4, None, 8],
}  # fmt: skip
ITEMS = {100: [10, 1, 2], 101: [10, 3, 4], 102: [12, 40, 6]}
VISITS = {1: 1, 2: 1, 3: 2}
ASKED = [  # customer, day, answer, split
    (1, 4, 1.0, "train"), (1, 8, 3.0, "train"), (1, 42, 7.0, "test"),
    (2, 4, 5.0, "train"), (2, 42, 8.0, "val"), (3, 42, 9.0, "test"), (3, 60, 9.0, "train"),
]  # fmt: skip


def date(day: int | None) -> str | None:
    return None if day is None else str(np.datetime64(day * DAY, "us")).replace("T", " ")


def build(
    folder: Path, *, orders: dict[int, list[Any]] = ORDERS, items: dict[int, list[Any]] = ITEMS,
    asked: list[tuple[Any, ...]] = ASKED, task: dict[str, Any] | None = None,
) -> Path:  # fmt: skip
    """The shop above with one task about customers, or another."""
    folder.mkdir(parents=True, exist_ok=True)
    source = write_sqlite(folder / "shop.sqlite", {
        "customers": ("id INTEGER PRIMARY KEY", [(1,), (2,), (3,)]),
        "agents": ("id INTEGER PRIMARY KEY", [(7,), (8,)]),
        "orders": (
            "id INTEGER PRIMARY KEY, customer INT, made TIMESTAMP, amount REAL, paid TIMESTAMP,"
            " rated TIMESTAMP, agent INT",
            [(key, c, date(at), amount, date(paid), date(rated), agent)
             for key, (c, at, amount, paid, rated, agent) in orders.items()],
        ),
        "items": (
            "id INTEGER PRIMARY KEY, ordr INT, made TIMESTAMP, pieces REAL",
            [(key, order, date(at), pieces) for key, (order, at, pieces) in items.items()],
        ),
        "visits": ("id INTEGER PRIMARY KEY, customer INT", VISITS.items()),
        "asked": (
            "customer INT, made TIMESTAMP, answer REAL, split TEXT",
            [(customer, date(at), answer, split) for customer, at, answer, split in asked],
        ),
    })  # fmt: skip
    key = {"stype": "identifier"}
    number, time = {"stype": "numerical"}, {"stype": "timestamp"}
    instant = {"temporal_column": "made", "time_resolution": "instant"}
    metadata = {
        "tables": {
            "customers": {"primary_key": "id", "columns": {"id": key}},
            "agents": {"primary_key": "id", "columns": {"id": key}},
            "orders": {"primary_key": "id", **instant, "columns": {
                "id": key, "customer": {**key, "foreign_key": "customers.id"}, "made": time,
                "amount": {**number, "known_at": "paid"}, "paid": {"stype": "ignored"},
                "rated": {"stype": "ignored"},
                "agent": {**key, "foreign_key": "agents.id", "known_at": "rated"},
            }},
            "items": {"primary_key": "id", **instant, "columns": {
                "id": key, "ordr": {**key, "foreign_key": "orders.id"}, "made": time,
                "pieces": number,
            }},
            "visits": {"primary_key": "id", "columns": {
                "id": key, "customer": {**key, "foreign_key": "customers.id"},
            }},
            "asked": {"graph": False, "columns": {
                "customer": key, "made": time, "answer": number, "split": {"stype": "categorical"},
            }},
        },
        "tasks": {"t": task or {
            "query": "SELECT customer, made AS obs_time, answer, split FROM asked",
            "anchor_table": "customers", "anchor_key": "customer", "target_column": "answer",
            "target_stype": "numerical", "observation_time_column": "obs_time",
            "split_column": "split", "label_window": "2 days",
        }},
    }  # fmt: skip
    headwater.build(source, folder / "store", metadata=metadata)
    return folder / "store"


def features(
    store: Path, *, until: str | None = None, pick: Callable[[Labels], Any] | None = None
) -> list[dict[str, float]]:
    """Features by name of all seeds, or some, in the order of anchor and time."""
    cfg = preset("tiny", visible_until=until)
    task, labels = labelled(store, cfg, "t")
    with headwater.Store(store) as open_store:
        history = History(open_store, task, labels)
        index = np.arange(labels.splits.size) if pick is None else pick(labels)
        seeds = seeds_of(labels, index, until_of(cfg), inclusive=history.inclusive)
        found = history_features(history, seeds)
    return [dict(zip(found.names, row, strict=True)) for row in found.values.tolist()]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("history"))


def known(found: dict[str, float], prefix: str) -> dict[str, float]:
    """The features of a path that are not NULL, without the noise of float32."""
    return {
        name.removeprefix(prefix): round(value, 3)
        for name, value in found.items()
        if name.startswith(prefix) and not np.isnan(value)
    }


def test_counts_recencies_and_means_are_those_of_what_is_visible(shop: Path) -> None:
    at_4, at_8, at_42 = features(shop)[:3]  # of customer 1
    # Day 4 sees order 10 alone, paid on day 2.
    assert known(at_4, "orders.customer: ") == {
        "count": 1, "last 7 days": 1, "last 30 days": 1, "last 90 days": 1, "last 365 days": 1,
        "age of last": 3, "age of first": 3, "per day": 0.333,
        "amount mean": 10, "amount mean of last 5": 10, "amount mean of last 16": 10,
        "amount last": 10, "amount sum of 30 days": 10, "amount sum of 365 days": 10,
    }  # fmt: skip
    # Day 8 sees order 11, of which nobody knows the amount before day 9.
    assert known(at_8, "orders.customer: ") == {
        "count": 2, "last 7 days": 1, "last 30 days": 2, "last 90 days": 2, "last 365 days": 2,
        "age of last": 3, "age of first": 7, "per day": 0.286,
        "amount mean": 10, "amount mean of last 5": 10, "amount mean of last 16": 10,
        "amount last": 10, "amount sum of 30 days": 10, "amount sum of 365 days": 10,
    }  # fmt: skip
    assert known(at_42, "orders.customer: ") == pytest.approx({
        "count": 3, "last 7 days": 1, "last 30 days": 1, "last 90 days": 3, "last 365 days": 3,
        "age of last": 2, "age of first": 41, "per day": 0.073,
        "amount mean": 20, "amount mean of last 5": 20, "amount mean of last 16": 20,
        # Known on days 2, 9 and 41.
        "amount last": 30, "amount sum of 30 days": 30, "amount sum of 365 days": 60,
    })  # fmt: skip
    assert known(at_42, "visits.customer: ") == {
        "count": 2, **{f"last {days} days": 0 for days in WINDOWS},  # of no time: visible always
    }  # fmt: skip
    # Two keys away: items 100 (day 1) and 101 (day 3) of order 10, 102 of order 12.
    assert known(at_4, "orders.customer < items.ordr: ") == {
        "count": 2, **{f"last {days} days": 2 for days in WINDOWS}, "age of last": 1,
        "age of first": 3, "per day": 0.667, "pieces mean": 3, "pieces mean of last 5": 3,
        "pieces mean of last 16": 3, "pieces last": 4, "pieces sum of 30 days": 6,
        "pieces sum of 365 days": 6,
    }  # fmt: skip
    assert known(at_42, "orders.customer < items.ordr: ")["count"] == 3
    assert not any(name.startswith("orders.agent") for name in at_42)  # leads to agents


def test_labels_are_those_known_by_then(shop: Path) -> None:
    at_4, at_8, at_42, other_4, other_42, third_42, third_60 = features(shop)
    assert known(at_4, "labels: ") == {"count": 0}
    # The answer of day 4 is known on day 6.
    assert known(at_8, "labels: ") == {
        "count": 1, "age of last": 2, "age of first": 2, "per day": 0.5, "mean": 1,
        "mean of last 5": 1, "mean of last 16": 1, "last": 1,
    }  # fmt: skip
    assert known(at_42, "labels: ")["mean"] == 2 and known(at_42, "labels: ")["last"] == 3
    assert known(other_4, "labels: ") == {"count": 0}
    assert known(other_42, "labels: ")["last"] == 5
    assert known(third_42, "labels: ") == known(third_60, "labels: ") == {"count": 0}


def test_a_frozen_database_shows_what_was_visible_then(shop: Path) -> None:
    at_4, at_8, at_42 = features(shop, until="1970-01-06")[:3]  # day 5
    assert known(at_4, "orders.customer: ")["count"] == 1
    for later, now in ((at_8, 8), (at_42, 42)):
        assert later["days not visible"] == now - 5
        assert known(later, "orders.customer: ") == {
            "count": 2, **{f"last {days} days": 2 for days in WINDOWS}, "age of last": now - 5,
            "age of first": now - 1, "per day": round(2 / (now - 1), 3), "amount mean": 10,
            "amount mean of last 5": 10, "amount mean of last 16": 10, "amount last": 10,
            "amount sum of 30 days": 10, "amount sum of 365 days": 10,
        }  # fmt: skip
        assert known(later, "labels: ") == {"count": 0}


@pytest.mark.parametrize("until", [None, "1970-01-06"])
def test_what_is_not_visible_changes_nothing(until: str | None, shop: Path, tmp_path: Path) -> None:
    """Canaries in everything that day 8, or day 5 if frozen, may not see."""
    changed = {
        **ORDERS,
        11: [1, 5, -999, 9, 7, 8],  # its amount is paid on day 9
        12: [1, 40, -999, 41, 41, 7],
        14: [1, 9, -999, 9, 9, 7],
        15: [2, 41, -999, 41, 41, 7],
    }
    items = {**ITEMS, 102: [12, 40, -999], 103: [10, 9, -999], 104: [11, 30, -999]}
    asked = [
        (c, day, -999.0 if (c, day) == (1, 8) or split != "train" else answer, split)
        for c, day, answer, split in ASKED
    ]
    canary = build(tmp_path, orders=changed, items=items, asked=asked)

    def up_to_8(labels: Labels) -> Any:
        return np.flatnonzero(labels.obs_times <= (60 if until else 8) * DAY)

    before, after = (features(store, until=until, pick=up_to_8) for store in (shop, canary))
    assert len(before) == (7 if until else 3)
    for one, other in zip(before, after, strict=True):
        assert one == pytest.approx(other, rel=1e-4, nan_ok=True)
    assert "-999" not in str(after)


# ---------------------------------------------------------------------------- what a row's own is


CELL = {"anchor_table": "orders", "target_column": "amount", "target_stype": "numerical",
        "split_column": "split", "anchor_key": "id"}  # fmt: skip


def cell_task(**more: Any) -> dict[str, Any]:
    """What an order comes to, asked when it is made; the orders of day 40 are for the test."""
    query = """SELECT id, made AS obs_time, amount,
                      CASE WHEN made < TIMESTAMP '1970-02-01' THEN 'train' ELSE 'test' END AS split
               FROM orders"""
    return {**CELL, "query": query, "observation_time_column": "obs_time", **more}


def test_earlier_rows_of_the_same_parent_are_features_of_a_cell_task(tmp_path: Path) -> None:
    store = build(tmp_path, task=cell_task())
    by_time = features(store)  # anchors by time: orders 10, 13, 11, 12
    assert [row["orders.customer > orders.customer: count"] for row in by_time] == [0, 0, 1, 2]
    # Amounts of train orders by when they are paid: order 11 on day 9, so day 5 knows but 10's.
    means = [known(row, "orders.customer > orders.customer: amount ") for row in by_time]
    assert [found.get("mean") for found in means] == [None, None, 10, 15]
    assert [found.get("last") for found in means] == [None, None, 10, 20]
    assert by_time[3]["items.ordr: count"] == 0  # made at the same moment: not before
    # Who the agent is is known on day 7 at the earliest: never when an order is made.
    agents = [row["orders.agent > orders.agent: count"] for row in by_time]
    assert agents == [0, 0, 0, 0]


def test_targets_of_other_splits_are_no_features(tmp_path: Path) -> None:
    task = cell_task()
    task["query"] = task["query"].replace("1970-02-01", "1970-01-03")  # order 10 alone is train
    by_time = features(build(tmp_path, task=task))
    column = "orders.customer > orders.customer: amount mean"
    assert [row[column] for row in by_time[2:]] == pytest.approx([10, 10])
    task = cell_task(context_labels="none")
    none = features(build(tmp_path / "none", task=task))
    assert all(np.isnan(row[column]) for row in none)


def test_where_an_anchor_could_see_itself_its_target_is_no_column(tmp_path: Path) -> None:
    """An inclusive cutoff, or a question asked after the row came to be."""
    later = cell_task(cutoff="inclusive")
    assert not any(": amount" in name for name in features(build(tmp_path, task=later))[0])
    asked_later = cell_task()
    asked_later["query"] = asked_later["query"].replace("made AS", "made + INTERVAL 1 DAY AS")
    found = features(build(tmp_path / "later", task=asked_later))
    assert not any(": amount" in name for name in found[0])


def test_a_foreign_key_that_is_asked_for_is_no_feature_of_any_row(tmp_path: Path) -> None:
    """Rows that are no seeds showed it: the seller of whom a market has one trade less."""
    task = {
        "query": "SELECT id, seller FROM trades WHERE id % 8 = 7", "anchor_table": "trades",
        "target_column": "seller", "target_stype": "categorical",
    }  # fmt: skip
    columns = {
        "id": {"stype": "identifier"},
        "market": {"stype": "identifier", "foreign_key": "markets.id"},
        "seller": {"stype": "categorical", "foreign_key": "sellers.id"},
        "at": {"stype": "timestamp"},
    }
    trades = {
        "id": list(range(160)), "market": [i // 8 for i in range(160)],
        "seller": [f"s{(i * 3 + i // 8) % 4}" for i in range(160)],
        "at": [1_700_000_000 + i for i in range(160)],
    }  # fmt: skip
    key = {"primary_key": "id", "columns": {"id": {"stype": "identifier"}}}
    metadata = {
        "tables": {
            "markets": key, "sellers": key,
            "trades": {"primary_key": "id", "temporal_column": "at", "columns": columns},
        },
        "tasks": {"t": task},
    }  # fmt: skip
    source = {
        "markets": {"id": list(range(20))}, "sellers": {"id": [f"s{i}" for i in range(4)]},
        "trades": trades,
    }  # fmt: skip
    tables = {name: pa.table(columns) for name, columns in source.items()}
    headwater.build(tables, tmp_path / "s", metadata=metadata)
    cfg = preset("tiny")
    labels = labelled(tmp_path / "s", cfg, "t")
    found = tree_baselines(open_store(tmp_path / "s"), cfg, *labels, "test")["history"]
    names = found["features"]
    assert "trades.market > trades.market: count" in names
    assert [name for name in names if "seller" in name] == ["seller"]  # the anchor's: masked


def test_a_seed_that_could_see_its_own_anchor_sees_no_amount(tmp_path: Path) -> None:
    """It is asked a day late; the others, at the time of their order, see those of earlier ones."""
    task = cell_task()
    task["query"] = task["query"].replace(
        "made AS", "CASE WHEN id = 11 THEN made + INTERVAL 1 DAY ELSE made END AS"
    )
    store = build(tmp_path, task=task)
    late, others = features(store, pick=lambda labels: np.array([2])), features(store)
    seen = [name for name in others[0] if ": amount" in name]
    assert seen
    assert not any(": amount" in name for name in late[0])  # alone it has no such feature
    by_time = [[found[name] for name in seen] for found in others]
    assert np.isnan(by_time[2]).all()
    assert np.isfinite(by_time[3]).any()


def test_a_key_that_is_hidden_leads_nowhere(tmp_path: Path) -> None:
    task = cell_task(hidden_columns=["orders.customer"])
    (first, *_) = features(build(tmp_path, task=task))
    assert not any("orders.customer" in name for name in first)


def test_a_hidden_column_is_a_feature_only_where_every_row_has_a_time(tmp_path: Path) -> None:
    """Contexts show it on rows that are older than the anchor, never on one without a time."""
    task = cell_task(hidden_columns=["items.pieces"])
    (timed, *_) = features(build(tmp_path / "timed", task=task))
    assert any("items.ordr: pieces" in name for name in timed)
    some = {**ITEMS, 103: [10, None, 8]}
    (untimed, *_) = features(build(tmp_path / "untimed", task=task, items=some))
    assert "items.ordr: count" in untimed
    assert not any("pieces" in name for name in untimed)
    orders = {**ORDERS, 14: [1, None, 77, 1, None, 7]}
    task = cell_task(hidden_columns=["orders.amount"])
    (own, *_) = features(build(tmp_path / "own", task=task, orders=orders))
    assert not any(": amount" in name for name in own)


# ----------------------------------------------------------------------------- history, baselines


def test_history_is_a_visible_child_or_a_known_label(shop: Path, tmp_path: Path) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop, cfg, "t")
    found = {
        split: visible_history(open_store(shop), cfg, task, labels, split)[labels.splits == number]
        for number, split in enumerate(("train", "val", "test"))
    }
    # Visits have no time: customers 1 and 2 always have history, customer 3 never.
    assert found["train"].tolist() == [True, True, True, False]
    assert found["val"].tolist() == [True]
    assert found["test"].tolist() == [True, False]
    late = [*ASKED, (3, 70, 1.0, "val")]  # the label of day 60 is known
    other = build(tmp_path, asked=late)
    task, labels = labelled(other, cfg, "t")
    val = visible_history(open_store(other), cfg, task, labels, "val")[labels.splits == 1]
    assert val.tolist() == [True, True]
    cell = build(tmp_path / "cell", task=cell_task())
    task, labels = labelled(cell, cfg, "t")
    # Items point at orders, but none is before its order.
    assert not visible_history(open_store(cell), cfg, task, labels, "test").any()


def test_a_database_without_times_has_counts_and_no_ages(tmp_path: Path) -> None:
    pets = [(pet, pet // 3, float(pet % 3)) for pet in range(12)]
    source = write_sqlite(tmp_path / "plain.sqlite", {
        "owners": ("id INTEGER PRIMARY KEY, pets INT", [(o, o % 2) for o in range(40)]),
        "pets": ("id INTEGER PRIMARY KEY, owner INT, weight REAL", pets),
    })  # fmt: skip
    key = {"stype": "identifier"}
    metadata = {
        "tables": {
            "owners": {"primary_key": "id", "columns": {"id": key, "pets": {"stype": "ignored"}}},
            "pets": {"primary_key": "id", "columns": {
                "id": key, "owner": {**key, "foreign_key": "owners.id"},
                "weight": {"stype": "numerical"},
            }},
        },
        "tasks": {"t": {
            "query": "SELECT id, pets AS answer FROM owners", "anchor_table": "owners",
            "anchor_key": "id", "target_column": "answer", "target_stype": "numerical",
        }},
    }  # fmt: skip
    store = tmp_path / "store"
    headwater.build(source, store, metadata=metadata)
    found = features(store)
    assert known(found[1], "pets.owner: ") == {
        "count": 3, "weight mean": 1, "weight mean of last 5": 1, "weight mean of last 16": 1,
        "weight last": 2,
    }  # fmt: skip
    assert known(found[9], "pets.owner: ") == {"count": 0}
    assert not any(name.startswith("labels: ") for name in found[0])  # nobody says when known
    cfg = preset("tiny")
    task, labels = labelled(store, cfg, "t")
    has = visible_history(open_store(store), cfg, task, labels, "train")
    assert has[labels.splits == 0].tolist() == (labels.anchor_rows[labels.splits == 0] < 4).tolist()
    trees = tree_baselines(open_store(store), cfg, task, labels, "test")
    assert not np.isnan(trees["history"]["values"][labels.splits == 2]).any()


def test_trees_learn_from_what_happened_before(tmp_path: Path) -> None:
    """The answer is how many orders there were in the last 30 days, which no own column says."""
    rng = np.random.default_rng(0)
    orders = {
        key: [int(rng.integers(1, 4)), int(day), 1.0, int(day), None, 7]
        for key, day in enumerate(rng.integers(0, 900, 1200))
    }
    asked = []
    for day in range(60, 900, 4):
        for customer in (1, 2, 3):
            last = sum(1 for c, at, *_ in orders.values() if c == customer and day - 30 < at <= day)
            split = "train" if day < 700 else "val"
            asked.append((customer, day, float(last), split))
    store = build(tmp_path, orders=orders, items={}, asked=asked)
    cfg = preset("tiny")
    task, labels = labelled(store, cfg, "t")
    found = tree_baselines(open_store(store), cfg, task, labels, "val")
    rows = labels.splits == 1
    error = {
        name: float(np.mean(np.abs(baseline["values"] - labels.targets)[rows]))
        for name, baseline in found.items()
    }
    assert error["history"] < 1.0 < 2.0 < error["own_columns"], error


# -------------------------------------------------------------------------------------- the lists


def test_prefixes_are_counted_as_by_a_loop() -> None:
    rng = np.random.default_rng(0)
    owners, times = rng.integers(0, 7, 300), rng.integers(0, 50, 300)
    lists, order = make_lists(owners, times, 8)  # owner 7 has nothing
    assert sorted(order.tolist()) == list(range(300))
    asked, limits = rng.integers(-1, 8, 500), rng.integers(-5, 55, 500)
    found = lists.counts(asked, limits)
    expected = [
        int(np.sum((owners == o) & (times <= t))) for o, t in zip(asked, limits, strict=True)
    ]
    assert found.tolist() == expected
    empty = Lists(starts=np.zeros(3, np.int64), times=np.empty(0, np.int64))
    assert empty.counts(np.array([0, 1, -1]), np.zeros(3, np.int64)).tolist() == [0, 0, 0]


def test_an_exclusive_cutoff_sees_nothing_of_its_own_moment() -> None:
    never, times = 2**63 - 1, np.array([5, 9])
    inclusive, exclusive = (
        Moments(obs_times=times, cutoffs=np.array([5, never]), inclusive=i) for i in (True, False)
    )
    assert inclusive.limits.tolist() == [5, never]
    assert exclusive.limits.tolist() == [4, never]


def seen(lists: Lists, owners: Any, limits: Any) -> Seen:
    """Questions that see what is visible up to and at some times."""
    return Seen(lists, owners, Moments(obs_times=limits, cutoffs=limits, inclusive=True))


def test_means_are_of_an_owners_own_values_whatever_others_have() -> None:
    """Differences of sums over all of them had 0 for each owner after the largest value."""
    owners = np.array([0, 1, 1, 1, 2, 2, 4])
    values = np.array([3e38, 100.0, 200.0, 300.0, 1e6, 2e6, 5.0])
    lists, _ = make_lists(owners, np.arange(7), 5)
    asked, limits = np.array([0, 1, 1, 2, 3, 4, -1]), np.array([9, 9, 2, 9, 9, 9, 9])
    found = value_features(values, seen(lists, asked, limits), (2,))
    nan = np.nan
    np.testing.assert_array_equal(found["mean"], [3e38, 200, 150, 1.5e6, nan, 5, nan])
    np.testing.assert_array_equal(found["mean of last 2"], [3e38, 250, 150, 1.5e6, nan, 5, nan])
    np.testing.assert_array_equal(found["last"], [3e38, 300, 200, 2e6, nan, 5, nan])
    empty = Lists(starts=np.zeros(2, np.int64), times=np.empty(0, np.int64))
    none = value_features(np.empty(0), seen(empty, np.array([0, -1]), np.zeros(2, np.int64)), (2,))
    assert all(np.isnan(feature).all() for feature in none.values())


def test_means_are_as_by_a_loop() -> None:
    rng = np.random.default_rng(5)
    owners, times = rng.integers(0, 9, 300), rng.integers(0, 50, 300)
    lists, order = make_lists(owners, times, 9)
    values = rng.normal(size=300)
    asked, limits = rng.integers(-1, 9, 400), rng.integers(-5, 55, 400)
    found = value_features(values[order], seen(lists, asked, limits), (2, 5))
    for i, (owner, limit) in enumerate(zip(asked, limits, strict=True)):
        own = values[order][(owners[order] == owner) & (times[order] <= limit)]
        parts = {"mean": own, "mean of last 2": own[-2:], "mean of last 5": own[-5:],
                 "last": own[-1:]}  # fmt: skip
        assert list(found) == list(parts)
        for name, some in parts.items():
            expected = some.mean() if some.size else np.nan
            assert found[name][i] == pytest.approx(expected, abs=1e-12, nan_ok=True)


# ------------------------------------------------------------------- rows further away


def rentals(folder: Path) -> Path:
    """Two customers, three copies of two films, and who rented what. Film 2 is told from day 6 on,
    the copy of rental 32 from day 9 on."""
    source = write_sqlite(folder / "rentals.sqlite", {
        "customers": ("id INTEGER PRIMARY KEY", [(1,), (2,)]),
        "films": ("id INTEGER PRIMARY KEY, minutes INT, told TIMESTAMP",
                  [(1, 90, date(0)), (2, 150, date(6))]),
        "copies": ("id INTEGER PRIMARY KEY, film INT", [(10, 1), (11, 2), (12, 2)]),
        "rentals": ("id INTEGER PRIMARY KEY, customer INT, copy INT, day TIMESTAMP,"
                    " known TIMESTAMP",
                    [(30, 1, 10, date(1), date(1)), (31, 1, 11, date(2), date(2)),
                     (32, 1, 12, date(3), date(9)), (33, 2, 12, date(4), date(4)),
                     (34, 2, 10, date(20), date(20))]),
        "asked": ("customer INT, day TIMESTAMP, answer REAL",
                  [(c, date(day), 1.0) for c in (1, 2) for day in (5, 8, 12)]),
    })  # fmt: skip
    key, number, time = ({"stype": name} for name in ("identifier", "numerical", "timestamp"))
    to = {name: {**key, "foreign_key": f"{name}s.id"} for name in ("customer", "film")}
    tables = {
        "customers": {"columns": {"id": key}},
        "films": {"temporal_column": "told", "columns": {"id": key, "minutes": number,
                                                         "told": time}},
        "copies": {"columns": {"id": key, "film": to["film"]}},
        "rentals": {"temporal_column": "day", "columns": {
            "id": key, "customer": to["customer"], "day": time, "known": {"stype": "ignored"},
            "copy": {**key, "foreign_key": "copies.id", "known_at": "known"},
        }},
    }  # fmt: skip
    metadata = {
        "tables": {
            **{name: {"primary_key": "id", **table} for name, table in tables.items()},
            "asked": {"graph": False, "columns": {
                name: {"stype": "ignored"} for name in ("customer", "day", "answer")
            }},
        },
        "tasks": {"t": {
            "query": "SELECT customer AS id, day AS obs_time, answer FROM asked",
            "anchor_table": "customers", "target_column": "answer", "target_stype": "numerical",
            "observation_time_column": "obs_time",
        }},
    }  # fmt: skip
    headwater.build(source, folder / "store", metadata=metadata)
    return folder / "store"


def test_values_are_also_those_of_the_rows_that_history_points_at(tmp_path: Path) -> None:
    """The films that a customer rented, over the copies of them."""
    way = "rentals.customer: rentals.copy > copies.film > minutes "
    found = [known(one, way) for one in features(rentals(tmp_path))]
    kinds = ("mean", "last", "sum of 30 days")
    by_day = [{kind: one[kind] for kind in kinds if kind in one} for one in found]
    assert by_day[:3] == [
        {"mean": 90, "last": 90, "sum of 30 days": 90},  # nothing is told of film 2
        {"mean": 120, "last": 150, "sum of 30 days": 240},
        {"mean": 130, "last": 150, "sum of 30 days": 390},  # which copy rental 32 was of
    ]
    assert by_day[3:] == [
        {"sum of 30 days": 0},
        *[{"mean": 150, "last": 150, "sum of 30 days": 150}] * 2,
    ]


def test_rows_that_point_at_a_parent_of_a_parent_are_history(tmp_path: Path) -> None:
    """Of a rental: the other copies of its film; a film that is told later has none."""
    store = rentals(tmp_path)
    with headwater.Store(store) as opened:
        task, labels = labelled(store, preset("tiny"), "t")
        history = History(opened, task, labels)
        history.anchor_table = "rentals"
        at = np.array([5 * DAY, 8 * DAY])
        moments = Moments(obs_times=at, cutoffs=at, inclusive=True)
        paths = {path.name: path for path in history.paths(np.array([1, 1]), moments)}
    path = paths["rentals.copy > copies.film > copies.film"]
    seen_copies = path.lists.counts(path.owners, moments.limits)
    assert seen_copies.tolist() == [0, 2]  # film 2 has two copies


# ---- what no question may see


def names_and_values(store: Path, task_name: str = "t") -> dict[str, Any]:
    """Every history feature of every seed of a task, by name."""
    task, labels = labelled(store, preset("tiny"), task_name)
    seeds = seeds_of(labels, np.arange(labels.splits.size), 2**63 - 1, inclusive=task.inclusive)
    with headwater.Store(store) as opened:
        found = history_features(History(opened, task, labels), seeds)
    return dict(zip(found.names, found.values.T, strict=True))


def test_a_column_that_is_never_known_is_no_feature_without_a_time(tmp_path: Path) -> None:
    key, number = {"stype": "identifier"}, {"stype": "numerical"}
    source = write_sqlite(tmp_path / "a.sqlite", {
        "owners": ("id INTEGER PRIMARY KEY, answer REAL", [(k, k % 3) for k in range(20)]),
        "pets": (
            "id INTEGER PRIMARY KEY, owner INT, weight REAL, secret REAL",
            [(k, k, 1.0 + k, 100.0 + k) for k in range(20)],
        ),
    })  # fmt: skip
    pets = {
        "id": key, "owner": {**key, "foreign_key": "owners.id"}, "weight": number,
        "secret": {**number, "known_at": "never"},
    }  # fmt: skip
    owners = {"id": key, "answer": {"stype": "ignored"}}
    task = {
        "query": "SELECT id, answer FROM owners", "anchor_table": "owners", "kind": "derived",
        "target_column": "answer", "target_stype": "numerical",
    }  # fmt: skip
    metadata = {
        "tables": {
            "owners": {"primary_key": "id", "columns": owners},
            "pets": {"primary_key": "id", "columns": pets},
        },
        "tasks": {"t": task},
    }
    headwater.build(source, tmp_path / "store", metadata=metadata)
    found = names_and_values(tmp_path / "store")
    assert found["pets.owner: weight last"][:3] == pytest.approx([1.0, 2.0, 3.0])
    assert not any("secret" in name for name in found)


def test_an_earlier_question_about_a_row_does_not_tell_its_cell(tmp_path: Path) -> None:
    """The label of a cell task is the cell, which a later question about the row would read."""
    days = ((200, "train"), (300, "train"), (400, "val"))
    at = {
        day: str(np.datetime64(day * DAY, "us")).replace("T", " ") for day in (100, 200, 300, 400)
    }
    source = write_sqlite(tmp_path / "a.sqlite", {
        "orders": (
            "id INTEGER PRIMARY KEY, made TIMESTAMP, amount REAL",
            [(k, at[100], float(k * k % 31)) for k in range(30)],
        ),
        "asked": (
            "id INT, at TIMESTAMP, split TEXT",
            [(k, at[day], split) for k in range(30) for day, split in days],
        ),
    })  # fmt: skip
    orders = {
        "id": {"stype": "identifier"}, "made": {"stype": "timestamp"},
        "amount": {"stype": "numerical"},
    }  # fmt: skip
    task = {
        "query": 'SELECT orders.id AS id, asked."at" AS obs_time, amount, split FROM asked'
        " JOIN orders ON orders.id = asked.id::BIGINT",
        "anchor_table": "orders", "target_column": "amount", "target_stype": "numerical",
        "observation_time_column": "obs_time", "split_column": "split",
    }  # fmt: skip
    ignored = {name: {"stype": "ignored"} for name in ("id", "at", "split")}
    tables = {
        "orders": {"primary_key": "id", "temporal_column": "made", "columns": orders},
        "asked": {"graph": False, "columns": ignored},
    }
    metadata = {"tables": tables, "tasks": {"t": task}}
    headwater.build(source, tmp_path / "store", metadata=metadata)
    assert not any(name.startswith("labels: ") for name in names_and_values(tmp_path / "store"))
