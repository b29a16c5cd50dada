"""A folder of files as a source: which files make which table, and the SQL that reads them.

`orders.parquet` or `orders.csv` is table `orders`, and so are the parts in `orders/*.parquet` or
`orders/*.csv`; CSV files may also end in .tsv or .dat, and in .gz or .zst after that. Tables are
sorted by name. How a CSV file is read is in `csv_files.py`, how its description is drafted in
`csv_detection.py`, what a RelBench cache folder adds to its Parquet files in `relbench.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.metadata.parts import CsvFormat
from headwater.metadata.selection import Selection
from headwater.notebook import listed
from headwater.sources.csv_files import copy_csv, csv_name, is_csv, scan_of_csv
from headwater.sources.csv_rows import load_detected
from headwater.sources.database import Connection
from headwater.sources.first_bytes import check_first_bytes
from headwater.sources.relbench import declare_keys, draft_tasks, holds_relbench
from headwater.sources.source import SourceData, SourceTable, literal, view_scan

DATABASE_FILES = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".duckdb": "duckdb"}

TABLE_ENDS = ".parquet, .csv, .tsv or .dat (the last three also with .gz or .zst)"
QUIET_SUFFIXES = ("", ".md", ".json", ".sql", ".py", ".html", ".pdf", ".log")  # seldom tables
SHOWN_MAX = 8


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
    found = _files_of(folder)
    notes = _unread(folder, found)
    named = [((name,), (name, files), "") for name, files in found.items()]
    chosen, _ = selection.choose(named, where=str(path))
    tables = []
    for index, (name, files) in enumerate(chosen):
        tell(name)
        files = [check_first_bytes(file) for file in files]
        if files[0].suffix == ".parquet":
            tables.append(view_scan(connection, name, index, _scan_of_parquet(files)))
        else:
            tables.append(_copy_csv(connection, name, index, files, formats, detect))
    if not tables:
        raise SourceError(
            f"the folder '{path}' holds no Parquet and no CSV file: none ends in {TABLE_ENDS}"
        )
    name = path.resolve().name
    tables = declare_keys(connection, tables, {name: files[0] for name, files in chosen})
    data = SourceData(name, tuple(tables), notes=tuple(notes))
    if not is_cache:
        return data
    tasks, told = draft_tasks(connection, path, tables)
    return replace(data, notes=(*notes, *told), tasks=tasks, directory=str(path))


def _copy_csv(
    connection: Connection,
    name: str,
    index: int,
    files: list[Path],
    formats: Mapping[str, CsvFormat],
    detect: bool,
) -> SourceTable:
    if name in formats or not detect:
        return copy_csv(connection, name, index, files, formats.get(name, CsvFormat()))
    return load_detected(connection, name, index, files)


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """Files by table: `orders.csv`, `orders.parquet`, or the parts in a folder `orders`."""
    tables: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        is_folder = entry.is_dir()
        files = sorted(entry.iterdir()) if is_folder else [entry]
        parts = [file for file in files if file.suffix == ".parquet" or is_csv(file)]
        parts = [part for part in parts if not (part.is_dir() or part.name.startswith("."))]
        for part in parts:
            check_regular(part)
        parts = [part for part in parts if part.is_file()]  # a link may lead nowhere
        if not parts:
            continue
        if len({part.suffix == ".parquet" for part in parts}) > 1:
            raise SourceError(f"the folder '{entry}' holds Parquet and CSV files of one table")
        plain = entry.stem if entry.suffix == ".parquet" else csv_name(entry)
        name = entry.name if is_folder else plain
        if name in tables:
            raise SourceError(f"the folder '{folder}' holds table '{name}' twice: {parts[0].name}")
        tables[name] = parts
    return dict(sorted(tables.items()))


def _unread(folder: Path, tables: Mapping[str, list[Path]]) -> list[str]:
    """A note of files that look like data and make no table, and of folders with such too deep."""
    read = {part for parts in tables.values() for part in parts}
    read |= {part.parent for part in read}
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry in read:
            continue
        if entry.is_dir():
            if any(file.suffix == ".parquet" or is_csv(file) for file in entry.rglob("*")):
                found.append(f"{entry.name}/ (its files lie too deep)")
        elif entry.suffix.lower() not in QUIET_SUFFIXES:
            found.append(entry.name)
    if not found:
        return []
    shown = listed(found, SHOWN_MAX)
    return [f"not read, as the files of tables end in {TABLE_ENDS}: {shown}"]


def scan_of(connection: Connection, path: Path) -> str:
    """The table function that reads one Parquet or plain CSV file, such as a label table."""
    if path.suffix == ".parquet":
        return _scan_of_parquet([path])
    return scan_of_csv(connection, [path], CsvFormat())


def _scan_of_parquet(files: list[Path]) -> str:
    names = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false)"
