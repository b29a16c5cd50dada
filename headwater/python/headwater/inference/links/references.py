"""Which key a column refers to, if the source does not say: by its name, else by its values.

Candidates of a column are the keys that its name speaks for; if there are none, the keys that
values alone may speak for. A table that the column names comes first if it has NAMED_SHARE of the
values, then the better name, then the larger overlap. It is bounded for all candidates at once, and
measured from the best on, until none of the rest can be better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.names import (
    is_code_name,
    is_id_name,
    is_own_name,
    is_plural,
    names_table,
    reference_score,
    words_of,
)
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import Overlap, ValueIndex, measure_overlap
from headwater.sources.database import Connection
from headwater.sources.key_values import NEARLY, alike_by_type, is_text_type
from headwater.sources.source import Alike
from headwater.sources.value_sql import INTEGER_TYPES

KEY_LENGTH_MAX = 60  # of a text, on average
# Distinct values found, by what the names say (3: surely, 2: likely, 1: one word is equal).
CONTAINED = {3: 0.5, 2: 0.9, 1: 0.9}
NAMED_SHARE = 0.9  # of the values, for a table to come first since a column names it
LIKELY_MIN = 5  # distinct values, for a name that only makes a table likely
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
class Candidate:
    """A key that a column may refer to, and what the names say of it."""

    key: Key
    score: int = 0  # of the names; 0: by values
    named: int = 0  # how the column names the key's table

    def rank(self, share: float, child: str) -> tuple[float, ...]:
        """Candidates in order, the best last, by the share of the values that the key has. A
        column of the table hr_post means hr_person before crm_person."""
        key, is_primary = self.key, self.key.table.primary_key == (self.key.name,)
        named = self.named if share >= NAMED_SHARE else 0
        is_near = words_of(key.table.name)[:1] == words_of(child)[:1]
        size = key.table.source.row_count
        return named, self.score, share, is_primary, is_near, -size, -key.number

    @property
    def wanted(self) -> float:
        """The share of the values that the key must have."""
        return CONTAINED.get(self.score, CONTAINED_BY_VALUES)


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
        self.named: dict[str, list[Candidate]] = {}  # by a column's name
        self.by_kind = {
            kind: [key for key in self.keys if key.kind == kind] for kind in ("text", "number")
        }
        uses = Counter(
            candidate.key.number
            for table in tables
            for column in table.own_columns()
            if column.foreign_key is None
            for candidate in self._candidates(table, column)
        )
        indexed = [key for key in self.keys if uses[key.number] >= CANDIDATES_MIN]
        self.places = {key.number: place for place, key in enumerate(indexed)}
        pairs = [(key.table, key.name) for key in indexed]
        self.index = ValueIndex(connection, pairs, _spellings(tables))

    def find(self, table: TableDraft, column: ColumnDraft) -> Reference | None:
        """What a column refers to: the table that it names, then what the names say, then the
        larger share of its values."""
        candidates = self._candidates(table, column)
        if not candidates:
            return None
        # The key of visits refers to visit_details only if nearly all of its values are there.
        least = NAMED_SHARE if _is_own(table, column) else 0.0
        bounds = [
            (candidate, share)
            for candidate, share in self._bounds(table, column, candidates)
            if share >= max(candidate.wanted, least)
        ]
        ranked = sorted(
            ((candidate.rank(bound, table.name), candidate) for candidate, bound in bounds),
            key=lambda entry: entry[0],
            reverse=True,
        )
        best, found = None, None
        for bound, candidate in ranked:
            if best is not None and bound < best:
                break
            key = candidate.key
            overlap = measure_overlap(
                self.connection, table, (column.name,), key.table, (key.name,)
            )
            rank = candidate.rank(overlap.share, table.name)
            is_enough = overlap.share >= max(candidate.wanted, least)
            if is_enough and (best is None or rank > best):
                best, found = rank, Reference(key, candidate.score, overlap)
        return found

    def _bounds(
        self, table: TableDraft, column: ColumnDraft, candidates: Sequence[Candidate]
    ) -> list[tuple[Candidate, float]]:
        """The share of a column's values that each candidate holds at most."""
        shares = [1.0] * len(candidates)
        places = [self.places.get(candidate.key.number) for candidate in candidates]
        if sum(place is not None for place in places) >= CANDIDATES_MIN:
            found = self.index.shares(table, column.name)
            shares = [1.0 if place is None else float(found[place]) for place in places]
        return list(zip(candidates, shares, strict=True))

    def candidates(self, table: TableDraft, column: ColumnDraft, share: float) -> list[Candidate]:
        """Keys that a column may refer to and that may hold such a share of its values."""
        bounds = self._bounds(table, column, self._candidates(table, column))
        return [candidate for candidate, bound in bounds if bound >= share]

    def _candidates(self, table: TableDraft, column: ColumnDraft) -> list[Candidate]:
        """Keys that a column may refer to, in no order: those that its name speaks for, and if it
        names no other table, those that values alone may speak for."""
        if column.facts.value_count == 0 or not joins(table, column):
            return []
        is_own = _is_own(table, column)
        named = [
            candidate
            for candidate in (() if _counts(column) else self._named(table, column.name))
            if (candidate.key.table is not table or candidate.key.name != column.name)
            and (candidate.key.table is table or _may_be_named(candidate, column, is_own=is_own))
        ]
        is_named = any(candidate.key.table is not table for candidate in named)
        if is_named or table.primary_key == (column.name,):
            return named
        keys = self.by_kind.get(_kind_of_values(column), ())
        return named + [Candidate(key) for key in keys if key.table is not table]

    def _named(self, table: TableDraft, name: str) -> Iterator[Candidate]:
        """Keys that a column's name speaks for. Names are the same in many tables, and what they
        say of other tables' keys is too."""
        if name not in self.named:
            scores = (
                (key, reference_score("", name, key.table.name, key.name)) for key in self.keys
            )
            self.named[name] = [
                Candidate(key, score, names_table(name, key.table.name))
                for key, score in scores
                if score
            ]
        yield from (found for found in self.named[name] if found.key.table is not table)
        for key in self.own[table.name]:
            score = reference_score(table.name, name, table.name, key.name)
            if score:
                yield Candidate(key, score, names_table(name, table.name))


