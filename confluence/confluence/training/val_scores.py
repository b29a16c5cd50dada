"""The scores of a training on val, and how much better its answers to train are.

All ranks answer, each its share of the seeds; rank 0 alone has the scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.answers.read_out import predict
from confluence.config import Config
from confluence.data.stores import OpenStore, category_limit, row_shape
from confluence.data.tasks import TRAIN, US_PER_DAY, VAL, Alive, Floats, Labels, Task
from confluence.folder.checkpoint import Score
from confluence.model.transformer import Params, Tables
from confluence.ranks.group import Group
from confluence.scores.baselines import best_constant
from confluence.scores.metrics import MEASURES, main_metric, metric_text, metrics_of
from confluence.scores.scoring import Predictions, Terms, evaluate
from confluence.training.guard import SAMPLE, first_labelled, is_guarded, of_sample
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
        self._most = -(-SAMPLE // group.size) if is_guarded(cfg) else None  # labels; None: all

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
            if not np.any(labels.splits == VAL):
                continue
            alive = Alive()
            predictions = self._answers(store, predictor, params, task, labels, "val", alive)
            if not self._group.is_first:
                continue
            scored = labels if self._most is None else of_sample(labels, predictions.seed_index)
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
        self, store: OpenStore, predictor: Predictor, params: Params, task: Task, labels: Labels,
        split: str, alive: Alive,
    ) -> Predictions:  # fmt: skip
        """The answers to a split, or to the seeds that its sample has, of all ranks."""
        batches: Iterable[Any] = store.sampler.epoch(split, task=task.name)
        if self._most is not None:
            batches = first_labelled(batches, labels, self._most)
        watched = alive.counted(self._group.watched(batches))
        joined: Predictions = self._group.joined(predict(predictor, params, watched, task))
        return joined

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
        """A line on each task whose train the weights know far better than val. A pack has no pass
        over train, so it has no line."""
        lines = []
        for store, place, task, labels, predictor in self._tasks():
            if store.pack is not None:
                continue
            skills, texts = [], []
            for split in ("train", "val"):
                answers = self._answers(store, predictor, params, task, labels, split, Alive())
                known = labels.is_known[answers.seed_index.astype(np.int64)]
                if known.sum() < LEAST_SCORED:
                    break
                seeds = answers.seed_index[known].astype(np.int64)
                values, targets = answers.values[known], labels.targets[seeds]
                value, constant = _beside_constant(values, targets, task, labels, self._cfg.metric)
                if value is None or constant is None:
                    break
                skills.append(_skill(value, constant, task, self._cfg.metric))
                texts.append(metric_text(value))
            if len(skills) == 2 and skills[0] - skills[1] > BY_HEART:
                name, _ = main_metric(task.stype, self._cfg.metric)
                lines.append(
                    f"{place.title}: {name} is {texts[0]} on train and {texts[1]} on val: the model"
                    " knows seeds of train by heart; more of them help, or fewer --steps"
                )
        return lines


def _beside_constant(
    values: Floats, targets: Floats, task: Task, labels: Labels, metric: str
) -> tuple[float | None, float | None]:
    """The main metric of some answers, and of the best constant of train."""
    name, _ = main_metric(task.stype, metric)
    train: NDArray[np.float64] = labels.targets[(labels.splits == TRAIN) & labels.is_known]
    constant = best_constant(task.stype, metric)[1](train)
    found = []
    for answers in (values, np.full(targets.size, constant)):
        found.append(metrics_of(MEASURES[task.stype](targets, answers), targets.size)[name])
    return found[0], found[1]


def _skill(value: float, constant: float, task: Task, metric: str) -> float:
    """How much of the way from a constant to a perfect answer: 0 to 1, below 0 if worse."""
    _, sign = main_metric(task.stype, metric)
    perfect = 1.0 if sign > 0 else 0.0
    return (value - constant) / (perfect - constant) if perfect != constant else 0.0


def _score(result: Mapping[str, Any], task: Task, metric: str) -> Score | None:
    name, sign = main_metric(task.stype, metric)
    value = result["metrics"][name]
    if value is None:
        return None
    spread = task.std / US_PER_DAY if task.stype == SemanticType.TIMESTAMP else task.std
    return Score(name, value, value if sign > 0 else -value / spread)
