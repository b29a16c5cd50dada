"""Tasks to seeds: queries, label tables, what is dropped and why, kinds, splits, stats_until."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from databases import (
    TinyTable,
    arrow_tables,
    asked,
    bookstore,
    bookstore_metadata,
    sql_types,
    typed,
    write_csv,
)
from headwater.audit import audit
from headwater.builder.build import build, dry_run
from headwater.builder.build_report import BuildReport
from headwater.builder.label_tables import name_files
from headwater.cli.main import main
from headwater.errors import SchemaError, TaskError
from headwater.metadata.schema import Schema
from headwater.sampling.loader import Loader
from headwater.sampling.sampler import Sampler
from headwater.store.dropped_seeds import why_empty
from headwater.store.inspection import describe, open_metadata
from headwater.store.store import Store

FOREVER_US = 2**63 - 1

QUERY = """
    SELECT book_id, TIMESTAMP '2020-04-15' AS at, count(s.number) AS sold
    FROM books b LEFT JOIN sales s USING (book_id) GROUP BY book_id ORDER BY book_id
"""
SOLD = asked(QUERY, "books", "sold numerical", "at")
UNASKED = {key: value for key, value in SOLD.items() if key != "query"}


def build_task(
    tmp_path: Path, task: dict[str, Any], **options: Any
) -> tuple[BuildReport, dict[str, Any]]:
    """Build the bookstore with one task `t`; the task's entry in metadata.json."""
    metadata = bookstore_metadata(t=task)
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata, **options)
    assert Store(tmp_path / "s").verify() == []
    return report, report.metadata["tasks"][0]


def seeds_of(tmp_path: Path) -> list[tuple[Any, ...]]:
    """Per seed of task 0: key of its anchor, obs_time, target, label state, split, position."""
    store = Store(tmp_path / "s")
    seeds = store.core.seeds(0)
    names = ("anchors", "obs_times", "targets", "states", "positions")
    columns = [np.asarray(seeds[name]) for name in names]
    stype = store.metadata["tasks"][0]["target_stype"]
    found = []
    for anchor, obs, target, state, position in zip(*columns, strict=True):
        value = target.view(np.float64) if stype == "numerical" else int(target)
        key = next(iter(store.row(int(anchor))["key"].values()))
        found.append((key, int(obs), float(value), state & 15, state >> 4, int(position)))
    return found


