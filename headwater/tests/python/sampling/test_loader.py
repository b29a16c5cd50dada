"""The loader over a sampler, its parts, and over a pool that the caller owns."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import headwater
import pytest
from headwater import Loader, Sampler, SeedPool, Store
from tiny_store import write_tiny

ALL = (1.0, 0.0, 0.0)  # every seed is of train: 18 of churn, 24 of quantity
SMALL: dict[str, Any] = {
    "default_batch_size": 4, "default_sequence_length": 32, "max_rows": 16, "split_ratios": ALL,
    "num_threads": 2, "num_prefetch": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(write_tiny(tmp_path_factory.mktemp("tiny"))) as store:
        yield store


@pytest.fixture
def sampler(store: Store) -> Iterator[Sampler]:
    with Sampler(store=store, tasks=["churn"], **SMALL) as sampler:
        yield sampler


def seeds_of(batch: headwater.Batch) -> list[int]:
    return [int(seed) for seed in batch.info["seed_index"][: int(batch["num_sequences"][0])]]


def read(loader: Loader) -> list[int]:
    return [seed for batch in loader for seed in seeds_of(batch)]


def test_each_iteration_is_the_next_epoch_of_the_sampler(sampler: Sampler) -> None:
    loader = Loader(sampler)
    assert (loader.num_items(), len(loader)) == (18, 5)  # 4 full batches and one of 2
    for index in range(3):
        batches, expected = list(loader), list(sampler.epoch("train", index=index))
        assert len(batches) == 5
        for batch, other in zip(batches, expected, strict=True):
            assert batch.info["seed_index"].tolist() == other.info["seed_index"].tolist()
            for name, array in other.items():
                assert array.tobytes() == batch[name].tobytes(), name


@pytest.mark.parametrize("parts", [1, 2, 4, 5])
def test_equal_slices_are_the_parts_of_ranks(store: Store, sampler: Sampler, parts: int) -> None:
    """18 seeds in 4 parts: 5, 5, 4 and 4 of them, rounded up to 5 items and 2 batches each."""
    whole = Loader(sampler, parts=parts)
    size = -(-18 // parts)
    assert whole.num_items() == parts * size
    epochs: list[list[int]] = [[], [], []]
    for part in range(parts):
        loader = whole.slice(part * size, (part + 1) * size)
        assert (loader.num_items(), len(loader)) == (size, -(-size // 4))
        with Sampler(store=store, tasks=["churn"], rank=part, world_size=parts, **SMALL) as rank:
            for index, epoch in enumerate(epochs):
                batches = list(loader)
                assert len(batches) == len(loader)  # an empty one, if need be
                own = [seed for batch in batches for seed in seeds_of(batch)]
                assert own == [s for b in rank.epoch("train", index=index) for s in seeds_of(b)]
                epoch += own
    assert all(sorted(epoch) == list(range(18)) for epoch in epochs)
    assert sorted(read(whole)) == list(range(18))


def test_a_part_that_lacks_a_seed_has_an_empty_batch(sampler: Sampler) -> None:
    """In 17 parts, part 0 has seeds 0 and 17, the others one each; of 5 items 4 a batch."""
    whole = Loader(sampler, parts=17)
    assert (whole.num_items(), len(whole)) == (34, 17)
    last = whole.slice(33, 34)  # the second entry of part 16: past the end
    assert [seeds_of(batch) for batch in last] == [[]]
    assert sorted(read(whole.slice(0, 2))) == [0, 17]


def test_a_slice_is_a_piece_of_the_same_items(sampler: Sampler) -> None:
    assert sorted(read(Loader(sampler).slice(5, 11))) == list(range(5, 11))
    # Items of 4 parts: 0 4 8 12 16 | 1 5 9 13 17 | 2 6 10 14 - | 3 7 11 15 -
    piece = Loader(sampler, parts=4).slice(3, 7)
    assert sorted(read(piece)) == [1, 5, 12, 16]
    assert sorted(read(piece.slice(1, 3))) == [1, 16]
    assert read(piece.slice(2, 2)) == []


def test_over_a_pool_it_gives_what_the_pool_gives(store: Store) -> None:
    """Two tasks: over three epochs the seeds equal pool.next_batch from the same state."""
    pool, other = (SeedPool(store, split_ratios=ALL, rng_seed=3) for _ in range(2))
    for one in (pool, other):
        one.next_batch(7)
    with Sampler(store=store, **SMALL) as sampler:
        loader = Loader(sampler, pool=pool)
        assert (loader.num_items(), len(loader)) == (42, 11)
        for _ in range(3):
            count = 0
            for batch in loader:
                count += 1
                expected = other.next_batch(4)
                assert seeds_of(batch) == expected.seeds.tolist()
                assert batch.info["anchor_rows"].tolist() == expected.rows.tolist()
                again = sampler.batch_of(expected.seeds, expected.task, epoch=expected.epochs)
                assert all(batch[name].tobytes() == again[name].tobytes() for name in again)
                assert pool.state_dict() == other.state_dict()  # what is ahead does not count
            assert count == 11


@pytest.mark.parametrize("with_pool", [False, True])
def test_it_stays_num_prefetch_batches_ahead(
    store: Store, sampler: Sampler, with_pool: bool
) -> None:
    pool = SeedPool(store, tasks=["churn"], split_ratios=ALL) if with_pool else None
    loader = Loader(sampler, pool=pool)
    run = iter(loader)
    for _ in range(2):
        next(run)
        until = time.monotonic() + 30
        while loader.stats()["pass_queue"] < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert loader.stats()["pass_queue"] == 3


def test_it_follows_a_pool_that_was_moved(store: Store, sampler: Sampler) -> None:
    pool, other = (SeedPool(store, tasks=["churn"], split_ratios=ALL) for _ in range(2))
    run = iter(Loader(sampler, pool=pool))
    assert seeds_of(next(run)) == other.next_batch(4).seeds.tolist()
    pool.next_batch(5)
    other.next_batch(5)
    assert seeds_of(next(run)) == other.next_batch(4).seeds.tolist()
    run = iter(Loader(sampler, pool=pool))
    pool.partition_for_rank(1, 3)
    assert {seed % 3 for seed in seeds_of(next(run))} == {1}


@pytest.mark.parametrize("with_pool", [False, True])
def test_a_state_resumes_within_an_epoch(store: Store, with_pool: bool) -> None:
    def opened(**more: Any) -> tuple[Sampler, Loader]:
        options = {**SMALL, "rank": 1, "world_size": 2, **more}
        sampler = Sampler(store=store, tasks=["churn"], **options)
        pool = None
        if with_pool:
            pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
            pool.partition_for_rank(1, options["world_size"])
        return sampler, Loader(sampler, pool=pool)

    first, loader = opened()
    list(loader)
    run = iter(loader)
    for _ in range(2):
        next(run)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [seeds_of(batch) for batch in run] + [seeds_of(batch) for batch in loader]
    first.shutdown()
    second, loader = opened(num_prefetch=0)
    loader.load_state_dict(state)
    found = [seeds_of(batch) for batch in loader]
    assert len(found) == len(loader) - 2
    assert found + [seeds_of(batch) for batch in loader] == expected
    second.shutdown()
    third, loader = opened(world_size=3)
    with pytest.raises(ValueError, match="world_size was 2 and is 3"):
        loader.load_state_dict(state)
    third.shutdown()


@pytest.mark.parametrize("with_pool", [False, True])
@pytest.mark.parametrize("world", [4, 20])
def test_all_ranks_have_as_many_batches(store: Store, world: int, with_pool: bool) -> None:
    """18 seeds on 4 ranks: 5, 5, 4 and 4, of 4 a batch; on 20 ranks two have none."""
    lengths, found = set(), []
    for rank in range(world):
        is_empty = rank >= 18
        pool = None
        with (
            Sampler(store=store, tasks=["churn"], rank=rank, world_size=world, **SMALL) as sampler,
            pytest.warns(UserWarning, match="none for rank|no seeds for rank")
            if is_empty
            else nullcontext(),
        ):
            if with_pool:
                pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
                pool.partition_for_rank(rank, world)
            loader = Loader(sampler, pool=pool)
            batches = list(loader)
        lengths |= {len(loader), len(batches)}
        own = {seed for batch in batches for seed in seeds_of(batch)}
        assert own == set(range(rank, 18, world))
        found += sorted(own)
    assert len(lengths) == 1 and sorted(found) == list(range(18))


def test_next_batch_runs_on_from_one_epoch_to_the_next(sampler: Sampler) -> None:
    loader, other = Loader(sampler), Loader(sampler)
    assert loader.batches_per_epoch() == len(loader) == 5
    expected = [seeds_of(batch) for _ in range(3) for batch in other]
    assert [seeds_of(loader.next_batch()) for _ in range(7)] == expected[:7]
    assert [seeds_of(batch) for batch in loader] == expected[7:10]  # the epoch's other three
    assert [seeds_of(loader.next_batch()) for _ in range(5)] == expected[10:]
    assert loader.state_dict() == other.state_dict()
    with pytest.raises(ValueError, match="no items"):
        loader.slice(2, 2).next_batch()


def test_an_epoch_that_was_taken_without_asking_for_its_end_is_over(sampler: Sampler) -> None:
    loader = Loader(sampler)
    first = [batch for batch, _ in zip(loader, range(len(loader)), strict=False)]
    assert len(first) == len(list(loader)) == 5


def test_the_pool_moves_with_what_was_handed_out_alone(store: Store, sampler: Sampler) -> None:
    pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
    loader = Loader(sampler, pool=pool)
    run = iter(loader)
    next(run)
    before = pool.state_dict(), loader.state_dict()
    sampler.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        next(run)
    assert (pool.state_dict(), loader.state_dict()) == before


def test_nothing_of_the_store_stays_mapped_after_shutdown(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(path))

    sampler = Sampler(path, tasks=["churn"], **SMALL)
    loader = Loader(sampler)
    list(loader)
    assert mapped() > 0
    sampler.shutdown()
    assert mapped() == 0
    assert loader.state_dict()["seeds"] == {"batches": 5}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"given": -1}, "'given' is -1, expected 0 to 5"),
        ({"given": 6}, "'given' is 6"),
        ({"seeds": None}, "'seeds' is None"),
        ({"seeds": {"batches": -1}}, "'batches' is -1"),
        ({"options": None}, "'options' is None"),
        ({"version": 9}, "version 9"),
    ],
)
def test_a_broken_state_is_refused(sampler: Sampler, changed: Any, message: str) -> None:
    loader = Loader(sampler)
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**loader.state_dict(), **changed})
    more = {**SMALL, "default_batch_size": 8}
    with (
        Sampler(store=sampler.store, tasks=["churn"], **more) as other,
        pytest.raises(ValueError, match="contexts_per_batch was 4 and is 8"),
    ):
        Loader(other).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        ({}, {}, "its tasks .* are not among the sampler's tasks"),
        ({"tasks": ["churn"], "split_seed": 1}, {}, "split_seed is 1, of the sampler 123"),
        ({"tasks": ["churn"]}, {"split_ratios": (0.5, 0.25, 0.25)}, "split_ratios is"),
        ({"seed_tables": ["orders"]}, {}, "its seed tables"),
        ({"tasks": ["churn"]}, {"train_on_val": True}, "train_on_val"),
        ({"tasks": ["churn"], "together": True}, {}, "drawn together"),
        ({"tasks": ["churn"]}, {"time_split": ("1970-01-05", "1970-02-01")}, "time_split"),
    ],
)
def test_a_pool_of_other_seeds_than_the_sampler_is_refused(
    store: Store, pool: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with (
        Sampler(store=store, tasks=["churn"], **{**SMALL, **options}) as sampler,
        pytest.raises(ValueError, match=f"does not go with the sampler.*{message}"),
    ):
        Loader(sampler, pool=SeedPool(store, **{"split_ratios": ALL, **pool}))


def test_what_does_not_go_together_is_an_error(store: Store, sampler: Sampler) -> None:
    pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
    for given in ({"parts": 2}, {"task": "churn"}, {"split": "val"}):
        with pytest.raises(ValueError, match="without a pool"):
            Loader(sampler, pool=pool, **given)
    with pytest.raises(ValueError, match="partition the pool"):
        Loader(sampler, pool=pool).slice(0, 2)
    with pytest.raises(ValueError, match="slice 3 to 19, expected numbers from 0 to 18"):
        Loader(sampler).slice(3, 19)
    with pytest.raises(ValueError, match="parts is 0"):
        Loader(sampler, parts=0)
    with pytest.raises(ValueError, match="parts is 19, expected 1 to 18"):
        Loader(sampler, parts=19)
    with pytest.raises(TypeError, match="sampler is 'x', expected a Sampler"):
        Loader("x")  # type: ignore[arg-type]
    with pytest.raises(headwater.TaskError, match="split 'val' has no seeds"):
        Loader(sampler, "val")
    with Sampler(store=store, **SMALL) as both, pytest.raises(ValueError, match="give task"):
        Loader(both)
    loader = Loader(sampler)
    sampler.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        list(loader)
