"""Starts the ranks of one node: `confluence train ... --devices N`.

Each rank is this same command in a process of its own, which finds its place in the environment.
What it writes to stderr comes out here, line by line, behind its rank; rank 0's stdout is the
command's. The first rank that fails ends all: the others get some seconds to say what they know and
are then killed. Ctrl-C, SIGTERM and SIGHUP are handed on, once each time; the ranks agree on
a step, save and end by themselves.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import IO

from headwater.shared import SIGNALLED, say

from confluence.ranks.rendezvous import PREFIX
from confluence.ranks.stop import SIGNALS, handle_stops

LAUNCHER = PREFIX + "LAUNCHER"  # process id of the one that started the ranks
GRACE_S = 20.0  # for the others to say what they know, after the first has failed
LOOK_S = 0.05


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether this process is one of the ranks."""
    return LAUNCHER in environment


def launch(
    arguments: Sequence[str], processes: int, *, command: Sequence[str] | None = None
) -> int:
    """Run the command's arguments in so many ranks, and return the first failure's exit status.

    Args:
        command: what to start instead of confluence itself.
    """
    launcher = Launcher(list(command or (sys.executable, "-m", "confluence")), list(arguments))
    return launcher.run(processes)


class Launcher:
    """The ranks of one node, from their start to the last one's end."""

    def __init__(self, command: list[str], arguments: list[str]) -> None:
        self._command = [*command, *arguments]
        self._ranks: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._lock = threading.Lock()  # of stderr, so that lines stay whole
        self._handed_on: int | None = None  # a signal

    def run(self, processes: int) -> int:
        """Start, wait, and end them all."""
        previous = handle_stops(self._forward)
        try:
            coordinator = f"127.0.0.1:{free_port()}"
            for rank in range(processes):
                self._start(rank, processes, coordinator)
            return self._wait()
        finally:
            self._kill()
            for reader in self._readers:
                reader.join(timeout=GRACE_S)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _start(self, rank: int, processes: int, coordinator: str) -> None:
        place = {"COORDINATOR": coordinator, "PROCESSES": str(processes), "RANK": str(rank)}
        process = subprocess.Popen(
            self._command,
            env={
                **os.environ,
                **{PREFIX + name: value for name, value in place.items()},
                LAUNCHER: str(os.getpid()),
            },
            stdin=subprocess.DEVNULL,
            stdout=None if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C of a terminal comes here alone
        )
        self._ranks.append(process)
        assert process.stderr is not None
        reader = threading.Thread(target=self._relay, args=(rank, process.stderr), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _relay(self, rank: int, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._say(f"[rank {rank}] {line.rstrip()}")

    def _say(self, line: str) -> None:
        with self._lock:
            say(line)

    def _wait(self) -> int:
        """Until all have ended, or some time after the first has failed."""
        failed, failed_at = None, 0.0
        while any(process.poll() is None for process in self._ranks):
            time.sleep(LOOK_S)
            if failed is None:
                failed, failed_at = self._first_failure(), time.monotonic()
            elif time.monotonic() - failed_at > GRACE_S:
                break
        failed = self._first_failure() if failed is None else failed
        if failed is None:
            return 0
        status = self._ranks[failed].returncode
        if self._handed_on is not None and status > 0:
            # One rank may say so, and the others that it ended.
            stopped = [p.poll() for p in self._ranks]
            status = next((s for s in stopped if s and s - SIGNALLED in SIGNALS), status)
        if status < 0:
            name = signal.Signals(-status).name
            self._say(f"confluence: rank {failed} was ended by {name}, the others with it")
            return int(SIGNALLED - status)
        if status - SIGNALLED not in SIGNALS:  # that is a run that was stopped and saved
            self._say(f"confluence: rank {failed} failed, the others ended with it")
        return int(status)

    def _first_failure(self) -> int | None:
        return next((r for r, process in enumerate(self._ranks) if process.poll()), None)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._first_failure() is None:  # else it is that which ends them
            self._handed_on = number
        for process in self._ranks:
            if process.returncode is None:
                process.send_signal(number)

    def _kill(self) -> None:
        for process in self._ranks:
            if process.poll() is None:
                process.kill()
                process.wait()


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
