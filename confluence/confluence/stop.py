"""Stopping a training run on request: SIGTERM or Ctrl-C, the step ends, a checkpoint is saved.

A handler only takes note; the loop asks after each step. A second Ctrl-C does not wait. Handlers
can be set in the main thread alone; elsewhere nothing changes and a run stops as Python does.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
NOTE = "stopping after this step, to save; Ctrl-C once more stops at once\n"


class TrainingStopped(KeyboardInterrupt):
    """Training ended early because it was asked to, and saved its state; the message says how to
    go on."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopRequest:
    """Context in which SIGTERM and Ctrl-C are taken note of."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_made(self) -> bool:
        """Whether the run should stop."""
        return self.signal_number is not None

    def name(self) -> str:
        """What asked for it."""
        return "Ctrl-C" if self.signal_number == signal.SIGINT else "SIGTERM"

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_made() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.is_made():
            self.signal_number = number
            sys.stderr.write(NOTE)
            sys.stderr.flush()
