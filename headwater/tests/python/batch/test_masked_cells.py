"""Masked cells: docs/reference/sampling.md and docs/reference/batch.md, "Masked cells"."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwater
import numpy as np
import pytest
from clinic import clinic
from comparison import check_epochs, difference, maker_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_database import NEVER, Options, Seed
from reference_compact import dense_of
from reference_masked import SLOTS, TYPES
from reference_order import Order
from tiny_store import write_tiny
from world_store import (
    Arrays,
    arrays_of,
    differing,
    epoch_of,
    open_sampler,
    pairs_of,
    sampled,
    write_store,
)
from worlds import at, bookstore, random_database, random_masked_options, two_tables

TRAIN, VAL, TEST = 0, 1, 2
COMPACT: dict[str, Any] = {"layout": 1}
ALL = Options(
    sequence_length=64, max_rows=16, batch_size=1, recent=True, mask_ratio=1.0, max_targets=8
)
ALONE = ALL.with_(masked_objective=True, split_ratios=(1.0, 0.0, 0.0))


def masked(batch: Arrays, name: str, b: int = 0) -> list[int]:
    """Positions in a list of sequence b."""
    found = batch[f"masked_{name}_indices"][b]
    count = int((found >= 0).sum())
    assert (found[count:] == -1).all()
    return [int(s) for s in found[:count]]


def all_masked(batch: Arrays, b: int = 0) -> list[int]:
    return sorted(s for name in TYPES for s in masked(batch, name, b))


# ---- by hand -------------------------------------------------------------------------------------


def test_ann_s_name_and_vip_and_the_amounts_of_her_orders_are_masked(tmp_path: Path) -> None:
    """Ann, asked about on day 4: obs_time, target; id, name, vip; then two orders of id, customer,
    placed, amount, of days 3 and 1. The mean amount of the store is 30, its deviation 350 ** 0.5.
    Identifiers, the time of an order and the question are never masked."""
    database = two_tables()
    (batch,) = sampled(database, tmp_path, ALL)
    assert batch["column_ids"][0, :13].tolist() == [7, 8, 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6]
    assert batch["is_target"][0].nonzero()[0].tolist() == [1, 3, 4, 8, 12]
    assert batch["target_indices"].tolist() == [1]
    assert masked(batch, "numerical") == [8, 12]
    amounts = batch["masked_numerical_values"][0, :2]
    assert amounts == pytest.approx([0.0, -20 / 350**0.5], abs=1e-6)
    assert masked(batch, "boolean") == [4]
    assert batch["masked_boolean_values"][0, 0] == 1
    assert masked(batch, "text") == [3]
    assert batch["masked_text_values"][0, 0] == 1  # the batch's only text
    assert masked(batch, "timestamp") == masked(batch, "categorical") == []
    # What is masked is gone from the inputs; the target is where it always was.
    assert not batch["numeric_values"].any()
    assert not batch["text_embed_ids"].any()
    assert batch["bool_values"][0].nonzero()[0].tolist() == [1]
    assert batch["timestamp_values"][0].any(axis=1).nonzero()[0].tolist() == [0, 7, 11]
    assert batch["is_labelled"].tolist() == [1]


def test_rows_of_a_table_are_seeds_at_their_own_time(tmp_path: Path) -> None:
    """Order 2 of day 1 and those after it see what was before them, and ann or bob."""
    database = two_tables()
    options = ALONE.with_(seed_tables=("orders",), batch_size=4)
    with open_sampler(write_store(database, tmp_path), database, options) as sampler:
        (batch,) = epoch_of(sampler, TRAIN, 2)  # 1 task, then table 1
        assert sampler.seed_count(TRAIN, 2) == 4
    by_anchor = {int(row): b for b, row in enumerate(batch["anchor_rows"])}
    contexts = {row: batch["row_ids"][b, : batch["num_rows"][b]] for row, b in by_anchor.items()}
    assert {row: rows.tolist() for row, rows in contexts.items()} == {
        2: [2, 0],
        3: [3, 1],
        4: [4, 0, 2],
        5: [5, 0, 4, 2],
    }
    assert batch["obs_time"][by_anchor[4]] == at(3)
    assert batch["seed_index"][by_anchor[4]] == 2
    b = by_anchor[3]  # id, customer, placed, amount; id, name, vip, which is NULL
    assert all_masked(batch, b) == [3, 5, 6]
    assert batch["masked_boolean_is_null"][b, 0] == 1
    assert batch["masked_boolean_values"][b, 0] == 0
    assert not batch["is_null"][b].any()  # that it is NULL is part of the truth
    assert batch["target_stype"].tolist() == [255]
    assert batch["task_idx"].tolist() == [2**32 - 1]
    assert not batch["is_labelled"].any()
    assert "target_indices" not in batch


def test_rows_without_times_are_asked_about_at_the_end_of_what_may_be_seen(tmp_path: Path) -> None:
    tables = ALONE.with_(seed_tables=("customers",), batch_size=2)
    for until, orders in ((NEVER, [5, 4, 2]), (at(3.5), [4, 2])):
        options = tables.with_(visible_until=(until,) * 3)
        (batch,) = sampled(two_tables(), tmp_path, options, TRAIN, 1)
        b = batch["anchor_rows"].tolist().index(0)
        assert batch["row_ids"][b, : batch["num_rows"][b]].tolist() == [0, *orders]
        assert batch["obs_time"].tolist() == [until] * 2


def test_rows_later_than_what_may_be_seen_are_no_seeds(tmp_path: Path) -> None:
    database = two_tables()
    path = write_store(database, tmp_path)
    options = ALONE.with_(seed_tables=("orders",), visible_until=(at(2), NEVER, NEVER))
    with open_sampler(path, database, options) as sampler:
        assert sampler.seed_count(TRAIN, 2) == 2


def test_keys_times_and_labels_of_val_and_test_are_never_masked(tmp_path: Path) -> None:
    """Loan 7 is a train seed of `rating`, loan 8 one of test, and 5 and 6 are none. `lent` is the
    time of the row. With everything masked that may be: genres, names, ages, ratings, `back`."""
    database = bookstore()
    options = ALONE.with_(seed_tables=("loans",), batch_size=4)
    (batch,) = sampled(database, tmp_path, options, TRAIN, 1 + 3)
    rating = 12
    for b in range(4):
        columns = batch["column_ids"][b][all_masked(batch, b)]
        assert {5, 7, 12} <= set(columns.tolist()) <= {1, 5, 7, 12, 13}
        rows = batch["row_ids"][b][batch["seq_row_ids"][b]]
        shown = rows[(batch["column_ids"][b] == rating) & (batch["is_padding"][b] == 0)]
        assert 8 not in shown  # of test: no context holds it
    b = batch["anchor_rows"].tolist().index(7)
    anchor = [s for s in all_masked(batch, b) if batch["seq_row_ids"][b, s] == 0]
    assert batch["column_ids"][b][anchor].tolist() == [rating]


@pytest.mark.parametrize(
    ("labels", "shown"), [("train", {5, 6, 7}), ("none", {5, 6}), ("all", None)]
)
def test_context_labels_decide_what_contexts_of_masked_cells_hold(
    labels: str, shown: set[int] | None, tmp_path: Path
) -> None:
    database = bookstore()
    options = ALONE.with_(seed_tables=("loans",), batch_size=4, context_labels=labels)
    (batch,) = sampled(database, tmp_path, options, TRAIN, 1 + 3)
    rows = np.take_along_axis(batch["row_ids"], batch["seq_row_ids"].astype(np.int64), axis=1)
    is_rating = (batch["column_ids"] == 12) & (batch["is_padding"] == 0)
    assert set(rows[is_rating].tolist()) == (shown or {5, 6, 7, 8})
    is_masked = is_rating & (batch["is_target"] > 0)
    assert set(rows[is_masked].tolist()) == (shown or {5, 6, 7})  # never the label of test


# ---- what a mask changes -------------------------------------------------------------------------


def unmasked(batch: Arrays) -> Arrays:
    """A dense batch with the values of its lists back in its cells."""
    arrays = {name: array.copy() for name, array in batch.items() if "masked_" not in name}
    for stype, name in enumerate(TYPES):
        for b in range(len(batch["num_cells"])):
            for i, s in enumerate(masked(batch, name, b)):
                assert batch["is_target"][b, s] == 1
                assert batch["semantic_types"][b, s] == stype + 1
                assert not any(arrays[slot][b, s].any() for slot in SLOTS)
                assert arrays["is_null"][b, s] == 0
                arrays["is_target"][b, s] = 0
                arrays[SLOTS[stype]][b, s] = batch[f"masked_{name}_values"][b, i]
                arrays["is_null"][b, s] = batch[f"masked_{name}_is_null"][b, i]
    arrays.pop("target_indices", None)
    return arrays


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_contexts_are_the_same_but_for_the_masked_values(
    seed: int, resident: bool, tmp_path: Path
) -> None:
    """Also the walk, which draws from the same stream; and every truth is the cell's own value."""
    database = random_database(seed)
    options = random_masked_options(3 * seed, database).with_(
        masked_objective=False, seed_tables=None, mask_ratio=0.4, max_targets=2, cell_dropout=0.0
    )
    plain = options.with_(mask_ratio=0.0, max_targets=0)
    path = write_store(database, tmp_path)
    more = {"text_mode": 1} if resident else {"text_budget": 500}
    with (
        open_sampler(path, database, options, **more) as with_masks,
        open_sampler(path, database, plain, **more) as without,
    ):
        for got, expected in pairs_of(with_masks, without, database.tasks):
            assert difference(expected, unmasked(got)) is None
        for task, split in product(range(len(database.tasks)), (VAL, TEST)):
            if with_masks.seed_count(split, task):
                for got in epoch_of(with_masks, split, task):
                    assert not any(all_masked(got, b) for b in range(len(got["num_cells"])))


