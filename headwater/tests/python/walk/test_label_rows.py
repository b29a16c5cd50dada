"""Known labels of the anchor's earlier seeds as rows: docs/reference/sampling.md, "Label rows".

Against the reference in random worlds: test_reference.py, test_compact.py and test_packing.py;
their random options have label_rows too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import TinyTable, arrow_tables, asked
from headwater import binding
from label_shop import (
    ANN,
    ANNS,
    BOB,
    CID_4,
    NORTH,
    OPTIONS,
    PEERS,
    ROW_OF_TASK,
    SEEDS,
    Label,
    changed,
    context_of,
    contexts_of,
    labels_of,
    rows_of,
    shop,
)
from plain_database import TEST, TRAIN, VAL, Options, Seed
from tiny_store import write_tiny
from world_store import ad_hoc, differing, open_sampler, write_store
from worlds import at

Words = dict[str, Any]
OWN = OPTIONS.with_(peer_labels=0, label_rows=9)
BOTH = OPTIONS.with_(label_rows=9)
# Ann is asked on days 1 to 6; the label of day 2 is
# NULL, that of day 3 is told late, that of day 4 is a val seed's; bob is asked on day 1.
ASKED = (
    Seed(0, at(1), True, split=TRAIN, known=at(3)),
    Seed(0, at(2), None, split=TRAIN, known=at(4)),
    Seed(0, at(3), True, split=TRAIN, known=at(9)),
    Seed(0, at(4), True, split=VAL, known=at(5)),
    Seed(0, at(5), False, split=TRAIN, known=at(6)),
    Seed(0, at(6), True, split=TEST, known=at(8)),
    Seed(1, at(1), True, split=TRAIN, known=at(1)),
)
DAY_5, DAY_4, DAY_2, DAY_1 = (1.0, False, ANN), (2.0, True, ANN), (4.0, None, ANN), (5.0, True, ANN)
OWN_KNOWN = [DAY_5, DAY_2, DAY_1]
WITH_VAL = [*PEERS[:2], CID_4, *PEERS[2:]]


def own(i: int, **change: Any) -> tuple[Seed, ...]:
    return changed(i, ASKED, **change)


def test_known_labels_of_train_seeds_come_the_latest_first(tmp_path: Path) -> None:
    """Asked on day 6: known are days 1, 2 and 5; day 4 is of val, day 3 is told on day 9."""
    context = context_of(shop(ASKED), tmp_path, 5, TEST, OWN)
    assert labels_of(context) == OWN_KNOWN
    # The seed row, ann and her city, the labels, then her order.
    rows = [ROW_OF_TASK, ANN, NORTH, ROW_OF_TASK, ROW_OF_TASK, ROW_OF_TASK, ANNS]
    assert rows_of(context)[:7] == rows
    assert context["row_starts"][:8].tolist() == [0, 2, 6, 7, 9, 11, 13, 16]


# Of ann's last seed: options, seeds, task, how the store is sampled, the labels that are shown.
SHOWN: list[
    tuple[dict[str, Any], tuple[Seed, ...], dict[str, Any], dict[str, Any], list[Label]]
] = [
    ({"label_rows": 2}, ASKED, {}, {}, OWN_KNOWN[:2]),
    ({"context_labels": "all"}, ASKED, {}, {}, [DAY_5, DAY_4, DAY_2, DAY_1]),
    ({"context_labels": "none"}, ASKED, {}, {}, []),
    ({"context_labels": "train"}, SEEDS, {}, {}, PEERS),
    ({"context_labels": "all"}, SEEDS, {}, {}, WITH_VAL),
    ({"context_labels": "none"}, SEEDS, {}, {}, []),
    ({}, SEEDS, {"context_labels": "all"}, {}, WITH_VAL),
    ({}, SEEDS, {"context_labels": "none"}, {}, []),
    ({}, SEEDS, {}, {"train_on_val": True}, WITH_VAL),
    # A frozen seed knows fewer.
    ({"visible_until": (at(4),) * 3}, ASKED, {}, {}, OWN_KNOWN[1:]),
    ({"visible_until": (at(50), at(50), at(8.5))}, SEEDS, {}, {}, PEERS[1:]),
    ({"visible_until": (at(50), at(50), at(3))}, SEEDS, {}, {}, PEERS[2:]),
    ({"visible_until": (at(50), at(50), at(1))}, SEEDS, {}, {}, []),
    # A label is seen from the moment it is known on, or after it.
    ({}, own(4, known=at(6) + 1), {}, {}, OWN_KNOWN[1:]),
    ({}, own(4, known=at(6)), {"exclusive": True}, {}, OWN_KNOWN[1:]),
    ({}, own(4, known=at(6) - 1), {"exclusive": True}, {}, OWN_KNOWN),
    ({}, changed(3, known=at(20)), {}, {}, PEERS),
    ({}, changed(3, known=at(20)), {"exclusive": True}, {}, PEERS[1:]),
    ({}, changed(3, known=at(19.9)), {"exclusive": True}, {}, PEERS),
    ({}, changed(3, known=at(20.1)), {}, {}, PEERS[1:]),
    # There is no label, nobody is told it, or the task does not say when labels are known.
    ({}, changed(3, changed(6, known=None), labelled=False), {}, {}, PEERS[2:]),
    ({}, ASKED, {"label_times": False}, {}, []),
    ({}, SEEDS, {"label_times": False}, {}, []),
]


@pytest.mark.parametrize(("options", "seeds", "task", "sampled", "expected"), SHOWN)
def test_labels_are_shown_that_may_be_seen(
    options: Words,
    seeds: tuple[Seed, ...],
    task: Words,
    sampled: Words,
    expected: list[Label],
    tmp_path: Path,
) -> None:
    last, plain = (5, OWN) if len(seeds) == len(ASKED) else (1, OPTIONS)
    context = context_of(
        shop(seeds, **task), tmp_path, last, TEST, plain.with_(**options), **sampled
    )
    assert labels_of(context) == expected


def test_a_stale_seed_knows_fewer_labels(tmp_path: Path) -> None:
    """Train seed 4, of day 5, knows the labels of days 1 and 2, since days 3 and 4: with a gap of
    up to 2 days both or the first, and over ten epochs either happens."""
    stale = OWN.with_(staleness=(0.0, 2.0))
    contexts = contexts_of(shop(ASKED), tmp_path, 4, TRAIN, stale, epochs=10)
    assert {len(labels_of(context)) for context in contexts} == {1, 2}


def test_seeds_given_by_hand_have_the_labels_of_their_anchor(tmp_path: Path) -> None:
    path = write_store(shop(ASKED), tmp_path)
    with open_sampler(path, shop(ASKED), OWN, text_budget=99) as sampler:
        (batch,) = ad_hoc(sampler, 0, [ANN, BOB, ANN], [at(20), at(2), at(1)])
    tables = [batch["row_tables"][b, 1 : batch["num_rows"][b]] for b in range(3)]
    # Ann on day 20: days 5, 3, 2 and 1; bob on day 2: day 1; ann on day 1: nothing before it.
    assert [int((each == 65535).sum()) for each in tables] == [4, 1, 0]


# ---- what may not be seen ----------------------------------------------------------------------


UNSEEN = [
    # Of ann herself: told after the question; of a val seed; the seed's own; later ones.
    (BOTH, ASKED, own(2, target=False), 5, TEST),
    (BOTH, ASKED, own(3, target=False), 5, TEST),
    (BOTH, ASKED, own(3, target=False), 4, TRAIN),
    (BOTH, ASKED, own(5, target=False), 4, TRAIN),
    (BOTH, ASKED, own(4, target=True), 3, VAL),
    # Of others: of a val seed; told after the question, just after it, and never.
    (BOTH, SEEDS, changed(5, target=False), 1, TEST),
    (BOTH, SEEDS, changed(7, target=True), 1, TEST),
    (BOTH, SEEDS, changed(7, target=True, known=at(20) + 1), 1, TEST),
    (BOTH, SEEDS, changed(7, target=True, known=None), 1, TEST),
    # Of others, where own ones are asked for, and the reverse.
    (OWN, ASKED, own(6, target=False), 5, TEST),
    (OPTIONS, SEEDS, changed(0, target=False), 1, TEST),
]


def differences(
    folder: Path, before: tuple[Seed, ...], after: tuple[Seed, ...], *args: Any, **more: Any
) -> dict[str, int]:
    """How many values of which arrays differ, of the context of one seed."""
    one = context_of(shop(before), folder / "before", *args, **more)
    two = context_of(shop(after), folder / "after", *args, **more)
    return {name: int((one[name] != two[name]).sum()) for name in differing(one, two)}


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(("options", "before", "after", "seed", "split"), UNSEEN)
def test_labels_that_may_not_be_seen_change_nothing(
    options: Options,
    before: tuple[Seed, ...],
    after: tuple[Seed, ...],
    seed: int,
    split: int,
    layout: int,
    tmp_path: Path,
) -> None:
    assert differences(tmp_path, before, after, seed, split, options, layout=layout) == {}


@pytest.mark.parametrize("layout", [0, 1])
def test_the_canary_sings_where_the_label_is_known(layout: int, tmp_path: Path) -> None:
    expected = {("bool_values", "cell_values")[layout]: 1}
    for before, after, seed in (
        (ASKED, own(4, target=True), 5),
        (SEEDS, changed(6, target=False), 1),
    ):
        found = differences(tmp_path / str(seed), before, after, seed, TEST, BOTH, layout=layout)
        assert found == expected


# ---- from the metadata to the store, and the option --------------------------------------------


def built(folder: Path, **task: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Seeds of a task over one table, asked on days 1 and 2, as the store has them."""
    tables = arrow_tables({"people": TinyTable({"id": "INTEGER"}, [(1,)])})
    query = """
        SELECT id, TIMESTAMP '2020-01-01' + INTERVAL (i) DAY AS at, i > 1 AS answer,
            DATE '2020-01-05' AS told
        FROM people, range(1, 3) t(i)
    """
    metadata = {
        "tables": {"people": {"primary_key": "id", "columns": {"id": {"stype": "identifier"}}}},
        "tasks": {"t": asked(query, "people", "answer boolean", "at", **task)},
    }
    headwater.build(tables, folder / "s", metadata)
    store = binding.Store(folder / "s")
    assert store.verify() == []
    return {name: np.asarray(array) for name, array in store.seeds(0).items()}