def us(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def test_seeds_of_a_query_are_sorted_by_anchor(tmp_path: Path) -> None:
    _, task = build_task(tmp_path, SOLD)
    assert task["kind"] == "derived"
    assert task["cutoff"] == "inclusive"
    assert task["dropped"] == {"the anchor has no time": 1}  # book 13
    at = us(2020, 4, 15)
    # Book 11 is the first row of its table; positions are those of the query's result.
    assert seeds_of(tmp_path) == [
        (11, at, 0.0, 0, 15, 1),
        (10, at, 2.0, 0, 15, 0),
        (12, at, 1.0, 0, 15, 2),
    ]
    assert sum(task["seeds"][split] for split in ("train", "val", "test")) == 3


def test_what_is_no_seed_is_dropped_and_counted_by_reason(tmp_path: Path) -> None:
    query = """
        SELECT * FROM (VALUES
            (10, TIMESTAMP '2021-01-01', 1.0), (10, NULL, 1.0), (99, TIMESTAMP '2021-01-01', 1.0),
            (NULL, TIMESTAMP '2021-01-01', 1.0), (12, TIMESTAMP '2020-03-01', 1.0),
            (11, TIMESTAMP '2021-01-01', NULL), (11, TIMESTAMP '2021-02-01', 'nan'::DOUBLE),
            (13, TIMESTAMP '2021-01-01', 1.0)
        ) AS v(book_id, "at", sold)
    """
    _, task = build_task(tmp_path, {**SOLD, "query": query})
    assert task["dropped"] == {
        "anchor key is NULL": 1,
        "the anchor's day is not over at obs_time": 1,  # the day of book 12 ends at 2020-03-02
        "no anchor row": 1,
        "obs_time is NULL": 1,
        "the anchor has no time": 1,
    }
    assert [seed[0] for seed in seeds_of(tmp_path)] == [11, 11, 10]
    assert task["null_targets"] == 2
    assert task["bad_targets"] == 1
    strict = {**SOLD, "query": query, "require_label": True, "allow_future_anchor": True}
    _, task = build_task(tmp_path, strict)
    assert task["dropped"]["no label"] == 2
    assert [seed[0] for seed in seeds_of(tmp_path)] == [10, 12, 13]


BESIDE_13 = "SELECT book_id, {} AS at, 1 AS sold FROM books WHERE book_id IN (11, 13)"


@pytest.mark.parametrize(
    ("at", "table", "task", "kept"),
    [
        ("TIMESTAMP '2020-04-15'", {}, {}, [11]),
        ("TIMESTAMP '2020-04-15'", {"null_time": "visible"}, {}, [13, 11]),
        ("TIMESTAMP '2020-04-15'", {}, {"allow_future_anchor": True}, [11, 13]),
        # Everything is visible to these, and so is a row that comes to be never.
        (None, {}, {"observation_time_column": None, "sees_everything": True}, [11, 13]),
    ],
)
def test_an_anchor_without_a_time_is_one_thing_in_build_walk_and_questions(
    at: str | None, table: dict[str, Any], task: dict[str, Any], kept: list[int], tmp_path: Path
) -> None:
    """Its time is INT64_MAX, or INT64_MIN with null_time "visible": the rule of the walk. A build
    kept it as a seed at any time, as a comparison with NULL is never true."""
    question = {**SOLD, "query": BESIDE_13.format(at or "NULL"), **task}
    metadata = bookstore_metadata(t=question)
    metadata["tables"]["books"] |= table
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    (entry,) = report.metadata["tasks"]
    assert [seed[0] for seed in seeds_of(tmp_path)] == kept
    assert entry["dropped"] == ({} if 13 in kept else {"the anchor has no time": 1})
    if 13 not in kept:
        told = "1 is about a row of books without a time (books.appeared is NULL), which comes"
        assert told in str(why_empty({**report.metadata, "tasks": [{**entry, "rows": 1}]}, "t"))
    with Sampler(tmp_path / "s", num_prefetch=0) as sampler:
        obs_time = "2020-04-15" if at else FOREVER_US
        if 13 in kept:
            (batch,) = sampler.batches_for("t", [13], obs_time)
            assert batch["num_sequences"][0] == 1
        else:
            with pytest.raises(TaskError, match=r"1 of 1 questions is .*: 13 at 2020-04-15, but"):
                sampler.batches_for("t", [13], obs_time)


def test_questions_that_are_asked_twice_are_told(tmp_path: Path) -> None:
    query = """
        SELECT * FROM (VALUES
            (10, TIMESTAMP '2021-01-01', 1.0), (10, TIMESTAMP '2021-01-01', 1.0),
            (11, TIMESTAMP '2021-01-01', 1.0), (11, TIMESTAMP '2021-01-01', 2.0),
            (11, TIMESTAMP '2022-01-01', 2.0), (13, TIMESTAMP '2021-01-01', 1.0)
        ) AS v(book_id, "at", sold)
    """
    report, task = build_task(tmp_path, {**SOLD, "query": query})
    assert task["repeated"] == {"questions": 2, "disagreeing": 1}
    (note,) = [line for line in report.notes() if "asked more than once" in line]
    assert note == (
        "2 questions of task t are asked more than once: rows of one anchor and time, 1 with"
        " several answers"
    )


def test_one_anchor_has_seeds_at_many_times(tmp_path: Path) -> None:
    query = """
        SELECT 10 AS book_id, "at", v AS sold FROM (VALUES
            (DATE '2022-01-01', 5.0), (DATE '2021-01-01', 7.0), (DATE '2021-01-01', 6.0)
        ) AS x("at", v)
    """
    build_task(tmp_path, {**SOLD, "query": query})
    early, late = us(2021, 1, 1), us(2022, 1, 1)
    assert [seed[1:3] for seed in seeds_of(tmp_path)] == [(early, 6.0), (early, 7.0), (late, 5.0)]


def test_every_spelling_names_the_table(tmp_path: Path) -> None:
    for name in ("'books.parquet'", "'books.csv'", '"books"', "books", "BOOKS"):
        query = f"SELECT books.book_id, DATE '2021-01-01' AS at, 1.0 AS sold FROM {name}"
        if "'" in name:
            query += " -- 'books.parquet' in a comment stays"
        build_task(tmp_path, {**SOLD, "query": query + ";"})
        assert len(seeds_of(tmp_path)) == 3  # book 13 has no time
    comma = "FROM 'sales.parquet' AS s, 'books.parquet' AS b WHERE s.book_id = b.book_id"
    query = f"SELECT DISTINCT b.book_id, DATE '2021-01-01' AS at, 1.0 AS sold {comma}"
    build_task(tmp_path, {**SOLD, "query": query})
    assert len(seeds_of(tmp_path)) == 2


def test_only_literals_after_from_and_join_are_rewritten() -> None:
    query = "SELECT 'a.csv' AS x /* from 'a.csv' */ FROM 'a.csv' JOIN -- x\n 'b.parquet' USING (k)"
    rewritten = name_files(query, ["a", "b"])
    assert rewritten == (
        "SELECT 'a.csv' AS x /* from 'a.csv' */ FROM \"a\" JOIN -- x\n \"b\" USING (k)"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM '/etc/passwd'", "failed"),
        ("SELECT 1; DROP TABLE books", "must be one SELECT statement"),
        ("DELETE FROM books", "must be one SELECT statement"),
        ("COPY books TO '/tmp/x.csv'", "must be one SELECT statement"),
        ("SELEC 1", "is not SQL"),
        ("SELECT x FROM books", 'column "x" not found'),
        ("SELECT 1 AS a", r"has no column 'book_id' \(anchor_key\)"),
        ("SELECT 1 AS book_id, 2 AS solt, DATE '2021-01-01' AS at", "did you mean 'solt'"),
        ("SELECT 1 AS book_id, 2 AS sold, 3 AS at", "'at' of task 't' is INTEGER, expected times"),
        ("SELECT book_id, now() AS at, 1 AS sold FROM books", "uses 'now', whose result differs"),
        ("SELECT book_id, Random () AS sold FROM books", "uses 'random'"),
        ("SELECT book_id, current_date AS at FROM books", "uses 'current_date'"),
        ("SELECT * FROM books USING SAMPLE 2", "uses 'sample'"),
    ],
)
def test_a_bad_query_is_an_error_that_names_the_task(
    tmp_path: Path, query: str, message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        build_task(tmp_path, {**SOLD, "query": query})
    assert "task 't'" in str(caught.value)
    assert not (tmp_path / "s").exists()


ENDLESS = """
    WITH RECURSIVE more AS (SELECT 0 AS i UNION ALL SELECT (i + 1) % 7 FROM more)
    SELECT book_id, DATE '2021-01-01' AS at, 1.0 AS sold FROM books WHERE book_id IN (
        SELECT count(*) FROM more)"""


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    """It ran on, silently. The query before it, which ends, has its own time."""
    lines: list[str] = []
    document = bookstore_metadata(sold=SOLD, endless={**SOLD, "query": ENDLESS})
    with pytest.raises(TaskError, match=r"'endless' did not end within 0\.5 s.*--query-timeout"):
        build(
            arrow_tables(bookstore()), tmp_path / "store", document, cache=False,
            query_timeout=0.5, progress=lambda stage, item: lines.append(item),
        )  # fmt: skip
    assert [line for line in lines if line.startswith("query")] == [
        "query of sold, at most 0.5 s", "query of endless, at most 0.5 s",
    ]  # fmt: skip


@pytest.mark.parametrize("given", [-1, math.nan, math.inf, "10", True])
def test_a_query_timeout_is_a_number_of_seconds(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ValueError, match=r"query_timeout is .*, expected seconds; 0: no limit"):
        build(arrow_tables(bookstore()), tmp_path, bookstore_metadata(), query_timeout=given)


def test_a_query_sees_converted_values_ignored_columns_and_tables_outside_the_graph(
    tmp_path: Path,
) -> None:
    metadata = bookstore_metadata()
    metadata["tables"]["authors"]["graph"] = False
    metadata["tables"]["books"]["columns"]["genre"] = {"stype": "ignored"}
    query = """
        SELECT book_id, appeared + INTERVAL 1 YEAR AS at, (in_print AND genre = 'novel') AS good
        FROM books JOIN authors USING (author_id) WHERE typeof(price) = 'DOUBLE'
    """
    metadata["tasks"] = {
        "t": {**SOLD, "query": query, "target_column": "good", "target_stype": "boolean"}
    }
    source = write_csv(tmp_path / "csv", bookstore())
    build(source, tmp_path / "s", metadata)
    assert [seed[:4] for seed in seeds_of(tmp_path)] == [
        (11, us(2020, 5, 2), 0.0, 0),
        (10, us(2021, 3, 1), 1.0, 0),
        (12, us(2021, 3, 1), 0.0, 1),  # true AND NULL
    ]


def test_a_cell_task_takes_the_time_of_its_row_and_is_exclusive(tmp_path: Path) -> None:
    query = "SELECT shop, number, copies FROM sales WHERE number < 3"
    task = asked(query, "sales", "copies numerical", hidden_columns=["sales.note"])
    _, entry = build_task(tmp_path, task)
    assert entry["kind"] == "cell"
    assert entry["cutoff"] == "exclusive"
    assert entry["obs_time_column_id"] is None
    assert entry["hidden_columns"] == ["sales.note"]
    first = us(2020, 4, 1) + 9 * 3_600_000_000 + 1_800_000_000
    times = [seed[1] for seed in seeds_of(tmp_path)]
    assert times == [us(2020, 3, 15), first, first, us(2020, 5, 1) + 500_000]


def test_a_name_that_matches_with_another_type_is_derived_and_withheld(tmp_path: Path) -> None:
    query = "SELECT book_id, price > 10 AS price, TIMESTAMP '2021-01-01' AS at FROM books"
    task = {**SOLD, "query": query, "target_column": "price", "target_stype": "boolean"}
    _, entry = build_task(tmp_path, task)
    assert entry["kind"] == "derived"
    assert entry["hidden_columns"] == ["books.price"]


UNLIKE = "answers are not what books.{} holds, whose cells they are taken for by their name"


@pytest.mark.parametrize(
    ("column", "stype", "answer", "told"),
    [
        ("in_print", "boolean", "NOT in_print", "2"),
        ("price", "numerical", "price + (book_id > 11)::INT", "1"),
        ("price", "numerical", "price", None),
    ],
)
def test_answers_that_are_no_cells_of_their_name_are_said(
    column: str, stype: str, answer: str, told: str | None, tmp_path: Path
) -> None:
    """Such a task has no row of its own in contexts, and sees less: nobody asked for that."""
    query = f"SELECT book_id, {answer} AS {column}, TIMESTAMP '2021-04-15' AS at FROM books"
    task = {**SOLD, "query": query, "target_column": column, "target_stype": stype}
    report, entry = build_task(tmp_path / "a", task)
    assert entry["kind"] == "cell"
    notes = "\n".join(report.notes())
    expected = UNLIKE.format(column)
    assert f"task t: {told} {expected}" in notes if told else expected not in notes
    report, _ = build_task(tmp_path / "b", {**task, "kind": "cell"})
    assert expected not in "\n".join(report.notes())


def test_a_foreign_key_is_predicted_without_labels_of_others(tmp_path: Path) -> None:
    """How many books still point at each author would tell whose a book is."""
    query = "SELECT book_id, author_id FROM books WHERE book_id < 13"
    task = asked(query, "books", "author_id categorical")
    metadata = bookstore_metadata(t=task)
    author = metadata["tables"]["books"]["columns"]["author_id"]
    author["stype"] = "categorical"
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    (entry,) = report.metadata["tasks"]
    assert (entry["kind"], entry["context_labels"]) == ("cell", "none")
    assert not audit(tmp_path / "s").leaks
    # The author's name says the same.
    metadata["tables"]["books"]["columns"]["by"] = {
        "stype": "text", "taken_from": "authors.name"
    }  # fmt: skip
    report = build(arrow_tables(bookstore()), tmp_path / "taken", metadata)
    assert report.metadata["tasks"][0]["hidden_columns"] == ["books.by"]
    del metadata["tables"]["books"]["columns"]["by"]
    for rule in ("train", "all"):
        metadata["tasks"]["t"] = {**task, "context_labels": rule}
        says = (
            f"predicts 'books.author_id', a foreign key to 'authors', .*'context_labels': '{rule}'"
        )
        with pytest.raises(TaskError, match=says):
            build(arrow_tables(bookstore()), tmp_path / rule, metadata)
    # Without walked edges nothing is told: authors are not walked.
    metadata["tables"]["authors"]["graph"] = False
    report = build(arrow_tables(bookstore()), tmp_path / "none", metadata)
    assert report.metadata["tasks"][0]["context_labels"] == "all"


def test_a_derived_task_in_a_database_with_times_names_its_own(tmp_path: Path) -> None:
    task = {key: value for key, value in SOLD.items() if key != "observation_time_column"}
    says = r"needs an 'observation_time_column'.*table 'books'.*state \"sees_everything\": true"
    with pytest.raises(TaskError, match=says):
        build_task(tmp_path, task)


def test_a_task_that_consents_sees_everything_and_no_other_task_does(tmp_path: Path) -> None:
    """Book 10 (row 5) of author 0 was sold on 15 March (row 8) and on 1 April (row 10)."""
    query = "SELECT 10 AS book_id, 1 AS sold, 'train' AS part, TIMESTAMP '2020-03-20' AS at"
    task = {**SOLD, "query": query, "split_column": "part"}
    consents = {**task, "observation_time_column": None, "sees_everything": True}
    metadata = bookstore_metadata()
    metadata["tasks"] = {"everything": consents, "then": task}
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    assert [seed[1] for seed in seeds_of(tmp_path)] == [FOREVER_US]
    shown = {}
    for name in metadata["tasks"]:
        with Sampler(
            tmp_path / "s", tasks=[name], child_order="recent", max_hops=1, with_rows=True,
            default_batch_size=1, default_sequence_length=64, max_rows=16,
        ) as sampler, sampler.epoch("train") as batches:  # fmt: skip
            batch = next(iter(batches))
            count = int(batch["num_rows"][0])
            rows = batch.info["row_ids"][0, :count].tolist()
            shown[name] = (rows[1:], batch["row_ages"][0, :count].max() >= 0)
    assert shown == {"everything": ([5, 0, 10, 8], False), "then": ([5, 0, 8], True)}
    said = (
        "1 seeds of task everything have no time: they see all rows, those of the future too"
        ' ("sees_everything")'
    )
    assert [note for note in report.notes() if "have no time:" in note] == [said]
    assert f"  {said}" in describe(*open_metadata(tmp_path / "s"), None).splitlines()
    found = audit(tmp_path / "s")
    assert found.is_clean
    assert [(f.task, f.count) for f in found.to_check if f.check == "no time"] == [
        ("everything", 1)
    ]
    assert 'as its "sees_everything" states' in str(found)


def test_a_cell_task_that_consents_leaves_the_time_of_its_row(tmp_path: Path) -> None:
    task = {
        "query": "SELECT shop, number, copies FROM sales WHERE number = 1",
        "anchor_table": "sales", "target_column": "copies", "target_stype": "numerical",
        "sees_everything": True,
    }  # fmt: skip
    build_task(tmp_path, task)
    assert {seed[1] for seed in seeds_of(tmp_path)} == {FOREVER_US}


def test_without_any_times_every_seed_sees_everything(tmp_path: Path) -> None:
    metadata = bookstore_metadata()
    for table in metadata["tables"].values():
        table.pop("temporal_column", None)
        table.pop("time_resolution", None)
    task = {key: value for key, value in SOLD.items() if key != "observation_time_column"}
    metadata["tasks"] = {"t": task}
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    assert {seed[1] for seed in seeds_of(tmp_path)} == {FOREVER_US}
    assert report.metadata["tasks"][0]["obs_time_range"] is None


def test_the_time_of_a_row_is_a_target_only_with_another_time(tmp_path: Path) -> None:
    query = "SELECT shop, number, sold_at, TIMESTAMP '2021-01-01' AS at FROM sales"
    task = asked(query, "sales", "sold_at timestamp")
    with pytest.raises(TaskError, match="predicts the time of its own rows"):
        build_task(tmp_path, task)
    report, _ = build_task(tmp_path, {**task, "observation_time_column": "at"})
    assert seeds_of(tmp_path)[0][2] == us(2020, 3, 15)
    # They were "quantiles 1.58423e+15, ...".
    assert "quantiles 2020-03-15, " in str(report)


def test_a_split_column_has_three_words(tmp_path: Path) -> None:
    query = """
        SELECT book_id, TIMESTAMP '2021-01-01' + to_days(i::INTEGER) AS at, i AS sold,
            CASE i WHEN 0 THEN 'train' WHEN 1 THEN 'val' ELSE {last} END AS part
        FROM (SELECT unnest([10, 11, 12]) AS book_id, unnest([0, 1, 2]) AS i)
    """
    task = {**SOLD, "split_column": "part"}
    _, entry = build_task(tmp_path, {**task, "query": query.format(last="'test'")})
    assert entry["seeds"] == {"train": 1, "val": 1, "test": 1, "unlabelled": 0}
    assert entry["split"] == "given"
    assert {seed[0]: seed[4] for seed in seeds_of(tmp_path)} == {10: 0, 11: 1, 12: 2}
    for last, found in (("'validation'", "'validation'"), ("NULL", "NULL")):
        with pytest.raises(TaskError, match=f"'part' of task 't' is {found} in 1 rows"):
            build_task(tmp_path, {**task, "query": query.format(last=last)})


def test_categorical_targets_have_the_labels_in_value_order(tmp_path: Path) -> None:
    query = "SELECT book_id, DATE '2021-01-01' AS at, {} AS kind FROM books ORDER BY book_id"
    task = {**SOLD, "target_column": "kind", "target_stype": "categorical"}
    numbers = query.format("list_extract([10, 9, 100, NULL], book_id - 9)")
    report, _ = build_task(tmp_path, {**task, "query": numbers})
    stats = report.metadata["columns"][-1]["stats"]
    assert stats == {"categories": ["9", "10", "100"], "cat_emb_start": 2}
    assert seeds_of(tmp_path)[0][:4:2] == (11, 0.0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # Books 10 and 12 appeared in 2020, and there is no book 99.
        (
            "(12, DATE '1900-01-01', 'a'), (10, DATE '1900-01-01', 'b'), (99, '1900-01-01', 'a')",
            "task 't' has no seeds: all 3 rows of the task are dropped: 2 are asked before the row "
            'of books came to be (books.appeared): ask later, or correct "temporal_column" of '
            'books; "allow_future_anchor": true in the task keeps them; 1 has a key that names no '
            "row of books, such as '99' (looked for in books.book_id): select keys of that column, "
            'or name the columns that hold them with "anchor_key"',
        ),
        (
            "(12, DATE '2021-01-01', NULL), (11, DATE '2021-01-01', NULL::VARCHAR)",
            "task 't' has no category to predict: 'kind' is NULL in all of its 2 seeds; correct "
            "its query or label tables",
        ),
    ],
)
def test_a_task_without_a_category_says_why(tmp_path: Path, rows: str, message: str) -> None:
    """It was "task 't' has 0 categories, expected 1 to 4096"."""
    query = f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", kind)'
    task = {**SOLD, "target_column": "kind", "target_stype": "categorical"}
    with pytest.raises(TaskError, match=re.escape(message)):
        build_task(tmp_path, {**task, "query": query})
    empty = f"SELECT * FROM ({query}) WHERE false"
    with pytest.raises(TaskError, match="task 't' has no seeds: its query or label tables have no"):
        build_task(tmp_path, {**task, "query": empty})


