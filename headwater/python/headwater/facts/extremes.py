"""Numbers that spoil the others of their column: beyond float32, or far from all others.

A store has a number as a float32 z-score by the mean and deviation of its column. Next to 1e308, or
to a -9999 that stands for no value, all other numbers of the column become nearly the same. Nothing
here changes a value: a person decides, with `null_values`. The ends of all columns and a sample of
them are read at once, and show of nearly all columns that there is nothing to name.

A value is far from the others if it is the least or the largest one, several rows have it, and it
is ten times as far away as the others are from each other. For a number written with nines (-9999,
9999999, -999.25) once as far is enough, or that no other is below 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.sources.database import Connection, one_row
from headwater.store.extreme_values import (
    BELOW,
    BEYOND,
    FAR,
    FLOAT32_MAX,
    SPELLINGS_MAX,
    Extremes,
)

FLOAT32_MIN = 1.1754943508222875e-38  # above 0
REPEATS_MIN, NINES_REPEATS_MIN = 5, 3  # rows that have the far value
OTHERS_MIN, NINES_OTHERS_MIN = 10, 2  # distinct values of the others
FARNESS = 10  # the distance to the others, by their range
COLUMNS_MAX, SAMPLE_ROWS = 100, 1_000  # asked at once; DuckDB is slower with more columns
NINES = re.compile(r"9{3,}(\.(9+|25))?")


@dataclass(frozen=True)
class Numbers:
    """A numerical column in SQL."""

    column: str
    number: str  # as DOUBLE
    text: str  # as the source spells it
    is_whole: bool = False  # by its type


def find_extremes(
    connection: Connection,
    relation: str,
    columns: Sequence[Numbers],
    quick: tuple[str, Sequence[str]],
) -> list[Extremes]:
    """The extremes of some columns of a relation.

    quick: a relation, and SQL that has their numbers there with less work, and perhaps others, too:
    these are searched first, and `columns` are read if there is something to name.
    """
    place, numbers = quick
    ends: list[Ends] = []
    for at in range(0, len(columns), COLUMNS_MAX):
        part = slice(at, at + COLUMNS_MAX)
        ends += _ends(connection, place, numbers[part], columns[part])
    found: list[Extremes] = []
    for column, number, end in zip(columns, numbers, ends, strict=True):
        if end.beyond:
            found.append(_named(connection, relation, column, BEYOND, f"abs(n) > {FLOAT32_MAX!r}"))
        if end.below:
            tiny = f"n <> 0 AND abs(n) < {FLOAT32_MIN!r}"
            found.append(_named(connection, relation, column, BELOW, tiny))
        if end.may_be_far and (values := _far_values(connection, place, number)):
            found += _far(connection, relation, column, values)
    return [each for each in found if each.count]


def far_values(
    low: float, high: float, low_count: int, high_count: int, next_low: float, next_high: float
) -> list[float]:
    """Which of the least and the largest value are far from all others.

    next_low, next_high: the least and the largest of the others; None if there are none.
    """
    if next_low is None:
        return []
    inner = (next_low, next_high)
    if _is_far(low, low_count, inner) and _is_far(high, high_count, inner):
        return [low, high]
    if _is_far(high, high_count, (low, next_high)):
        return [high]
    return [low] if _is_far(low, low_count, (next_low, high)) else []


def _is_far(value: float, count: int, others: tuple[float, float]) -> bool:
    low, high = others
    gap = low - value if value < low else value - high
    if is_nines(value):
        return count >= NINES_REPEATS_MIN and (gap >= high - low or value < 0 <= low)
    return count >= REPEATS_MIN and gap >= FARNESS * (high - low)


def is_nines(value: float) -> bool:
    """Whether a number is written as those that stand for no value often are."""
    size = abs(value)
    text = str(int(size)) if size.is_integer() else f"{size:.12g}"
    return NINES.fullmatch(text) is not None


# ---- queries -----------------------------------------------------------------------------------


class Ends(NamedTuple):
    """Whether the least and the largest number of a column, and the one nearest to 0, leave these
    possible; many columns are asked for them at once."""

    beyond: bool
    below: bool
    may_be_far: bool


def _ends(
    connection: Connection, relation: str, numbers: Sequence[str], columns: Sequence[Numbers]
) -> Iterator[Ends]:
    named = ", ".join(f"CAST({number} AS DOUBLE) AS n{k}" for k, number in enumerate(numbers))
    query = f"SELECT {named} FROM {relation}"
    sample = connection.execute(f"{query} LIMIT {SAMPLE_ROWS}").fetchnumpy()
    values = [np.ma.compressed(sample[f"n{k}"]) for k in range(len(numbers))]
    ends: list[tuple[Any, ...]]
    if len(sample["n0"]) < SAMPLE_ROWS:
        ends = [_ends_of(each) for each in values]
    else:
        asked = [
            f"min(n{k}), max(n{k}), {'NULL' if column.is_whole else f'min(nullif(abs(n{k}), 0))'}"
            for k, column in enumerate(columns)
        ]
        row = one_row(connection, f"SELECT {', '.join(asked)} FROM ({query})")
        ends = [row[at : at + 3] for at in range(0, len(row), 3)]
    for each, (low, high, size) in zip(values, ends, strict=True):
        if low is None:
            yield Ends(False, False, False)
            continue
        beyond, below = max(-low, high) > FLOAT32_MAX, size is not None and size < FLOAT32_MIN
        yield Ends(beyond, below, low < high and (beyond or _may_be_far(low, high, each)))


def _ends_of(values: NDArray[np.float64]) -> tuple[Any, ...]:
    """As a query has them."""
    sizes = np.abs(values[values != 0])
    low, high = (values.min(), values.max()) if values.size else (None, None)
    return low, high, sizes.min() if sizes.size else None


def _may_be_far(low: float, high: float, sample: NDArray[np.float64]) -> bool:
    """Whether some values between leave it possible that an end, or each of them, is far: a far end
    is further from the others than they are from each other, or the only one below 0."""
    inner = sample[(low < sample) & (sample < high)]
    if not inner.size:
        return True
    first, last = inner.min(), inner.max()
    below, above = first - low, high - last  # the distances to the ends
    is_far_low = below >= high - first or (is_nines(low) and low < 0 <= first)
    return bool(is_far_low or above >= last - low or min(below, above) >= last - first)


def _far_values(connection: Connection, relation: str, number: str) -> list[float]:
    """The least and the largest that float32 holds, if they are far."""
    values = f"(SELECT CAST({number} AS DOUBLE) AS n FROM {relation})"
    held = f"abs(n) <= {FLOAT32_MAX!r}"
    low, high = one_row(connection, f"SELECT min(n), max(n) FROM {values} WHERE {held}")
    if low is None:
        return []
    row = one_row(
        connection,
        "SELECT count(*) FILTER (n = low), count(*) FILTER (n = high), "
        "min(n) FILTER (n > low AND n < high), max(n) FILTER (n > low AND n < high) "
        f"FROM {values}, (SELECT {_double(low)} AS low, {_double(high)} AS high) WHERE {held}",
    )
    return far_values(low, high, *row)


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _spelled(relation: str, column: Numbers) -> str:
    return (
        f"(SELECT CAST({column.number} AS DOUBLE) AS n, CAST({column.text} AS VARCHAR) AS v "
        f"FROM {relation})"
    )


def _named(
    connection: Connection, relation: str, column: Numbers, reason: str, condition: str
) -> Extremes:
    rows = connection.execute(
        f"SELECT v, count(*) AS c FROM {_spelled(relation, column)} WHERE {condition} "
        "GROUP BY v ORDER BY c DESC, v"
    ).fetchall()
    count = sum(number for _, number in rows)
    return Extremes(column.column, reason, count, dict(rows[:SPELLINGS_MAX]))


def _far(
    connection: Connection, relation: str, column: Numbers, values: Sequence[float]
) -> Iterator[Extremes]:
    """The far values, if the others are different ones."""
    listed = ", ".join(map(_double, values))
    distinct, low, high = one_row(
        connection,
        f"SELECT count(DISTINCT n), min(n), max(n) FROM {_spelled(relation, column)} "
        f"WHERE n NOT IN ({listed}) AND abs(n) <= {FLOAT32_MAX!r}",
    )
    if distinct >= (NINES_OTHERS_MIN if all(map(is_nines, values)) else OTHERS_MIN):
        found = _named(connection, relation, column, FAR, f"n IN ({listed})")
        yield Extremes(column.column, FAR, found.count, found.values, (low, high))
