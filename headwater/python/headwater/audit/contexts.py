"""Every row, cell and link of a context held against the rules of docs/reference/sampling.md.

The rules are applied to the numbers in the store's files by code that shares nothing with the
sampler: no walk, no search in sorted lists, only "may this be here?". So it is cheap, and wrong
exactly where the page is wrong. What a context leaves out is not looked at, as that cannot leak.
Under `staleness` the gap of a seed is not known here; its contexts are held against the cutoff
without a gap.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.counts import CountCheck
from headwater.audit.findings import EXAMPLES_MAX, Findings
from headwater.audit.rules import Asked, Judged, known_text
from headwater.audit.stored import (
    DAY_US,
    LABEL_NULL,
    NO_ROW,
    NO_TIME,
    Stored,
    StoredColumn,
    StoredTask,
)
from headwater.audit.view import View, time_text

Array = NDArray[Any]
TRAIN = 0
NO_LINK = 65535
AGE_TOLERANCE = 1e-5  # relative, of float32


class ContextCheck:
    """Checks the contexts of one task; `splits` has 0 train, 1 val, 2 test of every seed."""

    def __init__(
        self, stored: Stored, task: StoredTask, splits: Array, asked: Asked, findings: Findings
    ) -> None:
        self.stored, self.task, self.splits = stored, task, splits
        self.asked, self.findings = asked, findings
        self.counts = CountCheck(stored, task, findings)

    def check(self, batch: Any, split: int) -> View:
        """One batch of a split. Returns what else can be asked about it."""
        view = View(self.stored, self.task, batch, split, self.asked.visible_until[split])
        self.check_seeds(view)
        judged = Judged(view, self.asked, self.forbidden_labels)
        self.check_rows(view, judged)
        self.check_links(view, judged)
        self.check_cells(view, judged)
        self.check_label_rows(view)
        self.counts.check(view)
        return view

    @cached_property
    def forbidden_labels(self) -> Array:
        """bool by row of the anchor table: its target cell may not be shown as another's."""
        table = self.stored.tables[self.task.anchor_table]
        forbidden = np.full(table.row_count, self.task.asks_for_key)
        if self.task.is_cell and self.label_rule != "all":
            others = self.splits != TRAIN if self.label_rule == "train" else slice(None)
            forbidden[self.task.anchors[others] - table.row_start] = True
        return forbidden

    @property
    def label_rule(self) -> str:
        """train, none or all."""
        return self.asked.context_labels or self.task.context_labels

    # ---- the checks ----------------------------------------------------------------------

    def check_seeds(self, view: View) -> None:
        """The context is of a seed of this split, asked when the seed is, about its target."""
        task, seed = self.task, view.seed
        self.findings.looked_at("target", view.count)
        inside = seed < len(task.anchors)
        known = np.where(inside, seed, 0)
        same = (
            inside
            & (task.anchors[known] == view.anchor)
            & (task.obs_times[known] == view.obs_time)
            & (self.splits[known] == view.split)
        )

        def asked(b: int) -> str:
            return f"seed {seed[b]}, anchor {view.anchor[b]}, at {time_text(int(view.obs_time[b]))}"

        text = "contexts that are not of the seed they name, or of another split"
        self.tell("target", text, np.flatnonzero(~same), asked)
        sequence = view.cell_place[0]
        is_right = (
            view.cell_is_target
            & (view.cell_column == task.target_column)
            & (view.local[view.cell_row] == 0)
        )
        right = np.bincount(sequence[is_right], minlength=view.count)
        masked = np.bincount(sequence[view.cell_is_target], minlength=view.count)
        wrong = np.flatnonzero((right != 1) | (masked != 1))
        text = "contexts without their one masked target"
        self.tell("target", text, wrong, lambda b: f"seed {seed[b]} has {masked[b]} masked cells")

    def check_rows(self, view: View, judged: Judged) -> None:
        self.findings.looked_at("rows", len(view.row))
        late = ~(view.is_of_task | view.is_anchor | judged.passes(view.time))
        late |= (view.age < 0) & (view.age != -1) & ~view.is_anchor
        for number in np.unique(view.table[late]):
            text = f"rows of {self.stored.tables[number].name} later than the cutoff"
            here = np.flatnonzero(late & (view.table == number))
            self.tell("rows", text, here, view.row_text)

    def check_links(self, view: View, judged: Judged) -> None:
        """What `parents` and `fk_adj` list, and by which way each row can have been reached."""
        links, row_limit = view.links, view.batch["fk_adj"].shape[1]
        allowed = judged.allowed
        child, parent = links.child[allowed], links.parent[allowed]
        pairs = child * row_limit + view.local[parent]
        listed = view.batch["parents"][view.sequence, view.local].astype(np.int64)
        place, slot = np.nonzero(listed != NO_LINK)
        slots = np.array([key.slot for key in self.stored.keys] + [0])[links.key[allowed]]
        width = listed.shape[1]
        codes = pairs * width + slots
        found = (place * row_limit + listed[place, slot]) * width + slot
        adjacent = view.batch["fk_adj"][view.sequence, view.local]
        self.findings.looked_at("edges", len(place))
        wrong = {"parents": place[~np.isin(found, codes)]}
        at, other = np.nonzero(adjacent)
        wrong["fk_adj"] = at[~np.isin(at * row_limit + other, pairs)]
        for array, rows in wrong.items():
            text = "that the database does not have, or that are withheld or not yet known"
            self.tell("edges", f"links in `{array}` {text}", rows, view.row_text)
        # The walk does not go on from the anchor of another's label, visited right behind it.
        is_end = np.zeros(len(view.row), bool)
        is_end[parent[view.is_label[child] & (parent == child + 1)]] = True
        leads = ~is_end[np.minimum(child, parent)]
        reached = (view.local == 0) | view.is_label
        reached[np.maximum(child, parent)[leads]] = True
        self.tell(
            "edges", "rows that no visible link leads to", np.flatnonzero(~reached), view.row_text
        )

    def check_cells(self, view: View, judged: Judged) -> None:
        column, place = view.cell_column, view.cell_row
        self.findings.looked_at("known", len(column))
        self.findings.looked_at("hidden", len(column))
        self.findings.looked_at("labels", view.count)
        is_asked = view.cell_is_target & view.is_anchor[place]
        for number in np.unique(column[column < len(self.stored.columns)]):
            stored, here = self.stored.columns[number], column == number
            if stored.table is None:
                self.check_task_cells(view, number, here)
                continue
            astray = here & (view.table[place] != stored.table)
            text = f"cells of {self.stored.full_name(stored)} on rows of another table"
            self.tell("known", text, place[astray], view.row_text)
            rows = place[here & ~astray & ~is_asked]
            self.check_known(view, judged, stored, rows)
            if number in self.task.special:
                self.check_withheld(view, judged, stored, rows)

    def check_known(self, view: View, judged: Judged, column: StoredColumn, rows: Array) -> None:
        unknown = rows[~judged.known(column, rows, judged.chain[rows])]
        name, known = self.stored.full_name(column), known_text(self.stored, column)
        text = f"cells of {name} before they are known (known_at '{known}')"
        self.tell("known", text, unknown, view.row_text)

    def check_withheld(self, view: View, judged: Judged, column: StoredColumn, rows: Array) -> None:
        name = self.stored.full_name(column)
        at_once = judged.is_withheld_here(column.number, rows, judged.chain[rows])
        what = "target" if column.number == self.task.target_column else "hidden column"
        text = f"cells of the {what} {name} on the anchor, or on rows not before it"
        self.tell("hidden", text, rows[at_once], view.row_text)
        forbidden = rows[~at_once & judged.is_forbidden_label(column, rows)]
        text = f"labels of other seeds ({name}) that context_labels '{self.label_rule}' forbids"
        self.tell("labels", text, forbidden, view.row_text)

    def check_task_cells(self, view: View, number: int, here: Array) -> None:
        """obs_time and the target of a derived task stand on rows of the task only."""
        rows = view.cell_row[here]
        own = number in (self.task.target_column, self.task.obs_time_column)
        wrong = rows if not own else rows[~view.is_of_task[rows]]
        name = self.stored.columns[number].name
        text = f"cells of {name}, which is of a task, where no seed is"
        self.tell("labels", text, wrong, view.row_text)

    def check_label_rows(self, view: View) -> None:
        """Each label row must be an earlier seed of the anchor, or of another, whose label may be
        shown."""
        rows = np.flatnonzero(view.is_label)
        is_own = view.label_anchor[rows] == view.anchor[view.sequence[rows]]
        self.check_labels_of("the anchor", view, rows[is_own], self.asked.label_rows)
        self.check_labels_of("another anchor", view, rows[~is_own], self.asked.peer_labels)

    def check_labels_of(self, whose: str, view: View, rows: Array, most: int) -> None:
        def before(row: int) -> str:
            return f"seed {view.seed[view.sequence[row]]}, {view.age[row]:g} days before"

        wrong = [row for row in rows if not self.is_label_shown(view, int(row))]
        text = f"label rows that are no earlier, known and allowed label of {whose}"
        self.tell("labels", text, np.array(wrong, np.int64), before)
        count = np.bincount(view.sequence[rows], minlength=view.count)
        many = np.flatnonzero(count > most)
        text = f"contexts with more label rows of {whose} than were asked for"
        self.tell("labels", text, many, lambda b: f"seed {view.seed[b]} has {count[b]}")

    def is_label_shown(self, view: View, place: int) -> bool:
        """Whether there is a label of this row's anchor and age that its context may show. Where
        the anchor is not in the context it may be of any but the seed's own."""
        task, sequence = self.task, int(view.sequence[place])
        if task.label_times is None or task.is_cell or self.label_rule == "none":
            return False
        obs_time, until = int(view.obs_time[sequence]), int(view.cutoff[sequence])
        seeds = self.seeds_of(int(view.label_anchor[place]), obs_time, float(view.age[place]))
        if view.label_anchor[place] == NO_ROW:
            seeds = seeds[task.anchors[seeds] != view.anchor[sequence]]
        known = task.label_times[seeds]
        passes = known < until if task.is_exclusive else known <= until
        may = (task.states[seeds] & 15) <= LABEL_NULL
        may &= (known != NO_TIME) & (passes | (until == NO_TIME))
        may &= task.obs_times[seeds] < obs_time
        if self.label_rule == "train":
            may &= self.splits[seeds] == TRAIN
        return bool(may.any())

    def seeds_of(self, anchor: int, obs_time: int, age: float) -> Array:
        """Seeds of an anchor (NO_ROW: of any) that were asked `age` days before obs_time."""
        task = self.task
        if anchor != NO_ROW:
            first, last = np.searchsorted(task.anchors, [anchor, anchor + 1])
            seeds = np.arange(first, last)
        else:
            seeds = self.by_time
        if obs_time == NO_TIME:
            return seeds if age == -1 else seeds[:0]
        if anchor == NO_ROW:
            asked, slack = obs_time - age * DAY_US, AGE_TOLERANCE * max(age, 1e-3) * DAY_US
            times = task.obs_times[seeds]
            low, high = np.searchsorted(times, [int(asked - slack), int(asked + slack) + 1])
            seeds = seeds[low:high]
        ages = (obs_time - task.obs_times[seeds].astype(np.float64)) / DAY_US
        return seeds[np.abs(ages - age) <= AGE_TOLERANCE * np.maximum(ages, 1e-3)]

    @cached_property
    def by_time(self) -> Array:
        """The seeds in the order of their obs_times."""
        return np.argsort(self.task.obs_times, kind="stable")

    def tell(self, check: str, text: str, places: Array, example: Any) -> None:
        """A leak for all of some places; the first ones are examples."""
        if len(places) == 0:
            return
        for place in places[:EXAMPLES_MAX]:
            self.findings.leak(check, self.task.name, text, 0, example(int(place)))
        self.findings.leak(check, self.task.name, text, len(places))
