"""What a run tells: one JSON line per event, a picture at the end, and progress on stderr.

On a terminal progress is a bar; elsewhere it is about ten plain lines.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from confluence.train import StepReport

PLAIN_LINES = 10  # of progress, where there is no terminal


def to_json(value: Any) -> str:
    """JSON on one line; what JSON cannot say (NaN, infinity) becomes null."""
    return json.dumps(_plain(value), allow_nan=False)


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

    def __init__(self, folder: Path, *, steps: int, every: int, contexts_per_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file = (folder / "log.jsonl").open("w", encoding="utf-8")
        self._every = every
        self._contexts_per_step = contexts_per_step
        self._steps = steps
        self._window: list[float] = []
        self._started = self._window_started = time.perf_counter()
        self._wait_seconds = 0.0
        self._plain_lines = 0
        self.losses: list[float] = []
        self._progress = self._task = None

    def __enter__(self) -> Log:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeRemainingColumn as Remaining

            columns = (TextColumn("train"), BarColumn(), MofNCompleteColumn(), Remaining())
            text = TextColumn("loss {task.fields[loss]}")
            progress: Any = Progress(*columns, text, console=Console(stderr=True))
            self._task = progress.add_task("train", total=self._steps, loss="")
            self._progress = progress
            progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if error is not None:
            self.event("error", message=f"{type(error).__name__}: {error}".rstrip(": "))
        if self._progress is not None:
            self._progress.stop()
        self._file.close()
        if self.losses:
            draw_losses(self.losses, self._folder / "loss.png")

    def event(self, kind: str, **fields: Any) -> None:
        """Write one line."""
        self._file.write(to_json({"event": kind, "time": time.time(), **fields}) + "\n")
        self._file.flush()

    def report(self, report: StepReport) -> None:
        """Take note of one step; every `every` steps a line with the mean loss since the last."""
        self.losses.append(report.loss)
        self._window.append(report.loss)
        if report.step % self._every and report.step != self._steps:
            return
        now = time.perf_counter()
        seconds = now - self._window_started
        loss = sum(self._window) / len(self._window)
        self.event(
            "train",
            step=report.step,
            loss=loss,
            gradient_norm=report.gradient_norm,
            learning_rate=report.learning_rate,
            contexts_per_second=len(self._window) * self._contexts_per_step / seconds,
            wait_share=(report.wait_seconds - self._wait_seconds) / seconds,
        )
        self._window, self._window_started = [], now
        self._wait_seconds = report.wait_seconds
        self._show(report.step, loss, now - self._started)

    def _show(self, step: int, loss: float, seconds: float) -> None:
        """Move the bar, or write a plain line each time another tenth of the run is done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step, loss=f"{loss:.4f}")
        elif step * PLAIN_LINES // self._steps > self._plain_lines:
            self._plain_lines = step * PLAIN_LINES // self._steps
            width = len(str(self._steps))
            line = f"step {step:>{width}}/{self._steps}  loss {loss:.4f}  {seconds:.0f} s\n"
            sys.stderr.write(line)
            sys.stderr.flush()


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
    figure.savefig(path, dpi=120)
