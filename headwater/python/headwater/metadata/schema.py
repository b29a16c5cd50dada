"""metadata.json as frozen dataclasses: what the user says about a database.

`Schema` is the whole document, `Table`, `Column`, `ForeignKey` and `Task` its parts, in the order
in which the store numbers them. Reading a document (and every check of it) is in `check.py`;
this file only holds the facts, writes them back, and answers questions about them. A document that
is written and read again gives an equal `Schema`; values equal to their default are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import binding

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

BROKEN_DEPTH = 3  # of metadata.json: the document, tables, a table, its columns
LINE_LENGTH = 100

SPLITS = tuple(binding.SPLITS)  # train, val, test


@dataclass(frozen=True)
class ColumnRef:
    """A column of a table, written "table.column" or {"table", "column"}."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


@dataclass(frozen=True)
class Known:
    """When a cell becomes known: docs/2-sampling.md, columns known later."""

    kind: str = "creation"  # "creation", "never", "column" or "offset"
    column: str | None = None
    offset_us: int = 0

    def to_json(self) -> str:
        if self.kind == "column":
            assert self.column is not None
            return self.column
        return format_duration(self.offset_us, sign=True) if self.kind == "offset" else self.kind


@dataclass(frozen=True)
class CsvFormat:
    """How the CSV files of a table are written; without it: RFC 4180 in UTF-8 with a header."""

    header: bool = True
    columns: tuple[str, ...] = ()  # in file order; empty: the header's, else the table's own
    delimiter: str = ","
    quote: str = '"'  # empty: no field is quoted
    escape: str = '"'  # before a quote inside of a quoted field
    encoding: str = "utf-8"
    null_values: tuple[str, ...] = ()  # NULL where they stand unquoted, as an empty field is
    decimal: str = "."  # "," takes 1.234,5 for a number
    skip: int = 0  # lines before the header or the first row

    def to_dict(self) -> dict[str, Any]:
        default, entry = CsvFormat(), {}
        for name in CSV_KEYS:
            value = getattr(self, name)
            if value != getattr(default, name):
                entry[name] = list(value) if isinstance(value, tuple) else value
        return entry


CSV_KEYS = tuple(CsvFormat.__dataclass_fields__)


@dataclass(frozen=True)
class Column:
    name: str
    stype: str  # the name of a headwater.SemanticType, lower case
    foreign_key: ColumnRef | None = None
    known_at: Known = Known()
    description: str = ""
    null_values: tuple[str, ...] = ()
    unit: str = "s"  # of a timestamp stored as a number since 1970: "s", "ms", "us" or "ns"
    format: str | None = None  # of a timestamp that is not ISO 8601: "%d.%m.%Y", "%Y%m%d"
    taken_from: ColumnRef | None = None  # not of the source: a column of the row a key names
    note: str = ""  # for people; read by nobody

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"stype": self.stype}
        if self.foreign_key is not None:
            entry["foreign_key"] = _reference(self.foreign_key)
        if self.known_at.kind != "creation":
            entry["known_at"] = self.known_at.to_json()
        if self.description:
            entry["description"] = self.description
        if self.null_values:
            entry["null_values"] = list(self.null_values)
        if self.unit != "s":
            entry["unit"] = self.unit
        if self.format is not None:
            entry["format"] = self.format
        if self.taken_from is not None:
            entry["taken_from"] = _reference(self.taken_from)
        if self.note:
            entry["note"] = self.note
        return entry


