"""Keys in a file, about whom a model is asked: CSV with a header, or Parquet.

Columns: those of the anchor table's primary key, under their names or as files of predictions have
them (`key`, or `key_<column>` for each part), and maybe obs_time: when the question is asked. Times
are ISO 8601, naive ones UTC; where no line has one, the file says nothing of them. A file of
predictions can be asked about again as it is. CSV may also come through /dev/stdin.

All problems of a file are told at once, with their lines; keys that the table does not have come
with the nearest one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import headwater
import numpy as np
from headwater.shared import (
    NO_ROW,
    Time,
    canonical_text,
    check_regular,
    hide_progress_bar,
    long_cells,
    nearest,
    open_given,
    time_us,
)
from numpy.typing import NDArray

from confluence.answers.csv_cells import as_read
from confluence.answers.prediction_files import anchor_key, import_duckdb, key_columns, quoted
from confluence.data.tasks import NO_TIME

TIME_COLUMN = "obs_time"
RESULT_COLUMNS = ("prediction", "probability")  # of an earlier answer, not read
PIECE = 8_192  # lines that are looked up at once
PROBLEMS_SHOWN = 20

Line = tuple[int, Sequence[Any]]  # its number, from 1 for the header, and its values


class _NoParquetError(Exception):
    """What is read as Parquet is none."""


class KeyFileError(ValueError):
    """A file of keys cannot be used; the message has all its problems."""


@dataclasses.dataclass(frozen=True)
class AskedRows:
    """Whom a model is asked about, and as of when."""

    rows: NDArray[np.uint32]  # [n] global rows of the anchor table
    obs_times: list[int] | None  # [n] µs; None: neither the file nor the caller has any


def read_keys(path: Path, store: headwater.Store, task: str, at: Time | None = None) -> AskedRows:
    """The rows that a file asks about, in its order.

    Args:
        at: the time of lines that have none of their own; a naive one is UTC.
    """
    is_parquet = path.suffix.lower() == ".parquet"
    lines = _parquet_lines(path) if is_parquet else csv_lines(path)
    reader = _Reader(path, store, task, None if at is None else time_us(at))
    try:
        _, names = next(lines, (1, ()))
        reader.place_columns([str(name).strip() for name in names])
        while piece := list(islice(lines, PIECE)):
            reader.take(piece)
    except (csv.Error, UnicodeDecodeError) as error:
        reader.problems.append(f"it is no CSV file in UTF-8: {error}")
    except _NoParquetError as error:
        reader.problems.append(f"it is no Parquet file: {error}")
    return reader.finish()


def csv_lines(path: Path) -> Iterator[Line]:
    given = io.TextIOWrapper(open_given(path), newline="", encoding="utf-8-sig")
    with given as file, long_cells():
        reader = csv.reader(file, strict=True)
        yield from ((reader.line_num, [*map(as_read, values)]) for values in reader if values)


def _parquet_lines(path: Path) -> Iterator[Line]:
    """Rows as lines under a header: keys in the texts of a store, times as microseconds."""
    path.stat()  # an OSError that names the file
    check_regular(path)
    duckdb = import_duckdb()
    try:
        yield from _rows_as_lines(path, duckdb)
    except duckdb.Error as error:
        raise _NoParquetError(str(error).partition("\n")[0]) from error


def _rows_as_lines(path: Path, duckdb: Any) -> Iterator[Line]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        hide_progress_bar(database)
        source = "read_parquet('" + str(path).replace("'", "''") + "')"
        described = database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        yield 1, [name for name, *_ in described]
        shown = []
        for name, kind, *_ in described:
            is_time = name == TIME_COLUMN and kind.startswith(("TIMESTAMP", "DATE"))
            text, time = canonical_text(quoted(name), kind), f"epoch_us({quoted(name)})"
            endless = f"CASE WHEN {quoted(name)} IS NOT NULL THEN {NO_TIME} END"  # epoch_us is NULL
            shown.append(f"coalesce({time}, {endless})" if is_time else text)
        number = 1
        found = database.execute(f"SELECT {', '.join(shown)} FROM {source}")
        while rows := found.fetchmany(PIECE):
            yield from enumerate(rows, number + 1)
            number += len(rows)


def _some_lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:PROBLEMS_SHOWN]))
    return f"line{'s' * (len(numbers) > 1)} {shown}"


class _Reader:
    """Looks up lines piece by piece and gathers what is wrong with them."""

    def __init__(self, path: Path, store: headwater.Store, task: str, at_us: int | None) -> None:
        self.problems: list[str] = []
        self._path = path
        self._store = store
        self._at_us = at_us
        self._table, self._parts = anchor_key(store, task)
        self._aliases = key_columns(store, task)
        self._width = 0  # columns
        self._places: list[int] = []  # of the parts of the key
        self._time_place: int | None = None
        self._rows: list[NDArray[np.uint32]] = []
        self._times: list[int] = []
        self._untimed: list[int] = []  # lines without a time
        self._line_count = 0
        self._unknown: list[tuple[int, Any]] = []  # line and key

    def place_columns(self, names: list[str]) -> None:
        """Find the columns of the key and of the time; the others are a problem."""
        self._width = len(names)
        left = {name: place for place, name in enumerate(names)}
        if len(left) < len(names):
            self.problems.append(f"a name comes twice among the columns {', '.join(names)}")
        for part, alias in zip(self._parts, self._aliases, strict=True):
            if part != alias and part in left and alias in left:
                self.problems.append(f"the key is there twice, as '{part}' and as '{alias}'")
                del left[alias]
            found = part if part in left else alias
            if found in left:
                self._places.append(left.pop(found))
            else:
                self.problems.append(f"no column '{part}' or '{alias}', the key of '{self._table}'")
        self._time_place = left.pop(TIME_COLUMN, None)
        known = (*self._parts, *self._aliases, TIME_COLUMN)
        self.problems += [
            f"unknown column '{name}'{nearest(name, known)}"
            for name in left
            if name not in RESULT_COLUMNS
        ]
        if len(self._places) < len(self._parts):
            self.finish()  # no line can be read

    def take(self, lines: Sequence[Line]) -> None:
        """Look up some lines."""
        keys = []
        numbers = []
        self._line_count += len(lines)
        for number, values in lines:
            if len(values) != self._width:
                self.problems.append(f"line {number}: {len(values)} values, not {self._width}")
                continue
            key = [values[place] for place in self._places]
            if None in key:
                self.problems.append(f"line {number}: no key")
                continue
            self._take_time(number, values)
            keys.append(key)
            numbers.append(number)
        rows = self._store.find_all(self._table, keys)
        for i in np.flatnonzero(rows == NO_ROW):
            key = keys[i]
            self._unknown.append((numbers[i], key[0] if len(key) == 1 else tuple(key)))
        self._rows.append(rows)

    def _take_time(self, number: int, values: Sequence[Any]) -> None:
        if self._time_place is None:
            return
        value = values[self._time_place]
        if value is None or value == "":
            if self._at_us is None:
                self._untimed.append(number)
            value = self._at_us or 0
        try:
            time = time_us(value)
        except ValueError as error:
            self.problems.append(f"line {number}: {error}")
            return
        if time == NO_TIME:
            self.problems.append(f"line {number}: {TIME_COLUMN} is infinite")
        self._times.append(time)

    def finish(self) -> AskedRows:
        """What was asked, or all problems at once."""
        problems = list(self.problems)
        if len(self._untimed) == self._line_count > 0:
            self._time_place = None  # as if there were no such column
        elif self._untimed:
            said = f"no {TIME_COLUMN}, and no time for all is given"
            problems.append(f"{_some_lines(self._untimed)}: {said}")
        if self._unknown:
            said = self._store.unknown_keys(self._table, [key for _, key in self._unknown])
            problems.append(f"{_some_lines([number for number, _ in self._unknown])}: {said}")
        if problems:
            more = len(problems) - PROBLEMS_SHOWN
            shown = "; ".join(problems[:PROBLEMS_SHOWN]) + (
                f"; and {more} more" if more > 0 else ""
            )
            count = f" has {len(problems)} problems" if len(problems) > 1 else ""
            raise KeyFileError(f"'{self._path}'{count}: {shown}")
        rows = np.concatenate([np.empty(0, np.uint32), *self._rows])
        if self._time_place is not None:
            return AskedRows(rows, self._times)
        return AskedRows(rows, None if self._at_us is None else [self._at_us] * rows.size)
