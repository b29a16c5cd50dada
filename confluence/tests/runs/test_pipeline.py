"""`confluence run` builds again what may have changed, and reads only the tables it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import headwater
import pytest

from confluence.cli.main import main
from confluence.runs.pipeline import (
    Database,
    Question,
    build_store,
    read_schema,
    show_open,
    write_metadata,
)


def write(path: Path, script: str) -> str:
    with duckdb.connect(path) as connection:
        connection.execute(script)
    return f"duckdb:///{path}"


def test_a_store_is_built_again_when_its_database_changed(tmp_path: Path) -> None:
    """A DuckDB file was taken for one that is not there, which never changes."""
    said: list[str] = []

    def build(source: str, **selected: list[str]) -> int:
        schema = headwater.infer(source, **selected)
        database = Database(source=source, selected=selected)
        store = build_store(database, schema, tmp_path, say=said.append)
        tables = json.loads(next(store.glob("*/metadata.json")).read_text())["tables"]
        return int(tables[-1]["row_range"][1])

    script = "CREATE TABLE t AS SELECT 1 AS id; CREATE TABLE u AS SELECT 'a' AS v"
    source = write(tmp_path / "d.duckdb", script)
    assert build(source) == 2
    assert build(source) == 2 and "is up to date" in said[-1]
    write(tmp_path / "d.duckdb", "INSERT INTO t VALUES (2)")
    assert build(source) == 3 and "is up to date" not in said[-1]
    assert build(source, tables=["t"]) == 2


def test_a_password_in_the_address_is_not_repeated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "postgresql://ada:s3cret@localhost/shop", "--task", "churn"]
    query = tmp_path / "churn.sql"
    query.write_text("SELECT 1")
    arguments += ["--query", str(query), "--anchor", "t.id", "--target", "x"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 1
    output = capfd.readouterr()
    assert "set PGPASSWORD" in output.err and "s3cret" not in output.out + output.err
    files = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert all("s3cret" not in text for text in files)


@pytest.mark.parametrize(
    "bad",
    [
        {"query": "SELECT id, order FROM order WHERE order IS NOT NULL"},
        {"query": "SELECT 1 AS other"},
        {"query": "SELECT id, v FROM t", "hidden_columns": ["t.gone"]},
        {"seeds": {"train": "gone.csv"}},
    ],
)
def test_a_run_needs_no_task_but_its_own(bad: dict[str, Any], tmp_path: Path) -> None:
    """One drafted task with a parser error in its query stopped the run of every other."""
    source = write(
        tmp_path / "d.duckdb", "CREATE TABLE t AS SELECT range AS id, 7 AS v FROM range(9)"
    )
    document = headwater.infer(source).to_dict()
    whole = {"anchor_table": "t", "target_column": "v", "target_stype": "numerical"}
    document["tasks"] = {"bad": {**whole, **bad}, "v": {**whole, "query": "SELECT id, v FROM t"}}
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(document))
    said: list[str] = []
    schema = read_schema(path, "v", said.append)
    assert said == ["the store is built for v, without the tasks bad"]
    store = build_store(Database(source=source), schema, tmp_path, say=said.append)
    with headwater.Store(store) as opened:
        assert [task["name"] for task in opened.metadata["tasks"]] == ["v"]
    with pytest.raises(headwater.HeadwaterError, match="task 'bad'"):
        headwater.build(source, tmp_path / "all", metadata=path)  # which was asked for both


# ---- what is assumed without metadata --------------------------------------------------------

SHOP = """
    CREATE TABLE orders AS
    SELECT range AS order_id, TIMESTAMP '2024-01-01' + INTERVAL 1 DAY * range AS ordered_at,
           CASE WHEN range % 3 = 0 THEN TIMESTAMP '2024-02-01' + INTERVAL 1 DAY * range END
           AS refunded_at, range % 3 = 0 AS refunded, range % 7 AS score FROM range(90)