# Book 12 appeared on 1 March 2020, a day that is over on the 2nd.
SAME_DAY = (
    "are asked before the day of the row of books is over (books.appeared holds days, and a day is "
    'known at its end): ask from the next day on; "allow_future_anchor": true in the task keeps '
    "them"
)


def test_a_task_without_seeds_says_why_at_build_dry_run_and_sampling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "split 'train' of task 't' has no seeds"."""
    rows = "(12, DATE '2020-03-01', 1), (12, TIMESTAMP '2020-03-01 23:59:59', 2)"
    task = {**SOLD, "query": f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", sold)'}
    told = f"all 2 rows of the task are dropped: 2 {SAME_DAY}"
    report, entry = build_task(tmp_path, task)
    assert report.notes()[0] == f"task t has no seeds: {told}"
    assert entry["dropped"] == {"the anchor's day is not over at obs_time": 2}
    rehearsal = dry_run(arrow_tables(bookstore()), bookstore_metadata(t=task))
    assert rehearsal.notes == report.notes()[:1]
    assert f"to check (1):\n  task t has no seeds: {told}" in str(rehearsal)
    with Sampler(tmp_path / "s", num_prefetch=0) as sampler:
        for ask in (
            lambda: sampler.epoch("train", task="t"),
            lambda: sampler.batch("train", 0),
            sampler.next_train_batch,
            lambda: Loader(sampler, "train"),
        ):
            with pytest.raises(TaskError, match=re.escape(told)):
                ask()
    assert main(["sample", str(tmp_path / "s"), "--task", "t", "--split", "test"]) == 1
    assert told in capsys.readouterr().err


def test_of_several_tasks_without_seeds_each_is_named_with_its_reason(tmp_path: Path) -> None:
    task = {**SOLD, "query": "SELECT book_id + 90 AS book_id, DATE '2021-01-01' AS at, 1 AS sold"}
    task["query"] += " FROM books LIMIT 1"
    metadata = bookstore_metadata(t=task, u={**task, "query": f"{task['query']} OFFSET 99"})
    build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    with (
        Sampler(tmp_path / "s", num_prefetch=0) as sampler,
        pytest.raises(
            TaskError,
            match=r": task 't': all 1 rows of the task are dropped: .*; task 'u': its query or "
            "label tables have no rows$",
        ),
    ):
        sampler.next_train_batch()


def test_a_few_dropped_rows_are_not_why_a_split_is_empty(tmp_path: Path) -> None:
    """A task of two rows has no seeds in some split of three; and none is known by 1999."""
    rows = "('12', DATE '2021-01-01', 1), ('11', '2021-01-01', 1), ('99', '2021-01-01', 2)"
    query = f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", sold)'
    _, entry = build_task(tmp_path, {**SOLD, "query": query})
    assert entry["dropped"] == {"no anchor row": 1}
    empty = [split for split, count in entry["seeds"].items() if not count]
    options: dict[str, Any] = {"num_prefetch": 0, "tasks": ["t"]}
    with Sampler(tmp_path / "s", **options) as sampler:
        for split in set(empty) & {"train", "val", "test"}:
            with pytest.raises(TaskError, match=f"split '{split}' of task 't' has no seeds$"):
                sampler.epoch(split, task="t")
    with (
        Sampler(tmp_path / "s", **options, time_split=("1999-01-01", "2000-01-01")) as sampler,
        pytest.raises(TaskError, match=r"split 'train' of task 't' has no seeds$"),
    ):
        sampler.epoch("train", task="t")


def test_a_split_by_time_is_not_empty_by_the_rows_of_a_given_split(tmp_path: Path) -> None:
    """The only dropped row would be of val; the seed of train is asked after the span of val."""
    rows = "('12', DATE '2021-01-01', 1, 'train'), ('99', '2021-01-01', 2, 'val')"
    query = f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", sold, part)'
    build_task(tmp_path, {**SOLD, "query": query, "split_column": "part"})
    with (
        Sampler(tmp_path / "s", num_prefetch=0, time_split=("1999-01-01", "2000-01-01")) as sampler,
        pytest.raises(TaskError, match=r"split 'val' of task 't' has no seeds$"),
    ):
        sampler.epoch("val", task="t")


def test_a_store_without_an_example_of_unknown_keys_still_names_the_reason() -> None:
    """Older builds kept the counts alone."""
    entry = {
        "name": "t", "anchor_table": "books", "split": "hash", "rows": 2,
        "dropped": {"no anchor row": 2},
    }  # fmt: skip
    metadata = {"tasks": [entry], "tables": [{"name": "books", "temporal_column": None}]}
    assert why_empty(metadata, "t", "train") == (
        "all 2 rows of the task are dropped: 2 have a key that names no row of books: select keys "
        'of the key column, or name the columns that hold them with "anchor_key"'
    )


def test_a_split_without_seeds_says_why_with_an_example_of_its_keys(tmp_path: Path) -> None:
    """Train keeps a seed; the only row of val names no book, and no row is of test."""
    rows = (
        "('12', DATE '2021-01-01', 1, 'train'), ('99', '2021-01-01', 1, 'train'), "
        "('77', '2021-01-01', 2, 'val')"
    )
    query = f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", sold, part)'
    report, entry = build_task(tmp_path, {**SOLD, "query": query, "split_column": "part"})
    assert entry["dropped_by_split"] == {"train": {"no anchor row": 1}, "val": {"no anchor row": 1}}
    assert entry["unknown_key"] == {"column": "books.book_id", "key": "99"}
    why = (
        "all 1 rows of split 'val' are dropped: 1 has a key that names no row of books, such as "
        "'99' (looked for in books.book_id)"
    )
    assert report.notes()[0].startswith(f"task t has no seeds in split 'val': {why}")
    with Sampler(tmp_path / "s", num_prefetch=0) as sampler:
        with pytest.raises(
            TaskError, match=re.escape(f"split 'val' of task 't' has no seeds: {why}")
        ):
            sampler.epoch("val", task="t")
        with pytest.raises(TaskError, match=r"split 'test' of task 't' has no seeds$"):
            sampler.epoch("test", task="t")


def test_an_unknown_key_is_shown_short_and_as_python_spells_it(tmp_path: Path) -> None:
    rows = "('x' || chr(27) || chr(10) || repeat('y', 200), DATE '2021-01-01', 2)"
    query = f'SELECT * FROM (VALUES {rows}) AS v(book_id, "at", sold)'
    report, _ = build_task(tmp_path, {**SOLD, "query": query})
    assert re.search(r"such as 'x\\x1b\\ny{10,100}\.\.\.' \(looked for in", report.notes()[0])


def test_rows_asked_before_nearly_all_anchors_are_the_first_to_check(tmp_path: Path) -> None:
    """Nine of ten questions are older than their book; the tenth is not."""
    asked_at = "CASE WHEN i = 0 THEN DATE '2021-01-01' ELSE DATE '1900-01-01' END"
    query = f'SELECT 12 AS book_id, {asked_at} AS "at", i AS sold FROM range(10) r(i)'
    report, _ = build_task(tmp_path, {**SOLD, "query": query})
    assert report.notes()[0].startswith(
        "task t: 9 of the 10 rows of the task are dropped: 9 are asked before the row of books "
        'came to be (books.appeared): ask later, or correct "temporal_column" of books;'
    )


def test_a_cell_target_is_a_value_of_its_column(tmp_path: Path) -> None:
    task = asked("SELECT book_id, 'poem' AS genre FROM books", "books", "genre categorical")
    with pytest.raises(TaskError, match="target 'poem', which is no value of column"):
        build_task(tmp_path, task)


def test_label_tables_give_splits_and_unlabelled_seeds(tmp_path: Path) -> None:
    labels = {
        "train": "book_id,at,sold\n11,2020-01-01,3\n10,2020-06-01 12:00:00,\n",
        "val": "book_id,at,sold\n12,2021-01-01,x\n",
        "test": "at,book_id\n2022-01-01,12\n2022-01-01,77\n",
    }
    for split, text in labels.items():
        (tmp_path / f"{split}.csv").write_text(text)
    task = UNASKED | {"seeds": {split: f"{split}.csv" for split in labels}}
    report, entry = build_task(tmp_path, task, seeds_dir=tmp_path)
    assert seeds_of(tmp_path) == [
        (11, us(2020, 1, 1), 3.0, 0, 0, 0),
        (10, us(2020, 6, 1, 12), 0.0, 1, 0, 1),
        (12, us(2021, 1, 1), 0.0, 1, 1, 2),
        (12, us(2022, 1, 1), 0.0, 2, 2, 3),
    ]
    assert entry["seeds"] == {"train": 2, "val": 1, "test": 1, "unlabelled": 1}
    assert entry["dropped"] == {"no anchor row": 1}
    assert entry["bad_targets"] == 1
    assert entry["latest_train_time"] == "2020-06-01T12:00:00Z"
    assert report.metadata["stats_until"] == "2020-06-01T12:00:00Z"


LABELS = "book_id,at,sold\n11,2020-01-01,3\n"


def label_task(name: str) -> dict[str, Any]:
    return bookstore_metadata(t=UNASKED | {"seeds": {"train": name}})


@pytest.mark.parametrize(
    "name",
    ["{out}/labels.csv", "../out/labels.csv", "a/../../out/labels.csv", "link.csv", "link/l.csv"],
)
def test_label_tables_lie_with_the_metadata_unless_their_folder_is_given(
    tmp_path: Path, name: str
) -> None:
    """Any file that DuckDB can read was, whatever folder the metadata came in."""
    out, own = tmp_path / "out", tmp_path / "own"
    for folder in (out, own, own / "a"):
        folder.mkdir()
    for file in (out / "labels.csv", out / "l.csv"):
        file.write_text(LABELS)
    (own / "link.csv").symlink_to(out / "labels.csv")
    (own / "link").symlink_to(out)
    metadata = label_task(name.format(out=out))
    file = own / "metadata.json"
    file.write_text(json.dumps(metadata))
    sources = arrow_tables(bookstore())
    for given in (file, Schema.load(file)):
        with pytest.raises(TaskError, match=r"lies outside of .*--seeds-dir"):
            build(sources, tmp_path / "s", given, cache=False)
    build(sources, tmp_path / "s", file, seeds_dir=own, cache=False)
    assert seeds_of(tmp_path) == [(11, us(2020, 1, 1), 3.0, 0, 0, 0)]


@pytest.mark.parametrize("name", ["labels.csv", "a/labels.csv", "./labels.csv", "near.csv"])
def test_label_tables_in_the_folder_of_the_metadata_are_read(tmp_path: Path, name: str) -> None:
    own = tmp_path / "own"
    (own / "a").mkdir(parents=True)
    for path in (own / "labels.csv", own / "a" / "labels.csv"):
        path.write_text(LABELS)
    (own / "near.csv").symlink_to("a/labels.csv")
    (own / "metadata.json").write_text(json.dumps(label_task(name)))
    build(arrow_tables(bookstore()), tmp_path / "s", own / "metadata.json", cache=False)
    assert seeds_of(tmp_path) == [(11, us(2020, 1, 1), 3.0, 0, 0, 0)]


@pytest.mark.parametrize(
    "name", ["..", ".", ".hidden", "a/b", "/tmp/x", "a\tb", "a\x1b[2J", "..-x"]
)
def test_a_task_is_called_as_a_file_may_be(tmp_path: Path, name: str) -> None:
    """`..` was taken, and the run of it was written into the folder above."""
    metadata = bookstore_metadata()
    metadata["tasks"] = {name: SOLD}
    with pytest.raises(SchemaError, match="has no usable name: folders and files of results are"):
        build(arrow_tables(bookstore()), tmp_path / "s", metadata, cache=False)
    assert not (tmp_path / "s").exists()


def test_moments_use_rows_up_to_the_latest_train_time(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("book_id,at,sold\n11,2020-02-01,3\n")
    task = UNASKED | {"seeds": {"train": "train.csv"}}
    report, _ = build_task(tmp_path, task, seeds_dir=tmp_path)
    price = next(c for c in report.metadata["columns"] if c["name"] == "price")
    # Only book 11, without a price, had appeared; min and max are of all rows.
    assert price["stats"]["max"] == 20.0
    assert price["stats"]["std"] == 0.0
    report, _ = build_task(tmp_path, task, seeds_dir=tmp_path, stats_until=date(2020, 3, 2))
    price = next(c for c in report.metadata["columns"] if c["name"] == "price")
    assert price["stats"]["mean"] == pytest.approx(16.25)
    with pytest.raises(ValueError, match="stats_until is 'soon'"):
        build_task(tmp_path, task, seeds_dir=tmp_path, stats_until="soon")


def tickets(*late: Any) -> dict[str, TinyTable]:
    """Five tickets; late: when 2 was closed and its cost, and the rating of 3."""
    closed, cost, rating = late
    columns = sql_types(
        "id INTEGER, opened TIMESTAMP, closed TIMESTAMP, cost DOUBLE, rating "
        "DOUBLE, told DOUBLE, judged DOUBLE"
    )
    rows = [
        (0, datetime(2020, 1, 1), datetime(2020, 1, 5), 20.0, 1.0, 5.0, 1.0),
        (1, datetime(2020, 1, 1), datetime(2020, 1, 5), 10.0, 1.0, 5.0, 1.0),
        (2, datetime(2020, 1, 10), closed, cost, 3.0, 7.0, 2.0),
        (3, datetime(2020, 1, 25), None, 99.0, rating, 9.0, 6.0),
        (4, datetime(2020, 2, 20), datetime(2020, 2, 21), 1e6, 1e6, 1e6, 1e6),
    ]
    return {"tickets": TinyTable(columns, rows)}


TICKETS = {
    "primary_key": "id",
    "temporal_column": "opened",
    "columns": {
        "id": {"stype": "identifier"},
        "rating": {"stype": "numerical", "known_at": "+10 days"},
        "cost": {"stype": "numerical", "known_at": "closed"},
        "closed": {"stype": "timestamp", "known_at": "closed"},
        **typed("opened timestamp, told numerical"),
        "judged": {"stype": "numerical", "known_at": "never"},
    },
}


def test_moments_use_cells_that_are_known_by_then(tmp_path: Path) -> None:
    """Else the scale of every number and time of an answer told what came after it."""

    def built(name: str, *late: Any) -> tuple[dict[str, Any], bytes]:
        until = "2020-01-31"
        query = "SELECT id, TIMESTAMP '2020-01-31' AS at, 1.0 AS y FROM tickets WHERE id < 4"
        task = asked(query, "tickets", "y numerical", "at")
        metadata = {"tables": {"tickets": TICKETS}, "tasks": {"t": task}}
        report = build(arrow_tables(tickets(*late)), tmp_path / name, metadata, stats_until=until)
        stats = {column["name"]: column["stats"] for column in report.metadata["columns"]}
        with Sampler(tmp_path / name, default_sequence_length=20, max_rows=4) as sampler:
            batch = next(iter(sampler.batches_for("t", keys=[1, 2, 3], obs_time=until)))
            shown = batch["numeric_values"].tobytes() + batch["timestamp_values"].tobytes()
        return stats, shown

    stats, shown = built("one", datetime(2020, 3, 1), 70.0, 100.0)
    assert stats["cost"]["mean"] == 15.0  # of tickets 0 and 1, as 2 is closed later and 3 never
    # The rating of ticket 3 is known on February 4.
    assert stats["rating"]["mean"] == pytest.approx(5 / 3)
    assert stats["told"]["mean"] == 6.5  # tickets 0 to 3
    assert stats["judged"]["mean"] == 2.5  # the same: what nobody knows may be a task's target
    assert built("two", datetime(2020, 9, 1), 7e5, 8e5)[1] == shown


def test_times_that_are_known_too_late_still_have_a_scale(tmp_path: Path) -> None:
    """Where the store has no others: else each would be 0."""
    rows = [(1, datetime(2024, 1, 1)), (2, datetime(2024, 1, 3))]
    table = {
        "primary_key": "id",
        "columns": {
            "id": {"stype": "identifier"},
            "closed": {"stype": "timestamp", "known_at": "closed"},
        },
    }
    source = arrow_tables({"t": TinyTable({"id": "INTEGER", "closed": "TIMESTAMP"}, rows)})
    query = "SELECT id, TIMESTAMP '2024-02-01' AS at, closed AS y FROM t"
    task = asked(query, "t", "y timestamp", "at")
    metadata = {"tables": {"t": table}, "tasks": {"y": task}}
    build(source, tmp_path / "s", metadata, stats_until="2023-01-01")
    time = Sampler(tmp_path / "s").database_metadata()["time"]
    assert time == {"mean_us": us(2024, 1, 2), "std_us": 86_400_000_000.0}


def test_a_given_split_that_is_not_one_in_time_says_nothing_about_moments(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("book_id,at,sold\n11,2021-02-01,3\n")
    (tmp_path / "val.csv").write_text("book_id,at,sold\n11,2020-02-01,3\n")
    task = UNASKED | {"seeds": {"train": "train.csv", "val": "val.csv"}}
    report, entry = build_task(tmp_path, task, seeds_dir=tmp_path)
    assert entry["latest_train_time"] is None
    assert report.metadata["stats_until"] is None


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({"train": "absent.csv"}, "absent.csv' of task 't' is not there"),
        ({"train": "x.txt"}, "is neither .csv nor .parquet"),
        ({"train": "bare.csv"}, "no label table of task 't' has the target column 'sold'"),
    ],
)
def test_a_bad_label_table_is_named(tmp_path: Path, seeds: dict[str, str], message: str) -> None:
    (tmp_path / "bare.csv").write_text("book_id,at\n11,2021-02-01\n")
    task = UNASKED | {"seeds": seeds}
    with pytest.raises(TaskError, match=message):
        build_task(tmp_path, task, seeds_dir=tmp_path)


def test_label_tables_are_found_beside_the_metadata_file(tmp_path: Path) -> None:
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "train.csv").write_text("book_id,at,sold\n11,2021-02-01,3\n")
    metadata = bookstore_metadata(t=UNASKED | {"seeds": {"train": "train.csv"}})
    Schema.from_dict(metadata).save(folder / "metadata.json")
    build(arrow_tables(bookstore()), tmp_path / "s", folder / "metadata.json")
    assert len(seeds_of(tmp_path)) == 1


def test_hash_splits_are_those_of_the_document(tmp_path: Path) -> None:
    """XXH64 of the length-prefixed key, mixed with the name's hash and split seed 123."""
    from headwater.binding import hash64

    query = "SELECT book_id, DATE '2021-01-01' AS at, 1 AS sold FROM books"
    _, entry = build_task(tmp_path, {**SOLD, "query": query, "allow_future_anchor": True})
    counts = {"train": 0, "val": 0, "test": 0}
    for key in (b"10", b"11", b"12", b"13"):
        parts = [hash64(len(key).to_bytes(4, "little") + key), hash64(b"t"), 123]
        mixed = hash64(b"".join(part.to_bytes(8, "little") for part in parts)) % 1000
        counts["train" if mixed < 800 else "val" if mixed < 900 else "test"] += 1
    assert entry["seeds"] == {**counts, "unlabelled": 0}


