"""Columns that are computed from others of their row: those that a draft adds (`expression` in
metadata.json), and numbers of the source that are one time minus another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.facts.measure import column_facts
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.types import draft_type
from headwater.sources.database import Connection, one_row
from headwater.sources.expression import with_expression
from headwater.sources.source import SourceColumn, quote

VIEWS_FROM = 1_000_000  # the number of a view is that of its table, and so many for each column
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPAN_ROWS_MAX = 20_000  # in which numbers are compared with times
SPAN_SHARE = 0.97  # of them must be equal, also of those with another value than the usual one
SPAN_ROWS_MIN = 20
SPAN_FIRST = 200
SPAN_UNUSUAL_MIN = 10
SPAN_DECIMALS = 6
DAY_US = 86_400_000_000
UNITS_US = {
    "days": DAY_US, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000,
    "milliseconds": 1_000,
}  # fmt: skip

Array = NDArray[Any]


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


def span_of(first: Array, last: Array, numbers: Array) -> str | None:
    """In what unit, and in how many rows, numbers are one time minus another, rounded as they are;
    None if they are not. In rows with the usual number it may be so by chance.

    Args:
        first, last: float64 [n], microseconds; NaN: none.
        numbers: float64 [n].
    """
    has = np.isfinite(first) & np.isfinite(last) & np.isfinite(numbers)
    first, last, numbers = first[has], last[has], numbers[has]
    if numbers.size < SPAN_ROWS_MIN:
        return None
    few = slice(SPAN_FIRST)  # rows, by which nearly all numbers are ruled out
    near = [
        np.mean(np.abs(numbers[few] - span) <= 1 + 1e-9 * np.abs(span)) >= SPAN_SHARE / 2
        for span in _spans(first[few], last[few]).values()
    ]
    if not any(near):
        return None
    distinct, counts = np.unique(numbers, return_counts=True)
    unusual = numbers != distinct[counts.argmax()]
    if unusual.sum() < SPAN_UNUSUAL_MIN:
        return None
    scale = next(
        scale
        for scale in 10.0 ** np.arange(SPAN_DECIMALS + 1)
        if np.allclose(distinct * scale, np.rint(distinct * scale), 1e-9, 1e-6)
        or scale == 10.0**SPAN_DECIMALS
    )
    for name, span in _spans(first, last).items():
        above = (numbers - span) * scale
        slack = 1e-6 + 1e-9 * np.abs(span * scale)
        rounded = (
            (-1 + slack < above) & (above <= slack),  # down
            np.abs(above) <= 0.5 + slack,
            (-slack <= above) & (above < 1 - slack),  # up
        )
        for is_equal in rounded:
            if min(is_equal.mean(), is_equal[unusual].mean()) >= SPAN_SHARE:
                return f"{name}, in {is_equal.sum():,} of {numbers.size:,} rows"
    return None


def _spans(first: Array, last: Array) -> dict[str, Array]:
    """One time minus another in each unit."""
    spans = {name: (last - first) / unit for name, unit in UNITS_US.items()}
    days = np.floor(last / DAY_US) - np.floor(first / DAY_US)
    return spans | {"days of the calendar": days, "days with the first one": days + 1}
