"""The trees of a task: fitted once on its train seeds, kept as a value, and asked.

    own_columns.py ──► rows of the anchor and its parents     ┐
    history.py     ──► counts, recencies and means of rows    ├──► LightGBM ──► TaskTrees
                       that point at it, its known labels     ┘
    TaskTrees, questions ──► AskedTrees ──► TreeAnswers

These are the features that a careful person would make by hand from the tables, one key and two
keys away, as visible at each question's time. Seeds weigh by age as in the run's training.

A question that sees the database up to its own time, one that sees it only up to an earlier time,
and one without a time have trees of their own, all fitted before any question is known: so no
answer depends on what else is asked. How questions become features: `features.py`. Same store and
settings, same trees. Cost: O(F m log n) and the trees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import NO_TIME, Floats, Labels, Task, weights_by_age
from confluence.trees.boosted import (
    Boosted,
    Features,
    Lessons,
    Recipe,
    TreeAnswers,
    choose,
    fit_number,
    sample_size,
    with_rounds,
)
from confluence.trees.features import (
    at_index,
    at_places,
    history_features,
    joined,
    longest_gap,
    train_seeds,
    until_of,
)
from confluence.trees.history import History
from confluence.trees.own_columns import OwnColumns
from confluence.trees.time_lists import ALWAYS, Ints, Moments, Questions

FRESH, OLD, UNTIMED = "fresh", "old", "untimed"  # kinds of questions, by what they see
MOST_AT_ONCE = 16_384  # questions whose features stand in memory
HELD_OUT = 0.2  # of the train seeds, by which the number of trees is chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTrees:
    """Trees that were fitted on the train seeds of a task."""

    fitted: Mapping[str, Boosted]  # by kind of question; none: no train seed has a value
    columns: Mapping[str, tuple[str, ...]] | None  # as of `History`; None: own columns alone
    categories: Mapping[str, tuple[str, ...]]  # as of `Features`
    classes: tuple[str, ...]  # the task's categories
    left_out: int = 0  # columns of parents, too many for features

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what the trees are shown."""
        return next((trees.names for trees in self.fitted.values()), ())

    def to_dict(self) -> dict[str, Any]:
        """All of it; JSON can hold it."""
        fitted = {kind: dataclasses.asdict(trees) for kind, trees in self.fitted.items()}
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "fitted": fitted}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TaskTrees:
        """Read `to_dict` back. KeyError, TypeError or ValueError if it is not of that form."""

        def texts(lists: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
            return {str(name): tuple(map(str, values)) for name, values in lists.items()}

        fitted = {kind: Boosted.from_dict(one) for kind, one in found["fitted"].items()}
        return cls(
            fitted=fitted, columns=None if found["columns"] is None else texts(found["columns"]),
            categories=texts(found["categories"]),
            classes=tuple(found["classes"]), left_out=int(found["left_out"]),
        )  # fmt: skip


def fit_trees(
    own_columns: OwnColumns, labels: Labels, *, own_columns_alone: bool = False
) -> TaskTrees:
    """Trees on the labelled train seeds, each as of what it could see.

    Args:
        own_columns: those of the task, with the run's settings: up to when the database is visible,
            whose labels contexts show, and how much seeds weigh by age.
        labels: whose `splits` say which seeds are train.
        own_columns_alone: without history; own columns do not age.
    """
    store, cfg, task = own_columns.store, own_columns.cfg, own_columns.task
    until, rest = until_of(cfg), {"inclusive": task.inclusive}
    history = History(store, task, labels, shown=cfg.context_labels, train_until=until)
    fresh = train_seeds(labels, until, **rest)
    is_timed = fresh.moments.obs_times != NO_TIME
    is_time = task.stype == SemanticType.TIMESTAMP
    kinds = {UNTIMED: fresh}
    if is_timed.any():
        gap = longest_gap(labels, task.label_window_us)
        old = train_seeds(labels, until, longest_gap=gap, **rest)
        # Times are predicted from the question on: seeds without a time do not help.
        kinds = {FRESH: at_places(fresh, is_timed) if is_time else fresh}
        if not own_columns_alone:
            kinds[OLD] = at_places(old, old.moments.obs_times != NO_TIME)
        if is_time and (labels.obs_times == NO_TIME).any():
            kinds[UNTIMED] = fresh
    fitted: dict[str, Boosted] = {}
    categories: dict[str, tuple[str, ...]] = {}

    def lessons_of(seeds: Questions, kind: str) -> Lessons:
        features = own_columns.features(_once(seeds))
        features = at_index(features, seeds.index)
        if not own_columns_alone:
            features = joined(features, history_features(history, seeds))
        categories.update(features.categories)
        since = seeds.moments.obs_times if is_time and kind != UNTIMED else 0
        return _lessons(features, seeds, since, cfg, task, labels)

    recipe: Recipe | None = None
    for kind, seeds in kinds.items():
        if not seeds.index.size:
            continue
        sample = _sample(seeds, len(task.categories))
        if sample is not seeds and recipe is None:
            chosen = choose(lessons_of(sample, kind), is_sample=True)
            history.keep(chosen.features)
            lessons = lessons_of(seeds, kind)
            recipe = with_rounds(lessons, chosen)
        else:
            lessons = lessons_of(seeds, kind)
            # Many seeds that see old data take over what fresh data chose.
            recipe = choose(lessons) if sample is seeds or recipe is None else recipe
        fitted[kind] = fit_number(lessons, recipe)
    shown = {name for trees in fitted.values() for name in trees.names}
    return TaskTrees(
        fitted=fitted, columns=None if own_columns_alone else history.columns,
        categories={name: texts for name, texts in categories.items() if name in shown},
        classes=task.categories, left_out=own_columns.left_out,
    )  # fmt: skip


def _once(seeds: Questions) -> Questions:
    """Each seed once, ascending: its own columns do not age."""
    return at_places(seeds, np.unique(seeds.index, return_index=True)[1])


def _sample(seeds: Questions, classes: int) -> Questions:
    """The seeds by which a recipe is chosen."""
    count = sample_size(seeds.index.size, classes)
    if count == seeds.index.size:
        return seeds
    chosen = np.random.default_rng(0).choice(seeds.index.size, count, replace=False)
    return at_places(seeds, np.sort(chosen))


def _lessons(
    features: Features, seeds: Questions, since: Ints | int, cfg: Config, task: Task, labels: Labels
) -> Lessons:
    """The targets of some train seeds, less `since`, with their features and weights."""
    times = labels.obs_times[seeds.index]
    has_time = times != NO_TIME
    ages = None
    if has_time.any():
        first, last = int(times[has_time].min()), int(times[has_time].max())
        ages = np.where(has_time, (last - times) / max(1, last - first), 0.0)
    return Lessons(
        features=features, targets=labels.targets[seeds.index] - since, stype=task.stype,
        metric=cfg.metric, weights=_weights(cfg, labels, seeds.index), ages=ages,
        held_out=_held_out(labels, seeds.index), classes=len(task.categories),
    )  # fmt: skip


class AskedTrees:
    """What the trees of a task answer to questions of a store."""

    def __init__(self, own_columns: OwnColumns, labels: Labels, trees: TaskTrees) -> None:
        """
        Args:
            own_columns: those of the task, in the store that the trees were fitted on or a rebuilt
                one, with the settings of the answers: up to when the database is visible.
        """
        self._own_columns, self._trees = own_columns, trees
        self._store, self._cfg = own_columns.store, own_columns.cfg
        self._task = own_columns.task
        self._history = History(
            self._store, self._task, labels, shown=self._cfg.context_labels, columns=trees.columns
        )

    def answers(self, index: Ints, anchor_rows: Ints, obs_times: Ints) -> TreeAnswers:
        """An answer to each question, in their order; NaN where there are no trees for it.

        Args:
            index: [m] which question, or the number of the seed within the task; ascending.
            anchor_rows: [m] global rows.
            obs_times: [m] µs, NO_TIME where there is none.
        """
        if not index.size:
            return TreeAnswers(np.empty(0))
        cutoffs = obs_times if self._trees.columns is None else self.cutoffs(obs_times)
        moments = Moments(obs_times=obs_times, cutoffs=cutoffs, inclusive=self._task.inclusive)
        asked = Questions(index=index, anchor_rows=anchor_rows, moments=moments)
        kinds = np.where(cutoffs < obs_times, OLD, FRESH).astype("<U7")
        kinds[obs_times == NO_TIME] = UNTIMED
        values = np.full(index.size, np.nan)
        shares = np.full((index.size, len(self._task.categories)), np.nan)
        for kind in np.unique(kinds):
            trees = self._trees_for(str(kind))
            if trees is None:
                continue
            places = np.flatnonzero(kinds == kind)
            for first in range(0, places.size, MOST_AT_ONCE):
                part = places[first : first + MOST_AT_ONCE]
                found = self._alike(trees, at_places(asked, part))
                values[part] = found.values
                if found.shares is not None:
                    shares[part] = found.shares
        return TreeAnswers(values, shares if self._task.categories else None)

    def _trees_for(self, kind: str) -> Boosted | None:
        """The trees for questions of a kind, or those that learned from all seeds; but if times
        are predicted from the question on, it needs a time."""
        fitted = self._trees.fitted
        if kind == UNTIMED and self._tells_from_question:
            return fitted.get(UNTIMED)
        return fitted.get(kind, fitted.get(FRESH, fitted.get(UNTIMED)))

    @property
    def _tells_from_question(self) -> bool:
        return self._task.stype == SemanticType.TIMESTAMP and FRESH in self._trees.fitted

    def _alike(self, trees: Boosted, asked: Questions) -> TreeAnswers:
        """The answers of the same trees to questions of a kind."""
        features = self._own_columns.features(asked)
        if self._trees.columns is not None:
            features = joined(features, history_features(self._history, asked))
        found = trees.answers(recoded(features, self._trees.categories, trees.names))
        if found.shares is not None and self._trees.classes != self._task.categories:
            found = _reclassed(found.shares, self._trees.classes, self._task.categories)
        if self._tells_from_question and trees is not self._trees.fitted.get(UNTIMED):
            return found._replace(values=found.values + asked.moments.obs_times)
        return found

    def cutoffs(self, obs_times: Ints) -> Ints:
        """Up to when questions may look: their time, where the database is frozen, or where it
        ends. Rows at that end are seen, under an exclusive cutoff too: they are before the
        question. [m]"""
        end = last_time(self._store)
        end += 0 if self._task.inclusive or end == NO_TIME else 1
        ends = np.where(obs_times == NO_TIME, NO_TIME, end)
        return np.minimum(np.minimum(obs_times, until_of(self._cfg)), ends)


def recoded(
    features: Features, kept: Mapping[str, tuple[str, ...]], shown: tuple[str, ...]
) -> Features:
    """Features whose categories have the numbers that they had when trees were fitted; NaN for one
    that was not there then, and for a feature that was a number and is a category, or the reverse.
    A store that was rebuilt may have them otherwise.

    Args:
        kept: the categories of when trees were fitted, by feature.
        shown: the features that trees are shown.
    """
    values = features.values
    changed = {name for name in shown if (name in kept) != (name in features.categories)}
    if places := [place for place, name in enumerate(features.names) if name in changed]:
        values = values.copy()
        values[:, places] = np.nan
    for name, texts in features.categories.items():
        if name in kept and kept[name] != texts:
            place = features.names.index(name)
            values = values.copy() if values is features.values else values
            values[:, place] = _renumbered(values[:, place], texts, kept[name])
    return dataclasses.replace(features, values=values)


def _renumbered(numbers: Floats, texts: tuple[str, ...], kept: tuple[str, ...]) -> Floats:
    """The same texts by their places in another list; NaN for one that it does not have."""
    places = {text: float(place) for place, text in enumerate(kept)}
    table = np.array([*(places.get(text, np.nan) for text in texts), np.nan])
    return table[np.where(np.isnan(numbers), len(texts), numbers).astype(np.int64)]


def _reclassed(shares: Floats, kept: tuple[str, ...], classes: tuple[str, ...]) -> TreeAnswers:
    """Shares of the classes that a store has now, from those of when trees were fitted."""
    places = {text: place for place, text in enumerate(kept)}
    found = np.zeros((shares.shape[0], len(classes)))
    for number, text in enumerate(classes):
        if text in places:
            found[:, number] = shares[:, places[text]]
    whole = found.sum(axis=1, keepdims=True)
    found = np.where(whole > 0, found / np.where(whole > 0, whole, 1.0), 1.0 / len(classes))
    return TreeAnswers(found.argmax(axis=1).astype(np.float64), found)


def _held_out(labels: Labels, seeds: Ints) -> NDArray[np.bool_]:
    """The seeds asked last, a fifth of them; where all have one time, those of a fifth of the
    anchors."""
    times = labels.obs_times[seeds]
    since = np.quantile(times.astype(np.float64), 1.0 - HELD_OUT)
    if since > times.min():
        return np.asarray(times >= since)
    anchors, whose = np.unique(labels.anchor_rows[seeds], return_inverse=True)
    lot = np.random.default_rng(0).permutation(anchors.size)
    return np.asarray(lot[whose.reshape(-1)] < HELD_OUT * anchors.size)


def _weights(cfg: Config, labels: Labels, seeds: Ints) -> Floats | None:
    """What train seeds weigh by their age, 1 in the mean, as in training."""
    times = labels.obs_times[seeds]
    has_time = times != NO_TIME
    if cfg.half_life_days is None or not has_time.any():
        return None
    weights = weights_by_age(times, float(times[has_time].max()), cfg.half_life_days)
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
