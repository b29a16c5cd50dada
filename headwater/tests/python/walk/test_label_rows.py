"""Known labels of the anchor's earlier seeds as rows: docs/2-sampling.md, "Label rows".

Against the reference in random worlds: test_reference.py, test_compact.py and test_packing.py;
their random options have label_rows too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import TinyTable, arrow_tables
from headwater import binding
from plain_database import Database, Options, Seed
from tiny_store import write_tiny
from world_store import Arrays, ad_hoc, epoch_of, open_sampler, write_store
from worlds import at, two_tables

TRAIN, VAL, TEST = 0, 1, 2
OPTIONS = Options(sequence_length=64, max_rows=16, batch_size=8, recent=True, label_rows=9)
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


def asked(**changes: Seed) -> Database:
    """`changes` replaces seeds: s3=Seed(...)."""
    seeds = list(ASKED)
    for name, seed in changes.items():
        seeds[int(name[1:])] = seed
    return two_tables(seeds=tuple(seeds), label_times=True)


def context_of(
    database: Database, folder: Path, seed: int, split: int, options: Options = OPTIONS, **more: Any
) -> Arrays:
    """The batch of a split, of which only the sequence of one seed is kept."""
    path = write_store(database, folder)
    with open_sampler(path, database, options, text_budget=99, **more) as sampler:
        (batch,) = epoch_of(sampler, split, 0)
    (b,) = np.flatnonzero(batch["seed_index"][: batch["num_sequences"][0]] == seed)
    return {name: array[b] for name, array in batch.items() if array.shape[0] == 8}


def labels_of(context: Arrays) -> list[tuple[float, bool | None]]:
    """Age and answer of each label row, in order."""
    found = []
    for row in range(1, int(context["num_rows"])):
        if context["row_tables"][row] == 65535:
            assert context["row_ids"][row] == 2**32 - 1
            assert context["row_depths"][row] == 2
            assert context["fk_adj"][row].nonzero()[0].tolist() == [1]
            start = int(context["row_starts"][row])
            assert context["column_ids"][start : start + 2].tolist() == [7, 8]
            assert not context["is_target"][start : start + 2].any()
            answer = bool(context["bool_values"][start + 1])
            is_null = context["is_null"][start + 1]
            found.append((float(context["row_ages"][row]), None if is_null else answer))
    return found


def test_known_labels_of_train_seeds_come_the_latest_first(tmp_path: Path) -> None:
    """Asked on day 6: known are days 1, 2 and 5; day 4 is of val, day 3 is told on day 9."""
    context = context_of(asked(), tmp_path, 5, TEST)
    assert labels_of(context) == [(1.0, False), (4.0, None), (5.0, True)]
    # The seed row, ann, the labels, then her orders.
    assert context["row_tables"][:7].tolist() == [65535, 0, 65535, 65535, 65535, 1, 1]
    starts = [0, 2, 5, 7, 9, 11, 15, 19]
    assert context["row_starts"][: len(starts)].tolist() == starts
    columns = np.sort(context["column_ids"][:19], kind="stable")
    assert context["column_ids"][context["col_perm"][:19]].tolist() == columns.tolist()


def test_no_more_than_label_rows_are_taken(tmp_path: Path) -> None:
    context = context_of(asked(), tmp_path, 5, TEST, OPTIONS.with_(label_rows=2))
    assert labels_of(context) == [(1.0, False), (4.0, None)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("train", [(1.0, False), (4.0, None), (5.0, True)]),
        ("all", [(1.0, False), (2.0, True), (4.0, None), (5.0, True)]),
        ("none", []),
    ],
)
def test_context_labels_decides_by_split(
    rule: str, expected: list[tuple[float, bool | None]], tmp_path: Path
) -> None:
    context = context_of(asked(), tmp_path, 5, TEST, OPTIONS.with_(context_labels=rule))
    assert labels_of(context) == expected


def test_a_label_is_seen_from_the_moment_it_is_known(tmp_path: Path) -> None:
    exclusive = replace(asked().tasks[0], exclusive=True)
    for i, (known, cutoff, count) in enumerate(
        [(at(6), False, 3), (at(6) + 1, False, 2), (at(6), True, 2), (at(6) - 1, True, 3)]
    ):
        database = asked(s4=replace(ASKED[4], known=known))
        if cutoff:
            database = replace(database, tasks=(replace(exclusive, seeds=database.tasks[0].seeds),))
        assert len(labels_of(context_of(database, tmp_path / str(i), 5, TEST))) == count


def test_a_frozen_or_stale_seed_knows_fewer_labels(tmp_path: Path) -> None:
    frozen = OPTIONS.with_(visible_until=(at(4), at(4), at(4)))
    assert labels_of(context_of(asked(), tmp_path / "a", 5, TEST, frozen)) == [
        (4.0, None),
        (5.0, True),
    ]
    # Train seed 4, of day 5, knows the labels of days 1 and 2, since days 3 and 4: with a gap of up
    # to 2 days both or the first, and over ten epochs either happens.
    stale = OPTIONS.with_(staleness=(0.0, 2.0))
    path = write_store(asked(), tmp_path / "b")
    counts = set()
    with open_sampler(path, asked(), stale, text_budget=99) as sampler:
        for epoch in range(10):
            (batch,) = epoch_of(sampler, TRAIN, 0, epoch)
            (b,) = np.flatnonzero(batch["seed_index"][: batch["num_sequences"][0]] == 4)
            tables = batch["row_tables"][b, 1 : batch["num_rows"][b]]
            counts.add(int((tables == 65535).sum()))
    assert counts == {1, 2}


def test_seeds_given_by_hand_have_the_labels_of_their_anchor(tmp_path: Path) -> None:
    path = write_store(asked(), tmp_path)
    with open_sampler(path, asked(), OPTIONS, text_budget=99) as sampler:
        (batch,) = ad_hoc(sampler, 0, [0, 1, 0], [at(20), at(2), at(1)])
    tables = [batch["row_tables"][b, 1 : batch["num_rows"][b]] for b in range(3)]
    # Ann on day 20: days 5, 3, 2 and 1; bob on day 2: day 1; ann on day 1: nothing before it.
    assert [int((each == 65535).sum()) for each in tables] == [4, 1, 0]


def test_a_task_that_does_not_say_when_labels_are_known_has_none(tmp_path: Path) -> None:
    database = two_tables(seeds=ASKED)
    context = context_of(database, tmp_path / "on", 5, TEST)
    without = context_of(database, tmp_path / "off", 5, TEST, OPTIONS.with_(label_rows=0))
    assert all(context[name].tobytes() == without[name].tobytes() for name in context)


@pytest.mark.parametrize(("length", "rows"), [(6, 16), (7, 16), (8, 16), (64, 3)])
def test_label_rows_are_cut_like_any_other(length: int, rows: int, tmp_path: Path) -> None:
    options = OPTIONS.with_(sequence_length=length, max_rows=rows)
    context = context_of(asked(), tmp_path, 5, TEST, options)
    assert int(context["num_cells"]) == (7 if rows == 3 else length)
    assert int(context["num_rows"]) == (4 if length == 8 else 3)


# ---- what may not be seen ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", [{}, {"layout": 1}])
@pytest.mark.parametrize(
    ("change", "seed", "split"),
    [
        # A label that is told after the question; one of a val seed; the seed's own; later ones.
        ({"s2": replace(ASKED[2], target=False)}, 5, TEST),
        ({"s3": replace(ASKED[3], target=False)}, 5, TEST),
        ({"s3": replace(ASKED[3], target=False)}, 4, TRAIN),
        ({"s5": replace(ASKED[5], target=False)}, 4, TRAIN),
        ({"s4": replace(ASKED[4], target=True)}, 3, VAL),
        ({"s6": replace(ASKED[6], target=False)}, 5, TEST),
    ],
)
def test_labels_that_may_not_be_seen_change_nothing(
    change: dict[str, Seed], seed: int, split: int, layout: dict[str, Any], tmp_path: Path
) -> None:
    before = context_of(asked(), tmp_path / "before", seed, split, **layout)
    after = context_of(asked(**change), tmp_path / "after", seed, split, **layout)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_the_canary_sings_where_the_label_is_known(tmp_path: Path) -> None:
    before = context_of(asked(), tmp_path / "before", 5, TEST)
    changed = asked(s4=replace(ASKED[4], target=True))
    after = context_of(changed, tmp_path / "after", 5, TEST)
    assert {name for name in before if before[name].tobytes() != after[name].tobytes()} == {
        "bool_values"
    }


# ---- from the metadata to the store, and the option --------------------------------------------


def built(folder: Path, **task: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Seeds of a task over one table, asked on days 1 and 2, as the store has them."""
    tables = arrow_tables({"people": TinyTable({"id": "INTEGER"}, [(1,)])})
    query = (
        "SELECT id, TIMESTAMP '2020-01-01' + INTERVAL (i) DAY AS at, i > 1 AS answer, "
        "DATE '2020-01-05' AS told FROM people, range(1, 3) t(i)"
    )
    metadata = {
        "tables": {"people": {"primary_key": "id", "columns": {"id": {"stype": "identifier"}}}},
        "tasks": {
            "t": {
                "anchor_table": "people",
                "query": query,
                "target_column": "answer",
                "target_stype": "boolean",
                "observation_time_column": "at",
                **task,
            }
        },
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


def test_a_state_knows_label_rows(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path) as plain, headwater.Sampler(path, label_rows=4) as rows:
        assert rows.state_dict()["options"]["label_rows"] == 4
        with pytest.raises(ValueError, match="label_rows was 0 and is 4"):
            rows.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match="label_rows is -1"):
        headwater.Sampler(path, label_rows=-1)
    with pytest.raises(ValueError, match="label_rows is 70000, expected 0 to 65535"):
        headwater.Sampler(path, label_rows=70_000)
