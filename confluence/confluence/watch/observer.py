"""Who receives the figures of a training while it runs: trackers, traces, the sampling of its
device.

    Log ──► event ─┐                      ┌─► settings, scalars ──► trackers (`trackers.py`)
    loop ──────────┴─► Observers, by name ┼─► span, step ─────────► traces (`telemetry.py`)
                                          └─► dispatched, left_out ► the device (`usage.py`)
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from confluence.watch.log_events import StepReport, completed


class Observer:
    """Receives what a training does; called by the thread that trains.

    A class that is derived from it has the methods for what it records; the others do nothing.
    """

    def settings(self, values: Mapping[str, Any]) -> None:
        """The settings of the run, once for each process that trains it."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step."""

    def step(self, report: StepReport) -> None:
        """A step has just ended."""

    def dispatched(self, result: Any) -> None:
        """The device has been given work, of which this array is a result."""

    def span(self, name: str, **attributes: int) -> AbstractContextManager[None]:
        """Within it the loop does what the name says."""
        return contextlib.nullcontext()

    def left_out(self) -> AbstractContextManager[None]:
        """Within it the loop does something other than steps, such as an evaluation."""
        return contextlib.nullcontext()

    def close(self, how: str) -> None:
        """The process ends: "finished", "stopped" or "failed"."""


UNOBSERVED = Observer()


class Tracker(Observer):
    """Where a run's log goes as well."""

    run_id: str  # by which it knows the run


class Observers(Observer):
    """Several observers. One that raises is left out with a warning: it never ends a training."""

    def __init__(self, named: Mapping[str, Observer]) -> None:
        self._named = dict(named)
        self._how = "failed"  # unless an event says otherwise

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass on what is new in an event of the log."""
        self._how = {"end": "finished", "stop": "stopped"}.get(kind, self._how)
        if kind in ("start", "resume"):
            self.settings(dict(flat({**fields, **fields["config"], "config": None})))
        values = dict(numbers(kind, fields))
        if values:
            self.scalars(int(fields.get("step", fields.get("steps", 0))), values)

    def settings(self, values: Mapping[str, Any]) -> None:
        self._each(lambda observer: observer.settings(values))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._each(lambda observer: observer.scalars(step, values))

    def step(self, report: StepReport) -> None:
        self._each(lambda observer: observer.step(report))

    def dispatched(self, result: Any) -> None:
        self._each(lambda observer: observer.dispatched(result))

    def span(self, name: str, **attributes: int) -> AbstractContextManager[None]:
        return self._within(lambda observer: observer.span(name, **attributes))

    def left_out(self) -> AbstractContextManager[None]:
        return self._within(lambda observer: observer.left_out())

    def close(self, how: str | None = None) -> None:
        """By default as the events say."""
        self._each(lambda observer: observer.close(how or self._how))
        self._named = {}

    def _each(self, call: Callable[[Observer], None]) -> None:
        for name, observer in list(self._named.items()):
            try:
                call(observer)
            except Exception as error:  # of another's library, which must not end a training
                del self._named[name]
                warnings.warn(f"{name} gets no more of the log: {error!r}", stacklevel=3)

    @contextlib.contextmanager
    def _within(self, enter: Callable[[Observer], AbstractContextManager[None]]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            self._each(lambda observer: stack.enter_context(enter(observer)))
            yield


def numbers(kind: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an event: train/loss, val/<task>/<metric>, run/<what the end says>."""
    prefix: str
    values: Mapping[str, Any]
    if kind == "train":
        prefix, values = "train", fields
    elif kind == "evaluate":
        result = completed(fields)
        prefix, values = f"{result['split']}/{result['task']}", result["metrics"]
    elif kind in ("end", "stop"):
        prefix, values = "run", fields
    else:
        return
    for name, value in flat(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name not in ("step", "steps"):
            yield f"{prefix}/{name}", float(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts by their path; absent ones left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}/")
        elif value is not None:
            yield f"{prefix}{name}", value
