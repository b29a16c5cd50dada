"""A batch in one piece of memory: its arrays side by side, each from a multiple of 64 bytes on."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import headwater
import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64

Bytes = NDArray[np.uint8]


def padded(size: int) -> int:
    """Bytes up to where the next array begins."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays of a batch side by side: name, whether it belongs to `info`, dtype and shape."""

    arrays: tuple[tuple[str, bool, str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, batch: headwater.Batch) -> Layout:
        """That of a batch of the sampler."""
        parts = [(False, batch), (True, batch.info)]
        return cls(
            tuple(
                (name, is_info, array.dtype.newbyteorder("<").str, array.shape)
                for is_info, arrays in parts
                for name, array in arrays.items()
            )
        )

    @classmethod
    def from_json(cls, arrays: Sequence[Sequence[Any]]) -> Layout:
        """As the manifest has it."""
        return cls(tuple((name, info, dtype, tuple(shape)) for name, info, dtype, shape in arrays))

    @functools.cached_property
    def size(self) -> int:
        """Bytes of a batch, with the zeros between and behind its arrays."""
        return sum(padded(size_of(dtype, shape)) for _, _, dtype, shape in self.arrays)

    def write(self, batch: headwater.Batch, memory: Bytes) -> None:
        """Copy a batch into `size` bytes that are 0."""
        place = 0
        for name, is_info, dtype, shape in self.arrays:
            size = size_of(dtype, shape)
            array = np.ascontiguousarray((batch.info if is_info else batch)[name], dtype)
            memory[place : place + size] = array.reshape(-1).view(np.uint8)
            place += padded(size)

    def read(self, memory: Bytes) -> WholeBatch:
        """The batch that lies in some bytes, without a copy."""
        found: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        place = 0
        for name, is_info, dtype, shape in self.arrays:
            size = size_of(dtype, shape)
            found[is_info][name] = memory[place : place + size].view(dtype).reshape(shape)
            place += padded(size)
        batch = WholeBatch.of(*found)
        assert isinstance(batch, WholeBatch)
        batch.layout, batch.memory = self, memory
        return batch


class WholeBatch(headwater.Batch):  # type: ignore[misc]
    """A batch that lies in one piece of memory."""

    layout: Layout
    memory: Bytes


@functools.cache
def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of an array."""
    return np.dtype(dtype).itemsize * math.prod(shape)
