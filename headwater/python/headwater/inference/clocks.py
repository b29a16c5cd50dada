"""Numbers that count times from an epoch: in what unit, and from which day.

The same numbers may be seconds since 1970 and seconds since 2001, 31 years apart. So a number is
read as a time only if its column is named or declared as one, and every value is then of this age;
the reading that meets the other times of the database is taken. A reading that puts a table
outside of these is reported, and not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.column_values import DECLARED_TIME
from headwater.facts.names import DATE_WORDS, TIME_WORDS, is_id_name, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.times import kind_of
from headwater.metadata.parts import Column
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import SourceColumn
from headwater.sources.value_sql import (
    DAY_MS,
    JULIAN_1970,
    NAIVE_TYPES,
    UNIT_NS,
    ZONED_TYPE,
    is_number_type,
    to_timestamp,
)

# From when and in what people count, the likelier first: Unix, Apple, old Macs, NTP, Windows and
# Chrome, .NET, spreadsheets, and Julian days, which have an epoch of their own.
COUNTS = (
    (None, ("s", "ms", "us", "ns", "day")),
    ("2001-01-01", ("s", "ms", "us", "ns")),
    ("1904-01-01", ("s",)),
    ("1900-01-01", ("s",)),
    ("1601-01-01", ("us", "100ns")),
    ("0001-01-01", ("100ns",)),
    ("1899-12-30", ("day",)),
    (None, ("julian",)),
)
FIRST, LAST = datetime(1990, 1, 1), datetime(2100, 1, 1)  # times of this age
JULIAN_FIRST = datetime(1900, 1, 1)
LIKELY_FROM, LIKELY_UNTIL = datetime(2000, 1, 1), datetime(2040, 1, 1)
FINE_UNITS = ("us", "ns")  # which nobody counted before 2000
ENDS = ("date", "timestamp", "datetime")  # of words that are written together: orderdate
OTHER_WORDS = {"candidate", "mandate"}
# How far from the other times of a database a reading may lie: since 1970, and since another day.
NEAR, NEAR_OTHER = timedelta(days=3653), timedelta(days=731)
WITHIN = timedelta(days=92)  # of two that are near, one so close to the others comes first


@dataclass(frozen=True)
class Reading:
    """Numbers of a column as times: their unit and epoch, and the first and the last time."""

    unit: str
    epoch: str | None
    first: datetime
    last: datetime

    def meets(self, span: tuple[datetime, datetime]) -> bool:
        """Whether it lies among the other times of a database, or near them."""
        near = NEAR if self.epoch is None else NEAR_OTHER
        return self.first - near <= span[1] and self.last + near >= span[0]

    def is_within(self, span: tuple[datetime, datetime] | None) -> bool:
        """Whether it lies among the other times of a database."""
        return span is not None and span[0] - WITHIN <= self.first and self.last <= span[1] + WITHIN

    @property
    def is_likely(self) -> bool:
        """Whether it is of the times that most databases have, if nothing else is known."""
        is_early = self.unit in FINE_UNITS or self.epoch is not None
        low = LIKELY_FROM if is_early else FIRST
        return self.unit != "day" and low <= self.first and self.last < LIKELY_UNTIL

    def text(self) -> str:
        """The unit and the epoch, as people read them."""
        if self.unit == "julian":
            return "Julian days"
        unit = "days" if self.unit == "day" else self.unit
        return f"{unit} since {self.epoch or 1970}"

    def days(self) -> str:
        return f"{self.first.date()} to {self.last.date()}"


def read_counts(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Settle unit and epoch of columns that count times, with their checks."""
    found = [
        (column, readings)
        for table in tables
        for column in table.columns
        if (readings := list(_readings(table, column)))
    ]
    if not found:
        return
    span = _span(connection, tables)
    for column, readings in found:
        best = _best(readings, span)
        if best is None:
            column.counts = ""
            _say_asked(column, readings, span)
            continue
        column.counts = best.text()
        column.unit, column.epoch = best.unit, best.epoch
        _say_taken(column, best, readings, span)


