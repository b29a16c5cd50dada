"""Cell dropout: docs/reference/sampling.md, "Cell dropout".

Cell for cell against the reference in random worlds: test_reference.py, test_compact.py,
test_masked_cells.py and test_packing.py, whose random options drop cells too.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pytest
from plain_database import BOOLEAN, Database, Key, Options, Seed, Task
from reference_compact import dense_of
from tiny_store import write_tiny
from world_store import (
    Arrays,
    ad_hoc,
    differing,
    epoch_of,
    open_sampler,
    pairs_of,
    sampled,
    write_store,
)
from worlds import at, random_database, random_options, table

TRAIN, VAL = 0, 1
P = 0.3
READINGS = 5
Kept = set[tuple[int, int]]  # (local row, global column)


def station(seeds: int) -> Database:
    """One station, row 0, with five readings of four columns, asked about again and again. All
    seeds see the same rows; they differ in microseconds. Every 8th one is of val."""
    stations = table(
        "stations", "station_id identifier, name text, height numerical", [(True, "Ask", 3.0)]
    )
    readings = table(
        "readings",
        "reading_id identifier, station_id identifier, taken timestamp, warm boolean,"
        " degrees numerical",
        [(True, True, at(day), day % 2 == 0, float(day)) for day in range(READINGS)],
        (Key(("station_id",), "stations", (0,) * READINGS),),
        "taken",
    )
    asked = tuple(
        Seed(0, at(8) + i, i % 3 == 0, split=VAL if i % 8 == 7 else TRAIN, known=at(8) + i)
        for i in range(seeds)
    )
    task = Task("t", "stations", "t", BOOLEAN, asked, label_times=True)
    return Database("station", (stations, readings), (task,))


def options_of(**more: Any) -> Options:
    given: dict[str, Any] = {
        "sequence_length": 64, "max_rows": 16, "batch_size": 50, "recent": True,
        "child_counts": True, "label_rows": 2, "cell_dropout": P,
    }  # fmt: skip
    return Options(**{**given, **more})


def cells_of(batch: Arrays, b: int) -> Kept:
    count = int(batch["num_cells"][b])
    rows, columns = (batch[name][b, :count].tolist() for name in ("seq_row_ids", "column_ids"))
    return set(zip(rows, columns, strict=True))


def by_seed(batches: list[Arrays]) -> dict[int, Kept]:
    return {
        int(batch["seed_index"][b]): cells_of(batch, b)
        for batch in batches
        for b in range(int(batch["num_sequences"][0]))
    }


def drops(kept: dict[int, Kept], whole: dict[int, Kept], cells: list[tuple[int, int]]) -> Any:
    """Which of some cells are dropped, by seed. [n,c] bool"""
    assert kept.keys() == whole.keys()
    assert all(kept[seed] <= whole[seed] for seed in whole)
    return np.array([[cell not in kept[seed] for cell in cells] for seed in sorted(whole)])


# ---- how often ---------------------------------------------------------------------------------

SEEDS = 4000


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> npt.NDArray[np.bool_]:
    """Of two epochs, and of another seed of the sampler, of every cell that may be dropped: whether
    it was, by context. [3,n,c]"""
    database, folder = station(SEEDS), tmp_path_factory.mktemp("station")
    options = options_of()
    whole = by_seed(sampled(database, folder, options.with_(cell_dropout=0.0)))
    whole = {seed: cells for seed, cells in whole.items() if seed >= 8}  # with both label rows
    shown = next(iter(whole.values()))
    assert all(cells == shown for cells in whole.values())
    first = {row: min(column for r, column in shown if r == row) for row, _ in shown}
    obs_time, target = sorted(column for row, column in shown if row == 0)
    spared = {*first.items(), (0, target)}
    cells = sorted(shown - spared)
    # The station's name, height and three counts, two labels, four cells of each reading.
    assert len(cells) == 5 + 2 + 4 * READINGS and first[2] == obs_time
    found = []
    for epoch, seed in ((0, 42), (1, 42), (0, 43)):
        kept = by_seed(sampled(database, folder, options.with_(seed=seed), epoch=epoch))
        kept = {seed: cells for seed, cells in kept.items() if seed >= 8}
        assert all(spared <= cells for cells in kept.values())
        found.append(drops(kept, whole, cells))
    return np.array(found)


def is_binomial(count: Any, trials: float, p: float) -> Any:
    """Within five deviations: one false alarm in a million, and the seeds are fixed."""
    return np.abs(count - trials * p) < 5 * np.sqrt(trials * p * (1 - p))


def test_each_cell_is_dropped_with_the_probability_asked_for(dropped: Any) -> None:
    for draws in dropped:
        assert is_binomial(draws.sum(axis=0), len(draws), P).all()
        assert is_binomial(draws.sum(), draws.size, P)


def test_cells_of_a_context_are_dropped_independently(dropped: Any) -> None:
    for draws in dropped:
        for i, j in combinations(range(draws.shape[1]), 2):
            assert is_binomial((draws[:, i] & draws[:, j]).sum(), len(draws), P * P), (i, j)
        spread = draws.sum(axis=1).var() / (draws.shape[1] * P * (1 - P))
        assert abs(spread - 1) < 5 * (2 / len(draws)) ** 0.5


def test_seeds_epochs_and_seeds_of_the_sampler_draw_independently(dropped: Any) -> None:
    pairs = [*combinations(dropped, 2), (dropped[0][1:], dropped[0][:-1])]
    for one, two in pairs:
        assert is_binomial((one & two).sum(), one.size, P * P)
        assert is_binomial((one & two).sum(axis=0), len(one), P * P).all()


# ---- the same cells wherever they are drawn ----------------------------------------------------


def test_batches_layouts_threads_and_ranks_drop_the_same_cells(tmp_path: Path) -> None:
    database = station(120)
    write_store(database, tmp_path)
    found = [
        by_seed([dense_of(batch) if "cells" in batch else batch for batch in batches])
        for batches in (
            sampled(database, tmp_path, options_of()),
            sampled(database, tmp_path, options_of(), layout=1),
            sampled(database, tmp_path, options_of(batch_size=7), threads=3, prefetch=4),
            sampled(database, tmp_path, options_of(max_rows=12, dealt=True)),
        )
    ]
    assert found[1:] == [found[0]] * 3
    assert len(set(map(frozenset, found[0].values()))) > 90  # of 105
    shards = [
        by_seed(sampled(database, tmp_path, options_of(rank=rank, world_size=3)))
        for rank in range(3)
    ]
    assert sum(map(len, shards)) == len(found[0])
    assert {**shards[0], **shards[1], **shards[2]} == found[0]


@pytest.mark.parametrize("seed", range(6))
def test_rows_edges_and_ages_are_those_of_the_whole_context(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database).with_(cell_dropout=0.5)
    path = write_store(database, tmp_path)
    with (
        open_sampler(path, database, options) as some,
        open_sampler(path, database, options.with_(cell_dropout=0.0)) as whole,
    ):
        assert some.shape() == whole.shape()
        for got, expected in pairs_of(some, whole, database.tasks):
            same = ("fk_adj", "row_ages", "row_tables", "row_depths", "row_ids", "num_rows")
            assert not differing({name: got[name] for name in same}, expected)
            assert (got["num_cells"] <= expected["num_cells"]).all()
            assert (got["is_target"].sum(axis=1) == expected["is_target"].sum(axis=1)).all()


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_draw_that_drops_nothing_changes_no_bit(seed: int, layout: int, tmp_path: Path) -> None:
    """One draw in 2^32 would: every train context goes through dropout."""
    database = random_database(seed)
    options = random_options(seed, database).with_(
        cell_dropout=2.0**-32, mask_ratio=0.4, max_targets=2
    )
    path = write_store(database, tmp_path)
    more = {"layout": layout, "text_budget": 500}
    with (
        open_sampler(path, database, options, **more) as on,
        open_sampler(path, database, options.with_(cell_dropout=0.0), **more) as off,
    ):
        for got, expected in pairs_of(on, off, database.tasks):
            assert not differing(got, expected)


# ---- who is asked ------------------------------------------------------------------------------


def test_only_train_contexts_lose_cells(tmp_path: Path) -> None:
    database = station(40)
    path = write_store(database, tmp_path)
    found = []
    for p in (0.9, 0.0):
        with open_sampler(path, database, options_of(cell_dropout=p)) as sampler:
            given = ad_hoc(sampler, 0, [0] * 3, [at(8) + 40] * 3)
            found.append((epoch_of(sampler, TRAIN, 0)[0], epoch_of(sampler, VAL, 0)[0], given[0]))
    (train, *others), (whole, *expected) = found
    assert train["num_cells"].sum() < 0.5 * whole["num_cells"].sum()
    for got, plain in zip(others, expected, strict=True):
        assert not differing(got, plain)


def test_masked_cells_are_those_of_the_whole_context(tmp_path: Path) -> None:
    """The lists hold the same values; their cells stand further in front."""
    database = station(120)
    options = options_of(mask_ratio=0.3, max_targets=20)
    write_store(database, tmp_path)
    moved = 0
    for some, whole in zip(
        sampled(database, tmp_path, options),
        sampled(database, tmp_path, options.with_(cell_dropout=0.0)),
        strict=True,
    ):
        for kind in ("numerical", "boolean"):
            name = f"masked_{kind}_values"
            assert np.array_equal(some[name], whole[name])
            places = [batch[f"masked_{kind}_indices"] for batch in (some, whole)]
            assert np.array_equal(places[0] >= 0, places[1] >= 0)
            for b, i in np.argwhere(places[0] >= 0):
                s, before = int(places[0][b, i]), int(places[1][b, i])
                assert some["is_target"][b, s] == 1
                for cell in ("column_ids", "seq_row_ids", "semantic_types"):
                    assert some[cell][b, s] == whole[cell][b, before]
                moved += s < before
    assert moved > 200


def test_a_saved_state_asks_for_the_same_dropout(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path, cell_dropout=0.25) as some, headwater.Sampler(path) as whole:
        assert some.state_dict()["options"]["cell_dropout"] == 0.25
        with pytest.raises(ValueError, match=r"cell_dropout was 0\.25 and is 0\.0"):
            whole.load_state_dict(some.state_dict())
    with pytest.raises(ValueError, match="cell_dropout is 1, expected less than 1"):
        headwater.Sampler(path, cell_dropout=1)
