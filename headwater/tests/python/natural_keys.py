"""`ships`: a store whose foreign keys refer to a category, to a number, and to both at once.

countries (no time)  rows 0..3   code (categorical, the key), number (unique), area
ships (by built)     rows 4..27  id, flag and line (of country ship % 4), tons = 10 ship, built
ports (no time)      rows 28..31 flag and line together, the key, and depth; ships end in one

sinks  derived boolean on ships: all of them at day 40; true where the number is even
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from databases import TinyTable, arrow_tables, asked, sql_types, typed
from headwater.builder.build import build

CODES = ("PT", "SE", 'a "b"', "Ünder\\n")
NUMBERS = (351, 46, 7, 90)
SHIPS = 24
TABLES = {
    "countries": TinyTable(
        sql_types("code TEXT, number INTEGER, area DOUBLE"),
        [(code, number, 1.5 * number) for code, number in zip(CODES, NUMBERS, strict=True)],
    ),
    "ships": TinyTable(
        sql_types("id INTEGER, flag TEXT, line INTEGER, tons DOUBLE, built TIMESTAMP"),
        [
            (ship, CODES[ship % 4], NUMBERS[ship % 4], 10.0 * ship,
             datetime(1970, 1, 1) + timedelta(days=ship))
            for ship in range(1, SHIPS + 1)
        ],
    ),
    "ports": TinyTable(
        sql_types("flag TEXT, line INTEGER, depth DOUBLE"),
        [(code, number, 2.0 * number) for code, number in zip(CODES, NUMBERS, strict=True)],
    ),
}  # fmt: skip
QUERY = "SELECT id, TIMESTAMP '1970-02-10' AS seen, id % 2 = 0 AS sinks FROM ships ORDER BY id"
METADATA: dict[str, Any] = {
    "name": "ships",
    "tables": {
        "countries": {
            "primary_key": "code",
            "columns": typed("code categorical, number numerical, area numerical"),
        },
        "ships": {
            "primary_key": "id",
            "temporal_column": "built",
            "columns": typed(
                "id identifier, flag categorical countries.code, line numerical countries.number, "
                "tons numerical, built timestamp"
            ),
            "foreign_keys": [
                {
                    "columns": ["flag", "line"],
                    "references": {"table": "ports", "columns": ["flag", "line"]},
                }
            ],
        },
        "ports": {
            "primary_key": ["flag", "line"],
            "columns": typed("flag categorical, line numerical, depth numerical"),
        },
    },
    "tasks": {"sinks": asked(QUERY, "ships", "sinks boolean", "seen")},
}


def write_ships(folder: Path) -> Path:
    """`folder`/ships.hw."""
    build(arrow_tables(TABLES), folder / "ships.hw", METADATA, embedder="hash", cache=False)
    return folder / "ships.hw"
