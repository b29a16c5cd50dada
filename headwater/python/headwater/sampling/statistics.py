"""What a sampler reports: the store's metadata under its splits, and its counters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.store.store import Store

NS = 1e-9
QUANTILES = {"p2": 0.02, "p50": 0.5, "p98": 0.98}
TRAIN = 0
STAGES = ("walk", "emit", "text")
BOUNDS = ("consumer", *STAGES, "idle")
QUEUES = ("train_queue", "val_queue", "pass_queue")
STATE = ("threads", *QUEUES, "slab_bytes", "slab_count")  # not counters


# ---- metadata ------------------------------------------------------------------------------


def sampler_metadata(store: Store, core: binding.Sampler, tasks: list[int]) -> dict[str, Any]:
    """metadata.json with seed counts and statistics of this sampler's splits for its tasks."""
    metadata = copy.deepcopy(store.metadata)
    for number, column in enumerate(metadata["columns"]):
        if column["stype"] == "numerical" and column["table"] is not None:
            mean, std = core.column_scale(number)
            column["stats"] |= {"mean": mean, "std": std}
        elif column["stype"] == "timestamp":
            metadata["time"] = dict(zip(metadata["time"], core.column_scale(number), strict=True))
    for number in tasks:
        entry = metadata["tasks"][number]
        column = metadata["columns"][entry["target_column_id"]]
        moments = core.target_stats(number)
        seeds = store.task_seeds(entry["name"])
        splits = core.splits(number, len(seeds["position"]))
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


def sampler_stats(
    counters: Mapping[str, int], shape: Mapping[str, int], since: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The library's counters with times in seconds, less those of `since`, and what follows from
    them: fill (real cells over padded ones; with packing and in the flat layout also what it would
    be without), shares of the time, and what bounds the run."""
    stats: dict[str, Any] = {}
    for name, value in counters.items():
        key = name.removesuffix("_ns") + "_seconds" if name.endswith("_ns") else name
        before = since[key] if since is not None and name not in STATE else 0
        stats[key] = (value * NS if key != name else value) - before
    length = shape["sequence_length"]
    unpacked = _share(stats["cells"], stats["sequences"] * shape["context_length"])
    stats["fill"] = unpacked
    if shape["cells_per_batch"]:
        stats["fill"] = _share(stats["packed_cells"], stats["padded_cells"])
        stats["fill_unpacked"] = unpacked
    elif shape["contexts_per_sequence"] > 1 or stats["packed_sequences"]:
        stats["fill"] = _share(stats["packed_cells"], stats["packed_sequences"] * length)
        stats["fill_unpacked"] = unpacked
    thread_seconds = sum(stats[f"{part}_seconds"] for part in (*STAGES, "producer_wait"))
    for part in (*STAGES, "producer_wait"):
        stats[f"{part}_share"] = _share(stats[f"{part}_seconds"], thread_seconds)
    stats["consumer_wait_share"] = _share(stats["consumer_wait_seconds"], stats["elapsed_seconds"])
    stats["bound_by"] = bound_by(stats)
    return stats


def _share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def bound_by(stats: Mapping[str, Any]) -> str:
    """The rule of docs/guides/tuning.md: who waits longer is not the bound."""
    if stats["sequences"] == 0:
        return "idle"
    wait_per_thread = stats["producer_wait_seconds"] / max(stats["threads"], 1)
    if stats["threads"] > 0 and wait_per_thread >= stats["consumer_wait_seconds"]:
        return "consumer"
    return max(STAGES, key=lambda stage: float(stats[f"{stage}_seconds"]))


def prometheus_text(stats: Mapping[str, Any], rank: int) -> str:
    """The text exposition format; counters end in _total. bound_by is a gauge for each word, 1 at
    the one that it is."""
    lines = []
    for name, value in stats.items():
        if name == "bound_by":
            lines.append("# TYPE headwater_sampler_bound_by gauge")
            for bound in BOUNDS:
                labels = f'{{rank="{rank}",bound="{bound}"}}'
                lines.append(f"headwater_sampler_bound_by{labels} {int(bound == value)}")
            continue
        is_gauge = name in STATE or name.startswith("fill") or name.endswith("_share")
        kind = "gauge" if is_gauge else "counter"
        metric = f"headwater_sampler_{name}" + ("" if is_gauge else "_total")
        lines.append(f"# TYPE {metric} {kind}")
        lines.append(f'{metric}{{rank="{rank}"}} {value}')
    return "\n".join(lines) + "\n"
