"""Lines for people do not end a run when nobody reads them any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headwater
import pytest
from headwater.console import say

from confluence.cli.commands import Told
from confluence.cli.main import _show

TALKING = """
import sys
from headwater.console import say
for line in range(100):
    say("x" * 10_000)
print("went on", file=sys.stderr)
print("done")
"""


def test_lines_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    say("step 1")
    say("step 2")
    assert capsys.readouterr().err == "step 1\nstep 2\n"


def test_what_comes_from_outside_does_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Names of tasks and columns, and what a server says, were printed as they are."""
    say("task '\x1b]0;gone\x07' of '\u202estore'\r")
    told = Told(result={"task": "\x1b\x7f"}, lines=["task '\x1b[2J'"])
    assert _show(told, as_json=False) == _show(told, as_json=True) == 0
    done = capsys.readouterr()
    assert done.err == "task '\\x1b]0;gone\\x07' of '\\u202estore'\\x0d\n"
    assert done.out == "task '\\x1b[2J'\n" + '{"task": "\\u001b\\u007f"}\n'


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


BUILDING = """
import sys
from pathlib import Path
import headwater
from confluence.runs.pipeline import build_store
from headwater.console import say
out = Path(sys.argv[1])
(out / "csv").mkdir()
(out / "csv" / "a.csv").write_text("id,x\\n1,2\\n2,3\\n")
columns = '"columns": {"id": {"stype": "identifier"}, "x": {"stype": "numerical"}}'
tables = '{"a": {"primary_key": "id", ' + columns + '}}'
(out / "metadata.json").write_text('{"name": "a", "tables": ' + tables + '}')
schema = headwater.Schema.load(out / "metadata.json")
build_store(str(out / "csv"), schema, out, seeds_dir=None, selected={}, say=say)
print("done")
"""


def test_a_store_is_built_for_a_run_whose_reader_leaves_meanwhile(tmp_path: Path) -> None:
    """The stage ended without a word, and without a store."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDING, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stderr is not None and process.stdout is not None
    assert process.stderr.read(8) == b"building"
    process.stderr.close()
    assert (process.stdout.read(), process.wait()) == (b"done\n", 0)
    process.stdout.close()
    assert headwater.Store(tmp_path / "store").verify() == []
