"""Seeds whose label window ends after the data: an answer that could not have been observed yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from databases import DAY, TinyDatabase, TinyTable, arrow_tables, asked, sql_types, typed
from headwater.audit import audit
from headwater.audit.stored import LABEL_VALUE
from headwater.builder.build import build
from headwater.builder.label_tables import tables_read
from headwater.metadata.parts import Task
from headwater.sources.database import Connection, open_database
from headwater.store.store import Store

QUERY = """
    SELECT id, asked, EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.at > asked
        AND o.at <= asked + INTERVAL 5 DAY) AS again
    FROM customers c, (SELECT unnest([{}]) AS asked)
"""
# The last order is of 2020-01-20, 09:00, so that the data end with that day.
ASKED = ("2020-01-10", "2020-01-15 12:00", "2020-01-16", "2020-01-16 00:00:01", "2020-02-10")


def database(kind: str = "TIMESTAMP") -> TinyDatabase:
    orders = [(j, j % 3, DAY + timedelta(days=j, hours=9)) for j in range(20)]
    if kind == "DATE":
        orders = [(key, customer, at.date()) for key, customer, at in orders]
    return {
        "customers": TinyTable(sql_types("id INTEGER"), [(j,) for j in range(3)]),
        "orders": TinyTable(sql_types(f"id INTEGER, customer INTEGER, at {kind}"), orders),
        "news": TinyTable(
            sql_types("id INTEGER, at TIMESTAMP"), [(j, DAY + timedelta(days=j)) for j in range(99)]
        ),
    }


def metadata(query: str = QUERY, **task: Any) -> dict[str, Any]:
    times = ", ".join(f"TIMESTAMP '{text}'" for text in ASKED)
    about = asked(query.format(times), "customers", "again boolean", "asked")
    return {
        "name": "orders",
        "tables": {
            "customers": {"primary_key": "id", "columns": typed("id identifier")},
            "orders": {
                "primary_key": "id", "temporal_column": "at",
                "columns": typed("id identifier, customer identifier customers.id, at timestamp"),
            },
            "news": {
                "primary_key": "id", "temporal_column": "at",
                "columns": typed("id identifier, at timestamp"),
            },
        },
        "tasks": {"again": {**about, "label_window": "5 days", **task}},
    }  # fmt: skip


def unlabelled(path: Path) -> list[str]:
    """The times of seeds without a label."""
    with Store(path) as store:
        seeds = store.core.seeds(0)
        has_label = (np.asarray(seeds["states"]) & 15) == LABEL_VALUE
        times = {int(time) for time in np.asarray(seeds["obs_times"])[~has_label]}
    return [str(datetime.fromtimestamp(time / 1e6, UTC))[:19] for time in sorted(times)]


SAID = (
    "6 seeds of task again, asked from 2020-01-16 00:00:01 on, are not labelled, as their label "
    "window of 5 days ends after the last day of orders (data until 2020-01-21); "
    '"allow_open_window": true in the task keeps their labels'
)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE"])
def test_a_window_that_ends_after_the_last_day_has_no_label(tmp_path: Path, kind: str) -> None:
    """By hand: a window of five days from 16 January, 00:00, ends with the last day."""
    report = build(arrow_tables(database(kind)), tmp_path / "s", metadata())
    assert unlabelled(tmp_path / "s") == ["2020-01-16 00:00:01", "2020-02-10 00:00:00"]
    (task,) = report.metadata["tasks"]
    assert task["seeds"]["unlabelled"] == 6 and task["stats"]["classes"] == {"true": 9}
    assert SAID in str(report) and report.losses() == [SAID]
    checks = audit(tmp_path / "s", tasks=["again"]).to_check
    assert SAID in [one.text for one in checks]


def test_a_time_far_from_all_others_is_not_the_end_of_the_data(tmp_path: Path) -> None:
    tables = database()
    rows = [(j, j % 3, DAY + timedelta(hours=3 * j)) for j in range(8 * 20)]
    rows.append((999, 0, datetime(2200, 1, 1)))
    tables["orders"] = TinyTable(tables["orders"].types, rows)
    report = build(arrow_tables(tables), tmp_path / "s", metadata())
    assert report.losses() == [SAID]


def test_a_person_may_keep_the_labels(tmp_path: Path) -> None:
    report = build(arrow_tables(database()), tmp_path / "s", metadata(allow_open_window=True))
    (task,) = report.metadata["tasks"]
    assert task["seeds"]["unlabelled"] == 0 and task["stats"]["classes"] == {"true": 12, "false": 3}
    assert report.losses() == []
    checks = [one.text for one in audit(tmp_path / "s", tasks=["again"]).to_check]
    assert any("are labelled, though their label window of 5 days ends" in text for text in checks)


@pytest.mark.parametrize(
    "query",
    [
        QUERY.replace("customers c,", "customers c, (SELECT max(n.at) AS newest FROM news n),"),
        "WITH n AS (SELECT * FROM 'news.parquet' LIMIT 1) "
        + QUERY.replace("customers c,", "customers c, n,").replace("SELECT id", "SELECT c.id", 1),
    ],
)
def test_all_tables_that_the_query_reads_count(tmp_path: Path, query: str) -> None:
    report = build(arrow_tables(database()), tmp_path / "s", metadata(query))
    assert unlabelled(tmp_path / "s") == [] and report.metadata["tasks"][0]["open_windows"] is None


@pytest.mark.parametrize("change", [{"label_window": None}, {"require_label": True}])
def test_without_a_window_nothing_is_known_of_its_end(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """And a task that wants labels has them: a seed that has none yet is not dropped, but asked."""
    document = metadata(**change)
    if change.get("label_window", "") is None:
        del document["tasks"]["again"]["label_window"]
    report = build(arrow_tables(database()), tmp_path / "s", document)
    expected = 0 if "label_window" in change else 6
    assert report.metadata["tasks"][0]["seeds"]["unlabelled"] == expected


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Connection:
    return open_database(tmp_path_factory.mktemp("read"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1", []),
        ('SELECT * FROM "Orders"', ["orders"]),
        ("SELECT orders FROM news", ["news"]),
        ("SELECT * FROM orders, LATERAL (SELECT 1 FROM 'news.csv')", ["orders", "news"]),
        ("SELECT (SELECT max(at) FROM news) FROM main.orders", ["orders", "news"]),
        ("WITH x AS (FROM orders) SELECT * FROM x", ["orders"]),
        ("PIVOT orders ON customer USING count(*)", ["orders", "news"]),
    ],
)
def test_the_tables_that_a_query_reads(
    connection: Connection, query: str, expected: list[str]
) -> None:
    """All of them, if DuckDB has no tree of it."""
    task = Task("t", "customers", "again", "boolean", query=query)
    assert tables_read(connection, task, ["orders", "news"]) == expected
