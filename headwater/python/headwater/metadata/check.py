"""Reads metadata.json into a Schema and reports every problem at once.

Three passes collect into one list, so that a user sees all faults in one run: the shape of the
document (unknown keys, wrong types), the references inside it (keys, time columns, tasks), and,
when the source is at hand, the columns the source has against those listed. Wrong names come with
the nearest right one. `metadata.schema.json` states the first pass for editors; a test holds the
two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.errors import SchemaError, nearest, raise_together
from headwater.metadata.from_json import Reader, names_files
from headwater.metadata.parts import Column, CsvFormat, Document, ForeignKey, Table, Task


def parse_document(
    document: Any,
    *,
    directory: Path | None = None,
    source: Mapping[str, list[str]] | None = None,
    zones: Sequence[str] = (),
) -> Document:
    """Check a document, and against `source` (table to its columns) and the names of time zones if
    given."""
    problems: list[str] = []
    schema = Reader(problems).schema(document, directory)
    check_schema(schema, source, zones, problems)
    return schema


def check_schema(
    schema: Document,
    source: Mapping[str, list[str]] | None,
    zones: Sequence[str] = (),
    problems: Sequence[str] = (),
) -> None:
    """Check a document, and against a source: every table and column listed, none unknown.
    problems: those found before."""
    found = list(problems)
    check_references(schema, found)
    if source is not None:
        check_source(schema, source, found)
    if schema.timezone is not None and zones and schema.timezone not in zones:
        near = nearest(schema.timezone, zones)
        found.append(f"'timezone' is '{schema.timezone}', which is unknown{near}")
    raise_problems(found)


def csv_formats(document: Any) -> dict[str, CsvFormat]:
    """How the CSV files of each table are written, which must be known before they are read.

    document: as read from JSON, or a Schema. Other faults are reported when the source is known.
    """
    problems: list[str] = []
    if isinstance(document, Document):
        schema = document
    else:
        reader = Reader(problems)
        schema = reader.schema(document, None)
        if reader.csv_is_faulty:
            check_references(schema, problems)
            raise_problems(problems)
    formats = {}
    for table in schema.tables:
        found = table.csv or CsvFormat()
        if not found.header and not found.columns:
            found = replace(found, columns=tuple(table.source_columns()))
        formats[table.name] = found
    return formats


def raise_problems(problems: list[str]) -> None:
    raise_together([SchemaError(problem) for problem in problems], " in the metadata")


def check_references(schema: Document, problems: list[str]) -> None:
    """The second pass: names inside the document that must name something in it."""
    for table in schema.tables:
        _check_table(schema, table, problems)
    if schema.tables and not any(table.graph for table in schema.tables):
        problems.append("every table has 'graph': false, so there is nothing to build")
    for task in schema.tasks:
        _check_task(schema, task, problems)


def _check_table(schema: Document, table: Table, problems: list[str]) -> None:
    where = f"table '{table.name}'"
    names = table.column_names()
    for part in table.primary_key:
        _expect(part, names, f"'primary_key' of {where}", "column", problems)
    if table.temporal_column is not None:
        _check_time(table, table.temporal_column, f"'temporal_column' of {where}", problems)
    elif table.time_resolution is not None or table.null_time != "hidden":
        problems.append(f"{where} has time settings but no 'temporal_column'")
    is_empty = bool(table.columns) and all(c.stype == "ignored" for c in table.columns)
    if table.graph and not table.primary_key and is_empty:
        problems.append(
            f"{where} has no 'primary_key' and only ignored columns; set 'graph': false"
        )
    if table.on_duplicate_key != "error" and not table.primary_key:
        problems.append(f"{where} has 'on_duplicate_key' but no 'primary_key'")
    for column in table.columns:
        if column.known_at.kind == "column":
            assert column.known_at.column is not None
            where_known = f"'known_at' of column '{table.name}.{column.name}'"
            _check_time(table, column.known_at.column, where_known, problems)
        if column.known_at.kind == "offset" and table.temporal_column is None:
            problems.append(
                f"'known_at' of column '{table.name}.{column.name}' is an offset, "
                f"but {where} has no 'temporal_column'"
            )
        if column.taken_from is not None:
            _check_taken(schema, table, column, problems)
        if column.taken_from is not None and column.expression is not None:
            problems.append(
                f"column '{table.name}.{column.name}' has 'taken_from' and 'expression': keep one"
            )
        _check_clock(column, f"column '{table.name}.{column.name}'", problems)
    if table.values_of:
        _check_values(schema, table, problems)
    keys = table.every_key()
    for position, key in enumerate(keys):
        _check_key(schema, table, key, problems)
        if key in keys[:position]:
            problems.append(f"foreign key '{table.name}.{'+'.join(key.columns)}' stands twice")


def _check_clock(column: Column, where: str, problems: list[str]) -> None:
    """How a column writes times: only of times, and only in one way."""
    said = [name for name in ("unit", "epoch", "format") if getattr(column, name) is not None]
    if said and column.stype not in ("timestamp", "ignored"):
        problems.append(f"'{said[0]}' of {where} is of times, but the column is {column.stype}")
    if column.format is not None and len(said) > 1:
        problems.append(f"{where} has 'format' and '{said[0]}': keep one")
    if column.unit == "julian" and column.epoch is not None:
        problems.append(f"{where} has 'epoch', but Julian days have their own: remove it")


def _check_key(schema: Document, table: Table, key: ForeignKey, problems: list[str]) -> None:
    where = f"foreign key '{table.name}.{'+'.join(key.columns)}'"
    known = {column.name: column for column in table.columns}
    for name in key.columns:
        if _expect(name, known, where, "column", problems) and known[name].stype == "ignored":
            problems.append(f"{where} uses column '{name}', which is ignored")
    tables = [other.name for other in schema.tables]
    if _expect(key.table, tables, where, "table", problems):
        for name in key.references:
            _expect(name, schema.table(key.table).column_names(), where, "column", problems)


def _check_taken(schema: Document, table: Table, column: Column, problems: list[str]) -> None:
    """A column that is taken from a parent: by the one foreign key to the parent's table."""
    assert column.taken_from is not None
    where = f"'taken_from' of column '{table.name}.{column.name}'"
    parent, name = column.taken_from.table, column.taken_from.column
    if not _expect(parent, [other.name for other in schema.tables], where, "table", problems):
        return
    if not _expect(name, schema.table(parent).column_names(), where, "column", problems):
        return
    count = sum(key.table == parent for key in table.every_key())
    if count != 1:
        problems.append(f"{where}: '{table.name}' has {count} foreign keys to '{parent}', not one")
    passed = {(table.name, column.name)}
    while column.taken_from is not None:
        place = (column.taken_from.table, column.taken_from.column)
        if place in passed:
            problems.append(f"{where} leads back to a column that is taken from it")
            return
        passed.add(place)
        above = {t.name: t for t in schema.tables}.get(place[0])
        if above is None or place[1] not in above.column_names():
            return  # reported where it stands
        column = above.column(place[1])


