"""Heads' outputs on the host: put together, averaged, and read as shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.model.transformer import Output

Pass = Iterator[tuple[Output, dict[str, Any]]]
"""Heads' outputs of the contexts that count, with their host-side info, batch by batch."""


class Average:
    """Probabilities of null, true and each category are averaged; numbers and times as they are."""

    def __init__(self) -> None:
        self._sums: list[NDArray[np.float64]] = []
        self._weight = 0.0

    def add(self, output: Output, weight: float = 1.0) -> None:
        """One more opinion of the same seeds, in the same order, and what it weighs."""
        null, numerical, timestamp, boolean, categorical = (
            np.asarray(part, np.float64) for part in output
        )
        parts = [sigmoid(null), numerical, timestamp, sigmoid(boolean), softmax(categorical)]
        parts = [weight * part for part in parts]
        if self._sums:
            parts = [sums + part for sums, part in zip(self._sums, parts, strict=True)]
        self._sums = parts
        self._weight += weight

    def output(self) -> Output:
        """Outputs that a reader of heads turns into the averages."""
        null, numerical, timestamp, boolean, shares = (sums / self._weight for sums in self._sums)
        with np.errstate(divide="ignore"):
            parts: list[Any] = [_logit(null), numerical, timestamp, _logit(boolean), np.log(shares)]
        return Output(*parts)


def gathered(parts: Pass) -> tuple[Any, dict[str, Any]]:
    """A whole pass in one piece; None without batches."""
    found = list(parts)
    if not found:
        return None, {}
    outputs, infos = zip(*found, strict=True)
    names = [n for n in infos[0] if infos[0][n].ndim > 0]
    joined = as_output([np.concatenate(part) for part in zip(*outputs, strict=True)])
    return joined, {name: np.concatenate([info[name] for info in infos]) for name in names}


def as_output(parts: Sequence[Any]) -> Output:
    """Heads' outputs on the host, where they are NumPy arrays."""
    return Output(*parts)


def sigmoid(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^-logit), of any logit without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -logit)), np.float64)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of each category, of any logits without overflow. [n,L] → [n,L]"""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _logit(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(share) - np.log1p(-share), np.float64)
