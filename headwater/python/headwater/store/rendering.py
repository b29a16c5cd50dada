"""A context as people read it: a tree of rows by foreign keys, and one table per table.

It shows what the batch holds and nothing more: a cell that was withheld is absent, the target is a
question mark, times stand beside the age of the row relative to the observation time. Values come
from the store, in source units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from headwater.store.row_keys import NO_TIME_US, datetime_of
from headwater.store.store import NO_ROW, key_name

CELL_WIDTH_MAX = 28
SECONDS_PER_DAY = 86_400
TARGET = "?"
UNCERTAIN = "…"  # a label row whose anchor is not in the context may be of several
AGE_TOLERANCE = 1e-5  # relative, of float32
US_PER_DAY = 1e6 * SECONDS_PER_DAY


@dataclass(frozen=True)
class ContextRow:
    """One visited row of a context."""

    local: int
    table: str
    key: str
    age_days: float | None
    depth: int
    cells: dict[str, str]  # emitted columns only, as text
    link: tuple[int, str] | None  # the earlier row it hangs on, and by which key


@dataclass(frozen=True)
class Context:
    """The rows of one sequence in visit order."""

    task: str
    seed: int  # within the task, in stored order
    obs_time: str
    target: str  # name
    truth: str
    cell_count: int
    rows: tuple[ContextRow, ...]

    def tree(self) -> str:
        """Rows below the row that led to them."""
        below: dict[int, list[ContextRow]] = {}
        for row in self.rows[1:]:
            below.setdefault(row.link[0] if row.link else 0, []).append(row)
        lines: list[str] = []
        stack = [(self.rows[0], "", "")] if self.rows else []
        while stack:
            row, lead, indent = stack.pop()
            way = f"  [{row.link[1]}]" if row.link else ""
            lines.append(f"{lead}#{row.local} {row.table} {row.key}{_age(row.age_days)}{way}")
            children = below.get(row.local, [])
            for position, child in reversed(list(enumerate(children))):
                last = position == len(children) - 1
                branch, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
                stack.append((child, indent + branch, indent + rest))
        return "\n".join(lines)

    def tables(self) -> str:
        """One table per table of the database, rows in visit order."""
        by_table: dict[str, list[ContextRow]] = {}
        for row in self.rows:
            by_table.setdefault(row.table, []).append(row)
        parts = []
        for name, rows in by_table.items():
            columns = list(dict.fromkeys(column for row in rows for column in row.cells))
            lines = [["#", "age", *columns]]
            for row in rows:
                cells = [row.cells.get(column, "") for column in columns]
                lines.append([str(row.local), _age(row.age_days).strip(" ()"), *cells])
            parts.append(f"{name}\n{aligned(lines)}")
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "seed": self.seed,
            "obs_time": self.obs_time,
            "target": self.target,
            "truth": self.truth,
            "cells": self.cell_count,
            "rows": [
                {
                    "row": row.local,
                    "table": row.table,
                    "key": row.key,
                    "age_days": row.age_days,
                    "depth": row.depth,
                    "cells": row.cells,
                    "link": None if row.link is None else {"to": row.link[0], "by": row.link[1]},
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        head = f"task {self.task}, seed {self.seed}, observed at {self.obs_time}: "
        head += f"{len(self.rows)} rows, {self.cell_count} cells"
        truth = f"The answer to the question mark, {self.target}: {self.truth}"
        return f"{head}\n\n{self.tree()}\n\n{self.tables()}\n\n{truth}"


def read_context(store: Any, metadata: Mapping[str, Any], batch: Any, position: int) -> Context:
    """The context of one sequence of a batch that was sampled with `with_rows=True`."""
    return _ContextReader(store, metadata, batch, position).read()


class _ContextReader:
    def __init__(self, store: Any, metadata: Mapping[str, Any], batch: Any, position: int) -> None:
        self.store, self.metadata, self.batch, self.position = store, metadata, batch, position
        self.task = metadata["tasks"][int(batch["task_idx"][0])]
        self.keys = {table["name"]: table["foreign_keys"] for table in metadata["tables"]}
        self.row_ids = batch.info["row_ids"][position]
        self.row_count = int(batch["num_rows"][position])
        self.cells = self.read_cells()

    def read_cells(self) -> dict[int, dict[str, bool]]:
        """Per local row the names of its emitted cells, and whether each is the target."""
        batch, position = self.batch, self.position
        found: dict[int, dict[str, bool]] = {}
        for cell in range(int(batch["num_cells"][position])):
            name = self.metadata["columns"][int(batch["column_ids"][position][cell])]["name"]
            row = int(batch["seq_row_ids"][position][cell])
            found.setdefault(row, {})[name] = bool(batch["is_target"][position][cell])
        return found

    def read(self) -> Context:
        rows = tuple(self.row(local) for local in range(self.row_count))
        count = int(self.batch["num_cells"][self.position])
        seed = int(self.batch.info["seed_index"][self.position])
        name, target = self.task["name"], self.task["target_column"]
        return Context(name, seed, self.obs_time(), target, self.truth(seed), count, rows)

    @cached_property
    def seeds(self) -> Mapping[str, Any]:
        return dict(self.store.task_seeds(self.task["name"]))

    def truth(self, seed: int) -> str:
        """The seed's target in source units."""
        seeds = self.seeds
        if not seeds["labelled"][seed]:
            return "not known"
        value = float(seeds["target"][seed])
        if seeds["is_null"][seed]:
            return cell_text(None)
        match self.task["target_stype"]:
            case "boolean":
                return cell_text(bool(value))
            case "timestamp":
                return time_text(int(value))
            case "categorical":
                stats = self.metadata["columns"][self.task["target_column_id"]]["stats"]
                return str(stats["categories"][int(value)])
            case _:
                return cell_text(value)

    def obs_time(self) -> str:
        return time_text(int(self.batch.info["obs_time"][self.position]))

    def row(self, local: int) -> ContextRow:
        row_id, emitted = int(self.row_ids[local]), self.cells.get(local, {})
        depth = int(self.batch["row_depths"][self.position][local])
        age = float(self.batch["row_ages"][self.position][local])
        if row_id == NO_ROW and local > 0:
            return self.label_row(local, depth, age, list(emitted))
        if row_id == NO_ROW:
            asked = self.obs_time()
            cells = {name: TARGET if masked else asked for name, masked in emitted.items()}
            name = f"task {self.task['name']}"
            key, newest = ("seed, the newest row seen:", age) if age >= 0 else ("seed", None)
            return ContextRow(local, name, key, newest, depth, cells, None)
        row = self.store.row(row_id)
        cells = {
            name: TARGET if masked else cell_text(row["cells"].get(name))
            for name, masked in emitted.items()
        }
        key = ", ".join(map(str, row["key"].values()))
        age_days, link = None if age < 0 else age, self.link(local, depth)
        return ContextRow(local, row["table"], key, age_days, depth, cells, link)

    def label_row(self, local: int, depth: int, age: float, emitted: Sequence[str]) -> ContextRow:
        """An earlier seed with its answer, as far as its anchor and age tell which one it is."""
        found = self.seeds_of_label(local, age)
        asked = {time_text(int(self.seeds["obs_time"][seed])) for seed in found}
        answers = {self.truth(int(seed)) for seed in found}
        answer, time = (texts.pop() if len(texts) == 1 else UNCERTAIN for texts in (answers, asked))
        cells = {name: answer if name == self.task["target_column"] else time for name in emitted}
        name = f"task {self.task['name']}"
        age_days = None if age < 0 else age
        return ContextRow(local, name, "label", age_days, depth, cells, self.link(local, depth))

    def seeds_of_label(self, local: int, age: float) -> Any:
        """Seeds that a label row may be of: of its anchor, or of any but the seed's own where that
        is not in the context."""
        own = self.batch.info["anchor_rows"][self.position]
        named = np.flatnonzero(self.batch["fk_adj"][self.position][local])
        anchors, times = self.seeds["anchor_row"], self.seeds["obs_time"]
        may = anchors == self.row_ids[named[0]] if len(named) else anchors != own
        asked = int(self.batch.info["obs_time"][self.position])
        if asked != NO_TIME_US:
            ages = (asked - times.astype(np.float64)) / US_PER_DAY
            may = may & (np.abs(ages - age) <= AGE_TOLERANCE * np.maximum(age, 1e-3))
        return np.flatnonzero(may & self.seeds["labelled"])

    def link(self, local: int, depth: int) -> tuple[int, str] | None:
        """The row of the task right before that points at this one, else the first earlier row one
        hop nearer, and the key between the two."""
        adjacent = self.batch["fk_adj"][self.position]
        near = [other for other in range(local) if adjacent[other][local] or adjacent[local][other]]
        depths = self.batch["row_depths"][self.position]
        best = [other for other in near if int(depths[other]) == depth - 1] or near
        if local > 0 and self.row_ids[local - 1] == NO_ROW and adjacent[local - 1][local]:
            best = [local - 1]
        if not best:
            return None
        other = best[0]
        if adjacent[other][local]:
            return other, f"parent by {self.key_name(other, local)}"
        return other, f"child by {self.key_name(local, other)}"

    def key_name(self, child: int, parent: int) -> str:
        """The first visible foreign key of a row that leads to another."""
        child_row = int(self.row_ids[child])
        if child_row == NO_ROW:
            return "the task's anchor key"
        table = str(self.store.row(child_row)["table"])
        slots = np.flatnonzero(self.batch["parents"][self.position][child] == parent)
        return key_name(table, self.keys[table][slots[0]])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, long cells cut; the first line is a heading."""
    cut = [[_cut(cell) for cell in line] for line in lines]
    widths = [max(len(line[place]) for line in cut) for place in range(len(cut[0]))]
    rows = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cut
    ]
    return "\n".join([rows[0], "  ".join("─" * width for width in widths), *rows[1:]])


def cell_text(value: Any) -> str:
    if value is None:
        return "∅"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        value += 0.0  # no negative zero
        return f"{value:g}" if abs(value) < 1e6 or value != int(value) else f"{value:.0f}"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.removesuffix(" 00:00:00")
    return str(value)


def time_text(time_us: int) -> str:
    if time_us == NO_TIME_US:
        return "no time (all is visible)"
    return cell_text(datetime_of(time_us))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CELL_WIDTH_MAX else line[: CELL_WIDTH_MAX - 1] + "…"


def _age(days: float | None) -> str:
    if days is None:
        return ""
    if days == 0:
        return "  (now)"
    if days >= 1:
        return f"  (-{days:.1f} d)" if days < 3650 else f"  (-{days / 365.25:.0f} y)"
    hours = days * 24
    return f"  (-{hours:.1f} h)" if hours >= 1 else f"  (-{days * SECONDS_PER_DAY:.0f} s)"
