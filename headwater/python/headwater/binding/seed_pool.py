"""hw_seed_pool: seeds of a split in the hands of a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int64, c_uint32, c_uint64, cast
from threading import Lock
from typing import Any, SupportsIndex

import numpy as np

from headwater.binding.conversions import u32, u32_array, u64
from headwater.binding.library import Handle, call, filled, lib, own
from headwater.binding.options import SamplerOptions
from headwater.binding.store import Store

DRAWN: tuple[tuple[str, type[np.generic], type[Any]], ...] = (
    ("seeds", np.uint32, c_uint32), ("epochs", np.uint32, c_uint32), ("rows", np.uint32, c_uint32),
    ("obs_times", np.int64, c_int64), ("labels", np.float64, c_double),
)  # fmt: skip
TASKS = ("tasks", np.uint32, c_uint32)  # only if seeds are drawn together

AT_ONCE = 1 << 20

Piece = tuple[int, int, int]  # of each task's seeds: first, step, most
Position = tuple[Sequence[int], int]  # seeds drawn by task of the store, and calls of draw


class SeedPool:
    """Any thread: it stands nowhere, each call says where. options: members of hw_sampler_options;
    None is left at its default."""

    def __init__(
        self, store: Store, split: SupportsIndex, *, require_label: bool,
        label_columns: Sequence[int] | None, together: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        counts = store.counts()
        more = counts["table_count"] if options.get("seed_tables") is not None else 0
        self.task_count = counts["task_count"] + more
        given = SamplerOptions(options)
        columns = None if label_columns is None else u32_array(label_columns)
        self._lock = Lock()
        self._handle = Handle(lib.hw_seed_pool_close)
        call(
            lib.hw_seed_pool_open, store.open_handle(), given.address, u32(split),
            int(require_label), columns, byref(self._handle.out),
        )  # fmt: skip
        self._arrays = DRAWN
        if together:
            call(lib.hw_seed_pool_together, self._handle)
            self._arrays = (*DRAWN, TASKS)

    def begin(self) -> Position:
        return [0] * self.task_count, 0

    def count(self, piece: Piece, /) -> int:
        with self._lock:
            self._put(piece)
            return int(lib.hw_seed_pool_count(self._handle))

    def remaining(self, piece: Piece, position: Position, /) -> int:
        with self._lock:
            self._put(piece, position)
            return int(lib.hw_seed_pool_remaining(self._handle))

    def draw(
        self, piece: Piece, position: Position, count: SupportsIndex, /
    ) -> tuple[int, dict[str, Any], Position]:
        """The task's number (together: 2^32 - 1), by name of hw_drawn_seeds the next seeds, [count]
        or [0], and where that ends. AT_ONCE of them are drawn at a time, so that Ctrl-C is answered
        in between."""
        task, taken, batches, size = c_uint32(), c_uint32(), c_uint64(), u32(count)
        arrays = {name: np.empty(size, dtype) for name, dtype, _ in self._arrays}
        drawn = filled("hw_drawn_seeds")
        ends = (c_uint64 * self.task_count)()
        done = 0
        while done < size:
            for name, _, item in self._arrays:
                setattr(drawn, name, cast(arrays[name][done:].ctypes.data, POINTER(item)))
            part = min(size - done, AT_ONCE)
            with self._lock:
                # The batch before counts the turns: as long as it is the same, so is the task.
                self._put(piece, position if done == 0 else (list(ends), position[1]))
                call(
                    lib.hw_seed_pool_next, self._handle, part, byref(drawn), byref(task),
                    byref(taken),
                )  # fmt: skip
                lib.hw_seed_pool_get_position(self._handle, ends, byref(batches))
            if taken.value == 0:
                break
            done += taken.value
        found = {name: own(array[:done]) for name, array in arrays.items()}
        return task.value, found, (list(ends), batches.value)

    def _put(self, piece: Piece, position: Position | None = None) -> None:
        call(lib.hw_seed_pool_keep, self._handle, *map(u32, piece))
        if position is not None:
            positions = (c_uint64 * self.task_count)(*map(u64, position[0]))
            lib.hw_seed_pool_set_position(self._handle, positions, u64(position[1]))
