"""Progress of long work: lines on stderr with the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.shared import say

FIRST_LINE_S, NEXT_LINE_S = 2.0, 10.0


class Progress:
    """Prints lines on stderr, once the work has taken some seconds."""

    def __init__(
        self, doing: str, shown: Callable[[int], str], *, each: Callable[[], None] = lambda: None
    ) -> None:
        """`doing`: the work, which begins each line. `shown`: writes an amount with its unit.
        `each`: called each time."""
        self._doing, self._shown, self._each = doing, shown, each
        self._start = time.monotonic()
        self._next = self._start + FIRST_LINE_S

    def __call__(self, done: int, total: int) -> None:
        """Report that `done` of `total` is done."""
        self._each()
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + NEXT_LINE_S
        left = (now - self._start) / max(done, 1) * (total - done)
        say(f"{self._doing}: {self._shown(done)} of {self._shown(total)}, {left:.0f} s left")
