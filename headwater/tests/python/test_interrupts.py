"""Ctrl-C ends a command, also where a library swallows it or makes another error of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import pytest
from databases import TinyTable, arrow_tables
from headwater.cli import main as cli
from headwater.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    """A suite that a shell runs in the background is born with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Destroyed:
    """Ctrl-C comes while it is destroyed."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def wait() -> None:
    """Longer than any test should take."""
    for _ in range(1_000):
        time.sleep(0.02)


def test_an_interrupt_that_python_discards_comes_again_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        Destroyed()
        assert interrupts.is_made
        wait()
    assert time.monotonic() - started < 4


def test_an_interrupt_that_a_library_catches_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.interrupts.AGAIN_S", 0.1)
    with pytest.raises(KeyboardInterrupt), Interrupts():
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        wait()


def test_cleaning_up_behind_an_interrupt_is_not_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.interrupts.AGAIN_S", 0.05)
    done: list[str] = []

    @contextlib.contextmanager
    def cleaned() -> Iterator[None]:
        try:
            yield
        finally:
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                raise FileNotFoundError
            time.sleep(0.2)
            done.append("inner")

    with pytest.raises(KeyboardInterrupt), Interrupts():
        try:
            with cleaned():
                signal.raise_signal(signal.SIGINT)
        finally:
            try:
                raise ValueError
            except ValueError:
                time.sleep(0.2)
            done.append("outer")
    assert done == ["inner", "outer"]


def test_other_things_that_python_discards_are_told_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    with Interrupts():
        Broken()
    (what,) = told
    assert what.exc_type is ValueError


def test_nothing_is_left_of_it() -> None:
    def state() -> list[Any]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
        return [*handlers, sys.unraisablehook]

    before = state()
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert state() == before


def test_a_handler_that_is_there_stays() -> None:
    taken: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: taken.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert taken == [signal.SIGINT] and not interrupts.is_made


def test_duckdb_s_own_error_ends_a_build_as_ctrl_c_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(sys.modules["headwater.builder.build"]._Build, "run", interrupted)
    source = arrow_tables({"t": TinyTable({"id": "INTEGER"}, [(1,)])})
    with pytest.raises(KeyboardInterrupt):
        headwater.build(source, tmp_path / "s")
    (tmp_path / "t.csv").write_text("id\n1\n")
    assert cli.main(["build", str(tmp_path / "t.csv"), str(tmp_path / "s")]) == 130
    assert capsys.readouterr().err.endswith("headwater: interrupted\n")


def test_an_error_after_ctrl_c_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise OSError("no space")

    monkeypatch.setattr("headwater.cli.commands.verify", broken)
    assert cli.main(["verify", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "headwater: interrupted (no space)\n"


PROCESS = """
import atexit, signal, sys
from headwater.cli import commands, main

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
when, sys.argv[1:] = sys.argv[1], ["verify", "store"]
commands.verify = interrupt
if when == "reported":
    main.say = interrupt
if when == "shut down":
    atexit.register(interrupt)
import headwater.__main__
"""


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("once", "headwater: interrupted\n"),
        ("reported", ""),
        ("shut down", "headwater: interrupted\n"),
    ],
)
def test_ctrl_c_once_more_ends_the_process_without_a_word(when: str, told: str) -> None:
    """There was a traceback, or "Exception ignored in", of the function that it reached."""
    command = [sys.executable, "-c", PROCESS, when]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)
