"""When a row comes into being, and which of its columns are written later.

The temporal column is the time that every row has and that no other time precedes. A column is
written later if its time is later than the row's or is missing until something happens, if it is
NULL in the same rows as such a time, if the rows it refers to are newer than its own, or if its
name is one of a counter or a state that moves on. A column that was written later and is not
declared so shows the future: `known_at` hides it, and is a proposal to be checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.inference.column_facts import ColumnFacts
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.names import table_words, words_of
from headwater.inference.overlaps import key_text
from headwater.metadata.parts import ColumnRef, Known
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.value_sql import to_boolean, to_timestamp

NOT_CREATION = re.compile(
    r"birth|born|dob|death|expir|end|due|last|updat|modif|edit|clos|delet|cancel|valid|until|deadline",
    re.IGNORECASE,
)
CREATION = re.compile(
    r"^(creat|date$|time$|timestamp|datetime|occurr|opened|ordered|registered|joined|posted|"
    r"submitted|published|received|logged|recorded|inserted|added)|creat.*|_at$",
    re.IGNORECASE,
)
OVERWRITTEN = {"last", "updated", "modified", "latest", "changed", "refreshed"}
# The last word of what counts up, or changes, while its row gets older.
COUNTERS = {
    "score", "scores", "views", "votes", "upvotes", "downvotes", "likes", "dislikes", "reputation",
    "followers", "subscribers", "downloads", "favorites", "favourites", "shares", "clicks", "count",
}  # fmt: skip
STATES = {
    "closed", "deleted", "cancelled", "canceled", "resolved", "refunded", "returned", "churned",
    "expired", "archived", "banned", "accepted", "approved", "rejected", "completed", "shipped",
    "delivered", "paid", "solved", "answered", "converted", "defaulted",
}  # fmt: skip
NULL_SHARE_MAX = 0.02  # of rows without a time
ROWS_MIN = 50  # for shares to mean something
LATER_SHARE = 0.01
EARLIER_SHARE_MAX = 0.01
SAME_ROWS_SHARE = 0.98
NEWER_SHARE = 0.5
NEARLY_ALL = 0.9

NewerParents = dict[tuple[str, tuple[str, ...]], tuple[int, int]]
"""By table and columns of a foreign key: how many rows name a parent, and how many a newer one."""


def draft_times(connection: Connection, table: TableDraft) -> None:
    """The temporal column, with the resolution of texts that are dates."""
    stamps = [column for column in table.columns if column.stype == "timestamp"]
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
    form = found.format or ""
    if (source.type == "VARCHAR" or form) and source.declared != "DATE":
        has_clock = found.facts.clock_count > 0 or "%H" in form
        table.time_resolution = "instant" if has_clock else "day"


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
        orders = [_order(connection, table, column, other) for other in stamps if other != column]
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


def draft_known_at(connection: Connection, table: TableDraft, newer: NewerParents) -> None:
    """Propose known_at for the columns of a timed table that look written later than their row."""
    if table.temporal_column is None or table.source.row_count == 0:
        return
    time = table.column(table.temporal_column)
    late = [
        column
        for column in table.columns
        if column.stype == "timestamp" and column is not time
        if _propose_time(connection, table, time, column)
    ]
    keys = {*table.primary_key, *(name for key in table.foreign_keys for name in key.columns)}
    for column in table.columns:
        if column.stype in ("timestamp", "ignored") or column is time or column.name in keys:
            continue
        is_late = _propose_companion(connection, table, column, late)
        if not (is_late or _propose_newer(table, column, newer)):
            _propose_name(column)


def _propose_time(
    connection: Connection, table: TableDraft, time: ColumnDraft, column: ColumnDraft
) -> bool:
    """A second time: later than its row, or missing until it happens."""
    facts = column.facts
    later, earlier = _order(connection, table, time, column)
    nulls = facts.row_count - facts.value_count
    if later < max(1, LATER_SHARE * facts.value_count):
        return False
    if earlier > EARLIER_SHARE_MAX * facts.value_count:
        return False
    shown = f"later than {time.name} in {later:,} of {facts.value_count:,} rows"
    if nulls == 0 and OVERWRITTEN & set(words_of(column.name)):
        _propose(column, Known("never"), f"{shown} and overwritten")
    else:
        missing = f", NULL in {nulls:,}" if nulls else ""
        _propose(column, Known("column", column.name), shown + missing)
    return bool(nulls)


def _propose_companion(
    connection: Connection, table: TableDraft, column: ColumnDraft, late: Sequence[ColumnDraft]
) -> bool:
    """A column that is set in the same rows as a later time, or true in them."""
    for time in late:
        value, has_time = table.value(column.name), f"{table.value(time.name)} IS NOT NULL"
        has_value = f"{value} IS NOT NULL"
        if column.facts.is_full:
            if column.stype != "boolean":
                continue
            has_value = f"coalesce({to_boolean(value, table.kind(column.name))[0]}, false)"
        row = one_row(
            connection,
            f"SELECT count(*), count(*) FILTER (WHERE {has_value} AND {has_time}), "
            f"count(*) FILTER (WHERE {has_value}) FROM raw.t{table.source.index} "
            f"WHERE {has_value} OR {has_time}",
        )
        if row[0] and row[1] >= SAME_ROWS_SHARE * row[0]:
            what = "true" if column.facts.is_full else "set"
            text = f"{what} in the rows that have {time.name} ({row[1]:,} of {row[0]:,})"
            _propose(column, Known("column", time.name), text)
            return True
    return False


def newer_parents(connection: Connection, tables: Sequence[TableDraft]) -> NewerParents:
    """Count, for each foreign key between tables with times of their own, the rows that name a row,
    and those that name a newer one."""
    found: NewerParents = {}
    for table in tables:
        for key in table.every_key():
            parent = next(other for other in tables if other.name == key.table)
            own, other = _own_stamp(table), _own_stamp(parent)
            if own is None or other is None:
                continue
            names = [f"k{j}" for j in range(len(key.columns))]
            ours = [f"{key_text(table, c)} AS {k}" for c, k in zip(key.columns, names, strict=True)]
            theirs = [
                f"{key_text(parent, c)} AS {k}" for c, k in zip(key.references, names, strict=True)
            ]
            row = one_row(
                connection,
                f"SELECT count(*), count(*) FILTER (WHERE p.t > c.t) FROM (SELECT "
                f"{', '.join(ours)}, {own} AS t FROM raw.t{table.source.index}) c JOIN (SELECT "
                f"{', '.join(theirs)}, {other} AS t FROM raw.t{parent.source.index}) p ON "
                f"{' AND '.join(f'c.{k} = p.{k}' for k in names)}",
            )
            found[table.name, key.columns] = (row[0], row[1])
    return found


def _own_stamp(table: TableDraft) -> str | None:
    """SQL: the time of a row, if the table has one of its own."""
    if table.temporal_column is None or table.column(table.temporal_column).taken_from is not None:
        return None
    return _stamp(table, table.temporal_column)


def check_late_parents(tables: Sequence[TableDraft], newer: NewerParents) -> None:
    """Find tables whose rows are newer than nearly all rows that name them, such as those with the
    time of an export or of the last change. No question at the time of a naming row sees them."""
    for parent in tables:
        names, total, late = [], 0, 0
        for table in tables:
            for key in table.every_key():
                rows, newer_rows = newer.get((table.name, key.columns), (0, 0))
                is_set = all(
                    table.column(name).facts.value_count >= NEARLY_ALL * table.source.row_count
                    for name in key.columns
                )
                if key.table != parent.name or table is parent or not is_set or not rows:
                    continue
                names.append(f"{table.name}.{'+'.join(key.columns)}")
                total, late = total + rows, late + newer_rows
        if late and late >= NEARLY_ALL * total:
            parent.first_checks.append(_late_text(parent, names, total, late))


def _late_text(parent: TableDraft, names: Sequence[str], total: int, late: int) -> str:
    others = [
        column.name
        for column in parent.columns
        if column.stype == "timestamp" and column.name != parent.temporal_column
    ]
    edit = 'remove "temporal_column" and "time_resolution"'
    if others:
        edit = f'set "temporal_column" to another time ({", ".join(others)}), or {edit}'
    return (
        f"temporal column {parent.temporal_column} is newer than {late:,} of the {total:,} rows "
        f"that name a row of {parent.name} ({', '.join(names)}), so a question at the time of "
        f"one of these rows never sees the row of {parent.name} that it names; unless "
        f"{parent.temporal_column} is planned ahead, {edit}"
    )


def _propose_newer(table: TableDraft, column: ColumnDraft, newer: NewerParents) -> bool:
    """A foreign key whose rows are newer than its own was written when they were there."""
    row = newer.get((table.name, (column.name,)), (0, 0))
    if row[0] == 0 or row[1] < NEWER_SHARE * row[0]:
        return False
    text = f"{row[1]:,} of the {row[0]:,} rows it names are newer than its own"
    if column.facts.is_full:  # set from the start, to something that was planned
        column.checks.append(f"{text}: they are shown only when their time has come")
    else:
        _propose(column, Known("never"), text)
    return True


def _propose_name(column: ColumnDraft) -> None:
    words = words_of(column.name)
    if not words or column.foreign_key is not None or column.stype not in (
        "numerical", "boolean", "categorical",
    ):  # fmt: skip
        return
    is_state = words[-1] in STATES and column.stype == "boolean"
    if is_counter(words, column.stype) or is_state:
        _propose(column, Known("never"), "by its name it changes after its row was written")
    elif words[-1] == "status" and column.stype == "categorical":
        column.checks.append("a status may change after its row is written: see known_at")


def is_counter(words: Sequence[str], stype: str) -> bool:
    """Whether a number counts up while its row gets older, by the words of its name."""
    if stype != "numerical" or not words:
        return False
    return (
        words[-1] in COUNTERS - {"score", "scores", "count"}
        or list(words) in (["score"], ["scores"])
        or (words[-1] == "count" and len(words) > 1)
    )


def _propose(column: ColumnDraft, known: Known, why: str) -> None:
    column.known_at = known
    column.checks.append(f"proposal: known_at {known.to_json()} ({why})")


def draft_parent_times(tables: Sequence[TableDraft]) -> None:
    """Tables without a time that belong to a timed one: a part of it takes its time."""
    waiting = [table for table in tables if table.temporal_column is None]
    again = True
    while again:
        again = False
        for table in waiting:
            if table.temporal_column is None and table.source.row_count:
                again |= _take_time(tables, table)
    for table in waiting:
        parents = _timed_parents(tables, table)
        if table.temporal_column is None and parents:
            name = parents[0].name
            table.checks.append(
                f"has no time, so its rows are shown at any time, though they point at {name}, "
                "which has one; if they come into being with it, add a column with "
                f'"taken_from": "{name}.{parents[0].temporal_column}" and make it the '
                "temporal_column"
            )


def _take_time(tables: Sequence[TableDraft], table: TableDraft) -> bool:
    """Give a table that is a part of one timed parent that parent's time."""
    owners = [parent for parent in _timed_parents(tables, table) if _is_part(table, parent)]
    if len(owners) != 1:
        return False
    parent = owners[0]
    if sum(key.table == parent.name for key in table.every_key()) != 1:
        return False
    name = parent.temporal_column
    assert name is not None
    taken = name if name not in table.source.column_names() else f"{parent.name}.{name}"
    facts = ColumnFacts(table.source.row_count, table.source.row_count, 0)
    column = ColumnDraft(taken, facts, "ignored", f"not of the source: the time of {parent.name}")
    column.taken_from = ColumnRef(parent.name, name)
    column.unit, column.format = parent.column(name).unit, parent.column(name).format
    column.checks.append(
        f"proposal: {table.name} has no time of its own and takes that of the row of {parent.name} "
        "it belongs to; without one its rows would be shown at any time"
    )
    table.columns.append(column)
    table.temporal_column, table.time_reason = taken, f"taken from {parent.name}"
    table.time_resolution = parent.time_resolution
    return True


