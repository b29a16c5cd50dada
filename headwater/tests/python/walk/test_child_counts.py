"""Cells that count the visible children of each row: docs/reference/sampling.md, "Child counts".

Against the reference in random worlds: test_reference.py, test_compact.py and test_packing.py;
their random options have child_counts too.
"""

from __future__ import annotations

from dataclasses import replace
from math import log1p
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from clinic import clinic
from plain_database import BOOLEAN, NEVER, Database, Key, Options, Seed, Task
from tiny_store import write_tiny
from world_store import Arrays, differing, sampled
from worlds import at, bookstore, table, two_tables

TRAIN, VAL, TEST = 0, 1, 2
COUNTED = Options(sequence_length=64, max_rows=16, batch_size=1, recent=True, child_counts=True)


def first_batch(
    database: Database, folder: Path, options: Options = COUNTED, **more: Any
) -> Arrays:
    return sampled(database, folder, options, text_budget=41, **more)[0]


def counts_of(batch: Arrays, column: int, b: int = 0) -> list[list[float | None]]:
    """The three cells of each row that has them, for the key whose columns begin at `column`."""
    found = []
    for row in range(int(batch["num_rows"][b])):
        cells = (batch["seq_row_ids"][b] == row) & (batch["is_padding"][b] == 0)
        places = [np.flatnonzero(cells & (batch["column_ids"][b] == column + i)) for i in range(3)]
        if all(len(place) == 1 for place in places):
            found.append(
                [
                    None if batch["is_null"][b, s] else float(batch["numeric_values"][b, s])
                    for (s,) in places
                ]
            )
    return found


# ---- by hand -----------------------------------------------------------------------------------


def test_ann_asked_on_day_4_has_two_orders_of_days_1_and_3(tmp_path: Path) -> None:
    """Columns 0..8 are those of the store; 9, 10, 11 count orders by orders.customer_id."""
    batch = first_batch(two_tables(), tmp_path)
    row = [0, 1, 2, 9, 10, 11]  # ann: her own cells, then the counts; orders have no children
    assert batch["column_ids"][0, :16].tolist() == [7, 8, *row, 3, 4, 5, 6, 3, 4, 5, 6]
    assert batch["row_starts"][0, :5].tolist() == [0, 2, 8, 12, 16]
    assert batch["semantic_types"][0, 5:8].tolist() == [1, 1, 1]
    expected = [log1p(2) / 4, log1p(1) / 8, log1p(3) / 8]
    assert batch["numeric_values"][0, 5:8] == pytest.approx(expected, abs=1e-7)
    assert not batch["is_null"][0, 5:8].any()
    # By column, the counts last; by row (order 2, order 4, ann, seed) the counts with their row.
    by_column = [2, 3, 4, 8, 12, 9, 13, 10, 14, 11, 15, 0, 1, 5, 6, 7]
    assert batch["col_perm"][0, :16].tolist() == by_column
    by_row = [*range(12, 16), *range(8, 12), *range(2, 8), 0, 1]
    assert batch["out_perm"][0, :16].tolist() == by_row


def test_exclusive_seeds_do_not_count_what_is_simultaneous(tmp_path: Path) -> None:
    """Loan 7 of day 2 is asked about on day 2: reader 3 had one loan before it, of day 1; book 2
    had none; book 1 one, and one sequel, which has no time; author 0 has both books."""
    batch = first_batch(bookstore(), tmp_path)
    columns = 14  # keys: 0 books.author_id, 1 books.sequel_of, 2 loans.reader_id, 3 loans.book_id
    assert counts_of(batch, columns + 9) == [  # loans of book 2, which is visited first, and 1
        [0.0, None, None],
        pytest.approx([log1p(1) / 4, log1p(1) / 8, log1p(1) / 8]),
    ]
    assert counts_of(batch, columns + 6) == [pytest.approx([log1p(1) / 4] + [log1p(1) / 8] * 2)]
    assert counts_of(batch, columns) == [[pytest.approx(log1p(2) / 4), None, None]]
    assert counts_of(batch, columns + 3) == [
        [0.0, None, None],
        [pytest.approx(log1p(1) / 4), None, None],
    ]


def test_a_row_at_the_last_hop_counts_as_well(tmp_path: Path) -> None:
    batch = first_batch(two_tables(), tmp_path, COUNTED.with_(max_hops=0))
    assert batch["num_rows"][0] == 2
    assert counts_of(batch, 9)[0][0] == pytest.approx(log1p(2) / 4)


def test_the_row_that_reaches_the_end_is_cut_within_its_counts(tmp_path: Path) -> None:
    batch = first_batch(two_tables(), tmp_path, COUNTED.with_(sequence_length=7))
    assert batch["column_ids"][0].tolist() == [7, 8, 0, 1, 2, 9, 10]
    assert batch["col_perm"][0].tolist() == [2, 3, 4, 0, 1, 5, 6]


