"""The contexts of a batch as flat arrays: one entry per visited row, per cell, per link.

Row numbers come from the batch, everything about the rows (table, time, parents) from the store's
files. `start[b] + local` is the place of a sequence's local row in the arrays by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.stored import ALWAYS, NO_ROW, NO_TIME, Stored, StoredTask

Array = NDArray[Any]


@dataclass(frozen=True)
class Links:
    """Foreign keys of visited rows that lead to visited rows, as the store has them: arrays [E].

    No file says which seed a label row is of: where it points is what the batch says.
    """

    child: Array  # place by row
    key: Array  # global number; -1: a task's row and its anchor (of a label row: as it claims)
    parent: Array  # place by row


class View:
    """One batch of a task and split; `until` is min(obs_time, visible_until)."""

    def __init__(
        self, stored: Stored, task: StoredTask, batch: Any, split: int, visible_until: int
    ) -> None:
        self.stored, self.task, self.batch, self.split = stored, task, batch, split
        self.count = int(batch["num_sequences"][0])
        row_counts = batch["num_rows"][: self.count].astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(row_counts)])
        self.sequence, self.local = _places(row_counts)
        self.row = batch.info["row_ids"][self.sequence, self.local].astype(np.int64)
        self.depth = batch["row_depths"][self.sequence, self.local].astype(np.int64)
        self.age = batch["row_ages"][self.sequence, self.local]
        self.is_of_task = self.row == NO_ROW  # a seed row or a label row
        self.table = np.where(self.is_of_task, -1, stored.tables_of(self.row))
        self.seed = batch.info["seed_index"][: self.count].astype(np.int64)
        self.obs_time = batch.info["obs_time"][: self.count]
        self.cutoff = np.minimum(self.obs_time, visible_until)
        self.anchor = batch.info["anchor_rows"][: self.count].astype(np.int64)
        self.until = self.cutoff[self.sequence]
        self.is_anchor = self.row == self.anchor[self.sequence]
        self.is_label = self.is_of_task & (self.local > 0)

    @cached_property
    def time(self) -> Array:
        """When each row becomes visible, int64; ALWAYS for rows of tables without times."""
        times = np.full(len(self.row), ALWAYS, np.int64)
        for number in np.unique(self.table[~self.is_of_task]):
            table, here = self.stored.tables[number], self.table == number
            times[here] = table.times(self.row[here] - table.row_start)
        return times

    @cached_property
    def anchor_time(self) -> Array:
        """Of each sequence; ALWAYS where the anchor's table has no times."""
        table = self.stored.tables[self.task.anchor_table]
        return np.asarray(table.times(self.anchor - table.row_start))

    @cached_property
    def label_anchor(self) -> Array:
        """The anchor that a label row says it is of, by row; NO_ROW: of none in the context."""
        found = np.full(len(self.row), NO_ROW, np.int64)
        places = np.flatnonzero(self.is_label)
        if len(places) == 0:
            return found
        sequence = self.sequence[places]
        listed = self.batch["parents"][sequence, self.local[places], 0].astype(np.int64)
        inside = self.start[sequence] + listed < self.start[sequence + 1]
        parents = self.start[sequence[inside]] + listed[inside]
        is_anchor = self.table[parents] == self.task.anchor_table
        found[places[inside]] = np.where(is_anchor, self.row[parents], NO_ROW)
        return found

    @cached_property
    def links(self) -> Links:
        codes = self.sequence.astype(np.int64) << 32 | self.row
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]

        def find(sequences: Array, rows: Array) -> Array:
            """Place by row, -1 where the sequence has not visited it."""
            wanted = sequences.astype(np.int64) << 32 | rows.astype(np.int64)
            at = np.minimum(np.searchsorted(ordered, wanted), max(len(ordered) - 1, 0))
            found = (ordered[at] == wanted) & (rows != NO_ROW)
            return np.where(found, order[at], -1)

        own = np.flatnonzero(self.is_of_task)
        anchors = np.where(self.is_label, self.label_anchor, self.anchor[self.sequence])
        parts = [(own, np.full(len(own), -1), find(self.sequence[own], anchors[own]))]
        for number in np.unique(self.table[~self.is_of_task]):
            table, here = self.stored.tables[number], np.flatnonzero(self.table == number)
            for key in table.keys:
                parents = table.parents(key, self.row[here] - table.row_start)
                parts.append(
                    (here, np.full(len(here), key.number), find(self.sequence[here], parents))
                )
        child, key_numbers, parent = (np.concatenate(part) for part in zip(*parts, strict=True))
        inside = parent >= 0
        return Links(child[inside], key_numbers[inside], parent[inside])

    # ---- cells ---------------------------------------------------------------------------

    @cached_property
    def cell_place(self) -> tuple[Array, Array]:
        """(sequence, position) of every cell."""
        return _places(self.batch["num_cells"][: self.count].astype(np.int64))

    @cached_property
    def cell_row(self) -> Array:
        """Place by row of every cell."""
        sequence, position = self.cell_place
        return np.asarray(self.start[sequence] + self.batch["seq_row_ids"][sequence, position])

    @cached_property
    def cell_column(self) -> Array:
        return self.cells("column_ids").astype(np.int64)

    @cached_property
    def cell_is_target(self) -> Array:
        return self.cells("is_target").astype(bool)

    def cells(self, name: str) -> Array:
        """An array [B, S, ...] of the batch by cell."""
        sequence, position = self.cell_place
        return np.asarray(self.batch[name][sequence, position])

    # ---- words ---------------------------------------------------------------------------

    def row_text(self, place: int) -> str:
        """A row for people: its table and number, its time, the cutoff, the seed."""
        row, sequence = int(self.row[place]), int(self.sequence[place])
        number = int(self.table[place])
        name = "a row of the task" if number < 0 else f"{self.stored.tables[number].name} {row}"
        time, until = int(self.time[place]), int(self.until[place])
        at = "" if time == ALWAYS else f" of {time_text(time)}"
        return f"row {name}{at}, cutoff {time_text(until)}, seed {int(self.seed[sequence])}"


def time_text(time_us: int) -> str:
    if time_us == NO_TIME:
        return "no time"
    stamp = np.datetime64(time_us, "us")
    return str(stamp).replace("T", " ").removesuffix(".000000").removesuffix(" 00:00:00")


def _places(counts: Array) -> tuple[Array, Array]:
    """(group, place within the group) of counts[0] + counts[1] + ... things."""
    group = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    return group, np.arange(len(group)) - np.repeat(first, counts)
