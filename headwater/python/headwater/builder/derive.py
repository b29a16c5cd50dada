"""What a source does not have and the metadata make of it: columns and tables of values.

`"expression": "last_day(make_date(year, month, 1))"` gives a table a column that is computed from
others of its row (sources/expression.py): so the months of a report become times.

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

from headwater.errors import SchemaError
from headwater.metadata.parts import Column, ColumnRef, Table
from headwater.metadata.schema import Schema
from headwater.sources.database import Connection, count_rows
from headwater.sources.expression import columns_used, with_expression
from headwater.sources.key_values import KeyPart, alike_by_type, key_part, settle_equality
from headwater.sources.source import SourceColumn, SourceData, SourceTable, brief
from headwater.sources.value_sql import INTEGER_TYPES, canonical_text, without_nulls


def derive(connection: Connection, data: SourceData, schema: Schema) -> SourceData:
    """The source with every column and table that the schema derives from it."""
    tables = {table.name: table for table in data.tables}
    for table in schema.tables:
        if table.values_of:
            tables[table.name] = _value_table(connection, schema, tables, table)
    waiting = [
        (table, column) for table in schema.tables for column in table.columns if column.is_derived
    ]
    passed = 0  # since the last that could be made
    while waiting:
        table, column = waiting.pop(0)
        wanted = column.taken_from
        if wanted is None:
            made = _compute(connection, schema, tables, table, column)
        elif wanted.column in tables[wanted.table].column_names():
            made = _take(connection, schema, tables, table, column.name)
        else:
            made = None
        if made is not None:
            tables[table.name], passed = made, 0
            continue
        waiting.append((table, column))  # of a column that is itself derived
        passed += 1
        if passed > len(waiting):
            raise SchemaError(
                f"column '{table.name}.{column.name}' leads back to itself by 'taken_from' and "
                "'expression'"
            )
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
    if all(_raw_types(connection, tables[name]) for name in {r.table for r in table.values_of}):
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS raw.t{index} AS SELECT DISTINCT c0 FROM "
            f"({' UNION ALL '.join(selects)}) WHERE c0 IS NOT NULL ORDER BY c0"
        )
    made = SourceTable(table.name, index, 0, (column,))
    if not _raw_types(connection, made):
        return made  # converted already
    row_count = count_rows(connection, f"SELECT count(*) FROM raw.t{index}")
    return replace(made, row_count=row_count)


def _compute(
    connection: Connection,
    schema: Schema,
    tables: dict[str, SourceTable],
    table: Table,
    column: Column,
) -> SourceTable | None:
    """Add a column that is computed from others of its row; None if one is still to be taken."""
    import duckdb

    child = tables[table.name]
    assert column.expression is not None
    taken = [other.name for other in table.columns if other.taken_from is not None]
    used = columns_used(connection, child, column.name, column.expression, taken)
    if not set(used) <= set(child.column_names()):
        return None
    if len(_raw_types(connection, child)) == len(child.columns):
        select = with_expression(
            connection,
            child,
            column.name,
            column.expression,
            lambda name: _value(schema, tables, ColumnRef(table.name, name), ""),
            f"raw.t{child.index}",
        )
        try:
            _replace_raw(connection, child, f"computed{len(child.columns)}", select)
        except duckdb.OutOfMemoryException:
            raise  # the build gives advice
        except duckdb.Error as error:
            raise SchemaError(
                f"'expression' of column '{table.name}.{column.name}': {brief(error)}"
            ) from error
    types = _raw_types(connection, child) or ["VARCHAR"]  # converted already: nothing reads it
    found = SourceColumn(column.name, types[min(len(child.columns), len(types) - 1)])
    return replace(child, columns=(*child.columns, found), is_view=False)


def _take(
    connection: Connection, schema: Schema, tables: dict[str, SourceTable], table: Table, name: str
) -> SourceTable:
    """Add a column of a parent's row; of several rows with that key, the largest value."""
    wanted = table.column(name).taken_from
    assert wanted is not None
    child, parent = tables[table.name], tables[wanted.table]
    types = _raw_types(connection, child)  # of its own copy, if it has the column already
    taken = types[len(child.columns)] if len(types) > len(child.columns) else None
    column = replace(_column(tables, wanted), name=name)
    if taken is not None:
        column = replace(column, type=taken)
    # A view of files becomes a table, of the journal's copy of its facts too.
    made = replace(child, columns=(*child.columns, column), is_view=False)
    if len(types) != len(child.columns):
        return made  # taken already, or converted
    key = next(key for key in table.every_key() if key.table == wanted.table)
    own = [_part(connection, schema, tables, ColumnRef(table.name, c)) for c in key.columns]
    refs = [ColumnRef(wanted.table, reference) for reference in key.references]
    other = [_part(connection, schema, tables, reference) for reference in refs]
    alike = settle_equality(connection, own, other).alike
    groups = ", ".join(f"{p.text('p.', alike[j])} AS k{j}" for j, p in enumerate(other))
    equal = " AND ".join(f"{c.text('c.', alike[j])} = k{j}" for j, c in enumerate(own))
    value = _value(schema, tables, wanted, "p.")
    select = (
        f"SELECT c.* EXCLUDE (hw_row), v AS c{len(child.columns)} "
        f"FROM (SELECT *, row_number() OVER () AS hw_row FROM raw.t{child.index}) c "
        f"LEFT JOIN (SELECT {groups}, max({value}) AS v FROM raw.t{parent.index} p GROUP BY ALL) "
        f"ON {equal} ORDER BY hw_row"
    )
    _replace_raw(connection, child, f"taken{len(child.columns)}", select)
    return made


def _replace_raw(connection: Connection, table: SourceTable, word: str, select: str) -> None:
    """Make the result of a query the table's copy, in one transaction."""
    name = f"t{table.index}"
    connection.begin()
    connection.execute(f"CREATE TABLE raw.{name}_{word} AS {select}")
    connection.execute(f"DROP {'VIEW' if table.is_view else 'TABLE'} raw.{name}")
    connection.execute(f"ALTER TABLE raw.{name}_{word} RENAME TO {name}")
    connection.commit()


def _raw_types(connection: Connection, table: SourceTable) -> list[str]:
    """Types of the columns of a table's copy, none if it is no longer there."""
    rows = connection.execute(
        "SELECT data_type FROM duckdb_columns() WHERE schema_name = 'raw' AND table_name = ? "
        "ORDER BY column_index",
        [f"t{table.index}"],
    ).fetchall()
    return [row[0] for row in rows]


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


def _part(
    connection: Connection, schema: Schema, tables: dict[str, SourceTable], reference: ColumnRef
) -> KeyPart:
    """A column as a part of a key."""
    source, relation = _column(tables, reference), f"raw.t{tables[reference.table].index}"

    def value(alias: str) -> str:
        return f"({_value(schema, tables, reference, alias)})"

    return key_part(connection, relation, value, source.type, alike_by_type(source))
