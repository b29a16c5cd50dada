"""Nothing from the future, and nothing withheld, reaches a batch.

Two kinds of proof. Canaries: what may not be seen is changed, and the batches stay the same bit for
bit (categories, booleans and texts are changed: numbers and times would move the scales of their
columns, which is not leakage of a cell). Invariants: every row and cell of random worlds is held
against the raw times, by rules that are stricter and simpler than the sampler's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LATE, READMITTED, clinic, differing
from plain_database import BOOLEAN, DAY, NEVER, Database, Key, Options, Seed, Task
from world_store import Arrays, epoch_of, open_sampler, sampled, write_store
from worlds import at, random_database, random_options, table


def batches(
    database: Database, folder: Path, task: int, split: int, **options: Any
) -> list[Arrays]:
    asked = Options(sequence_length=80, max_rows=12, batch_size=2, **options)
    return sampled(database, folder, asked, split, task, text_budget=41)


TRAIN, VAL, TEST = 0, 1, 2


@pytest.mark.parametrize(
    ("change", "task", "split"),
    [
        # A visit after the question, for the patient of the seed.
        ({"ward__4": "b"}, LATE, TRAIN),
        ({"result__4": "canary"}, LATE, TRAIN),
        ({"ward__5": "b"}, LATE, VAL),
        # A result that was known on day 6, of a visit on day 4, asked on day 5.
        ({"result__3": "canary"}, LATE, VAL),
        # A column that is never known.
        ({"never__0": False}, LATE, TRAIN),
        ({"never__0": False}, READMITTED, TRAIN),
        # The label of a visit that is a val or a test seed, in the contexts of train seeds.
        ({"readmitted__2": True}, READMITTED, TRAIN),
        ({"readmitted__3": True}, READMITTED, TRAIN),
        # The label of a test seed in contexts of val.
        ({"readmitted__3": True}, READMITTED, VAL),
        # The label of any seed where context_labels say none.
        ({"readmitted__1": True, "readmitted__0": True}, READMITTED, TEST),
    ],
)
def test_what_may_not_be_seen_changes_nothing(
    change: dict[str, Any], task: int, split: int, tmp_path: Path
) -> None:
    options = {"context_labels": "none"} if split == TEST else {}
    before = batches(clinic(), tmp_path / "before", task, split, **options)
    after = batches(clinic(**change), tmp_path / "after", task, split, **options)
    assert differing(before, after) == set()


@pytest.mark.parametrize(
    ("change", "task", "split", "expected"),
    [
        ({"ward__0": "b"}, LATE, TRAIN, "categorical_embed_ids"),
        ({"readmitted__0": True}, LATE, TRAIN, "bool_values"),
        # The label of an earlier train seed is history.
        ({"readmitted__1": True}, READMITTED, TEST, "bool_values"),
    ],
)
def test_the_canary_sings_where_a_cell_may_be_seen(
    change: dict[str, Any], task: int, split: int, expected: str, tmp_path: Path
) -> None:
    before = batches(clinic(), tmp_path / "before", task, split)
    after = batches(clinic(**change), tmp_path / "after", task, split)
    assert expected in differing(before, after)


def test_a_result_appears_once_it_is_known(tmp_path: Path) -> None:
    """Visits of days 1 and 3 have results from days 3 and 5 on; patient 0 is asked on day 5."""
    (batch,) = batches(clinic(), tmp_path, LATE, TRAIN)
    result_column = 2 + 7
    assert (batch["column_ids"][0] == result_column).sum() == 2
    # One moment earlier the second is not known.
    database = clinic()
    late = replace(database.tasks[0], seeds=(Seed(0, at(5) - 1, True, split=0),))
    database = Database(database.name, database.tables, (late,))
    (batch,) = batches(database, tmp_path / "earlier", LATE, TRAIN)
    assert (batch["column_ids"][0] == result_column).sum() == 1


def test_hidden_columns_are_withheld_on_the_anchor(tmp_path: Path) -> None:
    (batch,) = batches(clinic(), tmp_path / "late", LATE, TRAIN)
    assert 1 not in batch["column_ids"][0][batch["is_padding"][0] == 0]  # patients.blood
    secret_column = 2 + 5
    for batch in batches(clinic(), tmp_path / "readmitted", READMITTED, TRAIN):
        cells = (batch["column_ids"] == secret_column) & (batch["is_padding"] == 0)
        assert not (cells & (batch["seq_row_ids"] == 0)).any()


# ---- invariants of random worlds ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_contexts_of_random_worlds_keep_every_rule(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    with open_sampler(write_store(database, tmp_path), database, options) as sampler:
        for (number, task), split in product(enumerate(database.tasks), range(3)):
            if sampler.seed_count(split, number):
                for batch in epoch_of(sampler, split, number):
                    until = np.minimum(batch["obs_time"], options.visible_until[split])
                    for b in range(int(batch["num_sequences"][0])):
                        context = {name: a[b] for name, a in batch.items() if len(a) > b}
                        no_row_is_later_than_its_seed(database, context, int(until[b]))
                        no_cell_is_before_it_is_known(database, context, int(until[b]), task)
                        limits_are_kept_and_no_row_is_visited_twice(options, context, task)


def no_row_is_later_than_its_seed(database: Database, context: Arrays, until: int) -> None:
    for local, row in enumerate(context["row_ids"][: int(context["num_rows"])].tolist()):
        if row in (int(context["anchor_rows"]), 2**32 - 1) or until == NEVER:
            continue
        made = database.table_of_row(row)
        if made.times is not None:
            assert made.times[row - database.row_starts[made.name]] <= until
            age = context["row_ages"][local]
            assert age >= 0 or age == -1


def no_cell_is_before_it_is_known(
    database: Database, context: Arrays, until: int, task: Task
) -> None:
    """But for the one target."""
    assert context["is_target"].sum() == 1
    for s in range(int(context["num_cells"])):
        number = int(context["column_ids"][s])
        if context["is_target"][s] or number >= database.table_column_count:
            continue
        row = int(context["row_ids"][context["seq_row_ids"][s]])
        made = database.table_of_row(row)
        local = row - database.row_starts[made.name]
        column = made.columns[number - database.column_starts[made.name]]
        assert column.known.kind != "never"
        if column.known.kind == "column" and until != NEVER:
            moment = made.values[column.known.column][local]
            assert moment is not None and moment + column.known.offset <= until
        assert (made.name, column.name) not in task.hidden or row != context["anchor_rows"]


def limits_are_kept_and_no_row_is_visited_twice(
    options: Options, context: Arrays, task: Task
) -> None:
    rows = context["row_ids"][: int(context["num_rows"])]
    assert len(set(rows[rows != 2**32 - 1].tolist())) == (rows != 2**32 - 1).sum()
    depths = context["row_depths"][: len(rows)]
    most = None if options.max_hops is None else options.max_hops + task.derived
    assert most is None or depths.max() <= most
    assert len(rows) <= options.max_rows
    assert context["num_cells"] <= options.sequence_length


def test_a_day_is_over_before_its_rows_are_seen(tmp_path: Path) -> None:
    """With day resolution a row of day 3 is visible from the midnight that ends it."""
    parents = table("parents", "parent_id identifier", [(True,)])
    days = table(
        "days",
        "day_id identifier, parent_id identifier, on timestamp",
        [(True, True, at(3))],
        (Key(("parent_id",), "parents", (0,)),),
        "on",
        days=True,
    )
    for moment, rows in ((at(4) - 1, 2), (at(4), 3)):
        database = Database(
            "days",
            (parents, days),
            (Task("t", "parents", "t", BOOLEAN, (Seed(0, moment, True, split=0),)),),
        )
        (batch,) = batches(database, tmp_path / str(moment), 0, TRAIN)
        assert batch["num_rows"][0] == rows
    assert np.isclose(batch["row_ages"][0, 2], (at(4) - at(3) - DAY) / DAY)
