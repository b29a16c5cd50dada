"""Baseline: gradient-boosted trees on the anchor's own columns, all there is without relations.

    sampler that stops at the anchor ──► which cells may be seen    [m,F] bool
    Store.column                     ──► their values               [m,F] float64, NaN otherwise
    LightGBM on the train seeds      ──► an answer per question

What may be seen is not decided here: a sampler whose contexts end at the anchor's row shows just
the cells that the model is shown of that row, so `known_at`, hidden columns, the target and a
frozen database mean the same to the trees as to the model. Features are numbers, truth values,
categories, times as their age in days at obs_time, and the age of the row; never texts or keys.
Same store and settings, same trees. Cost: one small sequence per question.

Trees are small, see a part of the columns and rows each, and several fits of them are averaged; or
they are larger and see all: few seeds and old data punish these, much to learn the others
(docs/14-rel-f1.md). Which, and how many, is chosen on a part of the train seeds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data import NO_TIME, US_PER_DAY, Floats, Task, open_sampler, spread
from confluence.lists import Questions

FEATURE_STYPES = ("numerical", "boolean", "categorical", "timestamp")
SAMPLE_BATCH = 256  # sequences per batch of the sampler
MAX_ROUNDS = 1_000  # of boosting
MAX_TREES = 4_000  # of a fit, over all classes: a round grows one tree per class
PATIENCE = 50  # rounds without gain on what is held out after which no more are tried
USUAL_ROUNDS = 150  # where nothing can be held out
LEAST_HELD_OUT = 20  # rows by which rounds are chosen
FITS = 4  # of small trees whose answers are averaged; they differ by what each tree is shown
LEAST_FEATURES = 8  # of a tree, where there are so many
LEAF_SHARE = 25  # of the rows that are learned from, one in so many is enough for a leaf
MOST_IN_LEAF = 40  # as are so many rows
MISSING = "LightGBM is not installed: pip install 'confluence[baselines]'"
SMALL: dict[str, Any] = {
    "learning_rate": 0.03,
    "num_leaves": 8,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.6,
    "bagging_freq": 1,
    "lambda_l2": 10.0,
    "cat_smooth": 50.0,
    "cat_l2": 50.0,
}
LARGE: dict[str, Any] = {"learning_rate": 0.05, "num_leaves": 15}
SETTINGS: dict[str, Any] = {
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """What trees are shown of some questions, such as what the anchor's own row says."""

    index: NDArray[np.int64]  # [n] which question, as in `Questions`
    values: Floats  # [n,F] NaN where NULL, not known yet, hidden, or the target
    names: tuple[str, ...]  # [F] columns of the anchor's table, then "row age"
    is_category: tuple[bool, ...]  # [F]


class Answers(NamedTuple):
    """What trees answer to some questions."""

    values: Floats  # [m] as `Predictions.values`
    shares: Floats | None = None  # [m,K] of each category; None where the target has none
    features: tuple[str, ...] = ()  # what the trees were shown


def own_columns(
    store_path: str, cfg: Config, task: Task, questions: Questions, *, until: str | None
) -> Features:
    """Features of some questions in their order, as of each one's time: their own cutoffs are for
    what happened to the anchor, what its row says does not age with them.

    Args:
        until: `visible_until` of the questions.
    """
    store = headwater.Store(store_path)
    entry = store.metadata["tasks"][task.index]
    table = store.metadata["tables"][store.table_index(entry["anchor_table"])]
    low, high = table["column_range"]
    anchor = 1 if entry["kind"] == "derived" else 0  # local row of the anchor, and its hops
    about = store.metadata["columns"][low:high]
    chosen = [c for c, column in enumerate(about) if column["stype"] in FEATURE_STYPES]
    sampler = open_sampler(
        store_path, cfg, task.name, max_hops=anchor, max_rows=2, identifier_cells="none",
        default_sequence_length=high - low + 3, default_batch_size=SAMPLE_BATCH,
        layout="dense", child_counts=False, label_rows=0, peer_labels=0, staleness=None,
        ignored_columns=(), visible_until=until,
    )  # fmt: skip
    times = questions.moments.obs_times
    ages, seen = [np.empty(0, np.float64)], [np.empty((0, len(chosen)), bool)]
    with sampler:
        rows = questions.anchor_rows
        for batch in sampler.batches_for(task.name, rows=rows, obs_time=times) if rows.size else ():
            count = int(batch["num_sequences"][0])
            seen.append(visible_columns(batch, anchor, low, high)[:count, chosen])
            ages.append(batch["row_ages"][:count, anchor].astype(np.float64))
    columns = [about[c] for c in chosen]
    local = questions.anchor_rows - table["row_range"][0]
    values = np.column_stack(
        [np.empty((local.size, 0))]
        + [store.column(table["name"], column["name"])["numbers"][local] for column in columns]
    )
    is_time = np.array([column["stype"] == "timestamp" for column in columns], bool)
    values = np.where(np.concatenate(seen), as_ages(values, times, is_time), np.nan)
    age = np.concatenate(ages)
    return Features(
        index=questions.index,
        values=np.column_stack([values, np.where(age >= 0, age, np.nan)]),
        names=(*(column["name"] for column in columns), "row age"),
        is_category=(*(column["stype"] == "categorical" for column in columns), False),
    )


