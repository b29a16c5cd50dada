"""The latest known labels of other anchors as rows: docs/reference/sampling.md, "Peer labels".

Against the reference in random worlds: test_reference.py, test_compact.py and test_packing.py;
their random options have peer_labels too.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_shop import (
    ANN,
    ANNS,
    BOB,
    BOBS,
    CID,
    DAN,
    DANS,
    NORTH,
    OPTIONS,
    PEERS,
    ROW_OF_TASK,
    SEEDS,
    SOUTH,
    changed,
    context_of,
    contexts_of,
    labels_of,
    links_of,
    rows_of,
    shop,
)
from plain_database import BOOLEAN, NEVER, TEST, TRAIN, VAL, Database, Seed, Task
from test_compact import check_against_dense
from world_store import Arrays, ad_hoc, differing, epoch_of, open_sampler, sampled, write_store
from worlds import at, table

ANNS_SEED, DANS_SEED = 1, 7


def days_of(contexts: list[Arrays]) -> list[tuple[float, ...]]:
    return [tuple(age for age, _, _ in labels_of(context)) for context in contexts]


# ---- which, and in which order -----------------------------------------------------------------


def test_all_come_from_the_back_where_there_are_no_more_than_asked_for(tmp_path: Path) -> None:
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST)
    assert labels_of(context) == PEERS
    # The anchor of each behind its row, once; then ann's order, and what her city leads to.
    task = ROW_OF_TASK
    rows = [task, ANN, NORTH, task, BOB, task, DAN, task, CID, task, ANNS]
    assert rows_of(context) == rows
    assert context["row_depths"][:11].tolist() == [0, 1, 2, 2, 3, 2, 3, 2, 3, 2, 2]
    # The cells of a row of the task are two, those of a customer four, of a city one.
    starts = [0, 2, 6, 7, 9, 13, 15, 19, 21, 25, 27, 30]
    assert context["row_starts"][: len(starts)].tolist() == starts
    # Dan lives in the north, which ann leads to; bob's city is not there.
    assert links_of(context, rows.index(DAN)) == [rows.index(NORTH)]
    assert links_of(context, rows.index(BOB)) == []


def test_nothing_is_drawn_where_all_are_taken(tmp_path: Path) -> None:
    """Five are known, of which one is the anchor's own: with n = 5 all in order, in any epoch."""
    options = OPTIONS.with_(peer_labels=5)
    shown = contexts_of(shop(changed(7, known=at(90))), tmp_path,
                        DANS_SEED, TRAIN, options, epochs=4)  # fmt: skip
    assert set(days_of(shown)) == {(20.0, 23.0, 24.0, 24.0)}
    fewer = contexts_of(shop(), tmp_path, DANS_SEED, TRAIN, OPTIONS.with_(peer_labels=4), epochs=40)
    assert len(set(days_of(fewer))) > 10


def crowd(days: list[float], asked: float = 90.0) -> Database:
    """One customer each, asked half a day before the label is known; ann is the last of all."""
    people = table("people", "id identifier", [(True,)] * (len(days) + 1))
    seeds = [Seed(i, at(day - 0.5), True, split=TRAIN, known=at(day)) for i, day in enumerate(days)]
    seeds.append(Seed(len(days), at(asked), False, split=TEST, known=at(asked + 1)))
    task = Task("t", "people", "t", BOOLEAN, tuple(seeds), label_times=True)
    return Database("crowd", (people,), (task,))


def people_shown(contexts: list[Arrays]) -> list[list[int]]:
    """The anchors of the label rows: people are the rows from 0 on."""
    return [[row for row in rows_of(context)[2:] if row != ROW_OF_TASK] for context in contexts]


def chi_square(counts: Counter[Any], cells: int) -> float:
    expected = sum(counts.values()) / cells
    return sum((counts[cell] - expected) ** 2 / expected for cell in counts) + expected * (
        cells - len(counts)
    )


def test_two_of_the_last_eight_are_drawn_uniformly(tmp_path: Path) -> None:
    """Ten are known, of the last eight two: 56 ordered pairs. The bound is the 99.9 % quantile of
    chi-square with 55 degrees of freedom."""
    database = crowd([float(day) for day in range(1, 11)])
    options = OPTIONS.with_(peer_labels=2)
    shown = people_shown(contexts_of(database, tmp_path, 10, TEST, options, epochs=2800))
    assert {len(people) for people in shown} == {2}
    pairs = Counter(tuple(people) for people in shown)
    assert set(pairs) <= {
        pair for a, b in combinations(range(2, 10), 2) for pair in ((a, b), (b, a))
    }
    assert chi_square(pairs, 56) < 93.2


