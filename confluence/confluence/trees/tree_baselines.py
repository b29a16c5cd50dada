"""Boosted trees on the columns of the anchor and its parents, and on its history.

    own_columns.py ──► rows of the anchor and its parents     ┐
    history.py     ──► counts, recencies and means of rows    ├──► LightGBM ──► an answer
                       that point at it, its known labels     ┘                 per question

Both are baselines, and the second is the strong one: it has the features that a careful person
would make by hand from the tables, one key and two keys away, as visible at each question's time.
It may also answer together with a model (`with_trees.py`). Seeds weigh by age as in the run's
training.

How questions become features: `features.py`. Same store and settings, same trees. Cost:
O(F m log n) and the trees.
"""

from __future__ import annotations

from typing import Any

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import NO_TIME, SPLITS, Floats, Labels, Task, weights_by_age
from confluence.trees.boosted import (
    Features,
    NoTreesError,
    TreeAnswers,
    fit_and_predict,
    load_lightgbm,
)
from confluence.trees.features import (
    anchors_of,
    at_places,
    history_features,
    joined,
    seeds_of,
    train_seeds,
    unseen,
    until_of,
)
from confluence.trees.history import History, label_lists
from confluence.trees.own_columns import OwnColumns
from confluence.trees.time_lists import ALWAYS, Ints, Moments, Questions

