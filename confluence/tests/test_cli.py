"""The command line: exit status, one clear message, settings from the fields of Config."""

from __future__ import annotations

from pathlib import Path

import pytest

from confluence.cli import _overrides, main, make_parser
from confluence.pipeline import Question


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["train"], ["fly"], ["predict", "runs/x"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    capsys.readouterr()


def test_bad_input_exits_with_1_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("confluence: no checkpoint in")
    assert error.count("\n") == 1
    assert main(["train", "x.hw", "--task", "t", "--steps", "0"]) == 1
    assert "steps is 0, must be ≥ 1" in capsys.readouterr().err


def test_every_setting_is_an_option() -> None:
    arguments = ["train", "x.hw", "--task", "t", "--max-hops", "none", "--width", "64"]
    arguments += ["--split-ratios", "0.5,0.25,0.25", "--clamp", "false"]
    options = make_parser().parse_args(arguments)
    assert _overrides(options) == {
        "max_hops": None, "width": 64, "split_ratios": (0.5, 0.25, 0.25), "clamp": False,
    }  # fmt: skip


def question(**changes: str | None) -> Question:
    fields: dict[str, str | None] = {
        "name": "churned", "query": "SELECT customer_id, obs_time, churned FROM labels",
        "anchor": "customers.customer_id", "target": "churned", "target_type": "boolean",
        "obs_time": None, "label_window": None, "split_column": None,
    }  # fmt: skip
    return Question(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_question_becomes_a_task_of_the_metadata() -> None:
    task = question().to_task()
    assert task["anchor_table"] == "customers"
    assert task["anchor_key"] == "customer_id"
    assert task["observation_time_column"] == "obs_time"
    assert "label_window" not in task
    assert "observation_time_column" not in question(query="SELECT 1").to_task()
    assert question(anchor="a.b.x,y").to_task()["anchor_key"] == ["x", "y"]
    with pytest.raises(ValueError, match=r"expected 'table\.column'"):
        question(anchor="customers").to_task()