def test_cells_are_masked_with_their_probability_and_at_least_one_is(tmp_path: Path) -> None:
    """2,000 contexts of ann at one microsecond each: 4 cells may be masked in each."""
    seeds = tuple(Seed(0, at(4) + i, True, split=TRAIN) for i in range(2000))
    database = two_tables(seeds=seeds)
    path = write_store(database, tmp_path)
    counts: dict[float, list[int]] = {}
    for ratio in (1e-9, 0.25):
        options = ALL.with_(mask_ratio=ratio, batch_size=100)
        with open_sampler(path, database, options) as sampler:
            counts[ratio] = [
                len(all_masked(batch, b))
                for batch in epoch_of(sampler, TRAIN, 0)
                for b in range(100)
            ]
    assert set(counts[1e-9]) == {1}
    # Of 4 cells with p = 1/4: none in 0.75 ** 4 of the contexts, which then get one.
    expected = 2000 * (1 + 0.75**4)
    assert abs(sum(counts[0.25]) - expected) < 5 * (2000 * 4 * 0.25 * 0.75) ** 0.5
    assert min(counts[0.25]) == 1


def test_no_more_of_a_type_are_masked_than_may_be(tmp_path: Path) -> None:
    """The first ones stay masked; the second amount is shown."""
    database = two_tables()
    options = ALL.with_(max_targets=1)
    with open_sampler(write_store(database, tmp_path), database, options) as sampler:
        (batch,) = epoch_of(sampler, TRAIN, 0)
        stats = sampler.stats()
    assert masked(batch, "numerical") == [8]
    assert batch["numeric_values"][0, 12] == pytest.approx(-20 / 350**0.5, abs=1e-6)
    assert batch["is_target"][0, 12] == 0
    assert (stats["masked_cells"], stats["masked_over_limit"]) == (3, 1)


