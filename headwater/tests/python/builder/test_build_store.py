"""A small build end to end: rows, order, cells, keys, edges, statistics, sources, publication."""

from __future__ import annotations

import dataclasses
import fcntl
import importlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from databases import (
    TinyDatabase,
    TinyTable,
    arrow_tables,
    asked,
    bookstore,
    bookstore_metadata,
    typed,
    write_csv,
    write_parquet,
    write_sqlite,
)
from headwater.builder.build import build
from headwater.builder.build_report import BuildReport
from headwater.errors import EmbedderError, SchemaError, SourceError, StoreError
from headwater.inference.infer import infer
from headwater.sources.database import open_database
from headwater.store.store import Store

NO_ROW = 2**32 - 1


@pytest.fixture
def built(tmp_path: Path) -> tuple[BuildReport, Store]:
    source = write_sqlite(tmp_path / "bookstore.db", bookstore())
    report = build(source, tmp_path / "store", bookstore_metadata())
    return report, Store(tmp_path / "store")


def keys_of(store: Store) -> list[tuple[Any, ...]]:
    """Primary keys by global row."""
    high = store.metadata["tables"][-1]["row_range"][1]
    return [tuple(store.row(row)["key"].values()) for row in range(high)]


def test_rows_are_in_time_order_then_by_key(built: tuple[BuildReport, Store]) -> None:
    _, store = built
    assert keys_of(store) == [
        (1,), (2,), (3,), (4,),
        (11,), (10,), (12,), (13,),
        ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3),
    ]  # fmt: skip
    assert store.verify() == []


def test_a_day_counts_from_its_end(built: tuple[BuildReport, Store]) -> None:
    _, store = built
    book = store.row(store.find("books", 10))
    assert book["time"] == datetime(2020, 3, 2, tzinfo=UTC)
    assert book["cells"]["appeared"] == datetime(2020, 3, 1, tzinfo=UTC)
    assert store.row(store.find("books", 13))["time"] is None


def test_cells_are_in_source_units(built: tuple[BuildReport, Store]) -> None:
    _, store = built
    assert store.row(store.find("books", 11))["cells"] == {
        "book_id": 11,
        "author_id": 1,
        "genre": "essay",
        "price": None,
        "appeared": datetime(2019, 5, 2, tzinfo=UTC),
        "in_print": False,
    }
    sale = store.row(store.find("sales", ("b", 3)))
    assert sale["cells"]["note"] == "für später"
    assert sale["cells"]["copies"] == 4.0
    assert sale["cells"]["book_id"] is None
    assert store.row(store.find("sales", ("a", 1)))["cells"]["note"] == ""
    assert store.row(store.find("authors", 4))["cells"]["name"] == 'D, "dot"\nline'


def test_edges_dangling_and_null_keys_are_counted(built: tuple[BuildReport, Store]) -> None:
    report, store = built
    counts = {
        (table["name"], key["columns"][0]): (key["edges"], key["dangling"], key["nulls"])
        for table in store.metadata["tables"]
        for key in table["foreign_keys"]
    }
    assert counts == {
        ("authors", "mentor"): (2, 1, 1),
        ("books", "author_id"): (3, 0, 1),
        ("sales", "book_id"): (3, 1, 1),
    }
    assert "1 keys of authors.mentor name no row" in report.losses()
    assert store.parents(2).tolist() == [2]  # the author who mentors himself
    assert store.parents(3).tolist() == [NO_ROW]
    assert store.children(0)["books.author_id"].tolist() == [4, 5]


def test_statistics_are_of_all_rows(built: tuple[BuildReport, Store]) -> None:
    _, store = built
    stats = {column["name"]: column["stats"] for column in store.metadata["columns"]}
    prices = np.array([12.5, 20.0, 7.25])
    assert stats["price"] == {
        "count": 3,
        "nulls": 1,
        "mean": pytest.approx(prices.mean()),
        "std": pytest.approx(prices.std()),
        "min": 7.25,
        "max": 20.0,
    }
    assert stats["in_print"] == {"count": 3, "nulls": 1, "true": 2, "false": 1}
    assert stats["genre"] == {
        "count": 3, "nulls": 1, "categories": ["essay", "novel"], "cat_emb_start": 0,
    }  # fmt: skip
    assert stats["sold_at"]["max"] == "2020-06-01T12:00:00Z"
    assert store.metadata["stats_until"] is None


