"""The average of what models say, or of what one says of several contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.model import Output


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
            parts: list[Any] = [
                _logit(null), numerical, timestamp, _logit(boolean), np.log(shares),
            ]  # fmt: skip
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
