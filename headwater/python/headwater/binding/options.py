"""hw_sampler_options, by the library's own table of its members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ctypes import (
    addressof,
    c_double,
    c_int32,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
    sizeof,
)
from dataclasses import dataclass
from typing import Any

from headwater.binding import header
from headwater.binding.conversions import CONVERSIONS, i64_array, u32_array, weights
from headwater.binding.library import lib, read

ITEMS: dict[int, Any] = {
    header.HW_OPTION_FLAG: c_uint8,
    header.HW_OPTION_WORD: c_uint,
    header.HW_OPTION_UINT32: c_uint32,
    header.HW_OPTION_INT32: c_int32,
    header.HW_OPTION_UINT64: c_uint64,
    header.HW_OPTION_DOUBLE: c_double,
}
LISTS: dict[int, Any] = {
    header.HW_OPTION_TIMES: i64_array,
    header.HW_OPTION_NUMBERS: u32_array,
    header.HW_OPTION_WEIGHTS: weights,
}
# What Python calls otherwise than C: the first two by seed 000.
NAMES = {
    "batch_size": "default_batch_size", "sequence_length": "default_sequence_length",
    "child_width": "bfs_child_width", "width_scope": "child_width_per",
    "staleness_max_days": "staleness",
}  # fmt: skip


def in_python(text: str) -> str:
    """A text of the library, with the options called what Python calls them."""
    return re.sub(r"\b\w+\b", lambda found: NAMES.get(found[0], found[0]), text)


@dataclass(frozen=True)
class Option:
    """A row of the table: hw_option_field."""

    name: str
    type: int
    offset: int
    count: int
    standard: tuple[float, ...]
    least: float
    most: float
    words: tuple[str, ...]
    decides_contexts: bool
    doc: str

    @property
    def is_list(self) -> bool:
        return self.type in LISTS


def _read(field: Any) -> Option:
    words: list[str] = []
    while field.words and field.words[len(words)] is not None:
        words.append(field.words[len(words)].decode())
    is_list = field.type in LISTS
    return Option(
        field.name.decode(), field.type, field.offset, field.count,
        () if is_list else tuple(field.standard[: field.count]), field.least, field.most,
        tuple(words), bool(field.decides_contexts), field.doc.decode(),
    )  # fmt: skip


def option_fields() -> dict[str, Option]:
    """The options of a sampler by name, in the order of the struct."""
    numbers = range(lib.hw_option_field_count())
    rows = (read("hw_option_field", lib.hw_option_field_at, number) for number in numbers)
    return {option.name: option for option in map(_read, rows)}


OPTIONS = option_fields()
BYTES = sizeof(header.STRUCTS["hw_sampler_options"])


class SamplerOptions:
    """The struct with its defaults, but for the values that are given; it keeps their lists."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._lists: list[Any] = []
        self._memory = create_string_buffer(BYTES)
        lib.hw_sampler_options_init(self._memory, BYTES)
        for name, value in values.items():
            if name not in OPTIONS:
                raise TypeError(f"hw_sampler_options has no member '{name}'")
            if value is not None:
                self._set(OPTIONS[name], value)

    @property
    def address(self) -> int:
        return addressof(self._memory)

    def _set(self, option: Option, value: Any) -> None:
        if option.is_list:
            self._set_list(option, value)
            return
        item = ITEMS[option.type]
        values = value if option.count > 1 else [value]
        _check_length(option, values)
        at = (item * option.count).from_buffer(self._memory, option.offset)
        at[:] = [CONVERSIONS[item](one) for one in values]

    def _set_list(self, option: Option, values: Any) -> None:
        if option.type == header.HW_OPTION_NUMBERS:
            c_uint32.from_buffer(self._memory, option.count).value = len(values)
        elif option.type == header.HW_OPTION_TIMES:
            _check_length(option, values)
        made = LISTS[option.type](values)
        self._lists.append(made)
        c_void_p.from_buffer(self._memory, option.offset).value = addressof(made)


def _check_length(option: Option, values: Any) -> None:
    if len(values) != option.count:
        raise ValueError(f"{option.name} has {len(values)} entries, expected {option.count}")