def test_those_that_became_known_with_the_first_of_the_last_are_drawn_from_too(
    tmp_path: Path,
) -> None:
    """The last four are of days 3, 3, 4 and 5: so are all six of day 3, and none of day 2."""
    database = crowd([1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 4.0, 5.0])
    options = OPTIONS.with_(peer_labels=1)
    shown = people_shown(contexts_of(database, tmp_path, 10, TEST, options, epochs=800))
    counts = Counter(people[0] for people in shown)
    assert set(counts) == set(range(2, 10))
    assert chi_square(counts, 8) < 24.4  # 99.9 % of 7 degrees of freedom
    everyone = contexts_of(crowd([7.0] * 10), tmp_path / "same", 10, TEST, options, epochs=400)
    assert {people[0] for people in people_shown(everyone)} == set(range(10))


def test_what_is_drawn_of_the_anchor_itself_is_dropped(tmp_path: Path) -> None:
    """Dan's label of day 8 is drawn for his own seed of day 25, in one of five epochs."""
    options = OPTIONS.with_(peer_labels=1)
    late = changed(7, known=at(90))
    shown = contexts_of(shop(late), tmp_path, DANS_SEED, TRAIN, options, epochs=100)
    counts = Counter(len(labels_of(context)) for context in shown)
    # The pool: the last four, of days 3, 3, 8 and 9.
    assert counts[0] + counts[1] == 100
    assert 10 <= counts[0] <= 40
    assert all(anchor != DAN for context in shown for _, _, anchor in labels_of(context))
    alone = tuple(seed for seed in SEEDS if seed.anchor == 0)
    context = context_of(shop(alone), tmp_path / "alone", 1, TEST)
    assert labels_of(context) == []


def test_a_label_of_a_later_question_is_dropped(tmp_path: Path) -> None:
    """Dan's answer of day 22 is known on day 7, that of day 20 too: both take their place."""
    for i, day in enumerate((22, 20)):
        seeds = changed(7, obs_time=at(day), known=at(7))
        context = context_of(shop(seeds), tmp_path / str(i), ANNS_SEED, TEST)
        assert labels_of(context) == PEERS
        one = OPTIONS.with_(peer_labels=1)
        shown = contexts_of(shop(seeds), tmp_path / str(i), ANNS_SEED, TEST, one, epochs=60)
        assert {len(labels_of(context)) for context in shown} == {0, 1}
    seeds = changed(7, obs_time=at(19), known=at(7))
    context = context_of(shop(seeds), tmp_path / "before", ANNS_SEED, TEST)
    assert labels_of(context) == [*PEERS[:2], (1.0, False, DAN), *PEERS[2:]]


# ---- what may be seen --------------------------------------------------------------------------


def test_a_stale_seed_knows_fewer(tmp_path: Path) -> None:
    """Dan's seed of day 25, of which the cutoff is up to 40 days earlier: of what it knows without,
    it knows what was known first."""
    known = [24.0, 24.0, 23.0, 20.0]  # ann's, bob's, cid's, bob's; the last first
    options = OPTIONS.with_(staleness=(0.0, 40.0))
    shown = contexts_of(shop(), tmp_path, DANS_SEED, TRAIN, options, epochs=150)
    expected = {tuple(known[:count][::-1]) for count in (0, 1, 3, 4)}
    assert set(days_of(shown)) == expected
    options = OPTIONS.with_(staleness=(1.0, 40.0))
    fresh = contexts_of(shop(), tmp_path, DANS_SEED, TRAIN, options, epochs=5)
    assert set(days_of(fresh)) == {tuple(known[::-1])}


def test_a_backtest_shows_the_labels_of_its_own_train_seeds(tmp_path: Path) -> None:
    """From day 5 on: train are the seeds whose label is known by then, val the later ones of train;
    those of val and test are in no split, and shown under "all" alone."""
    split = {"time_split": (at(5), at(30))}
    context = context_of(shop(), tmp_path, DANS_SEED, VAL, **split)
    bob, cid, ann = (24.0, True, BOB), (23.0, False, CID), (24.0, True, ANN)
    assert labels_of(context) == [cid, bob, ann]
    everything = OPTIONS.with_(context_labels="all")
    context = context_of(shop(), tmp_path, DANS_SEED, VAL, everything, **split)
    assert labels_of(context) == [(20.0, None, BOB), (21.0, True, CID), cid, bob, ann]
    frozen = everything.with_(visible_until=(at(5), at(5), at(5)))
    context = context_of(shop(), tmp_path, DANS_SEED, VAL, frozen, **split)
    assert labels_of(context) == [cid, bob, ann]


