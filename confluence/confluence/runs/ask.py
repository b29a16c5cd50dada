"""Asks a run about seeds, or several runs that answer together.

    one pass over the seeds by each run
        ──► heads' outputs ──► their average, maybe with trees' ──► the run's map of probabilities
        ──► Predictions, of all seeds on every rank

Where this process has joined others (`parallel.Joined`) they share the work: each asks about the
seeds that the sampler deals to it, in batches as large as those of one process, and gets the
answers of all, in the order of one process's pass.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import headwater
import numpy as np

from confluence.answers.calibration import Calibrated, Calibration
from confluence.answers.read_out import OutputSource, predict
from confluence.answers.several_runs import RunOutputs, SeveralRuns
from confluence.answers.with_trees import Apart, WithTrees
from confluence.config import Config
from confluence.data.stores import TaskPlace
from confluence.data.tasks import (
    Labels,
    Task,
    device_tables,
    open_sampler,
    read_row_shape,
    read_target,
)
from confluence.model.outputs import Pass, gathered
from confluence.model.transformer import Output, Params
from confluence.ranks.group import Group, current
from confluence.runs.ensemble import Ensemble
from confluence.runs.saved_run import SavedRun
from confluence.scores.scoring import Predictions
from confluence.training.step import Predictor
from confluence.trees.boosted import TreeAnswers
from confluence.trees.own_columns import OwnColumns
from confluence.trees.task_trees import AskedTrees
from confluence.trees.tree_baselines import HISTORY_MODEL


@dataclasses.dataclass(frozen=True)
class Queries:
    """The seeds or questions that a run is asked about.

    Attributes:
        batches: makes the pass over it from a sampler.
        split: whose seeds these are; None: questions of the caller's.
        digest: tells these questions from others, so that ranks that ask otherwise are refused.
    """

    batches: Callable[[Any], Any]
    split: str | None
    digest: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answered:
    """The answers of a run, alone or with others, and how they came to be."""

    predictions: Predictions
    target: Task
    labels: Labels
    made: dict[str, Any]  # runs, trees
    trees: TreeAnswers | None = None  # those of the trees, seeds ascending; None: not asked
    apart: Apart | None = None  # in the order of the predictions; None: trees were not asked
    calibration: Calibration | None = None  # the map of the answers; None: it is not the run's
    before: Output | None = None  # outputs before that map, in the order of the predictions


WHOSE = ("seed_index", "anchor_rows", "obs_time")  # of a batch's info


class OfAllRanks:
    """An `OutputSource`: the outputs of all ranks, each of its share of the seeds. How seeds are
    dealt depends on a run's `seed`, so passes are put together before they are compared."""

    def __init__(self, own: OutputSource, group: Group) -> None:
        self._own = own
        self._group = group

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """All seeds at once, on every rank, in the order of one process's pass."""
        output, info = gathered(self._own.outputs(params, self._group.watched(batches)))
        rows: dict[str, Any] = {}
        if output is not None:
            rows = {**output._asdict(), **{name: info[name] for name in WHOSE}}
        forms = [[name, str(x.dtype), x.shape[1:]] for name, x in rows.items()]
        known = next(filter(None, self._group.gather(forms)), None)
        if known is None:
            return
        if not rows:  # fewer questions than ranks
            rows = {name: np.empty((0, *shape), dtype) for name, dtype, shape in known}
        whole = self._group.joined_arrays(rows)
        yield Output(**{n: whole[n] for n in Output._fields}), {n: whole[n] for n in WHOSE}


