"""How many cells of a step fit into the memory: two sizes are measured, the rest is predicted.

    batch of n contexts   ──► own process: compile, step, peak ─┐
    batch of 4 n contexts ──► own process: compile, step, peak ─┴► a line ──► cells at the limit

The memory of a step grows with the cells that it computes, padding included: what is fixed
(parameters, optimizer, tables, program) and what a cell takes follow from two points. Each point
has a process of its own, so that nothing of another is in it; n/4 contexts are the other point if
4 n do not fit. Of a device the peak is what JAX says, of a processor the most resident memory since
the step was compiled. Where neither can be read, nothing is guessed. The method is seed 002's probe
of two points.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from headwater.shared import machine_bytes, say

from confluence.config import MEMORY_FRACTION, Config, kept_config
from confluence.data.planned_steps import with_steps
from confluence.data.stores import (
    category_limit,
    find_places,
    first_biases,
    open_stores,
    row_shape,
)
from confluence.data.tasks import device_tables
from confluence.data.verification import open_store, verified_stores
from confluence.measure.own_process import OwnProcessError, answer_question, ask_process
from confluence.ranks.group import current
from confluence.training.step import Constants, Feed, StepRunner, first_state

STEPS = 3  # after the first, whose compilation takes memory of its own
RATIO = 4  # of the two batches
GRAIN = 64  # cells; a budget is a multiple
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # to CLEAR: the peak of resident memory begins anew; proc(5)


class SizingError(ValueError):
    """The memory of a step cannot be measured, or no step fits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """What one size of batches takes."""

    contexts: int
    cells: int  # N, computed at once
    peak_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizing:
    """Two points, and what follows from them."""

    points: tuple[Point, Point]
    memory: str  # which: "resident memory of the process", "memory of the device"
    limit_bytes: int  # all of it
    fraction: float  # of that, which a step may take

    @property
    def bytes_per_cell(self) -> float:
        """What each cell adds."""
        first, second = self.points
        return (second.peak_bytes - first.peak_bytes) / (second.cells - first.cells)

    @property
    def fixed_bytes(self) -> float:
        """What a step without cells would take."""
        return self.points[0].peak_bytes - self.bytes_per_cell * self.points[0].cells

    def predict(self, cells: int) -> float:
        """Bytes at the peak of a step of so many cells."""
        return self.fixed_bytes + self.bytes_per_cell * cells

    def budget(self) -> int:
        """The most cells that fit, in multiples of GRAIN.

        Raises:
            SizingError: the points do not say what a cell takes, or not even GRAIN cells fit.
        """
        if self.bytes_per_cell <= 0:
            raise SizingError(
                f"{self._points()}: no more memory for more cells, so nothing is known of larger"
                " ones; give --cell-budget a number"
            )
        cells = (self.fraction * self.limit_bytes - self.fixed_bytes) / self.bytes_per_cell
        budget = int(cells // GRAIN) * GRAIN
        if budget < GRAIN:
            raise SizingError(
                f"{self._points()}: {self.fraction:.0%} of {_mb(self.limit_bytes)} hold no step;"
                " give a smaller model, or a larger --memory-fraction"
            )
        return budget

    def _points(self) -> str:
        points = " and ".join(f"{_mb(p.peak_bytes)} at {p.cells:,} cells" for p in self.points)
        return f"a step takes {points} ({self.memory})"

    def describe(self) -> list[str]:
        """Both points and the prediction, for people."""
        budget = self.budget()
        return [
            self._points(),
            f"predicted: {_mb(self.predict(budget))} at {budget:,} cells, {self.fraction:.0%} of"
            f" {_mb(self.limit_bytes)}; a step computes at most {budget:,} cells at once",
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it; JSON can hold it."""
        return {
            **dataclasses.asdict(self), "bytes_per_cell": self.bytes_per_cell,
            "fixed_bytes": self.fixed_bytes, "budget": self.budget(),
        }  # fmt: skip


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def fitting_budget(
    cfg: Config, stores: Sequence[Any], tasks: Sequence[Any], *, verify: str = "once",
    fraction: float = MEMORY_FRACTION,
) -> int:  # fmt: skip
    """The largest `cell_budget` with which the steps of a run fit into the memory; says why.

    Args:
        stores, tasks: one of each.
        fraction: of the device's memory, or of the machine's where the processor computes.

    Raises:
        SizingError: it cannot be measured, or nothing fits.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"memory_fraction is {fraction:g}, expected more than 0, at most 1")
    if len(stores) != 1 or len(tasks) != 1:
        raise ValueError("cell_budget 'auto' is for one task of one store: give a number")
    if current().size > 1:
        raise ValueError(
            "cell_budget 'auto' is measured on one device: run it without --devices, and give the"
            " number that it prints"
        )
    store = str(stores[0])
    verified_stores([store], verify)
    sizing = measure(cfg, store, tasks[0], fraction)
    for line in sizing.describe():
        say(line)
    return sizing.budget()


def measure(cfg: Config, store: str, task: str, fraction: float = MEMORY_FRACTION) -> Sizing:
    """Both points, each in a process of its own, one after the other.

    Raises:
        SizingError: a process ended without an answer, or cannot read its memory.
    """
    size, first = cfg.contexts, _ask(cfg, store, task)
    try:
        other, second = RATIO * size, _ask(cfg.replace(batch_size=RATIO * size), store, task)
    except SizingError:
        if size < RATIO:
            raise
        other, second = size // RATIO, _ask(cfg.replace(batch_size=size // RATIO), store, task)
    smaller, larger = sorted(
        (
            Point(contexts=contexts, cells=answer["cells"], peak_bytes=answer["peak_bytes"])
            for contexts, answer in ((size, first), (other, second))
        ),
        key=lambda point: point.contexts,
    )
    return Sizing(
        points=(smaller, larger), memory=first["memory"], limit_bytes=first["limit_bytes"],
        fraction=fraction,
    )  # fmt: skip


def _ask(cfg: Config, store: str, task: str) -> Mapping[str, Any]:
    """`main` of a process of its own."""
    question = {"settings": cfg.to_dict(), "store": str(Path(store).absolute()), "task": task}
    try:
        return ask_process(__name__, question)
    except OwnProcessError as error:
        raise SizingError(
            f"a step of {cfg.contexts} contexts could not be measured: {error}; give"
            " --cell-budget a number"
        ) from error


# ----------------------------------------------------------------------- the process of one point


def step_peak(settings: Mapping[str, Any], store: str, task: str) -> dict[str, Any]:
    """Run some steps, and say how much memory they took: cells, peak_bytes, limit_bytes, memory."""
    cfg = kept_config(settings)
    known = {store: open_store(store)}
    with open_stores(known, find_places(known, [task]), cfg) as stores:
        (opened,) = stores
        limit = category_limit(stores)
        tables = device_tables(opened.sampler, limit)
        width = int(opened.metadata["text"]["dim"])
        cfg = with_steps(cfg, stores)
        runner = StepRunner(
            cfg, [Constants(tables, opened.scales(cfg))], text_width=width, category_limit=limit,
            row_shape=row_shape(stores, cfg),
        )  # fmt: skip
        feed = Feed(lambda: (opened.sampler.next_train_batch(), 0), texts=[tables.texts])
        cells = int(opened.sampler.flat_shape(task)["cells"])
        state = first_state(cfg, width, first_biases(stores))
        for number in range(1 + STEPS):
            state, metrics = runner.step(state, feed.next_on_device(), feed.next_on_device)
            metrics["loss"].block_until_ready()
            if number == 0:
                reset_peak()
        return {"cells": cells, **read_peak()}


def reset_peak() -> None:
    """Have the peak of resident memory begin anew, where the system can, without what compiling has
    left to the allocator."""
    if jax.default_backend() == "cpu" and CLEAR.exists():
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
            trim(0)
        CLEAR.write_text(RESET_PEAK)


def read_peak() -> dict[str, Any]:
    """The most memory that was taken, of how much, and which.

    Raises:
        SizingError: nobody says.
    """
    if jax.default_backend() != "cpu":
        stats = jax.local_devices()[0].memory_stats() or {}
        if not {"peak_bytes_in_use", "bytes_limit"} <= stats.keys():
            raise SizingError("the device does not say how much memory it has used")
        return {
            "peak_bytes": int(stats["peak_bytes_in_use"]), "limit_bytes": int(stats["bytes_limit"]),
            "memory": "memory of the device",
        }  # fmt: skip
    if not CLEAR.exists():
        raise SizingError("this system does not say the peak of a process's resident memory")
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    return {
        "peak_bytes": int(lines["VmHWM"].split()[0]) * 1024, "limit_bytes": machine_bytes(),
        "memory": "resident memory of the process",
    }  # fmt: skip


if __name__ == "__main__":
    answer_question(step_peak)
