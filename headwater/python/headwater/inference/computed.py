"""Columns that a draft computes from others of their row: `expression` in metadata.json."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from headwater.facts.measure import column_facts
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.types import draft_type
from headwater.sources.database import Connection, one_row
from headwater.sources.expression import with_expression
from headwater.sources.source import SourceColumn, quote

VIEWS_FROM = 1_000_000  # the number of a view is that of its table, and so many for each column
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def name_sql(connection: Connection, name: str) -> str:
    """A column's name in an expression, in quotes if it needs them."""
    query = (
        "SELECT count(*) FROM duckdb_keywords() WHERE keyword_name = ? AND keyword_category <> ?"
    )
    (count,) = one_row(connection, query, [name.lower(), "unreserved"])
    return quote(name) if count or not PLAIN.fullmatch(name) else name


def add_computed(
    connection: Connection, table: TableDraft, name: str, expression: str
) -> ColumnDraft:
    """Add a column to a table, whose rows are then a view of those before: what the source has is
    as it was. A name that the table has gets an underscore."""
    source = table.source
    folded = {other.casefold() for other in source.column_names()}
    while name.casefold() in folded:
        name += "_"
    slot, index = len(source.columns), source.index + VIEWS_FROM
    select = with_expression(
        connection, source, name, expression, table.value, f"raw.t{source.index}"
    )
    connection.execute(f"CREATE OR REPLACE VIEW raw.t{index} AS {select}")
    found = one_row(
        connection,
        "SELECT data_type FROM duckdb_columns() WHERE schema_name = 'raw' AND table_name = ? "
        "AND column_index = ?",
        [f"t{index}", slot + 1],
    )
    columns = (*source.columns, SourceColumn(name, found[0]))
    table.source = replace(source, index=index, columns=columns, is_view=True)
    column = ColumnDraft(name, column_facts(connection, table.source, slot))
    column.expression = expression
    table.columns.append(column)
    draft_type(table, column)
    return column


def drop_computed(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Drop the views of `add_computed`, when the draft is done."""
    for table in tables:
        for index in range(table.source.index, VIEWS_FROM - 1, -VIEWS_FROM):
            connection.execute(f"DROP VIEW IF EXISTS raw.t{index}")
