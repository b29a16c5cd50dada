"""Where the processes of one training meet: who is which rank, and whether all of them came.

    options, environment or SLURM ──► Place ──► meet ──► what every rank says about itself

JAX ends a process with a stack trace when its own rendezvous fails, and does not say who is
missing. So the ranks meet here first, on the port where JAX's coordination service listens
afterwards: rank 0 waits for a line of JSON from each of the others and answers with all of them, or
with what is wrong. A rank never trains alone because the others did not come.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "CONFLUENCE_"  # of the environment variables
NAMES = ("coordinator", "processes", "rank")
FIRST_PORT, PORT_COUNT = 20_000, 8_192  # for SLURM; below the ports that systems hand out
LOOPBACK = "127.0.0.1"
RETRY_S = 0.1
LINE_BYTES = 1 << 20  # most of a message
ANSWER_MARGIN_S = 5.0  # rank 0 says what is wrong at the limit, the others wait a little longer

About = dict[str, Any]


class RendezvousError(ConnectionError):
    """The processes of a training did not all come together; the message says who is missing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """This process among those of one training."""

    coordinator: str  # host:port, on which rank 0 waits for the others
    processes: int
    rank: int
    source: str  # who says so

    def __post_init__(self) -> None:
        host, colon, port = self.coordinator.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65_536):
            raise ValueError(f"coordinator is '{self.coordinator}', expected 'host:port'")
        if not 0 <= self.rank < self.processes:
            raise ValueError(f"rank is {self.rank}, expected 0 to {self.processes - 1}")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the coordinator."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def is_local(self) -> bool:
        """Whether the coordinator can be reached from its own machine only."""
        return self.address[0] in ("localhost", LOOPBACK, "::1")

    @property
    def listens_on(self) -> str:
        """host:port, for rank 0: all of its machine's addresses unless all ranks are there."""
        host, port = self.address
        if not self.is_local:
            return f"[::]:{port}"
        return f"[::1]:{port}" if host == "::1" else f"{LOOPBACK}:{port}"


# ------------------------------------------------------------------------------------ who is who


def find_place(given: Mapping[str, Any], environment: Mapping[str, str]) -> Place | None:
    """This process's place, or None where it is the only one.

    Args:
        given: coordinator, processes and rank as options have them; absent or None if not given.
        environment: CONFLUENCE_COORDINATOR, CONFLUENCE_PROCESSES and CONFLUENCE_RANK, or that of a
            SLURM step with several tasks. Options go before variables, these before SLURM.
    """
    named = {n: environment[PREFIX + n.upper()] for n in NAMES if PREFIX + n.upper() in environment}
    found = named | {n: given[n] for n in NAMES if given.get(n) is not None}
    source = "options or environment"
    if not found:
        found, source = _of_slurm(environment), "SLURM"
    if not found or (found.get("processes") is not None and int(found["processes"]) == 1):
        return None
    missing = [f"--{n} ({PREFIX}{n.upper()})" for n in NAMES if n not in found]
    if missing:
        raise ValueError("several processes also need " + ", ".join(missing))
    return Place(
        coordinator=str(found["coordinator"]), processes=int(found["processes"]),
        rank=int(found["rank"]), source=source,
    )  # fmt: skip


def _of_slurm(environment: Mapping[str, str]) -> dict[str, Any]:
    """The place of a task that `srun` started; empty elsewhere, as in a batch script itself."""
    names = ("STEP_NUM_TASKS", "PROCID", "STEP_NODELIST", "JOB_ID", "STEP_ID")
    values = [environment.get("SLURM_" + name) for name in names]
    if None in values or not str(values[4]).isdigit():
        return {}
    tasks, rank, nodes, job, step = (str(value) for value in values)
    port = FIRST_PORT + (int(job) * 31 + int(step)) % PORT_COUNT
    return {"coordinator": f"{first_node(nodes)}:{port}", "processes": tasks, "rank": rank}


