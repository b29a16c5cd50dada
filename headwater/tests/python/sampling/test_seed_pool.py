"""Pools of seeds: order, parts, labels and state. docs/reference/sampling.md, "Pools of seeds"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import headwater
import numpy as np
import pytest
from headwater import SeedPool, Store
from reference_order import order_key, permute
from tiny_store import DAY_US, write_tiny

ALL = (1.0, 0.0, 0.0)  # every seed is of train


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(write_tiny(tmp_path_factory.mktemp("tiny"))) as store:
        yield store


def drawn(pool: SeedPool, *sizes: int) -> list[int]:
    return [int(seed) for size in sizes for seed in pool.next_batch(size).seeds]


def test_the_order_is_worked_out_by_hand(store: Store) -> None:
    """churn is task 0 and has 18 seeds; position p of epoch e is the seed that the keyed
    permutation of the document puts there."""
    pool = SeedPool(store, tasks=["churn"], split_ratios=ALL, rng_seed=7)
    assert len(pool) == pool.remaining() == 18
    expected = [permute(order_key(7, 1, 0, e), 18, p) for e in range(2) for p in range(18)]
    assert drawn(pool, 5, 5) == expected[:10]
    assert pool.remaining() == 8
    last = pool.next_batch(12)  # runs on into epoch 1
    assert last.seeds.tolist() == expected[10:22]
    assert last.epochs.tolist() == [0] * 8 + [1] * 4
    assert pool.remaining() == 14
    assert sorted(expected[:18]) == list(range(18)) and expected[:18] != expected[18:]


def test_rows_times_and_labels_are_those_of_the_task(store: Store) -> None:
    """Stored by anchor row and time: seed i asks customer 1 + i // 3 at day 10, 20 or 30, and the
    second, fourth and sixth customer churn."""
    batch = SeedPool(store, tasks=["churn"], split_ratios=ALL).next_batch(18)
    assert (batch.task, len(batch)) == ("churn", 18)
    assert batch.rows.tolist() == [seed // 3 for seed in batch.seeds]
    assert batch.obs_times.tolist() == [(10, 20, 30)[seed % 3] * DAY_US for seed in batch.seeds]
    assert batch.labels.tolist() == [float(seed // 3 % 2 == 1) for seed in batch.seeds]
    assert not batch.seeds.flags.writeable


def test_require_label_leaves_out_what_is_null_or_not_there(store: Store) -> None:
    """Order 3 has no quantity, and it is row 2 of its table."""
    for seeds in ({"tasks": ["quantity"]}, {"seed_tables": ["orders"]}):
        label: Any = True if "tasks" in seeds else "quantity"
        every = SeedPool(store, split_ratios=ALL, **seeds)
        pool = SeedPool(store, split_ratios=ALL, require_label=label, **seeds)
        assert (len(every), len(pool)) == (24, 23)
        batch = pool.next_batch(23)
        assert sorted(batch.seeds.tolist()) == [row for row in range(24) if row != 2]
        assert batch.labels == pytest.approx((batch.seeds + 1) / 2, rel=1e-6)
        assert batch.rows.tolist() == [6 + seed for seed in batch.seeds]


def test_a_table_without_a_label_gives_every_row(store: Store) -> None:
    pool = SeedPool(
        store, seed_tables=["customers", "orders"], split_ratios=ALL,
        require_label={"orders": "status"},
    )  # fmt: skip
    batches = [pool.next_batch(3) for _ in range(40)]
    assert {batch.task for batch in batches} == {"customers", "orders"}
    for batch in batches:
        assert np.isnan(batch.labels).all() == (batch.task == "customers")
        assert len(batch) == 3


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_the_parts_together_are_every_seed_once_in_each_epoch(store: Store, world: int) -> None:
    found: list[list[int]] = [[], [], []]
    for rank in range(world):
        pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
        pool.partition_for_rank(rank, world)
        assert len(pool) == pool.remaining() == len(range(rank, 18, world))
        for epoch in found:
            own = drawn(pool, len(pool))
            assert sorted(own) == list(range(rank, 18, world))  # the same in every epoch
            epoch += own
    assert all(sorted(epoch) == list(range(18)) for epoch in found)
    assert found[0] != found[1]


def test_weights_may_be_a_list_in_the_order_of_the_tasks(store: Store) -> None:
    pool = SeedPool(store, tasks=["quantity", "churn"], split_ratios=ALL, task_weights=[0, 1])
    assert {pool.next_batch(2).task for _ in range(30)} == {"churn"}
    assert len(pool) == 18
    other = SeedPool(store, split_ratios=ALL, task_weights={"churn": 1, "quantity": 0})
    other.load_state_dict(pool.state_dict())


def test_a_part_of_a_part_is_the_part_of_both(store: Store) -> None:
    one, two = (SeedPool(store, tasks=["churn"], split_ratios=ALL) for _ in range(2))
    one.partition_for_rank(1, 2)
    one.partition_for_rank(2, 3)
    two.partition_for_rank(1 + 2 * 2, 2 * 3)
    assert drawn(one, 7) == drawn(two, 7)
    assert one.state_dict() == two.state_dict()


def test_pool_sampler_and_ranks_agree(store: Store) -> None:
    """Two tasks with weights, two ranks, splits by hash: the sampler's stream and the pool."""
    options: dict[str, Any] = {
        "split_ratios": (0.6, 0.2, 0.2), "split_seed": 5,
        "task_weights": {"churn": 1.0, "quantity": 2.0},
    }  # fmt: skip
    for rank, split in ((0, "train"), (1, "train"), (1, "val")):
        pool = SeedPool(store, rng_seed=9, split=split, **options)
        pool.partition_for_rank(rank, 2)
        with headwater.Sampler(
            store=store, rank=rank, world_size=2, seed=9, default_batch_size=4,
            default_sequence_length=32, num_prefetch=0, **options,
        ) as sampler:  # fmt: skip
            for k in range(20):
                batch, seeds = sampler.batch(split, k), pool.next_batch(4)
                assert sampler.database_metadata()["tasks"][int(batch["task_idx"][0])][
                    "name"
                ] == seeds.task  # fmt: skip
                assert batch.info["seed_index"].tolist() == seeds.seeds.tolist()
                assert batch.info["anchor_rows"].tolist() == seeds.rows.tolist()
                assert batch.info["obs_time"].tolist() == seeds.obs_times.tolist()