def visible_columns(batch: Any, anchor: int, low: int, high: int) -> NDArray[np.bool_]:
    """Which columns of its table a batch shows of each anchor. → [B,high-low]"""
    shown = (batch["is_padding"] == 0) & (batch["is_target"] == 0)
    shown &= batch["seq_row_ids"] == anchor
    sequence, cell = np.nonzero(shown)
    visible = np.zeros((shown.shape[0], high - low), bool)
    visible[sequence, batch["column_ids"][sequence, cell] - low] = True
    return visible


def as_ages(values: Floats, obs_times: NDArray[np.int64], is_time: NDArray[np.bool_]) -> Floats:
    """Replace times by their age in days at obs_time; by days before 1970 where there is none."""
    now = np.where(obs_times == NO_TIME, 0, obs_times).astype(np.float64)[:, None]
    return np.where(is_time, (now - values) / US_PER_DAY, values)


# ---------------------------------------------------------------------------------------- the trees


def fit_and_predict(
    train: Features, targets: Floats, wanted: Features, stype: SemanticType, *, metric: str,
    weights: Floats | None = None, held_out: NDArray[np.bool_] | None = None, classes: int = 0,
) -> Answers:  # fmt: skip
    """Trees on the train seeds, then an answer per wanted question.

    Args:
        weights: of the train seeds; None: all alike.
        held_out: the train seeds by which size and number of the trees are chosen; in the end
            trees learn from these too.
        classes: K of a categorical target.
    """
    known, is_class = np.unique(targets), stype == SemanticType.CATEGORICAL
    if known.size == 1:
        values = np.full(wanted.values.shape[0], known[0])
        shares = _shares(np.ones((values.size, 1)), known, classes) if is_class else None
        return Answers(values, shares, train.names)
    in_leaf = max(1, min(MOST_IN_LEAF, targets.size // LEAF_SHARE))
    settings = {**SETTINGS, "min_data_in_leaf": in_leaf}
    labels, shift, scale = targets, 0.0, 1.0
    if stype == SemanticType.BOOLEAN:
        settings["objective"] = "binary"
    elif is_class:
        labels = np.searchsorted(known, targets).astype(np.float64)
        settings |= {"objective": "multiclass", "num_class": int(known.size)}
    else:
        settings["objective"] = "l1" if metric == "mae" else "l2"
        shift, scale = float(targets.mean()), spread(targets)
        labels = (targets - shift) / scale
    weights = np.ones(targets.size) if weights is None else weights
    settings, rounds = _chosen(train, labels, weights, settings, held_out)
    data, total = _dataset(train, labels, weights, settings), 0.0
    fits = FITS if "bagging_fraction" in settings else 1
    for fit in range(fits):
        total = total + _fit({**settings, "seed": fit}, data, rounds).predict(wanted.values)
    answer = np.asarray(total / fits, np.float64)
    if is_class:
        values = np.asarray(known[answer.argmax(axis=1)], np.float64)
        return Answers(values, _shares(answer, known, classes), train.names)
    return Answers(answer * scale + shift, None, train.names)


def _chosen(
    train: Features, labels: Floats, weights: Floats, settings: dict[str, Any],
    held_out: NDArray[np.bool_] | None,
) -> tuple[dict[str, Any], int]:  # fmt: skip
    """The settings and rounds by which the seeds that are held out are told best by trees on the
    others; small trees where nothing can be held out."""
    least = min(1.0, LEAST_FEATURES / max(1, len(train.names)))
    small = {**SMALL, "feature_fraction": max(SMALL["feature_fraction"], least)}
    most = max(1, min(MAX_ROUNDS, MAX_TREES // int(settings.get("num_class", 1))))
    usual = {**settings, **small}, min(USUAL_ROUNDS, most)
    if held_out is None or held_out.sum() < LEAST_HELD_OUT:
        return usual
    learned, kinds = np.unique(labels[~held_out]).size, np.unique(labels).size
    if learned < (kinds if "num_class" in settings else 2):
        return usual  # a class that trees have not seen has a loss without bounds
    found = []
    for size in (small, LARGE):
        tried = {**settings, **size, "seed": 0}
        data = _dataset(train, labels, weights, tried, ~held_out)
        rest = _dataset(train, labels, weights, tried, held_out, like=data)
        trees = _fit(tried, data, most, rest)
        (loss,) = trees.best_score["valid_0"].values()
        found.append((float(loss), {**settings, **size}, max(1, int(trees.best_iteration))))
    return min(found, key=lambda one: one[0])[1:]


def _dataset(
    features: Features, labels: Floats, weights: Floats, settings: dict[str, Any],
    rows: NDArray[np.bool_] | slice = slice(None), like: Any = None,
) -> Any:  # fmt: skip
    import lightgbm

    categories = [f for f, is_category in enumerate(features.is_category) if is_category]
    return lightgbm.Dataset(
        features.values[rows], label=labels[rows], weight=weights[rows], params=settings,
        categorical_feature=categories, reference=like, free_raw_data=False,
    )  # fmt: skip


def _fit(settings: dict[str, Any], data: Any, rounds: int, until: Any = None) -> Any:
    """Boosted trees; with `until` as many as tell that data best."""
    import lightgbm

    stop = [lightgbm.early_stopping(PATIENCE, verbose=False)] if until is not None else []
    return lightgbm.train(
        settings, data, num_boost_round=rounds, callbacks=stop,
        valid_sets=[] if until is None else [until],
    )  # fmt: skip


def _shares(found: Floats, known: Floats, classes: int) -> Floats:
    """Shares of all categories from those of the ones that occur. [m,K]"""
    shares = np.zeros((found.shape[0], max(classes, int(known.max()) + 1)))
    shares[:, known.astype(np.int64)] = found
    return shares
