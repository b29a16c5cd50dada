"""Boosted trees: from features of train seeds and their targets to answers to questions.

    Features of train seeds, targets, weights ──► size and number of the trees, by those held out
                                              ──► LightGBM ──► Boosted: texts, which a file can hold
    Boosted, Features of questions            ──► TreeAnswers

Trees are small, see a part of the columns and rows each, and several fits of them are averaged; or
they are larger and see all: few seeds and old data punish these, much to learn the others
(docs/notebook/rel-f1.md). Which, and how many, is chosen on a part of the train seeds. Same
features, same trees.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import Floats, spread

MAX_ROUNDS = 1_000  # of boosting
MAX_TREES = 4_000  # of a fit, over all classes: a round grows one tree per class
PATIENCE = 50  # rounds without gain on what is held out after which no more are tried
USUAL_ROUNDS = 150  # where nothing can be held out
LEAST_HELD_OUT = 20  # rows by which rounds are chosen
FITS = 4  # of small trees whose answers are averaged; they differ by what each tree is shown
LEAST_FEATURES = 8  # of a tree, where there are so many
LEAF_SHARE = 25  # of the rows that are learned from, one in so many is enough for a leaf
MOST_IN_LEAF = 40  # as are so many rows
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


class NoTreesError(RuntimeError):
    """LightGBM cannot be loaded on this machine."""


def load_lightgbm() -> Any:
    """LightGBM, imported when trees are first needed: `confluence --help` does not wait for it.

    Raises:
        NoTreesError: it is not installed, or a library of the system is missing, which pip cannot
            install.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise NoTreesError("LightGBM is not installed: pip install lightgbm") from error
    except OSError as error:
        hint = ""
        if "libgomp" in str(error):
            hint = ": install GCC's OpenMP library (Debian and Ubuntu: apt-get install libgomp1)"
        raise NoTreesError(f"LightGBM cannot be loaded ({error}){hint}") from error
    return lightgbm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """What trees are shown of some questions, such as what the anchor's own row says."""

    index: NDArray[np.int64]  # [n] which question, as in `Questions`
    values: Floats  # [n,F] NaN where NULL, not known yet, hidden, or the target
    names: tuple[str, ...]  # [F]
    categories: Mapping[str, tuple[str, ...]]  # of a feature that is one: the text of each number


class TreeAnswers(NamedTuple):
    """What trees answer to some questions."""

    values: Floats  # [m] as `Predictions.values`
    shares: Floats | None = None  # [m,K] of each category; None where the target has none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boosted:
    """Trees that were fitted, as texts: what they answer today they answer when read from a file.

    Threads may share one.
    """

    stype: str  # name of the target's `SemanticType`
    names: tuple[str, ...]  # of the features
    models: tuple[str, ...]  # LightGBM's texts; their answers are averaged
    known: tuple[float, ...]  # the only target, or the numbers of the categories that occur
    classes: int  # K of a categorical target, as far as it was known
    shift: float = 0.0  # a number is what trees answer, times scale, and shift
    scale: float = 1.0

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Boosted:
        """From the fields by name; lists may stand for tuples."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in found.items()
        }
        return cls(**plain)

    @functools.cached_property
    def _boosters(self) -> list[Any]:
        return [load_lightgbm().Booster(model_str=text) for text in self.models]

    def answers(self, features: Features) -> TreeAnswers:
        """An answer to each question. The features are found by name; one that is not there is NaN
        everywhere."""
        places = {name: place for place, name in enumerate(features.names)}
        values = np.full((features.values.shape[0], len(self.names)), np.nan)
        for own, name in enumerate(self.names):
            if name in places:
                values[:, own] = features.values[:, places[name]]
        known, is_class = np.array(self.known), self.stype == SemanticType.CATEGORICAL.name
        if not self.models:
            shares = np.ones((values.shape[0], 1)) if is_class else None
            found = np.full(values.shape[0], known[0])
            return TreeAnswers(found, shares if shares is None else self._shares(shares))
        total: Any = 0.0
        for booster in self._boosters:
            total = total + booster.predict(values, num_threads=1)
        answer = np.asarray(total / len(self.models), np.float64)
        if is_class:
            return TreeAnswers(known[answer.argmax(axis=1)], self._shares(answer))
        return TreeAnswers(answer * self.scale + self.shift)

    def _shares(self, found: Floats) -> Floats:
        """Shares of all categories from those of the ones that occur. [m,K]"""
        known = np.array(self.known, np.int64)
        shares = np.zeros((found.shape[0], max(self.classes, int(known.max()) + 1)))
        shares[:, known] = found
        return shares


def fit(
    train: Features, targets: Floats, stype: SemanticType, *, metric: str,
    weights: Floats | None = None, held_out: NDArray[np.bool_] | None = None, classes: int = 0,
) -> Boosted:  # fmt: skip
    """Trees on the train seeds.

    Args:
        weights: of the train seeds; None: all alike.
        held_out: the train seeds by which size and number of the trees are chosen; in the end
            trees learn from these too.
        classes: K of a categorical target.
    """
    known, is_class = np.unique(targets), stype == SemanticType.CATEGORICAL
    of_all: dict[str, Any] = {"stype": stype.name, "names": train.names, "classes": classes}
    if known.size == 1:
        return Boosted(**of_all, models=(), known=(float(known[0]),))
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
    data = _dataset(train, labels, weights, settings)
    fits = FITS if "bagging_fraction" in settings else 1
    models = (_fit({**settings, "seed": seed}, data, rounds) for seed in range(fits))
    return Boosted(
        **of_all, models=tuple(model.model_to_string() for model in models),
        known=tuple(known.tolist()) if is_class else (), shift=shift, scale=scale,
    )  # fmt: skip


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
    categories = [f for f, name in enumerate(features.names) if name in features.categories]
    return load_lightgbm().Dataset(
        features.values[rows], label=labels[rows], weight=weights[rows], params=settings,
        categorical_feature=categories, reference=like, free_raw_data=False,
    )  # fmt: skip


def _fit(settings: dict[str, Any], data: Any, rounds: int, until: Any = None) -> Any:
    """Boosted trees; with `until` as many as tell that data best."""
    lightgbm = load_lightgbm()
    stop = [lightgbm.early_stopping(PATIENCE, verbose=False)] if until is not None else []
    return lightgbm.train(
        settings, data, num_boost_round=rounds, callbacks=stop,
        valid_sets=[] if until is None else [until],
    )  # fmt: skip
