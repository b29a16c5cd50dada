"""`confluence run` builds again what may have changed, and reads only the tables it is told."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import headwater
import pytest

from confluence.cli import main
from confluence.pipeline import build_store


def write(path: Path, script: str) -> str:
    with duckdb.connect(path) as connection:
        connection.execute(script)
    return f"duckdb:///{path}"


def test_a_store_is_built_again_when_its_database_changed(tmp_path: Path) -> None:
    """A DuckDB file was taken for one that is not there, which never changes."""
    said: list[str] = []

    def build(source: str, **selected: list[str]) -> int:
        headwater.infer(source, **selected).save(tmp_path / "metadata.json")
        store = build_store(
            source, tmp_path / "metadata.json", tmp_path, seeds_dir=None, selected=selected,
            say=said.append,
        )  # fmt: skip
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
