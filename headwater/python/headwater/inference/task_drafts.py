"""A few questions, so that a first store can be trained on and its questions edited.

First about the future, if the database has one: whether a row of one table (a customer) will be
named by a new row of another (an order) within some days, asked at the ends of such spans, the last
of which is for the test. Then a few cells worth predicting. Of each table with a key, timed tables
first and larger ones before smaller: a column that is known late, else a boolean, a category, a
number. Columns of the same row that give the target away (by which it is almost determined) are
hidden; who drafts a task by hand rarely thinks of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.facts.association import NO_CATEGORY, STRONG, Evidence, compare
from headwater.facts.names import words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.parent_times import has_own_time
from headwater.metadata.from_json import FILE_UNSAFE, is_usable
from headwater.metadata.parts import ColumnRef, ForeignKey, Task
from headwater.metadata.review import Check, Cost, note_text
from headwater.sources.database import Connection, one_row
from headwater.sources.key_values import is_text_type, key_text
from headwater.sources.source import Alike, quote

TASK_COUNT_MAX = 6
FUTURE_COUNT_MAX = 2  # of these are about the future
LINKS_MAX = 8  # foreign keys that are tried for them
DAY_S = 86_400
WINDOW_DAYS = (1, 7, 30, 90, 365, 1825)  # the span that is asked about
NAMED_MAX, KEYS_MIN = 200_000, 2_000  # rows that are looked at, by a hash of the keys they name
ASKED_MIN, ASKED_MAX = 4, 12  # times at which it is asked, each a span before the next
SEEDS_MIN, SEEDS_MAX = 100, 100_000
CLASS_MIN = 20  # of these seeds, at least, are of either answer
RATE_MIN = 0.05  # of them are
TASKS_PER_TABLE = 2
ROWS_MIN = 50  # labelled
CLASS_COUNT_MAX = 64
CLASS_SHARE_MAX = 0.98  # of the largest class
SAMPLE_ROWS = 20_000  # by which it is judged what gives a target away
TOGETHER = 50  # columns that are read by one query
COVERED = 0.5  # of these have the column
TYPE_ORDER = ("boolean", "categorical", "numerical")
NULL_SHARE_MIN = 0.02  # of a number that not every row gets, as an outcome is
OUTCOMES = {
    "amount", "total", "price", "revenue", "cost", "rating", "rank", "position", "points", "score",
    "result", "quantity", "duration", "delay", "value", "sales", "grade", "salary",
}  # fmt: skip
SQUARED_MAX = 1e150  # of numbers whose variance a double holds


def draft_tasks(connection: Connection, tables: Sequence[TableDraft]) -> list[Task]:
    """At most a handful, those of the future first, then one per table."""
    tasks = _future_tasks(connection, tables)
    keyed = [table for table in tables if table.primary_key]
    pool = [table for table in keyed if table.temporal_column is not None] or keyed
    pool.sort(key=lambda table: -table.source.row_count)
    targets: dict[str, list[ColumnDraft]] = {}
    for place in range(TASKS_PER_TABLE):
        for table in pool:
            if len(tasks) == TASK_COUNT_MAX:
                return tasks
            if table.name not in targets:
                targets[table.name] = _targets(connection, table)
            if place < len(targets[table.name]):
                tasks.append(_task(connection, table, targets[table.name][place]))
    return tasks


# ---- the future ----------------------------------------------------------------------------------


class _Link(NamedTuple):
    """Rows with a time that name a row, and how often."""

    child: TableDraft
    key: ForeignKey
    parent: TableDraft


class _Window(NamedTuple):
    """A span that is asked about."""

    days: int
    asked: int  # times
    seeds: int
    rate: float  # of seeds with a new row


def _future_tasks(connection: Connection, tables: Sequence[TableDraft]) -> list[Task]:
    """One for each of the rows that are named most, of those that are named again and again."""
    by_name = {table.name: table for table in tables}
    links = [
        _Link(table, key, by_name[key.table])
        for table in tables
        for key in table.every_key()
        if key.table != table.name
        and key.references == by_name[key.table].primary_key
        and has_own_time(table)
        and is_usable(_future_name(table, by_name[key.table]))
    ]
    links.sort(key=lambda link: -link.child.source.row_count)
    tasks: list[Task] = []
    asked: set[str] = set()
    for link in links[:LINKS_MAX]:
        if len(tasks) == FUTURE_COUNT_MAX:
            break
        window = None if link.parent.name in asked else _window(connection, link)
        if window is not None:
            asked.add(link.parent.name)
            tasks.append(_future_task(link, window, list(by_name)))
    return tasks


def _future_name(child: TableDraft, parent: TableDraft) -> str:
    name = FILE_UNSAFE.sub("_", f"{parent.name}-next-{child.name}")
    return f"_{name[1:]}" if name.startswith(".") else name


def _window(connection: Connection, link: _Link) -> _Window | None:
    """The span in which half of the rows are named again, as nearly as may be; None if there are
    too few times, seeds or answers of one kind."""
    child, time = link.child, link.child.stamp(link.child.temporal_column or "")
    values = [_key_of(child, name, child.value(name)) for name in link.key.columns]
    names = [f"k{j}" for j in range(len(values))]
    key = ", ".join(names)
    is_set = " AND ".join(f"{value} IS NOT NULL" for value in values)
    step = max(
        1, min(child.source.row_count // NAMED_MAX, link.parent.source.row_count // KEYS_MIN)
    )
    sampled = f" AND hash({', '.join(values)}) % {step} = 0" if step > 1 else ""
    selected = [f"{value} AS {k}" for value, k in zip(values, names, strict=True)]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE named_times AS SELECT {', '.join(selected)}, "
        f"epoch({time}) AS t FROM raw.t{child.source.index} WHERE {is_set}{sampled}"
    )
    until = f"(SELECT floor(max(t) / {DAY_S}) * {DAY_S} + {DAY_S} FROM named_times)"
    connection.execute(  # the days on which each is named, counted back from the newest
        f"CREATE OR REPLACE TEMP TABLE named_days AS SELECT DISTINCT {key}, "
        f"CAST(ceil(({until} - t) / {DAY_S}) AS BIGINT) AS d FROM named_times WHERE t IS NOT NULL"
    )
    found: list[_Window] = []
    for days in WINDOW_DAYS:
        spans, seeds, count = one_row(
            connection,
            f"WITH spans AS (SELECT DISTINCT {key}, (d + {days - 1}) // {days} AS back "
            "FROM named_days), "
            f"named AS (SELECT {key}, max(back) AS oldest FROM spans GROUP BY {key}) "
            "SELECT (SELECT max(back) FROM spans), "
            f"(SELECT sum(least(oldest - 1, {ASKED_MAX})) FROM named), "
            f"(SELECT count(*) FROM spans JOIN named USING ({key}) "
            f"WHERE back < oldest AND back <= {ASKED_MAX})",
        )
        asked, seeds, count = min((spans or 0) - 1, ASKED_MAX), (seeds or 0) * step, count * step
        if asked >= ASKED_MIN and seeds >= SEEDS_MIN:
            fewer = min(count, seeds - count)
            if fewer >= max(CLASS_MIN, RATE_MIN * seeds):
                found.append(_Window(days, asked, int(seeds), count / seeds))
    return min(found, key=lambda window: abs(window.rate - 0.5), default=None)


def _future_task(link: _Link, window: _Window, tables: Sequence[str]) -> Task:
    """The question as a query of the newest data that there are; tables: names that it may not
    give to what it makes."""
    child, parent, seconds = link.child, link.parent, window.days * DAY_S
    newest, spans, named = (_free(name, tables) for name in ("newest", "spans", "named"))
    own = parent.primary_key
    until, back, oldest, asked = (_free(n, own) for n in ("until", "back", "oldest", "asked"))
    at, split = _free("obs_time", own), _free("split", own)
    columns = [*own, *(column.name for column in parent.columns)]
    target = _free(f"has_{child.name}", [*columns, at, split])
    time, source = quote(child.temporal_column or ""), quote(child.name)
    ours = [_key_of(child, name, quote(name)) for name in link.key.columns]
    keys = list(zip(ours, map(quote, own), strict=True))
    is_set = " AND ".join(f"{name} IS NOT NULL" for name in (time, *(ours for ours, _ in keys)))
    parts = ", ".join(part for _, part in keys)
    equal = " AND ".join(f"s.{part} = n.{part}" for _, part in keys)
    # A row of a day is shown when that is over, so one of the day of the question is an answer; one
    # with a time of day is shown at once, so one of this very moment is not.
    spans_back = f"(epoch({until}) - epoch({time})) / {seconds}"
    is_day = child.time_resolution == "day" or child.holds_days(child.temporal_column or "")
    number = f"ceil({spans_back})" if is_day else f"floor({spans_back}) + 1"
    step = window.seeds // SEEDS_MAX + 1
    sampled = f" AND hash({', '.join(f'n.{part}' for _, part in keys)}) % {step} = 0"
    query = (
        f"WITH {newest} AS (SELECT date_trunc('day', max({time})) + INTERVAL 1 DAY AS {until} "
        f"FROM {source}), {spans} AS (SELECT DISTINCT "
        f"{', '.join(f'{ours} AS {part}' for ours, part in keys)}, "
        f"CAST({number} AS BIGINT) AS {back} "
        f"FROM {source}, {newest} WHERE {is_set}), {named} AS (SELECT {parts}, max({back}) AS "
        f"{oldest} FROM {spans} GROUP BY {parts}) "
        f"SELECT {', '.join(f'n.{part}' for _, part in keys)}, "
        f"{until} - {asked} * INTERVAL {window.days} DAY AS {at}, "
        f"s.{back} IS NOT NULL AS {quote(target)}, "
        f"CASE {asked} WHEN 1 THEN 'test' WHEN 2 THEN 'val' ELSE 'train' END AS {split} "
        f"FROM {named} n CROSS JOIN {newest} CROSS JOIN range(1, {window.asked + 1}) AS "
        f"times({asked}) LEFT JOIN {spans} s ON {equal} AND s.{back} = {asked} "
        f"WHERE {oldest} > {asked}{sampled if step > 1 else ''}"
    )
    return Task(
        name=_future_name(child, parent),
        anchor_table=parent.name,
        target_column=target,
        target_stype="boolean",
        query=query,
        observation_time_column=at,
        label_window_us=seconds * 1_000_000,
        split_column=split,
    )


def _key_of(child: TableDraft, name: str, value: str) -> str:
    """SQL: a value of a foreign key in one spelling, if others name the same row. Texts that are
    whole numbers are numbers in a store."""
    ways = child.alike.get(name, frozenset())
    if not ways or not is_text_type(child.kind(name)):
        return value
    if Alike.NUMBERS in child.key_parts[name].alike:
        ways -= {Alike.NUMBERS}
    return key_text(f"CAST({value} AS VARCHAR)", "VARCHAR", ways) if ways else value


def _free(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken."""
    folded = {other.casefold() for other in taken}
    while name.casefold() in folded:
        name += "_"
    return name


# ---- cells ---------------------------------------------------------------------------------------


def _targets(connection: Connection, table: TableDraft) -> list[ColumnDraft]:
    """Columns to predict, the best first, of different types where there are."""
    keys = table.key_columns()
    found = [
        column
        for column in table.columns
        if column.name not in keys
        and not (column.is_total or column.is_of_time or column.is_of_key)
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
    found_values = []
    for start in range(0, len(selected), TOGETHER):  # many at once are planned for seconds
        some = ", ".join(selected[start : start + TOGETHER])
        result = connection.execute(
            f"SELECT {some} FROM raw.t{table.source.index} "
            f"WHERE {_value(table, target)} IS NOT NULL{sampled}"
        ).fetchnumpy()
        found_values += [_Values.of(array) for array in result.values()]
    answers, *values = found_values
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