@pytest.mark.parametrize("layout", [{}, COMPACT])
@pytest.mark.parametrize("alone", [False, True])
def test_any_number_of_threads_makes_the_same_bits(
    layout: dict[str, Any], alone: bool, tmp_path: Path
) -> None:
    database = random_database(7)
    options = Options(
        mask_ratio=0.3, max_targets=4, masked_objective=alone, split_ratios=(1.0, 0.0, 0.0)
    )
    path = write_store(database, tmp_path)
    found = []
    for threads in (1, 2, 8):
        with open_sampler(
            path, database, options, threads=threads, prefetch=3, text_budget=300, **layout
        ) as sampler:
            found.append([arrays_of(sampler.next(TRAIN, None)) for _ in range(12)])
    for other in found[1:]:
        assert not any(differing(one, two) for one, two in zip(found[0], other, strict=True))


# ---- what may not be seen ------------------------------------------------------------------------

LISTS = {f"masked_{name}_{part}" for name in TYPES for part in ("values", "is_null")}


@pytest.mark.parametrize("layout", [{}, COMPACT])
@pytest.mark.parametrize(
    "change",
    [{"ward__0": "b"}, {"ward__0": None}, {"secret__2": True}, {"readmitted__0": True}],
)
def test_a_masked_value_changes_nothing_but_its_list(
    layout: dict[str, Any], change: dict[str, Any], tmp_path: Path
) -> None:
    """Visits 0 and 2 of patient 0 are in its context; all that may be masked is."""
    found = []
    for i, database in enumerate((clinic(), clinic(**change))):
        options = ALL.with_(child_counts=True)
        found += sampled(database, tmp_path / str(i), options, **layout)[:1]
    different = differing(*found)
    assert different
    assert different <= LISTS


