"""A run replaces and removes nothing that no run wrote, with --overwrite or without."""

from __future__ import annotations

import json
import os
from pathlib import Path

import headwater
import pytest

from confluence.cli.commands import default_out
from confluence.config import preset
from confluence.folder.checkpoint import Keeper
from confluence.folder.files import held
from confluence.report.evaluation_files import task_folder
from confluence.runs.evaluate import Examination
from confluence.runs.pipeline import Database, run_pipeline
from confluence.runs.run_folder import clear_run
from confluence.watch.observer import Observers
from confluence.watch.trackers import KINDS, open_trackers

START = json.dumps({"event": "start", "time": 1.0, "config": {}, "tasks": {"a": 1.0}}) + "\n"


def make(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.jsonl", '{"event": "start", "pid": 7}\n'),
        ("log.jsonl", '{"level": "info"}\n'),
        ("log.jsonl", "not JSON\n"),
        ("evaluation-2020.json", '{"quarter": 3}'),
        ("predictions-test-mine.csv", "id,guess\n1,2\n"),
        ("loss.png", "a picture"),
        ("run.html", "a page"),
        ("sinks.json", "{}"),
        ("checkpoints/4/model.pt", "weights"),
    ],
)
def test_what_looks_like_a_run_s_and_is_not_stops_a_run(
    tmp_path: Path, name: str, text: str, overwrite: bool
) -> None:
    """A foreign log.jsonl was cut to nothing, and with it wandb/ and the like were removed; the
    others were removed or replaced with --overwrite."""
    make(tmp_path, {name: text, "wandb/theirs": "x", "mlflow/theirs": "x", "checkpoint/x.pt": "x"})
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="is not of a run, and a run in"):
        clear_run(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_overwrite_removes_the_run_and_leaves_the_rest(tmp_path: Path) -> None:
    """All of checkpoints/, checkpoint/, wandb/, mlflow/ and tensorboard/ went."""
    theirs = {
        "checkpoints/notes.txt": "x", "checkpoints/4.removed/thesis.txt": "x",
        "checkpoints/old.removed/x": "x", "checkpoint/model.pt": "x", "wandb/theirs": "x",
        "tensorboard/theirs": "x", "metadata.json": "{}", "predictions-mine.csv": "x",
        "old/evaluation-val-rolling.json": "x", "old/log.jsonl": "x", "b--task/notes.txt": "x",
    }  # fmt: skip
    ours = {
        "log.jsonl": START.replace('{"a": 1.0}', '{"a": 1.0, "b/task": 1.0}'), "run.html": "x",
        "loss.png": "x", "checkpoints/4/params/x": "x", "checkpoints/4/_CHECKPOINT_METADATA": "x",
        "checkpoints/5.orbax-checkpoint-tmp/params.orbax-checkpoint-tmp/x": "x",
        "a/evaluation-val-rolling.json": '{"split": "val", "step": 4}',
        "b--task/predictions-test.csv": "id,obs_time,prediction,probability\n",
        "mlflow/mlflow.db": "x", "traces.jsonl": "{}",
        "sinks.json": '{"mlflow": "1", "otel": "2", "made": ["mlflow", "otel"]}',
    }  # fmt: skip
    make(tmp_path, theirs)
    clear_run(tmp_path, overwrite=True)  # here is no run
    assert contents(tmp_path) == theirs
    make(tmp_path, ours)
    with pytest.raises(FileExistsError, match="holds a run: resume it with --resume"):
        clear_run(tmp_path, overwrite=False)
    clear_run(tmp_path, overwrite=True)
    assert contents(tmp_path) == theirs
    assert not (tmp_path / "mlflow").exists()


def test_results_without_a_run_are_replaced_by_no_accident(tmp_path: Path) -> None:
    ours = {"log.jsonl": START, "evaluation-val-rolling.json": '{"split": "val", "step": 4}'}
    make(tmp_path, ours)
    said = r"results of a run that is not there, such as 'evaluation-val-rolling\.json'"
    with pytest.raises(FileExistsError, match=said):
        clear_run(tmp_path, overwrite=False)
    assert contents(tmp_path) == ours


@pytest.mark.parametrize("line", ["", '{"event": "st', START[:40], START])
def test_what_a_run_left_that_was_killed_at_once_goes(tmp_path: Path, line: str) -> None:
    make(tmp_path, {"log.jsonl": line, "checkpoints/1.orbax-checkpoint-tmp/params/x": "x"})
    clear_run(tmp_path, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_with_something_else_in_it_stays(tmp_path: Path) -> None:
    """What a kill had left was told by its name alone, whatever was in it."""
    theirs = {"checkpoints/mine.removed/x": "x", "checkpoints/7.removed/thesis.txt": "x"}
    make(tmp_path, theirs)
    for name in ("8.removed", "9.orbax-checkpoint-tmp"):
        make(tmp_path, {f"checkpoints/{name}/params/x": "x"})
    Keeper(tmp_path)
    assert contents(tmp_path) == theirs


@pytest.mark.parametrize("kind", ["text", "link"])
def test_a_lock_of_others_stays(tmp_path: Path, kind: str) -> None:
    """It was removed when the training ended."""
    victim, lock = tmp_path / "victim", tmp_path / "run" / ".lock"
    lock.parent.mkdir()
    if kind == "link":
        lock.symlink_to(victim)
    else:
        lock.write_text("mine")
    with held(lock.parent):
        pass
    assert os.path.lexists(lock) and not victim.exists()


def test_folders_of_sinks_that_were_there_are_not_a_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quiet:
        run_id = "1"

        def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
            (folder / "wandb").mkdir(exist_ok=True)

        def close(self, how: str) -> None:
            pass

    monkeypatch.setattr("confluence.watch.trackers.KINDS", {**KINDS, "wandb": Quiet})
    monkeypatch.setattr("confluence.watch.trackers.check_installed", lambda names: None)
    for name, others in (("new", False), ("old", True)):
        make(tmp_path / name, {"log.jsonl": START, **({"wandb/theirs": "x"} if others else {})})
        Observers(open_trackers(("wandb",), tmp_path / name, resume_step=None)).close()
        clear_run(tmp_path / name, overwrite=True)
        assert (tmp_path / name / "wandb").exists() == others


def test_a_task_of_a_foreign_store_names_no_folder_above() -> None:
    """Results of a task `..` were written, and removed, in the folder above."""
    assert task_folder(Path("run"), "..") == Path("run/_..")
    assert task_folder(Path("run"), "../x/y") == Path("run/_..--x--y")
    assert task_folder(Path("run"), "shop/churn") == Path("run/shop--churn")
    assert default_out("churn", "rating") == Path("runs/churn-rating")
    for name in ("..", ".", "/tmp/x", "a/../../x"):
        with pytest.raises(ValueError, match=r"a run cannot be called .* with --out"):
            default_out(name)


def test_a_run_reads_no_label_table_outside_of_the_folder_of_its_metadata(tmp_path: Path) -> None:
    task = {"seeds": {"train": "../labels.csv"}}
    make(tmp_path, {"labels.csv": "id,y\n", "own/m.json": json.dumps({"tasks": {"t": task}})})
    with pytest.raises(headwater.TaskError, match="lies outside of"):
        database = Database(source="csv", metadata=tmp_path / "own" / "m.json")
        examination = Examination(split="test")
        run_pipeline(database, "t", tmp_path / "run", preset("tiny"), examination=examination)
