"""hw_seed_pool: seeds of a split in the hands of a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int64, c_uint32, c_uint64, cast
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from headwater.binding.conversions import u32, u32_array, u64
from headwater.binding.header import STRUCTS
from headwater.binding.library import Handle, call, lib, own
from headwater.binding.options import SamplerOptions
from headwater.binding.store import Store

DRAWN: tuple[tuple[str, type[np.generic], type[Any]], ...] = (
    ("seeds", np.uint32, c_uint32), ("epochs", np.uint32, c_uint32), ("rows", np.uint32, c_uint32),
    ("obs_times", np.int64, c_int64), ("labels", np.float64, c_double),
)  # fmt: skip


class SeedPool:
    """One thread at a time. options: members of hw_sampler_options; None is left at its default."""

    def __init__(
        self, store: Store, split: SupportsIndex, *, require_label: bool,
        label_columns: Sequence[int] | None, **options: Any,
    ) -> None:  # fmt: skip
        counts = store.counts()
        more = counts["table_count"] if options.get("seed_tables") is not None else 0
        self._position_count = counts["task_count"] + more
        given = SamplerOptions(options)
        columns = None if label_columns is None else u32_array(label_columns)
        self._handle = Handle(lib.hw_seed_pool_close)
        call(
            lib.hw_seed_pool_open, store.open_handle(), given.address, u32(split),
            int(require_label), columns, byref(self._handle.out),
        )  # fmt: skip

    def keep(self, first: SupportsIndex, step: SupportsIndex, most: SupportsIndex, /) -> None:
        """Keeps entry first, first + step, ... of each task's seeds, and begins anew."""
        call(lib.hw_seed_pool_keep, self._handle, u32(first), u32(step), u32(most))

    def count(self) -> int:
        return int(lib.hw_seed_pool_count(self._handle))

    def remaining(self) -> int:
        return int(lib.hw_seed_pool_remaining(self._handle))

    def next(self, count: SupportsIndex, /) -> tuple[int, dict[str, NDArray[Any]]]:
        """The task's number, and by name of hw_drawn_seeds its next seeds, [count] or [0]."""
        task, taken, size = c_uint32(), c_uint32(), u32(count)
        arrays = {name: np.empty(size, dtype) for name, dtype, _ in DRAWN}
        drawn = STRUCTS["hw_drawn_seeds"]()
        for name, _, item in DRAWN:
            setattr(drawn, name, cast(arrays[name].ctypes.data, POINTER(item)))
        call(
            lib.hw_seed_pool_next, self._handle, size, byref(drawn), byref(task), byref(taken)
        )  # fmt: skip
        return task.value, {name: own(array[: taken.value]) for name, array in arrays.items()}

    def get_position(self) -> tuple[list[int], int]:
        """Seeds drawn by task of the store, and calls of next."""
        positions, batches = (c_uint64 * self._position_count)(), c_uint64()
        lib.hw_seed_pool_get_position(self._handle, positions, byref(batches))
        return list(positions), batches.value

    def start_at(self, position: int, /) -> None:
        """Puts every task there."""
        self.set_position([position] * self._position_count, 0)

    def set_position(self, positions: list[int], batches: SupportsIndex, /) -> None:
        if len(positions) != self._position_count:
            raise ValueError(f"expected {self._position_count} positions, one per task")
        given = (c_uint64 * len(positions))(*map(u64, positions))
        lib.hw_seed_pool_set_position(self._handle, given, u64(batches))
