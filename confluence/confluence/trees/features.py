"""The features of the trees: how questions and train seeds become rows of numbers.

    time_lists.py ──► counts and recencies    ┐
    history.py    ──► values, known labels    ├──► Features, by question
    own_columns.py ─► rows of the anchor and  ┘
                      its parents

Where the database is frozen, or ends before the question, what is visible is older than the
question; train seeds, which lie before that, would see fresh data. So other trees are shown each of
them COPIES times, with its cutoff moved back by a gap drawn for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from headwater.shared import time_us

from confluence.config import Config
from confluence.data.tasks import NO_TIME, TEST, TRAIN, US_PER_DAY, VAL, Floats, Labels
from confluence.trees.boosted import Features
from confluence.trees.history import WINDOWS, History, label_features, label_lists
from confluence.trees.time_lists import Ints, Moments, Questions, Seen, count_features

COPIES = 3  # of each train seed where questions see old data, each with a gap of its own
MAX_TRAIN_SEEDS = 200_000  # more are thinned out at random
MAX_OLD_SEEDS = 60_000  # the same of seeds that see old data, with their copies
LEAST_GAP_DAYS = 7  # in days: however short the splits of a task are


def seeds_of(
    labels: Labels, index: Ints, until_us: int, *, inclusive: bool, gaps: Ints | int = 0
) -> Questions:
    """Seeds of the task that see the database up to a time, less a gap [m] in µs."""
    obs = labels.obs_times[index]
    stale = np.where(obs == NO_TIME, NO_TIME, obs - gaps)
    moments = Moments(obs_times=obs, cutoffs=np.minimum(stale, until_us), inclusive=inclusive)
    rows = labels.anchor_rows[index].astype(np.int64)
    return Questions(index=index, anchor_rows=rows, moments=moments)


def at_places(questions: Questions, places: Any) -> Questions:
    """Some of the questions: where a mask is true, or at these places."""
    moments = questions.moments
    return Questions(
        index=questions.index[places], anchor_rows=questions.anchor_rows[places],
        moments=Moments(
            obs_times=moments.obs_times[places], cutoffs=moments.cutoffs[places],
            inclusive=moments.inclusive,
        ),
    )  # fmt: skip


def anchors_of(history: History, questions: Questions) -> Ints:
    """Rows of the anchors within their table. [m]"""
    return questions.anchor_rows - history.row_range(history.anchor_table)[0]


def until_of(cfg: Config) -> int:
    """`visible_until` in µs, NO_TIME where it is rolling."""
    until = cfg.visible_until
    return int(NO_TIME) if until is None else time_us(until)


def train_seeds(
    labels: Labels, until_us: int, *, inclusive: bool, longest_gap: int = 0
) -> Questions:
    """The labelled train seeds, each as of its time, or COPIES of each that see old data.

    Args:
        longest_gap: above 0: what a seed sees is older than its time, by up to so many µs.
    """
    rng = np.random.default_rng(0)
    index = np.flatnonzero((labels.splits == TRAIN) & labels.is_known)
    copies = COPIES if longest_gap else 1
    most = MAX_TRAIN_SEEDS if copies == 1 else MAX_OLD_SEEDS // copies
    if index.size > most:
        index = np.sort(rng.choice(index, most, replace=False))
    index = np.tile(index, copies)
    gaps = rng.integers(1, longest_gap + 1, index.size) if longest_gap else 0
    return seeds_of(labels, index, until_us, inclusive=inclusive, gaps=gaps)


def longest_gap(labels: Labels, label_window_us: int) -> int:
    """How old data may be that a question sees, in µs: as long as val or test lasts, which may be
    asked with the database frozen at their beginning, and as long as it takes to know a label."""
    longest = [label_window_us, LEAST_GAP_DAYS * US_PER_DAY]
    for split in (VAL, TEST):
        times = labels.obs_times[(labels.splits == split) & (labels.obs_times != NO_TIME)]
        longest += [int(times.max() - times.min())] if times.size else []
    return max(longest)


def history_features(history: History, questions: Questions) -> Features:
    """Counts, recencies and means of every path, the anchor's known labels, and the time of
    year."""
    moments, labels = questions.moments, history.labels
    anchors = anchors_of(history, questions)
    found: dict[str, Floats] = {
        "days not visible": _gaps(moments), "day of the year": _days_of_year(moments),
    }  # fmt: skip
    categories: dict[str, tuple[str, ...]] = {}
    if history.knows_labels:
        known = label_lists(labels, history.task.label_window_us)
        found |= label_features(labels, known, questions, history.task.stype)
        if history.task.categories:
            categories["labels: last"] = history.task.categories
    unseen = history.anchors_unseen(anchors, moments)
    for path in history.paths(anchors, moments):
        seen = Seen(path.lists, path.owners, moments)
        counted = count_features(seen, WINDOWS)
        found |= {f"{path.name}: {name}": values for name, values in counted.items()}
        for source in history.sources(path):
            for column in history.columns_of(path, source, unseen):
                of_column, texts = history.column_features(path, source, column, seen)
                if history.is_withheld(source.table, column):
                    of_column = {n: np.where(unseen, v, np.nan) for n, v in of_column.items()}
                found |= of_column
                categories |= texts
    return Features(
        index=questions.index, values=np.column_stack(list(found.values())), names=tuple(found),
        categories=categories,
    )  # fmt: skip


def _gaps(moments: Moments) -> Floats:
    """Days before obs_time of which nothing is visible. [m]"""
    gaps = (moments.obs_times - moments.cutoffs) / US_PER_DAY
    return np.where(moments.obs_times == NO_TIME, np.nan, gaps)


def _days_of_year(moments: Moments) -> Floats:
    """Days from the last New Year to obs_time, UTC. [m]"""
    times = moments.obs_times.astype("datetime64[us]")
    days = (times - times.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    return np.where(moments.obs_times == NO_TIME, np.nan, days)


def at_index(features: Features, index: Ints) -> Features:
    """The features of some questions, maybe several times, of features that have each once,
    ascending."""
    rows = np.searchsorted(features.index, index)
    return dataclasses.replace(features, index=index, values=features.values[rows])


def joined(first: Features, second: Features) -> Features:
    """Two kinds of features of the same questions in the same order. One of the first that is
    called like one of the second has a mark, as trees find their features by name."""
    taken = set(second.names)

    def marked(name: str) -> str:
        return f"{name} (column)" if name in taken else name

    own = {marked(name): texts for name, texts in first.categories.items()}
    return Features(
        index=second.index,
        values=np.column_stack([first.values, second.values]),
        names=(*map(marked, first.names), *second.names),
        categories={**own, **second.categories},
    )