@dataclass(frozen=True)
class ForeignKey:
    """Columns of one table that name a row of `table` by its columns `references`."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        references = {"table": self.table, "columns": list(self.references)}
        return {"columns": list(self.columns), "references": references}


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    temporal_column: str | None = None
    null_time: str = "hidden"
    time_resolution: str | None = None  # "day" or "instant"; None: "day" for a DATE column
    graph: bool = True
    on_duplicate_key: str = "error"
    foreign_keys: tuple[ForeignKey, ...] = ()  # those of "foreign_keys"; see every_key()
    null_values: tuple[str, ...] = ()
    description: str = ""
    csv: CsvFormat | None = None  # of its files; None: as CSV usually is
    values_of: tuple[ColumnRef, ...] = ()  # not of the source: the distinct values of columns
    note: str = ""  # for people; read by nobody

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if the table has none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def spelling(self, name: str) -> str | None:
        """How the table spells a column, as queries ignore case; None: it does not have it."""
        names = self.column_names()
        folded = {column.casefold(): column for column in names}
        return name if name in names else folded.get(name.casefold())

    def source_columns(self) -> list[str]:
        """Names of the columns that the source must have."""
        return [column.name for column in self.columns if column.taken_from is None]

    def every_key(self) -> list[ForeignKey]:
        """Foreign keys in the store's order: of single columns, then `foreign_keys` as listed."""
        single = [
            ForeignKey((column.name,), column.foreign_key.table, (column.foreign_key.column,))
            for column in self.columns
            if column.foreign_key is not None
        ]
        return single + list(self.foreign_keys)

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        if self.note:
            entry["note"] = self.note
        if self.csv is not None:
            entry["csv"] = self.csv.to_dict()
        if self.values_of:
            entry["values_of"] = [_reference(column) for column in self.values_of]
        if self.primary_key:
            entry["primary_key"] = _one_or_list(self.primary_key)
        if self.temporal_column is not None:
            entry["temporal_column"] = self.temporal_column
        if self.null_time != "hidden":
            entry["null_time"] = self.null_time
        if self.time_resolution is not None:
            entry["time_resolution"] = self.time_resolution
        if not self.graph:
            entry["graph"] = False
        if self.on_duplicate_key != "error":
            entry["on_duplicate_key"] = self.on_duplicate_key
        if self.null_values:
            entry["null_values"] = list(self.null_values)
        if self.description:
            entry["description"] = self.description
        entry["columns"] = {column.name: column.to_dict() for column in self.columns}
        if self.foreign_keys:
            entry["foreign_keys"] = [key.to_dict() for key in self.foreign_keys]
        return entry


@dataclass(frozen=True)
class Task:
    """A question: seeds by a query or by label tables, and how their contexts are cut off."""

    name: str
    anchor_table: str
    target_column: str
    target_stype: str
    query: str | None = None
    seeds: tuple[tuple[str, str], ...] = ()  # (split, path) in the order train, val, test
    anchor_key: tuple[str, ...] = ()  # columns of the result; empty: named as the primary key
    observation_time_column: str | None = None
    sees_everything: bool = False  # consent to seeds without a time in a database with times
    label_window_us: int | None = None
    label_known_at: str | None = None
    split_column: str | None = None
    hidden_columns: tuple[ColumnRef, ...] = ()
    kind: str | None = None  # None: from the name and type of the target column
    cutoff: str | None = None  # None: "exclusive" for a cell task, "inclusive" for a derived one
    context_labels: str = "train"
    require_label: bool = False
    allow_future_anchor: bool = False
    note: str = ""  # for people; read by nobody

    def anchor_columns(self, anchor: Table) -> tuple[str, ...]:
        """Columns of the anchor table that those of `anchor_key` stand for, in their order: those
        of the same names if it has all of them, else the primary key's."""
        named = [anchor.spelling(name) for name in self.anchor_key]
        found = tuple(name for name in named if name is not None)
        return found if found and len(found) == len(named) else anchor.primary_key

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        if self.note:
            entry["note"] = self.note
        if self.query is not None:
            entry["query"] = self.query
        if self.seeds:
            entry["seeds"] = dict(self.seeds)
        entry["anchor_table"] = self.anchor_table
        if self.anchor_key:
            entry["anchor_key"] = _one_or_list(self.anchor_key)
        entry["target_column"] = self.target_column
        entry["target_stype"] = self.target_stype
        if self.kind is not None:
            entry["kind"] = self.kind
        if self.observation_time_column is not None:
            entry["observation_time_column"] = self.observation_time_column
        if self.sees_everything:
            entry["sees_everything"] = True
        if self.label_window_us is not None:
            entry["label_window"] = format_duration(self.label_window_us)
        if self.label_known_at is not None:
            entry["label_known_at"] = self.label_known_at
        if self.split_column is not None:
            entry["split_column"] = self.split_column
        if self.hidden_columns:
            entry["hidden_columns"] = [_reference(column) for column in self.hidden_columns]
        if self.cutoff is not None:
            entry["cutoff"] = self.cutoff
        if self.context_labels != "train":
            entry["context_labels"] = self.context_labels
        if self.require_label:
            entry["require_label"] = True
        if self.allow_future_anchor:
            entry["allow_future_anchor"] = True
        return entry


