"""What rows say of others that refer to them: totals and last values of the day of the dump.

`customers.order_count` is a column like any other, and includes all that a customer will order: no
question may see it, whenever it is asked. Where the rows that refer to a row have times, they prove
it:

    for each table and each table that refers to it, one or two foreign keys away
        rows of the former, a sample ──► counts, sums, means, smallest, largest, oldest, newest and
                                         last values of the rows that refer to each
                                     ──► a column that nearly always equals one of them is hidden

A row without a time of its own shows all of its cells at any time. So in a table without a time a
column with the name of a total or a balance is hidden too, unless a person declares otherwise. In a
table with a time only later rows count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.facts.association import correlation, rank
from headwater.facts.names import singular, table_words, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.known_later import STATES, is_counter, propose, withdraw
from headwater.inference.links.overlaps import key_text
from headwater.inference.parent_times import has_own_time
from headwater.metadata.parts import ForeignKey, Known
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal

ROWS_MAX = 20_000  # of a table that are compared, by a hash of their keys
BELOW_MAX, FEW_ROWS = 200_000, 2_000  # of the rows below, if so many of the table are left
ROWS_MIN = 20  # that must have a value
PROVEN = 0.97  # of the rows with a value have that of the rows that refer to them
PARTLY = 0.6  # are enough if there are many values, as some rows may not be counted
MANY = 20  # distinct values
FIRST = 200  # rows by which nearly all other columns are ruled out
FOLLOWS = 0.5  # the correlation of ranks by which a number grows with the rows below
VARYING_MIN = 10  # rows of which those that refer to them differ
SUMMED_MAX = 12  # columns of a table of which totals are made
FACTORS_MAX = 5  # of which products are added up too
KINDS_MAX = 2  # foreign keys to a few rows, such as stages, each of which is counted
CATEGORIES_MAX = 8  # of a column of which each category is counted
LATER_SHARE = 0.01  # of the rows that refer to a timed row are later than it
NOW_WORDS = {"current", "currently"}
STRONG_WORDS = {
    "stock", "inventory", "onhand", "lifetime", "cumulative", "balance", "balances", "ltv", "ytd",
    "alltime",
}  # fmt: skip
TOTAL_WORDS = {"total", "totals", "overall", "sum"}
STATE_WORDS = {"status", "state", "active"}
LAST_WORDS = {"last", "latest", "newest", "recent", "current"}
COUNT_WORDS = {"count", "counts"}
COUNT_BEGINNINGS = {"num", "nb", "n", "number", "count"}

CENT = 0.005 + 1e-9  # by which a number that is not whole may be rounded
DAY_US = 86_400_000_000
# By type of a column, the totals that it may be.
KINDS = {
    "numerical": ("count", "number", "last numerical"),
    "timestamp": ("newest", "oldest", "last timestamp"),
    "categorical": ("last categorical",),
    "boolean": ("last boolean", "any"),
    "text": ("last categorical",),
}

Array = NDArray[Any]


@dataclass(frozen=True)
class Below:
    """Rows that refer to those of a table, over one or two foreign keys."""

    path: tuple[tuple[TableDraft, ForeignKey], ...]  # from the table that refers to it, downward

    @property
    def table(self) -> TableDraft:
        """The table of the rows."""
        return self.path[-1][0]

    def relation(
        self, above: TableDraft, names: Sequence[str], selected: str, step: int = 1
    ) -> str:
        """SQL: a relation of the key of the row that is referred to, as `names`, and what is
        selected of the rows, whose table is `b0` and the one between `b1`; step: of so many keys,
        by their hash, the rows of one."""
        top, key = self.path[0]
        last = len(self.path) - 1
        parts = [key_text(top, column, f"b{last}.") for column in key.columns]
        keys = ", ".join(f"{part} AS {name}" for part, name in zip(parts, names, strict=True))
        sources = f"raw.t{self.table.source.index} b0"
        if last:
            table, up = self.path[1]
            equal = " AND ".join(
                f"{key_text(table, own, 'b0.')} = {key_text(top, theirs, 'b1.')}"
                for own, theirs in zip(up.columns, up.references, strict=True)
            )
            sources += f" JOIN raw.t{top.source.index} b1 ON {equal}"
        sampled = f" WHERE hash({', '.join(parts)}) % {step} = 0" if step > 1 else ""
        return f"(SELECT {keys}, {selected} FROM {sources}{sampled})"


class Total(NamedTuple):
    """One total of the rows that refer to a row."""

    text: str  # what it is of
    kind: str  # one of those in KINDS
    sql: str  # an aggregate
    varies: str  # SQL: whether rows differ in what it is made of, so that no single row has it
    is_added: bool = False  # of all rows, of which a few may be left out


class Values(NamedTuple):
    """Values of a column of a result."""

    values: Array  # [n] numbers, times in microseconds, or texts
    has: Array  # [n] bool: not NULL

    @classmethod
    def of(cls, found: Any) -> Values:
        """As DuckDB gives them."""
        values, has = np.ma.getdata(found), ~np.ma.getmaskarray(found)
        if values.dtype == object:
            has = has & np.array([value is not None for value in values], bool)
        elif values.dtype.kind == "f":
            has = has & ~np.isnan(values)
        return cls(values, has)


def draft_totals(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Hide the columns that the rows of other tables prove to be totals or last values, and those
    that are called so and grow with the number of these rows; check the others of such names."""
    for table in tables:
        below = [one for one in _below(tables, table) if _time_below(one) is not None]
        if not table.source.row_count or not below:
            continue
        open_columns = _open_columns(table)
        follows: dict[str, float] = {}
        later = [one for one in below if open_columns and _is_later(connection, table, one)]
        for one in later:
            _prove(connection, table, one, open_columns, follows)
            open_columns = [c for c in open_columns if not c.is_total]
        if later and not _has_timed_parent(tables, table):
            names = {word for one in later for word in table_words(one.table.name)}
            for column in open_columns:
                _propose_by_name(table, column, later[0].table, names, follows)


