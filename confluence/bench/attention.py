"""How much faster does a step train with row-structured attention than with dense attention?

    python confluence/bench/attention.py STORE --task T [--preset demo] [--set width=128]

Both paths train the same model on the same seeds of one store, in turns of a few steps, so that
what else the machine does falls on both. One JSON line per path. Medians over turns: `step_ms`;
`over_dense`, its ratio to the dense turn beside it; `cpu_ms` of all threads. `temporary_bytes` is
what the compiler plans for a step beside parameters, optimizer state and batch. The losses differ
by rounding, which grows from step to step: `first_loss_difference` is that of the first.
"""

from __future__ import annotations

import argparse
import json
import sys

import jax
import numpy as np
from layouts import Run, median

from confluence.cli import _settings
from confluence.config import PRESETS, preset

PATHS = ("dense", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="demo", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn")
    options = parser.parse_args()
    given = dict(setting.split("=", 1) for setting in options.set)
    cfg = preset(options.preset, **{name: _settings()[name](v) for name, v in given.items()})
    runs = {path: Run(options.store, options.task, cfg.replace(attention=path)) for path in PATHS}
    for turn in range(-1, options.turns):
        for path in PATHS if turn % 2 else reversed(PATHS):
            runs[path].turn(options.steps)
    losses = {name: np.asarray(jax.device_get(run.losses)) for name, run in runs.items()}
    for name, run in runs.items():
        run.sampler.shutdown()
        result = {
            "attention": name,
            "step_ms": round(median(run.step_ms), 2),
            "over_dense": round(median(np.divide(run.step_ms, runs["dense"].step_ms)), 4),
            "cpu_ms": round(median(run.cpu_ms), 2),
            "temporary_bytes": run.temporary_bytes(),
            "loss": float(losses[name][-1]),
            "first_loss_difference": float(abs(losses[name][0] - losses["dense"][0])),
        }
        sys.stdout.write(json.dumps({"preset": options.preset, **given, **result}) + "\n")


if __name__ == "__main__":
    main()
