"""When rows come into being, as init drafts it, and what is known later than its row."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from databases import DAY, TinyDatabase, TinyTable, arrow_tables, draft, tickets, write_csv
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.inference.infer import infer
from headwater.metadata.parts import ColumnRef
from headwater.store.store import Store


def test_columns_written_later_than_their_row_are_proposed() -> None:
    table = draft({"tickets": tickets()}).table("tickets")
    assert table.temporal_column == "opened"
    known = {
        column.name: column.known_at.to_json()
        for column in table.columns
        if column.known_at.kind != "creation"
    }
    assert known == {
        "closed": "closed",
        "closer": "closed",
        "is_solved": "closed",
        "status": "closed",
        "last_seen": "never",
        "views": "never",
        "duplicate_id": "never",
    }
    assert all(
        column.checks[-1].startswith("proposal: known_at")
        for column in table.columns
        if column.name in known
    )
    assert "shown before it: size. If" in table.checks[-1]


def test_a_table_without_a_time_takes_that_of_the_row_it_is_a_part_of(tmp_path: Path) -> None:
    """Lines were shown before their order was."""
    orders = TinyTable(
        {"order_id": "INTEGER", "ordered_at": "TIMESTAMP"},
        [(j, DAY + timedelta(days=j)) for j in range(20)],
    )
    lines = TinyTable(
        {"order_id": "INTEGER", "line": "INTEGER", "price": "DOUBLE"},
        [(j // 2, j % 2, j / 4) for j in range(40)],
    )
    source = arrow_tables({"orders": orders, "order_lines": lines})
    schema = infer(source)
    table = schema.table("order_lines")
    assert table.temporal_column == "ordered_at"
    assert table.column("ordered_at").taken_from == ColumnRef("orders", "ordered_at")
    assert "proposal" in table.column("ordered_at").note
    build(source, tmp_path / "s", schema)
    with Store(tmp_path / "s") as store:
        row = store.row(store.find("order_lines", (7, 1)))
        assert row["time"].replace(tzinfo=None) == DAY + timedelta(days=7)
        assert "ordered_at" not in row["cells"]


def test_an_untimed_table_that_may_not_be_a_part_is_only_said() -> None:
    database = {
        "visits": TinyTable(
            {"visit_id": "INTEGER", "at": "TIMESTAMP"}, [(j, DAY) for j in range(9)]
        ),
        "person": TinyTable(
            {"person_id": "INTEGER", "visit_id": "INTEGER"}, [(j, j % 9) for j in range(20)]
        ),
    }
    table = draft(database).table("person")
    assert table.temporal_column is None
    assert any('"taken_from": "visits.at"' in check for check in table.checks)


def exported(changed: datetime, *, found: int = 20) -> TinyDatabase:
    """20 customers that an export dates, and one order a day of whom the first `found` have one."""
    customers = TinyTable(
        {"customer_id": "INTEGER", "changed_at": "TIMESTAMP", "born": "DATE", "name": "TEXT"},
        [(j, changed, date(1980, 1, 1 + j), f"c {j}") for j in range(20)],
    )
    orders = TinyTable(
        {"order_id": "INTEGER", "customer_id": "INTEGER", "ordered_at": "TIMESTAMP",
         "status": "TEXT"},
        [(j, j if j < found else None, DAY + timedelta(days=j), "new") for j in range(20)],
    )  # fmt: skip
    return {"orders": orders, "customers": customers}


LATE = (
    "customers: temporal column changed_at is newer than 19 of the 20 rows that name a row of "
    "customers (orders.customer_id), so a question at the time of one of these rows never sees the "
    "row of customers that it names; unless changed_at is planned ahead, set "
    '"temporal_column" to another time (born), or remove "temporal_column" and "time_resolution"'
)


def test_an_anchor_that_is_never_seen_is_the_first_to_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood behind all checks of the tables before it. The order of the last day is as new."""
    found = draft(exported(DAY + timedelta(days=19)))
    assert found.every_check()[0] == LATE
    assert len(found.every_check()) > 1
    assert found.table("customers").table().note.startswith(LATE.partition(": ")[2])
    source = write_csv(tmp_path / "csv", exported(DAY + timedelta(days=19)))
    assert main(["init", source, "-o", str(tmp_path / "m.json")]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"  {LATE}"


@pytest.mark.parametrize("instead", ["born", None])
def test_a_build_takes_the_edit_that_makes_an_anchor_seen(
    tmp_path: Path, instead: str | None
) -> None:
    """The check proposed null, which is not a value of temporal_column."""
    source = write_csv(tmp_path / "csv", exported(DAY + timedelta(days=19)))
    document = infer(source).to_dict()
    customers = document["tables"]["customers"]
    del customers["temporal_column"], customers["time_resolution"]
    if instead is not None:
        customers |= {"temporal_column": instead, "time_resolution": "day"}
    assert build(source, tmp_path / "s", document).metadata["tables"]


@pytest.mark.parametrize(("days", "found"), [(17, 20), (19, 17), (-1, 20)])
def test_a_parent_is_seen_if_enough_is_older_and_a_key_is_mostly_set(days: int, found: int) -> None:
    """Newer than 17 of 20; named by 17 of 20, as an accepted answer is; and older than all."""
    checks = draft(exported(DAY + timedelta(days=days), found=found)).every_check()
    assert not any("never sees the row" in check for check in checks)