def drop_last_times(connection: Connection, tables: Sequence[TableDraft]) -> list[TableDraft]:
    """Take the time from tables whose rows have that of the last row that refers to them: such a
    row would be there from its end on. Returns these tables, to be asked for another time."""
    found = []
    for table in tables:
        name = table.temporal_column
        if name is None or table.source.time_column is not None or not has_own_time(table):
            continue
        column = table.column(name)
        for one in _below(tables, table):
            if _time_of(one.table, "b0.") is None or column.is_total:
                continue
            (own,), measured = _measure(connection, table, one, [column], _newest(one))
            ((newest, values),) = measured
            column.is_total = _equal(table, column, own, newest, values) is not None
        if column.is_total:
            table.temporal_column = table.time_resolution = None
            table.time_reason = "none"
            found.append(table)
    return found


def _below(tables: Sequence[TableDraft], table: TableDraft) -> Iterator[Below]:
    """One key away first."""
    found = []
    for other in tables:
        for key in other.every_key():
            if key.table == table.name:
                found.append(Below(((other, key),)))
    yield from found
    for one in (one for one in found if one.table is not table):
        middle = one.table
        for other in tables:
            for key in other.every_key():
                is_shown = other.temporal_column is None and any(
                    key.table == table.name for key in other.every_key()
                )  # at any time, so that its number can be counted
                if key.table == middle.name and other not in (middle, table) and not is_shown:
                    yield Below((*one.path, (other, key)))


def _has_timed_parent(tables: Sequence[TableDraft], table: TableDraft) -> bool:
    """Whether its rows are of something that happened, as scores of a match are."""
    named = {key.table for key in table.every_key()}
    return any(other.temporal_column is not None for other in tables if other.name in named)


def _open_columns(table: TableDraft) -> list[ColumnDraft]:
    """Columns that contexts show, without keys."""
    keys = table.key_columns()
    return [
        column
        for column in table.columns
        if column.stype in ("numerical", "timestamp", "categorical", "text", "boolean")
        and column.name not in keys
        and column.name != table.temporal_column
        and column.taken_from is None
        and column.known_at.kind in ("creation", "column")
        and column.facts.value_count >= ROWS_MIN
    ]


def _time_of(table: TableDraft, alias: str) -> str | None:
    """SQL: the time of a row, of a table that has one of its own."""
    name = table.temporal_column
    if name is None or table.column(name).taken_from is not None:
        return None
    return table.stamp(name, alias)


def _time_below(below: Below) -> str | None:
    """SQL: the time of a row that refers to another, or of the one that it is a part of."""
    own = _time_of(below.table, "b0.")
    if own is None and len(below.path) > 1:
        own = _time_of(below.path[0][0], "b1.")
    if own is None and below.table.temporal_column is not None:
        return "CAST(NULL AS TIMESTAMP)"  # taken from a row that is not here: counts and sums do
    return own


