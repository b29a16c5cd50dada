"""An open store for people, predictions and tests: rows and links in the source's own terms."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.errors import StoreError
from headwater.store.metadata_shape import metadata_faults
from headwater.store.row_keys import ALWAYS_US, NO_TIME_US, datetime_of, key_texts, key_value
from headwater.store.verified import check_files

NO_ROW = 2**32 - 1
LABEL_NULL, LABEL_NONE = 1, 2  # label states of a seed; 0: it has a value
GIVEN_BY_HASH = 15  # split of a seed that no column gives
FLOAT32_DIGITS = 7
NEAREST_AMONG = 100_000  # rows whose keys are compared with one that is not there
UNKNOWN_KEYS_SHOWN = 10
UNKNOWN_KEYS_COMPARED = 3
MAX_WARM_UP_THREADS = 16


class SemanticType(IntEnum):
    """What the values of a column are, numbered as in a batch's `semantic_types`."""

    IDENTIFIER = binding.SEMANTIC_TYPES["identifier"]
    NUMERICAL = binding.SEMANTIC_TYPES["numerical"]
    TIMESTAMP = binding.SEMANTIC_TYPES["timestamp"]
    BOOLEAN = binding.SEMANTIC_TYPES["boolean"]
    CATEGORICAL = binding.SEMANTIC_TYPES["categorical"]
    TEXT = binding.SEMANTIC_TYPES["text"]
    IGNORED = binding.SEMANTIC_TYPES["ignored"]


