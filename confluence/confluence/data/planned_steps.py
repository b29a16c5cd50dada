"""How many steps a training takes if nobody says: by its seeds, and by what a step costs.

    cells of a step ──► its cost by a fixed table ──► steps in SECONDS ┐
    train seeds ──────────────────────────────────► steps of EPOCHS ───┴─► the fewer of both

The table is of two cores and the same everywhere, so that a run has as many steps on any machine;
a faster one is done sooner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from headwater.shared import say

from confluence.config import Config
from confluence.data.stores import OpenStore
from confluence.data.tasks import TRAIN, cell_count, context_count, parts_of
from confluence.ranks.group import current

SECONDS = 75.0  # of steps; with trials of hops, scores and trees about two minutes
START_SECONDS = 10.0  # of compiling before them
EPOCHS = 20  # over the train seeds, at most
LEAST_STEPS = 100  # with fewer, val chooses no weights (`training/guard.py`)
STEP_SECONDS = 3e-3  # of a step, whatever it has
CELL_SECONDS = 20e-6  # of each cell of it, by a model of the preset small
LAYER_WIDTHS = 2 * 64  # layers times width of that model
ROUND = 10
SAMPLED = 256  # contexts of each task whose cells are counted


def with_steps(cfg: Config, stores: Sequence[OpenStore], *, tell: bool = False) -> Config:
    """The settings with a number of steps; those that have one as they are.

    Args:
        tell: print the number, and how long that takes.
    """
    if cfg.steps is not None:
        return cfg
    cells, seeds = _cells_of_step(cfg, stores), _train_seeds(stores)
    seconds = STEP_SECONDS + CELL_SECONDS * cells * cfg.layers * cfg.width / LAYER_WIDTHS
    contexts = cfg.contexts * cfg.accumulate
    most = min(SECONDS / seconds, EPOCHS * seeds / contexts)
    steps = max(LEAST_STEPS, ROUND * int(most / ROUND))
    if tell:
        say(
            f"{steps:,} steps (--steps), by {seeds:,} train seeds and {cells:,.0f} cells of a step:"
            f" about {_time(START_SECONDS + steps * seconds)} of training on two cores"
        )
    return cfg.replace(steps=steps)


def _cells_of_step(cfg: Config, stores: Sequence[OpenStore]) -> float:
    """Cells of a step over all ranks, the mean of the tasks by their weights. Contexts have as many
    on any number of ranks; batches, which have room for more, do not."""
    total = sum(store.weight for store in stores)
    cells = 0.0
    for store in stores:
        share = store.weight / total
        if not store.places:
            cells += share * _room(store, cfg)
            continue
        sizes = [_cells_of_context(store, k) for k in range(len(store.places))]
        mean = np.average(sizes, weights=[place.weight for place in store.places])
        cells += share * float(mean) * cfg.contexts
    return cells * cfg.accumulate


def _cells_of_context(store: OpenStore, k: int) -> float:
    """The mean of some labelled train seeds of a task, evenly spread."""
    labels = store.labels[k]
    seeds = np.flatnonzero((labels.splits == TRAIN) & labels.is_labelled)
    seeds = seeds[np.linspace(0, seeds.size - 1, min(seeds.size, SAMPLED)).astype(np.int64)]
    cells = contexts = 0
    for batch in store.sampler.batches_of(seeds, store.places[k].name):
        cells += cell_count(batch)
        contexts += context_count(batch)
    return cells / max(1, contexts)


def _room(store: OpenStore, cfg: Config) -> float:
    """The cells of the batches of all ranks, in all parts, if masked cells alone are learned."""
    sampler, ranks = store.sampler, current().size
    sizes = [sampler.flat_shape(name)["cells"] for name in sampler.tasks]
    return float(np.mean(sizes)) * ranks * parts_of(sampler, cfg.contexts // ranks)


def _train_seeds(stores: Sequence[OpenStore]) -> int:
    """Train seeds that have a label, or of which masked cells are learned."""
    count = 0
    for store in stores:
        for labels in store.labels:
            count += int(np.sum((labels.splits == TRAIN) & labels.is_labelled))
        if not store.labels:
            count += store.sampler.num_seeds("train")
    return count


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
