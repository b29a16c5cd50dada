"""An SQLite file as a source: every table, read by ADBC's driver of SQLite.

SQLite stores a type per value. A column gets the narrowest DuckDB type that holds every value
exactly; blobs arrive as hexadecimal text. The driver takes a column's type from the first rows, so
a pass over the table finds the storage classes of its values first, a second one how long texts
and blobs are, and what is read begins with a row that has a value of each column's type. A file
that cannot be read in its place, without a trace, is read from a copy (`sqlite_copy.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.metadata.selection import Selection
from headwater.sources.adbc import Reader, words
from headwater.sources.database import Connection
from headwater.sources.source import (
    Alike,
    Key,
    SourceColumn,
    SourceData,
    SourceTable,
    literal,
    quote,
    unread_key,
)
from headwater.sources.sqlite_copy import (
    call_nocase,
    collation_note,
    copied,
    has_both_files,
    unknown_collations,
    writes_ahead,
)

LOCK_WAIT_MS = 5_000
LOCKS = Path("/proc/locks")
BATCH_ROWS = 8_192
BATCH_CELLS = 1 << 20  # of a wide table fewer rows, so that a batch takes some 10 MB
BATCH_BYTES = 64 << 20  # of rows as long as the longest; the driver's offsets end at 2 GiB
BATCH_OPTION = "adbc.sqlite.query.batch_rows"
LETTERS = 8  # in a number
COLUMNS_MAX = 2_000  # of a result of SQLite
SUMMANDS_MAX = 500  # half as deep as an expression of SQLite may be
EXCLUDING = " (--exclude-table leaves it out)"

# Storage classes as bits of a mask, by the first letter of what typeof() says.
FIRST = ord("b")
BLOB, INTEGER, NULL, REAL, TEXT = (1 << (ord(letter) - FIRST) for letter in "binrt")


@dataclass(frozen=True)
class _Reading:
    """How the values of a column travel; {0} is the column."""

    type: str  # DuckDB's name of what they become
    first: str  # a value that tells the driver the type
    sqlite: str = "{0}"
    duckdb: str = "{0}"
    length: str = ""  # of a value, in bytes, where it is not a number
    alike: frozenset[Alike] = frozenset()  # spellings that such keys hold equal


_LENGTH = "coalesce(octet_length({0}), 0)"
# DuckDB takes some texts that are not UTF-8 for such: it is told to look.
_DECODED = (
    "CASE WHEN {0} IS NOT NULL AND TRY(decode(encode({0}))) IS NULL "
    "THEN hw_decode(encode({0})) ELSE {0} END"
)
_INTEGER = _Reading("BIGINT", "0")
_REAL = _Reading("DOUBLE", "0.0")
_TEXT = _Reading("VARCHAR", "''", duckdb=_DECODED, length=_LENGTH)
_BYTES = frozenset({Alike.BYTES})
_BLOB = _Reading("VARCHAR", "x''", duckdb="lower(hex({0}))", length=_LENGTH, alike=_BYTES)
_MIXED = _Reading(
    "VARCHAR",
    "''",
    "CASE typeof({0}) WHEN 'blob' THEN lower(hex({0})) ELSE CAST({0} AS TEXT) END",
    duckdb=_DECODED,
    length=f"2 * {_LENGTH}",
)
_COLLATED = {1: Alike.ASCII_CASE, 2: Alike.BLANKS}  # NOCASE and RTRIM
_WIDE = f"typeof({{0}}) = 'integer' AND {{0}} NOT BETWEEN -{2**53} AND {2**53}"


def load_sqlite(
    path: Path, connection: Connection, selection: Selection, tell: Callable[[str], None]
) -> SourceData:
    selection.refuse_schemas("SQLite")
    check_regular(path)
    if not path.is_file():
        raise SourceError(f"there is no SQLite file '{path}'")
    decoder = _Decoder()
    with _set_up(connection, decoder), _opened(path, connection) as (file, collations):
        names, notes = _choose(file, selection, path, collations)
        tables = []
        for index, name in enumerate(names):
            tell(name)
            table = _Table(file, name)
            tables.append(table.load(index, names))
            notes += table.notes
        return SourceData(path.stem, tuple(tables), decoder.count, notes=tuple(notes))


class _Decoder:
    """Reads texts that are not UTF-8, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def decode(self, data: bytes) -> str:
        self.count += 1
        return data.decode("utf-8", "replace")