def test_labels_of_val_and_test_are_in_no_context_of_masked_cells(tmp_path: Path) -> None:
    """Visits 2 and 3 are val and test seeds of `readmitted`: in another database they are true."""
    found = []
    for i, changes in enumerate(({}, {"readmitted__2": True, "readmitted__3": True})):
        database = clinic(**changes)
        options = ALONE.with_(seed_tables=("visits", "patients"), mask_ratio=0.5)
        folder = tmp_path / str(i)
        found.append([b for t in (2, 3) for b in sampled(database, folder, options, TRAIN, t)])
    assert len(found[0]) == 8
    assert not any(differing(one, two) for one, two in zip(*found, strict=True))


def test_the_canary_sings_where_the_label_is_of_train(tmp_path: Path) -> None:
    lists = []
    for i, changes in enumerate(({}, {"readmitted__1": True})):
        database = clinic(**changes)
        options = ALONE.with_(seed_tables=("visits",))
        batches = sampled(database, tmp_path / str(i), options, TRAIN, 3)
        lists.append([batch["masked_boolean_values"].tolist() for batch in batches])
    assert lists[0] != lists[1]


# ---- the options ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("masked"))


SMALL: dict[str, Any] = {"default_batch_size": 4, "default_sequence_length": 32, "num_threads": 2}


