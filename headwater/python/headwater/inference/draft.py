"""A draft, mutable while the rules run, then a Schema and a table for people.

The text for people has first the checks (metadata/review.py), then the tables, then the tasks. A
person should be through with it in a minute or a few. So it states a thing of which there is much
once: checks that differ by names and numbers only; columns of a wide table that are alike; and many
tables as one line each. `full` is without this, and metadata.json has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.column_values import raw_value
from headwater.metadata.parts import (
    Column,
    ColumnRef,
    CsvFormat,
    ForeignKey,
    Known,
    Table,
    Task,
    every_key,
)
from headwater.metadata.review import (
    NAMES_MAX,
    Check,
    Cost,
    Named,
    checks_text,
    every_name,
    kind_of_text,
    note_text,
    open_checks,
)
from headwater.metadata.schema import Schema
from headwater.notebook import listed
from headwater.sources.key_values import KeyPart
from headwater.sources.source import Alike, SourceTable
from headwater.sources.value_sql import (
    canonical_text,
    category_text,
    to_boolean,
    to_numerical,
    to_timestamp,
)

AT_CREATION = Known()
TABLES_MAX = 40  # shown with their columns
COLUMNS_MAX = 60  # of a table, one by one
PARENTS_MAX = 4  # of a table that is shown as one line
COLUMNS_ALIKE = 3  # named of those that are alike


@dataclass
class ColumnDraft:
    """One column; `reason` says why it has its type."""

    name: str
    facts: ColumnFacts
    stype: str = "ignored"
    reason: str = ""
    foreign_key: ColumnRef | None = None
    known_at: Known = AT_CREATION
    null_values: tuple[str, ...] = ()
    unit: str | None = None
    epoch: str | None = None
    counts: str | None = None  # as times: "s since 1970"; "" if a person must decide
    format: str | None = None
    taken_from: ColumnRef | None = None
    expression: str | None = None
    same_time_as: str | None = None  # a column that has the same time, with its zone
    is_row_number: bool = False  # of the file, and of nothing that the rows are about
    is_total: bool = False  # of rows that refer to its own: no question is about it
    is_of_time: bool = False  # the time of its row is made of it: nor about that
    is_of_key: bool = False  # it names the table that a key of its row refers to: nor about that
    read_as: str = ""  # columns that are computed from it and stand for it: it is ignored
    checks: list[Check] = field(default_factory=list)

    def column(self) -> Column:
        shared = {f.name: getattr(self, f.name) for f in fields(Column) if hasattr(self, f.name)}
        return Column(**shared, note=note_text(self.checks))

    def check(self, text: str, cost: Cost = Cost.VALUES) -> None:
        """Add something that a person should look at."""
        self.checks.append(Check(text, cost))


@dataclass
class TableDraft:
    """One table; the reasons say where its key and its time come from."""

    source: SourceTable
    columns: list[ColumnDraft]
    primary_key: tuple[str, ...] = ()
    key_reason: str = "none"
    on_duplicate_key: str = "error"
    temporal_column: str | None = None
    time_reason: str = "none"
    time_resolution: str | None = None
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    values_of: tuple[ColumnRef, ...] = ()  # not of the source: the values of these columns
    plan: str | None = None  # a later time that its rows are written for
    zone_columns: tuple[str, ...] = ()  # that name the zone of its local times
    checks: list[Check] = field(default_factory=list)
    key_parts: dict[str, KeyPart] = field(default_factory=dict)  # columns that were asked for
    alike: dict[str, frozenset[Alike]] = field(default_factory=dict)  # held equal by drafted keys

    @property
    def name(self) -> str:
        return self.source.name

    def check(self, text: str, cost: Cost = Cost.VALUES) -> None:
        """Add something that a person should look at."""
        self.checks.append(Check(text, cost))

    def column(self, name: str) -> ColumnDraft:
        return next(column for column in self.columns if column.name == name)

    def own_columns(self) -> list[ColumnDraft]:
        """The columns without numbers of rows."""
        return [column for column in self.columns if not column.is_row_number]

    def slot(self, name: str) -> int:
        """Position of a column in raw.t<i>."""
        return self.source.slots[name]

    def every_key(self) -> list[ForeignKey]:
        return every_key(self.columns, self.foreign_keys)

    def key_columns(self) -> set[str]:
        """The columns of its primary key and of its foreign keys."""
        return {*self.primary_key, *(name for key in self.every_key() for name in key.columns)}

    def kind(self, name: str) -> str:
        """DuckDB's type of a column in raw.t<i>."""
        return self.source.columns[self.slot(name)].type

    def value(self, name: str, alias: str = "") -> str:
        """SQL: a raw value of a column without its spellings of NULL."""
        return f"({raw_value(self.slot(name), self.column(name).facts.nulls, alias)})"

    def stamp(self, name: str, alias: str = "") -> str:
        """SQL: the time in a column; NULL where it holds none."""
        column = self.column(name)
        value, kind = self.value(name, alias), self.kind(name)
        return to_timestamp(value, kind, column)[0]

    def typed_value(self, name: str, alias: str = "") -> str:
        """SQL: a value of its drafted type: a number, a time in microseconds, 0 or 1, or a text."""
        column, kind, raw = self.column(name), self.kind(name), self.value(name, alias)
        if column.stype == "timestamp":
            return f"epoch_us({self.stamp(name, alias)})"
        if column.stype == "numerical":
            decimal = self.source.csv.decimal if self.source.csv is not None else "."
            spans = column.facts.are_spans
            return f"CAST({to_numerical(raw, kind, decimal=decimal, spans=spans)[0]} AS DOUBLE)"
        if column.stype == "boolean":
            return f"CAST({to_boolean(raw, kind)[0]} AS INTEGER)"
        is_category = column.stype == "categorical"
        return category_text(raw, kind) if is_category else canonical_text(raw, kind)

    def holds_days(self, name: str) -> bool:
        """Whether the times of a column have no time of day, as a build sees it."""
        source, facts = self.source.columns[self.slot(name)], self.column(name).facts
        if "DATE" in (source.type, source.declared):
            return True
        form = self.column(name).format or ""
        if self.column(name).counts:
            return self.column(name).unit == "day" and facts.integer_count == facts.value_count
        is_written = source.type == "VARCHAR" or bool(form)
        return is_written and not facts.clock_count and "%H" not in form and "%I" not in form

    def over(self, name: str) -> str:
        """SQL: when the time in a column is over: a day at its end."""
        stamp = self.stamp(name)
        return f"({stamp} + INTERVAL 1 DAY)" if self.holds_days(name) else stamp

    def table(self) -> Table:
        csv = self.source.csv
        if csv is not None and not csv.header:  # the table's columns name those of the file
            csv = replace(csv, columns=())
        return Table(
            name=self.name,
            values_of=self.values_of,
            columns=tuple(column.column() for column in self.columns),
            primary_key=self.primary_key,
            temporal_column=self.temporal_column,
            time_resolution=self.time_resolution,
            foreign_keys=tuple(self.foreign_keys),
            graph=bool(self.primary_key) or any(c.stype != "ignored" for c in self.columns),
            on_duplicate_key=self.on_duplicate_key,
            csv=None if csv == CsvFormat() else csv,
            note=note_text(self.checks),
        )