def first_node(nodes: str) -> str:
    """The first of SLURM's compressed list: 'gpu[007-009,12]-ib,login' → 'gpu007-ib'."""
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+)[^\]]*\])?([^,\[]*)", nodes)
    if found is None:
        raise ValueError(f"the list of nodes is '{nodes}'")
    return "".join(part or "" for part in found.groups())


# ------------------------------------------------------------------------------------ the meeting


def meet(place: Place, about: About, *, timeout_s: float) -> list[About]:
    """What every rank says about itself, by rank, when all have come.

    To `about` come "rank", "processes" and "address", the one of its machine by which this rank and
    rank 0 found each other, so that other ranks can use it.

    Raises:
        RendezvousError: some did not come in time, or they do not agree on who is who.
    """
    deadline = time.monotonic() + timeout_s
    said = {**about, "processes": place.processes, "rank": place.rank}
    if place.rank == 0:
        return _receive(place, said, deadline, timeout_s)
    return _visit(place, said, deadline, timeout_s)


def _receive(place: Place, said: About, deadline: float, timeout_s: float) -> list[About]:
    """Rank 0: take a line from each rank, then answer all of them."""
    here: dict[int, About] = {0: said}
    visitors: list[socket.socket] = []
    fault = None
    with _listen(place) as listener:
        try:
            while fault is None and len(here) < place.processes:
                listener.settimeout(max(RETRY_S, deadline - time.monotonic()))
                try:
                    visitor, _ = listener.accept()
                except TimeoutError:
                    fault = _missing(place, here, timeout_s)
                    break
                fault = _welcome(place, here, visitor, visitors, deadline)
            if fault is None:
                _share_address(here, [_own_address(visitor) for visitor in visitors])
            answer = {"fault": fault} if fault else {"ranks": [here[r] for r in sorted(here)]}
            for visitor in visitors:
                _send(visitor, answer)
            _wait_for_leaving(visitors)
        finally:
            for visitor in visitors:
                visitor.close()
    if fault:
        raise RendezvousError(fault)
    return [here[rank] for rank in range(place.processes)]


def _listen(place: Place) -> socket.socket:
    host, port = place.address
    both = not place.is_local and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    where = host if place.is_local else ""
    try:
        return socket.create_server((where, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise RendezvousError(
            f"rank 0 cannot listen on port {port} ({reason}): choose another port"
        ) from error


def _welcome(
    place: Place, here: dict[int, About], visitor: socket.socket, visitors: list[socket.socket],
    deadline: float,
) -> str | None:  # fmt: skip
    """Take note of one visitor. → what is wrong, if anything"""
    visitor.settimeout(max(RETRY_S, min(RETRY_S * 50, deadline - time.monotonic())))
    try:
        said = _read(visitor)
        rank, processes = int(said["rank"]), int(said["processes"])
        _ip(str(said["address"]))
    except (OSError, ValueError, KeyError, TypeError):
        visitor.close()  # someone else who tries ports
        return None
    visitors.append(visitor)
    if processes != place.processes:
        return f"rank {rank} expects {processes} processes, rank 0 expects {place.processes}"
    if rank in here:
        return f"two processes say that they are rank {rank}"
    here[rank] = said
    return None


def _share_address(here: Mapping[int, About], called: Sequence[str]) -> None:
    """Note the address of rank 0 that the others called, and give it to its neighbours too: a
    machine's name often means a loopback at home, where other machines call it by its network's."""
    outward = next((address for address in called if not _is_loopback(address)), LOOPBACK)
    here[0]["address"] = outward
    for about in here.values():
        if _is_loopback(str(about["address"])):
            about["address"] = outward


def _missing(place: Place, here: dict[int, About], timeout_s: float) -> str:
    absent = [str(rank) for rank in range(place.processes) if rank not in here]
    are = "rank " + absent[0] + " is" if len(absent) == 1 else "ranks " + ", ".join(absent) + " are"
    return (
        f"{are} missing: {len(here)} of {place.processes} processes came to {place.coordinator}"
        f" within {timeout_s:g} s (as {place.source} say)"
    )


def _visit(place: Place, said: About, deadline: float, timeout_s: float) -> list[About]:
    """Another rank: tell rank 0, as soon as it listens, and wait for its answer."""
    refused = ""
    while time.monotonic() < deadline:
        try:
            connection = socket.create_connection(place.address, timeout=max(RETRY_S, timeout_s))
        except OSError as error:
            refused = f" ({error.strerror or error})"
            time.sleep(RETRY_S)
            continue
        with connection:
            connection.settimeout(max(RETRY_S, deadline - time.monotonic()) + ANSWER_MARGIN_S)
            try:
                _send(connection, {**said, "address": _own_address(connection)})
                answer = _read(connection)
            except (OSError, ValueError) as error:
                raise RendezvousError(
                    f"rank 0 at {place.coordinator} gave no answer to rank {place.rank}: {error}"
                ) from error
        if "fault" in answer:
            raise RendezvousError(str(answer["fault"]))
        return list(answer["ranks"])
    raise RendezvousError(
        f"rank {place.rank} did not find rank 0 at {place.coordinator} within {timeout_s:g} s"
        f"{refused}"
    )


def _own_address(connection: socket.socket) -> str:
    """This end's; one of IPv4 as such, also where the socket takes both."""
    return str(connection.getsockname()[0]).removeprefix("::ffff:")


def _is_loopback(address: str) -> bool:
    return _ip(address).is_loopback


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Raises where it is none; an address of a link may name its interface."""
    return ipaddress.ip_address(address.partition("%")[0])


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection: socket.socket) -> dict[str, Any]:
    """One line of JSON."""
    text = b""
    while not text.endswith(b"\n"):
        part = connection.recv(65_536)
        text += part
        if not part or len(text) > LINE_BYTES:
            raise ValueError("the connection was closed")
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return message


def _wait_for_leaving(visitors: list[socket.socket]) -> None:
    """Let the others close first: the port is wanted again at once."""
    for visitor in visitors:
        visitor.settimeout(ANSWER_MARGIN_S)
        try:
            visitor.recv(1)
        except OSError:
            continue


def about_this_process() -> About:
    """Its machine, and which of its cores it may use."""
    return {"host": socket.gethostname(), "cores": sorted(os.sched_getaffinity(0))}
