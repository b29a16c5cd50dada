"""What looks written later, or shown at any time: facts of tables and of what contexts show.

None of it is certain: a planned day lies in the future and is known, a parent may be newer because
it was entered later. So it is all `to check`, with counts. The same rules as `headwater init`, on
what was built, for what the metadata leave at `known_at: creation`.
"""

from __future__ import annotations

from typing import Any

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
from headwater.inference.names import words_of
from headwater.inference.times import (
    EARLIER_SHARE_MAX,
    LATER_SHARE,
    ROWS_MIN,
    SAME_ROWS_SHARE,
    is_counter,
)

Array = NDArray[Any]
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
        if table.is_timed and table.row_count >= ROWS_MIN:
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


def check_late_columns(stored: Stored, table: StoredTable, findings: Findings) -> None:
    """Columns that change, or are filled in, when their row has been there for a while."""
    rows = _some_rows(table)
    own = table.times(rows)
    has_time = np.abs(own) < NO_TIME
    late: list[tuple[StoredColumn, Array]] = []
    for column in table.columns:
        if column.stype != "timestamp" or column.number == table.temporal_column:
            continue
        filled = has_time & ~table.is_null(column, rows)
        values = table.lane(column, rows)
        later, earlier = int((values > own)[filled].sum()), int((values < own)[filled].sum())
        count = int(filled.sum())
        if later < max(1, LATER_SHARE * count) or earlier > EARLIER_SHARE_MAX * count:
            continue
        if not filled.all():
            late.append((column, filled))
        if column.known_kind == "creation":
            text = (
                f"{stored.full_name(column)} is later than its row in {later:,} of {count:,} rows: "
                f"written then (known_at '{column.name}'), or planned"
            )
            findings.to_check("written later", None, text, later)
    for column in table.columns:
        if column.known_kind == "creation" and column.stype not in ("timestamp", "ignored"):
            check_companion(stored, table, column, rows, late, findings)


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
        self.context_count = 0

    def add(self, view: View) -> None:
        """The contexts of one batch."""
        self.context_count += view.count
        self.add_times(view)
        for number in np.unique(view.table[~view.is_of_task]):
            table = self.stored.tables[number]
            for key in table.keys if not table.is_timed else ():
                self.add_early_rows(view, table, key)

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
