"""Builds a store from Parquet files of numeric tables and says what it cost.

The question it is for: how many rows does one core build in a second, and how much memory does a
build take of a database that is larger than its limit?

    python headwater/bench/build.py [--rows 2000000] [--repeat 3]
    python headwater/bench/build.py --in-order
    python headwater/bench/build.py --rows 11000000 --repeat 1 --memory-limit 256MB

Customers (a tenth of the rows) place orders; both have integer keys, a time and numbers; orders
come in no order of time, or in the order of their keys and times (--in-order). The first line is
of a small build that loads the libraries; medians are over `--repeat` builds after it. Peak memory
is of the whole process, file pages that the kernel may take back at any time included;
`peak_private_mb` is without those (sampled every 20 ms).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import headwater

WARM_ROWS = 20_000
TIME_SECONDS = 200_000_000  # in which orders are placed
SAMPLE_SECONDS = 0.02


def write_tables(folder: Path, rows: int, in_order: bool) -> None:
    """customers.parquet and orders.parquet, the same bytes every time."""
    folder.mkdir(parents=True)
    customers = rows // 10
    second = f"i * {TIME_SECONDS} // {rows}" if in_order else f"hash(i, 5) % {TIME_SECONDS}"
    connection = duckdb.connect()

    def real(salt: int) -> str:
        return f"(hash(i, {salt}) % 1000007) / 1000007.0"

    numbers = ", ".join(f"{real(10 + k)} AS x{k}" for k in range(3))
    counts = ", ".join(f"CAST(hash(i, {20 + k}) % 1000 AS INTEGER) AS n{k}" for k in range(3))
    statements = {
        "customers": f"""SELECT i AS customer_id, TIMESTAMP '2015-01-01' + to_seconds(i * 10) AS
            joined_at, {real(1)} AS a, hash(i, 2) % 1000 AS b, {real(3)} AS c
            FROM range({customers}) t(i)""",
        "orders": f"""SELECT i AS order_id, CAST(hash(i, 4) % {customers} AS BIGINT) AS
            customer_id, TIMESTAMP '2016-01-01' + to_seconds(CAST({second} AS BIGINT)) AS
            ordered_at, {numbers}, {counts} FROM range({rows - customers}) t(i)""",
    }
    for name, statement in statements.items():
        connection.execute(f"COPY ({statement}) TO '{folder / name}.parquet'")


def metadata() -> dict[str, Any]:
    identifier, number = {"stype": "identifier"}, {"stype": "numerical"}
    stamp = {"stype": "timestamp"}
    customer = {"stype": "identifier", "foreign_key": "customers.customer_id"}
    columns = {"customer_id": identifier, "joined_at": stamp, "a": number, "b": number, "c": number}
    order = {"order_id": identifier, "customer_id": customer, "ordered_at": stamp}
    order |= {name: number for name in ("x0", "x1", "x2", "n0", "n1", "n2")}
    return {
        "name": "numbers",
        "tables": {
            "customers": {
                "primary_key": "customer_id",
                "temporal_column": "joined_at",
                "columns": columns,
            },
            "orders": {
                "primary_key": "order_id",
                "temporal_column": "ordered_at",
                "columns": order,
            },
        },
    }


def generate(folder: Path, rows: int, in_order: bool) -> None:
    """In a process of its own, whose memory is not the build's."""
    process = multiprocessing.get_context("spawn").Process(
        target=write_tables, args=(folder, rows, in_order)
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("the tables could not be generated")


class MemoryWatch(threading.Thread):
    """The largest private memory of this process while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_kb, self.stopped = 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(SAMPLE_SECONDS):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.peak_kb = max(self.peak_kb, int(line.split()[1]))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def build_once(folder: Path, memory_limit: str | None) -> tuple[float, float, dict[str, Any]]:
    """Wall and CPU seconds of a build, and the store's metadata."""
    shutil.rmtree(folder / "store", ignore_errors=True)
    start, cpu = time.perf_counter(), cpu_seconds()
    report = headwater.build(
        folder / "source", folder / "store", metadata(), memory_limit=memory_limit
    )
    return time.perf_counter() - start, cpu_seconds() - cpu, report.metadata


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--in-order", action="store_true", help="orders by key and time")
    parser.add_argument("--memory-limit", metavar="SIZE")
    parser.add_argument("--folder", type=Path, help="where to work (a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        generate(Path(name) / "warm" / "source", WARM_ROWS, arguments.in_order)
        build_once(Path(name) / "warm", arguments.memory_limit)
        generate(Path(name) / "source", arguments.rows, arguments.in_order)
        watch = MemoryWatch()
        watch.start()
        runs = [build_once(Path(name), arguments.memory_limit) for _ in range(arguments.repeat)]
        watch.stopped.set()
    wall = statistics.median(run[0] for run in runs)
    cpu = statistics.median(run[1] for run in runs)
    line = {
        "rows": arguments.rows,
        "in_order": arguments.in_order,
        "csv_bytes": runs[0][2]["csv_bytes"],
        "repeat": arguments.repeat,
        "cores": len(os.sched_getaffinity(0)),
        "memory_limit": arguments.memory_limit,
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "rows_per_s": round(arguments.rows / wall),
        "rows_per_cpu_s": round(arguments.rows / cpu),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "peak_private_mb": watch.peak_kb >> 10,
    }
    json.dump(line, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
