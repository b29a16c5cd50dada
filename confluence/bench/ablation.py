"""What each choice of a recipe brings, by backtest: one change at a time beside the whole recipe.

    python confluence/bench/ablation.py STORE --task T [--task U] --out FOLDER [--cutoffs ...]
        [--only NAME] [--set NAME=VALUE]

Prints a table for docs/14-rel-f1.md: a row per variant, per task the mean over cutoffs and seeds of
its metric, frozen and rolling, and its difference from the recipe. Every fit is kept in its folder:
what is there is not trained again, so the command may be stopped and go on, and variants be added.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from confluence.backtest import backtest
from confluence.config import PRESETS, preset

VARIANTS: dict[str, dict[str, Any]] = {
    "the recipe": {},
    "without ages": {"ages": False},
    "children by chance": {"child_order": "uniform"},
    "identifier cells": {"identifier_cells": "all"},
    "1 hop": {"max_hops": 1},
    "4 hops": {"max_hops": 4},
    "half the children": {"child_width": 0.5},
    "twice the children": {"child_width": 2.0},
    "staleness": {"staleness": (0.5, 1826.0)},
    "staleness, age of the database": {"staleness": (0.5, 1826.0), "database_age": True},
    "child counts": {"child_counts": True},
    "label rows": {"label_rows": 4, "context_labels": "all"},
    "peer labels": {"peer_labels": 8},
    "cell dropout off": {"cell_dropout": 0.0},
    "average of late weights": {"average_from": 0.75},
    "equal weights of old seeds": {"half_life_days": None},
    "level": {"level_days": 365.0},
    "half as wide again": {"width": 1.5, "heads": 1.5},
    "masked cells beside the tasks": {"auxiliary_weight": 0.3},
    "four contexts averaged": {"contexts": 4},
    "half trees": {"tree_share": 0.5},
}
"""Changes of settings, or of how fits of the recipe are scored; a float for an integer setting is a
factor."""
RECIPE = next(iter(VARIANTS))
SCORING = {"contexts", "tree_share"}  # what is no setting of a fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--task", action="append", required=True)
    parser.add_argument("--apart", action="store_true", help="a model for each task, as a variant")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cutoffs", type=lambda text: text.split(","))
    parser.add_argument("--horizon-days", type=float)
    parser.add_argument("--seeds", type=lambda t: [int(s) for s in t.split(",")], default=[42])
    parser.add_argument("--preset", default="laptop", choices=tuple(PRESETS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--only", action="append", choices=tuple(VARIANTS))
    options = parser.parse_args()
    base = {name: _value(text) for name, text in (item.split("=", 1) for item in options.set)}
    base = preset(options.preset).replace(**base).to_dict()
    rows: dict[str, dict[str, Any]] = {}
    for name, changes in VARIANTS.items():
        if options.only is None or name in options.only:
            rows[name] = _tasks(options, name, options.task, _changed(base, changes))
    if options.apart:
        apart: dict[str, Any] = {}
        for task in options.task:
            apart.update(_tasks(options, f"apart {task}", [task], base))
        rows["a model for each task"] = apart
    sys.stdout.write("\n".join(table(rows)) + "\n")


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    def value(name: str, change: Any) -> Any:
        is_factor = isinstance(change, float) and isinstance(base.get(name), int)
        return round(base[name] * change) if is_factor else change

    return {**base, **{name: value(name, change) for name, change in changes.items()}}


def _tasks(
    options: argparse.Namespace, name: str, tasks: list[str], settings: dict[str, Any]
) -> dict[str, Any]:
    settings = {n: v for n, v in settings.items() if n not in ("seed", "time_split")}
    fits = RECIPE if SCORING & set(VARIANTS.get(name, ())) else name
    result = backtest(
        options.store, task=tasks, out=options.out / fits.replace(" ", "-").replace(",", ""),
        cutoffs=options.cutoffs, horizon_days=options.horizon_days, seeds=options.seeds,
        preset=options.preset, **settings,
    )  # fmt: skip
    return dict(result["tasks"])


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The rows in Markdown; the first is what the others are compared with."""
    first = next(iter(rows.values()))
    heads = [f"{title} {kind} ({first[title]['metric']})"
             for title in first for kind in ("frozen", "rolling")]  # fmt: skip
    lines = ["| variant | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name, tasks in rows.items():
        cells = []
        for title, recipe in first.items():
            for kind in ("model", "rolling"):
                value, beside = tasks.get(title, {}).get(kind), recipe[kind]
                text = "-" if value is None else f"{value:.3f}"
                if tasks is not first and value is not None and beside is not None:
                    text += f" ({value - beside:+.3f})"
                cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    baselines = {name for recipe in first.values() for name in recipe["baselines"]}
    for name in sorted(baselines):
        cells = []
        for recipe in first.values():
            value = recipe["baselines"].get(name)
            cells += ["-" if value is None else f"{value:.3f}", ""]
        lines.append(f"| *{name.replace('_', ' ')}* | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
