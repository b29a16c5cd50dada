"""Functions of the library that call back."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

END = None  # in the place of what was said


def listen(work: Callable[[Callable[..., int]], None], hear: Callable[..., object]) -> None:
    """Run `work(tell)`, whose `tell(...)`, called in C, is `hear(...)` here; it returns 1 to end.

    The work has a thread of its own: an interrupt is raised in the main thread, and in a callback
    it would be lost, as would any error of `hear`. Both end the work and come out of here.
    """
    said: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
    answers: SimpleQueue[int] = SimpleQueue()
    failures: list[BaseException] = []
    ended = Event()

    def tell(*words: Any) -> int:
        if ended.is_set():
            return 1
        said.put(words)
        return answers.get()

    def run() -> None:
        try:
            work(tell)
        except BaseException as error:
            failures.append(error)
        said.put(END)

    worker = Thread(target=run, name="headwater")
    worker.start()
    try:
        while (words := said.get()) is not END:
            hear(*words)
            answers.put(0)
    except BaseException:
        ended.set()
        answers.put(1)  # to the one that waits, if one does
        raise
    finally:
        worker.join()
    if failures:
        raise failures[0]
