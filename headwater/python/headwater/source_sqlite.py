"""An SQLite file as a source: every table, copied in chunks by the standard library's sqlite3.

SQLite stores a type per value. A column gets the narrowest DuckDB type that holds every value
exactly; blobs arrive as hexadecimal text. Most columns hold one type (or integers and reals), so a
table is copied with the types that its values turn out to have (`pack_rows`, in C). Where a value
contradicts those before it, the copy is begun again with types from a pass that counts them all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SourceError
from .selection import Selection
from .sources import SourceColumn, SourceData, SourceTable, quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CHUNK_ROWS = 245_760  # two row groups of DuckDB
TABLE_LIST_VERSION = (3, 37)  # of SQLite: PRAGMA table_list
CHUNK_CELLS = 1 << 22  # of a wide table fewer rows, so that a chunk takes some 40 MB


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
            names, notes = _choose(database, selection, path)
            tables, broken = [], 0
            for index, name in enumerate(names):
                tell(name)
                reader = _SqliteTable(database, connection, name, index)
                try:
                    tables.append(reader.load(names))
                except sqlite3.Error as error:
                    raise SourceError(
                        f"cannot read table '{name}' of the SQLite file '{path}': {error} "
                        "(--exclude-table leaves it out)"
                    ) from error
                broken += reader.undecodable_count
                notes += reader.notes
            return SourceData(path.stem, tuple(tables), broken, notes=tuple(notes))
    except sqlite3.Error as error:
        raise SourceError(f"cannot read the SQLite file '{path}': {error}") from error


def _choose(
    database: sqlite3.Connection, selection: Selection, path: Path
) -> tuple[list[str], list[str]]:
    """Tables that pass the filters, a view only where it is named; and notes of what is left out.
    What a virtual table keeps its contents in (an index of full texts) is no table of the user."""
    shadows = set()
    if sqlite3.sqlite_version_info >= TABLE_LIST_VERSION:
        query = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"
        shadows = {name for (name,) in database.execute(query)}
    rows = database.execute(
        "SELECT name, type = 'view' FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    )
    found = [row for row in rows if row[0] not in shadows]
    kept = selection.choose([(name,) for name, _ in found], where=str(path))
    chosen: list[str] = []
    views: list[str] = []
    for (name, is_view), keep in zip(found, kept, strict=True):
        if keep:
            (views if is_view and not selection.names(name) else chosen).append(name)
    listed = ", ".join(f"view {name}" for name in views)
    return chosen, [f"not read unless named by --table: {listed}"] if views else []


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
        self.notes: list[str] = []

    def load(self, names: list[str]) -> SourceTable:
        info = [
            row
            for row in self.database.execute(f"PRAGMA table_xinfo({quote(self.name)})")
            if row[6] != 1  # hidden columns of virtual tables; generated ones are data
        ]
        columns = [str(row[1]) for row in info]
        if not columns:
            raise SourceError(f"table '{self.name}' has no columns")
        try:
            row_count, kinds = self.read(columns)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            self.database.text_factory = self.decode  # slower, so only where it is needed
            self.undecodable_count = 0
            row_count, kinds = self.read(columns)
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

    def kinds(self, columns: list[str]) -> list[str]:
        """Per column the narrowest kind that holds every value it really has, exactly: integers
        beyond 2^53 beside reals are text, as doubles would make one key of two."""
        counts = ", ".join(
            f"count(*) FILTER (WHERE {measure.format(quote(name))})"
            for name in columns
            for measure in _SQLITE_MEASURES
        )
        row = self.database.execute(f"SELECT {counts} FROM {quote(self.name)}").fetchone()
        kinds, step = [], len(_SQLITE_MEASURES)
        for position in range(0, len(row), step):
            integer, real, text, blob, wide = (
                count > 0 for count in row[position : position + step]
            )
            if text or (blob and (integer or real)) or (wide and real):
                kinds.append("mixed" if integer or real or blob else "text")
            else:
                kinds.append("blob" if blob else "real" if real else "integer")
        return kinds

    def read(self, columns: list[str]) -> tuple[int, list[str]]:
        """Copy the table; its rows, and the kind of each column."""
        asked = self.undecodable_count
        found = self.copy([quote(name) for name in columns], "?" * len(columns))
        if found is not None:
            row_count, letters = found
            return row_count, [_LETTER_KINDS[letter] for letter in letters]
        self.undecodable_count = asked
        kinds = self.kinds(columns)
        names = zip(columns, kinds, strict=True)
        selected = [_SQLITE_READ[kind].format(quote(name)) for name, kind in names]
        found = self.copy(selected, "".join(_KIND_LETTERS[kind] for kind in kinds))
        assert found is not None
        return found[0], kinds

    def copy(self, selected: list[str], letters: str) -> tuple[int, str] | None:
        """Copy what is selected to raw.t<index>: rows and kinds (`pack_rows`) that were found; None
        if the values of a column have none in common."""
        from ._rows import pack_rows

        cursor = self.database.execute(f"SELECT {', '.join(selected)} FROM {quote(self.name)}")
        self.create(letters)
        limit = min(CHUNK_ROWS, max(CHUNK_CELLS // len(letters), 1))
        total = 0
        while True:
            chunk, count, kinds = pack_rows(cursor, letters, limit)
            found = kinds.decode()
            if "!" in found:
                return None
            if count == 0:
                return total, letters
            self.settle_types(letters, found)
            letters, total = found, total + count
            self.connection.register("chunk", chunk)
            self.connection.execute(f"INSERT INTO raw.t{self.index} SELECT * FROM chunk")
            self.connection.unregister("chunk")

    def create(self, letters: str) -> None:
        kinds = [_SQLITE_TYPES[_LETTER_KINDS[letter]] for letter in letters]
        columns = ", ".join(f"c{j} {kind}" for j, kind in enumerate(kinds))
        self.connection.execute(f"CREATE OR REPLACE TABLE raw.t{self.index} ({columns})")

    def settle_types(self, before: str, after: str) -> None:
        """Give columns that held only NULL so far the types they turn out to have."""
        if after == before:
            return
        if before == "?" * len(before):
            self.create(after)
            return
        for j, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                kind = _SQLITE_TYPES[_LETTER_KINDS[new]]
                self.connection.execute(f"ALTER TABLE raw.t{self.index} ALTER c{j} TYPE {kind}")

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
                columns = "+".join(column for _, column, _ in keys[number])
                self.notes.append(
                    f"foreign key {self.name}.{columns} leads to {keys[number][0][0]}, which is "
                    "not read"
                )
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
# Kinds by what pack_rows calls them, and back: the SQL above makes text of "mixed" and of "blob".
_LETTER_KINDS = {"?": "integer", "l": "integer", "g": "real", "u": "text", "x": "blob"}
_KIND_LETTERS = {"integer": "l", "real": "g", "text": "u", "blob": "u", "mixed": "u"}
# What kinds() counts: the storage classes, and integers that a double does not hold.
_SQLITE_MEASURES = (
    *(f"typeof({{0}}) = '{kind}'" for kind in ("integer", "real", "text", "blob")),
    f"typeof({{0}}) = 'integer' AND {{0}} NOT BETWEEN -{2**53} AND {2**53}",
)
# hex(NULL) is '' in SQLite.
_SQLITE_READ["blob"] = "CASE WHEN {0} IS NULL THEN NULL ELSE lower(hex({0})) END"
