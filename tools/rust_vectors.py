"""Makes what the tests of the Rust crates compare with: two stores, and their epochs by Python.

    python tools/rust_vectors.py FOLDER [--resume]

FOLDER gets `shop.store`, `keys.store` (whose tables have categories and numbers as primary keys
that others refer to) and `epochs.txt`. A line of that is

    epoch STORE SPLIT TASK EPOCH OPTION=VALUE ...    options by their names in C
    array BATCH NAME SHAPE HASH                      of the epoch above; XXH64 of the bytes

and `states.txt`, in which each `state STORE OPTION=VALUE ...` is followed by the state of a sampler
after three batches of train and one of val, and by the arrays of the fourth. In `pools.txt` each
`pool STORE SPLIT REQUIRE_LABEL RANK WORLD_SIZE OPTION=VALUE ...` is followed by the state of a pool
of seeds after two batches, and by the arrays of the third. `prometheus.txt` has for each `sampler
OPTION=VALUE ...` on the shop the names, types and labels of stats_prometheus. Nothing is made if
FOLDER has them already from the same library and the same script.

--resume: Python continues the samplers and pools that the Rust tests saved in files of the same
form, `states_of_rust.txt` and `pools_of_rust.txt`; the status is 1 if a next batch differs.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from headwater.binding.hashing import hash64
from headwater.binding.library import LIBRARY
from headwater.binding.options import NAMES
from headwater.shop import main as write_shop

import headwater

ROOT = Path(__file__).parents[1]
CUSTOMERS = 120
KEYS_SQL = """
CREATE TABLE countries (code TEXT PRIMARY KEY, area DOUBLE);
CREATE TABLE years (year INTEGER PRIMARY KEY, growth DOUBLE);
CREATE TABLE visits (
    visit_id INTEGER PRIMARY KEY, code TEXT REFERENCES countries, year INTEGER REFERENCES years,
    day TIMESTAMP, spent DOUBLE, note TEXT);
