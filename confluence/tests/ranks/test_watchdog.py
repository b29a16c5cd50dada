"""A rank that does not go on ends all, by its name."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from rank_processes import TIMEOUT_S, Ranks, Service

from confluence.ranks.watchdog import FAILURE, Beat, Watchdog, explain_silence


@pytest.mark.parametrize(
    ("who", "how", "expected"),
    [
        (1, "stopped", "rank 1 is silent, last at '.+': rank 0 has waited for more than 4 s"),
        (0, "stopped", "rank 0 is silent: it has not answered for more than 4 s"),
        (1, "asleep", "rank 1 is silent, last at 'train batch 5': rank 0 has waited for more"),
    ],
)  # fmt: skip
def test_a_silent_rank_is_named_and_ends_all(
    who: int, how: str, expected: str, started: list[Ranks]
) -> None:
    started.append(Ranks(who, how))
    hung_at = started[0].wait_for_hang(who)
    other = started[0].processes[1 - who]
    assert other.wait(timeout=60) == 1
    assert TIMEOUT_S * 0.9 < time.monotonic() - hung_at < 10 * TIMEOUT_S  # of a busy machine
    assert re.search(expected, started[0].said(1 - who))
    if how == "asleep":  # it can still tell, and ends as well
        assert started[0].processes[who].wait(timeout=60) == 1
        assert re.search("rank 1 is silent|rank 0 ended: rank 1 is silent", started[0].said(who))


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize(
    ("how", "own", "told"),
    [
        ("fails", "confluence: no such column", "ValueError: no such column"),
        # Nothing catches it, as in a script: JAX would wait for ranks that are gone.
        ("breaks", "RuntimeError: no such case", "RuntimeError: no such case"),
    ],
)
def test_a_rank_that_fails_ends_the_others_with_its_reason(
    how: str, own: str, told: str, who: int, started: list[Ranks]
) -> None:
    started.append(Ranks(who, how))
    hung_at = started[0].wait_for_hang(who)
    assert [process.wait(timeout=60) for process in started[0].processes] == [1, 1]
    assert time.monotonic() - hung_at < 5 * TIMEOUT_S
    assert started[0].said(who).splitlines()[-1] == own
    assert f"rank {who} ended: {told}" in started[0].said(1 - who)


def test_a_killed_rank_is_named_by_all_others(started: list[Ranks]) -> None:
    """Not the one whose link broke first."""
    started.append(Ranks(2, "killed", machines=((), (), ())))
    started[0].wait_for_hang(2)
    assert [process.wait(timeout=60) for process in started[0].processes] == [1, 1, -9]
    for rank in (0, 1):
        said = started[0].said(rank)
        assert re.search("rank 2 is gone without a word, as when killed, last at '.+'", said), said


def test_the_process_ends_where_its_log_cannot_be_written() -> None:
    def full(message: str) -> None:
        raise OSError("No space left on device")

    service, ended = Service(), threading.Event()
    watchdog = Watchdog(
        service, rank=0, names=["rank 0", "rank 1"], timeout_s=1.0, end=lambda _: ended.set()
    )
    watchdog.on_end = full
    service.key_value_set(FAILURE, json.dumps([1, "no such column"]))
    assert ended.wait(timeout=30)


def test_no_thread_is_in_a_call_after_the_join() -> None:
    """Python would end under it, which aborts the process."""
    calling, left = threading.Event(), threading.Event()

    class Slow(Service):
        def key_value_dir_get(self, prefix: str) -> list[tuple[str, str]]:
            calling.set()
            time.sleep(0.3)
            left.set()
            return super().key_value_dir_get(prefix)

    watchdog = Watchdog(Slow(), rank=0, names=["rank 0"], timeout_s=60.0)
    assert calling.wait(timeout=30)
    watchdog.stop()
    watchdog.join()
    assert left.is_set()
    assert not any(thread.name.startswith("watchdog-") for thread in threading.enumerate())


def test_ranks_end_when_their_launcher_is_gone(started: list[Ranks]) -> None:
    started.append(Ranks(2, "none hangs", launcher=1))  # of which neither is a child
    assert [process.wait(timeout=60) for process in started[0].processes] == [1, 1]
    said = started[0].said(0) + started[0].said(1)
    assert "the process that started the ranks is gone" in said


def test_a_rank_ends_where_nobody_reads_why() -> None:
    """As where the launcher, which reads what its ranks say, was killed."""
    code = (
        "from confluence.ranks.watchdog import leave; leave('nobody reads this'); print('went on')"
    )
    readable, writable = os.pipe()
    os.close(readable)
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=writable, stdout=subprocess.PIPE, timeout=60
    )
    os.close(writable)
    assert (done.returncode, done.stdout) == (1, b"")


def test_the_ranks_with_the_fewest_beats_are_the_silent_ones() -> None:
    def explained(*counts: int | None, rank: int = 0, answers: bool = True) -> str:
        beats = [None if n is None else Beat(n, f"step {n}") for n in counts]
        names = [f"rank {r}" for r in range(len(beats))]
        return explain_silence(beats, rank, 600.0, names=names, answers=answers)

    limit = "for more than 600 s (collective_timeout_s)"
    assert explained(8, 7, 8, 7) == (
        f"rank 1, rank 3 are silent, last at 'step 7': rank 0 has waited {limit}, at 'step 8'"
    )
    assert explained(8, None) == f"rank 1 is silent: rank 0 has waited {limit}, at 'step 8'"
    assert explained(7, 8, rank=1) == (
        f"rank 0 is silent, last at 'step 7': rank 1 has waited {limit}, at 'step 8'"
    )
    assert explained(8, 8) == (
        f"no rank has made progress {limit}, last at 'step 8': none is behind the others"
    )
    assert explained(8, 8, rank=1, answers=False) == (
        f"rank 0 is silent: it has not answered {limit}, last at 'step 8'"
    )


def test_signals_are_free() -> None:
    """Nothing here may leave a handler behind: the tests after this one use them."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
