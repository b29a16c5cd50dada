"""The seeds of a task: whether a question, or its answer, stands in more than one split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.findings import EXAMPLES_MAX, Findings
from headwater.audit.stored import NO_TIME, SPLIT_HASHED, Stored, StoredTask
from headwater.audit.view import time_text
from headwater.store.inspection import NO_TIMES, no_times_reached, open_windows_text

Array = NDArray[Any]
SPLITS = ("train", "val", "test")
NO_SPLIT = 3


def check_questions(
    stored: Stored, task: StoredTask, splits: Array, findings: Findings, *, by_time: bool,
    train_on_val: bool,
) -> None:  # fmt: skip
    """`splits`: uint8 [n], the split of every seed as the sampler has it, 3 in none; by_time: train
    was dealt anew by `time_split`; train_on_val: it has the seeds of val."""
    findings.looked_at("splits", int((splits < NO_SPLIT).sum()))
    if not by_time:
        check_given(task, splits, findings, train_on_val=train_on_val)
    is_given = task.given_split or by_time
    check_anchors(stored, task, splits, findings, by_anchor=task.is_cell or not is_given)
    check_times(stored, task, findings)
    entry = next(one for one in stored.metadata["tasks"] if one["name"] == task.name)
    if text := open_windows_text(entry):
        findings.to_check("no label yet", task.name, text, entry["open_windows"]["seeds"])
    if is_given:
        check_order(stored, task, splits, findings)


def check_given(task: StoredTask, splits: Array, findings: Findings, *, train_on_val: bool) -> None:
    """What the task says wins over any hash."""
    given = task.states >> 4
    if train_on_val:
        given = np.where(given == SPLITS.index("val"), SPLITS.index("train"), given)
    moved = (given != SPLIT_HASHED) & (given != splits)
    if moved.any():
        text = "seeds in another split than the task gives them"
        findings.leak("splits", task.name, text, int(moved.sum()), _seed_text(task, moved, splits))


def check_anchors(
    stored: Stored, task: StoredTask, splits: Array, findings: Findings, *, by_anchor: bool
) -> None:
    """The same answer in two splits: of one cell, of one anchor at one time, or, where splits are
    by hash, of one anchor."""
    anchor_name = stored.tables[task.anchor_table].name
    if by_anchor:
        groups = task.anchors.astype(np.int64)
        what = f"cells of {anchor_name}" if task.is_cell else f"rows of {anchor_name}"
    else:
        order = np.lexsort((task.obs_times, task.anchors))
        anchors, times = task.anchors[order], task.obs_times[order]
        new = np.ones(len(order), bool)
        new[1:] = (anchors[1:] != anchors[:-1]) | (times[1:] != times[:-1])
        groups = np.empty(len(order), np.int64)
        groups[order] = np.cumsum(new)
        what = f"rows of {anchor_name} asked about at the same time"
    shared = _in_several(groups, splits)
    if shared.any():
        text = f"{what} in more than one split"
        example = _seed_text(task, shared, splits)
        findings.leak("splits", task.name, text, len(np.unique(groups[shared])), example)


def check_times(stored: Stored, task: StoredTask, findings: Findings) -> None:
    """A seed without a time sees everything that ever happened; so does one among untimed rows."""
    timed = [table.name for table in stored.tables if table.is_timed]
    timeless = int((task.obs_times == NO_TIME).sum())
    anchor_name, asked = stored.tables[task.anchor_table].name, len(task.anchors) - timeless
    if asked and no_times_reached(stored.metadata, anchor_name):
        findings.to_check("no time", task.name, NO_TIMES.format(anchor_name), asked)
    if timed and timeless:
        text = (
            f"{timeless:,} of {len(task.anchors):,} seeds have no observation time: their contexts "
            f"show all rows of {', '.join(timed[:EXAMPLES_MAX])}, whatever their times"
        )
        if stored.metadata["tasks"][task.number].get("sees_everything"):
            text += ', as its "sees_everything" states'
        findings.to_check("no time", task.name, text, timeless)


def check_order(stored: Stored, task: StoredTask, splits: Array, findings: Findings) -> None:
    """Given splits: train should be asked, and answered, before val and test."""
    labelled = (task.obs_times != NO_TIME) & ((task.states & 15) <= 1)
    train = labelled & (splits == 0)
    if not train.any():
        return
    for split in (1, 2):
        other = (task.obs_times != NO_TIME) & (splits == split)
        if not other.any():
            continue
        first = int(task.obs_times[other].min())
        after = train & (task.obs_times >= first)
        name = SPLITS[split]
        if after.any():
            shared = np.isin(task.anchors[after], task.anchors[other])
            text = (
                f"{int(after.sum()):,} train seeds are asked at or after the first {name} seed "
                f"({time_text(first)}), {int(shared.sum()):,} of them about rows that {name} asks "
                f"about too: their contexts show what {name} is to predict"
            )
            findings.to_check("splits in time", task.name, text, int(after.sum()))
            continue
        known = _known(stored, task)
        if known is None:
            continue
        open_still = train & (known > first) & (known != NO_TIME)
        if open_still.any():
            text = (
                f"the labels of {int(open_still.sum()):,} train seeds are known only after the "
                f"first {name} seed is asked ({time_text(first)}): leave a gap of a label window "
                f"between the splits"
            )
            findings.to_check("label windows", task.name, text, int(open_still.sum()))


def _known(stored: Stored, task: StoredTask) -> Array | None:
    """When each label is known, int64 [n]; None where the task does not say."""
    if task.label_times is not None:
        return task.label_times
    window = stored.metadata["tasks"][task.number].get("label_window_us")
    if window is None:
        return None
    return np.where(task.obs_times == NO_TIME, NO_TIME, task.obs_times + int(window))


def _in_several(groups: Array, splits: Array) -> Array:
    """bool [n]: whether a seed's group has seeds in more than one split."""
    _, group = np.unique(groups, return_inverse=True)
    seen = np.zeros((group.max(initial=-1) + 1, NO_SPLIT), bool)
    dealt = splits < NO_SPLIT
    seen[group[dealt], splits[dealt]] = True
    return np.asarray(seen.sum(1) > 1)[group]


def _seed_text(task: StoredTask, which: Array, splits: Array) -> str:
    seed = int(np.flatnonzero(which)[0])
    split = SPLITS[min(int(splits[seed]), 2)]
    at = time_text(int(task.obs_times[seed]))
    return f"seed {seed} ({split}), anchor {task.anchors[seed]}, {at}"
