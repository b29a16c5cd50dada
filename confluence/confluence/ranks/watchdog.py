"""Ends a rank that waits in vain for another one, and says for which.

A collective waits for all ranks and cannot be interrupted. So the main thread of each rank beats as
it goes from step to step, the same beats on every rank, and a thread publishes how many there were
and the last one's name. A rank whose own beat is older than the limit compares: those with the
fewest beats did not come, the others wait for them. It says so, to the other ranks too, and leaves
the process without asking the main thread, which cannot answer. The same thread ends this rank when
another one failed or when the launcher is gone.

A rank that was killed beats no more either, but its links break, which ends a collective of the
others with an error that names nobody, or the wrong one. Each rank also publishes how often it has
looked: whose count stands still has gone.

What is published lies in JAX's coordination service, in rank 0's process. If that is stopped, calls
to it do not return; a second thread therefore judges, from what was read last.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.shared import say

FAILURE = "confluence/failure"
BEATS = "confluence/beats/"
PARTS = 20  # looks within the limit
LONGEST_LOOK_S, SHORTEST_LOOK_S = 2.0, 0.05
GONE_LOOKS, LEAST_GONE_S = 2, 0.5  # without a new count of a rank's
EXIT_STATUS = 1


class Beat(NamedTuple):
    """How far a rank has come."""

    number: int
    doing: str


class RankFailedError(ConnectionError):
    """Another rank ended or was silent, and this one ends with it; the message says why."""


class Failure(NamedTuple):
    """Why all ranks end, as the first that noticed says."""

    rank: int
    message: str


def explain_silence(
    beats: Sequence[Beat | None], rank: int, timeout_s: float, *, names: Sequence[str],
    answers: bool,
) -> str:  # fmt: skip
    """Why `rank` has waited for longer than the limit.

    Args:
        beats: the last known of each rank; None: it has never published any.
        answers: whether rank 0, where they are published, still answers.
    """
    limit = f"for more than {timeout_s:g} s (collective_timeout_s)"
    if not answers and rank != 0:
        return f"{names[0]} is silent: it has not answered {limit}{_last(beats[0])}"
    counts = [-1 if beat is None else beat.number for beat in beats]
    silent = [r for r, count in enumerate(counts) if count == min(counts)]
    if len(silent) == len(beats):
        return f"no rank has made progress {limit}{_last(beats[rank])}: none is behind the others"
    waiting = next(r for r in range(len(beats)) if r not in silent)
    who = ", ".join(names[r] for r in silent)
    are = "is" if len(silent) == 1 else "are"
    return (
        f"{who} {are} silent{_last(beats[silent[0]])}: {names[waiting]} has waited {limit},"
        f" at {_name(beats[waiting])}"
    )


def _last(beat: Beat | None) -> str:
    return "" if beat is None else f", last at {_name(beat)}"


def _name(beat: Beat | None) -> str:
    return "its start" if beat is None else f"'{beat.doing}'"


class Watchdog:
    """The two threads of one rank. `store` is JAX's client of the coordination service."""

    def __init__(
        self, store: Any, *, rank: int, names: Sequence[str], timeout_s: float,
        launcher: int | None = None, end: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            names: what to call each rank.
            launcher: the process that started this one.
            end: what to do instead of leaving.
        """
        self.on_end: Callable[[str], None] = lambda message: None  # told before the process ends
        self.timeout_s = timeout_s
        self._store, self._rank, self._names, self._launcher = store, rank, names, launcher
        self._end = end or leave
        self._look_s = min(LONGEST_LOOK_S, max(SHORTEST_LOOK_S, timeout_s / PARTS))
        self._beat = Beat(0, "joining")
        self._beat_at = self._answered_at = time.monotonic()
        self._beats: list[Beat | None] = [None] * len(names)
        self._looks = [0] * len(names)  # how often each rank has published, as read last
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"watchdog-{work.__name__}", daemon=True)
            for work in (self._publish, self._judge)
        ]
        for thread in self._threads:
            thread.start()

    def beat(self, doing: str) -> None:
        """The main thread goes on with this. Every rank makes the same beats."""
        self._beat = Beat(self._beat.number + 1, doing)
        self._beat_at = time.monotonic()

    def still(self) -> None:
        """The main thread is still at what it began last, which takes long and ends by itself."""
        self._beat_at = time.monotonic()

    def tell_failure(self, message: str) -> None:
        """End the other ranks with the reason; the first one's stays.

        Rank 0 then waits until they can have read it: its end is also that of the service.
        """
        try:
            self._store.key_value_set(FAILURE, json.dumps([self._rank, message]))
        except Exception:  # another rank was first, or the service is gone: nobody to tell
            return
        if self._rank == 0:
            time.sleep(2 * self._look_s)

    def reason(self) -> str | None:
        """Why the ranks end, if one has said so already."""
        try:
            failure = Failure(*json.loads(self._store.key_value_try_get(FAILURE)))
        except Exception:  # there is none, or nobody to ask
            return None
        return failure.message if failure.rank == self._rank else self._of_another(failure)

    def gone(self) -> str | None:
        """Which ranks have ended without a word, if any; takes some looks."""
        wait_s = max(GONE_LOOKS * self._look_s, LEAST_GONE_S)
        time.sleep(wait_s)  # what they had published is read meanwhile
        before = list(self._looks)
        time.sleep(wait_s)
        gone = [r for r, looks in enumerate(self._looks) if looks == before[r]]
        if not gone or self._rank in gone:  # then nothing was read
            return None
        who, are = ", ".join(self._names[r] for r in gone), "is" if len(gone) == 1 else "are"
        return f"{who} {are} gone without a word, as when killed{_last(self._beats[gone[0]])}"

    def stop(self) -> None:
        """All is done; whoever is late no longer matters."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the threads after `stop`: an interpreter that ends while one of them is in a
        call to the service aborts the process. A call that does not return is not waited for."""
        for thread in self._threads:
            thread.join(timeout=LONGEST_LOOK_S)

    def _publish(self) -> None:
        wait_s, looks = 0.0, 0
        while not self._stopped.wait(wait_s):
            wait_s, looks = self._look_s, looks + 1
            try:
                self._store.key_value_set(
                    f"{BEATS}{self._rank}", json.dumps([*self._beat, looks]), allow_overwrite=True
                )
                failure = self._read()
            except Exception:  # of the service; the other thread notices that nothing is answered
                continue
            self._answered_at = time.monotonic()
            if failure is not None and failure.rank != self._rank:
                self._leave(self._of_another(failure))

    def _read(self) -> Failure | None:
        found = dict(self._store.key_value_dir_get("confluence/"))
        for rank in range(len(self._names)):
            if (text := found.get(f"{BEATS}{rank}")) is not None:
                *beat, self._looks[rank] = json.loads(text)
                self._beats[rank] = Beat(*beat)
        return Failure(*json.loads(found[FAILURE])) if FAILURE in found else None

    def _judge(self) -> None:
        while not self._stopped.wait(self._look_s):
            if self._launcher is not None and os.getppid() != self._launcher:
                self._leave("the process that started the ranks is gone")
            now = time.monotonic()
            if now - self._beat_at <= self.timeout_s:
                continue
            message = explain_silence(
                self._beats, self._rank, self.timeout_s, names=self._names,
                answers=now - self._answered_at <= max(3 * self._look_s, self.timeout_s / 2),
            )  # fmt: skip
            teller = threading.Thread(target=self.tell_failure, args=(message,), daemon=True)
            teller.start()
            teller.join(timeout=3 * self._look_s)  # without rank 0 it does not return
            self._leave(message)

    def _leave(self, message: str) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            with contextlib.suppress(Exception):  # such as of a full disk: the end comes anyway
                self.on_end(message)
            self._end(message)

    def _of_another(self, failure: Failure) -> str:
        return f"{self._names[failure.rank]} ended: {failure.message}"


def leave(message: str) -> None:
    """End this process now, with the reason."""
    say(f"confluence: {message}")
    os._exit(EXIT_STATUS)
