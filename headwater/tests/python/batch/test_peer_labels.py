"""The latest known labels of other anchors as rows: docs/2-sampling.md, "Peer labels".

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

import headwater
import numpy as np
import pytest
from plain_database import (
    BOOLEAN,
    IDENTIFIER,
    NEVER,
    TEXT,
    TIMESTAMP,
    Column,
    Database,
    Key,
    Options,
    Seed,
    Task,
)
from test_compact import INLINE, SEPARATE, check_against_dense
from tiny_store import write_tiny
from world_store import Arrays, ad_hoc, epoch_of, open_sampler, write_store
from worlds import at, table

TRAIN, VAL, TEST = 0, 1, 2
OPTIONS = Options(sequence_length=128, max_rows=24, batch_size=8, recent=True, peer_labels=9)
# Global rows: the cities, the customers, the orders.
NORTH, SOUTH, ANN, BOB, CID, DAN, BOBS, ANNS, DANS, BOBS_LATE = range(10)
ROW_OF_TASK = 2**32 - 1
# By (customer, day): what is known when. That of cid's day 4 is a val seed's.
SEEDS = (
    Seed(0, at(1), True, split=TRAIN, known=at(2)),
    Seed(0, at(20), True, split=TEST, known=at(30)),
    Seed(1, at(1), True, split=TRAIN, known=at(3)),
    Seed(1, at(5), None, split=TRAIN, known=at(9)),
    Seed(2, at(2), False, split=TRAIN, known=at(3)),
    Seed(2, at(4), True, split=VAL, known=at(6)),
    Seed(3, at(6), True, split=TRAIN, known=at(8)),
    Seed(3, at(25), False, split=TRAIN, known=at(26)),
)
ANNS_SEED, DANS_SEED = 1, 7
# Peers of ann's seed of day 20, by (known, stored): days 2 (her own), 3, 3, 8 and 9.
BOB_5, DAN_6, CID_2, BOB_1 = (
    (15.0, None, BOB),
    (14.0, True, DAN),
    (18.0, False, CID),
    (19.0, True, BOB),
)
CID_4 = (16.0, True, CID)
Peer = tuple[float, bool | None, int | None]


def shop(
    seeds: tuple[Seed, ...] = SEEDS, friends: tuple[int | None, ...] = (None,) * 4, **task: Any
) -> Database:
    """Cities, customers who live in one and may have a friend, and their orders.

    Columns: cities 0; customers 1 id, 2 city, 3 friend, 4 name; orders 5 id, 6 customer, 7 placed;
    the task's 8 obs_time, 9 target. Ann and dan live in the north, bob and cid in the south.
    """
    cities = table("cities", [Column("city_id", IDENTIFIER)], [(True,), (True,)])
    names = ("ann", "bob", "cid", "dan")
    customers = table(
        "customers",
        [Column(name, IDENTIFIER) for name in ("customer_id", "city_id", "friend_id")]
        + [Column("name", TEXT)],
        [(True, True, friend is not None or None, name)
         for friend, name in zip(friends, names, strict=True)],
        (
            Key(("city_id",), "cities", (0, 1, 1, 0)),
            Key(("friend_id",), "customers", friends),
        ),
    )  # fmt: skip
    orders = table(
        "orders",
        [
            Column("order_id", IDENTIFIER),
            Column("customer_id", IDENTIFIER),
            Column("placed", TIMESTAMP),
        ],
        [(True, True, at(day)) for day in (1, 2, 3, 21)],
        (Key(("customer_id",), "customers", (1, 0, 3, 1)),),
        "placed",
    )
    asked = Task("t", "customers", "t", BOOLEAN, seeds, **{"label_times": True, **task})
    return Database("shop", (cities, customers, orders), (asked,))


def with_seeds(**changes: Seed) -> tuple[Seed, ...]:
    """SEEDS with some replaced: s3=Seed(...)."""
    seeds = list(SEEDS)
    for name, seed in changes.items():
        seeds[int(name[1:])] = seed
    return tuple(seeds)


def contexts_of(
    database: Database,
    folder: Path,
    seed: int,
    split: int,
    options: Options = OPTIONS,
    epochs: int = 1,
    **more: Any,
) -> list[Arrays]:
    """The batches of a split's epochs, of which only the sequence of one seed is kept."""
    path = folder / "world.hw"
    if not path.exists():
        write_store(database, folder)
    found = []
    with open_sampler(path, database, options, text_budget=99, **more) as sampler:
        for epoch in range(epochs):
            (batch,) = epoch_of(sampler, split, 0, epoch)
            (b,) = np.flatnonzero(batch["seed_index"][: batch["num_sequences"][0]] == seed)
            found.append({name: array[b] for name, array in batch.items() if len(array) == 8})
    return found