def test_seeds_are_the_same_however_many_are_drawn_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces Ctrl-C is answered; of 2^26 seeds it waited for 13 s."""
    sizes, found = (1, 7, 40, 3, 100), []
    for at_once in (1 << 20, 3, 1):
        monkeypatch.setattr("headwater.binding.seed_pool.AT_ONCE", at_once)
        pool = SeedPool(store, rng_seed=9, task_weights={"churn": 1.0, "quantity": 2.0})
        drawn = [pool.next_batch(size) for size in sizes]
        assert [len(batch) for batch in drawn] == list(sizes)
        found.append((pool.state_dict(), [(one.task, one.seeds.tolist()) for one in drawn]))
    assert found[0] == found[1] == found[2]


def test_a_state_resumes_in_a_new_pool(store: Store) -> None:
    pool = SeedPool(store, split_ratios=ALL)
    pool.partition_for_rank(1, 2)
    fresh = pool.state_dict()
    for _ in range(5):
        pool.next_batch(7)
    state = json.loads(json.dumps(pool.state_dict()))
    expected = [pool.next_batch(5) for _ in range(6)]
    other = SeedPool(store, split_ratios=ALL)
    with pytest.raises(ValueError, match="rank was 1 and is 0; world_size was 2 and is 1"):
        other.load_state_dict(state)
    other.partition_for_rank(1, 2)
    other.load_state_dict(state)
    for batch in expected:
        again = other.next_batch(5)
        assert (again.task, again.seeds.tolist()) == (batch.task, batch.seeds.tolist())
    other.load_state_dict(fresh)
    assert other.state_dict() == fresh


def test_a_rank_without_seeds_has_empty_batches(store: Store) -> None:
    pool = SeedPool(store, tasks=["churn"], split_ratios=ALL)
    with pytest.warns(UserWarning, match="no seeds for rank 18 of 19"):
        pool.partition_for_rank(18, 19)
    assert (len(pool), pool.remaining(), len(pool.next_batch(6))) == (0, 0, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tasks": ["churn"], "seed_tables": ["orders"]}, "give either tasks or seed_tables"),
        ({"tasks": ["chur"]}, "did you mean 'churn'"),
        ({"seed_tables": ["orders"], "require_label": True}, "expected the column of seed_tables"),
        ({"seed_tables": ["orders"], "require_label": "quantiti"}, "did you mean 'quantity'"),
        ({"seed_tables": ["orders"], "require_label": {"customers": "vip"}}, "expected some of"),
        ({"tasks": ["churn"], "require_label": "churned"}, "require_label is 'churned'"),
        ({"split": "trian"}, "trian"),
        ({"rng_seed": 1.5}, "rng_seed is 1.5"),
        ({"split_seed": -1}, "split_seed is -1, expected 0 to"),
        ({"split_ratios": "abc"}, "split_ratios is 'abc'"),
        ({"seed_tables": ["orders"], "require_label": 1}, "require_label is 1: expected a column"),
        (
            {"seed_tables": ["customers"], "require_label": "name"},
            "'customers.name' is of type text",
        ),
        ({"task_weights": [1.0]}, "task_weights is"),
        ({"tasks": ["churn"], "split": "val", "split_ratios": ALL}, "split 'val' has no seeds"),
        ({"split_ratios": (0.5, 0.5)}, "split_ratios has 2 entries"),
    ],
)
def test_wrong_words_are_named(store: Store, given: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, headwater.TaskError), match=message):
        SeedPool(store, **given)
    with pytest.raises(ValueError, match="rank is 2 of 2"):
        SeedPool(store).partition_for_rank(2, 2)
    for n in (0, -1, 2**32):
        with pytest.raises(ValueError, match=f"n is {n}, expected 1 to"):
            SeedPool(store).next_batch(n)
