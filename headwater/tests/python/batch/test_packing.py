"""Several contexts in one sequence: placed first-fit, each bit for bit what it is alone."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from comparison import difference
from plain_database import BOOLEAN, Database, Key, Options, Seed, Task
from reference_compact import dense_of
from reference_packing import Place, packed
from test_attention_masks import expected_masks
from tiny_store import write_tiny
from world_store import Arrays, epoch_of, open_sampler, pairs_of, sampled, write_store
from worlds import at, random_database, random_options, table, two_tables

COMPACT = {"layout": 1}
CONTEXTS = 7


# ---- by hand -----------------------------------------------------------------------------------

# Ann asked on day 4 has 13 cells in 4 rows (test_batch_arrays.ANN). Bob has 9 in 3:
#
# local row     0      1          2
#               seed   bob        order 3 of day 2
# position      0 1    2 3 4      5 6 7 8
# column        7 8    0 1 2      3 4 5 6


def both(tmp_path: Path, length: int, rows: int = 16, **context: int) -> Arrays:
    """One sequence for ann and then bob (which is how the epoch has them)."""
    database = two_tables(seeds=(Seed(0, at(4), True, split=0), Seed(1, at(4), False, split=0)))
    options = Options(sequence_length=length, max_rows=rows, batch_size=1, recent=True, seed=1)
    more: dict[str, Any] = {"packing": True, "contexts_per_batch": 2, "targets": 1, **context}
    (batch,) = sampled(database, tmp_path, options, **more)
    assert batch["seed_index"][0, 0] == 0  # ann
    return batch


def test_ann_and_bob_share_a_sequence(tmp_path: Path) -> None:
    batch = both(tmp_path, length=24, rows=8)
    assert batch["segment_ids"][0].tolist() == [1] * 13 + [2] * 9 + [0] * 2
    assert batch["column_ids"][0, 13:].tolist() == [7, 8, 0, 1, 2, 3, 4, 5, 6, 0, 0]
    assert batch["seq_row_ids"][0, 13:].tolist() == [4, 4, 5, 5, 5, 6, 6, 6, 6, 0, 0]
    assert batch["is_target"][0].nonzero()[0].tolist() == [1, 14]
    assert batch["num_cells"].tolist() == [[13, 9]]
    assert batch["num_rows"].tolist() == [[4, 3]]
    assert batch["num_contexts"].tolist() == [2]
    assert batch["num_sequences"].tolist() == [1]
    assert batch["row_starts"][0].tolist() == [0, 2, 5, 9, 13, 15, 18, 22, 22]
    # Bob's seed row 4 and his order 6 point at him, row 5; nothing points into ann's rows.
    links = [[0, 1], [2, 1], [3, 1], [4, 5], [6, 5]]
    assert np.argwhere(batch["fk_adj"][0]).tolist() == links
    # Ann's columns first, then bob's: 0..8 each, and his rows 6 5 4 (both ends have one neighbour:
    # start at 4, reversed).
    bob = [15, 16, 17, 18, 19, 20, 21, 13, 14]
    assert batch["col_perm"][0, :13].tolist() == [2, 3, 4, 5, 9, 6, 10, 7, 11, 8, 12, 0, 1]
    assert batch["col_perm"][0, 13:].tolist() == [*bob, 22, 23]
    order = [18, 19, 20, 21, 15, 16, 17, 13, 14]
    assert batch["out_perm"][0, 13:].tolist() == [*order, 22, 23]
    assert batch["target_values"][0, :, 0].tolist() == [1, 0]
    assert batch["is_labelled"].tolist() == [[1, 1]]
    assert batch["obs_time"].tolist() == [[at(4), at(4)]]
    assert batch["anchor_rows"].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("length", "rows", "cells", "row_counts", "links"),
    [
        (16, 16, [13, 3], [4, 2], [[0, 5]]),  # 16 - 13: his seed row and one cell of himself
        (24, 5, [13, 2], [4, 1], []),  # he is not there any more
        (14, 16, [13, 0], [4, 0], []),  # his question has no room
    ],
)
def test_bob_is_cut_where_the_sequence_or_the_rows_end(
    length: int,
    rows: int,
    cells: list[int],
    row_counts: list[int],
    links: list[list[int]],
    tmp_path: Path,
) -> None:
    batch = both(tmp_path, length=length, rows=rows)
    assert batch["num_cells"].tolist() == [cells]
    assert batch["num_rows"].tolist() == [row_counts]
    assert np.argwhere(batch["fk_adj"][0, 4:]).tolist() == links
    is_there = int(cells[1] > 0)
    assert batch["num_contexts"].tolist() == [1 + is_there]
    assert batch["is_labelled"].tolist() == [[1, is_there]]
    assert batch["target_is_null"].tolist() == [[0, 1 - is_there]]
    segments = [1] * 13 + [2] * cells[1]
    assert batch["segment_ids"][0].tolist() == segments + [0] * (length - len(segments))
    assert batch["column_ids"][0, 13 : 13 + cells[1]].tolist() == [7, 8, 0][: cells[1]]
    starts = [0, 2, 5, 9, 13, *([15] if is_there else []), *([16] if cells[1] == 3 else [])]
    assert batch["row_starts"][0, : len(starts)].tolist() == starts


def test_contexts_end_before_the_sequence_does(tmp_path: Path) -> None:
    batch = both(tmp_path, length=24, context_length=7)  # question, customer, half an order each
    assert batch["num_cells"].tolist() == [[7, 7]]
    assert batch["num_rows"].tolist() == [[3, 3]]
    assert batch["segment_ids"][0].tolist() == [1] * 7 + [2] * 7 + [0] * 10
    columns = [7, 8, 0, 1, 2, 3, 4]
    assert batch["column_ids"][0].tolist() == columns + columns + [0] * 10
    assert batch["row_starts"][0].tolist() == [0, 2, 5, 7, 9, 12] + [14] * 11
    assert np.argwhere(batch["fk_adj"][0]).tolist() == [[0, 1], [2, 1], [3, 4], [5, 4]]
    by_column, by_row = np.array([2, 3, 4, 5, 6, 0, 1]), np.array([5, 6, 2, 3, 4, 0, 1])
    padding = list(range(14, 24))
    assert batch["col_perm"][0].tolist() == [*by_column, *(by_column + 7), *padding]
    assert batch["out_perm"][0].tolist() == [*by_row, *(by_row + 7), *padding]


def test_contexts_have_fewer_rows_than_the_sequence(tmp_path: Path) -> None:
    batch = both(tmp_path, length=24, rows=5, max_context_rows=2)  # question and customer
    assert batch["num_cells"].tolist() == [[5, 5]]
    assert batch["num_rows"].tolist() == [[2, 2]]
    assert batch["row_starts"][0].tolist() == [0, 2, 5, 7, 10, 10]
    assert np.argwhere(batch["fk_adj"][0]).tolist() == [[0, 1], [2, 3]]


# ---- against the reference ---------------------------------------------------------------------


def lost(contexts: Arrays, places: list[Place]) -> Counter[str]:
    counts = Counter[str]()
    for k, place in enumerate(places):
        whole = int(contexts["num_cells"][k])
        counts["contexts_dropped"] += place.sequence is None
        counts["contexts_cut"] += place.sequence is not None and place.cells < whole
        counts["cells_cut"] += whole - place.cells
        counts["packed_cells"] += place.cells
    return counts


def check(
    path: Path,
    database: Database,
    alone: Options,
    sequences: Options,
    more: dict[str, Any],
    texts: int = 0,
) -> Counter[str]:
    """Every epoch, packed into `sequences`, against what Python packs from unpacked batches of the
    same seeds, `alone`; texts: the budget of both."""
    targets = more.get("targets", 0)
    counts = Counter[str]()
    alone = alone.with_(batch_size=CONTEXTS)
    packing: dict[str, Any] = {"packing": True, "contexts_per_batch": CONTEXTS, **more}
    with (
        open_sampler(
            path, database, alone, text_budget=texts, targets=targets, **COMPACT
        ) as unpacked,
        open_sampler(path, database, sequences, text_budget=texts, **packing) as sampler,
    ):
        most = sampler.shape()["contexts_per_sequence"]
        for contexts, got in pairs_of(unpacked, sampler, database.tasks):
            contexts = headwater.expand(contexts)
            expected, places = packed(
                contexts, sequences.batch_size, sequences.sequence_length, sequences.max_rows, most
            )
            if "cells" in got:
                assert difference(expected, dense_of(got), ["timestamp_values"]) is None
            else:
                assert difference(expected, got, []) is None
            counts += lost(contexts, places)
        stats = sampler.stats()
    for name in ("contexts_cut", "contexts_dropped", "cells_cut", "packed_cells"):
        assert stats[name] == counts[name], name
    assert stats["cells"] == stats["packed_cells"] + stats["cells_cut"]
    return counts


VARIANTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense, targets beside": {"targets": 1},
    "compact": COMPACT,
    "compact, targets beside": {**COMPACT, "targets": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_context_is_found_again_as_a_segment(variant: str, tmp_path: Path) -> None:
    counts = Counter[str]()
    for seed in range(40):
        database = random_database(seed)
        options = random_options(seed, database).with_(
            batch_size=1 + seed % 2, world_size=1, rank=0
        )
        path = write_store(database, tmp_path / str(seed))
        texts = 1 + CONTEXTS * options.sequence_length
        counts += check(path, database, options, options, VARIANTS[variant], texts)
    assert counts["contexts_cut"] > 20  # it was about something
    assert counts["contexts_dropped"] > 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_contexts_do_not_change_with_the_sequences_around_them(
    variant: str, tmp_path: Path
) -> None:
    counts = Counter[str]()
    for seed in range(40):
        database, dice = random_database(seed), random.Random(f"sequences {seed}")
        alone = random_options(seed, database).with_(world_size=1, rank=0)
        sequences = alone.with_(
            sequence_length=alone.sequence_length * dice.randint(1, 3) + dice.randrange(9),
            max_rows=alone.max_rows * dice.randint(1, 3) + dice.randrange(9),
            batch_size=1 + seed % 2,
        )
        context = {"context_length": alone.sequence_length, "max_context_rows": alone.max_rows}
        path = write_store(database, tmp_path / str(seed))
        counts += check(path, database, alone, sequences, {**VARIANTS[variant], **context})
    assert counts["contexts_cut"] > 20
    assert counts["contexts_dropped"] > 5


@pytest.mark.parametrize("context", [{}, {"context_length": 12, "max_context_rows": 3}])
def test_masks_see_nothing_outside_a_segment(context: dict[str, int], tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options: dict[str, Any] = {
        "default_sequence_length": 64,
        "default_batch_size": 3,
        "num_prefetch": 0,
        **context,
    }
    for layout in ("dense", "compact"):
        with headwater.Sampler(
            path, packing=True, attention_masks=True, layout=layout, **options
        ) as sampler:
            batch = sampler.batch("train", 0)
        dense = batch if layout == "dense" else dense_of(batch)
        assert batch["num_contexts"].max() > 1
        for b in range(3):
            expected = expected_masks(
                dense["column_ids"][b],
                dense["seq_row_ids"][b],
                dense["fk_adj"][b],
                dense["is_padding"][b],
                dense["segment_ids"][b],
            )
            for name, mask in expected.items():
                assert np.array_equal(batch[name][b], mask), name


# ---- seeds -------------------------------------------------------------------------------------


def seeds_in(batch: headwater.Batch) -> list[int]:
    is_there = batch["num_cells"] > 0
    return [int(seed) for seed in batch.info["seed_index"][is_there]]


SMALL: dict[str, Any] = {
    "default_batch_size": 5,
    "default_sequence_length": 32,
    "max_rows": 16,
    "text_budget": 200,
    "split_ratios": (0.6, 0.2, 0.2),
    "packing": True,
    "contexts_per_batch": 5,  # as many as sequences: nothing is ever cut
}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_an_epoch_has_every_seed_once_over_all_ranks(world_size: int, tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    for split in ("train", "val", "test"):
        found, lengths = Counter[int](), set()
        for rank in range(world_size):
            with headwater.Sampler(path, rank, world_size, tasks=["churn"], **SMALL) as sampler:
                epoch = sampler.epoch(split, "churn")
                lengths.add(len(epoch))
                assert len(epoch) == sampler.batches_per_epoch(split, "churn")
                for batch in epoch:
                    found.update(seeds_in(batch))
                assert sampler.stats()["contexts_dropped"] == 0
                count = sampler.num_seeds(split, "churn")
        assert len(lengths) == 1
        assert len(found) == count
        assert set(found.values()) == {1}


def test_seeds_that_are_dropped_are_counted(tmp_path: Path) -> None:
    options = {**SMALL, "default_batch_size": 1, "contexts_per_batch": 12, "num_prefetch": 0}
    with headwater.Sampler(write_tiny(tmp_path), tasks=["churn"], **options) as sampler:
        found = [seed for batch in sampler.epoch("train") for seed in seeds_in(batch)]
        stats = sampler.stats()
        assert len(set(found)) == len(found)
        assert stats["contexts_dropped"] > 0
        assert stats["contexts_cut"] > 0
        assert len(found) + stats["contexts_dropped"] == sampler.num_seeds("train")
        cells = stats["packed_sequences"] * 32
        assert stats["fill"] == pytest.approx(stats["packed_cells"] / cells)
        assert stats["fill_unpacked"] == pytest.approx(stats["cells"] / (stats["sequences"] * 32))


def bytes_of(batch: headwater.Batch) -> list[bytes]:
    return [array.tobytes() for array in (*batch.values(), *batch.info.values())]


APART: dict[str, Any] = {"context_length": 14, "max_context_rows": 4}


@pytest.mark.parametrize("context", [{}, APART])
@pytest.mark.parametrize("layout", ["dense", "compact"])
def test_threads_and_prefetch_do_not_show(
    layout: str, context: dict[str, int], tmp_path: Path
) -> None:
    path = write_tiny(tmp_path)
    options = {**SMALL, "contexts_per_batch": 17, "layout": layout, "with_rows": True, **context}
    with headwater.Sampler(path, num_prefetch=0, **options) as sampler:
        expected = [bytes_of(sampler.batch("train", k)) for k in range(12)]
    for threads in (1, 2, 5):
        with headwater.Sampler(path, num_threads=threads, **options) as sampler:
            for batch in expected:
                assert bytes_of(sampler.next_train_batch()) == batch


def test_a_resumed_sampler_goes_on_where_it_was(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options = {**SMALL, "contexts_per_batch": 11}
    with headwater.Sampler(path, **options) as sampler:
        for _ in range(3):
            sampler.next_train_batch()
        state = sampler.state_dict()
        assert sum(state["streams"]["train"]["positions"].values()) == 33
        expected = [bytes_of(sampler.next_train_batch()) for _ in range(4)]
    with headwater.Sampler(path, **options) as sampler:
        sampler.load_state_dict(state)
        assert [bytes_of(sampler.next_train_batch()) for _ in range(4)] == expected
    unpacked = {k: v for k, v in options.items() if k not in ("packing", "contexts_per_batch")}
    message = "packing was True and is False"
    with (
        headwater.Sampler(path, **unpacked) as sampler,
        pytest.raises(ValueError, match=message),
    ):
        sampler.load_state_dict(state)


def test_a_state_names_the_shape_of_a_context_and_not_that_of_a_sequence(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    longer = {"default_sequence_length": 70, "max_rows": 40, "default_batch_size": 3}
    with headwater.Sampler(path, **SMALL, **APART) as sampler:
        sampler.next_train_batch()
        state = sampler.state_dict()
        expected = seeds_in(sampler.next_train_batch())
    with headwater.Sampler(path, **{**SMALL, **longer}, **APART) as sampler:
        sampler.load_state_dict(state)
        assert seeds_in(sampler.next_train_batch()) == expected
        assert sampler.state_dict()["options"] == state["options"]
    message = "context_length was 14 and is 32; max_context_rows was 4 and is 16$"
    with (
        headwater.Sampler(path, **SMALL) as sampler,
        pytest.raises(ValueError, match=message),
    ):
        sampler.load_state_dict(state)
    alike = {"context_length": 32, "max_context_rows": 16}  # which are the defaults
    with (
        headwater.Sampler(path, **SMALL) as one,
        headwater.Sampler(path, **SMALL, **alike) as other,
    ):
        other.load_state_dict(one.state_dict())
        assert bytes_of(other.next_train_batch()) == bytes_of(one.next_train_batch())


def test_the_fill_unpacked_is_that_of_sequences_of_one_context(tmp_path: Path) -> None:
    options = {**SMALL, "num_prefetch": 0}
    with headwater.Sampler(write_tiny(tmp_path), **options, **APART) as sampler:
        sampler.batch("train", 0)
        stats = sampler.stats()
    assert stats["sequences"] == 5
    assert stats["fill_unpacked"] == stats["cells"] / (5 * 14)
    assert stats["fill"] == stats["cells"] / (5 * 32)


# ---- options -----------------------------------------------------------------------------------


def test_the_default_packs_what_a_sample_of_contexts_allows(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options: dict[str, Any] = {"default_batch_size": 4, "default_sequence_length": 64}
    with headwater.Sampler(path, packing=True, **options) as sampler:
        shape = sampler.shape
        assert shape["contexts_per_batch"] > shape["batch_size"]
        assert 1 < shape["contexts_per_sequence"] <= shape["contexts_per_batch"]
        for _ in range(20):
            sampler.next_train_batch()
        stats = sampler.stats()
    assert stats["fill"] > 1.5 * stats["fill_unpacked"]
    assert stats["cells_cut"] < 0.05 * stats["cells"]
    with headwater.Sampler(path, **options) as sampler:
        assert sampler.shape["contexts_per_batch"] == 4
        assert sampler.shape["contexts_per_sequence"] == 1
        assert "fill_unpacked" not in sampler.stats()


def hubs() -> Database:
    """300 questions about three hubs: 285 about one with few spokes, 12 about one with many, and 3
    about one whose spokes have a name each."""
    counts = (6, 90, 90)
    names = ["few"] * 6 + ["many"] * 90 + [f"name {i}" for i in range(90)]
    parents = tuple(hub for hub, count in enumerate(counts) for _ in range(count))
    spokes = table(
        "spokes",
        "spoke_id identifier, hub_id identifier, name text",
        [(True, True, name) for name in names],
        (Key(("hub_id",), "hubs", parents),),
    )
    asked = tuple(Seed((i >= 285) + (i >= 297), at(i), True, split=0) for i in range(300))
    task = Task("shine", "hubs", "shine", BOOLEAN, asked)
    return Database("hubs", (table("hubs", "hub_id identifier", [(True,)] * 3), spokes), (task,))


def test_the_sizes_of_contexts_are_chosen_as_without_packing(tmp_path: Path) -> None:
    """The first 64 seeds decide them, of whom more or fewer are about the hubs with many spokes.
    What a sequence has room for, the first 256 decide."""
    path, database = write_store(hubs(), tmp_path), hubs()
    found = set[tuple[int, int]]()
    for seed in range(20):
        alone = Options(sequence_length=120, max_rows=0, batch_size=64, child_width=100, seed=seed)
        with open_sampler(path, database, alone) as sampler:
            expected = sizes_of(sampler.shape())
        with open_sampler(path, database, alone.with_(max_rows=120)) as sampler:
            whole = epoch_of(sampler, 0, 0)[:4]
        cells, rows = (sum(batch[n].sum() for batch in whole) for n in ("num_cells", "num_rows"))
        packed_rows = expected[0]
        while packed_rows * cells < rows * 900:
            packed_rows *= 2
        longer = alone.with_(sequence_length=900, batch_size=2)
        with open_sampler(path, database, longer, packing=True, context_length=120) as sampler:
            assert sizes_of(sampler.shape()) == expected
            assert sampler.shape()["max_rows"] == packed_rows
        found.add(expected)
    assert {rows for rows, _ in found} == {16, 64}
    assert {texts for _, texts in found} == {1, 14, 39}  # the named spokes of 16 rows, or 120 cells


def sizes_of(shape: dict[str, int]) -> tuple[int, int]:
    """Rows and texts that a context may have."""
    texts = (shape["text_budget"] - 1) // shape["contexts_per_batch"]
    return shape["max_context_rows"], texts


def test_what_packing_cannot_do_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(ValueError, match="contexts_per_batch is 9, without packing it is default"):
        headwater.Sampler(path, contexts_per_batch=9)
    with pytest.raises(ValueError, match="contexts_per_batch is 0, expected 1 to 65536"):
        headwater.Sampler(path, packing=True, contexts_per_batch=0)
    with pytest.raises(ValueError, match="context_length is 9, without packing it is default_seq"):
        headwater.Sampler(path, context_length=9)
    with pytest.raises(ValueError, match="max_context_rows is 9, without packing it is max_rows"):
        headwater.Sampler(path, max_context_rows=9)
    message = "context_length is 65, expected at most default_sequence_length, 64"
    with pytest.raises(ValueError, match=message):
        headwater.Sampler(path, packing=True, context_length=65, default_sequence_length=64)
    with pytest.raises(ValueError, match="max_context_rows is 9, expected at most max_rows, 8"):
        headwater.Sampler(path, packing=True, max_context_rows=9, max_rows=8)
    with pytest.raises(ValueError, match="context_length is 1, expected 2 to 65535"):
        headwater.Sampler(path, packing=True, context_length=1)
    with pytest.raises(ValueError, match="text_budget is 50, expected 65 to"):
        headwater.Sampler(path, packing=True, contexts_per_batch=64, text_budget=50)
