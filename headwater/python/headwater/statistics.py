"""What a sampler reports: the store's metadata under its splits, and its counters."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from . import _core
    from .store import Store

NS = 1e-9
QUANTILES = {"p2": 0.02, "p50": 0.5, "p98": 0.98}
TRAIN = 0
GAUGES = (
    "fill",
    "fill_unpacked",
    "threads",
    "train_queue",
    "val_queue",
    "slab_bytes",
    "slab_count",
)


# ---- metadata ------------------------------------------------------------------------------


def sampler_metadata(store: Store, core: _core.Sampler, tasks: list[int]) -> dict[str, Any]:
    """metadata.json with seed counts and statistics of this sampler's splits for its tasks."""
    metadata = copy.deepcopy(store.metadata)
    for number in tasks:
        entry = metadata["tasks"][number]
        column = metadata["columns"][entry["target_column_id"]]
        moments = core.target_stats(number)
        seeds = store.task_seeds(entry["name"])
        splits = np.asarray(core.splits(number, len(seeds["position"])))
        entry["seeds"] = {
            "train": int(np.sum(splits == 0)),
            "val": int(np.sum(splits == 1)),
            "test": int(np.sum(splits == 2)),
            "unlabelled": int(np.sum(~seeds["labelled"])),
        }
        is_known = (splits == TRAIN) & seeds["labelled"] & ~seeds["is_null"]
        categories = column.get("stats", {}).get("categories", [])
        entry["stats"] = {
            "train_count": moments["train_count"],
            "null_count": moments["null_count"],
            **_target_stats(entry["target_stype"], seeds["target"][is_known], moments, categories),
        }
        if entry["target_stype"] == "numerical" and entry["kind"] == "derived":
            scale = {"mean": moments["column_mean"], "std": moments["column_std"]}
            column["stats"] = {**column.get("stats", {}), **scale}
        if entry["target_stype"] == "timestamp":
            metadata["time"] = {
                "mean_us": moments["column_mean"],
                "std_us": moments["column_std"],
            }
    return metadata


def _target_stats(
    stype: str, known: NDArray[np.float64], moments: dict[str, Any], categories: list[str]
) -> dict[str, Any]:
    """Of the known train labels, in source units."""
    if stype == "boolean":
        return {"positive": moments["mean"]}
    if stype == "categorical":
        counts = np.bincount(known.astype(np.int64), minlength=len(categories))
        return {"counts": dict(zip(categories, map(int, counts), strict=False))}
    if stype == "numerical":
        quantiles = np.quantile(known, list(QUANTILES.values())) if known.size else [None] * 3
        named = {
            name: None if value is None else float(value)
            for name, value in zip(QUANTILES, quantiles, strict=True)
        }
        return {"mean": moments["mean"], "std": moments["std"], **named}
    return {}


# ---- counters ------------------------------------------------------------------------------


def sampler_stats(counters: dict[str, int], shape: dict[str, int]) -> dict[str, Any]:
    """The library's counters with times in seconds, and fill: real cells over padded ones; with
    packing also what it would be without."""
    stats: dict[str, Any] = {}
    for name, value in counters.items():
        if name.endswith("_ns"):
            stats[name.removesuffix("_ns") + "_seconds"] = value * NS
        else:
            stats[name] = value
    length = shape["sequence_length"]
    unpacked = _share(counters["cells"], counters["sequences"] * length)
    stats["fill"] = unpacked
    if shape["contexts_per_sequence"] > 1 or counters["packed_sequences"]:
        stats["fill"] = _share(counters["packed_cells"], counters["packed_sequences"] * length)
        stats["fill_unpacked"] = unpacked
    return stats


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def prometheus_text(stats: dict[str, Any], rank: int) -> str:
    """The text exposition format; counters end in _total."""
    lines = []
    for name, value in stats.items():
        kind = "gauge" if name in GAUGES else "counter"
        metric = f"headwater_sampler_{name}" + ("" if kind == "gauge" else "_total")
        lines.append(f"# TYPE {metric} {kind}")
        lines.append(f'{metric}{{rank="{rank}"}} {value}')
    return "\n".join(lines) + "\n"
