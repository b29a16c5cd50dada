"""Trains a model and saves it: `confluence.train`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater
from headwater.shared import say

from confluence.config import AUTO, MEMORY_FRACTION, Config, until_measured
from confluence.config import preset as preset_config
from confluence.data.planned_batches import check_budget, with_batch_size
from confluence.data.planned_steps import with_steps
from confluence.data.stores import (
    OpenStore,
    TaskPlace,
    find_places,
    open_stores,
    unseen_classes,
)
from confluence.data.tasks import TaskError
from confluence.data.verification import verified_stores
from confluence.folder import checkpoint
from confluence.folder.files import build_at, check_outside, held
from confluence.measure.sizing import fitting_budget
from confluence.model.patterns import attention_path
from confluence.packs.pack import MARK, Pack, PackError
from confluence.packs.packed_store import packed_settings, packed_store
from confluence.packs.walk import kept_in_memory, repeats_of
from confluence.ranks.group import current
from confluence.runs.run import Run
from confluence.runs.run_folder import check as check_folder
from confluence.runs.run_folder import check_choice, prepare
from confluence.runs.tree_share import kept_trees, with_trees
from confluence.training.context_choice import with_contexts
from confluence.training.session import Session
from confluence.trees.label_row_check import check_label_rows
from confluence.watch.trackers import check_installed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lessons:
    """The material that a run learns from: tasks of stores, or a pack that stands for one store.

    Attributes:
        paths: of the stores; with a pack none, or the one that it was made from.
        names: of the tasks; None: those of the pack.
        weights: how often a task is trained, relative to the others, by name.
        verify: whether the stores, or the pack, are read to their last byte before.
        trees: whether boosted trees are fitted too, to answer together with the model.
        opened: the stores by path, verified; None: the training opens them.
    """

    paths: Sequence[str]
    names: Sequence[str] | None
    weights: Mapping[str, float] | None = None
    pack: Path | None = None
    verify: str = "once"
    trees: bool = True
    opened: Mapping[str, headwater.Store] | None = None


def train(
    store: str | Path | Sequence[str | Path] | None = None, *,
    task: str | Sequence[str] | None = None, out: str | Path,
    task_weights: Mapping[str, float] | None = None, preset: str | None = None,
    prebatched: str | Path | None = None, trees: bool = True, overwrite: bool = False,
    resume: bool = False, verify: str = "once", memory_fraction: float = MEMORY_FRACTION,
    **overrides: Any,
) -> Run:  # fmt: skip
    """Train a model on a task of a store, or on several of several, and save it in `out`, with
    boosted trees that answer together with it.

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
        trees: whether boosted trees are fitted on each task too, and their share of each answer is
            chosen on val (docs/reference/model.md, "With trees"). From a pack they are if `store`
            is given.
        overwrite: remove the run that `out` holds; without it that is an error.
        resume: go on with the run that `out` holds, exactly as if it had not stopped, or open it if
            it is done; start one if there is none. Another store, task or model is an error.
        verify: whether stores are read to their last byte before: "once" (for each machine),
            "full" or "header", as of `headwater.Store`. No part of the run.
        memory_fraction: with cell_budget="auto": the share of the memory that a step may take.
        overrides: any field of `Config`, such as `steps`. cell_budget="auto" measures what the
            memory holds (`sizing.fitting_budget`), or with `resume` keeps the run's.
            batch_size="auto" is the most contexts whose batches stay within it.
    """
    pack = None if prebatched is None else Path(prebatched)
    measures = overrides.get("cell_budget") == AUTO
    cfg = train_config(preset, pack, until_measured(overrides))
    if measures:
        known = checkpoint.newest_whole(Path(out)) if resume else None
        if known is None:
            whole = cfg.replace(cell_budget=None, batch_size=cfg.contexts)
            budget = fitting_budget(
                whole, listed(store or ()), listed(task or ()), verify=verify,
                fraction=memory_fraction,
            )  # fmt: skip
        else:
            budget = checkpoint.load_record(Path(out), known)["config"]["cell_budget"]
        cfg = cfg.replace(cell_budget=budget)
    lessons = Lessons(
        paths=[] if store is None else [str(path) for path in listed(store)],
        names=None if task is None else list(listed(task)), weights=task_weights, pack=pack,
        verify=verify, trees=trees,
    )  # fmt: skip
    return train_with(cfg, lessons, Path(out), overwrite=overwrite, resume=resume)


def train_config(preset: str | None, pack: Path | None, overrides: Mapping[str, Any]) -> Config:
    """The settings of a training; without a preset those that a pack was made with."""
    if pack is None:
        return preset_config(preset or "small", **overrides)
    made = packed_settings(Pack.open(pack))
    cfg = made.replace(**overrides) if preset is None else preset_config(preset, **overrides)
    return cfg.with_choices(made.to_dict())


def train_with(
    cfg: Config, lessons: Lessons, out: Path, *, overwrite: bool = False, resume: bool = False
) -> Run:
    """As `train` does, with these settings."""
    check_choice(overwrite=overwrite, resume=resume)
    if cfg.objective == "masked_cells":
        raise ValueError("the objective 'masked_cells' has no task: `confluence pretrain`")
    check_installed(cfg.log_to)
    check_outside(out, lessons.paths)
    left_open = cfg.left_open()
    if resume:
        cfg = with_kept_choices(cfg, out)
    lessons = _with_opened(lessons)

    reported = set[str]()

    def report(stores: Sequence[OpenStore]) -> None:
        """Print, once and before the trials, which classes train lacks."""
        for line in unseen_classes(stores, cfg) if current().is_first else ():
            if line not in reported:
                say(line)
                reported.add(line)

    def check(stores: Sequence[OpenStore]) -> None:
        """Raise, before the trials, all that the training would."""
        report(stores)
        record = _checked_record(out, with_steps(cfg, stores), stores)
        if current().is_first:
            step = checkpoint.newest_whole(out) if resume else None
            check_folder(out, record, step, overwrite=overwrite)

    cfg = with_contexts(
        cfg, lambda tried: _opened(tried, lessons, out), check=check,
        trial=lambda tried, stores: _session(tried, stores, out).trial(),
    )  # fmt: skip
    if cfg.batch_size == AUTO:
        opened = lessons.opened or {}
        places = find_places(opened, lessons.names or (), lessons.weights)
        cfg = with_batch_size(cfg, opened, places, ranks=current().size)
    with _opened(cfg, lessons, out) as stores:
        report(stores)
        if current().is_first:
            check_label_rows(stores, cfg)
        trees = lessons.trees and (lessons.pack is None or bool(lessons.paths))
        run = learn(
            out, cfg, stores, overwrite=overwrite, resume=resume, trees=trees, left_open=left_open,
        )  # fmt: skip
        opened = {store.path: store.sampler.store for store in stores}
    kept = dataclasses.replace(run, trees=kept_trees(run))
    if not lessons.trees:
        return kept
    if lessons.pack is not None:
        if not lessons.paths:
            if current().is_first:
                say("no boosted trees: a pack has no rows to fit them on, give its store too")
            return kept
        opened = verified_stores(lessons.paths, lessons.verify)
    return with_trees(run, opened)


def _with_opened(lessons: Lessons) -> Lessons:
    """The material with its stores open, but for a pack."""
    paths = lessons.paths
    if lessons.pack is not None or lessons.opened is not None:
        return lessons
    if not paths or not lessons.names:
        raise TaskError("a run needs at least one store and one task, or a pack (--prebatched)")
    for path in paths:
        if (Path(path) / MARK).exists():
            raise PackError(f"'{path}' is a pack and not a store: give it with --prebatched")
    if len(set(paths)) < len(paths):
        raise TaskError("a store is given twice")
    return dataclasses.replace(lessons, opened=verified_stores(paths, lessons.verify))


@contextlib.contextmanager
def _opened(cfg: Config, lessons: Lessons, out: Path) -> Iterator[tuple[OpenStore, ...]]:
    """The stores of some tasks, or a pack that stands for one."""
    paths, pack = lessons.paths, lessons.pack
    if pack is not None:
        check_outside(out, [str(pack)], "pack")
        if cfg.prebatch is not None:
            raise ValueError("a pack has the batches already: leave prebatch out")
        _check_store_of_pack(paths, pack)
        yield (
            packed_store(
                pack, cfg, names=lessons.names, weights=lessons.weights, verify=lessons.verify,
                store=paths[0] if paths else None,
            ),
        )  # fmt: skip
        return
    opened = lessons.opened or {}
    places = find_places(opened, lessons.names or (), lessons.weights)
    with open_stores(opened, places, cfg, **current().sampler_options(cfg)) as stores:
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


def _places_of(stores: Sequence[OpenStore]) -> tuple[TaskPlace, ...]:
    """The tasks of some stores, with the moments of their labels."""
    return tuple(
        place.with_moments(task)
        for store in stores
        for place, task in zip(store.places, store.tasks, strict=True)
    )


def _checked_record(
    folder: Path, cfg: Config, stores: Sequence[OpenStore],
    pretraining: Mapping[str, Any] | None = None, *, trees: bool = False,
    left_open: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """What checkpoints record of the run; raises if it cannot be trained here, or if another rank
    trains something else."""
    attention_path(cfg)
    check_budget(cfg, sum(len(store.sampler.tasks) for store in stores))
    group, made = current(), stores[0].made
    group.check_can_train()
    record = checkpoint.make_record(
        cfg, _places_of(stores), {s.path: s.metadata for s in stores}, pretraining, folder,
        repeats_of(stores, cfg), None if made is None else made.about["path"], trees,
    )  # fmt: skip
    record["left_open"] = list(left_open)
    known = [entry["fingerprint"] for entry in record["stores"]]
    group.check_same(
        {
            **cfg.to_dict(), "tasks": record["tasks"], "fingerprints": known,
            "pretraining": pretraining, "pack": [store.pack for store in stores],
        }
    )  # fmt: skip
    return record


def _session(cfg: Config, stores: Sequence[OpenStore], out: Path) -> Session:
    """A session of settings that are tried."""
    metadata = {store.path: store.metadata for store in stores}
    record = checkpoint.make_record(cfg, _places_of(stores), metadata)
    return Session(out=out, config=cfg, stores=tuple(stores), record=record, group=current())


def with_kept_choices(cfg: Config, folder: Path) -> Config:
    """The settings with what the run in a folder has chosen, if they leave that open."""
    group = current()
    return cfg.with_choices(group.tell(checkpoint.kept_choices(folder) if group.is_first else None))


def learn(
    folder: Path, cfg: Config, stores: tuple[OpenStore, ...], *, overwrite: bool, resume: bool,
    pretraining: Mapping[str, Any] | None = None, trees: bool = False,
    left_open: Sequence[str] = (),
) -> Run:  # fmt: skip
    """Train in a folder from stores that are open, alone or with the ranks that were joined.

    Args:
        pretraining: of a run without tasks, "seeds" and "weights" of the stores in their order.
        trees: whether trees are to be fitted on the run's tasks afterwards.
        left_open: the settings that are chosen here, or were (`Config.left_open`).
    """
    group = current()
    cfg = with_steps(cfg, stores, tell=group.is_first)
    cfg = cfg.replace(steps=group.tell(cfg.steps)).with_usual_contexts()
    record = _checked_record(folder, cfg, stores, pretraining, trees=trees, left_open=left_open)
    with contextlib.ExitStack() as until_done:
        done, is_done = None, False
        if group.is_first:
            if resume and checkpoint.is_done(folder):
                done = checkpoint.newest_whole(folder)
                is_done = done == checkpoint.saved_steps(folder)[-1]
            if not is_done:
                until_done.enter_context(held(folder))
                done = checkpoint.newest_whole(folder) if resume else None
            if done is not None:
                record["left_open"] = checkpoint.load_record(folder, done).get("left_open", [])
            prepare(folder, record, done, overwrite=overwrite)
        done, is_done = group.tell((done, is_done))
        if not is_done:
            stores = kept_in_memory(stores, cfg, sharing=group.local_size, each=group.still)
        session = Session(out=folder, config=cfg, stores=stores, record=record, group=group)
        weights = session.open() if is_done else session.train(done)
    return Run(
        out=folder, places=_places_of(stores), config=cfg, step=weights.step, params=weights.params,
        stores=tuple(store.path for store in stores),
        seeds=checkpoint.read_seeds(record),
    )  # fmt: skip


def listed(given: Any) -> Sequence[Any]:
    """One, or several, as several."""
    return [given] if isinstance(given, str | Path) else list(given)