def test_seeds_given_by_hand_have_peers(tmp_path: Path) -> None:
    path = write_store(shop(), tmp_path)
    frozen = OPTIONS.with_(visible_until=(NEVER, NEVER, at(8)))
    asked = ([ANN, CID, CID, ANN], [at(20), at(3), at(1), NEVER])
    shown = {}
    for options in (OPTIONS, frozen):
        with open_sampler(path, shop(), options, text_budget=99) as sampler:
            (batch,) = ad_hoc(sampler, 0, *asked)
        shown[options] = [
            labels_of({name: array[b] for name, array in batch.items() if len(array) == 8})
            for b in range(4)
        ]
    bob, ann = (2.0, True, BOB), (2.0, True, ANN)
    assert shown[OPTIONS][0] == PEERS
    assert shown[OPTIONS][1:3] == [[bob, ann], []]
    # Without a time of their own: all that is ever known, without ages.
    asked_once = [(-1.0, False, DAN), (-1.0, None, BOB), (-1.0, True, DAN), (-1.0, False, CID)]
    assert shown[OPTIONS][3] == [*asked_once, (-1.0, True, BOB)]
    assert shown[frozen][0] == PEERS[1:]
    assert shown[frozen][3] == [*asked_once[2:], (-1.0, True, BOB)]


# ---- the anchors -------------------------------------------------------------------------------


def test_contexts_of_the_anchor_alone_have_none(tmp_path: Path) -> None:
    options = OPTIONS.with_(max_hops=0)
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, options)
    without = context_of(shop(), tmp_path, ANNS_SEED, TEST, options.with_(peer_labels=0))
    assert not differing(context, without)


@pytest.mark.parametrize("hops", [1, 2, None])
def test_the_walk_does_not_go_on_from_an_anchor(hops: int | None, tmp_path: Path) -> None:
    """Neither the south, where bob lives, nor the orders of bob and dan; north leads to dan."""
    options = OPTIONS.with_(max_hops=hops)
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, options)
    assert {BOB, CID, DAN} < set(rows_of(context))
    assert not {SOUTH, BOBS, DANS} & set(rows_of(context))
    without = context_of(shop(), tmp_path, ANNS_SEED, TEST, options.with_(peer_labels=0))
    assert (DAN in rows_of(without)) == (hops != 1)
    assert (DANS in rows_of(without)) == (hops is None)


def test_an_anchor_that_the_walk_came_to_first_stays_where_it_was(tmp_path: Path) -> None:
    """Bob is ann's friend: a chain row at one hop from her, and the walk goes on from him."""
    friends = (1, None, None, None)
    context = context_of(shop(friends=friends), tmp_path, ANNS_SEED, TEST)
    rows = rows_of(context)
    assert rows[:5] == [ROW_OF_TASK, ANN, NORTH, BOB, SOUTH]
    assert context["row_depths"][3] == 2
    assert labels_of(context) == PEERS
    assert rows.count(BOB) == 1 and BOBS in rows and DANS not in rows


def test_two_peers_of_one_anchor_point_at_one_row(tmp_path: Path) -> None:
    seeds = tuple(seed for seed in SEEDS if seed.anchor in (0, 1))
    context = context_of(shop(seeds), tmp_path, 1, TEST)
    task = ROW_OF_TASK
    assert rows_of(context)[:6] == [task, ANN, NORTH, task, BOB, task]
    assert [links_of(context, row) for row in (3, 5)] == [[4], [4]]


def test_an_anchor_that_is_not_visible_is_left_out(tmp_path: Path) -> None:
    """Bob registers on day 30, after his labels; cid on day 20, the moment of the question."""

    def clients(exclusive: bool) -> Database:
        rows = [(True, at(1)), (True, at(5)), (True, at(20)), (True, at(30))]
        made = table("clients", "id identifier, since timestamp", rows, (), "since")
        seeds = tuple(
            sorted(
                (replace(seed, anchor=(0, 3, 2, 1)[seed.anchor]) for seed in SEEDS),
                key=lambda seed: (seed.anchor, seed.obs_time),
            )
        )
        task = Task("t", "clients", "t", BOOLEAN, seeds, label_times=True, exclusive=exclusive)
        return Database("clients", (made,), (task,))

    for exclusive, cid in ((False, [2]), (True, [])):
        database, folder = clients(exclusive), tmp_path / str(exclusive)
        (batch,) = sampled(database, folder, OPTIONS, TEST, text_budget=99)
        rows = [int(row) for row in batch["row_ids"][0, : batch["num_rows"][0]]]
        task = ROW_OF_TASK
        assert rows == [task, 0, task, task, 1, task, task, *cid]
        assert batch["row_ages"][0, 2:4].tolist() == [15.0, 14.0]
        assert not batch["fk_adj"][0, 2].any()
        assert batch["fk_adj"][0, 3].nonzero()[0].tolist() == [4]


