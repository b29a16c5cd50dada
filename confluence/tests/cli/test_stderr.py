"""Lines for people do not end a run when nobody reads them any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headwater
import pytest
from headwater.console import say

from confluence.cli.commands import Outcome
from confluence.cli.main import _show


def test_what_comes_from_outside_does_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Names of tasks and columns, and what a server says, were printed as they are."""
    say("task '\x1b]0;gone\x07' of '\u202estore'\r")
    told = Outcome(result={"task": "\x1b\x7f"}, lines=["task '\x1b[2J'"])
    assert _show(told, as_json=False) == _show(told, as_json=True) == 0
    done = capsys.readouterr()
    assert done.err == "task '\\x1b]0;gone\\x07' of '\\u202estore'\\x0d\n"
    assert done.out == "task '\\x1b[2J'\n" + '{"task": "\\u001b\\u007f"}\n'


BUILDING = """
import sys
from pathlib import Path
import headwater
from confluence.runs.pipeline import Database, build_store
from headwater.console import say
out = Path(sys.argv[1])
(out / "csv").mkdir()
(out / "csv" / "a.csv").write_text("id,x\\n1,2\\n2,3\\n")
columns = '"columns": {"id": {"stype": "identifier"}, "x": {"stype": "numerical"}}'
tables = '{"a": {"primary_key": "id", ' + columns + '}}'
(out / "metadata.json").write_text('{"name": "a", "tables": ' + tables + '}')
schema = headwater.Schema.load(out / "metadata.json")
build_store(Database(source=str(out / "csv")), schema, out, say=say)
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
