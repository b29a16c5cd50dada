"""A first metadata.json from a source: declared keys, and types judged by the values themselves.

Rules are fixed and look at every value, so that the same source gives the same draft: key columns
are identifiers; a column without values, or of a type the store has no place for, is ignored; text
whose values are all times, booleans or numbers is that; other text is categorical if its distinct
values are few and repeat, else text. One obvious time column becomes the temporal column. The draft
is meant to be read and corrected: nothing here knows what a column means.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .convert import (
    INTEGER_TYPES,
    NAIVE_TYPES,
    REAL_TYPES,
    WIDE_TYPES,
    ZONED_TEXT,
    ZONED_TYPE,
    canonical_text,
    is_nested,
    to_boolean,
    to_numerical,
    to_timestamp,
)
from .schema import Column, ColumnRef, ForeignKey, Schema, Table
from .selection import Selection
from .sources import Source, SourceColumn, SourceData, SourceTable, load_source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CATEGORY_COUNT_MAX = 256  # distinct values of a categorical column
CATEGORY_REPEATS_MIN = 5  # rows per distinct value, on average
MILLISECONDS_FROM = 100_000_000_000  # a count since 1970 this large is not in seconds

DECLARED_TIME = re.compile(r"DATE|TIME")
NOT_CREATION = re.compile(
    r"birth|dob|death|expir|end|due|last|updat|modif|edit|clos|delet|cancel|valid|until|deadline",
    re.IGNORECASE,
)
CREATION = re.compile(r"^(creat|date$|time$|timestamp|datetime|occurr)|creat.*|_at$", re.IGNORECASE)


def infer(
    source: Source,
    *,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> Schema:
    """Tables, keys, types and time columns of a source, to be saved, edited and built from.

    schemas, tables, exclude_tables: patterns such as "a*" that choose what is read."""
    from .build import open_database

    selection = Selection(tuple(schemas), tuple(tables), tuple(exclude_tables))

    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        connection = open_database(Path(folder))
        try:
            return infer_schema(connection, load_source(source, connection, selection=selection))
        finally:
            connection.close()


def infer_schema(connection: DuckDBPyConnection, data: SourceData) -> Schema:
    """The schema of a source that is already in `raw.*` of a connection."""
    tables = [_infer_table(connection, table) for table in data.tables]
    zones = {zoned for table in tables for zoned in table.zones}
    # Naive and zoned times together need to be told what the naive ones mean; UTC is a draft.
    timezone = "UTC" if zones == {True, False} else None
    return Schema(
        data.name,
        tuple(table.table for table in tables),
        tasks=data.tasks,
        timezone=timezone,
        directory=None if data.directory is None else Path(data.directory),
    )


@dataclass(frozen=True)
class _Inferred:
    table: Table
    zones: frozenset[bool]  # True: has times with a zone, False: without one


@dataclass(frozen=True)
class _Facts:
    """Counts over all values of a column."""

    value_count: int
    distinct_count: int
    number_count: int
    zero_one_count: int
    word_count: int  # values that are boolean words
    time_count: int
    clock_count: int  # times with a time of day
    zoned_count: int
    padded_count: int  # numbers written with leading zeros: codes
    largest: float


def _infer_table(connection: DuckDBPyConnection, source: SourceTable) -> _Inferred:
    facts = _facts(connection, source)
    keys = {name for columns, _, _ in source.foreign_keys for name in columns}
    keys |= set(source.primary_key)
    single = {
        columns[0]: ColumnRef(parent, references[0])
        for columns, parent, references in reversed(source.foreign_keys)
        if len(columns) == 1
    }
    columns, zones = [], set()
    for column, fact in zip(source.columns, facts, strict=True):
        stype = "identifier" if column.name in keys else _stype(column, fact)
        unit = "ms" if fact.largest >= MILLISECONDS_FROM else "s"
        counts_time = stype == "timestamp" and column.type in INTEGER_TYPES
        columns.append(
            Column(
                column.name,
                stype,
                foreign_key=single.get(column.name),
                unit=unit if counts_time else "s",
            )
        )
        if stype == "timestamp" and column.type in (ZONED_TYPE, *NAIVE_TYPES):
            zones.add(column.type == ZONED_TYPE)
        elif stype == "timestamp" and fact.clock_count:
            naive_count = fact.clock_count - fact.zoned_count
            zones.update(
                zoned for zoned, n in ((True, fact.zoned_count), (False, naive_count)) if n
            )
    temporal = source.time_column or _temporal_column(source, columns, facts)
    listed = [
        ForeignKey(child, parent, references)
        for child, parent, references in source.foreign_keys
        if len(child) > 1 or single[child[0]] != ColumnRef(parent, references[0])
    ]
    table = Table(
        name=source.name,
        columns=tuple(columns),
        primary_key=source.primary_key,
        temporal_column=temporal,
        time_resolution=_resolution(source, temporal, facts),
        foreign_keys=tuple(listed),
        graph=bool(source.primary_key) or any(c.stype != "ignored" for c in columns),
    )
    return _Inferred(table, frozenset(zones))


def _facts(connection: DuckDBPyConnection, source: SourceTable) -> list[_Facts]:
    return [_column_facts(connection, source, slot) for slot in range(len(source.columns))]


def _column_facts(connection: DuckDBPyConnection, source: SourceTable, slot: int) -> _Facts:
    column, value = source.columns[slot], f"c{slot}"
    text = canonical_text(value, column.type)
    number, _ = to_numerical(value, column.type)
    boolean, _ = to_boolean(value, column.type)
    stamp, _ = to_timestamp(value, column.type)
    is_text = "true" if column.type == "VARCHAR" else "false"
    measures = [
        f"count({value})",
        f"count(DISTINCT {text})",
        f"count({number})",
        f"count(*) FILTER (WHERE {text} IN ('0', '1'))",
        f"count({boolean})",
        f"count({stamp})" if _may_be_time(column) else "0",
        f"count(*) FILTER (WHERE {is_text} AND contains({text}, ':'))",
        f"count(*) FILTER (WHERE {is_text} AND regexp_full_match({text}, {ZONED_TEXT}))",
        f"count(*) FILTER (WHERE {is_text} AND regexp_full_match({text}, '[+-]?0[0-9].*'))",
        f"coalesce(max(abs(CAST({number} AS DOUBLE))), 0)",
    ]
    query = f"SELECT {', '.join(measures)} FROM raw.t{source.index}"
    row = connection.execute(query).fetchone()
    assert row is not None
    return _Facts(*row)


def _may_be_time(column: SourceColumn) -> bool:
    """Text may hold times; numbers do only where the source says so."""
    return not _is_number(column.type) or bool(DECLARED_TIME.search(column.declared))


def _is_number(type_name: str) -> bool:
    return type_name in INTEGER_TYPES + REAL_TYPES + WIDE_TYPES or type_name.startswith("DECIMAL")


def _stype(column: SourceColumn, fact: _Facts) -> str:
    kind, count = column.type, fact.value_count
    if count == 0 or kind == "BLOB" or "BLOB" in column.declared:
        return "ignored"
    if kind in ("DATE", ZONED_TYPE, *NAIVE_TYPES):
        return "timestamp"
    if kind == "BOOLEAN":
        return "boolean"
    if is_nested(kind) or kind == "BIT":  # '1010' is no number
        return "ignored"
    if fact.time_count == count:
        return "timestamp"
    if _is_number(kind) or kind in ("TIME", "INTERVAL"):
        zero_one = fact.zero_one_count == count and fact.distinct_count == 2
        return "boolean" if zero_one or "BOOL" in column.declared else "numerical"
    if fact.word_count == count and fact.zero_one_count < count:
        return "boolean"
    if fact.number_count == count and not fact.padded_count:
        return "boolean" if fact.zero_one_count == count else "numerical"
    if kind.startswith("ENUM"):
        return "categorical"
    if kind not in ("VARCHAR", "UUID", "JSON"):
        return "ignored"
    few = fact.distinct_count <= CATEGORY_COUNT_MAX
    return "categorical" if few and fact.distinct_count * CATEGORY_REPEATS_MIN <= count else "text"


def _temporal_column(source: SourceTable, columns: list[Column], facts: list[_Facts]) -> str | None:
    """The one timestamp that every row has and that does not sound like a later event."""
    names = [
        column.name
        for column, fact in zip(columns, facts, strict=True)
        if column.stype == "timestamp"
        and 0 < fact.value_count == source.row_count
        and not NOT_CREATION.search(column.name)
    ]
    preferred = [name for name in names if CREATION.search(name)]
    if len(names) == 1:
        return names[0]
    return preferred[0] if len(preferred) == 1 else None


def _resolution(source: SourceTable, temporal: str | None, facts: list[_Facts]) -> str | None:
    """Text dates without a time of day count from the end of the day, as DATE columns do."""
    for column, fact in zip(source.columns, facts, strict=True):
        if column.name == temporal and column.type == "VARCHAR" and column.declared != "DATE":
            return "instant" if fact.clock_count else "day"
    return None
