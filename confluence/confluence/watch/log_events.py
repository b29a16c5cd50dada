"""The log of a run as it counts: what a killed process had said of steps that came again is left
out, and so is a line that it had not finished."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Event = dict[str, Any]
REPEATED = ("train", "evaluate", "save")
BEGINNING = '{"event": "start", "'  # of a log
WHAT_STARTS = frozenset(("config", "tasks"))  # what the first event of a run has, and others do not
LONGEST_LINE = 1 << 20


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What is known of one finished step."""

    step: int  # counted from 1
    loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float  # from the end of the step before, or of what was done with its state
    fetch_seconds: float  # of these, in which the host fetched batches
    wait_seconds: float  # of these, in which the device waited for them
    cells: int  # of its contexts
    positions: int  # of its batches: cells and padding
    task_loss: float | None = None  # the two parts of the loss, where cells are masked beside a
    masked_loss: float | None = None  # task: loss = task_loss + auxiliary_weight * masked_loss


def read_events(path: Path) -> list[Event]:
    """The events of `log.jsonl`, in order; none if there is no such file."""
    events: list[Event] = []
    for event in read_lines(path):
        if event["event"] == "resume":
            step = event["step"]
            events = [e for e in events if e["event"] not in REPEATED or e["step"] <= step]
        events.append(completed(event) if event["event"] == "evaluate" else event)
    return events


def first_event(path: Path) -> Event | None:
    """How a log begins; None where there is none."""
    return next(read_lines(path), None)


def is_log(path: Path) -> bool:
    """Whether a run wrote this file: it begins with a run's start, or a kill cut that short."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline(LONGEST_LINE)
    if not line.endswith("\n"):
        return line.startswith(BEGINNING) or BEGINNING.startswith(line)
    event = next(read_lines(path), {})
    return line.startswith(BEGINNING) and not WHAT_STARTS.isdisjoint(event)


def completed(result: Mapping[str, Any]) -> Event:
    """An evaluation with its task and metrics; of masked cells, their loss, in all and by type."""
    if "metrics" in result:
        return dict(result)
    by_type = {f"{name} loss": part.get("loss") for name, part in result.get("types", {}).items()}
    metrics = {"loss": result.get("loss"), **by_type}
    return {**result, "task": result.get("objective"), "metrics": metrics}


def read_lines(path: Path) -> Iterator[Event]:
    """What each whole line says; none if there is no such file."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # cut short by a kill
            if isinstance(event, dict) and "event" in event:
                yield event


def of_kind(events: list[Event], *kinds: str) -> list[Event]:
    """The events of these kinds."""
    return [event for event in events if event["event"] in kinds]


def curve(events: list[Event], name: str) -> list[tuple[float, float]]:
    """(step, value) of every event that has the value; `name` may be a path like "metrics/f1"."""
    found = []
    for event in events:
        value: Any = event
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.append((float(event["step"]), float(value)))
    return found