def _check_values(schema: Document, table: Table, problems: list[str]) -> None:
    """A table of the values of other tables' columns."""
    where = f"'values_of' of table '{table.name}'"
    tables = {other.name: other for other in schema.tables}
    for reference in table.values_of:
        if _expect(reference.table, tables, where, "table", problems):
            found = tables[reference.table]
            if _expect(reference.column, found.column_names(), where, "column", problems) and (
                found.values_of or found.column(reference.column).is_derived
            ):
                problems.append(f"{where} names '{reference}', which the source does not have")
    own = table.source_columns()
    if len(own) != 1 or table.primary_key != tuple(own):
        problems.append(f"{where}: the table needs one column, which is its 'primary_key'")


def _check_time(table: Table, name: str, where: str, problems: list[str]) -> None:
    if not _expect(name, table.column_names(), where, "column", problems):
        return
    stype = table.column(name).stype
    if stype not in ("timestamp", "ignored"):
        problems.append(f"{where} names column '{name}', which is {stype}, not timestamp")


def _check_task(schema: Document, task: Task, problems: list[str]) -> None:
    where = f"task '{task.name}'"
    if not names_files(task.name):
        problems.append(
            f"{where} has no usable name: folders and files of results are called so, and it must "
            "not begin with a dot nor contain '/' or control characters"
        )
    tables = {table.name: table for table in schema.tables}
    if task.anchor_table and _expect(task.anchor_table, tables, where, "table", problems):
        anchor = tables[task.anchor_table]
        if not anchor.primary_key:
            problems.append(f"{where}: anchor table '{anchor.name}' has no 'primary_key'")
        elif task.anchor_columns(anchor) == anchor.primary_key:
            _check_anchor_key(task, anchor, problems)
        if not anchor.graph:
            problems.append(f"{where}: anchor table '{anchor.name}' has 'graph': false")
    for column in task.hidden_columns:
        if _expect(column.table, tables, f"'hidden_columns' of {where}", "table", problems):
            names = tables[column.table].column_names()
            _expect(column.column, names, f"'hidden_columns' of {where}", "column", problems)
            if not tables[column.table].graph:
                problems.append(
                    f"'hidden_columns' of {where}: table '{column.table}' has 'graph': false"
                )
    if task.seeds and task.split_column is not None:
        problems.append(f"{where} has label tables per split and a 'split_column'")
    if task.sees_everything:
        for name, value in (
            ("observation_time_column", task.observation_time_column),
            ("label_window", task.label_window_us),
            ("label_known_at", task.label_known_at),
            ("allow_future_anchor", task.allow_future_anchor or None),
        ):
            if value is not None:
                problems.append(
                    f"{where} has 'sees_everything' and '{name}': a question that sees everything "
                    "has no time; leave out one of them"
                )
    if task.kind == "cell" and task.anchor_table in tables:
        named = [c for c in tables[task.anchor_table].columns if c.name == task.target_column]
        if not named or named[0].stype != task.target_stype:
            problems.append(
                f"{where} is a cell task, but '{task.anchor_table}' has no {task.target_stype} "
                f"column '{task.target_column}'"
            )


