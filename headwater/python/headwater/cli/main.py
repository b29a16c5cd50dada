"""The command `headwater`: init, build, inspect, sample, verify, audit, bench.

Exit status 0 on success, 1 on bad input with one message on stderr, 2 on wrong usage. A reader of
stdout or stderr that is gone changes neither what a command does nor its status.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from headwater.cli.arguments import parser
from headwater.console import keep_places, say
from headwater.errors import HeadwaterError
from headwater.interrupts import INTERRUPTED, Interrupts, is_interrupt, run_process


def command() -> None:
    """Entry point of the process."""
    run_process(main)


def main(arguments: Sequence[str] | None = None) -> int:
    keep_places()
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode is no reason to fail
    with Interrupts() as interrupts, warnings.catch_warnings():
        warnings.showwarning = _warn
        try:
            return int(options.command(options))
        except KeyboardInterrupt:
            said = ""
        except Exception as error:
            if not interrupts.is_made:  # else it may be what a library made of Ctrl-C
                return _failed(error)
            said = "" if is_interrupt(error) else f" ({_message(error)})"
    say(f"headwater: interrupted{said}")
    return INTERRUPTED


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"headwater: warning: {message}")


def _failed(error: Exception) -> int:
    """Print the error of a user; raise a fault of ours."""
    if not isinstance(error, (HeadwaterError, OSError, ValueError, ImportError, MemoryError)):
        raise error
    say(f"headwater: {_message(error)}")
    return 1


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    if isinstance(error, MemoryError) and not str(error):
        return "no memory is left for this process"
    return str(error) or type(error).__name__
