"""A first metadata.json from a source: keys, types, times and draft tasks, with reasons.

`infer` gives the schema to be saved, edited and built from; `draft_source` gives the reasons too,
as `headwater init` prints them. The rules are in `inference/`, one file for each concern.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.facts.column_values import count_texts
from headwater.facts.measure import column_facts
from headwater.inference.clocks import read_counts
from headwater.inference.computed import drop_computed
from headwater.inference.computed_times import draft_computed_times, lowest_first, say_years
from headwater.inference.draft import ColumnDraft, Draft, TableDraft
from headwater.inference.known_later import draft_known_at
from headwater.inference.links.keys import draft_foreign_keys, draft_primary_key, settle_formats
from headwater.inference.links.typed_references import draft_typed_references
from headwater.inference.links.value_tables import draft_value_tables, drop_value_tables
from headwater.inference.parent_times import (
    check_late_parents,
    newer_parents,
    say_untimed,
    take_parent_times,
)
from headwater.inference.row_numbers import mark_row_numbers
from headwater.inference.suggestions import (
    suggest_names_left_out,
    suggest_pairs,
    suggest_value_tables,
)
from headwater.inference.task_drafts import draft_tasks
from headwater.inference.times import draft_doubtful_time, draft_times
from headwater.inference.totals import draft_totals, drop_last_times
from headwater.inference.types import check_extremes, draft_type, key_type
from headwater.inference.zones import find_zone, read_local_times
from headwater.metadata.check import csv_formats
from headwater.metadata.review import Check, Cost
from headwater.metadata.schema import Schema
from headwater.metadata.selection import Selection
from headwater.sources.database import Connection, open_database
from headwater.sources.open import load_source
from headwater.sources.source import Source, SourceData, SourceTable
from headwater.sources.value_sql import NAIVE_TYPES, ZONED_TYPE


def infer(
    source: Source,
    *,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> Schema:
    """Tables, keys, types, time columns and draft tasks of a source, to be saved and edited.

    schemas, tables, exclude_tables: patterns such as "a*" that choose what is read."""
    draft = draft_source(source, schemas=schemas, tables=tables, exclude_tables=exclude_tables)
    return draft.schema()


def draft_source(
    source: Source,
    edited: Schema | None = None,
    *,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> Draft:
    """The draft, with reasons; an edited schema says how files and NULLs are written."""
    selection = Selection(tuple(schemas), tuple(tables), tuple(exclude_tables))
    formats = {} if edited is None else csv_formats(edited)
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        connection = open_database(Path(folder))
        try:
            data = load_source(
                source, connection, selection=selection, csv_formats=formats, detect_csv=True
            )
            return draft_schema(connection, data, edited)
        finally:
            connection.close()


def draft_schema(connection: Connection, data: SourceData, edited: Schema | None = None) -> Draft:
    """The schema of a source that is already in `raw.*` of a connection: facts, keys, types, times,
    tasks; each step reads what those before it have settled."""
    nulls = {} if edited is None else _null_values(edited)
    tables = [_table_draft(connection, table, nulls) for table in data.tables]
    mark_row_numbers(connection, tables)
    for table in tables:
        draft_primary_key(connection, table, tables)
    draft_foreign_keys(connection, tables)
    draft_typed_references(connection, tables)
    draft_value_tables(connection, tables)
    settle_formats(tables)
    read_counts(connection, tables)
    for table in tables:
        _draft_types(table)
        check_extremes(connection, table)
    zone = find_zone(connection, tables)
    read_local_times(connection, tables)
    _draft_row_times(connection, tables)
    newer = newer_parents(connection, tables)
    check_late_parents(tables, newer)
    for table in reversed(lowest_first(tables)):
        draft_known_at(connection, table, tables, newer)
    say_untimed(tables)
    say_years(connection, tables)
    draft_totals(connection, tables)
    suggest_value_tables(connection, tables)
    suggest_pairs(connection, tables)
    suggest_names_left_out(tables)
    # A source that comes with tasks needs no drafts.
    tasks = list(data.tasks) or draft_tasks(connection, tables)
    draft = Draft(data.name, tables, tasks, checks=[Check(note) for note in data.notes])
    draft.directory = None if data.directory is None else Path(data.directory)
    _settle_timezone(draft, zone)
    drop_computed(connection, tables)
    drop_value_tables(connection, tables)
    return draft


def _draft_row_times(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """The time of each table: its own, else one that can be computed, else that of the row which
    its rows are a part of, else one in doubt. The time of the last row that refers to a row is none
    of them."""
    for table in tables:
        draft_times(connection, table)
    for table in drop_last_times(connection, tables):
        draft_times(connection, table)
    draft_computed_times(connection, tables)
    take_parent_times(connection, tables)
    referred = {key.table for table in tables for key in table.every_key()}
    for table in tables:
        if table.temporal_column is None:
            draft_doubtful_time(connection, table, is_referred_to=table.name in referred)
    drop_last_times(connection, tables)
    take_parent_times(connection, tables)
    take_parent_times(connection, tables, by_declared=True)


def _null_values(edited: Schema) -> Mapping[tuple[str, str], tuple[str, ...]]:
    return {
        (table.name, column.name): column.null_values + table.null_values + edited.null_values
        for table in edited.tables
        for column in table.columns
    }


def _table_draft(
    connection: Connection, source: SourceTable, nulls: Mapping[tuple[str, str], tuple[str, ...]]
) -> TableDraft:
    usable = set(source.usable_names())
    known = {name: nulls.get((source.name, name), ()) for name in usable}
    counted = count_texts(connection, source)
    columns = [
        ColumnDraft(name, column_facts(connection, source, slot, known[name], counted.get(slot)))
        for slot, name in enumerate(source.column_names())
        if name in usable
    ]
    return TableDraft(source, columns, checks=[Check(note) for note in source.notes])


def _draft_types(table: TableDraft) -> None:
    referring = {name for key in table.every_key() for name in key.columns}
    for column in table.columns:
        reason, checks = column.reason, column.checks
        column.checks = []
        if column.is_row_number:
            column.stype = "ignored"
        elif column.name in referring or column.name in table.primary_key:
            key_type(table, column, refers=column.name in referring)
        else:
            draft_type(table, column)
        if column.read_as:
            column.stype, reason = "ignored", f"read as {column.read_as}"
        if reason:  # of a foreign key: the overlap
            column.reason = reason
        column.checks = checks + column.checks


def _settle_timezone(draft: Draft, zone: str | None) -> None:
    """Naive and zoned times together need a zone for the naive ones; UTC is a draft.

    zone: that of times without one, as others prove it.
    """
    zones, made = set(), False
    for table in draft.tables:
        for column in table.columns:
            if column.stype != "timestamp" or column.taken_from is not None:
                continue
            kind, facts = table.kind(column.name), column.facts
            if column.expression is not None:
                made |= kind == ZONED_TYPE
            elif kind in (ZONED_TYPE, *NAIVE_TYPES):
                zones.add(kind == ZONED_TYPE)
            elif facts.clock_count:
                naive_count = facts.clock_count - facts.zoned_count
                zones |= {True} if facts.zoned_count else set()
                zones |= {False} if naive_count else set()
    if made and zones == {False}:
        draft.timezone = zone or "UTC"  # as a build must know it; the source has no zones
    if zones == {True, False}:
        draft.timezone = zone or "UTC"
        why = ", in which a time of both kinds is the same" if zone else ""
        draft.checks.append(
            Check(
                f"times with and without a zone: those without are taken as {draft.timezone}{why}",
                Cost.FUTURE,
            )
        )
