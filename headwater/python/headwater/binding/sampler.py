"""hw_sampler: a store to batches. Words and names of options are sampling/sampler.py's."""

from __future__ import annotations

import math
import time
import weakref
from contextlib import suppress
from ctypes import byref, c_double, c_uint32, c_uint64, c_void_p, cast
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from headwater.binding.batch import Batch, Layout, sizes_of
from headwater.binding.conversions import u32, u64
from headwater.binding.header import (
    HW_BAD_ARGUMENT,
    HW_END,
    HW_NO_MEMORY,
    HW_OK,
    HW_TIMED_OUT,
)
from headwater.binding.library import Error, Handle, as_dict, error_of, lib, own, read, view
from headwater.binding.options import SamplerOptions, in_python
from headwater.binding.store import Store
from headwater.errors import SamplerShutdown

SLICE_MS = 100  # after which a wait comes back to Python, so that an interrupt is seen
MOST_SECONDS = 1e12
STREAMS = (0, 1)  # train, val
SUBGRAPH_ARRAYS = {
    "rows": "<u4", "row_tables": "<i4", "row_depths": "|u1", "local_edges": "<u2",
}  # fmt: skip
ADVICE = "; lower num_prefetch, default_batch_size or default_sequence_length"


def call(function: Any, *arguments: Any) -> None:
    """Call a function of a sampler; its error names options as Python does, and of memory those to
    lower."""
    error = Error()
    if function(*arguments, byref(error)) != HW_OK:
        raise advised(error)


def advised(error: Any) -> BaseException:
    found = error_of(error, ADVICE if error.status == HW_NO_MEMORY else "")
    is_of_options = error.status in (HW_BAD_ARGUMENT, HW_NO_MEMORY)
    return type(found)(in_python(str(found))) if is_of_options else found


