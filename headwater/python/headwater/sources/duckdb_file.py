"""A DuckDB file as a source: `duckdb:///file.duckdb`, attached read-only and copied as it is.

While it is attached nobody writes to the file (DuckDB locks it), so all tables are of one moment.

DuckDB itself decides that a file is too new for it, after it has verified the checksums of the
headers, so a damaged file keeps its own message. The first header names the DuckDB that wrote the
file: 8 bytes of checksum, "DUCK", 8 bytes of storage version (999 since DuckDB 2, which keeps the
version in another header), 32 bytes of flags, and 32 of the name of the library's version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.metadata.selection import Selection
from headwater.sources.database import Connection
from headwater.sources.source import (
    Key,
    SourceData,
    SourceTable,
    brief,
    describe_copy,
    literal,
    quote,
    unread_key,
)

CATALOG = "source_file"  # the name it is attached by
LIBRARY_OFFSET, LIBRARY_BYTES = 52, 32  # of the version's name in the first header
READABLE_STORAGE = "v1.5.0"  # every DuckDB that this package takes reads it
UNREADABLE = re.compile(
    r"version number (\d+), but we can only read versions between \d+ and (\d+)"
)
VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)[-+.\w]*", re.ASCII)  # nothing that a terminal obeys


def load_duckdb(
    path: Path, connection: Connection, selection: Selection, tell: Callable[[str], None]
) -> SourceData:
    import duckdb

    check_regular(path)
    if not path.is_file():
        raise SourceError(f"there is no DuckDB file '{path}'")
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS {CATALOG} (TYPE duckdb, READ_ONLY)")
    except duckdb.Error as error:
        why = _written_by_newer(path, str(error), f"v{duckdb.__version__}") or brief(error)
        raise SourceError(f"cannot read the DuckDB file '{path}': {why}") from error
    try:
        return _DuckdbFile(path, connection, selection).load(tell)
    finally:
        connection.execute(f"DETACH {CATALOG}")


def _written_by_newer(path: Path, message: str, installed: str) -> str | None:
    """One line on who wrote the file and what to do, if DuckDB's message is that it is too new."""
    numbers = UNREADABLE.search(message)
    is_newer = "newer version of DuckDB" in message
    if numbers is not None:
        is_newer = int(numbers[1]) > int(numbers[2])
    if not is_newer:
        return None
    with path.open("rb") as file:
        name = file.read(LIBRARY_OFFSET + LIBRARY_BYTES)[LIBRARY_OFFSET:].rstrip(b"\0")
    library = name.decode("ascii", errors="replace")
    if _release(library) > _release(installed):
        writer = f"DuckDB {library}"
    else:  # the name is not one of a version, or of an older one
        writer = "a newer DuckDB" + (f" (storage version {numbers[1]})" if numbers else "")
    return (
        f"{writer} wrote it in a form that the installed DuckDB {installed} cannot read; with the "
        "newer DuckDB, copy it to a file that is attached with (STORAGE_VERSION "
        f"'{READABLE_STORAGE}'), or run EXPORT DATABASE 'folder' (FORMAT parquet) and read the "
        "folder"
    )


def _release(version: str) -> tuple[int, ...]:
    """(1, 5, 4) of v1.5.4; empty if the text is not the name of a version."""
    match = VERSION.fullmatch(version)
    return () if match is None else tuple(map(int, match.groups()))


class _DuckdbFile:
    """The attached file: its schemas, tables and keys."""

    def __init__(self, path: Path, connection: Connection, selection: Selection) -> None:
        self.path, self.connection, self.selection = path, connection, selection
        self.notes: list[str] = []

    def load(self, tell: Callable[[str], None]) -> SourceData:
        rows = self.rows(
            f"SELECT schema_name FROM duckdb_schemas() WHERE database_name = '{CATALOG}' "
            "AND NOT internal ORDER BY 1"
        )
        found = sorted({"main", *(row[0] for row in rows)})
        schemas = self.selection.choose_schemas(found, default="main")
        chosen = self.choose(schemas)
        several = len(schemas) > 1
        names = {(s, t): f"{s}.{t}" if several else t for s, t in chosen}
        tables = []
        for index, (schema, table) in enumerate(chosen):
            tell(names[schema, table])
            tables.append(self.copy(schema, table, index, names))
        return SourceData(self.path.stem, tuple(tables), notes=tuple(self.notes))

    def choose(self, schemas: list[str]) -> list[tuple[str, str]]:
        """Tables that pass the filters; a view only where it is named."""
        rows = self.rows(
            "SELECT schema_name, table_name, false FROM duckdb_tables() "
            f"WHERE database_name = '{CATALOG}' AND NOT internal UNION ALL "
            "SELECT schema_name, view_name, true FROM duckdb_views() "
            f"WHERE database_name = '{CATALOG}' AND NOT internal ORDER BY 1, 2"
        )
        found = [
            ((name, f"{schema}.{name}"), (schema, name), "view" if is_view else "")
            for schema, name, is_view in rows
            if schema in schemas
        ]
        chosen, self.notes = self.selection.choose(found, where=str(self.path))
        if not chosen:
            raise SourceError(
                f"schema '{', '.join(schemas)}' of '{self.path}' has no tables to read; "
                "choose another with --schema"
            )
        return chosen

    def copy(
        self, schema: str, table: str, index: int, names: dict[tuple[str, str], str]
    ) -> SourceTable:
        import duckdb

        name, where = names[schema, table], f"{CATALOG}.{quote(schema)}.{quote(table)}"
        columns = [row[0] for row in self.rows(f"DESCRIBE {where}")]
        selected = ", ".join(f"{quote(column)} AS c{j}" for j, column in enumerate(columns))
        try:
            self.connection.execute(f"CREATE TABLE raw.t{index} AS SELECT {selected} FROM {where}")
        except duckdb.OutOfMemoryException:
            raise  # the build says what to do
        except duckdb.Error as error:
            raise SourceError(
                f"cannot read table '{schema}.{table}' of '{self.path}': {brief(error)}"
            ) from error
        primary: tuple[str, ...] = ()
        foreign: list[Key] = []
        for kind, own, parent, references in self.rows(
            "SELECT constraint_type, constraint_column_names, referenced_table, "
            f"referenced_column_names FROM duckdb_constraints() WHERE database_name = '{CATALOG}' "
            f"AND schema_name = {literal(schema)} AND table_name = {literal(table)} "
            "ORDER BY constraint_index"
        ):
            if kind == "PRIMARY KEY":
                primary = tuple(own)
            elif kind == "FOREIGN KEY" and (schema, parent) in names:
                foreign.append((tuple(own), names[schema, parent], tuple(references)))
            elif kind == "FOREIGN KEY":
                self.notes.append(unread_key(name, own, f"{schema}.{parent}"))
        return describe_copy(
            self.connection, name, index, columns, primary_key=primary, foreign_keys=foreign
        )

    def rows(self, query: str) -> list[tuple[str, ...]]:
        return self.connection.execute(query).fetchall()
