"""A question to a module, answered in a process of its own: what it takes of the machine is its
own, and a process that the system ends takes nothing else with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from confluence.training.kept_memory import keep_memory

OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "cannot allocate", "Unable to allocate")


class OwnProcessError(RuntimeError):
    """A process ended without an answer; the message is the last that it printed."""


class OutOfMemoryError(OwnProcessError):
    """The system ended it, as it does if memory ends, or it had no more."""


def ask_process(module: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """What the module's `main`, which is `answer_question`, answers; both are JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module], input=json.dumps(question), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        message = lines[-1] if lines else f"exit code {done.returncode}"
        is_of_memory = done.returncode < 0 or any(word in message for word in OF_MEMORY)
        raise (OutOfMemoryError if is_of_memory else OwnProcessError)(message)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def answer_question(work: Callable[..., Mapping[str, Any]]) -> None:
    """Answer the question on stdin, whose fields are the arguments of `work`, on stdout."""
    keep_memory()
    question = json.load(sys.stdin)
    try:
        answer = work(**question)
    except Exception as error:  # of whatever kind: the last line of stderr is what is said of it
        sys.exit(f"{error}".replace("\n", " "))
    sys.stdout.write(json.dumps(answer))