class Sampler:
    """A store to batches. Any thread. options: members of hw_sampler_options; None is left at its
    default."""

    def __init__(self, store: Store, **options: Any) -> None:
        opened, counts = store.open_handle(), store.counts()
        sources = [options[name] for name in ("seed_tables", "tasks") if options.get(name)]
        weights = options.get("task_weights")
        expected = len(sources[0]) if sources else counts["task_count"]
        if weights is not None and len(weights) != expected:
            raise ValueError(f"task_weights has {len(weights)} entries, expected {expected}")
        given = SamplerOptions(options)
        handle = Handle(lib.hw_sampler_close)
        call(lib.hw_sampler_open, opened, given.address, byref(handle.out))
        self._handle: Handle | None = handle
        self.passes: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.layouts: dict[bytes, Layout] = {}  # by `sizes_of`, each known with its first batch
        more = counts["table_count"] if options.get("seed_tables") is not None else 0
        self._position_count = counts["task_count"] + more

    def open_handle(self) -> Handle:
        """The sampler; SamplerShutdown if it was shut down."""
        handle = self._handle
        if handle is None:
            raise SamplerShutdown("the sampler was shut down")
        return handle

    def shutdown(self) -> None:
        """Ends production, closes passes and drops the store; idempotent, any thread. Positions and
        counters stay."""
        handle = self._handle
        if handle is None:
            return
        lib.hw_sampler_shutdown(handle)
        with suppress(RuntimeError):  # a forked child has none
            self._last_positions = [self._position(handle, split) for split in STREAMS]
            self._last_stats = self._stats(handle)
        self._handle = None
        for reference in self.passes.valuerefs():
            run = reference()
            if run is not None:
                run.close()

    # ---- batches -----------------------------------------------------------------------------

    def next(self, split: SupportsIndex, timeout: float | None, /) -> Batch:
        """Next batch of the stream of train or val."""
        batch = self.wait(lib.hw_sampler_next, (self.open_handle(), u32(split)), timeout)
        assert batch is not None
        return batch

    def batch(self, split: SupportsIndex, k: SupportsIndex, /) -> Batch:
        """Batch k of a split's stream."""
        handle = Handle(lib.hw_batch_release)
        call(lib.hw_sampler_batch, self.open_handle(), u32(split), u64(k), byref(handle.out))
        return self._made(handle)

    def wait(
        self, function: Any, arguments: tuple[Any, ...], timeout: float | None
    ) -> Batch | None:
        """A batch of a stream or a pass of this sampler; None at the end of a pass."""
        slice_ms, end = SLICE_MS, math.inf
        if timeout is not None:
            slice_ms, end = _slice_ms(_seconds(timeout)), time.monotonic() + timeout
        batch, error = Handle(lib.hw_batch_release), Error()
        while True:
            status = function(*arguments, slice_ms, None, None, byref(batch.out), byref(error))
            if status == HW_OK:
                return self._made(batch)
            if status == HW_END:
                return None
            if status != HW_TIMED_OUT:
                raise advised(error)
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no batch was ready within {timeout} s")
            slice_ms = _slice_ms(left)

    def subgraph(
        self, task: SupportsIndex, seed: SupportsIndex, epoch: SupportsIndex, both: bool, /
    ) -> dict[str, NDArray[Any]]:
        """rows uint32 [R], row_tables int32 [R], row_depths uint8 [R], local_edges uint16 [E, 2] of
        the context of a chosen seed."""
        made = Handle(lib.hw_subgraph_close)
        numbers = u32(task), u32(seed), u32(epoch), bool(both)
        call(lib.hw_sampler_subgraph, self.open_handle(), *numbers, byref(made.out))
        arrays = read("hw_subgraph_arrays", lib.hw_subgraph_get, made)
        rows, edges = (arrays.row_count,), (arrays.edge_count, 2)
        found = {}
        for name, typestr in SUBGRAPH_ARRAYS.items():
            start = cast(getattr(arrays, name), c_void_p).value
            shared = view(made, start, typestr, edges if name == "local_edges" else rows)
            found[name] = own(shared.copy())
        return found

    def _made(self, handle: Handle) -> Batch:
        sizes = sizes_of(handle)
        layout = self.layouts.get(sizes)
        if layout is None:
            layout = self.layouts[sizes] = Layout(handle)
        return Batch(handle, layout)

    # ---- what it is --------------------------------------------------------------------------

    def shape(self) -> dict[str, int]:
        """batch_size, sequence_length, max_rows, text_budget, text_dim, parent_slots,
        contexts_per_batch, contexts_per_sequence, max_targets_per_type, usual_texts,
        cells_per_batch, rows_per_batch, context_length, max_context_rows."""
        return as_dict(read("hw_shape", lib.hw_sampler_shape, self.open_handle()))

    def flat_shape(self, task: SupportsIndex, /) -> dict[str, Any]:
        """Of a task in the flat layout: cells, rows, pass_cells, pass_rows, sampled, capped."""
        handle = self.open_handle()
        return as_dict(read("hw_flat_shape", lib.hw_sampler_flat_shape, handle, u32(task)))

    def seed_count(self, split: SupportsIndex, task: SupportsIndex, /) -> int:
        """Seeds of a (split, task) over all ranks."""
        count = c_uint32()
        call(lib.hw_sampler_seed_count, self.open_handle(), u32(split), u32(task), byref(count))
        return count.value

    def splits(self, task: SupportsIndex, seed_count: SupportsIndex, /) -> NDArray[np.uint8]:
        """uint8 [seed_count]: the split of every seed of the task."""
        count = u32(seed_count)
        splits = np.zeros(count, np.uint8)
        call(lib.hw_sampler_splits, self.open_handle(), u32(task), splits.ctypes.data, count)
        return own(splits)

    def column_scale(self, column: SupportsIndex, /) -> tuple[float, float]:
        """Mean and deviation by which a column of a table is shown; times in µs."""
        mean, std = c_double(), c_double()
        call(lib.hw_sampler_column_scale, self.open_handle(), u32(column), byref(mean), byref(std))
        return mean.value, std.value

    def target_stats(self, task: SupportsIndex, /) -> dict[str, int | float]:
        """train_count, null_count, mean, std, column_mean, column_std."""
        handle = self.open_handle()
        return as_dict(read("hw_target_stats", lib.hw_sampler_target_stats, handle, u32(task)))

    # ---- positions and statistics ------------------------------------------------------------

    def get_position(self, split: SupportsIndex, /) -> tuple[list[int], int]:
        """Global positions consumed by task of the store, and batches."""
        handle = self._handle
        return self._position(handle, split) if handle else self._last_positions[split]

    def _position(self, handle: Handle, split: SupportsIndex) -> tuple[list[int], int]:
        positions, batches = (c_uint64 * self._position_count)(), c_uint64()
        call(lib.hw_sampler_get_position, handle, u32(split), positions, byref(batches))
        return list(positions), batches.value

    def set_position(
        self, split: SupportsIndex, positions: list[int], batches: SupportsIndex, /
    ) -> None:
        """Continues a stream from there; drops what was prefetched."""
        if len(positions) != self._position_count:
            count = self._position_count
            raise ValueError(f"expected {count} positions, one per task of the store")
        given = (c_uint64 * len(positions))(*map(u64, positions))
        call(lib.hw_sampler_set_position, self.open_handle(), u32(split), given, u64(batches))

    def stats(self) -> dict[str, int]:
        """The counters of hw_sampler_stats."""
        handle = self._handle
        return self._stats(handle) if handle else self._last_stats

    @staticmethod
    def _stats(handle: Handle) -> dict[str, int]:
        return as_dict(read("hw_sampler_stats", lib.hw_sampler_get_stats, handle))


def _seconds(timeout: float) -> float:
    if not 0 <= timeout < MOST_SECONDS:
        raise ValueError("timeout must be None or seconds from 0 to 1e12")
    return timeout


def _slice_ms(seconds: float) -> int:
    return math.ceil(min(seconds * 1000, SLICE_MS))
