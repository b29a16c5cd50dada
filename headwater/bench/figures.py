"""Measures the main configurations on generated stores: what `make bench` runs.

    python headwater/bench/figures.py [--rows 5000000] [--hub 1000000] [--folder build/stores]
                                      [--out build/bench.jsonl] [--seconds 1] [--repeats 3]

The question: how do threads, layout, text, context length, child width and the size of the store
change the rate at which batches are made, and how long does one context take? Writes one JSON line
per configuration, each with the set it belongs to, and prints a table. A set varies one thing and
leaves the rest at its default (dense, one thread, B = 32, S = 1024, w = 16, no text, --rows).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hub
from generate import Forum, generate, is_built
from headwater.sampling import bench
from headwater.store.rendering import aligned

LAYOUTS = ("dense", "compact")
LENGTHS = (256, 512, 1024, 2048, 4096)
WIDTHS = (4, 8, 16, 32, 64)
SIZE_STEPS = (25, 5, 1)  # the store is this many times smaller than --rows
TEXT_SHARE = 0.2
TASK = "answered"
REQUESTS = 2000


@dataclass(frozen=True)
class Figures:
    """A set: what is measured together, on one store, in turns."""

    name: str
    forum: Forum
    configurations: list[bench.Configuration]


def figure_sets(rows: int) -> list[Figures]:
    forum, base = Forum(rows=rows), {"task": [TASK], "layout": LAYOUTS}
    text = Forum(rows=rows, text_share=TEXT_SHARE)
    return [
        Figures("threads", forum, bench.configurations(threads=bench.thread_counts(), **base)),
        Figures("length", forum, bench.configurations(length=LENGTHS, **base)),
        Figures("width", forum, bench.configurations(width=WIDTHS, **base)),
        *(
            Figures("size", Forum(rows=rows // step), bench.configurations(**base))
            for step in SIZE_STEPS
        ),
        Figures("text", text, bench.configurations(text_mode=[None, "resident"], **base)),
    ]


def store_of(forum: Forum, folder: Path) -> Path:
    share, hub_size = round(100 * forum.text_share), forum.hub
    path = folder / f"forum-{forum.rows}-text{share}-hub{hub_size}.hw"
    if not is_built(forum, path):
        print(f"building {path}", file=sys.stderr)
        generate(forum, path)
    return path


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    turns = {"seconds": options.seconds, "repeats": options.repeats}
    for figures in figure_sets(options.rows):
        store = store_of(figures.forum, options.folder)
        for line in bench.throughput(store, figures.configurations, **turns):
            yield {"set": figures.name, **line}
        if figures.name in ("threads", "text"):
            single = bench.configurations(task=[TASK], layout=LAYOUTS)
            for line in bench.latency(store, single, requests=REQUESTS):
                yield {"set": "latency", **line}
    store = store_of(Forum(rows=options.rows // SIZE_STEPS[1], hub=options.hub), options.folder)
    for length in hub.LENGTHS:
        yield {"set": "hub", **hub.compare(store, bench.Configuration(length=length), **turns)}


# ---- tables --------------------------------------------------------------------------------


def rate_table(lines: list[dict[str, Any]]) -> list[list[str]]:
    head = ["set", "rows", "text", "layout", "threads", "S", "w", "Mcells/s", "min", "max", "fill"]
    stages = ("walk", "emit", "text time", "bound by")
    table = [[*head, "bytes/cell", *stages, "ms p50", "ms p99"]]
    for line in lines:
        if line["question"] == "throughput":
            layout = line["layout"] + (f", {line['text_mode']}" if line["text_mode"] else "")
            rates = [line[f"padded_cells_per_s{end}"] for end in ("", "_min", "_max")]
            table.append(
                [
                    line["set"],
                    f"{line['store']['rows'] / 1e6:.1f} M",
                    f"{line['store']['text_share_of_cells']:.0%}",
                    layout,
                    *(str(line[name]) for name in ("threads", "S", "w")),
                    *(f"{rate / 1e6:.1f}" for rate in rates),
                    f"{line['fill']:.2f}",
                    f"{line['bytes_per_padded_cell']:.0f}",
                    *(f"{line['stage_shares'][stage]:.0%}" for stage in bench.STAGES),
                    str(line["bound_by"] or ""),
                    *(f"{line[f'batch_ms_{name}']:.2f}" for name in ("p50", "p99")),
                ]
            )
    return table


def latency_table(lines: list[dict[str, Any]]) -> list[list[str]]:
    table = [["one context", "texts", "batch, us p50", "p99", "batches_for, us p50", "p99"]]
    for line in lines:
        if line["question"] == "latency":
            names = ("batch", "batches_for")
            times = [f"{line[f'{n}_us_{p}']:.0f}" for n in names for p in ("p50", "p99")]
            table.append([line["layout"], f"{line['store']['texts']:,}", *times])
    return table


def hub_table(lines: list[dict[str, Any]]) -> list[list[str]]:
    table = [["hub", "S", "us per context", "of a parent of 100", "ratio"]]
    for line in lines:
        if line["set"] == "hub":
            times = (f"{line['hub_us']:.1f}", f"{line['ordinary_us']:.1f}", f"{line['ratio']:.2f}")
            table.append([f"{line['hub_children']:,} children", str(line["S"]), *times])
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=Forum.rows)
    parser.add_argument("--hub", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/stores"))
    parser.add_argument("--out", type=Path, default=Path("build/bench.jsonl"))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with options.out.open("w") as file:
        for line in measure(options):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    print(aligned(rate_table(lines)), aligned(latency_table(lines)), sep="\n\n")
    print("\n" + aligned(hub_table(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
