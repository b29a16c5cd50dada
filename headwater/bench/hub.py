"""Does a context of a hub cost more than one of a parent with 100 children?

    python headwater/bench/hub.py STORE [--length 1024] [--length 192] [--width 16] [--threads 1]

STORE is made by generate.py --hub. The tasks `hub` and `ordinary` take turns on the same store at
the same observation times; the children of both lie scattered over the same table, and every
context draws others, so both find the same cold memory. One JSON line per length with the ratio of
the costs per context. At 192 cells (w = 16) nearly all of a context are the anchor's own children
and their users; at 1024 most of it is the rest of the graph.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from typing import Any

import headwater
from headwater.sampling import bench

LENGTHS = (1024, 192)


def context_us(line: dict[str, Any]) -> float:
    """Microseconds per context of a line of `bench.throughput`, as if one thread made them."""
    return float(1e6 * line["S"] * line["threads"] / line["padded_cells_per_s"])


def compare(
    store: str | os.PathLike[str],
    configuration: bench.Configuration,
    *,
    seconds: float,
    repeats: int,
) -> dict[str, Any]:
    """The summary line of one configuration."""
    wanted = [replace(configuration, task=task) for task in ("hub", "ordinary")]
    lines = bench.throughput(store, wanted, seconds=seconds, repeats=repeats)
    hub, ordinary = (context_us(line) for line in lines)
    with headwater.Store(store) as opened:
        children = opened.children(opened.find("places", 0))["visits.place_id"]
    return {
        "question": "cost of a context of a hub over one of a parent of 100",
        **{key: lines[0][key] for key in ("threads", "layout", "B", "S", "R", "w", "repeats")},
        "hub_children": len(children),
        "hub_us": round(hub, 2),
        "ordinary_us": round(ordinary, 2),
        "ratio": round(hub / ordinary, 3),
        "cells_per_context": {
            line["task"]: round(line["fill"] * configuration.length, 1) for line in lines
        },
        "store": lines[0]["store"],
        "machine": lines[0]["machine"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--length", type=int, action="append")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layout", default="dense")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    try:
        for length in options.length or LENGTHS:
            configuration = bench.Configuration(
                length=length, width=options.width, threads=options.threads, layout=options.layout
            )
            line = compare(
                options.store, configuration, seconds=options.seconds, repeats=options.repeats
            )
            print(json.dumps(line), flush=True)
    except (headwater.HeadwaterError, ValueError, OSError) as error:
        print(f"hub: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
