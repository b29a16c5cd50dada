"""The regime of an evaluation: up to when the model sees the database."""

from __future__ import annotations

from typing import TypeAlias

import headwater
from headwater.shared import Time, time_us

from confluence.config import Config
from confluence.data.tasks import NO_BATCHES, SPLITS, open_sampler, read_labels
from confluence.scores.scoring import time_text

VisibleUntil: TypeAlias = Time | None


def regime_config(
    cfg: Config, store: headwater.Store, task: str, split: str, regime: str | None,
    visible_until: VisibleUntil,
) -> Config:  # fmt: skip
    """A run's settings in the regime that was asked for.

    Args:
        store, task: where its seeds are.
        split, regime, visible_until: as in `Run.evaluate`.
    """
    cfg.check_scored(split)
    if regime not in (None, "rolling", "frozen"):
        raise ValueError(f"regime is '{regime}', expected 'rolling' or 'frozen'")
    if regime == "rolling" and visible_until is not None:
        raise ValueError("a rolling regime has no visible_until")
    if regime == "rolling":
        return cfg.replace(visible_until=None)
    if visible_until is None and regime == "frozen" and cfg.visible_until is None:
        visible_until = _first_time(cfg, store, task, split)
    if visible_until is None:
        return cfg
    if not isinstance(visible_until, str):
        visible_until = time_text(time_us(visible_until))
    return cfg.replace(visible_until=visible_until)


def _first_time(cfg: Config, store: headwater.Store, task: str, split: str) -> str:
    with open_sampler(store, cfg, task, **NO_BATCHES) as sampler:
        labels = read_labels(sampler, task)
    times = labels.obs_times[labels.splits == SPLITS[split]]
    text = time_text(int(times.min())) if times.size else ""
    if not text:
        raise ValueError(f"split '{split}' of task '{task}' has no times to freeze at")
    return text
