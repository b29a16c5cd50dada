"""An SQLite file as a source: every table, copied in chunks by the standard library's sqlite3.

SQLite stores a type per value. Per column the narrowest DuckDB type that holds every value exactly
is found by one pass over the table before it is copied; blobs arrive as hexadecimal text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SourceError
from .selection import Selection
from .sources import SourceColumn, SourceData, SourceTable, quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SQLITE_CHUNK_ROWS = 65_536


def load_sqlite(
    path: Path,
    connection: DuckDBPyConnection,
    selection: Selection,
    tell: Callable[[str], None],
) -> SourceData:
    selection.refuse_schemas("SQLite")
    if not path.is_file():
        raise SourceError(f"there is no SQLite file '{path}'")
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
            kept = selection.choose([(name,) for name in names], where=str(path))
            names = [name for name, keep in zip(names, kept, strict=True) if keep]
            tables, broken = [], 0
            for index, name in enumerate(names):
                tell(name)
                reader = _SqliteTable(database, connection, name, index)
                tables.append(reader.load(names))
                broken += reader.undecodable_count
            return SourceData(path.stem, tuple(tables), broken)
    except sqlite3.Error as error:
        raise SourceError(f"cannot read the SQLite file '{path}': {error}") from error


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
            raise SourceError(f"table '{self.name}' has no columns")
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
