"""What looks written later, or shown at any time: facts of tables and of what contexts show.

None of it is certain: a planned day lies in the future and is known, a parent may be newer because
it was entered later. So it is all `to check`, with counts. The same rules as `headwater init`, on
what was built, for what the metadata leave at `known_at: creation`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.audit.findings import Findings
from headwater.audit.stored import (
    ALWAYS,
    DAY_US,
    DAYS,
    NO_ROW,
    NO_TIME,
    Stored,
    StoredColumn,
    StoredKey,
    StoredTable,
    StoredTask,
)
from headwater.audit.view import View
from headwater.facts.names import words_of
from headwater.inference.known_later import (
    LATER_SHARE,
    MOSTLY_LATER,
    SAME_ROWS_SHARE,
    earlier_max,
    is_counter,
)
from headwater.inference.times import ROWS_MIN
from headwater.notebook import listed

Array = NDArray[Any]
NAMES_MAX = 8  # columns that are named
NEARLY_ALL = 0.9  # of the rows have the time that rows are written for
ROWS_MAX = 1_000_000  # of a table that are looked at, evenly


def check_tables(stored: Stored, findings: Findings) -> None:
    """Rules about whole tables, whatever the task."""
    for table in stored.tables:
        for key in table.keys:
            parent = stored.tables[key.parent]
            if parent.is_timed and table.is_timed:
                check_newer(stored, key, table, parent, findings)
        timed_parents = {stored.tables[key.parent].name: 0 for key in table.keys
                         if stored.tables[key.parent].is_timed}  # fmt: skip
        if not table.is_timed and timed_parents and table.row_count:
            text = (
                f"{table.name} has no time: its {table.row_count:,} rows are shown at any time, "
                f"though they point at {', '.join(timed_parents)}, which has one"
            )
            findings.to_check("untimed", None, text, table.row_count)
        check_late_columns(stored, table, findings)


def check_newer(
    stored: Stored, key: StoredKey, table: StoredTable, parent: StoredTable, findings: Findings
) -> None:
    """Links to rows that were not there when their row was: the key was written later."""
    if any(stored.columns[column].known_kind != "creation" for column in key.columns):
        return
    rows = _some_rows(table)
    parents = table.parents(key, rows).astype(np.int64)
    own = table.times(rows)
    linked = (parents != NO_ROW) & (np.abs(own) < NO_TIME)
    theirs = parent.times(parents[linked] - parent.row_start)
    if parent.flags & DAYS and not table.flags & DAYS:
        theirs = np.where(theirs == NO_TIME, theirs, theirs - DAY_US)
    newer = int(((theirs > own[linked]) & (np.abs(theirs) < NO_TIME)).sum())
    if newer:
        text = (
            f"{newer:,} of {int(linked.sum()):,} links by {stored.key_name(key)} lead to rows of "
            f"{parent.name} that are newer than their own: written later (known_at), or planned"
        )
        findings.to_check("newer parents", None, text, newer)


class LateTime(NamedTuple):
    """A second time that is later than its row."""

    column: StoredColumn
    filled: Array  # bool of some rows: that have both times
    later: int  # of these
    both: int  # how many these are
    is_plan: bool  # nearly all rows have it, and it is later than nearly all of them


def late_times(table: StoredTable) -> list[LateTime]:
    """The second times of a table that are later than its rows."""
    if not table.is_timed or table.row_count < ROWS_MIN:
        return []
    rows = _some_rows(table)
    own = table.times(rows)
    has_time = np.abs(own) < NO_TIME
    found = []
    for column in table.columns:
        if column.stype != "timestamp" or column.number == table.temporal_column:
            continue
        filled = has_time & ~table.is_null(column, rows)
        values = table.lane(column, rows)
        later, earlier = int((values > own)[filled].sum()), int((values < own)[filled].sum())
        count = int(filled.sum())
        if later >= max(1, LATER_SHARE * count) and earlier <= earlier_max(count):
            is_plan = later >= MOSTLY_LATER * count and count >= NEARLY_ALL * len(rows)
            found.append(LateTime(column, filled, later, count, is_plan))
    return found


def open_plans(table: StoredTable) -> list[StoredColumn]:
    """The times that rows are written for, but those by which another column is known: then
    somebody has thought of what is known at that time."""
    answered = {c.known_column for c in table.columns if c.known_column != c.number}
    plans = [late.column for late in late_times(table) if late.is_plan]
    return [column for column in plans if column.number not in answered]


def check_late_columns(stored: Stored, table: StoredTable, findings: Findings) -> None:
    """Columns that change, or are filled in, when their row has been there for a while."""
    rows, found = _some_rows(table), late_times(table)
    for late in found:
        if late.column.known_kind == "creation":
            text = (
                f"{stored.full_name(late.column)} is later than its row in {late.later:,} of "
                f"{late.both:,} rows: written then (known_at '{late.column.name}'), or planned"
            )
            findings.to_check("written later", None, text, late.later)
    partly = [(late.column, late.filled) for late in found if not late.filled.all()]
    for column in table.columns:
        if column.known_kind == "creation" and column.stype not in ("timestamp", "ignored"):
            check_companion(stored, table, column, rows, partly, findings)


def check_companion(
    stored: Stored,
    table: StoredTable,
    column: StoredColumn,
    rows: Array,
    late: list[tuple[StoredColumn, Array]],
    findings: Findings,
) -> None:
    """Set, or true, in the rows that have a late time; or a counter by its name."""
    name = stored.full_name(column)
    has_value = ~table.is_null(column, rows)
    if column.stype == "boolean":
        has_value &= table.lane(column, rows).astype(bool)
    for time, filled in late:
        either, both = int((has_value | filled).sum()), int((has_value & filled).sum())
        if both >= max(1, SAME_ROWS_SHARE * either):
            what = "true" if column.stype == "boolean" else "set"
            text = f"{name} is {what} in the rows that have {time.name} ({both:,} of {either:,})"
            findings.to_check("written later", None, f"{text}: known_at '{time.name}'?", both)
            return
    is_key = any(column.number in key.columns for key in table.keys)
    if not is_key and is_counter(words_of(column.name), column.stype):
        text = f"{name} changes after its row was written, by its name: known_at 'never'?"
        findings.to_check("written later", None, text, table.row_count)


def _some_rows(table: StoredTable) -> Array:
    step = max(1, -(-table.row_count // ROWS_MAX))
    return np.arange(0, table.row_count, step)


class ShownCheck:
    """What contexts show although something about it lies after the question."""

    def __init__(self, stored: Stored, task: StoredTask, findings: Findings) -> None:
        self.stored, self.task, self.findings = stored, task, findings
        self.later_cells: dict[int, int] = {}  # by column
        self.early_rows: dict[int, int] = {}  # by foreign key
        self.early_cells: dict[int, dict[int, int]] = {}  # by a later time of their row, by column
        self.plans = {table.number: open_plans(table) for table in stored.tables}
        self.context_count = 0

    def add(self, view: View) -> None:
        """The contexts of one batch."""
        self.context_count += view.count
        self.add_times(view)
        for number in np.unique(view.table[~view.is_of_task]):
            table = self.stored.tables[number]
            for key in table.keys if not table.is_timed else ():
                self.add_early_rows(view, table, key)
            for time in self.plans[int(number)]:
                self.add_early_cells(view, table, time)

    def add_times(self, view: View) -> None:
        """Cells that hold a time after the cutoff."""
        stypes = view.cells("semantic_types")
        shown = (stypes == 2) & ~view.cell_is_target & ~view.cells("is_null").astype(bool)
        shown &= ~view.is_of_task[view.cell_row]
        for number in np.unique(view.cell_column[shown]):
            column = self.stored.columns[number]
            assert column.table is not None
            table = self.stored.tables[column.table]
            rows = view.cell_row[shown & (view.cell_column == number)]
            if column.number == table.temporal_column:
                continue
            times = table.lane(column, view.row[rows] - table.row_start)
            count = int((times > view.until[rows]).sum())
            if count:
                self.later_cells[number] = self.later_cells.get(number, 0) + count

    def add_early_rows(self, view: View, table: StoredTable, key: StoredKey) -> None:
        """Rows without a time whose parent comes after the cutoff."""
        parent = self.stored.tables[key.parent]
        if not parent.is_timed:
            return
        here = np.flatnonzero((view.table == table.number) & ~view.is_anchor)
        parents = table.parents(key, view.row[here] - table.row_start).astype(np.int64)
        here, parents = here[parents != NO_ROW], parents[parents != NO_ROW]
        times = parent.times(parents - parent.row_start)
        count = int(((times > view.until[here]) & (times != NO_TIME) & (times != ALWAYS)).sum())
        if count:
            self.early_rows[key.number] = self.early_rows.get(key.number, 0) + count

    def add_early_cells(self, view: View, table: StoredTable, time: StoredColumn) -> None:
        """Cells of rows of which a later time comes after the cutoff: an outcome is among them."""
        here = np.flatnonzero((view.table == table.number) & ~view.is_of_task)
        local = view.row[here] - table.row_start
        is_open = ~table.is_null(time, local) & (table.lane(time, local) > view.until[here])
        is_early = np.zeros(len(view.row), bool)
        is_early[here[is_open]] = True
        shown = is_early[view.cell_row] & ~view.cell_is_target
        shown &= view.cell_column < len(self.stored.columns)
        numbers, counts = np.unique(view.cell_column[shown], return_counts=True)
        found = self.early_cells.setdefault(time.number, {})
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            column = self.stored.columns[number]
            if column.stype not in ("identifier", "timestamp") and column.known_kind == "creation":
                found[number] = found.get(number, 0) + count

    def conclude(self) -> None:
        contexts = f"in {self.context_count:,} contexts"
        for number, count in self.later_cells.items():
            text = (
                f"{count:,} cells of {self.stored.full_name(number)} {contexts} hold a time after "
                "the question: planned, or written later (known_at)"
            )
            self.findings.to_check("later times", self.task.name, text, count)
        for number, count in self.early_rows.items():
            key = self.stored.keys[number]
            text = (
                f"{count:,} rows of {self.stored.tables[key.child].name} {contexts} belong to a "
                f"row of {self.stored.tables[key.parent].name} after the question (taken_from?)"
            )
            self.findings.to_check("untimed", self.task.name, text, count)
        for number, counts in self.early_cells.items():
            if counts:
                names = listed([self.stored.columns[n].name for n in counts], NAMES_MAX)
                text = (
                    f"{sum(counts.values()):,} cells {contexts} are shown before "
                    f"{self.stored.full_name(number)} of their row ({names}): known before, or "
                    f"only then (known_at '{self.stored.columns[number].name}')?"
                )
                self.findings.to_check("later times", self.task.name, text, sum(counts.values()))
