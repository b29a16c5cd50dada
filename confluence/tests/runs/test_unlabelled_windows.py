"""Seeds whose label window ends after the data: named where they are missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import headwater
import pytest

import confluence
from confluence.data.tasks import TaskError
from confluence.report.tables import describe_evaluation

SAID = (
    "20 seeds of task busy, asked from 2020-03-01 on, are not labelled, as their label window of 10"
    " days ends after the last day of visits (data until 2020-03-02)"
)


def build(folder: Path, parts: str) -> Path:
    """Twenty people, who are asked about on 10 January, 10 February and 1 March.

    parts: SQL of the split of a time `asked`.
    """
    with duckdb.connect(folder / "people.duckdb") as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT range AS id, range % 3 AS x FROM range(20)"
        )
        connection.execute(
            "CREATE TABLE visits AS SELECT range AS id, range * 7 % 20 AS person, "
            "TIMESTAMP '2020-01-01' + INTERVAL (range) DAY AS came FROM range(61)"
        )
    query = (
        "SELECT p.id, asked, EXISTS (SELECT 1 FROM visits v WHERE v.person = p.id AND v.came > "
        f"asked AND v.came <= asked + INTERVAL 10 DAY) AS busy, {parts} AS part FROM people p, "
        "(SELECT unnest([DATE '2020-01-10', DATE '2020-02-10', DATE '2020-03-01']) AS asked)"
    )
    identifier = {"stype": "identifier"}
    person = {**identifier, "foreign_key": "people.id"}
    document: dict[str, Any] = {
        "name": "people",
        "tables": {
            "people": {
                "primary_key": "id", "columns": {"id": identifier, "x": {"stype": "numerical"}},
            },
            "visits": {
                "primary_key": "id", "temporal_column": "came",
                "columns": {"id": identifier, "person": person, "came": {"stype": "timestamp"}},
            },
        },
        "tasks": {
            "busy": {
                "query": query, "anchor_table": "people", "target_column": "busy",
                "target_stype": "boolean", "observation_time_column": "asked",
                "label_window": "10 days", "split_column": "part",
            }
        },
    }  # fmt: skip
    headwater.build(f"duckdb:///{folder / 'people.duckdb'}", folder / "store", metadata=document)
    return folder / "store"


def test_an_evaluation_names_the_seeds_that_could_not_be_labelled(tmp_path: Path) -> None:
    store = build(tmp_path, "if(asked < DATE '2020-02-01', 'train', 'test')")
    run = confluence.train(
        store, task="busy", out=tmp_path / "run", preset="tiny", steps=1, trees=False
    )
    result = run.evaluate("test", trees=False, resamples=0)
    assert (result["scored"], result["unlabelled"]) == (20, 20)
    assert result["open_windows"].startswith(SAID)
    assert SAID in "\n".join(describe_evaluation(result))
    assert "not labelled, as their label window" in (tmp_path / "run" / "run.html").read_text()
    assert "open_windows" not in run.evaluate("train", trees=False, resamples=0)


def test_a_split_that_could_not_be_labelled_says_why(tmp_path: Path) -> None:
    store = build(tmp_path, "if(asked < DATE '2020-03-01', 'test', 'train')")
    with pytest.raises(TaskError) as caught:
        confluence.train(store, task="busy", out=tmp_path / "run", preset="tiny", steps=1)
    assert "no seed of split 'train' has a label to learn from" in str(caught.value)
    assert SAID in str(caught.value)