@dataclass
class Draft:
    """The whole: `schema()` is saved, `text()` is printed, `to_dict()` is for programs."""

    name: str
    tables: list[TableDraft]
    tasks: list[Task] = field(default_factory=list)
    timezone: str | None = None
    checks: list[Check] = field(default_factory=list)
    directory: Path | None = None  # where the label tables of its tasks are

    def table(self, name: str) -> TableDraft:
        return next(table for table in self.tables if table.name == name)

    def schema(self) -> Schema:
        tables = tuple(table.table() for table in self.tables)
        return Schema(
            self.name,
            tables,
            tuple(self.tasks),
            timezone=self.timezone,
            note=note_text(self.checks),
            directory=self.directory,
        )

    def every_check(self) -> list[str]:
        """The checks with what they are about; one line for columns of which the same is said."""
        return [f"{entry.subject()}: {entry.check}" for entry in self.named_checks()]

    def named_checks(self) -> list[Named]:
        """Every check, the costly first."""
        return open_checks(self.schema())

    def to_dict(self) -> dict[str, Any]:
        return {
            "metadata": self.schema().to_dict(),
            "checks": self.every_check(),
            "tables": {
                table.name: {
                    "rows": table.source.row_count,
                    "primary_key": table.key_reason,
                    "temporal_column": table.time_reason,
                    "columns": {column.name: column.reason for column in table.columns},
                }
                for table in self.tables
            },
        }

    def __str__(self) -> str:
        return self.text()

    def text(self, *, full: bool = False) -> str:
        """For people; full: every check and column, however many there are."""
        return draft_text(self, full=full)


# ---- the text for people -----------------------------------------------------------------------


