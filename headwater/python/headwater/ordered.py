"""Tables of numbers on their way to the builder: C puts them in order, DuckDB sees them as streams.

DuckDB would sort such a table and keep a copy of it, which was half of the build of a database of
numbers. Here it only reads and converts: its stream goes to `order_rows` (src/ordered.c), which
writes the rows in order to `ordered/t<i>`. `rows.t<i>` is a view of that file, with the number of a
row as `rowid`, as a table would have it. A view reads what a connection knows as `ordered_t<i>`, so
every connection and cursor that asks must be shown the file first. What the queries of tasks read
is a table besides: DuckDB plans by what it knows of tables, and knows nothing of streams.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ._core import OrderedRows, order_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ORDERED_TYPES = frozenset(("BIGINT", "INTEGER", "DOUBLE", "TIMESTAMP", "BOOLEAN"))
KEY_TYPES = frozenset(("BIGINT", "INTEGER", "TIMESTAMP"))
RECORD_BYTES = 8  # of a value, in the records and in the file each
PLACE_BYTES = 32  # of a row while rows are sorted
SHARE_OF_MEMORY = 4  # without a limit a table takes at most a quarter: rows are read at random
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container: a number, or "max"


@dataclass(frozen=True)
class RowOrder:
    """The columns (name, type) of a table in the order of their stream, and those that decide the
    order of its rows: their positions, and whether NULL comes first there."""

    columns: tuple[tuple[str, str], ...]
    keys: tuple[tuple[int, bool], ...]

    def is_for_c(self) -> bool:
        """Whether C takes all of the columns, and compares the keys as DuckDB does."""
        key_types = {self.columns[position][1] for position, _ in self.keys}
        return {kind for _, kind in self.columns} <= ORDERED_TYPES and key_types <= KEY_TYPES

    def bytes(self, row_count: int) -> int:
        return row_count * (2 * RECORD_BYTES * (len(self.columns) + 1) + PLACE_BYTES)


class OrderedTables:
    """The files of one build, in its folder.

    room: bytes that a table may take (default: a quarter of the machine's memory).
    """

    def __init__(self, folder: Path, room: int | None = None) -> None:
        self.folder = folder
        self.room = machine_bytes() // SHARE_OF_MEMORY if room is None else room
        self.files: dict[int, OrderedRows] = {}  # by table

    def path(self, index: int) -> Path:
        return self.folder / f"t{index}"

    def make_folder(self) -> None:
        """Sync it too: what the build's journal says is there must be there after any crash."""
        if self.folder.is_dir():
            return
        self.folder.mkdir()
        parent = os.open(self.folder.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def make(
        self, connection: DuckDBPyConnection, index: int, select: str, order: RowOrder
    ) -> None:
        """Put what a query gives in order, as the view rows.t<index>."""
        self.make_folder()
        streamed = ", ".join(
            f"epoch_us({name}) AS {name}" if kind == "TIMESTAMP" else name
            for name, kind in order.columns
        )
        positions = [position for position, _ in order.keys]
        nulls_first = bytes(first for _, first in order.keys)
        cursor = connection.cursor()
        try:
            rows = cursor.sql(f"SELECT {streamed} FROM ({select})")
            order_rows(self.path(index), rows, len(order.columns), positions, nulls_first)
        finally:
            cursor.close()
        self.take_up(connection, index)
        seen = ", ".join(
            f"make_timestamp({name}) AS {name}" if kind == "TIMESTAMP" else name
            for name, kind in order.columns
        )
        names = ", ".join([*(name for name, _ in order.columns), "number"])
        drop_rows(connection, index)
        connection.execute(
            f"CREATE VIEW rows.t{index} AS "
            f"SELECT {seen}, number AS rowid FROM ordered_t{index} AS o({names})"
        )

    def take_up(self, connection: DuckDBPyConnection, index: int) -> None:
        """Open the file of a table and show it to the build's connection."""
        self.files[index] = OrderedRows(self.path(index))
        self.show(connection, [index])

    def show(self, connection: DuckDBPyConnection, tables: Iterable[int]) -> None:
        """Let a connection, or a cursor, read the views of the tables of which there are files."""
        for index in tables:
            if index in self.files:
                connection.register(f"ordered_t{index}", self.files[index])

    def show_all(self, connection: DuckDBPyConnection) -> None:
        self.show(connection, list(self.files))

    def copy(self, connection: DuckDBPyConnection, index: int, columns: Sequence[str]) -> None:
        """Make the view of a table a table of DuckDB, in the same order; the file stays."""
        connection.execute(f"DROP VIEW IF EXISTS rows.ordered{index}")  # of a killed build
        connection.execute(f"ALTER VIEW rows.t{index} RENAME TO ordered{index}")
        connection.execute(
            f"CREATE TABLE rows.t{index} AS SELECT {', '.join(columns)} FROM rows.ordered{index}"
        )
        connection.execute(f"DROP VIEW rows.ordered{index}")


def drop_rows(connection: DuckDBPyConnection, index: int) -> None:
    """Remove rows.t<index>, a view or a table that a killed build left."""
    kinds = connection.execute(
        "SELECT table_type FROM information_schema.tables "
        "WHERE table_schema = 'rows' AND table_name = ?",
        [f"t{index}"],
    ).fetchall()
    for (kind,) in kinds:
        connection.execute(f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} rows.t{index}")


def machine_bytes() -> int:
    """Memory of the machine, or of the container if that has less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return found
    return min(found, int(limit)) if limit.isdigit() else found
