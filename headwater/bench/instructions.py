"""How many instructions does a padded cell take, by stage?

    python headwater/bench/instructions.py DRIVER STORE... [--layout compact] [--record FILE]

Runs the C driver (bench_sampler) under callgrind, which counts instructions and not time, so that
the figure repeats to the last digit on a busy machine and a change of 1 % is a change. One JSON
line per store and layout: what the commit is called, the store's fingerprint, and instructions per
padded cell of each stage. --record appends the lines to a file. What the driver cannot do (a layout
that its library does not have) is told and left out.

A function's instructions count for the stage of its source file. What runs in libc (memset,
memcpy) counts for the file that called it. Needs a driver with debug information.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import headwater

ROOT = Path(__file__).resolve().parents[2]
TOGGLE = "measure_batches*"  # a compiler may have cloned it under a longer name
BATCHES = 4
# A file belongs to the stage whose word its path in `src` begins with; the rest is "other".
STAGES = {
    "walk": ("walk/", "base/rng", "plan/order", "loader/batch_seeds"),
    "emit": ("batch/emit", "batch/canvas", "batch/attention_masks", "base/calendar"),
    "permute": ("batch/cell_order",),
    "text": ("batch/texts",),
}
OURS = "/headwater/"
POSITION = re.compile(r"^[+\-*\d]\S* (\d+)$")
NAMED = re.compile(r"^(fl|fi|fe|fn|cfi|cfl|cfn|ob|cob)=(?:\((\d+)\))?\s*(.*)$")


def stage_of(file: str) -> str:
    """The stage of one of our source files."""
    name = "/".join(Path(file).parts[-2:])
    for stage, words in STAGES.items():
        if name.startswith(words):
            return stage
    return "other"


def instructions_by_file(profile: str) -> dict[str, int]:
    """Instructions by our source files, from the text of a callgrind profile.

    The format lists functions (`fl`, `fn`), their own costs by line, and after each `calls` the
    inclusive cost of the calls. Names are given once and numbered. A call into a function that is
    not ours is its caller's cost, and such a function's own lines are left out.
    """
    names: dict[tuple[str, str], str] = {}
    costs: dict[str, int] = defaultdict(int)
    file = callee = ""
    is_call = False
    for line in profile.splitlines():
        if named := NAMED.match(line):
            what, number, name = named.groups()
            kind = "file" if what in ("fl", "fi", "fe", "cfi", "cfl") else what.removeprefix("c")
            if number and name:
                names[kind, number] = name
            name = names.get((kind, number), name)
            if what == "fl":
                file = callee = name
            elif what in ("cfi", "cfl"):
                callee = name
            elif what == "fn":
                callee = file
        elif line.startswith("calls="):
            is_call = True
        elif found := POSITION.match(line):
            is_ours_callee = OURS in callee
            if OURS in file and (not is_call or not is_ours_callee):
                costs[file] += int(found[1])
            if is_call:
                is_call, callee = False, file
    return dict(costs)


def per_stage(costs: dict[str, int], padded_cells: int) -> dict[str, float]:
    stages = dict.fromkeys([*STAGES, "other"], 0)
    for file, cost in costs.items():
        stages[stage_of(file)] += cost
    figures = {name: round(cost / padded_cells, 2) for name, cost in stages.items()}
    return {"total": round(sum(costs.values()) / padded_cells, 2), **figures}


def measure(driver: Path, store: str, options: list[str]) -> dict[str, object]:
    """One JSON line's content; RuntimeError with what the driver or valgrind said."""
    if shutil.which("valgrind") is None:
        raise RuntimeError("there is no valgrind; install the package of that name")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        command = [
            *("valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"),
            *(f"--toggle-collect={TOGGLE}", str(driver), store, "--batches", str(BATCHES)),
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:  # valgrind's own lines begin with its number
            said = [text for text in done.stderr.splitlines() if not text.startswith("==")]
            raise RuntimeError(" ".join(said) or f"'{driver}' ended with {done.returncode}")
        costs = instructions_by_file(profile.read_text())
    if not costs:
        raise RuntimeError(f"nothing was counted; '{driver}' needs debug information")
    line = json.loads(done.stdout)
    with headwater.Store(store) as opened:
        name, fingerprint = opened.metadata["name"], opened.fingerprint
    shape = {key: line[key] for key in ("layout", "text_mode", "B", "S", "R", "w", "U")}
    files = {Path(file).name: round(cost / line["padded_cells"], 2) for file, cost in costs.items()}
    files = {file: cost for file, cost in files.items() if cost > 0}
    return {
        "question": "instructions per padded cell",
        "commit": _commit(),
        "store": name,
        "fingerprint": fingerprint,
        **shape,
        "fill": line["fill"],
        **per_stage(costs, line["padded_cells"]),
        "files": dict(sorted(files.items(), key=lambda item: -item[1])),
    }


@functools.cache  # for lines that were recorded make the tree another one
def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("driver", type=Path)
    parser.add_argument("store", nargs="+")
    parser.add_argument("--layout", action="append", help="dense (default) or compact; repeatable")
    parser.add_argument("--child-counts", action="store_true", help="with child_counts=True")
    parser.add_argument("--peer-labels", default="0", metavar="N", help="with peer_labels=N")
    parser.add_argument("--task", default="1", metavar="N", help="number of the task (1)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append the lines here")
    options = parser.parse_args()
    measured = 0
    for store in options.store:
        for layout in options.layout or ["dense"]:
            try:
                given = ["--layout", layout, "--task", options.task]
                given += ["--child-counts", str(int(options.child_counts))]
                given += ["--peer-labels", options.peer_labels]
                figures = measure(options.driver, store, given)
                figures["child_counts"] = options.child_counts
                figures["peer_labels"] = int(options.peer_labels)
            except RuntimeError as error:
                print(f"instructions: {error}", file=sys.stderr)
                continue
            measured += 1
            line = json.dumps(figures)
            print(line)
            if options.record is not None:
                options.record.parent.mkdir(parents=True, exist_ok=True)
                with options.record.open("a") as file:
                    file.write(line + "\n")
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
