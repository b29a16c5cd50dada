"""Boosted trees: from features of train seeds and their targets to answers to questions.

    Features of train seeds, targets, weights ──► size and number of the trees, by those held out
                                              ──► LightGBM ──► Boosted: texts, which a file can hold
    Boosted, Features of questions            ──► TreeAnswers

A number that is often 0 may be the chance that it is not, times its mean then (a hurdle; Cragg
1971), if means are asked for.

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
MANY = 8_000  # seeds of two classes, of which a sample chooses a recipe
FEW = 2_000  # the same however many classes there are
MOST_FEATURES = 64  # that a sample keeps, those with the largest gains
FASTER = 3.0  # the learning rate then, against the usual one
HALF_LIFE = 0.25  # of the train seeds' span, in which their weight is halved if that is better
LEAST_FEATURES = 8  # of a tree, where there are so many
OFTEN = 0.05  # of the numbers are 0, or are not, before a hurdle is tried
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

    def rows(self, rows: NDArray[np.bool_]) -> Features:
        """Those of some of the questions."""
        return dataclasses.replace(self, index=self.index[rows], values=self.values[rows])


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
    chance: Boosted | None = None  # of a hurdle: that a number is not 0, by which it is multiplied

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Boosted:
        """From the fields by name; lists may stand for tuples."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in found.items()
        }
        if plain["chance"] is not None:
            plain["chance"] = cls.from_dict(plain["chance"])
        return cls(**plain)

    @functools.cached_property
    def _boosters(self) -> list[Any]:
        return [load_lightgbm().Booster(model_str=text) for text in self.models]

    def answers(self, features: Features) -> TreeAnswers:
        """An answer to each question. The features are found by name; one that is not there is NaN
        everywhere."""
        found = self._alone(features)
        if self.chance is None:
            return found
        return found._replace(values=found.values * self.chance.answers(features).values)

    def _alone(self, features: Features) -> TreeAnswers:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How trees are fitted, as it was chosen by the seeds that were held out."""

    settings: Mapping[str, Any]  # of LightGBM: the size of the trees
    rounds: int
    features: tuple[str, ...]  # that trees are shown
    half_life: float | None = None  # share of the train seeds' span after which they weigh half


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lessons:
    """What trees learn from.

    Attributes:
        features: of the train seeds.
        targets: [n] in source units.
        stype: of the target.
        metric: "mae" or "rmse", of a number.
        classes: K of a categorical target.
        weights: [n] of the seeds; None: all alike.
        ages: [n] how much older each seed is than the last one, from 0 to 1; None: unknown.
        held_out: [n] the seeds by which a recipe is chosen; in the end trees learn from these too.
    """

    features: Features
    targets: Floats
    stype: SemanticType
    metric: str
    classes: int = 0
    weights: Floats | None = None
    ages: Floats | None = None
    held_out: NDArray[np.bool_] | None = None

    def rows(self, rows: NDArray[np.bool_]) -> Lessons:
        """Some of the seeds."""

        def of(array: Any) -> Any:
            return None if array is None else array[rows]

        return dataclasses.replace(
            self, features=self.features.rows(rows), targets=self.targets[rows],
            weights=of(self.weights), ages=of(self.ages), held_out=of(self.held_out),
        )  # fmt: skip


def sample_size(seeds: int, classes: int) -> int:
    """The number of train seeds that choose a recipe: a sample, or all if they are few."""
    return min(seeds, max(FEW, 2 * MANY // max(2, classes)))


def choose(lessons: Lessons, *, is_sample: bool = False) -> Recipe:
    """The recipe by which trees on the other seeds answer best those that are held out; small trees
    if nothing can be held out.

    Args:
        is_sample: there are many more seeds, or classes: trees learn faster, and only the features
            that gain most are kept.
    """
    names = lessons.features.names
    objective, table = _objective(lessons), _Table.of(lessons)
    least = min(1.0, LEAST_FEATURES / max(1, len(names)))
    sizes = [{**SMALL, "feature_fraction": max(SMALL["feature_fraction"], least)}, dict(LARGE)]
    for size in sizes:
        size["learning_rate"] *= FASTER if is_sample else 1.0
    most = _most_rounds(objective)
    usual = Recipe(settings=sizes[0], rounds=min(USUAL_ROUNDS, most), features=names)
    if not _can_hold_out(lessons, table, objective):
        return usual
    both = [
        _tried(table, objective, Recipe(settings=size, rounds=most, features=names))
        for size in sizes
    ]
    best = min(both, key=lambda tried: tried.loss)
    if table.ages is not None and np.ptp(table.ages) > 0:
        recent = dataclasses.replace(best.recipe, half_life=HALF_LIFE, rounds=most)
        best = min(best, _tried(table, objective, recent), key=lambda tried: tried.loss)
    if not is_sample:
        return best.recipe
    first = np.sort(np.argsort(-best.gains, kind="stable")[:MOST_FEATURES])
    kept = tuple(names[place] for place in first if best.gains[place] > 0)
    return dataclasses.replace(best.recipe, features=kept or names)


def with_rounds(lessons: Lessons, recipe: Recipe) -> Recipe:
    """The recipe of a sample with as many rounds as suit all seeds."""
    objective, table = _objective(lessons), _Table.of(lessons).shown(recipe.features)
    if not _can_hold_out(lessons, table, objective):
        return recipe
    most = _most_rounds(objective)
    return _tried(table, objective, dataclasses.replace(recipe, rounds=most)).recipe


def fit(lessons: Lessons, recipe: Recipe) -> Boosted:
    """Trees on the train seeds, with those that were held out."""
    known, is_class = np.unique(lessons.targets), lessons.stype == SemanticType.CATEGORICAL
    of_all: dict[str, Any] = {"stype": lessons.stype.name, "classes": lessons.classes}
    if known.size == 1:
        only = (float(known[0]),)
        return Boosted(**of_all, names=lessons.features.names, models=(), known=only)
    objective, table = _objective(lessons), _Table.of(lessons).shown(recipe.features)
    settings = {**objective, **recipe.settings}
    data = table.dataset(settings, half_life=recipe.half_life)
    few = known.size <= 2 or not is_class
    fits = FITS if "bagging_fraction" in settings and few and lessons.targets.size <= MANY else 1
    models = (_fit({**settings, "seed": seed}, data, recipe.rounds) for seed in range(fits))
    shift, scale = _units(lessons)
    return Boosted(
        **of_all, names=recipe.features, shift=shift, scale=scale,
        models=tuple(model.model_to_string() for model in models),
        known=tuple(known.tolist()) if is_class else (),
    )  # fmt: skip


def fit_number(lessons: Lessons, recipe: Recipe) -> Boosted:
    """Trees on a number, as a hurdle if that answers the seeds that are held out better."""
    held_out, is_zero = lessons.held_out, lessons.targets == 0
    may_be = lessons.stype == SemanticType.NUMERICAL and lessons.metric == "rmse"
    if not may_be or not OFTEN <= is_zero.mean() <= 1 - OFTEN or held_out is None:
        return fit(lessons, recipe)
    if min(held_out.sum(), (~is_zero & ~held_out).sum()) < LEAST_HELD_OUT:
        return fit(lessons, recipe)
    rest, part = lessons.rows(~held_out), lessons.rows(held_out)
    recipes = tuple(with_rounds(one, recipe) for one in _hurdle_of(lessons))

    def error(trees: Boosted) -> float:
        return float(np.mean((trees.answers(part.features).values - part.targets) ** 2))

    if error(_fit_hurdle(rest, recipes)) < error(fit(rest, recipe)):
        return _fit_hurdle(lessons, recipes)
    return fit(lessons, recipe)


def _hurdle_of(lessons: Lessons) -> tuple[Lessons, Lessons]:
    """Whether a number is not 0, and the numbers that are not."""
    is_zero = lessons.targets == 0
    whether = dataclasses.replace(
        lessons, targets=(~is_zero).astype(np.float64), stype=SemanticType.BOOLEAN
    )
    return whether, lessons.rows(~is_zero)


def _fit_hurdle(lessons: Lessons, recipes: tuple[Recipe, ...]) -> Boosted:
    chance, amount = map(fit, _hurdle_of(lessons), recipes)
    return dataclasses.replace(amount, chance=chance)


def _objective(lessons: Lessons) -> dict[str, Any]:
    """The settings of LightGBM that follow from the targets."""
    size = lessons.targets.size
    settings = {**SETTINGS, "min_data_in_leaf": max(1, min(MOST_IN_LEAF, size // LEAF_SHARE))}
    if lessons.stype == SemanticType.BOOLEAN:
        return {**settings, "objective": "binary"}
    if lessons.stype == SemanticType.CATEGORICAL:
        count = int(np.unique(lessons.targets).size)
        return {**settings, "objective": "multiclass", "num_class": count}
    return {**settings, "objective": "l1" if lessons.metric == "mae" else "l2"}


def _units(lessons: Lessons) -> tuple[float, float]:
    """(shift, scale) of targets that are numbers or times; (0, 1) of others."""
    if lessons.stype in (SemanticType.BOOLEAN, SemanticType.CATEGORICAL):
        return 0.0, 1.0
    return float(lessons.targets.mean()), spread(lessons.targets)


def _most_rounds(objective: Mapping[str, Any]) -> int:
    return max(1, min(MAX_ROUNDS, MAX_TREES // int(objective.get("num_class", 1))))


def _can_hold_out(lessons: Lessons, table: _Table, objective: Mapping[str, Any]) -> bool:
    """Whether the seeds that are held out can choose: a class that the others do not have has a
    loss without bounds."""
    held_out, labels = lessons.held_out, table.labels
    if held_out is None or held_out.sum() < LEAST_HELD_OUT:
        return False
    least = max(2, np.unique(labels).size if "num_class" in objective else 2)
    return bool(np.unique(labels[~held_out]).size >= least)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Table:
    """The rows that trees learn from, with labels in the units of LightGBM."""

    features: Features
    labels: Floats
    weights: Floats
    ages: Floats | None
    held_out: NDArray[np.bool_] | None

    @classmethod
    def of(cls, lessons: Lessons) -> _Table:
        shift, scale = _units(lessons)
        labels = (lessons.targets - shift) / scale
        if lessons.stype == SemanticType.CATEGORICAL:
            labels = np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.float64)
        weights = np.ones(labels.size) if lessons.weights is None else lessons.weights
        return cls(
            features=lessons.features, labels=labels, weights=weights, ages=lessons.ages,
            held_out=lessons.held_out,
        )  # fmt: skip

    def rows(self, rows: NDArray[np.bool_]) -> _Table:
        """Some of the rows."""
        ages = None if self.ages is None else self.ages[rows]
        return _Table(
            features=self.features.rows(rows), labels=self.labels[rows],
            weights=self.weights[rows], ages=ages, held_out=None,
        )  # fmt: skip

    def shown(self, names: tuple[str, ...]) -> _Table:
        """Some of the features."""
        if names == self.features.names:
            return self
        places = [self.features.names.index(name) for name in names]
        features = dataclasses.replace(
            self.features, names=names, values=self.features.values[:, places]
        )
        return dataclasses.replace(self, features=features)

    def dataset(
        self, settings: Mapping[str, Any], *, half_life: float | None = None, like: Any = None
    ) -> Any:
        """As LightGBM reads it."""
        names, weights = self.features.names, self.weights
        if half_life is not None and self.ages is not None:
            weights = weights * np.exp2(-self.ages / half_life)
        categories = [f for f, name in enumerate(names) if name in self.features.categories]
        return load_lightgbm().Dataset(
            self.features.values, label=self.labels, weight=weights, params=dict(settings),
            categorical_feature=categories, reference=like, free_raw_data=False,
        )  # fmt: skip


class _Tried(NamedTuple):
    """A recipe, its loss on the seeds held out, and the gain of each feature."""

    loss: float
    recipe: Recipe
    gains: Floats


def _tried(table: _Table, objective: Mapping[str, Any], recipe: Recipe) -> _Tried:
    """A recipe with the number of rounds that is best for the seeds held out, at most its own."""
    assert table.held_out is not None
    settings = {**objective, **recipe.settings, "seed": 0}
    data = table.rows(~table.held_out).dataset(settings, half_life=recipe.half_life)
    rest = table.rows(table.held_out).dataset(settings, like=data)
    trees = _fit(settings, data, recipe.rounds, rest)
    (loss,) = trees.best_score["valid_0"].values()
    rounds = max(1, int(trees.best_iteration))
    gains = np.asarray(trees.feature_importance("gain", iteration=rounds), np.float64)
    return _Tried(float(loss), dataclasses.replace(recipe, rounds=rounds), gains)


def _fit(settings: Mapping[str, Any], data: Any, rounds: int, until: Any = None) -> Any:
    """Boosted trees; with `until` as many as tell that data best."""
    lightgbm = load_lightgbm()
    stop = [lightgbm.early_stopping(PATIENCE, verbose=False)] if until is not None else []
    return lightgbm.train(
        dict(settings), data, num_boost_round=rounds, callbacks=stop,
        valid_sets=[] if until is None else [until],
    )  # fmt: skip
