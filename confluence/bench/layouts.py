"""What does it bring to have no padding between contexts?

    python confluence/bench/layouts.py STORE --task T [--preset small] [--turns 5] [--steps 8]
        [--set width=128 ...]

Trains the same model in turns on batches of sequences, which are padded to S cells (layout
"compact"), and on flat ones, which is what confluence does. One JSON line: for both the share of
positions that are cells in training and over val, contexts per second of processor time (sampling,
transfer and steps; the medians of turns in alternation) and their ratio; of flat batches also N,
and the share of cells for which a batch had no room.

`loss_difference` is that of the fifth step, as a share of the loss, if both layouts train on the
same contexts, those of flat batches; null where a batch was cut.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from confluence.cli.arguments import setting_parsers
from confluence.config import PRESETS, Config, preset
from confluence.data.tasks import (
    Alive,
    cell_count,
    device_tables,
    open_sampler,
    read_row_shape,
    read_target,
)
from confluence.data.verification import open_store
from confluence.training.step import Constants, Fed, Feed, StepRunner, TrainState, first_state

LAYOUTS = ("compact", "flat")
COMPARED_STEPS = 5
VAL_BATCHES = 200


class Trainer:
    """One model on batches of one layout."""

    def __init__(self, store: str, task: str, cfg: Config, sampler: Any) -> None:
        metadata = sampler.database_metadata()
        target, _ = read_target(sampler, task)
        limit, width = target.category_limit, int(metadata["text"]["dim"])
        tables = device_tables(sampler, limit)
        self.runner = StepRunner(
            cfg, [Constants(tables, target.scales(cfg))],
            text_width=width, category_limit=limit, row_shape=read_row_shape(metadata, cfg),
        )  # fmt: skip
        self.first = lambda: first_state(cfg, width, target.first_biases())
        self.state: TrainState = self.first()
        self.texts = [tables.texts]
        self.feed = Feed(lambda: (sampler.next_train_batch(), 0), texts=self.texts)

    def train(self, steps: int) -> float:
        """Processor seconds of so many steps."""
        started = time.process_time()
        for _ in range(steps):
            self.state, metrics = self.runner.step(self.state, self.feed.next_on_device())
            float(metrics["loss"])
        return time.process_time() - started

    def losses(self, batches: Iterator[Any]) -> list[float]:
        """Of steps from first weights."""
        state, found = self.first(), []
        feed = Feed(lambda: (next(batches), 0), texts=self.texts)
        for _ in range(COMPARED_STEPS):
            fed: Fed = feed.next_on_device()
            state, metrics = self.runner.step(state, fed)
            found.append(float(metrics["loss"]))
        return found


def loss_difference(trainers: dict[str, Trainer], samplers: dict[str, Any]) -> float | None:
    """Of the last of a few steps on the same contexts."""
    flat = [samplers["flat"].batch("train", k) for k in range(COMPARED_STEPS)]
    counts = [int(batch["num_contexts"][0]) for batch in flat]
    same = [
        samplers["compact"].batch_of(batch.info["seed_index"][:count])
        for batch, count in zip(flat, counts, strict=True)
    ]
    if any(cell_count(a) != cell_count(b) for a, b in zip(flat, same, strict=True)):
        return None
    ours = trainers["flat"].losses(iter(flat))[-1]
    theirs = trainers["compact"].losses(iter(same))[-1]
    return abs(ours - theirs) / abs(theirs)


def val_share(sampler: Any) -> float | None:
    """The share of the positions of a pass over val that are cells."""
    if not sampler.num_seeds("val"):
        return None
    alive = Alive()
    with sampler.epoch("val") as run:
        for _ in itertools.islice(alive.counted(run), VAL_BATCHES):
            pass
    return alive.share()


def measure(store: str, task: str, cfg: Config, turns: int, steps: int) -> dict[str, Any]:
    """The figures of both layouts."""
    with contextlib.ExitStack() as stack:
        samplers = {
            layout: stack.enter_context(open_sampler(open_store(store), cfg, task, layout=layout))
            for layout in LAYOUTS
        }
        trainers = {name: Trainer(store, task, cfg, samplers[name]) for name in LAYOUTS}
        found: dict[str, Any] = {"loss_difference": loss_difference(trainers, samplers)}
        seconds: dict[str, list[float]] = {name: [] for name in LAYOUTS}
        for trainer in trainers.values():
            trainer.train(2)
        for _ in range(turns):
            for name, trainer in trainers.items():
                seconds[name].append(trainer.train(steps))
        for name, trainer in trainers.items():
            feed, median = trainer.feed, statistics.median(seconds[name])
            found[name] = {
                "alive_share": feed.cells / feed.positions,
                "alive_share_val": val_share(samplers[name]),
                "contexts_per_cpu_second": steps * cfg.batch_size / median,
            }
        stats, shape = samplers["flat"].stats(), samplers["flat"].flat_shape(task)
        whole = stats["packed_cells"] + stats["cells_cut"]
        found["flat"] |= {"cells": shape["cells"], "cut_share": stats["cells_cut"] / whole}
        found["capped_share"] = shape["capped"] / max(1, shape["sampled"])
    ratios = np.divide(seconds["compact"], seconds["flat"])
    return {**found, "ratio": float(np.median(ratios)), "ratios": [round(r, 3) for r in ratios]}


def main(arguments: list[str] | None = None) -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="small", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    options = parser.parse_args(arguments)
    given = dict(item.split("=", 1) for item in options.set)
    settings = {name: setting_parsers()[name](value) for name, value in given.items()}
    cfg = preset(options.preset, **settings)
    found = measure(options.store, options.task, cfg, options.turns, options.steps)
    line = {"store": options.store, "task": options.task, "preset": options.preset, **found}
    sys.stdout.write(json.dumps({**line, "settings": given}) + "\n")


if __name__ == "__main__":
    main()
