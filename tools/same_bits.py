"""Shows whether a change keeps the bits of confluence's outputs.

    python tools/same_bits.py OUT_FOLDER

makes small runs on the shop of `make demo` in a new folder and prints `sha256  name` for each
output, sorted by name, and last the digest of all these lines. Run it with the code before the
change and with the code after it, on one machine: equal lines are equal bits. It takes about two
and a half minutes on two CPU cores. Its first line on stderr is the folder of the confluence that
it measures.

Weights count by the names, types, shapes and bytes of their arrays, and files by their bytes.
Times, rates and memory differ between two executions, so logs are read with constants in their
place, and so is the log that the page of a run is made from. The code here uses only commands and
functions that users have: a refactoring may move everything else. The one task is boolean; answers
of other types are not made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import confluence
import headwater

METADATA = Path(__file__).resolve().parents[1] / "examples" / "shop" / "shop.json"
STORE = "demo/store"
# A source tree without the compiled attention is an error: "auto" would use another path.
RECIPE: dict[str, Any] = {"preset": "demo", "batch_size": 8, "attention": "compiled"}
FEW = 50  # draws of the bootstrap
RICH: dict[str, Any] = {  # settings that add to contexts, losses and the log
    "seed": 7, "init_from": "masked", "auxiliary_weight": 0.2, "half_life_days": 90.0,
    "staleness": (0.5, 30.0), "cell_dropout": 0.1, "child_counts": True, "label_rows": 2,
    "peer_labels": 4, "accumulate": 2, "eval_every": 10,
}  # fmt: skip
FILES = (
    "evaluation-*.json", "probe-*.json", "backtest*.json", "predictions-*", "loss.png",
    "pack/*.bin",
)  # fmt: skip
# Values of a log that differ between two executions or folders, and the constants in their place.
VOLATILE: dict[str, Any] = {
    "time": 0.0, "seconds": 1.0, "first_step_seconds": 1.0, "step_seconds": 1.0,
    "fetch_share": 0.5, "wait_share": 0.5, "cells_per_second": 1.0, "contexts_per_second": 1.0,
    "utilization": 0.5, "process_cores": 1.0, "process_memory_bytes": 1, "bound_by": "consumer",
    "usage": {"utilization_mean": 0.5},
    "step_times": {"p50_ms": 1.0, "p90_ms": 1.0, "edges_ms": [1.0, 2.0], "counts": [1]},
    "prebatched": [None],
}  # fmt: skip


def python(module: str, *arguments: str, **settings: Any) -> str:
    """Run a module as a command, with settings as options; returns its stdout."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", module, *arguments, *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def sha256(content: bytes | str) -> str:
    """The digest of bytes, or of a text without the path of the folder that has all runs."""
    if isinstance(content, str):
        content = content.replace(f"{Path.cwd()}/", "").encode()
    return hashlib.sha256(content).hexdigest()


