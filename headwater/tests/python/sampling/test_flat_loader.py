"""Batches of chosen seeds and loaders with layout="flat": all seeds of a batch, levelled to one
shape. That a batch is bit for bit the stream's is test_flat.py's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import headwater
import pytest
from headwater import Loader, Sampler, SeedPool, Store
from tiny_store import write_tiny

ALL = (1.0, 0.0, 0.0)  # every seed is of train: 18 of churn, 24 of quantity
SMALL: dict[str, Any] = {
    "layout": "flat", "default_batch_size": 4, "default_sequence_length": 48, "max_rows": 16,
    "split_ratios": ALL, "level_block": 2, "num_threads": 2, "num_prefetch": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(write_tiny(tmp_path_factory.mktemp("tiny"))) as store:
        yield store


def seeds_of(batch: headwater.Batch) -> list[int]:
    return [int(seed) for seed in batch.info["seed_index"][: int(batch["num_contexts"][0])]]


def bits(batch: headwater.Batch) -> list[tuple[str, tuple[int, ...], bytes]]:
    named = {**batch, **batch.info}
    return [(name, array.shape, array.tobytes()) for name, array in named.items()]


def has_train_shape(sampler: Sampler, batch: headwater.Batch, task: str) -> bool:
    shape = sampler.flat_shape(task)
    return (batch["cells"].shape, batch["row_ages"].shape) == (
        (1, shape["cells"]),
        (1, shape["rows"]),
    )


def test_over_a_pool_batches_are_the_same_for_any_thread_count(store: Store) -> None:
    """Two tasks over three epochs: 42 seeds are 11 batches of at most 4, and the pool runs on."""
    expected, pool = [], SeedPool(store, split_ratios=ALL, rng_seed=3)
    with Sampler(store=store, **{**SMALL, "num_prefetch": 0}) as alone:
        for _ in range(33):
            drawn = pool.next_batch(4)
            batch = alone.batch_of(drawn.seeds, drawn.task, epoch=drawn.epochs)
            assert seeds_of(batch) == drawn.seeds.tolist()
            assert has_train_shape(alone, batch, drawn.task)
            expected.append(bits(batch))
    for threads in (1, 3):
        pool = SeedPool(store, split_ratios=ALL, rng_seed=3)
        with Sampler(store=store, **{**SMALL, "num_threads": threads}) as sampler:
            loader = Loader(sampler, pool=pool)
            assert [bits(batch) for _ in range(3) for batch in loader] == expected


def test_an_epoch_has_each_seed_once_and_a_short_batch_of_the_same_shape(store: Store) -> None:
    with Sampler(store=store, tasks=["churn"], **SMALL) as sampler:
        loader = Loader(sampler)
        assert len(loader) == 5
        for index in range(2):
            batches = list(loader)
            assert [len(seeds_of(batch)) for batch in batches] == [4, 4, 4, 4, 2]
            assert all(has_train_shape(sampler, batch, "churn") for batch in batches)
            order = [s for batch in sampler.epoch("train", index=index) for s in seeds_of(batch)]
            assert [seed for batch in batches for seed in seeds_of(batch)] == order
            assert batches[-1]["is_labelled"].tolist() == [1, 1, 0, 0]
            assert batches[-1]["context_targets"][0, 2:].tolist() == [-1, -1]


@pytest.mark.parametrize("with_pool", [False, True])
def test_a_state_resumes_within_an_epoch_bit_for_bit(store: Store, with_pool: bool) -> None:
    def opened(**more: Any) -> tuple[Sampler, Loader]:
        sampler = Sampler(store=store, tasks=["quantity"], **{**SMALL, **more})
        pool = SeedPool(store, tasks=["quantity"], split_ratios=ALL) if with_pool else None
        return sampler, Loader(sampler, pool=pool)

    first, loader = opened()
    list(islice(loader, 4))
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [bits(batch) for _ in range(2) for batch in loader]
    second, loader = opened(num_threads=1)
    loader.load_state_dict(state)
    assert [bits(batch) for _ in range(2) for batch in loader] == expected
    for sampler in (first, second):
        sampler.shutdown()


@pytest.mark.parametrize("with_pool", [False, True])
def test_a_rank_without_seeds_has_empty_batches_of_the_same_shape(
    store: Store, with_pool: bool
) -> None:
    """18 seeds on 20 ranks: the last two have none."""
    pool = None
    with pytest.warns(UserWarning, match="none for rank 19|no seeds for rank 19"):
        sampler = Sampler(store=store, tasks=["churn"], rank=19, world_size=20, **SMALL)
        if with_pool:
            pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
            pool.partition_for_rank(19, 20)
        batches = [batch for _ in range(2) for batch in Loader(sampler, pool=pool)]
    assert [seeds_of(batch) for batch in batches] == [[], []]
    for batch in batches:
        assert has_train_shape(sampler, batch, "churn")
        assert not batch["context_cells"].any() and not batch["is_labelled"].any()
    sampler.shutdown()


def test_a_part_that_lacks_a_seed_has_an_empty_batch(store: Store) -> None:
    """In 17 parts, part 0 has seeds 0 and 17, the others one each; of 5 items 4 a batch."""
    with Sampler(store=store, tasks=["churn"], **SMALL) as sampler:
        parts = Loader(sampler, parts=17)
        (batch,) = parts.slice(33, 34)
        assert seeds_of(batch) == [] and has_train_shape(sampler, batch, "churn")
        assert sorted(seed for batch in parts.slice(0, 2) for seed in seeds_of(batch)) == [0, 17]


def test_a_sampler_without_seeds_of_train_levels_to_the_size_of_its_passes(store: Store) -> None:
    """In batches of S cells, as there is no train to measure, 8 contexts would be cut."""
    more = {"split_ratios": (0, 1, 0), "default_batch_size": 8}
    with Sampler(store=store, tasks=["churn"], **{**SMALL, **more}) as sampler:
        shape = sampler.flat_shape("churn")
        assert shape["cells"] == shape["pass_cells"]["val"] > 48
        (*_, last) = batches = list(Loader(sampler, "val"))
        assert [len(seeds_of(batch)) for batch in batches] == [8, 8, 2]
        assert has_train_shape(sampler, last, "churn")


def test_seeds_that_nobody_can_choose_are_refused(store: Store) -> None:
    with Sampler(store=store, **SMALL) as sampler:
        with pytest.raises(ValueError, match="seeds has 5 entries, expected at most 4"):
            sampler.batch_of(range(5), "churn")
        with pytest.raises(ValueError, match=r"seeds\[1\] is 18, expected less than 18"):
            sampler.batch_of([0, 18], "churn")
        assert len(sampler.batches_of(range(5), "churn")) >= 2  # as many whole ones as have room