@dataclass(frozen=True)
class Schema:
    """A whole metadata.json.

    `directory` is where the document was read from: label tables are found relative to it.
    """

    name: str
    tables: tuple[Table, ...]
    tasks: tuple[Task, ...] = ()
    timezone: str | None = None
    null_values: tuple[str, ...] = ()
    directory: Path | None = field(default=None, compare=False)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Schema:
        """Read a metadata.json; SchemaError lists every problem at once."""
        from headwater.metadata.check import load_schema

        return load_schema(Path(path))

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Schema:
        """Read a document that is already parsed; SchemaError lists every problem at once."""
        from headwater.metadata.check import parse_schema

        return parse_schema(document)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write metadata.json, one column per line, to be reviewed and versioned."""
        Path(path).write_text(_pretty(self.to_dict(), 0) + "\n", encoding="utf-8")

    def table(self, name: str) -> Table:
        """The table of that name; KeyError if the database has none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {"name": self.name}
        if self.timezone is not None:
            document["timezone"] = self.timezone
        if self.null_values:
            document["null_values"] = list(self.null_values)
        document["tables"] = {table.name: table.to_dict() for table in self.tables}
        if self.tasks:
            document["tasks"] = {task.name: task.to_dict() for task in self.tasks}
        return document


def format_duration(duration_us: int, *, sign: bool = False) -> str:
    """ "60 days" for a count of microseconds, in the largest unit that divides it."""
    unit = next(unit for unit in reversed(MICROSECONDS) if duration_us % MICROSECONDS[unit] == 0)
    if unit == "week":
        unit = "day"
    count = duration_us // MICROSECONDS[unit]
    plural = "" if abs(count) == 1 else "s"
    return f"{count:+d} {unit}{plural}" if sign else f"{count} {unit}{plural}"


def _pretty(value: Any, depth: int, taken: int = 0) -> str:
    """JSON with an object per line where it fits; tables, their columns and tasks never share one.

    taken: characters before the value in its line.
    """
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, Mapping | list):
        return line
    is_open = depth < BROKEN_DEPTH and isinstance(value, Mapping)
    if depth == BROKEN_DEPTH and isinstance(value, Mapping):
        is_open = all(isinstance(item, Mapping) for item in value.values())  # columns
    if not is_open and taken + len(line) <= LINE_LENGTH:
        return line
    indent = "  " * (depth + 1)
    if isinstance(value, list):
        parts = [f"{indent}{_pretty(item, depth + 1, len(indent))}" for item in value]
        return "[\n" + ",\n".join(parts) + "\n" + indent[2:] + "]"
    parts = []
    for key, item in value.items():
        start = f"{indent}{json.dumps(key, ensure_ascii=False)}: "
        parts.append(start + _pretty(item, depth + 1, len(start)))
    return "{\n" + ",\n".join(parts) + "\n" + indent[2:] + "}"


def _one_or_list(names: tuple[str, ...]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _reference(column: ColumnRef) -> str | dict[str, str]:
    if "." in column.table or "." in column.column:
        return {"table": column.table, "column": column.column}
    return str(column)
