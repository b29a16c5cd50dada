"""Lines for people do not end a run when nobody reads them any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from confluence.stderr import say

TALKING = """
import sys
from confluence.stderr import say
for line in range(100):
    say("x" * 10_000)
print("went on", file=sys.stderr)
print("done")
"""


def test_lines_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    say("step 1")
    say("step 2")
    assert capsys.readouterr().err == "step 1\nstep 2\n"


def test_a_stderr_that_was_never_open_ends_nothing() -> None:
    code = TALKING.replace('print("went on", file=sys.stderr)', "assert sys.stderr is None")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_pipe_without_a_reader_ends_nothing() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-c", TALKING],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stdout) == (0, "done\n")