@pytest.mark.filterwarnings("ignore:task 'customers' has . seeds in split .*, none for rank 1")
def test_every_row_of_the_tables_is_seen_once_by_one_rank(path: Path) -> None:
    tables = ["orders", "customers"]
    seen: dict[str, list[int]] = {name: [] for name in tables}
    lengths, left = set(), []
    for rank in range(2):
        with headwater.Sampler(
            path, rank, 2, objective="masked_cells", seed_tables=tables, **SMALL
        ) as sampler:
            for name in tables:
                for split in ("train", "val", "test"):
                    if sampler.num_seeds(split, name) == 0:
                        continue
                    run = sampler.epoch(split, name)
                    lengths.add((name, split, len(run)))
                    for batch in run:
                        real = int(batch["num_sequences"][0])
                        seen[name] += batch.info["anchor_rows"][:real].tolist()
            total = sum(sampler.num_seeds(split) for split in ("train", "val", "test"))
            assert total == 30
            left.append(sampler.remaining("train"))
            seeds = sampler.num_seeds("train")
    assert sum(left) == seeds and all(left)  # of each rank its own
    assert {name: sorted(rows) for name, rows in seen.items()} == {
        "orders": list(range(6, 30)),
        "customers": list(range(6)),
    }
    assert len(lengths) <= 6  # as many batches on every rank


def test_a_run_over_tables_resumes_where_it_stood(path: Path) -> None:
    options = {"objective": "masked_cells", "seed_tables": ["customers", "orders"], **SMALL}
    with headwater.Sampler(path, **options) as sampler:
        for _ in range(5):
            sampler.next_train_batch()
        state = sampler.state_dict()
        rest = [sampler.next_train_batch() for _ in range(4)]
    assert set(state["streams"]["train"]["positions"]) == {"customers", "orders"}
    with headwater.Sampler(path, **options) as resumed:
        resumed.load_state_dict(state)
        for expected in rest:
            assert not differing(expected, resumed.next_train_batch())


def test_a_state_knows_of_masks(path: Path) -> None:
    with (
        headwater.Sampler(path, **SMALL) as plain,
        headwater.Sampler(path, mask_ratio=0.2, **SMALL) as beside,
        headwater.Sampler(path, objective="masked_cells", **SMALL) as alone,
    ):
        assert plain.state_dict()["options"]["mask_ratio"] is None
        assert alone.state_dict()["options"]["mask_ratio"] == 0.15
        with pytest.raises(ValueError, match=r"mask_ratio was None and is 0.2"):
            beside.load_state_dict(plain.state_dict())
        with pytest.raises(ValueError, match="objective was 'task' and is 'masked_cells'"):
            alone.load_state_dict(beside.state_dict())


def test_the_length_of_the_lists_is_chosen_from_a_sample(path: Path) -> None:
    with (
        headwater.Sampler(path, objective="masked_cells", mask_ratio=0.5, **SMALL) as sampler,
        headwater.Sampler(path, **SMALL) as plain,
    ):
        most = sampler.shape["max_targets_per_type"]
        assert plain.shape["max_targets_per_type"] == 0
        seen = 0
        for batch in sampler.epoch("train"):  # all of it is in the sample
            assert batch["masked_numerical_indices"].shape == (4, most)
            for name in TYPES:
                seen = max(seen, int((batch[f"masked_{name}_indices"] >= 0).sum(axis=1).max()))
        assert most == seen + seen // 4 + 1
        assert sampler.stats()["masked_cells"] > 0
        assert sampler.stats()["masked_over_limit"] == 0


@pytest.mark.parametrize("targets", ["inline", "separate"])
@pytest.mark.parametrize("objective", ["task", "masked_cells"])
def test_expand_gives_the_dense_arrays_bit_for_bit(
    path: Path, objective: str, targets: str
) -> None:
    options = {"objective": objective, "mask_ratio": 0.5, "targets": targets, **SMALL}
    with (
        headwater.Sampler(path, **options) as dense,
        headwater.Sampler(path, layout="compact", **options) as compact,
    ):
        for k in range(8):
            expected, got = dense.batch("train", k), headwater.expand(compact.batch("train", k))
            assert set(expected) == set(got)
            for name, array in expected.items():
                assert array.dtype == got[name].dtype, name
                assert array.tobytes() == got[name].tobytes(), name
        assert "target_values" not in expected or objective == "task"


