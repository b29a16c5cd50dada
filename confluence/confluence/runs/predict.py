"""Answers of a run to seeds or keys: `Run.predict`."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater
import numpy as np
from headwater.shared import Time, TimeNeededError

from confluence.answers.key_file import read_keys
from confluence.answers.prediction_files import Answers, check_predictions_file
from confluence.answers.read_out import reordered, warn_of_far_times
from confluence.data.verification import verified_stores
from confluence.ranks.group import current
from confluence.runs.ask import Queries, ask
from confluence.runs.ensemble import ALONE, Ensemble
from confluence.runs.saved_run import SavedRun, check_split


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request for predictions, as `Run.predict` takes it: a split, keys, or a file of keys."""

    split: str | None = None
    keys: Sequence[Any] | None = None
    keys_file: Path | str | None = None
    at: Time | Sequence[Time] | None = None
    task: str | None = None
    ensemble: Ensemble = ALONE

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.split, self.keys, self.keys_file)) != 1:
            raise ValueError("predict needs either a split or keys (or a file of them)")
        if self.split is not None:
            check_split(self.split)
            if self.at is not None:
                raise ValueError("the seeds of a split have times of their own: at is for keys")
        keys, at = self.keys, self.at
        if isinstance(keys, str | bytes):
            raise TypeError(
                f"keys is the text {keys!r}, which would be a key per letter: give a list"
            )
        if isinstance(keys, Mapping) or hasattr(keys, "columns"):  # iterates over its columns
            raise TypeError(
                f"keys is a {type(keys).__name__}, expected a list: give the column of keys, or a"
                " list of tuples for a composite key"
            )
        # They are read more than once.
        object.__setattr__(self, "keys", None if keys is None else list(keys))
        several = isinstance(at, Iterable) and not isinstance(at, str)
        object.__setattr__(self, "at", list(at) if several else at)  # type: ignore[arg-type]


def predictions(
    run: SavedRun, wanted: Request, path: Path | str | None = None, *, verify: str = "once",
    opened: Mapping[str, headwater.Store] | None = None,
) -> Answers:  # fmt: skip
    """The answers, written to `path` if one is given.

    Args:
        opened: the run's stores, verified; None: they are opened.
    """
    file = Path(path) if path is not None and current().is_first else None
    if file is not None:
        check_predictions_file(file, wanted.keys_file)
    place, cfg = run.place(wanted.task), run.config.for_answers()
    stores = opened or verified_stores(wanted.ensemble.stores(run, place), verify)
    store = stores[place.store]
    answered = ask(run, place, cfg, _queries(wanted, store, place.name), wanted.ensemble, stores)
    found = answered.predictions
    order = found.seed_index
    if wanted.split is not None:
        order = store.task_seeds(place.name)["position"][order]
    elif current().is_first:
        warn_of_far_times(found.obs_times, answered.labels, place.name)
    answers = Answers(reordered(found, np.argsort(order)), answered.target, store)
    if file is not None:
        answers.write(file)
    return answers


def _queries(wanted: Request, store: headwater.Store, task: str) -> Queries:
    """The pass over the seeds or keys."""
    split, keys, at = wanted.split, wanted.keys, wanted.at
    if split is not None:
        return Queries(
            lambda sampler: sampler.epoch(split, task=task), split, _digest([None, None])
        )
    from_file = wanted.keys_file
    known = None if from_file is None else read_keys(Path(from_file), store, task, at)  # type: ignore[arg-type]

    def batches(sampler: Any) -> Any:
        try:
            if known is not None:
                return sampler.batches_for(task, rows=known.rows, obs_time=known.obs_times)
            return sampler.batches_for(task, keys=keys, obs_time=at)
        except TimeNeededError as error:
            raise headwater.TaskError(
                f"{error.why}: give at=, such as at='2026-11-01' (--at on the command line)"
            ) from error

    digest = _digest([keys, at] if known is None else [known.rows, known.obs_times])
    return Queries(batches, None, digest)


def _digest(questions: Sequence[Any]) -> str:
    """Tells keys or rows, and their times, from others."""
    texts = (repr(list(part)) if isinstance(part, Iterable) else repr(part) for part in questions)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
