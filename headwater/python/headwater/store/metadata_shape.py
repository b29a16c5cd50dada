"""The entries that a store's metadata.json must have, so that Python can use the store.

`SHAPE` lists those that readers of a store rely on, each with its type. A build by Python writes
more: why rows were dropped, and descriptions. The C builder writes these if its caller gives no
document (`builder/metadata.c`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.binding import FORMAT_VERSION, SEMANTIC_TYPES

COUNT = {"edges": int, "dangling": int, "nulls": int}
TABLE: dict[str, Any] = {
    "name": str, "row_range": [int], "column_range": [int], "primary_key": [str],
    "temporal_column": (str, None), "time_resolution": ("instant", "day"),
    "null_time": ("visible", "hidden"),
    "foreign_keys": [
        {"columns": [str], "references": {"table": str, "columns": [str]}, **COUNT}
    ],
    "untimed": int, "duplicates_dropped": int, "null_values": int,
    "conversions": [{"column": str, "reason": str, "count": int}],
}  # fmt: skip
COLUMN: dict[str, Any] = {
    "table": (str, None), "name": str, "stype": tuple(SEMANTIC_TYPES), "stats": {},
}  # fmt: skip
TASK: dict[str, Any] = {
    "name": str, "kind": ("cell", "derived"), "anchor_table": str, "target_column": str,
    "target_stype": tuple(SEMANTIC_TYPES), "target_column_id": int,
    "seeds": {"train": int, "val": int, "test": int, "unlabelled": int},
    "obs_time_range": ([str], None), "split": ("given", "hash"),
    "cutoff": ("inclusive", "exclusive"), "hidden_columns": [str], "sees_everything": bool,
    "allow_future_anchor": bool, "query": (str, None), "rows": int, "dropped": {},
    "bad_targets": int,
}  # fmt: skip
SHAPE: dict[str, Any] = {
    "name": str, "format_version": int, "text": {"embedder": str, "dim": int, "count": int},
    "stats_until": (str, None), "csv_bytes": int, "undecodable": int,
    "tables": [TABLE], "columns": [COLUMN], "tasks": [TASK],
}  # fmt: skip
# Entries of `stats` by the type of the column.
STATS: dict[str, dict[str, Any]] = {
    "numerical": {"mean": float, "std": float, "min": float, "max": float},
    "categorical": {"categories": [str], "cat_emb_start": int},
}


def metadata_faults(document: bytes, counts: Mapping[str, Any]) -> list[str]:
    """The reasons why Python cannot use a store with this metadata.json; [] if it can.

    counts: those of the store (`binding.Store.counts`), which the document must agree with.
    """
    try:
        metadata = json.loads(document)
    except (ValueError, RecursionError) as error:
        return [f"metadata.json is not JSON: {error}"]
    faults = list(_faults(metadata, SHAPE, ""))
    if faults:
        return [f"metadata.json {fault}" for fault in faults]
    if metadata["format_version"] != FORMAT_VERSION:
        faults.append(f"has format_version {metadata['format_version']}, expected {FORMAT_VERSION}")
    for kind in ("table", "column", "task"):
        found, expected = len(metadata[f"{kind}s"]), counts[f"{kind}_count"]
        if found != expected:
            faults.append(f"lists {found} {kind}s, the store has {expected}")
    for number, column in enumerate(metadata["columns"]):
        where = f"columns[{number}].stats"
        faults += _faults(column["stats"], STATS.get(column["stype"], {}), where)
    return [f"metadata.json {fault}" for fault in faults]


def _faults(value: Any, shape: Any, where: str) -> Iterator[str]:
    """All that differs between a value and its shape: a type, a list of one shape, entries by
    name, or one of several shapes or words."""
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, inner in shape.items():
            if name not in value:
                yield f"lacks '{where}{'.' * bool(where)}{name}'"
            else:
                yield from _faults(value[name], inner, f"{where}{'.' * bool(where)}{name}")
    elif isinstance(shape, list) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, shape[0], f"{where}[{number}]")
    elif not _is_of(value, shape):
        yield f"has {json.dumps(value)[:60]} in '{where}', expected {_text(shape)}"


def _is_of(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(not list(_faults(value, one, "")) for one in shape)
    if isinstance(shape, type):
        numbers = (int, float) if shape is float else shape
        return isinstance(value, numbers) and (shape is bool or not isinstance(value, bool))
    return not isinstance(shape, list | dict) and value == shape


def _text(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_text, shape))
    names = {str: "a text", int: "a count", float: "a number", bool: "true or false", None: "null"}
    if isinstance(shape, list):
        return "a list"
    return "an object" if isinstance(shape, dict) else names.get(shape) or f"'{shape}'"
