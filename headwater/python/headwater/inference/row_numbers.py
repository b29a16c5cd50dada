"""Columns that only number the rows of their table, as the index of a data frame does.

`to_csv` writes an index without a name as a first column without one; read and written again it is
'Unnamed: 0'. Such a number is the place of a row in a file and not a property of the row, and a
model that sees it learns the order of the file. So it is ignored, unless another table refers to
it, as to a key that lost its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.facts.names import names_table, own_key_score, reference_score, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import measure_overlap
from headwater.inference.links.references import LIKELY_MIN, NAMED_SHARE
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import SourceTable
from headwater.sources.value_sql import to_numerical

# What pandas, R and Arrow call an index that has no name.
UNNAMED = re.compile(r"unnamed: ?[0-9.]+(_level_[0-9]+)?|__index_level_[0-9]+__|\.\.\.1")
# Names of a number of rows that may also be of something else: only 0, 1, 2, ... is one.
NUMBERINGS = {
    "index", "idx", "level", "row", "rownum", "rownumber", "rowname", "rownames", "rn",
}  # fmt: skip
SIGNS = {"#", "№", "X"}  # X: by R
SPREAD_MAX = 20  # the largest number of an index whose frame lost rows, in rows
ROWS_MIN = 3


def mark_row_numbers(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Mark the columns that number rows, with a line for each."""
    for table in tables:
        declared = {*table.source.primary_key, *_declared_keys(tables, table)}
        for slot, column in enumerate(table.columns):
            if column.name in declared or not _is_whole(column, table.source.row_count):
                continue
            is_unnamed = _is_unnamed(table.source, column.name, slot)
            if not is_unnamed and not _is_numbering(column.name, slot):
                continue
            why = _numbering(connection, table, column, is_unnamed=is_unnamed)
            if why and not _is_referred_to(connection, table, column, tables):
                column.is_row_number = True
                column.reason = why
                column.check(f"ignored, as it only numbers the rows: {why}", Cost.HINT)


def _declared_keys(tables: Sequence[TableDraft], table: TableDraft) -> set[str]:
    """The columns of foreign keys that the source declares, on both sides."""
    own = {name for columns, _, _ in table.source.foreign_keys for name in columns}
    return own | {
        name
        for other in tables
        for _, parent, references in other.source.foreign_keys
        if parent == table.name
        for name in references
    }


def _is_whole(column: ColumnDraft, row_count: int) -> bool:
    facts = column.facts
    is_whole = facts.is_full and facts.integer_count == facts.value_count
    return row_count >= ROWS_MIN and is_whole and facts.smallest >= 0


def _is_unnamed(source: SourceTable, name: str, slot: int) -> bool:
    """Whether a column had no name when its data frame was written."""
    csv = source.csv
    is_empty = csv is not None and csv.header and csv.columns[:1] == ("column0",)
    return bool(UNNAMED.fullmatch(name.lower())) or (is_empty and slot == 0 and name == "column0")


def _is_numbering(name: str, slot: int) -> bool:
    word = "".join(words_of(name))
    return word in NUMBERINGS or (slot == 0 and name.strip() in SIGNS)


def _numbering(
    connection: Connection, table: TableDraft, column: ColumnDraft, *, is_unnamed: bool
) -> str:
    """How a column numbers the rows in the order of the source; empty if it does not."""
    value, _ = to_numerical(f"c{table.slot(column.name)}", table.kind(column.name))
    from_zero, from_one, next_ones = one_row(
        connection,
        "SELECT count(*) FILTER (WHERE v = n - 1), count(*) FILTER (WHERE v = n), "
        "count(*) FILTER (WHERE v = p + 1 OR v = 0) "
        "FROM (SELECT v, row_number() OVER () AS n, lag(v) OVER () AS p "
        f"FROM (SELECT {value} AS v FROM raw.t{table.source.index}))",
    )
    facts, count = column.facts, table.source.row_count
    if count in (from_zero, from_one):
        return f"each value is the number of its row, from {0 if from_zero == count else 1} on"
    if not is_unnamed:
        return ""
    if next_ones == count:
        return "its values count the rows, and begin at 0 again as in joined tables"
    if facts.is_unique and facts.largest < SPREAD_MAX * count:
        return "its values are row numbers of a table in another order or with more rows"
    return ""


def _is_referred_to(
    connection: Connection, table: TableDraft, column: ColumnDraft, tables: Sequence[TableDraft]
) -> bool:
    """Whether a column of another table names this one and has its values, and no other column is
    the key that it names."""
    if not column.facts.is_unique or any(
        own_key_score(table.name, other.name, 0) == 3 and other.facts.is_unique
        for other in table.columns
        if other is not column
    ):
        return False
    return any(
        other is not table
        and (names_table(own.name, table.name) or _refers(other, own, table, column))
        and own.facts.distinct_count >= LIKELY_MIN
        and measure_overlap(connection, other, (own.name,), table, (column.name,)).share
        >= NAMED_SHARE
        for other in tables
        for own in other.columns
    )


def _refers(other: TableDraft, own: ColumnDraft, table: TableDraft, column: ColumnDraft) -> bool:
    return reference_score(other.name, own.name, table.name, column.name) >= 2
