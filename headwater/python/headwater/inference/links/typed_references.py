"""Keys whose table another column of the row names: commentable_id with commentable_type.

Rails, Laravel and Django write so, and people do; Django with the number of a row that has the
type's name (content_type_id). A foreign key from all rows would lead those of
another type to rows that they do not mean. So each table that the type names gets a column of its
own with the keys of these rows (`expression`), and the foreign key stands there. The names and the
values must agree: most values of the type name tables, and the ids of their rows are keys of these.
If the id names a table that has its values, and no type names that (order_id with order_type), it
refers to that table, with a check that names the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.facts.names import ID_WORDS, is_id_name, names_table, singular, stems_of, words_of
from headwater.inference.computed import add_computed, name_sql
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import key_text, measure_overlap
from headwater.inference.links.references import NAMED_SHARE, joins
from headwater.metadata.parts import ColumnRef
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal
from headwater.sources.value_sql import is_number_type

TYPE_WORDS = {"type", "class", "kind", "table", "model", "entity", "name", "typ", "tipo"}
# Words of ids that name no table by themselves; the type may have any name: Django's object_id.
ANY_WORDS = {
    "object", "record", "item", "entity", "target", "subject", "resource", "ref", "source",
    "foreign",
}  # fmt: skip
ENDS = ("type", "typ", "id")  # of words that are written together
TYPES_MAX = 20  # distinct values of a type
TABLES_MAX = 500  # rows of a table of the names of types
NAMED = 0.5  # of the rows have a type that names a table
FOUND = 0.9  # of the ids of a type's rows, in the table that it names
SEPARATOR = re.compile(r"[\\/:.#]+")  # App\Models\Post, blog.post


@dataclass(frozen=True)
class Meant:
    """A type of a column's rows, the table that it names, and how many of their ids are there."""

    value: str  # as the column has it
    shown: str  # in SQL
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
            if meant and _names_another(connection, tables, table, column, meant):
                _say_types(kind, column, meant)
            elif meant:
                _take(connection, table, kind, column, meant)


def _pairs(
    tables: Sequence[TableDraft], table: TableDraft
) -> Iterator[tuple[ColumnDraft, ColumnDraft]]:
    """Columns that may hold a type, and keys that it may be of."""
    # Declared keys stay, and so do those of several columns, which may have the type.
    taken = {name for columns, _, _ in table.source.foreign_keys for name in columns}
    taken |= {name for key in table.foreign_keys for name in key.columns}
    for kind in table.columns:
        words, facts = _words_apart(kind.name), kind.facts
        is_text = table.kind(kind.name).startswith(("VARCHAR", "ENUM"))
        is_kind = is_text or (is_id_name(kind.name) and kind.name not in table.primary_key)
        if not (is_kind and 0 < facts.distinct_count <= TYPES_MAX and TYPE_WORDS & set(words)):
            continue
        own = [word for word in words if word not in TYPE_WORDS | ID_WORDS]
        for column in table.columns:
            parts = _words_apart(column.name)
            if column is kind or not ID_WORDS & set(parts) or column.name in taken:
                continue
            if (column.name,) == table.primary_key or not joins(table, column):
                continue
            rest = [word for word in parts if word not in ID_WORDS]
            names_none = not any(names_table(column.name, other.name) for other in tables)
            if (own and rest == own) or (names_none and ANY_WORDS & set(rest)):
                yield kind, column


def _words_apart(name: str) -> list[str]:
    """The words of a name, also of ownertype, Objekttyp and ownerid."""
    found = []
    for word in words_of(name):
        end = next((end for end in ENDS if word.endswith(end) and len(word) > len(end) + 2), "")
        found += [word.removesuffix(end), end] if end else [word]
    return found


def _meant(
    connection: Connection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    kind: ColumnDraft,
    column: ColumnDraft,
) -> list[Meant]:
    """The tables that the types name; none if few rows have one, or if their ids are not there."""
    value, key = key_text(table, kind.name), key_text(table, column.name)
    rows = f"(SELECT {value} AS v, {key} AS k FROM raw.t{table.source.index})"
    names = _names_of_types(connection, tables, kind)
    types = connection.execute(
        f"SELECT v, count(*) FROM {rows} WHERE v IS NOT NULL AND k IS NOT NULL "
        "GROUP BY v ORDER BY v"
    ).fetchall()
    found, named = [], 0
    for text, count in types:
        parent = _table_of(tables, names.get(text, text))
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
        shown = text if is_number_type(table.kind(kind.name)) else literal(text)
        found.append(Meant(text, shown, parent, inside, count))
    total = sum(count for _, count in types)
    several = len({entry.table.name for entry in found}) > 1 or len(types) > 1
    return found if several and named >= NAMED * total else []


def _names_of_types(
    connection: Connection, tables: Sequence[TableDraft], kind: ColumnDraft
) -> dict[str, str]:
    """The names of types that are the keys of a small table: content_type_id 7 may be product."""
    words = [word for word in stems_of(kind.name) if word not in ID_WORDS]
    for table in tables if is_id_name(kind.name) else ():
        is_small = 0 < table.source.row_count <= TABLES_MAX and not table.values_of
        if not is_small or stems_of(table.name)[-len(words) :] != words:
            continue
        for column in table.columns:
            if len(table.primary_key) != 1 or not table.kind(column.name).startswith("VARCHAR"):
                continue
            found = connection.execute(
                f"SELECT {key_text(table, table.primary_key[0])} AS k, "
                f"{table.value(column.name)} AS v FROM raw.t{table.source.index} "
                "WHERE k IS NOT NULL AND v IS NOT NULL"
            ).fetchall()
            if any(_table_of(tables, text) is not None for _, text in found):
                return dict(found)
    return {}


def _table_of(tables: Sequence[TableDraft], text: str) -> TableDraft | None:
    """The table with one key that a type names: post, Post, App\\Models\\Post, or sale.order that
    of sale_order."""
    keyed = [table for table in tables if len(table.primary_key) == 1 and not table.values_of]
    words = stems_of(SEPARATOR.split(text.strip())[-1])
    for exact in (stems_of(text), words):
        found = [table for table in keyed if exact and stems_of(table.name) == exact]
        if found:
            return found[0] if len(found) == 1 else None
    found = [table for table in keyed if words and stems_of(table.name)[-len(words) :] == words]
    return found[0] if len(found) == 1 else None


def _names_another(
    connection: Connection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    column: ColumnDraft,
    meant: Sequence[Meant],
) -> bool:
    """Whether a column names and refers to a table that has its values, and that no type names."""
    key = column.foreign_key
    if key is None or names_table(column.name, key.table) == 0:
        return False
    parent = next(other for other in tables if other.name == key.table)
    if any(entry.table is parent for entry in meant):
        return False
    overlap = measure_overlap(connection, table, (column.name,), parent, (key.column,))
    return overlap.share >= NAMED_SHARE


def _say_types(kind: ColumnDraft, column: ColumnDraft, meant: Sequence[Meant]) -> None:
    """Report that an id which names its table may be one of the tables that its type names."""
    names = " and ".join(entry.table.name for entry in meant)
    column.check(
        f"its values are keys of {names} too, which {kind.name} names: if the type tells whose key "
        'each is, take out the foreign key and add a column for each type with an "expression", '
        f"such as CASE WHEN {kind.name} = {meant[0].shown} THEN {column.name} END",
        Cost.LINKS,
    )


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
        expression = f"CASE WHEN {names[0]} = {entry.shown} THEN {names[1]} END"
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
