"""Whether label rows can be of use: some tasks have none, some splits only in train."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confluence.config import Config
from confluence.data.stores import OpenStore
from confluence.data.tasks import SPLITS, Labels, Task
from confluence.trees.history import label_lists
from confluence.trees.time_lists import Moments


def check_label_rows(stores: Sequence[OpenStore], cfg: Config) -> None:
    """Warn of tasks whose contexts have no label rows, though the settings ask for some."""
    if not cfg.label_row_limit:
        return
    for store in stores:
        for place, task, labels in zip(store.places, store.tasks, store.labels, strict=True):
            entry = store.metadata["tasks"][task.index]
            if reason := _reason(task, labels, cfg, entry):
                warnings.warn(
                    f"label_rows is {cfg.label_rows}, and task '{place.title}' {reason}",
                    stacklevel=3,
                )


def has_label_rows(stores: Sequence[OpenStore], cfg: Config) -> bool:
    """Whether contexts of each task could have label rows, in every split."""
    return all(
        _reason(task, labels, cfg, store.metadata["tasks"][task.index]) is None
        for store in stores
        for task, labels in zip(store.tasks, store.labels, strict=True)
    )


def _reason(task: Task, labels: Labels, cfg: Config, entry: Mapping[str, Any]) -> str | None:
    """Why label rows bring nothing or harm; None where they do not. `entry`: the task's in the
    metadata."""
    if entry["kind"] != "derived":
        return "asks for a cell: it has no label rows"
    if labels.label_times is None:
        return "states neither label_window nor label_known_at: it has no label rows"
    if cfg.hop_limit == 0:
        return "has them one hop from the anchor, but max_hops is 0"
    rule = cfg.context_labels or entry.get("context_labels") or "train"
    if rule == "none":
        return "shows no labels (context_labels 'none')"
    if rule == "all":
        return None
    shown = _share_with_label(task, labels, inclusive=entry["cutoff"] == "inclusive")
    if not shown["train"]:
        return "has no seed with an earlier label that is known by then: it has no label rows"
    if without := [name for name in ("val", "test") if shown.get(name) == 0]:
        return (
            f"has them in {shown['train']:.0%} of the contexts of train and in none of"
            f" {' and '.join(without)}, as a split by chance keeps all seeds of an anchor together:"
            " what is learned from them is not there when it counts. context_labels 'all' shows"
            " the labels of val and test that are known by then"
        )
    return None


def _share_with_label(task: Task, labels: Labels, *, inclusive: bool) -> dict[str, float]:
    """The share of the seeds of each split that has any whose anchor has a known train label."""
    known = label_lists(labels, task.label_window_us)
    times = labels.obs_times
    limits = Moments(obs_times=times, cutoffs=times, inclusive=inclusive).limits
    shown = known.lists.counts(known.owners, limits) > 0
    return {
        name: float(np.mean(shown[labels.splits == split]))
        for name, split in SPLITS.items()
        if np.any(labels.splits == split)
    }
