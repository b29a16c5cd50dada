"""headwater.h as ctypes has it: its numbers, structs, callbacks and functions, read at import.

The header lies beside the library. Python declares nothing of it a second time, and a C compiler
checks what is read (test_binding.py). It reads the C that the header is written in: numbers by
`#define` and `enum`, `typedef struct` of values, arrays and pointers, functions of values and
pointers. An enum is a c_uint, and what a parameter points at is the caller's to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

HEADER = Path(__file__).with_name("headwater.h")

_DECLARATION = re.compile(
    r"^(?:#define (?P<number>HW_\w+) (?P<value>\d+)u?$"
    r"|typedef (?P<kind>enum|struct) (?P<type>\w+) \{(?P<body>.*?)\} \w+;"
    r"|(?P<start>typedef |HW_API |HW_CHECK )(?P<result>[\w *]+?)(?:\(\*)?(?P<name>hw_\w+)\)?"
    r"\((?P<parameters>.*?)\);)",
    re.DOTALL | re.MULTILINE,
)

NUMBERS: dict[str, int] = {}
ENUMS: dict[str, dict[str, int]] = {}
STRUCTS: dict[str, Any] = {}
CALLBACKS: dict[str, Any] = {}
# By name: the declaration, what the function returns, and what it takes.
FUNCTIONS: dict[str, tuple[str, Any, list[Any]]] = {}
# What a value is by the first word of its declaration: enums, structs and callbacks are added.
VALUES: dict[str, Any] = {
    "void": None,
    "char": c_char,
    "double": c_double,
    "float": c_float,
    "int": c_int,
    "int32_t": c_int32,
    "int64_t": c_int64,
    "size_t": c_size_t,
    "uint8_t": c_uint8,
    "uint16_t": c_uint16,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
}


def _read(text: str) -> None:
    for found in _DECLARATION.finditer(re.sub(r" */\*.*?\*/", "", text, flags=re.DOTALL)):
        name, body = found["name"], found["body"]
        if found["number"]:
            NUMBERS[found["number"]] = int(found["value"])
        elif found["kind"] == "enum":
            pairs = (pair.split(" = ") for pair in body.split(",") if pair.strip())
            ENUMS[found["type"]] = {number.strip(): int(value) for number, value in pairs}
            NUMBERS.update(ENUMS[found["type"]])
            VALUES[found["type"]] = c_uint
        elif found["kind"] == "struct":
            made = type(found["type"], (Structure,), {"_fields_": [*_members(body)]})
            STRUCTS[made.__name__] = VALUES[made.__name__] = made
        else:
            listed = "" if found["parameters"] == "void" else found["parameters"]
            types = [_passed(one.strip()) for one in listed.split(",") if one]
            if found["start"] == "typedef ":
                CALLBACKS[name] = CFUNCTYPE(_passed(found["result"]), *types)
                VALUES[name] = c_void_p
            else:
                declaration = f"{found['result']}{name}({found['parameters']});"
                FUNCTIONS[name] = declaration, _passed(found["result"]), types


def _passed(declared: str) -> Any:
    """The type of a parameter or of a result."""
    if "*" not in declared and "[" not in declared:
        return VALUES[declared.split()[0]]
    is_text = declared.startswith("const char *") and declared.count("*") == 1
    return c_char_p if is_text else c_void_p


def _members(body: str) -> Iterator[tuple[str, Any]]:
    for declared in filter(None, map(str.strip, body.split(";"))):
        first, names = declared.removeprefix("const ").split(None, 1)
        for name in names.split(","):
            item: Any = VALUES.get(first)
            stars = name.count("*")
            if stars:
                item = c_char_p if first == "char" else c_void_p if item is None else POINTER(item)
            if stars == 2:
                item = POINTER(item)
            member, *counts = name.replace("]", "").split("[")
            for count in reversed(counts):
                item = item * (NUMBERS[count] if count in NUMBERS else int(count))
            yield member.split()[-1].lstrip("*"), item


_read(HEADER.read_text(encoding="ascii"))


def __getattr__(name: str) -> int:
    """A number by its name: `from headwater.binding.header import HW_OK`."""
    try:
        return NUMBERS[name]
    except KeyError:
        raise AttributeError(f"headwater.h has no {name}") from None
