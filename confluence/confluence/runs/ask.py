"""Asks a run about seeds, or several runs that answer together.

    one pass over the seeds by each run
        ──► heads' outputs ──► their average, maybe with trees' ──► Predictions, of all seeds on
                                                                    every rank

Where this process has joined others (`parallel.Joined`) they share the work: each asks about the
seeds that the sampler deals to it, in batches as large as those of one process, and gets the
answers of all, in the order of one process's pass.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from confluence.answers.read_out import Speaker, predict
from confluence.answers.several_runs import Says, SeveralRuns, same_place
from confluence.answers.with_trees import WithTrees, check_share
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
from confluence.scores.evaluate import Predictions
from confluence.training.step import Predictor
from confluence.trees.boosted import TreeAnswers
from confluence.trees.tree_baselines import HISTORY_MODEL, HistoryTrees

if TYPE_CHECKING:
    from confluence.runs.run import Run

Batches = Callable[[Any], Any]
"""Makes a pass over the seeds that are asked about, from a sampler."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run said, alone or with others, and what it was asked with."""

    predictions: Predictions
    target: Task
    labels: Labels
    made: dict[str, Any]  # how the answers came to be: runs, trees
    trees: TreeAnswers | None = None  # what trees said of the seeds, ascending; None: not asked


class OfAllRanks:
    """Stands where a `Predictor` does: what all ranks say, each of its share of the seeds. How
    seeds are dealt depends on a run's `seed`, so passes are put together before they are compared.
    """

    def __init__(self, predictor: Speaker, group: Group) -> None:
        self._predictor = predictor
        self._group = group

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """All seeds at once, on every rank, in the order of one process's pass."""
        output, info = gathered(self._predictor.outputs(params, self._group.watched(batches)))
        if output is None:  # on all ranks, which have equally many batches
            return
        whose = {name: info[name] for name in ("seed_index", "anchor_rows", "obs_time")}
        whole = self._group.joined_arrays({**output._asdict(), **whose})
        yield Output(**{n: whole[n] for n in Output._fields}), {n: whole[n] for n in whose}


def ask(
    run: Run, place: TaskPlace, cfg: Config, batches: Batches, *, split: str | None,
    questions: str = "", others: Sequence[Run] = (), tree_share: float = 0.0,
) -> Asked:  # fmt: skip
    """What a run says of a task's seeds, or the average of what it and others say.

    Args:
        cfg: the run's settings, as it is asked (`Config.asked`).
        split: whose seeds the pass is over; None: questions of the caller's.
        questions: tells these from others, so that ranks that ask otherwise are refused.
        tree_share: what boosted trees have of each answer (`with_trees.py`); every rank fits them,
            as that is no work to share.
    """
    check_share(tree_share)
    tree_share = float(tree_share)
    group = current()
    theirs = _places_of(run, place, others)
    # Answers are a few numbers each; heads' outputs, which are averaged, have all categories.
    apart = group.size > 1 and not others and tree_share == 0
    with_trees: WithTrees | None = None
    with open_sampler(place.store, cfg, place.name, **group.share()) as sampler:
        group.check_same(
            {
                **cfg.to_dict(), "steps": [each.step for each in (run, *others)],
                "others": [each.config.to_dict() for each in others], "task": place.title,
                "split": split, "questions": questions, "tree_share": tree_share,
                "fingerprint": str(sampler.database_metadata()["fingerprint"]),
            }
        )  # fmt: skip
        target, labels = _read(sampler, place)
        own = _speaker(cfg, sampler, target, apart=apart)

        def others_say() -> Generator[Says, None, None]:
            for other, where in zip(others, theirs, strict=True):
                settings = other.config.asked().replace(visible_until=cfg.visible_until)
                with open_sampler(where.store, settings, where.name, **group.share()) as opened:
                    wanted, _ = _read(opened, where)
                    speaker = _speaker(settings, opened, wanted)
                    yield other.out, wanted, speaker.outputs(other.params, iter(batches(opened)))

        with contextlib.closing(others_say()) as says:
            speaker = SeveralRuns(own, target, says) if others else own
            if tree_share > 0:
                trees = HistoryTrees(place.store, cfg, target, labels)
                speaker = with_trees = WithTrees(speaker, trees, target, tree_share, split=split)
            passed = group.watched(batches(sampler)) if apart else iter(batches(sampler))
            found = predict(speaker, run.params, passed, target)
            found = group.joined(found) if apart else found
    made: dict[str, Any] = {}
    if others:
        made["runs"] = [{"out": str(each.out), "step": each.step} for each in (run, *others)]
    if with_trees is not None:
        made["trees"] = {"share": tree_share, "model": HISTORY_MODEL}
    said = with_trees.answers if with_trees is not None else None
    return Asked(predictions=found, target=target, labels=labels, made=made, trees=said)


def _places_of(run: Run, place: TaskPlace, others: Sequence[Run]) -> list[TaskPlace]:
    """Where each of some runs has a task of this one; raises if they cannot answer together."""
    runs = (run, *others)
    if len({(each.out.resolve(), each.step) for each in runs}) < len(runs):
        raise ValueError("of the runs that are to answer together one is given twice")
    return [same_place(place, other.out, other.places) for other in others]


def _speaker(cfg: Config, sampler: Any, task: Task, *, apart: bool = False) -> Speaker:
    """What gives a model's outputs for a pass.

    Args:
        apart: each rank has the outputs of its own seeds, not of all.
    """
    group = current()
    predictor = Predictor(
        cfg, device_tables(sampler, task.category_limit), category_limit=task.category_limit,
        row_shape=read_row_shape(sampler.database_metadata(), cfg),
    )  # fmt: skip
    return predictor if group.size == 1 or apart else OfAllRanks(predictor, group)


def _read(sampler: Any, place: TaskPlace) -> tuple[Task, Labels]:
    """A task as it was at training, and its labels as they are."""
    task, labels = read_target(place.store, sampler, place.name)
    moments: dict[str, Any] = dict(place.moments)
    return dataclasses.replace(task, **moments), labels
