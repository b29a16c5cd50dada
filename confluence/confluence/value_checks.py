"""What a setting is: a field of Config that knows its group, what it means and which values it may
have. What settings ask of one another is in `config.py`."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

GROUPS = ("model", "context", "training", "expert")
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting apart from its type and default."""

    group: str  # one of GROUPS
    doc: str
    within: str | None  # "[0, 1)": numbers from 0 to less than 1
    words: tuple[str, ...]  # what a text, or each of several, may be; none: any


def setting(
    group: str, default: Any, doc: str, within: str | None = None, *, words: tuple[str, ...] = ()
) -> Any:
    """A field of Config."""
    return dataclasses.field(
        default=default, metadata={"setting": Setting(group, doc, within, words)}
    )


def settings_of(settings: Any) -> dict[str, Setting]:
    """All settings of a Config by name."""
    fields = dataclasses.fields(settings)
    return {f.name: f.metadata["setting"] for f in fields if "setting" in f.metadata}


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
    for name, about in settings_of(settings).items():
        value = getattr(settings, name)
        if value is None:
            continue
        is_text = isinstance(value, str)
        if about.within is not None and not is_text and not _is_within(about.within, value):
            yield f"{name} is {value}, must be {in_signs(about.within)}"
        is_number = about.within is not None and not is_text
        given = set(value) if isinstance(value, tuple) else {value}
        if about.words and not is_number and not given <= {*about.words}:
            some = "some" if isinstance(value, tuple) else "one"
            or_none = " or None" if type(None) in setting_kinds(type(settings))[name] else ""
            or_number = "" if about.within is None else "a whole number, or "
            yield f"{name} is {value!r}, expected {or_number}{some} of {about.words}{or_none}"


def _is_within(within: str, value: float) -> bool:
    low, high = map(float, within[1:-1].split(","))
    above = low <= value if within[0] == "[" else low < value
    return above and (value <= high if within[-1] == "]" else value < high)


def in_signs(within: str) -> str:
    """A range for people: "≥ 1", "in [0, 1)"."""
    low, high = within[1:-1].split(", ")
    if float(high) < math.inf:
        return f"in {within}"
    finite = "" if within[-1] == "]" else " and finite"
    return f"{'≥' if within[0] == '[' else '>'} {low}{finite}"


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


def typed(value: Any) -> str:
    """A value as it is given on a command line."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(typed, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
