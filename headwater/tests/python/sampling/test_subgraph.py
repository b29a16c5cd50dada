"""`Sampler.subgraph`: the rows and links of one context, as the batches have them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from plain_database import BOOLEAN, IDENTIFIER, NEVER, Column, Database, Key, Seed, Task
from reference_order import NO_SEED, Order
from reference_sampler import Walk
from tiny_store import write_tiny
from world_store import front_options, write_store
from worlds import asking_for_a_key, random_database, random_masked_options, random_options, table

NO_ROW = 2**32 - 1
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"layout": "compact", "with_rows": True, "text_budget": 65_536},
    {"packing": True, "attention_masks": True, "contexts_per_batch": 9},
    {"max_rows": None},
)


# ---- by hand -----------------------------------------------------------------------------------


def test_a_customer_with_two_orders_before_the_question(tmp_path: Path) -> None:
    """Seed 3 is about customer 2 (row 1) on day 10: orders 1 and 6 (rows 6 and 11) were made."""
    with headwater.Sampler(db_path=write_tiny(tmp_path), tasks=["churn"]) as sampler:
        found = sampler.subgraph(np.uint32(3))
    assert (found.seed, found.task) == (3, "churn")
    assert found.rows[:2].tolist() == [NO_ROW, 1]
    assert sorted(found.rows[2:].tolist()) == [6, 11]
    assert found.row_tables.tolist() == [-1, 0, 1, 1]
    assert found.row_depths.tolist() == [0, 1, 2, 2]
    assert found.local_edges.tolist() == [[0, 1], [2, 1], [3, 1]]
    types = {"rows": "u4", "row_tables": "i4", "row_depths": "u1", "local_edges": "u2"}
    for name, dtype in types.items():
        array = getattr(found, name)
        assert (array.dtype, array.flags.writeable, array.flags.owndata) == (dtype, False, True)


def people() -> Database:
    """Row 0 is its own boss; 0 is boss and mentor of 1, who mentors 2; 2 and 3 are bosses of each
    other."""
    columns = [Column(name, IDENTIFIER) for name in ("id", "boss", "mentor")]
    rows = [(True, True, None), (True, True, True), (True, True, True), (True, True, None)]
    keys = (
        Key(("boss",), "people", (0, 0, 3, 2)),
        Key(("mentor",), "people", (None, 0, 1, None)),
    )
    seeds = (Seed(1, NEVER, True, split=0),)
    task = Task("stays", "people", "stays", BOOLEAN, seeds)
    return Database("people", (table("people", columns, rows, keys),), (task,))


def test_each_pair_of_rows_is_one_edge(tmp_path: Path) -> None:
    """By hand: the seed row; its anchor 1; 1's only parent 0; 1's child 2; 2's other parent 3."""
    with headwater.Sampler(db_path=write_store(people(), tmp_path)) as sampler:
        found, both = sampler.subgraph(0), sampler.subgraph(0, both=True)
    assert found.rows.tolist() == both.rows.tolist() == [NO_ROW, 1, 0, 2, 3]
    assert found.row_depths.tolist() == [0, 1, 2, 2, 3]
    edges = [[0, 1], [1, 2], [2, 2], [3, 4], [3, 1], [4, 3]]
    assert found.local_edges.tolist() == edges
    assert both.local_edges.tolist() == [*edges, [1, 0], [2, 1], [1, 3]]


@pytest.mark.parametrize("layout", ["dense", "compact", "flat"])
def test_each_key_has_its_slot_in_batches(layout: str, tmp_path: Path) -> None:
    """The same context: both keys of 1 lead to 0, which stands in both slots."""
    path = write_store(people(), tmp_path)
    with headwater.Sampler(db_path=path, layout=layout, default_batch_size=1) as sampler:
        batch = sampler.next_train_batch()
    parents = batch["parents"][0, :5].astype(np.int16).tolist()
    assert parents == [[1, -1], [2, 2], [2, -1], [4, 1], [3, -1]]
    if layout == "dense":
        assert batch["fk_adj"][0, :3, :3].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]


