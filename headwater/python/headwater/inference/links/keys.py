"""Primary and foreign keys: as the source declares them, else inferred.

A primary key is a column (or the first columns) that no two rows share, or hardly any two, and
whose name or place says so. A foreign key is a column whose name says what it refers to and whose
values are there, or whose values alone leave little doubt (`references.py`). The overlap is
measured in distinct values, exactly, or for more than a million of them at a sample by their hash;
either way the reason says it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from headwater.facts.names import own_key_score, reference_score
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.near_misses import hold_alike, say_near_misses
from headwater.inference.links.overlaps import Overlap, key_text, measure_overlap
from headwater.inference.links.references import (
    CONTAINED,
    KEY_LENGTH_MAX,
    NAMED_SHARE,
    Key,
    ReferenceSearch,
)
from headwater.metadata.parts import ColumnRef, ForeignKey
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, count_rows
from headwater.sources.key_values import is_text_type
from headwater.sources.value_sql import INTEGER_TYPES

PREFIX_MAX = 4  # columns of a composite key
EXTRA_SHARE = 5_000  # a key may repeat in one of so many rows
NEAR_SHARE = 0.05  # of the rows repeat a key that is not taken, for a line about it
KEY_OF_TIMES = (
    "looks like times, but is read as a key: no row gets its time from it, so contexts may show "
    'what came later; to have times, add a column with an "expression" of it'
)


def draft_primary_key(
    connection: Connection, table: TableDraft, tables: Sequence[TableDraft]
) -> None:
    """The declared primary key, else one column, else the first few."""
    if table.source.primary_key:
        _take_declared(table)
        return
    if table.source.row_count == 0:
        return
    best, best_score = None, 0
    for position, column in enumerate(table.own_columns()):
        score = own_key_score(table.name, column.name, position)
        if score > best_score and _may_be_key(table, column) and column.facts.is_unique:
            if score == 1 and (position > 0 or table.source.row_count < 2):
                continue
            best, best_score = column, score
    if best is not None:
        table.primary_key = (best.name,)
        table.key_reason = f"inferred: all {table.source.row_count:,} values differ"
        if best_score < 3:
            table.check(f"primary key {best.name} is inferred, as its values differ", Cost.LINKS)
        return
    nearly = _nearly_key(table, tables)
    if nearly is not None and _repeats(nearly) <= _repeats_max(table):
        _take_repeated(table, (nearly.name,), _repeats(nearly))
        return
    _draft_composite_key(connection, table)


def _nearly_key(table: TableDraft, tables: Sequence[TableDraft]) -> ColumnDraft | None:
    """The column that is named as the key of this table and of no other, though it may repeat."""
    scores = {
        column.name: own_key_score(table.name, column.name, position)
        for position, column in enumerate(table.own_columns())
        if _may_be_key(table, column)
    }
    best = max(scores, key=lambda name: scores[name], default=None)
    if best is None or scores[best] < 2:
        return None
    is_of_other = scores[best] < 3 and any(
        reference_score(table.name, best, other.name, "id") == 3
        for other in tables
        if other is not table
    )
    return None if is_of_other else table.column(best)


def _repeats(column: ColumnDraft) -> int:
    """Rows whose value another row before them has."""
    return column.facts.value_count - column.facts.distinct_count


def _repeats_max(table: TableDraft) -> int:
    """Rows that may repeat a key that is inferred all the same."""
    count = table.source.row_count
    return max(1, count // EXTRA_SHARE) if count >= 100 else 0


def _take_declared(table: TableDraft) -> None:
    """The declared primary key; none where SQLite let it be NULL, as such rows cannot be named."""
    names = table.source.primary_key
    missing = [name for name in names if not table.column(name).facts.is_full]
    if not missing:
        table.primary_key, table.key_reason = names, "declared"
        return
    table.key_reason = f"none: the declared {', '.join(names)} is NULL in some rows"
    table.check(
        f"the declared primary key ({', '.join(names)}) is not taken, as {missing[0]} is NULL in "
        "some rows",
        Cost.LINKS,
    )


def _may_be_key(table: TableDraft, column: ColumnDraft) -> bool:
    facts, source = column.facts, table.source.columns[table.slot(column.name)]
    whole = facts.integer_count == facts.value_count or facts.number_count < facts.value_count
    is_kind = (
        is_text_type(source.type)
        or source.type in (*INTEGER_TYPES, "UBIGINT", "HUGEINT")
        or (source.type.startswith("DECIMAL") and whole)
    )
    is_text = source.type == "VARCHAR"
    if is_text and facts.mostly(facts.number_count) and not whole:
        return False
    return is_kind and facts.is_full and facts.mean_length <= KEY_LENGTH_MAX


def _draft_composite_key(connection: Connection, table: TableDraft) -> None:
    """The shortest run of first columns that no two rows share, or hardly any two."""
    limit = _repeats_max(table)
    names: list[str] = []
    for column in table.own_columns()[:PREFIX_MAX]:
        facts = column.facts
        is_short = facts.mean_length <= KEY_LENGTH_MAX
        if not facts.is_full or not is_short or facts.integer_count < facts.number_count:
            return
        names.append(column.name)
        product = math.prod(max(table.column(name).facts.distinct_count, 1) for name in names)
        if len(names) < 2 or product + limit < table.source.row_count:
            continue
        parts = ", ".join(key_text(table, name) for name in names)
        extra = count_rows(
            connection,
            f"SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT {parts} "
            f"FROM raw.t{table.source.index})) FROM raw.t{table.source.index}",
        )
        if extra <= limit:
            _take_composite(table, tuple(names), extra)
            return


def _take_composite(table: TableDraft, names: tuple[str, ...], extra: int) -> None:
    if extra:
        _take_repeated(table, names, extra)
        return
    table.primary_key = names
    table.key_reason = "inferred: no two rows share these first columns"
    table.check(
        f"primary key ({', '.join(names)}) is inferred, as no two rows share it", Cost.LINKS
    )


def _take_repeated(table: TableDraft, names: tuple[str, ...], extra: int) -> None:
    """A key that a few rows repeat."""
    table.primary_key, table.on_duplicate_key = names, "first"
    what = "it" if len(names) == 1 else "these first columns"
    table.key_reason = f"inferred: {extra:,} rows repeat {what}"
    listed = names[0] if len(names) == 1 else f"({', '.join(names)})"
    table.check(
        f"primary key {listed} is inferred, though {extra:,} rows repeat the key of another: of "
        "these the first is kept (on_duplicate_key)",
        Cost.LINKS,
    )


def draft_foreign_keys(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Declared keys with their overlap, then what else looks like one."""
    for table in tables:
        _declared_keys(connection, tables, table)
    search = ReferenceSearch(connection, tables)
    open_columns = [
        (table, column)
        for table in tables
        for column in table.own_columns()
        if not _refers(table, column)
    ]
    # Of tables with one key in common, the one whose name the key has is referred to.
    for table, column in sorted(open_columns, key=lambda entry: _is_own_key(*entry)):
        found = search.find(table, column)
        if found is not None and not _refers_back(found.key, table, column):
            column.foreign_key = ColumnRef(found.key.table.name, found.key.name)
            why = "name" if found.score else "values"
            column.reason = f"by {why}: {found.overlap.text(str(column.foreign_key))}"
            column.check(
                f"foreign key to {column.foreign_key} is inferred {column.reason}", Cost.LINKS
            )
    _infer_composites(connection, tables)
    hold_alike(connection, tables)
    say_near_misses(connection, search, [found for found in open_columns if not _refers(*found)])
    for table in tables:
        _say_nearly_key(connection, tables, table)


