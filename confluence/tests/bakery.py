"""A small chain of bakeries: shops with a composite key, cities with a key of text, sales in time.

The labels come from files whose rows are in no order, and the test file has no target.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import headwater
from small import write_sqlite

CITIES = ("Aachen", "Ulm, Donau", 'Bad "Soden"', "007", "12")
MOODS = ("calm", "hectic", "=closed<b>")
SHOPS = [(city, number) for city in CITIES for number in range(1, 13)]
DAYS = 120  # of sales, one a day and shop, from 2025-01-01
SEEDS_BY_SPLIT = {"train": 40, "val": 12, "test": 9}

KEY, NUMBER = {"stype": "identifier"}, {"stype": "numerical"}
METADATA: dict[str, Any] = {
    "name": "bakery",
    "tables": {
        "cities": {
            "primary_key": "name",
            "columns": {"name": KEY, "mood": {"stype": "categorical"}, "size": NUMBER},
        },
        "shops": {
            "primary_key": ["city", "number"],
            "columns": {
                "city": {**KEY, "foreign_key": "cities.name"}, "number": KEY, "area": NUMBER,
            },
        },
        "sales": {
            "primary_key": "id",
            "temporal_column": "at",
            "columns": {
                "id": KEY, "city": KEY, "number": KEY, "amount": NUMBER,
                "at": {"stype": "timestamp"},
            },
            "foreign_keys": [{
                "columns": ["city", "number"],
                "references": {"table": "shops", "columns": ["city", "number"]},
            }],
        },
    },
    "tasks": {
        "next_sale": {
            "seeds": {split: f"next_sale.{split}.csv" for split in SEEDS_BY_SPLIT},
            "anchor_table": "shops",
            "anchor_key": ["city", "number"],
            "target_column": "amount",
            "target_stype": "numerical",
            "observation_time_column": "asked_at",
        },
        "mood": {
            "query": """SELECT name, TIMESTAMP '2025-02-01' + number * INTERVAL 1 DAY AS asked_at,
                               mood
                        FROM cities JOIN shops ON city = name""",
            "anchor_table": "cities",
            "target_column": "mood",
            "target_stype": "categorical",
            "observation_time_column": "asked_at",
        },
    },
}  # fmt: skip


def amount(shop: int, day: int) -> float:
    """What a shop takes in a day: what kind of shop it is shows in its sales."""
    return float((shop % 7) * 10 + day % 7)


def label_rows(split: str) -> list[tuple[str, int, str]]:
    """Rows of a label file (city, number, asked_at), in the order of no key and no time."""
    start = list(SEEDS_BY_SPLIT).index(split) * 13
    chosen = [(start + 37 * i) % len(SHOPS) for i in range(SEEDS_BY_SPLIT[split])]
    return [
        (*SHOPS[shop], f"2025-0{2 + (7 * i) % 3}-1{i % 9}T06:30:00")
        for i, shop in enumerate(chosen)
    ]


def build(
    folder: Path, *, changed_from: str | None = None, stats_until: str = "2025-03-01"
) -> Path:
    """A store; `changed_from`: sales from that time on are a thousand times as large."""
    folder.mkdir()
    times = [f"2025-{1 + day // 28:02}-{1 + day % 28:02} 12:00:00" for day in range(DAYS)]
    scales = [1000.0 if changed_from is not None and at >= changed_from else 1.0 for at in times]
    source = write_sqlite(folder / "bakery.sqlite", {
        "cities": ("name TEXT PRIMARY KEY, mood TEXT, size REAL",
                   [(city, MOODS[i % 3], 1.0 + i) for i, city in enumerate(CITIES)]),
        "shops": ("city TEXT, number INTEGER, area REAL",
                  [(*key, 20.0 + shop) for shop, key in enumerate(SHOPS)]),
        "sales": ("id INTEGER PRIMARY KEY, city TEXT, number INTEGER, amount REAL, at TIMESTAMP",
                  [(None, *key, scales[day] * amount(shop, day), times[day])
                   for shop, key in enumerate(SHOPS) for day in range(DAYS)]),
    })  # fmt: skip
    for split in SEEDS_BY_SPLIT:
        with (folder / f"next_sale.{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            target = [] if split == "test" else ["amount"]
            writer.writerow(["city", "number", "asked_at", *target])
            for city, number, asked_at in label_rows(split):
                label = [] if split == "test" else [amount(SHOPS.index((city, number)), 3)]
                writer.writerow([city, number, asked_at, *label])
    headwater.build(
        source, folder / "store", metadata=METADATA, seeds_dir=folder, stats_until=stats_until,
    )  # fmt: skip
    return folder / "store"