def context_of(database: Database, folder: Path, *args: Any, **more: Any) -> Arrays:
    (context,) = contexts_of(database, folder, *args, **more)
    return context


def links_of(context: Arrays, row: int) -> list[int]:
    if "fk_adj" in context:
        return [int(place) for place in context["fk_adj"][row].nonzero()[0]]
    return [int(place) for place in context["parents"][row] if place != 65535]


def labels_of(context: Arrays) -> list[Peer]:
    """Age, answer and anchor of each label row, in order; None: not in the context."""
    found: list[Peer] = []
    for row in range(1, int(context["num_rows"])):
        if context["row_tables"][row] != 65535:
            continue
        assert context["row_ids"][row] == ROW_OF_TASK
        assert context["row_depths"][row] == 2
        linked = links_of(context, row)
        start = int(context["row_starts"][row])
        if context["row_starts"][row + 1] - start == 2:
            assert context["column_ids"][start : start + 2].tolist() == [8, 9]
            assert not context["is_target"][start : start + 2].any()
        answer = None if context["is_null"][start + 1] else bool(context["bool_values"][start + 1])
        anchor = int(context["row_ids"][linked[0]]) if linked else None
        found.append((float(context["row_ages"][row]), answer, anchor))
    return found


def rows_of(context: Arrays) -> list[int]:
    return list(context["row_ids"][: int(context["num_rows"])].tolist())


def depths_of(context: Arrays) -> list[int]:
    return list(context["row_depths"][: int(context["num_rows"])].tolist())


def days_of(contexts: list[Arrays]) -> list[tuple[float, ...]]:
    return [tuple(age for age, _, _ in labels_of(context)) for context in contexts]


# ---- which, and in which order -----------------------------------------------------------------


def test_all_come_from_the_back_where_there_are_no_more_than_asked_for(tmp_path: Path) -> None:
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST)
    assert labels_of(context) == [BOB_5, DAN_6, CID_2, BOB_1]
    # The anchor of each behind its row, once; then ann's order, and what her city leads to.
    task = ROW_OF_TASK
    rows = [task, ANN, NORTH, task, BOB, task, DAN, task, CID, task, ANNS]
    assert rows_of(context) == rows
    assert depths_of(context) == [0, 1, 2, 2, 3, 2, 3, 2, 3, 2, 2]
    # The cells of a row of the task are two, those of a customer four, of a city one.
    starts = [0, 2, 6, 7, 9, 13, 15, 19, 21, 25, 27, 30]
    assert context["row_starts"][: len(starts)].tolist() == starts


def test_nothing_is_drawn_where_all_are_taken(tmp_path: Path) -> None:
    """Five are known, of which one is the anchor's own: with n = 5 all in order, in any epoch."""
    options = OPTIONS.with_(peer_labels=5)
    shown = contexts_of(shop(with_seeds(s7=replace(SEEDS[7], known=at(90)))), tmp_path,
                        DANS_SEED, TRAIN, options, epochs=4)  # fmt: skip
    assert set(days_of(shown)) == {(20.0, 23.0, 24.0, 24.0)}
    fewer = contexts_of(shop(), tmp_path, DANS_SEED, TRAIN, OPTIONS.with_(peer_labels=4), epochs=40)
    assert len(set(days_of(fewer))) > 10


