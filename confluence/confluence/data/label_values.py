"""Whether there is anything to learn from the labels of train, and to score on another split.

Labels of one value teach nothing, and most metrics of a split of one value are not defined: a run
that ended in dashes and an accuracy of 1.000 is refused before it begins, with the counts of every
split. Where seeds are dealt by hash, the message names a split_seed under which every split has
two values, found with the sampler itself. A split whose labels are hidden is predicted, not scored.
Labels beyond float32 are refused, too, and a split whose classes are all missing in train; if some
are, a line reports them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import headwater
import numpy as np
from headwater.shared import open_windows_text, why_empty
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import (
    NO_BATCHES,
    SPLITS,
    TRAIN,
    VAL,
    Labels,
    TaskError,
    find_task,
    open_sampler,
)

SPLIT_SEEDS = 500  # tried, from 0
SEARCH_SECONDS = 5.0  # at most
SHOWN_CHARACTERS = 40  # of a value
SHOWN_CLASSES = 3  # of those that train lacks
FLOAT32_MAX = float(np.finfo(np.float32).max)


def check_label_values(
    name: str, metadata: Mapping[str, Any], labels: Labels, cfg: Config, *,
    store: headwater.Store | None, scored: str | None = None,
) -> None:  # fmt: skip
    """Raise where train has nothing to learn from, or the split `scored` nothing to be scored on.

    Args:
        metadata: of the store that has the task `name`.
        store: with which a split_seed is looked for; None: the run has a pack of it.
    """
    entry = metadata["tasks"][find_task(metadata, name)]
    _refuse_too_large(name, labels, entry)
    for split in dict.fromkeys(("train", scored or "train")):
        fault = _fault(split, labels, entry, metadata)
        if fault is not None:
            counts = "; ".join(f"{each} {_counts(labels, each, entry)}" for each in SPLITS)
            advice = _mending(store, name, split, metadata, labels, cfg)
            raise TaskError(f"task '{name}': {fault} ({counts}). {advice}")
    text = describe_unseen_classes(name, metadata, labels, cfg)
    if scored is not None and text is not None:
        known = labels.is_known & (labels.splits == SPLITS[scored])
        if known.any() and _is_unseen(labels, cfg)[known].all():
            raise TaskError(f"{text}. Split '{scored}' has nothing else to be scored on")


def describe_unseen_classes(
    name: str, metadata: Mapping[str, Any], labels: Labels, cfg: Config
) -> str | None:
    """How many labels of val and test are of classes that train lacks; None if none are."""
    entry = metadata["tasks"][find_task(metadata, name)]
    if entry["target_stype"] != "categorical":
        return None
    is_unseen, counts = _is_unseen(labels, cfg), []
    for split in ("test", "val"):
        known = labels.is_known & (labels.splits == SPLITS[split])
        if count := int(is_unseen[known].sum()):
            counts.append(f"{count:,} of {int(known.sum()):,} labels of split '{split}'")
    if not counts:
        return None
    classes, sizes = np.unique(labels.targets[is_unseen], return_counts=True)
    largest = np.argsort(-sizes, kind="stable")[:SHOWN_CLASSES]
    shown = ", ".join(
        f"{_text(float(classes[k]), entry, metadata)} ({sizes[k]:,})" for k in largest
    )
    return (
        f"task '{name}': {' and '.join(counts)} are of classes that train does not have,"
        f" {classes.size:,} in all, such as {shown}: no training can teach them, and they count as"
        " wrong answers. Give rare classes one name in the query, or give train some of them"
        " (--split-column)"
    )


def _is_unseen(labels: Labels, cfg: Config) -> NDArray[np.bool_]:
    """Which labels of val and test are of classes that no label has that is trained on."""
    trained = np.isin(labels.splits, (TRAIN, VAL) if cfg.train_on_val else (TRAIN,))
    seen = np.isin(labels.targets, labels.targets[trained & labels.is_known])
    unseen: NDArray[np.bool_] = labels.is_known & ~seen & np.isin(labels.splits, [*SPLITS.values()])
    return unseen


def _refuse_too_large(name: str, labels: Labels, entry: Mapping[str, Any]) -> None:
    """Raise if float32 does not hold some labels: the loss would not be finite."""
    sizes = np.where(labels.is_known, np.abs(labels.targets), 0.0)
    if entry["target_stype"] != "numerical" or not (too_large := sizes > FLOAT32_MAX).any():
        return
    counts = ", ".join(
        f"{split} {int(too_large[labels.splits == number].sum()):,}"
        for split, number in SPLITS.items()
    )
    example = labels.targets[int(sizes.argmax())]
    target, mending = f"'{entry['target_column']}'", "let the query answer NULL for them"
    if entry["kind"] == "cell":
        target = f"{entry['anchor_table']}.{entry['target_column']}"
        mending = 'add them to its "null_values" in the metadata'
    raise TaskError(
        f"task '{name}': {int(too_large.sum()):,} of {int(labels.is_known.sum()):,} labels in"
        f" {target} are beyond what float32 holds (3.4e38), such as {example:g} ({counts}): no"
        f" loss of them is finite. If they stand for no value, {mending}; else give them in a"
        " larger unit"
    )


def has_two_values(labels: Labels, chosen: NDArray[np.bool_]) -> bool:
    """Whether some known labels differ."""
    known = labels.targets[chosen & labels.is_known]
    return bool(known.size) and bool(known.min() < known.max())


def _fault(
    split: str, labels: Labels, entry: Mapping[str, Any], metadata: Mapping[str, Any]
) -> str | None:
    """What is wrong with a split; None where nothing is."""
    aim = "learn from" if split == "train" else "be scored on"
    here = labels.splits == SPLITS[split]
    if not here.any():
        return f"split '{split}' has no seeds to {aim}"
    if not (here & labels.is_labelled).any():
        return f"no seed of split '{split}' has a label to {aim}" if split == "train" else None
    known = labels.targets[here & labels.is_known]
    if not known.size:
        return f"all labels of split '{split}' are NULL or NaN, there is nothing to {aim}"
    if has_two_values(labels, here):
        return None
    value = _text(float(known[0]), entry, metadata)
    return f"all {known.size:,} labels of split '{split}' are {value}, there is nothing to {aim}"


def _text(value: float, entry: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """A label for people."""
    if entry["target_stype"] == "boolean":
        return "true" if value else "false"
    if entry["target_stype"] == "categorical":
        stats = metadata["columns"][entry["target_column_id"]].get("stats") or {}
        return f"'{stats['categories'][int(value)][:SHOWN_CHARACTERS]}'"
    return "the same time" if entry["target_stype"] == "timestamp" else f"{value:g}"


def _counts(labels: Labels, split: str, entry: Mapping[str, Any]) -> str:
    here = labels.splits == SPLITS[split]
    known = labels.targets[here & labels.is_known]
    if not here.any():
        return "0 seeds"
    parts = []
    if known.size and entry["target_stype"] == "boolean":
        parts = [f"{int(known.sum()):,} true", f"{int(known.size - known.sum()):,} false"]
    elif known.size:
        distinct = np.unique(known).size
        parts = [f"{known.size:,} labels of {distinct:,} value{'s' * (distinct != 1)}"]
    nulls = int((here & labels.is_labelled & ~labels.is_known).sum())
    hidden = int((here & ~labels.is_labelled).sum())
    parts += [f"{nulls:,} NULL or NaN"] * (nulls > 0) + [f"{hidden:,} without label"] * (hidden > 0)
    return ", ".join(parts)


def _mending(
    store: headwater.Store | None, name: str, split: str, metadata: Mapping[str, Any],
    labels: Labels, cfg: Config,
) -> str:  # fmt: skip
    """How to mend a split without enough seeds: first the reasons why its rows were dropped."""
    entry = metadata["tasks"][find_task(metadata, name)]
    here = labels.splits == SPLITS[split]
    stored = split if cfg.past is None else None
    why: str | None = None
    if not here.any():
        why = why_empty(metadata, name, stored)
    elif not labels.is_labelled[here].all():
        why = open_windows_text(entry, lost=True)
    if why is None:
        return _advice(store, name, entry, labels, cfg)
    why = why[0].upper() + why[1:]
    if entry["split"] != "hash" or not labels.splits.size:
        return why
    return f"{why}. {_advice(store, name, entry, labels, cfg)}"


def _advice(
    store: headwater.Store | None, name: str, entry: Mapping[str, Any], labels: Labels, cfg: Config
) -> str:
    if not has_two_values(labels, np.ones(labels.targets.shape, bool)):
        return "No split can mend that: correct the task's query, or the times that it asks about"
    if entry["split"] != "hash":
        return (
            "Correct the column or the label tables that say which seed is in which split (a"
            " query's is named with --split-column), or score another one with --split"
        )
    seed = None if store is None else find_split_seed(store, name, labels, cfg)
    column = "Say which seed is in which split with a column of the query (--split-column)"
    if seed is None:
        return column
    both = "true and false" if entry["target_stype"] == "boolean" else "different labels"
    return f"{column}, or use --split-seed {seed}: every split then has {both}"


def find_split_seed(store: headwater.Store, name: str, labels: Labels, cfg: Config) -> int | None:
    """The first split_seed by which every split that the run has gets labels that differ."""
    splits = [
        number
        for (split, number), share in zip(SPLITS.items(), cfg.split_ratios, strict=True)
        if share > 0 and not (split == "val" and cfg.train_on_val)
    ]
    values, counts = np.unique(labels.targets[labels.is_known], return_counts=True)
    is_rare = labels.is_known & (labels.targets != values[counts.argmax()])
    if cfg.past is not None or np.unique(labels.anchor_rows[is_rare]).size < len(splits):
        return None  # seeds of an anchor stay together: some split has but the commonest value
    end = time.monotonic() + SEARCH_SECONDS
    for seed in range(SPLIT_SEEDS):
        with open_sampler(store, cfg.replace(split_seed=seed), name, **NO_BATCHES) as sampler:
            dealt = np.asarray(sampler.splits(name))
        if all(has_two_values(labels, dealt == number) for number in splits):
            return seed
        if time.monotonic() > end:
            break
    return None
