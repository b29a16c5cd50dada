"""A model and boosted trees on what happened before answer together.

    the model's pass                 ──► heads' outputs                ┐
    the seeds or questions it was of ──► `AskedTrees` ──► their answers ┴──► weighted average

The two err differently: trees know means of all that ever happened and few interactions, and hardly
change from fit to fit; a model reads the rows themselves. So their average is often better than
both (stacking with fixed weights; Wolpert 1992, Breiman 1996). Trees do not tell NULL: that stays
the model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from headwater import SemanticType

from confluence.answers.read_out import OutputSource
from confluence.data.tasks import Task, TaskError
from confluence.model.outputs import Average, Pass, as_output, gathered
from confluence.model.transformer import Output, Params
from confluence.trees.boosted import NoTreesError, TreeAnswers, load_lightgbm
from confluence.trees.task_trees import AskedTrees
from confluence.trees.time_lists import Ints


def check_share(share: float) -> None:
    """Raise where trees cannot have this share of an answer."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"tree_share is {share}, expected a number from 0 to 1")
    if share > 0:
        try:
            load_lightgbm()
        except NoTreesError as error:
            raise ValueError(
                f"tree_share is {share:g}, which needs boosted trees: {error}. With 0 the model"
                " answers alone"
            ) from error


class WithTrees:
    """An `OutputSource`: the average of the outputs of a model and of trees."""

    def __init__(
        self, model: OutputSource, trees: AskedTrees, task: Task, share: float, *,
        split: str | None,
    ) -> None:  # fmt: skip
        """
        Args:
            task: in whose units the model answers.
            share: of the trees in each answer.
            split: whose seeds the pass is over; None: questions of the caller's, which have no
                numbers of their own.
        """
        self._model = model
        self._trees = trees
        self._task = task
        self._share = share
        self._split = split
        self.answers: TreeAnswers | None = None  # the trees' own, seeds ascending; after `outputs`
        self.apart: Apart | None = None  # in the order of the pass; after `outputs`

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """All seeds at once: averaged outputs, and the info of the model's pass."""
        output, info = gathered(self._model.outputs(params, batches))
        if output is None:
            return
        index = np.asarray(info["seed_index"], np.int64)
        if self._split is None:
            index = np.arange(index.size)
        order = np.argsort(index)
        rows, times = (np.asarray(info[n], np.int64)[order] for n in ("anchor_rows", "obs_time"))
        self.answers = answers = self._trees.answers(index[order], rows, times)
        if np.isnan(answers.values).any():
            raise TaskError(
                f"trees have no answers for task '{self._task.name}': no train seed has a value, or"
                " one is not finite. tree_share must be 0"
            )
        self.apart = Apart(output, _as_outputs(answers, np.argsort(order), output, self._task))
        yield self.apart.together(self._share), info


class Apart(NamedTuple):
    """The answers of a model and those of trees to the same seeds, as outputs of heads."""

    model: Output
    trees: Output

    def together(self, share: float) -> Output:
        """Their average, of which the trees have a share."""
        average = Average()
        average.add(self.model, weight=1.0 - share)
        average.add(self.trees, weight=share)
        return average.output()


def _as_outputs(answers: TreeAnswers, place: Ints, model: Output, task: Task) -> Output:
    """Heads' outputs that mean what trees answer in the head of the task's type; the others as the
    model has them.

    Args:
        place: of each of the model's outputs among the answers.
    """
    null, numerical, timestamp, boolean, categorical = (np.array(part) for part in model)
    values = answers.values[place]
    with np.errstate(divide="ignore"):
        if task.stype == SemanticType.BOOLEAN:
            boolean = np.log(values) - np.log1p(-values)
        elif task.stype == SemanticType.CATEGORICAL and answers.shares is not None:
            categorical = np.full(categorical.shape, -np.inf)
            categorical[:, : answers.shares.shape[1]] = np.log(answers.shares[place])
        elif task.stype == SemanticType.TIMESTAMP:
            timestamp = np.array(timestamp, np.float64)
            timestamp[:, -1] = (values - task.column_mean) / task.column_std
        else:
            numerical = (values - task.mean) / task.std
    return as_output([null, numerical, timestamp, boolean, categorical])
