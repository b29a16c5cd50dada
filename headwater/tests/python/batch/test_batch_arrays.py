"""Batches of the databases made by hand, every array worked out in the comments, none computed."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_database import BOOLEAN, NEVER, NUMERICAL, Database, Options, Seed, Task
from world_store import Arrays, sampled, text_vector
from worlds import at, bookstore, two_tables


def batch_of(database: Database, tmp_path: Path, split: int = 0, **options: Any) -> Arrays:
    """The only batch of the only task in a split."""
    defaults = {"sequence_length": 16, "max_rows": 6, "batch_size": 1, "recent": True}
    settings = Options(**{**defaults, **options})
    (batch,) = sampled(database, tmp_path, settings, split)
    return batch


# Ann's question on day 4 (worlds.two_tables). The seed row comes first, then ann, then what she
# ordered by then, the latest first: order 4 of day 3, order 2 of day 1. That of day 9 is ahead.
#
# local row        0            1             2                   3
#                  seed         ann           order 4             order 2
# position         0 1          2 3 4         5 6 7 8             9 10 11 12       13 14 15 padding
# column           7 8          0 1 2         3 4 5 6             3 4  5  6
ANN = {
    "semantic_types": [2, 3, 0, 5, 3, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0, 0],
    "column_ids": [7, 8, 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 0, 0, 0],
    "seq_row_ids": [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0],
    "bool_values": [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    "categorical_embed_ids": [0] * 16,
    "text_embed_ids": [0, 0, 0, 1] + [0] * 12,
    "is_null": [0] * 16,
    "is_target": [0, 1] + [0] * 14,
    "is_padding": [0] * 13 + [1] * 3,
    # by column 0..8, then padding
    "col_perm": [2, 3, 4, 5, 9, 6, 10, 7, 11, 8, 12, 0, 1, 13, 14, 15],
    # ann has three neighbours, the others one: start at 0, then 1, 2, 3; reversed 3, 2, 1, 0
    "out_perm": [9, 10, 11, 12, 5, 6, 7, 8, 2, 3, 4, 0, 1, 13, 14, 15],
    "in_perm": [9, 10, 11, 12, 5, 6, 7, 8, 2, 3, 4, 0, 1, 13, 14, 15],
    "row_ages": [1, -1, 1, 3, -1, -1],  # day 4 less day 3, which is the newest row, and day 1
    "row_starts": [0, 2, 5, 9, 13, 13, 13],
    "row_tables": [65535, 0, 1, 1, 0, 0],
    "row_depths": [0, 1, 2, 2, 0, 0],
}


def test_ann_asked_on_day_4(tmp_path: Path) -> None:
    batch = batch_of(two_tables(), tmp_path)
    for name, expected in ANN.items():
        assert batch[name][0].tolist() == expected, name
    adjacency = np.zeros((6, 6), np.uint8)
    adjacency[0, 1] = adjacency[2, 1] = adjacency[3, 1] = 1
    assert np.array_equal(batch["fk_adj"][0], adjacency)
    assert batch["row_ids"][0].tolist() == [2**32 - 1, 0, 4, 2, 2**32 - 1, 2**32 - 1]
    others = {"target_stype": 3, "num_sequences": 1, "num_texts": 2, "num_cells": 13, "num_rows": 4}
    others |= {"is_labelled": 1, "obs_time": at(4)}
    others |= dict.fromkeys(
        ("task_idx", "cat_emb_start", "cat_emb_count", "seed_index", "anchor_rows"), 0
    )
    for name, value in others.items():
        assert batch[name].tolist() == [value], name
    assert np.array_equal(batch["text_batch_embeddings"][0], np.zeros(8))
    assert np.array_equal(batch["text_batch_embeddings"][1], text_vector(0))  # "ann"


def test_amounts_are_scaled_by_their_column(tmp_path: Path) -> None:
    # 10, 20, 30, 60: mean 30, variance (400 + 100 + 0 + 900) / 4 = 350.
    numbers = batch_of(two_tables(), tmp_path)["numeric_values"][0]
    expected = np.zeros(16)
    expected[8], expected[12] = 0, -20 / sqrt(350)
    assert numbers == pytest.approx(expected, abs=1e-6)


def test_times_are_encoded_in_fifteen_numbers(tmp_path: Path) -> None:
    # Day 3 is Saturday 2023-11-18 00:00, the 322nd day. All times of the store are days 1, 2, 3, 9:
    # mean 3.75, variance (7.5625 + 3.0625 + 0.5625 + 27.5625) / 4 = 9.6875.
    times = batch_of(two_tables(), tmp_path)["timestamp_values"][0]
    parts = (0, 0, 0, 5 / 7, 17 / 31, 10 / 12, 321 / 366)
    cyclic = [wave(2 * pi * part) for part in parts for wave in (sin, cos)]
    assert times[7] == pytest.approx([*cyclic, (3 - 3.75) / sqrt(9.6875)], abs=1e-6)
    assert times[0][14] == pytest.approx(0.25 / sqrt(9.6875), abs=1e-6)  # the question, day 4
    assert not times[[1, 2, 3, 4, 5, 6, 8, 13, 14, 15]].any()


def test_the_row_that_reaches_the_end_is_cut(tmp_path: Path) -> None:
    # Eight cells: seed 2, ann 3, and three of order 4's four.
    batch = batch_of(two_tables(), tmp_path, sequence_length=8)
    assert batch["column_ids"][0].tolist() == [7, 8, 0, 1, 2, 3, 4, 5]
    assert batch["num_rows"][0] == 3
    assert batch["row_starts"][0].tolist() == [0, 2, 5, 8, 8, 8, 8]
    assert not batch["is_padding"].any()


def test_rows_stop_at_max_rows(tmp_path: Path) -> None:
    batch = batch_of(two_tables(), tmp_path, max_rows=2)
    assert batch["row_ids"][0].tolist() == [2**32 - 1, 0]
    assert batch["num_cells"][0] == 5


def test_without_an_obs_time_everything_is_visible_and_nothing_has_an_age(tmp_path: Path) -> None:
    database = two_tables(seeds=(Seed(0, NEVER, None, split=0),))
    batch = batch_of(database, tmp_path, sequence_length=20)
    assert batch["row_ids"][0, :5].tolist() == [2**32 - 1, 0, 5, 4, 2]
    assert batch["is_null"][0, :3].tolist() == [1, 1, 0]  # no obs_time, and a NULL target
    assert batch["row_ages"][0].tolist() == [-1] * 6
    assert batch["is_labelled"][0] == 1  # a NULL target is a target


def test_labels_that_are_all_equal_have_no_spread(tmp_path: Path) -> None:
    # 0.1 + 0.1 + 0.1 is not 3 * 0.1: by the sum, the labels were -1 and the other 4e16.
    told = ((0, 4, 0.1, 0), (0, 5, 0.1, 0), (1, 4, 0.1, 0), (1, 5, 0.7, 1))
    seeds = tuple(Seed(row, at(day), value, split=split) for row, day, value, split in told)
    database = two_tables()
    task = replace(database.tasks[0], target_stype=NUMERICAL, seeds=seeds)
    database = Database(database.name, database.tables, (task,))
    for split, count in ((0, 3), (1, 1)):
        batch = batch_of(database, tmp_path / str(split), split, batch_size=3)
        assert batch["is_labelled"].sum() == count
        assert batch["numeric_values"][batch["is_target"] == 1].tolist() == [0] * count


def test_an_unlabelled_seed_has_a_target_cell_but_no_label(tmp_path: Path) -> None:
    database = two_tables(seeds=(Seed(0, at(4), None, labelled=False, split=0),))
    batch = batch_of(database, tmp_path)
    assert batch["is_labelled"][0] == 0
    assert batch["is_target"][0, 1] == 1


def test_identifiers_can_be_left_out(tmp_path: Path) -> None:
    batch = batch_of(two_tables(), tmp_path, identifier_cells="none")
    assert batch["column_ids"][0, :8].tolist() == [7, 8, 1, 2, 5, 6, 5, 6]
    batch = batch_of(two_tables(), tmp_path / "keys", identifier_cells="foreign_keys")
    assert batch["column_ids"][0, :10].tolist() == [7, 8, 1, 2, 4, 5, 6, 4, 5, 6]


# The rating of loan 7 (row 7, day 2, worlds.bookstore), cutoff exclusive. Its parents come in key
# order: reader 3, then book 2, whose author (row 0) and predecessor (book 1) follow. Of the loans
# only row 5 (day 1) is earlier: it comes by reader 3 at two hops. Loan 6 is of the same moment and
# stays out. Row 5 was given back on day 3, which is not known yet; its rating is no seed's.
#
# local row     0                  1          2               3        4                5
# global row    7 loan             3 reader   2 book          0 author 1 book           5 loan
# position      0 1  2  3  4       5 6        7 8 9 10        11 12    13 14 15 16      17 .. 21
# column        8 9 10 11 12       6 7        2 3 4  5        0  1     2  3  4  5       8 .. 12
def test_the_rating_of_a_loan(tmp_path: Path) -> None:
    batch = batch_of(bookstore(), tmp_path, sequence_length=24)
    assert batch["row_ids"][0].tolist() == [7, 3, 2, 0, 1, 5]
    columns = [*range(8, 13), 6, 7, *range(2, 6), 0, 1, *range(2, 6), *range(8, 13), 0, 0]
    assert batch["column_ids"][0].tolist() == columns
    assert batch["is_target"][0].nonzero()[0].tolist() == [4]
    assert batch["is_null"][0].nonzero()[0].tolist() == [15]  # book 1 is no sequel
    assert batch["row_depths"][0].tolist() == [0, 1, 1, 2, 2, 2]
    assert batch["row_ages"][0].tolist() == [0, -1, -1, -1, -1, 1]
    links = [[0, 1], [0, 2], [2, 3], [2, 4], [4, 3], [5, 1], [5, 4]]
    assert np.argwhere(batch["fk_adj"][0]).tolist() == links
    # Genres crime and poem are categories 0 and 1.
    assert batch["categorical_embed_ids"][0, [10, 16]].tolist() == [1, 0]
    # Ratings 5, 3, 4, 1: mean 3.25, variance 8.75 / 4; the only age makes no spread, so it is 0.
    ratings = [0.75 / sqrt(8.75 / 4), 1.75 / sqrt(8.75 / 4), 0]
    assert batch["numeric_values"][0, [4, 21, 6]] == pytest.approx(ratings, abs=1e-6)
    # Neighbours: 0-1, 0-2, 2-3, 2-4, 3-4, 5-1, 5-4; degrees 2 2 3 2 3 2. Start at 0; its
    # neighbours 1 (2), 2 (3); of 1: 5; of 2: 3, 4; reversed 4 3 5 2 1 0.
    order = [*range(13, 17), 11, 12, *range(17, 22), *range(7, 11), 5, 6, *range(5), 22, 23]
    assert batch["out_perm"][0].tolist() == order


def test_the_target_takes_the_last_place_if_it_would_be_cut(tmp_path: Path) -> None:
    batch = batch_of(bookstore(), tmp_path, sequence_length=3)
    assert batch["column_ids"][0].tolist() == [8, 9, 12]
    assert batch["is_target"][0].tolist() == [0, 0, 1]


# Loan 7 (day 2) is of reader 3 and book 2; before day 2 reader 3 had loan 5, and book 2 no loan but
# a first part, book 1, and an author.
@pytest.mark.parametrize(
    ("hops", "rows", "depths"),
    [(0, [7], [0]), (1, [7, 3, 2], [0, 1, 1]), (2, [7, 3, 2, 0, 1, 5], [0, 1, 1, 2, 2, 2])],
)
def test_hops_of_a_cell_task_are_from_its_anchor(
    hops: int, rows: list[int], depths: list[int], tmp_path: Path
) -> None:
    batch = batch_of(bookstore(), tmp_path, sequence_length=40, max_rows=8, max_hops=hops)
    count = int(batch["num_rows"][0])
    assert batch["row_ids"][0, :count].tolist() == rows
    assert batch["row_depths"][0, :count].tolist() == depths


# Reader 3 on day 4: loans 7 and 5, the latest first, with their books 2 and 1.
@pytest.mark.parametrize(
    ("hops", "rows", "depths"),
    [(0, [3], [1]), (1, [3, 7, 5], [1, 2, 2]), (2, [3, 7, 2, 5, 1], [1, 2, 3, 2, 3])],
)
def test_hops_of_a_derived_task_are_from_its_anchor_too(
    hops: int, rows: list[int], depths: list[int], tmp_path: Path
) -> None:
    task = Task("late", "readers", "late", BOOLEAN, seeds=(Seed(0, at(4), True, split=0),))
    database = replace(bookstore(), tasks=(task,))
    batch = batch_of(database, tmp_path, sequence_length=40, max_rows=8, max_hops=hops)
    count = int(batch["num_rows"][0])
    assert batch["row_ids"][0, :count].tolist() == [2**32 - 1, *rows]
    assert batch["row_depths"][0, :count].tolist() == [0, *depths]


def test_inclusive_shows_what_happened_at_the_same_moment(tmp_path: Path) -> None:
    # Loan 6 is of day 2 as well: it comes by book 1. Its rating is not earlier than the anchor, so
    # it is withheld: columns 8, 9, 10, 11, and 13, for it came back that very day.
    database = bookstore()
    tasks = (replace(database.tasks[0], exclusive=False),)
    database = Database(database.name, database.tables, tasks)
    batch = batch_of(database, tmp_path, sequence_length=40, max_rows=10)
    rows = batch["row_ids"][0].tolist()
    cells = batch["seq_row_ids"][0] == rows.index(6)
    cells &= batch["is_padding"][0] == 0
    assert batch["column_ids"][0, cells].tolist() == [8, 9, 10, 11, 13]


def test_a_short_last_batch_is_padded_with_empty_sequences(tmp_path: Path) -> None:
    batch = batch_of(two_tables(), tmp_path, batch_size=3)
    assert batch["num_sequences"].tolist() == [1]
    assert batch["is_padding"][1:].all()
    assert batch["col_perm"][1].tolist() == list(range(16))
    assert batch["row_ages"][1:].tolist() == [[-1] * 6] * 2
    assert batch["is_labelled"].tolist() == [1, 0, 0]
    for name in ("column_ids", "is_target", "fk_adj", "row_starts", "num_cells", "num_rows"):
        assert not batch[name][1:].any(), name
