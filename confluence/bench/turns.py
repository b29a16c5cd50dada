"""One setting with two values: both train the same model on the same seeds of a store, in turns.

Turns are of a few steps, so that what else the machine does falls on both. One JSON line per value.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from confluence.cli.arguments import setting_parsers
from confluence.config import PRESETS, Config, preset
from confluence.data.tasks import (
    device_tables,
    open_sampler,
    read_labels,
    read_row_shape,
    read_task,
)
from confluence.training.step import Constants, Feed, StepRunner, TrainState, first_state


class Run:
    """One value's sampler, compiled step and state."""

    def __init__(self, store: str, task: str, cfg: Config) -> None:
        self.sampler = open_sampler(store, cfg, task)
        metadata = self.sampler.database_metadata()
        target = read_task(metadata, read_labels(store, self.sampler, task), task)
        width, limit = int(metadata["text"]["dim"]), target.category_limit
        self.runner = StepRunner(
            cfg, [Constants(device_tables(self.sampler, limit), target.scales(cfg))],
            text_width=width, category_limit=limit, row_shape=read_row_shape(metadata, cfg),
        )  # fmt: skip
        self.state: TrainState = first_state(cfg, width, target.first_biases())
        self.feed = Feed(lambda: (self.sampler.next_train_batch(), 0))
        self.batch = self.feed.next_on_device()
        self.bytes = sum(array.nbytes for array in self.batch.inputs.values())
        self.losses: list[Any] = []
        self.step_ms: list[float] = []  # by turn
        self.cpu_ms: list[float] = []
        self.batch_ms: list[float] = []

    def temporary_bytes(self) -> int:
        """What one step needs beside its arguments and results, as the compiler plans it."""
        step = self.runner._step.lower(self.state, self.batch.inputs, self.runner._stores[0])
        return int(step.compile().memory_analysis().temp_size_in_bytes)

    def turn(self, steps: int) -> None:
        started, cpu_started, waited = time.perf_counter(), time.process_time(), 0.0
        for _ in range(steps):
            self.state, metrics = self.runner.step(self.state, self.batch)
            before = time.perf_counter()
            self.batch = self.feed.next_on_device()
            waited += time.perf_counter() - before
            self.losses.append(metrics["loss"])
        jax.block_until_ready(self.state)
        self.step_ms.append(1e3 * (time.perf_counter() - started) / steps)
        self.cpu_ms.append(1e3 * (time.process_time() - cpu_started) / steps)
        self.batch_ms.append(1e3 * waited / steps)


def median(turns: Any) -> float:
    """Over all turns but the first, which compiles."""
    return float(np.median(turns[1:]))


def compare(
    description: str | None, setting: str, values: tuple[str, ...],
    describe: Callable[[Run, NDArray[Any], NDArray[Any]], dict[str, Any]],
    *, turns: int, steps: int,
) -> None:  # fmt: skip
    """The whole command.

    Args:
        values: of the setting; the first is what the others are measured by.
        describe: more of a run for its line, from its losses and those of the first value.
        turns, steps: how many, and steps of each, unless told.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="demo", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--steps", type=int, default=steps, help="steps of a turn")
    options = parser.parse_args()
    given = dict(item.split("=", 1) for item in options.set)
    cfg = preset(options.preset, **{name: setting_parsers()[name](v) for name, v in given.items()})
    runs = {v: Run(options.store, options.task, cfg.replace(**{setting: v})) for v in values}
    for turn in range(-1, options.turns):
        for value in values if turn % 2 else reversed(values):
            runs[value].turn(options.steps)
    first = runs[values[0]]
    losses = {value: np.asarray(jax.device_get(run.losses)) for value, run in runs.items()}
    for value, run in runs.items():
        run.sampler.shutdown()
        result = {
            setting: value,
            "step_ms": round(median(run.step_ms), 2),
            f"over_{values[0]}": round(median(np.divide(run.step_ms, first.step_ms)), 4),
            "cpu_ms": round(median(run.cpu_ms), 2),
            "loss": float(losses[value][-1]),
            **describe(run, losses[value], losses[values[0]]),
        }
        sys.stdout.write(json.dumps({"preset": options.preset, **given, **result}) + "\n")
