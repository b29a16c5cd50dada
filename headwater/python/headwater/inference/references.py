"""Which key a column refers to, where the source does not say: by its name and by its values.

Candidates of a column are the keys that its name speaks for, and those that values alone may speak
for. Their overlap decides; it is bounded for all of them at once, and measured from the best on,
until none of the rest can be better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.facts.names import is_code_name, is_id_name, is_plural, reference_score, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.overlaps import Overlap, ValueIndex, measure_overlap
from headwater.sources.database import Connection
from headwater.sources.value_sql import INTEGER_TYPES

KEY_LENGTH_MAX = 60  # of a text, on average
# Distinct values found, by what the names say (3: surely, 2: likely).
CONTAINED = {3: 0.5, 2: 0.9}
CONTAINED_BY_VALUES = 0.95
VALUES_MIN = 50  # distinct, for a key that only values speak for
DENSITY_MAX = 0.8  # of the parent's integers within their range; denser ones contain anything
CANDIDATES_MIN = 2  # columns that may refer to a key, for an index of its values to be worth it


@dataclass(frozen=True)
class Key:
    """A column that others may refer to."""

    number: int
    table: TableDraft
    name: str
    kind: str  # of the values, where they alone may speak for it: text, number or nothing


@dataclass(frozen=True)
class Reference:
    """A column, the key that it refers to, and why."""

    key: Key
    score: int  # of the names; 0: by values
    overlap: Overlap


class ReferenceSearch:
    """The keys of a database, and the columns that may refer to them."""

    def __init__(self, connection: Connection, tables: Sequence[TableDraft]) -> None:
        self.connection = connection
        found = [(table, name) for table in tables for name in _unique_columns(table)]
        self.keys = [
            Key(number, table, name, _kind_of_key(table.column(name)))
            for number, (table, name) in enumerate(found)
        ]
        self.own: dict[str, list[Key]] = {table.name: [] for table in tables}
        for key in self.keys:
            self.own[key.table.name].append(key)
        self.named: dict[str, list[tuple[Key, int]]] = {}  # by a column's name
        self.by_kind = {
            kind: [key for key in self.keys if key.kind == kind] for kind in ("text", "number")
        }
        uses = Counter(
            key.number
            for table in tables
            for column in table.columns
            if column.foreign_key is None
            for key, _ in self._candidates(table, column)
        )
        indexed = [key for key in self.keys if uses[key.number] >= CANDIDATES_MIN]
        self.places = {key.number: place for place, key in enumerate(indexed)}
        self.index = ValueIndex(connection, [(key.table, key.name) for key in indexed])

    def find(self, table: TableDraft, column: ColumnDraft) -> Reference | None:
        """What a column refers to, the names first, then the larger share of its values."""
        candidates = list(self._candidates(table, column))
        if not candidates:
            return None
        bounds = self._bounds(table, column, candidates)
        ranked = sorted(
            ((_rank(key, score, bound), key, score) for (key, score), bound in bounds),
            key=lambda entry: entry[0],
            reverse=True,
        )
        best, found = None, None
        for bound, key, score in ranked:
            if best is not None and bound < best:
                break
            overlap = measure_overlap(
                self.connection, table, (column.name,), key.table, (key.name,)
            )
            rank = _rank(key, score, overlap.share)
            if overlap.share >= _wanted(score) and (best is None or rank > best):
                best, found = rank, Reference(key, score, overlap)
        return found

    def _bounds(
        self, table: TableDraft, column: ColumnDraft, candidates: Sequence[tuple[Key, int]]
    ) -> list[tuple[tuple[Key, int], float]]:
        """Candidates that may hold enough of a column's values, and the share they hold at most."""
        shares = [1.0] * len(candidates)
        places = [self.places.get(key.number) for key, _ in candidates]
        if sum(place is not None for place in places) >= CANDIDATES_MIN:
            found = self.index.shares(table, column.name)
            shares = [1.0 if place is None else float(found[place]) for place in places]
        return [
            (candidate, share)
            for candidate, share in zip(candidates, shares, strict=True)
            if share >= _wanted(candidate[1])
        ]

    def _candidates(self, table: TableDraft, column: ColumnDraft) -> Iterator[tuple[Key, int]]:
        """Keys that a column may refer to, with what the names say, in no order."""
        if column.facts.value_count == 0 or not _joins(table, column):
            return
        named = set()
        for key, score in () if _counts(column) else self._named(table, column.name):
            if key.table is not table or key.name != column.name:
                named.add(key.number)
                yield key, score
        if table.primary_key == (column.name,):
            return
        for key in self.by_kind.get(_kind_of_values(column), ()):
            if key.table is not table and key.number not in named:
                yield key, 0

    def _named(self, table: TableDraft, name: str) -> Iterator[tuple[Key, int]]:
        """Keys that a column's name speaks for. Names are the same in many tables, and what they
        say of other tables' keys is too."""
        if name not in self.named:
            scores = (
                (key, reference_score("", name, key.table.name, key.name)) for key in self.keys
            )
            self.named[name] = [(key, score) for key, score in scores if score]
        yield from ((key, score) for key, score in self.named[name] if key.table is not table)
        for key in self.own[table.name]:
            score = reference_score(table.name, name, table.name, key.name)
            if score:
                yield key, score


