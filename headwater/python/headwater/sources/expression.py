"""Columns that the source has not, computed from others of their row.

`"expression": "make_date(CAST(year AS INTEGER), 12, 31)"` gives a table a column with the value of
that SQL, in DuckDB's dialect. It names columns of the source, or such that are taken from a parent,
and sees their values without the spellings of NULL. What it cannot be computed of is NULL.

The same row gives the same value whatever else the table holds: a query, an aggregate, a window or
a function of the clock is refused. So a computed column shows no more than the row itself does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headwater.errors import SchemaError, nearest
from headwater.sources.database import Connection, one_row, unrepeatable_functions
from headwater.sources.source import SourceTable, brief, quote

# The parts of DuckDB's tree of an expression that compute from one row.
ROW_CLASSES = {
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT",
    "FUNCTION", "LAMBDA", "OPERATOR",
}  # fmt: skip


def with_expression(
    connection: Connection,
    table: SourceTable,
    name: str,
    expression: str,
    value: Callable[[str], str],
    relation: str,
) -> str:
    """SQL of the rows of a relation with the columns of raw.t<i>, and one more, the last.

    value: gives the SQL of a column's value by its name. SchemaError for an expression that is not
    one of the row."""
    import duckdb

    where = f"'expression' of column '{table.name}.{name}'"
    used = columns_used(connection, table, name, expression)
    raw = "raw"
    while raw in expression.casefold():
        raw += "_"
    slots = range(len(table.columns))
    inner = [f"c{slot} AS {raw}{slot}" for slot in slots]
    inner += [f"{value(column)} AS {quote(column)}" for column in used]
    outer = [f"{raw}{slot} AS c{slot}" for slot in slots]
    select = (
        f"SELECT {', '.join(outer)}, TRY({expression}\n) AS c{len(table.columns)} FROM "
        f"(SELECT {', '.join(inner)} FROM {relation})"
    )
    try:
        connection.execute(f"DESCRIBE {select}")
    except duckdb.Error as error:
        raise SchemaError(f"{where}: {brief(error)}") from error
    return select


def columns_used(
    connection: Connection, table: SourceTable, name: str, expression: str, more: Sequence[str] = ()
) -> list[str]:
    """The columns of the table (or those of `more`) that the expression of a column names;
    SchemaError if it is not of one row."""
    where = f"'expression' of column '{table.name}.{name}'"
    query = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
    tree = json.loads(one_row(connection, query, [f"SELECT ({expression}\n)"])[0])
    if tree["error"]:
        raise SchemaError(f"{where} is not SQL: {tree['error_message']}")
    node = tree["statements"][0]["node"]
    if (
        len(tree["statements"]) != 1
        or node["type"] != "SELECT_NODE"
        or node["from_table"]["type"] != "EMPTY"
        or len(node["select_list"]) != 1
    ):
        raise SchemaError(f"{where} must be one expression of columns of its row")
    unrepeatable = unrepeatable_functions(connection)
    folded = {column.casefold(): column for column in (*table.usable_names(), *more)}
    used, own = [], set()
    for part in _parts(node["select_list"][0]):
        if part["class"] not in ROW_CLASSES:
            raise SchemaError(
                f"{where} has a part that is not computed from its row alone "
                f"({part['class'].lower()}); a task's query may have it"
            )
        is_clock = part["class"] == "FUNCTION" and (
            part["function_name"].lower() in unrepeatable
            or (part["function_name"].lower() == "age" and len(part["children"]) == 1)
        )
        if is_clock:
            raise SchemaError(
                f"{where} uses {part['function_name']}(), which gives another answer tomorrow"
            )
        if part["class"] == "LAMBDA":
            own |= {name.casefold() for name in _names(part["lhs"])}
        if part["class"] == "COLUMN_REF":
            used.append(".".join(part["column_names"]))
    found = dict.fromkeys(folded[name.casefold()] for name in used if name.casefold() in folded)
    for name in used:
        if name.casefold() not in folded and name.casefold() not in own:
            raise SchemaError(
                f"{where} names column '{name}', which the source does not have"
                f"{nearest(name, table.usable_names())}"
            )
    return list(found)


def _names(part: Any) -> Iterator[str]:
    """The names in a part of a tree."""
    for found in _parts(part):
        if found["class"] == "COLUMN_REF":
            yield ".".join(found["column_names"])


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    """The expressions in a tree, the outer ones first."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str):
            yield tree
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else ():
        yield from _parts(part)