FRESH, OLD, UNTIMED = range(3)  # kinds of questions, by what they see
HELD_OUT = 0.2  # of the train seeds, by which the number of trees is chosen
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
    history: TreeAnswers | None = None,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Predictions of boosted trees for every seed of a split, by baseline, or why there are none.

    Args:
        labels: whose `splits` say what is train and what is to be scored.
        history: what "history" answers to the seeds of the split in their order, where that is
            known already.

    Returns: "own_columns" and "history", each {"model", "features", "values"} with values float64
    by seed of the task, NaN outside the split, and "left_out", columns of parents that are too many
    to be features; or {"missing": reason}.
    """
    try:
        load_lightgbm()
    except NoTreesError as error:
        return {name: {"missing": str(error)} for name in ("own_columns", "history")}
    index = np.flatnonzero(labels.splits == SPLITS[split])
    wanted = (index, labels.anchor_rows[index].astype(np.int64), labels.obs_times[index])

    def baseline(model: str, answers: TreeAnswers) -> dict[str, Any]:
        values = np.full(labels.targets.size, np.nan)
        values[index] = answers.values
        return {"model": model, "features": list(answers.features), "values": values, **left_out}

    with HistoryTrees(store, cfg, task, labels) as trees:
        left_out = {"left_out": trees.left_out} if trees.left_out else {}
        own = trees.answers(*wanted, own_columns_alone=True)
        history = trees.answers(*wanted) if history is None else history
    return {
        "own_columns": baseline(OWN_MODEL, own),
        "history": baseline(HISTORY_MODEL, history),
    }


class HistoryTrees:
    """What boosted trees that learn from a task's train seeds answer to questions."""

    def __init__(self, store: headwater.Store, cfg: Config, task: Task, labels: Labels) -> None:
        """
        Args:
            cfg: of the run: the regime, whose labels contexts show, and what seeds weigh by age.
            labels: whose `splits` say what is train.
        """
        self._store = store
        self._own_columns = OwnColumns(store, cfg, task)
        self.left_out = self._own_columns.left_out  # columns of parents, too many for features
        self._cfg = cfg
        self._task = task
        self._labels = labels

    def __enter__(self) -> HistoryTrees:
        return self

    def __exit__(self, *_: object) -> None:
        self._own_columns.close()

    def answers(
        self, index: Ints, anchor_rows: Ints, obs_times: Ints, *, own_columns_alone: bool = False
    ) -> TreeAnswers:
        """An answer to each question, in their order.

        Those that see fresh data, those that see old data and those without a time have trees of
        their own, so that a question after the end of the database changes no answer but of
        others such.

        Args:
            index: [m] which question; of seeds their numbers within the task.
            anchor_rows: [m] global rows.
            obs_times: [m] µs, NO_TIME where there is none.
            own_columns_alone: without what happened; then each seed once, ascending.
        """
        # Own columns do not age: `_own` sees to what is visible of them.
        cutoffs = obs_times if own_columns_alone else self.cutoffs(obs_times)
        moments = Moments(obs_times=obs_times, cutoffs=cutoffs, inclusive=self._task.inclusive)
        wanted = Questions(index=index, anchor_rows=anchor_rows, moments=moments)
        kinds = np.where(cutoffs < obs_times, OLD, FRESH)
        kinds[obs_times == NO_TIME] = UNTIMED
        if not index.size:
            return TreeAnswers(np.empty(0))
        values, features = np.empty(index.size), tuple[str, ...]()
        shares: Floats | None = None
        for kind in np.unique(kinds):
            part = kinds == kind
            said = self._alike(at_places(wanted, part), own_columns_alone=own_columns_alone)
            values[part], features = said.values, said.features
            if said.shares is not None:
                shares = np.empty((index.size, said.shares.shape[1])) if shares is None else shares
                shares[part] = said.shares
        return TreeAnswers(values, shares, features)

    def cutoffs(self, obs_times: Ints) -> Ints:
        """Up to when questions may look: their time, where the database is frozen, or where it
        ends. Rows at that end are seen, under an exclusive cutoff too: they are before the
        question. [m]"""
        end = last_time(self._store)
        end += 0 if self._task.inclusive or end == NO_TIME else 1
        ends = np.where(obs_times == NO_TIME, NO_TIME, end)
        return np.minimum(np.minimum(obs_times, until_of(self._cfg)), ends)

    def _alike(self, wanted: Questions, *, own_columns_alone: bool) -> TreeAnswers:
        """What the same trees answer to all of these."""
        cfg, task, labels = self._cfg, self._task, self._labels
        train = train_seeds(labels, wanted, until_of(cfg), inclusive=task.inclusive)
        # Times are told from the question on; seeds without a time are no help there.
        is_timed = train.moments.obs_times != NO_TIME
        from_question = (
            task.stype == SemanticType.TIMESTAMP and is_timed.any()
            and (wanted.moments.obs_times != NO_TIME).all()
        )  # fmt: skip
        train = at_places(train, is_timed) if from_question else train
        if not (wanted.index.size and train.index.size):
            return TreeAnswers(np.full(wanted.index.size, np.nan))
        both = (train, wanted)
        features = [self._own(questions) for questions in both]
        if not own_columns_alone:
            history = History(
                self._store, task, labels, shown=cfg.context_labels, train_until=until_of(cfg)
            )
            none = all(unseen(history, questions) for questions in both)
            features = [
                joined(own, history_features(history, questions, anchors_unseen=none))
                for own, questions in zip(features, both, strict=True)
            ]
        targets = labels.targets[train.index]
        said = fit_and_predict(
            features[0], targets - train.moments.obs_times if from_question else targets,
            features[1], task.stype, metric=cfg.metric, weights=self._weights(train.index),
            held_out=self._held_out(train.index), classes=len(task.categories),
        )  # fmt: skip
        if not from_question:
            return said
        return said._replace(values=said.values + wanted.moments.obs_times)

    def _own(self, questions: Questions) -> Features:
        """The own columns of each question once."""
        _, place = np.unique(questions.index, return_index=True)
        once = at_places(questions, place)
        return self._own_columns.features(once)

    def _held_out(self, seeds: Ints) -> NDArray[np.bool_]:
        """The seeds asked last, a fifth of them; where all have one time, those of a fifth of the
        anchors."""
        times = self._labels.obs_times[seeds]
        since = np.quantile(times.astype(np.float64), 1.0 - HELD_OUT)
        if since > times.min():
            return np.asarray(times >= since)
        anchors, whose = np.unique(self._labels.anchor_rows[seeds], return_inverse=True)
        lot = np.random.default_rng(0).permutation(anchors.size)
        return np.asarray(lot[whose.reshape(-1)] < HELD_OUT * anchors.size)

    def _weights(self, seeds: Ints) -> Floats | None:
        """What train seeds weigh by their age, 1 in the mean, as in training."""
        half_life = self._cfg.half_life_days
        times = self._labels.obs_times[seeds]
        has_time = times != NO_TIME
        if half_life is None or not has_time.any():
            return None
        weights = weights_by_age(times, float(times[has_time].max()), half_life)
        return np.where(has_time, weights / weights[has_time].mean(), 1.0)


def last_time(store: headwater.Store) -> int:
    """The latest time of all rows of a store, of any table, µs; NO_TIME where none has one."""
    found = []
    for table in store.metadata["tables"]:
        if table["temporal_column"] is None:
            continue
        low, high = map(int, table["row_range"])
        while low < high:  # the first row without a time, which stand last
            middle = (low + high) // 2
            is_timed = store.row_time(middle) < NO_TIME
            low, high = (middle + 1, high) if is_timed else (low, middle)
        if low > int(table["row_range"][0]):
            found.append(store.row_time(low - 1))
    return max((time for time in found if time > ALWAYS), default=int(NO_TIME))