"""
QUESTION = Question(
    query="SELECT order_id, ordered_at AS obs_time, score > 3 AS good FROM orders",
    anchor="orders.order_id", target="good", target_type="boolean", obs_time="obs_time",
    label_window=None, split_column=None,
)  # fmt: skip


def inferred(tmp_path: Path, source: str, *, strict: bool = False) -> list[str]:
    said: list[str] = []
    database = Database(source=source, strict=strict)
    path = write_metadata(database, "good", QUESTION, tmp_path, said.append)
    show_open(database, read_schema(path, "good", lambda text: None), path, said.append)
    return said


def test_what_was_assumed_is_said_with_where_to_change_it(tmp_path: Path) -> None:
    """known_at was proposed, and taken, unseen."""
    source = write(tmp_path / "shop.duckdb", SHOP)
    said = "\n".join(inferred(tmp_path, source))
    path = tmp_path / "metadata.json"
    assert "orders.refunded_at: proposal: known_at refunded_at (later than ordered_at" in said
    assert "orders.refunded: proposal: known_at refunded_at (true in the rows" in said
    assert "orders.score: proposal: known_at never (by its name" in said
    assert f"edit {path} and run again with --metadata {path}" in said
    metadata = headwater.Schema.load(path)
    known = {column.name: column.known_at.to_json() for column in metadata.table("orders").columns}
    assert (known["refunded"], known["score"]) == ("refunded_at", "never")  # the safe side
    assert [task.name for task in metadata.tasks][-1] == "good"


def test_a_run_repeats_what_its_task_can_reach(tmp_path: Path) -> None:
    """With a file too, until its lines are removed. A table that nothing leads to is left out, but
    a strict run counts it."""
    far = (
        "CREATE TABLE far AS SELECT range AS far_id, 'none' AS a, range % 5 AS views FROM range(90)"
    )
    source = write(tmp_path / "shop.duckdb", SHOP + ";" + far)
    said = "\n".join(inferred(tmp_path, source))
    assert "no --metadata given; assumed of the 1 table that good can reach (" in said
    assert "far" not in said.replace("far can", "")
    path = tmp_path / "metadata.json"
    database, told = Database(source=source, metadata=path, strict=True), list[str]()
    show_open(database, read_schema(path, "good", lambda text: None), path, told.append)
    assert f"open in {path} of the 1 table that good can reach (" in told[0]
    assert "orders.score: proposal: known_at never (by its name" in told[0]
    document = json.loads(path.read_text())
    for table in document["tables"].values():
        for entry in (table, *table["columns"].values()):
            entry.pop("note", None)
    path.write_text(json.dumps(document))
    told.clear()
    show_open(database, read_schema(path, "good", lambda text: None), path, told.append)
    assert told == []


def test_a_split_without_seeds_is_refused_before_anything_is_trained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All steps were trained, and then "split 'test' of task 'good' has no seeds"."""
    source = write(tmp_path / "shop.duckdb", SHOP)
    query = tmp_path / "good.sql"
    part = "CASE WHEN order_id < 60 THEN 'train' ELSE 'val' END AS part"
    query.write_text(QUESTION.query.replace("SELECT", f"SELECT {part},"))
    asked = ["run", source, "--query", str(query), "--anchor", "orders.order_id"]
    asked += ["--target", "good", "--split-column", "part", "--out", str(tmp_path / "run")]
    assert main([*asked, "--preset", "tiny", "--steps", "1"]) == 1
    assert (
        "task 'good': split 'test' has no seeds to be scored on (train 24 true, 36 false; val 14"
        " true, 16 false; test 0 seeds). Correct the column or the label tables"
    ) in capfd.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("anchor", "message"),
    [
        (
            "orders.score",
            "the anchor of task 'good' must be a primary key or a unique column: 13 rows of"
            " 'orders' have 'score' 5; its primary key is order_id",
        ),
        (
            "orders.order",
            "--anchor orders.order: table 'orders' has no column 'order', did you mean 'order_id'?;"
            " its primary key is order_id: name the query's column so, and use --anchor"
            " orders.order_id",
        ),
        (
            "orders.refunded_at",
            "the query of task 'good' has no column 'refunded_at' (anchor_key), did you mean"
            " 'refunded'?; it has order, score, refunded, obs_time, good",
        ),
    ],
)
def test_an_anchor_that_names_no_row_is_refused(
    anchor: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """--anchor orders.score asked about the orders 0 to 6, and ended with 0."""
    source = write(tmp_path / "shop.duckdb", SHOP)
    query = tmp_path / "good.sql"
    query.write_text(
        'SELECT order_id AS "order", score, refunded, ordered_at AS obs_time, score > 3 AS good'
        " FROM orders"
    )
    asked = ["run", source, "--query", str(query), "--anchor", anchor, "--target", "good"]
    assert main([*asked, "--out", str(tmp_path / "run"), "--preset", "tiny", "--steps", "1"]) == 1
    assert message in capfd.readouterr().err
    assert not (tmp_path / "run" / "store").exists()


def test_a_strict_run_assumes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "shop.duckdb", SHOP)
    query = tmp_path / "good.sql"
    query.write_text(QUESTION.query)
    out = tmp_path / "run"
    arguments = ["run", source, "--query", str(query), "--anchor", "orders.order_id"]
    assert main([*arguments, "--target", "good", "--strict", "--out", str(out)]) == 1
    error = capfd.readouterr().err
    assert "assumptions are made, and the run is strict: edit" in error
    assert (out / "metadata.json").exists() and not (out / "store").exists()


