"""Baselines that every evaluation has next to its own numbers.

The best constant of the train labels; the best constant of each entity's own train labels that were
known before the seed's time, which falls back to the global constant if an entity has none (the
share is reported); and, if the caller made them, boosted trees (`trees/tree_baselines.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, TRAIN, Floats, Labels, Task
from confluence.trees.history import label_lists
from confluence.trees.time_lists import Moments

CONSTANT, HISTORY, MODEL_ALONE = "global_constant", "history", "model_alone"  # names in a result
TITLES = {  # for people, by the name in a result
    CONSTANT: "global constant",
    "per_entity": "per entity",
    "own_columns": "trees, own columns",
    HISTORY: "trees, history",
    MODEL_ALONE: "model alone",
    "untrained": "probe, untrained",
}
SUBJECTS = {  # the same in a sentence
    CONSTANT: "a constant",
    "per_entity": "a constant for each entity",
    "own_columns": "trees on own columns",
    HISTORY: "trees on history",
    MODEL_ALONE: "the model alone",
    "untrained": "the probe of untrained weights",
}


def title_of(baseline: str) -> str:
    """The name of a baseline for people."""
    return TITLES.get(baseline, baseline.replace("_", " "))


def subject_of(baseline: str) -> str:
    """The name of a baseline in a sentence."""
    return SUBJECTS.get(baseline, baseline.replace("_", " "))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline's entry in the result, and its predictions."""

    about: dict[str, Any]
    values: Floats | None  # [rows scored] as `Predictions.values`; None: it is missing


def best_constant(stype: SemanticType, metric: str) -> tuple[str, Callable[[Floats], float]]:
    """The constant that suits a target, by name: base rate, majority, median or mean."""
    if stype == SemanticType.BOOLEAN:
        return "base rate", lambda labels: float(labels.mean())
    if stype == SemanticType.CATEGORICAL:
        return "majority", lambda labels: float(np.bincount(labels.astype(np.int64)).argmax())
    if metric == "mae":
        return "median", lambda labels: float(np.median(labels))
    return "mean", lambda labels: float(labels.mean())


def entity_histories(
    labels: Labels, rows: NDArray[np.int64], *, visible_until_us: int, label_window_us: int,
    inclusive: bool = True,
) -> list[Floats]:  # fmt: skip
    """For each row, the train labels of its anchor that were known at its time.

    A label is known when the store says so, else `label_window_us` after its obs_time, and always
    strictly later than it. A row without time sees all labels of its anchor but its own.

    Args:
        inclusive: a label known at that time itself counts as known.
    """
    known = label_lists(labels, label_window_us)
    owners = known.owners[rows]
    cutoffs = np.minimum(labels.obs_times[rows], visible_until_us)
    moments = Moments(obs_times=labels.obs_times[rows], cutoffs=cutoffs, inclusive=inclusive)
    begins = known.lists.starts[owners]
    ends = begins + known.lists.counts(owners, moments.limits)
    histories = []
    for row, cutoff, begin, end in zip(rows, cutoffs, begins, ends, strict=True):
        seeds = known.seeds[begin:end]
        histories.append(labels.targets[seeds[seeds != row] if cutoff == NO_TIME else seeds])
    return histories


def baselines(
    labels: Labels, rows: NDArray[np.int64], task: Task, *, metric: str, visible_until_us: int,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Baseline]:  # fmt: skip
    """All baselines on the rows scored, by name.

    Args:
        more: further ones, of the form that `tree_baselines` returns.
    """
    name, constant = best_constant(task.stype, metric)
    train = labels.targets[(labels.splits == TRAIN) & labels.is_known]
    overall = constant(train if train.size else np.zeros(1))
    histories = entity_histories(
        labels, rows, visible_until_us=visible_until_us, label_window_us=task.label_window_us,
        inclusive=task.inclusive,
    )  # fmt: skip
    own = np.array([constant(h) if h.size else overall for h in histories], np.float64)
    without = sum(1 for h in histories if not h.size)
    found = {
        CONSTANT: Baseline(
            about={"constant": f"{name} of the train labels", "value": overall},
            values=np.full(rows.size, overall),
        ),
        "per_entity": Baseline(
            about={
                "constant": f"{name} of the entity's train labels known by then",
                "fallback": CONSTANT,
                "fallback_share": without / rows.size if rows.size else 0.0,
            },
            values=own,
        ),
    }
    for which, one in (more or {}).items():
        about = {key: value for key, value in one.items() if key != "values"}
        values = one["values"][rows] if "values" in one else None
        found[which] = Baseline(about=about, values=values)
    return found