def draft_text(draft: Draft, *, full: bool = False) -> str:
    parts = []
    checks = draft.named_checks()
    if checks:
        parts.append(checks_text(checks, every_name(draft.schema()), full=full))
    if full or len(draft.tables) <= TABLES_MAX:
        parts += [_table_text(table, full=full) for table in draft.tables]
    else:
        parts.append(_tables_text(draft.tables))
    if draft.tasks:
        lines = "".join(
            f"\n  {task.name}: {task.target_column} ({task.target_stype}) of a row of "
            f"{task.anchor_table}" + _hidden_text(task, full=full)
            for task in draft.tasks
        )
        parts.append(
            f"drafted tasks ({len(draft.tasks)}); hide what is known only with the target:" + lines
        )
    return "\n\n".join(parts)


def _hidden_text(task: Task, *, full: bool) -> str:
    names = [column.column for column in task.hidden_columns]
    return f", without {listed(names, None if full else NAMES_MAX)}" if names else ""


# ---- tables ----------------------------------------------------------------------------------


def _tables_text(tables: Sequence[TableDraft]) -> str:
    """One line for each table."""
    lines = [["  table", "rows", "columns", "key", "time", "refers to", "to check"]]
    for table in tables:
        parents = dict.fromkeys(key.table for key in table.every_key())
        checks = len(table.checks) + sum(len(column.checks) for column in table.columns)
        lines.append(
            [
                f"  {table.name}",
                f"{table.source.row_count:,}",
                str(len(table.columns)),
                ", ".join(table.primary_key),
                table.temporal_column or "",
                listed(list(parents), PARENTS_MAX),
                str(checks or ""),
            ]
        )
    head = f"{len(tables)} tables (--full shows their columns, --table NAME those of a few):"
    return f"{head}\n{_columns_text(lines)}"


def _table_text(table: TableDraft, *, full: bool) -> str:
    key = ", ".join(table.primary_key) or "none"
    head = f"{table.name}: {table.source.row_count:,} rows"
    key_text = f"  key   {key}" + (f" ({table.key_reason})" if table.primary_key else "")
    time_text = f"  time  {table.temporal_column or 'none'} ({table.time_reason})"
    if table.temporal_column is None and table.time_reason == "none":
        time_text = "  time  none"
    lines = [["  column", "type", "nulls", "refers to", "known", "why"]]
    if full or len(table.columns) <= COLUMNS_MAX:
        lines += [_column_line(table, column) for column in table.columns]
    else:
        lines += _wide_lines(table)
    return "\n".join([head, key_text, time_text, _columns_text(lines)])


def _column_line(table: TableDraft, column: ColumnDraft) -> list[str]:
    refers = str(column.foreign_key or "")
    keys = [key for key in table.foreign_keys if column.name in key.columns]
    if keys and not refers:
        refers = f"{keys[0].table} by {'+'.join(keys[0].columns)}"
    known = "" if column.known_at.kind == "creation" else column.known_at.to_json()
    nulls = column.facts.row_count - column.facts.value_count
    return [
        f"  {column.name}{' *' if column.checks else ''}",
        column.stype,
        f"{nulls:,}" if nulls else "",
        refers,
        known,
        column.reason,
    ]


def _wide_lines(table: TableDraft) -> list[list[str]]:
    """One line for columns that are alike but for names and numbers, and have nothing to check."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for column in table.columns:
        line = _column_line(table, column)
        _, stype, nulls, refers, known, why = line
        own = column.name if column.checks or refers or column.name in table.primary_key else ""
        kind = (own, stype, str(bool(nulls)), known, kind_of_text(why, set()))
        groups.setdefault(kind, []).append(line)
    return [_alike(lines) for lines in groups.values()]


def _alike(lines: list[list[str]]) -> list[str]:
    first = lines[0]
    if len(lines) == 1:
        return first
    names = listed([line[0].strip() for line in lines], COLUMNS_ALIKE)
    whys = {line[5] for line in lines}
    why = first[5] if len(whys) == 1 else f"such as {first[5]}"
    return [f"  {names}", first[1], "some" if first[2] else "", "", first[4], why]


def _columns_text(lines: list[list[str]]) -> str:
    """Aligned, the last column as long as it is; empty columns left out."""
    kept = [j for j in range(len(lines[0])) if any(line[j] for line in lines[1:])]
    widths = {j: max(len(line[j]) for line in lines) for j in kept[:-1]}
    return "\n".join(
        "  ".join(f"{line[j]:<{widths.get(j, 0)}}" for j in kept).rstrip() for line in lines
    )
