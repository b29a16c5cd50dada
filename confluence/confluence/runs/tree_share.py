"""Gives a run the boosted trees of its tasks, and chooses on val what these have of its answers.

    train seeds ──► TaskTrees ┐
    val seeds ──► the run     ├──► the answers of both to val ──► the best of SHARES
                                   those with that share      ──► Calibration      ──► KeptTrees

The trees are kept in the run's folder, so whoever asks it gets one answer. A backtest
scores val, so nothing is chosen there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import headwater
import numpy as np
from headwater.shared import say
from numpy.typing import NDArray

from confluence.answers.calibration import Calibration, at_rows, brier
from confluence.answers.calibration import choose as choose_map
from confluence.answers.kept_trees import KeptTrees, TreeShare, read_kept
from confluence.answers.read_out import read_answers
from confluence.data.stores import TaskPlace
from confluence.data.tasks import NO_BATCHES, TRAIN, VAL, Labels, Task, TaskError, open_sampler
from confluence.ranks.group import current
from confluence.report.tables import describe_calibration, describe_trees
from confluence.runs.ask import Answered, Queries, ask, read_place
from confluence.runs.ensemble import Ensemble
from confluence.runs.run import Run
from confluence.scores.metrics import MEASURES, main_metric, metrics_of
from confluence.trees.boosted import NoTreesError, load_lightgbm
from confluence.trees.own_columns import OwnColumns
from confluence.trees.task_trees import TaskTrees, fit_trees
from confluence.trees.time_lists import Ints

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
HALF = 0.5  # if val cannot tell
LEAST_LABELS = 200  # of val, by which a share is chosen


def with_trees(run: Run, opened: Mapping[str, headwater.Store]) -> Run:
    """The run with the trees of each task, and their shares; those that are in its folder, if the
    shares were chosen with these weights. All ranks do this alike; rank 0 writes.

    Args:
        opened: the run's stores, by path.
    """
    try:
        load_lightgbm()
    except NoTreesError as error:
        if current().is_first:
            say(f"no boosted trees: {error}")
        return run
    kept = {place.title: _of_task(run, place, opened) for place in run.places}
    return dataclasses.replace(run, trees=kept)


def kept_trees(run: Run) -> dict[str, KeptTrees]:
    """The trees in a run's folder, by the title of their task."""
    found = ((place.title, read_kept(run.results(place.title))) for place in run.places)
    return {title: kept for title, kept in found if kept is not None}


def _of_task(run: Run, place: TaskPlace, opened: Mapping[str, headwater.Store]) -> KeptTrees:
    """The trees of a task, kept."""
    group, folder = current(), run.results(place.title)
    found = read_kept(folder)
    if all(group.gather(found is not None and found.step == run.step)) and found is not None:
        return found
    cfg = run.config.for_answers()
    with open_sampler(opened[place.store], cfg, place.name, **NO_BATCHES) as sampler:
        task, labels = read_place(sampler, place)
    if group.is_first:
        seeds = int(np.sum((labels.splits == TRAIN) & labels.is_known))
        say(f"fitting boosted trees on {seeds:,} train seeds of {place.title}")
    group.beat("fitting trees")
    with OwnColumns(opened[place.store], cfg, task) as own_columns:
        trees = fit_trees(own_columns, labels)
    chosen, calibration = _chosen(run, place, trees, task, labels, opened)
    kept = KeptTrees(trees=trees, chosen=chosen, step=run.step, calibration=calibration)
    if group.is_first:
        kept.write(folder)
        about = {"share": chosen.share, "chosen": chosen.to_dict()}
        say(f"{place.title}: {describe_trees(about)}")
        if calibration.kind is not None:
            say(f"{place.title}: {describe_calibration(calibration.to_dict())}")
    return kept


def _chosen(
    run: Run, place: TaskPlace, trees: TaskTrees, task: Task, labels: Labels,
    opened: Mapping[str, headwater.Store],
) -> tuple[TreeShare, Calibration]:  # fmt: skip
    """The share of the trees that answers val best, and the map of those answers."""

    def unasked(share: float, reason: str) -> tuple[TreeShare, Calibration]:
        return TreeShare(share=share, reason=reason), Calibration(reason=reason)

    is_val = (labels.splits == VAL) & labels.is_known
    count = int(is_val.sum())
    if not trees.fitted:
        return unasked(0.0, "no train seed has a value")
    if run.config.past is not None:
        return unasked(HALF, "a backtest scores val, and does not choose by it")
    if count < LEAST_LABELS:
        few = f"val has {count:,} labels, too few to choose by"
        return unasked(HALF, few)
    half = KeptTrees(trees=trees, chosen=TreeShare(share=HALF), step=run.step)
    queries = Queries(lambda sampler: sampler.epoch("val", task=place.name), "val")
    cfg = run.config.for_answers()
    try:
        answered = ask(
            dataclasses.replace(run, trees={place.title: half}), place, cfg, queries,
            Ensemble(tree_share=HALF), opened,
        )  # fmt: skip
    except TaskError as error:  # the trees have no answer to some of the seeds
        return unasked(0.0, str(error))
    metric, sign = main_metric(task.stype, run.config.metric)
    scores, errors = _scores(answered, metric)
    if not scores:
        return unasked(HALF, f"{metric} is undefined on val")
    best = max(scores, key=lambda share: (sign * scores[share], -errors[share]))
    share = TreeShare(share=best, metric=metric, by_share=scores)
    return share, _map_of(answered, best, run.config.metric)


def _map_of(answered: Answered, share: float, metric: str) -> Calibration:
    """The map of the answers of model and trees, with this share of the trees."""
    seeds, scored = _scored(answered)
    assert answered.apart is not None
    output = at_rows(answered.apart.together(share), scored)
    labels = answered.labels
    targets, times = labels.targets[seeds], labels.obs_times[seeds]
    return choose_map(output, targets, answered.target, times, metric)


def _scored(answered: Answered) -> tuple[Ints, NDArray[np.bool_]]:
    """The labelled seeds, and which of the answers are theirs."""
    seeds = answered.predictions.seed_index.astype(np.int64)
    scored = answered.labels.is_known[seeds]
    return seeds[scored], scored


def _scores(answered: Answered, metric: str) -> tuple[dict[float, float], dict[float, float]]:
    """The metric on the labelled seeds by the share of trees, none if it is undefined; and the mean
    squared error, which tells apart what the metric does not: of a probability it is Brier's."""
    task, apart = answered.target, answered.apart
    assert apart is not None
    seeds, scored = _scored(answered)
    targets = answered.labels.targets[seeds]
    found: dict[float, float] = {}
    errors: dict[float, float] = {}
    for share in SHARES:
        output = apart.together(share)
        values, _ = read_answers(output, task)
        measured = MEASURES[task.stype](targets, values[scored])
        score = metrics_of(measured, targets.size)[metric]
        if score is not None:
            found[share] = float(score)
            squared = brier(at_rows(output, scored), targets, task.stype)
            squared = (values[scored] - targets) ** 2 if squared is None else squared
            errors[share] = float(np.mean(squared))
    return found, errors