def test_the_seed_of_a_derived_task_is_its_anchor_at_its_time(path: Path) -> None:
    with headwater.Sampler(path, tasks=["churn"], objective="masked_cells", **SMALL) as sampler:
        batch = sampler.batch("train", 0)
        assert (batch["row_tables"][:, 0] == 0).all()  # customers, no seed row
        assert set(batch.info["obs_time"].tolist()) <= {
            86_400_000_000 * day for day in (10, 20, 30)
        }
        assert sampler.database_metadata()["tasks"][0]["seeds"]["train"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "cells"}, "objective is 'cells', expected one of"),
        ({"objective": "masked_cells", "mask_ratio": 0.0}, "mask_ratio is 0, objective"),
        ({"mask_ratio": 1.5}, "mask_ratio is 1.5, expected 0 to 1"),
        ({"mask_ratio": -0.5}, "mask_ratio is -0.5, expected 0 to 1"),
        ({"mask_ratio": float("nan")}, "mask_ratio is -?nan, expected 0 to 1"),
        ({"mask_ratio": 0.5, "packing": True}, "mask_ratio is 0.5, expected 0 with packing"),
        ({"max_targets_per_type": 3}, "max_targets_per_type is 3, expected at most"),
        (
            {"mask_ratio": 0.5, "max_targets_per_type": 33},
            "max_targets_per_type is 33, expected at",
        ),
        (
            {"mask_ratio": 0.5, "max_targets_per_type": 0},
            "max_targets_per_type is 0, expected 1 to",
        ),
        ({"objective": "masked_cells", "label_rows": 2}, "label_rows is 2, contexts of masked"),
        ({"seed_tables": ["orders"]}, "seed_tables go with the objective 'masked_cells'"),
        (
            {"objective": "masked_cells", "seed_tables": ["orders"], "tasks": ["churn"]},
            "give either tasks or seed_tables",
        ),
        (
            {"objective": "masked_cells", "seed_tables": []},
            r"seed_tables is \[\], expected at least",
        ),
        ({"objective": "masked_cells", "seed_tables": ["order"]}, "order"),
    ],
)
def test_options_that_cannot_be_are_named(
    path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        headwater.Sampler(path, **{**SMALL, **options})


def test_functions_that_take_a_task_take_a_seed_table(path: Path) -> None:
    with headwater.Sampler(
        path, objective="masked_cells", seed_tables=["orders"], **SMALL
    ) as sampler:
        assert sampler.batches_per_epoch("train", "orders") == len(sampler.epoch("train", "orders"))
        assert "orders" in repr(sampler)
        with pytest.raises(
            ValueError, match="table 'customers' is not among this sampler's tables"
        ):
            sampler.num_seeds("train", "customers")
        assert sampler.splits("orders").tolist().count(0) == sampler.num_seeds("train", "orders")
        assert sampler.splits("orders").shape == (24,)
        with pytest.raises(ValueError, match="the objective is 'masked_cells'"):
            sampler.batches_for("orders", [1])


# ---- against the reference -----------------------------------------------------------------------


def check_world(path: Path, order: Order, epoch: int) -> None:
    layouts: list[dict[str, Any]] = [{}, COMPACT]
    for layout in layouts:
        with open_sampler(path, order.database, order.options, **layout) as sampler:
            check_epochs(sampler, order, epoch)
            maker = maker_of(order, sampler.shape())
            for split in range(2):
                if order.active(split):
                    got = arrays_of(sampler.batch(split, 1))
                    dense = dense_of(got) if layout else got
                    assert difference(maker.make(order.batch(split, 1)), dense) is None


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(0, 2))
def test_every_array_of_every_batch_equals_the_reference(seed: int, epoch: int) -> None:
    database = random_database(seed)
    with TemporaryDirectory() as folder:
        path = write_store(database, Path(folder))
        for variant in range(2):
            options = random_masked_options(seed * 2 + variant, database)
            check_world(path, Order(database, options), epoch)
