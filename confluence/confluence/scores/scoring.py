"""Metrics on exactly the seeds of a split, with intervals, next to baselines, with the regime.

    predictions, labels ──► the rows scored ──► metrics, intervals, differences     `metrics`
                                      ├──► the same by visible history              `history`
                                      ├──► and by obs_time                          `obs_time`
                                      └──► one sentence: who is best                `verdict`

Seeds without a label are never scored, nor are NULL targets; both are counted. Intervals come from
draws of anchors (`bootstrap.py`); a difference is the model's metric less the baseline's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from headwater import SemanticType
from headwater.shared import time_us
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, SPLITS, Floats, Labels, Task
from confluence.scores import bootstrap
from confluence.scores.baselines import Baseline, baselines
from confluence.scores.bootstrap import Part
from confluence.scores.metrics import MEASURES, Measured, main_metric, metrics_of
from confluence.scores.verdict import MODEL, Answer, Scoreboard, judge, of_model

TIME_BUCKETS = 4  # most of them
WHOLE = "whole"  # beside the names of parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """One row per seed, in the order of the batches."""

    seed_index: NDArray[np.uint32]  # [n] within the task; meaningless for ad-hoc seeds
    anchor_rows: NDArray[np.uint32]  # [n] global row
    obs_times: NDArray[np.int64]  # [n] µs, NO_TIME where there is none
    values: Floats  # [n] source units; P(true); index of the likeliest category; µs
    probabilities: Floats  # [n] of true or of the likeliest category; NaN for numbers and times
    null_probabilities: Floats  # [n]


@dataclasses.dataclass(frozen=True)
class Terms:
    """The split that is scored, and how.

    Attributes:
        metric: of `Config.metric`.
        visible_until: up to when the database was visible; None: up to each seed's time.
        resamples: of the bootstrap; None: as many as the number of seeds allows, at most 1000; 0:
            no intervals, no parts and no verdict.
    """

    split: str
    metric: str
    visible_until: str | None = None
    resamples: int | None = 0


def evaluate(
    predictions: Predictions, labels: Labels, task: Task, terms: Terms, *,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    has_history: NDArray[np.bool_] | None = None, answer: Answer | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Score one pass over a split. The result is plain and can be written as JSON.

    Args:
        more: further baselines, of the form that `tree_baselines` returns.
        has_history: of each seed of the task, from `visible_history`; None: the result has no parts
            by it.
        answer: gives the predictions its name; None: they are the model's.
    """
    split, metric, resamples = terms.split, terms.metric, terms.resamples
    visible_until = terms.visible_until
    if resamples is not None and resamples < 0:
        raise ValueError(f"resamples is {resamples}, expected at least 0")
    index = predictions.seed_index.astype(np.int64)
    check_complete(index, labels, task, split)
    scored = labels.is_known[index]
    rows = index[scored]
    until_us = NO_TIME if visible_until is None else time_us(visible_until)
    compared = baselines(labels, rows, task, metric=metric, visible_until_us=until_us, more=more)
    scores = Scores(
        labels=labels, task=task, rows=rows, model=predictions.values[scored], beside=compared
    )
    parts = {WHOLE: np.arange(rows.size)}
    if resamples != 0:
        parts |= history_parts(rows, has_history) | time_parts(labels.obs_times[rows])
    found, drawn, samples = scores.measure(parts, resamples)
    whole = found.pop(WHOLE)
    for name, baseline in compared.items():
        whole["baselines"][name] = {**baseline.about, **whole["baselines"][name]}
    result: dict[str, Any] = {
        "task": task.name,
        "split": split,
        "regime": "rolling" if visible_until is None else "frozen",
        "visible_until": visible_until,
        "seeds": int(index.size),
        "scored": whole.pop("scored"),
        "null": int(np.sum(labels.is_labelled[index] & ~scored)),
        "unlabelled": int(np.sum(~labels.is_labelled[index])),
        **_true_counts(labels.targets[rows], predictions.values[scored], task),
        **whole,
    }
    if resamples != 0:
        result["resampling"] = {
            "resamples": drawn.count, "level": bootstrap.LEVEL, "clusters": "anchors",
            "seed": drawn.seed,
        }  # fmt: skip
        named = {name: part for name, part in found.items() if name in HISTORY_PARTS}
        result["history"] = named or None
        board = Scoreboard.of(*main_metric(task.stype, metric), whole, samples.get(WHOLE, {}))
        verdict = judge(
            board, answer or of_model(), targets=labels.targets[rows], anchors=whole["anchors"],
            stype=task.stype,
        )  # fmt: skip
        result["verdict"] = dataclasses.asdict(verdict)
        result["obs_time"] = [
            {**_time_range(labels.obs_times[rows[parts[name]]]), **part}
            for name, part in found.items()
            if name not in named
        ]
    return result


def _true_counts(targets: Floats, values: Floats, task: Task) -> dict[str, int]:
    """How many of the rows scored are true, and how many are called true, if a task is boolean."""
    if task.stype != SemanticType.BOOLEAN:
        return {}
    return {"true": int(np.sum(targets > 0.5)), "called_true": int(np.sum(values > 0.5))}


