"""Writes the options of a sampler as Rust: bindings/rust/headwater/src/option_table.rs.

    python tools/rust_options.py [--check FILE]

Prints the setters of `Options` and the words that they take, by the table that the C library has
of its options; with --check compares them with a file instead. Needs the package headwater.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from headwater.binding.options import NAMES, OPTIONS, Option
from written import deliver, parser

from headwater import binding

HEAD = """\
// Written by tools/rust_options.py from the table of options that the C library has.
use headwater_sys as sys;

use crate::json::Json;
use crate::options::Options;
"""
KINDS = {
    binding.header.HW_OPTION_FLAG: "bool",
    binding.header.HW_OPTION_UINT32: "u32",
    binding.header.HW_OPTION_INT32: "i32",
    binding.header.HW_OPTION_UINT64: "u64",
    binding.header.HW_OPTION_DOUBLE: "f64",
    binding.header.HW_OPTION_TIMES: "i64",
    binding.header.HW_OPTION_WEIGHTS: "Vec<f64>",
}
# Those that a saved state has in another form, which state.rs makes.
OTHER_IN_STATE = {
    "tasks", "seed_tables", "task_weights", "visible_until", "time_split", "staleness_zero_share",
    "staleness_max_days", "text_budget", "sequence_length", "max_rows", "context_length",
    "max_context_rows", "mask_ratio", "max_targets_per_type",
}  # fmt: skip
BY_HAND = {"max_hops", "tasks", "seed_tables"}  # what Rust takes otherwise
ENUM = """\
/// The words of the option `{option}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum {name} {{
{variants}}}
impl {name} {{
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {{
        match self {{
{words}        }}
    }}
}}
"""
SETTER = """\
    /// {doc}.
    pub fn {name}(mut self, value: {kind}) -> Options {{
        self.values.{name} = Some(value);
        self
    }}
"""


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def kind(option: Option) -> str:
    """The type of the option's setter."""
    if option.words:
        return camel(option.name)
    item = KINDS[option.type]
    return item if option.count < 2 else f"[{item}; {option.count}]"


def put(option: Option) -> str:
    """The member of C's struct, of a value."""
    if option.words:
        return "*value as u32"
    if option.type == binding.header.HW_OPTION_FLAG:
        return "u8::from(*value)"
    return "value.as_ptr()" if option.is_list else "*value"


def kept(option: Option) -> str:
    """The option in a saved state, of C's struct: as sampler_options.py keeps it."""
    value = f"raw.{option.name}"
    if option.name == "max_hops":
        return f"Json::chosen({value} > 0, {value}.wrapping_sub(1))"
    if option.words:
        made = [f'Json::text("{word}")' for word in option.words]
        arms = [f"{place} => {one}, " for place, one in enumerate(made)]
        arms = [arm.replace('Json::text("default")', "Json::Null") for arm in arms]
        return f"match {value} {{ {''.join(arms)}_ => Json::from({value}) }}"
    if option.type == binding.header.HW_OPTION_FLAG:
        return f"Json::Bool({value} != 0)"
    if option.count > 1:
        return f"Json::list({value})"
    if option.standard[0] < option.least:
        return f"Json::chosen({value} != {int(option.standard[0])}, {value})"
    return f"Json::from({value})"


def doc(option: Option) -> str:
    text = option.doc[0].upper() + option.doc[1:]
    return text.replace("[", "\\[").replace("]", "\\]").replace("docs/reference/", "")


def word_enum(option: Option) -> str:
    name = camel(option.name)
    variants = "".join(f"    /// `{word}`\n    {camel(word)},\n" for word in option.words)
    words = "".join(f'            {name}::{camel(word)} => "{word}",\n' for word in option.words)
    return ENUM.format(option=option.name, name=name, variants=variants, words=words)


def written() -> Iterator[str]:
    yield HEAD
    options = [option for option in OPTIONS.values() if option.name not in BY_HAND]
    yield from (word_enum(option) for option in options if option.words)
    yield "#[derive(Clone, Debug, Default, PartialEq)]\npub(crate) struct Values {"
    yield from (f"    pub(crate) {one.name}: Option<{kind(one)}>," for one in options)
    yield "}\nimpl Options {"
    yield "\n".join(
        SETTER.format(doc=doc(one), name=one.name, kind=kind(one)) for one in options
    ).rstrip()
    yield "}\nimpl Values {"
    yield "    /// Sets the members of C's struct, whose lists point into these values."
    yield "    pub(crate) fn put(&self, raw: &mut sys::hw_sampler_options) {"
    for one in options:
        yield f"        if let Some(value) = &self.{one.name} {{"
        yield f"            raw.{one.name} = {put(one)};\n        }}"
    yield "    }\n}"
    yield "/// The options that decide contexts, by Python's names, as a saved state has them."
    yield "pub(crate) fn deciding(raw: &sys::hw_sampler_options) -> Vec<(&'static str, Json)> {"
    yield "    vec!["
    for one in OPTIONS.values():
        if one.decides_contexts and one.name not in OTHER_IN_STATE:
            yield f'        ("{NAMES.get(one.name, one.name)}", {kept(one)}),'
    yield "    ]\n}"


def main() -> int:
    given = parser("Writes the options of a sampler as Rust.").parse_args()
    return deliver("\n".join(written()) + "\n", given.check)


if __name__ == "__main__":
    sys.exit(main())
