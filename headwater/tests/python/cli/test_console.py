"""What a command does, and its exit status, do not depend on who reads what it writes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from databases import asked, bookstore, write_csv
from fake_endpoint import FakeEndpoint
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.console import shown, to_json
from headwater.progress import CLEAR_LINE, ProgressDisplay
from headwater.sources.source import quote
from headwater.store.store import Store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_csv(tmp_path_factory.mktemp("source") / "csv", bookstore()))


def run(*arguments: str, closed: str) -> int:
    """The exit status with stdout and stderr, whichever is named, a pipe without a reader."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        streams = {name: theirs for name in closed.split()}
        other = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-m", "headwater", *arguments]
        return subprocess.run(command, check=False, **{**other, **streams}).returncode
    finally:
        os.close(theirs)


@pytest.mark.parametrize("closed", ["stderr", "stdout", "stdout stderr"])
def test_a_build_that_nobody_reads_leaves_a_store(source: str, tmp_path: Path, closed: str) -> None:
    """Without a reader of stderr it ended with status 0 and without a store."""
    assert run("build", source, str(tmp_path / "s"), "--no-cache", closed=closed) == 0
    assert Store(tmp_path / "s").verify() == []


def test_a_build_whose_reader_leaves_meanwhile_leaves_a_store(source: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "build", source, str(tmp_path / "s")]
    process = subprocess.Popen(
        [*command, "--no-cache"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stderr is not None and process.stderr.read(1)
    process.stderr.close()
    assert process.wait() == 0
    assert Store(tmp_path / "s").verify() == []


@pytest.mark.parametrize("closing", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_build_without_streams_leaves_a_store(source: str, tmp_path: Path, closing: str) -> None:
    """Its files would get the numbers of the streams; it was an AttributeError."""
    call = f'exec "$@" {closing}'
    command = ["sh", "-c", call, "sh", sys.executable, "-m", "headwater", "build", source]
    done = subprocess.run([*command, str(tmp_path / "s"), "--no-cache"], check=False)
    assert done.returncode == 0
    assert Store(tmp_path / "s").verify() == []


def test_what_failed_has_failed_though_nobody_reads_it(source: str, tmp_path: Path) -> None:
    """`headwater verify` of a damaged store ended with status 0."""
    closed = "stdout stderr"
    assert run("build", f"{source}/no", str(tmp_path / "s"), closed=closed) == 1
    assert not (tmp_path / "s").exists()
    report = build(source, tmp_path / "t", cache=False)
    file = tmp_path / "t" / report.fingerprint / "texts.bin"
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    assert run("verify", str(tmp_path / "t"), closed=closed) == 1


def test_a_pipe_that_breaks_elsewhere_is_an_error(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a database server, say: it was taken for that of stdout, status 0 without a store."""

    def broken(*arguments: Any, **options: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys.modules["headwater.builder.build"], "load_source", broken)
    assert main(["build", source, str(tmp_path / "s")]) == 1
    assert "headwater: Broken pipe" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


# ---- what comes from outside -----------------------------------------------------------------

HOSTILE = "\x1b]0;gone\x07\x1b[2J\r\x9b31m\u202eevil\u2066\x7f"
SPELLED = "\\x1b]0;gone\\x07\\x1b[2J\\x0d\\x9b31m\\u202eevil\\u2066\\x7f"
TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def commands_in(text: str) -> list[str]:
    """Characters that a terminal obeys."""
    own = "\n\t"
    return [c for c in text if (unicodedata.category(c) == "Cc" and c not in own) or c in TURNS]


def test_what_is_not_text_is_spelled_and_what_is_stays() -> None:
    assert shown(HOSTILE) == SPELLED
    plain = "a\tb\nÅngström Ελλάδα עברית 数 \U0001f469\u200d\U0001f4bb -> \\x1b"
    assert shown(plain) == plain
    assert json.loads(to_json({HOSTILE: HOSTILE})) == {HOSTILE: HOSTILE}
    assert commands_in(to_json({HOSTILE: HOSTILE})) == []


def hostile_database(path: Path) -> str:
    """A database whose tables, columns, categories and texts hold what a terminal obeys."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        table, text, kind = (quote(name + HOSTILE) for name in ("t", "text", "kind"))
        database.execute(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {text} TEXT, {kind} TEXT, n REAL,"
            " d TEXT)"
        )
        rows = [
            (i, f"{HOSTILE} number {i * i}", ("x", "y")[i % 2] + HOSTILE, i / 3, "2020-01-01")
            for i in range(60)
        ]
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", rows)
        database.execute(f"UPDATE {table} SET d = ? WHERE id = 7", [HOSTILE])
        database.commit()
    return f"sqlite:///{path}"


def test_no_command_lets_names_and_values_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of these printed them as they were."""
    source, store = hostile_database(tmp_path / "d.db"), str(tmp_path / "s")
    metadata = tmp_path / "m.json"
    seen: dict[str, str] = {}

    def call(*arguments: str, status: int = 0) -> str:
        assert main(list(arguments)) == status, capsys.readouterr().err
        done = capsys.readouterr()
        seen[" ".join(arguments)] = text = done.out + done.err
        assert commands_in(text) == [], arguments
        return text

    assert SPELLED in call("init", source, "-o", str(metadata))
    document = json.loads(metadata.read_text())
    ((table, entry),) = document["tables"].items()
    entry["columns"]["d"] = {"stype": "timestamp"}
    document["name"] = HOSTILE
    task = asked(f"SELECT id, n FROM {quote(table)}", table, "n numerical", kind="cell")
    document["tasks"] = {"n": task}
    metadata.write_text(json.dumps(document))
    assert SPELLED in call("build", source, store, "--metadata", str(metadata), "--no-cache")
    for json_too in ((), ("--json",)):
        call("build", source, store, "--metadata", str(metadata), "--no-cache", *json_too)
        call("inspect", store, *json_too)
        call("inspect", store, table, *json_too)
        call("sample", store, "--task", "n", *json_too)
        call("verify", store, *json_too)
        call("audit", store, *json_too)
    call("inspect", store, HOSTILE, status=1)
    call("inspect", str(tmp_path / HOSTILE), status=1)
    document["tasks"]["n"]["query"] = f"SELECT error('{HOSTILE}')"
    metadata.write_text(json.dumps(document))
    assert SPELLED in call(
        "build", source, store, "--metadata", str(metadata), "--no-cache", status=1
    )


def test_a_server_does_not_command_the_terminal(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeEndpoint(lambda n, body, handler: (403, {}, HOSTILE.encode())) as server:
        named = ["--embedder", f"openai:m@{server.url}"]
        assert main(["build", source, str(tmp_path / "s"), "--no-cache", *named]) == 1
    error = capsys.readouterr().err
    assert "evil" in error and commands_in(error) == []


def test_progress_on_a_terminal_moves_it_by_itself_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    ProgressDisplay(terminal)("read", HOSTILE[:12] + "\n")
    assert commands_in(terminal.getvalue().replace(CLEAR_LINE, "")) == []
    assert "\n" not in terminal.getvalue()
