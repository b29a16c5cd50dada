"""A folder of files as a source: which files make which table, and the SQL that reads them.

`orders.parquet` or `orders.csv` is table `orders`, and so are the parts in `orders/*.parquet`.
Tables are sorted by name. How a CSV file is read is in `source_csv.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SourceError
from .source_csv import scan_of_csv
from .sources import SourceData, copy_scan, literal, view_scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def load_folder(
    path: Path, connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    if path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3"):
        raise SourceError(f"'{path}' is a file; write 'sqlite:///{path}' for an SQLite database")
    if path.is_file():
        raise SourceError(f"'{path}' is a file, expected the folder it is in")
    if not path.is_dir():
        raise SourceError(f"there is no folder '{path}'")
    tables = []
    for index, (name, files) in enumerate(_files_of(path).items()):
        tell(name)
        scan = view_scan if files[0].suffix == ".parquet" else copy_scan
        tables.append(scan(connection, name, index, scan_of(files)))
    if not tables:
        raise SourceError(f"the folder '{path}' holds no .parquet and no .csv file")
    return SourceData(path.resolve().name, tuple(tables))


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """Files by table: `orders.csv`, `orders.parquet`, or the parts in `orders/*.parquet`."""
    tables: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        parts = sorted(entry.glob("*.parquet")) if entry.is_dir() else []
        files = [entry] if entry.suffix in (".parquet", ".csv") and entry.is_file() else parts
        if not files or entry.name.startswith("."):
            continue
        name = entry.name if parts else entry.stem
        if name in tables:
            raise SourceError(f"the folder '{folder}' holds table '{name}' twice: {files[0].name}")
        tables[name] = files
    return dict(sorted(tables.items()))


def scan_of(files: list[Path]) -> str:
    """The table function that reads Parquet or CSV files, as SQL."""
    if files[0].suffix != ".parquet":
        return scan_of_csv(files)
    names = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false)"
