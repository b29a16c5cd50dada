"""How long do boosted trees take for many seeds of the shop? A line of JSON with CPU seconds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from confluence.config import preset
from confluence.data.tasks import NO_BATCHES, SPLITS, open_sampler, read_target
from confluence.trees.own_columns import OwnColumns
from confluence.trees.task_trees import AskedTrees, fit_trees

import headwater
from headwater import shop

METADATA = Path(__file__).resolve().parents[1] / "examples" / "shop" / "shop.json"


def main() -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--customers", type=int, default=54_000, help="100,000 train seeds [54000]")
    parser.add_argument("--work", type=Path, required=True, help="folder of the shop and its store")
    options = parser.parse_args()
    database, store = (options.work / f"{options.customers}.{kind}" for kind in ("sqlite", "hw"))
    if not store.exists():
        options.work.mkdir(parents=True, exist_ok=True)
        shop.generate(database, customers=options.customers)
        headwater.build(f"sqlite:///{database}", store, metadata=METADATA)
    cfg = preset("small").for_answers()
    with headwater.Store(store) as opened:
        with open_sampler(opened, cfg, "churn", **NO_BATCHES) as sampler:
            task, labels = read_target(sampler, "churn")
        with OwnColumns(opened, cfg, task) as own_columns:
            began = time.process_time()
            trees = fit_trees(own_columns, labels)
            fitted = time.process_time()
            index = np.flatnonzero(labels.splits == SPLITS["val"])
            AskedTrees(own_columns, labels, trees).answers(
                index, labels.anchor_rows[index].astype(np.int64), labels.obs_times[index]
            )
    seeds = int(np.sum((labels.splits == SPLITS["train"]) & labels.is_known))
    found = {
        "train_seeds": seeds, "fit_cpu_s": round(fitted - began, 2), "questions": index.size,
        "ask_cpu_s": round(time.process_time() - fitted, 2), "features": len(trees.features),
    }  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
