"""What a run tells: one JSON line per event, a picture at the end, and progress on stderr.

A `train` line stands for the steps since the line before: their mean loss, the last step's gradient
norm and learning rate, seconds per step, the shares of them in which the host fetched batches and
the device waited for them, cells and contexts per second, and what bounded the sampler. Where cells
are masked beside a task, it also has the mean losses of both apart, over the steps of this process.
The `end` line sums up the steps of one process, the first apart, because it compiles, and says how
much memory of its device the process needed at most, where the device tells, and how busy the
device was (`usage`), which is also printed. On a terminal progress is a bar; elsewhere it is about
ten plain lines.

A run that goes on appends a `resume` line with the step it goes on from. What a killed process had
logged after that step comes again behind it, with the same losses.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from headwater.shared import regular, say, whole
from headwater.shared import to_json as ascii_json

from confluence.watch.log_events import StepReport, read_lines
from confluence.watch.meters import device_memory
from confluence.watch.observer import Observer, Observers
from confluence.watch.usage import Usage, UsageSampler, describe_usage, host_warning

FILE = "log.jsonl"
PLAIN_LINES = 10  # of progress, where there is no terminal
BIN_RATIO = 2.0**0.25  # between the edges of the histogram of step times
BIN_LIMIT = 100  # most bins

ReadStats = Callable[[Mapping[str, Any] | None], dict[str, Any]]


def to_json(value: Any) -> str:
    """JSON on one line; what JSON cannot say (NaN, infinity) becomes null."""
    text: str = ascii_json(_plain(value), allow_nan=False)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


class Log:
    """The log of one training run: `log.jsonl`, a progress bar, and `loss.png` when it closes."""

    def __init__(
        self, folder: Path, *, steps: int, every: int, contexts_per_step: int,
        losses: Sequence[float] = (), read_stats: ReadStats | None = None,
        trackers: Mapping[str, Observer] | None = None, usage: UsageSampler | None = None,
    ) -> None:  # fmt: skip
        """`losses`: of the steps before, if the run goes on. `read_stats`: `Sampler.stats`.
        `trackers`: where all events go as well. `usage`: how busy the device is. Both are closed
        with the log; the loop reports to them by `observer`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        mode = "a" if losses else "w"
        self._file = open(folder / FILE, mode, encoding="utf-8", opener=regular)  # noqa: SIM115
        self._end_line()
        self._every = every
        self._contexts_per_step = contexts_per_step
        self._steps = steps
        self._read_stats = read_stats
        self._usage = usage
        self._figures: Usage | None = None  # once the process is done with its steps
        device = {} if usage is None else {"usage": usage}
        self.observer = Observers({**(trackers or {}), **device})
        self._first_stats = self._window_stats = read_stats(None) if read_stats else None
        self._started = time.perf_counter()
        self._plain_lines = len(losses) * PLAIN_LINES // steps
        self.losses = list(losses)
        self._window = self.losses[len(losses) // every * every :]
        self._window_reports: list[StepReport] = []
        self._reports: list[StepReport] = []
        self._progress = self._task = None

    def _end_line(self) -> None:
        """What a kill or a full disk cut short is a line of its own, before anything is added."""
        if self._file.tell() > 0:
            with (self._folder / FILE).open("rb") as written:
                written.seek(-1, os.SEEK_END)
                self._file.write("" if written.read() == b"\n" else "\n")

    def __enter__(self) -> Log:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeRemainingColumn as Remaining

            columns = (TextColumn("train"), BarColumn(), MofNCompleteColumn(), Remaining())
            text = TextColumn("loss {task.fields[loss]}")
            progress: Any = Progress(*columns, text, console=Console(stderr=True))
            self._task = progress.add_task(
                "train", total=self._steps, completed=len(self.losses), loss=""
            )
            self._progress = progress
            progress.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._progress is not None:
            with contextlib.suppress(OSError):  # of a terminal that was closed
                self._progress.stop()
        # The error may be of a full disk; more of that must not take its place.
        quietly: Any = contextlib.nullcontext() if error is None else contextlib.suppress(OSError)
        with contextlib.closing(self.observer), quietly, contextlib.closing(self._file):
            if error is not None:
                self.event("error", message=f"{type(error).__name__}: {error}".rstrip(": "))
            if self.losses:
                draw_losses(self.losses, self._folder / "loss.png")
            if error is None:
                self._say_usage()

    def _say_usage(self) -> None:
        """The figures by which the run's use of its device is judged."""
        if self._figures is None:
            return
        for line in describe_usage(self._figures):
            say(line)
        later = self._reports[1:]
        wait_share = self._rates(later)["wait_share"] if later else 0.0
        problem = host_warning(self._figures, wait_share)
        if problem is not None:
            say(f"warning: {problem}")

    def event(self, kind: str, **fields: Any) -> None:
        """Write one line, and pass it on."""
        self._file.write(to_json({"event": kind, "time": time.time(), **fields}) + "\n")
        self._file.flush()
        self.observer.event(kind, fields)

    def report(self, report: StepReport) -> None:
        """Take note of one step; every `every` steps a line about those since the last."""
        self.losses.append(report.loss)
        self._window.append(report.loss)
        self._window_reports.append(report)
        self._reports.append(report)
        self.observer.step(report)
        if report.step % self._every and report.step != self._steps:
            return
        loss = sum(self._window) / len(self._window)
        self.event(
            "train",
            step=report.step,
            loss=loss,
            **_loss_parts(self._window_reports),
            gradient_norm=report.gradient_norm,
            learning_rate=report.learning_rate,
            **self._rates(self._window_reports),
            **(self._usage.line() if self._usage else {}),
            **self._bound(self._window_stats),
        )
        self._window, self._window_reports = [], []
        if self._read_stats:
            self._window_stats = self._read_stats(None)
        self._show(report.step, loss, time.perf_counter() - self._started)

    def summary(self) -> dict[str, Any]:
        """Of the steps of this process: rates and a histogram of their times without the first."""
        if not self._reports:
            return {}
        first, later = self._reports[0], self._reports[1:]
        return {
            "timed_steps": len(later),
            "first_step_seconds": first.seconds,
            **(self._rates(later) if later else {}),
            **self._bound(self._first_stats),
            **self._cut(),
            **self._peak_memory(),
            **self._used(),
            "step_times": step_times([report.seconds for report in later]),
        }

    def _rates(self, reports: Sequence[StepReport]) -> dict[str, float]:
        seconds = sum(report.seconds for report in reports)
        return {
            "step_seconds": seconds / len(reports),
            "fetch_share": sum(report.fetch_seconds for report in reports) / seconds,
            "wait_share": sum(report.wait_seconds for report in reports) / seconds,
            "cells_per_second": sum(report.cells for report in reports) / seconds,
            "contexts_per_second": len(reports) * self._contexts_per_step / seconds,
            "alive_share": sum(report.cells for report in reports)
            / sum(report.positions for report in reports),
        }

    def _bound(self, since: Mapping[str, Any] | None) -> dict[str, str]:
        """What bounded the sampler since then (docs/guides/tuning.md)."""
        return {"bound_by": self._read_stats(since)["bound_by"]} if self._read_stats else {}

    def _cut(self) -> dict[str, Any]:
        """Contexts for which batches had no room to the end, and the share of cells lost by it."""
        stats = self._read_stats(self._first_stats) if self._read_stats else {}
        if "cells_cut" not in stats:  # batches were made before
            return {}
        cut = stats["cells_cut"]
        whole = stats["packed_cells"] + cut
        return {"contexts_cut": stats["contexts_cut"], "cut_share": cut / whole if whole else 0.0}

    def _peak_memory(self) -> dict[str, int]:
        """The most that this process has had of its device's memory so far."""
        peak = (device_memory() or {}).get("peak_bytes_in_use")
        return {} if peak is None else {"peak_device_memory_bytes": int(peak)}

    def _used(self) -> dict[str, Any]:
        """How busy and how full the device was."""
        self._figures = None if self._usage is None else self._usage.figures()
        return {} if self._figures is None else {"usage": self._figures.to_dict()}

    def _show(self, step: int, loss: float, seconds: float) -> None:
        """Move the bar, or write a plain line each time another tenth of the run is done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step, loss=f"{loss:.4f}")
        elif step * PLAIN_LINES // self._steps > self._plain_lines:
            self._plain_lines = step * PLAIN_LINES // self._steps
            width = len(str(self._steps))
            say(f"step {step:>{width}}/{self._steps}  loss {loss:.4f}  {seconds:.0f} s")


def _loss_parts(reports: Sequence[StepReport]) -> dict[str, float]:
    """The means of what the loss is made of, where cells are masked beside a task."""
    parts: dict[str, float] = {}
    for name in ("task_loss", "masked_loss"):
        values = [getattr(report, name) for report in reports]
        if None not in values:
            parts[name] = sum(values) / len(values)
    return parts


def step_times(seconds: Sequence[float]) -> dict[str, Any]:
    """Quantiles of step times in ms, and how many lie between neighbouring edges."""
    if not seconds:
        return {}
    times = 1e3 * np.asarray(seconds)
    quantiles = np.quantile(times, (0.5, 0.9, 0.99))
    low = math.floor(math.log(times.min(), BIN_RATIO))
    high = min(math.floor(math.log(times.max(), BIN_RATIO)) + 1, low + BIN_LIMIT)
    edges = [BIN_RATIO**i for i in range(low, high + 1)]
    counts, _ = np.histogram(np.clip(times, edges[0], edges[-1]), edges)
    named = zip(("p50_ms", "p90_ms", "p99_ms"), quantiles, strict=True)
    return {
        **{name: float(value) for name, value in named},
        "max_ms": float(times.max()),
        "edges_ms": [round(edge, 3) for edge in edges],
        "counts": [int(count) for count in counts],
    }


def read_summary(folder: Path) -> dict[str, Any]:
    """The `end` line of a finished run's log; empty if there is none."""
    found: dict[str, Any] = {}
    for event in read_lines(folder / FILE):
        found = event if event["event"] == "end" else found
    return found


def draw_losses(losses: list[float], path: Path) -> None:
    """A picture of the loss by step, with its running mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    window = max(1, len(losses) // 50)
    means = [
        sum(losses[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(losses))
    ]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = range(1, len(losses) + 1)
    axes.plot(steps, losses, color="#bbbbbb", linewidth=0.6, label="loss")
    axes.plot(steps, means, color="#1f4e79", linewidth=1.6, label=f"mean of {window} steps")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
    with whole(path) as unfinished:
        figure.savefig(unfinished, dpi=120, format="png")
