"""Is what `confluence advise` predicts what a step takes, and does following its advice help?

    python confluence/bench/advice.py STORE --task T [--preset small] [--set width=16 ...]
        [--follow 3]

Asks for advice, and with --follow trains in turns as the settings are and as advised, each time a
whole run in a folder that is removed. One JSON line: by configuration the predicted and the
measured seconds of a step, their ratio less 1 (`off_by`), what bounds it and the share of the time
in which the device was busy, predicted and measured; the lines of advice; and of the runs in turns
the seconds of all steps but the first (which compiles) and of making batches before them, and the
median of the ratios of turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import confluence
from confluence.cli.arguments import setting_parsers
from confluence.config import PRESETS
from confluence.watch.log import FILE, read_summary
from confluence.watch.log_events import of_kind, read_events

PARTS = ("sample", "put", "call_seconds", "host", "step", "threads", "cores")


def told(row: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a measured configuration."""
    live, packed = row["live"], row["packed"]
    usage = live["usage"] or {"utilization_mean": None, "samples": 0}
    return {
        "preset": row["preset"], "parts": row["parts"], "cells": row["cells"],
        "bound_by": row["bound_by"], "predicted_seconds": row["predicted_seconds"],
        "measured_seconds": live["seconds"],
        "off_by": row["predicted_seconds"] / live["seconds"] - 1,
        **{name: row[name] for name in PARTS},
        "predicted_utilization": row["predicted_utilization"],
        "measured_utilization": usage["utilization_mean"],
        "samples": usage["samples"], "cpu_seconds": live["cpu_seconds"],
        "turns": live["turns"], "packed_seconds": packed and packed["seconds"],
        "packed_cpu_seconds": packed and packed["cpu_seconds"],
    }  # fmt: skip


def seconds_of(store: str, task: str, settings: dict[str, Any]) -> float:
    """Of a training, without what it takes to open it and to compile: batches that it makes before
    its steps, and all steps but the first."""
    with tempfile.TemporaryDirectory(prefix="confluence-bench-") as folder:
        out = Path(folder) / "run"
        confluence.train(store, task=task, out=out, **settings)
        summary = read_summary(out)
        (start,) = of_kind(read_events(out / FILE), "start")
        made = sum((about or {}).get("seconds", 0.0) for about in start["prebatched"])
        return float(made + summary["seconds"] - summary["first_step_seconds"])


def follow(store: str, task: str, turns: int, before: Any, after: Any) -> dict[str, Any]:
    """Train in turns with two sets of settings."""
    seconds: dict[str, list[float]] = {"as_they_are": [], "advised": []}
    for turn in range(turns):
        both = [("as_they_are", before), ("advised", after)]
        for name, settings in both if turn % 2 == 0 else reversed(both):
            seconds[name].append(seconds_of(store, task, settings))
    pairs = zip(seconds["advised"], seconds["as_they_are"], strict=True)
    return {"seconds": seconds, "ratio": statistics.median(a / b for a, b in pairs)}


def main() -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="small", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--follow", type=int, default=0, metavar="TURNS")
    options = parser.parse_args()
    given = dict(item.split("=", 1) for item in options.set)
    settings = {name: setting_parsers()[name](value) for name, value in given.items()}
    started = time.perf_counter()
    result = confluence.advise(
        options.store, task=options.task, presets=[options.preset], **settings
    )
    found = {
        "store": Path(options.store).name, "task": options.task, "settings": settings,
        "seconds": time.perf_counter() - started,
        "configurations": [told(row) for row in result["configurations"] if "failed" not in row],
        "advice": result["advice"], "too_busy": result["too_busy"],
    }  # fmt: skip
    if options.follow and result["too_busy"] is None:
        usual = {"preset": options.preset, "save_every": 0}
        after = {**usual, **result["settings"]}
        found["followed"] = follow(
            options.store, options.task, options.follow, {**usual, **settings}, after
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
