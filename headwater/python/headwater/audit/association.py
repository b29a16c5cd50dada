"""How well one thing tells another, in plain statistics over a few thousand pairs.

Numbers tell classes by the area under the ROC curve, numbers by correlation (of values or ranks);
categories tell classes by how often the usual class of a category is right, beyond chance, and
numbers by the variance that they explain. Only values that stand for several rows count, as a value
of its own for each row determines anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STRONG = 0.98
SAME = 1e-9  # of 1 - |correlation|: the same number in another unit
CLASS_MIN = 10  # of the rarer class
VALUES_MIN = 10  # distinct numbers, to be the same number
GROUP_MEAN = 3  # rows per category


@dataclass(frozen=True)
class Evidence:
    """strength in 0..1; is_target: one is a renaming of the other, in all `count` pairs."""

    strength: float = 0.0
    count: int = 0
    text: str = ""
    is_target: bool = False

    @property
    def is_strong(self) -> bool:
        return self.strength >= STRONG

    def of(self, what: str) -> Evidence:
        return replace(self, text=what + self.text)


def compare(
    number: Array, category: Array, target: Array, stype: str, no_category: int
) -> Evidence:
    """The best of what a number (NaN: none) and a category say about a target (NaN: none)."""
    asked = np.isfinite(target)
    is_class = stype in ("boolean", "categorical")
    found = [Evidence()]
    with_number = asked & np.isfinite(number)
    if with_number.any():
        by_number = number_and_class if is_class else number_and_number
        found.append(by_number(number[with_number], target[with_number]))
    with_category = asked & (category != no_category)
    if with_category.any():
        by_category = category_and_class if is_class else category_and_number
        found.append(by_category(category[with_category], target[with_category]))
    return max(found, key=lambda evidence: (evidence.is_target, evidence.strength))


def number_and_class(number: Array, target: Array) -> Evidence:
    """The best AUROC of any class against the others."""
    best = Evidence(count=len(target))
    ranks = rank(number)
    for one in np.unique(target):
        inside = target == one
        count, others = int(inside.sum()), int((~inside).sum())
        if min(count, others) < CLASS_MIN:
            continue
        area = (ranks[inside].sum() - count * (count + 1) / 2) / (count * others)
        strength = max(area, 1 - area)
        if strength > best.strength:
            best = Evidence(strength, len(target), f"AUROC {strength:.3f}")
    return best


def number_and_number(number: Array, target: Array) -> Evidence:
    """Pearson's or Spearman's correlation, whichever is larger."""
    if min(len(np.unique(number)), len(np.unique(target))) < VALUES_MIN:
        return Evidence(count=len(target))
    values = abs(correlation(number, target))
    ranks = abs(correlation(rank(number), rank(target)))
    strength = max(values, ranks)
    is_target = 1 - values < SAME
    return Evidence(strength, len(target), f"correlation {strength:.4f}", is_target)


def category_and_class(category: Array, target: Array) -> Evidence:
    """How much of what is not chance is right, if each category says its usual class."""
    _, first = np.unique(category, return_inverse=True)
    classes, second = np.unique(target, return_inverse=True)
    table = np.zeros((first.max() + 1, len(classes)), np.int64)
    np.add.at(table, (first, second), 1)
    several = table.sum(1) > 1
    count, chance = int(table[several].sum()), table.sum(0).max() / len(target)
    if len(classes) < 2 or np.sort(table.sum(0))[-2] < CLASS_MIN:
        return Evidence(count=len(target))
    if count < GROUP_MEAN * several.sum() or count == 0:
        return Evidence(count=len(target))
    right = table[several].max(1).sum() / count
    strength = max((right - chance) / (1 - chance), 0.0)
    one_to_one = bool(((table > 0).sum(1) == 1).all() and ((table > 0).sum(0) == 1).all())
    text = "one to one" if one_to_one else f"{right:.1%} agree by its value"
    return Evidence(strength, len(target), text, one_to_one)


def category_and_number(category: Array, target: Array) -> Evidence:
    """The share of the variance that is between the categories."""
    _, group, sizes = np.unique(category, return_inverse=True, return_counts=True)
    kept = sizes[group] > 1
    variance = target.var()
    if kept.sum() < GROUP_MEAN * (sizes > 1).sum() or variance == 0 or not kept.any():
        return Evidence(count=len(target))
    means = np.bincount(group, target) / sizes
    within = float(((target - means[group])[kept] ** 2).mean())
    strength = max(1 - within / variance, 0.0)
    count = int(kept.sum())
    return Evidence(strength, count, f"it explains {strength:.1%} of the variance")


def correlation(one: Array, two: Array) -> float:
    a, b = one - one.mean(), two - two.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def rank(values: Array) -> Array:
    """From 1, equal values sharing the mean of theirs; float64."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes - 1) / 2)[group]
