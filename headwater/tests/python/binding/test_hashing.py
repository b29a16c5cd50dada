"""Checksums of bytes and of arrays of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from headwater.binding import hash64


def test_bytes_and_arrays_have_the_checksum_of_xxh64() -> None:
    assert hash64(b"") == hash64(np.empty(0, np.uint8)) == 0xEF46DB3751D8E999
    assert hash64(b"abc") == 0x44BC2CF5AD770999
    whole = np.frombuffer(b"xxabcxx", np.uint8)
    assert hash64(whole[2:5]) == hash64(b"abc")
    assert hash64(whole[2:5], 7) == hash64(b"abc", 7) != hash64(b"abc")


@pytest.mark.parametrize("array", [np.zeros(4, np.uint8)[::2], np.zeros(4, np.int8)])
def test_an_array_of_anything_else_is_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="expected bytes side by side"):
        hash64(array)
