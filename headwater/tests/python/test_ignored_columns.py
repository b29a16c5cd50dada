"""Columns that a sampler leaves out: docs/2-sampling.md, "Ignored columns".

Against the reference in random worlds: test_reference.py, test_compact.py, test_masked_cells.py and
others; their random options have ignored columns too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
import reference_masked
from databases import bookstore as bookstore_source
from databases import bookstore_metadata, write_sqlite
from headwater.build import build
from headwater.cli import main
from headwater.schema import Schema
from plain_database import IGNORED, TIMESTAMP, Database, Options
from tiny_store import write_tiny
from world_store import Arrays, ad_hoc, epoch_of, open_sampler, write_store
from worlds import bookstore, random_database, random_options, two_tables

TRAIN, VAL, TEST = 0, 1, 2
OPTIONS = Options(sequence_length=64, max_rows=16, batch_size=1, recent=True)
LOANS = tuple(("loans", name) for name in ("loan_id", "reader_id", "book_id", "lent", "back"))


def first_batch(
    database: Database, folder: Path, options: Options = OPTIONS, **more: Any
) -> Arrays:
    path = write_store(database, folder)
    with open_sampler(path, database, options, text_budget=41, **more) as sampler:
        return epoch_of(sampler, TRAIN, 0)[0]


def columns_by_row(batch: Arrays, b: int = 0) -> list[list[int]]:
    starts = batch["row_starts"][b, : batch["num_rows"][b] + 1]
    columns = batch["cell_columns" if "cell_columns" in batch else "column_ids"][b]
    return [columns[i:end].tolist() for i, end in pairwise(starts)]


def ignoring(*columns: tuple[str, str], **more: Any) -> Options:
    return OPTIONS.with_(ignored_columns=columns, **more)


# ---- by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [0, 1])
def test_the_cells_of_ignored_columns_are_left_out(layout: int, tmp_path: Path) -> None:
    """Ann, asked about on day 4, and her orders of days 3 and 1, without name and amount."""
    options = ignoring(("orders", "amount"), ("customers", "name"))
    batch = first_batch(two_tables(), tmp_path, options, layout=layout, adjacency=1)
    assert columns_by_row(batch) == [[7, 8], [0, 2], [3, 4, 5], [3, 4, 5]]
    assert batch["num_texts"][0] == 1  # text 0, which is no text


def test_an_ignored_key_and_an_ignored_time_take_only_their_cells(tmp_path: Path) -> None:
    plain = first_batch(two_tables(), tmp_path / "plain")
    columns = (("orders", "customer_id"), ("orders", "placed"), ("customers", "customer_id"))
    batch = first_batch(two_tables(), tmp_path / "ignored", ignoring(*columns))
    assert columns_by_row(batch) == [[7, 8], [1, 2], [3, 6], [3, 6]]
    for name in ("parents", "fk_adj", "row_ages", "row_tables", "row_depths", "row_ids"):
        assert np.array_equal(batch[name], plain[name]), name


def test_a_row_with_nothing_left_shows_its_first_identifier_that_is_not_ignored(
    tmp_path: Path,
) -> None:
    rest = (("orders", "placed"), ("orders", "amount"))
    for number, (columns, expected) in enumerate(
        (
            (rest, [3]),
            ((*rest, ("orders", "order_id")), [4]),
            ((*rest, ("orders", "order_id"), ("orders", "customer_id")), []),
        )
    ):
        options = ignoring(*columns, identifier_cells="none")
        batch = first_batch(two_tables(), tmp_path / str(number), options)
        assert columns_by_row(batch) == [[7, 8], [1, 2], expected, expected]
        assert batch["row_ids"][0, :4].tolist() == [2**32 - 1, 0, 4, 2]
        assert batch["num_cells"][0] == 4 + 2 * len(expected)


def test_an_ignored_target_is_asked_in_its_place_and_shown_on_no_other_row(tmp_path: Path) -> None:
    """Loan 7 of day 2, of reader 3, whose loan 5 of day 1 is train's and would show its rating."""
    seeds = bookstore().tasks[0].seeds
    known = replace(seeds[0], anchor=0, obs_time=bookstore().table("loans").values["lent"][0])
    database = bookstore(seeds=(known, *seeds))

    def loans(folder: str, options: Options) -> list[list[int]]:
        path = write_store(database, tmp_path / folder)
        with open_sampler(path, database, options, text_budget=41) as sampler:
            batch = next(b for b in epoch_of(sampler, TRAIN, 0) if b["anchor_rows"][0] == 7)
        target = np.flatnonzero(batch["is_target"][0]).tolist()
        rows = columns_by_row(batch)
        assert batch["column_ids"][0, target].tolist() == [12]
        assert batch["seq_row_ids"][0, target].tolist() == [0]
        return [row for row in rows if row and min(row) >= 8 and max(row) <= 13]

    assert loans("plain", OPTIONS) == [[8, 9, 10, 11, 12], [8, 9, 10, 11, 12]]
    assert loans("rating", ignoring(("loans", "rating"))) == [[8, 9, 10, 11, 12], [8, 9, 10, 11]]
    assert loans("all", ignoring(*LOANS, ("loans", "rating"))) == [[12]]
    last = ignoring(("loans", "rating"), ("loans", "loan_id"), ("loans", "lent"))
    assert loans("between", last) == [[9, 10, 12], [9, 10]]


