"""When rows come into being, as init drafts it, and columns that are known later."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from databases import (
    DAY,
    TinyDatabase,
    TinyTable,
    arrow_tables,
    draft,
    tickets,
    write_csv,
)
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.inference.draft import TableDraft
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
    note = found.table("customers").table().note
    assert note.startswith(f"unseen: {LATE.partition(': ')[2]}")
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


# ---- which time is the row's -------------------------------------------------------------------


def times(name: str = "things", **columns: tuple[str, Any]) -> TableDraft:
    """The draft of a table of sixty rows with these columns, each a function of a row's number."""
    kinds = {"id": "INTEGER", **{column: kind for column, (kind, _) in columns.items()}}
    rows = [(j, *(value(j) for _, value in columns.values())) for j in range(60)]
    return draft({name: TinyTable(kinds, rows)}).table(name)


def day(first: int, each: int = 1, *, every: int = 1) -> tuple[str, Any]:
    """Days from `first` on, NULL in all but one of `every` rows."""

    def value(j: int) -> date | None:
        return None if j % every else DAY.date() + timedelta(days=first + each * j)

    return "DATE", value


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"valid_from": day(0), "valid_to": day(5, every=2)}, "valid_from"),
        ({"effective_since": day(0), "effectiveUntil": day(5)}, "effective_since"),
        ({"birthdate": day(-9000)}, None),
        ({"sender_day": day(0)}, "sender_day"),  # no end is in it
        ({"calendar_due": day(3)}, "calendar_due"),
        ({"duedate": day(3), "endDate": day(9)}, "endDate"),
        ({"updated_at": day(3)}, "updated_at"),  # no other table refers to it
        ({"lastlogin": day(3), "signed": day(0)}, "signed"),
        ({"signed": day(0), "paid": day(40, -1)}, "signed"),  # neither is always first
        ({"seen": day(0, every=3), "born": day(-9000)}, None),  # few rows have it
        ({"died": day(0)}, None),
    ],
)
def test_the_time_of_a_row_by_names_and_values(
    columns: dict[str, tuple[str, Any]], expected: str | None
) -> None:
    table = times(**columns)
    assert table.temporal_column == expected


def test_a_death_is_the_time_of_a_row_in_a_table_of_deaths() -> None:
    assert times("covid_deaths", died=day(0), born=day(-9000)).temporal_column == "died"


def test_a_time_in_doubt_is_said_with_what_else_it_may_be() -> None:
    """The latest, so that contexts show less until somebody has answered."""
    assert times(signed=day(0), paid=day(40, -1)).checks == [
        "temporal column signed (of the times that every row has, none of which comes first, the"
        ' latest): rows are shown from then on; else set "temporal_column" to paid'
    ]
    some = times(seen=("DATE", lambda j: None if j % 3 == 0 else DAY.date()))
    assert some.temporal_column == "seen"
    assert "20 rows have no seen and would never be shown" in some.checks


def test_julian_days_are_times(tmp_path: Path) -> None:
    """Read to the millisecond, and said."""
    found = times(created=("DOUBLE", lambda j: 2_459_946.5 + j / 4))
    assert found.temporal_column == "created" and found.column("created").unit == "julian"
    assert found.column("created").checks == [
        "taken for a time in Julian days: 2023-01-02 to 2023-01-16"
    ]
    rows = [(j, 2_459_946.5 + j / 4) for j in range(60)]
    source = arrow_tables({"t": TinyTable({"id": "INTEGER", "created": "DOUBLE"}, rows)})
    build(source, tmp_path / "s", infer(source))
    with Store(tmp_path / "s") as store:
        at = store.row(store.find("t", 5))["time"]
        assert at.replace(tzinfo=None) == datetime(2023, 1, 3, 6)
    assert times(created=("DOUBLE", lambda j: 2_400.0 + j)).temporal_column is None


# ---- zones -------------------------------------------------------------------------------------


def logins(zone: str, *, count: int = 300, shift: timedelta = timedelta()) -> TinyDatabase:
    """Logins whose time stands there with a zone, and as a clock in `zone` shows it."""
    moments = [datetime(2022, 1, 1, 3, tzinfo=UTC) + timedelta(days=2 * j) for j in range(count)]
    rows = [
        (j, at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) + shift * (j % 7), at)
        for j, at in enumerate(moments)
    ]
    kinds = {"login_id": "INTEGER", "wall_clock": "TIMESTAMP", "moment": "TIMESTAMPTZ"}
    return {"logins": TinyTable(kinds, rows)}


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "Asia/Kolkata"])
def test_of_a_time_with_a_zone_and_without_the_former_is_taken(zone: str) -> None:
    found = draft(logins(zone))
    table = found.table("logins")
    assert (table.temporal_column, found.timezone) == ("moment", zone)
    assert [column.known_at.kind for column in table.columns] == ["creation"] * 3
    assert table.column("wall_clock").checks == [
        f"the time of moment without its zone: always whole hours apart, as in {zone}; moment is "
        "taken"
    ]


def test_times_that_are_not_one_are_two() -> None:
    """A number of hours apart that changes from row to row."""
    found = draft(logins("Asia/Tokyo", shift=timedelta(hours=1)))
    assert found.timezone == "UTC"
    assert found.table("logins").column("wall_clock").same_time_as is None
