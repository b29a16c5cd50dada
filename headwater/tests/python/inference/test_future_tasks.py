"""Drafted tasks about the future: whether a row will be named again, checked by counting."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from databases import TinyDatabase, TinyTable, arrow_tables, draft, write_sqlite
from headwater.binding import SPLITS
from headwater.builder.build import build
from headwater.inference.infer import infer
from headwater.store.store import Store

NEWEST = datetime(2021, 1, 1)


def shop(key: str = "customer_id", *, child: str = "orders") -> tuple[TinyDatabase, list[tuple]]:
    """40 customers who order every 5 to 100 days, each in a way of its own, until 2021."""
    draw = random.Random(7)
    orders: list[tuple] = []
    for customer in range(40):
        at, step = datetime(2019, 1, 1), 5 + 95 * draw.random() ** 2
        while (at := at + timedelta(days=step * (0.5 + draw.random()))) < NEWEST:
            orders.append((len(orders), customer, at))
    orders[-1] = (*orders[-1][:2], NEWEST + timedelta(hours=7))
    database = {
        "customers": TinyTable({key: "INTEGER", "n": "INTEGER"}, [(j, j % 5) for j in range(40)]),
        child: TinyTable({"order_id": "INTEGER", key: "INTEGER", "at": "TIMESTAMP"}, orders),
    }
    return database, orders


def test_the_question_is_whether_a_row_is_named_again(tmp_path: Path) -> None:
    """Asked at midnight so many days before the end of the newest day, of all that were named
    before; the last such time is for the test. About half of the answers are true."""
    database, orders = shop()
    source = arrow_tables(database)
    schema = infer(source)
    task = schema.tasks[0]
    assert (task.name, task.target_column) == ("customers-next-orders", "has_orders")
    days = (task.label_window_us or 0) // 86_400_000_000
    build(source, tmp_path / "s", schema)
    end = NEWEST + timedelta(days=1)
    expected = {}
    for asked in range(1, 13):
        seen = end - timedelta(days=asked * days)
        for customer in range(40):
            times = [at for _, who, at in orders if who == customer]
            if min(times) < seen:
                is_true = any(seen < at <= seen + timedelta(days=days) for at in times)
                expected[customer, int(seen.replace(tzinfo=UTC).timestamp() * 1e6)] = (
                    is_true,
                    asked,
                )
    with Store(tmp_path / "s") as store:
        seeds = store.core.seeds(0)
        names = ("anchors", "obs_times", "targets", "states")
        found = {
            (store.row(int(row))["key"]["customer_id"], int(at)): (bool(value), int(state) >> 4)
            for row, at, value, state in zip(*(np.asarray(seeds[n]) for n in names), strict=True)
        }
    assert len(found) == len(expected) > 300
    for place, (is_true, asked) in expected.items():
        split = {1: SPLITS["test"], 2: SPLITS["val"]}.get(asked, SPLITS["train"])
        assert found[place] == (is_true, split), place
    share = sum(is_true for is_true, _ in expected.values()) / len(expected)
    assert 0.3 < share < 0.7


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_no_answer_is_shown_to_its_question(tmp_path: Path, kind: str) -> None:
    """An order of the day of the question is shown when the day is over, one of this very midnight
    at once: the former is an answer, the latter is none."""
    database, orders = shop()
    days = [
        (j, who, at.date() if kind == "DATE" else datetime(at.year, at.month, at.day))
        for j, who, at in orders
    ]
    types = {**database["orders"].types, "at": kind}
    source = arrow_tables({**database, "orders": TinyTable(types, days)})
    schema = infer(source)
    build(source, tmp_path / "s", schema)
    window = schema.tasks[0].label_window_us or 0
    with Store(tmp_path / "s") as store:
        shown: dict[int, list[int]] = {}
        for row in range(*store.metadata["tables"][1]["row_range"]):
            found = store.row(row)
            at = int(found["time"].timestamp() * 1e6)
            shown.setdefault(days[found["key"]["order_id"]][1], []).append(at)
        seeds = store.core.seeds(0)
        names = ("anchors", "obs_times", "targets")
        arrays = (np.asarray(seeds[name]).tolist() for name in names)
        for anchor, asked, answer in zip(*arrays, strict=True):
            later = [at for at in shown[store.row(anchor)["key"]["customer_id"]] if at > asked]
            assert bool(answer) == any(at <= asked + window for at in later)


def test_names_that_the_query_makes_are_never_those_of_the_database(tmp_path: Path) -> None:
    for number, (key, child) in enumerate((("back", "spans"), ("split", "named"), ("a key", "n"))):
        database = dict(shop(key, child=child)[0])
        types = {"order_id": "INTEGER", f"{key}": "INTEGER REFERENCES customers", "at": "TIMESTAMP"}
        customers = {key: "INTEGER PRIMARY KEY", "n": "INTEGER"}
        database["customers"] = TinyTable(customers, database["customers"].rows)
        database[child] = TinyTable(types, database[child].rows)
        source = write_sqlite(tmp_path / f"{number}.db", database)
        schema = infer(source)
        assert schema.tasks[0].name == f"customers-next-{child}"
        report = build(source, tmp_path / str(number), schema)
        assert sum(report.metadata["tasks"][0]["seeds"].values()) > 300


def test_rows_that_are_named_once_or_always_have_no_such_future() -> None:
    """Nor those of which there are a few."""
    database, orders = shop()
    once = {**database, "orders": TinyTable(database["orders"].types, orders[::60])}
    few = {**database, "orders": TinyTable(database["orders"].types, orders[:40])}
    daily = [(j, j % 40, datetime(2020, 1, 1) + timedelta(hours=j / 4)) for j in range(40 * 200)]
    always = {**database, "orders": TinyTable(database["orders"].types, daily)}
    for found in (once, few, always):
        assert not [task for task in draft(found).tasks if "-next-" in task.name]
