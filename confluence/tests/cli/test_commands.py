"""The command line: exit status, one clear message, settings from the fields of Config."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from confluence.cli.arguments import make_parser
from confluence.cli.commands import Outcome, describe_summary, overrides_of
from confluence.cli.main import main
from confluence.config import PRESETS, Config
from confluence.ranks.stop import TrainingStopped
from confluence.report.tables import (
    describe_answers,
    describe_base_rate,
    describe_evaluation,
)
from confluence.runs.pipeline import Question
from confluence.value_checks import settings_of

if TYPE_CHECKING:
    from confluence.answers.prediction_files import Answers


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


@pytest.mark.parametrize(("logged", "expected"), [({"collective_timeout_s": 5.0}, 5.0), ({}, 600)])
def test_ranks_that_answer_wait_as_long_as_those_that_trained(
    logged: dict[str, Any], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[dict[str, float]] = []

    def joined(_: object, **given: float) -> None:
        limits.append(given)
        raise ValueError("far enough")

    monkeypatch.setattr("confluence.ranks.group.Joined", joined)
    (tmp_path / "log.jsonl").write_text(json.dumps({"event": "start", "config": logged}) + "\n")
    for command in ("evaluate", "predict"):
        assert main([command, str(tmp_path), "--split", "val"]) == 1
    assert main(["evaluate", str(tmp_path / "none")]) == 1  # which loading it would say
    assert [given["collective_timeout_s"] for given in limits] == [expected, expected, 600.0]


def test_a_reader_that_has_seen_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `confluence evaluate RUN | head -1`."""
    readable, writable = os.pipe()
    os.close(readable)
    monkeypatch.setattr(
        "confluence.cli.commands.page_command", lambda _: Outcome({}, ["written", "é"])
    )
    with open(writable, "w", encoding="ascii") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["page", "runs/x"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt("interrupted after step 3 of 9: no model is saved"), 130),
        (TrainingStopped("stopped by SIGTERM after step 3 of 9", signal.SIGTERM), 143),
    ],
)
def test_a_stop_has_the_status_of_its_signal(
    error: KeyboardInterrupt, status: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("confluence.runs.train.train", Mock(side_effect=error))
    assert main(["train", "x.hw", "--task", "t", "--resume"]) == status
    assert capsys.readouterr().err == f"confluence: {error}\n"


PROCESS = """
import atexit, os, signal, sys
from confluence.cli import commands

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

class Held:
    def __del__(self):
        interrupt()

def page(options):
    held = Held() if when == "released" else None
    interrupt()

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
when, sys.argv[1:] = sys.argv[1], ["page", "runs/x"]
commands.page_command = page
if when == "shut down":
    atexit.register(interrupt)
if when == "torn down":
    atexit.register(os.abort)  # as XLA does, if its threads compute
import confluence.__main__
"""


@pytest.mark.parametrize("when", ["released", "shut down", "torn down"])
def test_ctrl_c_once_more_ends_the_process_without_a_word(when: str) -> None:
    """Python printed "Exception ignored in", with a traceback."""
    command = [sys.executable, "-c", PROCESS, when]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "confluence: interrupted\n")


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
    assert found == [None, "best", 40]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "x.hw", "--task", "t", "--devices", "8"], "--devices starts the ranks of one"),
        (["backtest", "x.hw", "--task", "t"], "backtest works in one process and was started as"),
    ],
)
def test_one_of_several_processes_starts_no_more(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Else each node of a cluster would train for itself, in one folder."""
    step = {"STEP_NUM_TASKS": "2", "PROCID": "1", "STEP_NODELIST": "a[1-2]", "JOB_ID": "7"}
    for name, value in {**step, "STEP_ID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert main(arguments) == 1
    assert f"confluence: {says}" in capsys.readouterr().err


def test_ranks_that_cannot_share_a_batch_are_not_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluence.ranks.launch.launch", lambda *_: pytest.fail("started"))
    command = ["train", "x.hw", "--task", "t", "--devices", "3", "--batch-size", "8"]
    assert main(command) == 1
    said = "confluence: batch_size is 8: 3 ranks need a multiple of 3\n"
    assert capsys.readouterr().err == said


def help_of(*arguments: str) -> str:
    """The help of a command, in a process of its own."""
    command = [sys.executable, "-m", "confluence", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return " ".join(done.stdout.split())


def test_help_imports_nothing_large() -> None:
    code = """
import sys
from confluence.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print([n for n in ("jax", "optax", "orbax", "duckdb", "pyarrow") if n in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("[]\n")


def test_help_names_the_sql_of_a_query() -> None:
    """People with PostgreSQL or SQLite wrote that of their database."""
    assert "--query QUERY file with the query of a new task, in DuckDB's SQL" in help_of(
        "run", "--help"
    )


def test_help_shows_what_people_set_and_all_of_it_if_asked() -> None:
    options = {f"--{name.replace('_', '-')} " for name in settings_of(Config)}
    short, long = help_of("train", "--help"), help_of("train", "--help-all")
    assert len([option for option in options if option in short]) <= 25
    assert all(option in long for option in options)
    standard = PRESETS["small"]().max_rows
    rows = f"--max-rows VALUE R, most rows of a context (in [1, 65535]) [{standard}]"
    assert rows in short and rows in long
    weight = "--weight-decay VALUE AdamW, not for norms, biases and temperatures (≥ 0) [0.1]"
    assert weight in long and weight not in short
    assert "which children (recent, uniform) [recent]" in short


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--stepz", "3"], "unrecognized arguments: --stepz 3, did you mean --steps?"),
        (["--steps", "abc"], "argument --steps: invalid int value: 'abc'"),
    ],
)
def test_wrong_usage_is_a_line(
    more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "x.hw", "--task", "t", *more])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("confluence train: error: ") and says in line
    assert line.endswith("(see confluence train --help)")