def crowd(days: list[float], asked: float = 90.0) -> Database:
    """One customer each, asked half a day before the label is known; ann is the last of all."""
    people = table("people", [Column("id", IDENTIFIER)], [(True,)] * (len(days) + 1))
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
    late = with_seeds(s7=replace(SEEDS[7], known=at(90)))
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
        seeds = with_seeds(s7=Seed(3, at(day), False, split=TRAIN, known=at(7)))
        context = context_of(shop(seeds), tmp_path / str(i), ANNS_SEED, TEST)
        assert labels_of(context) == [BOB_5, DAN_6, CID_2, BOB_1]
        one = OPTIONS.with_(peer_labels=1)
        shown = contexts_of(shop(seeds), tmp_path / str(i), ANNS_SEED, TEST, one, epochs=60)
        assert {len(labels_of(context)) for context in shown} == {0, 1}
    seeds = with_seeds(s7=Seed(3, at(19), False, split=TRAIN, known=at(7)))
    context = context_of(shop(seeds), tmp_path / "before", ANNS_SEED, TEST)
    assert labels_of(context) == [BOB_5, DAN_6, (1.0, False, DAN), CID_2, BOB_1]


# ---- what may be seen --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("train", [BOB_5, DAN_6, CID_2, BOB_1]),
        ("all", [BOB_5, DAN_6, CID_4, CID_2, BOB_1]),
        ("none", []),
    ],
)
def test_context_labels_decides_by_split(rule: str, expected: list[Peer], tmp_path: Path) -> None:
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, OPTIONS.with_(context_labels=rule))
    assert labels_of(context) == expected
    by_task = context_of(shop(context_labels=rule), tmp_path / "by task", ANNS_SEED, TEST)
    assert labels_of(by_task) == expected


def test_labels_that_there_are_not_or_that_nobody_is_told_are_not_shown(tmp_path: Path) -> None:
    seeds = with_seeds(s3=replace(SEEDS[3], labelled=False), s6=replace(SEEDS[6], known=None))
    context = context_of(shop(seeds), tmp_path, ANNS_SEED, TEST)
    assert labels_of(context) == [CID_2, BOB_1]
    assert labels_of(context_of(shop(label_times=False), tmp_path / "no", ANNS_SEED, TEST)) == []


def test_a_frozen_seed_knows_fewer(tmp_path: Path) -> None:
    for day, expected in ((8.5, [DAN_6, CID_2, BOB_1]), (3, [CID_2, BOB_1]), (1, [])):
        options = OPTIONS.with_(visible_until=(at(50), at(50), at(day)))
        assert labels_of(context_of(shop(), tmp_path, ANNS_SEED, TEST, options)) == expected


def test_a_stale_seed_knows_fewer(tmp_path: Path) -> None:
    """Dan's seed of day 25, of which the cutoff is up to 40 days earlier: of what it knows without,
    it knows what was known first."""
    known = [24.0, 24.0, 23.0, 20.0]  # ann's, bob's, cid's, bob's; the last first
    options = OPTIONS.with_(staleness=(0.0, 40.0))
    shown = contexts_of(shop(), tmp_path, DANS_SEED, TRAIN, options, epochs=150)
    expected = {tuple(known[:count][::-1]) for count in (0, 1, 3, 4)}
    assert set(days_of(shown)) == expected
    fresh = contexts_of(
        shop(), tmp_path, DANS_SEED, TRAIN, OPTIONS.with_(staleness=(1.0, 40.0)), epochs=5
    )
    assert set(days_of(fresh)) == {tuple(known[::-1])}


