"""The library agrees with the reference sampler, and the reference with what was published.

Random worlds (worlds.py) are built into real stores and sampled under random options; every array
of every batch must equal the reference's, the floats within 1e-6.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwater
import numpy as np
import pytest
from comparison import check_epochs, difference, maker_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_database import CATEGORICAL, NEVER, Column, Database, Key, Options, Seed, Task
from reference_batch import most_texts, usual_texts
from reference_order import Order, Stream, hash64, permute, philox4x32
from reference_sampler import sample, sample_ad_hoc
from world_store import ad_hoc, arrays_of, epoch_of, open_sampler, sampled, write_store
from worlds import asking_for_a_key, at, random_database, random_options, star, table

# ---- published algorithms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert philox4x32(counter, key) == expected


def test_hash64_gives_the_published_values_of_xxh64() -> None:
    assert hash64(b"", 0) == 0xEF46DB3751D8E999
    assert hash64(b"abc", 0) == 0x44BC2CF5AD770999
    assert hash64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 100, 257])
def test_permute_visits_every_place_once(n: int) -> None:
    assert sorted(permute(0x1234567890ABCDEF, n, i) for i in range(n)) == list(range(n))


def test_below_stays_below_and_is_uniform() -> None:
    stream = Stream(7, 1, 2, 3, 0)
    counts = Counter(stream.below(6) for _ in range(6000))
    assert sorted(counts) == list(range(6))
    assert_uniform(list(counts.values()), 6)


def assert_uniform(counts: list[int], cells: int) -> None:
    """Chi-square against equal shares, by the cube root of Wilson and Hilferty (1931).

    One false alarm in a million, and the seeds are fixed.
    """
    expected = sum(counts) / cells
    padded = counts + [0] * (cells - len(counts))
    statistic = sum((count - expected) ** 2 / expected for count in padded)
    spread = 2 / (9 * (cells - 1))
    assert statistic < (cells - 1) * (1 - spread + 4.753 * spread**0.5) ** 3


# ---- the library against the reference ---------------------------------------------------------


def check_stream(sampler: Any, order: Order) -> None:
    maker = maker_of(order, sampler.shape())
    for split in range(3):
        for k in range(3 if order.active(split) else 0):
            got = arrays_of(sampler.batch(split, k))
            assert difference(maker.make(order.batch(split, k)), got) is None


def check_ad_hoc(sampler: Any, order: Order, task: int) -> None:
    """Seeds given by hand: the rows of their contexts, in order."""
    database = order.database
    anchors = sorted({seed.anchor for seed in database.tasks[task].seeds})
    times = [database.tasks[task].seeds[0].obs_time] * len(anchors)
    start = database.row_starts[database.tasks[task].anchor_table]
    batches = ad_hoc(sampler, task, [start + anchor for anchor in anchors], times)
    size, world, rank = (order.options.batch_size, order.options.world_size, order.options.rank)
    for j, got in enumerate(batches):
        for b in range(size):
            place = (j * size + b) * world + rank
            if place < len(anchors):
                context = sample_ad_hoc(order, task, place, anchors[place], times[place])
                rows = [2**32 - 1 if row is None else row for row in context.rows]
                assert got["row_ids"][b, : len(rows)].tolist() == rows
                assert got["num_cells"][b] == len(context.cells)
                assert got["is_labelled"][b] == 0


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_every_array_of_every_batch_equals_the_reference(seed: int, epoch: int) -> None:
    check_world(random_database(seed), seed, epoch)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_tasks_that_ask_for_a_foreign_key_equal_the_reference(seed: int, epoch: int) -> None:
    check_world(asking_for_a_key(random_database(seed), seed), seed, epoch)


def check_world(database: Database, seed: int, epoch: int) -> None:
    with TemporaryDirectory() as folder:
        path = write_store(database, Path(folder))
        for variant in range(2):
            order = Order(database, random_options(seed * 2 + variant, database))
            with open_sampler(path, database, order.options) as sampler:
                check_epochs(sampler, order, epoch)
                check_stream(sampler, order)
                check_ad_hoc(sampler, order, 0)


@pytest.mark.parametrize("seed", range(4))
def test_text_budget_and_max_rows_are_made_from_the_first_64_seeds(
    seed: int, tmp_path: Path
) -> None:
    database = random_database(seed)
    options = random_options(seed, database).with_(sequence_length=200, max_rows=64)
    order = Order(database, options.with_(dealt=True))  # whole lists, whatever the rank
    contexts = []
    for task in range(len(database.tasks)):
        split = next((s for s in range(3) if order.seeds(s, task)), None)
        if split is not None:
            count = min(64, len(order.seeds(split, task)))
            contexts += [sample(order, order.at(split, task, p)) for p in range(count)]
    path = write_store(database, tmp_path)
    with open_sampler(path, database, options) as sampler:
        quota = max(1, most_texts(contexts))
        shape = sampler.shape()
        assert shape["text_budget"] == 1 + options.batch_size * quota
        assert shape["usual_texts"] == usual_texts(order, shape)


@pytest.mark.parametrize("seed", range(6))
def test_texts_over_the_budget_become_text_0(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database).with_(sequence_length=200, max_rows=64)
    order = Order(database, options)
    path = write_store(database, tmp_path)
    budget = 1 + 2 * options.batch_size
    with open_sampler(path, database, options, text_budget=budget) as sampler:
        check_epochs(sampler, order, 0)


# ---- draws -------------------------------------------------------------------------------------


def spokes_drawn(database: Database, options: Options, tmp_path: Path) -> list[list[int]]:
    """Per seed of a star the spokes of its context in visit order, from the library."""
    return [
        batch["row_ids"][b, 2 : batch["num_rows"][b]].tolist()
        for batch in sampled(database, tmp_path, options)
        for b in range(int(batch["num_sequences"][0]))
    ]


@pytest.mark.parametrize(("spokes", "width"), [(5, 2), (6, 3), (4, 4), (3, 16)])
def test_first_draws_and_sets_of_children_are_uniform(
    spokes: int, width: int, tmp_path: Path
) -> None:
    database = star(spokes, seeds=4000)
    options = Options(batch_size=100, child_width=width)
    drawn = spokes_drawn(database, options, tmp_path)
    taken = min(spokes, width)
    assert all(len(set(rows)) == len(rows) == taken for rows in drawn)
    assert_uniform(list(Counter(rows[0] for rows in drawn).values()), spokes)
    sets = Counter(frozenset(rows) for rows in drawn)
    if taken < spokes:
        assert_uniform(list(sets.values()), comb(spokes, taken))
    for k in range(1, taken):  # every prefix is uniform, not only the first draw and the whole
        prefixes = Counter(frozenset(rows[:k]) for rows in drawn)
        assert len(prefixes) == len(list(combinations(range(spokes), k)))
        assert_uniform(list(prefixes.values()), comb(spokes, k))


def test_the_reference_draws_uniformly_as_well() -> None:
    database = star(5, seeds=2000)
    order = Order(database, Options(child_width=2))
    drawn = [sample(order, order.at(0, 0, p)).rows[2:] for p in range(2000)]
    assert_uniform(list(Counter(rows[0] for rows in drawn).values()), 5)
    assert_uniform(list(Counter(frozenset(rows) for rows in drawn).values()), 10)


# ---- a foreign key that is asked for, or hidden --------------------------------------------------

MARKETS, SELLERS = 600, 4  # of each market sellers
DESIGNS = ("balanced", "random", "hidden")


def markets(design: str, *, count: int = MARKETS, size: int, seed_share: float = 1) -> Database:
    """Who made a trade? One trade of each market is a test seed, a fifth of the others val seeds.

    Of each seller there are `size` trades, in "random" as many as chance gives it. In "hidden" the
    question is another column, which says the same, the foreign key is hidden, and the trades in
    question come last. seed_share: of the trades; the others are no seeds.

    Rows: markets; sellers, those of a market together; trades, those of a seller together but for
    those that come last.
    """
    dice = random.Random(design)
    names = tuple(f"seller {i}" for i in range(SELLERS))
    per_market = SELLERS * size
    sellers = [i // size for i in range(count * per_market)]
    if design == "random":
        sellers = sorted(
            seller // SELLERS * SELLERS + dice.randrange(SELLERS) for seller in sellers
        )
    asked = {m * per_market + dice.randrange(per_market) for m in range(count)}
    trades = sorted(range(len(sellers)), key=lambda i: design == "hidden" and i in asked)
    texts = [names[sellers[i] % SELLERS] for i in trades]
    seeds = [
        Seed(row, NEVER, texts[row], split=2 if i in asked else int(dice.random() < 0.2))
        for row, i in enumerate(trades)
        if i in asked or dice.random() < seed_share
    ]
    days = [at(9 if i in asked else 1) for i in trades]
    columns = [
        "trade_id identifier, market_id identifier",
        Column("seller_id", CATEGORICAL, categories=names),
        Column("maker", CATEGORICAL, categories=names),
        "made timestamp",
    ]
    return Database(
        "markets",
        (
            table("markets", "market_id identifier", [(True,)] * count),
            table(
                "sellers",
                "sellers_id identifier, market_id identifier",
                [(True, True)] * (count * SELLERS),
                (Key(("market_id",), "markets", tuple(np.arange(count * SELLERS) // SELLERS)),),
            ),
            table(
                "trades",
                columns,
                [(True, True, text, text, day) for text, day in zip(texts, days, strict=True)],
                (
                    Key(("market_id",), "markets", tuple(sellers[i] // SELLERS for i in trades)),
                    Key(("seller_id",), "sellers", tuple(sellers[i] for i in trades)),
                ),
                "made" if design == "hidden" else None,
            ),
        ),
        (
            Task(
                "who",
                "trades",
                "maker" if design == "hidden" else "seller_id",
                CATEGORICAL,
                tuple(seeds),
                derived=False,
                hidden=(("trades", "seller_id"),) if design == "hidden" else (),
                exclusive=True,
            ),
        ),
    )


@pytest.mark.parametrize("design", DESIGNS)
def test_a_foreign_key_with_long_lists_equals_the_reference(design: str, tmp_path: Path) -> None:
    """700 trades of each seller."""
    database = markets(design, count=1, size=700)
    order = Order(database, Options(batch_size=1, sequence_length=300, max_rows=100))
    with open_sampler(write_store(database, tmp_path), database, order.options) as sampler:
        maker = maker_of(order, sampler.shape())
        (got,), (positions,) = epoch_of(sampler, 2, 0), order.epoch(2, 0, 0)
        assert difference(maker.make(positions), got) is None


@pytest.mark.parametrize("order", ["uniform", "recent"])
@pytest.mark.parametrize("per", ["foreign_key", "row"])
@pytest.mark.parametrize(
    ("design", "size", "seed_share"),
    [
        ("balanced", 4, 1),  # all trades of a seller are drawn
        ("balanced", 4, 0.3),
        ("random", 4, 1),
        ("hidden", 12, 1),  # not all: a draw was spent on the withheld edge of the anchor
    ],
)
def test_the_number_of_children_does_not_tell_a_foreign_key(
    design: str, size: int, seed_share: float, order: str, per: str, tmp_path: Path
) -> None:
    """Whether a seller of whom more trades are drawn is the answer, over pairs of the answer and
    another seller of its market; 0.5 tells nothing. With four trades of each seller the answer had
    fewer in 75.5 % of pairs, as labels of train seeds alone were shown, and in 100 % with all."""
    database = markets(design, size=size, seed_share=seed_share)
    options = Options(
        batch_size=50, child_width=8, sequence_length=400, max_rows=64, recent=order == "recent",
        per_row=per == "row",
    )  # fmt: skip
    wins: list[float] = []
    sellers_from, trades_from = MARKETS, MARKETS + MARKETS * SELLERS
    with open_sampler(write_store(database, tmp_path), database, options) as sampler:
        for batch in epoch_of(sampler, 2, 0):
            for b in range(int(batch["num_sequences"][0])):
                rows = batch["row_ids"][b, : batch["num_rows"][b]].astype(int).tolist()
                # Those drawn of a seller; of the market's the anchor is one, and no link of it.
                drawn = batch["row_depths"][b, : len(rows)] >= 3
                links = batch["fk_adj"][b, : len(rows), : len(rows)][drawn].sum(axis=0)
                answer = database.table("trades").keys[1].parents[rows[0] - trades_from]
                assert answer is not None
                first = answer // SELLERS * SELLERS
                counts = dict.fromkeys(range(first, first + SELLERS), 0) | {
                    row - sellers_from: int(links[local])
                    for local, row in enumerate(rows)
                    if sellers_from <= row < trades_from
                }
                own = counts.pop(answer)
                wins += [(own > other) + 0.5 * (own == other) for other in counts.values()]
    assert len(wins) == MARKETS * (SELLERS - 1)
    assert abs(np.mean(wins) - 0.5) < 0.06


@pytest.mark.parametrize("rule", ["train", "all"])
def test_a_foreign_key_is_asked_for_without_labels_alone(rule: str, tmp_path: Path) -> None:
    database = markets("balanced", count=2, size=2)
    path = write_store(database, tmp_path)
    says = f"task 'who' predicts a foreign key and context_labels is '{rule}', expected 'none'"
    with pytest.raises(headwater.TaskError, match=says):
        headwater.Sampler(db_path=path, context_labels=rule)
    headwater.Sampler(db_path=path, context_labels="none").shutdown()
    # A sampler that asks no task hides those labels that it is told to hide.
    headwater.Sampler(db_path=path, context_labels=rule, objective="masked_cells").shutdown()


def test_seeds_and_epochs_do_not_share_draws(tmp_path: Path) -> None:
    database = star(12, seeds=40)
    path = write_store(database, tmp_path)
    options = Options(batch_size=40, child_width=6)
    with open_sampler(path, database, options) as sampler:
        found: dict[tuple[int, ...], int] = Counter()
        for epoch in range(3):
            (batch,) = epoch_of(sampler, 0, 0, epoch)
            for row in batch["row_ids"]:
                found[tuple(row[2:8].tolist())] += 1
    # 12 * 11 * 10 * 9 * 8 * 7 orders, 120 contexts: two alike would be a coincidence of 1 in 90.
    assert max(found.values()) == 1
