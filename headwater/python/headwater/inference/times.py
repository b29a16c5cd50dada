"""When a row comes into being: the temporal column of a table.

It is the time that every row has and that no other time precedes. If several times could be it, the
latest is taken, and a person is asked: a context then shows less until somebody has answered. So
it is with a time that only some of the rows have, and with one that is named as an end. A birth is
never the time of a row, nor is one that is overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.names import singular, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row

# Words of times, whole or before "date", "time", "day", "on" and the like: duedate.
PERSONAL = {"birth", "born", "dob", "birthday", "death", "died"}
DEATHS = {"death", "fatality", "mortality", "casualty", "obituary"}  # singular, of a table of them
OVERWRITTEN = {
    "last", "updated", "update", "modified", "edited", "latest", "refreshed",
}  # fmt: skip
ENDINGS = {
    "exp", "expires", "expired", "expiry", "expiration", "end", "ended", "ends", "due", "closed",
    "closing", "deleted", "cancelled", "canceled", "until", "deadline", "to", "thru", "valid",
}  # fmt: skip
BEGINNINGS = {"from", "since", "start", "started", "starts", "begin", "begins", "began", "first"}
CREATION = re.compile(
    r"^(creat|date$|time$|timestamp|datetime|occurr|opened|ordered|registered|joined|posted|"
    r"submitted|published|received|logged|recorded|inserted|added)|creat.*|_at$",
    re.IGNORECASE,
)
STARTS = ("last", "updat", "modif")  # of words that are written together: lastlogin
TAIL = re.compile(r"(date|time|day|at|on|ts)$")
NULL_SHARE_MAX = 0.02  # of rows without a time
PARTLY = 0.5  # of rows that have a time that not every row has
ROWS_MIN = 50  # for shares to mean something


def draft_times(connection: Connection, table: TableDraft) -> None:
    """The temporal column, with the resolution of texts that are dates."""
    found = _declared(table) or _temporal(connection, table, stamps_of(table))
    if found is not None:
        take_time(table, found)


def stamps_of(table: TableDraft) -> list[ColumnDraft]:
    """The columns that may be the time of a row."""
    return [
        column
        for column in table.columns
        if column.stype == "timestamp" and not column.is_total and column.same_time_as is None
    ]


def take_time(table: TableDraft, column: ColumnDraft) -> None:
    """Make a column the time of its rows."""
    table.temporal_column = column.name
    missing = column.facts.row_count - column.facts.value_count
    if missing:
        table.check(f"{missing:,} rows have no {column.name} and would never be shown", Cost.FUTURE)
    source = table.source.columns[table.slot(column.name)]
    is_written = source.type == "VARCHAR" or column.format or column.unit == "day"
    if is_written and source.declared != "DATE":
        table.time_resolution = "day" if table.holds_days(column.name) else "instant"


def _declared(table: TableDraft) -> ColumnDraft | None:
    if table.source.time_column is None:
        return None
    table.time_reason = "declared"
    return table.column(table.source.time_column)


def _temporal(
    connection: Connection, table: TableDraft, stamps: list[ColumnDraft]
) -> ColumnDraft | None:
    beginnings = [column for column in stamps if kind_of(table, column) == "beginning"]
    candidates = [column for column in beginnings if has_times(column.facts)]
    if len(candidates) == 1:
        table.time_reason = "the one time that every row has"
        return candidates[0]
    preferred = [column for column in candidates if CREATION.search(column.name)]
    if len(preferred) == 1:
        table.time_reason = "of the times that every row has, the one named as a beginning"
        return preferred[0]
    for column in candidates:
        orders = [order_of(connection, table, column, other) for other in stamps if other != column]
        if orders and all(later > earlier == 0 for later, earlier in orders):
            table.time_reason = "of the times that every row has, never after another"
            table.check(f"temporal column {column.name}: {table.time_reason}", Cost.FUTURE)
            return column
    return None


def draft_doubtful_time(connection: Connection, table: TableDraft, *, is_referred_to: bool) -> None:
    """A time for a table that would have none, to be checked: if every row has several times, the
    latest; in a table that no other one refers to a time that half of the rows have; or an end."""
    stamps = stamps_of(table)
    beginnings = [column for column in stamps if kind_of(table, column) == "beginning"]
    every = [column for column in beginnings if has_times(column.facts)]
    some = [c for c in beginnings if c.facts.value_count >= PARTLY * c.facts.row_count]
    ends = [c for c in stamps if kind_of(table, c) == "end" and has_times(c.facts)]
    kept = [c for c in stamps if kind_of(table, c) == "overwritten" and has_times(c.facts)]
    for found, why in (
        (every, "of the times that every row has, none of which comes first, the latest"),
        ([] if is_referred_to else some, "the latest of the times that most rows have"),
        (ends, "named as an end, but the only time"),
        ([] if is_referred_to else kept, "named as overwritten, but the only time"),
    ):
        if found and table.source.row_count:
            column = latest(connection, table, found)
            others = " or ".join(c.name for c in stamps if c is not column)
            other = f'; else set "temporal_column" to {others}' if others else ""
            table.time_reason = why
            table.check(
                f"temporal column {column.name} ({why}): rows are shown from then on{other}",
                Cost.FUTURE,
            )
            take_time(table, column)
            return
    if beginnings and table.source.row_count:
        names = ", ".join(column.name for column in beginnings)
        table.check(f"no temporal column is obvious among {names}", Cost.FUTURE)


def kind_of(table: TableDraft, column: ColumnDraft) -> str:
    """By the name of a time: "beginning", "end", "overwritten", or "personal", which is never the
    time of a row."""
    words = {TAIL.sub("", word) or word for word in words_of(column.name)} | set(
        words_of(column.name)
    )
    if PERSONAL & words or any(word.startswith("birth") for word in words):
        of_deaths = DEATHS & {singular(word) for word in words_of(table.name)}
        return "beginning" if of_deaths and {"death", "died"} & words else "personal"
    if OVERWRITTEN & words or any(word.startswith(STARTS) for word in words):
        return "overwritten"
    return "end" if ENDINGS & words and not BEGINNINGS & words else "beginning"


def latest(
    connection: Connection, table: TableDraft, columns: Sequence[ColumnDraft]
) -> ColumnDraft:
    """The one that is later than the others in the mean of the rows that have all of them, as the
    newest rows have not all yet; if there are none, in the mean of its own rows."""
    times = [f"epoch({table.over(column.name)})" for column in columns]
    common = " AND ".join(f"{time} IS NOT NULL" for time in times)
    means = [f"avg({time}) FILTER (WHERE {common})" for time in times]
    means += [f"avg({time})" for time in times]
    row = one_row(connection, f"SELECT {', '.join(means)} FROM raw.t{table.source.index}")
    compared = row[: len(times)] if row[0] is not None else row[len(times) :]
    found = [pair for pair in zip(compared, columns, strict=True) if pair[0] is not None]
    return max(found, key=lambda pair: pair[0])[1] if found else columns[0]  # all are infinite


def has_times(facts: ColumnFacts) -> bool:
    if facts.value_count == 0:
        return False
    missing = facts.row_count - facts.value_count
    return missing == 0 or (
        facts.row_count >= ROWS_MIN and missing <= NULL_SHARE_MAX * facts.row_count
    )


def order_of(
    connection: Connection, table: TableDraft, first: ColumnDraft, second: ColumnDraft
) -> tuple[int, int]:
    """In how many rows the second time is later, and earlier, than the first; a day counts when it
    is over."""
    a, b = table.over(first.name), table.over(second.name)
    later, earlier = one_row(
        connection,
        f"SELECT count(*) FILTER (WHERE b > a), count(*) FILTER (WHERE b < a) FROM "
        f"(SELECT {a} AS a, {b} AS b FROM raw.t{table.source.index})",
    )
    return later, earlier