@pytest.mark.parametrize(
    ("known", "exclusive", "is_shown"),
    [(20.0, False, True), (20.0, True, False), (19.9, True, True), (20.1, False, False)],
)
def test_a_label_is_seen_from_the_moment_it_is_known(
    known: float, exclusive: bool, is_shown: bool, tmp_path: Path
) -> None:
    seeds = with_seeds(s3=replace(SEEDS[3], known=at(known)))
    context = context_of(shop(seeds, exclusive=exclusive), tmp_path, ANNS_SEED, TEST)
    assert (BOB_5 in labels_of(context)) == is_shown


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


def test_seeds_of_val_that_train_has_are_shown(tmp_path: Path) -> None:
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, train_on_val=True)
    assert labels_of(context) == [BOB_5, DAN_6, CID_4, CID_2, BOB_1]


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
    assert shown[OPTIONS][0] == [BOB_5, DAN_6, CID_2, BOB_1]
    assert shown[OPTIONS][1:3] == [[bob, ann], []]
    # Without a time of their own: all that is ever known, without ages.
    asked_once = [(-1.0, False, DAN), (-1.0, None, BOB), (-1.0, True, DAN), (-1.0, False, CID)]
    assert shown[OPTIONS][3] == [*asked_once, (-1.0, True, BOB)]
    assert shown[frozen][0] == [DAN_6, CID_2, BOB_1]
    assert shown[frozen][3] == [*asked_once[2:], (-1.0, True, BOB)]


# ---- the anchors -------------------------------------------------------------------------------


def test_contexts_of_the_anchor_alone_have_none(tmp_path: Path) -> None:
    options = OPTIONS.with_(max_hops=0)
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST, options)
    without = context_of(shop(), tmp_path, ANNS_SEED, TEST, options.with_(peer_labels=0))
    assert all(context[name].tobytes() == without[name].tobytes() for name in context)


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


def test_an_anchor_is_linked_to_what_the_context_holds_all_the_same(tmp_path: Path) -> None:
    """Dan, a peer, lives in the north, which ann leads to; bob's city is not there."""
    context = context_of(shop(), tmp_path, ANNS_SEED, TEST)
    rows = rows_of(context)
    assert context["fk_adj"][rows.index(DAN)].nonzero()[0].tolist() == [rows.index(NORTH)]
    assert not context["fk_adj"][rows.index(BOB)].any()


def test_an_anchor_that_the_walk_came_to_first_stays_where_it_was(tmp_path: Path) -> None:
    """Bob is ann's friend: a chain row at one hop from her, and the walk goes on from him."""
    friends = (1, None, None, None)
    context = context_of(shop(friends=friends), tmp_path, ANNS_SEED, TEST)
    rows = rows_of(context)
    assert rows[:5] == [ROW_OF_TASK, ANN, NORTH, BOB, SOUTH]
    assert depths_of(context)[3] == 2
    assert labels_of(context) == [BOB_5, DAN_6, CID_2, BOB_1]
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
        columns = [Column("id", IDENTIFIER), Column("since", TIMESTAMP)]
        rows = [(True, at(1)), (True, at(5)), (True, at(20)), (True, at(30))]
        made = table("clients", columns, rows, (), "since")
        seeds = tuple(
            sorted(
                (replace(seed, anchor=(0, 3, 2, 1)[seed.anchor]) for seed in SEEDS),
                key=lambda seed: (seed.anchor, seed.obs_time),
            )
        )
        task = Task("t", "clients", "t", BOOLEAN, seeds, label_times=True, exclusive=exclusive)
        return Database("clients", (made,), (task,))

    for exclusive, cid in ((False, 2), (True, None)):
        database, folder = clients(exclusive), tmp_path / str(exclusive)
        path = write_store(database, folder)
        with open_sampler(path, database, OPTIONS, text_budget=99) as sampler:
            (batch,) = epoch_of(sampler, TEST, 0)
        rows = [int(row) for row in batch["row_ids"][0, : batch["num_rows"][0]]]
        task = ROW_OF_TASK
        if cid is None:
            assert rows == [task, 0, task, task, 1, task, task]
        else:
            assert rows == [task, 0, task, task, 1, task, task, 2]
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
    assert labels_of(context) == [own, BOB_5, DAN_6, CID_2, BOB_1]
    assert labels_of(
        context_of(shop(), tmp_path, ANNS_SEED, TEST, options.with_(peer_labels=0))
    ) == [own]


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


