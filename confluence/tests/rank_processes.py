"""Ranks that do what training does, beat and wait for each other, without a model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluence.ranks.launch import LAUNCHER, free_port

TIMEOUT_S = 4.0

STEPPING = f"""
import os, signal, sys, time
from confluence.cli.main import _leave
from confluence.ranks.rendezvous import find_place
from confluence.ranks.group import AgreedStop, Joined
from confluence.ranks.stop import StopRequest

who, how = int(sys.argv[1]), sys.argv[2]

def hang(rank, step):
    if step != 5 or rank != who:
        return
    print("here it ends", file=sys.stderr, flush=True)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "asleep":
        time.sleep(600)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "fails":
        raise ValueError("no such column")
    elif how == "breaks":  # as code does that expects no such error
        raise RuntimeError("no such case")

try:
    with Joined(find_place({{}}, os.environ), collective_timeout_s={TIMEOUT_S}) as group:
        stop = AgreedStop(group, StopRequest())
        for step in range(1, 21 if how == "ends" else 100_000):
            group.beat(f"train batch {{step}}")
            hang(group.rank, step)
            stop.ask()
            time.sleep(0.01)
except (ValueError, OSError) as error:
    print(f"confluence: {{error}}", file=sys.stderr)
    _leave(1)
"""


class Ranks:
    """Processes of one training, of which one hangs at its fifth step."""

    def __init__(
        self, who: int, how: str, *, launcher: int | None = None,
        coordinator: str | None = None, machines: Sequence[Sequence[str]] = ((), ()),
    ) -> None:  # fmt: skip
        """
        Args:
            who: the one that hangs; -1: none does.
            how: "stopped", "asleep", "killed", "fails", "breaks"; "ends": all leave after 20
                steps; else it says so and goes on.
            machines: what starts a command on the machine of each rank.
        """
        place = {
            "CONFLUENCE_COORDINATOR": coordinator or f"127.0.0.1:{free_port()}",
            "CONFLUENCE_PROCESSES": str(len(machines)),
            **({} if launcher is None else {LAUNCHER: str(launcher)}),
        }  # fmt: skip
        self.processes = [
            subprocess.Popen(
                [*machines[rank], sys.executable, "-c", STEPPING, str(who), how],
                env={**os.environ, **place, "CONFLUENCE_RANK": str(rank)},
                stderr=subprocess.PIPE, text=True,
            )
            for rank in range(len(machines))
        ]  # fmt: skip

    def wait_for_hang(self, who: int) -> float:
        """→ when it hangs"""
        stderr = self.processes[who].stderr
        assert stderr is not None
        assert "here it ends\n" in iter(stderr.readline, "")
        return time.monotonic()

    def said(self, rank: int) -> str:
        """What a rank that has ended wrote to stderr."""
        stderr = self.processes[rank].stderr
        assert stderr is not None
        return stderr.read()

    def end(self) -> None:
        for process in self.processes:
            process.kill()  # also where it is stopped
            process.communicate()


class Service:
    """What a watchdog needs of JAX's coordination service, alone."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def key_value_set(self, name: str, text: str, *, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or name not in self.said
        self.said[name] = text

    def key_value_dir_get(self, prefix: str) -> list[tuple[str, str]]:
        return [(name, text) for name, text in self.said.items() if name.startswith(prefix)]


FIRST_PARTS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
"""
COMMAND = """
import confluence.cli.main
sys.exit(confluence.cli.main.main(sys.argv[2:]))
"""
LAUNCHING = """
import sys
from confluence.ranks.launch import launch
count, code, *arguments = sys.argv[1:]
sys.exit(launch(arguments, int(count), command=[sys.executable, "-c", code]))
"""


def run_ranks(
    count: int, arguments: Sequence[str], *, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """`confluence` with these arguments in so many ranks. `before`: Python code that each runs
    first."""
    return run_code(count, before + COMMAND, *arguments)


def run_code(count: int, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python code in so many ranks, which finds the arguments from `sys.argv[2]` on and the modules
    of this folder."""
    code, folder = FIRST_PARTS + code, str(Path(__file__).parent)
    return subprocess.run(
        [sys.executable, "-c", LAUNCHING, str(count), code, folder, *arguments],
        capture_output=True, text=True, timeout=550,
    )  # fmt: skip
