"""What contexts hold, if nobody says: how many hops they go, and whether they have label rows.

    settings with each choice ──► a short training each, on a sample of val ──► the better score

One more hop shows parents of children, or children of parents; on a wide schema they take the place
of the anchor's own rows. Label rows show what the anchor did before, and take the place of other
rows, too; if val has only old ones, they teach less than nothing. So none is right for all
questions (docs/reference/model.md, "How many hops"). If val cannot choose, contexts go two hops and
have no label rows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import numpy as np
from headwater.shared import say

from confluence.config import AUTO, Config
from confluence.data.planned_steps import LEAST_STEPS, with_steps
from confluence.data.stores import OpenStore
from confluence.data.tasks import VAL
from confluence.folder.checkpoint import Score
from confluence.ranks.group import current
from confluence.scores.metrics import metric_text
from confluence.training.guard import is_guarded
from confluence.trees.label_row_check import has_label_rows

CHOICES = {"max_hops": (1, 2), "label_rows": (0, 8)}  # in the order in which they are made
TRYING = {
    "max_hops": "trying contexts of 1 and of 2 hops, {steps} steps each (--max-hops)",
    "label_rows": "trying contexts {with_and} 8 label rows, {steps} steps each (--label-rows)",
}
FOUND = {
    "max_hops": {1: "go 1 hop", 2: "go 2 hops"},
    "label_rows": {0: "have no label rows", 8: "have up to 8 label rows"},
}
WORDS = {"max_hops": "hops", "label_rows": "label rows"}
TRIAL_STEPS = 200  # at most
TRIAL_RATE = 3e-3  # of learning; with 3e-4 nothing of churn was learned in 200 steps
PARTS = 3  # of the steps of the training, that a trial takes at most one of
LEAST_LABELS = 200  # of val, by which contexts are chosen

Opened = Callable[[Config], contextlib.AbstractContextManager[tuple[OpenStore, ...]]]
Check = Callable[[Sequence[OpenStore]], None]
Trial = Callable[[Config, Sequence[OpenStore]], Score | None]


def with_contexts(cfg: Config, opened: Opened, trial: Trial, check: Check) -> Config:
    """The settings with the better contexts; those that leave nothing of them open as they are.

    Args:
        opened: the run's stores, with samplers of some settings.
        trial: the score of a short training.
        check: raises what the training would, before anything is tried.
    """
    chosen = cfg.with_usual_contexts()
    if chosen == cfg or cfg.eval_every == 0 or cfg.train_on_val or cfg.past is not None:
        return chosen
    with opened(chosen) as stores:
        steps = current().tell(_trial_steps(cfg, stores))
        tried = chosen.replace(steps=steps, eval_every=None, learning_rate=TRIAL_RATE)
        names = [name for name in CHOICES if getattr(cfg, name) == AUTO]
        if "label_rows" in names and not has_label_rows(stores, chosen):
            names.remove("label_rows")
        if not names or not is_guarded(tried) or not _has_labels(stores):
            return chosen
        check(stores)
    scores = dict[Config, Score | None]()
    for name in names:
        found = _better(tried, name, opened, trial, scores)
        tried, chosen = (each.replace(**{name: found}) for each in (tried, chosen))
    return chosen


def _better(
    tried: Config, name: str, opened: Opened, trial: Trial, scores: dict[Config, Score | None]
) -> int:
    """The value of a setting that val shows to be better; the usual one if no score is known.

    Args:
        scores: of the trials before; those of this setting are added.
    """
    group, began = current(), time.perf_counter()
    settings = {value: tried.replace(**{name: value}) for value in CHOICES[name]}
    if group.is_first:
        with_and = "with" if tried in scores else "with and without"
        say(TRYING[name].format(steps=tried.step_count, with_and=with_and))
    for settled in settings.values():
        if settled not in scores:
            with opened(settled) as stores:
                score = trial(settled, stores)
            told = group.tell(score)
            scores[settled] = None if told is None else Score(*told)
    known = {value: s for value, each in settings.items() if (s := scores[each]) is not None}
    usual = int(getattr(tried, name))
    best = max(known, key=lambda value: (known[value].goodness, -value), default=usual)
    if group.is_first and known:
        values = ", ".join(f"{value} {metric_text(s.value)}" for value, s in known.items())
        say(
            f"contexts {FOUND[name][best]}: {known[best].metric} on val by {WORDS[name]} is"
            f" {values}, after {tried.steps} steps of each in"
            f" {time.perf_counter() - began:.0f} s"
        )
    return best


def _trial_steps(cfg: Config, stores: Sequence[OpenStore]) -> int:
    """How many steps a trial takes, whatever is tried."""
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
