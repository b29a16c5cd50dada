"""The shape of metadata.json: from JSON to a Schema, going on after every fault.

This is the first of the passes that `check.py` describes. It knows which keys there are and what
kind of value each takes, and nothing of what they mean together.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from headwater.binding import SEMANTIC_TYPES
from headwater.errors import SchemaError, nearest
from headwater.files import read_text
from headwater.metadata.parts import (
    COLUMN_KEYS,
    CSV_KEYS,
    MICROSECONDS,
    PARTIAL,
    SCHEMA_KEYS,
    SPLITS,
    TABLE_KEYS,
    TASK_KEYS,
    TIME_UNITS,
    Column,
    ColumnRef,
    CsvFormat,
    Document,
    ForeignKey,
    Known,
    Table,
    Task,
)

STYPES = tuple(SEMANTIC_TYPES)
TARGET_STYPES = ("numerical", "categorical", "boolean", "timestamp")
DURATION = re.compile(r"([+-]?)\s*(\d+)\s*([a-z]+?)s?")
DURATION_US_MAX = 10_000 * 366 * MICROSECONDS["day"]  # beyond the calendar from any time
NAME_BYTES_MAX = 1024
FILE_UNSAFE = re.compile(r"[/\x00-\x1f\x7f-\x9f]")  # in the name of a task
SHOWN_CHARACTERS = 80  # of a name that may be longer than one may be
CSV_SKIP_MAX = 1_000_000
TIME_MARK = re.compile(r"%-?.")
TIME_MARKS = (
    "%Y", "%y", "%m", "%-m", "%b", "%B", "%d", "%-d", "%a", "%A", "%H", "%-H", "%I", "%-I", "%M",
    "%-M", "%S", "%-S", "%f", "%g", "%p", "%z", "%%",
)  # fmt: skip

ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252", "ascii")

NULLABLE = ("observation_time_column",)  # null says the same as no key


def is_usable(name: str) -> bool:
    """Whether a table, column or task may be called so."""
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX and "\0" not in name


def names_files(name: str) -> bool:
    """Whether a task may be called so: a file called so lies in the folder where it is put."""
    return not name.startswith(".") and FILE_UNSAFE.search(name) is None


def shortened(name: str) -> str:
    """A name as messages show it, not at any length."""
    return name if len(name) <= SHOWN_CHARACTERS else name[:SHOWN_CHARACTERS] + "..."


def read_document(path: Path) -> Any:
    try:
        return json.loads(read_text(path, "utf-8-sig"), object_pairs_hook=_unique_keys)
    except OSError as error:
        raise SchemaError(f"cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"'{path}' is not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"'{path}' is not JSON: {error}") from error


def parse_duration(text: str) -> int | None:
    """Microseconds of "+60 days", "12 hours"; None if it is no duration."""
    match = DURATION.fullmatch(text.strip().lower())
    if match is None or match[3] not in MICROSECONDS:
        return None
    value = int(match[2]) * MICROSECONDS[match[3]]
    if value > DURATION_US_MAX:
        return None
    return -value if match[1] == "-" else value


class Reader:
    """The first pass: the shape of the document, going on after every fault."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.tables: Mapping[str, Any] = {}
        self.csv_is_faulty = False

    def schema(self, document: Any, directory: Path | None) -> Document:
        entry = self.object(document, "the document", SCHEMA_KEYS)
        tables = self.object(entry.get("tables", {}), "'tables'")
        self.tables = tables
        tasks = self.object(entry.get("tasks", {}), "'tasks'")
        if not tables:
            self.problems.append("'tables' lists no table")
        self.names(tables, "table")
        self.names(tasks, "task")
        return Document(
            name=self.text(entry, "name", "the document") or "database",
            timezone=self.text(entry, "timezone", "the document"),
            null_values=self.strings(entry, "null_values", "the document"),
            note=self.text(entry, "note", "the document") or "",
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
        self.names(columns, "column", f" of {where}")
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
            csv=self.csv(entry["csv"], where) if "csv" in entry else None,
            values_of=self.references(entry, "values_of", where),
            note=self.text(entry, "note", where) or "",
        )

    def csv(self, value: Any, where: str) -> CsvFormat:
        """A description that does not hold is marked: its files must not be read by it."""
        where, fault_count = f"'csv' of {where}", len(self.problems)
        entry = self.object(value, where, CSV_KEYS)
        marks = {key: self.mark(entry, key, where) for key in ("delimiter", "quote", "escape")}
        skip = entry.get("skip", 0)
        is_count = isinstance(skip, int) and not isinstance(skip, bool)
        if not is_count or not 0 <= skip <= CSV_SKIP_MAX:
            self.problems.append(f"'skip' of {where} must be a count of lines")
            skip = 0
        found = CsvFormat(
            header=self.flag(entry, "header", where, default=True),
            columns=self.one_or_list(entry, "columns", where),
            delimiter=marks["delimiter"] or ",",
            quote='"' if marks["quote"] is None else marks["quote"],
            escape='"' if marks["escape"] is None else marks["escape"],
            encoding=self.encoding(entry, where),
            null_values=self.strings(entry, "null_values", where),
            decimal=self.word(entry, "decimal", where, (".", ",")) or ".",
            skip=skip,
            short_rows=self.flag(entry, "short_rows", where, default=False),
            leave_out=self.strings(entry, "leave_out", where),
        )
        if marks["delimiter"] == "" or found.delimiter in (found.quote, found.decimal):
            self.problems.append(
                f"'delimiter' of {where} must be one character, and neither 'quote' nor 'decimal'"
            )
        self.csv_is_faulty |= len(self.problems) > fault_count
        return found

    def mark(self, entry: Mapping[str, Any], key: str, where: str) -> str | None:
        """A character that parts or quotes fields; empty for none."""
        value = entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or len(value.encode("utf-8", "replace")) > 1:
            self.problems.append(f"'{key}' of {where} is {value!r}, expected one ASCII character")
            return None
        return value

    def encoding(self, entry: Mapping[str, Any], where: str) -> str:
        name = self.text(entry, "encoding", where) or "utf-8"
        try:
            "".encode(name)
            codecs.getincrementaldecoder(name)
        except LookupError:
            near = nearest(name, ENCODINGS)
            self.problems.append(f"'encoding' of {where} is '{name}', which is unknown{near}")
        return name

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
            unit=self.word(entry, "unit", where, TIME_UNITS),
            epoch=self.day(entry, "epoch", where),
            format=self.time_format(entry, where),
            taken_from=None
            if entry.get("taken_from") is None
            else self.reference(entry["taken_from"], f"'taken_from' of {where}"),
            expression=self.text(entry, "expression", where),
            note=self.text(entry, "note", where) or "",
        )

    def day(self, entry: Mapping[str, Any], key: str, where: str) -> str | None:
        """A day, as 2001-01-01."""
        text = self.text(entry, key, where)
        try:
            return None if text is None else date.fromisoformat(text).isoformat()
        except ValueError:
            self.problems.append(f"'{key}' of {where} is '{text}', expected a day: 2001-01-01")
            return None

    def time_format(self, entry: Mapping[str, Any], where: str) -> str | None:
        """A strptime format, or "partial"; one without a year, month and day says no time."""
        text = self.text(entry, "format", where)
        if text in (None, PARTIAL):
            return text
        assert text is not None
        marks = set(TIME_MARK.findall(text))
        unknown = marks - set(TIME_MARKS)
        if unknown:
            self.problems.append(f"'format' of {where} has the unknown mark '{min(unknown)}'")
        elif not (
            marks & {"%Y", "%y"} and marks & {"%m", "%-m", "%b", "%B"} and marks & {"%d", "%-d"}
        ):
            self.problems.append(
                f"'format' of {where} is '{text}', expected one with year, month and day, such as "
                "'%d.%m.%Y'"
            )
        return text

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
            sees_everything=self.flag(entry, "sees_everything", where, default=False),
            label_window_us=self.duration(entry, "label_window", where),
            label_known_at=self.text(entry, "label_known_at", where),
            split_column=self.text(entry, "split_column", where),
            hidden_columns=self.references(entry, "hidden_columns", where, anchor_table),
            kind=self.word(entry, "kind", where, ("cell", "derived")),
            cutoff=self.word(entry, "cutoff", where, ("inclusive", "exclusive")),
            context_labels=self.word(entry, "context_labels", where, ("train", "none", "all")),
            require_label=self.flag(entry, "require_label", where, default=False),
            allow_future_anchor=self.flag(entry, "allow_future_anchor", where, default=False),
            allow_open_window=self.flag(entry, "allow_open_window", where, default=False),
            note=self.text(entry, "note", where) or "",
        )

    def references(
        self, entry: Mapping[str, Any], key: str, where: str, table: str = ""
    ) -> tuple[ColumnRef, ...]:
        values = entry.get(key, [])
        if not isinstance(values, list):
            self.problems.append(f"'{key}' of {where} must be a list")
            return ()
        found = [self.reference(value, f"'{key}' of {where}", table) for value in values]
        return tuple(reference for reference in found if reference is not None)

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
            elif names and entry is None and key not in NULLABLE:
                self.problems.append(f"'{key}' of {where} is null; give a value or leave it out")
            else:
                found[key] = entry
        return found

    def names(self, entries: Mapping[str, Any], what: str, where: str = "") -> None:
        """DuckDB's names ignore case, so two that differ only in case cannot both be queried."""
        seen: dict[str, str] = {}
        for name in entries:
            if not is_usable(name):
                self.problems.append(
                    f"{what} '{shortened(name)}'{where} has no usable name, expected 1 to "
                    f"{NAME_BYTES_MAX:,} bytes without a zero character"
                )
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                self.problems.append(
                    f"{what} '{shortened(name)}'{where} differs from '{shortened(other)}' only in "
                    "case"
                )

    def text(self, entry: Mapping[str, Any], key: str, where: str) -> str | None:
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            self.problems.append(f"'{key}' of {where} must be a string, found {_kind(value)}")
            return None
        if value is not None and not value.strip() and key not in ("description", "note"):
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
