"""The features of the trees: how questions and train seeds become rows of numbers.

    time_lists.py ──► counts and recencies    ┐
    history.py    ──► values, known labels    ├──► Features, by question
    own_columns.py ─► rows of the anchor and  ┘
                      its parents

Where the database is frozen, or ends before the question, what is visible is older than the
question; train seeds, which lie before that, would see fresh data. So each of them is shown COPIES
times with its cutoff moved back by a gap drawn from the gaps of the questions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from headwater.shared import time_us

from confluence.config import Config
from confluence.data.tasks import NO_TIME, TRAIN, US_PER_DAY, Floats, Labels
from confluence.trees.boosted import Features
from confluence.trees.history import WINDOWS, History, label_features, label_lists
from confluence.trees.time_lists import Ints, Moments, Questions, count_features

COPIES = 3  # of each train seed where questions see old data, each with a gap of its own
MAX_TRAIN_SEEDS = 200_000  # more are thinned out at random
MAX_FEATURES = 1_000


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


def unseen(history: History, questions: Questions) -> bool:
    """Whether nothing that is visible to a question can be its own anchor."""
    return history.anchors_unseen(anchors_of(history, questions), questions.moments)


def until_of(cfg: Config) -> int:
    """`visible_until` in µs, NO_TIME where it is rolling."""
    until = cfg.visible_until
    return int(NO_TIME) if until is None else time_us(until)


def train_seeds(labels: Labels, wanted: Questions, until_us: int, *, inclusive: bool) -> Questions:
    """The labelled train seeds, as fresh or stale as what the questions see."""
    rng = np.random.default_rng(0)
    index = np.flatnonzero((labels.splits == TRAIN) & labels.is_known)
    moments = wanted.moments
    gaps = (moments.obs_times - moments.cutoffs)[moments.obs_times != NO_TIME]
    copies = COPIES if gaps.size and gaps.max() > 0 else 1
    most = MAX_TRAIN_SEEDS // copies
    if index.size > most:
        index = np.sort(rng.choice(index, most, replace=False))
    index = np.tile(index, copies)
    drawn = rng.choice(gaps, index.size) if copies > 1 else 0
    return seeds_of(labels, index, until_us, inclusive=inclusive, gaps=drawn)


def history_features(history: History, questions: Questions, *, anchors_unseen: bool) -> Features:
    """Counts, recencies and means of every path, the anchor's known labels, and the time of year.

    Args:
        anchors_unseen: `unseen` of these questions, and of others that are to have the same
            features.
    """
    moments, labels = questions.moments, history.labels
    anchors = anchors_of(history, questions)
    found: dict[str, Floats] = {
        "days not visible": _gaps(moments), "day of the year": _days_of_year(moments),
    }  # fmt: skip
    categories: set[str] = set()
    if history.knows_labels:
        known = label_lists(labels, history.task.label_window_us)
        found |= label_features(labels, known, questions, history.task.stype)
        categories |= {"labels: last"} if history.task.categories else set()
    for path in history.paths(anchors, moments):
        counted = count_features(path.lists, path.owners, moments, WINDOWS)
        found |= {f"{path.name}: {name}": values for name, values in counted.items()}
        for column in history.value_columns(path.table, anchors_unseen=anchors_unseen):
            if not path.has_values or len(found) >= MAX_FEATURES:
                break
            of_column, category = history.column_features(path, column, moments.limits)
            found |= of_column
            categories |= {category} if category else set()
    return Features(
        index=questions.index,
        values=np.column_stack(list(found.values())),
        names=tuple(found),
        is_category=tuple(name in categories for name in found),
    )


def _gaps(moments: Moments) -> Floats:
    """Days before obs_time of which nothing is visible. [m]"""
    gaps = (moments.obs_times - moments.cutoffs) / US_PER_DAY
    return np.where(moments.obs_times == NO_TIME, np.nan, gaps)


def _days_of_year(moments: Moments) -> Floats:
    """Days from the last New Year to obs_time, UTC. [m]"""
    times = moments.obs_times.astype("datetime64[us]")
    days = (times - times.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    return np.where(moments.obs_times == NO_TIME, np.nan, days)


def joined(first: Features, second: Features) -> Features:
    """Two kinds of features of the same questions; the first has each once, ascending."""
    rows = np.searchsorted(first.index, second.index)
    return Features(
        index=second.index,
        values=np.column_stack([first.values[rows], second.values]),
        names=first.names + second.names,
        is_category=first.is_category + second.is_category,
    )