def test_metadata_that_were_edited_in_place_are_kept(tmp_path: Path) -> None:
    """Inferring again overwrote them without a word."""
    source = write(tmp_path / "shop.duckdb", SHOP)
    inferred(tmp_path, source)
    assert "inferred anew" not in "".join(inferred(tmp_path, source))
    path = tmp_path / "metadata.json"
    edited = path.read_text().replace('"refunded_at"', '"never"', 1)
    path.write_text(edited)
    assert "is inferred anew; its old content is in" in "".join(inferred(tmp_path, source))
    assert (tmp_path / "metadata.before.json").read_text() == edited
    said: list[str] = []
    path.write_text(edited)
    write_metadata(
        Database(source=source, metadata=path, strict=True), "good", None, tmp_path, said.append
    )
    assert said == [] and path.read_text() == edited


def test_old_metadata_are_kept_each_in_a_file_of_its_own(tmp_path: Path) -> None:
    """The second edit replaced the first, and what a link led to was written over."""
    source = write(tmp_path / "shop.duckdb", SHOP)
    out = tmp_path / "run"
    out.mkdir()
    path, shared = out / "metadata.json", tmp_path / "shared.json"
    inferred(out, source)
    first, second = (f"{path.read_text()}{' ' * n}" for n in (1, 2))
    shared.write_text(first)
    path.unlink()
    path.symlink_to(shared)
    assert "metadata.before.json" in "".join(inferred(out, source))
    assert shared.read_text() == first and not path.is_symlink()
    for _ in range(2):
        path.write_text(second)
        assert "metadata.before-2.json" in "".join(inferred(out, source))
    kept = {file.name: file.read_text() for file in out.glob("metadata.before*")}
    assert kept == {"metadata.before.json": first, "metadata.before-2.json": second}
    said: list[str] = []  # a question that is added to the file that is given
    path.write_text(second)
    write_metadata(
        Database(source=source, metadata=path, strict=True), "more", QUESTION, out, said.append
    )
    assert "is written anew; its old content is in" in "".join(said)
    assert list(json.loads(path.read_text())["tasks"])[-2:] == ["good", "more"]
    written = path.read_text()
    write_metadata(
        Database(source=source, metadata=path, strict=True), "more", QUESTION, out, said.append
    )
    assert path.read_text() == written and len(said) == 1
