"""A few cells worth predicting, so that a first store can be trained on and its questions edited.

Of each table with a key, timed tables first and larger ones before smaller: a column that is known
late, else a boolean, a category, a number. Columns of the same row that give the target away (by
which it is almost determined) are hidden; who drafts a task by hand rarely thinks of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.names import words_of
from headwater.metadata.from_json import FILE_UNSAFE, is_usable
from headwater.metadata.parts import ColumnRef, Task
from headwater.sources.database import Connection, one_row
from headwater.sources.source import quote
from headwater.sources.value_sql import (
    INTEGER_TYPES,
    REAL_TYPES,
    canonical_text,
    to_boolean,
    to_numerical,
)

TASK_COUNT_MAX = 6
TASKS_PER_TABLE = 2
ROWS_MIN = 50  # labelled
CLASS_COUNT_MAX = 64
CLASS_SHARE_MAX = 0.98  # of the largest class
DETERMINED = 0.98  # of what is to be known beyond the largest class, or of the variance
CORRELATED = 0.99
COVERED = 0.5  # of the rows have a value that another row has too
TYPE_ORDER = ("boolean", "categorical", "numerical")
NULL_SHARE_MIN = 0.02  # of a number that not every row gets, as an outcome is
OUTCOMES = {
    "amount", "total", "price", "revenue", "cost", "rating", "rank", "position", "points", "score",
    "result", "quantity", "duration", "delay", "value", "sales", "grade", "salary",
}  # fmt: skip
EXACT_MAX = 2**53  # of integers that a double holds
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
    hidden, notes = [], []
    for column in table.columns:
        if column is not target and _is_shown(table, column):
            why = _determines(connection, table, column, target)
            if why is not None:
                hidden.append(ColumnRef(table.name, column.name))
                notes.append(f"{column.name} ({why})")
    names = [*table.primary_key, target.name]
    return Task(
        name=_task_name(table, target),
        anchor_table=table.name,
        target_column=target.name,
        target_stype=target.stype,
        query=f"SELECT {', '.join(map(quote, names))} FROM {quote(table.name)} "
        f"WHERE {quote(target.name)} IS NOT NULL",
        hidden_columns=tuple(hidden),
        note="hidden, as they give it away: " + ", ".join(notes) if notes else "",
    )


def _is_shown(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a cell of the row may be seen when its target is asked for."""
    return (
        column.stype in (*TYPE_ORDER, "text")
        and column.known_at.kind == "creation"
        and column.name not in table.primary_key
        and column.taken_from is None
    )


def _determines(
    connection: Connection, table: TableDraft, column: ColumnDraft, target: ColumnDraft
) -> str | None:
    """Why a column gives the target of its row away, if it does."""
    value, asked = _value(table, column), _value(table, target)
    pairs = f"(SELECT {value} AS v, {asked} AS t FROM raw.t{table.source.index})"
    both = "v IS NOT NULL AND t IS NOT NULL"
    if column.stype == target.stype == "numerical":
        row = one_row(connection, f"SELECT corr(v, t), count(*) FROM {pairs} WHERE {both}")
        if row[0] is not None and row[1] >= ROWS_MIN and abs(row[0]) >= CORRELATED:
            return f"correlation {row[0]:.3f}"
    if not _may_repeat(table, column, target):
        return None
    if target.stype == "numerical":
        return _explains(connection, pairs, both, target)
    row = one_row(
        connection,
        f"SELECT sum(n), sum(top), count(*) FROM (SELECT v, sum(m) AS n, max(m) AS top FROM "
        f"(SELECT v, t, count(*) AS m FROM {pairs} WHERE {both} GROUP BY v, t) GROUP BY v) "
        "WHERE n > 1",
    )
    base = one_row(
        connection,
        f"SELECT max(m), sum(m) FROM (SELECT count(*) AS m FROM {pairs} WHERE {both} GROUP BY t)",
    )
    if not row[0] or row[0] < COVERED * target.facts.value_count or row[2] * 3 > row[0]:
        return None
    share, chance = row[1] / row[0], base[0] / base[1]
    if chance < 1 and (share - chance) / (1 - chance) >= DETERMINED:
        return f"{share:.1%} agree by its value"
    return None


def _may_repeat(table: TableDraft, column: ColumnDraft, target: ColumnDraft) -> bool:
    """Whether values can cover half of a target's rows and stand in three rows each, on average.

    Of n values, d of them distinct, s stand once: the others are n - s >= T / 2 for T values of the
    target, and n - s >= 3 (d - s), so that 3 (n - d) >= T. Rows without a target do not add to it.
    """
    facts, kind = column.facts, table.kind(column.name)
    is_exact = kind in REAL_TYPES or (kind in INTEGER_TYPES and facts.largest <= EXACT_MAX)
    if column.stype == "boolean" or (column.stype == "numerical" and not is_exact):
        return True  # fewer values may be distinct than texts of them are
    return 3 * (facts.value_count - facts.distinct_count) >= target.facts.value_count


def _explains(connection: Connection, pairs: str, both: str, target: ColumnDraft) -> str | None:
    """Whether a number hardly varies among the rows that share a value."""
    count, within, groups, variance = one_row(
        connection,
        f"SELECT sum(n), sum(n * s), count(*), (SELECT var_pop(t) FROM {pairs} WHERE {both}) FROM "
        f"(SELECT count(*) AS n, var_pop(t) AS s FROM {pairs} WHERE {both} GROUP BY v) WHERE n > 1",
    )
    is_few = not count or count < COVERED * target.facts.value_count or groups * 3 > count
    if is_few or not variance:
        return None
    explained = 1 - within / count / variance
    if explained < DETERMINED:
        return None
    return f"it explains {explained:.1%} of the variance"


def _value(table: TableDraft, column: ColumnDraft) -> str:
    """SQL: a value of a column, of its drafted type; very large numbers are brought near 1."""
    kind, raw = table.kind(column.name), table.value(column.name)
    if column.stype == "numerical":
        decimal = table.source.csv.decimal if table.source.csv is not None else "."
        number = f"CAST({to_numerical(raw, kind, decimal=decimal)[0]} AS DOUBLE)"
        largest = column.facts.largest
        return number if largest <= SQUARED_MAX else f"{number} / {largest!r}"
    return to_boolean(raw, kind)[0] if column.stype == "boolean" else canonical_text(raw, kind)
