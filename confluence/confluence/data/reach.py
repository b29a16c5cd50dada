"""Which tables of a schema the contexts of a task cannot show, as they are too many keys away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST_NAMED = 5  # tables in a sentence


def table_distances(metadata: Mapping[str, Any], task: str) -> dict[str, int | None]:
    """How many foreign keys each table that has rows is away from the anchor of a task, in either
    direction; None if none leads there. Keys with a column that the task hides are not taken.

    Args:
        metadata: of a store.
    """
    (entry,) = (one for one in metadata["tasks"] if one["name"] == task)
    hidden = set(entry.get("hidden_columns") or ())
    near: dict[str, set[str]] = {str(table["name"]): set() for table in metadata["tables"]}
    for table in metadata["tables"]:
        for key in table["foreign_keys"]:
            if hidden.isdisjoint(f"{table['name']}.{column}" for column in key["columns"]):
                parent = str(key["references"]["table"])
                near[table["name"]].add(parent)
                near[parent].add(str(table["name"]))
    distances = {str(entry["anchor_table"]): 0}
    for name, hops in (queue := list(distances.items())):  # grows as it is read
        for other in sorted(near[name] - distances.keys()):
            distances[other] = hops + 1
            queue.append((other, hops + 1))
    filled = (
        table for table in metadata["tables"] if table["row_range"][0] < table["row_range"][1]
    )
    return {str(table["name"]): distances.get(str(table["name"])) for table in filled}


def describe_unreached(metadata: Mapping[str, Any], task: str, max_hops: int | None) -> list[str]:
    """A sentence if tables are further away than contexts go, and one if no key leads to some.

    Args:
        max_hops: of `Config`.
    """
    distances = table_distances(metadata, task)
    known = sorted((hops, name) for name, hops in distances.items() if hops is not None)
    far = [(hops, name) for hops, name in known if max_hops is not None and hops > max_hops]
    apart = [name for name, hops in distances.items() if hops is None]
    lines = []
    if far:
        named = _named(f"{name} ({hops} foreign keys away)" for hops, name in far)
        lines.append(
            f"contexts end before {named}: --max-hops {far[0][0]} goes further, with less room for"
            " rows nearby"
        )
    if apart:
        lines.append(
            f"no foreign key leads to {_named(apart)}, so no context shows that: name its key in"
            " the metadata if it has one"
        )
    return lines


def _named(texts: Iterable[str]) -> str:
    """Some of them."""
    found = list(texts)
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