def _is_later(connection: Connection, table: TableDraft, below: Below) -> bool:
    """Whether the rows that refer to a row come into being after it."""
    time, own = _time_below(below), _time_of(table, "a.")
    if time is None:
        return False
    if table.temporal_column is None:
        return True
    if own is None:
        return False
    names, keys = _keys(table, below)
    rows, later = one_row(
        connection,
        f"SELECT count(*), count(*) FILTER (WHERE t > own) FROM (SELECT {keys}, {own} AS own "
        f"FROM raw.t{table.source.index} a) JOIN {below.relation(table, names, f'{time} AS t')} "
        f"USING ({', '.join(names)})",
    )
    return bool(rows and later >= LATER_SHARE * rows)


def _keys(table: TableDraft, below: Below) -> tuple[list[str], str]:
    """Names of the parts of the key by which a table is referred to, and SQL of the parts."""
    references = below.path[0][1].references
    names = [f"k{j}" for j in range(len(references))]
    parts = (
        f"{key_text(table, column, 'a.')} AS {name}"
        for column, name in zip(references, names, strict=True)
    )
    return names, ", ".join(parts)


# ---- proofs ------------------------------------------------------------------------------------


def _prove(
    connection: Connection,
    table: TableDraft,
    below: Below,
    columns: Sequence[ColumnDraft],
    follows: dict[str, float],
) -> None:
    """Hide the columns that equal a total of the rows that refer to them.

    follows: of each number the largest correlation of ranks with the number of these rows; it is
        kept up.
    """
    totals = _totals(connection, below)
    own, measured = _measure(connection, table, below, columns, totals)
    counts = next(found[0] for total, found in measured if total.sql == "count(*)")
    for column, values in zip(columns, own, strict=True):
        if column.stype == "numerical" and values.has.sum() >= ROWS_MIN:
            theirs = np.where(counts.has, counts.values, 0)[values.has].astype(np.float64)
            grows = correlation(rank(values.values[values.has]), rank(theirs))
            follows[column.name] = max(grows, follows.get(column.name, 0.0))
        for total, found in measured:
            count = _equal(table, column, values, total, found)
            if count is not None:
                _hide(table, column, total, f"{count:,} of {values.has.sum():,} rows")
                break


