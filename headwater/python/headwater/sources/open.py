"""Copies every table of a source into DuckDB, by the kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from headwater.errors import SourceError
from headwater.metadata.from_json import NAME_BYTES_MAX, is_usable, shortened
from headwater.metadata.parts import CsvFormat
from headwater.metadata.selection import Selection
from headwater.notebook import listed
from headwater.sources.database import Connection
from headwater.sources.folder.first_bytes import SQLITE, check_first_bytes
from headwater.sources.source import Source, SourceData, source_text

Load = Callable[[Connection, Selection, Callable[[str], None]], SourceData]

UNUSABLE_SHOWN = 3  # of the columns whose names cannot be used


def load_source(
    source: Source,
    connection: Connection,
    *,
    selection: Selection | None = None,
    tell: Callable[[str], None] = lambda table: None,
    csv_formats: Mapping[str, CsvFormat] | None = None,
    detect_csv: bool = False,
) -> SourceData:
    """Copy the tables of a source, or those that are selected, into schema `raw`.

    csv_formats: how the CSV files of a table are written; detect_csv: where it does not say, draft
    a description (`SourceTable.csv`), else files are as CSV usually is.
    """
    connection.execute("CREATE SCHEMA IF NOT EXISTS raw")
    load = _loader(source, csv_formats or {}, detect_csv)
    data = load(connection, selection or Selection(), tell)
    if not data.tables:
        raise SourceError(f"the source '{data.name}' has no tables, or none is selected")
    if not detect_csv:  # a draft has them as checks of the tables
        told = (note for table in data.tables for note in table.notes)
        data = replace(data, notes=(*data.notes, *told))
    return _without_unusable(data)


def _without_unusable(data: SourceData) -> SourceData:
    """Note columns whose names no schema can hold, and take no declared key of them."""
    tables, notes = [], list(data.notes)
    for table in data.tables:
        names = [name for name in table.column_names() if not is_usable(name)]
        if names:
            quoted = [f"'{shortened(name)}'" for name in names]
            notes.append(
                f"{len(names):,} columns of table '{table.name}' are left out, as a name has 1 to "
                f"{NAME_BYTES_MAX:,} bytes and no zero character: {listed(quoted, UNUSABLE_SHOWN)}"
            )
        own = table.primary_key if all(map(is_usable, table.primary_key)) else ()
        keys = [k for k in table.foreign_keys if all(map(is_usable, (*k[0], *k[2])))]
        tables.append(replace(table, primary_key=own, foreign_keys=tuple(keys)))
    return replace(data, tables=tuple(tables), notes=tuple(notes))


def _loader(source: Source, csv_formats: Mapping[str, CsvFormat], detect_csv: bool) -> Load:
    """Each kind is a file of its own, imported where it is used."""
    if isinstance(source, Mapping):
        from headwater.sources.frames import load_frames

        return partial(load_frames, source)
    text = source_text(source)
    scheme, found, rest = text.partition("://")
    if not found:
        from headwater.sources.file_folder import load_folder

        return partial(load_folder, Path(text), formats=csv_formats, detect=detect_csv)
    if scheme == "sqlite":
        from headwater.sources.sqlite_file import load_sqlite

        return partial(_load_file, partial(load_sqlite, path := file_path(rest)), path, SQLITE)
    if scheme == "duckdb":
        from headwater.sources.duckdb_file import load_duckdb

        return partial(_load_file, partial(load_duckdb, path := file_path(rest)), path, "")
    if scheme in ("postgresql", "postgres"):
        from headwater.sources.postgres import load_postgres

        return partial(load_postgres, text)
    raise SourceError(
        f"unknown kind of source '{scheme}://', expected sqlite:///file.db, "
        "postgresql://host/database, duckdb:///file.duckdb, a folder of Parquet or CSV files, a "
        "RelBench cache folder, or a dict of tables"
    )


def _load_file(
    load: Load,
    path: Path,
    may_be: str,
    connection: Connection,
    selection: Selection,
    tell: Callable[[str], None],
) -> SourceData:
    """The tables of a database file; if it cannot be read, its first bytes may name the reason.

    They are not looked at before, as closing any descriptor of a file ends the locks that this
    process has on it."""
    try:
        return load(connection, selection, tell)
    except SourceError as error:
        if error.__cause__ is not None:  # of the driver: the file is not locked by this process
            check_first_bytes(path, may_be)
        raise


def file_path(rest: str) -> Path:
    """`sqlite:///file.db` is relative, `sqlite:////folder/file.db` absolute; an absolute path
    written with three slashes is taken where nothing stands at the relative one."""
    relative = Path(rest.removeprefix("/"))
    return Path(rest) if not relative.exists() and Path(rest).exists() else relative
