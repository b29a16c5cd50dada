"""A folder of files as a source: which files make which table, and the SQL that reads them.

`orders.parquet` or `orders.csv` is table `orders`, and so are the parts in `orders/*.parquet` or
`orders/*.csv`; CSV files may also end in .tsv or .dat, and in .gz or .zst after that. Tables are
sorted by name. How a CSV file is read is in `source_csv.py`, and how its description is drafted in
`csv_detect.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .csv_detect import detect_csv
from .errors import SourceError
from .schema import CsvFormat
from .source_csv import copy_csv, csv_name, is_csv, scan_of_csv
from .sources import SourceData, SourceTable, copy_scan, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def load_folder(
    path: Path,
    connection: DuckDBPyConnection,
    tell: Callable[[str], None],
    *,
    formats: Mapping[str, CsvFormat],
    detect: bool,
) -> SourceData:
    """formats: how the CSV files of a table are written; detect: draft what is not there."""
    if path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3"):
        raise SourceError(f"'{path}' is a file; write 'sqlite:///{path}' for an SQLite database")
    if path.is_file():
        raise SourceError(f"'{path}' is a file, expected the folder it is in")
    if not path.is_dir():
        raise SourceError(f"there is no folder '{path}'")
    tables = []
    for index, (name, files) in enumerate(_files_of(path).items()):
        tell(name)
        if files[0].suffix == ".parquet":
            tables.append(copy_scan(connection, name, index, _scan_of_parquet(files)))
        else:
            tables.append(_copy_csv(connection, name, index, files, formats, detect))
    if not tables:
        raise SourceError(f"the folder '{path}' holds no Parquet and no CSV file")
    return SourceData(path.resolve().name, tuple(tables))


def _copy_csv(
    connection: DuckDBPyConnection,
    name: str,
    index: int,
    files: list[Path],
    formats: Mapping[str, CsvFormat],
    detect: bool,
) -> SourceTable:
    if name in formats or not detect:
        return copy_csv(connection, name, index, files, formats.get(name, CsvFormat()))
    found, notes = detect_csv(connection, files)
    table = copy_csv(connection, name, index, files, found)
    return replace(table, csv=found, notes=tuple(notes))


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """Files by table: `orders.csv`, `orders.parquet`, or the parts in a folder `orders`."""
    tables: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        is_folder = entry.is_dir()
        files = sorted(entry.iterdir()) if is_folder else [entry]
        parts = [file for file in files if file.suffix == ".parquet" or is_csv(file)]
        parts = [part for part in parts if part.is_file() and not part.name.startswith(".")]
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


def scan_of(connection: DuckDBPyConnection, path: Path) -> str:
    """The table function that reads one Parquet or plain CSV file, such as a label table."""
    if path.suffix == ".parquet":
        return _scan_of_parquet([path])
    return scan_of_csv(connection, [path], CsvFormat())


def _scan_of_parquet(files: list[Path]) -> str:
    names = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false)"
