"""Linear regressions with a penalty on their weights, and how strong it should be.

    features [n,D] ──► each column less its mean, by its spread ──► ridge: numbers, times
                                                                └─► softmax: truths, categories

What is minimised is the mean loss of the rows plus strength/2·Σ weight², biases free. Ridge (half
the squared error) is one linear system. Softmax regression is convex: SciPy's Newton-CG, in blocks
of rows so that scores [rows, classes] stay small. All in float64; the same rows give the same
weights. Cost O(n D²), and O(n D K) per product with the Hessian.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from confluence.data.tasks import Floats

STRENGTHS = tuple(10.0**power for power in range(1, -5, -1))  # tried, the strongest first
FOLDS = 5
FOLD_ROWS = 20_000  # most rows that the strength is chosen by
BIAS_STRENGTH = 1e-6  # of softmax, so that a class that never occurs has a finite bias
STEP_TOLERANCE = 1e-6  # of softmax: the mean change of a weight by which it is done
BLOCK_SCORES = 4_000_000  # scores that exist at once

Ints = NDArray[np.int64]
Each = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear:
    """Scores x·weight + bias of features as they come."""

    weight: Floats  # [D,K]
    bias: Floats  # [K]

    def scores(self, features: NDArray[Any]) -> Floats:
        """[n,D] → [n,K]"""
        return np.asarray(features.astype(np.float64) @ self.weight + self.bias)


class Standard:
    """Features with mean 0 and spread 1; a column that never varies is 0."""

    def __init__(self, features: NDArray[Any]) -> None:
        self._mean = features.mean(axis=0, dtype=np.float64)
        spread = features.std(axis=0, dtype=np.float64)
        self._scale = np.where(spread > 1e-9 * (1.0 + np.abs(self._mean)), spread, np.inf)

    def __call__(self, features: NDArray[Any]) -> Floats:
        return np.asarray((features - self._mean) / self._scale)

    def undone(self, weight: Floats, bias: Floats) -> Linear:
        """A regression on standard features, as one on features as they come."""
        weight = weight / self._scale[:, None]
        return Linear(weight=weight, bias=bias - self._mean @ weight)


# ------------------------------------------------------------------------------------ the two kinds


class Ridge:
    """Half the squared error. Targets [n] float."""

    def fit(
        self, features: Floats, targets: Floats, strength: float, start: Any = None
    ) -> tuple[Floats, Floats]:
        """(weight [D,1], bias [1]) on standard features."""
        mean = targets.mean()
        count, width = features.shape
        square = features.T @ features / count + strength * np.eye(width)
        weight = np.linalg.solve(square, features.T @ (targets - mean) / count)
        return weight[:, None], np.array([mean])

    def losses(self, scores: Floats, targets: Floats) -> Floats:
        """Of each row. [n,1], [n] → [n]"""
        return np.asarray(0.5 * (scores[:, 0] - targets) ** 2)


@dataclasses.dataclass(frozen=True)
class Softmax:
    """Cross-entropy over K classes. Targets [n] are their numbers."""

    class_count: int

    def fit(
        self, features: Floats, targets: Ints, strength: float, start: Any = None
    ) -> tuple[Floats, Floats]:
        """(weight [D,K], bias [K]) on standard features, from `start` if it is known where."""
        shape = (features.shape[1] + 1, self.class_count)  # the last row are the biases
        rows = max(1, BLOCK_SCORES // self.class_count)
        penalty = np.full((shape[0], 1), strength)
        penalty[-1] = BIAS_STRENGTH

        def blocks(theta: Floats) -> Iterator[tuple[Floats, Floats, Ints]]:
            """Features with a column of ones, logarithms of shares, targets."""
            for first in range(0, targets.size, rows):
                part = features[first : first + rows]
                x = np.concatenate([part, np.ones((len(part), 1))], axis=1)
                yield x, log_softmax(x @ theta, axis=1), targets[first : first + rows]

        def loss_and_gradient(flat: Floats) -> tuple[float, Floats]:
            theta = flat.reshape(shape)
            loss, gradient = 0.0, np.zeros(shape)
            for x, log_shares, y in blocks(theta):
                loss -= float(log_shares[np.arange(y.size), y].sum())
                error = np.exp(log_shares)
                error[np.arange(y.size), y] -= 1.0
                gradient += x.T @ error
            gradient = gradient / targets.size + penalty * theta
            return loss / targets.size + 0.5 * float(np.sum(penalty * theta**2)), gradient.ravel()

        def curvature(flat: Floats, step: Floats) -> Floats:
            """The Hessian times a direction."""
            direction, total = step.reshape(shape), np.zeros(shape)
            for x, log_shares, _ in blocks(flat.reshape(shape)):
                share, change = np.exp(log_shares), x @ direction
                total += x.T @ (share * (change - np.sum(share * change, axis=1, keepdims=True)))
            return np.asarray(total / targets.size + penalty * direction).ravel()

        begin = np.zeros(shape) if start is None else np.concatenate([start[0], start[1][None]])
        found = minimize(
            loss_and_gradient, begin.ravel(), jac=True, hessp=curvature, method="Newton-CG",
            options={"xtol": STEP_TOLERANCE},
        )  # fmt: skip
        theta = found.x.reshape(shape)
        return theta[:-1], theta[-1]

    def losses(self, scores: Floats, targets: Ints) -> Floats:
        """Of each row. [n,K], [n] → [n]"""
        shares = log_softmax(scores, axis=1)
        return np.asarray(-shares[np.arange(targets.size), targets])


# ------------------------------------------------------------------------------------- the strength


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A regression, and the strength of its penalty."""

    linear: Linear
    strength: float


