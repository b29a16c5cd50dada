"""The C API as a page of the documentation, from its header: `python tools/c_api.py`.

A heading for each comment of the header and the declarations below it: the comment as text, the
declarations as code. headwater/tests/python/test_docs.py compares the page with the header.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "headwater" / "include" / "headwater.h"
PAGE = ROOT / "docs" / "reference" / "c-api.md"

TOP = """# C API

This page is written by `python tools/c_api.py` from `headwater.h`; change the header. `examples/c`
has a build and an epoch in C, and the commands that install the library.
"""
SECTION = re.compile(r"^/\* -{4} (.*?) -+ \*/$", re.MULTILINE)
COMMENT = re.compile(r"^/\*(?:.*?)\*/\n", re.MULTILINE | re.DOTALL)
# The names that a block declares.
NAMES = re.compile(
    r"^(?:#define (HW_[A-Z_]+) |typedef (?:enum|struct) (\w+)[ ;]|struct (\w+) \{"
    r"|typedef .*\(\*(\w+)\)|HW_(?:API|CHECK) [^(]*?\*?(\w+)\()",
    re.MULTILINE,
)


def page(header: str) -> str:
    """The page for the text of a header."""
    head, *rest = SECTION.split(header)
    caveats = head[: head.index("#ifndef")]
    sections = [TOP, *_comment(caveats)]
    for title, text in zip(rest[::2], rest[1::2], strict=True):
        sections.append(f"## {title[0].upper()}{title[1:]}")
        for block in _blocks(text):
            sections += _block(block)
    return "\n\n".join(part.strip("\n") for part in sections) + "\n"


def _blocks(text: str) -> Iterator[str]:
    """Declarations that stand together, with their comments: between empty lines."""
    text = text.split("\n#ifdef __cplusplus")[0]
    for block in re.split(r"\n{2,}", text):
        if block.strip():
            yield block.strip("\n") + "\n"


def _block(block: str) -> Iterator[str]:
    """An entry for each comment, with the declarations below it."""
    starts = [comment.start() for comment in COMMENT.finditer(block)]
    bounds = sorted({0, *starts, len(block)})
    for start, end in pairwise(bounds):
        entry = block[start:end]
        comment = COMMENT.match(entry)
        code = entry[comment.end() :] if comment else entry
        names = ["".join(found) for found in NAMES.findall(code)]
        if names:
            yield "### " + ", ".join(f"`{name}`" for name in dict.fromkeys(names))
        if comment:
            yield from _comment(comment[0])
        if code.strip():
            yield f"```c\n{code.strip()}\n```"


def _comment(comment: str) -> Iterator[str]:
    """Paragraphs of a comment; those that are laid out in columns stay so."""
    inner = comment.strip().removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^ \* ?", "", line) for line in inner.splitlines()]
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        if re.search(r"^ {2,}", paragraph, re.MULTILINE):
            yield f"```text\n{paragraph}\n```"
        else:
            text = " ".join(paragraph.split()).replace("<", "&lt;").replace("*", "\\*")
            text = re.sub(r"docs/(\w+/[\w-]+\.md)", r"[\1](../\1)", text)
            yield textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(HEADER.read_text(encoding="ascii")), encoding="utf-8")
