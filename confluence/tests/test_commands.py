"""The command line: exit status, one clear message, settings from the fields of Config."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from confluence.cli import _overrides, describe_evaluation, describe_summary, main, make_parser
from confluence.pipeline import Question
from confluence.stop import TrainingStopped


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "sqlite:///shop.db"]
    for arguments in (
        [], ["train"], ["fly"], ["predict", "runs/x"],
        ["train", "x.hw", "--task", "t", "--preset", "huge"],
        run, [*run, "--task", "churn"], [*run, "--query", "churn.sql", "--target", "churned"],
    ):  # fmt: skip
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


def test_ctrl_c_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt("interrupted after step 3 of 9: no model is saved")

    monkeypatch.setattr("confluence.run.train", interrupted)
    assert main(["train", "x.hw", "--task", "t"]) == 130
    assert capsys.readouterr().err == (
        "confluence: interrupted after step 3 of 9: no model is saved\n"
    )


def test_sigterm_exits_with_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise TrainingStopped("stopped by SIGTERM after step 3 of 9", signal.SIGTERM)

    monkeypatch.setattr("confluence.run.train", stopped)
    assert main(["train", "x.hw", "--task", "t", "--resume"]) == 143
    assert capsys.readouterr().err == "confluence: stopped by SIGTERM after step 3 of 9\n"


def test_resume_and_overwrite_exclude_each_other_and_a_checkpoint_is_a_word_or_a_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (
        ["train", "x.hw", "--task", "t", "--resume", "--overwrite"],
        ["evaluate", "runs/x", "--checkpoint", "first"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "'first' is neither last, best nor a step" in capsys.readouterr().err
    found = [
        make_parser().parse_args(["predict", "runs/x", "--split", "val", *more]).checkpoint
        for more in ([], ["--checkpoint", "best"], ["--checkpoint", "40"])
    ]
    assert found == ["last", "best", 40]


def test_steps_are_summed_up_in_a_line() -> None:
    summary = {
        "step_times": {"p50_ms": 104.2, "p99_ms": 181.9}, "wait_share": 0.0012,
        "cells_per_second": 12345.6,
    }  # fmt: skip
    assert describe_summary(summary) == [
        "step 104 ms (p99 182 ms), 0.12% of it waiting for data, 12,346 cells/s"
    ]
    assert describe_summary({}) == []


def test_the_summary_is_a_table_of_model_and_baselines() -> None:
    result = {
        "task": "churn", "split": "test", "regime": "rolling", "visible_until": None,
        "scored": 1200, "metrics": {"auroc": 0.86},
        "baselines": {
            "global_constant": {"metrics": {"auroc": 0.5}},
            "per_entity": {"metrics": {"auroc": 0.55}, "fallback_share": 0.25},
            "own_columns": {"metrics": {"auroc": None}, "missing": "LightGBM is not installed"},
        },
    }  # fmt: skip
    lines = describe_evaluation(result)
    assert lines[0] == "churn on test, rolling, 1,200 seeds scored"
    assert [line.split() for line in lines[1:6]] == [
        ["auroc"],
        ["model", "0.8600"],
        ["global", "constant", "0.5000"],
        ["per", "entity", "0.5500"],
        ["boosted", "trees", "on", "the", "anchor's", "own", "columns", "-"],
    ]
    assert lines[-1] == "  no boosted trees: LightGBM is not installed"


def test_every_setting_is_an_option() -> None:
    arguments = ["train", "x.hw", "--task", "t", "--max-hops", "none", "--width", "64"]
    arguments += ["--split-ratios", "0.5,0.25,0.25", "--clamp", "false"]
    options = make_parser().parse_args(arguments)
    assert _overrides(options) == {
        "max_hops": None, "width": 64, "split_ratios": (0.5, 0.25, 0.25), "clamp": False,
    }  # fmt: skip


def question(**changes: str | None) -> Question:
    fields: dict[str, str | None] = {
        "query": "SELECT customer_id, obs_time, churned FROM labels",
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
