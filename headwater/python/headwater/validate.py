"""Reads metadata.json into a Schema and reports every problem at once.

Three passes collect into one list, so that a user sees all faults in one run: the shape of the
document (unknown keys, wrong types), the references inside it (keys, time columns, tasks), and,
when the source is at hand, the columns the source has against those listed. Wrong names come with
the nearest right one. `metadata.schema.json` states the first pass for editors; a test holds the
two together.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ._core import SEMANTIC_TYPES
from .schema import (
    MICROSECONDS,
    SPLITS,
    Column,
    ColumnRef,
    ForeignKey,
    Known,
    Schema,
    Table,
    Task,
)

STYPES = tuple(SEMANTIC_TYPES)
TARGET_STYPES = ("numerical", "categorical", "boolean", "timestamp")
DURATION = re.compile(r"([+-]?)\s*(\d+)\s*([a-z]+?)s?")
DURATION_US_MAX = 10_000 * 366 * MICROSECONDS["day"]  # beyond the calendar from any time
NAME_BYTES_MAX = 1024

SCHEMA_KEYS = ("name", "timezone", "null_values", "tables", "tasks", "$schema")
TABLE_KEYS = (
    "primary_key", "temporal_column", "null_time", "time_resolution", "graph",
    "on_duplicate_key", "null_values", "description", "columns", "foreign_keys",
)  # fmt: skip
COLUMN_KEYS = ("stype", "foreign_key", "known_at", "description", "null_values", "unit")
TASK_KEYS = (
    "query", "seeds", "anchor_table", "anchor_key", "target_column", "target_stype", "kind",
    "observation_time_column", "label_window", "label_known_at", "split_column",
    "hidden_columns", "cutoff", "context_labels", "require_label", "allow_future_anchor",
)  # fmt: skip


def load_schema(path: Path) -> Schema:
    """Read and check a metadata.json file."""
    return parse_schema(read_document(path), directory=path.resolve().parent)


def read_document(path: Path) -> Any:
    from .errors import SchemaError

    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_unique_keys)
    except OSError as error:
        raise SchemaError(f"cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"'{path}' is not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"'{path}' is not JSON: {error}") from error


def parse_schema(
    document: Any,
    *,
    directory: Path | None = None,
    source: Mapping[str, list[str]] | None = None,
) -> Schema:
    """Check a document, and against `source` (table to its columns) if given."""
    problems: list[str] = []
    schema = _Reader(problems).schema(document, directory)
    check_references(schema, problems)
    if source is not None:
        check_source(schema, source, problems)
    raise_problems(problems)
    return schema


def check_schema(schema: Schema, source: Mapping[str, list[str]]) -> None:
    """Check a Schema against a source: every table and column listed, none unknown."""
    problems: list[str] = []
    check_references(schema, problems)
    check_source(schema, source, problems)
    raise_problems(problems)


def raise_problems(problems: list[str]) -> None:
    from .errors import SchemaError

    if len(problems) == 1:
        raise SchemaError(problems[0])
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise SchemaError(f"{len(problems)} problems in the metadata:{lines}")


def nearest(name: str, names: Iterable[str]) -> str:
    """ ", did you mean 'x'?" or nothing."""
    options = list(names)
    folded = {option.casefold(): option for option in options}
    match = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f", did you mean '{folded[match[0]]}'?" if match else ""


def parse_duration(text: str) -> int | None:
    """Microseconds of "+60 days", "12 hours"; None if it is no duration."""
    match = DURATION.fullmatch(text.strip().lower())
    if match is None or match[3] not in MICROSECONDS:
        return None
    value = int(match[2]) * MICROSECONDS[match[3]]
    if value > DURATION_US_MAX:
        return None
    return -value if match[1] == "-" else value


class _Reader:
    """The first pass: the shape of the document, going on after every fault."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.tables: Mapping[str, Any] = {}

    def schema(self, document: Any, directory: Path | None) -> Schema:
        entry = self.object(document, "the document", SCHEMA_KEYS)
        tables = self.object(entry.get("tables", {}), "'tables'")
        self.tables = tables
        tasks = self.object(entry.get("tasks", {}), "'tasks'")
        if not tables:
            self.problems.append("'tables' lists no table")
        self.names(tables, "table")
        self.names(tasks, "task")
        return Schema(
            name=self.text(entry, "name", "the document") or "database",
            timezone=self.text(entry, "timezone", "the document"),
            null_values=self.strings(entry, "null_values", "the document"),
            tables=tuple(self.table(name, value) for name, value in tables.items()),
            tasks=tuple(self.task(name, value) for name, value in tasks.items()),
            directory=directory,
        )

    def table(self, name: str, value: Any) -> Table:
        where = f"table '{name}'"
        entry = self.object(value, where, TABLE_KEYS)
        columns = self.object(entry.get("columns", {}), f"'columns' of {where}")
        if not columns:
            self.problems.append(f"{where} lists no column")
        self.names(columns, f"column of {where}")
        keys = entry.get("foreign_keys", [])
        if not isinstance(keys, list):
            self.problems.append(f"'foreign_keys' of {where} must be a list")
            keys = []
        parsed = [self.foreign_key(key, where) for key in keys]
        return Table(
            name=name,
            columns=tuple(self.column(name, column, entry) for column, entry in columns.items()),
            primary_key=self.one_or_list(entry, "primary_key", where),
            temporal_column=self.text(entry, "temporal_column", where),
            null_time=self.word(entry, "null_time", where, ("hidden", "visible")) or "hidden",
            time_resolution=self.word(entry, "time_resolution", where, ("day", "instant")),
            graph=self.flag(entry, "graph", where, default=True),
            on_duplicate_key=self.word(entry, "on_duplicate_key", where, ("error", "first", "last"))
            or "error",
            foreign_keys=tuple(key for key in parsed if key is not None),
            null_values=self.strings(entry, "null_values", where),
            description=self.text(entry, "description", where) or "",
        )

    def column(self, table: str, name: str, value: Any) -> Column:
        where = f"column '{table}.{name}'"
        entry = self.object(value, where, COLUMN_KEYS)
        if "stype" not in entry:
            self.problems.append(f"{where} has no 'stype'")
        foreign_key = entry.get("foreign_key")
        return Column(
            name=name,
            stype=self.word(entry, "stype", where, STYPES) or "ignored",
            foreign_key=None
            if foreign_key is None
            else self.reference(foreign_key, f"'foreign_key' of {where}"),
            known_at=self.known(entry, where),
            description=self.text(entry, "description", where) or "",
            null_values=self.strings(entry, "null_values", where),
            unit=self.word(entry, "unit", where, ("s", "ms", "us", "ns")) or "s",
        )

    def known(self, entry: Mapping[str, Any], where: str) -> Known:
        text = self.text(entry, "known_at", where)
        if text is None or text == "creation":
            return Known()
        if text == "never":
            return Known("never")
        offset = parse_duration(text) if text[:1] in "+-" else None
        if offset is not None and offset < 0:
            self.problems.append(f"'known_at' of {where}: '{text}' is before the row exists")
        return Known("column", text) if offset is None else Known("offset", None, offset)

    def foreign_key(self, value: Any, where: str) -> ForeignKey | None:
        where = f"an entry of 'foreign_keys' of {where}"
        entry = self.object(value, where, ("columns", "references"))
        target = self.object(
            entry.get("references", {}), f"'references' of {where}", ("table", "columns")
        )
        table = self.text(target, "table", where)
        columns = self.one_or_list(entry, "columns", where)
        references = self.one_or_list(target, "columns", f"'references' of {where}")
        if table is None or not columns or not references:
            self.problems.append(f"{where} needs 'columns' and 'references' (table, columns)")
            return None
        if len(columns) != len(references):
            self.problems.append(
                f"{where} has {len(columns)} columns but refers to {len(references)}"
            )
            return None
        return ForeignKey(columns, table, references)

    def task(self, name: str, value: Any) -> Task:
        where = f"task '{name}'"
        entry = self.object(value, where, TASK_KEYS)
        seeds = self.object(entry.get("seeds", {}), f"'seeds' of {where}", SPLITS)
        if ("query" in entry) == ("seeds" in entry):
            self.problems.append(f"{where} must have either 'query' or 'seeds'")
        elif "seeds" in entry and not seeds:
            self.problems.append(f"'seeds' of {where} names no label table")
        for key in ("anchor_table", "target_column", "target_stype"):
            if key not in entry:
                self.problems.append(f"{where} has no '{key}'")
        anchor_table = self.text(entry, "anchor_table", where) or ""
        hidden = entry.get("hidden_columns", [])
        if not isinstance(hidden, list):
            self.problems.append(f"'hidden_columns' of {where} must be a list")
            hidden = []
        references = [
            self.reference(item, f"'hidden_columns' of {where}", anchor_table) for item in hidden
        ]
        return Task(
            name=name,
            anchor_table=anchor_table,
            target_column=self.text(entry, "target_column", where) or "",
            target_stype=self.word(entry, "target_stype", where, TARGET_STYPES) or "numerical",
            query=self.text(entry, "query", where),
            seeds=tuple(
                (split, self.text(seeds, split, f"'seeds' of {where}") or "")
                for split in SPLITS
                if split in seeds
            ),
            anchor_key=self.one_or_list(entry, "anchor_key", where),
            observation_time_column=self.text(entry, "observation_time_column", where),
            label_window_us=self.duration(entry, "label_window", where),
            label_known_at=self.text(entry, "label_known_at", where),
            split_column=self.text(entry, "split_column", where),
            hidden_columns=tuple(item for item in references if item is not None),
            kind=self.word(entry, "kind", where, ("cell", "derived")),
            cutoff=self.word(entry, "cutoff", where, ("inclusive", "exclusive")),
            context_labels=self.word(entry, "context_labels", where, ("train", "none", "all"))
            or "train",
            require_label=self.flag(entry, "require_label", where, default=False),
            allow_future_anchor=self.flag(entry, "allow_future_anchor", where, default=False),
        )

    def reference(self, value: Any, where: str, table: str = "") -> ColumnRef | None:
        """ "table.column" split at the dot that gives a known table and column."""
        if isinstance(value, Mapping):
            entry = self.object(value, where, ("table", "column"))
            names = (self.text(entry, "table", where), self.text(entry, "column", where))
            if names[0] is not None and names[1] is not None:
                return ColumnRef(names[0], names[1])
        elif isinstance(value, str) and "." in value:
            parts = value.split(".")
            splits = [(".".join(parts[:i]), ".".join(parts[i:])) for i in range(1, len(parts))]
            known = [pair for pair in splits if pair[0] in self.tables]
            exact = [pair for pair in known if pair[1] in self.column_names(pair[0])]
            return ColumnRef(*(exact or known or splits)[0])
        elif isinstance(value, str) and table:
            return ColumnRef(table, value)
        self.problems.append(f"{where}: {value!r} is not 'table.column'")
        return None

    def column_names(self, table: str) -> Iterable[str]:
        entry = self.tables[table]
        columns = entry.get("columns") if isinstance(entry, Mapping) else None
        return columns if isinstance(columns, Mapping) else ()

    def object(self, value: Any, where: str, keys: Iterable[str] = ()) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.problems.append(f"{where} must be an object, found {_kind(value)}")
            return {}
        names, found = list(keys), {}
        for key, entry in value.items():
            if not isinstance(key, str):
                self.problems.append(f"{where} has the key {key!r}, expected a string")
            elif names and key not in names:
                self.problems.append(f"{where} has an unknown key '{key}'{nearest(key, names)}")
            elif names and entry is None:
                self.problems.append(f"'{key}' of {where} is null; give a value or leave it out")
            else:
                found[key] = entry
        return found

    def names(self, entries: Mapping[str, Any], what: str) -> None:
        """DuckDB's names ignore case, so two that differ only in case cannot both be queried."""
        seen: dict[str, str] = {}
        for name in entries:
            size = len(name.encode("utf-8", "surrogatepass"))
            if not 0 < size <= NAME_BYTES_MAX or "\0" in name:
                self.problems.append(f"{what} '{name}' has no usable name")
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                self.problems.append(f"{what} '{name}' differs from '{other}' only in case")

    def text(self, entry: Mapping[str, Any], key: str, where: str) -> str | None:
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            self.problems.append(f"'{key}' of {where} must be a string, found {_kind(value)}")
            return None
        if value is not None and not value.strip() and key != "description":
            self.problems.append(f"'{key}' of {where} is empty")
            return None
        return value

    def word(
        self, entry: Mapping[str, Any], key: str, where: str, words: tuple[str, ...]
    ) -> str | None:
        value = self.text(entry, key, where)
        if value is not None and value not in words:
            listed = ", ".join(words)
            self.problems.append(
                f"'{key}' of {where} is '{value}', expected one of {listed}{nearest(value, words)}"
            )
            return None
        return value

    def flag(self, entry: Mapping[str, Any], key: str, where: str, *, default: bool) -> bool:
        value = entry.get(key, default)
        if not isinstance(value, bool):
            self.problems.append(f"'{key}' of {where} must be true or false")
            return default
        return value

    def strings(self, entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problems.append(f"'{key}' of {where} must be a list of strings")
            return ()
        return tuple(value)

    def one_or_list(self, entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = entry.get(key)
        if value is None:
            return ()
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(name, str) and name for name in names):
            self.problems.append(f"'{key}' of {where} must be a name or a list of names")
            return ()
        if len(set(names)) < len(names):
            self.problems.append(f"'{key}' of {where} names a column twice")
        return tuple(names)

    def duration(self, entry: Mapping[str, Any], key: str, where: str) -> int | None:
        text = self.text(entry, key, where)
        value = None if text is None else parse_duration(text)
        if text is not None and (value is None or value < 0):
            self.problems.append(f"'{key}' of {where} is '{text}', expected one like '30 days'")
            return None
        return value


def check_references(schema: Schema, problems: list[str]) -> None:
    """The second pass: names inside the document that must name something in it."""
    for table in schema.tables:
        _check_table(schema, table, problems)
    if schema.tables and not any(table.graph for table in schema.tables):
        problems.append("every table has 'graph': false, so there is nothing to build")
    for task in schema.tasks:
        _check_task(schema, task, problems)


def _check_table(schema: Schema, table: Table, problems: list[str]) -> None:
    where = f"table '{table.name}'"
    names = table.column_names()
    for part in table.primary_key:
        _expect(part, names, f"'primary_key' of {where}", "column", problems)
    if table.temporal_column is not None:
        _check_time(table, table.temporal_column, f"'temporal_column' of {where}", problems)
    elif table.time_resolution is not None or table.null_time != "hidden":
        problems.append(f"{where} has time settings but no 'temporal_column'")
    is_empty = bool(table.columns) and all(c.stype == "ignored" for c in table.columns)
    if table.graph and not table.primary_key and is_empty:
        problems.append(
            f"{where} has no 'primary_key' and only ignored columns; set 'graph': false"
        )
    if table.on_duplicate_key != "error" and not table.primary_key:
        problems.append(f"{where} has 'on_duplicate_key' but no 'primary_key'")
    for column in table.columns:
        if column.known_at.kind == "column":
            assert column.known_at.column is not None
            where_known = f"'known_at' of column '{table.name}.{column.name}'"
            _check_time(table, column.known_at.column, where_known, problems)
        if column.known_at.kind == "offset" and table.temporal_column is None:
            problems.append(
                f"'known_at' of column '{table.name}.{column.name}' is an offset, "
                f"but {where} has no 'temporal_column'"
            )
    keys = table.every_key()
    for position, key in enumerate(keys):
        _check_key(schema, table, key, problems)
        if key in keys[:position]:
            problems.append(f"foreign key '{table.name}.{'+'.join(key.columns)}' stands twice")


def _check_key(schema: Schema, table: Table, key: ForeignKey, problems: list[str]) -> None:
    where = f"foreign key '{table.name}.{'+'.join(key.columns)}'"
    known = {column.name: column for column in table.columns}
    for name in key.columns:
        if _expect(name, known, where, "column", problems) and known[name].stype == "ignored":
            problems.append(f"{where} uses column '{name}', which is ignored")
    tables = [other.name for other in schema.tables]
    if _expect(key.table, tables, where, "table", problems):
        for name in key.references:
            _expect(name, schema.table(key.table).column_names(), where, "column", problems)


def _check_time(table: Table, name: str, where: str, problems: list[str]) -> None:
    if not _expect(name, table.column_names(), where, "column", problems):
        return
    stype = table.column(name).stype
    if stype not in ("timestamp", "ignored"):
        problems.append(f"{where} names column '{name}', which is {stype}, not timestamp")


def _check_task(schema: Schema, task: Task, problems: list[str]) -> None:
    where = f"task '{task.name}'"
    tables = {table.name: table for table in schema.tables}
    if task.anchor_table and _expect(task.anchor_table, tables, where, "table", problems):
        anchor = tables[task.anchor_table]
        if not anchor.primary_key:
            problems.append(f"{where}: anchor table '{anchor.name}' has no 'primary_key'")
        elif task.anchor_key and len(task.anchor_key) != len(anchor.primary_key):
            problems.append(
                f"'anchor_key' of {where} has {len(task.anchor_key)} columns, the primary key of "
                f"'{anchor.name}' has {len(anchor.primary_key)}"
            )
        if not anchor.graph:
            problems.append(f"{where}: anchor table '{anchor.name}' has 'graph': false")
    for column in task.hidden_columns:
        if _expect(column.table, tables, f"'hidden_columns' of {where}", "table", problems):
            names = tables[column.table].column_names()
            _expect(column.column, names, f"'hidden_columns' of {where}", "column", problems)
            if not tables[column.table].graph:
                problems.append(
                    f"'hidden_columns' of {where}: table '{column.table}' has 'graph': false"
                )
    if task.seeds and task.split_column is not None:
        problems.append(f"{where} has label tables per split and a 'split_column'")
    if task.kind == "cell" and task.anchor_table in tables:
        named = [c for c in tables[task.anchor_table].columns if c.name == task.target_column]
        if not named or named[0].stype != task.target_stype:
            problems.append(
                f"{where} is a cell task, but '{task.anchor_table}' has no {task.target_stype} "
                f"column '{task.target_column}'"
            )


def check_source(schema: Schema, source: Mapping[str, list[str]], problems: list[str]) -> None:
    """The third pass: every table and column named is in the source, every column is listed."""
    for table in schema.tables:
        if table.name not in source:
            problems.append(f"the source has no table '{table.name}'{nearest(table.name, source)}")
            continue
        listed = table.column_names()
        for name in listed:
            if name not in source[table.name]:
                problems.append(
                    f"table '{table.name}' of the source has no column '{name}'"
                    f"{nearest(name, source[table.name])}"
                )
        missing = [name for name in source[table.name] if name not in listed]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            problems.append(
                f"table '{table.name}' does not list {names} of the source "
                "(give each an stype, 'ignored' to skip it)"
            )
    for name in source:
        if all(table.name != name for table in schema.tables):
            problems.append(
                f"'tables' does not list table '{name}' of the source "
                "('graph': false keeps it out of every context)"
            )


def _expect(name: str, names: Iterable[str], where: str, what: str, problems: list[str]) -> bool:
    options = list(names)
    if name in options:
        return True
    problems.append(f"{where} names {what} '{name}', which is not there{nearest(name, options)}")
    return False


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key '{twice}' stands twice in one object")
    return entries
