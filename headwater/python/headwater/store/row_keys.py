"""Keys and times as a caller writes them, in the form the store has them.

A key is stored as text, one per part, in DuckDB's words: 42, 42.0 and "42" are one key, and so are
a date and the midnight it begins with. Times are int64 microseconds since 1970 UTC; naive ones are
taken as UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from headwater.errors import brief

NO_TIME_US = 2**63 - 1  # as an observation time: everything is visible
ALWAYS_US = -(2**63)  # of a row without time that is visible from the start
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACT_FLOAT = 2**53

Time = int | str | date | datetime | np.datetime64


def canonical_text(value: Any) -> str:
    """The text of one part of a key."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    if isinstance(value, np.datetime64):
        value = datetime_of(time_us(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return str(int(value))
    if isinstance(value, float | Decimal):
        number = float(value)
        is_integer = number.is_integer() and abs(number) < EXACT_FLOAT
        return str(int(number)) if is_integer else repr(number)
    if isinstance(value, datetime):
        return _datetime_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if value is None:
        raise TypeError("a key part is None: a primary key is never NULL")
    return str(value)


def _datetime_text(value: datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if value == datetime(value.year, value.month, value.day):
        return value.date().isoformat()
    text = value.isoformat(" ")
    return text.rstrip("0") if value.microsecond else text


def key_texts(key: Any, names: Sequence[str], subject: str) -> list[str]:
    """The texts of a key: a scalar, a sequence of its parts, or a dict by column."""
    if isinstance(key, dict):
        if set(key) != set(names):
            raise ValueError(f"{subject} has the key columns {list(names)}, found {list(key)}")
        parts = [key[name] for name in names]
    elif isinstance(key, list | tuple):
        parts = list(key)
    else:
        parts = [key]
    if len(parts) != len(names):
        raise ValueError(f"{subject} has {len(names)} key columns {list(names)}, found {key!r}")
    return [canonical_text(part) for part in parts]


def key_value(text: str) -> int | str:
    """A key part for people: an integer where the text is one as Python writes it."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19 and str(int(text)) == text:
        return int(text)
    return text


def time_us(value: Time) -> int:
    """Microseconds of a time: an integer is taken as they are, a naive time as UTC."""
    if value != value:  # NaT of NumPy and pandas
        raise ValueError(f"expected a time (microseconds, ISO text or datetime), found {value!r}")
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not an ISO 8601 time such as '2026-11-01'") from error
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        stamp = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return (stamp - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"expected a time (microseconds, ISO text or datetime), found {value!r}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{brief(value)} microseconds are not a time: they take more than 64 bits")
    return int(value)


def datetime_of(time: int) -> datetime | int:
    """A time for people, in UTC; the microseconds where the calendar of Python ends."""
    try:
        return EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return time
