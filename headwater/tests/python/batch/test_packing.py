"""Several contexts in one sequence: placed first-fit, each bit for bit what it is alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from comparison import difference
from plain_database import Database, Options, Seed
from reference_compact import dense_of
from reference_packing import Place, packed
from test_attention_masks import expected_masks
from tiny_store import write_tiny
from world_store import Arrays, open_sampler, pairs_of, sampled, write_store
from worlds import at, random_database, random_options, two_tables

COMPACT = {"layout": 1}
CONTEXTS = 7


# ---- by hand -----------------------------------------------------------------------------------

# Ann asked on day 4 has 13 cells in 4 rows (test_batch_arrays.ANN). Bob has 9 in 3:
#
# local row     0      1          2
#               seed   bob        order 3 of day 2
# position      0 1    2 3 4      5 6 7 8
# column        7 8    0 1 2      3 4 5 6


def both(tmp_path: Path, length: int, rows: int = 16) -> Arrays:
    """One sequence for ann and then bob (which is how the epoch has them)."""
    database = two_tables(seeds=(Seed(0, at(4), True, split=0), Seed(1, at(4), False, split=0)))
    options = Options(sequence_length=length, max_rows=rows, batch_size=1, recent=True, seed=1)
    more: dict[str, Any] = {"packing": True, "contexts_per_batch": 2, "targets": 1}
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


def check(path: Path, database: Database, options: Options, more: dict[str, Any]) -> Counter[str]:
    """Every epoch, packed, against what Python packs from unpacked batches of the same seeds."""
    texts = 1 + CONTEXTS * options.sequence_length
    targets = more.get("targets", 0)
    counts = Counter[str]()
    alone = options.with_(batch_size=CONTEXTS)
    packing: dict[str, Any] = {"packing": True, "contexts_per_batch": CONTEXTS, **more}
    with (
        open_sampler(
            path, database, alone, text_budget=texts, targets=targets, **COMPACT
        ) as unpacked,
        open_sampler(path, database, options, text_budget=texts, **packing) as sampler,
    ):
        most = sampler.shape()["contexts_per_sequence"]
        for contexts, got in pairs_of(unpacked, sampler, database.tasks):
            contexts = {**headwater.expand(contexts), "parents": contexts["parents"]}
            expected, places = packed(contexts, options.batch_size, most)
            if "cells" in got:
                assert difference(expected, dense_of(got), ["timestamp_values"]) is None
            else:
                del expected["parents"]
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
        counts += check(path, database, options, VARIANTS[variant])
    assert counts["contexts_cut"] > 20  # it was about something
    assert counts["contexts_dropped"] > 20


def test_masks_see_nothing_outside_a_segment(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options: dict[str, Any] = {
        "default_sequence_length": 64,
        "default_batch_size": 3,
        "num_prefetch": 0,
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


@pytest.mark.parametrize("layout", ["dense", "compact"])
def test_threads_and_prefetch_do_not_show(layout: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options = {**SMALL, "contexts_per_batch": 17, "layout": layout, "with_rows": True}
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


def test_what_packing_cannot_do_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(ValueError, match="contexts_per_batch is 9, without packing it is default"):
        headwater.Sampler(path, contexts_per_batch=9)
    with pytest.raises(ValueError, match="contexts_per_batch is 0, expected 1 to 65536"):
        headwater.Sampler(path, packing=True, contexts_per_batch=0)
    with pytest.raises(ValueError, match="text_budget is 50, expected 65 to"):
        headwater.Sampler(path, packing=True, contexts_per_batch=64, text_budget=50)