def test_faults_of_tasks_in_the_metadata_are_found_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="'anchor_key' of task 't' has 2 columns"):
        build_task(tmp_path, {**SOLD, "anchor_key": ["a", "b"]})
    with pytest.raises(SchemaError, match="is a cell task, but 'books' has no numerical column"):
        build_task(tmp_path, {**SOLD, "kind": "cell"})


# ---- which row a key names -------------------------------------------------------------------

ASKED = "DATE '2021-01-01' AS at, v AS sold FROM (VALUES"


def test_a_unique_column_names_the_rows_that_have_its_value(tmp_path: Path) -> None:
    """It was matched with the primary key: "Ben" was no author, and a book of price 12 book 12."""
    query = f"SELECT name, {ASKED} ('Ben', 1.0), ('Ada', 2.0), ('Eve', 3.0)) AS x(name, v)"
    by_name = {**SOLD, "anchor_table": "authors", "query": query}
    _, task = build_task(tmp_path, {**by_name, "anchor_key": "NAME"})  # case does not count
    assert [(seed[0], seed[2]) for seed in seeds_of(tmp_path)] == [(1, 2.0), (2, 1.0)]
    assert task["dropped"] == {"no anchor row": 1}
    # Books 10, 12 and 13, which has no time, have these prices; 12 is the price of no book.
    query = f"SELECT price, {ASKED} (20, 1.0), (12.5, 2.0), (7.25, 3.0), (12, 4.0)) AS x(price, v)"
    _, task = build_task(tmp_path, {**SOLD, "query": query, "anchor_key": "price"})
    assert [(seed[0], seed[2]) for seed in seeds_of(tmp_path)] == [(10, 2.0), (12, 1.0)]
    assert task["dropped"] == {"no anchor row": 1, "the anchor has no time": 1}


