"""Every problem at once, everything dropped counted by reason in summary and store, and strict."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from databases import (
    TinyTable,
    arrow_tables,
    asked,
    bookstore,
    bookstore_metadata,
    run_script,
    typed,
    write_sqlite,
)
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.errors import SourceError, TaskError
from headwater.metadata.schema import Schema
from headwater.store.store import Store


def broken() -> tuple[dict[str, Any], dict[str, Any]]:
    """A database of which something of every kind is lost, and its metadata."""
    database = dict(bookstore())
    authors, books = database["authors"], database["books"]
    database["authors"] = TinyTable(authors.types, [*authors.rows, (1, "Ada again", None)])
    types = {**books.types, "price": "TEXT", "in_print": "TEXT", "appeared": "TEXT"}
    rows = [
        (10, 1, "novel", "12.5", "2020-03-01", "yes"),
        (11, 1, "essay", "cheap", "soon", "perhaps"),
        (12, 2, "-", "nan", "2020-03-01", None),
    ]
    database["books"] = TinyTable(types, rows)
    document = bookstore_metadata()
    document["tables"]["authors"]["on_duplicate_key"] = "first"
    document["tables"]["books"]["columns"]["genre"]["null_values"] = ["-"]
    query = (
        "SELECT * FROM (VALUES (10, TIMESTAMP '2021-01-01', 'often'), (10, NULL, '2'), "
        "(77, TIMESTAMP '2021-01-01', '3'), (NULL, TIMESTAMP '2021-01-01', '3'), "
        "(12, TIMESTAMP '2019-01-01', '3'), (12, TIMESTAMP '2021-01-01', '3'), "
        "(12, TIMESTAMP '2020-03-01 12:00:00', '3')) "
        "AS t(book_id, asked, sold)"
    )
    document["tasks"] = {"sold": asked(query, "books", "sold numerical", "asked")}
    return database, document


LOSSES = [
    "2 values of books.price became NULL: not a finite number (for example 'cheap')",
    "1 values of books.appeared became NULL: not a time of the years 1 to 9999 "
    "(for example 'soon')",
    "1 values of books.in_print became NULL: not a boolean (for example 'perhaps')",
    "1 rows of authors dropped: duplicate primary key",
    "1 keys of authors.mentor name no row",
    "1 keys of sales.book_id name no row",
    "1 rows of task sold dropped: anchor key is NULL",
    "1 rows of task sold dropped: anchor newer than obs_time",
    "1 rows of task sold dropped: no anchor row",
    "1 rows of task sold dropped: obs_time is NULL",
    "1 rows of task sold dropped: the anchor's day is not over at obs_time",
    "1 targets of task sold became NULL: not numerical",
]


def test_everything_lost_is_counted_by_reason_in_the_summary(tmp_path: Path) -> None:
    database, document = broken()
    report = build(arrow_tables(database), tmp_path / "s", document)
    assert report.losses() == LOSSES
    assert report.notes() == [
        "1 rows of books have no time and are never shown (see 'null_time')",
        "task sold: 1 is asked before the day of the row of books is over (books.appeared holds"
        " days, and a day is known at its end): ask from the next day on;"
        ' "allow_future_anchor": true in the task keeps them',
    ]
    text = str(report)
    assert f"not taken as it was ({len(LOSSES)}):" in text
    assert "spelled as NULL, as the metadata say: 1 of books" in text


def test_the_same_counts_are_in_the_store(tmp_path: Path) -> None:
    database, document = broken()
    build(arrow_tables(database), tmp_path / "s", document)
    with Store(tmp_path / "s") as store:
        tables = {table["name"]: table for table in store.metadata["tables"]}
        (task,) = store.metadata["tasks"]
    assert tables["authors"]["duplicates_dropped"] == 1
    assert {c["column"]: c["count"] for c in tables["books"]["conversions"]} == {
        "price": 2, "appeared": 1, "in_print": 1,
    }  # fmt: skip
    assert (tables["books"]["null_values"], tables["books"]["untimed"]) == (1, 1)
    assert tables["sales"]["foreign_keys"][0]["dangling"] == 1
    assert tables["sales"]["foreign_keys"][0]["nulls"] == 1
    assert sum(task["dropped"].values()) == 5
    assert (task["rows"], task["bad_targets"]) == (7, 1)


def test_strict_fails_on_each_kind_of_loss_and_leaves_no_store(tmp_path: Path) -> None:
    database, document = broken()
    with pytest.raises(SourceError) as caught:
        build(arrow_tables(database), tmp_path / "s", document, strict=True)
    assert str(caught.value).split("\n  ")[1:] == LOSSES
    assert not (tmp_path / "s").exists()


def test_texts_that_are_not_utf8_are_counted_and_strict_fails(tmp_path: Path) -> None:
    source = run_script(
        tmp_path / "t.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT);"
        "INSERT INTO t VALUES (1, CAST(x'ff41' AS TEXT)), (2, 'fine');",
    )
    columns = typed("id identifier, x text")
    document = {"tables": {"t": {"primary_key": "id", "columns": columns}}}
    report = build(source, tmp_path / "s", document)
    assert report.losses() == ["1 texts are not UTF-8, or categories with a zero character"]
    with Store(tmp_path / "s") as store:
        assert store.metadata["undecodable"] == 1
    with pytest.raises(SourceError, match="1 texts are not UTF-8"):
        build(source, tmp_path / "s2", document, strict=True)


def test_a_key_to_a_table_that_is_not_walked_is_said(tmp_path: Path) -> None:
    document = bookstore_metadata()
    document["tables"]["authors"]["graph"] = False
    report = build(arrow_tables(bookstore()), tmp_path / "s", document)
    said = "foreign key books.author_id to authors has no edges, as that table is not walked"
    assert said in report.notes()


def test_keys_that_do_not_hold_are_reported_for_all_tables_at_once(tmp_path: Path) -> None:
    document = bookstore_metadata()
    document["tables"]["books"]["primary_key"] = "genre"
    document["tables"]["sales"]["primary_key"] = "shop"
    document["tables"]["sales"]["columns"]["book_id"].pop("foreign_key")
    with pytest.raises(SourceError) as caught:
        build(arrow_tables(bookstore()), tmp_path / "s", document)
    assert str(caught.value) == (
        "2 problems:\n"
        "  table 'books' has 1 rows whose primary key is NULL\n"
        "  table 'sales' has 3 rows with a primary key that another row has too, for example (a) "
        'in 2 rows; set \'on_duplicate_key\' to "first" or "last" to keep one of them'
    )


def test_faults_of_all_tasks_are_reported_at_once(tmp_path: Path) -> None:
    _, document = broken()
    task = document["tasks"].pop("sold")
    for name, query in (("a", "SELECT x FROM books"), ("b", "DROP TABLE books")):
        document["tasks"][name] = copy.deepcopy(task) | {"query": query}
    database = arrow_tables(bookstore())
    with pytest.raises(TaskError) as caught:
        build(database, tmp_path / "s", document)
    text = str(caught.value)
    assert "the query of task 'a' failed" in text
    assert "the query of task 'b' must be one SELECT statement" in text
    del document["tasks"]["b"]
    for name in ("a", "c"):
        document["tasks"][name] = task | {"query": "SELECT book_id, 1 AS solt FROM books"}
    with pytest.raises(TaskError) as caught:
        build(database, tmp_path / "s", document)
    assert str(caught.value).count("has no column 'asked'") == 2


def test_the_command_prints_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, document = broken()
    source = write_sqlite(tmp_path / "b.db", database)
    Schema.from_dict(document).save(tmp_path / "m.json")
    arguments = ["build", source, str(tmp_path / "s"), "--metadata", str(tmp_path / "m.json")]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [c["count"] for c in told["conversions"]] == [2, 1, 1]
    assert main([*arguments, "--strict"]) == 1
    told = capsys.readouterr().err.partition("headwater: ")[2]
    assert told.count("\n  ") == len(LOSSES)
