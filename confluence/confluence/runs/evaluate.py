"""Scores a run on exactly the seeds of a split: `Run.evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import headwater
import numpy as np
from headwater.shared import open_windows_text

from confluence.answers.calibration import at_rows, errors_of
from confluence.answers.read_out import read_answers
from confluence.answers.with_trees import Apart
from confluence.data.stores import Seeds
from confluence.data.tasks import TaskError, device_tables, find_task, open_seeds, read_row_shape
from confluence.data.verification import verified_stores
from confluence.ranks.group import current
from confluence.report.evaluation_files import EVALUATION
from confluence.report.page import keep_result
from confluence.runs.ask import Answered, Queries, ask
from confluence.runs.ensemble import ALONE, Ensemble
from confluence.runs.regime import VisibleUntil, regime_config
from confluence.runs.saved_run import SavedRun, check_split
from confluence.scores.scoring import Terms, evaluate
from confluence.scores.verdict import of_model
from confluence.training.masked_cell_score import HeldOut, Sums, evaluate_held_out
from confluence.trees.tree_baselines import tree_baselines, visible_history

Opened = Mapping[str, headwater.Store]
"""Open stores by path."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examination:
    """A request for an evaluation, as `Run.evaluate` takes it."""

    split: str
    task: str | None = None
    regime: str | None = None
    visible_until: VisibleUntil = None
    resamples: int | None = None
    trees: bool = True
    ensemble: Ensemble = ALONE


class Scoring(NamedTuple):
    """An evaluation of which the answers are there."""

    out: Path  # of the run
    folder: Path  # of the result
    opened: Opened
    score: Callable[[], dict[str, Any]]

    def result(self) -> dict[str, Any]:
        """Score, and keep the result in the run's folder."""
        result = self.score()
        keep_result(self.out, self.folder, EVALUATION, result, self.opened)
        return result


def scoring(
    run: SavedRun, wanted: Examination, *, verify: str = "once", opened: Opened | None = None
) -> Scoring:
    """An evaluation up to where the answers are there. Intervals and baselines, the rest, may take
    long and are up to rank 0: the others need not wait for it.

    Args:
        opened: the run's stores, verified; None: they are opened.
    """
    check_split(wanted.split)
    if run.config.objective == "masked_cells":
        _check_has_no_task(run, wanted)
        return _of_masked_cells(run, wanted.split, opened or verified_stores(run.stores, verify))
    split, ensemble, place = wanted.split, wanted.ensemble, run.place(wanted.task)
    stores = opened or verified_stores(ensemble.stores(run, place), verify)
    store = stores[place.store]
    cfg = regime_config(
        run.config, store, place.name, split, wanted.regime, wanted.visible_until
    ).for_answers()
    for other in ensemble.others:
        other.config.check_scored(split)
    queries = Queries(lambda sampler: sampler.epoch(split, task=place.name), split)
    share = ensemble.share_of_trees(run, place)
    answered = ask(run, place, cfg, queries, ensemble, stores)

    def score() -> dict[str, Any]:
        target, labels = answered.target, answered.labels
        more: dict[str, Any] = {}
        if answered.apart is not None:
            more["model_alone"] = _of_model_alone(answered.apart, answered, share)
        if wanted.trees:
            kept = run.trees.get(place.title)
            more |= tree_baselines(
                store, cfg, target, labels, split, trees=None if kept is None else kept.trees,
                history=answered.trees,
            )  # fmt: skip
        terms = Terms(split, cfg.metric, cfg.visible_until, wanted.resamples)
        result = evaluate(
            answered.predictions, labels, target, terms, more=more,
            has_history=visible_history(store, cfg, target, labels, split),
            answer=of_model(share, has_trees=place.title in run.trees),
        )  # fmt: skip
        made = {**answered.made, **_of_map(answered), **_of_open_windows(store, place.name, result)}
        return {**result, **made, "task": place.title, "step": run.step}

    return Scoring(run.out, run.results(wanted.task), stores, score)


def _of_model_alone(apart: Apart, answered: Answered, share: float) -> dict[str, Any]:
    """The answers of the model alone, as a baseline of those that it gave together with trees."""
    values = np.full(answered.labels.targets.size, np.nan)
    seeds = answered.predictions.seed_index.astype(np.int64)
    values[seeds], _ = read_answers(apart.model, answered.target)
    return {"model": f"the model, which has {1 - share:g} of each answer", "values": values}


def _of_open_windows(
    store: headwater.Store, task: str, result: Mapping[str, Any]
) -> dict[str, Any]:
    """Why seeds of the split have no label, if their label windows end after the data."""
    entry = store.metadata["tasks"][find_task(store.metadata, task)]
    text = open_windows_text(entry, lost=True) if result["unlabelled"] else None
    return {} if text is None else {"open_windows": text}


def _of_map(answered: Answered) -> dict[str, Any]:
    """The map of the answers, with the mean error of the labelled seeds before and after it;
    nothing if the answers have no map."""
    calibration, before = answered.calibration, answered.before
    if calibration is None or before is None:
        return {}
    seeds = answered.predictions.seed_index.astype(np.int64)
    scored = answered.labels.is_known[seeds]
    targets = answered.labels.targets[seeds[scored]]
    errors = [
        errors_of(output, targets, answered.target, calibration.measure)
        for output in (at_rows(before, scored), at_rows(calibration.applied(before), scored))
    ]
    means = [float(error.mean()) for error in errors if error is not None and error.size]
    if not means:
        return {}
    found: dict[str, Any] = {"kind": calibration.kind, "measure": calibration.measure}
    if calibration.limit is not None:
        found["limit"] = calibration.limit
    names = ("before", "after")
    found["val"] = {name: getattr(calibration, name) for name in names}
    return {"calibration": {**found, **dict(zip(names, means, strict=True))}}


def _check_has_no_task(run: SavedRun, wanted: Examination) -> None:
    """Raise if a run of masked cells is asked for what only a task has; before stores are read."""
    if wanted.ensemble.others:
        raise TaskError(f"the run in '{run.out}' learned masked cells: it has no answers")
    options = {
        "task": wanted.task, "regime": wanted.regime, "visible_until": wanted.visible_until,
        "resamples": wanted.resamples or None, "tree_share": wanted.ensemble.tree_share or None,
    }  # fmt: skip
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(
            f"the run in '{run.out}' learned masked cells, which has no {' and no '.join(given)}"
        )


def _of_masked_cells(run: SavedRun, split: str, opened: Opened) -> Scoring:
    """The loss of masked cells in the contexts of a split."""
    sums = [
        (path, _held_out_sums(run, opened[path], seeds, split))
        for path, seeds in zip(run.stores, run.seeds, strict=True)
    ]
    until = run.config.visible_until
    found = evaluate_held_out(sums, split, until, current().gather)
    return Scoring(run.out, run.out, opened, lambda: {**found, "step": run.step})


def _held_out_sums(run: SavedRun, store: headwater.Store, seeds: Seeds, split: str) -> Sums:
    group, cfg = current(), run.config.for_answers()
    with open_seeds(store, cfg, seeds, **group.share()) as sampler:
        held_out = HeldOut(
            cfg, device_tables(sampler, 1),
            row_shape=read_row_shape(sampler.database_metadata(), cfg),
        )  # fmt: skip
        return held_out.sums(run.params, sampler, split, watched=group.watched)
