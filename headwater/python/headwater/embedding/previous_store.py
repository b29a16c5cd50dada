"""The store that a build is about to replace: what has changed since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.binding import hash64
from headwater.errors import StoreError
from headwater.store.store import Store, row_counts


def open_previous(path: Path) -> Store | None:
    """The store at `path`; None if there is none, or none that can be read."""
    try:
        return Store(path, verify="header")
    except (StoreError, OSError):
        return None


def count_new(store: Store, windows: Iterable[Sequence[str]]) -> int:
    """How many texts the store does not have, by a sorted array of hashes (8 bytes a text)."""
    known = np.sort(_hashes(map(store.core.text, range(store.core.counts()["text_count"]))))
    count = 0
    for texts in windows:
        asked = _hashes(texts)
        found = np.searchsorted(known, asked) < np.searchsorted(known, asked, "right")
        count += len(asked) - int(found.sum())
    return count


def _hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    return np.fromiter((hash64(text.encode("utf-8"), 0) for text in texts), np.uint64)


def store_changes(
    before: dict[str, Any], after: dict[str, Any], *, new_texts: int
) -> dict[str, Any]:
    """What a build changed: tables, rows, columns, texts and seeds, by name."""
    old, new = row_counts(before), row_counts(after)
    old_columns, new_columns = _columns(before), _columns(after)
    old_tasks, new_tasks = _seed_counts(before), _seed_counts(after)
    types = _changed(old_columns, new_columns)
    return {
        "tables_added": [name for name in new if name not in old],
        "tables_removed": [name for name in old if name not in new],
        "rows": _changed(old, new),
        "columns_added": [
            ".".join(name) for name in new_columns if name not in old_columns and name[0] in old
        ],
        "columns_removed": [
            ".".join(name) for name in old_columns if name not in new_columns and name[0] in new
        ],
        "types_changed": {".".join(name): change for name, change in types.items()},
        "texts": {
            "before": before["text"]["count"],
            "after": after["text"]["count"],
            "new": new_texts,
        },
        "tasks_added": [name for name in new_tasks if name not in old_tasks],
        "tasks_removed": [name for name in old_tasks if name not in new_tasks],
        "seeds": _changed(old_tasks, new_tasks),
    }


def _changed(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, dict[str, Any]]:
    """Both values of what has another one than before."""
    return {
        name: {"before": before[name], "after": value}
        for name, value in after.items()
        if name in before and before[name] != value
    }


def _seed_counts(metadata: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {task["name"]: task["seeds"] for task in metadata["tasks"]}


def _columns(metadata: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Type by (table, column); columns of tasks are their tasks' matter."""
    return {
        (column["table"], column["name"]): column["stype"]
        for column in metadata["columns"]
        if column["table"] is not None
    }


def change_lines(changes: dict[str, Any]) -> list[str]:
    """For people, one line each; the first says that nothing changed, where nothing did."""
    texts = changes["texts"]
    lines = [f"table {name} added" for name in changes["tables_added"]]
    lines += [f"table {name} removed" for name in changes["tables_removed"]]
    for name, count in changes["rows"].items():
        difference = count["after"] - count["before"]
        lines.append(f"{name}: {count['before']:,} to {count['after']:,} rows ({difference:+,})")
    lines += [f"column {name} added" for name in changes["columns_added"]]
    lines += [f"column {name} removed" for name in changes["columns_removed"]]
    for name, types in changes["types_changed"].items():
        lines.append(f"column {name} is {types['after']}, was {types['before']}")
    if texts["before"] != texts["after"] or texts["new"]:
        lines.append(
            f"texts: {texts['before']:,} to {texts['after']:,}, {texts['new']:,} of them new"
        )
    lines += [f"task {name} added" for name in changes["tasks_added"]]
    lines += [f"task {name} removed" for name in changes["tasks_removed"]]
    for name, seeds in changes["seeds"].items():
        parts = [
            f"{split} {seeds['before'][split]:,} to {count:,}"
            for split, count in seeds["after"].items()
            if seeds["before"].get(split) not in (count, None)
        ]
        lines.append(f"seeds of {name}: {', '.join(parts)}")
    return lines
