"""Primary and foreign keys: as the source declares them, else inferred.

A primary key is a column (or the first columns) that no two rows share, and whose name or place
says so. A foreign key is a column whose name says what it refers to and whose values are there, or
whose values alone leave little doubt. The overlap is measured in distinct values, exactly, or for
more than a million of them at a sample by their hash; either way the reason says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..schema import ColumnRef, ForeignKey
from ..value_sql import INTEGER_TYPES, canonical_text
from .draft import ColumnDraft, TableDraft
from .facts import raw_value
from .names import is_code_name, is_id_name, own_key_score, reference_score, words_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

KEY_LENGTH_MAX = 60  # of a text, on average
PREFIX_MAX = 4  # columns of a composite key
EXTRA_SHARE = 5_000  # a key may repeat in one of so many rows
SAMPLE_VALUES = 1_000_000
# Distinct values found, by what the names say (3: surely, 2: likely).
CONTAINED = {3: 0.5, 2: 0.9}
CONTAINED_BY_VALUES = 0.95
VALUES_MIN = 50  # distinct, for a key that only values speak for
DENSITY_MAX = 0.8  # of the parent's integers within their range; denser ones contain anything


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


def draft_primary_key(connection: DuckDBPyConnection, table: TableDraft) -> None:
    """The declared primary key, else one column, else the first few."""
    if table.source.primary_key:
        table.primary_key, table.key_reason = table.source.primary_key, "declared"
        return
    if table.source.row_count == 0:
        return
    best, best_score = None, 0
    for position, column in enumerate(table.columns):
        score = own_key_score(table.name, column.name, position)
        if score > best_score and _may_be_key(table, column) and column.facts.is_unique:
            if score == 1 and (position > 0 or table.source.row_count < 2):
                continue
            best, best_score = column, score
    if best is not None:
        table.primary_key = (best.name,)
        table.key_reason = f"inferred: all {table.source.row_count:,} values differ"
        if best_score < 3:
            table.checks.append(f"primary key {best.name} is inferred, as its values differ")
        return
    _draft_composite_key(connection, table)


def _may_be_key(table: TableDraft, column: ColumnDraft) -> bool:
    facts, source = column.facts, table.source.columns[table.slot(column.name)]
    whole = facts.integer_count == facts.value_count or facts.number_count < facts.value_count
    is_kind = source.type in (*INTEGER_TYPES, "VARCHAR", "UUID", "UBIGINT", "HUGEINT") or (
        source.type.startswith("DECIMAL") and whole
    )
    is_text = source.type == "VARCHAR"
    if is_text and facts.mostly(facts.number_count) and not whole:
        return False
    return is_kind and facts.is_full and facts.mean_length <= KEY_LENGTH_MAX


def _draft_composite_key(connection: DuckDBPyConnection, table: TableDraft) -> None:
    """The shortest run of first columns that no two rows share, or hardly any two."""
    limit = max(1, table.source.row_count // EXTRA_SHARE) if table.source.row_count >= 100 else 0
    names: list[str] = []
    for column in table.columns[:PREFIX_MAX]:
        facts = column.facts
        is_short = facts.mean_length <= KEY_LENGTH_MAX
        if not facts.is_full or not is_short or facts.integer_count < facts.number_count:
            return
        names.append(column.name)
        product = 1
        for name in names:
            product *= max(table.column(name).facts.distinct_count, 1)
        if len(names) < 2 or product + limit < table.source.row_count:
            continue
        parts = ", ".join(key_text(table, name) for name in names)
        row = connection.execute(
            f"SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT {parts} "
            f"FROM raw.t{table.source.index})) FROM raw.t{table.source.index}"
        ).fetchone()
        extra = 0 if row is None else int(row[0])
        if extra <= limit:
            _take_composite(table, tuple(names), extra)
            return


def _take_composite(table: TableDraft, names: tuple[str, ...], extra: int) -> None:
    table.primary_key = names
    table.key_reason = "inferred: no two rows share these first columns"
    check = f"primary key ({', '.join(names)}) is inferred, as no two rows share it"
    if extra:
        table.on_duplicate_key = "first"
        table.key_reason = f"inferred: {extra:,} rows repeat these first columns"
        check = (
            f"primary key ({', '.join(names)}) is inferred, though {extra:,} rows repeat the key "
            "of another: of these the first is kept (on_duplicate_key)"
        )
    table.checks.append(check)


def draft_foreign_keys(connection: DuckDBPyConnection, tables: Sequence[TableDraft]) -> None:
    """Declared keys with their overlap, then what else looks like one."""
    for table in tables:
        _declared_keys(connection, tables, table)
    for table in tables:
        for column in table.columns:
            if column.foreign_key is None and not _in_composite(table, column.name):
                _infer_key(connection, tables, table, column)
        for parent in tables:
            _infer_composite(connection, table, parent)


def _declared_keys(
    connection: DuckDBPyConnection, tables: Sequence[TableDraft], table: TableDraft
) -> None:
    by_name = {other.name: other for other in tables}
    for columns, parent_name, references in reversed(table.source.foreign_keys):
        if len(columns) == 1:
            table.column(columns[0]).foreign_key = ColumnRef(parent_name, references[0])
    for columns, parent_name, references in table.source.foreign_keys:
        reference = ColumnRef(parent_name, references[0])
        if len(columns) > 1 or table.column(columns[0]).foreign_key != reference:
            table.foreign_keys.append(ForeignKey(columns, parent_name, references))
        overlap = measure_overlap(connection, table, columns, by_name[parent_name], references)
        text = f"declared; {overlap.text(str(reference))}" if overlap.count else "declared"
        for name in columns:
            table.column(name).reason = text
        if overlap.count and overlap.share < 1:
            missing = overlap.count - overlap.found
            table.column(columns[0]).checks.append(
                f"{missing:,} of {overlap.count:,} values name no row of {parent_name}"
            )


def _infer_key(
    connection: DuckDBPyConnection,
    tables: Sequence[TableDraft],
    table: TableDraft,
    column: ColumnDraft,
) -> None:
    """The key that a column refers to, if its name or its values say so."""
    facts = column.facts
    if facts.value_count == 0 or not _joins(table, column):
        return
    best: tuple[float, ...] = ()
    chosen: tuple[TableDraft, str, Overlap, int] | None = None
    for parent in tables:
        for key in _unique_columns(parent):
            if parent is table and key == column.name:
                continue
            score = reference_score(table.name, column.name, parent.name, key)
            if score == 0 and not _values_may_speak(table, column, parent, key):
                continue
            if score == 0 and (parent is table or table.primary_key == (column.name,)):
                continue
            overlap = measure_overlap(connection, table, (column.name,), parent, (key,))
            wanted = CONTAINED.get(score, CONTAINED_BY_VALUES)
            rank = (score, overlap.share, parent.primary_key == (key,), -parent.source.row_count)
            if overlap.share >= wanted and rank > best:
                best, chosen = rank, (parent, key, overlap, score)
    if chosen is None:
        return
    parent, key, overlap, score = chosen
    reference = ColumnRef(parent.name, key)
    column.foreign_key = reference
    column.reason = f"by {'name' if score else 'values'}: {overlap.text(str(reference))}"
    column.checks.append(f"foreign key to {reference} is inferred {column.reason}")


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


def _joins(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column is of a kind that refers to rows."""
    facts, source = column.facts, table.source.columns[table.slot(column.name)]
    if source.type in INTEGER_TYPES or source.type == "UUID":
        return True
    if facts.number_count == facts.value_count:
        return facts.integer_count == facts.value_count
    is_time = facts.time_count == facts.value_count or source.type in ("DATE", "TIMESTAMP")
    return source.type == "VARCHAR" and not is_time and facts.mean_length <= KEY_LENGTH_MAX


