"""Linear regressions with a penalty on their weights, and how strong it should be.

    features [n,D] ──► each column less its mean, by its spread ──► ridge: numbers, times
                                                                └─► softmax: truths, categories

What is minimised is the mean loss of the rows plus strength/2·Σ weight², biases free. Ridge (half
the squared error) is one linear system. Softmax regression is convex: Newton's method, directions
by conjugate gradients, in blocks of rows so that scores [rows, classes] stay small. Plain NumPy in
float64; the same rows give the same weights. Cost O(n D²), and O(n D K) per product with the
Hessian.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.data.tasks import Floats
from confluence.model.outputs import softmax

STRENGTHS = tuple(10.0**power for power in range(1, -5, -1))  # tried, the strongest first
FOLDS = 5
FOLD_ROWS = 20_000  # most rows that the strength is chosen by
BIAS_STRENGTH = 1e-6  # of softmax, so that a class that never occurs has a finite bias
NEWTON_STEPS = 50
CONJUGATE_STEPS = 100
GRADIENT_TOLERANCE = 1e-7
BLOCK_SCORES = 4_000_000  # scores that exist at once

Ints = NDArray[np.int64]


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
        problem = _SoftmaxProblem(features, targets, self.class_count, strength)
        theta = np.zeros((features.shape[1] + 1, self.class_count))
        if start is not None:
            theta = np.concatenate([start[0], start[1][None]])
        for _ in range(NEWTON_STEPS):
            loss, gradient = problem.loss(theta), problem.gradient(theta)
            if np.abs(gradient).max() < GRADIENT_TOLERANCE:
                break
            times = functools.partial(problem.curvature, theta)
            step = _conjugate_gradients(times, -gradient)
            slope, size = float(np.sum(gradient * step)), 1.0
            while problem.loss(theta + size * step) > loss + 1e-4 * size * slope and size > 1e-8:
                size /= 2.0
            theta = theta + size * step
        return theta[:-1], theta[-1]

    def losses(self, scores: Floats, targets: Ints) -> Floats:
        """Of each row. [n,K], [n] → [n]"""
        chosen = scores[np.arange(targets.size), targets]
        return np.asarray(_log_sum(scores) - chosen)


class _SoftmaxProblem:
    """The penalised loss of softmax regression at θ [D+1,K], whose last row are the biases."""

    def __init__(self, features: Floats, targets: Ints, class_count: int, strength: float) -> None:
        self._features, self._targets = features, targets
        self._rows = max(1, BLOCK_SCORES // class_count)
        self._penalty = np.full((features.shape[1] + 1, 1), strength)
        self._penalty[-1] = BIAS_STRENGTH

    def _blocks(self, theta: Floats) -> Iterator[tuple[Floats, Floats, Ints]]:
        """Features with a column of ones, scores, targets."""
        for first in range(0, self._targets.size, self._rows):
            part = self._features[first : first + self._rows]
            x = np.concatenate([part, np.ones((len(part), 1))], axis=1)
            yield x, x @ theta, self._targets[first : first + self._rows]

    def loss(self, theta: Floats) -> float:
        total = sum(
            float(np.sum(_log_sum(scores) - scores[np.arange(y.size), y]))
            for _, scores, y in self._blocks(theta)
        )
        return total / self._targets.size + 0.5 * float(np.sum(self._penalty * theta**2))

    def gradient(self, theta: Floats) -> Floats:
        total = np.zeros_like(theta)
        for x, scores, y in self._blocks(theta):
            share = softmax(scores)
            share[np.arange(y.size), y] -= 1.0
            total += x.T @ share
        return np.asarray(total / self._targets.size + self._penalty * theta)

    def curvature(self, theta: Floats, direction: Floats) -> Floats:
        """The Hessian at θ times a direction."""
        total = np.zeros_like(theta)
        for x, scores, _ in self._blocks(theta):
            share, change = softmax(scores), x @ direction
            total += x.T @ (share * (change - np.sum(share * change, axis=1, keepdims=True)))
        return np.asarray(total / self._targets.size + self._penalty * direction)


def _log_sum(scores: Floats) -> Floats:
    most = scores.max(axis=1)
    return np.asarray(most + np.log(np.sum(np.exp(scores - most[:, None]), axis=1)))


def _conjugate_gradients(times: Callable[[Floats], Floats], wanted: Floats) -> Floats:
    """About the x with times(x) = wanted, the closer the smaller `wanted` is."""
    x, rest = np.zeros_like(wanted), wanted.copy()
    direction, square = rest.copy(), float(np.sum(rest**2))
    enough = square * min(0.01, square**0.5)
    for _ in range(CONJUGATE_STEPS):
        if square <= enough:
            break
        product = times(direction)
        size = square / float(np.sum(direction * product))
        x, rest = x + size * direction, rest - size * product
        square, before = float(np.sum(rest**2)), square
        direction = rest + square / before * direction
    return x


# ------------------------------------------------------------------------------------- the strength


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A regression, and the strength of its penalty."""

    linear: Linear
    strength: float


def fit(
    kind: Ridge | Softmax, features: NDArray[Any], targets: NDArray[Any], groups: NDArray[Any],
    strength: float | None = None,
) -> Fitted:  # fmt: skip
    """Fit on all rows; without a strength, with the one that tells held out groups best.

    Args:
        features: [n,D], in no particular order.
        targets: [n] float for `Ridge`, class numbers for `Softmax`.
        groups: [n]; rows of one group are never on both sides of a fold.
    """
    if strength is None:
        part = slice(FOLD_ROWS)
        strength = choose_strength(kind, features[part], targets[part], groups[part])
    standard = Standard(features)
    weight, bias = kind.fit(standard(features), targets, strength)
    return Fitted(linear=standard.undone(weight, bias), strength=strength)


def choose_strength(
    kind: Ridge | Softmax, features: NDArray[Any], targets: NDArray[Any], groups: NDArray[Any]
) -> float:
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
    return STRENGTHS[int(np.argmin(totals))]


def _folds(groups: NDArray[Any]) -> Ints:
    """The fold of each row, from 0; groups are dealt at random, always in the same way."""
    names, inverse = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(0).permutation(names.size)
    folds = order[inverse.reshape(-1)] % min(FOLDS, names.size)
    return np.asarray(folds, np.int64)
