"""Batches of seeds that the caller chose: the contexts of an epoch, in another company."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pytest
from comparison import difference, maker_of
from headwater import binding
from reference_order import NO_SEED, Order, Position
from tiny_store import write_tiny
from world_store import open_sampler, read_pass, write_store
from worlds import random_database, random_masked_options, random_options

SMALL: dict[str, Any] = {
    "default_batch_size": 4,
    "default_sequence_length": 32,
    "max_rows": 16,
    "split_ratios": (0.6, 0.2, 0.2),
    "bfs_child_width": 2,
    "staleness": (0.3, 9.0),
    "cell_dropout": 0.3,
    "num_threads": 2,
}
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "compact": {"layout": "compact", "with_rows": True, "targets": "separate"},
    "masked": {"mask_ratio": 0.3},
    "packed": {"packing": True, "contexts_per_batch": 7},
    "packed apart": {"packing": True, "contexts_per_batch": 7, "context_length": 20},
    "tables": {"objective": "masked_cells", "seed_tables": ["orders"]},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def seeds_of(batch: headwater.Batch) -> npt.NDArray[np.uint32]:
    return batch.info["seed_index"][batch["num_cells"] > 0]


@pytest.mark.parametrize(("threads", "prefetch"), [(1, 1), (2, 3), (8, 2), (1, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_seeds_of_a_batch_of_an_epoch_make_it_again(
    kind: str, threads: int, prefetch: int, path: Path
) -> None:
    options = {**SMALL, **KINDS[kind], "num_threads": threads, "num_prefetch": prefetch}
    task, labelled = "orders" if kind == "tables" else "churn", 0
    with headwater.Sampler(db_path=path, **options) as sampler:
        size = sampler.shape["contexts_per_batch"]
        plain = {**options, "default_batch_size": size, "packing": False}
        plain |= {"contexts_per_batch": None, "context_length": None}
        with headwater.Sampler(db_path=path, **plain) as one_to_a_sequence:
            seeds = [
                seeds_of(batch)
                for split in binding.SPLITS
                for batch in one_to_a_sequence.epoch(split, task, index=2)
            ]
        for split in binding.SPLITS:
            for expected in sampler.epoch(split, task, index=2):
                again = sampler.batch_of(seeds.pop(0), task, epoch=2)
                assert [*again, *again.info] == [*expected, *expected.info]
                for name in (*expected, *expected.info):
                    assert again[name].tobytes() == expected[name].tobytes(), name
                labelled += int(again["is_labelled"].sum())
    assert labelled == (0 if kind == "tables" else 18)


def test_any_order_split_and_epoch_equal_the_reference(tmp_path: Path) -> None:
    """Every array; seeds of several splits stand together, some twice, on either of two ranks."""
    mixed = 0
    for number in range(12):
        database = random_database(number)
        store = write_store(database, tmp_path / f"{number}")
        for make_options in (random_options, random_masked_options):
            order = Order(database, make_options(number, database))
            with open_sampler(store, database, order.options) as sampler:
                for task, splits in order.splits.items():
                    positions = chosen(task, splits, random.Random(number))
                    mixed += len({position.split for position in positions}) > 1
                    check(sampler, order, task, positions)
    assert mixed > 10


def check(sampler: Any, order: Order, task: int, positions: list[Position]) -> None:
    maker, size = maker_of(order, sampler.shape()), order.options.batch_size
    seeds = [position.index for position in positions]
    epochs = [position.epoch for position in positions]
    batches = read_pass(binding.Pass(sampler, 0, task, 0, chosen=(seeds, epochs)))
    assert len(batches) == max(1, -(-len(seeds) // size))  # no seeds: one empty batch
    for k, got in enumerate(batches):
        part = positions[k * size : (k + 1) * size]
        part += [Position(task, 0, None, 0)] * (size - len(part))
        assert difference(maker.make(part), got) is None


def chosen(task: int, splits: list[int], dice: random.Random) -> list[Position]:
    seeds = [seed for seed, split in enumerate(splits) if split != NO_SEED]
    drawn = dice.choices(seeds, k=7) if seeds else []
    return [Position(task, splits[seed], seed, dice.randrange(3)) for seed in drawn]


def test_integers_of_any_type_choose_seeds(path: Path) -> None:
    with headwater.Sampler(db_path=path, tasks=["churn"], **SMALL) as sampler:
        expected = [17, 0, 17, 5, 3]
        for seeds in (expected, tuple(expected), *(np.array(expected, t) for t in ("i1", "u8"))):
            batches = list(sampler.batches_of(seeds, epoch=np.arange(5)))
            assert np.concatenate([seeds_of(batch) for batch in batches]).tolist() == expected
        assert [len(seeds_of(batch)) for batch in sampler.batches_of([])] == [0]
        assert len(seeds_of(sampler.batch_of([]))) == 0


def test_a_rank_has_all_seeds_that_it_chooses(path: Path) -> None:
    with headwater.Sampler(db_path=path, rank=2, world_size=3, **SMALL) as sampler:
        run = sampler.batches_of(range(9), "churn")
        assert len(run) == 3
        assert [seed for batch in run for seed in seeds_of(batch)] == list(range(9))


@pytest.mark.parametrize(
    ("seeds", "more", "message"),
    [
        ([0, 18], {}, r"seeds\[1\] is 18, expected less than 18, the seeds of 'churn'"),
        ([0, -1], {}, r"seeds\[1\] is -1, expected 0 to 2\^32 - 1"),
        ([2**32], {}, r"seeds\[0\] is 4294967296, expected 0 to 2\^32 - 1"),
        ([[0]], {}, "seeds has 2 dimensions, expected a list"),
        ([0, 1], {"epoch": [0]}, "epoch has 1 entries for 2 seeds"),
        ([0], {"epoch": -1}, r"epoch\[0\] is -1"),
        ([0], {"task": None}, "give task: the sampler has 'churn', 'quantity'"),
        ([0], {"task": "chrn"}, "did you mean 'churn'"),
        (range(5), {}, "seeds has 5 entries, expected at most 4.*batches_of takes any number"),
    ],
)
def test_seeds_that_cannot_be_chosen_are_named(
    seeds: Any, more: dict[str, Any], message: str, path: Path
) -> None:
    with (
        headwater.Sampler(db_path=path, **SMALL) as sampler,
        pytest.raises(ValueError, match=message),
    ):
        sampler.batch_of(seeds, **{"task": "churn", **more})


@pytest.mark.parametrize("seeds", [[0.5], ["0"], [True], [None]])
def test_what_is_no_integer_chooses_no_seed(seeds: Any, path: Path) -> None:
    with (
        headwater.Sampler(db_path=path, **SMALL) as sampler,
        pytest.raises(TypeError, match=r"seeds holds .*, expected integers"),
    ):
        sampler.batch_of(seeds, "churn")


def test_a_seed_in_no_split_is_named(path: Path) -> None:
    options = {**SMALL, "time_split": ("1970-01-15", "1970-01-25")}
    with headwater.Sampler(db_path=path, **options) as sampler:
        left_out = np.flatnonzero(sampler.splits("churn") == NO_SEED)
        with pytest.raises(ValueError, match=f"is {left_out[0]}, which is in no split of 'churn'"):
            sampler.batch_of(left_out[:1], "churn")
