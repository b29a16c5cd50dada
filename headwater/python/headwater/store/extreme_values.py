"""`Extremes`: numbers next to which the others of their column look the same, in metadata.json.

`facts/extremes.py` finds them; each table of a store's metadata.json lists its own, if any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BEYOND, BELOW, FAR = "beyond float32", "too small for float32", "far from all others"
FLOAT32_MAX = 3.4028234663852886e38
SPELLINGS_MAX = 4  # named of a column


@dataclass(frozen=True)
class Extremes:
    """Values of a column, most frequent first, of which one of these holds: `reason`."""

    column: str
    reason: str
    count: int
    values: dict[str, int]  # as the source spells them, with counts; SPELLINGS_MAX at most
    others: tuple[float, float] | None = None  # the least and the largest, of FAR

    def to_json(self) -> dict[str, Any]:
        """An entry of the store's metadata.json."""
        facts = {"column": self.column, "reason": self.reason, "count": self.count}
        others = {} if self.others is None else {"others": list(self.others)}
        return {**facts, "values": self.values, **others}


def extremes_text(entry: Mapping[str, Any]) -> str:
    """The fault and its mending, to follow the count and the column; entry: to_json()."""
    spelled = ", ".join(f"'{text}' ({count:,})" for text, count in entry["values"].items())
    rest = entry["count"] - sum(entry["values"].values())
    spelled += f" and others ({rest:,})" * (rest > 0)
    listed = ", ".join(f'"{text}"' for text in entry["values"])
    if entry["reason"] == BEYOND:
        return (
            f"are beyond what float32 holds (3.4e38): {spelled}; next to them all other values of "
            f'the column look the same: if they stand for no value, add them to "null_values": '
            f"[{listed}]"
        )
    if entry["reason"] == BELOW:
        return (
            f"are too close to 0 for float32 (below 1.2e-38): {spelled}; a column with an "
            '"expression" such as their logarithm keeps them apart; if they stand for no value, '
            f'add them to "null_values": [{listed}]'
        )
    low, high = entry["others"]
    return (
        f"are {spelled}, far from all others ({low:g} to {high:g}); if that means not known, set "
        f'"null_values": [{listed}]'
    )
