"""What values the settings of Config may have: of which kinds, as its fields are declared, and in
which range or among which words each. What settings ask of one another is said in `config.py`."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

LOG_SINKS = ("tensorboard", "wandb", "mlflow")
CHOICES: dict[str, tuple[str | None, ...]] = {
    "attention": ("auto", "compiled", "rows", "dense"),
    "compute_dtype": ("auto", "float32", "bfloat16"),
    "child_order": ("recent", "uniform"),
    "context_labels": (None, "train", "none", "all"),
    "identifier_cells": ("all", "foreign_keys", "none"),
    "metric": ("mae", "rmse"),
    "objective": ("task", "masked_cells"),
}
RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (
        "≥ 1",
        lambda value: value >= 1,
        "width heads layers child_width batch_size steps accumulate log_every"
        " num_threads max_targets_per_type",
    ),
    (
        "≥ 0",
        lambda value: value >= 0,
        "max_hops label_rows num_prefetch eval_every save_every"
        " muon_learning_rate learning_rate final_learning_rate weight_decay auxiliary_weight",
    ),
    (
        "> 0",
        lambda value: value > 0,
        "clip_norm half_life_days",
    ),
    (
        "> 0 and finite",
        lambda value: 0 < value < math.inf,
        "collective_timeout_s",
    ),
    ("in [0, 1)", lambda value: 0 <= value < 1, "beta1 beta2 cell_dropout"),
    ("in (0, 1]", lambda value: 0 < value <= 1, "mask_ratio"),
    ("in [1, 65535]", lambda value: 1 <= value <= 65_535, "sequence_length max_rows"),
    ("in [0, 1024]", lambda value: 0 <= value <= 1024, "peer_labels"),
)
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def setting_kinds(settings: type) -> dict[str, tuple[Any, ...]]:
    """Of each field of a dataclass what its value may be: int, type(None), tuple[str, ...], ..."""
    hints = typing.get_type_hints(settings)
    unions = (typing.Union, types.UnionType)
    return {
        name: typing.get_args(hint) if typing.get_origin(hint) in unions else (hint,)
        for name, hint in hints.items()
    }


def tuple_kind(kinds: tuple[Any, ...]) -> Any:
    """The tuple[...] among the kinds of a setting; None if it is none."""
    return next((kind for kind in kinds if typing.get_origin(kind) is tuple), None)


def problems_of_kinds(settings: Any) -> Iterator[str]:
    """What is of another kind than its field is declared."""
    for name, kinds in setting_kinds(type(settings)).items():
        value = getattr(settings, name)
        if not any(_is_of(kind, value) for kind in kinds):
            expected = " or ".join(_in_words(kind) for kind in kinds)
            yield f"{name} is {value!r}, expected {expected}"


def problems_of_values(settings: Any) -> Iterator[str]:
    """What is of the right kind, and out of its range or none of its words."""
    for said, is_within, names in RANGES:
        for name in names.split():
            value = getattr(settings, name)
            if value is not None and not is_within(value):
                yield f"{name} is {value}, must be {said}"
    for name, allowed in CHOICES.items():
        if getattr(settings, name) not in allowed:
            yield f"{name} is {getattr(settings, name)!r}, expected one of {allowed}"
    if not set(settings.log_to) <= set(LOG_SINKS):
        yield f"log_to is {settings.log_to!r}, expected some of {LOG_SINKS}"


def plain(value: Any) -> Any:
    """A value that JSON can hold for one of NumPy."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, int | float):
        return float(value)
    return value


def _is_of(kind: Any, value: Any) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral)
    if kind is float:
        return isinstance(value, Real) and not math.isnan(value)
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if not isinstance(value, tuple) or (parts[-1] is not ... and len(value) != len(parts)):
            return False
        return all(_is_of(parts[0], part) for part in value)
    return isinstance(value, kind)


def _in_words(kind: Any) -> str:
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        several = {str: "texts", float: "numbers"}[parts[0]]
        return f"a tuple of {several}" if parts[-1] is ... else f"{len(parts)} {several}"
    return WORDS.get(kind, "None")
