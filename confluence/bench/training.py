"""How fast does a model train here, what does it wait for, and how much memory does it need?

    python confluence/bench/training.py STORE --task T [--preset demo] [--steps 100]
        [--set width=128 --set batch_size=64 ...] [--out RUN]

Trains a task by `confluence.train`, as `confluence train --no-trees` does, on whatever device JAX
has, and prints one JSON line; in a folder that is removed afterwards, unless `--out` names one. One
configuration per process, as a device reports its peak of memory for the life of a process.

Rates are those that the run's log has at its end (docs/reference/model.md, "The log"): of
`timed_steps`, all but the first, which compiles and takes `first_step_seconds`. A step's time goes
to the moment its loss is read; evaluating and saving are in none. `loss` is the mean of the last
line of the log. `peak_device_memory_bytes` counts the arrays and the further memory that steps
need, not the memory that JAX reserves; null if the device, such as a CPU, does not report it.
`host_peak_rss_bytes` is this process's, compiler included.

`step_flops` is what JAX counts in the step before it is optimised: a product of cells and weights
as it stands, the body of a loop once, and nothing of a call of C. So it is too little for attention
"rows" (whose columns are a loop) and "compiled"; null with `accumulate`, where a step is several
functions. `flops_per_second` is `step_flops` by the median step.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headwater
import jax
import numpy as np

import confluence
from confluence.cli.arguments import setting_parsers
from confluence.config import PRESETS, Config, preset
from confluence.data.tasks import device_tables, open_sampler, read_row_shape, read_target
from confluence.data.verification import open_store
from confluence.model.patterns import attention_path
from confluence.model.transformer import compute_dtype
from confluence.training.kept_memory import keep_memory
from confluence.training.step import Constants, Feed, StepRunner, TrainState, first_state
from confluence.watch.log import FILE, read_summary
from confluence.watch.log_events import of_kind, read_events

RATES = (
    "timed_steps", "first_step_seconds", "cells_per_second", "contexts_per_second", "fetch_share",
    "wait_share", "bound_by",
)  # fmt: skip
BYTES_PER_RSS = 1 if sys.platform == "darwin" else 1024  # units of getrusage


def machine() -> dict[str, Any]:
    """What it is measured on."""
    device = jax.devices()[0]
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "device": device.device_kind, "platform": device.platform, "jax": jax.__version__,
        "cpus": cpus,
    }  # fmt: skip


def model(cfg: Config) -> dict[str, Any]:
    """The sizes of a step, and what the settings named "auto" came to."""
    return {
        "batch_size": cfg.batch_size, "sequence_length": cfg.sequence_length,
        "max_rows": cfg.max_rows, "compute_dtype": str(compute_dtype(cfg)),
        "attention": attention_path(cfg),
    }  # fmt: skip


def measures(folder: Path) -> dict[str, Any]:
    """What the log of a finished run says."""
    summary = read_summary(folder)
    times = summary["step_times"]
    return {
        "parameters": summary["parameters"],
        **{name: summary.get(name) for name in RATES},
        **{f"step_{name}": times.get(name) for name in ("p50_ms", "p90_ms", "p99_ms")},
        "peak_device_memory_bytes": summary.get("peak_device_memory_bytes"),
        "loss": of_kind(read_events(folder / FILE), "train")[-1]["loss"],
    }


@contextmanager
def ready_to_step(
    store: str, task: str, cfg: Config
) -> Iterator[tuple[headwater.Sampler, StepRunner, Feed, TrainState]]:
    """The objects of a training before its first step."""
    with open_sampler(open_store(store), cfg, task) as sampler:
        metadata = sampler.database_metadata()
        target, _ = read_target(sampler, task)
        width, limit = int(metadata["text"]["dim"]), target.category_limit
        tables = device_tables(sampler, limit)
        runner = StepRunner(
            cfg, [Constants(tables, target.scales(cfg))],
            text_width=width, category_limit=limit, row_shape=read_row_shape(metadata, cfg),
        )  # fmt: skip
        feed = Feed(lambda: (sampler.next_train_batch(), 0), texts=[tables.texts])
        yield sampler, runner, feed, first_state(cfg, width, target.first_biases())


def inspect(store: str, task: str, cfg: Config) -> dict[str, Any]:
    """What a batch and a step are made of, from a first step that is not run."""
    with ready_to_step(store, task, cfg) as (sampler, runner, feed, state):
        batch = feed.next_on_device().inputs
        found = {
            "batch_bytes": sum(array.nbytes for array in batch.values()),
            "batch_cells": feed.cells,
            "sampler_threads": sampler.stats()["threads"],
        }
        if cfg.accumulate > 1:
            return {**found, "step_flops": None}
        lowered = runner._step.lower(state, batch, runner._stores[0])
    counts = lowered.cost_analysis() or {}
    flops = counts.get("flops")
    return {**found, "step_flops": None if flops is None or not np.isfinite(flops) else flops}


def measure(
    store: str, task: str, folder: Path, *, name: str, steps: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Train a run in a folder, and say how that went.

    Args:
        name: of the preset.
        settings: other fields of `Config` than the preset's.
    """
    settings = {"save_every": 0, **settings, "steps": steps}
    cfg = preset(name, **settings)
    confluence.train(
        store, task=task, out=folder, preset=name, overwrite=True, trees=False, **settings
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_RSS
    found = {**machine(), "preset": name, "settings": settings, **model(cfg), **measures(folder)}
    found |= {"host_peak_rss_bytes": peak, **inspect(store, task, cfg)}
    flops, median = found["step_flops"], found["step_p50_ms"]
    found["flops_per_second"] = None if None in (flops, median) else 1e3 * flops / median
    return found


def main(arguments: list[str] | None = None) -> None:
    """The whole command."""
    keep_memory()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="demo", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--steps", type=int, default=100, help="the first is not timed")
    parser.add_argument(
        "--out", type=Path, help="keep the run in this folder, instead of its old content"
    )
    options = parser.parse_args(arguments)
    given = dict(item.split("=", 1) for item in options.set)
    settings = {name: setting_parsers()[name](value) for name, value in given.items()}
    with tempfile.TemporaryDirectory(prefix="confluence-bench-") as temporary:
        found = measure(
            options.store, options.task, options.out or Path(temporary), name=options.preset,
            steps=options.steps, settings=settings,
        )  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