def test_an_ignored_target_stands_between_its_neighbours(tmp_path: Path) -> None:
    """Asked about without a time, loan 5 shows when it came back, which stands behind its rating;
    where the context ends before the rating, it takes the last cell."""
    path = write_store(bookstore(), tmp_path)
    for length, expected in ((64, [8, 9, 10, 11, 12, 13]), (3, [8, 9, 12])):
        options = ignoring(("loans", "rating"), sequence_length=length)
        with open_sampler(path, bookstore(), options, text_budget=41) as sampler:
            batch = ad_hoc(sampler, 0, [5], [2**63 - 1])[0]
        assert columns_by_row(batch)[0] == expected
        place = expected.index(12)
        assert np.flatnonzero(batch["is_target"][0]).tolist() == [place]
        if length == 64:
            assert batch["semantic_types"][0, 5] == TIMESTAMP
            assert batch["timestamp_values"][0, 5].any() and not batch["is_null"][0, 5]


def test_child_counts_count_what_is_ignored(tmp_path: Path) -> None:
    options = OPTIONS.with_(child_counts=True)
    plain = first_batch(two_tables(), tmp_path / "plain", options)
    columns = (("orders", "customer_id"), ("orders", "placed"))
    batch = first_batch(two_tables(), tmp_path / "ignored", options.with_(ignored_columns=columns))
    assert columns_by_row(batch)[1] == columns_by_row(plain)[1] == [0, 1, 2, 9, 10, 11]
    assert np.array_equal(batch["numeric_values"][0, 5:8], plain["numeric_values"][0, 5:8])


def test_a_context_goes_on_where_its_length_had_ended_it(tmp_path: Path) -> None:
    short = OPTIONS.with_(sequence_length=9)
    plain = first_batch(two_tables(), tmp_path / "plain", short)
    assert columns_by_row(plain) == [[7, 8], [0, 1, 2], [3, 4, 5, 6]]
    options = ignoring(("orders", "order_id"), ("orders", "placed"), sequence_length=9)
    batch = first_batch(two_tables(), tmp_path / "ignored", options)
    assert columns_by_row(batch) == [[7, 8], [0, 1, 2], [4, 6], [4, 6]]


@pytest.mark.parametrize("objective", [False, True])
def test_ignored_columns_are_not_masked(objective: bool, tmp_path: Path) -> None:
    options = ignoring(
        ("orders", "amount"), mask_ratio=1.0, max_targets=9, masked_objective=objective
    )
    batch = first_batch(two_tables(), tmp_path, options)
    lists = [batch[f"masked_{name}_indices"][0] for name in reference_masked.TYPES]
    masked = np.concatenate([places[places >= 0] for places in lists])
    assert set(batch["column_ids"][0, masked].tolist()) == {1, 2}
    assert 6 not in batch["column_ids"][0]
    assert batch["masked_numerical_indices"].max() == -1


