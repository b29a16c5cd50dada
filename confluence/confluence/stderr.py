"""Lines for people on stderr, which may be gone while a run goes on: a terminal that was closed, a
pipe that nobody reads any more."""

from __future__ import annotations

import contextlib
import os
import sys


def say(line: str) -> None:
    """Write a line at once; where nobody can read it, this and all later ones are lost."""
    if sys.stderr is None:  # it was closed before Python began
        return
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # ValueError: of a stream that was closed
        _silence()


def _silence() -> None:
    """Let stderr lead nowhere, so that whatever else writes there does not fail in its turn."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stderr.fileno())
        finally:
            os.close(nowhere)
