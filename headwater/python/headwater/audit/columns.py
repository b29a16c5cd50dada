"""What gives the target away: each column as train contexts show it, against the target.

A column is looked at in three places: on the anchor, on what the anchor points at, and on the other
rows. What counts is what a model is shown, so a column that is hidden, or known only later, is
judged by what is left of it. One to one with the target on the anchor or a parent is the target
itself, under another name or in another unit: a leak. Whatever is merely nearly as good is to be
checked, as a good predictor looks the same as a leak does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.audit.findings import Findings
from headwater.audit.stored import DAY_US, NO_TIME, Stored, StoredTask
from headwater.audit.view import View
from headwater.facts.association import NO_CATEGORY, STRONG, Evidence, compare

Array = NDArray[Any]
PLACES = ("on the anchor", "on rows it points at", "on rows around")
ANCHOR, PARENT, AROUND = range(3)
CONTEXTS_MIN = 50
COVERED = 0.5  # of the train contexts show the column


@dataclass(frozen=True)
class Shown:
    """What a batch shows: one entry per (column, place, context) in it."""

    code: Array  # column * 3 + place
    context: Array  # number among the audited train contexts
    mean: Array  # of the values that are no categories; NaN without any
    category: Array  # of the first cell; NO_CATEGORY where it is NULL or no category
    value_count: Array  # cells that are not NULL


class TargetCheck:
    """Collects what train contexts of a task show, then compares it with their targets."""

    def __init__(self, stored: Stored, task: StoredTask, findings: Findings) -> None:
        self.stored, self.task, self.findings = stored, task, findings
        self.shown: list[Shown] = []
        self.rows: list[tuple[Array, Array, Array]] = []  # table, context, rows of it
        self.seeds: list[Array] = []
        self.anchors: Array = np.zeros(0, np.uint32)
        self.count = 0

    def add(self, view: View) -> None:
        """The contexts of one batch of the train split."""
        self.shown.append(self.read(view))
        around = ~view.is_of_task & ~view.is_anchor
        code = view.table[around] * view.count + view.sequence[around]
        places, counts = np.unique(code, return_counts=True)
        self.rows.append((places // view.count, self.count + places % view.count, counts))
        self.seeds.append(view.seed)
        self.count += view.count

    def read(self, view: View) -> Shown:
        sequence, row = view.cell_place[0], view.cell_row
        place = np.full(len(row), AROUND)
        place[self.is_parent(view)[row]] = PARENT
        place[view.is_anchor[row] | (view.local[row] == 0)] = ANCHOR
        kept = ~view.cell_is_target & (view.cell_column < len(self.stored.columns))
        code = (view.cell_column * len(PLACES) + place) * view.count + sequence
        groups, first, group = np.unique(code[kept], return_index=True, return_inverse=True)
        numbers, categories = self.values(view)
        has_value = ~view.cells("is_null").astype(bool)[kept]
        numbers, categories = numbers[kept], categories[kept]
        used = has_value & np.isfinite(numbers)
        sums = np.bincount(group[used], numbers[used], minlength=len(groups))
        counts = np.bincount(group[used], minlength=len(groups))
        return Shown(
            code=groups // view.count,
            context=self.count + groups % view.count,
            mean=np.where(counts > 0, sums / np.maximum(counts, 1), np.nan),
            category=np.where(has_value, categories, NO_CATEGORY)[first],
            value_count=np.bincount(group[has_value], minlength=len(groups)),
        )

    def is_parent(self, view: View) -> Array:
        """bool by row: what the anchor, or the parent of one, points at."""
        parent = np.zeros(len(view.row), bool)
        above = view.is_anchor.copy()
        while True:
            new = view.links.parent[above[view.links.child]]
            new = new[~above[new]]
            if len(new) == 0:
                return parent
            above[new] = parent[new] = True

    def values(self, view: View) -> tuple[Array, Array]:
        """Of every cell a number (NaN: none; a time in days before the question) and a category."""
        column = view.cell_column
        stypes = view.cells("semantic_types")
        numbers = np.where(stypes == 1, view.cells("numeric_values").astype(np.float64), np.nan)
        categories = np.select(
            [stypes == 3, stypes == 4, stypes == 5],
            [view.cells(name).astype(np.int64)
             for name in ("bool_values", "categorical_embed_ids", "text_embed_ids")],
            NO_CATEGORY,
        )  # fmt: skip
        numbers = np.where(stypes == 3, categories, numbers)
        in_table = np.flatnonzero((stypes == 2) & ~view.is_of_task[view.cell_row])
        for number in np.unique(column[in_table]):
            stored = self.stored.columns[number]
            here = in_table[column[in_table] == number]
            assert stored.table is not None
            table, rows = self.stored.tables[stored.table], view.cell_row[here]
            times = table.lane(stored, view.row[rows] - table.row_start).astype(np.float64)
            asked = view.obs_time[view.sequence[rows]]
            is_absolute = (asked == NO_TIME) | (self.task.target_stype == "timestamp")
            numbers[here] = np.where(is_absolute, times, asked - times) / DAY_US
        return numbers, categories

    # ---- what follows --------------------------------------------------------------------

    def conclude(self) -> None:
        """Compare, once all contexts are in."""
        if not self.seeds:
            return
        seeds = np.concatenate(self.seeds)
        target, self.anchors = self.task.values()[seeds], self.task.anchors[seeds]
        if np.isfinite(target).sum() < CONTEXTS_MIN:
            return
        for code, shown in _by_code(self.shown):
            column, place = divmod(code, len(PLACES))
            if column != self.task.target_column or place != ANCHOR:
                self.judge(column, place, shown, target)
        self.judge_row_counts(target)

    def judge(self, column: int, place: int, shown: Shown, target: Array) -> None:
        """One column in one place."""
        name = f"{self.stored.full_name(column)} {PLACES[place]}"
        stored = self.stored.columns[column]
        is_scaled = stored.stype == "numerical"
        self.findings.looked_at("columns", 1)
        number = np.full(self.count, np.nan)
        category = np.full(self.count, NO_CATEGORY)
        has_value = np.zeros(self.count)
        number[shown.context] = shown.mean * stored.std + stored.mean if is_scaled else shown.mean
        category[shown.context] = shown.category
        has_value[shown.context] = shown.value_count > 0
        found = [self.compare(number, category, target)]
        if has_value.any() and not has_value.all():
            presence = self.compare(has_value, has_value.astype(int), target)
            found.append(replace(presence, text=f"whether it has a value: {presence.text}"))
        best = max(found, key=lambda evidence: (evidence.is_target, evidence.strength))
        self.tell(name, best, may_be_certain=place != AROUND)

    def compare(self, number: Array, category: Array, target: Array) -> Evidence:
        is_class = self.task.target_stype in ("boolean", "categorical")
        return compare(number, category, target, self.anchors, is_class=is_class)

    def tell(self, name: str, best: Evidence, *, may_be_certain: bool) -> None:
        if best.count < max(CONTEXTS_MIN, COVERED * self.count):
            return
        of = f"{best.text} in {best.count:,} of {self.count:,} train contexts"
        if best.is_target and may_be_certain:
            text = f"train contexts in which {name} is the target under another name ({of})"
            self.findings.leak("columns", self.task.name, text, best.count)
        elif best.strength >= STRONG:
            text = f"{name} nearly determines the target: {of}; was it known when it was asked?"
            self.findings.to_check("columns", self.task.name, text, best.count)

    def judge_row_counts(self, target: Array) -> None:
        """How many rows of a table a context shows can say it too."""
        tables, contexts, counts = map(np.concatenate, zip(*self.rows, strict=True))
        for number in np.unique(tables):
            here = tables == number
            rows = np.zeros(self.count)
            rows[contexts[here]] = counts[here]
            evidence = self.compare(rows, np.full(self.count, NO_CATEGORY), target)
            name = f"the number of rows of {self.stored.tables[number].name}"
            self.tell(name, evidence, may_be_certain=False)


def _by_code(parts: list[Shown]) -> list[tuple[int, Shown]]:
    """Entries of all batches, column and place by column and place."""
    names = ("code", "context", "mean", "category", "value_count")
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    order = np.argsort(whole["code"], kind="stable")
    codes, starts = np.unique(whole["code"][order], return_index=True)
    ends = [*starts[1:], len(order)]
    return [
        (int(code), Shown(**{name: whole[name][order[start:end]] for name in names}))
        for code, start, end in zip(codes, starts, ends, strict=True)
    ]
