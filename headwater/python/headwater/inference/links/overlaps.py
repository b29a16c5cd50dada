"""How many distinct values of one key are in another: measured by a query, or bounded for many.

`measure_overlap` is exact (for more than a million values, of a sample by their hash), and a query
of its own for each pair. A database of 180 tables has tens of thousands of pairs that names and
facts do not rule out, nearly all of them without a value in common. So `ValueIndex` keeps the
hashes of many keys' values in one sorted array, and says of a column how many of its values each
key has at most, by one binary search for each value. Only what may be enough is then measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.inference.draft import TableDraft
from headwater.sources.database import Connection, one_row
from headwater.sources.key_values import (
    KeyPart,
    alike_by_type,
    key_part,
    settle_equality,
)
from headwater.sources.key_values import key_text as text_of_key
from headwater.sources.source import Alike

SAMPLE_VALUES = 1_000_000
INDEX_VALUES = 1 << 24  # of all keys of an index: some 200 MB
CHUNK_VALUES = 1 << 14  # of a column that are looked up together


@dataclass(frozen=True)
class Overlap:
    """How many distinct values of a foreign key are in the key it may refer to."""

    found: int
    count: int
    is_sample: bool

    @property
    def share(self) -> float:
        return self.found / self.count if self.count else 0.0

    def text(self, parent: str) -> str:
        sample = "a sample of " if self.is_sample else ""
        if self.found == self.count:
            return f"all {sample}{self.count:,} values are in {parent}"
        return f"{self.found:,} of {sample}{self.count:,} values are in {parent}"


def key_text(table: TableDraft, name: str, alias: str = "") -> str:
    """SQL: a value as keys compare, NULL spellings taken out. The columns of a drafted foreign key,
    and those that it refers to, compare as that key does."""
    alike = table.alike.get(name, frozenset())
    return text_of_key(table.value(name, alias), table.kind(name), alike)


def key_parts(connection: Connection, table: TableDraft, names: Sequence[str]) -> list[KeyPart]:
    """Columns as the parts of a key; their values are looked at once."""
    for name in names:
        if name not in table.key_parts:
            source = table.source.columns[table.slot(name)]
            relation, value = f"raw.t{table.source.index}", functools.partial(table.value, name)
            stated = alike_by_type(source)
            table.key_parts[name] = key_part(connection, relation, value, source.type, stated)
    return [table.key_parts[name] for name in names]


def measure_overlap(
    connection: Connection,
    table: TableDraft,
    columns: Sequence[str],
    parent: TableDraft,
    references: Sequence[str],
) -> Overlap:
    """Distinct values of a key's columns, and how many of them the parent has."""
    own = key_parts(connection, table, columns)
    other = key_parts(connection, parent, references)
    ways = settle_equality(connection, own, other).alike
    values = [part.text("", way) for part, way in zip(own, ways, strict=True)]
    selected = ", ".join(f"{value} AS k{j}" for j, value in enumerate(values))
    present = " AND ".join(f"k{j} IS NOT NULL" for j in range(len(values)))
    theirs = [part.text("", way) for part, way in zip(other, ways, strict=True)]
    keys = ", ".join(f"{text} AS k{j}" for j, text in enumerate(theirs))
    names = ", ".join(f"k{j}" for j in range(len(values)))
    step = max(table.column(name).facts.distinct_count for name in columns) // SAMPLE_VALUES + 1
    sampled = f" AND hash({names}) % {step} = 0" if step > 1 else ""
    row = one_row(
        connection,
        f"SELECT count(*), count(*) FILTER (WHERE ({names}) IN "
        f"(SELECT ({names}) FROM (SELECT {keys} FROM raw.t{parent.source.index}) "
        f"WHERE {present})) FROM (SELECT DISTINCT {names} FROM "
        f"(SELECT {selected} FROM raw.t{table.source.index}) WHERE {present}{sampled})",
    )
    return Overlap(row[1], row[0], step > 1)


class ValueIndex:
    """Hashes of the values of keys, in one sorted array beside the numbers of their keys.

    Two texts of one hash make a bound too high, never too low, as do texts that differ only in what
    some keys hold equal. Keys are numbered as they are given;
    of those that together pass INDEX_VALUES the largest are left out, and have no bound.

    alike: the spellings that any key may hold equal.
    """

    def __init__(
        self,
        connection: Connection,
        keys: Sequence[tuple[TableDraft, str]],
        alike: frozenset[Alike],
    ) -> None:
        self.connection, self.alike = connection, alike
        sizes = [table.column(name).facts.value_count for table, name in keys]
        order = np.argsort(sizes, kind="stable")
        held = order[np.cumsum(np.asarray(sizes, np.int64)[order]) <= INDEX_VALUES].tolist()
        self.is_held = np.isin(np.arange(len(keys)), held)
        hashes = [np.unique(self._hashes(*keys[number])) for number in held]
        values = np.concatenate([np.zeros(0, np.uint64), *hashes])
        numbers = np.repeat(np.asarray(held, np.int32), [len(found) for found in hashes])
        order = np.argsort(values, kind="stable")
        self.values, self.numbers = values[order], numbers[order]

    def shares(self, table: TableDraft, name: str) -> NDArray[np.float64]:
        """[keys] the share of a column's distinct values that each key has at most; 1 where it is
        not held, or where the column has so many values that a sample of them is measured."""
        bounds = np.ones(len(self.is_held))
        if table.column(name).facts.distinct_count >= SAMPLE_VALUES:
            return bounds
        asked = self._hashes(table, name)
        if not len(asked):
            return bounds
        found = np.zeros(len(bounds), np.int64)
        for start in range(0, len(asked), CHUNK_VALUES):
            found += self._count(asked[start : start + CHUNK_VALUES])
        return np.where(self.is_held, found / len(asked), 1.0)

    def _count(self, asked: NDArray[np.uint64]) -> NDArray[np.int64]:
        """[keys] how many of some hashes each key has."""
        low = np.searchsorted(self.values, asked, "left")
        count = np.searchsorted(self.values, asked, "right") - low
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        numbers = self.numbers[np.repeat(low, count) + within]
        return np.bincount(numbers, minlength=len(self.is_held))

    def _hashes(self, table: TableDraft, name: str) -> NDArray[np.uint64]:
        """A hash for each distinct value of a column, in no order: one of all values that some keys
        may hold equal."""
        loose = text_of_key("v", table.kind(name), self.alike)
        found = self.connection.execute(
            f"SELECT hash({loose}) AS h FROM (SELECT DISTINCT {table.value(name)} AS v "
            f"FROM raw.t{table.source.index}) WHERE v IS NOT NULL"
        ).fetchnumpy()["h"]
        return np.asarray(found, np.uint64)
