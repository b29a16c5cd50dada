"""Why rows of a task are not seeds: each reason with its count and the edit that mends it.

A build counts the reasons (`builder/task_seeds.py`). The task's entry in metadata.json has the
counts: `dropped` for all rows, `dropped_by_split` if splits are given, and `unknown_key`, the first
key that names no row. So code that finds a task or a split without seeds can name the cause from
the store alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.metadata.parts import SPLITS

NULL_KEY = "anchor key is NULL"
UNKNOWN_KEY = "no anchor row"
NOT_A_TIME = "obs_time is no time"
NULL_TIME = "obs_time is NULL"
SAME_DAY = "the anchor's day is not over at obs_time"
NEWER = "anchor newer than obs_time"
UNTIMED = "the anchor has no time"
NO_LABEL = "no label"
NEARLY_ALL = 0.9  # share of a task's rows that are asked before their anchors
KEEP = '"allow_future_anchor": true in the task keeps them'


def why_empty(metadata: Mapping[str, Any], name: str, split: str | None = None) -> str | None:
    """Why a task of a store has no seeds, or none in a split: counts, reasons and edits.

    split: None if splits are not those of the store, such as those by a time. Returns None if the
    rows that were dropped are not the cause, or if the store does not have the reasons.
    """
    task = next(entry for entry in metadata["tasks"] if entry["name"] == name)
    if "dropped" not in task:
        return None
    is_given = split is not None and task["split"] == "given"
    if not is_given and sum(task["dropped"].values()) < NEARLY_ALL * task["rows"]:
        return None  # its seeds are in other splits
    times = {table["name"]: table["temporal_column"] for table in metadata["tables"]}
    return dropped_text(task, times[task["anchor_table"]], split)


def dropped_text(
    task: Mapping[str, Any], temporal_column: str | None, split: str | None = None
) -> str | None:
    """How many rows of a task, or of a split, are dropped, and why. None if none is dropped.

    task: its entry in a store's metadata.json. temporal_column: that of its anchor table.
    """
    counts, rows, whose = task["dropped"], task["rows"], "the task"
    if split is not None and task["split"] == "given":
        counts = task.get("dropped_by_split", {}).get(split, {})
        rows, whose = sum(counts.values()) + task["seeds"][split], f"split '{split}'"
    elif not rows:
        return "its query or label tables have no rows"
    count = sum(counts.values())
    if not count:
        return None
    share = f"all {rows:,}" if count == rows else f"{count:,} of the {rows:,}"
    ordered = sorted(counts, key=lambda reason: -counts[reason])
    reasons = [reason_text(task, temporal_column, reason, counts[reason]) for reason in ordered]
    return f"{share} rows of {whose} are dropped: {'; '.join(reasons)}"


def reason_text(
    task: Mapping[str, Any], temporal_column: str | None, reason: str, count: int
) -> str:
    """How many rows are dropped for one reason, and the edit that mends it."""
    table = task["anchor_table"]
    own_time = f"{table}.{temporal_column}"
    have, are = ("has", "is") if count == 1 else ("have", "are")
    unknown = task.get("unknown_key")  # which older stores do not have
    example, column = "", "the key column"
    if unknown:
        column = "that column"
        example = f", such as {unknown['key']!r} (looked for in {unknown['column']})"
    texts = {
        NULL_KEY: f"{have} no key: select the key of a row of {table}",
        UNKNOWN_KEY: f"{have} a key that names no row of {table}{example}: select keys of "
        f'{column}, or name the columns that hold them with "anchor_key"',
        NOT_A_TIME: f"{have} a time of the question that cannot be read as a time: write times "
        "as 2024-05-02 09:30:00",
        NULL_TIME: f"{have} no time of the question: give each row one, or leave such rows out",
        SAME_DAY: f"{are} asked before the day of the row of {table} is over ({own_time} holds "
        f"days, and a day is known at its end): ask from the next day on; {KEEP}",
        NEWER: f"{are} asked before the row of {table} came to be ({own_time}): ask later, or "
        f'correct "temporal_column" of {table}; {KEEP}',
        UNTIMED: f"{are} about a row of {table} without a time ({own_time} is NULL), which comes "
        'to be never: fill in that time, or write "null_time": "visible" in the table if such rows '
        f"were always there; {KEEP}",
        NO_LABEL: f'{have} no label, and the task has "require_label": correct the target, or '
        "remove require_label",
    }
    return f"{count:,} {texts[reason]}"


def empty_lines(task: Mapping[str, Any], temporal_column: str | None) -> list[str]:
    """Lines on a task that a person should check first: it has no seeds, or none in a split, or
    nearly all of its rows are asked before their anchors came to be."""
    name, counts = task["name"], task["dropped"]
    why = dropped_text(task, temporal_column)
    if sum(counts.values()) == task["rows"]:
        return [f"task {name} has no seeds: {why}"]
    if task["split"] == "given":
        empty = [split for split in SPLITS if not task["seeds"][split]]
        reasons = {split: dropped_text(task, temporal_column, split) for split in empty}
        lines = [
            f"task {name} has no seeds in split '{split}': {why}"
            for split, why in reasons.items()
            if why is not None
        ]
        if lines:
            return lines
    early = sum(counts.get(reason, 0) for reason in (NEWER, SAME_DAY, UNTIMED))
    return [f"task {name}: {why}"] if early >= NEARLY_ALL * task["rows"] else []
