"""A run: a folder with a trained model, its log and its results. `train` makes it, `load` opens it.

log.jsonl  loss.png  run.html  checkpoints/<step>/  evaluation-<split>-<regime>.json
predictions-<split>.csv

A run of several tasks has a folder of evaluations and predictions for each, named like it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import headwater
import numpy as np
from headwater.errors import TimeNeededError
from headwater.notebook import CELL_BYTES, counted, html_line, html_table, short, short_lines
from headwater.store.row_keys import Time, time_us

from confluence.answers.key_file import read_keys
from confluence.answers.prediction_files import Answers, anchor_key, check_predictions_file
from confluence.answers.read_out import reordered, warn_of_far_times
from confluence.answers.several_runs import mark, same_place
from confluence.config import AUTO, MEMORY_FRACTION, Config, kept_config
from confluence.config import preset as preset_config
from confluence.data.pack import MARK, Pack, PackError
from confluence.data.packed_store import packed_settings, packed_store
from confluence.data.stores import OpenStore, Seeds, TaskPlace, find_places, open_stores
from confluence.data.tasks import (
    NO_BATCHES,
    SPLITS,
    TaskError,
    device_tables,
    open_sampler,
    open_seeds,
    read_labels,
    read_row_shape,
)
from confluence.data.verification import check_stores, open_store
from confluence.data.walk import kept_in_memory, repeats_of
from confluence.folder import checkpoint
from confluence.folder.files import build_at, check_outside, held
from confluence.folder.log import FILE
from confluence.folder.log_events import is_log
from confluence.folder.trackers import NAMES_FILE, check_installed, own_places
from confluence.model.patterns import attention_path
from confluence.model.transformer import Params
from confluence.ranks.group import current
from confluence.report.evaluation import Evaluation
from confluence.report.evaluation_files import (
    EVALUATION,
    RESULTS,
    find_results,
    is_result,
    read_results,
    task_folder,
)
from confluence.report.page import PAGE, keep_result
from confluence.runs.ask import ask
from confluence.runs.sizing import check_budget, fitting_budget
from confluence.scores.evaluate import evaluate, time_text
from confluence.scores.verdict import of_model
from confluence.training.masked_cell_score import HeldOut, Sums, evaluate_held_out
from confluence.training.session import Session
from confluence.training.warm_start import check_start
from confluence.trees.label_row_check import check_label_rows
from confluence.trees.tree_baselines import tree_baselines, visible_history

VisibleUntil: TypeAlias = Time | None
TASKS_SHOWN = 20  # tasks with a line each, when a run is printed


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """A trained model.

    If a method takes a `task`, that is a title; a run of one task needs none.
    """

    out: Path
    places: tuple[TaskPlace, ...]  # its tasks, and their stores
    config: Config
    step: int  # of the weights
    params: Params
    stores: tuple[str, ...] = ()  # paths, in the run's order
    seeds: tuple[Seeds, ...] = ()  # where masked cells were learned, by store

    def __repr__(self) -> str:
        tasks = (f"task {place.title} of {place.store}" for place in self.places)
        stores = () if self.places else (f"masked cells of {store}" for store in self.stores)
        lines = [short(f"<{self._headline(40)}>")]
        return "\n".join(lines + short_lines([*tasks, *stores], TASKS_SHOWN, "task"))

    def _repr_html_(self) -> str:
        tasks = [[place.title, place.store] for place in self.places]
        stores = [] if self.places else [["masked cells", store] for store in self.stores]
        usual = Config().to_dict()
        settings = [
            [name, value] for name, value in self.config.to_dict().items() if value != usual[name]
        ]
        parts = [
            html_line(self._headline(CELL_BYTES)),
            html_table(["task", "store"], [*tasks, *stores], "task"),
            html_table(["setting", "value (other than the default)"], settings, "setting"),
        ]
        return "".join(parts)

    def _headline(self, most: int) -> str:
        parameters = sum(int(np.prod(value.shape)) for value in self.params.values())
        return (
            f"Run '{short(self.out, most)}': step {self.step:,} of {self.config.steps:,},"
            f" {counted(parameters, 'parameter')}"
        )

    @property
    def titles(self) -> tuple[str, ...]:
        """The tasks of the run by their names in it."""
        return tuple(place.title for place in self.places)

    def place(self, task: str | None = None) -> TaskPlace:
        """The place of a task; by default of the only one."""
        if task is None and len(self.places) == 1:
            return self.places[0]
        for place in self.places:
            if place.title == task:
                return place
        asked = "which task?" if task is None else f"no task '{task}':"
        raise TaskError(f"{asked} the run has {', '.join(self.titles) or 'none'}")

    def results(self, task: str | None = None) -> Path:
        """Folder of the evaluations and predictions of a task; it may not be there yet."""
        if len(self.places) == 1:
            return self.out
        return task_folder(self.out, self.place(task).title)

    def evaluate(
        self, split: str, *, task: str | None = None, regime: str | None = None,
        visible_until: VisibleUntil = None, resamples: int | None = None,
        trees: bool = True, others: Sequence[Run] = (), tree_share: float = 0.0,
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
            tree_share: what boosted trees have of each answer, from 0 to 1 (`with_trees.py`).
            verify: whether stores are read to their last byte before, as in `train`.

        Where this process has joined others all call this alike and share the seeds; rank 0 scores,
        and the result of the others is empty.
        """
        scoring = self.scoring(
            split, task=task, regime=regime, visible_until=visible_until,
            resamples=resamples, trees=trees, others=others, tree_share=tree_share, verify=verify,
        )  # fmt: skip
        return Evaluation(scoring.result() if current().is_first else {})

    def scoring(
        self, split: str, *, task: str | None = None, regime: str | None = None,
        visible_until: VisibleUntil = None, resamples: int | None = None,
        trees: bool = True, others: Sequence[Run] = (), tree_share: float = 0.0,
        verify: str = "once",
    ) -> Scoring:  # fmt: skip
        """`evaluate` up to where the answers are there. What is left, intervals and baselines, may
        take long and is up to rank 0: the others need not wait for it."""
        check_split(split)
        if self.config.objective == "masked_cells":
            if others:
                raise TaskError(f"the run in '{self.out}' learned masked cells: it has no answers")
            asked_for = {
                "task": task, "regime": regime, "visible_until": visible_until,
                "resamples": resamples or None, "tree_share": tree_share or None,
            }  # fmt: skip
            if given := [name for name, value in asked_for.items() if value is not None]:
                raise ValueError(
                    f"the run in '{self.out}' learned masked cells, which has no"
                    f" {' and no '.join(given)}"
                )
            check_stores(self.stores, verify)
            held_out = self._held_out(split)
            return Scoring(self.out, self.out, lambda: held_out)
        place = self.place(task)
        check_stores(_stores_of(place, others), verify)
        cfg = self.regime_config(place, split, regime, visible_until).asked()
        for run in others:
            run.config.check_scored(split)
        asked = ask(
            self, place, cfg, lambda sampler: sampler.epoch(split, task=place.name), split=split,
            others=others, tree_share=tree_share,
        )  # fmt: skip

        def score() -> dict[str, Any]:
            target, labels = asked.target, asked.labels
            beside = None
            if trees:
                beside = tree_baselines(
                    place.store, cfg, target, labels, split, history=asked.trees
                )  # fmt: skip
            result = evaluate(
                asked.predictions, labels, target, split=split, metric=cfg.metric,
                visible_until=cfg.visible_until, trees=beside,
                has_history=visible_history(place.store, cfg, target, labels, split),
                resamples=resamples, answer=of_model(tree_share),
            )  # fmt: skip
            return {**result, **asked.made, "task": place.title, "step": self.step}

        return Scoring(self.out, self.results(task), score)

    def predict(
        self, *unnamed: Any, split: str | None = None, keys: Sequence[Any] | None = None,
        keys_file: Path | str | None = None, at: Time | Sequence[Time] | None = None,
        path: Path | str | None = None, task: str | None = None,
        others: Sequence[Run] = (), tree_share: float = 0.0, verify: str = "once",
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
            tree_share: what boosted trees have of each answer, from 0 to 1 (`with_trees.py`).
            verify: whether stores are read to their last byte before, as in `train`.

        Where this process has joined others all call this alike, share the questions and get all
        answers; rank 0 writes the file, and the others wait for it.
        """
        if unnamed:
            raise TypeError(
                f"predict got a {type(unnamed[0]).__name__} without a name: give keys=..., such as"
                " predict(keys=[42, 77], at='2026-11-01'), keys_file=... or split='test'"
            )
        file = Path(path) if path is not None and current().is_first else None
        if file is not None:
            check_predictions_file(file, keys_file)
        if sum(given is not None for given in (split, keys, keys_file)) != 1:
            raise ValueError("predict needs either a split or keys (or a file of them)")
        if split is not None:
            check_split(split)
            if at is not None:
                raise ValueError("the seeds of a split have times of their own: at is for keys")
        place = self.place(task)
        cfg = self.config.asked()
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
        keys = None if keys is None else list(keys)
        at = list(at) if isinstance(at, Iterable) and not isinstance(at, str) else at
        check_stores(_stores_of(place, others), verify)
        store = open_store(place.store)
        asked = None if keys_file is None else read_keys(Path(keys_file), store, place.name, at)

        def batches(opened: Any) -> Any:
            if split is not None:
                return opened.epoch(split, task=place.name)
            try:
                if asked is not None:
                    return opened.batches_for(place.name, rows=asked.rows, obs_time=asked.obs_times)
                return opened.batches_for(place.name, keys=keys, obs_time=at)
            except TimeNeededError as error:
                raise headwater.TaskError(
                    f"{error.why}: give at=, such as at='2026-11-01' (--at on the command line)"
                ) from error

        said = ask(
            self, place, cfg, batches, split=split, others=others, tree_share=tree_share,
            questions=_digest([keys, at] if asked is None else [asked.rows, asked.obs_times]),
        )  # fmt: skip
        predictions = said.predictions
        order = predictions.seed_index
        if split is not None:
            order = store.task_seeds(place.name)["position"][order]
        elif current().is_first:
            warn_of_far_times(predictions.obs_times, said.labels, place.name)
        answers = Answers(reordered(predictions, np.argsort(order)), said.target, store)
        if file is not None:
            answers.write(file)
        return answers

    def key_of_anchors(self, task: str | None = None) -> tuple[str, ...]:
        """The columns by which rows of the task's anchor table are asked about."""
        place = self.place(task)
        with open_store(place.store) as store:
            return tuple(anchor_key(store, place.name)[1])

    def predictions_file(
        self, split: str | None, *, task: str | None = None, others: Sequence[Run] = (),
        tree_share: float = 0.0,
    ) -> Path:  # fmt: skip
        """Where the commands write by default: predictions-<split>.csv or predictions-keys.csv in
        the run's folder, or that of its task; with other runs the name says which
        (`ensemble.mark`), with trees their share."""
        parts = ["predictions", split or "keys"]
        if others:
            parts.append(mark([(run.out, run.step) for run in (self, *others)]))
        if tree_share:
            parts.append(f"trees-{float(tree_share)}")
        return self.results(task) / f"{'-'.join(parts)}.csv"

    def probe(self, split: str = "val", **options: Any) -> dict[str, Any]:
        """Score a linear regression on what the frozen model makes of each seed, of a task of the
        run or of another one of its stores. Options are those of `confluence.runs.probe.probe`."""
        from confluence.runs.probe import probe

        check_split(split)
        return probe(self, split, **options)

    def evaluations(self) -> list[Evaluation]:
        """All evaluations in the run's folder: of every task, split, regime and checkpoint."""
        return [Evaluation(result) for result in read_results(self.out)]

    def _held_out(self, split: str) -> dict[str, Any]:
        """The loss of masked cells in the contexts of a split."""
        stores = [
            (path, self._held_out_sums(path, seeds, split))
            for path, seeds in zip(self.stores, self.seeds, strict=True)
        ]
        until = self.config.visible_until
        return {**evaluate_held_out(stores, split, until, current().gather), "step": self.step}

    def _held_out_sums(self, path: str, seeds: Seeds, split: str) -> Sums:
        group, cfg = current(), self.config.asked()
        with open_seeds(path, cfg, seeds, **group.share()) as sampler:
            held_out = HeldOut(
                cfg, device_tables(sampler, 1),
                row_shape=read_row_shape(sampler.database_metadata(), cfg),
            )  # fmt: skip
            return held_out.sums(self.params, sampler, split, watched=group.watched)

    def regime_config(
        self, place: TaskPlace, split: str, regime: str | None, visible_until: VisibleUntil
    ) -> Config:
        """The run's settings in the regime that was asked for; arguments as in `evaluate`."""
        self.config.check_scored(split)
        if regime not in (None, "rolling", "frozen"):
            raise ValueError(f"regime is '{regime}', expected 'rolling' or 'frozen'")
        if regime == "rolling" and visible_until is not None:
            raise ValueError("a rolling regime has no visible_until")
        if regime == "rolling":
            return self.config.replace(visible_until=None)
        if visible_until is None and regime == "frozen" and self.config.visible_until is None:
            visible_until = self._first_time(place, split)
        if visible_until is None:
            return self.config
        if not isinstance(visible_until, str):
            visible_until = time_text(time_us(visible_until))
        return self.config.replace(visible_until=visible_until)

    def _first_time(self, place: TaskPlace, split: str) -> str:
        with open_sampler(place.store, self.config, place.name, **NO_BATCHES) as sampler:
            labels = read_labels(place.store, sampler, place.name)
        times = labels.obs_times[labels.splits == SPLITS[split]]
        text = time_text(int(times.min())) if times.size else ""
        if not text:
            raise ValueError(f"split '{split}' of task '{place.name}' has no times to freeze at")
        return text


def _stores_of(place: TaskPlace, others: Sequence[Run]) -> list[str]:
    """The stores that a task is asked in, of its run and of others that have it too."""
    return [place.store, *(same_place(place, run.out, run.places).store for run in others)]


def _digest(questions: Sequence[Any]) -> str:
    """Tells keys or rows, and their times, from others."""
    texts = (repr(list(part)) if isinstance(part, Iterable) else repr(part) for part in questions)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


class Scoring(NamedTuple):
    """An evaluation of which the answers are there."""

    out: Path  # of the run
    folder: Path  # of the result
    score: Callable[[], dict[str, Any]]

    def result(self) -> dict[str, Any]:
        """Score, and keep the result in the run's folder."""
        result = self.score()
        keep_result(self.out, self.folder, EVALUATION, result)
        return result


def check_split(split: str) -> None:
    """Raise unless `split` is one of train, val, test."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {', '.join(SPLITS)}")


def check_choice(*, overwrite: bool, resume: bool) -> None:
    """Raise where what a folder holds is to be removed and gone on with."""
    if overwrite and resume:
        raise ValueError("overwrite removes a run and resume goes on with it: give one of them")


def train(
    store: str | Path | Sequence[str | Path] | None = None, *,
    task: str | Sequence[str] | None = None, out: str | Path,
    task_weights: Mapping[str, float] | None = None, preset: str | None = None,
    prebatched: str | Path | None = None, overwrite: bool = False, resume: bool = False,
    verify: str = "once", memory_fraction: float = MEMORY_FRACTION, **overrides: Any,
) -> Run:  # fmt: skip
    """Train a model on a task of a store, or on several of several, and save it in `out`.

    SIGTERM, SIGHUP and Ctrl-C end it after a step with a checkpoint and `TrainingStopped`.
    Where this process has joined others (`confluence.ranks.group.Joined`), they train together: all
    call this with the same arguments, and rank 0 alone reads and writes `out`.

    Args:
        store, task: one, or a list. Of several stores each has at least one of the tasks, and texts
            embedded in the same way; a task is trained in every store that has one of that name.
        task_weights: how often a task is trained beside the others, by name; 1 where not given.
        preset: a name in `confluence.PRESETS`; None: small, or the settings that a pack was made
            with.
        prebatched: a pack of `confluence.prebatch`, which has the batches. Neither store nor task
            need be given then, and the store need not be there.
        overwrite: remove the run that `out` holds; without it that is an error.
        resume: go on with the run that `out` holds, exactly as if it had not stopped, or open it if
            it is done; start one if there is none. Another store, task or model is an error.
        verify: whether stores are read to their last byte before: "once" (for each machine),
            "full" or "header", as of `headwater.Store`. No part of the run.
        memory_fraction: with cell_budget="auto": the share of the memory that a step may take.
        overrides: any field of `Config`, such as `steps`. cell_budget="auto" measures what the
            memory holds (`sizing.fitting_budget`), or with `resume` keeps the run's.
    """
    pack = None if prebatched is None else Path(prebatched)
    measures = overrides.get("cell_budget") == AUTO
    overrides |= {"cell_budget": None} if measures else {}
    cfg = train_config(preset, pack, overrides)
    if measures:
        known = checkpoint.newest_whole(Path(out)) if resume else None
        if known is None:
            asked = listed(store or ()), listed(task or ())
            budget = fitting_budget(cfg, *asked, verify=verify, fraction=memory_fraction)
        else:
            budget = checkpoint.load_record(Path(out), known)["config"]["cell_budget"]
        cfg = cfg.replace(cell_budget=budget)
    return train_with(
        cfg, store, task=task, out=out, task_weights=task_weights, prebatched=pack,
        overwrite=overwrite, resume=resume, verify=verify,
    )  # fmt: skip


def train_config(preset: str | None, pack: Path | None, overrides: Mapping[str, Any]) -> Config:
    """The settings of a training; without a preset those that a pack was made with."""
    if preset is None and pack is not None:
        return packed_settings(Pack.open(pack)).replace(**overrides)
    return preset_config(preset or "small", **overrides)


def train_with(
    cfg: Config, store: str | Path | Sequence[str | Path] | None, *,
    task: str | Sequence[str] | None, out: str | Path,
    task_weights: Mapping[str, float] | None = None, prebatched: Path | None = None,
    overwrite: bool = False, resume: bool = False, verify: str = "once",
) -> Run:  # fmt: skip
    """As `train` does, with these settings."""
    check_choice(overwrite=overwrite, resume=resume)
    if cfg.objective == "masked_cells":
        raise ValueError("the objective 'masked_cells' has no task: `confluence pretrain`")
    check_installed(cfg.log_to)
    paths = [] if store is None else [str(path) for path in listed(store)]
    names = None if task is None else list(listed(task))
    check_outside(Path(out), paths)
    with _opened(cfg, paths, names, task_weights, prebatched, verify, out=Path(out)) as stores:
        places = tuple(
            place.with_moments(task)
            for store in stores
            for place, task in zip(store.places, store.tasks, strict=True)
        )
        if current().is_first:
            check_label_rows(stores, cfg)
        return learn(Path(out), cfg, stores, places, overwrite=overwrite, resume=resume)


@contextlib.contextmanager
def _opened(
    cfg: Config, paths: Sequence[str], names: Sequence[str] | None,
    weights: Mapping[str, float] | None, pack: Path | None, verify: str, *, out: Path,
) -> Iterator[tuple[OpenStore, ...]]:  # fmt: skip
    """The stores of some tasks, or a pack that stands for one."""
    if pack is not None:
        check_outside(out, [str(pack)], "pack")
        if cfg.prebatch is not None:
            raise ValueError("a pack has the batches already: leave prebatch out")
        _check_store_of_pack(paths, pack)
        yield (
            packed_store(
                pack, cfg, names=names, weights=weights, verify=verify,
                store=paths[0] if paths else None,
            ),
        )  # fmt: skip
        return
    if not paths or not names:
        raise TaskError("a run needs at least one store and one task, or a pack (--prebatched)")
    for path in paths:
        if (Path(path) / MARK).exists():
            raise PackError(f"'{path}' is a pack and not a store: give it with --prebatched")
    check_stores(paths, verify)
    places = find_places(paths, names, weights)
    with open_stores(places, cfg, **current().sampler_options(cfg)) as stores:
        yield stores


def _check_store_of_pack(paths: Sequence[str], pack: Path) -> None:
    """Raise where a store is given along with a pack that was not made from it."""
    if len(paths) > 1:
        raise PackError(
            f"{len(paths)} stores are given, and the pack '{pack}' is of one: make a pack of each"
            " for a run of each, or train on several without one (--prebatch memory keeps their"
            " batches)"
        )
    made_from = Pack.open(pack).about["store"]
    for path in paths:
        found = build_at(Path(path))
        if found != made_from["fingerprint"]:
            raise PackError(
                f"the store '{path}' has the fingerprint {found}, the pack '{pack}' was made from"
                f" '{made_from['path']}' with {made_from['fingerprint']}"
            )


def learn(
    folder: Path, cfg: Config, stores: tuple[OpenStore, ...], places: tuple[TaskPlace, ...], *,
    overwrite: bool, resume: bool, pretraining: Mapping[str, Any] | None = None,
) -> Run:  # fmt: skip
    """Train in a folder from stores that are open, alone or with the ranks that were joined.

    Args:
        pretraining: of a run without tasks, "seeds" and "weights" of the stores in their order.
    """
    attention_path(cfg)  # raises if there is none, before anything is removed
    check_budget(cfg, stores)
    group = current()
    group.check_can_train()
    made = stores[0].made
    record = checkpoint.make_record(
        cfg, places, {s.path: s.metadata for s in stores}, pretraining, folder,
        repeats_of(stores, cfg), None if made is None else made.about["path"],
    )  # fmt: skip
    known = [entry["fingerprint"] for entry in record["stores"]]
    group.check_same(
        {
            **cfg.to_dict(), "tasks": record["tasks"], "fingerprints": known,
            "pretraining": pretraining, "pack": [store.pack for store in stores],
        }
    )  # fmt: skip
    with contextlib.ExitStack() as until_done:
        done = None
        if group.is_first:
            if resume and checkpoint.saved_steps(folder)[-1:] == [cfg.steps]:
                done = checkpoint.newest_whole(folder)
            if done != cfg.steps:  # there is something to do
                until_done.enter_context(held(folder))
                done = checkpoint.newest_whole(folder) if resume else None
            _prepare(folder, record, done, overwrite=overwrite)
        done = group.tell(done)
        if done != cfg.steps:
            stores = kept_in_memory(stores, cfg, sharing=group.local_size, each=group.still)
        session = Session(out=folder, config=cfg, stores=stores, record=record, group=group)
        state = session.train(done) if done != cfg.steps else session.open(done)
    return Run(
        out=folder, places=places, config=cfg, step=cfg.steps, params=state.params,
        stores=tuple(store.path for store in stores),
        seeds=checkpoint.read_seeds(record),
    )  # fmt: skip


def listed(given: Any) -> Sequence[Any]:
    """One, or several, as several."""
    return [given] if isinstance(given, str | Path) else list(given)


def _prepare(folder: Path, record: dict[str, Any], done: int | None, *, overwrite: bool) -> None:
    """Check that the run in a folder can resume at a step; None: empty the folder for a new one."""
    if done is not None:
        checkpoint.check_resume(folder, checkpoint.load_record(folder, done), record)
        checkpoint.set_aside(folder, done)
        return
    if start := record["config"]["init_from"]:
        check_start(Path(start), record, folder)
    clear_run(folder, overwrite=overwrite)


def clear_run(folder: Path, *, overwrite: bool) -> None:
    """Remove what an earlier run left in its folder, so that no result of it seems to be new.

    Without `overwrite` only what a run left that ended before its first checkpoint. What no run
    writes stays, and so do other runs in folders below. What a run would write over and no run
    wrote is an error, with `overwrite` too.
    """
    results = [path for name in RESULTS for path in find_results(folder, name)]
    is_saved = bool(checkpoint.saved_steps(folder))
    check_own(folder, results, is_run=is_saved)
    if not overwrite and is_saved:
        raise FileExistsError(
            f"'{folder}' holds a run: go on with it by --resume, replace it by --overwrite, or"
            " choose another folder"
        )
    if not overwrite and results:
        raise FileExistsError(
            f"'{folder}' holds results of a run that is not there, such as"
            f" '{results[0].relative_to(folder)}': replace them by --overwrite, or choose another"
            " folder"
        )
    if not (is_saved or results or (folder / FILE).exists()):
        return
    sinks = own_places(folder)
    for path in (*results, folder / PAGE, folder / "loss.png", folder / FILE, folder / NAMES_FILE):
        path.unlink(missing_ok=True)
    for path in sinks:
        remove = shutil.rmtree if path.is_dir() else os.unlink
        remove(path)
    checkpoint.remove_all(folder)


def check_own(folder: Path, results: Sequence[Path], *, is_run: bool) -> None:
    """Raise FileExistsError where a file or checkpoint that a run would replace is no run's."""
    log, steps = folder / FILE, checkpoint.saved_steps(folder)
    strange = [path for path in results if not is_result(path)]
    saved = (folder / checkpoint.FOLDER / str(step) for step in steps)
    strange += [path for path in saved if not checkpoint.is_own(path)]
    if os.path.lexists(log) and not is_log(log):
        strange.insert(0, log)
    if not (is_run or results or os.path.lexists(log)):
        # Pictures and pages have no mark of ours; here is no run that may have made them.
        named = (folder / name for name in (PAGE, "loss.png", NAMES_FILE))
        strange += [path for path in named if os.path.lexists(path)]
    if strange:
        raise FileExistsError(
            f"'{strange[0]}' is not of a run, and a run in '{folder}' would replace it: move it, or"
            " choose another folder"
        )


def load(
    out: str | Path, *, store: str | Path | Sequence[str | Path] | None = None,
    which: str | int = "last", verify: str = "once",
) -> Run:  # fmt: skip
    """Open a run.

    Args:
        store: another place of its store, or a rebuilt one; of its stores, in their order.
        which: the "last" checkpoint, the "best" on val, or that of a step. The best of several on a
            small val looks better there than it is.
        verify: whether stores are read to their last byte before, as in `train`.
    """
    folder = Path(out)
    step = checkpoint.find_step(folder, which)
    try:
        record = checkpoint.load_record(folder, step)
        params = checkpoint.load_weights(folder, record)
    except checkpoint.DamagedCheckpointError as error:
        others = [str(other) for other in checkpoint.saved_steps(folder) if other != step]
        hint = f"choose another one with --checkpoint ({', '.join(others)})" if others else ""
        raise checkpoint.DamagedCheckpointError(f"{error}: {hint or 'train again'}") from error
    paths = [] if store is None else [str(path) for path in listed(store)]
    paths = paths or checkpoint.store_paths(folder, record)
    places = checkpoint.read_places(record, paths)
    cfg = kept_config(record["config"])
    if which == "last" and step < cfg.steps:
        warnings.warn(
            f"the run in '{folder}' is at step {step} of {cfg.steps}; --resume finishes it",
            stacklevel=2,
        )
    check_stores(paths, verify)
    for number, path in enumerate(paths):
        with open_store(path) as opened:
            checkpoint.check_store(record, opened.metadata, number)
    return Run(
        out=folder, places=places, config=cfg, step=step, params=params,
        stores=tuple(paths), seeds=checkpoint.read_seeds(record),
    )  # fmt: skip