def test_a_query_is_given_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "select x\nfrom orders"
    monkeypatch.chdir(tmp_path)
    asked = ["run", "none.db", "--query", query, "--anchor", "orders.id", "--target", "x"]
    with pytest.raises(SystemExit):
        main(asked)
    assert "--query takes a file: write the query into one" in capsys.readouterr().err
    (tmp_path / query).write_text(query)  # a file may have such a name
    assert main(asked) == 1
    assert "none.db" in capsys.readouterr().err


def test_a_warning_is_a_line_without_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: Any, **__: Any) -> None:
        warnings.warn("the store was rebuilt", stacklevel=2)
        raise ValueError("no such task")

    monkeypatch.setattr("confluence.runs.train.train", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["train", "x.hw", "--task", "t"]) == 1
    said = ["confluence: warning: the store was rebuilt", "confluence: no such task"]
    assert capsys.readouterr().err.splitlines() == said


def test_steps_are_summed_up_in_a_line() -> None:
    summary = {
        "step_times": {"p50_ms": 104.2, "p99_ms": 181.9}, "wait_share": 0.0012,
        "cells_per_second": 12345.6,
    }  # fmt: skip
    assert describe_summary(summary) == [
        "step 104 ms (p99 182 ms), 0.12% of it waiting for data, 12,346 cells/s"
    ]
    assert describe_summary({}) == []


def scores(auroc: float | None, interval: list[float] | None = None, **more: Any) -> dict[str, Any]:
    found = {"metrics": {"auroc": auroc, "f1": 0.5}, **more}
    return found if interval is None else {**found, "intervals": {"auroc": interval, "f1": None}}


def test_the_summary_is_a_table_of_model_and_baselines() -> None:
    apart = {
        "differences": {"auroc": 0.31, "f1": 0.0},
        "difference_intervals": {"auroc": [0.25, 0.34], "f1": None},
    }
    part = {"scored": 900, "anchors": 90, **scores(0.9, [0.8, 0.95])}
    part["baselines"] = {"per_entity": scores(0.6), "own_columns": scores(None)}
    result = {
        "task": "churn", "split": "test", "regime": "frozen", "visible_until": "2025-01-01",
        "scored": 1200, "anchors": 100, "unlabelled": 30, "null": 0, **scores(0.86, [0.81, 0.9]),
        "baselines": {
            "per_entity": scores(0.55, [0.5, 0.6], fallback_share=0.25, **apart),
            "own_columns": scores(None, missing="LightGBM is not installed"),
        },
        "resampling": {"resamples": 1000, "level": 0.95, "clusters": "anchors", "seed": 0},
        "history": {"with": part},
        "obs_time": [{"from": "2025-02-01T00:00:00", "to": "2025-03-01T00:00:00", **part}],
    }  # fmt: skip
    assert describe_evaluation(result) == [
        "churn on test, frozen at 2025-01-01, 1,200 seeds of 100 anchors scored,"
        " 30 without a label not",
        "                                        auroc     model's auroc less this      f1",
        "  model               0.8600 [0.8100, 0.9000]                              0.5000",
        "  per entity          0.5500 [0.5000, 0.6000]  +0.3100 [+0.2500, +0.3400]  0.5000",
        "  trees, own columns                        -                              0.5000",
        "  per entity falls back to the global constant for 25% of the seeds",
        "  [low, high]: 95% intervals of 1,000 draws of anchors; differences on the same draws",
        "  no boosted trees: LightGBM is not installed",
        "",
        "                            seeds  anchors       auroc of the model  per entity"
        "  trees, own columns",
        "  with history                900       90  0.9000 [0.8000, 0.9500]      0.6000"
        "                   -",
        "  2025-02-01 to 2025-03-01    900       90  0.9000 [0.8000, 0.9500]      0.6000"
        "                   -",
    ]


