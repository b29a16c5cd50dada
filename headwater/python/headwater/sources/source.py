"""A source and its tables: what all kinds of source share.

A source is `sqlite:///file.db`, `postgresql://host/database`, `duckdb:///file.duckdb`, a folder of
Parquet or CSV files, a RelBench cache folder, or a dict of tables (pandas, polars, Arrow, anything
with `__arrow_c_stream__`, or a dict of NumPy columns). Each table becomes `raw.t<i>` with columns
`c<j>`, rows in source order; `SourceTable` keeps the names and types people know. Nothing is
converted here beyond what DuckDB must have: SQLite stores a type per value, so a column that mixes
types arrives as text. Meaning is given later, by the schema (build/convert.py).

Tables are sorted by name where the source has no order of its own, so that builds repeat.

A kind is a file with one function, which load.py calls with (where, connection, selection, tell).
The function makes `raw.t0`, `raw.t1`, ... in the connection, calls tell(name) before each table and
returns `SourceData`. What it must keep:

- a table's rows in one order that repeats, and every value exactly, in a DuckDB type whose text
  is the value's (build/convert.py reads types by their DuckDB names);
- all tables at one moment (a snapshot) where the source can change meanwhile;
- only the tables that the selection chooses are read;
- keys as declared, in `SourceTable`, only between tables it returns;
- failures as `SourceError` that names the source and the table and says what to do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headwater.errors import SourceError
from headwater.metadata.from_json import is_usable
from headwater.metadata.parts import CsvFormat, Task
from headwater.sources.database import Connection, count_rows

Source = str | os.PathLike[str] | Mapping[str, Any]

Key = tuple[tuple[str, ...], str, tuple[str, ...]]  # columns, the table they refer to, its columns

MESSAGE_LENGTH = 400


class Alike(StrEnum):
    """Ways to write a key that may be held equal (key_values.py)."""

    BYTES = "bytes"  # bytes and their hexadecimal digits, a UUID in any case and with any hyphens
    BLANKS = "blanks"  # at the end
    AROUND = "around"  # blanks on both sides
    NUMBERS = "numbers"  # the spellings of a number
    FORMS = "forms"  # of Unicode
    ACCENTS = "accents"
    CASE = "case"
    ASCII_CASE = "ascii case"


@dataclass(frozen=True)
class SourceColumn:
    name: str
    type: str  # DuckDB's name of the type in raw.t<i>
    declared: str = ""  # what the source declared, upper case; SQLite only
    alike: frozenset[Alike] = frozenset()  # spellings that the source holds equal


@dataclass(frozen=True)
class SourceTable:
    name: str
    index: int
    row_count: int
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()  # as the source declares it
    foreign_keys: tuple[Key, ...] = ()
    time_column: str | None = None
    csv: CsvFormat | None = None  # how its files are read, as described or detected
    notes: tuple[str, ...] = ()  # what is to be checked of it
    is_view: bool = False  # raw.t<i> reads the source each time; it has no rowid

    @functools.cached_property
    def slots(self) -> dict[str, int]:
        """The position of each column by its name."""
        return {column.name: slot for slot, column in enumerate(self.columns)}

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def usable_names(self) -> list[str]:
        """Of the columns that a schema can name; the others are not taken."""
        return [column.name for column in self.columns if is_usable(column.name)]


@dataclass(frozen=True)
class SourceData:
    name: str  # a name for the database: the file, folder or database
    tables: tuple[SourceTable, ...]
    undecodable_count: int = 0  # texts that were not UTF-8, read with replacement characters
    notes: tuple[str, ...] = ()  # what was left out though it is there
    tasks: tuple[Task, ...] = ()  # that come with the source, their label tables in `directory`
    directory: str | None = None


def source_text(source: Any) -> str:
    """A source that is not a dict of tables: its address, or the path of its folder."""
    if not isinstance(source, str | os.PathLike) or isinstance(os.fspath(source), bytes):
        raise SourceError(
            f"the source is a {type(source).__name__}, expected an address such as"
            " 'sqlite:///file.db', a folder, or a dict that names each table, such as"
            " {'orders': frame}"
        )
    return os.fspath(source)


def quote(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def brief(error: BaseException) -> str:
    """What DuckDB says, without the statement it says it of, without advice on settings that are
    not the user's to change, and not at any length."""
    text = str(error).partition("\n\nLINE ")[0]
    for advice in ("\nPossible fixes:", "\nPossible solutions:"):
        text = text.partition(advice)[0].rstrip()
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH] + " ..."


def unread_key(table: str, columns: Sequence[str], parent: str) -> str:
    """The note on a foreign key to a table that is left out."""
    return f"foreign key {table}.{'+'.join(columns)} leads to {parent}, which is not read"


def view_scan(connection: Connection, name: str, index: int, scan: str) -> SourceTable:
    """Name what a table function reads as raw.t<index>, without a copy: for files in columns,
    which are read as fast as a table of DuckDB is."""
    import duckdb

    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        names = ", ".join(f"c{j}" for j in range(len(described)))
        connection.execute(f"CREATE VIEW raw.t{index}({names}) AS SELECT * FROM {scan}")
        made = describe_copy(connection, name, index, [row[0] for row in described])
    except duckdb.Error as error:
        raise SourceError(f"cannot read table '{name}': {brief(error)}") from error
    return replace(made, is_view=True)


def copy_scan(connection: Connection, name: str, index: int, scan: str) -> SourceTable:
    """Copy what a table function or registered table reads to raw.t<index>, and describe it."""
    import duckdb

    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        names = ", ".join(f"c{j}" for j in range(len(described)))
        connection.execute(f"CREATE TABLE raw.t{index}({names}) AS SELECT * FROM {scan}")
    except duckdb.OutOfMemoryException:
        raise  # the build says what to do
    except duckdb.Error as error:
        raise SourceError(f"cannot read table '{name}': {brief(error)}") from error
    return describe_copy(connection, name, index, [row[0] for row in described])


def describe_copy(
    connection: Connection,
    name: str,
    index: int,
    columns: Sequence[str],
    *,
    primary_key: Sequence[str] = (),
    foreign_keys: Sequence[Key] = (),
) -> SourceTable:
    """What is now in raw.t<index>, under the names the source has for it."""
    types = [row[1] for row in connection.execute(f"DESCRIBE raw.t{index}").fetchall()]
    return SourceTable(
        name=name,
        index=index,
        row_count=count_rows(connection, f"SELECT count(*) FROM raw.t{index}"),
        columns=tuple(map(SourceColumn, columns, types)),
        primary_key=tuple(primary_key),
        foreign_keys=tuple(foreign_keys),
    )
