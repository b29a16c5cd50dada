"""From what Python has to what C takes: ctypes would cut an integer that is too long."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    Array,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
)
from operator import index
from typing import Any

import numpy as np

from headwater.errors import brief

UINT32_MAX = 2**32 - 1


def integer(low: int, high: int, kind: str) -> Callable[[Any], int]:
    """A conversion of one integer, from low to high."""

    def converted(value: Any) -> int:
        number = index(value)
        if not low <= number <= high:
            raise ValueError(f"{brief(value)} is not an integer {kind}")
        return number

    return converted


u32 = integer(0, UINT32_MAX, "from 0 to 2^32 - 1")
u64 = integer(0, 2**64 - 1, "from 0 to 2^64 - 1")
i32 = integer(-(2**31), 2**31 - 1, "of 32 bits")
i64 = integer(-(2**63), 2**63 - 1, "of 64 bits")


def text(value: str) -> bytes:
    """UTF-8 for a C string."""
    encoded = value.encode()
    if b"\0" in encoded:
        raise ValueError(f"{value!r} holds a zero character")
    return encoded


def path(value: str | os.PathLike[str]) -> bytes:
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded


def array_of(
    item: type[Any], dtype: type[np.integer[Any]], convert: Callable[[Any], int]
) -> Callable[[Sequence[Any]], Array[Any]]:
    """A conversion of many integers; quick where all of them are integers that fit."""
    limits = np.iinfo(dtype)

    def convert_all(values: Sequence[Any]) -> Array[Any]:
        numbers = np.asarray(values)
        fits = numbers.dtype.kind in "iu" and numbers.ndim == 1 and numbers.size > 0
        if not (fits and limits.min <= numbers.min() and numbers.max() <= limits.max):
            numbers = np.array([convert(value) for value in values], dtype)
        kept = np.array(numbers, dtype)  # contiguous, and nobody else's
        converted: Array[Any] = (item * len(kept)).from_buffer(kept)
        return converted

    return convert_all


u32_array = array_of(c_uint32, np.uint32, u32)
i64_array = array_of(c_int64, np.int64, i64)


def words(values: list[str]) -> Array[c_char_p]:
    return (c_char_p * len(values))(*map(text, values))


def weights(values: Sequence[float]) -> Array[c_double]:
    return (c_double * len(values))(*values)


# Of the fields of options.
CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    c_char_p: text,
    c_uint8: bool,
    c_uint: u32,
    c_int32: i32,
    c_uint64: u64,
    c_int64: i64,
    c_double: float,
    POINTER(c_uint32): u32_array,
    POINTER(c_char_p): words,
}
