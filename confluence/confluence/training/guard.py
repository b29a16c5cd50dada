"""The guard of a training: when val is scored, and whether more steps are worth while.

    steps ──► evaluation_steps ──► scores on val ──► the best weights, which answer
                                                └──► is_over: none of the last scores is the best

Without `eval_every` a training is scored ten times on a sample of val. From too few steps nothing
is chosen, nor where val is learned (`train_on_val`), is for a backtest to score, or has no task's
labels (`pretrain`).

Source: early stopping with a patience (Prechelt, "Early stopping - but when?", 1998).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.planned_steps import LEAST_STEPS
from confluence.data.tasks import VAL, Labels

Ints = NDArray[np.int64]

FIRST = (25, 50, 75, 100)  # steps after which val is scored, and then evenly
EVALUATIONS = 10
SAMPLE = 2_000  # labels of val that a score is of
PATIENCE = 6  # scores without a better one end a training; with 4 no-votes of suite/ lost a third
UNSCORED = 255  # in place of the split of a seed that is not in the sample


def is_guarded(cfg: Config) -> bool:
    """Whether a training is scored by its own choice of steps, and may end early."""
    return (
        cfg.eval_every is None
        and cfg.step_count >= LEAST_STEPS
        and cfg.objective == "task"
        and not cfg.train_on_val
        and cfg.past is None
    )


def evaluation_steps(cfg: Config) -> tuple[int, ...]:
    """The steps after which val is scored, ascending."""
    steps = cfg.step_count
    if cfg.past is not None:
        return ()
    if cfg.eval_every:
        return tuple(range(cfg.eval_every, steps + 1, cfg.eval_every))
    if not is_guarded(cfg):
        return ()
    start = FIRST if steps >= FIRST[0] * EVALUATIONS else ()
    left = EVALUATIONS - len(start)
    done = start[-1] if start else 0
    later = (done + (steps - done) * number // left for number in range(1, left + 1))
    return (*start, *later)


def is_over(cfg: Config, step: int, best: int | None) -> bool:
    """Whether a training ends after the score of a step.

    Args:
        best: the step with the best score; None: no score is known.
    """
    if not is_guarded(cfg) or best is None:
        return False
    return sum(best < other <= step for other in evaluation_steps(cfg)) >= PATIENCE


def sample_of(labels: Labels, split: int, seed: int) -> Ints:
    """Seeds of a split that have a label, at most SAMPLE, drawn by a seed; ascending."""
    known = np.flatnonzero((labels.splits == split) & labels.is_known)
    if known.size <= SAMPLE:
        return known
    drawn = np.random.default_rng([seed, split]).choice(known, SAMPLE, replace=False)
    return np.sort(drawn)


def of_sample(labels: Labels, seeds: Ints) -> Labels:
    """The labels, with a val of these seeds alone."""
    is_left = labels.splits == VAL
    is_left[seeds] = False
    return dataclasses.replace(labels, splits=np.where(is_left, UNSCORED, labels.splits))