def _values_may_speak(table: TableDraft, column: ColumnDraft, parent: TableDraft, key: str) -> bool:
    """Whether values alone can say that a column refers to a key: many, and not just any."""
    facts, other = column.facts, parent.column(key).facts
    words = words_of(column.name)
    if min(facts.distinct_count, other.distinct_count) < VALUES_MIN:
        return False
    if facts.number_count < facts.value_count:  # texts are seldom equal by chance
        return other.number_count < other.value_count
    if other.number_count < other.value_count:
        return False
    unnamed = len(words) <= 2 and words[:1] == ["column"]  # of a file without header
    density = other.distinct_count / (other.largest + 1)
    return density <= DENSITY_MAX and (unnamed or is_id_name(column.name))


def _in_composite(table: TableDraft, name: str) -> bool:
    return any(name in key.columns for key in table.foreign_keys)


def _infer_composite(connection: DuckDBPyConnection, table: TableDraft, parent: TableDraft) -> None:
    """A key over the columns that have the names of the parent's primary key."""
    if parent is table or len(parent.primary_key) < 2:
        return
    folded = {column.name.casefold(): column.name for column in table.columns}
    names = [folded.get(part.casefold()) for part in parent.primary_key]
    columns = tuple(name for name in names if name is not None)
    if len(columns) < len(names) or any(key.table == parent.name for key in table.every_key()):
        return
    overlap = measure_overlap(connection, table, columns, parent, parent.primary_key)
    if overlap.share < CONTAINED[3]:
        return
    if len(table.primary_key) > 1 and set(table.primary_key) < set(columns):
        # Fewer columns happen to be unique, but this is the key that the two tables share.
        table.checks = [check for check in table.checks if not check.startswith("primary key")]
        _take_composite(table, columns, 0)
    table.foreign_keys.append(ForeignKey(columns, parent.name, parent.primary_key))
    text = overlap.text(f"{parent.name} ({', '.join(parent.primary_key)})")
    for name in columns:
        table.column(name).reason = f"by name: {text}"
    table.checks.append(f"foreign key ({', '.join(columns)}) is inferred by name: {text}")