# ---- the reference -----------------------------------------------------------------------------


def test_a_thousand_seeds_of_random_worlds_equal_the_reference_walk(tmp_path: Path) -> None:
    checked = number = withheld = 0
    while checked < 1000:
        number += 1
        database = random_database(number)
        if number % 3 == 0:
            database = asking_for_a_key(database, number)
        path = write_store(database, tmp_path / f"{number}")
        for variant, layout in enumerate(LAYOUTS):
            options = random_options(4 * number + variant, database)
            if number % 4 == 0 and "packing" not in layout:
                options = random_masked_options(4 * number + variant, database)
            opened = {**front_options(options), "num_prefetch": 0, **layout}
            if "packing" in layout and number % 2 == 0:
                opened |= {"context_length": options.sequence_length, "max_rows": None,
                           "default_sequence_length": 3 * options.sequence_length}  # fmt: skip
            with headwater.Sampler(db_path=path, **opened) as sampler:
                order = Order(database, options.with_(max_rows=sampler.shape["max_context_rows"]))
                for task, splits in order.splits.items():
                    seeds = [seed for seed, split in enumerate(splits) if split != NO_SEED]
                    withheld += sum(check(sampler, order, task, seed, variant) for seed in seeds)
                    checked += len(seeds)
    assert withheld > 100


def check(
    sampler: headwater.Sampler, order: Order, task_number: int, index: int, epoch: int
) -> int:
    """Returns how many links of the store are withheld."""
    task, database = order.tasks[task_number], order.database
    split = order.splits[task_number][index]
    walk = Walk(order, task_number, task.seeds[index], split, epoch, index)
    context = walk.run()
    found = sampler.subgraph(index, task.name, epoch=epoch)
    assert found.rows.tolist() == [NO_ROW if row is None else row for row in context.rows]
    assert found.row_depths.tolist() == context.depths
    edges, withheld = set[tuple[int, int]](), 0
    place = {row: local for local, row in enumerate(context.rows) if row is not None}
    for local, row in enumerate(context.rows):
        if row is None:
            assert found.row_tables[local] == -1
            edges |= {(local, parent) for parent in context.parents[local] if parent is not None}
            continue
        own = database.table_of_row(row)
        assert database.tables[found.row_tables[local]].name == own.name
        parents = sampler.store.parents(row).tolist()
        for key, parent in zip(own.ordered_keys(), parents, strict=True):
            if parent not in place:
                continue
            if walk.edge_withheld(own, key, row, context.chain[local]):
                withheld += 1
            else:
                edges.add((local, place[parent]))
    listed = list(map(tuple, found.local_edges.tolist()))
    assert set(listed) == edges
    assert len(listed) == len(edges)
    assert [child for child, _ in listed] == sorted(child for child, _ in listed)
    both = sampler.subgraph(index, task.name, epoch=epoch, both=True)
    pairs = list(map(tuple, both.local_edges.tolist()))
    assert pairs[: len(listed)] == listed
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == edges | {(parent, child) for child, parent in edges}
    return withheld


# ---- ends --------------------------------------------------------------------------------------


def test_threads_may_ask_at_once(tmp_path: Path) -> None:
    options: dict[str, Any] = {"bfs_child_width": 2, "num_threads": 2, "with_rows": True}
    with headwater.Sampler(db_path=write_tiny(tmp_path), **options) as sampler:
        batches = list(sampler.batches_of(range(18), "churn", epoch=5))
        rows, counts = (
            np.concatenate([batch[name] for batch in batches]) for name in ("row_ids", "num_rows")
        )
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda s: sampler.subgraph(s, "churn", epoch=5), range(18)))
        for seed, subgraph in enumerate(found):
            assert subgraph.rows.tolist() == rows[seed, : counts[seed]].tolist()


def test_a_sampler_that_was_shut_down_has_no_subgraphs(tmp_path: Path) -> None:
    sampler = headwater.Sampler(db_path=write_tiny(tmp_path))
    sampler.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        sampler.subgraph(0, "churn")
