"""A few cells worth predicting, so that a first store can be trained on and its questions edited.

Of each table with a key, timed tables first and larger ones before smaller: a column that is known
late, else a boolean, a category, a number. Columns of the same row that give the target away (by
which it is almost determined) are hidden; who drafts a task by hand rarely thinks of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.facts.association import NO_CATEGORY, STRONG, Evidence, compare
from headwater.facts.names import words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.metadata.from_json import FILE_UNSAFE, is_usable
from headwater.metadata.parts import ColumnRef, Task
from headwater.metadata.review import Check, Cost, note_text
from headwater.sources.database import Connection, one_row
from headwater.sources.source import quote

TASK_COUNT_MAX = 6
TASKS_PER_TABLE = 2
ROWS_MIN = 50  # labelled
CLASS_COUNT_MAX = 64
CLASS_SHARE_MAX = 0.98  # of the largest class
SAMPLE_ROWS = 20_000  # by which it is judged what gives a target away
COVERED = 0.5  # of these have the column
TYPE_ORDER = ("boolean", "categorical", "numerical")
NULL_SHARE_MIN = 0.02  # of a number that not every row gets, as an outcome is
OUTCOMES = {
    "amount", "total", "price", "revenue", "cost", "rating", "rank", "position", "points", "score",
    "result", "quantity", "duration", "delay", "value", "sales", "grade", "salary",
}  # fmt: skip
SQUARED_MAX = 1e150  # of numbers whose variance a double holds


def draft_tasks(connection: Connection, tables: Sequence[TableDraft]) -> list[Task]:
    """At most a handful, one per table first."""
    keyed = [table for table in tables if table.primary_key]
    pool = [table for table in keyed if table.temporal_column is not None] or keyed
    pool.sort(key=lambda table: -table.source.row_count)
    targets: dict[str, list[ColumnDraft]] = {}
    tasks: list[Task] = []
    for place in range(TASKS_PER_TABLE):
        for table in pool:
            if len(tasks) == TASK_COUNT_MAX:
                return tasks
            if table.name not in targets:
                targets[table.name] = _targets(connection, table)
            if place < len(targets[table.name]):
                tasks.append(_task(connection, table, targets[table.name][place]))
    return tasks


def _targets(connection: Connection, table: TableDraft) -> list[ColumnDraft]:
    """Columns to predict, the best first, of different types where there are."""
    keys = {name for key in table.every_key() for name in key.columns} | set(table.primary_key)
    found = [
        column
        for column in table.columns
        if column.name not in keys
        and not (column.is_total or column.is_of_time)
        and column.name.strip()
        and is_usable(_task_name(table, column))
        and _may_be_target(connection, table, column)
    ]
    found.sort(key=_rank)
    first = found[:1]
    other = [column for column in found if column.stype != first[0].stype] if first else []
    return first + other


def _rank(column: ColumnDraft) -> tuple[float, ...]:
    """The best target first: known late, few classes, a number that sounds like an outcome."""
    facts = column.facts
    missing = facts.row_count - facts.value_count
    rank = [column.known_at.kind == "creation", TYPE_ORDER.index(column.stype)]
    if column.stype != "numerical":
        return (*rank, facts.distinct_count)
    is_outcome = bool(OUTCOMES & set(words_of(column.name)))
    return (*rank, missing < NULL_SHARE_MIN * facts.row_count, not is_outcome)


def _task_name(table: TableDraft, column: ColumnDraft) -> str:
    name = FILE_UNSAFE.sub("_", f"{table.name}-{column.name}")
    return f"_{name[1:]}" if name.startswith(".") else name


def _may_be_target(connection: Connection, table: TableDraft, column: ColumnDraft) -> bool:
    facts = column.facts
    if column.stype not in TYPE_ORDER or facts.value_count < ROWS_MIN or facts.distinct_count < 2:
        return False
    if column.stype == "numerical":
        return True
    value = _value(table, column)
    row = one_row(
        connection,
        f"SELECT max(n), sum(n) FROM (SELECT count({value}) AS n FROM raw.t{table.source.index} "
        f"GROUP BY {value})",
    )
    few = facts.distinct_count <= CLASS_COUNT_MAX
    return bool(few and row[0] <= CLASS_SHARE_MAX * row[1])


def _task(connection: Connection, table: TableDraft, target: ColumnDraft) -> Task:
    told = _told_by(connection, table, target)
    names = [*table.primary_key, target.name]
    notes = [f"{name} ({why})" for name, why in told.items()]
    return Task(
        name=_task_name(table, target),
        anchor_table=table.name,
        target_column=target.name,
        target_stype=target.stype,
        query=f"SELECT {', '.join(map(quote, names))} FROM {quote(table.name)} "
        f"WHERE {quote(target.name)} IS NOT NULL",
        hidden_columns=tuple(ColumnRef(table.name, name) for name in told),
        note=note_text([Check(f"hidden, as they give it away: {', '.join(notes)}", Cost.HINT)])
        if notes
        else "",
    )


def _is_shown(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a cell of the row may be seen when its target is asked for."""
    return (
        column.stype != "ignored"
        and column.known_at.kind == "creation"
        and column.name not in (*table.primary_key, table.temporal_column)
        and column.taken_from is None
    )


