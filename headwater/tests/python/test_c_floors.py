"""The C sources: folders stand on floors, and nothing is included from above."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "headwater" / "src"
# The lowest first; folders of one floor do not know each other.
FLOORS = (
    ("base",), ("format",), ("store",), ("builder", "plan"), ("walk",), ("batch",), ("shape",),
    ("loader",),
)  # fmt: skip
HEIGHT = {folder: height for height, floor in enumerate(FLOORS) for folder in floor}
MOST_MODULES = 16  # a header and its source are one
INCLUDE = re.compile(r'#include "([^"]+)"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def files(ending: str = "[ch]", sources: Path = SOURCES) -> list[Path]:
    return sorted(sources.glob(f"*/*.{ending}"))


def faults(sources: Path) -> list[str]:
    """Includes from above, from another folder of the same floor, or without a folder."""
    found = []
    for path in files(sources=sources):
        own = path.parent.name
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in INCLUDE.findall(line):
                folder = name.rpartition("/")[0]
                allowed = folder == own or HEIGHT.get(folder, len(FLOORS)) < HEIGHT[own]
                if name != "headwater.h" and not allowed:
                    found.append(f"{own}/{path.name}:{number} includes {name}")
    return found


def outside_braces(path: Path) -> str:
    """A source without comments, and without what stands between braces."""
    text, depth = "", 0
    for part in re.split("([{}])", COMMENT.sub("", path.read_text(encoding="utf-8"))):
        depth += {"{": 1, "}": -1}.get(part, 0)
        text += part if depth == 0 else ";"
    return text


def test_no_folder_includes_from_above() -> None:
    assert len(FLOORS) >= 7
    assert {path.name for path in SOURCES.iterdir()} == {*HEIGHT}
    assert faults(SOURCES) == []


def test_an_include_from_above_or_from_the_side_is_found(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.c").write_text(
        '#include "plan/plan.h"\n#include "store/store.h"\n#include "headwater.h"\n'
        '#include "walk/walk.h"\n#include "builder/builder.h"\n#include "order.h"\n'
    )
    assert faults(tmp_path) == [
        f"plan/plan.c:{line} includes {name}"
        for line, name in ((4, "walk/walk.h"), (5, "builder/builder.h"), (6, "order.h"))
    ]


def test_a_function_is_declared_by_a_header_of_the_folder_that_defines_it() -> None:
    defined, declared = {}, {}
    for path in files("c"):
        for name in re.findall(r"\b(hwi_\w+)\([^;{]*\)\s*;;", outside_braces(path)):
            defined[name] = path.parent.name
    for path in files("h"):
        for name in re.findall(
            r"\b(hwi_\w+)\([^;{]*\)\s*(?:__attribute__.*)?;(?!;)", outside_braces(path)
        ):
            declared[name] = path.parent.name
    assert len(defined) > 150
    assert defined == declared


@pytest.mark.parametrize("folder", sorted(HEIGHT))
def test_a_folder_says_what_it_owns_and_is_small(folder: str) -> None:
    assert 0 < len({path.stem for path in files() if path.parent.name == folder}) <= MOST_MODULES
    build = (ROOT / "headwater" / "meson.build").read_text(encoding="utf-8")
    said = re.search(rf"((?: *# .*\n)+) *'src/{folder}/", build)
    assert said is not None
    owned = " ".join(re.sub(" *# ", " ", said[1]).split()).removeprefix(f"{folder}/: ")
    assert len(owned) > 40
    row = f"| {HEIGHT[folder] + 1} | `{folder}/` | {owned} |"
    page = ROOT / "docs" / "explanation" / "architecture.md"
    assert row in page.read_text(encoding="utf-8").splitlines()


def test_names_tell_modules_apart() -> None:
    modules = {(path.parent, path.stem) for path in files()}
    names = {name for _, name in modules}
    assert len(names) == len(modules)
    assert not any("util" in name for name in names)
    for name in names:  # by more than an ending
        assert not {f"{name}s", f"{name}er", f"{name}ing"} & names, name
