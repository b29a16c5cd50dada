"""The DuckDB of a build: its settings, its share of the memory, and which version it has to be."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.machine import check_address_space, machine_bytes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Connection: TypeAlias = "DuckDBPyConnection"  # by name, as DuckDB is imported where it is used

DUCKDB_VERSION_MIN = (1, 5, 4)
MEMORY_SIZE = re.compile(r"([0-9]+(?:[.][0-9]+)?) *([KMGT]?i?B)", re.IGNORECASE)
MEMORY_UNITS = {"B": 1} | {
    unit + suffix: base ** (power + 1)
    for power, unit in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("IB", 1024))
}
DUCKDB_BYTES = 768 << 20  # of address space, for the library and a small build
OWN_BYTES = 176_000_000  # Python, the libraries and the builder's own memory: not DuckDB's
# The clock, as words that SQL takes without brackets.
CLOCK_WORDS = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
# Functions of the clock, the settings or the version that DuckDB does not call such.
CLOCK_FUNCTIONS = {
    "ago", "current_localtime", "current_localtimestamp", "current_setting", "getvariable",
    "pg_conf_load_time", "pg_postmaster_start_time", "version",
}  # fmt: skip
NO_ROOM = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
SPILL_LIMIT = "max_temp_directory_size"  # by default what is free on the disk
THREAD_BYTES = 64_000_000  # of DuckDB's share, for each of its threads
SHARE_OF_MEMORY = 4  # of the machine's: what DuckDB may take if nothing is said


def open_database(
    folder: Path, *, memory_limit: str | None = None, locked: bool = False
) -> Connection:
    """The database of a build: times in UTC, nothing taken from the caller's variables."""
    duckdb = import_duckdb()
    connection: Connection = duckdb.connect(str(folder / "work.duckdb"))
    settings = {
        "temp_directory": f"'{str(folder / 'spill').replace(chr(39), chr(39) * 2)}'",
        "TimeZone": "'UTC'",
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "arrow_large_buffer_size": "true",  # texts of one batch may pass 2 GiB
        "force_compression": "'uncompressed'",  # what is read once or twice and thrown away
    }
    settings |= memory_settings(memory_limit)
    if locked:
        settings |= {"threads": "1", "enable_external_access": "false"}
        settings["lock_configuration"] = "true"
    try:
        hide_progress_bar(connection)
        for name, value in settings.items():
            connection.execute(f"SET GLOBAL {name} = {value}")
    except duckdb.Error as error:
        connection.close()
        raise ValueError(f"DuckDB does not take the setting: {error}") from error
    return connection


def unrepeatable_functions(connection: Connection) -> set[str]:
    """Names of functions, and words, that give another answer tomorrow."""
    rows = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT' "
        "AND function_type = 'scalar'"
    ).fetchall()
    return {row[0] for row in rows} - {"error"} | set(CLOCK_WORDS) | CLOCK_FUNCTIONS


def hide_progress_bar(connection: Connection) -> None:
    """Turn DuckDB's progress bar off if it is on. In Jupyter DuckDB needs ipywidgets to change this
    setting; without ipywidgets the bar is off."""
    (is_on,) = one_row(connection, "SELECT current_setting('enable_progress_bar')")
    if is_on:
        connection.execute("SET enable_progress_bar = false")


def memory_settings(memory_limit: str | None) -> dict[str, str]:
    """DuckDB's share of what the build may take, and as many threads as have room in it. Without a
    limit it spills what a quarter of the machine's memory does not hold: sorting a large table
    takes all that it gets."""
    if memory_limit is None:
        return {"memory_limit": f"'{machine_bytes() // SHARE_OF_MEMORY}B'"}
    size = memory_bytes(memory_limit)
    share = int(max(size - OWN_BYTES, size / 4))
    threads = min(max(1, share // THREAD_BYTES), len(os.sched_getaffinity(0)))
    return {"memory_limit": f"'{share}B'", "threads": str(threads)}


def memory_bytes(memory_limit: str) -> float:
    match = MEMORY_SIZE.fullmatch(memory_limit.strip())
    size = 0 if match is None else float(match[1]) * MEMORY_UNITS[match[2].upper()]
    if size <= 0:
        raise ValueError(f"memory_limit is '{memory_limit}', expected a size such as '4GB'")
    return size


def import_duckdb() -> Any:
    """The duckdb module, or an error that says how to get it."""
    if "duckdb" not in sys.modules:
        check_address_space(DUCKDB_BYTES, "DuckDB")
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise ImportError("building needs DuckDB: pip install 'duckdb<2'") from error
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_VERSION_MIN <= version < (2,):
        raise ImportError(f"building needs duckdb >= 1.5.4, < 2, found {duckdb.__version__}")
    return duckdb


def full_disk(error: BaseException) -> BaseException | None:
    """What DuckDB or C said of a disk without room, where that is why an error came to be."""
    duckdb = import_duckdb()
    kinds = (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException)
    found: BaseException | None = error
    while found is not None:
        text, of_c = str(found), isinstance(found, OSError) and found.errno is None
        is_full = (of_c or isinstance(found, kinds)) and any(words in text for words in NO_ROOM)
        if is_full or (isinstance(found, duckdb.OutOfMemoryException) and SPILL_LIMIT in text):
            break
        found = found.__cause__
    return found


def time_zones(connection: Connection) -> list[str]:
    """Names of the time zones that DuckDB knows."""
    rows = connection.execute("SELECT name FROM pg_timezone_names()").fetchall()
    return [row[0] for row in rows]


def one_row(connection: Connection, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The one row a query gives."""
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return row


def count_rows(connection: Connection, query: str) -> int:
    """The one integer a query gives, 0 for NULL."""
    return int(one_row(connection, query)[0] or 0)
