"""How far one thing determines another, in plain statistics over a few thousand pairs.

Numbers tell classes by the area under the ROC curve, numbers by correlation (of values or ranks);
categories tell classes by how often the usual class of a category is right, beyond chance, and
numbers by the variance that they explain. Only categories that stand for several anchors count: a
name of its own for each determines anything, and an anchor may be asked about many times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STRONG = 0.98
SAME = 1e-9  # of 1 - |correlation|: the same number in another unit
CLASS_MIN = 10  # of the rarer class
NO_CATEGORY = -1
VALUES_MIN = 10  # distinct numbers, to be the same number
GROUP_MEAN = 3  # pairs per category


@dataclass(frozen=True)
class Evidence:
    """strength in 0..1, over `count` pairs; is_target: one is a renaming of the other."""

    strength: float = 0.0
    count: int = 0
    text: str = ""
    is_target: bool = False


def compare(
    number: Array, category: Array, target: Array, anchors: Array, *, is_class: bool
) -> Evidence:
    """The best of what a number (NaN: none) and a category (NO_CATEGORY: none) say about a target
    (NaN: none) of an anchor; all [n]."""
    asked = np.isfinite(target)
    found = [Evidence()]
    with_number = asked & np.isfinite(number)
    if with_number.any():
        by_number = number_and_class if is_class else number_and_number
        found.append(by_number(number[with_number], target[with_number]))
    with_category = asked & (category != NO_CATEGORY)
    if with_category.any():
        by_category = category_and_class if is_class else category_and_number
        both = category[with_category], target[with_category]
        found.append(by_category(*both, anchors[with_category]))
    return max(found, key=lambda evidence: (evidence.is_target, evidence.strength))


def number_and_class(number: Array, target: Array) -> Evidence:
    """The AUROC of each class against the others, weighted by how many have it."""
    ranks, areas, counts = rank(number), [], []
    for one in np.unique(target):
        inside = target == one
        count, others = int(inside.sum()), int((~inside).sum())
        if min(count, others) >= CLASS_MIN:
            area = (ranks[inside].sum() - count * (count + 1) / 2) / (count * others)
            areas.append(max(area, 1 - area))
            counts.append(count)
    if not counts:
        return Evidence(count=len(target))
    strength = float(np.average(areas, weights=counts))
    return Evidence(strength, len(target), f"AUROC {strength:.3f}")


def number_and_number(number: Array, target: Array) -> Evidence:
    """Pearson's or Spearman's correlation, whichever is larger."""
    if min(len(np.unique(number)), len(np.unique(target))) < VALUES_MIN:
        return Evidence(count=len(target))
    values = abs(correlation(number, target))
    ranks = abs(correlation(rank(number), rank(target)))
    strength = max(values, ranks)
    is_target = 1 - values < SAME
    return Evidence(strength, len(target), f"correlation {strength:.4f}", is_target)


def category_and_class(category: Array, target: Array, anchors: Array) -> Evidence:
    """How much more than chance is right, if each category stands for its usual class."""
    several, group = of_several(category, anchors)
    classes, second = np.unique(target, return_inverse=True)
    table = np.zeros((len(several), len(classes)), np.int64)
    np.add.at(table, (group, second), 1)
    count, chance = int(table[several].sum()), table.sum(0).max() / len(target)
    few = len(classes) < 2 or np.sort(table.sum(0))[-2] < CLASS_MIN
    if few or count == 0 or count < GROUP_MEAN * several.sum():
        return Evidence(count=count)
    right = table[several].max(1).sum() / count
    strength = max((right - chance) / (1 - chance), 0.0)
    one_to_one = bool(((table > 0).sum(1) == 1).all() and ((table > 0).sum(0) == 1).all())
    text = "one to one" if one_to_one else f"{right:.1%} agree by its value"
    return Evidence(strength, count, text, one_to_one)


def category_and_number(category: Array, target: Array, anchors: Array) -> Evidence:
    """The share of the variance that is between the categories."""
    several, group = of_several(category, anchors)
    sizes, kept, variance = np.bincount(group), several[group], target.var()
    count = int(kept.sum())
    if variance == 0 or count == 0 or count < GROUP_MEAN * several.sum():
        return Evidence(count=count)
    means = np.bincount(group, target) / sizes
    within = float(((target - means[group])[kept] ** 2).mean())
    strength = max(1 - within / variance, 0.0)
    return Evidence(strength, count, f"it explains {strength:.1%} of the variance")


def of_several(category: Array, anchors: Array) -> tuple[Array, Array]:
    """bool by category: it stands for several anchors; and the category of each pair."""
    names, group = np.unique(category, return_inverse=True)
    pairs = np.unique(np.stack([group, anchors]), axis=1)
    return np.bincount(pairs[0], minlength=len(names)) > 1, group


def correlation(one: Array, two: Array) -> float:
    a, b = one - one.mean(), two - two.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def rank(values: Array) -> Array:
    """From 1, equal values sharing the mean of theirs; float64."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes - 1) / 2)[group]
