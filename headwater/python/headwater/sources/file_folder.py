"""A folder of files as a source.

`orders.parquet` or `orders.csv` is table `orders`, and so are the parts below a folder `orders`;
CSV files may also end in .tsv or .dat, and in .gz or .zst after that. Tables are sorted by name.
Which files make which table is in `folder/table_files.py`, how parts that differ are one table in
`folder/part_union.py`, how a CSV file is read in `folder/csv_files.py`, how its description is
drafted in `folder/csv_detection.py`, what a RelBench cache folder adds in `relbench.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headwater.errors import SourceError
from headwater.metadata.parts import CsvFormat
from headwater.metadata.selection import Selection
from headwater.notebook import listed
from headwater.sources.database import Connection
from headwater.sources.folder.csv_files import (
    copy_csv,
    rows_notes,
    scan_of_csv,
    unpacked_head,
)
from headwater.sources.folder.csv_rows import load_detected
from headwater.sources.folder.first_bytes import check_first_bytes
from headwater.sources.folder.part_union import NotPartsError, Parts, union_of
from headwater.sources.folder.table_files import TABLE_ENDS, TableFiles, find_tables
from headwater.sources.relbench import declare_keys, draft_tasks, holds_relbench
from headwater.sources.source import (
    SourceData,
    SourceTable,
    brief,
    copy_scan,
    literal,
    view_scan,
)

DATABASE_FILES = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".duckdb": "duckdb"}
SHOWN_MAX = 8
SCANS_MAX = 16  # of a view; more are copied, as each reading of a view plans all of them


def load_folder(
    path: Path,
    connection: Connection,
    selection: Selection,
    tell: Callable[[str], None],
    *,
    formats: Mapping[str, CsvFormat],
    detect: bool,
) -> SourceData:
    """formats: how the CSV files of a table are written; detect: draft what is not there."""
    if path.is_file():
        kind = DATABASE_FILES.get(path.suffix)
        if kind is not None:
            raise SourceError(f"'{path}' is a file; write '{kind}:///{path}' for a database")
        raise SourceError(f"'{path}' is a file, expected the folder it is in")
    if not path.is_dir():
        raise SourceError(f"there is no folder '{path}'")
    selection.refuse_schemas("a folder of files")
    is_cache = holds_relbench(path)
    folder = path / "db" if is_cache else path
    found, unread = find_tables(folder, None if detect else formats)
    named = [((name,), (name, table), "") for name, table in found.items()]
    chosen, _ = selection.choose(named, where=str(path))
    tables: list[SourceTable] = []
    first: dict[str, Path] = {}
    for name, files in chosen:
        if files.refusal:
            raise SourceError(f"{files.refusal} (--exclude-table {name} leaves it out)")
        if files.is_deep and not detect and name not in formats:
            unread.append(f"{name}/ (its files lie deep, and the metadata have no such table)")
            continue
        tell(name)
        for file in files.files:
            check_first_bytes(file, unpacked=unpacked_head(connection, file))
        try:
            tables.append(_load_table(connection, name, len(tables), files, formats, detect))
        except NotPartsError:
            if files.is_sure:
                raise
            unread.append(f"{name}/ (its files are of several tables: give it as the source)")
            continue
        first[name] = files.files[0]
    notes = []
    if unread:
        shown = listed(unread, SHOWN_MAX)
        notes.append(f"not read, as the files of tables end in {TABLE_ENDS}: {shown}")
    if not tables:
        raise SourceError(
            f"the folder '{path}' holds no Parquet and no CSV file: none ends in {TABLE_ENDS}"
        )
    name = path.resolve().name
    tables = declare_keys(connection, tables, first)
    data = SourceData(name, tuple(tables), notes=tuple(notes))
    if not is_cache:
        return data
    tasks, told = draft_tasks(connection, path, tables)
    return replace(data, notes=(*notes, *told), tasks=tasks, directory=str(path))


def _load_table(
    connection: Connection,
    name: str,
    index: int,
    files: TableFiles,
    formats: Mapping[str, CsvFormat],
    detect: bool,
) -> SourceTable:
    if files.files[0].suffix == ".parquet":
        return _view_parquet(connection, name, index, files)
    files = _without_empty(files)
    if name in formats or not detect:
        form = formats.get(name, CsvFormat())
        table = copy_csv(connection, name, index, files.files, form, files.keys)
        notes = rows_notes(connection, name, files.files, form)
        return replace(table, notes=(*table.notes, *notes))
    return load_detected(connection, name, index, files.files, files.keys)


def _without_empty(files: TableFiles) -> TableFiles:
    """Without the files of no bytes that Spark and others write for parts without rows."""
    kept = [j for j, file in enumerate(files.files) if file.stat().st_size] or [0]
    keys = [files.keys[j] for j in kept]
    return replace(files, files=[files.files[j] for j in kept], keys=keys)


def _view_parquet(connection: Connection, name: str, index: int, files: TableFiles) -> SourceTable:
    import duckdb

    if len(files.files) == 1 and not any(files.keys):
        return view_scan(connection, name, index, _scan_of_parquet(files.files))
    types = []
    for file in files.files:
        try:
            described = connection.execute(f"DESCRIBE SELECT * FROM {_scan_of_parquet([file])}")
        except duckdb.Error as error:
            raise SourceError(f"cannot read '{file}' of table '{name}': {brief(error)}") from error
        types.append({row[0]: row[1] for row in described.fetchall()})
    parts = Parts(name, files.files, types, files.keys, _scan_of_parquet, has_index=True)
    try:
        union = union_of(connection, parts)
    except duckdb.Error as error:
        raise SourceError(f"cannot read table '{name}': {brief(error)}") from error
    load = view_scan if union.scan_count <= SCANS_MAX else copy_scan
    return replace(load(connection, name, index, union.scan), notes=union.notes)


def scan_of(connection: Connection, path: Path) -> str:
    """The table function that reads one Parquet or plain CSV file, such as a label table."""
    if path.suffix == ".parquet":
        return _scan_of_parquet([path])
    return scan_of_csv(connection, path, CsvFormat())


def _scan_of_parquet(files: list[Path]) -> str:
    names = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false)"
