"""Keys that are nearly found: values that name a row only if case, blanks or zeros did not count.

The columns of a foreign key decide which spellings it holds equal (sources/key_values.py).
`hold_alike` keeps that for the queries that join by drafted keys, and reports keys whose spellings
stay apart. `say_near_misses` names columns that refer to nothing as they are written, with the edit
that links them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from itertools import combinations

from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import key_parts
from headwater.inference.links.references import Key, ReferenceSearch
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.key_values import (
    WORDS,
    KeyPart,
    count_found,
    count_merged,
    is_text_type,
    left_out_note,
    settle_equality,
)
from headwater.sources.source import Alike, quote

NEAR_SHARE = 0.5  # of the distinct values
VALUES_MIN = 3  # distinct, for a near miss to count
# Differences that a person may not mean, each with the SQL that removes it.
MENDED = {
    Alike.AROUND: "trim({})",
    Alike.NUMBERS: "regexp_replace({}, '^0+([0-9])', '\\1')",
    Alike.CASE: "lower({})",
}


def hold_alike(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Settle the spellings that the columns of drafted keys hold equal. A column of several keys
    has those of all of them."""
    by_name = {table.name: table for table in tables}
    groups: list[tuple[set[tuple[str, str]], frozenset[Alike]]] = []
    for table in tables:
        for key in table.every_key():
            parent = by_name[key.table]
            own = key_parts(connection, table, key.columns)
            other = key_parts(connection, parent, key.references)
            equality = settle_equality(connection, own, other)
            for name, reference, alike in zip(
                key.columns, key.references, equality.alike, strict=True
            ):
                group = {(table.name, name), (parent.name, reference)}
                for joined in [joined for joined in groups if joined[0] & group]:
                    groups.remove(joined)
                    group, alike = group | joined[0], alike | joined[1]
                groups.append((group, alike))
            name = f"{table.name}.{'+'.join(key.columns)}"
            note = left_out_note(connection, name, own, parent.name, other, equality)
            if note:
                table.column(key.columns[0]).check(note, Cost.LINKS)
    for group, alike in groups:
        for table_name, name in group:
            by_name[table_name].alike[name] = alike


def say_near_misses(
    connection: Connection,
    search: ReferenceSearch,
    columns: Sequence[tuple[TableDraft, ColumnDraft]],
) -> None:
    """Name, for each of some columns that refer to nothing, the key that has most of its values
    only if they are written alike."""
    for table, column in columns:
        if not is_text_type(table.kind(column.name)) or column.facts.distinct_count < VALUES_MIN:
            continue
        lines = _near_misses(connection, search, table, column)
        if lines:
            column.check(max(lines)[-1], Cost.LINKS)


def _near_misses(
    connection: Connection, search: ReferenceSearch, table: TableDraft, column: ColumnDraft
) -> list[tuple[int, int, int, int, str]]:
    """The lines on keys that have half of a column's values only if they are written alike, each
    with its rank."""
    lines = []
    count = column.facts.distinct_count
    for candidate in search.candidates(table, column, NEAR_SHARE):
        key = candidate.key
        if not is_text_type(key.table.kind(key.name)):
            continue
        own = key_parts(connection, table, (column.name,))
        other = key_parts(connection, key.table, (key.name,))

        found = functools.partial(_found, connection, own, other)
        plain = found(settle_equality(connection, own, other).alike[0])
        near = found(MENDED)
        if near < NEAR_SHARE * count or near <= plain:
            continue
        sets = (ways for size in (1, 2, 3) for ways in combinations(MENDED, size))
        ways = next(ways for ways in sets if found(ways) >= near)
        merged = count_merged(connection, other, [frozenset(ways)])
        text = f"{plain:,} of {count:,} values are in {key.table.name}.{key.name} as written, and "
        text += f"{near:,} if {' and '.join(WORDS[way] for way in ways)} did not count"
        if merged:
            text += f", but {merged:,} keys of {key.table.name} are then those of other rows too"
        else:
            text += f": {_edit(connection, table, column.name, key, ways)}"
        lines.append((candidate.named, candidate.score, near, -key.number, text))
    return lines


def _found(
    connection: Connection,
    own: Sequence[KeyPart],
    other: Sequence[KeyPart],
    alike: Iterable[Alike],
) -> int:
    return count_found(connection, own, other, [frozenset(alike)])


def _edit(
    connection: Connection, table: TableDraft, name: str, key: Key, ways: Sequence[Alike]
) -> str:
    """The edit that links values that are written in several ways."""
    ours, theirs = (_written_alike(connection, column, ways) for column in (name, key.name))
    return (
        f'to link them, add to "columns" of {key.table.name} "{key.name}_key": {{"stype": '
        f'"identifier", "expression": {theirs}}} and to those of {table.name} "{name}_key": '
        f'{{"stype": "identifier", "expression": {ours}, "foreign_key": '
        f'"{key.table.name}.{key.name}_key"}}'
    )


def _written_alike(connection: Connection, name: str, ways: Sequence[Alike]) -> str:
    """The expression, as JSON has it, of a column's values in one spelling."""
    query = "SELECT count(*) FROM duckdb_keywords() WHERE keyword_name = lower(?)"
    is_plain = name.isidentifier() and not one_row(connection, query, [name])[0]
    text = name if is_plain else quote(name)
    for way in ways:
        text = MENDED[way].format(text)
    return json.dumps(text, ensure_ascii=False)
