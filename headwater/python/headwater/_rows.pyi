"""Rows of a database cursor as Arrow columns (headwater/ext/rows.c)."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

def pack_rows(
    rows: Iterable[tuple[Any, ...]], kinds: str, limit: SupportsIndex, /
) -> tuple[object, int, bytes]:
    """Up to `limit` rows of int, float, str, bytes and None as an Arrow C stream (a capsule), their
    number (fewer at the end, or where texts are long), and the kind of each column.

    kinds: one letter per column, what is known of it: '?' only NULL so far, 'l' int64, 'g' float64,
    'u' str, 'x' bytes, which become hexadecimal text. In the answer '!' marks a column whose values
    have no kind in common; then the stream is of no use. Integers up to 2^53 and floats have 'g' in
    common, as long as no earlier call said 'l'.
    """
