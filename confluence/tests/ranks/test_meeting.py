"""Who is which rank; and that ranks meet, or say who is missing. No JAX, no processes."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from confluence.cli.main import main
from confluence.ranks import group as parallel
from confluence.ranks.launch import free_port
from confluence.ranks.rendezvous import (
    About,
    Place,
    RendezvousError,
    _share_address,
    find_place,
    first_node,
    meet,
)


def place(rank: int, processes: int, port: int) -> Place:
    return Place(
        coordinator=f"127.0.0.1:{port}", processes=processes, rank=rank, source="the options"
    )


def come(places: list[Place], timeout_s: float = 20.0) -> list[list[About] | str]:
    """What each process that comes is answered, or the message of its error."""
    answers: list[Any] = [None] * len(places)

    def visit(index: int) -> None:
        try:
            answers[index] = meet(places[index], {"name": f"p{index}"}, timeout_s=timeout_s)
        except RendezvousError as error:
            answers[index] = str(error)

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_ranks_that_meet_know_all_of_each_other_and_free_the_port() -> None:
    port = free_port()
    for _ in range(2):  # at once again, as JAX listens there next
        answers = come([place(rank, 3, port) for rank in (2, 0, 1)])
        assert answers[0] == answers[1] == answers[2]
        assert not isinstance(answers[0], str)
        assert [(a["rank"], a["name"]) for a in answers[0]] == [(0, "p1"), (1, "p2"), (2, "p0")]
        assert [a["address"] for a in answers[0]] == ["127.0.0.1"] * 3


def test_ranks_of_rank_0s_machine_are_found_where_it_is_found_from_outside() -> None:
    here: dict[int, About] = {
        rank: {"address": address} for rank, address in enumerate(["", "127.0.0.1", "10.9.0.2"])
    }
    _share_address(here, ["127.0.1.1", "10.9.0.1"])
    assert [about["address"] for about in here.values()] == ["10.9.0.1", "10.9.0.1", "10.9.0.2"]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.0.0.2"])
def test_ranks_meet_by_any_address_of_their_machine(host: str) -> None:
    given = Place(coordinator=f"{host}:{free_port()}", processes=2, rank=0, source="the options")
    answers = come([given, dataclasses.replace(given, rank=1)])
    assert not isinstance(answers[0], str)
    assert [about["address"] for about in answers[0]] == ["127.0.0.1"] * 2


def test_those_who_came_are_told_who_is_missing() -> None:
    port = free_port()
    answers = come([place(0, 4, port), place(2, 4, port)], timeout_s=0.5)
    expected = (
        f"ranks 1, 3 are missing: 2 of 4 processes came to 127.0.0.1:{port} within 0.5 s (as the"
        " options say)"
    )
    assert answers == [expected, expected]


def test_ranks_that_contradict_each_other_do_not_train() -> None:
    port = free_port()
    answers = come([place(0, 3, port), place(1, 3, port), place(1, 3, port)])
    assert "two processes say that they are rank 1" in answers
    answers = come([place(0, 2, port), place(1, 3, port)])
    assert answers == ["rank 1 expects 3 processes, rank 0 expects 2"] * 2


def test_a_rank_without_rank_0_says_so_and_so_does_the_command(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    expected = f"rank 1 did not find rank 0 at 127.0.0.1:{port} within 0.3 s (Connection refused)"
    assert come([place(1, 2, port)], timeout_s=0.3) == [expected]
    where = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--rank", "1"]
    run = ["train", str(tmp_path / "store"), "--task", "t", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(parallel, "JOIN_TIMEOUT_S", 0.3)
    assert main([*run, *where]) == 1
    assert capsys.readouterr().err == f"confluence: {expected}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert come([place(0, 2, port)]) == [
            f"rank 0 cannot listen on port {port} (Address already in use): choose another port"
        ]


# ------------------------------------------------------------------------------------ who is who

SLURM = {
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_STEP_NODELIST": "gpu[007-008]",
    "SLURM_JOB_ID": "4242", "SLURM_STEP_ID": "3",
}  # fmt: skip
VARIABLES = {
    "CONFLUENCE_COORDINATOR": "10.0.0.1:5000", "CONFLUENCE_PROCESSES": "4", "CONFLUENCE_RANK": "3"
}  # fmt: skip


def test_a_place_comes_from_options_then_variables_then_slurm() -> None:
    assert find_place({}, {}) is None
    found = find_place({"rank": None}, SLURM)
    port = 20_000 + (4242 * 31 + 3) % 8_192
    assert found is not None
    assert (found.coordinator, found.processes, found.rank) == (f"gpu007:{port}", 8, 5)
    found = find_place({}, SLURM | VARIABLES)
    assert found is not None
    assert (found.coordinator, found.processes, found.rank) == ("10.0.0.1:5000", 4, 3)
    found = find_place({"rank": 2}, SLURM | VARIABLES)
    assert found is not None and found.rank == 2


def test_one_process_trains_alone_wherever_that_is_said() -> None:
    assert find_place({}, SLURM | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert find_place({"processes": 1}, SLURM) is None
    in_batch_script = {n: v for n, v in SLURM.items() if "STEP" not in n}  # nobody else was started
    assert find_place({}, in_batch_script) is None


def test_the_pipeline_does_not_run_several_times_in_one_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert main(["run", "sqlite:///none.db", "--metadata", "none.json", "--task", "t"]) == 1
    assert "run works in one process and was started as one of sev" in capsys.readouterr().err


def test_half_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"also need --coordinator \(CONFLUENCE_COORDINATOR\), --"):
        find_place({"processes": 2}, {})
    with pytest.raises(ValueError, match="rank is 4, expected 0 to 3"):
        find_place({"rank": 4}, VARIABLES)
    with pytest.raises(ValueError, match="coordinator is 'node7', expected 'host:port'"):
        find_place({"coordinator": "node7"}, VARIABLES)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("login", "login"), ("node001,host2", "node001"), ("node[001-015],host2", "node001"),
        ("node[003,007-015]-ib,host2", "node003-ib"), ("rack-1-node[9-10]", "rack-1-node9"),
    ],
)  # fmt: skip
def test_the_first_node_of_slurms_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
