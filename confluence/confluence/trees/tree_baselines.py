"""Boosted trees as baselines of an evaluation, and which seeds have a history at all.

    train seeds ──► trees on own columns         ┐
                ──► trees on history too, kept   ├──► an answer per seed of the split
                    by the run or fitted here    ┘

The second is the strong one (`task_trees.py`); it may also answer together with a model
(`answers/with_trees.py`).
"""

from __future__ import annotations

from typing import Any

import headwater
import numpy as np
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import NO_TIME, SPLITS, Labels, Task
from confluence.trees.boosted import NoTreesError, TreeAnswers, load_lightgbm
from confluence.trees.features import anchors_of, seeds_of, until_of
from confluence.trees.history import History, label_lists
from confluence.trees.own_columns import OwnColumns
from confluence.trees.task_trees import AskedTrees, TaskTrees, fit_trees

HISTORY_MODEL = (
    "boosted trees on counts, recencies and means of the rows that point at the anchor, its known"
    " labels, its own columns and those of its parents"
)
OWN_MODEL = "boosted trees on the columns of the anchor, its parents and their parents"


def visible_history(
    store: headwater.Store, cfg: Config, task: Task, labels: Labels, split: str
) -> NDArray[np.bool_]:
    """Whether each seed of a split sees a row that points at its anchor, or an earlier label of it.

    Returns: [seeds of the task], False outside the split.
    """
    history = History(store, task, labels, shown=cfg.context_labels)
    index = np.flatnonzero(labels.splits == SPLITS[split])
    seeds = seeds_of(labels, index, until_of(cfg), inclusive=history.inclusive)
    found = np.zeros(labels.splits.size, bool)
    found[index] = history.has_history(anchors_of(history, seeds), seeds.moments)
    known = label_lists(labels, task.label_window_us)
    earlier = known.lists.counts(known.owners[index], seeds.moments.limits)
    has_time = seeds.moments.obs_times != NO_TIME
    found[index] |= (earlier > 0) & has_time & history.knows_labels
    return found


def tree_baselines(
    store: headwater.Store, cfg: Config, task: Task, labels: Labels, split: str, *,
    trees: TaskTrees | None = None, history: TreeAnswers | None = None,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Predictions of boosted trees for every seed of a split, by baseline, or why there are none.

    Args:
        labels: whose `splits` say what is train and what is to be scored.
        trees: those on history; None: they are fitted.
        history: what these answer to the seeds of the split in their order, if that is known.

    Returns: "own_columns" and "history", each {"model", "features", "values"} with values float64
    by seed of the task, NaN outside the split, and "left_out", columns of parents that are too many
    to be features; or {"missing": reason}.
    """
    try:
        load_lightgbm()
    except NoTreesError as error:
        return {name: {"missing": str(error)} for name in ("own_columns", "history")}
    index = np.flatnonzero(labels.splits == SPLITS[split])
    rows, times = labels.anchor_rows[index].astype(np.int64), labels.obs_times[index]

    def baseline(model: str, trees: TaskTrees, known: TreeAnswers | None) -> dict[str, Any]:
        values = np.full(labels.targets.size, np.nan)
        if known is None:
            known = AskedTrees(own_columns, labels, trees).answers(index, rows, times)
        values[index] = known.values
        left_out = {"left_out": trees.left_out} if trees.left_out else {}
        return {"model": model, "features": list(trees.features), "values": values, **left_out}

    with OwnColumns(store, cfg, task) as own_columns:
        own = fit_trees(own_columns, labels, own_columns_alone=True)
        trees = fit_trees(own_columns, labels) if trees is None else trees
        return {
            "own_columns": baseline(OWN_MODEL, own, None),
            "history": baseline(HISTORY_MODEL, trees, history),
        }  # fmt: skip
