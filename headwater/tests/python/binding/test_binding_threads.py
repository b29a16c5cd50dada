"""Closing on one thread while another is in C: an error or an answer, never a crash.

`make sanitize` runs this with the library compiled for the address sanitizer.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from headwater import binding
from large_batches import large
from tiny_store import write_tiny

ROUNDS = 1000
OPTIONS: dict[str, Any] = {
    "default_batch_size": 4, "default_sequence_length": 32, "max_rows": 16, "text_budget": 64,
    "split_ratios": (0.6, 0.2, 0.2), "num_threads": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns after a few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Asking:
    """A thread that asks until it gets an error; the arrays of the last answer stay alive."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self.last: Any = None
        self.has_asked = threading.Event()
        self._ask = ask
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.last = self._ask()
                self.has_asked.set()
        except BaseException as error:
            self.error = error
            self.has_asked.set()

    def end(self) -> BaseException | None:
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        return self.error


def close_while_asking(ask: Callable[[], Any], close: Callable[[], object], number: int) -> Any:
    """What two threads that ask get when a third closes, sooner or later by the round."""
    asking = [Asking(ask), Asking(ask)]
    if number % 2:
        assert asking[0].has_asked.wait(60)
    for _ in range(random.Random(number).randrange(200)):
        pass
    close()
    errors = [each.end() for each in asking]
    for each in asking:
        for array in each.last or ():
            array.tobytes()  # is still there
    return errors


def test_a_pass_is_closed_while_others_wait(path: Path) -> None:
    with headwater.Sampler(db_path=path, **OPTIONS) as sampler:
        for number in range(ROUNDS):
            run = sampler.epoch("train", index=number)
            errors = close_while_asking(
                lambda run=run: [run.next()["num_cells"]], run.close, number
            )
            for error in errors:
                assert isinstance(error, StopIteration | headwater.SamplerShutdown)
                if isinstance(error, headwater.SamplerShutdown):
                    assert "the pass was closed" in str(error)


def test_who_waits_for_a_batch_of_a_pass_that_is_closed_is_told(path: Path) -> None:
    with large(path) as sampler:
        run = sampler.epoch("train")
        asking = Asking(run.next)
        time.sleep(0.05)
        run.close()
        with pytest.raises(headwater.SamplerShutdown, match="the pass was closed while a batch"):
            raise asking.end() or AssertionError
        with pytest.raises(StopIteration):
            run.next()


def test_a_sampler_is_shut_down_while_others_wait(path: Path) -> None:
    for number in range(ROUNDS):
        sampler = headwater.Sampler(db_path=path, **OPTIONS, verify="header")
        ask = (
            (lambda sampler=sampler: sampler.next_train_batch().values())
            if number % 3
            else (lambda sampler=sampler: sampler.batch("train", 1).values())
        )
        errors = close_while_asking(ask, sampler.shutdown, number)
        del sampler, ask
        assert all(isinstance(error, headwater.SamplerShutdown) for error in errors)


def test_a_store_is_closed_while_others_read(path: Path) -> None:
    reads: list[Callable[[binding.Store], Any]] = [
        lambda store: [store.children(2, 0)],
        lambda store: store.seeds(0).values(),
        lambda store: store.edges(0),
        lambda store: [np.array([store.row_time(9)])] if store.verify() == [] else None,
    ]
    for number in range(ROUNDS):
        store = binding.Store(path)
        read = reads[number % len(reads)]
        errors = close_while_asking(lambda store=store, read=read: read(store), store.close, number)
        assert [str(error) for error in errors] == ["the store is closed"] * 2
