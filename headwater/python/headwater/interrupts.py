"""Ctrl-C while a command runs: an interrupt that a library swallowed is repeated.

Python discards an exception in any destructor or callback of the garbage collector, and some
libraries catch every exception; the command then continues as if nothing had happened. DuckDB
turns it into an error of its own. A Ctrl-C after the command, while the process ends, ends it
silently.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALLED = 128  # exit status, as a shell has it: this and the number of the signal
INTERRUPTED = SIGNALLED + signal.SIGINT
AGAIN_S = 5.0  # after which a command that continues is interrupted again
AT_ONCE_S = 0.01  # if Python reports that it discarded the interrupt
DUCKDB_SAYS = "Query interrupted"  # its RuntimeError


class Interrupts:
    """Context in which Ctrl-C is taken note of; in the main thread, and where it is not ignored."""

    def __init__(self) -> None:
        self.is_made = False
        self._before: list[Any] = []  # the handlers of Ctrl-C and of the clock, and the hook

    def __enter__(self) -> Interrupts:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = [
                signal.signal(signal.SIGINT, self._note),
                signal.getsignal(signal.SIGALRM),
                sys.unraisablehook,
            ]
            sys.unraisablehook = self._discarded
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        handler, of_clock, sys.unraisablehook = self._before
        if signal.getsignal(signal.SIGALRM) == self._again:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, of_clock)
        signal.signal(signal.SIGINT, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_made = True
        self._again_after(AGAIN_S)
        raise KeyboardInterrupt

    def _again_after(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, self._again)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _again(self, number: int, frame: FrameType | None) -> None:
        """To whoever handles Ctrl-C by now: a training ends its step and saves. Not while the
        interrupt is on its way and something cleans up behind it."""
        if _is_under_way(sys.exc_info()[1]):
            self._again_after(AGAIN_S)
        else:
            signal.raise_signal(signal.SIGINT)

    def _discarded(self, what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            self._again_after(AT_ONCE_S)
        else:
            self._before[2](what)


def run_process(main: Callable[[], int]) -> NoReturn:
    """A command as a process: run it, and exit with its status.

    A command that a signal ended has saved and closed its files by now. Its process ends without
    the interpreter's shutdown: XLA may still compile or compute in other threads, and a shutdown
    under them is a segmentation fault. A further Ctrl-C also ends the process at once; Python would
    print a traceback or "Exception ignored".
    """
    before = sys.unraisablehook

    def discarded(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            os._exit(INTERRUPTED)
        before(what)

    sys.unraisablehook = discarded
    try:
        status = main()
    except KeyboardInterrupt:  # a second one, while the command reported the first
        status = INTERRUPTED
    if status > SIGNALLED:
        leave(status)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    sys.exit(status)


def leave(status: int) -> NoReturn:
    """End the process without the interpreter's shutdown, once its output is written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None, a reader that left, closed
            stream.flush()
    os._exit(status)


def _is_under_way(handled: BaseException | None) -> bool:
    """Whether an interrupt is among what is being handled."""
    while handled is not None and not isinstance(handled, KeyboardInterrupt):
        handled = handled.__context__
    return handled is not None


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is what DuckDB makes of Ctrl-C."""
    return isinstance(error, RuntimeError) and DUCKDB_SAYS in str(error)
