"""Does it harm learning that batches are levelled?

    python confluence/bench/levelling.py RESULTS.jsonl STORE:TASK [STORE:TASK ...] [--seeds 3]
        [--preset small] [--set steps=600 ...]

Trains each task by confluence twice for each seed, on levelled batches and on batches in the order
of the stream (headwater's `level_block` 1), and scores both on val. A line per run is added to the
file, and runs that it has are not repeated. Then one JSON line on stdout: the mean of the paired
differences, levelled less stream, of AUROC or of -MAE over the spread of the train labels, with its
95 % interval by Student's t.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from scipy.stats import t as student

import confluence
from confluence.cli.arguments import setting_parsers
from confluence.config import PRESETS
from confluence.data import stores
from confluence.data.tasks import NO_BATCHES, open_sampler, read_target
from confluence.data.verification import open_store
from confluence.scores.metrics import main_metric

BLOCKS = {"levelled": 32, "stream": 1}


def train(
    store: str, task: str, order: str, preset: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """What one run has on val."""
    opened = stores.open_sampler
    stores.open_sampler = functools.partial(open_sampler, level_block=BLOCKS[order])
    try:
        with tempfile.TemporaryDirectory(prefix="confluence-bench-") as out:
            run = confluence.train(store, task=task, out=out, preset=preset, **settings)
            result = run.evaluate("val", trees=False, resamples=0)
            log = [json.loads(line) for line in (Path(out) / "log.jsonl").open()]
    finally:
        stores.open_sampler = opened
    end = next(line for line in log if line["event"] == "end")
    place = run.place()
    with open_sampler(open_store(store), run.config, task, **NO_BATCHES) as sampler:
        stype = read_target(sampler, task)[0].stype
    name, sign = main_metric(stype, run.config.metric)
    value = result["metrics"][name]
    spread = 1.0 if sign > 0 else place.moments["std"]
    return {
        "metric": name, "value": value, "goodness": sign * value / spread,
        "alive_share": end["alive_share"], "cut_share": end["cut_share"],
    }  # fmt: skip


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The paired differences, and their mean."""
    by_run: dict[tuple[str, str, int], dict[str, float]] = {}
    for line in lines:
        key = (line["store"], line["task"], line["seed"])
        by_run.setdefault(key, {})[line["order"]] = line["goodness"]
    pairs = {key: own for key, own in by_run.items() if len(own) == len(BLOCKS)}
    differences = [own["levelled"] - own["stream"] for own in pairs.values()]
    found: dict[str, Any] = {"pairs": len(differences)}
    if len(differences) > 1:
        mean, t = statistics.fmean(differences), student.ppf(0.975, len(differences) - 1)
        half = float(t) * statistics.stdev(differences) / math.sqrt(len(differences))
        found |= {"mean": mean, "interval": [mean - half, mean + half]}
        for task in sorted({key[1] for key in pairs}):
            own = [d for key, d in zip(pairs, differences, strict=True) if key[1] == task]
            found[task] = {"mean": statistics.fmean(own), "differences": own}
    return found


def main() -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("tasks", nargs="+", metavar="STORE:TASK")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--preset", default="small", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    options = parser.parse_args()
    given = dict(item.split("=", 1) for item in options.set)
    settings = {name: setting_parsers()[name](value) for name, value in given.items()}
    lines = []
    if options.results.exists():
        lines = [json.loads(line) for line in options.results.open(encoding="utf-8")]
    for seed in range(options.seeds):
        for where in options.tasks:
            store, _, task = where.rpartition(":")
            for order in BLOCKS:
                about = {
                    "store": Path(store).name, "task": task, "seed": seed, "order": order,
                    "preset": options.preset, "settings": given,
                }  # fmt: skip
                if any(about.items() <= line.items() for line in lines):
                    continue
                found = train(store, task, order, options.preset, {**settings, "seed": seed})
                lines.append({**about, **found})
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    sys.stdout.write(json.dumps(summary(lines)) + "\n")


if __name__ == "__main__":
    main()
