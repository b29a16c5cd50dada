"""headwater.h stands alone: it names no file that is not installed, and what it quotes is there."""

from __future__ import annotations

import re
from pathlib import Path

import headwater
import pytest
from headwater.binding.options import OPTIONS

ROOT = Path(__file__).resolve().parents[4]
HEADER = ROOT / "headwater" / "include" / "headwater.h"
# A file or a folder: of docs, of sources, or whatever ends as files here do.
NAMED = re.compile(r"\bdocs/|\bsrc/|[\w./-]+\.(?:h|c|md|py|toml|build)\b")
INSTALLED = {"headwater.h", "stddef.h", "stdint.h"}
QUOTED = re.compile(r'the documentation(?: names \(|, )"([^"]+)"')


def named_files(text: str) -> list[str]:
    return [name for name in NAMED.findall(text) if name not in INSTALLED]


def headings() -> set[str]:
    """Of all pages; a heading counts without its number, and up to a colon."""
    found = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            found |= {heading, re.sub(r"^[\d.]+ ", "", heading).partition(":")[0]}
    return found


def quoted(text: str) -> list[str]:
    return QUOTED.findall(re.sub(r"\s*\n\s*\*? *", " ", text))


def test_the_header_names_no_file_that_is_not_installed() -> None:
    assert named_files(HEADER.read_text(encoding="ascii")) == []


@pytest.mark.parametrize(
    "line", ["/* docs/reference/batch.md */", "see format/format.h", "#include <stdio.h>", "src/x"]
)
def test_a_file_that_is_named_is_found(line: str) -> None:
    assert named_files(line) != []


def test_what_the_header_quotes_is_a_heading_of_the_documentation() -> None:
    found = quoted(HEADER.read_text(encoding="ascii"))
    assert len(found) >= 15
    assert set(found) <= headings()


def test_a_heading_that_is_not_there_is_found() -> None:
    text = (
        ' * several (the documentation,\n *  "Packing"), one that\n the documentation names ("No")'
    )
    assert quoted(text) == ["Packing", "No"]
    assert "Packing" in headings() and "No" not in headings()


def test_names_and_docs_of_fields_and_options_are_ascii() -> None:
    """As the header says, so that a binding may take them for text of its own."""
    for option in OPTIONS.values():
        assert option.name.isascii() and option.doc.isascii()
    for field in headwater.BATCH_FIELDS:
        assert str(field).isascii()


def test_every_function_that_the_header_mentions_is_declared() -> None:
    text = HEADER.read_text(encoding="ascii")
    comments = " ".join(re.findall(r"/\*.*?\*/", text, re.DOTALL))
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    mentioned = set(re.findall(r"\bhw_[a-z0-9_]+\b", comments))
    assert len(mentioned) > 20
    assert sorted(name for name in mentioned if not re.search(rf"\b{name}\b", code)) == []
