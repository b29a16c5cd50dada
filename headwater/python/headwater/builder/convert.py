"""From the source's columns to canonical ones: one type per semantic type, rows in store order.

`rows.t<i>` holds table i of the schema, columns `c<j>` in schema order, and `visible_at`, the time
at which a row becomes visible, if that is not the time its temporal column has. Types: identifier
BIGINT or VARCHAR, numerical INTEGER (where the source has no wider one; queries see a BIGINT),
BIGINT or DOUBLE, timestamp TIMESTAMP (UTC), boolean BOOLEAN, categorical and text VARCHAR; an
ignored column keeps its own. The number of a row is its rowid: rows are in order of time, then
primary key (without a key: all columns). DuckDB keeps the order in which a table is created.

A value that does not fit its type becomes NULL and is counted with an example; nothing is guessed
from part of the data: a text column counts as integers only if every value is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.builder.journal import Journal, restore
from headwater.errors import HeadwaterError, SchemaError, SourceError, collected, raise_together
from headwater.facts.column_facts import MOSTLY
from headwater.facts.extremes import Numbers, find_extremes
from headwater.metadata.parts import Column, Table
from headwater.metadata.schema import Schema
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.key_values import KeyPart, alike_by_type, key_part
from headwater.sources.source import Alike, SourceColumn, SourceTable, quote
from headwater.sources.value_sql import (
    FLOAT_INTEGER_TEXT,
    INTEGER_TEXT,
    INTEGER_TYPES,
    NAIVE_TYPES,
    REAL_TYPES,
    SMALL_TYPES,
    ZONED_TEXT,
    ZONED_TYPE,
    canonical_text,
    category_text,
    counts,
    from_local,
    is_exact,
    is_fractional,
    is_number_type,
    is_span,
    plain_text,
    to_boolean,
    to_local,
    to_numerical,
    to_timestamp,
    without_nulls,
)
from headwater.store.extreme_values import Extremes

CSV_EXACT_ROWS, CSV_SAMPLE_ROWS = 32_768, 8_192  # of a table with more rows, about so many
SCATTER_FACTOR, SCATTER_PRIME = 1_000_003, 16_777_213  # times 2^32 rows: below 2^63
TRIED_ROWS = 4_096  # that must be in order, or the table is sorted without a try
DENSE_KEY_BITS = 1 << 28  # of the set in which dense integer keys are looked for twice


@dataclass(frozen=True)
class Conversion:
    """Values of a column that did not fit its type and became NULL."""

    table: str
    column: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class CanonicalTable:
    """A table of the schema in `rows.t<index>`."""

    table: Table
    index: int
    types: tuple[str, ...]  # DuckDB types by column
    days: bool  # time_resolution "day"
    day_columns: frozenset[str]  # columns of dates: what they tell is known at the day's end
    row_count: int
    csv_bytes: int
    duplicate_count: int
    null_value_count: int  # values that were NULL spellings
    untimed_count: int  # rows of a timed table whose time is NULL
    conversions: tuple[Conversion, ...]
    zero_count: int = 0  # categories in which a zero character was replaced
    alike: tuple[frozenset[Alike], ...] = ()  # by column, as its source and its type hold equal
    extremes: tuple[Extremes, ...] = ()  # numbers next to which the others look the same

    @property
    def relation(self) -> str:
        return f"rows.t{self.index}"

    @property
    def temporal(self) -> bool:
        return self.table.temporal_column is not None

    def time(self, alias: str = "") -> str:
        """SQL: when a row of a temporal table becomes visible, in microseconds. `alias`: "p."."""
        assert self.table.temporal_column is not None
        if self.days:
            return f"{alias}visible_at"
        return f"epoch_us({alias}c{self.slot(self.table.temporal_column)})"

    def slot(self, name: str) -> int:
        """Position of a column in the table."""
        return self.table.column_names().index(name)

    def key_part(self, connection: Connection, name: str) -> KeyPart:
        """A column as a part of a key that refers to rows, or is referred to."""
        slot = self.slot(name)
        return key_part(
            connection,
            self.relation,
            lambda alias: f"{alias}c{slot}",
            self.types[slot],
            self.alike[slot],
        )

    def key_text(self, name: str, alias: str) -> str:
        """SQL: the canonical text of a key part, the same whatever type the source had."""
        slot = self.slot(name)
        return canonical_text(f"{alias}.c{slot}", self.types[slot])


@dataclass(frozen=True)
class _Profile:
    """What one pass over a raw column found."""

    value_count: int  # 0 where every value is kept whatever it is
    null_value_count: int
    integral: bool
    zoned_count: int
    naive_count: int
    zero_count: int  # categories with a zero character
    span_count: int  # numbers that are written as hours, minutes and seconds


def convert_tables(
    connection: Connection,
    schema: Schema,
    sources: dict[str, SourceTable],
    *,
    journal: Journal | None = None,
    tell: Callable[[str], None] = lambda table: None,
) -> list[CanonicalTable]:
    """Make `rows.t<i>` for every table of the schema; the raw tables are dropped on the way. A
    table that the journal says is there is taken as it is."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS rows")
    converters = [
        _Converter(connection, schema, table, index, sources[table.name])
        for index, table in enumerate(schema.tables)
    ]
    done = [None if journal is None else journal.find(f"table {c.index}") for c in converters]
    for converter, facts in zip(converters, done, strict=True):
        if facts is None:
            converter.profile()
    _check_zones(schema, converters)
    tables = []
    problems: list[HeadwaterError] = []
    for converter, facts in zip(converters, done, strict=True):
        tell(converter.table.name)
        if facts is not None:
            tables.append(restore(CanonicalTable, facts))
            converter.drop_raw()
            continue
        with collected(problems):
            tables.append(converter.convert())
            if journal is not None:
                journal.record(f"table {converter.index}", tables[-1])
            converter.drop_raw()
    raise_together(problems)
    return tables


