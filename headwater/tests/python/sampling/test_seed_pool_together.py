"""Pools whose tasks or tables are drawn together: one list, shuffled as one.
docs/reference/sampling.md, "Pools of seeds"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import headwater
import numpy as np
import pytest
from headwater import Loader, SeedBatch, SeedPool, Store
from reference_order import order_key, permute
from tiny_store import DAY_US, write_tiny

TABLES: dict[str, Any] = {
    "seed_tables": ["customers", "orders"], "split_ratios": (1.0, 0.0, 0.0), "together": True,
}  # fmt: skip
ROWS = [("customers", row) for row in range(6)] + [("orders", row) for row in range(24)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(write_tiny(tmp_path_factory.mktemp("tiny"))) as store:
        yield store


def pairs(*batches: SeedBatch) -> list[tuple[str, int]]:
    """Table and row of each seed, in the order drawn."""
    return [
        (batch.names[place], int(seed))
        for batch in batches
        if batch.tasks is not None
        for place, seed in zip(batch.tasks, batch.seeds, strict=True)
    ]


@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2), (3, 4), (29, 30)])
def test_the_order_is_worked_out_by_hand(store: Store, rank: int, world: int) -> None:
    """Position p of epoch e is the entry of the rank's part that the keyed permutation of the
    document puts there, with 2^32 - 1 in place of a task."""
    pool = SeedPool(store, rng_seed=7, **TABLES)
    pool.partition_for_rank(rank, world)
    part = ROWS[rank::world]
    assert len(pool) == pool.remaining() == len(part)
    expected = []
    for epoch in range(3):
        key = order_key(7, 1, 2**32 - 1, rank << 32 | epoch)
        expected += [part[permute(key, len(part), p)] for p in range(len(part))]
    first, rest = pool.next_batch(len(part) + 1), pool.next_batch(2 * len(part) - 1)
    assert first.task is None and pool.remaining() == len(part)
    assert first.names == ("customers", "orders")
    assert pairs(first, rest) == expected
    assert first.epochs.tolist() == [0] * len(part) + [1]


def test_each_seed_comes_once_in_each_epoch_in_another_order(store: Store) -> None:
    orders = [pairs(SeedPool(store, rng_seed=seed, **TABLES).next_batch(60)) for seed in (1, 2)]
    epochs = [order[start : start + 30] for order in orders for start in (0, 30)]
    assert all(sorted(epoch) == ROWS for epoch in epochs)
    assert all(epochs[i] != epochs[j] for i in range(4) for j in range(i))
    kinds = [name for name, _ in epochs[0]]
    assert kinds != sorted(kinds)  # mixed, not one table after the other


@pytest.mark.parametrize("world", [2, 3, 7])
def test_the_parts_together_are_every_seed_once_in_each_epoch(store: Store, world: int) -> None:
    found: list[list[tuple[str, int]]] = [[], []]
    for rank in range(world):
        pool = SeedPool(store, **TABLES)
        pool.partition_for_rank(rank, world)
        for epoch in found:
            own = pairs(pool.next_batch(len(pool)))
            assert sorted(own) == ROWS[rank::world]  # the same in every epoch
            epoch += own
    assert sorted(found[0]) == sorted(found[1]) == ROWS
    assert found[0] != found[1]


def test_tasks_have_their_rows_times_and_labels(store: Store) -> None:
    """churn has 18 seeds; quantity 24, one of them NULL."""
    pool = SeedPool(store, split_ratios=(1.0, 0.0, 0.0), require_label=True, together=True)
    assert len(pool) == 18 + 23
    parts = pool.next_batch(41).by_task()
    churn, quantity = parts["churn"], parts["quantity"]
    assert (list(parts), len(churn), len(quantity)) == (["churn", "quantity"], 18, 23)
    assert churn.rows.tolist() == [seed // 3 for seed in churn.seeds]
    assert churn.obs_times.tolist() == [(10, 20, 30)[seed % 3] * DAY_US for seed in churn.seeds]
    assert churn.labels.tolist() == [float(seed // 3 % 2 == 1) for seed in churn.seeds]
    assert sorted(quantity.seeds.tolist()) == [row for row in range(24) if row != 2]
    assert quantity.rows.tolist() == [6 + seed for seed in quantity.seeds]
    assert quantity.labels == pytest.approx((quantity.seeds + 1) / 2, rel=1e-6)


def test_require_label_and_split_choose_the_seeds_of_each_table(store: Store) -> None:
    ratios = {"split_ratios": (0.5, 0.5, 0.0)}
    given = {**TABLES, **ratios, "require_label": {"orders": "quantity"}}
    for split in ("train", "val"):
        both = SeedPool(store, split=split, **given)
        expected = []
        for table in ("customers", "orders"):
            label = {"orders": "quantity"} if table == "orders" else False
            one = SeedPool(store, split=split, seed_tables=[table], require_label=label, **ratios)
            rows = sorted(one.next_batch(len(one)).seeds.tolist())
            expected += [(table, row) for row in rows]
        batch = both.next_batch(len(both))
        assert sorted(pairs(batch)) == expected and ("orders", 2) not in expected
        assert batch.tasks is not None
        assert np.isnan(batch.labels).tolist() == (batch.tasks == 0).tolist()


def test_the_seeds_of_each_table_keep_the_order_drawn(store: Store) -> None:
    batch = SeedPool(store, **TABLES).next_batch(9)
    parts = batch.by_task()
    for name, part in parts.items():
        assert (part.task, part.tasks, part.names) == (name, None, ())
        assert part.seeds.tolist() == [row for table, row in pairs(batch) if table == name]
        assert not part.seeds.flags.writeable
        assert part.by_task() == {name: part}
    assert sum(map(len, parts.values())) == 9
    only = batch.by_task()["orders"].rows
    assert only.tolist() == [row for row in batch.rows if row >= 6]
    assert SeedPool(store, **TABLES).next_batch(1).by_task().keys() == {pairs(batch)[0][0]}


def test_a_sampler_makes_a_batch_of_each_part(store: Store) -> None:
    options = {name: TABLES[name] for name in ("seed_tables", "split_ratios")}
    with headwater.Sampler(
        store=store, objective="masked_cells", default_batch_size=16, default_sequence_length=32,
        num_prefetch=0, **options,
    ) as sampler:  # fmt: skip
        pool = SeedPool(store, **TABLES)
        for name, part in pool.next_batch(12).by_task().items():
            batch = sampler.batch_of(part.seeds, name, epoch=part.epochs)
            assert batch.info["anchor_rows"][: len(part)].tolist() == part.rows.tolist()
        with pytest.raises(ValueError, match="seeds are drawn together, and a batch has those"):
            Loader(sampler, pool=pool)


def test_seeds_are_the_same_however_many_are_drawn_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for at_once in (1 << 20, 7, 1):
        monkeypatch.setattr("headwater.binding.seed_pool.AT_ONCE", at_once)
        pool = SeedPool(store, **TABLES)
        found.append((pairs(*(pool.next_batch(n) for n in (1, 33, 8))), pool.state_dict()))
    assert found[0] == found[1] == found[2]


def test_a_state_resumes_in_the_middle(store: Store) -> None:
    pool = SeedPool(store, **TABLES)
    pool.partition_for_rank(1, 2)
    pool.next_batch(20)  # of 15
    state = json.loads(json.dumps(pool.state_dict()))
    twin = pool.copy()
    expected = pairs(pool.next_batch(12))
    assert pairs(twin.next_batch(12)) == expected
    other = SeedPool(store, **TABLES)
    other.partition_for_rank(1, 2)
    other.load_state_dict(state)
    assert (other.remaining(), pairs(other.next_batch(12))) == (10, expected)
    turns = SeedPool(store, **{**TABLES, "together": False})
    turns.partition_for_rank(1, 2)
    with pytest.raises(ValueError, match="another pool: together was True and is False"):
        turns.load_state_dict(state)
    with pytest.raises(ValueError, match="another pool: together was False and is True"):
        other.load_state_dict(turns.state_dict())
    state["positions"]["orders"] += 1
    with pytest.raises(ValueError, match=r"not whole: positions are \[20, 21\], expected one"):
        other.load_state_dict(state)


def test_a_rank_without_seeds_has_empty_batches(store: Store) -> None:
    pool = SeedPool(store, **TABLES)
    with pytest.warns(UserWarning, match="no seeds for rank 30 of 31"):
        pool.partition_for_rank(30, 31)
    batch = pool.next_batch(4)
    assert (len(pool), pool.remaining(), len(batch), batch.by_task()) == (0, 0, 0, {})


def test_what_does_not_go_together_is_an_error(store: Store) -> None:
    with pytest.raises(ValueError, match="drawn together: leave out task_weights"):
        SeedPool(store, together=True, task_weights=[1.0, 2.0])
    with pytest.raises(TypeError, match="together is 'yes', expected True or False"):
        SeedPool(store, together="yes")  # type: ignore[arg-type]