def _measure(
    connection: Connection,
    table: TableDraft,
    below: Below,
    columns: Sequence[ColumnDraft],
    made: tuple[list[Total], list[str]],
) -> tuple[list[Values], list[tuple[Total, tuple[Values, Values]]]]:
    """Values of some columns of a sample of rows, and each total of the rows that refer to each
    with whether these differ.

    made: as `_totals` gives them.
    """
    names, keys = _keys(table, below)
    totals, selected = made
    count = table.source.row_count
    fewer = min(below.table.source.row_count // BELOW_MAX, count // FEW_ROWS)
    step = max(count // ROWS_MAX + 1, fewer)
    key = ", ".join(names)
    sampled = f" WHERE hash({key}) % {step} = 0" if step > 1 else ""
    shown = ", ".join(f"{table.typed_value(c.name, 'a.')} AS s{j}" for j, c in enumerate(columns))
    sums = ", ".join(f"{t.sql} AS m{j}, {t.varies} AS d{j}" for j, t in enumerate(totals))
    below_rows = below.relation(table, names, ", ".join(selected), step)
    result = connection.execute(
        f"WITH a AS (SELECT * FROM (SELECT {keys}, {shown} FROM raw.t{table.source.index} a)"
        f"{sampled}), b AS (SELECT {key}, {sums} FROM {below_rows} SEMI JOIN a USING ({key}) "
        f"GROUP BY {key}) SELECT * EXCLUDE ({key}) FROM a LEFT JOIN b USING ({key})"
    ).fetchnumpy()
    found = [Values.of(values) for values in result.values()]
    own, rest = found[: len(columns)], found[len(columns) :]
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return own, list(zip(totals, pairs, strict=True))


def _totals(connection: Connection, below: Below) -> tuple[list[Total], list[str]]:
    """Totals of rows that refer to one row, and SQL of the columns `t`, `v0`, `v1`, … that they
    are made of; `o` is their key."""
    table, where = below.table, f"of its rows in {below.table.name}"
    totals, selected = _newest(below)
    keys = [key_text(table, name, "b0.") for name in table.primary_key] or ["NULL"]
    selected.append(f"({', '.join(keys)}) AS o")
    differs = totals[0].varies
    totals += [
        Total(f"the number {where}", "count", "count(*)", "true", is_added=True),
        Total(f"the oldest time {where}", "oldest", "epoch_us(min(t))", differs, is_added=True),
    ]
    numbers = []
    for place, column in enumerate(_summed(table)):
        v, of = f"v{place}", f"{column.name} {where}"
        selected.append(f"{table.typed_value(column.name, 'b0.')} AS {v}")
        differs = f"max({v}) > min({v})"
        if column.stype == "timestamp":
            totals.append(Total(f"the newest {of}", "newest", f"max({v})", differs))
            totals.append(Total(f"the oldest {of}", "oldest", f"min({v})", differs))
        if column.stype == "boolean":
            totals.append(
                Total(f"the number {where} with {column.name}", "count", f"sum({v})", differs)
            )
            totals.append(Total(f"whether there is a row of {of}", "any", f"max({v})", differs))
        if column.stype == "numerical":
            numbers.append((v, column.name))
            totals += [
                Total(f"the sum of {of}", "number", f"sum({v})", "count(*) > 1", is_added=True),
                Total(f"the mean {of}", "number", f"avg({v})", differs, is_added=True),
                # One that several rows have may be a limit, or the price of a thing.
                Total(
                    f"the largest {of}", "number", f"max({v})", f"max({v}, 2)[1] > max({v}, 2)[2]"
                ),
                Total(
                    f"the smallest {of}", "number", f"min({v})", f"min({v}, 2)[1] < min({v}, 2)[2]"
                ),
            ]
        is_key = column.stype == "identifier"
        is_few = column.stype == "categorical" and column.facts.distinct_count <= CATEGORIES_MAX
        if is_few or is_key:
            for text in _texts(connection, table, column):
                count = f"count(*) FILTER (WHERE {v} = {literal(text)})"
                which = f"{where} with {column.name} '{text}'"
                totals.append(Total(f"the number {which}", "count", count, "true"))
                any_row = f"CAST({count} > 0 AS INTEGER)"
                totals.append(Total(f"whether there is one {which}", "any", any_row, "true"))
        if is_key:
            continue
        # If several have the last time: the first by the key, or the last.
        for last, first in (
            (f"arg_min({v}, (-epoch_us(t), o))", f"arg_min({v}, (t, o))"),
            (f"arg_max({v}, (t, o))", f"arg_max({v}, (-epoch_us(t), o))"),
        ):
            changes = f"{last} IS DISTINCT FROM {first}"
            totals.append(Total(f"the last {of}", f"last {column.stype}", last, changes))
    for (v, name), (w, other) in combinations(numbers[:FACTORS_MAX], 2):
        of = f"the sum of {name} x {other} {where}"
        totals.append(Total(of, "number", f"sum({v} * {w})", "count(*) > 1", is_added=True))
    return totals, selected


def _newest(below: Below) -> tuple[list[Total], list[str]]:
    """The newest time of rows that refer to one row."""
    text = f"the newest time of its rows in {below.table.name}"
    newest = Total(text, "newest", "epoch_us(max(t))", "max(t) > min(t)", is_added=True)
    return [newest], [f"{_time_below(below)} AS t"]


def _texts(connection: Connection, table: TableDraft, column: ColumnDraft) -> list[str]:
    """The categories of a column."""
    value = table.typed_value(column.name)
    rows = connection.execute(
        f"SELECT DISTINCT {value} AS v FROM raw.t{table.source.index} WHERE {value} IS NOT NULL "
        "ORDER BY v"
    ).fetchall()
    return [row[0] for row in rows]


def _summed(table: TableDraft) -> list[ColumnDraft]:
    """Columns of which totals are made, numbers first."""
    keys = table.key_columns()
    found = [
        column
        for column in table.columns
        if column.stype in ("numerical", "boolean", "categorical", "timestamp")
        and column.name not in keys
        and column.name != table.temporal_column
        and column.taken_from is None
    ]
    kinds = [
        column
        for column in table.columns
        if column.foreign_key is not None and column.stype == "identifier"
        if 1 < column.facts.distinct_count <= CATEGORIES_MAX
    ]
    found.sort(key=lambda column: column.stype != "numerical")
    return kinds[:KINDS_MAX] + found[:SUMMED_MAX]


def _equal(
    table: TableDraft, column: ColumnDraft, own: Values, total: Total, found: tuple[Values, Values]
) -> int | None:
    """In how many rows a column is the total, if that proves it to be it."""
    if total.kind not in KINDS[column.stype]:
        return None
    theirs, differ = found
    is_sum = total.kind in ("count", "number", "any")
    values, rows = theirs.values, own.has & theirs.has
    if is_sum:  # of no rows it is 0
        values, rows = np.where(theirs.has, values, 0).astype(np.float64), own.has
    varying = rows & differ.has & np.where(differ.has, differ.values, False).astype(bool)
    places = np.flatnonzero(varying)
    first = places[:FIRST]
    if own.has.sum() < ROWS_MIN or places.size < VARYING_MIN:
        return None
    if _same(table, column, own.values[first], values[first]).mean() < PARTLY / 2:
        return None  # as nearly always
    is_equal = rows.copy()
    is_equal[rows] = _same(table, column, own.values[rows], values[rows])
    if total.kind not in ("newest", "oldest"):  # equal not only if it is a usual value, such as 0
        usual = _usual(own.values[varying])
        unusual = varying & (own.values != usual)
        if (is_equal & unusual).sum() < max(VARYING_MIN, PARTLY * unusual.sum()):
            return None
    share = PROVEN
    if total.is_added and np.unique(own.values[varying]).size >= MANY:
        share = PARTLY
    if (is_equal & varying).sum() < share * varying.sum():
        return None
    count = int(is_equal.sum())
    return count if count >= share * own.has.sum() else None


def _usual(values: Array) -> Any:
    """The most frequent one."""
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts.argmax()]


def _same(table: TableDraft, column: ColumnDraft, own: Array, theirs: Array) -> Array:
    """bool [n]; a number may be rounded, and a time to its day."""
    if column.stype == "numerical":
        one, two = own.astype(np.float64), theirs.astype(np.float64)
        is_whole = column.facts.integer_count == column.facts.value_count
        slack = 1e-9 + 1e-6 * np.abs(two)
        with np.errstate(invalid="ignore"):
            return np.abs(one - two) <= (slack if is_whole else np.maximum(slack, CENT))
    if column.stype == "timestamp" and table.holds_days(column.name):
        own, theirs = own // DAY_US, theirs // DAY_US
    same: Array = np.equal(own, theirs)
    return same


def _hide(table: TableDraft, column: ColumnDraft, total: Total, rows: str) -> None:
    """A total of rows to come: hidden, unless it is a time at which it is known itself."""
    why = f"it is {total.text} in {rows}"
    column.is_total = True
    if total.kind == "oldest":
        if column.known_at.kind != "column":
            propose(column, Known("column", column.name), why)
    elif table.temporal_column is not None and total.kind not in ("count", "number", "any"):
        # The time at which it is known would give away how long the row is active.
        withdraw(column)
        column.stype, column.reason = "ignored", why
        column.check(f"ignored, as {why}: shown at any time, it gives the end away", Cost.FUTURE)
    else:
        propose(column, Known("never"), why)


# ---- names -------------------------------------------------------------------------------------


def _propose_by_name(
    table: TableDraft,
    column: ColumnDraft,
    below: TableDraft,
    names: set[str],
    follows: dict[str, float],
) -> None:
    """Hide a column with the name of a total or a last value, if nothing speaks against it; check
    other numbers and states with such a name.

    Args:
        names: the words of the tables below.
        follows: the correlation of each number with how many rows refer to its row.
    """
    kind = _called(column, names)
    if not kind:
        return
    is_timed = table.temporal_column is not None
    why = f"by its name it may be of the day of the dump, and {below.name} has rows until then"
    if kind == "total" or follows.get(column.name, 0.0) >= FOLLOWS:
        column.is_total = True
        propose(column, Known("never"), why)
    elif not is_timed:
        column.check(f"{why}: if so, set known_at never", Cost.FUTURE)


def _called(column: ColumnDraft, names: set[str]) -> str:
    """Whether a column is called a "total", or something that only may be one; "" otherwise."""
    words = words_of(column.name)
    if not words:
        return ""
    if NOW_WORDS & set(words) and column.stype not in ("timestamp", "ignored"):
        return "total"
    if column.stype == "timestamp":
        return "total" if LAST_WORDS & set(words) else ""
    if column.stype in ("boolean", "categorical"):
        return "state" if words[-1] in STATES | STATE_WORDS else ""
    if column.stype != "numerical":
        return ""
    is_count = words[-1] in COUNT_WORDS or (words[0] in COUNT_BEGINNINGS and len(words) > 1)
    counted = {singular(word) for word in words} & names
    if STRONG_WORDS & set(words) or is_counter(words[-1:], column.stype) or (is_count and counted):
        return "total"
    return "number" if is_count or (TOTAL_WORDS | LAST_WORDS) & set(words) else ""
