"""Times of rows that refer to others: parents that are newer than what names them, and rows that
take the time of the row they are a part of.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.names import table_words
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import key_text
from headwater.metadata.parts import ColumnRef, ForeignKey
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row

NEARLY_ALL = 0.9
OUT_OF_ORDER_MAX = 0.1  # of the rows may be older than what they name

NewerParents = dict[tuple[str, tuple[str, ...]], tuple[int, int]]
"""By table and columns of a foreign key: how many rows name a parent, and how many a newer one."""


def newer_parents(connection: Connection, tables: Sequence[TableDraft]) -> NewerParents:
    """Count, for each foreign key between tables with times of their own, the rows that name a row,
    and those that name a newer one."""
    found: NewerParents = {}
    for table in tables:
        for key in table.every_key():
            parent = next(other for other in tables if other.name == key.table)
            if not (has_own_time(table) and has_own_time(parent)):
                continue
            time, theirs_at = table.temporal_column or "", parent.temporal_column or ""
            # A child of a day may come of all that this day brought.
            is_day = table.holds_days(time) and not parent.holds_days(theirs_at)
            own, other = table.over(time) if is_day else table.stamp(time), parent.stamp(theirs_at)
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


def has_own_time(table: TableDraft) -> bool:
    """Whether a table has a time that it does not take from another one."""
    return (
        table.temporal_column is not None and table.column(table.temporal_column).taken_from is None
    )


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
            parent.check(_late_text(parent, names, total, late), Cost.UNSEEN)


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


def take_parent_times(
    connection: Connection, tables: Sequence[TableDraft], *, by_declared: bool = False
) -> None:
    """Tables without a time that belong to a timed one: a part of it takes its time. by_declared:
    also a table whose every row names one by a key that the source declares, the newest of several
    such, if no row that names the table's is older."""
    waiting = [table for table in tables if table.temporal_column is None]
    again = True
    while again:
        again = False
        for table in waiting:
            if table.temporal_column is None and table.source.row_count:
                again |= _take_time(connection, tables, table, by_declared=by_declared)


def say_untimed(tables: Sequence[TableDraft]) -> None:
    """Check tables without a time that point at a table with one."""
    for table in tables:
        parents = _timed_parents(tables, table)
        if table.temporal_column is None and parents:
            name = parents[0].name
            table.check(
                f"has no time, so its rows are shown at any time, though they point at {name}, "
                "which has one; if they come into being with it, add a column with "
                f'"taken_from": "{name}.{parents[0].temporal_column}" and make it the '
                "temporal_column",
                Cost.FUTURE,
            )


def _take_time(
    connection: Connection, tables: Sequence[TableDraft], table: TableDraft, *, by_declared: bool
) -> bool:
    """Give a table the time of a parent."""
    parents = [
        parent
        for parent in _timed_parents(tables, table)
        if sum(key.table == parent.name for key in table.every_key()) == 1
    ]
    owners = [parent for parent in _timed_parents(tables, table) if _is_part(table, parent)]
    if len(owners) == 1 and owners[0] in parents:
        parent = owners[0]
    elif by_declared:
        newest = _newest_declared(connection, tables, table, parents)
        if newest is None:
            return False
        parent = newest
    else:
        return False
    name = parent.temporal_column
    assert name is not None
    column = add_taken(table, parent, name, f"the time of {parent.name}")
    column.check(
        f"proposal: {table.name} has no time of its own and takes that of the row of {parent.name} "
        "that it names; without one its rows would be shown at any time",
        Cost.FUTURE,
    )
    table.temporal_column, table.time_reason = column.name, f"taken from {parent.name}"
    table.time_resolution = parent.time_resolution
    return True


def add_taken(table: TableDraft, parent: TableDraft, name: str, what: str) -> ColumnDraft:
    """Add a column of the parent's row to a table; its name has the parent's if it is taken."""
    folded = {column.name.casefold() for column in table.columns}
    own = name if name.casefold() not in folded else f"{parent.name}.{name}"
    facts = ColumnFacts(table.source.row_count, table.source.row_count, 0)
    column = ColumnDraft(own, facts, "ignored", f"not of the source: {what}")
    column.taken_from = ColumnRef(parent.name, name)
    theirs = parent.column(name)
    column.unit, column.epoch, column.format = theirs.unit, theirs.epoch, theirs.format
    table.columns.append(column)
    return column


def _newest_declared(
    connection: Connection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    parents: Sequence[TableDraft],
) -> TableDraft | None:
    """The one with the newest times of the parents that every row names by a declared key, unless
    rows that name the table's are older than these."""
    declared = {(columns, parent) for columns, parent, _ in table.source.foreign_keys}
    found = []
    for parent in parents:
        key = _key_to(table, parent)
        is_full = all(table.column(name).facts.is_full for name in key.columns)
        if not is_full or (key.columns, parent.name) not in declared:
            continue
        rows = _taken_rows(tables, table, table.primary_key or key.columns, parent)
        mean, count = one_row(connection, f"SELECT avg(epoch(t)), count(t) FROM ({rows})")
        if mean is not None and count >= NEARLY_ALL * table.source.row_count:
            found.append((mean, parent, rows))
    if not found:
        return None
    _, parent, _ = max(found, key=lambda entry: entry[0])
    for child in tables:
        for key in child.every_key():
            if key.table == table.name and child is not table and has_own_time(child):
                over = child.over(child.temporal_column or "")
                below = timed_keys(child, key.columns, over)
                above = _taken_rows(tables, table, key.references, parent)
                if is_out_of_order(connection, below, above):
                    return None
    return parent


def _taken_rows(
    tables: Sequence[TableDraft], table: TableDraft, columns: Sequence[str], parent: TableDraft
) -> str:
    """SQL: keys `k` of a table's rows and the times `t` of the parent's rows that they name."""
    key, name = _key_to(table, parent), parent.temporal_column or ""
    above = parent.column(name).taken_from
    if above is None:
        times = timed_keys(parent, key.references, parent.stamp(name))
    else:
        times = _taken_rows(tables, parent, key.references, _named(tables, above.table))
    ours, theirs = _key_of(table, columns), _key_of(table, key.columns)
    return (
        f"SELECT c.k, p.t FROM (SELECT {ours} AS k, {theirs} AS u FROM raw.t{table.source.index}) "
        f"c LEFT JOIN ({times}) p ON c.u = p.k"
    )


def timed_keys(
    table: TableDraft, columns: Sequence[str], time: str, relation: str | None = None
) -> str:
    """SQL: keys `k` and times `t` of a table's rows."""
    rows = relation or f"raw.t{table.source.index}"
    return f"SELECT {_key_of(table, columns)} AS k, {time} AS t FROM {rows}"


def is_out_of_order(connection: Connection, below: str, above: str) -> bool:
    """Whether too many rows are older than the ones that they name, by `timed_keys` of both."""
    joined, older = one_row(
        connection,
        f"SELECT count(*), count(*) FILTER (WHERE c.t < p.t) FROM ({below}) c JOIN ({above}) p "
        "ON c.k = p.k",
    )
    return bool(older > OUT_OF_ORDER_MAX * joined)


def _key_of(table: TableDraft, columns: Sequence[str]) -> str:
    return f"({', '.join(key_text(table, name) for name in columns)})"


def _key_to(table: TableDraft, parent: TableDraft) -> ForeignKey:
    """The one key of a table to another."""
    return next(key for key in table.every_key() if key.table == parent.name)


def _named(tables: Sequence[TableDraft], name: str) -> TableDraft:
    return next(table for table in tables if table.name == name)


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
