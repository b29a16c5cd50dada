"""How many hops contexts go, if nobody says: of 1 and 2 what val shows to be better.

    settings with each of HOPS ──► a short training each, on a sample of val ──► the better score

One more hop shows parents of children, or children of parents; on a wide schema they take the place
of the anchor's own rows. Neither number is right for all questions (docs/reference/model.md, "How
many hops"). If val cannot choose, it is the larger one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import numpy as np
from headwater.shared import say

from confluence.config import AUTO, USUAL_HOPS, Config
from confluence.data.planned_steps import LEAST_STEPS, with_steps
from confluence.data.stores import OpenStore
from confluence.data.tasks import VAL
from confluence.folder.checkpoint import Score
from confluence.ranks.group import current
from confluence.scores.metrics import metric_text
from confluence.training.guard import is_guarded

HOPS = (1, 2)
TRIAL_STEPS = 200  # at most
TRIAL_RATE = 3e-3  # of learning; with 3e-4 nothing of churn was learned in 200 steps
PARTS = 3  # of the steps of the training, that a trial takes at most one of
LEAST_LABELS = 200  # of val, by which hops are chosen

Opened = Callable[[Config], contextlib.AbstractContextManager[tuple[OpenStore, ...]]]
Check = Callable[[Sequence[OpenStore]], None]
Trial = Callable[[Config, Sequence[OpenStore]], Score | None]


def chosen_hops(cfg: Config, opened: Opened, trial: Trial, check: Check) -> Config:
    """The settings with the better number of hops; those that have one as they are.

    Args:
        opened: the run's stores, with samplers of some settings.
        trial: the score of a short training.
        check: raises what the training would, before anything is tried.
    """
    if cfg.max_hops != AUTO:
        return cfg
    if cfg.eval_every == 0 or cfg.train_on_val or cfg.past is not None:
        return cfg.replace(max_hops=USUAL_HOPS)
    group, began = current(), time.perf_counter()
    steps, scores = 0, dict[int, Score | None]()
    for hops in HOPS:
        tried = cfg.replace(max_hops=hops, eval_every=None, learning_rate=TRIAL_RATE)
        with opened(tried) as stores:
            steps = steps or group.tell(_trial_steps(cfg, stores))
            tried = tried.replace(steps=steps)
            if not is_guarded(tried) or not _has_labels(stores):
                return cfg.replace(max_hops=USUAL_HOPS)
            if hops == HOPS[0]:
                check(stores)
                if group.is_first:
                    say(f"trying contexts of 1 and of 2 hops, {steps} steps each (--max-hops)")
            score = trial(tried, stores)
            scores[hops] = Score(*told) if (told := group.tell(score)) is not None else None
    known = {hops: score for hops, score in scores.items() if score is not None}
    best = max(known, key=lambda hops: (known[hops].goodness, -hops), default=USUAL_HOPS)
    if group.is_first and known:
        name = known[best].metric
        values = ", ".join(f"{hops} {metric_text(s.value)}" for hops, s in known.items())
        say(
            f"contexts go {best} hop{'s' * (best > 1)}: {name} on val by hops is"
            f" {values}, after {steps} steps of each in {time.perf_counter() - began:.0f} s"
        )
    return cfg.replace(max_hops=best)


def _trial_steps(cfg: Config, stores: Sequence[OpenStore]) -> int:
    """How many steps a trial takes, for any number of hops."""
    most = max(1, with_steps(cfg, stores).step_count // PARTS)
    return min(TRIAL_STEPS, most if cfg.steps else max(most, LEAST_STEPS))


def _has_labels(stores: Sequence[OpenStore]) -> bool:
    """Whether val has enough labels of each task."""
    counts = [
        int(np.sum((labels.splits == VAL) & labels.is_known))
        for store in stores
        for labels in store.labels
    ]
    return min(counts, default=0) >= LEAST_LABELS
