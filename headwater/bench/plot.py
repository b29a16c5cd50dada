"""Draws docs/7-performance.svg and writes the tables of its page from the lines of `make bench`.

    python headwater/bench/plot.py [build/bench.jsonl] [--page docs/7-performance.md]

The page's part between the two marks is replaced; the rest of it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
from figures import hub_table, latency_table, rate_table

matplotlib.use("svg")
import matplotlib.pyplot as plt

BEGIN, END = "<!-- figures: written by headwater/bench/plot.py -->", "<!-- end of figures -->"
# A panel for each set: what it varies, from a line, and its axis.
PANELS = {
    "threads": ("threads", lambda line: line["threads"]),
    "length": ("cells of a context, S", lambda line: line["S"]),
    "width": ("children per key, w", lambda line: line["w"]),
    "size": ("rows of the store", lambda line: line["store"]["rows"]),
}


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Padded cells per second by what each set varies; a bar spans the turns."""
    # The same bytes from the same lines, and text that stays text.
    plt.rcParams.update({"svg.hashsalt": "headwater", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(7.5, 5.2), layout="constrained", sharey=True)
    for axis, (name, (label, varied)) in zip(axes.flat, PANELS.items(), strict=True):
        series = defaultdict(list)
        for line in lines:
            if line["set"] == name:
                rates = [line[f"padded_cells_per_s{end}"] / 1e6 for end in ("", "_min", "_max")]
                series[line["layout"]].append((varied(line), *rates))
        for layout, points in series.items():
            x, median, low, high = zip(*sorted(points), strict=True)
            spans = [
                [m - b for m, b in zip(median, low, strict=True)],
                [t - m for m, t in zip(median, high, strict=True)],
            ]
            axis.errorbar(x, median, yerr=spans, marker="o", ms=4, capsize=2, label=layout)
            axis.set_xscale("log", base=10 if name == "size" else 2)
            if name != "size":
                axis.set_xticks(x, [str(value) for value in x])
                axis.minorticks_off()
        axis.set_xlabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    figure.supylabel("million padded cells per second")
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _markdown(table: list[list[str]]) -> str:
    rows = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([rows[0], "|" + "---|" * len(table[0]), *rows[1:]])


def figures_part(lines: list[dict[str, Any]], image: str) -> str:
    """Markdown: the machine, the plot, and the tables."""
    machine = lines[0]["machine"]
    caches = ", ".join(f"{level} {size}" for level, size in machine["caches"].items())
    facts = (
        f"{machine['cpu']}, {machine['cores']} usable cores, {caches}; huge pages "
        f"`{machine['huge_pages']}`; Python {machine['python']}, headwater "
        f"{machine['headwater']}, {machine['compiler']}. Medians of {lines[0]['repeats']} turns "
        f"of {lines[0]['seconds']:g} s; bars and columns min and max span the turns. "
        f"Load average at the start: {machine['load_average']:.1f}."
    )
    tables = [_markdown(table(lines)) for table in (rate_table, latency_table, hub_table)]
    plot = f"![padded cells per second by threads, S, w and rows of the store]({image})"
    return "\n\n".join([facts, plot, *tables])


def write_page(page: Path, part: str) -> None:
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"'{page}' lacks the marks '{BEGIN}' and '{END}'")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{part}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", type=Path, nargs="?", default=Path("build/bench.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("docs/7-performance.md"))
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines()]
    image = options.page.with_suffix(".svg")
    draw(lines, image)
    write_page(options.page, figures_part(lines, image.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