def _readings(table: TableDraft, column: ColumnDraft) -> Iterator[Reading]:
    """The readings of the numbers of a column, the likelier first."""
    source, facts = table.source.columns[table.slot(column.name)], column.facts
    if not 0 < facts.value_count == facts.number_count or facts.format is not None:
        return
    if not (is_number_type(source.type) or source.type == "VARCHAR"):
        return
    if not (_is_named(column.name) or DECLARED_TIME.search(source.declared)):
        return
    for epoch, units in COUNTS:
        for unit in units:
            if unit == "day" and not _is_day(column.name):
                continue
            first = time_of(facts.smallest, unit, epoch)
            last = time_of(facts.largest, unit, epoch)
            low = JULIAN_FIRST if unit == "julian" else FIRST
            # As days since 1970, those of a spreadsheet would be of 2060 and later.
            high = LIKELY_UNTIL if (unit, epoch) == ("day", None) else LAST
            if epoch is not None:  # near its epoch numbers are small, and may be anything
                low = max(low, datetime.fromisoformat(epoch) + timedelta(days=366))
            if first is not None and last is not None and low <= first and last < high:
                yield Reading(unit, epoch, first, last)


def _is_named(name: str) -> bool:
    words = set(words_of(name))
    ends = any(word.endswith(ENDS) for word in words - OTHER_WORDS)
    return bool(TIME_WORDS & words or ends) and not is_id_name(name)


def _is_day(name: str) -> bool:
    return bool(DATE_WORDS & set(words_of(name)[-1:]))


def time_of(count: float, unit: str, epoch: str | None) -> datetime | None:
    """The time of a number; None outside of the years 1 to 9999."""
    start = date.fromisoformat(epoch or "1970-01-01")
    if unit == "julian":
        count -= JULIAN_1970
    seconds = count * (DAY_MS / 1000 if unit in ("day", "julian") else UNIT_NS[unit] / 1e9)
    try:
        return datetime(start.year, start.month, start.day) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _span(connection: Connection, tables: Sequence[TableDraft]) -> tuple[datetime, datetime] | None:
    """The first and the last of the times that the source has as such, but for those of birth and
    those that stand for never."""
    ends: list[datetime] = []
    for table in tables:
        for column in table.columns:
            source, facts = table.source.columns[table.slot(column.name)], column.facts
            if _is_time(source, facts) and kind_of(table, column) != "personal":
                written = Column(column.name, "timestamp", format=facts.format)
                stamp = to_timestamp(table.value(column.name), source.type, written)[0]
                found = one_row(
                    connection,
                    f"SELECT min(t), max(t) FROM (SELECT {stamp} AS t FROM "
                    f"raw.t{table.source.index}) WHERE t > TIMESTAMP '1970-01-01' "
                    f"AND t < TIMESTAMP '{LAST:%Y-%m-%d}'",
                )
                ends += [time for time in found if time is not None]
    return (min(ends), max(ends)) if ends else None


def _is_time(source: SourceColumn, facts: ColumnFacts) -> bool:
    if source.type in ("DATE", ZONED_TYPE, *NAIVE_TYPES):
        return True
    return source.type == "VARCHAR" and facts.mostly(facts.time_count)


def _best(readings: Sequence[Reading], span: tuple[datetime, datetime] | None) -> Reading | None:
    """The reading to take: one since 1970, else one among the other times, else the latest; None
    if a person has to say it."""
    if span is not None:
        likely = [reading for reading in readings if reading.meets(span)]
    else:
        likely = [reading for reading in readings if reading.is_likely]
        plain = [reading for reading in readings if reading.epoch is None]
        likely = likely or [reading for reading in plain if reading.unit != "day"]
    return max(
        likely,
        key=lambda found: (found.epoch is None, found.is_within(span), found.last),
        default=None,
    )


def _say_taken(
    column: ColumnDraft,
    best: Reading,
    readings: Sequence[Reading],
    span: tuple[datetime, datetime] | None,
) -> None:
    text = f"taken for a time in {best.text()}: {best.days()}"
    others = [r for r in readings if r is not best and r.last < LIKELY_UNTIL]
    if best.epoch is None and (span is not None or not others):
        column.check(text)
        return
    if others:
        as_others = " or ".join(f"{other.days()} if {other.text()}" for other in others)
        text += f"; it would be {as_others}"
    if span is not None:
        text += f", and the other times of the database are {span[0].date()} to {span[1].date()}"
    column.check(text + '; see "unit" and "epoch"', Cost.FUTURE)


def _say_asked(
    column: ColumnDraft,
    readings: Sequence[Reading],
    span: tuple[datetime, datetime] | None,
) -> None:
    may_be = " or ".join(f"{reading.text()} ({reading.days()})" for reading in readings)
    but = ""
    if span is not None:
        but = f", but the other times of the database are {span[0].date()} to {span[1].date()}"
    column.check(
        f"looks like times in {may_be}{but}: no row gets its time from it, so contexts may show "
        'what came later; to have times, set stype timestamp, "unit" and "epoch", the day from '
        "which it counts",
        Cost.FUTURE,
    )
