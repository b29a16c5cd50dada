"""Columns taken from a parent and tables of values: what the metadata make of a source."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from databases import arrow_tables, bookstore, bookstore_metadata, typed
from headwater.builder.build import build
from headwater.builder.build_report import BuildReport
from headwater.builder.derive import derive
from headwater.errors import SchemaError
from headwater.inference.infer import infer
from headwater.metadata.schema import Schema
from headwater.sources.source import SourceColumn, SourceData, SourceTable
from headwater.store.store import Store


def built(tmp_path: Path, document: dict[str, Any]) -> tuple[BuildReport, Store]:
    report = build(arrow_tables(bookstore()), tmp_path / "s", document)
    return report, Store(tmp_path / "s")


def test_a_column_is_taken_from_the_row_a_key_names(tmp_path: Path) -> None:
    """Sales of a book that is not there, or of none, have no value."""
    document = bookstore_metadata()
    document["tables"]["sales"]["columns"]["price"] = {
        "stype": "numerical",
        "taken_from": "books.price",
    }
    plain = build(arrow_tables(bookstore()), tmp_path / "plain", bookstore_metadata())
    report, store = built(tmp_path, document)
    prices = {
        (shop, number): store.row(store.find("sales", (shop, number)))["cells"]["price"]
        for shop, number in (("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3))
    }
    assert prices == {
        ("a", 1): 12.5, ("a", 2): 20.0, ("b", 1): 12.5, ("b", 2): None, ("b", 3): None,
    }  # fmt: skip
    assert report.metadata["csv_bytes"] == plain.metadata["csv_bytes"]
    assert store.verify() == []


def test_a_taken_time_hides_rows_until_their_parent_is_there(tmp_path: Path) -> None:
    """And for ever where there is no parent, which is said."""
    document = bookstore_metadata()
    document["tables"]["sales"] |= {"temporal_column": "appeared", "time_resolution": "day"}
    document["tables"]["sales"]["columns"]["appeared"] = {
        "stype": "ignored",
        "taken_from": "books.appeared",
    }
    report, store = built(tmp_path, document)
    row = store.row(store.find("sales", ("a", 1)))
    assert row["time"] == datetime(2020, 3, 2, tzinfo=UTC)
    assert "appeared" not in row["cells"]
    # The dangling sale and the one without a book have no time, and are never shown.
    assert store.row(store.find("sales", ("b", 2)))["time"] is None
    assert "2 rows of sales have no time and are never shown (see 'null_time')" in report.notes()


def test_a_step_that_was_taken_is_not_taken_again() -> None:
    """A build that goes on where another was killed calls it on what the other left; of a source
    whose tables are views, too."""
    for kind in ("TABLE", "VIEW"):
        connection = duckdb.connect()
        connection.execute("CREATE SCHEMA raw")
        connection.execute("CREATE TABLE raw.t0 AS SELECT 1 AS c0, 7 AS c1")
        connection.execute(f"CREATE {kind} raw.t1 AS SELECT range AS c0, 1 AS c1 FROM range(3)")
        parent = SourceTable(
            "p", 0, 1, (SourceColumn("id", "INTEGER"), SourceColumn("x", "INTEGER"))
        )
        child = SourceTable(
            "c", 1, 3, (SourceColumn("id", "BIGINT"), SourceColumn("p_id", "INTEGER")),
            is_view=kind == "VIEW",
        )  # fmt: skip
        schema = Schema.from_dict(
            {
                "tables": {
                    "p": {"columns": typed("id identifier, x numerical")},
                    "c": {
                        "columns": {
                            **typed("id identifier, p_id identifier p.id"),
                            "x": {"stype": "numerical", "taken_from": "p.x"},
                        }
                    },
                    "v": {
                        "values_of": ["c.id"],
                        "primary_key": "k",
                        "columns": {"k": {"stype": "identifier"}},
                    },
                }
            }
        )
        data = SourceData("d", (parent, child))
        first = derive(connection, data, schema)
        assert derive(connection, data, schema) == first
        assert connection.execute("SELECT * FROM raw.t1").fetchall() == [
            (0, 1, 7), (1, 1, 7), (2, 1, 7),
        ]  # fmt: skip
        assert connection.execute("SELECT c0 FROM raw.t2").fetchall() == [(0,), (1,), (2,)]
        for name in ("t0", "t1", "t2"):  # converted, all of them
            connection.execute(f"DROP TABLE raw.{name}")
        assert [t.column_names() for t in derive(connection, data, schema).tables] == [
            ["id", "x"], ["id", "p_id", "x"], ["k"],
        ]  # fmt: skip
        connection.close()


def test_the_distinct_values_of_columns_are_rows(tmp_path: Path) -> None:
    document = bookstore_metadata()
    document["tables"]["shops"] = {
        "values_of": ["sales.shop", "books.genre"],
        "primary_key": "name",
        "columns": {"name": {"stype": "text"}},
    }
    document["tables"]["sales"]["columns"]["shop"]["foreign_key"] = "shops.name"
    _, store = built(tmp_path, document)
    assert store.verify() == []
    names = [store.row(store.find("shops", name))["cells"]["name"] for name in "ab"]
    assert names == ["a", "b"]
    assert store.find("shops", "novel") >= 0
    children = store.children(store.find("shops", "a"))["sales.shop"]
    assert len(children) == 2


def test_null_spellings_make_no_row(tmp_path: Path) -> None:
    document = bookstore_metadata()
    document["tables"]["books"]["columns"]["genre"]["null_values"] = ["essay"]
    document["tables"]["genres"] = {
        "values_of": ["books.genre"],
        "primary_key": "genre",
        "columns": {"genre": {"stype": "identifier"}},
    }
    _, store = built(tmp_path, document)
    assert [table["row_range"] for table in store.metadata["tables"]][-1] == [13, 14]


def test_a_column_is_computed_from_its_row(tmp_path: Path) -> None:
    """Of values without their spellings of NULL, and NULL where it cannot be computed; a name that
    the expression uses may be one that the query around it has."""
    found = {"id": pa.array([1, 2, 3, 4]), "year": pa.array(["2021", "2022", "none", "2023"]),
             "raw0": pa.array([1, 13, 3, None])}  # fmt: skip
    month = 'last_day(make_date(CAST("Year" AS INTEGER), raw0, 1))'
    document = {
        "tables": {
            "months": {
                "primary_key": "id",
                "temporal_column": "month",
                "columns": {
                    "id": {"stype": "identifier"},
                    "year": {"stype": "numerical", "null_values": ["none"]},
                    "raw0": {"stype": "numerical"},
                    "month": {"stype": "timestamp", "expression": month},
                },
            }
        }
    }
    report = build({"months": pa.table(found)}, tmp_path / "s", document)
    store = Store(tmp_path / "s")
    rows = [store.row(store.find("months", key)) for key in (1, 2, 3, 4)]
    # The last day of the month is over at its end.
    assert [row["time"] for row in rows] == [datetime(2021, 2, 1, tzinfo=UTC), None, None, None]
    assert rows[0]["cells"]["month"] == datetime(2021, 1, 31, tzinfo=UTC)
    assert "3 rows of months have no time and are never shown (see 'null_time')" in report.notes()


def test_a_computed_time_can_be_taken(tmp_path: Path) -> None:
    document = bookstore_metadata()
    tables = document["tables"]
    decade = {
        "stype": "timestamp",
        "expression": "make_date(year(appeared) // 10 * 10 + 9, 12, 31)",
    }
    tables["books"]["columns"]["decade"] = decade
    tables["sales"]["columns"]["decade"] = {"stype": "timestamp", "taken_from": "books.decade"}
    _, store = built(tmp_path, document)
    cells = store.row(store.find("sales", ("a", 1)))["cells"]
    assert cells["decade"] == datetime(2029, 12, 31, tzinfo=UTC)


def test_a_key_may_be_the_time_of_its_row(tmp_path: Path) -> None:
    """Its foreign keys are read as it is: all of them were lost, and a query could not compare."""
    ms = [1_600_000_000_000 + 7_000_001 * j for j in range(20)]
    source = {
        "cards": pa.table({"id": ms, "deck": [f"d{j % 3}" for j in range(20)]}),
        "log": pa.table(
            {"id": [10 * j for j in range(40)], "card": [ms[j // 2] for j in range(40)]}
        ),
    }
    time = {"stype": "timestamp", "unit": "ms"}
    query = "SELECT c.id, count(*) AS n FROM cards c JOIN log l ON l.card = c.id GROUP BY c.id"
    card = {"stype": "identifier", "foreign_key": "cards.id"}
    document = {
        "tables": {
            "cards": {"primary_key": "id", "temporal_column": "id",
                      "columns": {"id": time, "deck": {"stype": "categorical"}}},
            "log": {"primary_key": "id",
                    "columns": {"id": {"stype": "identifier"}, "card": card}},
        },
        "tasks": {"uses": {"query": query, "anchor_table": "cards", "target_column": "n",
                           "target_stype": "numerical", "sees_everything": True}},
    }  # fmt: skip
    report = build(source, tmp_path / "s", document)
    (key,) = report.metadata["tables"][1]["foreign_keys"]
    assert (key["edges"], key["dangling"]) == (40, 0)
    assert sum(report.metadata["tasks"][0]["seeds"].values()) == 20
    store = Store(tmp_path / "s")
    assert store.row(0)["time"] == datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    assert store.verify() == []


def test_a_build_without_metadata_computes_what_init_drafts(tmp_path: Path) -> None:
    """It stopped: the draft had put a view in the place of the table."""
    rows = {"id": [f"r{j}" for j in range(60)], "year": [2010 + j % 9 for j in range(60)]}
    source = {"sales": pa.table(rows | {"month": [j % 12 + 1 for j in range(60)]})}
    report = build(source, tmp_path / "s")
    (table,) = report.metadata["tables"]
    assert table["temporal_column"] == "month_end"
    assert build(source, tmp_path / "t", infer(source)).fingerprint == report.fingerprint


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(SELECT max(price) FROM raw.t1)", "not computed from its row alone (subquery)"),
        ("lag(price) OVER ()", "not computed from its row alone (window)"),
        ("max(price)", "aggregate"),
        ("price + random()", "uses random(), which gives another answer tomorrow"),
        ("current_date", "names column 'current_date', which the source does not have"),
        (
            "prise * 2",
            "names column 'prise', which the source does not have, did you mean 'price'?",
        ),
        ("price *", "is not SQL: syntax error"),
        ("1), (2", "must be one expression of columns of its row"),
        ("1) FROM raw.t1 --", "is not SQL"),
        ("COLUMNS(*)", "not computed from its row alone (star)"),
        ("no_function(price)", "no_function"),
        ("current_setting('threads')", "uses current_setting(), which gives another answer"),
        ("age(appeared)", "uses age(), which gives another answer"),
        ("current_localtimestamp()", "uses current_localtimestamp()"),
        ("ROW(1, 2)", "unnamed struct"),
    ],
)
def test_what_is_not_of_the_row_is_no_expression(
    tmp_path: Path, expression: str, message: str
) -> None:
    document = bookstore_metadata()
    entry = {"stype": "numerical", "expression": expression}
    document["tables"]["books"]["columns"]["x"] = entry
    with pytest.raises(SchemaError) as caught:
        built(tmp_path, document)
    assert "'expression' of column 'books.x'" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("where", "entry", "message"),
    [
        (
            "price", {"stype": "numerical", "taken_from": "boks.price"},
            "names table 'boks', which is not there, did you mean 'books'?",
        ),
        (
            "price", {"stype": "numerical", "taken_from": "books.prize"},
            "names column 'prize', which is not there, did you mean 'price'?",
        ),
        (
            "name", {"stype": "text", "taken_from": "authors.name"},
            "'sales' has 0 foreign keys to 'authors', not one",
        ),
        (
            "note", {"stype": "text", "taken_from": "books.genre"},
            "the source has that column",
        ),
        (
            "note", {"stype": "text", "expression": "upper(note)"},
            "the source has that column",
        ),
        (
            "x", {"stype": "text", "expression": "note", "taken_from": "books.genre"},
            "column 'sales.x' has 'taken_from' and 'expression': keep one",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_a_problem(
    tmp_path: Path, where: str, entry: dict[str, Any], message: str
) -> None:
    document = bookstore_metadata()
    document["tables"]["sales"]["columns"][where] = entry
    with pytest.raises(SchemaError) as caught:
        built(tmp_path, document)
    assert message in str(caught.value)


def test_columns_that_are_taken_from_each_other_are_a_problem() -> None:
    document = bookstore_metadata()
    tables = document["tables"]
    tables["authors"]["columns"]["x"] = {"stype": "text", "taken_from": "authors.y"}
    tables["authors"]["columns"]["y"] = {"stype": "text", "taken_from": "authors.x"}
    with pytest.raises(SchemaError, match="leads back to a column that is taken from it"):
        Schema.from_dict(document)


def test_a_table_of_values_has_one_column_and_its_key() -> None:
    document = bookstore_metadata()
    document["tables"]["shops"] = {
        "values_of": ["sales.shop", "sales.shopp"],
        "columns": {"name": {"stype": "text"}},
    }
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(document)
    assert "the table needs one column, which is its 'primary_key'" in str(caught.value)
    assert "'shopp', which is not there, did you mean 'shop'?" in str(caught.value)