def test_the_parts_of_a_key_are_those_of_their_names_in_any_order(tmp_path: Path) -> None:
    """The first column was taken for the first part: number 1 for shop "1"."""
    query = f"SELECT number, shop, {ASKED} (1, 'b', 5.0), (2, 'a', 6.0)) AS x(number, shop, v)"
    task = {**SOLD, "query": query, "anchor_table": "sales", "anchor_key": ["number", "shop"]}
    build_task(tmp_path, task)
    store = Store(tmp_path / "s")
    keys = [store.row(int(row))["key"] for row in store.task_seeds("t")["anchor_row"]]
    assert keys == [{"shop": "a", "number": 2}, {"shop": "b", "number": 1}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"anchor_key": "author_id"},
            "the anchor of task 't' must be a primary key or a unique column: 2 rows of 'books'"
            " have 'author_id' 1; its primary key is book_id; to ask about 'authors', to which it"
            " refers, name that as the anchor table",
        ),
        ({"anchor_key": "GENRE"}, "2 rows of 'books' have 'genre' novel; its primary key is"),
        (
            {"query": "SELECT author_id, DATE '2021-01-01' AS at, 1 AS sold FROM authors"},
            "the query of task 't' has no column 'book_id' (anchor_key); it has author_id, at,"
            " sold",
        ),
        (
            # The result's first "book_id" was taken, whichever table that was of.
            {
                "query": "SELECT s.book_id, b.book_id, DATE '2021-01-01' AS at, 1 AS sold "
                "FROM sales s, books b"
            },
            "the query of task 't' has 2 columns 'book_id': rename all but the one that is meant",
        ),
    ],
)
def test_a_key_that_does_not_say_which_row_is_meant_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """The rows whose primary key happened to be the same number were asked about."""
    query = "SELECT book_id, author_id, genre, DATE '2021-01-01' AS at, 1 AS sold FROM books"
    with pytest.raises(TaskError, match=re.escape(message)):
        build_task(tmp_path, {**SOLD, "query": query, **change})
    assert not (tmp_path / "s").exists()


