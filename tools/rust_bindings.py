"""Writes headwater.h as Rust: bindings/rust/headwater-sys/src/bindings.rs.

    python tools/rust_bindings.py HEADER [--check FILE]

Prints the declarations; with --check compares them with a file instead. The header is C that is
simple enough for patterns: numbers, enums, structs of values, arrays and pointers, callbacks, and
functions. Enums are integers in Rust, as a value that is none of an enum's would be undefined
behaviour. layout() lists sizes and offsets, which tests/layout.rs compares with a C compiler's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from written import deliver, parser

HEAD = """\
// Written by tools/rust_bindings.py from headwater.h, whose comments are the documentation.
use core::ffi::{c_char, c_int, c_void};
"""
VALUES = {
    "void": "c_void", "char": "c_char", "int": "c_int", "double": "f64", "float": "f32",
    "size_t": "usize", "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64",
    "int32_t": "i32", "int64_t": "i64",
}  # fmt: skip
KEYWORDS = {"type", "in", "ref", "use", "where", "match", "move"}  # those that a header may hold
ITEM = re.compile(
    r"^#define (?P<number>HW_\w+) (?P<value>\d+)u?$"
    r"|^typedef enum (?P<enum>\w+) \{(?P<words>.*?)\}"
    r"|^(?:typedef )?struct (?P<struct>\w+) \{(?P<members>.*?)\n\}"
    r"|^typedef struct (?P<opaque>\w+) \w+;"
    r"|^typedef (?P<back>\w+) \(\*(?P<callback>\w+)\)\((?P<given>.*?)\);"
    r"|^(?:HW_API|HW_CHECK) (?P<result>[\w *]+?)(?P<function>hw_\w+)\((?P<taken>.*?)\);",
    re.DOTALL | re.MULTILINE,
)
CALLBACK = re.compile(r"(?P<result>[\w *]+?)\(\*(?P<name>\w+)\)\((?P<taken>.*)\)", re.DOTALL)
EXTERN = 'unsafe extern "C"'
LAYOUT = """\
/// Struct, member and offset; for the member "" the size of the struct.
#[doc(hidden)]
pub fn layout() -> &'static [(&'static str, &'static str, usize)] {
"""


def rust_type(base: str, stars: list[str], *, is_const: bool) -> str:
    """A C type in Rust; stars: each '*', and 'const' behind those pointers that are constant."""
    found = VALUES.get(base, base)
    for word in stars:
        if word == "*":
            found = f"*{'const' if is_const else 'mut'} {found}"
        is_const = word == "const"
    return found


def declared(text: str) -> tuple[str, str, list[str], bool]:
    """Name, Rust type, array lengths, and whether its elements are constant, of a declaration."""
    lengths = re.findall(r"\[(\w*)\]", text)
    words = re.sub(r"\[\w*\]", "", text).replace("*", " * ").replace("struct ", " ").split()
    is_const = words[0] == "const"
    base, *rest = words[is_const:]
    name = rest.pop() if rest and rest[-1] not in ("*", "const") else ""
    return (
        name + "_" * (name in KEYWORDS),
        rust_type(base, rest, is_const=is_const),
        lengths,
        is_const,
    )


def members(body: str) -> Iterator[tuple[str, str]]:
    """Name and type of each member of a struct."""
    for line in filter(None, map(str.strip, body.split(";"))):
        callback = CALLBACK.fullmatch(line)
        if callback:
            yield callback["name"], pointer(callback["taken"], callback["result"])
            continue
        first, *more = line.split(",")
        base = re.match(r"(?:const )?(?:struct )?\w+", first)
        assert base is not None, line
        for one in (first, *(f"{base[0]} {name}" for name in more)):
            name, kind, lengths, _ = declared(one)
            for length in reversed(lengths):
                kind = f"[{kind}; {length if length.isdigit() else length + ' as usize'}]"
            yield name, kind


def parameters(taken: str) -> str:
    found = []
    for i, one in enumerate(filter(None, map(str.strip, taken.split(",")))):
        if one != "void":
            name, kind, lengths, is_const = declared(one)
            kind = f"*{'const' if is_const else 'mut'} {kind}" if lengths else kind
            found.append(f"{name or f'a{i}'}: {kind}")
    return ", ".join(found)


def returned(result: str) -> str:
    kind = declared(result.strip() + " x")[1]
    return "" if kind == "c_void" else f" -> {kind}"


def pointer(taken: str, result: str) -> str:
    return f"Option<{EXTERN} fn({parameters(taken)}){returned(result)}>"


def written(header: str) -> Iterator[str]:
    """The Rust of a header, item by item."""
    text = re.sub(r" */\*.*?\*/", "", header, flags=re.DOTALL)
    functions: list[str] = []
    structs: dict[str, list[str]] = {}
    yield HEAD
    for found in ITEM.finditer(text):
        if found["number"]:
            yield f"pub const {found['number']}: u32 = {found['value']};"
        elif found["enum"]:
            yield f"pub type {found['enum']} = u32;"
            for word in filter(None, map(str.strip, found["words"].split(","))):
                name, value = word.split(" = ")
                yield f"pub const {name}: {found['enum']} = {value};"
        elif found["struct"]:
            fields = list(members(found["members"]))
            structs[found["struct"]] = [name for name, _ in fields]
            body = "".join(f"    pub {name}: {kind},\n" for name, kind in fields)
            yield f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {found['struct']} {{\n{body}}}"
        elif found["opaque"]:
            yield (
                f"#[repr(C)]\npub struct {found['opaque']} {{\n    _opaque: [u8; 0],\n"
                "    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,\n}"
            )
        elif found["callback"]:
            yield f"pub type {found['callback']} = {pointer(found['given'], found['back'])};"
        else:
            taken, result = parameters(found["taken"]), returned(found["result"])
            functions.append(f"    pub fn {found['function']}({taken}){result};\n")
    yield f"{EXTERN} {{\n{''.join(functions)}}}"
    places = "".join(
        f'        ("{struct}", "", size_of::<{struct}>()),\n'
        + "".join(
            f'        ("{struct}", "{name}", core::mem::offset_of!({struct}, {name})),\n'
            for name in names
        )
        for struct, names in structs.items()
    )
    yield f"{LAYOUT}    &[\n{places}    ]\n}}"


def main() -> int:
    arguments = parser("Writes headwater.h as Rust.")
    arguments.add_argument("header", type=Path)
    given = arguments.parse_args()
    return deliver("\n".join(written(given.header.read_text(encoding="ascii"))) + "\n", given.check)


if __name__ == "__main__":
    sys.exit(main())
