"""Baselines of boosted trees: on the anchor's own columns, and on what happened to it before.

    own_columns.py ──► the anchor's row                       ┐
    history.py     ──► counts, recencies and means of rows    ├──► LightGBM ──► a value per seed
                       that point at it, its known labels     ┘

The second is the strong baseline: what a careful person would make by hand from the tables, one key
and two keys away, as visible at each seed's time. Where the database is frozen, the seeds to score
look at data that is older than their question; train seeds, which lie before that, would not. So
each of them is shown COPIES times with its cutoff moved back by a gap drawn from the gaps of the
seeds to score. Same store and settings, same trees. Cost: O(F m log n) and the trees.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import headwater
import numpy as np
from headwater.keys import time_us
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data import NO_TIME, SPLITS, TRAIN, US_PER_DAY, Floats, Labels, Task
from confluence.history import RECENT, WINDOWS, History, label_features, label_lists
from confluence.lists import Ints, Moments, count_features, value_features
from confluence.own_columns import MISSING, Features, fit_and_predict, own_columns

COPIES = 3  # of each train seed where the database is frozen, each with a gap of its own
MAX_TRAIN_SEEDS = 200_000  # more are thinned out at random
MAX_FEATURES = 1_000
HISTORY_MODEL = (
    "boosted trees on counts, recencies and means of the rows that point at the anchor, its known"
    " labels and its own columns"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeds:
    """Some seeds of a task, maybe several times, and when each may look."""

    index: Ints  # [m] within the task
    moments: Moments


def seeds_of(
    labels: Labels, index: Ints, until_us: int, *, inclusive: bool, gaps: Ints | int = 0
) -> Seeds:
    """Seeds that see the database up to a time, less a gap [m] in µs."""
    obs = labels.obs_times[index]
    stale = np.where(obs == NO_TIME, NO_TIME, obs - gaps)
    moments = Moments(
        obs_times=obs, cutoffs=np.minimum(stale, until_us), inclusive=inclusive
    )  # fmt: skip
    return Seeds(index=index, moments=moments)


def anchors_of(history: History, seeds: Seeds) -> Ints:
    """Rows of the anchors within their table. [m]"""
    low = history.row_range(history.anchor_table)[0]
    return history.labels.anchor_rows[seeds.index].astype(np.int64) - low


def unseen(history: History, seeds: Seeds) -> bool:
    """Whether nothing that is visible to a seed can be its own anchor."""
    return history.anchors_unseen(anchors_of(history, seeds), seeds.moments)


def until_of(cfg: Config, split: str) -> int:
    """`visible_until` of a split in µs, NO_TIME where it is rolling."""
    until = cfg.until(split)
    return int(NO_TIME) if until is None else time_us(until)


def train_seeds(labels: Labels, wanted: Seeds, until_us: int, *, inclusive: bool) -> Seeds:
    """The labelled train seeds, as fresh or stale as those to score."""
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


# ------------------------------------------------------------------------------------ the features


def history_features(history: History, seeds: Seeds, *, anchors_unseen: bool) -> Features:
    """Counts, recencies and means of every path, and the anchor's known labels, of each seed.

    Args:
        anchors_unseen: `unseen` of these seeds, and of others that are to have the same features.
    """
    moments, labels = seeds.moments, history.labels
    anchors = anchors_of(history, seeds)
    found: dict[str, Floats] = {"days not visible": _gaps(moments)}
    categories: set[str] = set()
    known = label_lists(labels, history.task.label_window_us)
    found |= label_features(labels, known, seeds.index, moments, history.task.stype)
    if history.task.categories:
        categories.add("labels: last")
    for path in history.paths(anchors, moments):
        counted = count_features(path.lists, path.owners, moments, WINDOWS)
        found |= {f"{path.name}: {name}": values for name, values in counted.items()}
        for column in history.value_columns(path.table, anchors_unseen=anchors_unseen):
            if not path.has_values or len(found) >= MAX_FEATURES:
                break
            lists, values = history.values(path, column["name"])
            name = f"{path.name}: {column['name']}"
            by_kind = value_features(lists, values, path.owners, moments.limits, RECENT)
            if column["stype"] == "categorical":
                by_kind = {"last": by_kind["last"]}
                categories.add(f"{name} last")
            found |= {f"{name} {kind}": by_kind[kind] for kind in by_kind}
    return Features(
        seed_index=seeds.index,
        values=np.column_stack(list(found.values())),
        names=tuple(found),
        is_category=tuple(name in categories for name in found),
    )


def _gaps(moments: Moments) -> Floats:
    """Days before obs_time of which nothing is visible. [m]"""
    gaps = (moments.obs_times - moments.cutoffs) / US_PER_DAY
    return np.where(moments.obs_times == NO_TIME, np.nan, gaps)


def joined(first: Features, second: Features) -> Features:
    """Two kinds of features of the same seeds; the first has each of them once, ascending."""
    rows = np.searchsorted(first.seed_index, second.seed_index)
    return Features(
        seed_index=second.seed_index,
        values=np.column_stack([first.values[rows], second.values]),
        names=first.names + second.names,
        is_category=first.is_category + second.is_category,
    )


# ----------------------------------------------------------------------------------- the baselines


def visible_history(
    store_path: str, cfg: Config, task: Task, labels: Labels, split: str
) -> NDArray[np.bool_]:
    """Whether each seed of a split sees a row that points at its anchor, or an earlier label of it.

    Returns: [seeds of the task], False outside the split.
    """
    with headwater.Store(store_path) as store:
        history = History(store, task, labels, shown=cfg.context_labels)
        index = np.flatnonzero(labels.splits == SPLITS[split])
        seeds = seeds_of(labels, index, until_of(cfg, split), inclusive=history.inclusive)
        found = np.zeros(labels.splits.size, bool)
        found[index] = history.has_history(anchors_of(history, seeds), seeds.moments)
        known = label_lists(labels, task.label_window_us)
        earlier = known.lists.counts(known.owners[index], seeds.moments.limits)
        has_time = seeds.moments.obs_times != NO_TIME
        found[index] |= (earlier > 0) & has_time
    return found


def tree_baselines(
    store_path: str, cfg: Config, task: Task, labels: Labels, split: str
) -> dict[str, dict[str, Any]]:
    """Predictions of boosted trees for every seed of a split, by baseline, or why there are none.

    Args:
        labels: whose `splits` say what is train and what is to be scored.

    Returns: "own_columns" and "history", each {"model", "features", "values"} with values float64
    by seed of the task, NaN outside the split; or {"missing": reason}.
    """
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as error:  # OSError: its OpenMP library is missing
        reason = MISSING if isinstance(error, ImportError) else f"LightGBM: {error}"
        return {name: {"missing": reason} for name in ("own_columns", "history")}
    with headwater.Store(store_path) as store:
        history = History(store, task, labels, shown=cfg.context_labels)
        index = np.flatnonzero(labels.splits == SPLITS[split])
        wanted = seeds_of(labels, index, until_of(cfg, split), inclusive=history.inclusive)
        train = train_seeds(labels, wanted, until_of(cfg, "train"), inclusive=history.inclusive)
        both = (train, wanted)
        none = all(unseen(history, seeds) for seeds in both)
        features = [history_features(history, seeds, anchors_unseen=none) for seeds in both]
    own = [own_columns(store_path, cfg, task, np.unique(seeds.index)) for seeds in both]
    all_known = [joined(mine, more) for mine, more in zip(own, features, strict=True)]

    def fitted(model: str, train: Features, wanted: Features) -> dict[str, Any]:
        values = np.full(labels.targets.size, np.nan)
        if wanted.seed_index.size and train.seed_index.size:
            values[wanted.seed_index] = fit_and_predict(
                train, labels.targets[train.seed_index], wanted, task.stype, metric=cfg.metric
            )
        return {"model": model, "features": list(train.names), "values": values}

    return {
        "own_columns": fitted("boosted trees on the anchor's own columns", own[0], own[1]),
        "history": fitted(HISTORY_MODEL, all_known[0], all_known[1]),
    }
