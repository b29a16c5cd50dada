"""Building again after the source has changed: what is embedded, and what the summary says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from databases import TinyDatabase, arrow_tables, asked, bookstore, bookstore_metadata, write_csv
from fake_endpoint import FakeEndpoint
from headwater import Store, build
from headwater.cli.main import main

pytestmark = pytest.mark.usefixtures("no_surroundings")


def with_task() -> dict[str, Any]:
    query = "SELECT book_id, sold_at AS obs_time, copies > 1 AS many FROM sales"
    task = asked(query, "books", "many boolean", "obs_time")
    return {**bookstore_metadata(), "tasks": {"reprint": task}}


def grown() -> TinyDatabase:
    """The bookstore a month later: one author, two sales, one of them with a new note."""
    database = dict(bookstore())
    authors, sales = database["authors"], database["sales"]
    database["authors"] = replace(authors, rows=[*authors.rows, (5, "Dee", 1)])
    later = datetime(2020, 7, 1)
    more = [("a", 3, 10, later, 2, "gift"), ("a", 4, 12, later, 1, "late")]
    database["sales"] = replace(sales, rows=[*sales.rows, *more])
    return database


def test_the_summary_says_what_changed(tmp_path: Path) -> None:
    out = tmp_path / "s"
    first = build(arrow_tables(bookstore()), out, with_task())
    assert first.changes is None and "since the last build" not in str(first)
    report = build(arrow_tables(grown()), out, with_task())
    assert report.changes is not None
    assert report.changes["rows"] == {
        "authors": {"before": 4, "after": 5},
        "sales": {"before": 5, "after": 7},
    }
    assert report.changes["texts"] == {"before": 7, "after": 9, "new": 2}
    assert list(report.changes["seeds"]) == ["reprint"]
    lines = str(report).splitlines()
    at = lines.index("since the last build (4):")
    assert lines[at + 1 : at + 4] == [
        "  authors: 4 to 5 rows (+1)",
        "  sales: 5 to 7 rows (+2)",
        "  texts: 7 to 9, 2 of them new",
    ]
    assert lines[at + 4].startswith("  seeds of reprint: ")
    same = build(arrow_tables(grown()), out, with_task())
    assert "since the last build: no row, column, text or seed count changed" in str(same)


def test_tables_columns_types_and_tasks_that_come_and_go_are_named(tmp_path: Path) -> None:
    out, document = tmp_path / "s", with_task()
    database = dict(bookstore())
    build(arrow_tables(database), out, document)
    del database["sales"], document["tables"]["sales"], document["tasks"]
    columns = document["tables"]["books"]["columns"]
    books = database["books"]
    database["books"] = replace(
        books,
        types={**books.types, "pages": "INTEGER"},
        rows=[(*row, 100) for row in books.rows],
    )
    columns["pages"] = {"stype": "numerical"}
    columns["genre"] = {"stype": "text"}
    columns["in_print"] = {"stype": "ignored"}
    document["tables"]["shops"] = {"columns": {"city": {"stype": "text"}}}
    database["shops"] = replace(books, types={"city": "TEXT"}, rows=[("Rome",)])
    report = build(arrow_tables(database), out, document)
    text = str(report)
    for line in (
        "table shops added",
        "table sales removed",
        "column books.pages added",
        "column books.genre is text, was categorical",
        "column books.in_print is ignored, was boolean",
        "task reprint removed",
    ):
        assert f"  {line}\n" in text, line


def test_only_new_texts_are_embedded(tmp_path: Path) -> None:
    out = tmp_path / "s"
    with FakeEndpoint() as server:
        options: dict[str, Any] = {"embedder": f"openai:m@{server.url}", "cache": tmp_path / "c"}
        build(arrow_tables(bookstore()), out, with_task(), **options)
        before = {text: vector.tobytes() for text, vector in vectors(out).items()}
        asked = len(server.bodies)
        report = build(arrow_tables(grown()), out, with_task(), **options)
        texts = [text for body in server.bodies[asked:] for text in body["input"]]
    assert sorted(texts) == ["Dee", "late"]
    assert (report.embedding["embedded"], report.embedding["cached"]) == (2, 26)
    after = vectors(out)
    assert all(after[text].tobytes() == data for text, data in before.items())
    assert "vectors: 2 embedded, 26 from the cache" in str(report)


def vectors(path: Path) -> dict[str, Any]:
    store = Store(path)
    rows = np.asarray(store.core.vectors(0))
    return {store.core.text(i): np.array(row) for i, row in enumerate(rows)}


def test_a_damaged_store_is_replaced_and_not_compared_with(tmp_path: Path) -> None:
    out = tmp_path / "s"
    report = build(arrow_tables(bookstore()), out, with_task())
    file = out / report.fingerprint / "metadata.json"
    file.write_text('{"name": "something"' + " " * (file.stat().st_size - 21) + "}")
    again = build(arrow_tables(bookstore()), out, with_task())
    assert again.changes is None and again.fingerprint == report.fingerprint
    assert Store(out).verify() == []


def test_the_command_builds_again_and_runs_dry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_csv(tmp_path / "csv", bookstore())
    (tmp_path / "m.json").write_text(json.dumps(bookstore_metadata()))
    command = ["build", source, str(tmp_path / "s"), "--metadata", str(tmp_path / "m.json")]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] is None
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["changes"]["texts"] == {"before": 7, "after": 7, "new": 0}
    with FakeEndpoint() as server:
        more = ["--embedder", f"openai:m@{server.url}", "--embedder-option", "batch_texts=5"]
        assert main([*command, *more, "--dry-run", "--texts", str(tmp_path / "t.parquet")]) == 0
        assert server.bodies == []
    out = capsys.readouterr().out
    assert "7 distinct texts, 17 columns and categories" in out
    assert "requests" in out and (tmp_path / "t.parquet").exists()
    for wrong, message in (
        (["build", source], "or --dry-run is needed"),
        ([*command, "--texts", "t.parquet"], "--texts needs --dry-run"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2 and message in capsys.readouterr().err
    assert main([*command, "--embedder-option", "x"]) == 1
    assert "expected NAME=VALUE" in capsys.readouterr().err
