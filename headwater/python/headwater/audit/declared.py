"""The store against what its metadata declare, and its index of times against its time columns.

The sampler obeys schema.bin and the section TIMES. Both are made by the build from what the user
declared; if they say something else, every context is drawn by the wrong rules and each rule is
kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.audit.findings import Findings
from headwater.audit.rules import known_text
from headwater.audit.stored import DAYS, NO_TIME, NULL_TIME_VISIBLE, Stored, StoredTask
from headwater.audit.view import time_text

ROWS_AT_ONCE = 1_000_000


def check_declared(stored: Stored, findings: Findings) -> None:
    """Everything that decides what may be seen and stands in both."""
    metadata = stored.metadata
    for table, entry in zip(stored.tables, metadata["tables"], strict=True):
        time = table.time_column
        _compare(findings, f"table {table.name}", {
            "temporal_column": (time.name if time else None, entry["temporal_column"]),
            "time_resolution": (
                "day" if table.flags & DAYS else "instant", entry.get("time_resolution")),
            "null_time": (
                "visible" if table.flags & NULL_TIME_VISIBLE else "hidden", entry.get("null_time")),
            "row_range": (
                [table.row_start, table.row_start + table.row_count], entry["row_range"]
            ),
        })  # fmt: skip
    for column, entry in zip(stored.columns, metadata["columns"], strict=True):
        name = f"column {stored.full_name(column)}"
        found = {"stype": (column.stype, entry["stype"])}
        if "known_at" in entry or column.known_kind == "creation":
            found["known_at"] = (known_text(stored, column), entry.get("known_at", "creation"))
        _compare(findings, name, found)
    for task, entry in zip(stored.tasks, metadata["tasks"], strict=True):
        _compare(findings, f"task {task.name}", _declared_of_task(stored, task, entry))


def _declared_of_task(
    stored: Stored, task: StoredTask, entry: dict[str, object]
) -> dict[str, tuple[object, object]]:
    hidden = sorted(stored.full_name(number) for number in task.hidden)
    declared = entry.get("hidden_columns")
    return {
        "kind": ("cell" if task.is_cell else "derived", entry["kind"]),
        "anchor_table": (stored.tables[task.anchor_table].name, entry["anchor_table"]),
        "target_column": (stored.columns[task.target_column].name, entry["target_column"]),
        "cutoff": ("exclusive" if task.is_exclusive else "inclusive", entry.get("cutoff")),
        "context_labels": (task.context_labels, entry.get("context_labels")),
        "sees_everything": (
            bool((task.obs_times == NO_TIME).all()),
            entry.get("sees_everything") or None,
        ),
        "hidden_columns": (hidden, sorted(declared) if isinstance(declared, list) else None),
    }


def _compare(findings: Findings, where: str, facts: Mapping[str, tuple[object, object]]) -> None:
    """(in the store, declared) by name; None is not declared, but of a column's name."""
    for name, (kept, declared) in facts.items():
        if declared is None and name != "temporal_column":
            continue
        findings.looked_at("declared", 1)
        if kept != declared:
            told = f"{where} keeps {name} {kept!r}, the metadata say {declared!r}"
            findings.leak("declared", None, "rules that are not as declared", 1, told)


def check_times(stored: Stored, findings: Findings) -> None:
    """The section TIMES, by which rows are found, against the column it was made from."""
    for table in stored.tables:
        if table.index_times is None:
            continue
        for start in range(0, table.row_count, ROWS_AT_ONCE):
            rows = slice(start, min(start + ROWS_AT_ONCE, table.row_count))
            index, own = np.asarray(table.index_times[rows]), table.times(rows)
            findings.looked_at("times", len(own))
            wrong = np.flatnonzero(index != own)
            if len(wrong):
                row = start + int(wrong[0])
                example = (
                    f"row {table.row_start + row}: {time_text(int(index[wrong[0]]))} in the index, "
                    f"{time_text(int(own[wrong[0]]))} in its column"
                )
                text = f"rows of {table.name} that are indexed at another time than they have"
                findings.leak("times", None, text, len(wrong), example)