# ---- canaries, layouts, threads ----------------------------------------------------------------


@pytest.mark.parametrize("layout", [{}, {"layout": 1}])
@pytest.mark.parametrize(
    "change",
    [
        {"s5": replace(SEEDS[5], target=False)},  # of val
        {"s7": replace(SEEDS[7], target=True)},  # told after the question
        {"s7": replace(SEEDS[7], target=True, known=at(20) + 1)},
        {"s7": Seed(3, at(25), True, split=TRAIN, known=None)},
        {"s0": replace(SEEDS[0], target=False)},  # of the anchor itself
    ],
)
def test_labels_that_may_not_be_seen_change_nothing(
    change: dict[str, Seed], layout: dict[str, Any], tmp_path: Path
) -> None:
    before = context_of(shop(), tmp_path / "before", ANNS_SEED, TEST, **layout)
    after = context_of(shop(with_seeds(**change)), tmp_path / "after", ANNS_SEED, TEST, **layout)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize(
    ("layout", "changed"), [({}, "bool_values"), ({"layout": 1}, "cell_values")]
)
def test_the_canary_sings_where_the_label_is_known(
    layout: dict[str, Any], changed: str, tmp_path: Path
) -> None:
    before = context_of(shop(), tmp_path / "before", ANNS_SEED, TEST, **layout)
    seeds = with_seeds(s6=replace(SEEDS[6], target=False))
    after = context_of(shop(seeds), tmp_path / "after", ANNS_SEED, TEST, **layout)
    assert {name for name in before if before[name].tobytes() != after[name].tobytes()} == {changed}
    assert (before[changed] != after[changed]).sum() == 1


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_make_the_same_bits(threads: int, tmp_path: Path) -> None:
    database = crowd([float(day) for day in range(1, 41)], asked=60.0)
    options = OPTIONS.with_(peer_labels=3, batch_size=5, label_rows=1)
    path = write_store(database, tmp_path)

    def batches(count: int, prefetch: int) -> list[bytes]:
        with open_sampler(path, database, options, text_budget=99, threads=count,
                          prefetch=prefetch) as sampler:  # fmt: skip
            epochs = [epoch_of(sampler, TRAIN, 0, epoch) for epoch in range(3)]
        return [array.tobytes() for epoch in epochs for batch in epoch for array in batch.values()]

    assert batches(threads, 4) == batches(0, 0)


def test_the_compact_layout_holds_the_same(tmp_path: Path) -> None:
    path = write_store(shop(), tmp_path)
    for options in (OPTIONS, OPTIONS.with_(peer_labels=1, label_rows=2, child_counts=True)):
        for targets in (INLINE, SEPARATE):
            check_against_dense(path, shop(), options, targets)


# ---- the option --------------------------------------------------------------------------------


def test_a_state_knows_peer_labels(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path) as plain, headwater.Sampler(path, peer_labels=4) as peers:
        assert peers.state_dict()["options"]["peer_labels"] == 4
        with pytest.raises(ValueError, match="peer_labels was 0 and is 4"):
            peers.load_state_dict(plain.state_dict())
        with pytest.raises(ValueError, match="peer_labels was 4 and is 0"):
            plain.load_state_dict(peers.state_dict())
    with headwater.Sampler(path, peer_labels=1024) as most:
        most.batch("train", 0)


def test_a_number_that_is_out_of_range_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(ValueError, match="peer_labels is -1"):
        headwater.Sampler(path, peer_labels=-1)
    with pytest.raises(ValueError, match="peer_labels is 1025, expected 0 to 1024"):
        headwater.Sampler(path, peer_labels=1025)
    with pytest.raises(ValueError, match="peer_labels is 2, contexts of masked"):
        headwater.Sampler(path, peer_labels=2, objective="masked_cells")
