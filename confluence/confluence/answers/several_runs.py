"""Several runs answer together: what each says of the same seeds, averaged.

    run 1, run 2, ... each with its own contexts and weights
        ──► heads' outputs, in the order and the units of the first ──► their average

Runs that differ by their `seed` differ by first weights, order of seeds and draws, so their errors
differ too and the mean has less of them than one (deep ensembles, Lakshminarayanan et al. 2017). So
may runs of other settings, or of other tasks beside the one asked. All must have the task in the
same build of a store: a seed is found again by its number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from confluence.answers.read_out import OutputSource
from confluence.data.stores import TaskPlace
from confluence.data.tasks import Task, TaskError
from confluence.folder.files import build_at
from confluence.model.outputs import Average, Pass, as_output, gathered
from confluence.model.transformer import Output, Params

RunOutputs = tuple[Path, Task, Pass]
"""A run's folder, its task with the scales of its outputs, and its pass: outputs and infos."""


class SeveralRuns:
    """An `OutputSource`: the average of the outputs of several runs."""

    def __init__(self, first: OutputSource, task: Task, others: Iterable[RunOutputs]) -> None:
        """
        Args:
            task: in whose units the first run answers, and the average too.
            others: the outputs of each further run, taken in turn.
        """
        self._first = first
        self._task = task
        self._others = others

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """All seeds at once: averaged outputs, and the info of the first run's pass."""
        first, info = gathered(self._first.outputs(params, batches))
        if first is None:
            return
        average = Average()
        average.add(first)
        for out, task, outputs in self._others:
            refusal = f"the run in '{out}' does not answer the same seeds"
            output = _in_order_of(info, outputs, refusal)
            average.add(in_units_of(self._task, task, output))
        yield average.output(), info


def _in_order_of(info: dict[str, Any], parts: Pass, refusal: str) -> Output:
    """The outputs of another pass, in the order of the one that `info` is of.

    Raises:
        ValueError: `refusal`, where the passes are not over the same seeds.
    """
    output, other = gathered(parts)
    names = ("seed_index", "anchor_rows", "obs_time")
    if output is None:
        raise ValueError(refusal)
    orders = [np.lexsort([found[name] for name in reversed(names)]) for found in (info, other)]
    for name in names:
        if not np.array_equal(info[name][orders[0]], other[name][orders[1]]):
            raise ValueError(refusal)
    place = np.empty(orders[0].size, np.int64)
    place[orders[0]] = orders[1]
    return as_output([np.asarray(part)[place] for part in output])


def in_units_of(wanted: Task, task: Task, output: Output) -> Output:
    """Outputs that mean, read as those of `wanted`, what these mean as those of `task`."""
    shift = task.mean - wanted.mean
    numerical = (np.asarray(output.numerical, np.float64) * task.std + shift) / wanted.std
    timestamp = np.array(output.timestamp, np.float64)
    epochs = timestamp[:, -1] * task.column_std + task.column_mean
    timestamp[:, -1] = (epochs - wanted.column_mean) / wanted.column_std
    return as_output([output.null, numerical, timestamp, output.boolean, output.categorical])


def same_place(mine: TaskPlace, out: Path, theirs: Sequence[TaskPlace]) -> TaskPlace:
    """Where another run, that in the folder `out`, has a task of this one; raises where it has not.

    A run of several stores may call the task by another title; its store and its name decide.
    """
    build = build_at(Path(mine.store))
    named = [place for place in theirs if place.name == mine.name]
    for place in named:
        if build_at(Path(place.store)) == build:
            return place
    if named:
        raise TaskError(
            f"the run in '{out}' has task '{mine.name}' in another build of a store,"
            f" '{named[0].store}': only runs of one build answer together"
        )
    has = ", ".join(place.title for place in theirs) or "none"
    raise TaskError(f"the run in '{out}' has no task '{mine.name}', it has {has}")


def mark(runs: Sequence[tuple[Path, int]]) -> str:
    """What names of files say of runs (folder and step) that answer together: "3-runs-1f0a9c"."""
    listed = sorted(f"{out.resolve()} {step}" for out, step in runs)
    digest = hashlib.sha256("\n".join(listed).encode()).hexdigest()[:6]
    return f"{len(listed)}-runs-{digest}"


def describe_runs(runs: Sequence[dict[str, Any]]) -> str:
    """Whose answers were averaged."""
    return f"average of {len(runs)} runs: {', '.join(run['out'] for run in runs)}"