def test_a_second_build_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    first = build(source, tmp_path / "one", bookstore_metadata())
    second = build(source, tmp_path / "two", bookstore_metadata(), memory_limit="200MB")
    again = build(source, tmp_path / "one", bookstore_metadata())
    assert first.fingerprint == second.fingerprint == again.fingerprint
    names = sorted(entry.name for entry in (tmp_path / "one").iterdir())
    assert names == [".lock", first.fingerprint, "manifest.json"]
    for file in (tmp_path / "one" / first.fingerprint).rglob("*.bin"):
        other = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == other.read_bytes()


def test_a_table_outside_the_graph_is_left_out_with_its_keys(tmp_path: Path) -> None:
    metadata = bookstore_metadata()
    metadata["tables"]["authors"]["graph"] = False
    build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    assert [table["name"] for table in store.metadata["tables"]] == ["books", "sales"]
    assert store.metadata["tables"][0]["foreign_keys"] == []
    assert store.row(0)["cells"]["author_id"] is True  # still a cell, without an edge


def test_strict_refuses_what_a_build_would_drop(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"1 keys of sales\.book_id name no row"):
        build(arrow_tables(bookstore()), tmp_path / "s", bookstore_metadata(), strict=True)
    assert not (tmp_path / "s").exists()


def test_a_build_that_fails_leaves_the_old_store(tmp_path: Path) -> None:
    target = tmp_path / "s"
    report = build(arrow_tables(bookstore()), target, bookstore_metadata())
    (target / ".building-left-by-a-killed-build").mkdir()
    with pytest.raises(SchemaError):
        build(arrow_tables(bookstore()), target, {"tables": {}})
    assert Store(target).fingerprint == report.fingerprint
    names = sorted(entry.name for entry in target.iterdir())
    assert names == [".lock", report.fingerprint, "manifest.json"]


@pytest.mark.parametrize(
    "stage", ["CREATE TABLE raw.", "CREATE TABLE labels.q0", "CREATE TABLE seeds.s0"]
)
def test_a_full_disk_is_not_the_fault_of_a_table_or_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """It was "the query of task 'sold' failed: TransactionContext Error: Failed to commit: ..."."""
    full = (
        "TransactionContext Error: Failed to commit: Could not write file "
        '"/x/work.duckdb.wal": No space left on device'
    )
    metadata = bookstore_metadata()
    query = "SELECT book_id, TIMESTAMP '2021-01-01' AS obs_time, true AS sold FROM books"
    metadata["tasks"] = {"sold": asked(query, "books", "sold boolean", "obs_time")}
    module = importlib.import_module("headwater.builder.build")
    monkeypatch.setattr(
        module,
        "open_database",
        lambda *args, **options: FullDisk(open_database(*args, **options), stage, full),
    )
    with pytest.raises(OSError, match="No space left on device") as caught:
        build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    assert str(caught.value).startswith(
        f"the disk of '{tmp_path / 's'}' is full: free space there, or build somewhere else ("
    )


class FullDisk:
    """A connection to DuckDB in which one kind of statement finds no room."""

    def __init__(self, connection: Any, stage: str, message: str) -> None:
        self._connection, self._stage, self._message = connection, stage, message

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith(self._stage):
            raise duckdb.TransactionException(self._message)
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_two_builds_of_one_target_are_kept_apart(tmp_path: Path) -> None:
    target = tmp_path / "s"
    target.mkdir()
    lock = os.open(target / ".lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"another build of .* is running"):
            build(arrow_tables(bookstore()), target, bookstore_metadata())
    finally:
        os.close(lock)
    build(arrow_tables(bookstore()), target, bookstore_metadata())


def test_a_folder_that_is_no_store_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"is not a store and is not empty \(it holds 'thesis"):
        build(arrow_tables(bookstore()), tmp_path, bookstore_metadata())
    with pytest.raises(StoreError, match="is a file"):
        build(arrow_tables(bookstore()), tmp_path / "thesis.txt", bookstore_metadata())


