"""What trees see of parents and their parents, worked out by hand on a small video shop.

films    id  released  stars  award  awarded    inventory  id  film  store    stores  id  size
         1          0      3      1       50               10  1     1                1     10
         2         20      9      0       25               20  2     2                2     20
rentals  id   copy  made  taken_from  back_to  back
         100  10       5  1           1           8
         101  20      10  2           1          60
         102  -       60  1           2          61
award is known on `awarded`, rentals.back_to on `back`; inventory and stores have no times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from small import labelled, write_sqlite

from confluence.config import preset
from confluence.data.tasks import SPLITS
from confluence.data.verification import open_store
from confluence.scores.metrics import metrics_of, ranking_measure
from confluence.trees.features import seeds_of
from confluence.trees.own_columns import OwnColumns, find_ways
from confluence.trees.tree_baselines import tree_baselines

DAY = 86_400_000_000
NAN = np.nan
FILMS: list[tuple[Any, ...]] = [(1, 0, 3, 1, 50), (2, 20, 9, 0, 25)]
INVENTORY: list[tuple[Any, ...]] = [(10, 1, 1), (20, 2, 2)]
RENTALS: list[tuple[Any, ...]] = [
    (100, 10, 5, 1, 1, 8), (101, 20, 10, 2, 1, 60), (102, None, 60, 1, 2, 61),
]  # fmt: skip
ASKED: list[tuple[Any, ...]] = [  # rental, day, answer, split
    (100, 6, 1, "train"), (100, 55, 0, "train"), (101, 15, 1, "train"), (101, 30, 0, "test"),
    (102, 70, 1, "train"),
]  # fmt: skip
NAMES = (
    "made", "rentals.taken_from > size", "rentals.back_to > size",
    "rentals.copy > inventory.film > released", "rentals.copy > inventory.film > stars",
    "rentals.copy > inventory.film > award", "rentals.copy > inventory.store > size", "row age",
)  # fmt: skip


def date(day: float) -> str:
    return str(np.datetime64(int(day * DAY), "us")).replace("T", " ")


def build(
    folder: Path, *, films: list[tuple[Any, ...]] = FILMS,
    inventory: list[tuple[Any, ...]] = INVENTORY, rentals: list[tuple[Any, ...]] = RENTALS,
    asked: list[tuple[Any, ...]] = ASKED, hidden: tuple[str, ...] = (),
) -> Path:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    source = write_sqlite(folder / "shop.sqlite", {
        "films": (
            "id INTEGER PRIMARY KEY, released TIMESTAMP, stars REAL, award REAL, awarded TIMESTAMP",
            [(key, date(out), stars, award, date(at)) for key, out, stars, award, at in films],
        ),
        "stores": ("id INTEGER PRIMARY KEY, size REAL", [(1, 10), (2, 20)]),
        "inventory": ("id INTEGER PRIMARY KEY, film INT, store INT", inventory),
        "rentals": (
            "id INTEGER PRIMARY KEY, copy INT, made TIMESTAMP, taken_from INT, back_to INT,"
            " back TIMESTAMP",
            [(key, copy, date(made), *stores, date(back))
             for key, copy, made, *stores, back in rentals],
        ),
        "asked": (
            "rental INT, asked_at TIMESTAMP, answer BOOLEAN, split TEXT",
            [(rental, date(at), answer, split) for rental, at, answer, split in asked],
        ),
    })  # fmt: skip
    key, number, time = {"stype": "identifier"}, {"stype": "numerical"}, {"stype": "timestamp"}
    to_store = {**key, "foreign_key": "stores.id"}
    instant = {"time_resolution": "instant", "primary_key": "id"}
    metadata = {
        "tables": {
            "films": {**instant, "temporal_column": "released", "columns": {
                "id": key, "released": time, "stars": number,
                "award": {**number, "known_at": "awarded"}, "awarded": {"stype": "ignored"},
            }},
            "stores": {"primary_key": "id", "columns": {"id": key, "size": number}},
            "inventory": {"primary_key": "id", "columns": {
                "id": key, "film": {**key, "foreign_key": "films.id"}, "store": to_store,
            }},
            "rentals": {**instant, "temporal_column": "made", "columns": {
                "id": key, "copy": {**key, "foreign_key": "inventory.id"}, "made": time,
                "taken_from": to_store, "back_to": {**to_store, "known_at": "back"},
                "back": {"stype": "ignored"},
            }},
            "asked": {"graph": False, "columns": {
                "rental": key, "asked_at": time, "answer": {"stype": "boolean"},
                "split": {"stype": "categorical"},
            }},
        },
        "tasks": {"t": {
            "query": "SELECT rental, asked_at AS obs_time, answer, split FROM asked",
            "anchor_table": "rentals", "anchor_key": "rental", "target_column": "answer",
            "target_stype": "boolean", "observation_time_column": "obs_time",
            "split_column": "split", "hidden_columns": list(hidden),
        }},
    }  # fmt: skip
    headwater.build(source, folder / "store", metadata=metadata)
    return folder / "store"


@pytest.fixture(scope="module")
def video_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("video"))


def features(store: Path, **settings: Any) -> tuple[tuple[str, ...], dict[tuple[int, int], Any]]:
    """Names, and values by rental and day."""
    cfg = preset("tiny", **settings)
    task, labels = labelled(store, cfg, "t")
    every = np.arange(labels.splits.size)
    questions = seeds_of(labels, every, 2**63 - 1, inclusive=task.inclusive)
    with OwnColumns(open_store(store), cfg, task) as reader:
        found = reader.features(questions)
    opened = headwater.Store(store)
    rentals = [int(opened.row(int(row))["key"]["id"]) for row in labels.anchor_rows]
    days = [int(time // DAY) for time in labels.obs_times]
    return found.names, dict(zip(zip(rentals, days, strict=True), found.values, strict=True))


def test_a_parent_and_a_column_are_seen_from_when_they_are_known(video_shop: Path) -> None:
    names, found = features(video_shop)
    assert names == NAMES
    expected = {
        (100, 6): [1, 10, NAN, 6, 3, NAN, 10, 1],  # neither back yet nor awarded
        (100, 55): [50, 10, 10, 55, 3, 1, 10, 50],  # back to the store that it was taken from
        (101, 15): [5, 20, NAN, NAN, NAN, NAN, 20, 5],  # film 2 comes out on day 20
        (101, 30): [20, 20, NAN, 10, 9, 0, 20, 20],
        (102, 70): [10, 10, 20, NAN, NAN, NAN, NAN, 10],  # of no copy
    }
    assert found.keys() == expected.keys()
    for question, values in expected.items():
        np.testing.assert_allclose(found[question], values, atol=1e-4, err_msg=str(question))


def test_a_frozen_database_shows_no_later_parent(video_shop: Path) -> None:
    _, found = features(video_shop, visible_until=date(22))
    np.testing.assert_allclose(found[101, 30][3:6], [10, 9, NAN], atol=1e-4)  # awarded on day 25
    _, found = features(video_shop, visible_until=date(19))
    np.testing.assert_allclose(found[101, 30][3:6], [NAN] * 3)


def test_hidden_columns_of_parents_are_not_seen(tmp_path: Path) -> None:
    """Stores have no times, so that none is known to be older than the rental."""
    _, found = features(build(tmp_path, hidden=("stores.size",)))
    values = np.array(list(found.values()))
    assert np.isnan(values[:, [1, 2, 6]]).all() and not np.isnan(values[:, 4]).all()


def test_what_is_too_wide_is_left_out_and_counted(video_shop: Path) -> None:
    metadata = headwater.Store(video_shop).metadata
    table = [entry["name"] for entry in metadata["tables"]].index("rentals")
    # inventory has 3 columns, stores 2, films 5 of which 3 may be features
    whole = find_ways(metadata, table)
    assert (len(whole.kept), whole.cells, whole.left_out) == (6, 6 + 3 + 2 + 2 + 5 + 2, 0)
    part = find_ways(metadata, table, most=8)
    assert [way.name for way in part.kept] == [
        "", "rentals.copy", "rentals.taken_from", "rentals.back_to",
    ]  # fmt: skip
    assert (part.cells, part.left_out) == (6 + 7, 3 + 1)
    alone = find_ways(metadata, table, most=0)
    assert (len(alone.kept), alone.cells, alone.left_out) == (1, 6, 1 + 1 + 3 + 1)


@pytest.mark.parametrize("released", [0, 900])
def test_trees_learn_what_a_film_decides_unless_it_comes_out_later(
    released: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    stars = rng.permutation(40) % 10
    films = [(f, released, int(stars[f]), 0, 999) for f in range(40)]
    inventory = [(copy, copy % 40, 1) for copy in range(80)]
    copies = rng.integers(0, 80, 400)
    rentals = [(r, int(copies[r]), 1 + r, 1, 1, 1000) for r in range(400)]
    asked = [
        (r, 1 + r, int(stars[copies[r] % 40] >= 5), "test" if r % 4 == 0 else "train")
        for r in range(400)
    ]
    store = build(tmp_path, films=films, inventory=inventory, rentals=rentals, asked=asked)
    cfg = preset("tiny")
    task, labels = labelled(store, cfg, "t")
    found = tree_baselines(open_store(store), cfg, task, labels, "test")
    test = labels.splits == SPLITS["test"]
    for baseline in found.values():
        measure = ranking_measure(labels.targets[test] > 0.5, baseline["values"][test])
        auroc = metrics_of(measure, int(test.sum()))["auroc"]
        assert auroc is not None
        if released == 0:
            assert auroc > 0.99
        else:
            assert auroc < 0.65, "of films that are not out yet nothing can be known"