@pytest.mark.parametrize(
    ("true", "called", "line"),
    [
        (50, 0, "4.2% of the 1,200 test seeds are true; no row is called true, as no probability is"
                " above 0.5"),
        (119, 3, "9.9% of the 1,200 test seeds are true"),
        (0, 1, "0.0% of the 1,200 test seeds are true"),
        (120, 0, None),
    ],
)  # fmt: skip
def test_a_base_rate_under_a_tenth_is_named(true: int, called: int, line: str | None) -> None:
    result = {"split": "test", "scored": 1200, "true": true, "called_true": called}
    assert describe_base_rate(result) == ([] if line is None else [line])
    assert describe_base_rate({"split": "test", "scored": 1200}) == []  # of numbers


def test_a_base_rate_is_among_the_notes_of_the_table() -> None:
    result = {
        "task": "churn", "split": "test", "regime": "rolling", "visible_until": None,
        "scored": 1200, "anchors": 100, "unlabelled": 0, "null": 0, "true": 50, "called_true": 9,
        **scores(0.86), "baselines": {"per_entity": scores(0.55, fallback_share=0.25)},
    }  # fmt: skip
    assert "  4.2% of the 1,200 test seeds are true" in describe_evaluation(result)


class Sure(list[dict[str, Any]]):
    """Answers that are not of a store."""

    def columns(self, start: int, stop: int) -> dict[str, list[Any]]:
        return {name: [row[name] for row in self[start:stop]] for name in self[0]}


def test_the_first_predictions_are_a_table_and_keys_are_spelled_out() -> None:
    keys: list[Any] = ["Ulm\n\x1b[2J", "Ü" * 70, *range(2, 23)]
    answers = Sure(
        {"key": key, "obs_time": "2024-05-01T00:00:00", "prediction": place == 0,
         "probability": 1 / (place + 1)}
        for place, key in enumerate(keys)
    )  # fmt: skip
    lines = describe_answers(cast("Answers", answers))
    assert len(lines) == 1 + 20 + 1 and lines[-1] == "  and 3 more"
    assert [lines[place].split() for place in (0, 1, 2, 3)] == [
        ["key", "obs_time", "prediction", "probability"],
        ["Ulm\\n\\x1b[2J", "2024-05-01", "true", "1"],
        ["Ü" * 60 + "...", "2024-05-01", "false", "0.5000"],
        ["2", "2024-05-01", "false", "0.3333"],
    ]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert len(describe_answers(cast("Answers", Sure(answers[:20])))) == 21


def test_every_setting_is_an_option() -> None:
    arguments = ["train", "x.hw", "--task", "t", "--max-hops", "none", "--width", "64"]
    arguments += ["--split-ratios", "0.5,0.25,0.25", "--child-counts", "true"]
    options = make_parser().parse_args(arguments)
    assert overrides_of(options) == {
        "max_hops": None, "width": 64, "split_ratios": (0.5, 0.25, 0.25), "child_counts": True,
    }  # fmt: skip


def test_what_is_true_or_false_needs_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/notebook/rel-f1.md says `--child-counts`, which was an error."""
    arguments = ["train", "x.hw", "--task", "t", "--child-counts", "--train-on-val", "false"]
    options = make_parser().parse_args(arguments)
    assert overrides_of(options) == {"child_counts": True, "train_on_val": False}
    with pytest.raises(SystemExit):
        make_parser().parse_args(["train", "--task", "t", "--child-counts", "x.hw"])
    assert "'x.hw' is neither true nor false; write an argument that" in capsys.readouterr().err


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


def test_the_version_is_that_of_both_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    versions = [importlib.metadata.version(name) for name in ("confluence", "headwater")]
    assert capsys.readouterr().out == "confluence {}, headwater {}\n".format(*versions)
