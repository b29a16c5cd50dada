"""What a command does, and its exit status, do not depend on who reads what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from databases import bookstore, write_csv
from headwater.build import build
from headwater.cli import main
from headwater.store import Store


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

    monkeypatch.setattr(sys.modules["headwater.build"], "load_source", broken)
    assert main(["build", source, str(tmp_path / "s")]) == 1
    assert "headwater: Broken pipe" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