HOUR = 3_600_000_000


def test_a_label_window_says_when_labels_are_known(tmp_path: Path) -> None:
    seeds = built(tmp_path, label_window="36 hours")
    assert (seeds["label_times"] - seeds["obs_times"]).tolist() == [36 * HOUR] * 2


def test_a_label_told_on_a_day_is_known_when_it_is_over(tmp_path: Path) -> None:
    seeds = built(tmp_path, label_known_at="told")
    assert seeds["label_times"].tolist() == [int(seeds["obs_times"][0]) + 4 * 24 * HOUR] * 2


def test_without_either_the_store_does_not_say(tmp_path: Path) -> None:
    assert "label_times" not in built(tmp_path)


def test_a_missing_column_of_label_times_is_named(tmp_path: Path) -> None:
    with pytest.raises(headwater.TaskError, match=r"no column 'when' \(label_known_at\)"):
        built(tmp_path, label_known_at="when")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_rows": -1}, "label_rows is -1"),
        ({"label_rows": 70_000}, "label_rows is 70000, expected 0 to 65535"),
        ({"peer_labels": -1}, "peer_labels is -1"),
        ({"peer_labels": 1025}, "peer_labels is 1025, expected 0 to 1024"),
        ({"peer_labels": 2, "objective": "masked_cells"}, "peer_labels is 2, contexts of masked"),
    ],
)
def test_a_number_that_is_out_of_range_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        headwater.Sampler(write_tiny(tmp_path), **options)