def _check_anchor_key(task: Task, anchor: Table, problems: list[str]) -> None:
    """Columns of a result that stand for the primary key, in its order."""
    where = f"'anchor_key' of task '{task.name}'"
    if task.anchor_key and len(task.anchor_key) != len(anchor.primary_key):
        problems.append(
            f"{where} has {len(task.anchor_key)} columns, the primary key of '{anchor.name}' has "
            f"{len(anchor.primary_key)}"
        )
    for name, part in zip(task.anchor_key, anchor.primary_key, strict=False):
        if anchor.spelling(name) not in (None, part):
            problems.append(
                f"{where} names '{name}', another column of '{anchor.name}', in place of '{part}' "
                "of its primary key"
            )


def check_source(schema: Document, source: Mapping[str, list[str]], problems: list[str]) -> None:
    """The third pass: every table and column named is in the source, every column is listed."""
    for table in schema.tables:
        if table.values_of:
            if table.name in source:
                problems.append(f"the source has a table '{table.name}', which has 'values_of'")
        elif table.name not in source:
            problems.append(f"the source has no table '{table.name}'{nearest(table.name, source)}")
        else:
            _check_columns(table, source[table.name], problems)
    for name in source:
        if all(table.name != name for table in schema.tables):
            problems.append(
                f"'tables' does not list table '{name}' of the source "
                "('graph': false keeps it out of every context)"
            )


def _check_columns(table: Table, names: list[str], problems: list[str]) -> None:
    for name in table.source_columns():
        if name not in names:
            problems.append(
                f"table '{table.name}' of the source has no column '{name}'{nearest(name, names)}"
            )
    listed, folded = table.column_names(), {name.casefold() for name in names}
    for column in table.columns:
        if column.is_derived and column.name.casefold() in folded:
            key = "expression" if column.taken_from is None else "taken_from"
            problems.append(
                f"'{key}' of column '{table.name}.{column.name}': the source has that column"
            )
    missing = [name for name in names if name not in listed]
    if missing:
        quoted = ", ".join(f"'{name}'" for name in missing)
        problems.append(
            f"table '{table.name}' does not list {quoted} of the source "
            "(give each an stype, 'ignored' to skip it)"
        )


def _expect(name: str, names: Iterable[str], where: str, what: str, problems: list[str]) -> bool:
    options = list(names)
    if name in options:
        return True
    problems.append(f"{where} names {what} '{name}', which is not there{nearest(name, options)}")
    return False
