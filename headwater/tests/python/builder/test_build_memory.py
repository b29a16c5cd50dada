"""A build keeps its memory limit with a database four times as large.

The build runs in a process of its own, whose private memory is read every few milliseconds. Pages
of mapped files are not private: the kernel takes them back as it needs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from databases import typed

LIMIT_BYTES = 256_000_000
DEVICES, READINGS, SENSORS = 100_000, 7_000_000, 6  # numbers of up to 18 digits

SENSOR_COLUMNS = ", ".join(
    f"(hash(range * {SENSORS} + {i}) >> 11) / 9007199254740992.0 AS s{i}" for i in range(SENSORS)
)
TABLES = f"""
    COPY (SELECT range AS device_id, hash(range) % 1000 / 7.0 AS score FROM range({DEVICES}))
    TO '{{folder}}/devices.parquet';
    COPY (SELECT range AS reading_id, hash(range) % {DEVICES} AS device_id,
          TIMESTAMP '2024-01-01' + INTERVAL 1 SECOND * CAST(hash(range + 1) % 60000000 AS BIGINT)
          AS read_at, {SENSOR_COLUMNS} FROM range({READINGS}))
    TO '{{folder}}/readings.parquet';
"""
CHILD = """
import json, sys, threading
from headwater import build

peak_kb, done = 0, threading.Event()

def watch():
    global peak_kb
    while not done.wait(0.005):
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon:"):
                peak_kb = max(peak_kb, int(line.split()[1]))

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
limit = None if sys.argv[3] == "none" else sys.argv[3]
report = build(sys.argv[1], sys.argv[2], json.loads(sys.argv[4]), memory_limit=limit, cache=False)
done.set()
tables = {t["name"]: t["row_range"][1] - t["row_range"][0] for t in report.metadata["tables"]}
print(json.dumps({"peak": peak_kb * 1024, "csv": report.metadata["csv_bytes"], "rows": tables}))
"""


def metadata() -> dict[str, object]:
    """No order of time in the readings, so they are sorted too."""
    identifier, number = {"stype": "identifier"}, {"stype": "numerical"}
    sensors = {f"s{i}": number for i in range(SENSORS)}
    return {
        "name": "large",
        "tables": {
            "devices": {
                "primary_key": "device_id",
                "columns": {"device_id": identifier, "score": number},
            },
            "readings": {
                "primary_key": "reading_id",
                "temporal_column": "read_at",
                "columns": {
                    "reading_id": identifier,
                    **typed("device_id identifier devices.device_id, read_at timestamp"),
                    **sensors,
                },
            },
        },
    }


@pytest.mark.release
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_database_four_times_the_limit_builds_within_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with duckdb.connect() as connection:
        connection.execute(TABLES.format(folder=source))
    arguments = [source, tmp_path / "store", str(LIMIT_BYTES) + "B", json.dumps(metadata())]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == {"devices": DEVICES, "readings": READINGS}
    assert found["csv"] > 4 * LIMIT_BYTES
    assert found["peak"] < LIMIT_BYTES