def test_a_callable_embeds_texts_columns_and_categories(tmp_path: Path) -> None:
    seen: list[str] = []

    def lengths(texts: list[str]) -> Any:
        seen.extend(texts)
        return np.array([[len(text), 1.0, 0.0] for text in texts])

    build(arrow_tables(bookstore()), tmp_path / "s", bookstore_metadata(), embedder=lengths)
    store = Store(tmp_path / "s")
    assert store.metadata["text"] == {"embedder": "lengths", "dim": 3, "count": 7}
    assert "name of authors: as on the cover" in seen
    assert "genre is essay" in seen
    assert "für später" in seen
    vectors = np.asarray(store.core.vectors(1)).astype(np.float64)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: np.zeros((1, 3)), r"gave an array \(1, 3\), expected \(12, width\)"),
        (lambda texts: np.full((len(texts), 2), np.nan), "NaN or infinity"),
    ],
)
def test_a_bad_embedder_is_named(
    tmp_path: Path, function: Callable[[list[str]], Any], message: str
) -> None:
    metadata = bookstore_metadata()
    with pytest.raises(EmbedderError, match=message):
        build(arrow_tables(_only(metadata, "books", "authors")), tmp_path / "s", metadata,
              embedder=function)  # fmt: skip


def _only(metadata: dict[str, Any], *names: str) -> TinyDatabase:
    """The bookstore with the tables named, and metadata cut to them: 9 columns, 3 unused."""
    for name in list(metadata["tables"]):
        if name not in names:
            del metadata["tables"][name]
    columns = metadata["tables"]["books"]["columns"]
    database = dict(bookstore())
    columns["extra"] = columns["more"] = columns["most"] = {"stype": "ignored"}
    books = database["books"]
    types = {**books.types, "extra": "TEXT", "more": "TEXT", "most": "TEXT"}
    rows = [(*row, None, None, None) for row in books.rows]
    database["books"] = TinyTable(types, rows)
    return {name: database[name] for name in names}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("sqlite:///absent.db", "there is no SQLite file 'absent.db'"),
        ("no-folder", "there is no folder 'no-folder'"),
        ("ftp://x", "unknown kind of source 'ftp://'"),
    ],
)
def test_a_source_that_is_not_there_is_named(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        build(source, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_sqlite_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello " * 1000)
    with pytest.raises(SourceError, match="file is not a database"):
        build(f"sqlite:///{tmp_path / 'x.db'}", tmp_path / "s")
    with pytest.raises(SourceError, match="write 'sqlite:///"):
        build(tmp_path / "x.db", tmp_path / "s")


def test_sqlite_values_of_mixed_types_arrive_as_text(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "m.db")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c)")
    rows = [(1, 3, "x", b"\x01\xff"), (2, "n/a", 2.5, None), (3, 4.5, 7, "text")]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO t VALUES (4, 5, CAST(x'ff41' AS TEXT), NULL)")
    connection.commit()
    connection.close()
    metadata = {
        "tables": {
            "t": {
                "primary_key": "id",
                "columns": typed("id identifier, a numerical, b text, c text"),
            }
        }
    }
    report = build(f"sqlite:///{tmp_path / 'm.db'}", tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    cells = [store.row(row)["cells"] for row in range(4)]
    assert [cell["a"] for cell in cells] == [3.0, None, 4.5, 5.0]
    assert [cell["b"] for cell in cells] == ["x", "2.5", "7", "�A"]
    assert [cell["c"] for cell in cells] == ["01ff", None, "text", None]
    assert report.losses() == [
        "1 values of t.a became NULL: not a finite number (for example 'n/a')",
        "1 texts are not UTF-8, or categories with a zero character",
    ]


def test_the_summary_counts_everything_and_json_agrees(tmp_path: Path) -> None:
    report = build(arrow_tables(bookstore()), tmp_path / "s", bookstore_metadata())
    text = str(report)
    assert "sales" in text and "x of" in text and "not taken as it was (2):" in text
    document = json.loads(json.dumps(report.to_dict()))
    assert document["metadata"]["tables"][2]["row_range"] == [8, 13]
    assert document["store_bytes"]["graph, tables and tasks"] > 0


def test_an_empty_table_and_an_empty_column_are_stored(tmp_path: Path) -> None:
    database = {
        "t": TinyTable({"id": "INTEGER", "x": "DOUBLE", "c": "TEXT"}, []),
        "u": TinyTable({"id": "INTEGER", "x": "DOUBLE", "c": "TEXT"}, [(1, None, None)]),
    }
    columns = typed("id identifier, x numerical, c categorical")
    metadata = {"tables": {n: {"primary_key": "id", "columns": columns} for n in database}}
    prints: set[str] = set()
    for source in (write_sqlite(tmp_path / "e.db", database), arrow_tables(database)):
        prints.add(build(source, tmp_path / f"s{len(prints)}", metadata).fingerprint)
    store = Store(tmp_path / "s0")
    assert len(prints) == 1
    assert store.verify() == []
    assert store.row(0)["cells"] == {"id": 1, "x": None, "c": None}


def test_a_first_build_that_was_killed_while_it_published_can_be_repeated(tmp_path: Path) -> None:
    """Its folder without a manifest was taken for someone's files."""
    target = tmp_path / "s"
    report = build(arrow_tables(bookstore()), target, bookstore_metadata())
    (target / "manifest.json").unlink()
    again = build(arrow_tables(bookstore()), target, bookstore_metadata())
    assert again.fingerprint == report.fingerprint
    assert Store(target).verify() == []


def test_a_build_that_finds_the_lock_taken_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first builds that began together: the one without the lock removed the folder."""
    target = tmp_path / "s"

    def taken(lock: int, operation: int) -> None:
        (target / ".building-other").mkdir()
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", taken)
    with pytest.raises(StoreError, match=r"another build of .* is running"):
        build(arrow_tables(bookstore()), target, bookstore_metadata())
    assert (target / ".building-other").is_dir()


def test_a_missing_metadata_file_is_told_before_the_source_is_read(tmp_path: Path) -> None:
    stages: list[str] = []
    with pytest.raises(SchemaError, match="cannot read"):
        build(
            arrow_tables(bookstore()),
            tmp_path / "s",
            tmp_path / "no.json",
            progress=lambda stage, item: stages.append(stage),
        )
    assert stages == []


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path, kind: str) -> None:
    """DuckDB made a column `run` of the path."""
    write = {"csv": write_csv, "parquet": write_parquet}[kind]
    source = write(tmp_path / "run=5", bookstore())
    assert "run" not in [column.name for column in infer(source).table("books").columns]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,x\n1,2\n3,4\nfive\n", "line 4: 1 fields, table 't' has 2 columns"),
        (b"", "has no header"),
    ],
)
def test_a_csv_file_that_is_none_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        infer(tmp_path)
    assert "strict_mode" not in str(caught.value)
    with pytest.raises(SourceError, match="expected the folder it is in"):
        infer(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({1: {"x": np.arange(2)}}, "the name of a table is 1"),
        ({"t": {"x": [1, 2]}}, "a dict must hold NumPy arrays"),
        ({"t": {"x": np.arange(2), "y": np.arange(3)}}, "the same length"),
    ],
)
def test_a_dict_that_is_no_table_says_why(source: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        infer(source)


def test_the_summary_says_what_is_never_and_what_is_always_shown(tmp_path: Path) -> None:
    metadata = bookstore_metadata()
    del metadata["tables"]["sales"]["temporal_column"]
    report = build(arrow_tables(bookstore()), tmp_path / "s", metadata)
    assert report.notes() == [
        "1 rows of books have no time and are never shown (see 'null_time')",
        "sales has no temporal column: its rows are shown at any time, though they point at books, "
        "which has one",
    ]
    assert "to check (2):" in str(report)
    assert not any("time" in line for line in report.losses())  # told, and not refused


def test_verify_reads_the_manifest_to_its_end(tmp_path: Path) -> None:
    """A store opens by its first lines."""
    build(arrow_tables(bookstore()), tmp_path / "s", bookstore_metadata())
    file = tmp_path / "s" / "manifest.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    (fault,) = Store(tmp_path / "s", verify="header").verify()
    assert fault == (
        f"manifest.json does not list the files of its build (in '{file}', byte {len(whole) // 2})"
    )
    size = re.search(r'"graph.bin", "bytes": (\d+)', whole)
    assert size is not None
    digit = "1" if size[1][0] != "1" else "2"
    file.write_text(whole[: size.start(1)] + digit + whole[size.start(1) + 1 :])
    (fault,) = Store(tmp_path / "s", verify="header").verify()
    assert fault.endswith(f"manifest.json', byte {size.start(1)})")
    file.write_text(json.dumps(json.loads(whole)))  # as other programs may write it
    assert Store(tmp_path / "s").verify() == []
    file.write_text(whole)
    assert Store(tmp_path / "s").verify() == []


# ---- how a report shows itself


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """Of a build with a task."""
    folder = tmp_path_factory.mktemp("report")
    task = {
        "query": """SELECT shop, number, sold_at, copies,
                    CASE number WHEN 1 THEN 'train' WHEN 2 THEN 'val' ELSE 'test' END AS part
                    FROM sales""",
        "anchor_table": "sales", "target_column": "copies", "target_stype": "numerical",
        "observation_time_column": "sold_at", "split_column": "part",
    }  # fmt: skip
    source = write_sqlite(folder / "bookstore.db", bookstore())
    return build(source, folder / "store", bookstore_metadata(many=task))


def test_a_report_shows_itself_in_lines_and_as_tables(report: BuildReport) -> None:
    here = dataclasses.replace(report, path=Path("store"))
    assert repr(here).splitlines() == [
        f"<BuildReport of 'store': build {report.fingerprint[:12]}, 3 tables, 1 task>",
        "  authors: 4 rows, 2 edges",
        "  books: 4 rows, 3 edges",
        "  sales: 5 rows, 3 edges",
        "  task many: train 2, val 2, test 1",
        "  0 assumed, 2 not taken as it was, 1 to check",
        "  print(report) shows all of it",
    ]
    html = report._repr_html_()
    counts = ("authors", "4", "2", "1", "1")
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in counts) + "</tr>" in html
    assert "<td>many</td><td>cell, numerical</td>" in html
    for line in (*report.losses(), *report.notes()):
        assert f"<li>{escape(line)}</li>" in html


def test_a_report_shows_itself_in_2_kb_however_many_tables_there_are(report: BuildReport) -> None:
    """It took 6,336 characters for eight tables."""
    of, evil = report.metadata, "<b>\x1b[31m" + "ü" * 900
    like = {**of["tables"][0], "foreign_keys": []}
    tables = [*of["tables"], *({**like, "name": f"{evil}{n}"} for n in range(109))]
    tasks = [{**of["tasks"][0], "name": evil} for n in range(9)]
    wide = dataclasses.replace(
        report, path=Path(evil), metadata={**of, "tables": tables, "tasks": tasks},
        source_notes=tuple(f"{evil}{n}" for n in range(300)),
    )  # fmt: skip
    text = repr(wide)
    assert len(text.encode()) < 2_000 and "\x1b" not in text
    assert "  ... and 100 more tables" in text and "  ... and 5 more tasks" in text
    html = wide._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;\\x1b[31m" in html
    assert "<p>... and 72 more tables</p>" in html and len(html) < 100_000
    assert str(wide).count("\n") > 112  # print(report) leaves nothing out
