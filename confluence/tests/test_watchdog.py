"""A rank that does not go on ends all, by its name. Each case starts two processes that do what
training does, beat and wait for each other, without a model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from confluence.launch import LAUNCHER, free_port
from confluence.watchdog import Beat, explain_silence

TIMEOUT_S = 4.0

STEPPING = f"""
import os, signal, sys, time
from confluence.cli import _leave
from confluence.meeting import find_place
from confluence.parallel import AgreedStop, Joined
from confluence.stop import StopRequest

who, how = int(sys.argv[1]), sys.argv[2]

def hang(rank, step):
    if step != 5 or rank != who:
        return
    print("here it ends", file=sys.stderr, flush=True)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "asleep":
        time.sleep(600)
    elif how == "fails":
        raise ValueError("no such column")

try:
    with Joined(find_place({{}}, os.environ), collective_timeout_s={TIMEOUT_S}) as group:
        stop = AgreedStop(group, StopRequest())
        for step in range(1, 100_000):
            group.beat(f"train batch {{step}}")
            hang(group.rank, step)
            stop.ask()
            time.sleep(0.01)
except (ValueError, OSError) as error:
    print(f"confluence: {{error}}", file=sys.stderr)
    _leave(1)
"""


class Pair:
    """Two ranks, of which one hangs at its fifth step."""

    def __init__(self, who: int, how: str, launcher: int | None = None) -> None:
        place = {
            "CONFLUENCE_COORDINATOR": f"127.0.0.1:{free_port()}", "CONFLUENCE_PROCESSES": "2",
            **({} if launcher is None else {LAUNCHER: str(launcher)}),
        }  # fmt: skip
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-c", STEPPING, str(who), how],
                env={**os.environ, **place, "CONFLUENCE_RANK": str(rank)},
                stderr=subprocess.PIPE, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip

    def wait_for_hang(self, who: int) -> float:
        """→ when it hangs"""
        stderr = self.ranks[who].stderr
        assert stderr is not None
        assert "here it ends\n" in iter(stderr.readline, "")
        return time.monotonic()

    def said(self, rank: int) -> str:
        """What a rank that has ended wrote to stderr."""
        stderr = self.ranks[rank].stderr
        assert stderr is not None
        return stderr.read()

    def end(self) -> None:
        for process in self.ranks:
            process.kill()  # also where it is stopped
            process.communicate()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    started: list[Pair] = []
    yield started
    for pair in started:
        pair.end()


@pytest.mark.parametrize(
    ("who", "how", "expected"),
    [
        (1, "stopped", "rank 1 is silent, last at '.+': rank 0 has waited for more than 4 s"),
        (0, "stopped", "rank 0 is silent: it has not answered for more than 4 s"),
        (1, "asleep", "rank 1 is silent, last at 'train batch 5': rank 0 has waited for more"),
    ],
)  # fmt: skip
def test_a_silent_rank_is_named_and_ends_all(
    who: int, how: str, expected: str, pairs: list[Pair]
) -> None:
    pairs.append(Pair(who, how))
    hung_at = pairs[0].wait_for_hang(who)
    other = pairs[0].ranks[1 - who]
    assert other.wait(timeout=60) == 1
    assert TIMEOUT_S * 0.9 < time.monotonic() - hung_at < 10 * TIMEOUT_S  # of a busy machine
    assert re.search(expected, pairs[0].said(1 - who))
    if how == "asleep":  # it can still tell, and ends as well
        assert pairs[0].ranks[who].wait(timeout=60) == 1
        assert re.search("rank 1 is silent|rank 0 ended: rank 1 is silent", pairs[0].said(who))


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_fails_ends_the_others_with_its_reason(who: int, pairs: list[Pair]) -> None:
    pairs.append(Pair(who, "fails"))
    hung_at = pairs[0].wait_for_hang(who)
    assert [process.wait(timeout=60) for process in pairs[0].ranks] == [1, 1]
    assert time.monotonic() - hung_at < 5 * TIMEOUT_S
    assert pairs[0].said(who).splitlines()[-1] == "confluence: no such column"
    assert f"rank {who} ended: ValueError: no such column" in pairs[0].said(1 - who)


def test_ranks_end_when_their_launcher_is_gone(pairs: list[Pair]) -> None:
    pairs.append(Pair(2, "none hangs", launcher=1))  # of which neither is a child
    assert [process.wait(timeout=60) for process in pairs[0].ranks] == [1, 1]
    said = pairs[0].said(0) + pairs[0].said(1)
    assert "the process that started the ranks is gone" in said


def test_the_ranks_with_the_fewest_beats_are_the_silent_ones() -> None:
    def explained(*counts: int | None, rank: int = 0, answers: bool = True) -> str:
        beats = [None if n is None else Beat(n, f"step {n}") for n in counts]
        return explain_silence(beats, rank, 600.0, answers=answers)

    limit = "for more than 600 s (collective_timeout_s)"
    assert explained(8, 7, 8, 7) == (
        f"rank 1, rank 3 are silent, last at 'step 7': rank 0 has waited {limit}, at 'step 8'"
    )
    assert explained(8, None) == f"rank 1 is silent: rank 0 has waited {limit}, at 'step 8'"
    assert explained(7, 8, rank=1) == (
        f"rank 0 is silent, last at 'step 7': rank 1 has waited {limit}, at 'step 8'"
    )
    assert explained(8, 8) == (
        f"no rank has gone on {limit}, last at 'step 8': none is behind the others"
    )
    assert explained(8, 8, rank=1, answers=False) == (
        f"rank 0 is silent: it has not answered {limit}, last at 'step 8'"
    )


def test_signals_are_free() -> None:
    """Nothing here may leave a handler behind: the tests after this one use them."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
