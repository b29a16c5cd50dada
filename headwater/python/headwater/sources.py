"""Where the data comes from: copies every table of a source into DuckDB, as it is.

A source is `sqlite:///file.db`, a folder of Parquet or CSV files, or a dict of tables (pandas,
polars, Arrow, anything with `__arrow_c_stream__`, or a dict of NumPy columns). Each table becomes
`raw.t<i>` with columns `c<j>`, rows in source order; `SourceTable` keeps the names and types people
know. Nothing is converted here beyond what DuckDB must have: SQLite stores a type per value, so a
column that mixes types arrives as text. Meaning is given later, by the schema (convert.py).

Tables are sorted by name where the source has no order of its own, so that builds repeat.
"""

from __future__ import annotations

import csv
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Source = str | os.PathLike[str] | Mapping[str, Any]

SQLITE_CHUNK_ROWS = 65_536
CSV_LINE_BYTES = 1 << 26
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
    text = str(error).partition("\n\nLINE ")[0].partition("\nPossible fixes:")[0].rstrip()
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
        raise _error(f"the source '{data.name}' has no tables")
    return data


def _load(
    source: Source, connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    if isinstance(source, Mapping):
        return _load_mapping(source, connection, tell)
    text = os.fspath(source)
    scheme, found, rest = text.partition("://")
    if not found:
        return _load_folder(Path(text), connection, tell)
    if scheme == "sqlite":
        return _load_sqlite(_sqlite_path(rest), connection, tell)
    if scheme in ("postgresql", "postgres", "duckdb"):
        raise _error(f"sources of kind '{scheme}://' come with a later version of headwater")
    raise _error(
        f"unknown kind of source '{scheme}://', expected sqlite:///file.db, a folder of Parquet or "
        "CSV files, or a dict of tables"
    )


def _error(message: str) -> Exception:
    from .errors import SourceError

    return SourceError(message)


# ---- SQLite ----------------------------------------------------------------------------------


def _sqlite_path(rest: str) -> Path:
    """`sqlite:///file.db` is relative, `sqlite:////folder/file.db` absolute; an absolute path
    written with three slashes is taken where nothing stands at the relative one."""
    relative = Path(rest.removeprefix("/"))
    return Path(rest) if not relative.exists() and Path(rest).exists() else relative


def _load_sqlite(
    path: Path, connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    if not path.is_file():
        raise _error(f"there is no SQLite file '{path}'")
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.execute("BEGIN")  # one snapshot for all tables
            names = [
                name
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' "
                    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
                )
            ]
            tables, broken = [], 0
            for index, name in enumerate(names):
                tell(name)
                reader = _SqliteTable(database, connection, name, index)
                tables.append(reader.load(names))
                broken += reader.undecodable_count
            return SourceData(path.stem, tuple(tables), broken)
    except sqlite3.Error as error:
        raise _error(f"cannot read the SQLite file '{path}': {error}") from error


class _SqliteTable:
    """One table on its way from SQLite to DuckDB, in chunks of NumPy columns."""

    def __init__(
        self,
        database: sqlite3.Connection,
        connection: DuckDBPyConnection,
        name: str,
        index: int,
    ) -> None:
        self.database, self.connection = database, connection
        self.name, self.index = name, index
        self.undecodable_count = 0

    def load(self, names: list[str]) -> SourceTable:
        info = [
            row
            for row in self.database.execute(f"PRAGMA table_xinfo({quote(self.name)})")
            if row[6] != 1  # hidden columns of virtual tables; generated ones are data
        ]
        columns = [str(row[1]) for row in info]
        if not columns:
            raise _error(f"table '{self.name}' has no columns")
        row_count, kinds = self.kinds(columns)
        try:
            self.copy(columns, kinds)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            self.database.text_factory = self.decode  # slower, so only where it is needed
            self.copy(columns, kinds)
            self.database.text_factory = str
        parts = sorted((row[5], row[1]) for row in info if row[5])
        return SourceTable(
            name=self.name,
            index=self.index,
            row_count=row_count,
            columns=tuple(
                SourceColumn(row[1], _SQLITE_TYPES[kind], str(row[2]).upper())
                for row, kind in zip(info, kinds, strict=True)
            ),
            primary_key=tuple(name for _, name in parts),
            foreign_keys=tuple(self.foreign_keys(names)),
        )

    def kinds(self, columns: list[str]) -> tuple[int, list[str]]:
        """Per column the narrowest kind that holds every value it really has, exactly: integers
        beyond 2^53 beside reals are text, as doubles would make one key of two."""
        counts = ", ".join(
            f"count(*) FILTER (WHERE {measure.format(quote(name))})"
            for name in columns
            for measure in _SQLITE_MEASURES
        )
        row = self.database.execute(f"SELECT count(*), {counts} FROM {quote(self.name)}").fetchone()
        kinds, step = [], len(_SQLITE_MEASURES)
        for position in range(1, len(row), step):
            integer, real, text, blob, wide = (
                count > 0 for count in row[position : position + step]
            )
            if text or (blob and (integer or real)) or (wide and real):
                kinds.append("mixed" if integer or real or blob else "text")
            else:
                kinds.append("blob" if blob else "real" if real else "integer")
        return row[0], kinds

    def create(self, kinds: list[str]) -> None:
        columns = ", ".join(f"c{j} {_SQLITE_TYPES[kind]}" for j, kind in enumerate(kinds))
        self.connection.execute(f"CREATE OR REPLACE TABLE raw.t{self.index} ({columns})")

    def copy(self, columns: list[str], kinds: list[str]) -> None:
        names = zip(columns, kinds, strict=True)
        selected = ", ".join(_SQLITE_READ[kind].format(quote(name)) for name, kind in names)
        select = f"SELECT {selected} FROM {quote(self.name)}"
        self.create(kinds)
        inserted = ", ".join(f"CASE WHEN n{j} THEN NULL ELSE v{j} END" for j in range(len(kinds)))
        for rows in _chunks(self.database.execute(select)):
            arrays = {}
            for j, (values, kind) in enumerate(zip(zip(*rows, strict=True), kinds, strict=True)):
                arrays[f"v{j}"], arrays[f"n{j}"] = _numpy_column(values, kind)
            self.connection.register("chunk", arrays)
            self.connection.execute(f"INSERT INTO raw.t{self.index} SELECT {inserted} FROM chunk")
            self.connection.unregister("chunk")

    def decode(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.undecodable_count += 1
            return data.decode("utf-8", "replace")

    def foreign_keys(
        self, names: list[str]
    ) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
        """Declared keys in order of declaration; a missing column list means the primary key."""
        spelled = {name.casefold(): name for name in names}
        keys: dict[int, list[tuple[str, str, str | None]]] = {}
        for row in self.database.execute(f"PRAGMA foreign_key_list({quote(self.name)})"):
            keys.setdefault(row[0], []).append((row[2], row[3], row[4]))
        for number in sorted(keys, reverse=True):
            parent = spelled.get(keys[number][0][0].casefold())
            if parent is None:
                continue
            info = list(self.database.execute(f"PRAGMA table_info({quote(parent)})"))
            primary = [name for _, name in sorted((row[5], row[1]) for row in info if row[5])]
            known = {row[1].casefold(): row[1] for row in info}
            child = tuple(column for _, column, _ in keys[number])
            if keys[number][0][2] is None:
                references = tuple(primary)
            else:
                references = tuple(known.get(str(to).casefold(), "") for _, _, to in keys[number])
            if all(references) and len(references) == len(child):
                yield child, parent, references


_SQLITE_TYPES = {
    "integer": "BIGINT",
    "real": "DOUBLE",
    "text": "VARCHAR",
    "blob": "VARCHAR",
    "mixed": "VARCHAR",
}
_SQLITE_READ = {
    "integer": "{0}",
    "real": "CAST({0} AS REAL)",
    "text": "{0}",
    "blob": "lower(hex({0}))",
    "mixed": "CASE typeof({0}) WHEN 'blob' THEN lower(hex({0})) ELSE CAST({0} AS TEXT) END",
}
# What kinds() counts: the storage classes, and integers that a double does not hold.
_SQLITE_MEASURES = (
    *(f"typeof({{0}}) = '{kind}'" for kind in ("integer", "real", "text", "blob")),
    f"typeof({{0}}) = 'integer' AND {{0}} NOT BETWEEN -{2**53} AND {2**53}",
)
# hex(NULL) is '' in SQLite.
_SQLITE_READ["blob"] = "CASE WHEN {0} IS NULL THEN NULL ELSE lower(hex({0})) END"


def _chunks(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while rows := cursor.fetchmany(SQLITE_CHUNK_ROWS):
        yield rows


def _numpy_column(values: tuple[Any, ...], kind: str) -> tuple[Any, Any]:
    """Values without NULL, and where the NULLs are: DuckDB guesses the type of an object array
    from its first values, which may all be NULL."""
    import numpy

    kept = values
    is_null = numpy.zeros(len(values), bool)
    if None in values:
        is_null = numpy.fromiter((value is None for value in values), bool, len(values))
        zero: Any = 0 if kind in ("integer", "real") else ""
        kept = tuple(zero if value is None else value for value in values)
    dtypes = {"integer": numpy.int64, "real": numpy.float64}
    return numpy.array(kept, dtypes.get(kind, object)), is_null


# ---- files -----------------------------------------------------------------------------------


def _load_folder(
    path: Path, connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    if path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3"):
        raise _error(f"'{path}' is a file; write 'sqlite:///{path}' for an SQLite database")
    if path.is_file():
        raise _error(f"'{path}' is a file, expected the folder it is in")
    if not path.is_dir():
        raise _error(f"there is no folder '{path}'")
    tables = []
    for index, (name, files) in enumerate(_files_of(path).items()):
        tell(name)
        tables.append(_copy_scan(connection, name, index, scan_of(files)))
    if not tables:
        raise _error(f"the folder '{path}' holds no .parquet and no .csv file")
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
            raise _error(f"the folder '{folder}' holds table '{name}' twice: {files[0].name}")
        tables[name] = files
    return dict(sorted(tables.items()))


def scan_of(files: list[Path]) -> str:
    """The table function that reads Parquet or CSV files, as SQL."""
    names = ", ".join(literal(str(file)) for file in files)
    if files[0].suffix == ".parquet":
        return f"read_parquet([{names}], hive_partitioning = false)"
    header = _csv_header(files[0])
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    return (
        f"read_csv([{names}], auto_detect = false, header = true, delim = ',', quote = '\"', "
        f"escape = '\"', nullstr = '', allow_quoted_nulls = false, "
        f"hive_partitioning = false, max_line_size = {CSV_LINE_BYTES}, columns = {{{columns}}})"
    )


def _csv_header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except UnicodeDecodeError as error:
        raise _error(
            f"'{path}' is not UTF-8; convert it, for example with iconv: {error}"
        ) from error
    except (OSError, csv.Error) as error:
        raise _error(f"cannot read the header of '{path}': {error}") from error
    if not header or not all(header):
        raise _error(f"'{path}' has no header, or a column without a name")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise _error(f"'{path}' has the one column {header[0]!r}: fields must be parted by commas")
    folded = [name.casefold() for name in header]
    for name in header:
        if folded.count(name.casefold()) > 1:
            raise _error(f"'{path}' has two columns '{name}' (names ignore case)")
    return header


# ---- tables in memory ------------------------------------------------------------------------


def _load_mapping(
    source: Mapping[str, Any], connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    tables = []
    for index, (name, table) in enumerate(source.items()):
        if not isinstance(name, str):
            raise _error(f"the name of a table is {name!r}, expected a string")
        tell(name)
        try:
            connection.register("scan", _scannable(table))
        except Exception as error:
            raise _error(f"table '{name}' cannot be read: {error}") from error
        tables.append(_copy_scan(connection, name, index, "scan"))
        connection.unregister("scan")
    return SourceData("database", tuple(tables))


def _scannable(table: Any) -> Any:
    """pandas goes to DuckDB as it is (its Arrow stream needs pyarrow), the rest as a stream."""
    if type(table).__module__.partition(".")[0] == "pandas":
        return table
    if isinstance(table, Mapping):
        import numpy

        columns = list(table.values())
        if not all(isinstance(column, numpy.ndarray) for column in columns):
            raise TypeError("a dict must hold NumPy arrays, or give a data frame or Arrow table")
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            raise ValueError("the arrays of a dict must have one dimension and the same length")
        return table
    if hasattr(table, "__arrow_c_stream__"):
        return table.__arrow_c_stream__()
    raise TypeError(f"a {type(table).__name__} is no table (it has no __arrow_c_stream__)")


def _copy_scan(connection: DuckDBPyConnection, name: str, index: int, scan: str) -> SourceTable:
    import duckdb

    try:
        # A stream can be read once: it is copied first and described after.
        connection.execute(f"CREATE TABLE raw.t{index} AS SELECT * FROM {scan}")
    except duckdb.Error as error:
        raise _error(f"cannot read table '{name}': {brief(error)}") from error
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