def fit(
    kind: Ridge | Softmax, features: NDArray[Any], targets: NDArray[Any], groups: NDArray[Any],
    strength: float | None = None, *, each: Each = lambda done, total: None,
) -> Fitted:  # fmt: skip
    """Fit on all rows; without a strength, with the one that tells held out groups best.

    Args:
        features: [n,D], in no particular order.
        targets: [n] float for `Ridge`, class numbers for `Softmax`.
        groups: [n]; rows of one group are never on both sides of a fold.
        each: called with the number of regressions fitted, and of all.
    """
    if strength is None:
        part = slice(FOLD_ROWS)
        strength = choose_strength(kind, features[part], targets[part], groups[part], each=each)
    standard = Standard(features)
    weight, bias = kind.fit(standard(features), targets, strength)
    return Fitted(linear=standard.undone(weight, bias), strength=strength)


def choose_strength(
    kind: Ridge | Softmax, features: NDArray[Any], targets: NDArray[Any], groups: NDArray[Any], *,
    each: Each = lambda done, total: None,
) -> float:  # fmt: skip
    """The strength with the least loss on groups that were held out in turn, the first of equals.

    Where all rows are of one group nothing can be held out, and it is 1.
    """
    folds = _folds(groups)
    if folds.max() == 0:
        return 1.0
    totals = np.zeros(len(STRENGTHS))
    for fold in range(folds.max() + 1):
        out = folds == fold
        standard, start = Standard(features[~out]), None
        inside, outside = standard(features[~out]), standard(features[out])
        for number, strength in enumerate(STRENGTHS):
            start = kind.fit(inside, targets[~out], strength, start)
            scores = outside @ start[0] + start[1]
            totals[number] += kind.losses(scores, targets[out]).sum()
            each(fold * len(STRENGTHS) + number + 1, int(folds.max() + 1) * len(STRENGTHS) + 1)
    return STRENGTHS[int(np.argmin(totals))]


def _folds(groups: NDArray[Any]) -> Ints:
    """The fold of each row, from 0; groups are dealt at random, always in the same way."""
    names, inverse = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(0).permutation(names.size)
    folds = order[inverse.reshape(-1)] % min(FOLDS, names.size)
    return np.asarray(folds, np.int64)
