"""A first schema from a source: declared keys of SQLite, types by the values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from databases import (
    TinyTable,
    arrow_tables,
    bookstore,
    run_script,
    shared_data,
    write_csv,
    write_sqlite,
)
from headwater.builder.build import build
from headwater.inference.infer import draft_source, infer
from headwater.metadata.parts import ColumnRef, ForeignKey
from headwater.store.store import Store


def stypes(source: object, table: str = "t") -> dict[str, str]:
    columns = infer(source).table(table).columns  # type: ignore[arg-type]
    return {column.name: column.stype for column in columns}


def test_declared_keys_of_sqlite(tmp_path: Path) -> None:
    source = run_script(tmp_path / "k.db", """
        CREATE TABLE Shop (a TEXT, b INTEGER, PRIMARY KEY (b, a));
        CREATE TABLE sale (id INTEGER PRIMARY KEY, x TEXT, y INTEGER, self REFERENCES SALE,
            lost INTEGER REFERENCES nowhere,
            FOREIGN KEY (y, x) REFERENCES shop, FOREIGN KEY (x, y) REFERENCES shop (a, b));
    """)  # fmt: skip
    schema = infer(source)
    assert schema.table("Shop").primary_key == ("b", "a")
    sale = schema.table("sale")
    assert sale.column("self").foreign_key == ColumnRef("sale", "id")
    assert sale.foreign_keys == (
        ForeignKey(("y", "x"), "Shop", ("b", "a")),
        ForeignKey(("x", "y"), "Shop", ("a", "b")),
    )
    assert sale.column("x").stype == "identifier"
    assert sale.column("lost").foreign_key is None


def test_columns_that_no_metadata_can_name_are_left_out_and_told(tmp_path: Path) -> None:
    """A draft had them, and a task 't-', and the build refused both."""
    path, long = tmp_path / "k.db", "x" * 1_025
    connection = sqlite3.connect(path)
    connection.executescript(f"""
        CREATE TABLE t ("" INTEGER, id INTEGER, " " INTEGER, "{long}" REAL, v INTEGER);
        CREATE TABLE u ("" INTEGER PRIMARY KEY, a REFERENCES u);
        INSERT INTO u VALUES (1, 2);
    """)
    rows = [(number % 2, number, number % 2, 0.5, number) for number in range(1, 61)]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    source = f"sqlite:///{path}"
    draft = draft_source(source)
    assert draft.schema().table("t").column_names() == ["id", " ", "v"]
    assert draft.schema().table("u").column_names() == ["a"]
    assert [task.name for task in draft.tasks] == ["t-v"]
    left_out = "are left out, as a name has 1 to 1,024 bytes and no zero character: ''"
    assert draft.checks == [
        f"2 columns of table 't' {left_out}, '{'x' * 80}...'",
        f"1 columns of table 'u' {left_out}",
    ]
    report = build(source, tmp_path / "s", draft.schema())
    assert draft.checks[0] in str(report)
    assert Store(tmp_path / "s").row(0)["cells"] == {"id": 1, " ": True, "v": 1.0}


def test_types_by_every_value(tmp_path: Path) -> None:
    columns: dict[str, tuple[str, Callable[[int], Any], str]] = {
        "id": ("INTEGER PRIMARY KEY", lambda i: i, "identifier"),
        "number": ("TEXT", lambda i: str(i * 1.5), "numerical"),
        "zip": ("TEXT", lambda i: f"0{i % 4}", "categorical"),
        "color": ("TEXT", lambda i: "ab"[i % 2], "categorical"),
        "words": ("TEXT", lambda i: f"word {i}", "text"),
        "flag": ("INTEGER", lambda i: i % 2, "boolean"),
        "yes": ("TEXT", lambda i: ["yes", "no"][i % 2], "boolean"),
        "day": ("TEXT", lambda i: "2020-01-02", "timestamp"),
        "moment": ("DATETIME", lambda i: 1_600_000_000 + i, "timestamp"),
        "almost": ("TEXT", lambda i: "x" if i == 7 else "2020-01-02", "timestamp"),
        "picture": ("BLOB", lambda i: b"\x00", "ignored"),
        "empty": ("TEXT", lambda i: None, "ignored"),
        "price": ("NUMERIC", lambda i: i / 4, "numerical"),
    }
    types = {name: kind for name, (kind, _, _) in columns.items()}
    rows = [tuple(value(i) for _, value, _ in columns.values()) for i in range(20)]
    source = write_sqlite(tmp_path / "t.db", {"t": TinyTable(types, rows)})
    assert stypes(source) == {name: stype for name, (_, _, stype) in columns.items()}
    table = infer(source).table("t")
    assert table.column("moment").unit == "s"
    assert (
        table.column("almost").note
        == "values: 1 of 20 values are not of type timestamp and become NULL: 'x' (1)"
    )


def test_the_time_column_is_the_obvious_one_or_one_in_doubt(tmp_path: Path) -> None:
    moment = datetime(2020, 1, 1, 10)
    kinds = {"created_at": "TIMESTAMP", "updated_at": "TIMESTAMP", "due": "TIMESTAMP"}
    database = {
        "clear": TinyTable(kinds, [(moment, moment, moment)]),
        "gaps": TinyTable({"happened": "TIMESTAMP"}, [(moment,), (None,)]),
        "two": TinyTable({"start": "TIMESTAMP", "stop": "TIMESTAMP"}, [(moment, moment)]),
        "day": TinyTable({"day": "TEXT"}, [("2020-01-01",)]),
    }
    schema = infer(arrow_tables(database))
    found = [table.temporal_column for table in schema.tables]
    assert found == ["created_at", "happened", "start", "day"]
    assert ["temporal column" in table.note for table in schema.tables] == [
        False,
        True,
        True,
        False,
    ]
    assert schema.table("day").time_resolution == "day"


def test_a_folder_of_csv_files_has_types_and_inferred_keys(tmp_path: Path) -> None:
    """mentor is no key: only two of its three values name an author."""
    schema = infer(write_csv(tmp_path / "csv", bookstore()))
    books, sales = schema.table("books"), schema.table("sales")
    assert [table.primary_key for table in schema.tables] == [
        ("author_id",), ("book_id",), ("shop", "number"),
    ]  # fmt: skip
    assert books.column("author_id").foreign_key == ColumnRef("authors", "author_id")
    assert sales.column("book_id").foreign_key == ColumnRef("books", "book_id")
    assert schema.table("authors").column("mentor").foreign_key is None
    assert "2 of 3 values are in books.book_id" in sales.column("book_id").note
    assert " ".join(column.stype for column in books.columns) == (
        "identifier identifier text numerical timestamp boolean"
    )


def test_naive_and_zoned_times_together_are_drafted_as_utc(tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("a,b\n2020-01-01 10:00,2020-01-01T10:00Z\n")
    schema = infer(tmp_path / "csv")
    assert schema.timezone == "UTC"
    build(tmp_path / "csv", tmp_path / "s", schema)


def test_the_draft_builds_and_a_build_without_metadata_uses_it(tmp_path: Path) -> None:
    constraints = "PRIMARY KEY (shop, number), FOREIGN KEY (book_id) REFERENCES books (book_id)"
    database = dict(bookstore())
    database["sales"] = TinyTable(database["sales"].types, database["sales"].rows, constraints)
    books = database["books"]
    database["books"] = TinyTable(books.types, books.rows, "PRIMARY KEY (book_id)")
    source = write_sqlite(tmp_path / "b.db", database)
    schema = infer(source)
    assert schema.name == "b"
    drafted = build(source, tmp_path / "one", schema)
    inferred = build(source, tmp_path / "two")
    assert inferred.inferred and not drafted.inferred
    assert drafted.fingerprint == inferred.fingerprint


@pytest.mark.parametrize(
    ("name", "rows", "times"),
    [
        ("chinook/Chinook_Sqlite.sqlite", 15_607, {"Invoice": "InvoiceDate"}),
        ("se_history_meta/se_history_meta.sqlite", 12_337, {"Posts": "CreationDate"}),
    ],
)
def test_real_databases_build_as_inferred(
    tmp_path: Path, name: str, rows: int, times: dict[str, str]
) -> None:
    source = f"sqlite:///{shared_data(name)}"
    schema = infer(source)
    for table, column in times.items():
        assert schema.table(table).temporal_column == column
    build(source, tmp_path / "s", schema)
    store = Store(tmp_path / "s")
    assert store.verify() == []
    assert store.metadata["tables"][-1]["row_range"][1] == rows


def test_decimals_are_numbers_and_json_is_text(tmp_path: Path) -> None:
    """A price of type DECIMAL was drafted as a time, and as its table's temporal column."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    duckdb.sql(
        "COPY (SELECT range::INTEGER AS id, (range * 1.25)::DECIMAL(10, 2) AS price, "
        "'{\"a\": 1}'::JSON AS extra, TIME '10:00' AS opens, [1] AS list FROM range(20)) "
        f"TO '{folder / 't.parquet'}'"
    )
    assert stypes(str(folder)) == {
        "id": "identifier",
        "price": "numerical",
        "extra": "categorical",
        "opens": "numerical",
        "list": "ignored",
    }
    assert infer(str(folder)).table("t").temporal_column is None


def test_typed_times_with_and_without_a_zone_build_as_inferred(tmp_path: Path) -> None:
    """Only texts counted as zoned, so that the draft did not build."""
    import pyarrow

    zoned = pyarrow.array([1, 2], pyarrow.timestamp("us", "Europe/Berlin"))
    source = {"t": pyarrow.table({"zoned": zoned, "naive": zoned.cast(pyarrow.timestamp("us"))})}
    assert infer(source).timezone == "UTC"
    build(source, tmp_path / "s")
