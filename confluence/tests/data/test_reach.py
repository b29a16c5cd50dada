"""Tables that contexts cannot show, by hand: customers <- orders -> agents <- offices, and logs."""

from __future__ import annotations

from typing import Any

from confluence.data.reach import MOST_NAMED, describe_unreached, table_distances


def table(name: str, *parents: str, rows: int = 3) -> dict[str, Any]:
    keys = [
        {"columns": [f"{p}_id"], "references": {"table": p, "columns": ["id"]}} for p in parents
    ]
    return {"name": name, "row_range": [0, rows], "foreign_keys": keys}


def schema(*more: dict[str, Any], hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    tables = [
        table("customers"), table("orders", "customers", "agents"), table("agents"),
        table("offices", "agents"), table("logs"), table("nothing", rows=0), *more,
    ]  # fmt: skip
    task = {"name": "churn", "anchor_table": "customers", "hidden_columns": list(hidden)}
    return {"tables": tables, "tasks": [task]}


def test_distances_go_both_ways() -> None:
    assert table_distances(schema(), "churn") == {
        "customers": 0, "orders": 1, "agents": 2, "offices": 3, "logs": None
    }  # fmt: skip
    found = table_distances(schema(hidden=("orders.agents_id",)), "churn")
    assert found["orders"] == 1 and found["agents"] is None and found["offices"] is None


def test_sentences() -> None:
    far, apart = describe_unreached(schema(), "churn", 1)
    assert far == (
        "contexts end before agents (2 foreign keys away), offices (3 foreign keys away):"
        " --max-hops 2 goes further, with less room for rows nearby"
    )
    assert apart == (
        "no foreign key leads to logs, so no context shows that: name its key in the metadata if"
        " it has one"
    )
    assert describe_unreached(schema(), "churn", None) == [apart]
    assert describe_unreached(schema(), "churn", 3) == [apart]
    linked = schema(table("visits", "logs", "customers"))
    assert describe_unreached(linked, "churn", 3) == []


def test_few_are_named() -> None:
    many = schema(*(table(f"log{k}") for k in range(MOST_NAMED + 1)))
    (line,) = describe_unreached(many, "churn", 3)
    assert "logs, log0, log1, log2, log3 and 2 more, so" in line
