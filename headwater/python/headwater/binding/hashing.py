"""Functions of bytes and texts that need no handle."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from headwater.binding.conversions import u32, u64
from headwater.binding.library import call, lib, own


def hash64(data: bytes | NDArray[np.uint8], seed: SupportsIndex = 0, /) -> int:
    """XXH64 of bytes, or of an array of bytes that lie side by side, which is not copied."""
    if isinstance(data, bytes):
        return int(lib.hw_hash64(data, len(data), u64(seed)))
    if data.dtype != np.uint8 or not data.flags.c_contiguous:
        raise TypeError(f"data is an array of {data.dtype}, expected bytes side by side")
    return int(lib.hw_hash64(data.ctypes.data, data.size, u64(seed)))


def hash_embed(texts: list[str], dim: SupportsIndex, /) -> NDArray[np.float16]:
    """Vectors of the `hash` embedder, float16 [len(texts), dim]."""
    width = u32(dim)
    vectors = np.zeros((len(texts), width), np.float16)
    start = vectors.ctypes.data
    for number, text in enumerate(texts):
        encoded = text.encode()
        call(lib.hw_hash_embed, encoded, len(encoded), width, start + 2 * width * number)
    return own(vectors)
