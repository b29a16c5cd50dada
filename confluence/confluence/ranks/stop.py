"""Stopping a training run on request: SIGTERM, Ctrl-C or a closed terminal (SIGHUP), the step ends,
a checkpoint is saved.

A handler only takes note; the loop asks after each step. A second Ctrl-C does not wait. Handlers
can be set in the main thread alone; elsewhere nothing changes and a run stops as Python does. Under
`nohup`, which has SIGHUP ignored, it stays so.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from headwater.shared import say

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOTE = "stopping after this step, to save; Ctrl-C once more stops at once"


class TrainingStopped(KeyboardInterrupt):
    """Training ended early because it was asked to, and saved its state if it had begun; the
    message says how to go on."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def handle_stops(handler: Any) -> dict[int, Any]:
    """Set the handler of the signals that ask for a stop; returns those that were there."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [n for n in SIGNALS if not (n == signal.SIGHUP and ignored)]
    return {number: signal.signal(number, handler) for number in numbers}


class StopRequest:
    """Context in which the signals that ask for a stop are taken note of, and `note` is printed."""

    def __init__(self, note: str = NOTE) -> None:
        self.signal_number: int | None = None
        self._note_text = note
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = handle_stops(self._note)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_made(self) -> bool:
        """Whether the run should stop."""
        return self.signal_number is not None

    def name(self) -> str:
        """What asked for it."""
        number = signal.Signals(self.signal_number or signal.SIGTERM)
        return "Ctrl-C" if number == signal.SIGINT else number.name

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_made() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.is_made():
            self.signal_number = number
            say(self._note_text)
