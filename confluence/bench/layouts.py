"""Is it faster to train from compact or from dense batches, end to end?

    python confluence/bench/layouts.py STORE --task T [--preset demo] [--set sequence_length=1024]

Both layouts train the same model on the same seeds of one store, in turns of a few steps, so that
what else the machine does falls on both. A turn takes batches from the sampler, puts them on the
device and steps, as `confluence.train.fit` does; it ends when the device has finished. One JSON
line per layout. Medians over turns, per step: `step_ms`; `over_dense`, its ratio to the dense turn
beside it; `cpu_ms` of all threads; `batch_ms` spent waiting for the next batch and putting it on
the device. Then the bytes moved per batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import jax
import numpy as np

from confluence.cli import _settings
from confluence.config import PRESETS, Config, preset
from confluence.data import device_tables, open_sampler, read_labels, read_row_shape, read_task
from confluence.train import Constants, Feed, StepRunner, TrainState, first_state

LAYOUTS = ("dense", "compact")


class Run:
    """One layout's sampler, compiled step and state."""

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="demo", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    options = parser.parse_args()
    given = dict(setting.split("=", 1) for setting in options.set)
    cfg = preset(options.preset, **{name: _settings()[name](v) for name, v in given.items()})
    runs = {
        layout: Run(options.store, options.task, cfg.replace(layout=layout)) for layout in LAYOUTS
    }
    for turn in range(-1, options.turns):
        for layout in LAYOUTS if turn % 2 else reversed(LAYOUTS):
            runs[layout].turn(options.steps)
    losses = {name: np.asarray(jax.device_get(run.losses)) for name, run in runs.items()}
    for name, run in runs.items():
        run.sampler.shutdown()
        result = {
            "layout": name,
            "step_ms": round(median(run.step_ms), 2),
            "over_dense": round(median(np.divide(run.step_ms, runs["dense"].step_ms)), 4),
            "cpu_ms": round(median(run.cpu_ms), 2),
            "batch_ms": round(median(run.batch_ms), 2),
            "bytes": run.bytes,
            "loss": float(losses[name][-1]),
            "largest_loss_difference": float(np.abs(losses[name] - losses["dense"]).max()),
        }
        sys.stdout.write(json.dumps({"preset": options.preset, **given, **result}) + "\n")


if __name__ == "__main__":
    main()