def test_another_column_of_the_table_does_not_stand_for_a_part_of_its_key(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="names 'book_id', another column of 'sales', in place"):
        build_task(tmp_path, {**SOLD, "anchor_table": "sales", "anchor_key": ["book_id", "x"]})


def test_words_that_only_look_like_chance_or_a_clock_are_fine(tmp_path: Path) -> None:
    query = (
        "WITH n AS (SELECT book_id, 1 AS random, 2 AS now FROM books) "
        "SELECT book_id, TIMESTAMP '2020-04-15' AS at, n.random + now AS sold, 'now()' AS note "
        "FROM n; -- random() is in a comment ;"
    )
    _, task = build_task(tmp_path, {**SOLD, "query": query})
    assert task["rows"] == 4


@pytest.mark.parametrize("name", ["IN_PRINT", "In_Print"])
def test_a_target_that_differs_in_case_is_the_column_and_is_not_shown(
    tmp_path: Path, name: str
) -> None:
    """It was another, derived target, beside which the column stood open in the context."""
    query = f"SELECT book_id, TIMESTAMP '2021-04-15' AS at, in_print AS {name} FROM books"
    _, task = build_task(
        tmp_path, {**SOLD, "query": query, "target_column": name, "target_stype": "boolean"}
    )
    assert (task["kind"], task["target_column"]) == ("cell", "in_print")
    _, task = build_task(
        tmp_path, {**SOLD, "query": query, "target_column": name, "target_stype": "categorical"}
    )
    assert (task["kind"], task["hidden_columns"]) == ("derived", ["books.in_print"])


