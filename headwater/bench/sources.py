"""How many rows a second come from each kind of source, and in how much memory?

    python headwater/bench/sources.py FOLDER [--rows N] [--postgres ADDRESS] [--memory-limit 2GB]

Writes one table of ten columns (keys, numbers, a time, a boolean, a category) as SQLite, Parquet,
CSV and DuckDB into FOLDER, and as table `bench_sources` into the PostgreSQL database, each if it is
not there; then reads each in a process of its own, as `headwater build` does. One JSON line each:
seconds, rows/s, rows per second of processor time (the figure to compare on a busy machine), and
the peak of resident memory over what the process had before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TABLE = """SELECT i AS id, hash(i) % 100000 AS parent, i % 97 AS count,
    (hash(i, 1) % 1000000) / 7 AS price, (hash(i, 2) % 1000000) / 11 AS weight,
    CASE WHEN i % 5 > 0 THEN i / 3 END AS sparse,
    TIMESTAMP '2020-01-01' + to_seconds(i) AS "at", i % 3 = 0 AS open,
    'category ' || (hash(i, 3) % 50) AS kind, 'code ' || (hash(i, 4) % 1000000) AS code
    FROM range({rows}) AS r(i)"""
KINDS = ("sqlite", "parquet", "csv", "duckdb", "postgres")


def write(folder: Path, rows: int, address: str | None) -> dict[str, str]:
    """The sources by kind, written where they are not there."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW t AS {TABLE.format(rows=rows)}")
    sources = {}
    for kind in ("parquet", "csv"):
        sources[kind] = str(folder / kind)
        if not (folder / kind).exists():
            (folder / kind).mkdir()
            connection.execute(f"COPY t TO '{folder / kind / f't.{kind}'}'")
    file = folder / "t.duckdb"
    sources["duckdb"] = f"duckdb:///{file}"
    if not file.exists():
        connection.execute(f"ATTACH '{file}' AS target; CREATE TABLE target.t AS FROM t")
        connection.execute("DETACH target")
    sources["sqlite"] = f"sqlite:///{folder / 't.sqlite'}"
    if not (folder / "t.sqlite").exists():
        write_sqlite(folder / "t.sqlite", connection)
    if address is not None:
        sources["postgres"] = address
        write_postgres(address, connection)
    return sources


def write_sqlite(path: Path, connection: Any) -> None:
    import sqlite3

    target = sqlite3.connect(path)
    target.execute(
        "CREATE TABLE t (id, parent, count, price, weight, sparse, at, open, kind, code)"
    )
    cursor = connection.execute('SELECT * REPLACE (CAST("at" AS VARCHAR) AS "at") FROM t')
    while chunk := cursor.fetchmany(100_000):
        target.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 10)})", chunk)
    target.commit()
    target.close()


def write_postgres(address: str, connection: Any) -> None:
    import adbc_driver_manager as manager
    import adbc_driver_postgresql

    columns = "* REPLACE (CAST(parent AS BIGINT) AS parent)"
    with (
        adbc_driver_postgresql.connect(address) as database,
        manager.AdbcConnection(database) as link,
        manager.AdbcStatement(link) as statement,
    ):
        statement.set_sql_query("DROP TABLE IF EXISTS bench_sources")
        statement.execute_update()
        statement.set_options(**{manager.INGEST_OPTION_TARGET_TABLE: "bench_sources"})
        statement.bind_stream(connection.sql(f"SELECT {columns} FROM t").__arrow_c_stream__())
        statement.execute_update()


def measure(kind: str, source: str, memory_limit: str) -> dict[str, Any]:
    """Read a source once, in this process."""
    from headwater.metadata.selection import Selection
    from headwater.sources.database import open_database
    from headwater.sources.open import load_source

    selection = Selection(tables=("bench_sources",)) if kind == "postgres" else Selection()
    with tempfile.TemporaryDirectory() as folder:
        connection = open_database(Path(folder), memory_limit=memory_limit)
        before = peak_kilobytes()
        start, cpu_start = time.perf_counter(), time.process_time()
        data = load_source(source, connection, selection=selection)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        connection.close()
    peak = peak_kilobytes()
    rows = data.tables[0].row_count
    return {
        "source": kind,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_s": round(rows / seconds),
        "rows_per_cpu_s": round(rows / cpu_seconds),  # of this process, without a server's
        "memory_mb": round((peak - before) / 1024),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
    }


def peak_kilobytes() -> int:
    """Most resident memory this process ever had; getrusage would count its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--postgres", metavar="ADDRESS")
    parser.add_argument(
        "--memory-limit", default="2GB", metavar="SIZE", help="of the process (2GB)"
    )
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)  # one source, in this process
    options = parser.parse_args()
    if options.read:
        print(json.dumps(measure(*options.read, options.memory_limit)), flush=True)
        return
    sources = write(options.folder, options.rows, options.postgres)
    for kind in KINDS:
        if kind in sources:
            command = [sys.executable, __file__, str(options.folder), "--read", kind, sources[kind]]
            command += ["--memory-limit", options.memory_limit]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