class Store:
    """A store directory, mapped (`load="mmap"`) or read into memory (`load="ram"`).

    verify: "once" proves the checksums of all files, unless this machine did so before and no file
    has another device, inode, size or time since (docs/reference/store-format.md, "Verified once");
    "full" proves them in any case; "header" reads headers only. A damaged store is a StoreError
    that names the file and the byte.

    Rows have global numbers: those of a table are `row_range` of its metadata. Arrays stay valid
    after close().
    """

    def __init__(
        self, path: str | os.PathLike[str], *, load: str = "mmap", verify: str = "once"
    ) -> None:
        self.path = Path(path)
        word("verify", verify, binding.VERIFY)
        self.core = binding.Store(path, word("load", load, binding.LOADS))
        try:
            self.check_files(verify)
        except BaseException:
            self.core.close()
            raise

    def __repr__(self) -> str:
        return f"<Store '{self.path}'>"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the map. Samplers that were opened on it keep it until they go."""
        self.core.close()

    def check_files(self, verify: str = "once", each: Callable[[], None] = lambda: None) -> None:
        """Prove the checksums of an open store, as when it is opened with `verify`; StoreError with
        file and byte. `each`: called about every 100 ms while it is read."""
        check_files(self.core, self.path, word("verify", verify, binding.VERIFY), each)

    @property
    def text_bytes(self) -> int:
        """How much the vectors of all texts take; 0 in a store without texts."""
        return int(self.core.vectors(binding.EMBEDDING_KINDS["texts"]).nbytes)

    @property
    def fingerprint(self) -> str:
        """32 hex digits over the contents."""
        return self.core.fingerprint()

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """metadata.json of the build, with its fingerprint and, if there are times, "time": the
        mean_us and std_us by which all of them are shown."""
        text, place = self.core.metadata(), self.core.directory()
        try:
            metadata = json.loads(text)
        except ValueError as error:
            raise StoreError(f"cannot read metadata.json (in '{place}'): {error}") from error
        missing = {"tables", "columns", "tasks"} - set(metadata)
        if missing:
            raise StoreError(f"metadata.json lacks {sorted(missing)} (in '{place}')")
        if any(column["stype"] == "timestamp" for column in metadata["columns"]):
            scale = self.core.counts()
            metadata["time"] = {name: scale[f"time_{name}"] for name in ("mean_us", "std_us")}
        return {**metadata, "fingerprint": self.fingerprint}

    # ---- rows ----------------------------------------------------------------------------

    def row(self, row: int) -> dict[str, Any]:
        """One row: `{"table", "key", "time", "cells"}` in source units (float32 precision).

        An identifier's cell shows its value where the store has it (the primary key, the key of
        the parent), else True; NULL is None.
        """
        table = self._table(self.core.row_table(row))
        key = self._key(row, table)
        time = self.core.row_time(row)
        cells = {}
        known = {**self._links(row, table), **key}
        for name, number in column_numbers(self.metadata, table).items():
            column = self.metadata["columns"][number]
            if column["stype"] != "ignored":
                value = self._cell(row, number, column)
                if column["stype"] == "identifier" and value is not None:
                    value = known.get(name, True)
                cells[name] = value
        return {
            "table": table["name"],
            "key": key,
            "time": None if time in (NO_TIME_US, ALWAYS_US) else datetime_of(time),
            "cells": cells,
        }

    def row_time(self, row: int) -> int:
        """When a row becomes visible, in microseconds since 1970; `ALWAYS_US` or `NO_TIME_US` of
        `headwater.shared` for always and never."""
        return int(self.core.row_time(row))

    def row_times(self, table: str) -> NDArray[np.int64]:
        """When each row of a table becomes visible, int64 [rows] in row order, as `row_time`."""
        number = self.table_index(table)
        times = self.core.row_times(number)
        if times is None:
            low, high = self.metadata["tables"][number]["row_range"]
            times = np.full(high - low, ALWAYS_US)
        return times

    def find(self, table: str, key: Any) -> int:
        """Global row of a primary key (a scalar, a tuple of its parts, or a dict by column).

        KeyError if the table has no such row.
        """
        row = int(self.find_all(table, [key])[0])
        if row == NO_ROW:
            raise KeyError(f"table '{table}' has no row with the key {key!r}")
        return row

    def find_all(self, table: str, keys: Iterable[Any]) -> NDArray[np.uint32]:
        """Global rows of many primary keys, each as in `find`, uint32 [keys]; 2^32 - 1 where the
        table has no such row."""
        number = self.table_index(table)
        names, subject = self.metadata["tables"][number]["primary_key"], f"table '{table}'"
        find = self.core.find
        found = [find(number, key_texts(key, names, subject)) for key in keys]
        return np.array([NO_ROW if row is None else row for row in found], np.uint32)

    def keys(self, rows: Sequence[int] | NDArray[np.integer]) -> dict[str, list[int | str]]:
        """Primary keys of many rows of one table: the values of each key column, in the order of
        `rows`. ValueError if the rows are of several tables."""
        numbers = np.asarray(rows).tolist()
        if not numbers:
            return {}
        table = self._table(self.core.row_table(numbers[0]))
        low, high = table["row_range"]
        if min(numbers) < low or max(numbers) >= high:
            raise ValueError(f"the rows are not all of table '{table['name']}'")
        names = table["primary_key"]
        if not names:
            return {}
        parts = zip(*map(self.core.row_key, numbers), strict=True)
        return {name: list(map(key_value, part)) for name, part in zip(names, parts, strict=True)}

    def unknown_keys(self, table: str, keys: Sequence[Any]) -> str:
        """What to say of keys that the table does not have: some of them, and what may be meant."""
        shown = ", ".join(repr(key) for key in keys[:UNKNOWN_KEYS_SHOWN])
        more = len(keys) - UNKNOWN_KEYS_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        near = self._nearest_keys(table, keys[:UNKNOWN_KEYS_COMPARED])
        meant = " and ".join(dict.fromkeys(map(repr, near)))
        hint = f", did you mean {meant}?" if meant else ""
        return f"table '{table}' has no rows with the keys {shown}{rest}{hint}"

    def parents(self, row: int) -> NDArray[np.uint32]:
        """Parent by foreign key of the row's table, uint32 [keys]; 2^32 - 1 where there is none."""
        counts = [len(entry["foreign_keys"]) for entry in self.metadata["tables"]]
        table = self.core.row_table(row)
        keys = range(sum(counts[:table]), sum(counts[: table + 1]))
        found = [self.core.parent(row, key) for key in keys]
        return np.array([NO_ROW if parent is None else parent for parent in found], np.uint32)

    def children(self, row: int, limit: int | None = None) -> dict[str, NDArray[np.uint32]]:
        """Rows that point at this one, by foreign key ("orders.customer_id"), oldest first.

        uint32 [n] each, read-only; `limit` keeps the latest of each key.
        """
        name = self._table(self.core.row_table(row))["name"]
        found = {}
        for number, (child, key) in enumerate(self._keys):
            if key["references"]["table"] == name:
                rows = self.core.children(row, number)
                kept = rows if limit is None else rows[max(0, len(rows) - limit) :]
                found[key_name(child, key)] = kept
        return found

    # ---- whole keys and columns ----------------------------------------------------------

    def edges(self, key: str) -> dict[str, NDArray[Any]]:
        """A whole foreign key by its name in `children` ("orders.customer_id").

        rows uint32 [n]: child rows by parent, those of one parent oldest first; times int64 us [n]:
        when each becomes visible, with the child or when the key is known if that is later
        (-2^63: always, 2^63 - 1: never); starts int64 [rows of the parent table + 1]: where in them
        the children of each parent begin. ValueError names the nearest key. Of keys with the same
        columns it is the last one.
        """
        starts, rows, times = map(
            np.asarray, self.core.edges(_index("key", key, self._numbers["key"]))
        )
        return {"starts": starts.astype(np.int64), "rows": rows, "times": times}

    def column(self, table: str, column: str) -> dict[str, NDArray[Any]]:
        """A whole column of a table, in row order, [rows] each.

        numbers float64, NaN where NULL: numerical in source units; boolean 0 or 1; timestamp us
        since 1970; categorical the place among its categories; text an index; identifier 1. times
        int64 us: when the cell is known where its row is visible (-2^63: with it, 2^63 - 1: never).
        """
        names = column_numbers(self.metadata, self.metadata["tables"][self.table_index(table)])
        numbers, times = map(np.asarray, self.core.column(_index("column", column, names)))
        return {"numbers": numbers, "times": times}

    # ---- tasks ---------------------------------------------------------------------------

    def task_seeds(self, name: str) -> dict[str, NDArray[Any]]:
        """Every seed of a task in stored order, [n] each; `seed_index` of a batch points here.

        anchor_row uint32; obs_time int64 us (2^63 - 1: none); target float64 in source units,
        0 or 1, index within the target's categories, or us; is_null bool; labelled bool; split
        uint8 (0 train, 1 val, 2 test, 255: not given, by hash); position uint32 in the query's
        result; label_time int64 us, when the label is known (2^63 - 1: never), only of tasks that
        state a label_window or label_known_at.
        """
        number = self.task_index(name)
        seeds = self.core.seeds(number)
        states = seeds["states"] & 15
        splits = seeds["states"] >> 4
        stype = self.metadata["tasks"][number]["target_stype"]
        targets = seeds["targets"]
        if stype == "numerical":
            values = targets.view(np.float64).copy()
        elif stype == "timestamp":
            values = targets.view(np.int64).astype(np.float64)
        else:
            values = targets.astype(np.float64)
        known = {"label_time": seeds["label_times"]} if "label_times" in seeds else {}
        return {
            "anchor_row": seeds["anchors"],
            "obs_time": seeds["obs_times"],
            "target": values,
            "is_null": states == LABEL_NULL,
            "labelled": states != LABEL_NONE,
            "split": np.where(splits == GIVEN_BY_HASH, 255, splits).astype(np.uint8),
            "position": seeds["positions"],
            **known,
        }

    def task_index(self, name: str) -> int:
        """Number of a task by name; ValueError with the nearest name if there is none."""
        return _index("task", name, self._numbers["task"])

    def table_index(self, name: str) -> int:
        """Number of a table by name; ValueError with the nearest name if there is none."""
        return _index("table", name, self._numbers["table"])

    # ---- whole store ---------------------------------------------------------------------

    def verify(self) -> list[str]:
        """Check every invariant of the contents; all faults, or [] if the store is sound. Open a
        damaged one with verify="header"."""
        return faults_of(self.core)

    def warm_up(
        self, progress: Callable[[int, int], None] | None = None, *, threads: int | None = None
    ) -> None:
        """Read every page once, so that later reads do not wait for the disk.

        `progress` is called with bytes done and bytes in all, before and after.
        """
        files = [file for file in Path(self.core.directory()).rglob("*") if file.is_file()]
        total = sum(file.stat().st_size for file in files)
        if progress is not None:
            progress(0, total)
        count = threads or min(len(os.sched_getaffinity(0)), MAX_WARM_UP_THREADS)
        self.core.warm_up(count)
        if progress is not None:
            progress(total, total)

    # ---- inside --------------------------------------------------------------------------

    def _table(self, number: int) -> dict[str, Any]:
        entry: dict[str, Any] = self.metadata["tables"][number]
        return entry

    @cached_property
    def _keys(self) -> list[tuple[str, dict[str, Any]]]:
        """(child table, foreign key) by global number."""
        return [
            (table["name"], key)
            for table in self.metadata["tables"]
            for key in table["foreign_keys"]
        ]

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        """Numbers by kind and name."""
        names = {"key": [key_name(child, key) for child, key in self._keys]}
        for kind in ("task", "table"):
            names[kind] = [entry["name"] for entry in self.metadata[f"{kind}s"]]
        return {kind: {name: i for i, name in enumerate(names[kind])} for kind in names}

    def _nearest_keys(self, table: str, keys: Sequence[Any]) -> list[Any]:
        """Among the first rows of a table, the keys that read most like ones that are not there."""
        entry = self._table(self.table_index(table))
        names, (low, high) = entry["primary_key"], entry["row_range"]
        rows = range(low, min(high, low + NEAREST_AMONG))
        known = {"\n".join(parts).casefold(): parts for parts in map(self.core.row_key, rows)}
        near = []
        for key in keys:
            text = "\n".join(key_texts(key, names, f"table '{table}'"))
            for match in difflib.get_close_matches(text.casefold().strip(), known, 1):
                values = tuple(map(key_value, known[match]))
                near.append(values[0] if len(names) == 1 else values)
        return near

    def _key(self, row: int, table: dict[str, Any]) -> dict[str, Any]:
        if not table["primary_key"]:
            return {}
        parts = self.core.row_key(row)
        return dict(zip(table["primary_key"], map(key_value, parts), strict=True))

    def _links(self, row: int, table: dict[str, Any]) -> dict[str, Any]:
        """Values of foreign key columns, from the keys of the parents."""
        values = {}
        for key, parent in zip(table["foreign_keys"], self.parents(row), strict=True):
            if int(parent) != NO_ROW:
                found = self._key(int(parent), self._table(self.core.row_table(int(parent))))
                for column, name in zip(key["columns"], key["references"]["columns"], strict=True):
                    if name in found:
                        values[column] = found[name]
        return values

    def _cell(self, row: int, number: int, column: dict[str, Any]) -> Any:
        stype, is_null, value, time, index = self.core.cell(row, number)
        if is_null:
            return None
        match SemanticType(stype):
            case SemanticType.NUMERICAL:
                return _rounded(value, column["stats"])
            case SemanticType.TIMESTAMP:
                return datetime_of(time)
            case SemanticType.BOOLEAN:
                return value != 0
            case SemanticType.CATEGORICAL:
                stats = column["stats"]
                return stats["categories"][index - stats["cat_emb_start"]]
            case SemanticType.TEXT:
                return self.core.text(index)
            case _:
                return True


