"""What a source does not have and the metadata make of it: taken columns and tables of values.

`"taken_from": "orders.ordered_at"` gives a table a column of the row that its foreign key to
`orders` names: so an order's lines get the order's time, without which they would be shown at any
time. A row without a parent has NULL there; a parent's NULL spellings are taken out.

`"values_of": ["results.home_team", "results.away_team"]` makes a table of one column, the distinct
values of those: so teams that are only names in other tables become rows, by whose key the walk
goes from match to match.

Both happen between reading and converting, in `raw.*`; from there on nothing tells them from data
of the source. Each step is one transaction and sees whether it was taken before, so that a build
that goes on where another was killed may call `derive` again.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.metadata.parts import ColumnRef, Table
from headwater.metadata.schema import Schema
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.source import SourceColumn, SourceData, SourceTable
from headwater.sources.value_sql import INTEGER_TYPES, canonical_text, without_nulls


def derive(connection: Connection, data: SourceData, schema: Schema) -> SourceData:
    """The source with every column and table that the schema derives from it."""
    tables = {table.name: table for table in data.tables}
    for table in schema.tables:
        if table.values_of:
            tables[table.name] = _value_table(connection, schema, tables, table)
    waiting = [
        (table, column.name)
        for table in schema.tables
        for column in table.columns
        if column.taken_from is not None
    ]
    while waiting:
        table, name = waiting.pop(0)
        wanted = table.column(name).taken_from
        assert wanted is not None
        if wanted.column in tables[wanted.table].column_names():
            tables[table.name] = _take(connection, schema, tables, table, name)
        else:  # itself taken, from further up; the check of the metadata saw that it ends
            waiting.append((table, name))
    return replace(data, tables=tuple(tables.values()))


def _value_table(
    connection: Connection, schema: Schema, tables: dict[str, SourceTable], table: Table
) -> SourceTable:
    types = {_column(tables, reference).type for reference in table.values_of}
    integral = types <= set(INTEGER_TYPES)
    selects = []
    for reference in table.values_of:
        value = _value(schema, tables, reference, "")
        sql = f"CAST({value} AS BIGINT)" if integral else value
        if not integral:
            sql = canonical_text(value, _column(tables, reference).type)
        selects.append(f"SELECT {sql} AS c0 FROM raw.t{tables[reference.table].index}")
    index = len(tables)
    column = SourceColumn(table.columns[0].name, "BIGINT" if integral else "VARCHAR")
    if all(_raw_columns(connection, tables[name]) for name in {r.table for r in table.values_of}):
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS raw.t{index} AS SELECT DISTINCT c0 FROM "
            f"({' UNION ALL '.join(selects)}) WHERE c0 IS NOT NULL ORDER BY c0"
        )
    made = SourceTable(table.name, index, 0, (column,))
    if not _raw_columns(connection, made):
        return made  # converted already
    row_count = count_rows(connection, f"SELECT count(*) FROM raw.t{index}")
    return replace(made, row_count=row_count)


def _take(
    connection: Connection, schema: Schema, tables: dict[str, SourceTable], table: Table, name: str
) -> SourceTable:
    """Add a column of a parent's row; of several rows with that key, the largest value."""
    wanted = table.column(name).taken_from
    assert wanted is not None
    child, parent = tables[table.name], tables[wanted.table]
    column = replace(_column(tables, wanted), name=name)
    # A view of files becomes a table, of the journal's copy of its facts too.
    made = replace(child, columns=(*child.columns, column), is_view=False)
    if _raw_columns(connection, child) != len(child.columns):
        return made  # taken already, or converted
    key = next(key for key in table.every_key() if key.table == wanted.table)
    parts = [
        _text(schema, tables, ColumnRef(wanted.table, reference), "p.")
        for reference in key.references
    ]
    groups = ", ".join(f"{part} AS k{j}" for j, part in enumerate(parts))
    equal = " AND ".join(
        f"{_text(schema, tables, ColumnRef(table.name, column), 'c.')} = k{j}"
        for j, column in enumerate(key.columns)
    )
    value = _value(schema, tables, wanted, "p.")
    name = f"t{child.index}"
    taken = f"{name}_taken{len(child.columns)}"
    connection.begin()
    connection.execute(
        f"CREATE TABLE raw.{taken} AS SELECT c.* EXCLUDE (hw_row), v AS c{len(child.columns)} "
        f"FROM (SELECT *, row_number() OVER () AS hw_row FROM raw.{name}) c "
        f"LEFT JOIN (SELECT {groups}, max({value}) AS v FROM raw.t{parent.index} p GROUP BY ALL) "
        f"ON {equal} ORDER BY hw_row"
    )
    connection.execute(f"DROP {'VIEW' if child.is_view else 'TABLE'} raw.{name}")
    connection.execute(f"ALTER TABLE raw.{taken} RENAME TO {name}")
    connection.commit()
    return made


def _raw_columns(connection: Connection, table: SourceTable) -> int:
    """Columns of a table's copy, 0 if it is no longer there."""
    row = one_row(
        connection,
        "SELECT count(*) FROM duckdb_columns() WHERE schema_name = 'raw' AND table_name = ?",
        [f"t{table.index}"],
    )
    return int(row[0])


def _column(tables: dict[str, SourceTable], reference: ColumnRef) -> SourceColumn:
    return tables[reference.table].columns[_slot(tables, reference)]


def _slot(tables: dict[str, SourceTable], reference: ColumnRef) -> int:
    return tables[reference.table].column_names().index(reference.column)


def _value(schema: Schema, tables: dict[str, SourceTable], reference: ColumnRef, alias: str) -> str:
    """SQL: a raw value with the NULL spellings taken out."""
    table = schema.table(reference.table)
    source = _column(tables, reference)
    raw = f"{alias}c{_slot(tables, reference)}"
    return without_nulls(raw, source, schema, table, table.column(reference.column))


def _text(schema: Schema, tables: dict[str, SourceTable], reference: ColumnRef, alias: str) -> str:
    value = f"({_value(schema, tables, reference, alias)})"
    return canonical_text(value, _column(tables, reference).type)
