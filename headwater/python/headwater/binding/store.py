"""hw_store: an open store for people, tests and samplers."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from ctypes import (
    byref,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
    string_at,
)
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from headwater.binding.background import listen
from headwater.binding.conversions import UINT32_MAX, path, u32
from headwater.binding.header import CALLBACKS
from headwater.binding.library import Handle, as_dict, call, filled, lib, own, read, view

KEY_PART_BYTES_MAX = 2**31 - 1
SEED_ARRAYS = {
    "anchors": "<u4",
    "obs_times": "<i8",
    "targets": "<u8",
    "states": "|u1",
    "key_hashes": "<u8",
    "positions": "<u4",
    "label_times": "<i8",
}


class Store:
    """An open store. Arrays over it keep the map alive after close()."""

    def __init__(self, path_: str | os.PathLike[str], load: SupportsIndex = 0) -> None:
        handle = Handle(lib.hw_store_close)
        call(lib.hw_store_open, path(path_), u32(load), byref(handle.out))
        self._handle: Handle | None = handle

    def open_handle(self) -> Handle:
        """The open store; ValueError if it was closed."""
        handle = self._handle
        if handle is None:
            raise ValueError("the store is closed")
        return handle

    def close(self) -> None:
        """Drops the map; arrays over it keep it alive."""
        self._handle = None

    def counts(self) -> dict[str, int]:
        """table_count, column_count, key_count, task_count, row_count, category_count, text_count,
        text_dim."""
        return as_dict(read("hw_store_counts", lib.hw_store_get_counts, self.open_handle()))

    def fingerprint(self) -> str:
        """32 hex digits over the contents."""
        return str(lib.hw_store_fingerprint(self.open_handle()).decode())

    def directory(self) -> str:
        """Directory of the build that is open."""
        return os.fsdecode(lib.hw_store_directory(self.open_handle()))

    def metadata(self) -> bytes:
        """metadata.json of the build that is open."""
        handle, text, size = self.open_handle(), c_void_p(), c_size_t()
        call(lib.hw_store_metadata, handle, byref(text), byref(size))
        return string_at(text.value or 0, size.value)

    def key_columns(self, key: SupportsIndex, /) -> list[int]:
        """Global columns of a foreign key, in its child table."""
        found = read("hw_key_info", lib.hw_store_key_info, self.open_handle(), u32(key))
        columns: list[int] = found.columns[: found.column_count]
        return columns

    # ---- its files ---------------------------------------------------------------------------

    def verify(self) -> list[str]:
        """Every fault in the contents; [] if sound."""
        handle, count = self.open_handle(), c_uint64()
        faults: list[str] = []

        def work(tell: Callable[..., int]) -> None:
            def fault(_context: object, message: bytes) -> None:
                tell(message.decode("utf-8", "replace"))

            callback = CALLBACKS["hw_fault_callback"](fault)
            call(lib.hw_store_verify, handle, callback, None, byref(count))

        listen(work, faults.append)
        return faults

    def identity(self) -> str:
        """32 hex digits of this build in these very files."""
        handle, identity = self.open_handle(), create_string_buffer(33)
        lib.hw_store_identity(handle, identity)
        return identity.value.decode()

    def check_files(
        self,
        verify: SupportsIndex,
        folder: str | os.PathLike[str] | None,
        progress: Callable[[int, int], object],
        /,
    ) -> tuple[int, str]:
        """How it was verified (VERIFIED), and why that is not remembered, or ''."""
        handle, found = self.open_handle(), filled("hw_verification")
        how, where = u32(verify), None if folder is None else path(folder)

        def work(tell: Callable[..., int]) -> None:
            def told(_context: object, done: int, total: int) -> int:
                return tell(done, total)

            callback = CALLBACKS["hw_progress_callback"](told)
            call(lib.hw_store_check_files, handle, how, where, callback, None, byref(found))

        listen(work, progress)
        return found.how, found.not_remembered.decode("utf-8", "replace")

    def warm_up(self, threads: SupportsIndex, /) -> None:
        """Reads every page once."""
        call(lib.hw_store_warm_up, self.open_handle(), u32(threads))

    # ---- rows --------------------------------------------------------------------------------

    def row_table(self, row: SupportsIndex, /) -> int:
        """Table of a global row."""
        handle, table = self.open_handle(), c_uint32()
        call(lib.hw_store_row_table, handle, u32(row), byref(table))
        return table.value

    def row_time(self, row: SupportsIndex, /) -> int:
        """Microseconds; INT64_MAX or INT64_MIN where the row has no time."""
        handle, time = self.open_handle(), c_int64()
        call(lib.hw_store_row_time, handle, u32(row), byref(time))
        return time.value

    def row_times(self, table: SupportsIndex, /) -> NDArray[np.int64] | None:
        """int64 [rows of the table]: times as of row_time; None if rows have none."""
        handle, times, rows = self.open_handle(), c_void_p(), c_uint32()
        call(lib.hw_store_row_times, handle, u32(table), byref(times), byref(rows))
        return view(handle, times.value, "<i8", (rows.value,)) if times.value else None

    def cell(
        self, row: SupportsIndex, column: SupportsIndex, /
    ) -> tuple[int, bool, float, int, int]:
        """(stype, is_null, number, time_us, index) of a row in a global column of its table."""
        cell = read("hw_cell", lib.hw_store_cell, self.open_handle(), u32(row), u32(column))
        return cell.stype, bool(cell.is_null), cell.number, cell.time_us, cell.index

    def parent(self, row: SupportsIndex, key: SupportsIndex, /) -> int | None:
        """Parent by foreign key."""
        handle, found = self.open_handle(), c_uint32()
        call(lib.hw_store_parent, handle, u32(row), u32(key), byref(found))
        return None if found.value == UINT32_MAX else found.value

    def children(self, row: SupportsIndex, key: SupportsIndex, /) -> NDArray[np.uint32]:
        """uint32 [n]: global rows that point at `row` by the key, oldest first."""
        handle, rows, count = self.open_handle(), c_void_p(), c_uint32()
        call(lib.hw_store_children, handle, u32(row), u32(key), byref(rows), byref(count))
        return view(handle, rows.value, "<u4", (count.value,))

    # ---- keys and texts ----------------------------------------------------------------------

    def row_key(self, row: SupportsIndex, /) -> tuple[str, ...]:
        """Primary key of a row."""
        handle, key, size = self.open_handle(), c_void_p(), c_size_t()
        call(lib.hw_store_row_key, handle, u32(row), byref(key), byref(size))
        return _key_parts(string_at(key.value or 0, size.value))

    def find(self, table: SupportsIndex, parts: list[str], /) -> int | None:
        """Global row of a primary key, by its canonical texts."""
        handle, row, key = self.open_handle(), c_uint32(), b""
        for part in parts:
            encoded = part.encode()
            if len(encoded) > KEY_PART_BYTES_MAX:
                raise ValueError("a key part has more than 2^31 bytes")
            key += struct.pack("<I", len(encoded)) + encoded
        call(lib.hw_store_find, handle, u32(table), key, len(key), byref(row))
        return None if row.value == UINT32_MAX else row.value

    def text(self, index: SupportsIndex, /) -> str:
        """Text of a text cell."""
        handle, text, size = self.open_handle(), c_void_p(), c_size_t()
        call(lib.hw_store_text, handle, u32(index), byref(text), byref(size))
        return string_at(text.value or 0, size.value).decode("utf-8", "replace")

    # ---- arrays ------------------------------------------------------------------------------

    def vectors(self, kind: SupportsIndex, /) -> NDArray[np.float16]:
        """float16 [count, text_dim]: the embeddings of a kind."""
        handle, data, count = self.open_handle(), c_void_p(), c_uint64()
        call(lib.hw_store_vectors, handle, u32(kind), byref(data), byref(count))
        width = self.counts()["text_dim"]
        return view(handle, data.value, "<f2", (count.value, width))

    def seeds(self, task: SupportsIndex, /) -> dict[str, NDArray[Any]]:
        """anchors uint32, obs_times int64, targets uint64 (float64 bits, us, 0/1 or index in the
        block), states uint8 (label state | split << 4), key_hashes uint64, positions uint32, and
        label_times int64 where the task says when labels are known; all [seeds]."""
        handle = self.open_handle()
        found = read("hw_seeds", lib.hw_store_seeds, handle, u32(task))
        return {
            name: view(handle, cast(getattr(found, name), c_void_p).value, typestr, (found.count,))
            for name, typestr in SEED_ARRAYS.items()
            if name != "label_times" or found.label_times
        }

    def edges(
        self, key: SupportsIndex, /
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]:
        """starts uint64 [parent rows + 1], child rows uint32 [n], when visible int64 us [n]."""
        handle, number, parent_rows, count = self.open_handle(), u32(key), c_uint32(), c_uint64()
        call(lib.hw_store_edge_counts, handle, number, byref(parent_rows), byref(count))
        starts = np.empty(parent_rows.value + 1, np.uint64)
        rows, times = np.empty(count.value, np.uint32), np.empty(count.value, np.int64)
        addresses = (array.ctypes.data for array in (starts, rows, times))
        call(lib.hw_store_edges, handle, number, *addresses)
        return own(starts), own(rows), own(times)

    def column(self, column: SupportsIndex, /) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Cells as numbers float64 [rows], when known int64 us [rows], of a table's column."""
        handle, number, rows = self.open_handle(), u32(column), c_uint32()
        call(lib.hw_store_column_rows, handle, number, byref(rows))
        numbers, times = np.empty(rows.value, np.float64), np.empty(rows.value, np.int64)
        call(lib.hw_store_column, handle, number, numbers.ctypes.data, times.ctypes.data)
        return own(numbers), own(times)


def _key_parts(key: bytes) -> tuple[str, ...]:
    """The parts of a length-prefixed key, whose bytes come from a file: lengths are checked."""
    parts, at = [], 0
    while len(key) - at >= 4:
        (length,) = struct.unpack_from("<I", key, at)
        at += 4
        if length > len(key) - at:
            break
        parts.append(key[at : at + length].decode("utf-8", "replace"))
        at += length
    return tuple(parts)
