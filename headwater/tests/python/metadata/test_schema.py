"""metadata.json: what is read, written back and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import bookstore_metadata
from headwater.builder.build import build
from headwater.errors import SchemaError
from headwater.metadata.from_json import STYPES, TARGET_STYPES, parse_duration
from headwater.metadata.parts import (
    COLUMN_KEYS,
    CSV_KEYS,
    SCHEMA_KEYS,
    TABLE_KEYS,
    TASK_KEYS,
    Column,
    ColumnRef,
    Known,
    Table,
    Task,
    format_duration,
)
from headwater.metadata.schema import Schema, parse_schema


def problems(document: Any, source: dict[str, list[str]] | None = None) -> list[str]:
    """Every problem of a document."""
    with pytest.raises(SchemaError) as caught:
        parse_schema(document, source=source)
    lines = str(caught.value).split("\n")
    return [line.strip() for line in (lines[1:] if len(lines) > 1 else lines)]


def full_metadata() -> dict[str, Any]:
    """A document that uses every key."""
    document = bookstore_metadata()
    document["timezone"] = "Europe/Berlin"
    document["null_values"] = ["NA"]
    tables = document["tables"]
    tables["books"] |= {"null_time": "visible", "on_duplicate_key": "first", "null_values": ["-"]}
    tables["books"]["description"] = "what is sold"
    tables["books"]["note"] = "check the prices"
    tables["books"]["csv"] = {
        "header": False,
        "columns": ["book_id", "author_id", "genre", "price", "appeared", "in_print"],
        "delimiter": ";",
        "quote": "'",
        "escape": "\\",
        "encoding": "latin-1",
        "null_values": ["NA"],
        "decimal": ",",
        "skip": 2,
    }
    tables["genres"] = {
        "values_of": ["books.genre"],
        "primary_key": "genre",
        "columns": {"genre": {"stype": "identifier"}},
    }
    tables["sales"]["columns"]["appeared"] = {
        "stype": "timestamp",
        "taken_from": "books.appeared",
        "note": "of the book",
    }
    tables["sales"]["columns"]["sold_on"] = {
        "stype": "timestamp",
        "expression": "CAST(sold_at AS DATE)",
    }
    tables["books"]["columns"]["price"] |= {"known_at": "+60 days", "null_values": ["?"]}
    tables["books"]["columns"]["in_print"]["known_at"] = "appeared"
    tables["books"]["columns"]["appeared"]["unit"] = "ms"
    tables["books"]["columns"]["genre"]["known_at"] = "never"
    tables["sales"]["columns"]["sold_at"]["format"] = "%d.%m.%Y %H:%M"
    tables["logs"] = {
        "graph": False,
        "columns": {
            "shop": {"stype": "text"},
            "number": {"stype": "numerical"},
            "dotted.name": {"stype": "ignored"},
        },
        "foreign_keys": [
            {
                "columns": ["shop", "number"],
                "references": {"table": "sales", "columns": ["shop", "number"]},
            }
        ],
    }
    document["tasks"] = {
        "late": {
            "query": "SELECT 1",
            "anchor_table": "sales",
            "anchor_key": ["shop", "number"],
            "target_column": "late",
            "target_stype": "boolean",
            "kind": "derived",
            "observation_time_column": "at",
            "label_window": "30 days",
            "label_known_at": "told_at",
            "split_column": "part",
            "hidden_columns": ["sales.note"],
            "cutoff": "exclusive",
            "context_labels": "none",
            "require_label": True,
            "allow_future_anchor": True,
            "note": "a draft",
        },
        "copies": {
            "seeds": {"train": "a.csv", "test": "b.parquet"},
            "anchor_table": "sales",
            "target_column": "copies",
            "target_stype": "numerical",
        },
    }
    return document


def test_a_document_that_is_written_and_read_again_is_the_same(tmp_path: Path) -> None:
    document = full_metadata()
    schema = parse_schema(document)
    assert schema.to_dict() == document
    schema.save(tmp_path / "metadata.json")
    again = Schema.load(tmp_path / "metadata.json")
    assert again == schema
    assert again.directory == tmp_path


def test_keys_stand_in_column_order_then_as_listed() -> None:
    document = bookstore_metadata()
    document["tables"]["sales"]["foreign_keys"] = [
        {"columns": "number", "references": {"table": "books", "columns": "book_id"}}
    ]
    keys = parse_schema(document).table("sales").every_key()
    assert [key.columns for key in keys] == [("book_id",), ("number",)]


def test_every_problem_is_reported_at_once_with_the_nearest_name() -> None:
    document = bookstore_metadata()
    tables = document["tables"]
    document["timezon"] = "UTC"
    tables["authors"]["columns"]["name"]["stype"] = "txt"
    tables["authors"]["primary_key"] = "autor_id"
    tables["books"]["columns"]["author_id"]["foreign_key"] = "author.author_id"
    tables["books"]["temporal_column"] = "price"
    tables["sales"]["columns"]["note"]["known_at"] = "solt_at"
    tables["sales"]["columns"]["copies"] = "numerical"
    document["tasks"] = {"t": {"anchor_table": "sale", "target_stype": "text"}}
    found = problems(document)
    expected = [
        "the document has an unknown key 'timezon', did you mean 'timezone'?",
        "'stype' of column 'authors.name' is 'txt', expected one of identifier, numerical, "
        "timestamp, boolean, categorical, text, ignored, did you mean 'text'?",
        "'primary_key' of table 'authors' names column 'autor_id', which is not there, "
        "did you mean 'author_id'?",
        "foreign key 'books.author_id' names table 'author', which is not there, "
        "did you mean 'authors'?",
        "'temporal_column' of table 'books' names column 'price', which is numerical, "
        "not timestamp",
        "'known_at' of column 'sales.note' names column 'solt_at', which is not there, "
        "did you mean 'sold_at'?",
        "column 'sales.copies' must be an object, found a string",
        "task 't' must have either 'query' or 'seeds'",
        "task 't' has no 'target_column'",
        "task 't' names table 'sale', which is not there, did you mean 'sales'?",
    ]
    assert [line for line in expected if line not in found] == []


def test_an_unknown_time_zone_is_told_with_the_other_problems(tmp_path: Path) -> None:
    """It was told only when everything else was right, after the source was read."""
    document = {
        "timezone": "Europe/Berln",
        "tables": {"t": {"primary_key": "idd", "columns": {"id": {"stype": "identifier"}}}},
    }
    with pytest.raises(SchemaError) as caught:
        build({"t": {"id": np.arange(3)}}, tmp_path / "s", document)
    assert "'timezone' is 'Europe/Berln', which is unknown, did you mean 'Europe/Berlin'?" in str(
        caught.value
    )
    assert "'primary_key' of table 't' names column 'idd'" in str(caught.value)


def test_columns_of_the_source_that_are_missing_or_unknown_are_named() -> None:
    source = {
        "authors": ["author_id", "name", "mentor", "born"],
        "books": ["book_id", "author_id", "genre", "price", "appeared", "inprint"],
        "sales": ["shop", "number", "book_id", "sold_at", "copies", "note"],
        "visits": ["id"],
    }
    assert problems(bookstore_metadata(), source) == [
        "table 'authors' does not list 'born' of the source "
        "(give each an stype, 'ignored' to skip it)",
        "table 'books' of the source has no column 'in_print', did you mean 'inprint'?",
        "table 'books' does not list 'inprint' of the source "
        "(give each an stype, 'ignored' to skip it)",
        "'tables' does not list table 'visits' of the source "
        "('graph': false keeps it out of every context)",
    ]


def test_a_name_with_dots_is_split_where_a_table_and_a_column_are() -> None:
    document = {
        "tables": {
            "a": {"columns": {"b.c": {"stype": "identifier"}, "x": {"stype": "text"}}},
            "a.b": {"columns": {"c": {"stype": "identifier"}}},
            "d": {
                "columns": {
                    "one": {"stype": "identifier", "foreign_key": "a.b.c"},
                    "two": {
                        "stype": "identifier",
                        "foreign_key": {"table": "a.b", "column": "c"},
                    },
                }
            },
        }
    }
    table = parse_schema(document).table("d")
    assert table.column("one").foreign_key == ColumnRef("a", "b.c")
    assert table.column("two").foreign_key == ColumnRef("a.b", "c")
    assert table.column("two").to_dict()["foreign_key"] == {"table": "a.b", "column": "c"}


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("99999999999999 weeks", None),
        ("+60 days", 60 * 86_400_000_000),
        ("30 days", 30 * 86_400_000_000),
        ("1 hour", 3_600_000_000),
        ("2weeks", 14 * 86_400_000_000),
        ("-5 minutes", -300_000_000),
        ("soon", None),
        ("5 years", None),
        ("", None),
    ],
)
def test_durations(text: str, microseconds: int | None) -> None:
    assert parse_duration(text) == microseconds


def test_durations_are_written_in_the_largest_unit() -> None:
    assert format_duration(14 * 86_400_000_000, sign=True) == "+14 days"
    assert format_duration(90_000_000) == "90 seconds"
    assert format_duration(3_600_000_000) == "1 hour"


def test_known_at_has_four_forms() -> None:
    texts = ["creation", "never", "told_at", "+1 day"]
    document: dict[str, Any] = {
        "tables": {
            "t": {
                "temporal_column": "at",
                "columns": {
                    "at": {"stype": "timestamp"},
                    "told_at": {"stype": "ignored"},
                    **{f"c{i}": {"stype": "text", "known_at": t} for i, t in enumerate(texts)},
                },
            }
        }
    }
    columns = parse_schema(document).table("t").columns[2:]
    assert [column.known_at for column in columns] == [
        Known(),
        Known("never"),
        Known("column", "told_at"),
        Known("offset", None, 86_400_000_000),
    ]
    document["tables"]["t"]["columns"]["c0"]["known_at"] = "-1 day"
    assert "is before the row exists" in problems(document)[0]


def test_not_json_and_a_key_that_stands_twice_say_where(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"tables": {"a": {}, "a": {}}}')
    with pytest.raises(SchemaError, match="key 'a' stands twice"):
        Schema.load(path)
    path.write_text('{"tables": ')
    with pytest.raises(SchemaError, match=r"is not JSON.*line 1"):
        Schema.load(path)
    with pytest.raises(SchemaError, match="No such file"):
        Schema.load(tmp_path / "absent.json")


@pytest.mark.parametrize("document", [None, [], 3, {"tables": []}, {"tables": {"t": 1}}, {}])
def test_any_document_gives_a_message_and_no_crash(document: Any) -> None:
    assert problems(document)


def test_names_that_differ_only_in_case_are_refused() -> None:
    column = {"stype": "text"}
    document = {"tables": {"T": {"columns": {"a": column, "A": column}}, "t": {"columns": {}}}}
    found = problems(document)
    assert "table 't' differs from 'T' only in case" in found
    assert "column 'A' of table 'T' differs from 'a' only in case" in found


def test_a_name_that_is_too_long_is_not_told_in_full() -> None:
    """All 5,000 characters of it were printed."""
    columns = {"x" * 5_000: {"stype": "text"}, "": {"stype": "text"}}
    expected = "has no usable name, expected 1 to 1,024 bytes without a zero character"
    assert problems({"tables": {"t": {"columns": columns}}}) == [
        f"column '{'x' * 80}...' of table 't' {expected}",
        f"column '' of table 't' {expected}",
    ]


def test_a_table_without_anything_to_store_is_outside_the_graph() -> None:
    document: dict[str, Any] = {"tables": {"t": {"columns": {"a": {"stype": "ignored"}}}}}
    assert problems(document) == [
        "table 't' has no 'primary_key' and only ignored columns; set 'graph': false"
    ]
    document["tables"]["t"]["graph"] = False
    assert problems(document) == ["every table has 'graph': false, so there is nothing to build"]


def test_the_json_schema_has_the_same_words() -> None:
    path = Path(headwater.__file__).parent / "metadata" / "metadata.schema.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    parts = document["$defs"]
    assert sorted(document["properties"]) == sorted(SCHEMA_KEYS)
    assert sorted(parts["table"]["properties"]) == sorted(TABLE_KEYS)
    assert sorted(parts["column"]["properties"]) == sorted(COLUMN_KEYS)
    assert sorted(parts["csv"]["properties"]) == sorted(CSV_KEYS)
    assert sorted(parts["task"]["properties"]) == sorted(TASK_KEYS)
    assert parts["column"]["properties"]["stype"]["enum"] == list(STYPES)
    assert parts["task"]["properties"]["target_stype"]["enum"] == list(TARGET_STYPES)


def test_a_schema_can_be_edited_as_data() -> None:
    column = Column("price", "numerical", null_values=("-",))
    assert column.to_dict() == {"stype": "numerical", "null_values": ["-"]}


def test_what_sees_everything_has_no_time_and_no_label_that_is_known_later() -> None:
    document = bookstore_metadata()
    task = {"query": "SELECT 1", "anchor_table": "books", "target_column": "x",
            "target_stype": "boolean", "sees_everything": True}  # fmt: skip
    document["tasks"] = {"t": {**task, "observation_time_column": None}}
    schema = Schema.from_dict(document)
    assert schema.tasks[0].sees_everything and schema.tasks[0].observation_time_column is None
    assert Schema.from_dict(schema.to_dict()) == schema
    for name, value in (
        ("observation_time_column", "at"), ("label_window", "0 days"), ("label_known_at", "at"),
        ("allow_future_anchor", True),
    ):  # fmt: skip
        document["tasks"] = {"t": {**task, name: value}}
        assert problems(document) == [
            f"task 't' has 'sees_everything' and '{name}': a question that sees everything has no "
            "time; leave out one of them"
        ]


def test_null_and_empty_values_are_problems() -> None:
    """A NULL stype was 'ignored', a NULL target_stype 'numerical', an empty anchor table a crash
    in the build."""
    document = bookstore_metadata()
    document["tables"]["books"]["columns"]["price"]["stype"] = None
    document["tables"]["books"]["graph"] = None
    document["tasks"] = {
        "t": {"query": " ", "anchor_table": "", "target_column": "x", "target_stype": None},
        "u": {"seeds": {}, "anchor_table": "books", "target_column": "", "target_stype": "boolean"},
    }
    found = problems(document)
    assert "'stype' of column 'books.price' is null; give a value or leave it out" in found
    assert "'graph' of table 'books' is null; give a value or leave it out" in found
    assert "'query' of task 't' is empty" in found
    assert "'anchor_table' of task 't' is empty" in found
    assert "'target_stype' of task 't' is null; give a value or leave it out" in found
    assert "'seeds' of task 'u' names no label table" in found
    assert "'target_column' of task 'u' is empty" in found


def test_names_that_are_no_strings_and_a_key_twice_are_problems() -> None:
    document = bookstore_metadata()
    document["tables"][1] = {}
    key = {"columns": "author_id", "references": {"table": "authors", "columns": "author_id"}}
    document["tables"]["books"]["foreign_keys"] = [key]
    assert problems(document) == [
        "'tables' has the key 1, expected a string",
        "foreign key 'books.author_id' stands twice",
    ]


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    text = json.dumps(bookstore_metadata())
    (tmp_path / "m.json").write_text(text, encoding="utf-8-sig")
    assert Schema.load(tmp_path / "m.json") == Schema.from_dict(bookstore_metadata())
    (tmp_path / "m.json").write_bytes('{"é": 1}'.encode("latin-1"))
    with pytest.raises(SchemaError, match="is not UTF-8"):
        Schema.load(tmp_path / "m.json")


def test_a_schema_shows_itself_in_lines_and_as_tables() -> None:
    task = {
        "query": "SELECT book_id, appeared, price FROM books", "anchor_table": "books",
        "target_column": "price", "target_stype": "numerical",
        "observation_time_column": "appeared",
    }  # fmt: skip
    schema = Schema.from_dict(bookstore_metadata(dear=task))
    assert repr(schema) == str(schema)
    assert repr(schema).splitlines() == [
        "<Schema 'bookstore': 3 tables, 1 task>",
        "  authors: 3 columns, key author_id, points at authors",
        "  books: 6 columns, key book_id, time appeared, points at authors",
        "  sales: 6 columns, key shop + number, time sold_at, points at books",
        "  task dear: price (numerical) of books",
    ]
    html = schema._repr_html_()
    row = ("sales", "6", "shop, number", "sold_at", "books")
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" in html
    assert "<td>dear</td><td>price (numerical)</td><td>books</td>" in html


def test_a_schema_shows_itself_in_2_kb_however_wide_it_is() -> None:
    """A schema of eight tables took 8,119 characters, one of hundreds megabytes."""
    evil = "<b>\x1b[31m\u202e" + "ü" * 900
    columns = tuple(Column(f"{evil}{n}", "numerical") for n in range(200))
    tables = tuple(Table(f"{evil}{n}", columns, primary_key=(columns[0].name,)) for n in range(107))
    tasks = tuple(Task(f"{evil}{n}", tables[0].name, "x", "boolean") for n in range(31))
    text = repr(Schema(evil, tables, tasks))
    assert len(text.encode()) < 2_000
    lines = text.splitlines()
    assert lines[14] == "  ... and 94 more tables" and lines[-1] == "  ... and 26 more tasks"
    assert len(lines) == 21 and lines[1].startswith("  <b>\\x1b[31m\\u202eüü")
    html = Schema(evil, tables, tasks)._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;\\x1b[31m\\u202e" in html
    assert "<p>... and 67 more tables</p>" in html and len(html) < 100_000