def check_complete(index: NDArray[np.int64], labels: Labels, task: Task, split: str) -> None:
    """Raise unless these are exactly the seeds of the split, each once."""
    expected = np.flatnonzero(labels.splits == SPLITS[split])
    if not np.array_equal(np.sort(index), expected):
        raise ValueError(
            f"predictions cover {index.size} seeds, split '{split}' of task '{task.name}' has"
            f" {expected.size}, or some came twice"
        )


# ------------------------------------------------------------------------------------- the scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """The rows scored, and what the model and each baseline say of them."""

    labels: Labels
    task: Task
    rows: NDArray[np.int64]  # [n] seeds
    model: Floats  # [n]
    beside: Mapping[str, Baseline]

    def measure(
        self, parts: Mapping[str, NDArray[np.int64]], resamples: int | None
    ) -> tuple[dict[str, dict[str, Any]], bootstrap.Resamples, dict[str, dict[str, Measured]]]:
        """Metrics, intervals and differences of everyone in each part (places among `rows`); the
        resamples, and every metric of everyone over them."""
        anchors = self.labels.anchor_rows[self.rows]
        drawn = bootstrap.draw(anchors, resamples)
        measured = {
            name: Part(
                rows=part,
                measures={who: self._measure(values[part], part) for who, values in self._named()},
            )
            for name, part in parts.items()
        }
        samples = bootstrap.resample(measured, drawn) if drawn.count else {}
        found = {
            name: {
                "scored": int(part.rows.size),
                "anchors": int(np.unique(anchors[part.rows]).size),
                **self._compared(part, samples.get(name, {})),
            }
            for name, part in measured.items()
        }  # fmt: skip
        return found, drawn, samples

    def _named(self) -> list[tuple[str, Floats]]:
        found = [(name, baseline.values) for name, baseline in self.beside.items()]
        return [(MODEL, self.model), *((name, v) for name, v in found if v is not None)]

    def _measure(self, values: Floats, part: NDArray[np.int64]) -> Any:
        return MEASURES[self.task.stype](self.labels.targets[self.rows[part]], values)

    def _compared(self, part: Part, samples: Mapping[str, Measured]) -> dict[str, Any]:
        """The model's metrics, and those of the baselines with the model's distance to them."""
        metrics = {who: metrics_of(m, part.rows.size) for who, m in part.measures.items()}
        ours = metrics[MODEL]
        found: dict[str, Any] = {"metrics": ours}
        if samples:
            found["intervals"] = bootstrap.intervals(samples[MODEL], ours)
        found["baselines"] = {}
        for name in self.beside:
            theirs = metrics.get(name, dict.fromkeys(ours))
            entry: dict[str, Any] = {"metrics": theirs}
            if samples and name in samples:
                entry["intervals"] = bootstrap.intervals(samples[name], ours)
                entry["differences"] = {
                    which: bootstrap.difference(ours[which], theirs[which]) for which in ours
                }
                apart = bootstrap.differences(samples[MODEL], samples[name])
                entry["difference_intervals"] = bootstrap.intervals(apart, ours)
            found["baselines"][name] = entry
        return found


# --------------------------------------------------------------------------------------- the parts


HISTORY_PARTS = {"with": "with history", "without": "without history"}  # names and titles


def history_parts(
    rows: NDArray[np.int64], has_history: NDArray[np.bool_] | None
) -> dict[str, NDArray[np.int64]]:
    """Places of the rows whose anchor has a visible history, and of those without."""
    if has_history is None:
        return {}
    seen = has_history[rows]
    return dict(zip(HISTORY_PARTS, (np.flatnonzero(seen), np.flatnonzero(~seen)), strict=True))


def time_parts(obs_times: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Places of the rows in up to four buckets of obs_time of about equal size, earliest first.

    Seeds of one time stay together. Rows without a time are in no bucket; where all times are
    equal, there is none.
    """
    has_time = obs_times != NO_TIME
    times, counts = np.unique(obs_times[has_time], return_counts=True)
    if times.size < 2:
        return {}
    before = np.cumsum(counts) - counts
    bucket = np.full(obs_times.size, -1)
    bucket[has_time] = (TIME_BUCKETS * before // counts.sum())[
        np.searchsorted(times, obs_times[has_time])
    ]
    return {f"time {b}": np.flatnonzero(bucket == b) for b in np.unique(bucket[has_time])}


def _time_range(obs_times: NDArray[np.int64]) -> dict[str, str]:
    return {"from": time_text(int(obs_times.min())), "to": time_text(int(obs_times.max()))}


# --------------------------------------------------------------------------------------- the times


def time_text(value_us: int) -> str:
    """ISO time in UTC, to the second where that loses nothing; empty for a seed without time."""
    if value_us == NO_TIME:
        return ""
    unit = "s" if value_us % 1_000_000 == 0 else "us"
    return str(np.datetime64(value_us, "us").astype(f"datetime64[{unit}]"))


def short_time(text: str) -> str:
    """An ISO time without its time of day where that is midnight."""
    return text.removesuffix("T00:00:00")


def time_name(value_us: int) -> str:
    """A time as part of a file's name: 2024-11-01, or 2024-11-01T093000 within a day."""
    return short_time(time_text(value_us)).replace(":", "")
