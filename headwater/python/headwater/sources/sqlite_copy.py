"""SQLite files that cannot be read in their place, and the copies that are read instead.

A database in WAL mode has two files next to it while programs use it: `-wal`, with rows that are
not in the file yet, and `-shm`, by which they agree on them. SQLite makes both if they are missing,
and leaves them. So the file is read in its place only if both are there, and -shm is not written.
Else a copy is read, with the rows of a -wal that a program left, made in the folder of the build's
database.

An application may also give SQLite a collation of its own, by which a key is then ordered. SQLite
reads no such table without it. In a copy the collation is called NOCASE: reading a table from its
begin to its end compares nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.sources.adbc import Reader
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal

MODE_BYTE = 18  # of the header, from which on two bytes say how the file is written
WAL_MODE = b"\2"
KNOWN = ("binary", "nocase", "rtrim")  # SQLite lists those of a schema with them
COLLATE = re.compile(
    r"""\bCOLLATE\s+(?:"([^"]+)"|'([^']+)'|`([^`]+)`|\[([^]]+)\]|([\w$]+))""", re.IGNORECASE
)


def writes_ahead(path: Path) -> bool:
    """Whether a database is in WAL mode. No connection of this process may hold a lock on it."""
    with open(path, "rb") as file:
        return file.read(MODE_BYTE + 1)[MODE_BYTE:] == WAL_MODE


def has_both_files(path: Path) -> bool:
    """Whether a database in WAL mode can be read in its place, without a trace."""
    return all(os.access(f"{path}{end}", os.R_OK) for end in ("-wal", "-shm"))


@contextmanager
def copied(path: Path, connection: Connection) -> Iterator[Path]:
    """A copy of a database and its -wal, for as long as it is read.

    While the file stays as it is nothing is moved from -wal into it, so the copy of
    -wal after it has all that programs had written by then."""
    (folder,) = one_row(connection, "SELECT current_setting('temp_directory')")
    copy = Path(folder).parent / "copy.sqlite"
    copy_wal, wal = Path(f"{copy}-wal"), Path(f"{path}-wal")
    try:
        check_regular(wal)
        before = path.stat()
        shutil.copyfile(path, copy)
        if wal.exists():
            if not os.access(wal, os.R_OK):
                raise SourceError(
                    f"no right to read '{wal}', which has rows of the SQLite file '{path}'"
                )
            shutil.copyfile(wal, copy_wal)
        after = path.stat()
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise SourceError(
                f"the SQLite file '{path}' changed while it was copied to be read: try again when "
                "no program writes to it"
            )
        yield copy
    finally:
        for file in (copy, copy_wal, Path(f"{copy}-shm"), Path(f"{copy}-journal")):
            file.unlink(missing_ok=True)


def unknown_collations(file: Reader) -> dict[str, list[str]]:
    """The collations of a schema that SQLite lacks, each with the tables that it is of."""
    found: dict[str, list[str]] = {}
    for table, sql in file.rows(
        "SELECT tbl_name, sql FROM sqlite_master WHERE type IN ('table', 'index') "
        "AND sql LIKE '%collate%' ORDER BY rowid",
        "the list of tables",
    ):
        for match in COLLATE.finditer(sql):
            name = next(filter(None, match.groups()))
            if name.lower() not in KNOWN and table not in found.setdefault(name.lower(), []):
                found[name.lower()].append(table)
    return found


def call_nocase(file: Reader, collations: Mapping[str, list[str]]) -> None:
    """Write NOCASE for some collations in the schema of a copy, which is opened anew after."""

    def plain(match: re.Match[str]) -> str:
        name = next(filter(None, match.groups()))
        return "COLLATE NOCASE" if name.lower() in collations else match[0]

    file.run("PRAGMA writable_schema = ON")
    for row, sql in file.rows("SELECT rowid, sql FROM sqlite_master WHERE sql LIKE '%collate%'"):
        file.run(
            f"UPDATE sqlite_master SET sql = {literal(COLLATE.sub(plain, sql))} WHERE rowid = {row}"
        )


def collation_note(name: str, tables: list[str]) -> str:
    return (
        f"the collation '{name}' of {', '.join(tables)} is one of the program that wrote the file, "
        "which SQLite lacks here: it is taken for NOCASE, by which a to z are A to Z"
    )
