"""The log of a rank that writes none: rank 0 logs for all."""

from __future__ import annotations

from typing import Any

from confluence.watch.log_events import StepReport
from confluence.watch.observer import UNOBSERVED, Observer


class RankLog:
    """Takes what `Log` takes and keeps the number of steps."""

    def __init__(self, *, steps_done: int) -> None:
        self.losses = [0.0] * steps_done  # of the steps before: rank 0 knows them
        self.observer: Observer = UNOBSERVED  # rank 0 samples its own device

    def __enter__(self) -> RankLog:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pass

    def event(self, kind: str, **fields: Any) -> None:
        """Rank 0 writes it."""

    def report(self, report: StepReport) -> None:
        """Take note of one step."""
        self.losses.append(report.loss)

    def summary(self) -> dict[str, Any]:
        """Rank 0 has one."""
        return {}
