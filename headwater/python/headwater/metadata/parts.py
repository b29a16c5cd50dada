"""metadata.json as frozen dataclasses: what the user says about a database.

`Document` is the whole, `Table`, `Column`, `ForeignKey` and `Task` its parts, in the order in which
the store numbers them. Reading a document (and every check of it) is in `check.py`; this file only
holds the facts, writes them back, and answers questions about them. A document that is written and
read again gives an equal one; values equal to their default are left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import binding
from headwater.files import check_output, is_stream, read_text
from headwater.notebook import counted, html_line, html_table, short, short_lines

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

PARTIAL = "partial"  # the format of dates some of which lack their day, or month and day
# In which numbers count from an epoch; Julian days have their own.
TIME_UNITS = ("s", "ms", "us", "100ns", "ns", "day", "julian")
# The keys of metadata.json, in the order in which they are written.
SCHEMA_KEYS = ("name", "note", "timezone", "null_values", "tables", "tasks", "$schema")
TABLE_KEYS = (
    "note", "csv", "values_of", "primary_key", "temporal_column", "null_time", "time_resolution",
    "graph", "on_duplicate_key", "null_values", "description", "columns", "foreign_keys",
)  # fmt: skip
COLUMN_KEYS = (
    "stype", "foreign_key", "known_at", "description", "null_values", "unit", "epoch",
    "format", "taken_from", "expression", "note",
)  # fmt: skip
TASK_KEYS = (
    "note", "query", "seeds", "anchor_table", "anchor_key", "target_column", "target_stype", "kind",
    "observation_time_column", "sees_everything", "label_window", "label_known_at", "split_column",
    "hidden_columns", "cutoff", "context_labels", "require_label", "allow_future_anchor",
    "allow_open_window",
)  # fmt: skip

BROKEN_DEPTH = 3  # of metadata.json: the document, tables, a table, its columns
LINE_LENGTH = 100
TABLES_SHOWN, TASKS_SHOWN = 14, 6  # with a line each, when a schema is printed

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
    """When a cell becomes known: docs/reference/sampling.md, columns known later."""

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
    short_rows: bool = False  # rows may lack their last fields, which are NULL
    leave_out: tuple[str, ...] = ()  # values of the first column, whose rows are not read: Total

    def to_dict(self) -> dict[str, Any]:
        return _entry(self, CSV_KEYS)


CSV_KEYS = tuple(CsvFormat.__dataclass_fields__)


@dataclass(frozen=True)
class Column:
    name: str
    stype: str  # the name of a headwater.SemanticType, lower case
    foreign_key: ColumnRef | None = None
    known_at: Known = Known()
    description: str = ""
    null_values: tuple[str, ...] = ()
    unit: str | None = None  # of a timestamp that is a number, also in text: one of TIME_UNITS
    epoch: str | None = None  # the day from which it counts; None is 1970-01-01
    format: str | None = None  # of a timestamp that is not ISO 8601: "%d.%m.%Y", "partial"
    taken_from: ColumnRef | None = None  # not of the source: a column of the row a key names
    expression: str | None = None  # not of the source: SQL of columns of its own row
    note: str = ""  # for people; read by nobody

    @property
    def is_derived(self) -> bool:
        """Whether the source does not have it."""
        return self.taken_from is not None or self.expression is not None

    def to_dict(self) -> dict[str, Any]:
        return _entry(self, COLUMN_KEYS)


@dataclass(frozen=True)
class ForeignKey:
    """Columns of one table that name a row of `table` by its columns `references`."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        references = {"table": self.table, "columns": list(self.references)}
        return {"columns": list(self.columns), "references": references}


def every_key(columns: Iterable[Any], listed: Iterable[ForeignKey]) -> list[ForeignKey]:
    """The keys of single columns, which may be drafts of some, then those that are listed."""
    single = ((c.name, c.foreign_key) for c in columns if c.foreign_key is not None)
    keys = [ForeignKey((name,), parent.table, (parent.column,)) for name, parent in single]
    return keys + list(listed)


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
        return [column.name for column in self.columns if not column.is_derived]

    def every_key(self) -> list[ForeignKey]:
        """Foreign keys in the store's order: of single columns, then `foreign_keys` as listed."""
        return every_key(self.columns, self.foreign_keys)

    def to_dict(self) -> dict[str, Any]:
        return _entry(self, TABLE_KEYS)


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
    context_labels: str | None = None  # None: "train", or "none" if the target is a foreign key
    require_label: bool = False
    allow_future_anchor: bool = False
    allow_open_window: bool = False  # keep labels whose window ends after the data
    note: str = ""  # for people; read by nobody

    def anchor_columns(self, anchor: Table) -> tuple[str, ...]:
        """Columns of the anchor table that those of `anchor_key` stand for, in their order: those
        of the same names if it has all of them, else the primary key's."""
        named = [anchor.spelling(name) for name in self.anchor_key]
        found = tuple(name for name in named if name is not None)
        return found if found and len(found) == len(named) else anchor.primary_key

    def to_dict(self) -> dict[str, Any]:
        return _entry(self, TASK_KEYS)


