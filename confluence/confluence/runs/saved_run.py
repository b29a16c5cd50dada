"""A trained model as a value: weights, settings, tasks and the folder that they are kept in.

log.jsonl  loss.png  run.html  checkpoints/<step>/  evaluation-<split>-<regime>.json
predictions-<split>.csv  trees.json.gz

A run of several tasks has a folder of evaluations and predictions for each, named like it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from headwater.shared import CELL_BYTES, counted, html_line, html_table, short, short_lines

from confluence.answers.kept_trees import KeptTrees
from confluence.config import Config
from confluence.data.stores import Seeds, TaskPlace
from confluence.data.tasks import SPLITS, TaskError
from confluence.model.transformer import Params
from confluence.report.evaluation import Evaluation
from confluence.report.evaluation_files import read_results, task_folder

TASKS_SHOWN = 20  # tasks with a line each, when a run is printed


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SavedRun:
    """A trained model. A `task` is a title; a run of one task needs none."""

    out: Path
    places: tuple[TaskPlace, ...]  # its tasks, and their stores
    config: Config
    step: int  # of the weights
    params: Params
    stores: tuple[str, ...] = ()  # paths, in the run's order
    seeds: tuple[Seeds, ...] = ()  # where masked cells were learned, by store
    trees: Mapping[str, KeptTrees] = dataclasses.field(default_factory=dict)  # by title of a task

    def __repr__(self) -> str:
        tasks = (f"task {place.title} of {place.store}" for place in self.places)
        stores = () if self.places else (f"masked cells of {store}" for store in self.stores)
        lines = [short(f"<{self._headline(40)}>")]
        return "\n".join(lines + short_lines([*tasks, *stores], TASKS_SHOWN, "task"))

    def _repr_html_(self) -> str:
        tasks = [[place.title, place.store] for place in self.places]
        stores = [] if self.places else [["masked cells", store] for store in self.stores]
        usual = Config().to_dict()
        settings = [
            [name, value] for name, value in self.config.to_dict().items() if value != usual[name]
        ]
        parts = [
            html_line(self._headline(CELL_BYTES)),
            html_table(["task", "store"], [*tasks, *stores], "task"),
            html_table(["setting", "value (other than the default)"], settings, "setting"),
        ]
        return "".join(parts)

    def _headline(self, most: int) -> str:
        parameters = sum(int(np.prod(value.shape)) for value in self.params.values())
        return (
            f"Run '{short(self.out, most)}': step {self.step:,} of {self.config.step_count:,},"
            f" {counted(parameters, 'parameter')}"
        )

    @property
    def titles(self) -> tuple[str, ...]:
        """The tasks of the run by their names in it."""
        return tuple(place.title for place in self.places)

    def place(self, task: str | None = None) -> TaskPlace:
        """The place of a task; by default of the only one."""
        if task is None and len(self.places) == 1:
            return self.places[0]
        for place in self.places:
            if place.title == task:
                return place
        fault = "which task?" if task is None else f"no task '{task}':"
        raise TaskError(f"{fault} the run has {', '.join(self.titles) or 'none'}")

    def results(self, task: str | None = None) -> Path:
        """Folder of the evaluations and predictions of a task; it may not be there yet."""
        if len(self.places) == 1:
            return self.out
        return task_folder(self.out, self.place(task).title)

    def evaluations(self) -> list[Evaluation]:
        """All evaluations in the run's folder: of every task, split, regime and checkpoint."""
        return [Evaluation(result) for result in read_results(self.out)]


def check_split(split: str) -> None:
    """Raise unless `split` is one of train, val, test."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {', '.join(SPLITS)}")