# ---- the same as by the metadata ---------------------------------------------------------------


def ignored_by_stype(database: Database, columns: tuple[tuple[str, str], ...]) -> Database:
    """The same database where these columns have the type `ignored`; those hold integers."""
    tables = []
    for table in database.tables:
        values, made = dict(table.values), []
        for column in table.columns:
            if (table.name, column.name) not in columns:
                made.append(column)
                continue
            made.append(replace(column, stype=IGNORED, categories=()))
            if column.stype not in (TIMESTAMP, IGNORED):
                values[column.name] = [None if v is None else 0 for v in values[column.name]]
        tables.append(replace(table, columns=tuple(made), values=values))
    return replace(database, tables=tuple(tables))


# What is numbered, or scaled, by the columns that the store shows.
BY_STORE = {"categorical_embed_ids", "text_batch_embeddings", "timestamp_values", "cat_emb_start"}
BY_STORE |= {"masked_categorical_values", "masked_timestamp_values"}


@pytest.mark.parametrize("seed", range(40))
def test_the_option_gives_the_contexts_of_the_type(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    targets = {(task.anchor_table, task.target) for task in database.tasks if not task.derived}
    options = random_options(seed, database)
    columns = tuple(
        (table.name, column.name)
        for table in database.tables
        for i, column in enumerate(table.columns)
        if (seed + i) % 3 != 0 and (table.name, column.name) not in targets
    )
    options = options.with_(ignored_columns=columns)
    if seed % 2:
        options = options.with_(mask_ratio=0.4, max_targets=2)
    other = ignored_by_stype(database, columns)
    path, same = write_store(database, tmp_path / "a"), write_store(other, tmp_path / "b")
    compared = 0
    with (
        open_sampler(path, database, options) as sampler,
        open_sampler(same, other, options.with_(ignored_columns=())) as typed,
    ):
        for task in range(len(database.tasks)):
            for split in (TRAIN, VAL, TEST):
                if sampler.seed_count(split, task) == 0:
                    continue
                found, expected = epoch_of(sampler, split, task), epoch_of(typed, split, task)
                assert len(found) == len(expected)
                for one, two in zip(found, expected, strict=True):
                    compared += int(one["num_rows"].sum())
                    for name in one.keys() - BY_STORE:
                        assert np.array_equal(one[name], two[name]), name
    assert compared > 0


def test_a_built_store_gives_the_same_cells(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "bookstore.db", bookstore_source())
    metadata = bookstore_metadata()
    metadata["tasks"] = {
        "sold": {
            "query": "SELECT book_id, TIMESTAMP '2020-04-15' AS seen, 1.5 AS sold FROM books",
            "anchor_table": "books",
            "target_column": "sold",
            "target_stype": "numerical",
            "observation_time_column": "seen",
        }
    }
    source = f"sqlite:///{tmp_path}/bookstore.db"
    build(source, tmp_path / "a", Schema.from_dict(metadata))
    columns = metadata["tables"]["books"]["columns"]
    taken = [n for n, c in columns.items() if c["stype"] in ("text", "categorical", "numerical")]
    assert taken
    for name in taken:
        columns[name] = {"stype": "ignored"}
    build(source, tmp_path / "b", Schema.from_dict(metadata))

    def cells(folder: str, **options: Any) -> list[list[tuple[Any, ...]]]:
        found = []
        with headwater.Sampler(tmp_path / folder, adjacency="parents", **options) as sampler:
            names = [c["name"] for c in sampler.database_metadata()["columns"]]
            for batch in sampler.epoch("train"):
                for b in range(int(batch["num_sequences"][0])):
                    count = int(batch["num_cells"][b])
                    found.append(
                        [
                            (
                                names[batch["column_ids"][b, s]],
                                *(
                                    batch[name][b, s].tobytes()
                                    for name in ("numeric_values", "is_null", "seq_row_ids")
                                ),
                            )
                            for s in range(count)
                        ]
                    )
        return found

    ignored = cells("a", ignored_columns=[f"books.{name}" for name in taken])
    assert ignored == cells("b")
    assert sum(map(len, ignored)) < sum(map(len, cells("a")))


# ---- the option --------------------------------------------------------------------------------


def test_an_empty_list_changes_no_bit_and_leaves_no_trace(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path) as plain, headwater.Sampler(path, ignored_columns=[]) as empty:
        assert plain.state_dict() == empty.state_dict()
        assert "ignored_columns" not in empty.state_dict()["options"]
        assert plain.shape == empty.shape
        one, two = plain.batch("train", 3), empty.batch("train", 3)
        for name in one:
            assert one[name].tobytes() == two[name].tobytes(), name


def test_a_state_with_other_ignored_columns_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    columns = ["orders.status", "customers.name"]
    with (
        headwater.Sampler(path) as plain,
        headwater.Sampler(path, ignored_columns=columns) as ignored,
        headwater.Sampler(path, ignored_columns=tuple(reversed(columns))) as same,
    ):
        state = json.loads(json.dumps(ignored.state_dict()))
        assert state["options"]["ignored_columns"] == sorted(columns)
        same.load_state_dict(state)
        with pytest.raises(ValueError, match="ignored_columns was None and is "):
            ignored.load_state_dict(plain.state_dict())
        with pytest.raises(ValueError, match=r"ignored_columns was \['customers.name', 'orders.st"):
            plain.load_state_dict(state)


def test_embeddings_of_ignored_columns_stay(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path, ignored_columns=["orders.status"]) as sampler:
        assert sampler.column_embeddings().shape[0] == 10
        batch = sampler.batch("train", 0)
        shown = batch["column_ids"][batch["is_padding"] == 0]
        assert 6 not in shown and 7 in shown


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["orders.statis"], "table 'orders' has no column 'statis', did you mean 'status'?"),
        (["customers.xyz"], "table 'customers' has no column 'xyz', it has id, name, vip"),
        (["order.status"], "the store has no column 'order.status', did you mean 'orders.status'?"),
        (["xyz.abc"], "the store has no column 'xyz.abc'"),
        (["status"], "'status' is not 'table.column'; there is 'orders.status'"),
        (["xyz"], "'xyz' is not 'table.column'"),
        ([5], "5 is not 'table.column'"),
        (["orders.at", "orders.id", "orders.at"], "ignored_columns names 'orders.at' twice"),
    ],
)
def test_names_that_are_no_columns_are_refused(
    columns: list[Any], message: str, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(ValueError) as caught:
        headwater.Sampler(path, ignored_columns=columns)
    expected = message if "twice" in message else f"ignored_columns: {message}"
    assert str(caught.value) == expected


def test_one_name_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(TypeError, match=r"ignored_columns is 'orders\.at', expected a list"):
        headwater.Sampler(path, ignored_columns="orders.at")


def test_commands_take_names_with_commas_or_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_tiny(tmp_path))
    command = ["sample", path, "--task", "churn", "--json"]

    def shown(*options: str) -> set[str]:
        assert main([*command, *options]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        return {name for row in rows for name in row["cells"]}

    assert {"name", "status", "at"} < shown()
    for value in ("customers.name, orders.status", '["customers.name", "orders.status"]'):
        rest = shown("--sampler-option", f"ignored_columns={value}")
        assert "at" in rest and not rest & {"name", "status"}
    for value in ("customers.name", '"customers.name"'):
        assert "name" not in shown("--sampler-option", f"ignored_columns={value}")
    for value in ("customers.nam", "12", "null"):
        assert main([*command, "--sampler-option", f"ignored_columns={value}"]) == 1
        assert "headwater: ignored_columns: " in capsys.readouterr().err