def _check_zones(schema: Schema, converters: list[_Converter]) -> None:
    if schema.timezone is not None:
        return
    zoned = [name for converter in converters for name in converter.timed(zoned=True)]
    naive = [name for converter in converters for name in converter.timed(zoned=False)]
    if zoned and naive:
        raise SchemaError(
            f"'{zoned[0]}' has times with a zone and '{naive[0]}' has times without one; set "
            '\'timezone\' to say what those mean ("UTC" or a name such as "Europe/Berlin")'
        )


class _Converter:
    """One table on its way from raw.t<source index> to rows.t<index>."""

    def __init__(
        self, connection: Connection, schema: Schema, table: Table, index: int, source: SourceTable
    ) -> None:
        self.connection, self.schema = connection, schema
        self.table, self.index, self.source = table, index, source
        places = {column.name: j for j, column in enumerate(source.columns)}
        self.raw = [places[column.name] for column in table.columns]
        self.sources = [source.columns[j] for j in self.raw]
        self.raw_relation = f"raw.t{source.index}"
        self.keyed = _key_columns(schema, table)
        self.key_times = _key_times(schema, table)
        self.timed_by = {c.known_at.column for c in table.columns} | {table.temporal_column}
        self.profiles: list[_Profile] = []  # empty of a table that is converted already
        self.types: tuple[str, ...] = ()  # of the canonical columns

    def meaning(self, column: Column) -> str:
        """The semantic type that decides the conversion; ignored columns may still be used."""
        if column.stype != "ignored":
            return column.stype
        if column.name in self.timed_by:
            return "timestamp"
        return "identifier" if column.name in self.keyed else "ignored"

    def value(self, slot: int) -> str:
        """SQL: a raw value with the NULL spellings taken out."""
        raw, source = f"c{self.raw[slot]}", self.sources[slot]
        return without_nulls(raw, source, self.schema, self.table, self.table.columns[slot])

    def profile(self) -> None:
        measures: list[str] = []
        for slot, column in enumerate(self.table.columns):
            self.refuse_clock(slot)
            raw, value, source = f"c{self.raw[slot]}", self.value(slot), self.sources[slot]
            meaning = self.meaning(column)
            integral, zoned, naive = _shape(value, meaning, source, column)
            is_kept = meaning in ("numerical", "identifier") and source.type in INTEGER_TYPES
            if value == raw and is_kept:
                value = raw = "NULL"  # nothing to find; reading the column would cost
            measures += [
                f"count({value})",
                f"count({raw})",
                integral,
                f"count(*) FILTER (WHERE {zoned})",
                f"count(*) FILTER (WHERE {naive})",
                self.zeros(slot),
                self.spans(slot),
            ]
        query = f"SELECT {', '.join(measures)} FROM {self.raw_relation}"
        row = one_row(self.connection, query)
        for position in range(0, len(row), 7):
            kept, found, integral, zoned, naive, zeros, spans = row[position : position + 7]
            self.profiles.append(
                _Profile(kept, found - kept, bool(integral), zoned, naive, zeros, spans)
            )

    def refuse_clock(self, slot: int) -> None:
        """Times that the source has as such need no word on how they are written."""
        column, kind = self.table.columns[slot], self.sources[slot].type
        said = [name for name in ("unit", "epoch", "format") if getattr(column, name) is not None]
        if said and kind in ("DATE", ZONED_TYPE, *NAIVE_TYPES):
            raise SchemaError(
                f"'{said[0]}' of column '{self.table.name}.{column.name}' is of numbers and texts, "
                f"but the source has the type {kind} there: remove '{said[0]}'"
            )

    def zeros(self, slot: int) -> str:
        """SQL: how many values lose a zero character, as categories do."""
        is_text = self.sources[slot].type == "VARCHAR"
        if not is_text or self.meaning(self.table.columns[slot]) != "categorical":
            return "0"
        return f"count(*) FILTER (WHERE contains({self.value(slot)}, chr(0)))"

    def spans(self, slot: int) -> str:
        """SQL: how many values of a number are hours, minutes and seconds."""
        is_text = self.sources[slot].type == "VARCHAR"
        if not is_text or self.meaning(self.table.columns[slot]) != "numerical":
            return "0"
        return f"count(*) FILTER (WHERE {is_span(self.value(slot))})"

    def timed(self, *, zoned: bool) -> list[str]:
        """Columns that hold times with (or without) a zone."""
        return [
            f"{self.table.name}.{column.name}"
            for column, profile in zip(self.table.columns, self.profiles, strict=False)
            if (profile.zoned_count if zoned else profile.naive_count)
        ]

    def convert(self) -> CanonicalTable:
        pairs = [self.expression(slot) for slot in range(len(self.table.columns))]
        self.types = tuple(type_name for _, type_name in pairs)
        days = self.days()
        selected = [f"{sql} AS c{slot}" for slot, (sql, _) in enumerate(pairs)]
        if self.table.on_duplicate_key != "error":
            self.copy_view()
            selected.append("rowid AS source_row")
        inner = f"SELECT {', '.join(selected)} FROM {self.raw_relation}"
        at = f"{self.day_end()} AS visible_at, " if days else ""
        self.fill(f"SELECT {at}* FROM ({inner})", days)
        conversions = self.conversions(pairs)
        csv_bytes = self.csv_bytes(pairs)
        duplicate_count = self.settle_duplicates()
        return CanonicalTable(
            table=self.table,
            index=self.index,
            types=self.types,
            days=days,
            day_columns=frozenset(
                column.name for slot, column in enumerate(self.table.columns) if self.is_date(slot)
            ),
            row_count=count_rows(self.connection, f"SELECT count(*) FROM rows.t{self.index}"),
            csv_bytes=csv_bytes,
            duplicate_count=duplicate_count,
            null_value_count=sum(profile.null_value_count for profile in self.profiles),
            untimed_count=self.untimed_count(),
            conversions=tuple(conversions),
            zero_count=sum(profile.zero_count for profile in self.profiles),
            alike=tuple(map(alike_by_type, self.sources)),
            extremes=tuple(self.extremes(pairs)),
        )

    def fill(self, select: str, days: bool) -> None:
        """Make rows.t<i> in its order. Most tables come in order already: then they are not sorted,
        which was a fifth of the build of such a table. That is tried where the first rows are in
        order, and proved on the table that was made."""
        name = f"rows.t{self.index}"
        first = f"(SELECT *, row_number() OVER () AS rowid FROM ({select} LIMIT {TRIED_ROWS}))"
        if self.table.primary_key and self.in_order(first, days):
            self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {select}")
            if self.in_order(name, days):
                return
        order = [f"{column} NULLS {nulls}" for column, nulls in self.order(days)]
        self.connection.execute(
            f"CREATE OR REPLACE TABLE {name} AS {select} ORDER BY {', '.join(order)}"
        )

    def in_order(self, relation: str, days: bool) -> bool:
        """Whether each row stands behind the one with the rowid before its own, by values without
        NULL of which no two are equal: rows in such an order have no other."""
        columns = [column for column, _ in self.order(days)]
        follows = "false"
        for column in reversed(columns):
            before = f"lag({column}) OVER ()"
            follows = f"{before} < {column} OR ({before} = {column} AND ({follows}))"
        query = f"SELECT rowid AS r, lag(rowid) OVER () AS b, {follows} AS f FROM {relation}"
        counts = f"SELECT count(*), count(*) FILTER (WHERE r = b + 1 AND f) FROM ({query})"
        count, following = one_row(self.connection, counts)
        return bool(count <= 1 or following == count - 1)

    def copy_view(self) -> None:
        """Make a table of a view: which of two rows was first is its rowid."""
        if self.source.is_view:
            copy = f"{self.raw_relation}_copy"
            self.connection.execute(
                f"CREATE OR REPLACE TABLE {copy} AS SELECT * FROM {self.raw_relation}"
            )
            self.raw_relation = copy

    def drop_raw(self) -> None:
        name = f"raw.t{self.source.index}"
        self.connection.execute(
            f"DROP {'VIEW' if self.source.is_view else 'TABLE'} IF EXISTS {name}"
        )
        self.connection.execute(f"DROP TABLE IF EXISTS {name}_copy")

    def expression(self, slot: int) -> tuple[str, str]:
        """SQL and type of the canonical value of a column."""
        column, source, profile = self.table.columns[slot], self.sources[slot], self.profiles[slot]
        value, meaning = f"({self.value(slot)})", self.meaning(self.table.columns[slot])
        if meaning == "ignored":
            return value, source.type
        if meaning == "numerical" and source.type in SMALL_TYPES and column.name not in self.keyed:
            return f"CAST({value} AS INTEGER)", "INTEGER"
        if meaning == "numerical":
            decimal = self.table.csv.decimal if self.table.csv is not None else "."
            spans = 0 < profile.span_count >= MOSTLY * profile.value_count
            return to_numerical(
                value, source.type, integral=profile.integral, decimal=decimal, spans=spans
            )
        if meaning == "boolean":
            return to_boolean(value, source.type)
        if meaning == "timestamp":
            return to_timestamp(value, source.type, column, zone=self.schema.timezone)
        if meaning == "identifier" and (time := self.key_times.get(column.name)) is not None:
            return to_timestamp(value, source.type, time, zone=self.schema.timezone)
        if meaning == "identifier" and source.type in INTEGER_TYPES:
            return f"CAST({value} AS BIGINT)", "BIGINT"
        if meaning == "identifier" and profile.integral:
            return f"TRY_CAST({value} AS BIGINT)", "BIGINT"
        if meaning == "categorical":
            return category_text(value, source.type), "VARCHAR"
        return canonical_text(value, source.type), "VARCHAR"

    def days(self) -> bool:
        name = self.table.temporal_column
        if name is None or self.table.time_resolution is not None:
            return self.table.time_resolution == "day"
        return self.is_date(self.table.column_names().index(name))

    def is_date(self, slot: int) -> bool:
        """Whether a column holds days: by its type, or as text none of which has a time of day."""
        source, profile = self.sources[slot], self.profiles[slot]
        if "DATE" in (source.type, source.declared):
            return True
        column, clocks = self.table.columns[slot], profile.zoned_count + profile.naive_count
        form = column.format or ""
        is_written = source.type == "VARCHAR" or bool(form and is_number_type(source.type))
        if counts(column):
            is_written = column.unit == "day"
        if not is_written or self.meaning(column) != "timestamp":
            return False
        return profile.value_count > 0 and clocks == 0 and not ("%H" in form or "%I" in form)

    def day_end(self) -> str:
        """SQL: the end of the day on which a row's time falls, in microseconds."""
        zone = self.schema.timezone
        next_day = f"date_trunc('day', {to_local(self.stamp(), zone)}) + INTERVAL 1 DAY"
        return f"epoch_us({from_local(f'CAST({next_day} AS TIMESTAMP)', zone)})"

    def stamp(self) -> str:
        """The temporal column."""
        assert self.table.temporal_column is not None
        return f"c{self.table.column_names().index(self.table.temporal_column)}"

    def untimed_count(self) -> int:
        if self.table.temporal_column is None:
            return 0
        query = f"SELECT count(*) FROM rows.t{self.index} WHERE {self.stamp()} IS NULL"
        return count_rows(self.connection, query)

    def order(self, days: bool) -> list[tuple[str, str]]:
        """Columns of rows.t<i> that its rows are ordered by, and where NULLs come."""
        names = self.table.column_names()
        parts = self.table.primary_key or tuple(names)
        order = [(f"c{names.index(part)}", "LAST") for part in parts]
        if self.table.temporal_column is not None:
            nulls = "FIRST" if self.table.null_time == "visible" else "LAST"
            order.insert(0, ("visible_at" if days else self.stamp(), nulls))
        return order

    def conversions(self, pairs: list[tuple[str, str]]) -> list[Conversion]:
        """Count, per column, the values that became NULL."""
        counts = ", ".join(f"count(c{slot})" for slot in range(len(pairs)))
        row = one_row(self.connection, f"SELECT {counts} FROM rows.t{self.index}")
        found = []
        for slot, (sql, _) in enumerate(pairs):
            lost = self.profiles[slot].value_count - row[slot]
            if lost > 0:
                column, source = self.table.columns[slot], self.sources[slot]
                value = f"({self.value(slot)})"
                text = plain_text(value, source)
                example = one_row(
                    self.connection,
                    f"SELECT min({text}) FROM {self.raw_relation} "
                    f"WHERE {value} IS NOT NULL AND {sql} IS NULL",
                )
                shown = str(example[0])[:80]
                reason = _reason(self.meaning(column), source.type)
                found.append(Conversion(self.table.name, column.name, reason, lost, shown))
        return found

    def extremes(self, pairs: list[tuple[str, str]]) -> list[Extremes]:
        slots = [n for n, column in enumerate(self.table.columns) if column.stype == "numerical"]
        columns = [
            Numbers(
                self.table.columns[slot].name,
                pairs[slot][0],
                plain_text(f"({self.value(slot)})", self.sources[slot]),
                is_whole=pairs[slot][1] in INTEGER_TYPES,
            )
            for slot in slots
        ]
        quick = (f"rows.t{self.index}", [f"c{slot}" for slot in slots])
        return find_extremes(self.connection, self.raw_relation, columns, quick)

    def csv_bytes(self, pairs: list[tuple[str, str]]) -> int:
        """Size of the table as CSV: its values as text, and what separates them. Printing every
        number took a quarter of a build, so of a large table some rows stand for all, scattered so
        that no period of the data meets theirs; texts, whose lengths vary, are all counted."""
        row_count, _ = self.text_bytes([], "true")
        counted = row_count if row_count <= CSV_EXACT_ROWS else CSV_SAMPLE_ROWS
        share = SCATTER_PRIME * counted // max(row_count, 1)
        own = [] if self.table.values_of else self.table.source_columns()  # the rest is derived
        kinds = {
            slot: kind
            for slot, (_, kind) in enumerate(pairs)
            if self.table.columns[slot].name in own
        }
        exact = [f"c{slot}" for slot, kind in kinds.items() if kind == "VARCHAR"]
        sampled = [self.csv_text(slot, kind) for slot, kind in kinds.items() if kind != "VARCHAR"]
        _, text_bytes = self.text_bytes(exact, "true")
        sample_count, sample_bytes = self.text_bytes(
            sampled, f"rowid * {SCATTER_FACTOR} % {SCATTER_PRIME} < {share}"
        )
        scaled = sample_bytes * row_count // max(sample_count, 1)
        return row_count * len(own) + text_bytes + scaled

    def text_bytes(self, texts: list[str], condition: str) -> tuple[int, int]:
        """Rows, and bytes of the texts, where the condition holds. They are added here: DuckDB
        takes a sum of no more than a thousand parts."""
        sizes = [f"sum(strlen({text}))" for text in texts]
        query = f"SELECT {', '.join(['count(*)', *sizes])} FROM rows.t{self.index}"
        row = one_row(self.connection, f"{query} WHERE {condition}")
        return int(row[0]), sum(int(size or 0) for size in row[1:])

    def csv_text(self, slot: int, type_name: str) -> str:
        """SQL: a canonical value as CSV would have it, with a time of day if the source has one."""
        profile = self.profiles[slot]
        if type_name == "TIMESTAMP" and (profile.zoned_count or profile.naive_count):
            return f"CAST(c{slot} AS VARCHAR)"
        return canonical_text(f"c{slot}", type_name)

    def settle_duplicates(self) -> int:
        """Check the primary key; drop duplicates if the table says which row stays."""
        if not self.table.primary_key:
            return 0
        names = self.table.column_names()
        parts = ", ".join(f"c{names.index(part)}" for part in self.table.primary_key)
        self.refuse_null_keys(parts.split(", "))
        extra = 0 if self.is_dense_key(parts) else self.count_duplicates(parts)
        if extra and self.table.on_duplicate_key == "error":
            example = one_row(
                self.connection,
                f"SELECT {parts}, count(*) FROM rows.t{self.index} GROUP BY {parts} "
                f"HAVING count(*) > 1 ORDER BY {parts} LIMIT 1",
            )
            key = ", ".join(str(part) for part in example[:-1])
            raise SourceError(
                f"table '{self.table.name}' has {extra} rows with a primary key that another row "
                f"has too, for example ({key}) in {example[-1]} rows; set 'on_duplicate_key' to "
                '"first" or "last" to keep one of them'
            )
        if self.table.on_duplicate_key != "error":
            self.drop_duplicates(parts)
        return extra

    def count_duplicates(self, parts: str) -> int:
        return count_rows(
            self.connection,
            f"SELECT sum(n - 1) FROM (SELECT count(*) AS n FROM rows.t{self.index} "
            f"GROUP BY {parts} HAVING count(*) > 1)",
        )

    def is_dense_key(self, part: str) -> bool:
        """Whether the key is one integer column that is unique, found by a set of bits: grouping
        took an eighth of the build of a numeric table. False: not, or it cannot be said so."""
        names = self.table.column_names()
        if "," in part or self.types[names.index(self.table.primary_key[0])] != "BIGINT":
            return False
        query = f"SELECT min({part}), max({part}), count(*) FROM rows.t{self.index}"
        low, high, count = one_row(self.connection, query)
        if not count or high - low >= min(DENSE_KEY_BITS, 64 * count):
            return False
        query = f"SELECT bit_count(bitstring_agg({part}, {low}, {high})) FROM rows.t{self.index}"
        return count_rows(self.connection, query) == int(count)

    def refuse_null_keys(self, parts: list[str]) -> None:
        absent = " OR ".join(f"{part} IS NULL" for part in parts)
        query = f"SELECT count(*) FROM rows.t{self.index} WHERE {absent}"
        count = count_rows(self.connection, query)
        if count:
            raise SourceError(
                f"table '{self.table.name}' has {count} rows whose primary key is NULL"
            )

    def drop_duplicates(self, parts: str) -> None:
        direction = "ASC" if self.table.on_duplicate_key == "first" else "DESC"
        self.connection.execute(
            f"CREATE OR REPLACE TABLE rows.kept AS SELECT * EXCLUDE (source_row, r) FROM "
            f"(SELECT *, rowid AS r FROM rows.t{self.index}) QUALIFY row_number() OVER "
            f"(PARTITION BY {parts} ORDER BY source_row {direction}) = 1 ORDER BY r"
        )
        self.connection.execute(f"DROP TABLE rows.t{self.index}")
        self.connection.execute(f"ALTER TABLE rows.kept RENAME TO t{self.index}")


