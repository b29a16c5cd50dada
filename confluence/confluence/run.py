"""A run: a folder with a trained model, its log and its results. `train` makes it, `load` opens it.

log.jsonl  loss.png  checkpoints/<step>/  evaluation-<split>.json  predictions-<split>.csv
"""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headwater

from confluence import checkpoint
from confluence.config import Config
from confluence.config import preset as preset_config
from confluence.data import (
    SPLITS,
    Labels,
    Task,
    check_task,
    device_tables,
    open_sampler,
    read_labels,
    read_row_shape,
    read_task,
)
from confluence.evaluate import Predictions, evaluate, time_text
from confluence.log import to_json
from confluence.model import Params
from confluence.own_columns import tree_baseline
from confluence.predict import Row, predict, to_rows, write_csv
from confluence.session import Session
from confluence.train import Predictor

VisibleUntil = str | dict[str, str] | None
MOMENTS = ("mean", "std", "low", "high", "column_mean", "column_std")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A trained model on a store. Evaluation and prediction use the late average of its weights."""

    out: Path
    store: str
    config: Config
    task_name: str
    step: int  # of the weights
    params: Params
    average: Params
    moments: dict[str, float]  # of the target at training, to undo its scaling

    def evaluate(
        self, split: str, *, regime: str | None = None, visible_until: VisibleUntil = None
    ) -> dict[str, Any]:
        """Metrics on exactly the seeds of a split, beside baselines.

        Args:
            split: "train", "val" or "test".
            regime: "rolling", "frozen", or None for what the run was trained with.
            visible_until: the database as of then ("frozen"). A frozen regime without a time takes
                the earliest obs_time of the split.
        """
        check_split(split)
        cfg = self._regime(split, regime, visible_until)
        with open_sampler(self.store, cfg, self.task_name) as sampler:
            task, labels = self._task(sampler)
            predictions = self._predictions(
                cfg, sampler, sampler.epoch(split, task=task.name), task
            )
        trees = tree_baseline(self.store, cfg, task, labels, split)
        until = cfg.visible_until
        result = evaluate(
            predictions, labels, task, split=split, metric=cfg.metric,
            visible_until=until.get(split) if isinstance(until, dict) else until, trees=trees,
        )  # fmt: skip
        path = self.out / f"evaluation-{split}.json"
        path.write_text(to_json(result) + "\n", encoding="utf-8")
        return result

    def predict(
        self, *, split: str | None = None, keys: Sequence[Any] | None = None,
        at: str | None = None, path: Path | str | None = None,
    ) -> list[Row]:  # fmt: skip
        """Predictions for a split, or for keys of the anchor table at a time; also as CSV.

        Args:
            path: the CSV file; by default predictions-<split>.csv or predictions-keys.csv.
        """
        if (split is None) == (keys is None):
            raise ValueError("predict needs either a split or keys")
        if split is not None:
            check_split(split)
        with open_sampler(self.store, self.config, self.task_name) as sampler:
            task, _ = self._task(sampler)
            if split is not None:
                batches = sampler.epoch(split, task=task.name)
            else:
                batches = sampler.batches_for(task.name, keys=list(keys or ()), obs_time=at)
            predictions = self._predictions(self.config, sampler, batches, task)
        rows = to_rows(predictions, task, headwater.Store(self.store))
        default = self.out / f"predictions-{split or 'keys'}.csv"
        write_csv(rows, Path(path) if path is not None else default)
        return rows

    def _regime(self, split: str, regime: str | None, visible_until: VisibleUntil) -> Config:
        if regime not in (None, "rolling", "frozen"):
            raise ValueError(f"regime is '{regime}', expected 'rolling' or 'frozen'")
        if regime == "rolling" and visible_until is not None:
            raise ValueError("a rolling regime has no visible_until")
        if regime == "rolling":
            return self.config.replace(visible_until=None)
        if visible_until is None and regime == "frozen" and self.config.visible_until is None:
            visible_until = self._first_time(split)
        if visible_until is None:
            return self.config
        return self.config.replace(visible_until=visible_until)

    def _first_time(self, split: str) -> str:
        with open_sampler(self.store, self.config, self.task_name) as sampler:
            labels = read_labels(self.store, sampler, self.task_name)
        times = labels.obs_times[labels.splits == SPLITS[split]]
        text = time_text(int(times.min())) if times.size else ""
        if not text:
            raise ValueError(
                f"split '{split}' of task '{self.task_name}' has no times to freeze at"
            )
        return text

    def _task(self, sampler: Any) -> tuple[Task, Labels]:
        metadata = sampler.database_metadata()
        labels = read_labels(self.store, sampler, self.task_name)
        task = read_task(metadata, labels, self.task_name)
        return _with_moments(task, self.moments), labels

    def _predictions(self, cfg: Config, sampler: Any, batches: Any, task: Task) -> Predictions:
        tables = device_tables(sampler, task.category_limit)
        predictor = Predictor(
            cfg, tables, category_limit=task.category_limit,
            row_shape=read_row_shape(sampler.database_metadata(), cfg),
        )  # fmt: skip
        return predict(predictor, self.average, iter(batches), task, clamp=cfg.clamp)


def _with_moments(task: Task, moments: dict[str, Any]) -> Task:
    return dataclasses.replace(task, **moments)


def check_split(split: str) -> None:
    """Raise unless `split` is one of train, val, test."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {', '.join(SPLITS)}")


