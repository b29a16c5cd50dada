"""hw_batch: arrays over the memory of a batch, and the format of batches."""

from __future__ import annotations

from ctypes import byref, c_size_t, sizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.binding.constants import DTYPES
from headwater.binding.header import STRUCTS
from headwater.binding.library import Handle, as_dict, lib, own, read, view

SIZES = STRUCTS["hw_batch_sizes"]


class Layout:
    """Where the arrays of a sampler's batches lie in their memory, and their shapes; alike in all
    batches of the same `sizes_of`.

    They are read as the fields of one record, which makes an array in a fraction of the time that
    it takes by its address.
    """

    def __init__(self, batch: Handle) -> None:
        count = lib.hw_batch_tensor_count(batch)
        tensors = [read("hw_tensor", lib.hw_batch_tensor, batch, number) for number in range(count)]
        size = c_size_t()
        start = lib.hw_batch_memory(batch, byref(size))
        self.bytes = size.value
        self.names = [tensor.name.decode() for tensor in tensors if not tensor.info]
        self.info_names = [tensor.name.decode() for tensor in tensors if tensor.info]
        self.record = np.dtype(
            {
                "names": [tensor.name.decode() for tensor in tensors],
                "formats": [
                    (DTYPES[tensor.dtype], tuple(tensor.shape[: tensor.rank])) for tensor in tensors
                ],
                "offsets": [tensor.data - start for tensor in tensors],
                "itemsize": self.bytes,
            }
        )


def sizes_of(batch: Handle) -> bytes:
    """The dimensions that differ from batch to batch, as a key."""
    sizes = SIZES(sizeof(SIZES))  # struct_bytes, without which it would be refused
    lib.hw_batch_get_sizes(batch, byref(sizes), None)
    return bytes(sizes)


class Batch:
    """The memory of one batch, which returns to the sampler with the last array over it."""

    __slots__ = ("_handle", "_layout")

    def __init__(self, handle: Handle, layout: Layout) -> None:
        self._handle, self._layout = handle, layout

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Those for a device and those of info by name, each in the order of batch_fields()."""
        layout = self._layout
        start = lib.hw_batch_memory(self._handle, None)
        memory = view(self._handle, start, "|u1", (layout.bytes,))
        record: Any = np.ndarray((), layout.record, memory)
        return (
            {name: record[name] for name in layout.names},
            {name: record[name] for name in layout.info_names},
        )


def batch_fields() -> list[tuple[str, str, tuple[str, ...], bool, str | None, str]]:
    """The batch format: (name, dtype, dims, info, when, meaning) per array."""
    numbers = range(lib.hw_batch_field_count())
    return [
        (
            field.name.decode(),
            DTYPES[field.dtype],
            tuple(dim.decode() for dim in field.dims if dim is not None),
            bool(field.info),
            None if field.when is None else field.when.decode(),
            field.meaning.decode(),
        )
        for field in (read("hw_batch_field", lib.hw_batch_field_at, number) for number in numbers)
    ]


def calendar_tables() -> dict[str, NDArray[np.float32]]:
    """float32 (sin, cos) pairs of the cyclic parts of a timestamp: sixtieths [60, 2], hours
    [24, 2], weekdays [7, 2], and dates [732, 6] by day of year + 366 in a leap year."""
    tables = as_dict(read("hw_calendar_tables", lib.hw_calendar_tables_fill))
    return {name: own(np.array(table)) for name, table in tables.items()}