def _told_by(connection: Connection, table: TableDraft, target: ColumnDraft) -> dict[str, str]:
    """Columns that give the target of their row away, by their values or by whether they have one,
    each with the evidence that an audit of a store measures."""
    columns = [c for c in table.columns if c is not target and _is_shown(table, c)]
    selected = [f"{_value(table, column)} AS v{j}" for j, column in enumerate([target, *columns])]
    step = target.facts.value_count // SAMPLE_ROWS + 1
    keys = ", ".join(table.value(name) for name in table.primary_key)
    sampled = f" AND hash({keys}) % {step} = 0" if step > 1 else ""
    result = connection.execute(
        f"SELECT {', '.join(selected)} FROM raw.t{table.source.index} "
        f"WHERE {_value(table, target)} IS NOT NULL{sampled}"
    ).fetchnumpy()
    answers, *values = (_Values.of(array) for array in result.values())
    is_class = target.stype != "numerical"
    asked = answers.codes.astype(np.float64) if is_class else answers.numbers
    anchors = np.arange(asked.size)
    found = {}
    for column, shown in zip(columns, values, strict=True):
        tells, has = [Evidence()], shown.codes != NO_CATEGORY
        if column.stype != "identifier":  # of which a context shows only that it is there
            tells.append(compare(*shown, asked, anchors, is_class=is_class))
        if has.any() and not has.all():
            numbers, codes = has.astype(np.float64), has.astype(np.int64)
            presence = compare(numbers, codes, asked, anchors, is_class=is_class)
            tells.append(replace(presence, text=f"whether it has a value: {presence.text}"))
        best = max(tells, key=lambda evidence: evidence.strength)
        if best.strength >= STRONG and best.count >= max(ROWS_MIN, COVERED * asked.size):
            found[column.name] = best.text
    return found


class _Values(NamedTuple):
    """Values of a column of a result, as numbers and as categories."""

    numbers: NDArray[np.float64]  # [n] NaN: none
    codes: NDArray[np.int64]  # [n] NO_CATEGORY: none

    @classmethod
    def of(cls, found: Any) -> _Values:
        """As DuckDB gives them."""
        values, has = np.ma.getdata(found), ~np.ma.getmaskarray(found)
        if values.dtype == object:
            has = has & np.array([value is not None for value in values], bool)
        numbers = np.full(values.size, np.nan)
        codes = np.full(values.size, NO_CATEGORY)
        if values.dtype != object:
            numbers[has] = values[has]
            has = has & ~np.isnan(numbers)
        codes[has] = np.unique(values[has], return_inverse=True)[1]
        return cls(numbers, codes)


def _value(table: TableDraft, column: ColumnDraft) -> str:
    """SQL: a value of a column, of its drafted type; very large numbers are brought near 1."""
    value, largest = table.typed_value(column.name), column.facts.largest
    is_large = column.stype == "numerical" and largest > SQUARED_MAX
    return f"{value} / {largest!r}" if is_large else value
