"""Rules of visibility: docs/reference/sampling.md, "Seeds and time", over whole batches at once.

The rules are written from the page a second time; nothing is taken from the sampler or its tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.stored import ALWAYS, NO_TIME, Stored, StoredColumn
from headwater.audit.view import View
from headwater.metadata.parts import format_duration

Array = NDArray[Any]


@dataclass(frozen=True)
class Asked:
    """What was asked of the sampler, as far as it decides what may be seen."""

    visible_until: tuple[int, int, int] = (NO_TIME, NO_TIME, NO_TIME)
    context_labels: str | None = None
    max_hops: int | None = None
    label_rows: int = 0
    peer_labels: int = 0


class Judged:
    """The rules for the rows of one batch."""

    def __init__(self, view: View, asked: Asked, forbidden_labels: Array) -> None:
        self.view, self.asked, self.forbidden = view, asked, forbidden_labels
        self.stored, self.task = view.stored, view.task
        self.chain = view.is_anchor | (view.local == 0)
        as_chain = self.links_shown(np.ones(len(view.links.child), bool))
        self.grow_chain(as_chain)
        others = self.links_shown(np.zeros(len(view.links.child), bool))
        self.allowed = np.where(self.chain[view.links.child], as_chain, others)

    def grow_chain(self, shown: Array) -> None:
        """Chain rows: the first row, the anchor, and what parents of chain rows are."""
        view, links = self.view, self.view.links
        hops, more = self.asked.max_hops, not self.task.is_cell  # a derived task's anchor has 1
        steps = shown & ((NO_TIME if hops is None else hops + more) > view.depth[links.child])
        times = view.time[links.parent]
        steps &= (times <= view.until[links.parent]) | (view.until[links.parent] == NO_TIME)
        while True:
            new = links.parent[steps & self.chain[links.child] & ~self.chain[links.parent]]
            if len(new) == 0:
                return
            self.chain[new] = True

    def passes(self, times: Array, rows: Array | None = None, chain: Array | None = None) -> Array:
        """Whether times of rows (by default all) pass the cutoff of their sequence."""
        until = self.view.until if rows is None else self.view.until[rows]
        own = self.chain if chain is None else chain
        strict = ~own if self.task.is_exclusive else np.zeros(own.shape, bool)
        return np.asarray((until == NO_TIME) | (times < until) | (~strict & (times == until)))

    def known(self, column: StoredColumn, rows: Array, chain: Array) -> Array:
        """Whether the cell of each row (a place) is known at its cutoff."""
        if column.known_kind == "creation":
            return np.ones(len(rows), bool)
        if column.known_kind == "never" or column.table is None:
            return np.zeros(len(rows), bool)
        return self.passes(known_times(self.stored, column, self.view.row[rows]), rows, chain)

    def is_withheld_here(self, number: int, rows: Array, chain: Array) -> Array:
        """Of a hidden column or the target: on the anchor; of a hidden column on every row that
        is not known to be older; of the target on rows not before it that are seen at once."""
        view = self.view
        anchor_time, time = view.anchor_time[view.sequence[rows]], view.time[rows]
        is_timed = np.array([table.is_timed for table in self.stored.tables])[view.table[rows]]
        is_timed &= self.stored.tables[self.task.anchor_table].is_timed
        earlier = is_timed & (time < anchor_time)
        withheld = view.is_anchor[rows].copy()
        if number in self.task.hidden:
            withheld |= ~(earlier & (time != ALWAYS) & (anchor_time != NO_TIME))
        if self.task.is_cell and number == self.task.target_column:
            at_once = chain if self.task.is_exclusive else np.ones(len(rows), bool)
            withheld |= at_once & ~earlier
        return np.asarray(withheld)

    def is_forbidden_label(self, column: StoredColumn, rows: Array) -> Array:
        """Of a cell task's target on other rows: a label that context_labels keeps back."""
        if not self.task.is_cell or column.number != self.task.target_column:
            return np.zeros(len(rows), bool)
        table = self.stored.tables[self.task.anchor_table]
        local = self.view.row[rows] - table.row_start
        return np.asarray(self.forbidden[local] & ~self.view.is_anchor[rows])

    def links_shown(self, chain: Array) -> Array:
        """Whether each link's columns are known and not withheld, were its child (no) chain row."""
        links = self.view.links
        shown = np.ones(len(links.child), bool)
        for number in np.unique(links.key[links.key >= 0]):
            here = links.key == number
            rows = links.child[here]
            may = np.ones(len(rows), bool)
            for column_number in self.stored.keys[number].columns:
                column = self.stored.columns[column_number]
                may &= self.known(column, rows, chain[here])
                if column_number in self.task.special:
                    may &= ~self.is_withheld_here(column_number, rows, chain[here])
                    may &= ~self.is_forbidden_label(column, rows)
            shown[here] = may
        return shown


def known_times(stored: Stored, column: StoredColumn, rows: Array) -> Array:
    """When the cells of global rows of the column's table are known, int64; NO_TIME: never."""
    assert column.table is not None
    table = stored.tables[column.table]
    local = rows - table.row_start
    if column.known_kind == "creation":
        return np.full(len(rows), ALWAYS)
    if column.known_kind == "never":
        return np.full(len(rows), NO_TIME)
    if column.known_kind == "offset":
        if not table.is_timed:
            return np.full(len(rows), NO_TIME)
        base = table.times(local)
    else:
        known = stored.columns[column.known_column]
        base = np.where(table.is_null(known, local), NO_TIME, table.lane(known, local))
    without = (base == NO_TIME) | (base == ALWAYS)
    exact = np.where(without, 0, base)
    return np.where(without, NO_TIME, exact + column.known_offset_us)


def known_text(stored: Stored, column: StoredColumn) -> str:
    """known_at as metadata.json says it."""
    if column.known_kind == "column":
        return stored.columns[column.known_column].name
    if column.known_kind == "offset":
        return format_duration(column.known_offset_us, sign=True)
    return column.known_kind
