"""How many contexts of a step fit into the memory: two sizes are measured, the rest is predicted.

    4 n contexts, twice  ─┐
    64 n contexts, twice ─┴► a line, clear of its noise ──► checked at 16 n ──► what the limit holds

The memory of a step grows with the cells that it computes, padding included: the fixed part
(parameters, optimizer, tables, program) and the part of a cell follow from two points. n is the
batch of the settings; the memory of smaller ones hides in what compiling has left. Each measurement
has a process of its own, so that nothing of another is in it. Two of one size differ by the noise.
If the points are not ten times that apart, sizes go up, twice at most; if the second may not fit,
they go down. On a device JAX reports the peak; on a processor it is the most resident memory during
a step, the median of some. If neither can be read, or if the line fails its check, nothing is
guessed. The method is seed 002's probe of two points.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import statistics
import time
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
from confluence.measure.own_process import (
    OutOfMemoryError,
    OwnProcessError,
    answer_question,
    ask_process,
)
from confluence.packs.walk import MEMORY_SHARE, available_memory
from confluence.ranks.group import current
from confluence.training.step import Constants, Feed, StepRunner, first_state

STEPS = 3  # after the first, whose compilation takes memory of its own; their median counts
SETTLING_SECONDS = 0.1  # after a step's loss is there: its memory may be given back only then
FIRST, RATIO = 4, 16  # the first point is so many batches, the second so many times as large
STRIDE = 4  # by which sizes go up and down, and times the first point the check
REPEATS = 2  # of each of the two points
CLEAR = 10  # times their noise, that two points are apart at least
MOST_UP = 2  # times that they go up
WITHIN = 0.1  # of how far the points are apart, that the line is off at its check; by a parabola
# what cells take beyond the points is then off by an eighth
GRAIN = 64  # cells; a budget is a multiple
DIGITS = 2  # of the number of contexts
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # to REFERENCES: the peak of resident memory begins anew; proc(5)


class SizingError(ValueError):
    """The memory of a step cannot be measured, or no step fits."""


class TooLargeError(SizingError):
    """The memory does not hold a step of this size."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The memory that one size of batches takes."""

    contexts: int
    cells: int  # N, computed at once
    peaks: tuple[int, ...]  # bytes, of each measurement

    @property
    def peak_bytes(self) -> float:
        """The mean."""
        return statistics.fmean(self.peaks)

    def __str__(self) -> str:
        sizes = " and ".join(f"{peak / 1e6:,.0f}" for peak in self.peaks)
        return f"{sizes} MB at {self.contexts:,} contexts ({self.cells:,} cells)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizing:
    """Two points, what follows from them, and how that held at a third."""

    points: tuple[Point, Point]
    check: Point | None  # None: the two points are not clear of their noise
    memory: str  # which: "resident memory of the process", "memory of the device"
    limit_bytes: int  # all of it
    fraction: float  # of that, which a step may take

    @property
    def noise_bytes(self) -> int:
        """The most that measurements of one size differ by."""
        return max(max(point.peaks) - min(point.peaks) for point in self.points)

    @property
    def is_clear(self) -> bool:
        """Whether the points are far enough apart for their noise."""
        first, second = self.points
        return second.peak_bytes - first.peak_bytes > CLEAR * self.noise_bytes

    @property
    def bytes_per_cell(self) -> float:
        """What each cell adds."""
        first, second = self.points
        return (second.peak_bytes - first.peak_bytes) / (second.cells - first.cells)

    @property
    def fixed_bytes(self) -> float:
        """What a step without cells would take."""
        return self.points[0].peak_bytes - self.bytes_per_cell * self.points[0].cells

    def predict(self, cells: float) -> float:
        """Bytes at the peak of a step of so many cells."""
        return self.fixed_bytes + self.bytes_per_cell * cells

    def contexts(self) -> int:
        """About how many contexts of a step fit, to two digits; raises as `budget`."""
        contexts = self._held() / self._cells_of_context
        grain: int = 10 ** max(0, len(str(int(contexts))) - DIGITS)
        return round(contexts / grain) * grain

    def budget(self) -> int:
        """The most cells that fit, in multiples of GRAIN.

        Raises:
            SizingError: the line does not hold, or not even one context fits.
        """
        return max(GRAIN, int(self._held()) // GRAIN * GRAIN)

    def _held(self) -> float:
        """The cells that fit."""
        if self.check is None or not self.is_clear:
            raise SizingError(
                f"{self._points()}: the points are not {CLEAR} times as far apart as measurements"
                f" of one size ({self.noise_bytes / 1e6:,.1f} MB), so larger sizes cannot be"
                " predicted; give --cell-budget a number"
            )
        first, second = self.points
        off, apart = self._off_by(self.check), second.peak_bytes - first.peak_bytes
        if abs(off) > WITHIN * apart:
            raise SizingError(
                f"{self._points()}, and their line is {off / 1e6:+,.0f} MB off {self.check}: more"
                f" than {WITHIN:.0%} of the {_mb(apart)} between them, so larger sizes cannot be"
                " predicted; give --cell-budget a number"
            )
        cells = (self.fraction * self.limit_bytes - self.fixed_bytes) / self.bytes_per_cell
        if cells < self._cells_of_context:
            raise SizingError(
                f"{self._points()}: {self.fraction:.0%} of {_mb(self.limit_bytes)} hold no context;"
                " give a smaller model, or a larger --memory-fraction"
            )
        return cells

    @property
    def _cells_of_context(self) -> float:
        return self.points[1].cells / self.points[1].contexts

    def _off_by(self, point: Point) -> float:
        """By how many bytes the line is too high."""
        return self.predict(point.cells) - point.peak_bytes

    def _points(self) -> str:
        return f"a step takes {self.points[0]}, {self.points[1]} ({self.memory})"

    def describe(self) -> list[str]:
        """What follows from the points, for people; `measure` prints the points."""
        contexts, budget = self.contexts(), self.budget()
        assert self.check is not None
        return [
            f"the line of two sizes is {self._off_by(self.check) / 1e6:+,.0f} MB off the third, by"
            f" {self.memory}",
            f"{self.fraction:.0%} of {_mb(self.limit_bytes)} hold about {contexts:,} contexts: a"
            f" step computes at most {budget:,} cells at once",
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it; JSON can hold it."""
        return {
            **dataclasses.asdict(self), "bytes_per_cell": self.bytes_per_cell,
            "fixed_bytes": self.fixed_bytes, "noise_bytes": self.noise_bytes,
            "contexts": self.contexts(), "budget": self.budget(),
        }  # fmt: skip


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def fitting_budget(
    cfg: Config, stores: Sequence[Any], tasks: Sequence[Any], *, verify: str = "once",
    fraction: float = MEMORY_FRACTION,
) -> int:  # fmt: skip
    """The largest `cell_budget` with which the steps of a run fit into the memory; prints why.

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
    """The points, each measurement in a process of its own, one after the other.

    Raises:
        SizingError: a process ended without an answer, or cannot read its memory.
    """
    answers: dict[int, Mapping[str, Any]] = {}
    points: dict[int, Point] = {}

    def point(contexts: int, repeats: int = REPEATS) -> Point:
        if contexts in points:
            return points[contexts]
        found = [_ask(cfg.replace(batch_size=contexts), store, task) for _ in range(repeats)]
        answers[contexts] = found[0]
        peaks = tuple(answer["peak_bytes"] for answer in found)
        points[contexts] = Point(contexts=contexts, cells=found[0]["cells"], peaks=peaks)
        say(f"a step takes {points[contexts]}")
        return points[contexts]

    def line(first: Point, second: Point) -> Sizing:
        known = answers[first.contexts]
        return Sizing(
            points=(first, second), check=None, memory=known["memory"],
            limit_bytes=known["limit_bytes"], fraction=fraction,
        )  # fmt: skip

    def may_not_fit(contexts: int, known: Point) -> bool:
        """Whether so many contexts may not: they take no more than in proportion to fewer."""
        answer = answers[known.contexts]
        room = min(fraction * int(answer["limit_bytes"]), int(answer["free_bytes"]))
        return known.peak_bytes * contexts / known.contexts > room

    size, found = FIRST * cfg.contexts, None
    while found is None:
        try:
            first = point(size)
            if size < STRIDE or not may_not_fit(RATIO * size, first):
                found = line(first, point(RATIO * size))
        except TooLargeError:
            if size < STRIDE:
                raise
        size //= STRIDE
    first, second = found.points
    for _ in range(MOST_UP):
        if found.is_clear or may_not_fit(STRIDE * second.contexts, second):
            break
        first, second = (point(STRIDE * known.contexts) for known in (first, second))
        found = line(first, second)
    if not found.is_clear:
        return found
    return dataclasses.replace(found, check=point(STRIDE * first.contexts, repeats=1))


def _ask(cfg: Config, store: str, task: str) -> Mapping[str, Any]:
    """`main` of a process of its own."""
    question = {"settings": cfg.to_dict(), "store": str(Path(store).absolute()), "task": task}
    try:
        return ask_process(__name__, question)
    except OwnProcessError as error:
        kind = TooLargeError if isinstance(error, OutOfMemoryError) else SizingError
        raise kind(
            f"a step of {cfg.contexts} contexts could not be measured: {error}; give"
            " --cell-budget a number"
        ) from error


# ----------------------------------------------------------------------- the process of one point


def step_peak(settings: Mapping[str, Any], store: str, task: str) -> dict[str, Any]:
    """Run some steps, and say how much memory one took: cells, peak_bytes, limit_bytes, memory, and
    free_bytes, which steps may take here at present."""
    limit_bytes = read_peak()["limit_bytes"]  # raises before anything is done
    on_cpu = jax.default_backend() == "cpu"
    free_bytes = int(MEMORY_SHARE * available_memory()) if on_cpu else limit_bytes
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
        found = []
        for _ in range(1 + STEPS):
            reset_peak()
            state, metrics = runner.step(state, feed.next_on_device(), feed.next_on_device)
            metrics["loss"].block_until_ready()
            found.append(read_peak())
            time.sleep(SETTLING_SECONDS)
        peaks = sorted(one["peak_bytes"] for one in found[1:])
        return {
            "cells": cells, **found[-1], "peak_bytes": peaks[STEPS // 2], "free_bytes": free_bytes
        }  # fmt: skip


def reset_peak() -> None:
    """Have the peak of resident memory begin anew, where the system can, without what compiling and
    other steps have left to the allocator."""
    if jax.default_backend() == "cpu" and REFERENCES.exists():
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
            trim(0)
        REFERENCES.write_text(RESET_PEAK)


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
    if not REFERENCES.exists():
        raise SizingError("this system does not say the peak of a process's resident memory")
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    return {
        "peak_bytes": int(lines["VmHWM"].split()[0]) * 1024, "limit_bytes": machine_bytes(),
        "memory": "resident memory of the process",
    }  # fmt: skip


if __name__ == "__main__":
    answer_question(step_peak)
