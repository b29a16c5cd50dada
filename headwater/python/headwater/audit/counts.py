"""Cells of `child_counts` held against the children that are visible, found from their parents.

The sampler reads child lists; here the links of the children themselves are turned around and
sorted by the time each link is known, once per foreign key that is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.findings import Findings
from headwater.audit.rules import known_times
from headwater.audit.stored import ALWAYS, DAY_US, NO_ROW, NO_TIME, Stored, StoredTask
from headwater.audit.view import View

Array = NDArray[Any]
TOLERANCE = 1e-4  # of values of the order of 1, in float32
CELLS_PER_KEY = 3  # count, age of the last, age of the first


class CountCheck:
    """Of one task."""

    def __init__(self, stored: Stored, task: StoredTask, findings: Findings) -> None:
        self.stored, self.task, self.findings = stored, task, findings
        self.children = cache(self.sorted_children)

    def check(self, view: View) -> None:
        """No count above the visible children, no last child later than the last visible one."""
        first = len(self.stored.columns)
        cells = np.flatnonzero(view.cell_column >= first)
        self.findings.looked_at("counts", len(cells))
        values, nulls = view.cells("numeric_values"), view.cells("is_null")
        for cell in cells:
            number, which = divmod(int(view.cell_column[cell]) - first, CELLS_PER_KEY)
            if which == CELLS_PER_KEY - 1:
                continue
            place = int(view.cell_row[cell])
            count, last = self.visible(number, view, place)
            if which == 0:
                wrong = values[cell] > np.log1p(count) / 4 + TOLERANCE
            else:
                least = self.scaled_age(view, place, last)
                wrong = not nulls[cell] and (least is None or values[cell] < least - TOLERANCE)
            if wrong:
                key = self.stored.key_name(self.stored.keys[number])
                text = f"counts of {key} that count children later than the cutoff"
                self.findings.leak("counts", self.task.name, text, 1, view.row_text(place))

    def visible(self, number: int, view: View, place: int) -> tuple[int, int]:
        """How many children of a row are visible by a key, and the edge time of the last."""
        key = self.stored.keys[number]
        if any(column in self.task.special for column in key.columns):
            return 0, NO_TIME
        parents, times = self.children(number)
        row, until = int(view.row[place]), int(view.until[place])
        low, high = np.searchsorted(parents, [row, row + 1])
        run = times[low:high]
        if until == NO_TIME:
            count = len(run)
        else:
            count = int(np.searchsorted(run, until, "left" if self.task.is_exclusive else "right"))
        return count, int(run[count - 1]) if count else NO_TIME

    def sorted_children(self, number: int) -> tuple[Array, Array]:
        """Parents of all links of a key, ascending, and when each link is known, ascending in each
        parent."""
        key = self.stored.keys[number]
        table = self.stored.tables[key.child]
        parents = table.parents(key, slice(None)).astype(np.int64)
        local = np.flatnonzero(parents != NO_ROW)
        times = table.times(local)
        for column in key.columns:
            known = self.stored.columns[column]
            times = np.maximum(times, known_times(self.stored, known, local + table.row_start))
            if known.known_kind == "never":
                local, times = local[:0], times[:0]
        order = np.lexsort((times, parents[local]))
        return parents[local][order], times[order]

    def scaled_age(self, view: View, place: int, time: int) -> float | None:
        obs_time = int(view.obs_time[view.sequence[place]])
        if NO_TIME in (obs_time, time) or time == ALWAYS:
            return None
        return float(np.log1p((obs_time - time) / DAY_US) / 8)