def of_arrays(arrays: Mapping[str, Any]) -> str:
    """The digest of arrays by name."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def steady_log(run: Path) -> str:
    """The log of a run with the constants of VOLATILE."""
    lines = []
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        event = {name: value for name, value in json.loads(line).items() if name not in VOLATILE}
        lines.append(json.dumps({**event, **VOLATILE}) + "\n")
    return "".join(lines)


# ---- the runs ------------------------------------------------------------------------------


def demo() -> dict[str, str]:
    """The command of `make demo`, another evaluation, and a handful of keys at a time."""
    python("headwater.shop", "shop.sqlite", customers=1000)
    printed = python(
        "confluence", "run", "sqlite:///shop.sqlite", metadata=METADATA, task="churn", out="demo",
        steps=30, **RECIPE,
    )  # fmt: skip
    run = confluence.load("demo")
    run.evaluate("val", resamples=FEW)
    run.evaluate("val", regime="frozen", resamples=FEW, trees=False)
    keys = Path("demo/predictions-keys.csv")
    run.predict(keys=[39, 191, 39], at="2025-12-01", path=keys)
    run.predict(keys=[5, 7], at=["2025-10-01", "2025-11-01"], path="demo/predictions-times.csv")
    run.predict(keys_file=keys, path="demo/predictions-file.parquet")
    with headwater.Sampler(STORE, tasks=["churn"]) as sampler:
        batch = sampler.next_train_batch()
        arrays = of_arrays({**batch, **{f"info {name}": a for name, a in batch.info.items()}})
    return {"demo/printed": sha256(printed), "demo/store batch": arrays}


def masked() -> None:
    """Pretraining on masked cells, its loss on other contexts, and a probe."""
    run = confluence.pretrain(STORE, out="masked", steps=10, **RECIPE)
    run.evaluate("test")
    run.probe("test", task="churn", resamples=FEW)


def several() -> dict[str, str]:
    """A second run that starts with the pretrained weights, its page, and both runs together."""
    second = confluence.train(STORE, task="churn", out="second", steps=20, **{**RECIPE, **RICH})
    second.evaluate("val", resamples=FEW)
    first = confluence.load("demo")
    first.evaluate("test", others=[second], resamples=FEW)
    first.predict(split="test", others=[second], path="demo/predictions-several.csv")
    copy = Path("page", "second")
    shutil.copytree("second", copy)
    (copy / "log.jsonl").write_text(steady_log(copy), encoding="utf-8")
    python("confluence", "page", str(copy))
    page = sha256((copy / "run.html").read_text(encoding="utf-8"))
    shutil.rmtree("page")
    return {"second/run.html": page}


def with_trees() -> None:
    """Answers of which boosted trees have half."""
    run = confluence.load("demo")
    run.evaluate("test", tree_share=0.5, resamples=FEW)
    run.predict(split="test", tree_share=0.5, path="demo/predictions-trees.csv")


def ranks() -> dict[str, str]:
    """Two processes that train and evaluate together."""
    settings = {**RECIPE, "steps": 10, "devices": 2}
    python("confluence", "train", STORE, task="churn", out="ranks", **settings)
    printed = python("confluence", "evaluate", "ranks", split="test", resamples=FEW, devices=2)
    return {"ranks/printed": sha256(printed)}


def pack() -> None:
    """A pack, and a run that learns from it, with another attention."""
    confluence.prebatch(STORE, task="churn", out="pack", steps=10, **RECIPE)
    confluence.train(prebatched="pack", out="packed", attention="rows")


def backtest() -> None:
    """Two cutoffs with two seeds each."""
    confluence.backtest(
        STORE, task="churn", out="backtest", folds=2, seeds=(1, 2), steps=10, **RECIPE
    )


# ---- the outputs ---------------------------------------------------------------------------


def outputs() -> dict[str, str]:
    """Digests of the files, logs and weights of all runs."""
    found = {}
    for path in (path for pattern in FILES for path in Path().rglob(pattern)):
        # The names of results of several runs have a digest of these runs' folders.
        name = re.sub(r"-runs-[0-9a-f]{6}", "-runs", path.as_posix())
        found[name] = sha256(path.read_bytes())
    for run in (path.parent for path in Path().rglob("log.jsonl")):
        found[f"{run}/log.jsonl"] = sha256(steady_log(run))
        found[f"{run}/weights"] = of_arrays(confluence.load(run).params)
    return found


def main() -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER", help="a new folder for the runs")
    folder = parser.parse_args().out
    folder.mkdir(parents=True)
    os.chdir(folder)  # paths are relative, so that no output has the name of the folder
    os.environ |= {
        "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(Path("cache").absolute()),
        "PYTHONPATH": os.pathsep.join(sys.path[1:]),  # for commands: the same confluence
    }  # fmt: skip
    print(Path(confluence.__file__).parent, file=sys.stderr, flush=True)
    found = demo()
    masked()
    found |= several()
    with_trees()
    found |= ranks()
    pack()
    backtest()
    digests = sorted({**found, **outputs()}.items())
    lines = "".join(f"{value}  {name}\n" for name, value in digests)
    print(f"{lines}{sha256(lines)}  all lines above")


if __name__ == "__main__":
    main()
