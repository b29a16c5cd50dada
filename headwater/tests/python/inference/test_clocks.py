"""Numbers that count times: which unit and epoch a draft takes, and what it leaves to a person."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from databases import TinyDatabase, TinyTable, arrow_tables, draft, write_csv, write_sqlite
from headwater.builder.build import build
from headwater.inference.draft import TableDraft
from headwater.inference.infer import draft_source, infer
from headwater.store.store import Store

# The noon of 2021-06-05, worked by hand: 1,622,894,400 s since 1970, and so many since 2001 (less
# 978,307,200), 1904 (and 2,082,844,800), 1601 (and 11,644,473,600), and the year 1 (and
# 62,135,596,800); 44,352.5 days since 1899-12-30.
NOON = 1_622_894_400
DAY_S = 86_400
COUNTS: list[tuple[str, str | None, Any, Any]] = [
    ("s", None, NOON, DAY_S),
    ("ms", None, NOON * 10**3, DAY_S * 10**3),
    ("s", "2001-01-01", 644_587_200, DAY_S),
    ("ns", "2001-01-01", 644_587_200 * 10**9, DAY_S * 10**9),
    ("s", "1904-01-01", 3_705_739_200, DAY_S),
    ("us", "1601-01-01", 13_267_368_000 * 10**6, DAY_S * 10**6),
    ("100ns", "1601-01-01", 13_267_368_000 * 10**7, DAY_S * 10**7),
    ("100ns", "0001-01-01", 63_758_491_200 * 10**7, DAY_S * 10**7),
    ("day", "1899-12-30", 44_352.5, 1),
    ("julian", None, 2_459_371.0, 1),
]


def database(start: Any, step: Any, name: str, *others: date, kind: str = "") -> TinyDatabase:
    """Sixty visits, a day apart, of people that came on some other days."""
    people = [(j, other) for j, other in enumerate(others)]
    rows = [(j, j % max(len(others), 1), start + j * step) for j in range(60)]
    number = kind or ("DOUBLE" if isinstance(start, float) else "INTEGER")
    types = {"id": "INTEGER", "person_id": "INTEGER", name: number}
    found = {"visit": TinyTable(types, rows)}
    if others:
        found["person"] = TinyTable({"id": "INTEGER", "came_on": "DATE"}, people)
    return found


def visits(start: Any, step: Any, name: str, *others: date) -> TableDraft:
    return draft(database(start, step, name, *others)).table("visit")


@pytest.mark.parametrize(("unit", "epoch", "start", "step"), COUNTS)
@pytest.mark.parametrize("source", ["numbers", "texts"])
def test_the_reading_that_meets_the_other_times_is_taken(
    unit: str, epoch: str | None, start: Any, step: Any, source: str, tmp_path: Path
) -> None:
    """The same of numbers and of the texts of a CSV file; the store has it."""
    others = (date(2021, 3, 1), date(2021, 5, 2), date(2021, 8, 9))
    data = database(start, step, "log_date", *others)
    given = arrow_tables(data) if source == "numbers" else write_csv(tmp_path / "csv", data)
    found = draft_source(given)
    column = found.table("visit").column("log_date")
    assert (column.stype, column.unit, column.epoch) == ("timestamp", unit, epoch)
    assert found.table("visit").temporal_column == "log_date"
    build(given, tmp_path / "s", found.schema())
    with Store(tmp_path / "s") as store:
        moments = store.row_times("visit")
    assert moments.min() == NOON * 10**6
    assert moments.max() == (NOON + 59 * DAY_S) * 10**6


def test_a_reading_far_from_the_other_times_is_said_and_not_taken() -> None:
    """As seconds since 1970 the visits are of 2021, and since 2001 of 2052; the others of 1999."""
    table = visits(NOON, DAY_S, "created_at", date(1999, 1, 1), date(1999, 5, 1))
    column = table.column("created_at")
    assert (column.stype, table.temporal_column) == ("numerical", None)
    assert column.checks == [
        "looks like times in s since 1970 (2021-06-05 to 2021-08-03) or s since 2001-01-01 "
        "(2052-06-05 to 2052-08-03), but the other times of the database are 1999-01-01 to "
        "1999-05-01: no row gets its time from it, so contexts may show what came later; to have "
        'times, set stype timestamp, "unit" and "epoch", the day from which it counts'
    ]


def test_without_other_times_the_likelier_is_taken_and_the_other_is_said() -> None:
    table = visits(644_587_200, DAY_S, "created_at")
    assert (table.column("created_at").unit, table.column("created_at").epoch) == ("s", None)
    assert table.column("created_at").checks == [
        "taken for a time in s since 1970: 1990-06-05 to 1990-08-03; it would be 2021-06-05 to "
        '2021-08-03 if s since 2001-01-01; see "unit" and "epoch"'
    ]
    ticks = visits(63_758_491_200 * 10**7, DAY_S * 10**7, "changed_utc")
    assert ticks.column("changed_utc").epoch == "0001-01-01"  # in ns since 1970 they are of 1990
    days = visits(44_352.5, 1.0, "price_date").column("price_date")
    assert (days.stype, days.unit) == ("numerical", None)
    assert days.checks[0].startswith("looks like times in days since 1899-12-30 (2021-06-05 to")


@pytest.mark.parametrize(
    ("name", "start", "step"),
    [
        ("price", 44_000, 1),  # not named as a time
        ("candidate", 644_587_200, DAY_S),
        ("time_played", 44_000, 1),  # a day is a date
        ("lap_time", 80_000, 11),
        ("created_id", 1_622_894_400, 1),
    ],
)
def test_other_numbers_stay_numbers(name: str, start: int, step: int) -> None:
    table = visits(start, step, name, date(2021, 3, 1))
    assert table.column(name).stype != "timestamp"
    assert not any("looks like times" in check for check in table.column(name).checks)


def test_a_birth_is_no_other_time() -> None:
    """Births of 1961 would make any reading wrong."""
    data = database(NOON, DAY_S, "created_at", date(1961, 1, 1))
    data["person"] = TinyTable({"id": "INTEGER", "birth_date": "DATE"}, [(0, date(1961, 1, 1))])
    assert draft(data).table("visit").temporal_column == "created_at"


def test_a_column_that_sqlite_declares_as_a_time_is_read_by_the_other_times(
    tmp_path: Path,
) -> None:
    """As Core Data writes it: ZWHEN TIMESTAMP, in seconds since 2001."""
    data = database(644_587_200.5, DAY_S, "ZWHEN", date(2021, 3, 1), kind="TIMESTAMP")
    column = infer(write_sqlite(tmp_path / "t.db", data)).table("visit").column("ZWHEN")
    assert (column.stype, column.unit, column.epoch) == ("timestamp", "s", "2001-01-01")


def test_whole_days_since_an_epoch_are_over_at_their_end() -> None:
    table = visits(44_352, 1, "log_date", date(2021, 3, 1))
    assert table.temporal_column == "log_date" and table.time_resolution == "day"
    parts = visits(44_352.25, 1.0, "log_date", date(2021, 3, 1))
    assert parts.temporal_column == "log_date" and parts.time_resolution != "day"


def test_the_end_of_a_day_since_an_epoch_is_in_the_zone_of_the_metadata(tmp_path: Path) -> None:
    """Spreadsheets count days of their own clock: 2021-06-05 ends at 22:00 UTC in Madrid."""
    data = {"t": TinyTable({"id": "INTEGER", "day": "INTEGER"}, [(0, 44_352)])}
    day = {"stype": "timestamp", "unit": "day", "epoch": "1899-12-30"}
    columns = {"id": {"stype": "identifier"}, "day": day}
    table = {"primary_key": "id", "temporal_column": "day", "columns": columns}
    metadata = {"tables": {"t": table}, "timezone": "Europe/Madrid"}
    build(arrow_tables(data), tmp_path / "s", metadata)
    with Store(tmp_path / "s") as store:
        (moment,) = store.row_times("t")
    assert moment == datetime(2021, 6, 5, 22, tzinfo=UTC).timestamp() * 10**6