def _key_columns(schema: Schema, table: Table) -> set[str]:
    """Columns that are part of a key of the table or are referred to by one."""
    names = set(table.primary_key)
    for other in schema.tables:
        for key in other.every_key():
            names |= set(key.references) if key.table == table.name else set()
            names |= set(key.columns) if other is table else set()
    return names


def _key_times(schema: Schema, table: Table) -> dict[str, Column]:
    """Columns of foreign keys that name rows by a time, as of a key that counts from 1970, with the
    column of that: they are read as it is."""
    found = {}
    parents = {other.name: other for other in schema.tables}
    for key in table.every_key():
        for name, reference in zip(key.columns, key.references, strict=True):
            referred = parents[key.table].column(reference)
            if referred.stype == "timestamp" and table.column(name).stype == "identifier":
                found[name] = referred
    return found


def _shape(value: str, meaning: str, source: SourceColumn, column: Column) -> tuple[str, str, str]:
    """SQL: whether all values are integers; conditions for times with and without a zone."""
    integral, zoned, naive = "false", "false", "false"
    if meaning in ("identifier", "numerical"):
        if source.type == "VARCHAR":
            integral = (
                f"bool_and(regexp_full_match({value}, {INTEGER_TEXT})) OR "
                f"bool_and(regexp_full_match({value}, {FLOAT_INTEGER_TEXT}))"
            )
        elif meaning == "identifier" and is_fractional(source.type):
            exact = f"{value} = trunc({value}) AND {is_exact(value)}"
            integral = f"bool_and({exact})"
    if meaning == "timestamp":
        if source.type == "VARCHAR":
            zoned = f"regexp_full_match({value}, {ZONED_TEXT})"
            naive = f"contains({value}, ':') AND NOT {zoned}"
        else:
            zoned = f"{value} IS NOT NULL" if source.type == ZONED_TYPE else "false"
            naive = f"{value} IS NOT NULL" if source.type in NAIVE_TYPES else "false"
        if column.unit == "day":
            number = to_numerical(value, source.type)[0]
            naive = f"({naive}) OR {number} <> trunc({number})"
    return integral, zoned, naive


def _reason(meaning: str, type_name: str) -> str:
    if meaning == "numerical":
        return "NaN or infinite" if type_name in REAL_TYPES else "not a finite number"
    if meaning == "timestamp":
        return "not a time of the years 1 to 9999"
    return "not a boolean" if meaning == "boolean" else "NaN or infinite"


def query_view(table: CanonicalTable) -> str:
    """SQL: the table as task queries see it, with the source's names."""
    columns = [
        f"{f'CAST(c{slot} AS BIGINT)' if kind == 'INTEGER' else f'c{slot}'} AS {quote(column.name)}"
        for slot, (column, kind) in enumerate(zip(table.table.columns, table.types, strict=True))
    ]
    return f"SELECT {', '.join(columns)} FROM {table.relation}"