@contextmanager
def _set_up(connection: Connection, decoder: _Decoder) -> Iterator[None]:
    """DuckDB with the function hw_decode, and no thread but this one: after Ctrl-C another would
    go on in a statement that is no more, which the driver does not survive. SQLite itself takes
    most of the time."""
    import duckdb

    threads = connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
    connection.execute("SET threads = 1")
    connection.create_function("hw_decode", decoder.decode, ["BLOB"], "VARCHAR")
    try:
        yield
    finally:
        with suppress(duckdb.FatalException):  # after another error, which is to be told
            connection.remove_function("hw_decode")
            connection.execute(f"SET threads = {threads}")


@contextmanager
def _opened(path: Path, connection: Connection) -> Iterator[tuple[Reader, dict[str, list[str]]]]:
    """The file, or a copy, in one transaction, which is one snapshot for all tables; and the
    collations that SQLite lacks, with their tables."""
    if not os.access(path, os.R_OK):  # the driver would say that memory ran out
        raise SourceError(f"no right to read the SQLite file '{path}'")
    if _is_locked_here(path):
        raise SourceError(
            f"this process holds a lock on the SQLite file '{path}' by another connection, which "
            "reading would end: close that connection first"
        )
    place = f"the SQLite file '{path}'"
    where, mode = path.resolve(), "mode=ro"
    with ExitStack() as stack:
        if writes_ahead(path):
            mode += "&readonly_shm=1"
            if not has_both_files(where):
                where, mode = stack.enter_context(copied(where, connection)), "mode=rw"
        with _connected(where, mode, connection, place) as file:
            file.run("BEGIN")
            collations = unknown_collations(file)
            if not collations:
                yield file, {}
                return
            if mode != "mode=rw":
                where = stack.enter_context(copied(where, connection))
        with _connected(where, "mode=rw", connection, place) as file:
            call_nocase(file, collations)
        with _connected(where, "mode=rw", connection, place) as file:
            yield file, collations


