"""What the commands write for people and programs, and what becomes of it if nobody reads.

A reader that is gone ends nothing: lines for it are dropped, the command does its work, and its
exit status says how that ended. Only these functions write to stdout and stderr.

Names, values, files and messages of servers come from outside, and what they hold must not command
the terminal: `shown` spells out what is not text, so that an escape sequence is seen, not obeyed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Any, TextIO

# Control characters but tab and line feed, among them ESC, CR, BEL, DEL and C1 (a CSI in one
# character); what turns the direction of text, so that it reads as something else; separators of
# lines and paragraphs; and halves of surrogate pairs.
NOT_TEXT = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def shown(text: str) -> str:
    """Text as people may see it: what is not text is spelled as in Python, such as \\x1b."""
    return NOT_TEXT.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def to_json(value: Any, **options: Any) -> str:
    """JSON of ASCII alone, as which it may be printed."""
    return json.dumps(value, **options).replace("\x7f", "\\u007f")


def say(line: str) -> None:
    """Write a line to stderr at once; if nobody can read it, this and all later ones are lost."""
    write(sys.stderr, shown(line) + "\n")


def tell(result: object) -> bool:
    """Write a result to stdout at once; False if nobody reads it, which is not an error."""
    try:
        return _write(sys.stdout, shown(str(result)) + "\n")
    except BrokenPipeError:  # of `headwater inspect STORE | head`
        return False


def write(stream: TextIO | None, text: str) -> None:
    """Write at once what is for people; lost if nobody can read it."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: of a stream that was closed
        _write(stream, text)


def _write(stream: TextIO | None, text: str) -> bool:
    if stream is None:  # it was closed before Python began
        return False
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        silence(stream)
        raise
    return True


def silence(stream: Any) -> None:
    """Let a stream lead nowhere, so that whatever else writes there does not fail in its turn, nor
    Python when it ends, whose exit status would be 120."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def keep_places() -> None:
    """Let stdin, stdout and stderr lead nowhere if they are closed: the next file that is opened
    would get such a place, and what a library prints would be written into it."""
    for place in range(3):
        try:
            os.fstat(place)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest place that is free
