"""When a row comes into being: the temporal column of a table.

It is the time that every row has and that no other time precedes.
"""

from __future__ import annotations

import re

from headwater.facts.column_facts import ColumnFacts
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.sources.database import Connection, one_row

NOT_CREATION = re.compile(
    r"birth|born|dob|death|expir|end|due|last|updat|modif|edit|clos|delet|cancel|valid|until|deadline",
    re.IGNORECASE,
)
CREATION = re.compile(
    r"^(creat|date$|time$|timestamp|datetime|occurr|opened|ordered|registered|joined|posted|"
    r"submitted|published|received|logged|recorded|inserted|added)|creat.*|_at$",
    re.IGNORECASE,
)
NULL_SHARE_MAX = 0.02  # of rows without a time
ROWS_MIN = 50  # for shares to mean something


def draft_times(connection: Connection, table: TableDraft) -> None:
    """The temporal column, with the resolution of texts that are dates."""
    stamps = [c for c in table.columns if c.stype == "timestamp" and not c.is_total]
    found = _declared(table) or _temporal(connection, table, stamps)
    if found is None:
        beginnings = [column for column in stamps if not NOT_CREATION.search(column.name)]
        if beginnings and table.source.row_count:
            names = ", ".join(column.name for column in beginnings)
            table.checks.append(f"no temporal column is obvious among {names}")
        return
    table.temporal_column = found.name
    missing = found.facts.row_count - found.facts.value_count
    if missing:
        table.checks.append(f"{missing:,} rows have no {found.name} and would never be shown")
    source = table.source.columns[table.slot(found.name)]
    if (source.type == "VARCHAR" or found.format) and source.declared != "DATE":
        table.time_resolution = "day" if table.holds_days(found.name) else "instant"


def _declared(table: TableDraft) -> ColumnDraft | None:
    if table.source.time_column is None:
        return None
    table.time_reason = "declared"
    return table.column(table.source.time_column)


def _temporal(
    connection: Connection, table: TableDraft, stamps: list[ColumnDraft]
) -> ColumnDraft | None:
    candidates = [
        column
        for column in stamps
        if _has_times(column.facts) and not NOT_CREATION.search(column.name)
    ]
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
            table.checks.append(f"temporal column {column.name}: {table.time_reason}")
            return column
    return None


def _has_times(facts: ColumnFacts) -> bool:
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
