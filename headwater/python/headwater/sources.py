"""Where the data comes from: copies every table of a source into DuckDB, as it is.

A source is `sqlite:///file.db`, a folder of Parquet or CSV files, or a dict of tables (pandas,
polars, Arrow, anything with `__arrow_c_stream__`, or a dict of NumPy columns). Each table becomes
`raw.t<i>` with columns `c<j>`, rows in source order; `SourceTable` keeps the names and types people
know. Nothing is converted here beyond what DuckDB must have: SQLite stores a type per value, so a
column that mixes types arrives as text. Meaning is given later, by the schema (convert.py).

Tables are sorted by name where the source has no order of its own, so that builds repeat.

This file holds what all kinds share; a kind is a file `source_<kind>.py` with one function that
takes (where, connection, tell), makes `raw.t0`, `raw.t1`, ... in the connection, calls tell(name)
before each table and returns `SourceData`. What it must keep:

- a table's rows in one order that repeats, and every value exactly, in a DuckDB type whose text
  is the value's (convert.py reads types by their DuckDB names);
- all tables at one moment (a snapshot) where the source can change meanwhile;
- keys as declared, in `SourceTable`, only between tables it returns;
- failures as `SourceError` that names the source and the table and says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SourceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Source = str | os.PathLike[str] | Mapping[str, Any]

MESSAGE_LENGTH = 400


@dataclass(frozen=True)
class SourceColumn:
    name: str
    type: str  # DuckDB's name of the type in raw.t<i>
    declared: str = ""  # what the source declared, upper case; SQLite only


@dataclass(frozen=True)
class SourceTable:
    name: str
    index: int
    row_count: int
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()  # as the source declares it
    foreign_keys: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = ()
    is_view: bool = False  # raw.t<i> reads the source each time; it has no rowid

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class SourceData:
    name: str  # a name for the database: the file or folder
    tables: tuple[SourceTable, ...]
    undecodable_count: int = 0  # texts that were not UTF-8, read with replacement characters


def quote(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def brief(error: Exception) -> str:
    """What DuckDB says, without the statement it says it of, without advice on settings that are
    not the user's to change, and not at any length."""
    text = str(error).partition("\n\nLINE ")[0]
    for advice in ("\nPossible fixes:", "\nPossible solutions:"):
        text = text.partition(advice)[0].rstrip()
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH] + " ..."


def load_source(
    source: Source,
    connection: DuckDBPyConnection,
    *,
    tell: Callable[[str], None] = lambda table: None,
) -> SourceData:
    """Copy every table of a source into schema `raw` of the connection."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS raw")
    data = _load(source, connection, tell)
    if not data.tables:
        raise SourceError(f"the source '{data.name}' has no tables")
    return data


def _load(
    source: Source, connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    """Each kind is a file of its own, imported where it is used."""
    if isinstance(source, Mapping):
        from .source_frames import load_frames

        return load_frames(source, connection, tell)
    text = os.fspath(source)
    scheme, found, rest = text.partition("://")
    if not found:
        from .source_folder import load_folder

        return load_folder(Path(text), connection, tell)
    if scheme == "sqlite":
        from .source_sqlite import load_sqlite, sqlite_path

        return load_sqlite(sqlite_path(rest), connection, tell)
    if scheme in ("postgresql", "postgres", "duckdb"):
        raise SourceError(f"sources of kind '{scheme}://' come with a later version of headwater")
    raise SourceError(
        f"unknown kind of source '{scheme}://', expected sqlite:///file.db, a folder of Parquet or "
        "CSV files, or a dict of tables"
    )


def view_scan(connection: DuckDBPyConnection, name: str, index: int, scan: str) -> SourceTable:
    """Name what a table function reads as raw.t<index>, without a copy: for files in columns,
    which are read as fast as a table of DuckDB is."""
    import duckdb

    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        names = ", ".join(f"c{j}" for j in range(len(described)))
        connection.execute(f"CREATE VIEW raw.t{index}({names}) AS SELECT * FROM {scan}")
        count = connection.execute(f"SELECT count(*) FROM raw.t{index}").fetchone()
    except duckdb.Error as error:
        raise SourceError(f"cannot read table '{name}': {brief(error)}") from error
    return SourceTable(
        name=name,
        index=index,
        row_count=0 if count is None else count[0],
        columns=tuple(SourceColumn(row[0], row[1]) for row in described),
        is_view=True,
    )


def copy_scan(connection: DuckDBPyConnection, name: str, index: int, scan: str) -> SourceTable:
    """Copy what a table function or registered table reads to raw.t<index>, and describe it."""
    import duckdb

    try:
        # A stream can be read once: it is copied first and described after.
        connection.execute(f"CREATE TABLE raw.t{index} AS SELECT * FROM {scan}")
    except duckdb.Error as error:
        raise SourceError(f"cannot read table '{name}': {brief(error)}") from error
    described = connection.execute(f"DESCRIBE raw.t{index}").fetchall()
    for j, row in enumerate(described):
        connection.execute(f"ALTER TABLE raw.t{index} RENAME COLUMN {quote(row[0])} TO hw_c{j}")
    for j in range(len(described)):
        connection.execute(f"ALTER TABLE raw.t{index} RENAME COLUMN hw_c{j} TO c{j}")
    count = connection.execute(f"SELECT count(*) FROM raw.t{index}").fetchone()
    return SourceTable(
        name=name,
        index=index,
        row_count=0 if count is None else count[0],
        columns=tuple(SourceColumn(row[0], row[1]) for row in described),
    )
