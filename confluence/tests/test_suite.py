"""The suite: its pairs, its parts, and how a row is made of evaluations."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest

from confluence.answers.kept_trees import TreeShare

SUITE = Path(__file__).resolve().parents[2] / "suite"
DATA = SUITE.parents[1] / "shared" / "data"
NO_MORE = {"order", "score", "top3"}  # test seeds, in these databases
sys.path.insert(0, str(SUITE))
import ask_suite  # noqa: E402
import suite_sources  # noqa: E402
import try_settings  # noqa: E402

# ---- pairs


def roll_calls(path: Path) -> None:
    """Of two roll calls: ten say yes and three do not; one says yes and all others do not."""
    votes = [(1, f"c{k}", "yes" if k < 10 else "no") for k in range(13)]
    votes += [(2, f"c{k}", "yes" if k == 0 else "abstain") for k in range(13)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE un_votes (rcid INTEGER, country TEXT, vote TEXT)")
        connection.executemany("INSERT INTO un_votes VALUES (?, ?, ?)", votes)
        connection.commit()


def test_pairs_are_of_a_yes_and_another_and_the_same_each_time(tmp_path: Path) -> None:
    roll_calls(tmp_path / "unvotes.sqlite")
    found = []
    for name in ("a", "b"):
        suite_sources.extend(tmp_path / "unvotes.sqlite", tmp_path / name)
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            found.append(connection.execute("SELECT rcid, first, second FROM duels").fetchall())
    assert found[0] == found[1]
    yes = {(1, f"c{k}") for k in range(10)} | {(2, "c0")}
    assert [rcid for rcid, _, _ in found[0]] == [1, 1, 1, 2]  # no more than can be paired
    assert all(((r, a) in yes) != ((r, b) in yes) for r, a, b in found[0])
    assert len({side for r, *sides in found[0] for side in sides if r == 1}) == 6


def test_a_pair_has_either_side_first_about_as_often() -> None:
    turned = [suite_sources.digest(f"{k}") % 2 for k in range(1000)]
    assert 450 < sum(turned) < 550


def test_an_interrupted_copy_is_made_again(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite_sources.made(tmp_path / "x" / "copy", fails)
    made = suite_sources.made(tmp_path / "x" / "copy", lambda path: path.write_text("whole"))
    assert made.read_text() == "whole"


# ---- rows


def result(metric: str, score: float, trees: float, **more: Any) -> dict[str, Any]:
    beside = {"metrics": {metric: trees}, **more}
    others = {"metrics": {metric: 0.5}}
    return {
        "metrics": {metric: score}, "verdict": {"text": "said"},
        "baselines": {"global_constant": others, "per_entity": others, "history": beside},
    }  # fmt: skip


def test_a_row_has_the_score_of_each_that_answers() -> None:
    alone = {"metrics": {"auroc": 0.6}}
    mixed = result("auroc", 0.72, 0.69)
    mixed["baselines"]["model_alone"] = alone
    chosen = TreeShare(share=0.25, metric="auroc", by_share={0.0: 0.6, 0.25: 0.72})
    row = ask_suite.on_val(mixed, chosen)
    assert (row["share"], row["both"], row["model"], row["trees"]) == (0.25, 0.72, 0.6, 0.69)
    row = ask_suite.on_val(result("auroc", 0.72, 0.69), TreeShare(share=0.0))
    assert (row["both"], row["model"]) == (0.72, 0.72)  # the answer is the model's


@pytest.mark.parametrize(
    ("metric", "trees", "interval", "won"),
    [
        ("auroc", 0.7, [0.01, 0.05], "both"),
        ("auroc", 0.7, [-0.05, -0.01], "trees"),
        ("auroc", 0.7, [-0.03, 0.03], "tie"),
        ("auroc", 0.7, [-0.04, 0.03], "not told apart"),
        ("mae", 2.0, [-0.3, -0.1], "both"),  # a smaller error
        ("mae", 2.0, [-0.1, 0.1], "tie"),
        ("mae", 1.9, [-0.1, 0.1], "not told apart"),
    ],
)
def test_who_won(metric: str, trees: float, interval: list[float], won: str) -> None:
    differences = {"differences": {metric: 0.0}, "difference_intervals": {metric: interval}}
    mixed = result(metric, 0.5, trees, **differences)
    mixed["baselines"]["recorded"] = mixed["baselines"]["history"]
    test = ask_suite.on_test(mixed, mixed)
    assert test["recorded"]["trees"] == trees
    row = {
        "question": "q", "metric": metric, "share": 0.5, "seeds": {"val": 1, "test": 2},
        "steps": 1, "seconds": 1.0, "alive_share": 1.0, "test": test,
    }  # fmt: skip
    assert ask_suite.line_of(row)[8] == won
    assert ask_suite.line_of(row)[10] == ask_suite.line_of(row)[9] != ""


# ---- questions


def test_each_question_has_its_metadata_and_is_described() -> None:
    named = {(question.database, question.name) for question in ask_suite.QUESTIONS}
    found = {
        (path.stem, task)
        for path in (SUITE / "metadata").glob("*.json")
        for task in json.loads(path.read_text("utf-8"))["tasks"]
    }
    assert found == named
    described = (SUITE / "README.md").read_text("utf-8")
    assert all(f"| {name} | {database} |" in described for database, name in named)


def test_settings_that_were_tried_are_rows_of_a_table() -> None:
    """A column for each question; a setting of several values is the same one when it is read."""
    row = {"question": "late", "settings": {"staleness": (0.5, 30.0)}, "seed": 42, "score": 0.6}
    read = json.loads(json.dumps(row))
    assert try_settings.key_of(row) == try_settings.key_of(read)
    other = {**row, "question": "duel", "settings": {"steps": 600}, "score": 0.5}
    lines = [line.split() for line in try_settings.table([read, other])]
    assert lines[0] == ["settings", "duel", "late"]
    assert lines[1][-1] == "0.6000" and "staleness=[0.5," in lines[1]
    assert lines[2] == ["steps=600", "seed=42", "0.5000"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the databases of the suite are not here")
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(found, id=found.name, marks=[pytest.mark.release] * (place > 2))
        for place, found in enumerate(ask_suite.QUESTIONS)
    ],
)
def test_parts_are_apart_in_time_and_large_enough(
    question: ask_suite.Question, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.getbasetemp() / "suite"
    store, seeds = ask_suite.store_of(question, DATA, work)  # audited
    row = f"{seeds['train']:,} / {seeds['val']:,} / {seeds['test']:,} |"
    (line,) = [
        line for line in (SUITE / "README.md").read_text("utf-8").splitlines()
        if line.startswith(f"| {question.name} |")
    ]  # fmt: skip
    assert line.endswith(row)
    assert seeds["test"] >= 700 or question.name in NO_MORE
    with headwater.Store(store) as opened:
        found = opened.task_seeds(question.name)
    known = found.get("label_time", found["obs_time"])
    for part, following in ((0, 1), (1, 2)):
        last = known[found["split"] == part].max()
        assert last <= found["obs_time"][found["split"] == following].min(), "a window reaches over"
    assert np.all(found["obs_time"] < 2**63 - 1)
