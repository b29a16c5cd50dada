"""hw_pass: a finite run over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import Any, SupportsIndex

from headwater.binding.batch import Batch
from headwater.binding.conversions import i64_array, u32, u32_array
from headwater.binding.library import Handle, lib
from headwater.binding.sampler import Sampler, call
from headwater.errors import SamplerShutdown


class Pass:
    """A finite run over the seeds of a split, over given anchors, or over chosen seeds of a task
    and the epoch of each; is_levelled: in batches of them that are levelled one by one.

    A close() that comes while another thread waits inside next() is carried out when that thread
    leaves, with an error.
    """

    def __init__(
        self,
        sampler: Sampler,
        split: SupportsIndex,
        task: SupportsIndex,
        index: SupportsIndex,
        anchors: Sequence[int] | None = None,
        obs_times: Sequence[int] | None = None,
        *,
        chosen: tuple[Any, Any] | None = None,
        is_levelled: bool = False,
    ) -> None:
        made_by = sampler.open_handle()
        handle = Handle(lib.hw_pass_close)
        out = byref(handle.out)
        if chosen is not None:
            seeds, epochs = map(u32_array, chosen)
            if len(epochs) != len(seeds):
                raise ValueError("expected one epoch per seed")
            opened = lib.hw_pass_open_levelled if is_levelled else lib.hw_pass_open_chosen
            call(opened, made_by, u32(task), seeds, epochs, len(seeds), out)
        elif anchors is None:
            call(lib.hw_pass_open, made_by, u32(split), u32(task), u32(index), out)
        else:
            rows, times = u32_array(anchors), i64_array(obs_times or ())
            if len(times) != len(rows):
                raise ValueError("expected one obs_time per anchor")
            call(lib.hw_pass_open_seeds, made_by, u32(task), rows, times, len(rows), out)
        self._sampler = sampler
        self._handle: Handle | None = handle
        sampler.passes[id(self)] = self

    def next(self, timeout: float | None, /) -> Batch | None:
        """None at the end, or once it was closed."""
        handle = self._handle
        if handle is None:
            self._sampler.open_handle()  # was it shut down?
            return None
        batch = self._sampler.wait(lib.hw_pass_next, (handle,), timeout)
        if self._handle is None:
            raise SamplerShutdown("the pass was closed while a batch of it was waited for")
        return batch

    def batch_count(self) -> int:
        """Batches of the whole pass on this rank."""
        handle = self._handle
        return 0 if handle is None else int(lib.hw_pass_batch_count(handle))

    def close(self) -> None:
        """Drops what is queued; idempotent."""
        self._handle = None