def key_text(table: TableDraft, name: str) -> str:
    """SQL: a value as keys compare, NULL spellings taken out."""
    slot, facts = table.slot(name), table.column(name).facts
    raw = raw_value(slot, tuple(facts.nulls))
    return canonical_text(f"({raw})", table.source.columns[slot].type)


def measure_overlap(
    connection: DuckDBPyConnection,
    table: TableDraft,
    columns: Sequence[str],
    parent: TableDraft,
    references: Sequence[str],
) -> Overlap:
    """Distinct values of a key's columns, and how many of them the parent has."""
    values = [key_text(table, name) for name in columns]
    selected = ", ".join(f"{value} AS k{j}" for j, value in enumerate(values))
    present = " AND ".join(f"k{j} IS NOT NULL" for j in range(len(values)))
    keys = ", ".join(f"{key_text(parent, name)} AS k{j}" for j, name in enumerate(references))
    names = ", ".join(f"k{j}" for j in range(len(values)))
    step = max(table.column(name).facts.distinct_count for name in columns) // SAMPLE_VALUES + 1
    sampled = f" AND hash({names}) % {step} = 0" if step > 1 else ""
    row = connection.execute(
        f"SELECT count(*), count(*) FILTER (WHERE ({names}) IN "
        f"(SELECT ({names}) FROM (SELECT {keys} FROM raw.t{parent.source.index}) "
        f"WHERE {present})) FROM (SELECT DISTINCT {names} FROM "
        f"(SELECT {selected} FROM raw.t{table.source.index}) WHERE {present}{sampled})"
    ).fetchone()
    assert row is not None
    return Overlap(row[1], row[0], step > 1)
