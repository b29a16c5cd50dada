"""Only regular files are read, and nothing is replaced that a command did not write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from confluence.cli.arguments import make_parser
from confluence.cli.main import main
from confluence.folder.files import build_at, read_json
from confluence.report.evaluation_files import read_results, write_result
from confluence.report.page import HEAD, write_page
from confluence.watch.log import Log

PIPE = "a named pipe, not a file"
START = '{"event": "start", "time": 1.0, "config": {}, "tasks": {"churn": 1.0}}\n'

READ = {"--query", "--metadata", "--seeds-dir", "--prebatched", "--run", "--keys-file", "run"}
WRITTEN = {  # outputs of commands, each with the test that it does not replace another file
    "run --out": "here, tests/folder/test_overwrite.py and tests/runs/test_pipeline.py",
    "train --out": "tests/folder/test_overwrite.py",
    "pretrain --out": "tests/folder/test_overwrite.py",
    "prebatch --out": "here and tests/data/test_unfinished.py",
    "backtest --out": "here",
    "predict --output": "tests/answers/test_predictions.py",
}
INTO_FOLDERS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "run": (
        "built.json",
        lambda out: ["run", "sqlite:///q.db", "--metadata", "m.json", "--task", "t", "--out", out],
    ),
    "prebatch": ("batches-0.bin", lambda out: ["prebatch", "s", "--task", "t", "--out", out]),
    "backtest": ("backtest.json", lambda out: ["backtest", "s", "--task", "t", "--out", out]),
    "page": ("run.html", lambda out: ["page", out]),
}


def test_every_option_that_names_a_path_is_known_to_be_read_or_written() -> None:
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    written = {
        f"{name} {option.option_strings[0]}"
        for name, command in commands.choices.items()
        for option in command._actions
        if option.type is Path and option.metavar != "run"
        if (option.option_strings or [option.dest])[0] not in READ
    }
    assert written == set(WRITTEN)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder)), path.read_bytes() if path.is_file() else b""


@pytest.mark.parametrize("command", INTO_FOLDERS)
def test_a_folder_with_a_file_of_another_is_left_as_it_is(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """run.html and built.json were replaced."""
    name, arguments = INTO_FOLDERS[command]
    (tmp_path / name).write_text("{}")
    (tmp_path / "log.jsonl").write_text(START)
    before = list(contents(tmp_path))
    assert main(arguments(str(tmp_path))) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert list(contents(tmp_path)) == before


def test_a_page_replaces_a_page_alone(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(START)
    page = write_page(tmp_path)
    assert page.read_text(encoding="utf-8").startswith(HEAD)
    assert write_page(tmp_path) == page
    page.write_text("mine")
    with pytest.raises(FileExistsError, match=r"run\.html' exists already and is not the page of"):
        write_page(tmp_path)
    assert page.read_text() == "mine"


def test_a_result_replaces_a_result_alone(tmp_path: Path) -> None:
    result: dict[str, Any] = {"split": "val", "regime": "rolling", "step": 4, "loss": 0.5}
    path = write_result(tmp_path, tmp_path, "evaluation", result)
    assert write_result(tmp_path, tmp_path, "evaluation", {**result, "loss": 0.25}) == path
    path.write_text('{"quarter": 3}')
    with pytest.raises(FileExistsError, match="exists already and is not a result of a run"):
        write_result(tmp_path, tmp_path, "evaluation", result)
    assert path.read_text() == '{"quarter": 3}'


@pytest.mark.parametrize("option", ["--query", "--metadata"])
def test_a_pipe_in_place_of_an_input_of_a_run_is_named(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was waited for."""
    os.mkfifo(tmp_path / "pipe")
    given = ["--anchor", "a.b", "--target", "x"] if option == "--query" else ["--task", "x"]
    command = ["run", "sqlite:///q.db", option, str(tmp_path / "pipe"), *given]
    assert main([*command, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert PIPE in error and str(tmp_path / "pipe") in error


def test_a_folder_of_a_run_holds_no_pipe_that_is_waited_for(tmp_path: Path) -> None:
    for name in ("manifest.json", "evaluation-val-rolling.json", "log.jsonl"):
        os.mkfifo(tmp_path / name)
    assert build_at(tmp_path) is None
    assert read_json(tmp_path / "evaluation-val-rolling.json") == {}
    with pytest.raises(OSError, match=PIPE):
        read_results(tmp_path)
    for losses in ([], [0.5]):  # a run that begins, and one that resumes
        with pytest.raises(OSError, match=PIPE):
            Log(tmp_path, steps=4, every=2, contexts_per_step=8, losses=losses)
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").write_text(START)
    assert "evaluation-val-rolling.json cannot be read" in write_page(tmp_path).read_text("utf-8")
