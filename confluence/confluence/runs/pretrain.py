"""A run that learns masked cells alone, before any task: `confluence pretrain`.

It is a run like any other: its log, checkpoints, resuming, stops and ranks are those of `confluence
train`. It has no task, so it is evaluated by the loss of masked cells in contexts of val or test,
and another run starts with its weights (`init_from`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater

from confluence.config import Config
from confluence.config import preset as preset_config
from confluence.data.stores import OpenStore, Seeds, check_together, is_weight
from confluence.data.tasks import TaskError, open_seeds, text_modes
from confluence.data.verification import verified_stores
from confluence.folder.files import check_outside
from confluence.ranks.group import current
from confluence.runs.run import Run
from confluence.runs.run_folder import check_choice
from confluence.runs.train import learn, listed, with_kept_choices
from confluence.watch.trackers import check_installed


def pretrain(
    store: str | Path | Sequence[str | Path], *, out: str | Path,
    tasks: str | Sequence[str] | None = None, store_weights: Sequence[float] | None = None,
    preset: str = "small", overwrite: bool = False, resume: bool = False, verify: str = "once",
    **overrides: Any,
) -> Run:  # fmt: skip
    """Train a model on masked cells of one or more stores and save it in `out`.

    Where this process has joined others, they train together, as by `confluence.train`.

    Args:
        store: one, or a list of stores whose texts are embedded in the same way.
        tasks: contexts are of the seeds of these, in every store that has one of that name. None:
            of all tasks, or with the setting `seed_tables` of the rows of these tables.
        store_weights: how often a batch comes from each store beside the others, in their order;
            None: all alike.

    The other arguments are those of `confluence.train`.
    """
    check_choice(overwrite=overwrite, resume=resume)
    cfg = preset_config(preset, **{**overrides, "objective": "masked_cells"})
    left_open = cfg.left_open()
    if resume:
        cfg = with_kept_choices(cfg, Path(out))
    check_installed(cfg.log_to)
    if tasks is not None and cfg.seed_tables is not None:
        raise ValueError("give either tasks or seed_tables")
    paths = [str(path) for path in listed(store)]
    check_outside(Path(out), paths)
    weights = _check_weights(paths, store_weights)
    opened = verified_stores(paths, verify)
    seeds = _seeds_of(opened, cfg, None if tasks is None else listed(tasks))
    with _open_stores(opened, cfg, seeds, weights) as stores:
        names = [None if own is None else list(own) for own in seeds]
        return learn(
            Path(out), cfg, stores, overwrite=overwrite, resume=resume,
            pretraining={"seeds": names, "weights": weights}, left_open=left_open,
        )  # fmt: skip


def _seeds_of(
    opened: Mapping[str, headwater.Store], cfg: Config, tasks: Sequence[str] | None
) -> list[Seeds]:
    """Of the tasks or tables that are asked for, those that each store has."""
    kind, wanted = ("tasks", tasks) if cfg.seed_tables is None else ("tables", cfg.seed_tables)
    if wanted is None:
        return [None] * len(opened)
    if not wanted:
        raise TaskError(f"none of the {kind} is asked for: leave them out for all tasks")
    if len(opened) == 1:
        return [tuple(wanted)]  # its sampler names what is not there, with the nearest name
    has = []
    for path, store in opened.items():
        has.append({entry["name"] for entry in store.metadata[kind]})
        if not has[-1].intersection(wanted):
            raise TaskError(f"store '{path}' has none of the {kind} {', '.join(wanted)}")
    for name in wanted:
        if not any(name in names for names in has):
            raise TaskError(f"no store has '{name}' among its {kind}")
    return [tuple(name for name in wanted if name in names) for names in has]


def _check_weights(paths: Sequence[str], given: Sequence[float] | None) -> list[float]:
    if not paths or len(set(paths)) < len(paths):
        raise TaskError("a run needs at least one store, and each once")
    weights = [1.0] * len(paths) if given is None else [float(weight) for weight in given]
    if len(weights) != len(paths) or not all(map(is_weight, weights)):
        raise TaskError(
            f"store_weights are {', '.join(f'{weight:g}' for weight in weights)}, expected"
            f" {len(paths)} numbers above 0, one for each store"
        )
    return weights


@contextlib.contextmanager
def _open_stores(
    opened: Mapping[str, headwater.Store], cfg: Config, seeds: Sequence[Seeds],
    weights: Sequence[float],
) -> Iterator[tuple[OpenStore, ...]]:  # fmt: skip
    options = current().sampler_options(cfg)
    with contextlib.ExitStack() as stack:
        stores = []
        modes = text_modes(list(opened.values()))
        for path, own, weight, texts in zip(opened, seeds, weights, modes, strict=True):
            sampler = stack.enter_context(
                open_seeds(opened[path], cfg, own, text_mode=texts, **options)
            )
            metadata = sampler.database_metadata()
            stores.append(OpenStore(path=path, sampler=sampler, metadata=metadata, share=weight))
        check_together(stores)
        yield tuple(stores)
