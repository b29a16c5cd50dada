"""Which seed comes when: epochs, ranks, threads. Section 6 of docs/reference/sampling.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plain_database import Database, Options
from reference_order import Order
from world_store import Arrays, arrays_of, epoch_of, open_sampler, sampled, write_store
from worlds import random_database, random_options, star


def seeds_of(batches: list[Arrays]) -> list[int]:
    return [
        int(seed)
        for batch in batches
        for seed in batch["seed_index"][: int(batch["num_sequences"][0])]
    ]


@pytest.mark.parametrize("dealt", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_an_epoch_has_every_seed_once_over_all_ranks(
    world_size: int, dealt: bool, tmp_path: Path
) -> None:
    database = star(3, seeds=37)
    found, lengths = [], []
    for rank in range(world_size):
        options = Options(batch_size=4, rank=rank, world_size=world_size, dealt=dealt)
        batches = sampled(database, tmp_path, options, epoch=2)
        found += seeds_of(batches)
        lengths.append(len(batches))
    assert sorted(found) == list(range(37))
    assert set(lengths) == {-(-37 // (4 * world_size))}  # the same for every rank, empty ones too


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_the_dealt_stream_has_every_seed_once_per_epoch_and_is_always_full(
    world_size: int, tmp_path: Path
) -> None:
    database = star(3, seeds=12)
    path = write_store(database, tmp_path)
    per_position: dict[int, int] = {}
    for rank in range(world_size):
        options = Options(batch_size=4, rank=rank, world_size=world_size, dealt=True)
        with open_sampler(path, database, options) as sampler:
            for k in range(9):
                batch = arrays_of(sampler.batch(0, k))
                assert batch["num_sequences"][0] == 4
                for b in range(4):
                    position = (k * 4 + b) * world_size + rank
                    per_position[position] = int(batch["seed_index"][b])
    assert sorted(per_position) == list(range(36 * world_size))
    for epoch in range(3 * world_size):
        seeds = [per_position[position] for position in range(epoch * 12, epoch * 12 + 12)]
        assert sorted(seeds) == list(range(12))
    assert [per_position[p] for p in range(12)] != [per_position[p] for p in range(12, 24)]


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_with_fixed_shards_a_rank_has_the_same_seeds_in_every_epoch(
    world_size: int, tmp_path: Path
) -> None:
    database = star(3, seeds=38)  # of 3 and 4 ranks some have a seed more
    path = write_store(database, tmp_path)
    orders = []
    for rank in range(world_size):
        own = list(range(rank, 38, world_size))
        with open_sampler(
            path, database, Options(batch_size=1, rank=rank, world_size=world_size)
        ) as sampler:
            batches = [arrays_of(sampler.batch(0, k)) for k in range(3 * len(own))]
            taken = [int(batch["seed_index"][0]) for batch in batches]
            passes = [seeds_of(epoch_of(sampler, 0, 0, index)) for index in range(3)]
        epochs = [taken[at : at + len(own)] for at in range(0, len(taken), len(own))]
        assert [sorted(epoch) for epoch in epochs] == [own] * 3
        assert passes == epochs  # each has an order of its own, the same in stream and pass
        assert epochs[0] != epochs[1]
        orders.append([own.index(seed) for seed in epochs[0]])
    if world_size == 4:  # nor do ranks with equally many seeds have theirs in the same order
        assert len(orders[0]) == len(orders[1]) and orders[0] != orders[1]


def test_a_rank_without_seeds_has_empty_batches_and_as_many(tmp_path: Path) -> None:
    database = star(3, seeds=2)
    path = write_store(database, tmp_path)
    options = Options(batch_size=2, rank=2, world_size=3)
    for threads, prefetch in ((1, 0), (2, 3)):
        with open_sampler(path, database, options, threads=threads, prefetch=prefetch) as sampler:
            batches = [arrays_of(sampler.next(0, 5.0)) for _ in range(5)]
            batches += [arrays_of(sampler.batch(0, 9)), *epoch_of(sampler, 0, 0)]
    assert len(batches) == 7
    assert all(batch["num_sequences"][0] == 0 and batch["is_padding"].all() for batch in batches)


def test_a_seed_has_the_same_context_on_whichever_rank_it_falls(tmp_path: Path) -> None:
    database = star(30, seeds=16)
    contexts: dict[int, list[list[int]]] = {}
    for world_size in (1, 2, 4):
        for rank in range(world_size):
            options = Options(batch_size=2, child_width=4, rank=rank, world_size=world_size)
            for batch in sampled(database, tmp_path, options):
                for b in range(int(batch["num_sequences"][0])):
                    rows = batch["row_ids"][b].tolist()
                    contexts.setdefault(int(batch["seed_index"][b]), []).append(rows)
    assert all(len(rows) == 3 and rows[0] == rows[1] == rows[2] for rows in contexts.values())


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_the_same_for_1_2_and_8_threads(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    path = write_store(database, tmp_path)
    split = next(s for s in range(3) if Order(database, options).active(s))
    runs = []
    for threads, prefetch in ((1, 0), (1, 3), (2, 3), (8, 5)):
        with open_sampler(path, database, options, threads=threads, prefetch=prefetch) as sampler:
            batches = [arrays_of(sampler.batch(split, k)) for k in range(4)]
            if split < 2:
                batches += [arrays_of(sampler.next(split, None)) for _ in range(12)]
            batches += [
                batch
                for task in Order(database, options).active(split)
                for batch in epoch_of(sampler, split, task)
            ]
            runs.append(batches)
    if split < 2:  # the stream and batch(k) are the same thing
        for k in range(4):
            assert_equal(runs[0][k], runs[0][4 + k])
    for other in runs[1:]:
        assert len(other) == len(runs[0])
        for expected, got in zip(runs[0], other, strict=True):
            assert_equal(expected, got)


def assert_equal(expected: Arrays, got: Arrays) -> None:
    """Bit for bit."""
    assert expected.keys() == got.keys()
    for name, array in expected.items():
        assert array.dtype == got[name].dtype
        assert array.tobytes() == np.ascontiguousarray(got[name]).tobytes(), name


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 4.0), (0.5, 0.0, 0.5)])
def test_weights_share_out_the_batches_of_a_block(
    weights: tuple[float, float, float] | None, tmp_path: Path
) -> None:
    one = star(2, seeds=3)
    tasks = tuple(replace(one.tasks[0], name=f"task{i}") for i in range(3))
    database = Database(one.name, one.tables, tasks)
    named = weights and {f"task{i}": weight for i, weight in enumerate(weights)}
    order = Order(database, Options(task_weights=named or None, batch_size=1))
    expected = {
        None: [342, 341, 341],
        (1.0, 2.0, 4.0): [146, 293, 585],
        (0.5, 0.0, 0.5): [512, 0, 512],
    }[weights]
    path = write_store(database, tmp_path)
    with open_sampler(path, database, order.options) as sampler:
        got = [int(arrays_of(sampler.batch(0, k))["task_idx"][0]) for k in range(1024)]
    assert [got.count(task) for task in range(3)] == expected
    assert got == [order.task_of_batch(0, k) for k in range(1024)]


def test_seed_changes_order_but_not_splits_and_split_seed_the_reverse(tmp_path: Path) -> None:
    database = random_database(5)
    a = Order(database, Options(seed=1))
    b = Order(database, Options(seed=2))
    c = Order(database, Options(seed=1, split_seed=9))
    assert a.splits == b.splits
    path = write_store(database, tmp_path)
    for order in (a, b, c):
        with open_sampler(path, database, order.options) as sampler:
            for number, task in enumerate(database.tasks):
                got = np.asarray(sampler.splits(number, len(task.seeds))).tolist()
                assert got == order.splits[number]
