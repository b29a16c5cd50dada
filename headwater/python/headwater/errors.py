"""What headwater raises, and which status of the C library becomes which of it.

`nearest` is for messages about a name that is not there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class HeadwaterError(Exception):
    """Base of the errors that are headwater's own."""


class SamplerShutdown(HeadwaterError):  # noqa: N818, the API's name
    """The sampler was shut down; it gives no more batches."""


class StoreError(HeadwaterError):
    """A store is missing, truncated, damaged or of another version."""


class SchemaError(HeadwaterError):
    """metadata.json does not describe the source; the message lists every problem."""


class SourceError(HeadwaterError):
    """The source cannot be read, or holds what a store cannot."""


class EmbedderError(HeadwaterError):
    """Texts cannot be embedded: the model, the endpoint, its answers, or the cache of vectors."""


class TaskError(HeadwaterError):
    """A task cannot do what was asked, for example sample a split that has no seeds."""


class TimeNeededError(TaskError):
    """A task needs the time of each question, and none was given. `why` is the message without the
    name of the parameter for it, which differs between callers."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: give obs_time")
        self.why = why


@contextmanager
def named(parameter: str, value: object) -> Iterator[None]:
    """Errors about a parameter say which it is, and what was given."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if parameter in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{parameter} is {brief(value)}: {error}") from error


def brief(value: object) -> str:
    """A value as Python writes it, on one line and cut after 200 characters."""
    try:
        found = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        return f"a whole number of {math.log10(abs(value)):.0f} digits"  # type: ignore[arg-type]
    return found if len(found) <= 200 else f"{found[:150]}... ({len(found):,} characters)"


@contextmanager
def collected(problems: list[HeadwaterError]) -> Iterator[None]:
    """Go on after a HeadwaterError, which is kept."""
    try:
        yield
    except HeadwaterError as error:
        problems.append(error)


def raise_together(problems: Sequence[HeadwaterError], where: str = "") -> None:
    """One error for several of a kind, so that all can be mended at once."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise type(problems[0])(f"{len(problems)} problems{where}:{lines}") from problems[0]


def nearest(name: str, names: Iterable[str]) -> str:
    """ ", did you mean 'x'?" or nothing."""
    options = list(names)
    folded = {option.casefold(): option for option in options}
    match = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f", did you mean '{folded[match[0]]}'?" if match else ""


# By hw_status: what the binding raises. Success, the end of a pass and an interrupted wait are
# handled before this table is asked.
STATUS_ERRORS: tuple[type[BaseException], ...] = (
    SystemError,  # HW_OK
    MemoryError,
    ValueError,
    SourceError,
    StoreError,
    TaskError,
    OSError,
    TimeoutError,
    SamplerShutdown,
    StopIteration,  # HW_END
    KeyboardInterrupt,  # HW_INTERRUPTED
    RuntimeError,  # HW_FORKED
)
