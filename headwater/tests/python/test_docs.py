"""The normative pages say what the code does: their tables are compared with the C tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import headwater
from headwater.binding.header import CALLBACKS, ENUMS, FUNCTIONS, STRUCTS
from headwater.sampling.statistics import BOUNDS
from tiny_store import write_tiny

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FORMAT_H = ROOT / "headwater" / "src" / "format" / "format.h"


def _rows(page: str, columns: int) -> list[list[str]]:
    """Rows of every table of a page that has this many columns, without head and rule."""
    rows = []
    for line in (DOCS / page).read_text().splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == columns and not set(cells[0]) <= set("-: ") and cells[0] != "name":
            rows.append(cells)
    return rows


def test_the_batch_page_lists_exactly_the_arrays_of_the_library() -> None:
    page = {
        cells[0].strip("`"): (cells[1], cells[2], cells[3].replace("\\|", "|"))
        for cells in _rows("reference/batch.md", 5)
    }
    library = {
        field.name: (f"[{', '.join(field.dims)}]", field.dtype, field.when or "")
        for field in headwater.BATCH_FIELDS
    }
    assert page == library


def test_the_format_page_lists_exactly_the_sections_of_the_header() -> None:
    header = {
        name: int(number)
        for name, number in re.findall(
            r"^\s*HWI_SECTION_(\w+) = (\d+),", FORMAT_H.read_text(), flags=re.MULTILINE
        )
    }
    page = {}
    for cells in _rows("reference/store-format.md", 4):
        name, number = cells[0].split()[:2] if " " in cells[0] else (cells[0], "")
        if number.isdigit():
            page[name] = int(number)
    assert page == header


def test_the_format_page_gives_the_sizes_that_the_header_asserts() -> None:
    asserted = dict(
        re.findall(r"static_assert\(sizeof\(struct (hwi_\w+)\) == (\d+)", FORMAT_H.read_text())
    )
    text = (DOCS / "reference" / "store-format.md").read_text()
    page = dict(re.findall(r"`(hwi_\w+_info)` \((\d+)\)", text))
    assert page
    for name, size in page.items():
        assert asserted[name] == size, name


def test_the_version_is_the_same_everywhere() -> None:
    header = (ROOT / "headwater" / "include" / "headwater.h").read_text()
    meson = (ROOT / "headwater" / "meson.build").read_text()
    version = re.search(r'#define HW_VERSION "([^"]+)"', header)
    project = re.search(r"^\s*version: '([^']+)'", meson, flags=re.MULTILINE)
    assert version is not None and project is not None
    assert version[1] == project[1] == headwater.__version__


def c_api_page(header: str) -> str:
    script = runpy.run_path(str(ROOT / "tools" / "c_api.py"))
    return str(script["page"](header))


def test_the_c_api_page_is_written_from_the_header() -> None:
    header = (ROOT / "headwater" / "include" / "headwater.h").read_text()
    text = c_api_page(header)
    if (DOCS / "reference" / "c-api.md").read_text() != text:
        raise AssertionError("docs/reference/c-api.md is out of date: run python tools/c_api.py")
    headings = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^### .*$", text, re.MULTILINE))))
    declared = {*FUNCTIONS, *STRUCTS, *ENUMS, *CALLBACKS, "hw_store", "hw_sampler", "hw_builder"}
    assert declared <= headings


def test_the_c_api_page_has_each_comment_above_its_declarations() -> None:
    header = """/*
 * Of all.
 */
#ifndef H
/* ---- words ---- */

/* Says *one* of <two>;
 * docs/reference/batch.md. */
HW_API int hw_say(void);
/*
 * Columns:
 *   a  b
 */
HW_API int hw_more(void);
HW_API void *hw_again(void);

#ifdef __cplusplus
"""
    expected = """Of all.

## Words

### `hw_say`

Says \\*one\\* of &lt;two>; [reference/batch.md](../reference/batch.md).

```c
HW_API int hw_say(void);
```

### `hw_more`, `hw_again`

```text
Columns:
  a  b
```

```c
HW_API int hw_more(void);
HW_API void *hw_again(void);
```
"""
    assert c_api_page(header).endswith(expected)


def test_the_tuning_page_lists_every_figure_of_stats(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(db_path=path, default_sequence_length=32) as sampler:
        figures = set(sampler.stats())
    text = (DOCS / "guides" / "tuning.md").read_text()
    listed = text[text.index("## Every figure") :]
    page = {name for cells in _table(listed) for name in re.findall(r"`(\w+)`", cells[0])}
    assert page == figures
    bounds = text[text.index("## The bound") : text.index("## What to do")]
    assert {name for cells in _table(bounds) for name in re.findall(r"`(\w+)`", cells[0])} == {
        *BOUNDS,
        "bound_by",
    }


def _table(text: str) -> list[list[str]]:
    """Cells of every table row of a text of Markdown."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