def train(
    store_path: str | Path, *, task: str, out: str | Path, preset: str = "small",
    steps: int | None = None, overwrite: bool = False, resume: bool = False, **overrides: Any,
) -> Run:  # fmt: skip
    """Train a model on one task of a store and save it in `out`.

    SIGTERM and Ctrl-C end the training after a step with a checkpoint and `TrainingStopped`.

    Args:
        preset: a name in `confluence.PRESETS`.
        steps: optimizer steps; None: as the preset says.
        overwrite: remove the run that `out` holds; without it that is an error.
        resume: go on with the run that `out` holds, exactly as if it had not stopped, or open it if
            it is done; start one if there is none. Another store, task or model is an error.
        overrides: any field of `Config`.
    """
    if overwrite and resume:
        raise ValueError("overwrite removes a run and resume goes on with it: give one of them")
    if steps is not None:
        overrides["steps"] = steps
    cfg = preset_config(preset, **overrides)
    store, folder = str(store_path), Path(out)
    check_task(store, task)
    with open_sampler(store, cfg, task) as sampler:
        metadata = sampler.database_metadata()
        labels = read_labels(store, sampler, task)
        target = read_task(metadata, labels, task)
        moments = {name: float(getattr(target, name)) for name in MOMENTS}
        record = checkpoint.make_record(cfg, metadata, store=store, task=task, moments=moments)
        done = None
        if resume and checkpoint.saved_steps(folder):
            done = checkpoint.find_step(folder)
            checkpoint.check_resume(folder, checkpoint.load_record(folder, done), record)
        else:
            clear_run(folder, overwrite=overwrite)
        if done == cfg.steps:
            return load(folder, store=store)
        session = Session(
            out=folder, config=cfg, sampler=sampler, task=target, labels=labels, record=record
        )
        state = session.train(done)
    return Run(
        out=folder, store=store, config=cfg, task_name=task, step=cfg.steps, params=state.params,
        average=state.average, moments=moments,
    )  # fmt: skip


def clear_run(folder: Path, *, overwrite: bool) -> None:
    """Remove what an earlier run left in its folder, so that no result of it seems to be new."""
    if checkpoint.saved_steps(folder) and not overwrite:
        raise FileExistsError(
            f"'{folder}' holds a run: go on with it by --resume, replace it by --overwrite, or"
            " choose another folder"
        )
    if (folder / checkpoint.FIRST_FOLDER).exists() and not overwrite:
        raise FileExistsError(
            f"'{folder}' holds a run of an earlier version: replace it by --overwrite, or choose"
            " another folder"
        )
    for name in (checkpoint.FOLDER, checkpoint.FIRST_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("loss.png", "evaluation-*.json", "predictions-*.csv"):
        for path in folder.glob(name):
            path.unlink()


def load(
    out: str | Path, *, store: str | Path | None = None, which: str | int = "last"
) -> Run:  # fmt: skip
    """Open a run.

    Args:
        store: another place of its store, or a rebuilt one.
        which: the "last" checkpoint, the "best" on val, or that of a step. The best of several on a
            small val looks better there than it is.
    """
    folder = Path(out)
    step = checkpoint.find_step(folder, which)
    record = checkpoint.load_record(folder, step)
    path = str(store) if store is not None else record["store"]
    cfg = Config.from_dict(record["config"])
    if which == "last" and step < cfg.steps:
        warnings.warn(
            f"the run in '{folder}' is at step {step} of {cfg.steps}; --resume finishes it",
            stacklevel=2,
        )
    with open_sampler(path, cfg, record["task"], num_prefetch=0) as sampler:
        checkpoint.check_store(record, sampler.database_metadata())
    params, average = checkpoint.load_weights(folder, record)
    return Run(
        out=folder, store=path, config=cfg,
        task_name=record["task"], step=step, params=params, average=average,
        moments={name: float(value) for name, value in record["moments"].items()},
    )  # fmt: skip
