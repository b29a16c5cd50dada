"""Prepares the folder of a run for a training: removes old results, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluence.folder import checkpoint
from confluence.report.evaluation_files import RESULTS, find_results, is_result
from confluence.report.page import PAGE
from confluence.training.warm_start import check_start
from confluence.watch.log import FILE
from confluence.watch.log_events import is_log
from confluence.watch.trackers import NAMES_FILE, own_places


def check(folder: Path, record: dict[str, Any], done: int | None, *, overwrite: bool) -> None:
    """Raise unless the run in a folder can resume at a step; None: unless a new one can be."""
    if done is not None:
        checkpoint.check_resume(folder, checkpoint.load_record(folder, done), record)
        return
    if start := record["config"]["init_from"]:
        check_start(Path(start), record, folder)
    _left(folder, overwrite=overwrite)


def prepare(folder: Path, record: dict[str, Any], done: int | None, *, overwrite: bool) -> None:
    """Check that the run in a folder can resume at a step; None: empty the folder for a new one."""
    check(folder, record, done, overwrite=overwrite)
    if done is not None:
        checkpoint.set_aside(folder, done)
    else:
        clear_run(folder, overwrite=overwrite)


def clear_run(folder: Path, *, overwrite: bool) -> None:
    """Remove what an earlier run left in its folder, so that no result of it seems to be new.

    Without `overwrite` only the files of a run that ended before its first checkpoint. Files that
    runs do not write stay, and so do other runs in folders below. A file that a run would replace,
    and that runs did not write, is an error, with `overwrite` too.
    """
    results, is_saved = _left(folder, overwrite=overwrite)
    if not (is_saved or results or (folder / FILE).exists()):
        return
    trackers = own_places(folder)
    for path in (*results, folder / PAGE, folder / "loss.png", folder / FILE, folder / NAMES_FILE):
        path.unlink(missing_ok=True)
    for path in trackers:
        remove = shutil.rmtree if path.is_dir() else os.unlink
        remove(path)
    checkpoint.remove_all(folder)


def _left(folder: Path, *, overwrite: bool) -> tuple[list[Path], bool]:
    """The results of an earlier run, and whether it has checkpoints; raises unless that may go."""
    results = [path for name in RESULTS for path in find_results(folder, name)]
    is_saved = bool(checkpoint.saved_steps(folder))
    check_own(folder, results, is_run=is_saved)
    if not overwrite and is_saved:
        raise FileExistsError(
            f"'{folder}' holds a run: resume it with --resume, replace it with --overwrite, or"
            " choose another folder"
        )
    if not overwrite and results:
        raise FileExistsError(
            f"'{folder}' holds results of a run that is not there, such as"
            f" '{results[0].relative_to(folder)}': replace them with --overwrite, or choose another"
            " folder"
        )
    return results, is_saved


def check_own(folder: Path, results: Sequence[Path], *, is_run: bool) -> None:
    """Raise FileExistsError where a file or checkpoint that a run would replace is no run's."""
    log, steps = folder / FILE, checkpoint.saved_steps(folder)
    strange = [path for path in results if not is_result(path)]
    saved = (folder / checkpoint.FOLDER / str(step) for step in steps)
    strange += [path for path in saved if not checkpoint.is_own(path)]
    if os.path.lexists(log) and not is_log(log):
        strange.insert(0, log)
    if not (is_run or results or os.path.lexists(log)):
        # Pictures and pages have no mark of ours; here is no run that may have made them.
        named = (folder / name for name in (PAGE, "loss.png", NAMES_FILE))
        strange += [path for path in named if os.path.lexists(path)]
    if strange:
        raise FileExistsError(
            f"'{strange[0]}' is not of a run, and a run in '{folder}' would replace it: move it, or"
            " choose another folder"
        )


def check_choice(*, overwrite: bool, resume: bool) -> None:
    """Raise where what a folder holds is to be removed and gone on with."""
    if overwrite and resume:
        raise ValueError("overwrite removes a run and resume goes on with it: give one of them")