def test_a_cell_task_on_the_last_day_of_the_calendar_is_reported(tmp_path: Path) -> None:
    """The day ends in year 10000: OverflowError in the report."""
    task = asked("SELECT book_id, price FROM books", "books", "price numerical")
    metadata = bookstore_metadata(t=task)
    database = dict(bookstore())
    rows = [(*row[:4], date(9999, 12, 31), row[5]) for row in database["books"].rows]
    database["books"] = TinyTable(database["books"].types, rows)
    report = build(arrow_tables(database), tmp_path / "s", metadata)
    times = report.metadata["tasks"][0]["obs_time_range"]
    assert times == ["9999-12-31T23:59:59.999999Z"] * 2
    assert "9999-12-31 to 9999-12-31" in str(report)


def test_label_tables_may_write_integer_keys_as_floats(tmp_path: Path) -> None:
    """Every label was dropped: no anchor row."""
    (tmp_path / "train.csv").write_text("book_id,at,sold\n10.0,2020-04-15,1\n11,2020-04-15,2\n")
    task = UNASKED | {"seeds": {"train": "train.csv"}}
    _, entry = build_task(tmp_path, task, seeds_dir=tmp_path)
    assert entry["dropped"] == {}
    assert [seed[0] for seed in seeds_of(tmp_path)] == [11, 10]
