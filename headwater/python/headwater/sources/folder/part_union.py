"""The parts of a table as one: the union of their columns by name, case aside.

A column that a part lacks is NULL there. One of several types gets a type that holds the values of
all: a number or a time if all are such, else a text, in which a number or a day is written as in a
key. Notes name both. A column that the name of a folder is comes from there in parts that lack it.

Parts of one form that follow each other are read by one scan, so rows stay in the order of the
files, and most tables are one scan without more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from headwater.errors import SourceError
from headwater.notebook import listed
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.source import literal, quote
from headwater.sources.value_sql import (
    EXACT_LIMIT,
    NAIVE_TYPES,
    REAL_TYPES,
    ZONED_TYPE,
    canonical_text,
    is_number_type,
)

SHOWN_MAX = 8
TIMES = ("DATE", ZONED_TYPE, *NAIVE_TYPES)
WIDE = ("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT")  # more digits than a double has

Types = Mapping[str, str]  # by column
Keys = Mapping[str, str | None]  # the columns that the names of a file's folders are


class NotPartsError(SourceError):
    """Files of different tables."""


@dataclass(frozen=True)
class Parts:
    """The parts of a table."""

    table: str
    files: Sequence[Path]
    types: Sequence[Types]  # of each file
    keys: Sequence[Keys]  # what the names of its folders are
    read: Callable[[list[Path]], str]  # SQL of the rows of files of one form
    has_index: bool = False  # whether these rows have DuckDB's `file_index`


@dataclass(frozen=True)
class Union:
    """SQL of the rows of all parts, in so many scans, and what differs between them."""

    scan: str
    scan_count: int
    notes: tuple[str, ...] = ()


@dataclass
class _Column:
    """A column of the union: what it is called in each file, None if it is not there."""

    name: str
    own: list[str | None]
    kinds: list[str | None]  # also of what the name of a folder is
    wanted: str = "VARCHAR"
    unused: set[str] = field(default_factory=set)  # types of which no part has a value


def union_of(connection: Connection, parts: Parts) -> Union:
    columns = _columns(parts)
    _refuse_others(parts, columns)
    has_index = parts.has_index and all(c.name.casefold() != "file_index" for c in columns)

    def form(j: int) -> object:
        return list(parts.types[j].items()), None if has_index else parts.keys[j]

    runs = [list(run) for _, run in groupby(range(len(parts.files)), key=form)]
    if len(runs) == 1 and not any(parts.keys):
        return Union(parts.read(list(parts.files)), 1)
    for column in columns:
        column.wanted = _common_type(connection, parts, column)
    selects = []
    for run in runs:
        values = [f"{_value(parts, column, run)} AS {quote(column.name)}" for column in columns]
        rows = parts.read([parts.files[j] for j in run])
        selects.append(f"SELECT {', '.join(values)} FROM {rows}")
    return Union(f"({' UNION ALL '.join(selects)})", len(runs), _notes(parts, columns))


def _columns(parts: Parts) -> list[_Column]:
    """In the order in which they appear, those of folders last."""
    found: dict[str, _Column] = {}
    count = len(parts.files)

    def column(name: str) -> _Column:
        return found.setdefault(name.casefold(), _Column(name, [None] * count, [None] * count))

    for j, types in enumerate(parts.types):
        for name, kind in types.items():
            column(name).own[j], column(name).kinds[j] = name, kind
    for j, keys in enumerate(parts.keys):
        for name in keys:
            column(name).kinds[j] = column(name).kinds[j] or "VARCHAR"
    return list(found.values())


def _refuse_others(parts: Parts, columns: Sequence[_Column]) -> None:
    """NotPartsError for a file of which the others have few columns, and it of them: at most half
    of those of the smaller side."""
    in_files = Counter(column.name for column in columns for name in column.own if name is not None)
    for j, file in enumerate(parts.files):
        own = {column.name for column in columns if column.own[j] is not None}
        others = {name for name, count in in_files.items() if count > (name in own)}
        if len(parts.files) > 1 and 2 * len(own & others) <= min(len(own), len(others)):
            raise NotPartsError(
                f"'{file}' is not a part of table '{parts.table}': it has "
                f"{len(own & others):,} columns in common with the other files, and "
                f"{len(own - others):,} others: move it to a folder of its own, or give "
                f"'{file.parent}' as the source, of which each file is a table"
            )


def _common_type(connection: Connection, parts: Parts, column: _Column) -> str:
    """A type for the values of all parts."""
    kinds = dict.fromkeys(kind for kind in column.kinds if kind is not None)
    if len(kinds) > 1:  # a column of pandas without values has any type
        column.unused = {kind for kind in kinds if not _has_values(connection, parts, column, kind)}
        kinds = {kind: None for kind in kinds if kind not in column.unused} or kinds
    if len(kinds) < 2:
        return next(iter(kinds))
    are_numbers = all(is_number_type(kind) or kind == "BOOLEAN" for kind in kinds)
    if not are_numbers and not all(kind in TIMES for kind in kinds):
        return "VARCHAR"
    if kinds.keys() & {*REAL_TYPES}:
        wide = [j for j, kind in enumerate(column.kinds) if kind in WIDE]
        return "VARCHAR" if _is_too_wide(connection, parts, column, wide) else "DOUBLE"
    selects = " UNION ALL ".join(f"SELECT CAST(NULL AS {kind}) AS v" for kind in kinds)
    return str(one_row(connection, f"SELECT typeof(any_value(v)) FROM ({selects})")[0])


def _has_values(connection: Connection, parts: Parts, column: _Column, kind: str) -> bool:
    """Whether a part has a value of a type; a name of a folder is one."""
    own = [column.own[j] for j in range(len(parts.files)) if column.kinds[j] == kind]
    files = [parts.files[j] for j in range(len(parts.files)) if column.kinds[j] == kind]
    return any(
        name is None
        or count_rows(connection, f"SELECT count({quote(name)}) FROM {parts.read([f])}")
        for name, f in zip(own, files, strict=True)
    )


def _is_too_wide(
    connection: Connection, parts: Parts, column: _Column, wide: Sequence[int]
) -> bool:
    """Whether two integers of some parts could be one as doubles."""
    return any(
        count_rows(
            connection,
            f"SELECT count(*) FROM {parts.read([parts.files[j]])} WHERE "
            f"{quote(str(column.own[j]))} NOT BETWEEN -{EXACT_LIMIT} AND {EXACT_LIMIT}",
        )
        for j in wide
    )


def _value(parts: Parts, column: _Column, run: Sequence[int]) -> str:
    """SQL of a column in some parts of one form."""
    own, kind, wanted = column.own[run[0]], column.kinds[run[0]], column.wanted
    if own is not None and kind not in column.unused:
        return _cast(quote(own), str(kind), wanted)
    folded = "" if own is not None else column.name.casefold()
    values = [
        next((value for name, value in parts.keys[j].items() if name.casefold() == folded), None)
        for j in run
    ]
    texts = ["NULL" if value is None else literal(value) for value in values]
    if len(set(texts)) == 1:
        return f"CAST({texts[0]} AS {wanted})"
    return f"CAST([{', '.join(texts)}][CAST(file_index AS BIGINT) + 1] AS {wanted})"


def _cast(value: str, kind: str, wanted: str) -> str:
    if kind == wanted:
        return value
    if wanted == "VARCHAR" and (is_number_type(kind) or kind in TIMES):
        return f"coalesce({canonical_text(value, kind)}, CAST({value} AS VARCHAR))"
    return f"CAST({value} AS {wanted})"


def _notes(parts: Parts, columns: Sequence[_Column]) -> tuple[str, ...]:
    """What parts lack, and what they have of several types."""
    base = Path(os.path.commonpath([file.parent for file in parts.files]))
    lacking, typed = [], []
    for column in columns:
        without = [file for j, file in enumerate(parts.files) if column.kinds[j] is None]
        if without:
            first = without[0].relative_to(base).as_posix()
            more = f" and {len(without) - 1:,} more" if len(without) > 1 else ""
            lacking.append(f"{column.name} ({first}{more})")
        kinds = Counter(kind for kind in column.kinds if kind not in (None, *column.unused))
        if len(kinds) > 1:
            counts = ", ".join(f"{kind} in {count:,}" for kind, count in kinds.items())
            typed.append(f"{column.name} ({counts}, read as {column.wanted})")
    of = f"of the {len(parts.files):,} files of table '{parts.table}'"
    notes = []
    if lacking:
        notes.append(f"some {of} lack columns, which are NULL there: {listed(lacking, SHOWN_MAX)}")
    if typed:
        notes.append(f"columns {of} have several types: {listed(typed, SHOWN_MAX)}")
    return tuple(notes)
