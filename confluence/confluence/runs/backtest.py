"""Backtest: score a recipe on the past of the train split, so that val and test decide nothing.

    for each cutoff and seed:   train on everything known by the cutoff
                                score later questions, with the database frozen at the cutoff
    for each cutoff:            score the runs of all seeds together (`several_runs.py`)

The seeds of train are dealt anew at each cutoff (`PastConfig`, docs/reference/sampling.md, "Splits
by time"); those of val and test are in no batch, and their labels in no context. Every fit is a run
in a folder of its own, so a stopped backtest resumes there.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater
import numpy as np
from headwater.shared import check_output, time_us
from numpy.typing import NDArray

from confluence.answers.with_trees import check_share
from confluence.config import Config, PastConfig
from confluence.config import preset as preset_config
from confluence.data.stores import TaskPlace, find_places
from confluence.data.tasks import (
    NO_BATCHES,
    NO_TIME,
    SPLITS,
    US_PER_DAY,
    Labels,
    TaskError,
    open_sampler,
    read_labels,
)
from confluence.data.verification import verified_stores
from confluence.folder.files import check_outside, read_json, write_whole
from confluence.report.tables import share_of_trees
from confluence.runs.ensemble import Ensemble
from confluence.runs.evaluate import Examination, Opened, scoring
from confluence.runs.load import load
from confluence.runs.run import Run
from confluence.runs.train import Lessons, train_with
from confluence.scores.metrics import main_metric
from confluence.scores.scoring import time_name, time_text
from confluence.watch.log import to_json

FIRST_CUTOFF = 0.5  # share of the train seeds that are before the first of the default cutoffs
Fold = dict[str, Any]


def backtest(
    store: str | Path, *, task: str | Sequence[str], out: str | Path,
    cutoffs: Sequence[str] | None = None, folds: int = 4, horizon_days: float | None = None,
    seeds: Sequence[int] = (42,), tree_share: float | None = None, preset: str = "small",
    verify: str = "once", **overrides: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train and score at every cutoff with every seed; the result is also `out`/backtest.json, or
    such as backtest-trees-0.5.json.

    Args:
        task: one, or a list, which is then trained jointly.
        cutoffs: ISO times within the train split; None: `folds` of them, spread over the later half
            of the train seeds of the first task.
        horizon_days: how long after its cutoff seeds are scored; None: as long as the val split
            lasts, where it comes after train, else up to the next cutoff.
        seeds: of `Config.seed`.
        tree_share: what boosted trees have of each answer, from 0 to 1 (`with_trees.py`); None:
            half, as the seeds that are scored cannot choose a share too.
        preset, overrides: the recipe, as for `train`.
        verify: whether the store is read to its last byte before, as for `train`.

    Returns:
        {"tasks": {title: {"metric", "model": mean over folds, "std": over the means of the seeds,
        "baselines": {name: mean}, "other": means of all metrics, "rolling": mean, "together":
        {"frozen": mean, "rolling": mean}}}, "folds": [{"cutoff", "until", "seed", "task", "scored",
        "tree_share", "metric", "frozen", "rolling", "baselines"}], "together": [{"cutoff", "until",
        "task", "metric", "runs": folders, "seeds": theirs, "frozen", "rolling"}]}: what the runs of
        all seeds answer together; empty and without means where there is one run; "tree_share" as
        given. None where a metric is nowhere defined.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("a backtest needs at least one seed, and each once")
    if "seed" in overrides:
        raise ValueError("seed is what a backtest sets itself: give seeds (--seeds) instead")
    if tree_share is not None:
        check_share(tree_share)
        tree_share = float(tree_share)
    recipe = preset_config(preset, **overrides)
    if recipe.eval_every:
        raise ValueError("a backtest scores val when a fit is done: leave eval_every out")
    names = [task] if isinstance(task, str) else list(task)
    path, folder = str(store), Path(out)
    check_outside(folder, [path])
    given = tree_share is not None
    file = folder / (f"backtest-trees-{tree_share}.json" if given else "backtest.json")
    check_output(file, "--out", is_own=_is_backtest, what="the result of a backtest")
    opened = verified_stores([path], verify)
    lessons = Lessons(paths=[path], names=names, trees=tree_share != 0, opened=opened)
    task_places = find_places(opened, names)
    spans = _checked_spans(opened[path], names, recipe, cutoffs, folds, horizon_days)
    _warn_of_late_labels(opened[path], task_places)
    scored_before = _folds_in(file)
    found: list[Fold] = []
    together: list[Fold] = []

    def write_unfinished() -> None:
        if len(found) > scored_before:
            _write(file, _result(found, together, tree_share))

    for at, until in spans:
        places: list[Path] = []
        span = (time_text(at), time_text(until))
        for seed in seeds:
            place = folder / f"{time_name(at)}-seed-{seed}"
            cfg = PastConfig(**{**recipe.to_dict(), "seed": seed, "time_split": span})
            run = train_with(cfg, lessons, place, resume=True)
            places.append(place)
            found += [_score([run], title, *span, tree_share, opened) for title in run.titles]
            write_unfinished()
        if len(places) > 1:
            # Loaded here, so that none keeps its weights while another trains.
            runs = [load(place, store=path, verify="header") for place in places]
            titles = runs[0].titles
            together += [_score(runs, title, *span, tree_share, opened) for title in titles]
            write_unfinished()
    result = _result(found, together, tree_share)
    _write(file, result)
    return result


def _result(
    folds: Sequence[Fold], together: Sequence[Fold], tree_share: float | None
) -> dict[str, Any]:
    return {
        "tasks": summarise(folds, together), "folds": list(folds), "together": list(together),
        "tree_share": tree_share,
    }  # fmt: skip


def _score(
    runs: Sequence[Run], title: str, at: str, until: str, tree_share: float | None, opened: Opened
) -> Fold:
    """One task, frozen at the cutoff and rolling: of one fit, with baselines, or of all fits of a
    cutoff together, without baselines."""
    first, *others = runs
    full = Examination(
        split="val", task=title, regime="frozen", visible_until=at,
        ensemble=Ensemble(others=others, tree_share=tree_share),
    )  # fmt: skip
    plain = dataclasses.replace(full, trees=False, resamples=0)
    in_time = dataclasses.replace(plain, regime="rolling", visible_until=None)
    rolling = scoring(first, in_time, opened=opened).result()
    frozen = scoring(first, plain if others else full, opened=opened).result()
    found = {
        "cutoff": at,
        "until": until,
        "task": title,
        "metric": _main_metric(first, title, opened),
        "frozen": _numbers(frozen["metrics"]),
        "rolling": _numbers(rolling["metrics"]),
    }
    if others:
        seeds = [run.config.seed for run in runs]
        return {**found, "runs": [str(run.out) for run in runs], "seeds": seeds}
    return {
        **found,
        "seed": first.config.seed,
        "scored": frozen["scored"],
        "tree_share": share_of_trees(frozen),
        "baselines": {
            baseline: _numbers(result["metrics"])
            for baseline, result in frozen["baselines"].items()
        },
    }


def _warn_of_late_labels(store: headwater.Store, places: Sequence[TaskPlace]) -> None:
    """Warn of tasks that do not state when a label is known, for what becomes of their train
    seeds."""
    kinds = {entry["name"]: entry["kind"] for entry in store.metadata["tasks"]}
    unstated = [
        place.title
        for place in places
        if kinds[place.name] == "derived" and "label_time" not in store.task_seeds(place.name)
    ]
    if unstated:
        warnings.warn(
            f"task {', '.join(map(repr, unstated))} does not say when a label is known: seeds asked"
            " before a cutoff are learned from, though what they ask may have come about after it."
            " State label_window or label_known_at",
            stacklevel=3,
        )


def _main_metric(run: Run, title: str, opened: Opened) -> str:
    place = run.place(title)
    tasks = opened[place.store].metadata["tasks"]
    entry = next(task for task in tasks if task["name"] == place.name)
    stype = headwater.SemanticType[str(entry["target_stype"]).upper()]
    return main_metric(stype, run.config.metric)[0]


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: value for name, value in metrics.items() if isinstance(value, float | None)}


def summarise(folds: Sequence[Fold], together: Sequence[Fold] = ()) -> dict[str, Any]:
    """Means over cutoffs and seeds by task; a fold where a metric is undefined is left out."""
    tasks: dict[str, Any] = {}
    for title in dict.fromkeys(fold["task"] for fold in folds):
        own = [fold for fold in folds if fold["task"] == title]
        metric = own[0]["metric"]
        by_seed = [
            _mean([fold["frozen"][metric] for fold in own if fold["seed"] == seed])
            for seed in dict.fromkeys(fold["seed"] for fold in own)
        ]
        known = [value for value in by_seed if value is not None]
        tasks[title] = {
            "metric": metric,
            "model": _mean([fold["frozen"][metric] for fold in own]),
            "std": float(np.std(known, ddof=1)) if len(known) > 1 else None,
            "rolling": _mean([fold["rolling"][metric] for fold in own]),
            "baselines": {
                name: _mean([fold["baselines"][name].get(metric) for fold in own])
                for name in own[0]["baselines"]
            },
            "other": {
                name: _mean([fold["frozen"].get(name) for fold in own]) for name in own[0]["frozen"]
            },
            "together": {
                regime: _mean([fold[regime][metric] for fold in together if fold["task"] == title])
                for regime in (("frozen", "rolling") if together else ())
            },
        }
    return tasks


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _write(file: Path, result: Mapping[str, Any]) -> None:
    write_whole(file, to_json(dict(result)) + "\n")


def _is_backtest(file: Path) -> bool:
    return not file.is_symlink() and {"tasks", "folds"} <= read_json(file).keys()


def _folds_in(file: Path) -> int:
    """How many folds an earlier call left there: fewer do not replace them until all are done."""
    found = read_json(file).get("folds")
    return len(found) if isinstance(found, list) else 0


# ------------------------------------------------------------------------------------ the cutoffs


def _checked_spans(
    store: headwater.Store, names: Sequence[str], cfg: Config, cutoffs: Sequence[str] | None,
    folds: int, horizon_days: float | None,
) -> list[tuple[int, int]]:  # fmt: skip
    """(from, until) of the scored seeds of each fold, µs, of which every task has some."""
    spans = None
    for name in names:
        with open_sampler(store, cfg, name, **NO_BATCHES) as sampler:
            labels = read_labels(sampler, name)
        if spans is None:
            spans = _spans(labels, name, cutoffs, folds, horizon_days)
        _check_spans(labels, name, spans)
    return spans or []


def _spans(
    labels: Labels, name: str, cutoffs: Sequence[str] | None, folds: int, horizon_days: float | None
) -> list[tuple[int, int]]:
    """The spans by the train seeds of the first task."""
    if horizon_days is not None and not 0 < horizon_days * US_PER_DAY < NO_TIME:
        raise ValueError(f"horizon_days is {horizon_days}, expected a number of days above 0")
    has_time = labels.obs_times != NO_TIME
    train = np.sort(labels.obs_times[(labels.splits == SPLITS["train"]) & has_time])
    later = labels.obs_times[(labels.splits == SPLITS["val"]) & has_time]
    if train.size < 2 or train[0] == train[-1]:
        raise TaskError(f"the train seeds of task '{name}' have no different times to cut at")
    if cutoffs is None:
        if folds < 1:
            raise ValueError(f"folds is {folds}, expected at least 1")
        shares = FIRST_CUTOFF + (1 - FIRST_CUTOFF) * np.arange(folds) / folds
        moments = train[(shares * (train.size - 1)).astype(np.int64)]
        starts = (moments - moments % US_PER_DAY).tolist()
    else:
        starts = [time_us(text) for text in cutoffs]
    starts = sorted(set(starts))
    end = int(train[-1]) + 1
    if cutoffs is None and len(starts) < folds:
        warnings.warn(
            f"{len(starts)} folds, not {folds}: the train seeds of task '{name}' have so few days",
            stacklevel=3,
        )
    least, horizon = 0, None  # how long train must go on after a cutoff, and is scored
    if horizon_days is not None:
        least = horizon = int(horizon_days * US_PER_DAY)
    elif later.size and later.min() > train[-1]:
        least, horizon = _duration(later)
    spans = []
    for start, following in zip(starts, [*starts[1:], end], strict=True):
        until = min(end, following if horizon is None else start + horizon)
        if not int(train[0]) < start < until:
            raise TaskError(
                f"cutoff {time_text(start)}: the train seeds of task '{name}' reach from"
                f" {time_text(int(train[0]))} to {time_text(int(train[-1]))}, choose between"
            )
        if end - start < least:
            warnings.warn(
                f"cutoff {time_text(start)}: train ends at {time_text(int(train[-1]))}, sooner"
                " than the horizon",
                stacklevel=3,
            )
        spans.append((start, until))
    return spans


def _check_spans(labels: Labels, name: str, spans: Sequence[tuple[int, int]]) -> None:
    """Raise, before anything is trained, where a cutoff has nothing to learn from or to score."""
    has_label = labels.is_known & (labels.splits == SPLITS["train"])
    times = labels.obs_times[has_label]
    known = times if labels.label_times is None else labels.label_times[has_label]
    targets = labels.targets[has_label]
    for start, until in spans:
        learned = (times < start) & (known <= start)
        scored = (times >= start) & (times < until)
        if not learned.any():
            raise TaskError(
                f"cutoff {time_text(start)}: no label of a train seed of task '{name}' is known by"
                " then, choose a later one"
            )
        if not scored.any():
            raise TaskError(
                f"cutoff {time_text(start)}: no labelled train seed of task '{name}' is asked from"
                f" then until {time_text(until)}, choose another or a longer horizon"
                " (--horizon-days)"
            )
        for chosen, what in ((learned, "to learn from"), (scored, "to be scored on")):
            if targets[chosen].min() == targets[chosen].max():
                raise TaskError(
                    f"cutoff {time_text(start)}: the {chosen.sum():,} labels {what} of task"
                    f" '{name}' are all the same ({learned.sum():,} are known by then,"
                    f" {scored.sum():,} asked from then until {time_text(until)}): choose other"
                    " cutoffs, or a longer horizon (--horizon-days)"
                )


def _duration(times: NDArray[np.int64]) -> tuple[int, int | None]:
    """How long a split lasts, at least and at most, µs: from its first to its last time, give or
    take half of what its times are apart in the mean, as months are not alike. (0, None) of one."""
    distinct = np.unique(times)
    if distinct.size < 2:
        return 0, None
    span = int(distinct[-1] - distinct[0])
    half = span // (2 * (distinct.size - 1))
    return span - half, span + half
