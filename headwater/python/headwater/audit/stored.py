"""The files of a store as NumPy arrays, read by docs/reference/store-format.md alone.

An audit must not ask what it audits. Nothing here goes through the C library: the structures are
written down a second time, from the normative page, and a field that moved would show as a store
that makes no sense. Files are mapped, so a store larger than memory can be read; opening costs
O(tables).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import StoreError
from headwater.files import read_text, regular

NO_ROW = 2**32 - 1
NONE = 2**32 - 1  # no column, no offset
NO_TIME = 2**63 - 1  # of a row: hidden; of a seed: everything is visible
ALWAYS = -(2**63)  # of a row without time that is visible from the start
DAY_US = 86_400_000_000

VERSIONS = (1, 2)
MAGIC = b"\x89HWSTOR\n"
STYPES = ("identifier", "numerical", "timestamp", "boolean", "categorical", "text", "ignored")
KNOWN_KINDS = ("creation", "never", "column", "offset")
LABEL_RULES = ("default", "train", "none", "all")
TEMPORAL, NULL_TIME_VISIBLE, DAYS, TIME_IN_LANE, KEYED = 1, 2, 4, 32, 16
CELL, EXCLUSIVE, GIVEN_SPLIT, LABEL_TIMES = 1, 2, 4, 8
LABEL_VALUE, LABEL_NULL, SPLIT_HASHED = 0, 1, 15

NAME = [("offset", "<u4"), ("bytes", "<u4")]
HEADER = np.dtype(
    [
        ("magic", "V8"), ("version", "<u4"), ("byte_order", "<u4"), ("build_id", "V16"),
        ("kind", "<u4"), ("index", "<u4"), ("file_bytes", "<u8"), ("section_count", "<u4"),
        ("reserved", "<u4"), ("checksum", "<u8"),
    ]
)  # fmt: skip
SECTION = np.dtype(
    [
        ("id", "<u4"), ("element_bytes", "<u4"), ("offset", "<u8"), ("count", "<u8"),
        ("checksum", "<u8"),
    ]
)  # fmt: skip
TABLE = np.dtype(
    [
        ("name", NAME), ("flags", "<u4"), ("row_start", "<u4"), ("row_count", "<u4"),
        ("column_start", "<u4"), ("column_count", "<u4"), ("key_start", "<u4"),
        ("key_count", "<u4"), ("child_slot_count", "<u4"), ("record_bytes", "<u4"),
        ("child_offset", "<u4"), ("null_offset", "<u4"), ("temporal_column", "<u4"),
        ("timed_start", "<u4"), ("timed_count", "<u4"), ("edge_count", "<u8"),
        ("time_offset_us", "<i8"), ("reserved", "V16"),
    ]
)  # fmt: skip
COLUMN = np.dtype(
    [
        ("name", NAME), ("table", "<u4"), ("task", "<u4"), ("stype", "u1"), ("known_kind", "u1"),
        ("reserved8", "V2"), ("null_bit", "<u4"), ("lane_offset", "<u4"), ("known_column", "<u4"),
        ("known_offset_us", "<i8"), ("mean", "<f8"), ("std", "<f8"), ("category_start", "<u4"),
        ("category_count", "<u4"), ("value_count", "<u8"), ("null_count", "<u8"),
        ("reserved", "V8"),
    ]
)  # fmt: skip
KEY = np.dtype(
    [
        ("child_table", "<u4"), ("parent_table", "<u4"), ("parent_slot", "<u4"),
        ("child_slot", "<u4"), ("column_start", "<u4"), ("column_count", "<u4"),
        ("known_late", "<u4"), ("reserved32", "<u4"), ("edge_count", "<u8"),
        ("dangling_count", "<u8"), ("null_count", "<u8"), ("reserved", "V8"),
    ]
)  # fmt: skip
TASK = np.dtype(
    [
        ("name", NAME), ("flags", "<u4"), ("anchor_table", "<u4"), ("target_column", "<u4"),
        ("obs_time_column", "<u4"), ("hidden_start", "<u4"), ("hidden_count", "<u4"),
        ("seed_count", "<u4"), ("target_stype", "u1"), ("context_labels", "u1"),
        ("reserved8", "V2"), ("name_hash", "<u8"), ("reserved", "V16"),
    ]
)  # fmt: skip
LANES = {"numerical": "<f4", "timestamp": "<i8", "boolean": "<u4", "categorical": "<u4",
         "text": "<u4", "ignored": "<i8"}  # fmt: skip
SECTIONS: dict[str, tuple[int, Any]] = {
    "tables": (2, TABLE), "columns": (3, COLUMN), "keys": (4, KEY), "key_columns": (5, "<u4"),
    "tasks": (6, TASK), "hidden": (7, "<u4"), "names": (9, "u1"), "records": (16, "u1"),
    "times": (17, "<i8"), "anchors": (48, "<u4"), "obs_times": (49, "<i8"),
    "targets": (50, "<u8"), "states": (51, "u1"), "label_times": (54, "<i8"),
}  # fmt: skip

Array = NDArray[Any]


class StoredFile:
    """One file of a store: its sections by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb", opener=regular) as file:
                self.data: Array = np.memmap(file, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read '{path}': {error}") from error
        if len(self.data) < HEADER.itemsize:
            raise StoreError(f"'{path}' has no header")
        header = self.data[: HEADER.itemsize].view(HEADER)[0]
        if bytes(header["magic"]) != MAGIC or int(header["version"]) not in VERSIONS:
            raise StoreError(f"'{path}' is not of a store version {VERSIONS}")
        count = int(header["section_count"])
        listed = self.data[HEADER.itemsize : HEADER.itemsize + count * SECTION.itemsize]
        self.sections = {int(entry["id"]) >> 16: entry for entry in listed.view(SECTION)}

    def section(self, name: str) -> Array | None:
        """The elements of a section; None where the file has none of it."""
        kind, dtype = SECTIONS[name]
        entry = self.sections.get(kind)
        if entry is None:
            return None
        start, size = int(entry["offset"]), int(entry["count"]) * int(entry["element_bytes"])
        if start + size > len(self.data):
            raise StoreError(f"'{self.path}' is cut off in section {name}")
        return np.asarray(self.data[start : start + size].view(dtype))

    def needed(self, name: str) -> Array:
        found = self.section(name)
        if found is None:
            raise StoreError(f"'{self.path}' has no section {name}")
        return found


@dataclass(frozen=True)
class StoredColumn:
    """A global column; `table` is None for those of a derived task."""

    number: int
    name: str
    table: int | None
    stype: str
    known_kind: str
    known_column: int
    known_offset_us: int
    null_bit: int
    lane_offset: int
    mean: float
    std: float


@dataclass(frozen=True)
class StoredKey:
    """A foreign key by its global number; `columns` are global columns of the child."""

    number: int
    child: int
    parent: int
    slot: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class StoredTable:
    """Rows row_start .. row_start + row_count of the store; methods take rows within the table."""

    number: int
    name: str
    row_start: int
    row_count: int
    columns: tuple[StoredColumn, ...]
    keys: tuple[StoredKey, ...]
    temporal_column: int | None
    flags: int
    null_offset: int
    records: Array  # uint8 [rows, record_bytes]
    index_times: Array | None  # int64 [rows], the section TIMES

    def lane(self, column: StoredColumn, rows: Array | slice) -> Array:
        """Stored values: float32 z-scores, int64 us, uint32; without meaning where NULL."""
        dtype = np.dtype(LANES[column.stype])
        start = column.lane_offset
        part = self.records[rows, start : start + dtype.itemsize]
        return np.ascontiguousarray(part).view(dtype)[:, 0]

    def is_null(self, column: StoredColumn, rows: Array | slice) -> Array:
        """bool: whether the cell is NULL."""
        byte = self.records[rows, self.null_offset + column.null_bit // 8]
        return (byte >> (column.null_bit % 8) & 1).astype(bool)

    def parents(self, key: StoredKey, rows: Array | slice) -> Array:
        """uint32 global rows, NO_ROW where the key is NULL or dangling."""
        part = self.records[rows, 4 * key.slot : 4 * key.slot + 4]
        return np.ascontiguousarray(part).view("<u4")[:, 0]

    def times(self, rows: Array | slice) -> Array:
        """When rows become visible, int64 us, from the column that says so and not from the index
        the sampler searches; ALWAYS in a table without times."""
        if self.index_times is None:
            return np.full(self.records[rows, 0].shape, ALWAYS, np.int64)
        column = self.time_column
        if column is None or column.lane_offset == NONE:
            return np.asarray(self.index_times[rows])
        values = self.lane(column, rows).astype(np.int64)
        if self.flags & DAYS:
            values = (values // DAY_US + 1) * DAY_US
        without = ALWAYS if self.flags & NULL_TIME_VISIBLE else NO_TIME
        return np.where(self.is_null(column, rows), without, values)

    @property
    def is_timed(self) -> bool:
        return self.index_times is not None

    @property
    def time_column(self) -> StoredColumn | None:
        if self.temporal_column is None:
            return None
        return self.columns[self.temporal_column - self.columns[0].number]


@dataclass(frozen=True)
class StoredTask:
    """A task and its seeds [n] in stored order."""

    number: int
    name: str
    anchor_table: int
    is_cell: bool
    is_exclusive: bool
    given_split: bool
    target_column: int  # global
    obs_time_column: int | None  # global, of a derived task
    target_stype: str
    hidden: tuple[int, ...]  # global columns
    context_labels: str  # train, none or all
    asks_for_key: bool  # the target is a column of a foreign key: shown on no row
    anchors: Array  # uint32 global rows, ascending
    obs_times: Array  # int64 us
    targets: Array  # uint64
    states: Array  # uint8
    label_times: Array | None  # int64 us

    @property
    def special(self) -> tuple[int, ...]:
        """Columns withheld on the anchor: the hidden ones, and a cell task's target."""
        return (*self.hidden, *((self.target_column,) if self.is_cell else ()))

    def values(self) -> Array:
        """float64 [n] in source units; of a category its place in the block. NaN without a value"""
        if self.target_stype == "numerical":
            values = self.targets.view(np.float64).copy()
        elif self.target_stype == "timestamp":
            values = self.targets.view(np.int64).astype(np.float64)
        else:
            values = self.targets.astype(np.float64)
        return np.where((self.states & 15) == LABEL_VALUE, values, np.nan)


class Stored:
    """A whole store."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        manifest = self.path / "manifest.json"
        try:
            self.fingerprint = str(json.loads(read_text(manifest))["fingerprint"])
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(f"cannot read '{manifest}': {error}") from error
        self.folder = self.path / self.fingerprint
        schema = StoredFile(self.folder / "schema.bin")
        self.names = bytes(schema.needed("names"))
        self._tables, self._columns = schema.needed("tables"), schema.needed("columns")
        self._keys, self._tasks = schema.needed("keys"), schema.section("tasks")
        self._key_columns, self._hidden = schema.section("key_columns"), schema.section("hidden")
        self.columns = tuple(self._column(i) for i in range(len(self._columns)))
        self.keys = tuple(self._key(i) for i in range(len(self._keys)))
        self.tables = tuple(self._table(i) for i in range(len(self._tables)))
        self.row_starts = np.array([table.row_start for table in self.tables], np.int64)
        task_count = 0 if self._tasks is None else len(self._tasks)
        self.tasks = tuple(self._task(i) for i in range(task_count))

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """metadata.json, which a build writes from what the user declared."""
        file = self.folder / "metadata.json"
        try:
            with open(file, "rb", opener=regular) as stream:
                found: dict[str, Any] = json.load(stream)
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read '{file}': {error}") from error
        for kind, things in (
            ("tables", self.tables), ("columns", self.columns), ("tasks", self.tasks)
        ):  # fmt: skip
            if len(found.get(kind, ())) != len(things):
                raise StoreError(f"'{file}' does not describe the store's {len(things)} {kind}")
        return found

    def tables_of(self, rows: Array) -> Array:
        """Table of each global row."""
        # A table without rows starts where the next does; the last of them has the row.
        return np.asarray(np.searchsorted(self.row_starts, rows.astype(np.int64), "right") - 1)

    def full_name(self, column: StoredColumn | int) -> str:
        """table.column, or the name alone of a task's own column."""
        found = column if isinstance(column, StoredColumn) else self.columns[column]
        return (
            found.name if found.table is None else f"{self.tables[found.table].name}.{found.name}"
        )

    def key_name(self, key: StoredKey) -> str:
        names = "+".join(self.columns[column].name for column in key.columns)
        return f"{self.tables[key.child].name}.{names}"

    # ---- inside --------------------------------------------------------------------------

    def _name(self, entry: Any) -> str:
        start = int(entry["name"]["offset"])
        return self.names[start : start + int(entry["name"]["bytes"])].decode("utf-8", "replace")

    def _column(self, number: int) -> StoredColumn:
        entry = self._columns[number]
        return StoredColumn(
            number=number,
            name=self._name(entry),
            table=None if int(entry["table"]) == NONE else int(entry["table"]),
            stype=STYPES[int(entry["stype"])],
            known_kind=KNOWN_KINDS[int(entry["known_kind"])],
            **_numbers(entry, "known_column", "known_offset_us", "null_bit", "lane_offset"),
            mean=float(entry["mean"]),
            std=float(entry["std"]),
        )

    def _key(self, number: int) -> StoredKey:
        entry = self._keys[number]
        run: Array = np.zeros(0, np.uint32) if self._key_columns is None else self._key_columns
        start, count = int(entry["column_start"]), int(entry["column_count"])
        return StoredKey(
            number,
            int(entry["child_table"]),
            int(entry["parent_table"]),
            int(entry["parent_slot"]),
            tuple(map(int, run[start : start + count])),
        )

    def _table(self, number: int) -> StoredTable:
        entry = self._tables[number]
        file = StoredFile(self.folder / "tables" / f"{number:05}.bin")
        rows, record_bytes = int(entry["row_count"]), int(entry["record_bytes"])
        found = file.section("records")
        records: Array = np.zeros(0, np.uint8) if found is None else found
        if record_bytes == 0 or len(records) != rows * record_bytes:
            records = np.zeros(rows * max(record_bytes, 1), np.uint8)
            record_bytes = max(record_bytes, 1)
        first, count = int(entry["column_start"]), int(entry["column_count"])
        temporal = int(entry["temporal_column"])
        is_timed = bool(int(entry["flags"]) & TEMPORAL)
        times = file.section("times") if is_timed else None
        return StoredTable(
            number=number,
            name=self._name(entry),
            **_numbers(entry, "row_start", "row_count", "flags", "null_offset"),
            columns=self.columns[first : first + count],
            keys=tuple(key for key in self.keys if key.child == number),
            temporal_column=None if temporal == NONE else temporal,
            records=records.reshape(rows, record_bytes),
            index_times=np.zeros(0, np.int64) if is_timed and times is None else times,
        )

    def _task(self, number: int) -> StoredTask:
        assert self._tasks is not None
        entry = self._tasks[number]
        file = StoredFile(self.folder / "tasks" / f"{number:05}.bin")
        flags, start = int(entry["flags"]), int(entry["hidden_start"])
        hidden: Array = np.zeros(0, np.uint32) if self._hidden is None else self._hidden
        obs_time, target = int(entry["obs_time_column"]), int(entry["target_column"])
        asks_for_key = any(target in key.columns for key in self.keys)
        rule = LABEL_RULES[int(entry["context_labels"])]
        if rule == "default":
            rule = "none" if asks_for_key else "train"
        return StoredTask(
            number=number,
            name=self._name(entry),
            anchor_table=int(entry["anchor_table"]),
            is_cell=bool(flags & CELL),
            is_exclusive=bool(flags & EXCLUSIVE),
            given_split=bool(flags & GIVEN_SPLIT),
            target_column=target,
            obs_time_column=None if obs_time == NONE else obs_time,
            target_stype=STYPES[int(entry["target_stype"])],
            hidden=tuple(map(int, hidden[start : start + int(entry["hidden_count"])])),
            context_labels=rule,
            asks_for_key=asks_for_key,
            **{name: file.needed(name) for name in ("anchors", "obs_times", "targets", "states")},
            label_times=file.section("label_times") if flags & LABEL_TIMES else None,
        )


def _numbers(entry: Any, *names: str) -> dict[str, Any]:
    return {name: int(entry[name]) for name in names}