"""
KEYS: dict[str, Any] = {
    "name": "keys",
    "tables": {
        "countries": {
            "primary_key": "code",
            "columns": {"code": {"stype": "categorical"}, "area": {"stype": "numerical"}},
        },
        "years": {
            "primary_key": "year",
            "columns": {"year": {"stype": "numerical"}, "growth": {"stype": "numerical"}},
        },
        "visits": {
            "primary_key": "visit_id",
            "temporal_column": "day",
            "columns": {
                "visit_id": {"stype": "identifier"},
                "code": {"stype": "categorical", "foreign_key": "countries.code"},
                "year": {"stype": "numerical", "foreign_key": "years.year"},
                "day": {"stype": "timestamp"},
                "spent": {"stype": "numerical"},
                "note": {"stype": "text"},
            },
        },
    },
    "tasks": {
        "spent": {
            "anchor_table": "visits",
            "target_column": "spent",
            "target_stype": "numerical",
            "query": "SELECT visit_id, day AS obs_time, spent FROM visits",
        }
    },
}
# (split, task, epoch, options); a task of None: all tasks in turn.
SETS: tuple[dict[str, Any], ...] = (
    {},
    {"max_rows": 32, "with_rows": True, "attention_masks": True},
    {"layout": "compact"},
    {"sequence_length": 256, "packing": True},
    {"layout": "flat"},
    {"mask_ratio": 0.15},
    {"objective": "masked_cells"},
    {"objective": "masked_cells", "seed_tables": []},  # by option_sets
    {"sequence_length": 128, "peer_labels": 16, "label_rows": 4, "child_counts": True},
    {"layout": "compact", "text_mode": "numbers"},
    {"child_order": "recent", "width_scope": "row", "max_hops": 2, "cell_dropout": 0.1},
    {"staleness_zero_share": 0.5, "staleness_max_days": 30.0, "seed": 7},
)
# (split, require_label, rank, world_size, options); the tables by pools_on.
POOLS: tuple[tuple[str, bool, int, int, dict[str, Any]], ...] = (
    ("train", False, 0, 1, {}),
    ("val", True, 1, 3, {"seed": 7, "split_seed": 9}),
    ("train", True, 1, 2, {"task_weights": [2.0]}),
    (
        "train",
        False,
        0,
        2,
        {"seed_tables": [], "task_weights": [3.0, 1.0], "split_ratios": [0.5, 0.25, 0.25]},
    ),
    ("train", False, 0, 1, {"seed_tables": [], "together": True}),
    ("val", True, 1, 3, {"seed": 7, "together": True}),
)
REPORTING: tuple[dict[str, Any], ...] = (
    {},
    {"packing": True, "rank": 1, "world_size": 2},
    {"layout": "flat"},
)
FIRST_TABLES = {"shop": "customers", "keys": "years"}
LAST_TABLES = {"shop": "reviews", "keys": "visits"}  # whose rows are seeds in one set
COMMON = {"sequence_length": 96, "batch_size": 16}


def make_stores(folder: Path) -> dict[str, tuple[Path, str, str]]:
    """Path, task and last table of each store by its name."""
    shop, keys = folder / "shop.sqlite", folder / "keys.sqlite"
    write_shop([str(shop), "--customers", str(CUSTOMERS)])
    examples = ROOT / "examples" / "shop" / "shop.json"
    headwater.build(f"sqlite:///{shop}", folder / "shop.store", examples)
    with sqlite3.connect(keys) as connection:
        connection.executescript(KEYS_SQL)
        codes = [f"{first}{second}" for first in "abcd" for second in "xyz"]
        areas = [(code, 10.0 + place) for place, code in enumerate(codes)]
        connection.executemany("INSERT INTO countries VALUES (?, ?)", areas)
        growth = [(year, (year % 7) / 4) for year in range(2000, 2020)]
        connection.executemany("INSERT INTO years VALUES (?, ?)", growth)
        visits = [
            (i, codes[i * 5 % 12], 2000 + i * 3 % 20, f"20{i // 24:02d}-0{1 + i % 9}-11 08:00:00",
             None if i % 11 == 0 else i % 13 + areas[i * 5 % 12][1], f"note {i % 17}")
            for i in range(480)
        ]  # fmt: skip
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", visits)
    connection.close()
    headwater.build(f"sqlite:///{keys}", folder / "keys.store", KEYS)
    return {
        "shop": (folder / "shop.store", "churn", LAST_TABLES["shop"]),
        "keys": (folder / "keys.store", "spent", LAST_TABLES["keys"]),
    }


def epochs(stores: dict[str, tuple[Path, str, str]]) -> Iterator[str]:
    """The lines of all epochs."""
    for name, (path, task, last) in stores.items():
        with headwater.Store(path) as store:
            for options in option_sets(last):
                what = last if "seed_tables" in options else task
                for split in ("train", "val"):
                    for rank, world_size in ((0, 1), (0, 2), (1, 2)):
                        of_rank = options | {"rank": rank, "world_size": world_size}
                        yield from epoch(store, name, split, what, of_rank)


def epoch(
    store: headwater.Store, name: str, split: str, task: str, options: dict[str, Any]
) -> Iterator[str]:
    """The lines of one epoch, the second of its task."""
    yield " ".join(["epoch", name, split, task, "1", *words_of(options)])
    with sampler_of(store, options) as sampler:
        for number, batch in enumerate(sampler.epoch(split, task, 1)):
            yield from lines_of(number, batch)


def states(stores: dict[str, tuple[Path, str, str]]) -> Iterator[str]:
    """The lines of all states."""
    for name, (path, _, last) in stores.items():
        with headwater.Store(path) as store:
            for options in option_sets(last):
                with sampler_of(store, options) as sampler:
                    for _ in range(3):
                        sampler.next_train_batch()
                    if options.get("layout") != "flat":  # which has a stream of train alone
                        sampler.next_val_batch()
                    yield " ".join(["state", name, *words_of(options)])
                    yield json.dumps(sampler.state_dict())
                    yield from lines_of(0, sampler.next_train_batch())


def option_sets(last: str) -> Iterator[dict[str, Any]]:
    """SETS with what they have in common, for a store by its last table."""
    for chosen in SETS:
        tables = {"seed_tables": [last]} if "seed_tables" in chosen else {}
        yield COMMON | chosen | tables


def pools(stores: dict[str, tuple[Path, str, str]]) -> Iterator[str]:
    """The lines of all pools."""
    for name, (path, _, _) in stores.items():
        with headwater.Store(path) as store:
            for *given, options in pools_on(name):
                pool = pool_of(store, *given, options)
                pool.next_batch(5)
                pool.next_batch(len(pool))
                yield " ".join(["pool", name, *map(str, given), *words_of(options)])
                yield json.dumps(pool.state_dict())
                yield from drawn(pool.next_batch(7))


def pools_on(name: str) -> Iterator[tuple[Any, ...]]:
    """POOLS, with the seed tables of a store by its name."""
    for *given, options in POOLS:
        tables = {"seed_tables": [LAST_TABLES[name], FIRST_TABLES[name]]}
        yield *given, options | (tables if "seed_tables" in options else {})


def pool_of(
    store: headwater.Store, split: str, labelled: bool, rank: int, world_size: int, options: Any
) -> headwater.SeedPool:
    given = {"rng_seed" if name == "seed" else name: value for name, value in options.items()}
    pool = headwater.SeedPool(store, split=split, require_label=labelled, **given)
    pool.partition_for_rank(rank, world_size)
    return pool


def drawn(batch: headwater.SeedBatch) -> Iterator[str]:
    yield f"task {batch.task}"
    tasks = np.zeros(0, np.uint32) if batch.tasks is None else batch.tasks
    yield f"tasks {hash64(tasks.view(np.uint8)):016x}"
    for name in ("seeds", "epochs", "rows", "obs_times", "labels"):
        yield f"{name} {hash64(np.ascontiguousarray(getattr(batch, name)).view(np.uint8)):016x}"


def reports(stores: dict[str, tuple[Path, str, str]]) -> Iterator[str]:
    """What stats_prometheus has of samplers that made a batch, without its numbers."""
    with headwater.Store(stores["shop"][0]) as store:
        for options in REPORTING:
            yield " ".join(["sampler", *words_of(COMMON | options)])
            with sampler_of(store, COMMON | options) as sampler:
                sampler.next_train_batch()
                for line in sampler.stats_prometheus().splitlines():
                    yield line if line.startswith("#") else line.rsplit(" ", 1)[0]


def words_of(options: dict[str, Any]) -> list[str]:
    return [
        f"{option}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for option, value in options.items()
    ]


def sampler_of(store: headwater.Store, options: dict[str, Any]) -> headwater.Sampler:
    """A sampler by options of C's names."""
    if "staleness_zero_share" in options:
        shares = options["staleness_zero_share"], options["staleness_max_days"]
        options = {key: value for key, value in options.items() if "staleness" not in key}
        options["staleness"] = shares
    given = {NAMES.get(option, option): value for option, value in options.items()}
    return headwater.Sampler(store=store, num_threads=1, **given)


