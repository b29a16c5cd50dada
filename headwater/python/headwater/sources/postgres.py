"""A PostgreSQL database as a source: `postgresql://[user@]host[:port]/database[?libpq options]`.

One connection, one REPEATABLE READ READ ONLY transaction: catalog and rows are of one moment. Rows
come by binary COPY (adbc.py). Passwords come from where libpq looks (PGPASSWORD, PGPASSFILE,
~/.pgpass); an address that holds one is refused, since addresses end in histories, process lists
and logs.

How values of each type travel is in `postgres_types.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from headwater.errors import SourceError
from headwater.metadata.selection import Selection
from headwater.sources.adbc import Reader, words
from headwater.sources.database import Connection, count_rows
from headwater.sources.postgres_types import (
    AS_BYTES,
    AS_TEXT,
    MEASURES,
    PostgresColumn,
    Reading,
    held_alike,
    measured_as,
    reading_of,
)
from headwater.sources.source import Key, SourceData, SourceTable, describe_copy, quote, unread_key

SERVER_VERSION_MIN = 110000  # catalog columns of partitions and their keys
CONNECT_TIMEOUT_S = 10
SECRET_OPTIONS = ("password", "sslpassword")
_HOST = r"(\[[0-9A-Fa-f:.%]+\]|[^:@/?#,\[\]]*)(:[0-9]*)?"
ADDRESS = re.compile(rf"([^:@/?#]*@)?{_HOST}(,{_HOST})*(/[^:@/?#]*)?(\?([^&=]+=[^&]*&?)*)?")
NOT_TABLES = {"v": "view", "m": "materialized view", "f": "foreign table"}  # by pg_class.relkind

SETTINGS = (
    "statement_timeout = 0",
    "lock_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "row_security = off",  # a policy that hides rows is an error, not fewer rows
    "synchronize_seqscans = off",  # rows from the first page on, whoever else is scanning
    "max_parallel_workers_per_gather = 0",  # rows in the table's order
    "client_encoding = 'UTF8'",
    "extra_float_digits = 3",
    "TimeZone = 'UTC'",
    "DateStyle = 'ISO'",
    "IntervalStyle = 'postgres'",
    "search_path = ''",
)


@dataclass(frozen=True)
class _Relation:
    schema: str
    table: str
    oid: int
    kind: str  # pg_class.relkind
    readable: bool
    columns: tuple[PostgresColumn, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """Rows of the table itself: a partitioned table's are in its partitions, but tables that
        inherit are tables of their own."""
        only = "ONLY " if self.kind == "r" else ""
        return f"{only}{quote(self.schema)}.{quote(self.table)}"


def load_postgres(
    address: str, connection: Connection, selection: Selection, tell: Callable[[str], None]
) -> SourceData:
    check_address(address)
    with _connected(address, connection) as server:
        schemas = _schemas(server, selection)
        found = [r for r in _relations(server) if r.schema in schemas]
        chosen, notes = _choose(server, found, schemas, selection)
        names = {
            relation.oid: relation.full_name if len(schemas) > 1 else relation.table
            for relation in chosen
        }
        keys = _Keys(server, chosen, names)
        notes += keys.notes
        tables = []
        for index, relation in enumerate(chosen):
            tell(names[relation.oid])
            tables.append(_copy(server, relation, names[relation.oid], index, keys))
        name = str(server.rows("SELECT current_database()::text")[0][0])
    return SourceData(name, tuple(tables), server.undecodable_count, notes=tuple(notes))


# ---- address and connection ------------------------------------------------------------------


def check_address(address: str) -> None:
    """SourceError for an address with a password in it, or one libpq would not understand: its
    message would repeat what it does not understand, which may be a password."""
    options = parse_qsl(address.partition("?")[2], keep_blank_values=True)
    secret = any(name.lower() in SECRET_OPTIONS for name, _ in options)
    if secret or not ADDRESS.fullmatch(address.partition("://")[2]):
        raise SourceError(
            "the address holds a password, or is not of the form "
            "postgresql://user@host:port/database?options. A password would be kept in histories "
            "and logs: leave it out, and set PGPASSWORD, or write a password file (~/.pgpass or "
            "PGPASSFILE)"
        )


def shown_address(address: str) -> str:
    """The address without its options, for messages."""
    return address.partition("?")[0].partition("#")[0]


@contextmanager
def _connected(address: str, connection: Connection) -> Iterator[_Server]:
    """A server in its read-only snapshot."""
    try:
        import adbc_driver_manager
        import adbc_driver_postgresql
    except ImportError as error:
        raise SourceError(
            "reading PostgreSQL needs its driver: pip install adbc-driver-postgresql"
        ) from error
    uri = "postgresql://" + address.partition("://")[2]
    if "connect_timeout=" not in uri and "PGCONNECT_TIMEOUT" not in os.environ:
        uri += f"{'&' if '?' in uri else '?'}connect_timeout={CONNECT_TIMEOUT_S}"
    with ExitStack() as stack:
        try:
            database = stack.enter_context(closing(adbc_driver_postgresql.connect(uri)))
            link = stack.enter_context(closing(adbc_driver_manager.AdbcConnection(database)))
        except adbc_driver_manager.Error as error:
            raise _connect_error(address, error) from error
        server = _Server(link, connection, shown_address(address))
        server.begin()
        yield server


def _connect_error(address: str, error: Exception) -> SourceError:
    said = words(error)
    hints = (
        ("no password supplied", "set PGPASSWORD or write a password file (~/.pgpass)"),
        ("password authentication failed", "check the user, and PGPASSWORD or the password file"),
        ("does not exist", "check the name of the database and of the user"),
        ("could not translate host name", "check the name of the host"),
        ("no pg_hba.conf entry", "the server does not let this user in from here"),
    )
    advice = "".join([f"; {hint}" for words, hint in hints if words in said][:1])
    return SourceError(f"cannot connect to '{shown_address(address)}': {said}{advice}")


class _Server(Reader):
    """The snapshot."""

    def __init__(self, link: Any, connection: Connection, shown: str) -> None:
        super().__init__(link, connection, f"'{shown}'")
        self.shown = shown
        self.has_encoding = True  # without one, texts are whatever bytes were put in
        self.undecodable_count = 0

    def begin(self) -> None:
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for setting in SETTINGS:
            self.run(f"SET LOCAL {setting}")
        ((version, encoding),) = self.rows(
            "SELECT current_setting('server_version_num')::int4, "
            "current_setting('server_encoding')::text"
        )
        self.has_encoding = encoding != "SQL_ASCII"
        if version < SERVER_VERSION_MIN:
            raise SourceError(
                f"'{self.shown}' is PostgreSQL {version // 10000}, expected 11 or later"
            )


# ---- catalog ---------------------------------------------------------------------------------


def _schemas(server: _Server, selection: Selection) -> list[str]:
    """Schemas to read: those asked for, else `public`."""
    rows = server.rows(
        "SELECT nspname::text COLLATE \"C\" FROM pg_catalog.pg_namespace WHERE nspname !~ '^pg_' "
        "AND nspname <> 'information_schema' ORDER BY 1"
    )
    return selection.choose_schemas([row[0] for row in rows], default="public")


def _relations(server: _Server) -> list[_Relation]:
    """Tables, views and foreign tables; partitions and what belongs to extensions are none."""
    rows = server.rows(
        'SELECT n.nspname::text COLLATE "C", c.relname::text COLLATE "C", c.oid::int8, '
        "c.relkind::text, has_schema_privilege(n.oid, 'USAGE') AND "
        "has_table_privilege(c.oid, 'SELECT') "
        "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition "
        "AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND NOT EXISTS "
        "(SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass "
        "AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1, 2"
    )
    return [_Relation(*row) for row in rows]


def _choose(
    server: _Server, found: list[_Relation], schemas: list[str], selection: Selection
) -> tuple[list[_Relation], list[str]]:
    """Tables that pass the filters, with their columns; a view only where it is named."""
    named = [((r.table, r.full_name), r, NOT_TABLES.get(r.kind, "")) for r in found]
    chosen, notes = selection.choose(named, where=server.shown)
    for relation in chosen:
        if not relation.readable:
            raise SourceError(
                f"no right to read table '{relation.full_name}' of '{server.shown}': "
                f"GRANT SELECT ON {relation.full_name} (and USAGE on its schema) to the user, or "
                f"leave it out with --exclude-table"
            )
    if not chosen:
        raise SourceError(
            f"schema '{', '.join(schemas)}' of '{server.shown}' has no tables to read; "
            "choose another with --schema"
        )
    columns = _columns(server, chosen)
    empty = [r.full_name for r in chosen if not columns.get(r.oid)]
    if empty:
        notes.append(f"tables without columns are left out: {', '.join(empty)}")
    filled = [replace(r, columns=tuple(columns[r.oid])) for r in chosen if columns.get(r.oid)]
    return filled, notes


def _columns(server: _Server, relations: Sequence[_Relation]) -> dict[int, list[PostgresColumn]]:
    """Columns by table, domains resolved to what they are made of. Versions describe
    collations by different columns, so their rows are read as JSON."""
    rows = server.rows(
        "WITH RECURSIVE resolved AS ("
        "SELECT a.attrelid, a.attnum, a.attname, a.atttypmod AS typmod, t.oid AS typid, t.typtype, "
        "t.typbasetype, t.typtypmod, a.attcollation AS coll "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
        f"WHERE a.attrelid IN ({_oids(relations)}) AND a.attnum > 0 AND NOT a.attisdropped "
        "UNION ALL SELECT r.attrelid, r.attnum, r.attname, "
        "CASE WHEN r.typtypmod >= 0 THEN r.typtypmod ELSE r.typmod END, t.oid, t.typtype, "
        "t.typbasetype, t.typtypmod, r.coll "
        "FROM resolved r JOIN pg_catalog.pg_type t ON t.oid = r.typbasetype WHERE r.typtype = 'd') "
        "SELECT r.attrelid::int8, r.attname::text, "
        "CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END, "
        "r.typmod::int4, coalesce(e.typname::text, ''), "
        "ARRAY(SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid "
        "ORDER BY l.enumsortorder), t.typcategory = 'A' AND t.typelem <> 0, t.typname::text, "
        "coalesce((o.row->>'collisdeterministic')::bool, true), coalesce(o.row->>'colllocale', "
        "o.row->>'colliculocale', o.row->>'collcollate', '') "
        "FROM resolved r JOIN pg_catalog.pg_type t ON t.oid = r.typid "
        "LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem "
        "LEFT JOIN (SELECT oid, to_jsonb(c) AS row FROM pg_catalog.pg_collation c) o "
        "ON o.oid = r.coll WHERE r.typtype <> 'd' "
        "ORDER BY r.attrelid, r.attnum"
    )
    columns: dict[int, list[PostgresColumn]] = {}
    for oid, name, type_name, typmod, element, labels, is_array, *equality in rows:
        alike = held_alike(*equality)
        columns.setdefault(oid, []).append(
            PostgresColumn(name, type_name, typmod, element, tuple(labels), is_array, alike)
        )
    return columns


def _oids(relations: Sequence[_Relation]) -> str:
    return ", ".join(str(relation.oid) for relation in relations)


class _Keys:
    """Primary and foreign keys between the tables that are read."""

    def __init__(
        self, server: _Server, relations: Sequence[_Relation], names: dict[int, str]
    ) -> None:
        self.primary: dict[int, tuple[str, ...]] = {}
        self.foreign: dict[int, list[Key]] = {}
        self.notes: list[str] = []
        named = (
            "ARRAY(SELECT a.attname::text FROM unnest(c.{0}) WITH ORDINALITY AS k(num, place) "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.{1} AND a.attnum = k.num "
            "ORDER BY k.place)"
        )
        rows = server.rows(
            "SELECT c.contype::text, c.conrelid::int8, c.confrelid::int8, "
            f"{named.format('conkey', 'conrelid')} AS own, "
            f"{named.format('confkey', 'confrelid')} AS referred, "
            "CASE WHEN c.confrelid <> 0 THEN c.confrelid::regclass::text END AS shown "
            "FROM pg_catalog.pg_constraint c WHERE c.contype IN ('p', 'f') AND c.conparentid = 0 "
            f"AND c.conrelid IN ({_oids(relations)}) ORDER BY c.conrelid, c.conkey, 6, c.confkey"
        )
        for kind, child, parent, columns, references, shown in rows:
            if kind == "p":
                self.primary[child] = tuple(columns)
            elif parent in names:
                key = (tuple(columns), names[parent], tuple(references))
                self.foreign.setdefault(child, []).append(key)
            else:
                self.notes.append(unread_key(names[child], columns, shown))


# ---- rows ------------------------------------------------------------------------------------


def _copy(server: _Server, relation: _Relation, name: str, index: int, keys: _Keys) -> SourceTable:
    readings = [
        AS_BYTES if reading is AS_TEXT and not server.has_encoding else reading
        for reading in _readings(server, relation)
    ]
    advice = "; leave the table out with --exclude-table" if relation.kind == "f" else ""
    selected = ", ".join(
        f"{reading.server.format(quote(column.name))} AS c{j}"
        for j, (column, reading) in enumerate(zip(relation.columns, readings, strict=True))
    )
    converted = ", ".join(
        f"{reading.duckdb.format(f'c{j}')} AS c{j}" for j, reading in enumerate(readings)
    )
    query = f"SELECT {selected} FROM {relation.sql}"
    with server.stream(query, f"table '{relation.full_name}'", advice) as cursor:
        cursor.execute(f"CREATE TABLE raw.t{index} AS SELECT {converted} FROM stream")
    for j, reading in enumerate(readings):
        if reading is AS_BYTES:
            query = f"SELECT count(*) FROM raw.t{index} WHERE contains(c{j}, chr(65533))"
            server.undecodable_count += count_rows(server.connection, query)
    made = describe_copy(
        server.connection,
        name,
        index,
        [column.name for column in relation.columns],
        primary_key=keys.primary.get(relation.oid, ()),
        foreign_keys=keys.foreign.get(relation.oid, ()),
    )
    columns = zip(made.columns, relation.columns, strict=True)
    return replace(made, columns=tuple(replace(own, alike=c.alike) for own, c in columns))


def _readings(server: _Server, relation: _Relation) -> list[Reading]:
    """One pass over the columns whose type does not tell enough, then a reading for each."""
    kinds = [measured_as(column) for column in relation.columns]
    measured = [j for j, kind in enumerate(kinds) if kind]
    found: dict[int, tuple[int, int | None, str | None]] = {}
    if measured:
        selected = ", ".join(
            f"({measure.format(quote(relation.columns[j].name))})::text AS m{j}_{place}"
            for j in measured
            for place, measure in enumerate(MEASURES[kinds[j]])
        )
        with server.stream(
            f"SELECT {selected} FROM {relation.sql}", f"table '{relation.full_name}'", ""
        ) as cursor:
            row = cursor.execute("SELECT * FROM stream").fetchall()[0]
        for place, j in enumerate(measured):
            odd, scale, largest = row[3 * place : 3 * place + 3]
            found[j] = int(odd), None if scale is None else int(scale), largest
    return [
        reading_of(column, *found.get(j, (0, None, None)))
        for j, column in enumerate(relation.columns)
    ]
