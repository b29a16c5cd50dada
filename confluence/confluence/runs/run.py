"""A run: a trained model, and what it can be asked. `train` makes it, `load` opens it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.shared import Time

from confluence.answers.prediction_files import Answers, anchor_key
from confluence.data.verification import open_store
from confluence.ranks.group import current
from confluence.report.evaluation import Evaluation
from confluence.runs.ensemble import Ensemble
from confluence.runs.evaluate import Examination, scoring
from confluence.runs.predict import Request, predictions
from confluence.runs.probe import probe
from confluence.runs.regime import VisibleUntil
from confluence.runs.saved_run import SavedRun


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Run(SavedRun):
    """A trained model.

    If a method takes a `task`, that is a title; a run of one task needs none.
    """

    def evaluate(
        self, split: str, *, task: str | None = None, regime: str | None = None,
        visible_until: VisibleUntil = None, resamples: int | None = None,
        trees: bool = True, others: Sequence[SavedRun] = (), tree_share: float | None = None,
        verify: str = "once",
    ) -> Evaluation:  # fmt: skip
        """Metrics on exactly the seeds of a split, with intervals, next to baselines. A file has
        them too; its name has the arguments (`evaluation_files.py`).

        Args:
            split: "train", "val" or "test".
            regime: "rolling", "frozen", or None for what the run was trained with.
            visible_until: the database as of then ("frozen"). A frozen regime without a time takes
                the earliest obs_time of the split.
            resamples: of the bootstrap; None: 1000, fewer for very many seeds; 0: no intervals.
            trees: whether to fit the baselines of boosted trees.
            others: runs whose answers are averaged with those of this one (`several_runs.py`).
            tree_share: what the run's boosted trees have of each answer, from 0 to 1
                (`with_trees.py`); None: what the run chose on val.
            verify: whether stores are read to their last byte before, as in `train`.

        Where this process has joined others all call this alike and share the seeds; rank 0 scores,
        and the result of the others is empty.
        """
        wanted = Examination(
            split=split, task=task, regime=regime, visible_until=visible_until,
            resamples=resamples, trees=trees,
            ensemble=Ensemble(others=others, tree_share=tree_share),
        )  # fmt: skip
        found = scoring(self, wanted, verify=verify)
        return Evaluation(found.result() if current().is_first else {})

    def predict(
        self, *unnamed: Any, split: str | None = None, keys: Sequence[Any] | None = None,
        keys_file: Path | str | None = None, at: Time | Sequence[Time] | None = None,
        path: Path | str | None = None, task: str | None = None,
        others: Sequence[SavedRun] = (), tree_share: float | None = None, verify: str = "once",
    ) -> Answers:  # fmt: skip
        """Predictions for a split in the order of the task's rows, or for keys in theirs. No answer
        depends on anything later than its time. Nothing is written unless `path` is given, and
        threads may call this of one run at once.

        Args:
            keys: of the task's anchor table: scalars, or tuples for a composite key.
            keys_file: a CSV or Parquet file of keys and maybe times (`key_file.py`).
            at: the time of the question; with `keys` one for all or one for each. A naive time is
                UTC. None: the anchors' own times where a task has them.
            path: a file that is written too, .csv or .parquet; if it exists, it must hold
                predictions, which are replaced.
            others: runs whose answers are averaged with those of this one (`several_runs.py`).
            tree_share: what the run's boosted trees have of each answer, from 0 to 1
                (`with_trees.py`); None: what the run chose on val.
            verify: whether stores are read to their last byte before, as in `train`.

        Where this process has joined others all call this alike, share the questions and get all
        answers; rank 0 writes the file, and the others wait for it.
        """
        if unnamed:
            raise TypeError(
                f"predict got a {type(unnamed[0]).__name__} without a name: give keys=..., such as"
                " predict(keys=[42, 77], at='2026-11-01'), keys_file=... or split='test'"
            )
        wanted = Request(
            split=split, keys=keys, keys_file=keys_file, at=at, task=task,
            ensemble=Ensemble(others=others, tree_share=tree_share),
        )  # fmt: skip
        return predictions(self, wanted, path, verify=verify)

    def key_of_anchors(self, task: str | None = None) -> tuple[str, ...]:
        """The columns by which rows of the task's anchor table are asked about."""
        place = self.place(task)
        with open_store(place.store) as store:
            return tuple(anchor_key(store, place.name)[1])

    def predictions_file(
        self, split: str | None, *, task: str | None = None, others: Sequence[SavedRun] = (),
        tree_share: float | None = None,
    ) -> Path:  # fmt: skip
        """Where the commands write by default: predictions-<split>.csv or predictions-keys.csv in
        the run's folder, or that of its task; with other runs the name says which
        (`several_runs.mark`), with a share of trees that."""
        ensemble = Ensemble(others=others, tree_share=tree_share)
        parts = ["predictions", split or "keys", *ensemble.name_parts(self)]
        return self.results(task) / f"{'-'.join(parts)}.csv"

    def probe(self, split: str = "val", **options: Any) -> dict[str, Any]:
        """Score a linear regression on what the frozen model makes of each seed, of a task of the
        run or of another one of its stores. Options are those of `confluence.runs.probe.probe`."""
        return probe(self, split, **options)