def _timed_parents(tables: Sequence[TableDraft], table: TableDraft) -> list[TableDraft]:
    names = {key.table for key in table.every_key()} - {table.name}
    return [other for other in tables if other.name in names and other.temporal_column is not None]


def _is_part(table: TableDraft, parent: TableDraft) -> bool:
    """Whether rows come into being with the parent's: by name (InvoiceLine), by its key being part
    of theirs, or because they have no other parent and always have this one."""
    own, other = table_words(table.name), table_words(parent.name)
    columns = [
        name for key in table.every_key() if key.table == parent.name for name in key.columns
    ]
    if not all(table.column(name).facts.is_full for name in columns):
        return False
    return own[: len(other)] == other or bool(set(columns) & set(table.primary_key))


def _stamp(table: TableDraft, name: str) -> str:
    """SQL: a time."""
    column = table.column(name)
    value, kind = table.value(name), table.kind(name)
    return to_timestamp(value, kind, unit=column.unit, format=column.format)[0]


def _order(
    connection: Connection, table: TableDraft, first: ColumnDraft, second: ColumnDraft
) -> tuple[int, int]:
    """In how many rows the second time is later, and earlier, than the first."""
    a, b = _stamp(table, first.name), _stamp(table, second.name)
    query = f"SELECT count(*) FROM raw.t{table.source.index} WHERE {{}}"
    return (
        count_rows(connection, query.format(f"{b} > {a}")),
        count_rows(connection, query.format(f"{b} < {a}")),
    )
