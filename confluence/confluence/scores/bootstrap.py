"""Intervals by bootstrap, clustered by anchor, the same resamples for all that is compared.

    anchors [n] ──► clusters ──► drawn with replacement, K times ──► weights [K,n]
    weights ──► every metric of model and baselines [K] ──► intervals, and of their differences

Seeds of one anchor are not independent: one driver's results resemble each other. So anchors are
drawn, as many as there are, and all seeds of an anchor come along; an interval is the range between
the 2.5 % and 97.5 % quantiles of the metric over the resamples. Model and baselines are measured on
the same draws, which makes differences far narrower than the intervals themselves. A part of the
seeds (a time, those without history) is the same draws of all anchors, cut to the part.

Same seed, same anchors: same intervals. Cost O(K n) per metric, in blocks of a bounded size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.data.tasks import Floats
from confluence.scores.metrics import Measure, Measured, plain

LEVEL = 0.95
RESAMPLES = 1_000
LEAST_RESAMPLES = 200
MOST_WEIGHTS = 40_000_000  # resamples × seeds; beyond, there are fewer resamples
BLOCK_WEIGHTS = 2_000_000  # weights that exist at once
LEAST_ANCHORS = 2
LEAST_DEFINED = 0.5  # share of resamples in which a metric must be defined

Interval = list[float] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resamples:
    """Draws of anchors with replacement, as weights of the seeds."""

    clusters: NDArray[np.int64]  # [n] number of each seed's anchor, from 0
    count: int  # K; 0: no intervals
    seed: int = 0

    @property
    def cluster_count(self) -> int:
        """Anchors that are drawn from."""
        return int(self.clusters.max()) + 1 if self.clusters.size else 0

    def weights(self) -> Iterator[Floats]:
        """How often each seed counts, in blocks [k,n] of all K resamples."""
        drawn = self.cluster_count
        if drawn < LEAST_ANCHORS:
            return
        rng = np.random.default_rng(self.seed)
        block = max(1, BLOCK_WEIGHTS // self.clusters.size)
        for first in range(0, self.count, block):
            k = min(block, self.count - first)
            draws = rng.integers(0, drawn, size=(k, drawn)) + drawn * np.arange(k)[:, None]
            times = np.bincount(draws.ravel(), minlength=k * drawn).reshape(k, drawn)
            yield times.astype(np.float64)[:, self.clusters]


def draw(anchors: NDArray[Any], count: int | None) -> Resamples:
    """Resamples of these seeds' anchors [n]; None: as many as the number of seeds allows."""
    _, clusters = np.unique(anchors, return_inverse=True)
    if count is None:
        most = MOST_WEIGHTS // max(1, anchors.size)
        count = int(np.clip(most, LEAST_RESAMPLES, RESAMPLES))
    return Resamples(clusters=clusters.astype(np.int64).reshape(-1), count=count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """Some of the seeds, and what is measured on them."""

    rows: NDArray[np.int64]  # [m] among the seeds
    measures: Mapping[str, Measure]  # by who is measured


def resample(parts: Mapping[str, Part], resamples: Resamples) -> dict[str, dict[str, Measured]]:
    """Every metric of everyone in each part over the resamples, [K] each, in one pass."""
    found: dict[str, dict[str, list[Measured]]] = {
        name: {who: [] for who in part.measures} for name, part in parts.items()
    }
    for weights in resamples.weights():
        for name, part in parts.items():
            for who, measure in part.measures.items():
                found[name][who].append(measure(weights[:, part.rows]))
    return {
        name: {who: _joined(blocks) for who, blocks in everyone.items()}
        for name, everyone in found.items()
    }


def _joined(blocks: list[Measured]) -> Measured:
    return {name: np.concatenate([b[name] for b in blocks]) for name in (blocks or [{}])[0]}


def interval(samples: Floats) -> Interval:
    """The middle 95 % of a metric's resamples; None where too few define it."""
    defined = samples[~np.isnan(samples)]
    if not samples.size or defined.size < LEAST_DEFINED * samples.size:
        return None
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return [float(low), float(high)]


def intervals(measured: Measured, names: Iterable[str]) -> dict[str, Interval]:
    """An interval for each metric; None where nothing was drawn."""
    return {name: interval(measured.get(name, np.empty(0))) for name in names}


def differences(ours: Measured, theirs: Measured) -> Measured:
    """Ours less theirs, resample by resample."""
    return {name: samples - theirs[name] for name, samples in ours.items()}


def difference(ours: float | None, theirs: float | None) -> float | None:
    """Of two metrics; None where one is undefined."""
    return None if ours is None or theirs is None else plain(np.float64(ours - theirs))
