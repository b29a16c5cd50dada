"""Changes that a person may want though nothing is wrong: columns to leave out, tables to add.

Texts that are only the names of rows: almost every row has its own, and others refer to it.

Such a name is a key by another name. Without an embedder that knows what names mean, a model can
only learn by heart what the rows of each did, which is no use for the next ones: on rel-f1 leaving
them out was the largest gain of AUROC of all settings (docs/notebook/rel-f1.md). `init` says so and
leaves them in, as a name may also say what a thing is. Texts with digits are codes, times and
amounts as often as names: of these it says nothing.

Columns of one table that name the same things, of which no table lists them.

A match has a home and an away team, a flight two airports: where those are only names, a row leads
to no other row, and a context has no history. A table of their values (`values_of`) connects them;
`init` says so and leaves it to the reader, as values that look alike need not be things.

Cells that hold several keys: 3,17,22 or 3 17 22 or ["3", "17"]. A store has no lists; a view of
pairs has rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headwater.facts.names import stems_of
from headwater.inference.computed import name_sql
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import key_text, measure_overlap
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal

NAMES_MIN = 50
NAMES_UNIQUE = 0.9  # distinct values of all
DIGITS_MAX = 0.5  # share of texts with a digit
LENGTH_MAX = 32.0  # characters in the mean; longer texts say more than a name
CHECK = (
    "almost every row has its own: if it is only what the row is called, set stype ignored, or a"
    " model learns by heart what each did"
)
VALUES_MIN = 20  # distinct
REPEATS_MIN = 5  # rows per value
SHARED = 0.7  # of the values of both
# Keys in one cell: 3,17,22 or ["a", "b"] or {3|17}, none: [], or 3 17 22 with a digit in each, as
# texts have blanks too.
PART = "[\\w.-]+"
DIGITS = r"[\w.-]*\d[\w.-]*"
PARTS_TEXT = (
    rf"""[\[{{(]? *["']?{PART}["']?( *[,;|] *["']?{PART}["']?)* *[\])}}]?"""
    rf"""|[\[{{(] *[\])}}]| *{DIGITS}( +{DIGITS})* *"""
)
SEVERAL_TEXT = r"^[\[{(]|[,;|]|[^ ] +[^ ]"  # brackets may hold one
LIST_ROWS = 1_000  # looked at
LISTS = 0.95  # of the cells
SEVERAL = 0.2  # of the cells have more than one part, or brackets
PARTS_MIN = 10  # distinct ones, if the column does not name their table
PARTS_FOUND = 0.9  # of them are keys


def suggest_names_left_out(tables: Sequence[TableDraft]) -> None:
    """Say of the tables that others refer to which columns are only names of their rows."""
    keys = [key for table in tables for key in table.every_key()]
    referred = {key.table for key in keys}
    references = {(key.table, name) for key in keys for name in key.references}
    for table in tables:
        if table.name in referred:
            for column in table.columns:
                if _is_name(column) and (table.name, column.name) not in references:
                    column.check(CHECK, Cost.HINT)


def _is_name(column: ColumnDraft) -> bool:
    facts = column.facts
    return (
        column.stype == "text"
        and column.foreign_key is None
        and facts.value_count >= NAMES_MIN
        and facts.distinct_count >= NAMES_UNIQUE * facts.value_count
        and facts.digit_count <= DIGITS_MAX * facts.value_count
        and facts.url_count == 0
        and facts.mean_length <= LENGTH_MAX
    )


def suggest_value_tables(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Say of each table which of its columns could share a table of their values."""
    for table in tables:
        groups: list[list[str]] = []
        columns = [column.name for column in table.columns if _names_things(column)]
        for first, second in combinations(columns, 2):
            forth = measure_overlap(connection, table, (first,), table, (second,))
            back = measure_overlap(connection, table, (second,), table, (first,))
            if min(forth.share, back.share) >= SHARED:
                group = next((group for group in groups if first in group), None)
                if group is None:
                    groups.append([first, second])
                elif second not in group:
                    group.append(second)
        for group in groups:
            listed = ", ".join(f'"{table.name}.{name}"' for name in group)
            table.check(
                f"{', '.join(group)} name the same things, and no table lists them: a table with "
                f'"values_of": [{listed}] would connect the rows that share them',
                Cost.HINT,
            )


def _names_things(column: ColumnDraft) -> bool:
    facts = column.facts
    return (
        column.stype in ("categorical", "text")
        and column.foreign_key is None
        and facts.distinct_count >= VALUES_MIN
        and facts.distinct_count * REPEATS_MIN <= facts.value_count
    )


def suggest_pairs(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Report cells that hold several keys of a table, with the view that makes rows of them."""
    for table in tables:
        for column in table.columns:
            is_own = column.taken_from is None and column.foreign_key is None
            is_free = is_own and column.name not in table.primary_key
            parts = _parts_of(connection, table, column) if is_free else None
            if parts is not None:
                _say_pairs(connection, tables, table, column, parts)


def _parts_of(connection: Connection, table: TableDraft, column: ColumnDraft) -> str | None:
    """SQL, with {} for a cell, of the list of its keys; None if cells have no such lists."""
    kind = table.kind(column.name)
    if kind.endswith("[]"):
        return "{}"
    if kind != "VARCHAR" or column.stype not in ("text", "categorical"):
        return None
    rows = f"SELECT {table.value(column.name)} AS v FROM raw.t{table.source.index}"
    count, lists, several = one_row(
        connection,
        f"SELECT count(*), count(*) FILTER (WHERE regexp_full_match(v, {literal(PARTS_TEXT)})), "
        f"count(*) FILTER (WHERE regexp_matches(v, {literal(SEVERAL_TEXT)})) "
        f"FROM (SELECT v FROM ({rows}) WHERE v IS NOT NULL LIMIT {LIST_ROWS})",
    )
    is_list = lists >= LISTS * count and several >= SEVERAL * count
    return f"regexp_extract_all({{}}, {literal(PART)})" if is_list else None


def _say_pairs(
    connection: Connection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    column: ColumnDraft,
    parts: str,
) -> None:
    rows = f"SELECT {table.value(column.name)} AS v FROM raw.t{table.source.index}"
    distinct = f"SELECT DISTINCT CAST(unnest({parts.format('v')}) AS VARCHAR) AS p FROM ({rows})"
    for parent in tables:
        if len(parent.primary_key) != 1 or parent.values_of:
            continue
        (key,) = parent.primary_key
        facts = parent.column(key).facts
        is_named = stems_of(parent.name)[-1] in stems_of(column.name)
        if not is_named and facts.number_count == facts.value_count:
            continue
        count, found = one_row(
            connection,
            f"SELECT count(*), count(*) FILTER (WHERE p IN (SELECT {key_text(parent, key)} "
            f"FROM raw.t{parent.source.index})) FROM ({distinct}) WHERE p <> ''",
        )
        if found >= PARTS_FOUND * count and count >= (2 if is_named else PARTS_MIN):
            own = ", ".join(table.primary_key) or "*"
            shown = parts.format(name_sql(connection, column.name))
            column.check(
                f"holds several keys of {parent.name} in one cell: {found:,} of {count:,} parts "
                f"are in {parent.name}.{key}; to link them, add a table of pairs, by a view such "
                f"as SELECT {own}, unnest({shown}) AS {parent.name}_{key} FROM {table.name}",
                Cost.LINKS,
            )
            return
