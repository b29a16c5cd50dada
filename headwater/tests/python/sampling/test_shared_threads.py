"""The threads that all samplers of a process share: how many, after a fork, and when one ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import headwater
import pytest
from tiny_store import write_tiny

SMALL: dict[str, Any] = {
    "default_batch_size": 4, "default_sequence_length": 32, "max_rows": 16, "text_budget": 64,
    "split_ratios": (0.6, 0.2, 0.2),
}  # fmt: skip
USABLE = len(os.sched_getaffinity(0))
CORES = min(USABLE, 16)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def run(path: Path, code: str) -> str:
    """What Python prints, in a process of its own, with what every test needs."""
    start = f"""
import os, sys, time; sys.path[:0] = {sys.path!r}
import headwater
def sampler(**more):
    return headwater.Sampler({str(path)!r}, **{{**{SMALL!r}, **more}})
def threads(expected):
    for _ in range(5000):
        if len(os.listdir("/proc/self/task")) == expected:
            break
        time.sleep(0.001)  # one that has ended is listed for a moment
    return len(os.listdir("/proc/self/task")) - before
before = len(os.listdir("/proc/self/task"))
"""
    command = [sys.executable, "-c", start + code]
    return subprocess.run(
        command, timeout=120, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_samplers_of_a_process_share_a_thread_per_core(path: Path) -> None:
    code = f"""
opened = [sampler(rank=rank, world_size=4) for rank in range(4)]
print(threads(before + {CORES}), *[one.stats()["threads"] for one in opened])
own = sampler(num_threads=3)
print(threads(before + {CORES} + 3), own.stats()["threads"])
for one in [own, *opened]:
    one.next_train_batch()
    one.shutdown()
print(threads(before))
"""
    shared = [str(CORES)] * 4
    assert run(path, code).split() == [str(CORES), *shared, str(CORES + 3), "3", "0"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_threads": 5}, 5),
        ({"local_world_size": USABLE}, 1),
        ({"local_world_size": USABLE + 1}, 1),
        ({}, CORES),
        ({"num_prefetch": 0}, 0),
    ],
)
def test_a_sampler_knows_its_threads(path: Path, options: dict[str, Any], expected: int) -> None:
    with headwater.Sampler(path, **SMALL, **options) as sampler:
        assert sampler.stats()["threads"] == expected


def test_a_forked_child_opens_samplers_of_its_own(path: Path) -> None:
    code = """
parents = sampler()
expected = parents.next_train_batch()["num_cells"].tolist()
child = os.fork()
if child == 0:
    try:
        parents.next_train_batch()
    except RuntimeError as error:
        assert "forked" in str(error)
    with sampler() as own:
        assert own.next_train_batch()["num_cells"].tolist() == expected
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(parents.next_train_batch()) > 0)
"""
    assert run(path, code) == "0 True\n"


def test_a_shutdown_ends_what_waits_for_one_sampler_and_no_other(path: Path) -> None:
    ended: list[BaseException] = []
    with headwater.Sampler(path, **SMALL) as kept, headwater.Sampler(path, **SMALL) as sampler:

        def read() -> None:
            try:
                for index in range(10**9):
                    list(sampler.epoch("train", index=index))
            except headwater.SamplerShutdown as error:
                ended.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(20):
            kept.next_train_batch()
        sampler.shutdown()
        for reader in readers:
            reader.join(timeout=60)
        assert len(ended) == 3
        for _ in range(20):
            kept.next_train_batch()
