"""The scores of a training on val, and how much better its answers to train are.

All ranks answer, each its share of the seeds; rank 0 alone has the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from headwater import SemanticType

from confluence.answers.read_out import predict, reordered
from confluence.config import Config
from confluence.data.stores import OpenStore, category_limit, row_shape
from confluence.data.tasks import TRAIN, US_PER_DAY, VAL, Alive, Floats, Labels, Task
from confluence.folder.checkpoint import Score
from confluence.model.transformer import Params, Tables
from confluence.ranks.group import Group
from confluence.scores.baselines import best_constant
from confluence.scores.metrics import MEASURES, main_metric, metric_text, metrics_of
from confluence.scores.scoring import Predictions, Terms, evaluate
from confluence.training.guard import Ints, is_guarded, of_sample, sample_of
from confluence.training.masked_cell_score import HeldOut, evaluate_held_out
from confluence.training.step import Predictor
from confluence.training.step_counter import RankLog
from confluence.watch.log import Log

BY_HEART = 0.25  # more skill on train than on val is worth a line
LEAST_SCORED = 100  # labels of each that it takes


class ValScores:
    """Scores weights of a run on its stores.

    Args:
        tables: of each store, on the device.
    """

    def __init__(
        self, cfg: Config, stores: Sequence[OpenStore], tables: Sequence[Tables], group: Group
    ) -> None:
        limit, shape = category_limit(stores), row_shape(stores, cfg)
        self._cfg, self._stores, self._group = cfg, stores, group
        self._predictors = [
            Predictor(cfg, own, category_limit=limit, row_shape=shape) for own in tables
        ]
        self._held_out = [HeldOut(cfg, own, row_shape=shape) for own in tables]
        self._is_sampled = is_guarded(cfg)

    def score(self, params: Params, step: int, log: Log | RankLog) -> Score | None:
        """The score of weights on val; None if the metric cannot be computed, and on ranks that do
        not save."""
        if self._cfg.objective == "masked_cells":
            return self._score_of_masked_cells(params, step, log)
        return self._score_of_tasks(params, step, log)

    def _score_of_tasks(self, params: Params, step: int, log: Log | RankLog) -> Score | None:
        """Several tasks have the mean of their scores, errors of numbers and times in units of the
        spread of their train labels, so that all count alike."""
        cfg, scores = self._cfg, []
        for store, place, task, labels, predictor in self._tasks():
            sample = sample_of(labels, VAL, cfg.seed) if self._is_sampled else None
            if not (np.any(labels.splits == VAL) if sample is None else sample.size):
                continue
            alive = Alive()
            predictions = self._answers(store, predictor, params, task, sample, alive)
            if not self._group.is_first:
                continue
            scored = labels if sample is None else of_sample(labels, sample)
            result = evaluate(
                predictions, scored, task, Terms("val", cfg.metric, cfg.visible_until)
            )
            event = {**result, "task": place.title, "alive_share": alive.share()}
            log.event("evaluate", step=step, **event)
            scores.append(_score(result, task, cfg.metric))
        if not scores or None in scores:
            return None
        known = [score for score in scores if score is not None]
        if len(known) == 1:
            return known[0]
        mean = sum(score.goodness for score in known) / len(known)
        return Score(f"mean over {len(known)} tasks", mean, mean)

    def _tasks(self) -> Iterator[tuple[OpenStore, Any, Task, Labels, Predictor]]:
        for store, predictor in zip(self._stores, self._predictors, strict=True):
            for place, task, labels in zip(store.places, store.tasks, store.labels, strict=True):
                yield store, place, task, labels, predictor

    def _answers(
        self, store: OpenStore, predictor: Predictor, params: Params, task: Task,
        seeds: Ints | None, alive: Alive,
    ) -> Predictions:  # fmt: skip
        """The answers to some seeds, of all ranks; None: to val."""
        group, is_packed = self._group, store.pack is not None
        if seeds is None or is_packed:
            batches: Iterable[Any] = store.sampler.epoch("val", task=task.name)
        else:
            batches = store.sampler.batches_of(seeds[group.rank :: group.size], task.name)
        watched = alive.counted(group.watched(batches))
        found: Predictions = group.joined(predict(predictor, params, watched, task))
        if seeds is None or not is_packed:
            return found
        return reordered(found, np.flatnonzero(np.isin(found.seed_index, seeds)))

    def _score_of_masked_cells(self, params: Params, step: int, log: Log | RankLog) -> Score | None:
        """The loss of masked cells on val; None if val has no contexts."""
        alive = Alive()

        def watched(batches: Iterable[Any]) -> Iterator[Any]:
            return alive.counted(self._group.watched(batches))

        stores = [
            (store.path, own.sums(params, store.sampler, "val", watched=watched))
            for own, store in zip(self._held_out, self._stores, strict=True)
        ]
        result = evaluate_held_out(stores, "val", self._cfg.visible_until, self._group.gather)
        log.event("evaluate", step=step, **result, alive_share=alive.share())
        loss = result["loss"]
        return None if loss is None else Score("masked-cell loss", loss, -loss)

    def describe_gaps(self, params: Params) -> list[str]:
        """A line on each task of which the weights answer train far better than val. There is none
        for a pack, which has no pass over train, nor if train is shown other contexts than val."""
        lines: list[str] = []
        if not self._is_sampled or self._cfg.for_answers() != self._cfg:
            return lines
        for store, place, task, labels, predictor in self._tasks():
            samples = [sample_of(labels, split, self._cfg.seed) for split in (TRAIN, VAL)]
            if store.pack is not None or min(sample.size for sample in samples) < LEAST_SCORED:
                continue
            name, _ = main_metric(task.stype, self._cfg.metric)
            values, skills = [], []
            for sample in samples:
                found = self._answers(store, predictor, params, task, sample, Alive())
                targets = labels.targets[found.seed_index.astype(np.int64)]
                value, skill = _skill(found.values, targets, task, labels, self._cfg.metric)
                values.append(metric_text(value))
                skills.append(skill)
            if skills[0] - skills[1] > BY_HEART:
                lines.append(
                    f"{place.title}: {name} is {values[0]} on train and {values[1]} on val: the"
                    " model has learned train by heart, or val is of another kind; more train seeds"
                    " may help"
                )
        return lines


def _skill(
    values: Floats, targets: Floats, task: Task, labels: Labels, metric: str
) -> tuple[float | None, float]:
    """The main metric of some answers, and how far they are from the best constant of train to a
    perfect answer: 1 is perfect, below 0 is worse than the constant, NaN is undefined."""
    name, sign = main_metric(task.stype, metric)
    train = labels.targets[(labels.splits == TRAIN) & labels.is_known]
    constant = np.full(targets.size, best_constant(task.stype, metric)[1](train))
    value, usual = (
        metrics_of(MEASURES[task.stype](targets, answers), targets.size)[name]
        for answers in (values, constant)
    )
    perfect = 1.0 if sign > 0 else 0.0
    if value is None or usual is None or usual == perfect:
        return value, math.nan
    return value, (value - usual) / (perfect - usual)


def _score(result: Mapping[str, Any], task: Task, metric: str) -> Score | None:
    name, sign = main_metric(task.stype, metric)
    value = result["metrics"][name]
    if value is None:
        return None
    spread = task.std / US_PER_DAY if task.stype == SemanticType.TIMESTAMP else task.std
    return Score(name, value, value if sign > 0 else -value / spread)
