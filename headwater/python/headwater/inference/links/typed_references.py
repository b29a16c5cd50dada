"""Keys whose table another column of the row names: commentable_id with commentable_type.

Rails, Laravel and Django write so, and people do. A foreign key from all rows would lead those of
another type to rows that they do not mean. So each table that the type names gets a column of its
own with the keys of these rows (`expression`), and the foreign key stands there. The names and the
values must agree: most values of the type name tables, and the ids of their rows are keys of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.facts.names import ID_WORDS, names_table, singular, stems_of, words_of
from headwater.inference.computed import add_computed, name_sql
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import key_text
from headwater.inference.links.references import joins
from headwater.metadata.parts import ColumnRef
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal

TYPE_WORDS = {"type", "class", "kind", "table", "model", "entity", "name", "typ", "tipo"}
# Words of ids that name no table by themselves; the type may have any name: Django's object_id.
ANY_WORDS = {"object", "record", "item", "entity", "target", "subject", "resource", "ref", "source"}
TYPES_MAX = 20  # distinct values of a type
NAMED = 0.5  # of the rows have a type that names a table
FOUND = 0.9  # of the ids of a type's rows, in the table that it names
SEPARATOR = re.compile(r"[\\/:.#]+")  # App\Models\Post, blog.post


@dataclass(frozen=True)
class Meant:
    """A type of a column's rows, the table that it names, and how many of their ids are there."""

    value: str
    table: TableDraft
    found: int
    count: int


def draft_typed_references(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Give the rows of each type their own column and foreign key, with a check."""
    for table in tables:
        if table.values_of:
            continue
        for kind, column in list(_pairs(tables, table)):
            meant = _meant(connection, tables, table, kind, column)
            if meant:
                _take(connection, table, kind, column, meant)


def _pairs(
    tables: Sequence[TableDraft], table: TableDraft
) -> Iterator[tuple[ColumnDraft, ColumnDraft]]:
    """Columns that may hold a type, and keys that it may be of."""
    declared = {name for columns, _, _ in table.source.foreign_keys for name in columns}
    for kind in table.columns:
        words, facts = words_of(kind.name), kind.facts
        is_text = table.kind(kind.name).startswith(("VARCHAR", "ENUM"))
        if not (is_text and 0 < facts.distinct_count <= TYPES_MAX and TYPE_WORDS & set(words)):
            continue
        own = [word for word in words if word not in TYPE_WORDS]
        for column in table.columns:
            parts = words_of(column.name)
            if column is kind or not ID_WORDS & set(parts) or column.name in declared:
                continue
            if (column.name,) == table.primary_key or not joins(table, column):
                continue
            rest = [word for word in parts if word not in ID_WORDS]
            names_none = not any(names_table(column.name, other.name) for other in tables)
            if (own and rest == own) or (names_none and ANY_WORDS & set(rest)):
                yield kind, column


def _meant(
    connection: Connection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    kind: ColumnDraft,
    column: ColumnDraft,
) -> list[Meant]:
    """The tables that the types name; none if few rows have one, or if their ids are not there."""
    value, key = table.value(kind.name), key_text(table, column.name)
    rows = f"(SELECT CAST({value} AS VARCHAR) AS v, {key} AS k FROM raw.t{table.source.index})"
    types = connection.execute(
        f"SELECT v, count(*) FROM {rows} WHERE v IS NOT NULL AND k IS NOT NULL "
        "GROUP BY v ORDER BY v"
    ).fetchall()
    found, named = [], 0
    for text, count in types:
        parent = _table_of(tables, text)
        if parent is None:
            continue
        name = parent.primary_key[0]
        present = f"SELECT {key_text(parent, name)} FROM raw.t{parent.source.index}"
        (inside,) = one_row(
            connection,
            f"SELECT count(*) FROM {rows} WHERE v = {literal(text)} AND k IN "
            f"(SELECT * FROM ({present}) AS p(k) WHERE k IS NOT NULL)",
        )
        if inside < FOUND * count:
            return []
        named += count
        found.append(Meant(text, parent, inside, count))
    total = sum(count for _, count in types)
    several = len({entry.table.name for entry in found}) > 1 or len(types) > 1
    return found if several and named >= NAMED * total else []


def _table_of(tables: Sequence[TableDraft], text: str) -> TableDraft | None:
    """The table with one key that a type names: post, Post, App\\Models\\Post."""
    words = stems_of(SEPARATOR.split(text.strip())[-1])
    found = [
        table
        for table in tables
        if words and len(table.primary_key) == 1 and not table.values_of
        and stems_of(table.name)[-len(words) :] == words
    ]  # fmt: skip
    exact = [table for table in found if stems_of(table.name) == words]
    found = exact or found
    return found[0] if len(found) == 1 else None


def _take(
    connection: Connection,
    table: TableDraft,
    kind: ColumnDraft,
    column: ColumnDraft,
    meant: Sequence[Meant],
) -> None:
    made = []
    for entry in meant:
        names = [name_sql(connection, part.name) for part in (kind, column)]
        expression = f"CASE WHEN {names[0]} = {literal(entry.value)} THEN {names[1]} END"
        added = add_computed(
            connection, table, f"{column.name}_{singular(entry.table.name)}", expression
        )
        added.foreign_key = ColumnRef(entry.table.name, entry.table.primary_key[0])
        added.reason = (
            f"{entry.found:,} of {entry.count:,} rows of {kind.name} {entry.value!r} name one of "
            f"{entry.table.name}"
        )
        made.append(added)
    column.foreign_key = None
    column.read_as = " and ".join(added.name for added in made)
    column.checks = [check for check in column.checks if "foreign key to" not in check]
    kind.is_of_key = True
    listed = ", ".join(f"{e.table.name} for {e.value!r} ({e.count:,} rows)" for e in meant)
    others = column.facts.value_count - sum(entry.count for entry in meant)
    rest = f"; {others:,} rows of other types have no link" if others else ""
    column.check(
        f"proposal: {kind.name} names the table of {column.name}, {listed}: each has a column of "
        f"these rows with a foreign key ({column.read_as}){rest}",
        Cost.LINKS,
    )
