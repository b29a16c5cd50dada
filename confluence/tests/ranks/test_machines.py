"""Ranks of two machines, made of network namespaces with a cable between them. As on many systems
each machine's own name means an address of loopback at home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import TIMEOUT_S, Ranks

PORT = 5123  # each machine has its own
ENTER = """
mount --bind "$1" /etc/hosts
echo "$2" > /proc/sys/kernel/hostname
shift 2
exec "$@"
"""


class Machines:
    """node0 and node1. They share the files, not the network, the name or /etc/hosts."""

    def __init__(self, folder: Path) -> None:
        self._spaces = [f"confluence{os.getpid()}-{i}" for i in range(2)]
        self.ends = [f"cf{os.getpid()}-{i}" for i in range(2)]
        self._folder = folder

    def set_up(self) -> None:
        for i in range(2):
            self._ip("netns", "add", self._spaces[i])
            lines = ["127.0.0.1 localhost", f"127.0.1.1 node{i}", f"10.99.0.{2 - i} node{1 - i}"]
            (self._folder / f"hosts{i}").write_text("\n".join(lines) + "\n")
        self._ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for i in range(2):
            self._ip("link", "set", self.ends[i], "netns", self._spaces[i])
            address = ["address", "add", f"10.99.0.{i + 1}/24", "dev", self.ends[i]]
            self._ip("-n", self._spaces[i], *address)
            for link in ("lo", self.ends[i]):
                self._ip("-n", self._spaces[i], "link", "set", link, "up")
        subprocess.run([*self.start(0), "true"], check=True, capture_output=True, text=True)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def start(self, i: int) -> list[str]:
        """What stands before a command that runs there."""
        return [
            "nsenter", f"--net=/run/netns/{self._spaces[i]}", "unshare", "--mount", "--uts",
            "sh", "-ec", ENTER, "sh", str(self._folder / f"hosts{i}"), f"node{i}",
        ]  # fmt: skip

    def cut(self) -> None:
        """Pull the cable."""
        self._ip("-n", self._spaces[1], "link", "set", self.ends[1], "down")

    def remove(self) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
        subprocess.run(["ip", "link", "delete", self.ends[0]], capture_output=True)  # if left here


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"machines are made with {', '.join(missing)}, which this system lacks")
    made = Machines(tmp_path)
    try:
        made.set_up()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"machines cannot be made here: {error.stderr.strip()}")
    yield made
    made.remove()


def test_ranks_of_two_machines_train_together(machines: Machines, started: list[Ranks]) -> None:
    starts = [machines.start(i) for i in (0, 0, 1)]  # rank 1 finds rank 0 by a loopback
    started.append(Ranks(-1, "ends", coordinator=f"node0:{PORT}", machines=starts))
    statuses = [process.wait(timeout=120) for process in started[0].processes]
    assert statuses == [0, 0, 0], "".join(started[0].said(rank) for rank in range(3))


def test_a_machine_that_cannot_be_reached_any_more_is_named(
    machines: Machines, started: list[Ranks]
) -> None:
    starts = [machines.start(0), machines.start(1)]
    started.append(Ranks(1, "is cut off", coordinator=f"node0:{PORT}", machines=starts))
    started[0].wait_for_hang(1)
    machines.cut()
    assert [process.wait(timeout=60) for process in started[0].processes] == [1, 1]
    limit = f"for more than {TIMEOUT_S:g} s"
    said = started[0].said(0)
    assert re.search(f"rank 1 on node1 is silent, .*: rank 0 on node0 has waited {limit}", said)
    assert f"rank 0 on node0 is silent: it has not answered {limit}" in started[0].said(1)
