"""What is drafted: mutable while the rules run, then a Schema and a table for people.

A `check` is a sentence about something a person should look at: it stands first in what `init`
prints, and in the `note` of the table, column or task in metadata.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headwater.inference.facts import ColumnFacts, raw_value
from headwater.metadata.schema import (
    Column,
    ColumnRef,
    CsvFormat,
    ForeignKey,
    Known,
    Schema,
    Table,
    Task,
    every_key,
)
from headwater.sources.source import SourceTable

AT_CREATION = Known()


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
    unit: str = "s"
    format: str | None = None
    taken_from: ColumnRef | None = None
    checks: list[str] = field(default_factory=list)

    def column(self) -> Column:
        shared = {f.name: getattr(self, f.name) for f in fields(Column) if hasattr(self, f.name)}
        return Column(**shared, note="; ".join(self.checks))


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
    first_checks: list[str] = field(default_factory=list)  # before those of all tables
    checks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.source.name

    def column(self, name: str) -> ColumnDraft:
        return next(column for column in self.columns if column.name == name)

    def slot(self, name: str) -> int:
        """Position of a column in raw.t<i>."""
        return self.source.column_names().index(name)

    def every_key(self) -> list[ForeignKey]:
        return every_key(self.columns, self.foreign_keys)

    def kind(self, name: str) -> str:
        """DuckDB's type of a column in raw.t<i>."""
        return self.source.columns[self.slot(name)].type

    def value(self, name: str) -> str:
        """SQL: a raw value of a column without its spellings of NULL."""
        return f"({raw_value(self.slot(name), self.column(name).facts.nulls)})"

    def table(self) -> Table:
        csv = self.source.csv
        if csv is not None and not csv.header:  # the table's columns name those of the file
            csv = replace(csv, columns=())
        return Table(
            name=self.name,
            columns=tuple(column.column() for column in self.columns),
            primary_key=self.primary_key,
            temporal_column=self.temporal_column,
            time_resolution=self.time_resolution,
            foreign_keys=tuple(self.foreign_keys),
            graph=bool(self.primary_key) or any(c.stype != "ignored" for c in self.columns),
            on_duplicate_key=self.on_duplicate_key,
            csv=None if csv == CsvFormat() else csv,
            note="; ".join(self.first_checks + self.checks),
        )


@dataclass
class Draft:
    """The whole: `schema()` is saved, `text()` is printed, `to_dict()` is for programs."""

    name: str
    tables: list[TableDraft]
    tasks: list[Task] = field(default_factory=list)
    timezone: str | None = None
    checks: list[str] = field(default_factory=list)
    directory: Path | None = None  # where the label tables of its tasks are

    def table(self, name: str) -> TableDraft:
        return next(table for table in self.tables if table.name == name)

    def schema(self) -> Schema:
        tables = tuple(table.table() for table in self.tables)
        return Schema(
            self.name, tables, tuple(self.tasks), timezone=self.timezone, directory=self.directory
        )

    def every_check(self) -> list[str]:
        """What a person should look at, named; one line for columns of which the same is said."""
        return [
            f"{table}.{', '.join(columns)}: {check}" if columns else f"{table}: {check}"
            for table, columns, check in self.named_checks()
        ]

    def named_checks(self) -> list[tuple[str, list[str], str]]:
        """Table (or database, or task), columns of which the same is said, and what is said."""
        found: list[tuple[str, list[str], str]] = []
        groups: dict[tuple[str, str], list[str]] = {}
        for table, column, check in self._checks():
            if column:
                groups.setdefault((table, check), []).append(column)
        for table, column, check in self._checks():
            names = groups.pop((table, check), []) if column else []
            if names or not column:
                found.append((table, names, check))
        return found

    def _checks(self) -> Iterator[tuple[str, str, str]]:
        """Table (or database, or task), column and what is to be checked."""
        for table in self.tables:
            yield from ((table.name, "", check) for check in table.first_checks)
        yield from ((self.name, "", check) for check in self.checks)
        for table in self.tables:
            yield from ((table.name, "", check) for check in table.checks)
            for column in table.columns:
                yield from ((table.name, column.name, check) for check in column.checks)
        yield from ((f"task {task.name}", "", task.note) for task in self.tasks if task.note)

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
        from headwater.inference.summary import draft_text

        return draft_text(self, full=full)
