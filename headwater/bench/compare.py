"""How fast are we beside another program, in the same minutes on the same machine?

    python headwater/bench/compare.py OTHER STORE [--argument 0.4] [--driver bench_sampler]
                                      [--times 5] [--mode dense=+perms/adj] ...

OTHER prints lines such as `scale 0.4 mode +perms/adj K= 8: 28.7M cells/s ...`; it and our bench run
in alternation. One JSON line per mode: the ratio of the medians of the padded cells per second.
Ours has the other's shape (B = 128, S = 1024, R = 256, w = 16) and one thread: with --driver the C
driver, which makes batches in its only thread; else `headwater bench --threads 1`.

Ours maps its store (4 KB pages); what keeps its data in huge pages is met by --load ram.

The other reports the best of its own repeats, so ours is given as the median of its turns, which
is the claim to make, and as the best of them (`ratio_of_best`), which is like against like.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MODES = {"dense": "+perms/adj", "compact": "BFS+emit compact"}
INTERLEAVED = 8
SHAPE = ("--length", "1024", "--width", "16", "--max-rows", "256")
LINE = re.compile(r"mode (?P<mode>.+?) K= *(?P<k>\d+): (?P<rate>[\d.]+)M cells/s")


def parse_rates(output: str) -> dict[tuple[str, int], float]:
    """Cells per second by (mode, K) of the other program's output."""
    return {
        (found["mode"], int(found["k"])): 1e6 * float(found["rate"])
        for found in map(LINE.search, output.splitlines())
        if found is not None
    }


def run(command: Sequence[str]) -> str:
    """Standard output; RuntimeError with the last of standard error where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["(it says nothing)"])[-1]
        raise RuntimeError(f"'{' '.join(command)}' ended with {done.returncode}: {last}")
    return done.stdout


def our_command(options: argparse.Namespace, layout: str) -> list[str]:
    shared = [*SHAPE, "--layout", layout, "--seconds", str(options.seconds)]
    if options.driver is not None:
        task = ["--task", str(options.task_number)]
        more = ["--repeats", str(options.repeats), *(["--ram"] if options.load == "ram" else [])]
        return [str(options.driver), options.store, "--batch", "128", *shared, *task, *more]
    bench = [sys.executable, "-m", "headwater.cli", "bench", options.store, "--threads", "1"]
    task = ["--task", options.task, "--repeats", str(options.repeats)]
    return [*bench, "--batch-size", "128", "--load", options.load, *shared, *task]


def summarise(
    mode: str, other_mode: str, theirs: Sequence[float], ours: Sequence[tuple[float, float]]
) -> dict[str, object]:
    """`ours`: (median, best) of each run."""
    their_median = statistics.median(theirs)
    our_median = statistics.median(median for median, _ in ours)
    our_best = statistics.median(best for _, best in ours)
    return {
        "question": f"{mode} over '{other_mode}' of the other program, K = {INTERLEAVED}",
        "ratio": round(our_median / their_median, 3),
        "ratio_of_best": round(our_best / their_median, 3),
        "ours_cells_per_s": round(our_median),
        "theirs_cells_per_s": round(their_median),
        "ours": [round(median) for median, _ in ours],
        "theirs": [round(rate) for rate in theirs],
    }


def alternate(options: argparse.Namespace, modes: dict[str, str]) -> list[dict[str, object]]:
    """A mode that one of the two does not have is told and left out."""
    theirs: dict[str, list[float]] = {mode: [] for mode in modes}
    ours: dict[str, list[tuple[float, float]]] = {mode: [] for mode in modes}
    for _ in range(options.times):
        rates = parse_rates(run([str(options.other), *options.argument]))
        for mode in list(theirs):
            try:
                line = json.loads(run(our_command(options, mode)))
                theirs[mode].append(rates[modes[mode], INTERLEAVED])
                ours[mode].append((line["padded_cells_per_s"], line["padded_cells_per_s_max"]))
            except RuntimeError as error:
                print(f"compare: without '{mode}': {error}", file=sys.stderr)
                del theirs[mode]
            except KeyError:
                print(f"compare: '{options.other}' has no '{modes[mode]}'", file=sys.stderr)
                del theirs[mode]
    return [summarise(mode, modes[mode], theirs[mode], ours[mode]) for mode in theirs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("store")
    parser.add_argument("--argument", action="append", default=[], help="of the other program")
    parser.add_argument("--driver", type=Path, help="our C driver; default: headwater bench")
    parser.add_argument("--times", type=int, default=5, help="alternations (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one of our turns (1)")
    parser.add_argument("--repeats", type=int, default=5, help="turns in one run of ours (5)")
    parser.add_argument("--load", choices=("mmap", "ram"), default="mmap", help="of our store")
    parser.add_argument("--task", default="answered", help="of the store")
    parser.add_argument("--task-number", type=int, default=1, help="the same for the driver (1)")
    parser.add_argument("--mode", action="append", help="layout=mode of the other program")
    options = parser.parse_args()
    modes = dict(mode.split("=", 1) for mode in options.mode) if options.mode else MODES
    try:
        lines = alternate(options, modes)
    except (RuntimeError, OSError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    for line in lines:
        print(json.dumps(line))
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
