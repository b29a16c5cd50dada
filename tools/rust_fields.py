"""Writes the arrays of a batch as Rust: bindings/rust/headwater/src/field_table.rs.

    python tools/rust_fields.py [--check FILE]

Prints a function of `Batch` for each array, by the table that the C library has of them; with
--check compares them with a file instead. Needs the package headwater.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

from headwater.binding.batch import batch_fields
from written import deliver, parser

HEAD = """\
// Written by tools/rust_fields.py from the table of arrays that the C library has.
use crate::batch::{Array, Batch};
use crate::error::Result;

/// The arrays by name, each as [`Batch::array`] gives it: an error if the options leave it out.
/// B sequences, S cells of one, R rows of one, U texts, D_t the width of vectors, P foreign keys
/// of a row, M masked cells of one type; [`Sampler::shape`](crate::Sampler::shape) has them.
/// Shapes are those of the dense and compact layouts without packing; `batch.md` of the
/// documentation has all.
impl Batch {
"""
ACCESSOR = """\
{doc}
    pub fn {name}(&self) -> Result<Array<'_>> {{
        self.array("{name}")
    }}
"""
MOST_CHARACTERS = 100


def rust_name(dtype: str) -> str:
    """uint16 is u16."""
    return dtype.replace("int", "i").replace("ui", "u").replace("float", "f")


def doc(dtype: str, dims: tuple[str, ...], is_info: bool, when: str | None, meaning: str) -> str:
    """The comment of an accessor: shape and type, the option that adds it, and what it is."""
    told = [f"`[{', '.join(dims)}]` of `{rust_name(dtype)}`"]
    told += [f"with `{when}`"] if when else []
    told += ["for the host only"] if is_info else []
    escaped = meaning.replace("[", "\\[").replace("]", "\\]")
    mark, text = "    /// ", f"{', '.join(told)}: {escaped}."
    return textwrap.fill(text, MOST_CHARACTERS, initial_indent=mark, subsequent_indent=mark)


def written() -> Iterator[str]:
    yield HEAD
    fields = batch_fields()
    yield "\n".join(ACCESSOR.format(name=name, doc=doc(*rest)) for name, *rest in fields)
    yield "}\n"


def main() -> int:
    given = parser("Writes the arrays of a batch as Rust.").parse_args()
    return deliver("".join(written()), given.check)


if __name__ == "__main__":
    sys.exit(main())