@contextmanager
def _connected(where: Path, mode: str, connection: Connection, place: str) -> Iterator[Reader]:
    try:
        import adbc_driver_manager
        import adbc_driver_sqlite
    except ImportError as error:
        raise SourceError(
            "reading SQLite needs its driver: pip install adbc-driver-sqlite"
        ) from error
    try:
        database = adbc_driver_sqlite.connect(f"{where.as_uri()}?{mode}")
        with closing(database), closing(adbc_driver_manager.AdbcConnection(database)) as link:
            file = Reader(link, connection, place)
            file.run(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")
            yield file
    except adbc_driver_manager.Error as error:
        raise SourceError(f"cannot read {place}: {words(error)}") from error


def _is_locked_here(path: Path) -> bool:
    """Whether another SQLite than the driver's, as Python's own, holds a lock on the file. A lock
    belongs to the process, and ends with the first descriptor of the file that is closed in it."""
    own, inode = str(os.getpid()), str(path.stat().st_ino)
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return False  # not Linux
    locks = [line.split() for line in lines if " POSIX " in line and "->" not in line]
    return any(lock[4] == own and lock[5].split(":")[-1] == inode for lock in locks)


def _choose(
    file: Reader, selection: Selection, path: Path, collations: Mapping[str, list[str]]
) -> tuple[list[str], list[str]]:
    """Tables that pass the filters, a view only where it is named; and notes of what is left out.
    What a virtual table keeps its contents in (an index of full texts) is no table of the user. A
    view may compare by a collation that SQLite lacks, and then its rows are not known."""
    found = file.rows(
        "SELECT name, type = 'view' AS is_view FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "AND name NOT IN (SELECT name FROM pragma_table_list "
        "WHERE schema = 'main' AND type = 'shadow') ORDER BY sqlite_master.rowid",
        "the list of tables",
    )
    named = [((name,), str(name), "view" if is_view else "") for name, is_view in found]
    chosen, notes = selection.choose(named, where=str(path))
    views = {name for name, is_view in found if is_view}
    for name in chosen:
        if collations and name in views:
            raise SourceError(
                f"view '{name}' of the SQLite file '{path}' cannot be read, as SQLite lacks the "
                f"collation '{next(iter(collations))}': leave the view out"
            )
    return chosen, notes + [collation_note(name, tables) for name, tables in collations.items()]


class _Table:
    """One table on its way from SQLite to DuckDB."""

    def __init__(self, file: Reader, name: str) -> None:
        self.file, self.name = file, name
        self.notes: list[str] = []

    def load(self, index: int, tables: list[str]) -> SourceTable:
        info = self.rows(
            f"SELECT name, pk, type FROM pragma_table_xinfo({literal(self.name)}) "
            "WHERE hidden <> 1"  # columns of virtual tables; generated ones are data
        )
        if not info:
            raise SourceError(f"table '{self.name}' has no columns")
        names = [quote(row[0]) for row in info]
        readings, row_bytes = self.readings(names)
        alike = self.collations(names)
        return SourceTable(
            name=self.name,
            index=index,
            row_count=self.copy(index, names, readings, row_bytes),
            columns=tuple(
                SourceColumn(row[0], reading.type, row[2].upper(), reading.alike | ways)
                for row, reading, ways in zip(info, readings, alike, strict=True)
            ),
            primary_key=_primary_key(info),
            foreign_keys=tuple(self.foreign_keys(tables)),
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.file.rows(query, f"table '{self.name}'", EXCLUDING)

    def stream(self, query: str, columns: int, row_bytes: int = 1) -> Any:
        rows = min(BATCH_ROWS, BATCH_CELLS // columns, BATCH_BYTES // row_bytes)
        options = {BATCH_OPTION: str(max(rows, 1))}
        return self.file.stream(query, f"table '{self.name}'", EXCLUDING, options)

    def collations(self, names: list[str]) -> list[frozenset[Alike]]:
        """The spellings that each column's collation holds equal, by two comparisons, as SQLite
        lists only collations of indexed columns. If one of them is known only to its application,
        each column is compared alone."""
        selected = ", ".join(f"{name} AS c{j}" for j, name in enumerate(names))
        texts = ", ".join(["'a'"] * len(names))
        shown = ", ".join(f"(c{j} = 'A') + 2 * (c{j} = 'a ')" for j in range(len(names)))
        query = f"SELECT {selected} FROM {quote(self.name)} WHERE false UNION ALL SELECT {texts}"
        try:
            (row,) = self.rows(f"SELECT {shown} FROM ({query})")
        except SourceError:
            if len(names) == 1:
                return [frozenset()]
            return [self.collations([name])[0] for name in names]
        return [
            frozenset(way for bit, way in _COLLATED.items() if int(found) & bit) for found in row
        ]

    def measure(self, expressions: list[str], folded: list[str]) -> list[int]:
        """What DuckDB folds of what SQLite says of every row, as c0, c1, ...; 0 for only NULL."""
        if not expressions:
            return []
        selected = ", ".join(f"{expression} AS c{j}" for j, expression in enumerate(expressions))
        results = ", ".join(f"coalesce({fold}, 0)" for fold in folded)
        query = f"SELECT {selected} FROM {quote(self.name)}"
        with self.stream(query, len(expressions)) as cursor:
            return list(cursor.execute(f"SELECT {results} FROM stream").fetchall()[0])

    def masks(self, names: list[str]) -> list[int]:
        """Per column the storage classes of its values. The letters of several columns come as one
        number, 7 bits each: fewer values on their way."""
        letters = [
            f"(unicode(typeof({name})) << {7 * (j % LETTERS)})" for j, name in enumerate(names)
        ]
        return self.measure(
            [" | ".join(letters[j : j + LETTERS]) for j in range(0, len(names), LETTERS)],
            [
                f"bit_or(1 << (((c{j // LETTERS} >> {7 * (j % LETTERS)}) & 127) - {FIRST}))"
                for j in range(len(names))
            ],
        )

    def readings(self, names: list[str]) -> tuple[list[_Reading], int]:
        """Per column the narrowest type that holds every value it has, exactly; and how many bytes
        the texts and blobs of a row have at most."""
        masks = self.masks(names)
        readings = [_reading_of(mask) for mask in masks]
        numbers = [j for j, mask in enumerate(masks) if mask & INTEGER and readings[j] is _REAL]
        lengths = [
            r.length.format(name) for name, r in zip(names, readings, strict=True) if r.length
        ]
        expressions = [_WIDE.format(names[j]) for j in numbers]
        for first in range(0, len(lengths), SUMMANDS_MAX):
            expressions.append(" + ".join(lengths[first : first + SUMMANDS_MAX]))
        largest = self.measure(expressions, [f"max(c{j})" for j in range(len(expressions))])
        for j in numbers:
            if largest.pop(0):  # doubles would make one key of two
                readings[j] = _MIXED
        return readings, max(sum(largest), 1)

    def copy(self, index: int, names: list[str], readings: list[_Reading], row_bytes: int) -> int:
        """Copy to raw.t<index>; the number of rows."""
        numbered = list(enumerate(zip(names, readings, strict=True)))
        first = ", ".join(f"{reading.first} AS c{j}" for j, (_, reading) in numbered)
        selected = ", ".join(reading.sqlite.format(name) for _, (name, reading) in numbered)
        converted = ", ".join(f"{r.duckdb.format(f'c{j}')} AS c{j}" for j, (_, r) in numbered)
        rest = "OFFSET 1"  # slower
        if len(names) < COLUMNS_MAX:
            first, selected, rest = f"{first}, 1 AS mark", f"{selected}, 0", "WHERE mark = 0"
        query = f"SELECT {first} UNION ALL SELECT {selected} FROM {quote(self.name)}"
        with self.stream(query, len(names) + 1, row_bytes) as cursor:
            cursor.execute(f"CREATE TABLE raw.t{index} AS SELECT {converted} FROM stream {rest}")
            return int(cursor.fetchall()[0][0])

    def foreign_keys(self, names: list[str]) -> Iterator[Key]:
        """Declared keys in order of declaration; a missing column list means the primary key."""
        spelled = {name.casefold(): name for name in names}
        keys: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, table, column, to in self.rows(
            f'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list({literal(self.name)})'
        ):
            keys.setdefault(number, []).append((table, column, to))
        for number in sorted(keys, reverse=True):
            parent = spelled.get(keys[number][0][0].casefold())
            child = tuple(column for _, column, _ in keys[number])
            if parent is None:
                self.notes.append(unread_key(self.name, child, keys[number][0][0]))
                continue
            info = self.rows(f"SELECT name, pk FROM pragma_table_info({literal(parent)})")
            if keys[number][0][2] is None:
                references = _primary_key(info)
            else:
                known = {name.casefold(): name for name, _ in info}
                references = tuple(known.get(str(to).casefold(), "") for _, _, to in keys[number])
            if all(references) and len(references) == len(child):
                yield child, parent, references


def _primary_key(info: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    """Of names and their places in the key, 0 for none."""
    return tuple(name for place, name in sorted((row[1], row[0]) for row in info if row[1]))


def _reading_of(mask: int) -> _Reading:
    """By the storage classes of a column's values."""
    if mask & TEXT or (mask & BLOB and mask & (INTEGER | REAL)):
        return _MIXED if mask & (INTEGER | REAL | BLOB) else _TEXT
    if mask & BLOB:
        return _BLOB
    if mask & REAL:
        return _REAL
    return _INTEGER
