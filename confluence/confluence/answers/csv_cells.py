"""Cells of CSV files that a spreadsheet would run as a formula, and how they are written.

Keys and categories come from a database. A text that begins with =, +, -, @, a tab or a carriage
return, and is not a number, gets an apostrophe in front, which spreadsheets take as "this is text".
A text that has apostrophes before such a character gets one more, so that each can be read again.
"""

from __future__ import annotations

import re
from typing import TypeVar

Value = TypeVar("Value")

_RUNS = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def written(value: Value) -> Value | str:
    """A value as a CSV file has it."""
    if isinstance(value, str) and _RUNS.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def as_read(cell: str) -> str:
    """The text of a cell that `written` may have written."""
    return cell[1:] if cell.startswith("'") and _RUNS.match(cell) else cell