def confirmations(**task: Any) -> Database:
    """One shop, sales on days 1, 2 and 3; which shop it was is known on days 6, 2 and 4."""
    shops = table("shops", "shop_id identifier", [(True,)])
    sales = table(
        "sales",
        "sale_id identifier, shop_id identifier confirmed, sold timestamp, confirmed timestamp",
        [(True, True, at(day), at(known)) for day, known in ((1, 6), (2, 2), (3, 4))],
        (Key(("shop_id",), "shops", (0, 0, 0)),),
        "sold",
    )
    asked = {"seeds": (Seed(0, at(5), True, split=0),), **task}
    return Database("shops", (shops, sales), (Task("t", "shops", "t", BOOLEAN, **asked),))


def test_a_key_known_later_counts_by_when_it_is_known(tmp_path: Path) -> None:
    """On day 5 two sales are known to be the shop's, since days 2 and 4."""
    (counts,) = counts_of(first_batch(confirmations(), tmp_path), 7)
    assert counts == pytest.approx([log1p(2) / 4, log1p(1) / 8, log1p(3) / 8])


def test_a_question_without_a_time_has_counts_and_no_ages(tmp_path: Path) -> None:
    database = confirmations(seeds=(Seed(0, NEVER, True, split=0),))
    (counts,) = counts_of(first_batch(database, tmp_path), 7)
    assert counts == [pytest.approx(log1p(3) / 4), None, None]


# ---- what may not be seen ----------------------------------------------------------------------


def with_future_visits_of(database: Database, patients: tuple[int, int]) -> Database:
    """The visits of days 8 and 9 (rows 4 and 5 of visits) by these patients."""
    patients_table, visits = database.tables
    key = replace(visits.keys[0], parents=(0, 1, 0, 1, *patients))
    return replace(database, tables=(patients_table, replace(visits, keys=(key,))))


@pytest.mark.parametrize("layout", [{}, {"layout": 1}, {"packing": True}])
@pytest.mark.parametrize("staleness", [None, (0.2, 2.0)])
def test_children_of_the_future_change_no_count(
    layout: dict[str, Any], staleness: tuple[float, float] | None, tmp_path: Path
) -> None:
    options = COUNTED.with_(sequence_length=80, staleness=staleness)
    found = []
    for i, patients in enumerate([(0, 1), (1, 1), (0, 0)]):
        database = with_future_visits_of(clinic(), patients)
        found.append(first_batch(database, tmp_path / str(i), options, **layout))
    assert differing(found[0], found[1]) == differing(found[0], found[2]) == set()


def test_the_canary_sings_where_the_child_is_of_the_past(tmp_path: Path) -> None:
    visits = clinic().tables[1]
    key = replace(visits.keys[0], parents=(0, 1, 1, 1, 0, 1))
    moved = replace(clinic(), tables=(clinic().tables[0], replace(visits, keys=(key,))))
    options = COUNTED.with_(sequence_length=80)
    one = first_batch(clinic(), tmp_path / "a", options)
    two = first_batch(moved, tmp_path / "b", options)
    assert "numeric_values" in differing(one, two)
    # Patient 0 on day 5: visits of days 1 and 3, or of day 1 alone.
    column = 2 + 9 + 2
    assert counts_of(one, column)[0] == pytest.approx([log1p(2) / 4, log1p(2) / 8, log1p(4) / 8])
    assert counts_of(two, column)[0] == pytest.approx([log1p(1) / 4, log1p(4) / 8, log1p(4) / 8])


def test_children_of_a_withheld_key_count_as_none(tmp_path: Path) -> None:
    """Where a column of the key is hidden, whose children they are is the secret."""
    database = clinic()
    late = replace(database.tasks[0], hidden=(("visits", "patient_id"),))
    database = replace(database, tasks=(late,))
    batch = first_batch(database, tmp_path, COUNTED.with_(sequence_length=80))
    assert counts_of(batch, 2 + 9 + 2) == [[0.0, None, None]]


# ---- the option --------------------------------------------------------------------------------


def test_counts_have_columns_and_embeddings_of_their_own(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path) as plain, headwater.Sampler(path, child_counts=True) as sampler:
        before, columns = plain.column_embeddings(), sampler.column_embeddings()
        keys = sum(len(table["foreign_keys"]) for table in sampler.store.metadata["tables"])
        assert keys > 0
        assert columns.shape == (len(before) + 3 * keys, before.shape[1])
        assert columns.dtype == np.float16
        assert np.array_equal(columns[: len(before)], before)
        assert len(np.unique(columns[len(before) :], axis=0)) == 3 * keys
        batch = next(iter(sampler.epoch("train")))
        real = batch["column_ids"][batch["is_padding"] == 0]
        assert len(before) <= real.max() < len(columns)
        assert plain.batch("train", 0)["column_ids"].max() < len(before)
