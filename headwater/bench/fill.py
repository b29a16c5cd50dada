"""How full are the batches of a store: sequences, with packing, and flat?

    python headwater/bench/fill.py STORE --task T [--max-hops 2] [--sequence-length 1024] ...

One JSON line per way: padded and real cells of the first batches of the train stream, fill,
contexts per batch, what was cut, and of flat batches the fill of a pass over val. Counts only, no
times: the same on any machine.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import headwater

WAYS: dict[str, dict[str, Any]] = {
    "sequences": {},
    "packing": {"packing": True},
    "flat": {"layout": "flat"},
}


def lengths(arguments: argparse.Namespace, way: str) -> dict[str, Any]:
    """S, and with packing the cells of a context; without, a sequence is one context."""
    if arguments.context_length is None:
        return {"default_sequence_length": arguments.sequence_length}
    if way == "packing":
        return {
            "default_sequence_length": arguments.sequence_length,
            "context_length": arguments.context_length,
        }
    return {"default_sequence_length": arguments.context_length}


def counts_of(arguments: argparse.Namespace, way: str, rank: int) -> dict[str, Any]:
    """What a rank's first batches have, and with flat batches its part of a pass over val."""
    with headwater.Sampler(
        arguments.store,
        rank,
        arguments.ranks,
        shard="dealt",
        tasks=[arguments.task],
        default_batch_size=arguments.batch_size // arguments.ranks,
        max_rows=arguments.max_rows,
        bfs_child_width=arguments.child_width,
        child_order=arguments.child_order,
        identifier_cells=arguments.identifier_cells,
        max_hops=arguments.max_hops,
        text_mode="resident",
        num_prefetch=0,
        **lengths(arguments, way),
        **WAYS[way],
    ) as sampler:
        for k in range(arguments.batches):
            sampler.batch("train", k)
        found = {**sampler.shape, **(stats := sampler.stats())}
        found["val_cells"] = found["val_padded_cells"] = 0
        if way == "flat" and sampler.num_seeds("val"):
            for _ in sampler.epoch("val"):
                pass
            val = sampler.stats(since=stats)
            found |= {"val_cells": val["packed_cells"], "val_padded_cells": val["padded_cells"]}
    return found


def measure(arguments: argparse.Namespace, way: str) -> dict[str, object]:
    """Of all ranks."""
    ranks = [counts_of(arguments, way, rank) for rank in range(arguments.ranks)]
    sums = {
        name: sum(rank[name] for rank in ranks)
        for name in ("sequences", "cells", "cells_cut", "padded_cells", "contexts_cut",
                     "contexts_dropped", "val_cells", "val_padded_cells")
    }  # fmt: skip
    cells = sums["cells"] - sums["cells_cut"]
    found: dict[str, object] = {
        "way": way, "ranks": arguments.ranks,
        **{name: ranks[0][name] for name in
           ("max_rows", "contexts_per_batch", "contexts_per_sequence")},
        "contexts": sums["sequences"], "cells": cells, "padded_cells": sums["padded_cells"],
        "fill": round(cells / sums["padded_cells"], 3),
        **{name: sums[name] for name in ("contexts_cut", "contexts_dropped", "cells_cut")},
    }  # fmt: skip
    if sums["val_padded_cells"]:
        found["fill_val"] = round(sums["val_cells"] / sums["val_padded_cells"], 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--context-length", type=int, help="of a context; by default S")
    parser.add_argument("--max-rows", type=int)
    parser.add_argument("--child-width", type=int, default=16)
    parser.add_argument("--child-order", default="uniform")
    parser.add_argument("--identifier-cells", default="all")
    parser.add_argument("--max-hops", type=int)
    parser.add_argument("--batches", type=int, default=40, help="of each rank")
    parser.add_argument("--ranks", type=int, default=1, help="that share a batch")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # a task without seeds in a split says nothing here
    for way in WAYS:
        print(json.dumps(measure(arguments, way)))


if __name__ == "__main__":
    main()
