"""The store that a build is about to replace: what has changed since.

`PreviousStore` is opened before the build and closed before publication. Its texts are found by a
sorted array of 64-bit hashes (8 bytes a text).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import StoreError


class PreviousStore:
    """An open store of an earlier build."""

    def __init__(self, path: Path) -> None:
        from headwater import binding

        self.core = binding.Store(path)
        file = Path(self.core.directory()) / "metadata.json"
        try:
            self.metadata: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read '{file}': {error}") from error
        self._hashes: NDArray[np.uint64] | None = None

    @staticmethod
    def open(path: Path) -> PreviousStore | None:
        """The store at `path`; None if there is none, or none that can be read."""
        try:
            return PreviousStore(path)
        except (StoreError, OSError):
            return None

    def close(self) -> None:
        self.core.close()

    @property
    def fingerprint(self) -> str:
        return self.core.fingerprint()

    def _index(self) -> NDArray[np.uint64]:
        if self._hashes is None:
            count = self.core.counts()["text_count"]
            self._hashes = np.sort(text_hashes(self.core.text(i) for i in range(count)))
        return self._hashes

    def count_new(self, texts: Sequence[str]) -> int:
        """How many of the texts the store does not have (by their hashes)."""
        hashes, asked = self._index(), text_hashes(texts)
        places = np.searchsorted(hashes, asked)
        within = places < len(hashes)
        found = np.zeros(len(asked), bool)
        found[within] = hashes[places[within]] == asked[within]
        return int(len(asked) - found.sum())


def text_hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    from headwater.binding import hash64

    return np.fromiter((hash64(text.encode("utf-8"), 0) for text in texts), np.uint64)


def store_changes(
    before: dict[str, Any], after: dict[str, Any], *, new_texts: int
) -> dict[str, Any]:
    """What a build changed: tables, rows, columns, texts and seeds, by name."""
    old, new = _tables(before), _tables(after)
    rows = {
        name: {"before": _row_count(old[name]), "after": _row_count(new[name])}
        for name in new
        if name in old and _row_count(old[name]) != _row_count(new[name])
    }
    old_columns, new_columns = _columns(before), _columns(after)
    same = [name for name in new_columns if name in old_columns]
    old_tasks = {task["name"]: task["seeds"] for task in before["tasks"]}
    new_tasks = {task["name"]: task["seeds"] for task in after["tasks"]}
    return {
        "tables_added": [name for name in new if name not in old],
        "tables_removed": [name for name in old if name not in new],
        "rows": rows,
        "columns_added": [
            ".".join(name) for name in new_columns if name not in old_columns and name[0] in old
        ],
        "columns_removed": [
            ".".join(name) for name in old_columns if name not in new_columns and name[0] in new
        ],
        "types_changed": {
            ".".join(name): {"before": old_columns[name], "after": new_columns[name]}
            for name in same
            if old_columns[name] != new_columns[name]
        },
        "texts": {
            "before": before["text"]["count"],
            "after": after["text"]["count"],
            "new": new_texts,
        },
        "tasks_added": [name for name in new_tasks if name not in old_tasks],
        "tasks_removed": [name for name in old_tasks if name not in new_tasks],
        "seeds": {
            name: {"before": old_tasks[name], "after": new_tasks[name]}
            for name in new_tasks
            if name in old_tasks and old_tasks[name] != new_tasks[name]
        },
    }


def _tables(metadata: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in metadata["tables"]}


def _row_count(table: dict[str, Any]) -> int:
    low, high = table["row_range"]
    return int(high - low)


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