def lines_of(number: int, batch: headwater.Batch) -> Iterator[str]:
    for field, array in sorted({**batch, **batch.info}.items()):
        shape = ",".join(map(str, array.shape))
        bytes_ = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield f"array {number} {field} {shape} {hash64(bytes_):016x}"


def resume(folder: Path) -> int:
    """How many samplers and pools continue otherwise than in Rust."""
    faults = count = 0
    blocks = (folder / "states_of_rust.txt").read_text().split("state ")[1:]
    for block in blocks:
        head, document, *expected = block.splitlines()
        name, words = head.split(" ", 1)
        options = next(
            one for one in option_sets(LAST_TABLES[name]) if " ".join(words_of(one)) == words
        )
        with (
            headwater.Store(folder / f"{name}.store") as store,
            sampler_of(store, options) as sampler,
        ):
            sampler.load_state_dict(json.loads(document))
            faults += sorted(lines_of(0, sampler.next_train_batch())) != sorted(expected)
            count += 1
    blocks = (folder / "pools_of_rust.txt").read_text().split("pool ")[1:]
    for number, block in enumerate(blocks):
        head, document, *expected = block.splitlines()
        name, *_ = head.split(" ")
        *given, options = list(pools_on(name))[number % len(POOLS)]
        with headwater.Store(folder / f"{name}.store") as store:
            pool = pool_of(store, *given, options)
            pool.load_state_dict(json.loads(document))
            faults += list(drawn(pool.next_batch(7))) != expected
            count += 1
    print(f"Python continued {count - faults} of {count} states of Rust with the same batch")
    return faults + (count != 2 * (len(SETS) + len(POOLS)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes what the Rust tests compare with.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", action="store_true", help="continue what Rust saved")
    arguments = parser.parse_args()
    folder = arguments.folder
    if arguments.resume:
        return int(resume(folder) > 0)
    made = f"{hash64(LIBRARY.read_bytes()):016x} {hash64(Path(__file__).read_bytes()):016x}\n"
    stamp = folder / "made"
    if stamp.exists() and stamp.read_text() == made:
        return 0
    stamp.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("shop.sqlite", "keys.sqlite"):
        (folder / name).unlink(missing_ok=True)
    stores = make_stores(folder)
    for name, lines in (
        ("epochs", epochs(stores)),
        ("states", states(stores)),
        ("pools", pools(stores)),
        ("prometheus", reports(stores)),
    ):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    stamp.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