def faults_of(core: binding.Store) -> list[str]:
    """Every fault in the contents of a store, with those of metadata.json that keep Python from
    using it."""
    faults = core.verify()
    try:
        return faults + metadata_faults(core.metadata(), core.counts())
    except StoreError as error:
        return faults or [str(error)]


def _rounded(value: float, stats: dict[str, Any]) -> float:
    """Without the noise below float32: a value is stored as a z-score of 24 bits."""
    scale = max(abs(stats["mean"]), stats["std"], abs(value))
    if not 0 < scale < math.inf:
        return value
    return round(value, FLOAT32_DIGITS - 1 - math.floor(math.log10(scale))) + 0.0  # -0.0 is 0


def key_name(child: str, key: Mapping[str, Any]) -> str:
    """How a foreign key is called: its table and columns, "lines.order_id+line_no"."""
    return f"{child}.{'+'.join(key['columns'])}"


def row_counts(metadata: Mapping[str, Any]) -> dict[str, int]:
    """How many rows each table has, by its name."""
    ranges = {table["name"]: table["row_range"] for table in metadata["tables"]}
    return {name: high - low for name, (low, high) in ranges.items()}


def column_numbers(metadata: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, int]:
    """The global numbers of a table's columns by name."""
    start, end = table["column_range"]
    columns = metadata["columns"][start:end]
    return {column["name"]: number for number, column in enumerate(columns, start)}


def word(option: str, value: str, words: dict[str, int]) -> int:
    """The number of a word of an option; ValueError names the words there are."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{option} is {value!r}, expected one of {', '.join(map(repr, words))}")
    return words[value]


def _index(what: str, name: str, numbers: Mapping[str, int]) -> int:
    if not isinstance(name, str):
        raise TypeError(f"the {what} is {name!r}, expected its name")
    if name in numbers:
        return numbers[name]
    near = difflib.get_close_matches(name, numbers, 1)
    known = list(numbers)
    hint = f", did you mean '{near[0]}'?" if near else f" among {known}" if known else ""
    raise ValueError(f"the store has no {what} '{name}'{hint}")