def _refers(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is part of a foreign key."""
    return any(column.name in key.columns for key in table.every_key())


def _say_nearly_key(
    connection: Connection, tables: Sequence[TableDraft], table: TableDraft
) -> None:
    """A column that would be the key but for some rows, which leave other tables without a link."""
    column = _nearly_key(table, tables)
    if column is None or table.source.primary_key or table.primary_key == (column.name,):
        return
    repeats = _repeats(column)
    if column.foreign_key is not None or repeats > NEAR_SHARE * table.source.row_count:
        return
    pointing = [
        f"{other.name}.{own.name}"
        for other in tables
        for own in other.columns
        if other is not table
        and own.name.casefold() == column.name.casefold()
        and own.foreign_key is None
        and measure_overlap(connection, other, (own.name,), table, (column.name,)).share
        >= CONTAINED[3]
    ]
    if pointing:
        verb = "points" if len(pointing) == 1 else "point"
        table.check(
            f"{column.name} would be the key but for {repeats:,} rows that repeat it, and "
            f"{', '.join(pointing)} {verb} at it without a link: see primary_key, on_duplicate_key "
            "and foreign_key",
            Cost.LINKS,
        )


def settle_formats(tables: Sequence[TableDraft]) -> None:
    """A key and what it refers to are read alike: if only one side were read as dates, no row would
    be found. It happens where one of them has a 0 for no date."""
    pairs = [
        (table.column(name), parent.column(reference))
        for table in tables
        for key in table.every_key()
        for parent in tables
        if parent.name == key.table
        for name, reference in zip(key.columns, key.references, strict=True)
    ]
    while unlike := [pair for pair in pairs if pair[0].facts.format != pair[1].facts.format]:
        for column in unlike[0]:
            if column.facts.format is not None:
                facts = replace(column.facts, format=None, time_count=0)
                column.facts = replace(facts, unread_times=KEY_OF_TIMES)
    for column in (column for pair in pairs for column in pair):
        if column.facts.unread_times:
            column.facts = replace(column.facts, unread_times=KEY_OF_TIMES)


def _declared_keys(connection: Connection, tables: Sequence[TableDraft], table: TableDraft) -> None:
    by_name = {other.name: other for other in tables}
    for columns, parent_name, references in reversed(table.source.foreign_keys):
        if len(columns) == 1:
            table.column(columns[0]).foreign_key = ColumnRef(parent_name, references[0])
    for columns, parent_name, references in table.source.foreign_keys:
        reference = ColumnRef(parent_name, references[0])
        if len(columns) > 1 or table.column(columns[0]).foreign_key != reference:
            table.foreign_keys.append(ForeignKey(columns, parent_name, references))
        overlap = measure_overlap(connection, table, columns, by_name[parent_name], references)
        listed = f"{parent_name} ({', '.join(references)})" if len(columns) > 1 else str(reference)
        text = f"declared; {overlap.text(listed)}" if overlap.count else "declared"
        for name in columns:
            table.column(name).reason = text
        if overlap.count and overlap.share < 1:
            missing = overlap.count - overlap.found
            table.column(columns[0]).check(
                f"{missing:,} of {overlap.count:,} values name no row of {parent_name}", Cost.LINKS
            )


def _is_own_key(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is the primary key of its table, and named so: users.user_id."""
    is_key = table.primary_key == (column.name,)
    return is_key and own_key_score(table.name, column.name, 0) == 3


def _refers_back(key: Key, table: TableDraft, column: ColumnDraft) -> bool:
    """Whether the key that a primary key may refer to refers to it already: of two tables with one
    key (users and profiles) only one is the other's parent."""
    return table.primary_key == (column.name,) and any(
        entry.columns == (key.name,)
        and entry.table == table.name
        and entry.references == (column.name,)
        for entry in key.table.every_key()
    )


def _infer_composites(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Keys over the columns that have the names of another table's primary key, the shorter first.

    If several tables have one key, a row refers to one of them: to the one that most tables refer
    to, and these tables to each other in that order.
    """
    groups: dict[frozenset[str], list[TableDraft]] = {}
    for table in tables:
        if len(table.primary_key) > 1:
            names = frozenset(part.casefold() for part in table.primary_key)
            groups.setdefault(names, []).append(table)
    for _, parents in sorted(groups.items(), key=lambda group: len(group[0])):
        found = [
            (parent, _composites(connection, tables, parent))
            for parent in parents
            if not _is_junction(parent)
        ]
        found.sort(key=lambda entry: -len(entry[1]))
        for table in tables:
            for parent, children in found:
                if parent is table:
                    break
                if table.name in children:
                    _add_composite(table, parent, *children[table.name])
                    break


def _is_junction(table: TableDraft) -> bool:
    """Whether different parts of a key refer to different tables, as those of a castaway of a
    season. Rows that share both parts meet in these tables; hardly anything refers to the pair."""
    parts = [set(key.columns) for key in table.every_key()]
    parts = [columns for columns in parts if columns <= set(table.primary_key)]
    return any(not (one <= other or other <= one) for one, other in combinations(parts, 2))


def _composites(
    connection: Connection, tables: Sequence[TableDraft], parent: TableDraft
) -> dict[str, tuple[tuple[str, ...], Overlap]]:
    """By table, the columns that may refer to a key of several columns, and their overlap."""
    found = {}
    for table in tables:
        folded = {column.name.casefold(): column.name for column in table.columns}
        names = [folded.get(part.casefold()) for part in parent.primary_key]
        columns = tuple(name for name in names if name is not None)
        if table is parent or len(columns) < len(names) or _are_linked(table, parent):
            continue
        overlap = measure_overlap(connection, table, columns, parent, parent.primary_key)
        if overlap.share >= NAMED_SHARE:
            found[table.name] = columns, overlap
    return found


def _are_linked(table: TableDraft, parent: TableDraft) -> bool:
    """Whether a key refers to the parent already, or the parent's own to the table."""
    own = set(parent.primary_key)
    return any(key.table == parent.name for key in table.every_key()) or any(
        key.table == table.name and set(key.columns) == own for key in parent.every_key()
    )


def _add_composite(
    table: TableDraft, parent: TableDraft, columns: tuple[str, ...], overlap: Overlap
) -> None:
    if len(table.primary_key) > 1 and set(table.primary_key) < set(columns):
        # Fewer columns happen to be unique, but this is the key that the two tables share.
        table.checks = [check for check in table.checks if not check.startswith("primary key")]
        _take_composite(table, columns, 0)
    table.foreign_keys.append(ForeignKey(columns, parent.name, parent.primary_key))
    text = overlap.text(f"{parent.name} ({', '.join(parent.primary_key)})")
    for name in columns:
        table.column(name).reason = f"by name: {text}"
    table.check(f"foreign key ({', '.join(columns)}) is inferred by name: {text}", Cost.LINKS)
