"""Nothing from the future, and nothing withheld, reaches a batch.

Two kinds of proof. Canaries: what may not be seen is changed, and the batches stay the same bit for
bit (categories, booleans and texts are changed: numbers and times would move the scales of their
columns, which is not leakage of a cell). Invariants: every row and cell of random worlds is held
against the raw times, by rules that are stricter and simpler than the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LATE, READMITTED, clinic, differing
from plain_database import (
    BOOLEAN,
    DAY,
    IDENTIFIER,
    NEVER,
    TIMESTAMP,
    Column,
    Database,
    Key,
    Options,
    Seed,
    Task,
)
from reference_order import Order
from world_store import Arrays, epoch_of, open_sampler, write_store
from worlds import at, random_database, random_options, table


def batches(
    database: Database, folder: Path, task: int, split: int, **options: Any
) -> list[Arrays]:
    path = write_store(database, folder)
    with open_sampler(
        path,
        database,
        Options(sequence_length=80, max_rows=12, batch_size=2, **options),
        text_budget=41,
    ) as sampler:
        return epoch_of(sampler, split, task)


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
    ],
)
def test_what_may_not_be_seen_changes_nothing(
    change: dict[str, Any], task: int, split: int, tmp_path: Path
) -> None:
    before = batches(clinic(), tmp_path / "before", task, split)
    after = batches(clinic(**change), tmp_path / "after", task, split)
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


def test_labels_of_no_seed_are_shown_where_context_labels_say_none(tmp_path: Path) -> None:
    before = batches(clinic(), tmp_path / "a", READMITTED, TEST, context_labels="none")
    changed = clinic(readmitted__1=True, readmitted__0=True)
    after = batches(changed, tmp_path / "b", READMITTED, TEST, context_labels="none")
    assert differing(before, after) == set()


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


def for_every_context(
    seed: int, tmp_path: Path, check: Callable[[Database, Options, Arrays, int, Task, int], None]
) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    order = Order(database, options)
    path = write_store(database, tmp_path)
    with open_sampler(path, database, options) as sampler:
        for number, task in enumerate(database.tasks):
            for split in range(3):
                if order.seeds(split, number):
                    for batch in epoch_of(sampler, split, number):
                        for b in range(int(batch["num_sequences"][0])):
                            check(database, options, batch, b, task, split)


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_no_row_is_later_than_its_seed(seed: int, tmp_path: Path) -> None:
    def check(
        database: Database, options: Options, batch: Arrays, b: int, task: Task, split: int
    ) -> None:
        until = min(int(batch["obs_time"][b]), options.visible_until[split])
        anchor = int(batch["anchor_rows"][b])
        for local in range(int(batch["num_rows"][b])):
            row = int(batch["row_ids"][b, local])
            if row in (anchor, 2**32 - 1) or until == NEVER:
                continue
            made = database.table_of_row(row)
            if made.times is not None:
                assert made.times[row - database.row_starts[made.name]] <= until
                age = batch["row_ages"][b, local]
                assert age >= 0 or age == -1

    for_every_context(seed, tmp_path, check)


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_there_is_one_target_and_no_cell_before_it_is_known(seed: int, tmp_path: Path) -> None:
    def check(
        database: Database, options: Options, batch: Arrays, b: int, task: Task, split: int
    ) -> None:
        until = min(int(batch["obs_time"][b]), options.visible_until[split])
        assert batch["is_target"][b].sum() == 1
        for s in range(int(batch["num_cells"][b])):
            number = int(batch["column_ids"][b, s])
            if batch["is_target"][b, s] or number >= database.table_column_count:
                continue
            row = int(batch["row_ids"][b, batch["seq_row_ids"][b, s]])
            made = database.table_of_row(row)
            local = row - database.row_starts[made.name]
            column = made.columns[number - database.column_starts[made.name]]
            assert column.known.kind != "never"
            if column.known.kind == "column" and until != NEVER:
                moment = made.values[column.known.column][local]
                assert moment is not None and moment + column.known.offset <= until
            assert (made.name, column.name) not in task.hidden or row != batch["anchor_rows"][b]

    for_every_context(seed, tmp_path, check)


@pytest.mark.parametrize("seed", range(3000, 3020))
def test_contexts_keep_their_limits_and_visit_no_row_twice(seed: int, tmp_path: Path) -> None:
    def check(
        database: Database, options: Options, batch: Arrays, b: int, task: Task, split: int
    ) -> None:
        rows = batch["row_ids"][b, : int(batch["num_rows"][b])]
        assert len(set(rows[rows != 2**32 - 1].tolist())) == (rows != 2**32 - 1).sum()
        depths = batch["row_depths"][b, : len(rows)]
        most = None if options.max_hops is None else options.max_hops + task.derived
        assert most is None or depths.max() <= most
        assert len(rows) <= options.max_rows
        assert batch["num_cells"][b] <= options.sequence_length

    for_every_context(seed, tmp_path, check)


def test_a_day_is_over_before_its_rows_are_seen(tmp_path: Path) -> None:
    """With day resolution a row of day 3 is visible from the midnight that ends it."""
    parents = table("parents", [Column("parent_id", IDENTIFIER)], [(True,)])
    days = table(
        "days",
        [Column("day_id", IDENTIFIER), Column("parent_id", IDENTIFIER), Column("on", TIMESTAMP)],
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
