"""A run that learns masked cells alone, before any task: `confluence pretrain`.

It is a run like any other: its log, checkpoints, resuming and stops are those of `confluence
train`. It has no task, so it is evaluated by the loss of masked cells in contexts of val or test,
and another run starts with its weights (`init_from`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluence import checkpoint
from confluence.config import preset as preset_config
from confluence.data import check_ignored_columns, open_sampler
from confluence.run import Run, clear_run, load
from confluence.session import Session
from confluence.sinks import check_installed
from confluence.stores import OpenStore


def pretrain(
    store: str | Path, *, out: str | Path, tasks: Sequence[str] | None = None,
    preset: str = "small", steps: int | None = None, overwrite: bool = False, resume: bool = False,
    **overrides: Any,
) -> Run:  # fmt: skip
    """Train a model on masked cells of a store and save it in `out`.

    Contexts are of the seeds of `tasks` (None: of all), or with the setting `seed_tables` of the
    rows of these tables. The other arguments are those of `confluence.train`.
    """
    if overwrite and resume:
        raise ValueError("overwrite removes a run and resume goes on with it: give one of them")
    if steps is not None:
        overrides["steps"] = steps
    cfg = preset_config(preset, **{**overrides, "objective": "masked_cells"})
    check_installed(cfg.log_to)
    if tasks is not None and cfg.seed_tables is not None:
        raise ValueError("give either tasks or seed_tables")
    path, folder = str(store), Path(out)
    with open_sampler(path, cfg, *(tasks or ())) as sampler:
        metadata = sampler.database_metadata()
        check_ignored_columns([metadata], cfg)
        opened = OpenStore(
            path=path, sampler=sampler, metadata=metadata, places=(), tasks=(), labels=()
        )
        record = checkpoint.make_record(cfg, (), {path: metadata})
        done = None
        if resume and checkpoint.saved_steps(folder):
            done = checkpoint.find_step(folder)
            checkpoint.check_resume(folder, checkpoint.load_record(folder, done), record)
        else:
            clear_run(folder, overwrite=overwrite)
        if done == cfg.steps:
            return load(folder, store=path)
        session = Session(out=folder, config=cfg, stores=(opened,), record=record)
        state = session.train(done)
    return Run(
        out=folder, places=(), config=cfg, step=cfg.steps, params=state.params,
        average=state.average, stores=(path,),
    )  # fmt: skip