def _spellings(tables: Sequence[TableDraft]) -> frozenset[Alike]:
    """The spellings that some keys may hold equal, and those of near misses."""
    found = {Alike.BLANKS, *NEARLY}
    for table in tables:
        found.update(*(alike_by_type(column) for column in table.source.columns))
        if any(column.facts.uuid_count for column in table.columns):
            found.add(Alike.BYTES)
    return frozenset(found)


def _is_own(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is a key of its table, and named as that."""
    return column.facts.is_unique and is_own_name(table.name, column.name)


def _may_be_named(candidate: Candidate, column: ColumnDraft, *, is_own: bool) -> bool:
    """Whether a name that is not sure is enough, with the facts of the values.

    is_own: the column is a key of its table, and named as that: home_visits.visit_id refers to a
    table of visits, and to office_visits.visit_id only if its values are not just any."""
    key = candidate.key.table.column(candidate.key.name).facts
    is_dense = key.number_count == key.value_count and density(key) > DENSITY_MAX
    if candidate.score == 3:
        return bool(candidate.named) or not (is_own and is_dense)
    if is_own:
        return False
    if candidate.score == 1:
        return not is_dense
    return bool(candidate.named) or column.facts.distinct_count >= LIKELY_MIN


def _unique_columns(parent: TableDraft) -> list[str]:
    """Columns a key may refer to: the primary key, other short ones without repetition, and one
    that is called as the table."""
    found = list(parent.primary_key) if len(parent.primary_key) == 1 else []
    for column in parent.own_columns():
        facts = column.facts
        if column.name in found or not facts.is_unique or facts.time_count:
            continue
        is_code = facts.mean_length <= 12 and facts.spaced_count == 0
        is_text = facts.number_count < facts.value_count
        is_named = is_id_name(column.name) or is_code_name(column.name)
        is_own = facts.mean_length <= KEY_LENGTH_MAX and is_own_name(parent.name, column.name)
        if (is_code and (is_named or is_text)) or (is_own and is_text):
            found.append(column.name)
    return found


def _counts(column: ColumnDraft) -> bool:
    """Whether a column counts something: whole numbers by the name of several,
    as author.books."""
    words, facts = words_of(column.name), column.facts
    return bool(words) and is_plural(words[-1]) and facts.integer_count == facts.value_count


def joins(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is of a kind that refers to rows."""
    facts, source = column.facts, table.source.columns[table.slot(column.name)]
    if source.type in INTEGER_TYPES or source.type == "UUID":
        return True
    if facts.number_count == facts.value_count:
        return facts.integer_count == facts.value_count
    is_time = facts.time_count == facts.value_count or source.type in ("DATE", "TIMESTAMP")
    return is_text_type(source.type) and not is_time and facts.mean_length <= KEY_LENGTH_MAX


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
    return "number" if density(facts) <= DENSITY_MAX else ""


def density(facts: ColumnFacts) -> float:
    """The share of the whole numbers from 0 on that a key has."""
    return facts.distinct_count / (max(facts.largest, 0) + 1)