def test_children_of_an_anchor_are_counted(tmp_path: Path) -> None:
    """Of bob's two orders one is visible on day 20; nobody is his friend."""
    options = OPTIONS.with_(child_counts=True)
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, options)
    row = rows_of(context).index(BOB)
    start, end = context["row_starts"][row], context["row_starts"][row + 1]
    assert end - start == 4 + 6
    cells = slice(int(start) + 4, int(end))
    # Columns: ten of the store, then three for each key: city, friend, customer of an order.
    assert context["column_ids"][cells].tolist() == [13, 14, 15, 16, 17, 18]
    assert context["is_null"][cells].tolist() == [0, 1, 1, 0, 0, 0]
    age = math.log1p(19) / 8
    expected = [0, 0, 0, math.log(2) / 4, age, age]
    assert context["numeric_values"][cells].tolist() == pytest.approx(expected, abs=1e-6)
    label = rows_of(context).index(ROW_OF_TASK, 1)
    assert context["row_starts"][label + 1] - context["row_starts"][label] == 2


# ---- with other rows ---------------------------------------------------------------------------


def test_labels_of_the_anchor_itself_come_first(tmp_path: Path) -> None:
    options = OPTIONS.with_(label_rows=3)
    own = (19.0, True, ANN)
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, options)
    assert labels_of(context) == [own, *PEERS]
    alone = context_of(shop(), tmp_path, ANNS_SEED, TEST, options.with_(peer_labels=0))
    assert labels_of(alone) == [own]


@pytest.mark.parametrize(
    ("length", "rows", "cells", "is_stopped"),
    [
        (8, 24, [2, 4, 1, 1], 0),  # the label's time, not its answer
        (9, 24, [2, 4, 1, 2], 0),  # no room for bob
        (10, 24, [2, 4, 1, 2, 1], 0),
        (128, 3, [2, 4, 1], 1),
        (128, 4, [2, 4, 1, 2], 1),
        (128, 5, [2, 4, 1, 2, 4], 1),
    ],
)
def test_they_are_cut_like_any_other(
    length: int, rows: int, cells: list[int], is_stopped: int, tmp_path: Path
) -> None:
    options = OPTIONS.with_(sequence_length=length, max_rows=rows)
    path = write_store(shop(), tmp_path)
    with open_sampler(path, shop(), options, text_budget=99) as sampler:
        (batch,) = epoch_of(sampler, TEST, 0)
        assert sampler.stats()["stopped_by_rows"] == is_stopped
    count = int(batch["num_rows"][0])
    assert np.diff(batch["row_starts"][0, : count + 1]).tolist() == cells
    if count == 4:
        assert not batch["fk_adj"][0, 3].any()


def test_a_context_that_is_full_without_them_is_cut_only_if_there_are_any(tmp_path: Path) -> None:
    """Three rows fit: the seed, ann and her city, and nobody has a child. A peer would come next,
    one that is dropped would not."""
    orderless = replace(shop(), tables=shop().tables[:2])
    own = tuple(seed for seed in SEEDS if seed.anchor == 0)
    later = (*own, Seed(1, at(22), True, split=TRAIN, known=at(7)))
    for seeds, is_stopped in ((SEEDS, 1), (own, 0), (later, 0)):
        task = replace(orderless.tasks[0], seeds=seeds)
        database = replace(orderless, tasks=(task,))
        options = OPTIONS.with_(max_rows=3, max_hops=1)
        path = write_store(database, tmp_path / str(len(seeds)))
        with open_sampler(path, database, options, text_budget=99) as sampler:
            epoch_of(sampler, TEST, 0)
            assert sampler.stats()["stopped_by_rows"] == is_stopped


def test_threads_make_the_same_bits(tmp_path: Path) -> None:
    database = crowd([float(day) for day in range(1, 41)], asked=60.0)
    options = OPTIONS.with_(peer_labels=3, batch_size=5, label_rows=1)
    alone, *others = (
        sampled(database, tmp_path, options, text_budget=99, threads=threads, prefetch=prefetch)
        for threads, prefetch in ((0, 0), (1, 4), (2, 4), (8, 4))
    )
    for other in others:
        assert not any(differing(one, two) for one, two in zip(alone, other, strict=True))


def test_the_compact_layout_holds_the_same(tmp_path: Path) -> None:
    path = write_store(shop(), tmp_path)
    for options in (OPTIONS, OPTIONS.with_(peer_labels=1, label_rows=2, child_counts=True)):
        for targets in range(2):
            check_against_dense(path, shop(), options, targets)