def _rank(key: Key, score: int, share: float) -> tuple[float, ...]:
    is_primary = key.table.primary_key == (key.name,)
    return score, share, is_primary, -key.table.source.row_count, -key.number


def _wanted(score: int) -> float:
    return CONTAINED.get(score, CONTAINED_BY_VALUES)


def _unique_columns(parent: TableDraft) -> list[str]:
    """Columns a key may refer to: the primary key, and other short ones without repetition."""
    found = list(parent.primary_key) if len(parent.primary_key) == 1 else []
    for column in parent.columns:
        facts = column.facts
        is_code = facts.mean_length <= 12 and facts.spaced_count == 0 and facts.time_count == 0
        if column.name not in found and facts.is_unique and is_code:
            named = is_id_name(column.name) or is_code_name(column.name)
            if named or facts.number_count < facts.value_count:
                found.append(column.name)
    return found


def _counts(column: ColumnDraft) -> bool:
    """Whether a column counts something: whole numbers by the name of several,
    as author.books."""
    words, facts = words_of(column.name), column.facts
    return bool(words) and is_plural(words[-1]) and facts.integer_count == facts.value_count


def _joins(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is of a kind that refers to rows."""
    facts, source = column.facts, table.source.columns[table.slot(column.name)]
    if source.type in INTEGER_TYPES or source.type == "UUID":
        return True
    if facts.number_count == facts.value_count:
        return facts.integer_count == facts.value_count
    is_time = facts.time_count == facts.value_count or source.type in ("DATE", "TIMESTAMP")
    return source.type == "VARCHAR" and not is_time and facts.mean_length <= KEY_LENGTH_MAX


def _kind_of_values(column: ColumnDraft) -> str:
    """Whether values alone can say what a column refers to: many, and not just any."""
    facts, words = column.facts, words_of(column.name)
    if facts.distinct_count < VALUES_MIN:
        return ""
    if facts.number_count < facts.value_count:  # texts are seldom equal by chance
        return "text"
    unnamed = len(words) <= 2 and words[:1] == ["column"]  # of a file without header
    return "number" if unnamed or is_id_name(column.name) else ""


def _kind_of_key(column: ColumnDraft) -> str:
    """Whether values alone can say that a column refers to this one."""
    facts = column.facts
    if facts.distinct_count < VALUES_MIN:
        return ""
    if facts.number_count < facts.value_count:
        return "text"
    return "number" if facts.distinct_count / (facts.largest + 1) <= DENSITY_MAX else ""