def ask(
    run: SavedRun, place: TaskPlace, cfg: Config, queries: Queries, ensemble: Ensemble,
    stores: Mapping[str, headwater.Store],
) -> Answered:  # fmt: skip
    """The answers of a run to a task's seeds or to other questions, or those of an ensemble.

    Args:
        cfg: the run's settings, for answers (`Config.for_answers`).
        ensemble: what answers along with the run. Every rank asks the trees about all seeds.
        stores: by path, those that `ensemble.stores` names.
    """
    group = current()
    runs, others = (run, *ensemble.others), ensemble.others
    share, kept = ensemble.share_of_trees(run, place), run.trees.get(place.title)
    calibration = ensemble.calibration(run, place)
    # Answers are a few numbers each; heads' outputs, which are averaged, have all categories.
    apart = group.size > 1 and not others and share == 0 and calibration is None
    with contextlib.ExitStack() as stack:
        store = stores[place.store]
        sampler = stack.enter_context(open_sampler(store, cfg, place.name, **group.share()))
        group.check_same(
            {
                **cfg.to_dict(), "steps": [each.step for each in runs],
                "others": [each.config.to_dict() for each in others], "task": place.title,
                "split": queries.split, "questions": queries.digest, "tree_share": share,
                "fingerprint": str(sampler.database_metadata()["fingerprint"]),
            }
        )  # fmt: skip
        target, labels = read_place(sampler, place)
        source, trees, mapped = _model(cfg, sampler, target, apart=apart), None, None
        if others:
            passes = _passes_of_others(ensemble, ensemble.places(run, place), queries, cfg, stores)
            source = SeveralRuns(source, target, stack.enter_context(contextlib.closing(passes)))
        if share > 0 and kept is not None:
            own_columns = stack.enter_context(OwnColumns(store, cfg, target))
            asked = AskedTrees(own_columns, labels, kept.trees)
            source = trees = WithTrees(source, asked, target, share, split=queries.split)
        if calibration is not None:
            source = mapped = Calibrated(source, calibration)
        batches = queries.batches(sampler)
        found = predict(
            source, run.params, group.watched(batches) if apart else iter(batches), target
        )
        found = group.joined(found) if apart else found
    made: dict[str, Any] = {}
    if others:
        made["runs"] = [{"out": str(each.out), "step": each.step} for each in runs]
    if kept is not None:
        made["trees"] = {"share": share, "model": HISTORY_MODEL}
        if ensemble.tree_share is None:
            made["trees"]["chosen"] = kept.chosen.to_dict()
    return Answered(
        predictions=found, target=target, labels=labels, made=made,
        trees=None if trees is None else trees.answers,
        apart=None if trees is None else trees.apart, calibration=calibration,
        before=None if mapped is None else mapped.joined(),
    )  # fmt: skip


def _passes_of_others(
    ensemble: Ensemble, places: list[TaskPlace], queries: Queries, cfg: Config,
    stores: Mapping[str, headwater.Store],
) -> Generator[RunOutputs, None, None]:  # fmt: skip
    """The outputs of each further run, which see the database up to when the first one does."""
    for other, place in zip(ensemble.others, places, strict=True):
        settings = other.config.for_answers().replace(visible_until=cfg.visible_until)
        share = current().share()
        with open_sampler(stores[place.store], settings, place.name, **share) as sampler:
            target, _ = read_place(sampler, place)
            source = _model(settings, sampler, target)
            yield other.out, target, source.outputs(other.params, iter(queries.batches(sampler)))


def _model(cfg: Config, sampler: Any, task: Task, *, apart: bool = False) -> OutputSource:
    """A compiled model.

    Args:
        apart: each rank has the outputs of its own seeds, not of all.
    """
    group = current()
    predictor = Predictor(
        cfg, device_tables(sampler, task.category_limit), category_limit=task.category_limit,
        row_shape=read_row_shape(sampler.database_metadata(), cfg),
    )  # fmt: skip
    return predictor if group.size == 1 or apart else OfAllRanks(predictor, group)


def read_place(sampler: Any, place: TaskPlace) -> tuple[Task, Labels]:
    """A task as it was at training, and its labels as they are."""
    task, labels = read_target(sampler, place.name)
    moments: dict[str, Any] = dict(place.moments)
    return dataclasses.replace(task, **moments), labels
