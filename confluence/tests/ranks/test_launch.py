"""The launcher, with small commands in place of training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from confluence.ranks.launch import launch


def run(code: str, processes: int = 3) -> int:
    """Launch python with some code that knows its `rank` and `sys.argv`."""
    before = "import os, signal, sys, time; rank = int(os.environ['CONFLUENCE_RANK'])\n"
    return launch(["one", "two"], processes, command=[sys.executable, "-S", "-c", before + code])


def test_each_rank_knows_its_place_and_speaks_behind_its_rank(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status = run(
        "print('result', *sys.argv[1:])\n"
        "print('of', os.environ['CONFLUENCE_PROCESSES'], file=sys.stderr)\n"
        "assert os.environ['CONFLUENCE_COORDINATOR'].startswith('127.0.0.1:')\n"
        "assert os.getppid() == int(os.environ['CONFLUENCE_LAUNCHER'])\n"
    )
    said = capfd.readouterr()
    assert status == 0
    assert said.out == "result one two\n"  # of rank 0 alone
    assert sorted(said.err.splitlines()) == ["[rank 0] of 3", "[rank 1] of 3", "[rank 2] of 3"]


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("sys.exit('no disk')", 1, "confluence: rank 1 failed, the others ended with it"),
        ("sys.exit(7)", 7, "confluence: rank 1 failed, the others ended with it"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)", 137,
            "confluence: rank 1 was ended by SIGKILL, the others with it",
        ),
    ],
)  # fmt: skip
def test_the_first_failure_ends_all(
    end: str, status: int, says: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("confluence.ranks.launch.GRACE_S", 0.3)
    started = time.monotonic()
    assert run(f"if rank == 1: {end}\ntime.sleep(600)") == status
    assert time.monotonic() - started < 30
    assert capfd.readouterr().err.splitlines()[-1] == says


def test_signals_are_handed_on_and_ranks_end_by_themselves(tmp_path: object) -> None:
    """The launcher is a process here, as a scheduler sees it: SIGTERM comes to it alone."""
    code = (
        "import sys; from confluence.ranks.launch import launch\n"
        "rank = '''import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        'print("ready", file=sys.stderr, flush=True)\n'
        "time.sleep(600)'''\n"
        "sys.exit(launch([], 2, command=[sys.executable, '-S', '-c', rank]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as launcher:
        assert launcher.stderr is not None
        ready = [launcher.stderr.readline() for _ in range(2)]
        assert sorted(ready) == ["[rank 0] ready\n", "[rank 1] ready\n"]
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(timeout=60) == 143
        assert launcher.stderr.read() == ""  # stopped as asked is no failure


def test_a_signal_that_was_handed_on_is_the_status_whichever_rank_ended_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of ranks that answer one ends by Ctrl-C, and another because that one did."""
    status = run(
        "def end(*_):\n"
        "    time.sleep(0.5 * rank)\n"
        "    sys.exit(130 if rank == 1 else 1)\n"
        "signal.signal(signal.SIGINT, end)\n"
        "if rank == 0:\n"
        "    time.sleep(1)\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)\n",
        processes=2,
    )
    assert status == 130
    assert "failed" not in capfd.readouterr().err
