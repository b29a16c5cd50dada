"""Files of results in a run's folder: their names, and which exist.

    evaluation-<split>-rolling.json
    evaluation-<split>-frozen-<time>.json        ... -step-400 if other weights answered,
                                                 -3-runs-<which> if runs answered together,
                                                 -trees-0.5 if that share was asked for
    probe-<task>-<split>-rolling.json            ... of any task of the run's stores
    predictions-<split or "keys">.csv
    trees.json.gz                                (`answers/kept_trees.py`)

The name of an evaluation or a probe has everything in which two of one run differ: the split, the
regime and its time, the averaged runs, a share of trees that was asked for, and the checkpoint if
it was chosen (`find_step`). So none replaces another; only the same evaluation again replaces its
file. Only the last predictions stay. If a run has several tasks, the files of each are in a folder
of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.shared import check_output, read_text, time_us

from confluence.answers.kept_trees import FILE as TREES
from confluence.answers.kept_trees import is_kept
from confluence.answers.prediction_files import is_predictions
from confluence.answers.several_runs import mark
from confluence.data.tasks import SPLITS
from confluence.folder.checkpoint import find_step, saved_steps
from confluence.folder.files import read_json, write_whole
from confluence.scores.scoring import time_name
from confluence.watch.log import FILE, to_json
from confluence.watch.log_events import first_event

EVALUATION, PROBE = "evaluation", "probe"
EVALUATIONS, PROBES = "evaluation-*.json", "probe-*.json"
PREDICTIONS = tuple(f"predictions-{asked}*.csv" for asked in (*SPLITS, "keys"))
RESULTS = (EVALUATIONS, PROBES, *PREDICTIONS, TREES)  # what a run has beside log and checkpoints

Result = dict[str, Any]


def file_stem(kind: str, result: Mapping[str, Any], *, usual_step: int) -> str:
    """The name of a result's file without ".json".

    Args:
        kind: what it begins with.
        usual_step: of the weights that answer by default; results of others have their step.
    """
    parts = [kind, str(result["split"])]
    if "regime" in result:
        parts.append(str(result["regime"]))
    if result.get("visible_until"):
        parts.append(time_name(time_us(result["visible_until"])))
    if "runs" in result:
        parts.append(mark([(Path(run["out"]), run["step"]) for run in result["runs"]]))
    if "chosen" not in result.get("trees", {"chosen": None}):
        parts.append(f"trees-{result['trees']['share']}")
    if result["step"] != usual_step:
        parts.append(f"step-{result['step']}")
    return "-".join(parts)


def write_result(out: Path, folder: Path, kind: str, result: Result) -> Path:
    """Write a result of the run in `out` to its file in `folder`, which is `out` or below it.
    FileExistsError if the file exists and is not a result."""
    usual_step = find_step(out) if saved_steps(out) else result["step"]
    path = folder / f"{file_stem(kind, result, usual_step=usual_step)}.json"
    check_output(path, "the name of the result", is_own=is_result, what="a result of a run")
    folder.mkdir(exist_ok=True)
    write_whole(path, to_json(result) + "\n")
    return path


def is_result(path: Path) -> bool:
    """Whether a run wrote a file that has the name of a result."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.name == TREES:
        return is_kept(path)
    if path.suffix == ".json":
        found = read_json(path)
        return "split" in found and "step" in found
    return is_predictions(path)


def find_results(out: Path, pattern: str) -> list[Path]:
    """Files of the run, and of each of its tasks if it has several, by name."""
    folders = [out, *task_folders(out)]
    return [path for folder in folders for path in sorted(folder.glob(pattern))]


def task_folders(out: Path) -> list[Path]:
    """Folders of the run's tasks, as its log names them; of one task it has none. Other folders in
    a run's, such as those of other runs, are not its own."""
    titles = (first_event(out / FILE) or {}).get("tasks") or ()
    return [task_folder(out, title) for title in titles] if len(titles) > 1 else []


def task_folder(out: Path, title: str) -> Path:
    """Where a run of several tasks keeps the results of one."""
    name = title.replace("/", "--")
    return out / (
        f"_{name}" if name.startswith(".") else name
    )  # no store is built with such a task


def read_results(out: Path, pattern: str = EVALUATIONS) -> list[Result]:
    """The results that a run's folder has, in the order of `find_results`."""
    return [json.loads(read_text(path)) for path in find_results(out, pattern)]
