"""A folder of files as a source: which files make which table, and the SQL that reads them.

`orders.parquet` or `orders.csv` is table `orders`, and so are the parts in `orders/*.parquet`.
Tables are sorted by name. How a CSV file is read is in `source_csv.py`, what a RelBench cache
folder adds to its Parquet files in `source_relbench.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SourceError
from .selection import Selection
from .source_csv import scan_of_csv
from .source_relbench import declare_keys, draft_tasks, holds_relbench
from .sources import SourceData, copy_scan, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DATABASE_FILES = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".duckdb": "duckdb"}


def load_folder(
    path: Path,
    connection: DuckDBPyConnection,
    selection: Selection,
    tell: Callable[[str], None],
) -> SourceData:
    if path.is_file():
        kind = DATABASE_FILES.get(path.suffix)
        if kind is not None:
            raise SourceError(f"'{path}' is a file; write '{kind}:///{path}' for a database")
        raise SourceError(f"'{path}' is a file, expected the folder it is in")
    if not path.is_dir():
        raise SourceError(f"there is no folder '{path}'")
    selection.refuse_schemas("a folder of files")
    is_cache = holds_relbench(path)
    found = _files_of(path / "db" if is_cache else path)
    kept = selection.choose([(name,) for name in found], where=str(path))
    chosen = [item for item, keep in zip(found.items(), kept, strict=True) if keep]
    tables = []
    for index, (name, files) in enumerate(chosen):
        tell(name)
        tables.append(copy_scan(connection, name, index, scan_of(files)))
    if not tables:
        raise SourceError(f"the folder '{path}' holds no .parquet and no .csv file")
    name = path.resolve().name
    tables = declare_keys(connection, tables, {name: files[0] for name, files in chosen})
    if not is_cache:
        return SourceData(name, tuple(tables))
    tasks, notes = draft_tasks(connection, path, tables)
    return SourceData(name, tuple(tables), notes=tuple(notes), tasks=tasks, directory=str(path))


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