@dataclass(frozen=True, repr=False)
class Document:
    """A whole metadata.json, checked.

    `directory` is where the document was read from: label tables are found relative to it.
    """

    name: str
    tables: tuple[Table, ...]
    tasks: tuple[Task, ...] = ()
    timezone: str | None = None
    null_values: tuple[str, ...] = ()
    note: str = ""  # for people; read by nobody
    directory: Path | None = field(default=None, compare=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write metadata.json, one column per line, to be reviewed and versioned.
        FileExistsError if the file exists and is not a metadata.json."""
        if not is_stream(path):
            check_output(path, "path", is_own=_is_metadata, what="a metadata.json")
        Path(path).write_text(_pretty(self.to_dict(), 0) + "\n", encoding="utf-8")

    def table(self, name: str) -> Table:
        """The table of that name; KeyError if the database has none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def table_names(self) -> list[str]:
        return [table.name for table in self.tables]

    def to_dict(self) -> dict[str, Any]:
        return _entry(self, SCHEMA_KEYS)

    def __repr__(self) -> str:
        tables = (
            f"{table.name}: {counted(len(table.columns), 'column')}"
            + f", key {' + '.join(table.primary_key)}" * bool(table.primary_key)
            + f", time {table.temporal_column}" * (table.temporal_column is not None)
            + f", points at {_parents(table)}" * bool(_parents(table))
            for table in self.tables
        )
        tasks = (
            f"task {task.name}: {task.target_column} ({task.target_stype}) of {task.anchor_table}"
            for task in self.tasks
        )
        lines = [short(f"<{self._headline()}>")]
        lines += short_lines(tables, TABLES_SHOWN, "table")
        return "\n".join(lines + short_lines(tasks, TASKS_SHOWN, "task"))

    def _repr_html_(self) -> str:
        tables = [
            [table.name, len(table.columns), ", ".join(table.primary_key),
             table.temporal_column or "", _parents(table)]
            for table in self.tables
        ]  # fmt: skip
        tasks = [
            [task.name, f"{task.target_column} ({task.target_stype})", task.anchor_table]
            for task in self.tasks
        ]
        return (
            html_line(self._headline())
            + html_table(["table", "columns", "primary key", "time", "points at"], tables, "table")
            + html_table(["task", "predicts", "of each row of"], tasks, "task")
        )

    def _headline(self) -> str:
        counts = f"{counted(len(self.tables), 'table')}, {counted(len(self.tasks), 'task')}"
        return f"Schema '{short(self.name, 50)}': {counts}"


def _parents(table: Table) -> str:
    """The tables that the foreign keys of a table lead to, each once."""
    return ", ".join(dict.fromkeys(key.table for key in table.every_key()))


def _entry(part: Any, keys: Sequence[str]) -> dict[str, Any]:
    """The facts of a part by their keys in metadata.json, without those equal to their default."""
    facts = {field.name.removesuffix("_us"): field for field in dataclasses.fields(part)}
    found = {key: getattr(part, facts[key].name) for key in keys if key in facts}
    return {
        key: _to_json(key, value) for key, value in found.items() if value != facts[key].default
    }


def _to_json(key: str, value: Any) -> Any:
    if isinstance(value, ColumnRef):
        return _reference(value)
    if isinstance(value, Known):
        return value.to_json()
    if isinstance(value, CsvFormat | ForeignKey):
        return value.to_dict()
    if key == "label_window":
        return format_duration(value)
    if key == "seeds":
        return dict(value)
    if not isinstance(value, tuple):
        return value
    if key in ("primary_key", "anchor_key") and len(value) == 1:
        return value[0]
    if all(isinstance(item, Column | Table | Task) for item in value):
        return {item.name: item.to_dict() for item in value}
    return [_to_json("", item) for item in value]


def format_duration(duration_us: int, *, sign: bool = False) -> str:
    """ "60 days" for a count of microseconds, in the largest unit that divides it."""
    unit = next(unit for unit in reversed(MICROSECONDS) if duration_us % MICROSECONDS[unit] == 0)
    if unit == "week":
        unit = "day"
    count = duration_us // MICROSECONDS[unit]
    plural = "" if abs(count) == 1 else "s"
    return f"{count:+d} {unit}{plural}" if sign else f"{count} {unit}{plural}"


def _is_metadata(path: Path) -> bool:
    """Whether a file is a metadata.json, valid or not."""
    try:
        found = json.loads(read_text(path, "utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "tables" in found


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


def _reference(column: ColumnRef) -> str | dict[str, str]:
    if "." in column.table or "." in column.column:
        return {"table": column.table, "column": column.column}
    return str(column)
