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


def circles(sources: Path) -> list[str]:
    """Files that include each other, in turn or at once. A header and its source are one file."""
    reached: dict[str, set[str]] = {}
    for path in files(sources=sources):
        own = f"{path.parent.name}/{path.stem}"
        names = INCLUDE.findall(path.read_text(encoding="utf-8"))
        below = {name.removesuffix(".h") for name in names}
        reached.setdefault(own, set()).update(below - {own})
    for between, below in reached.items():
        for above in reached.values():
            above.update(below if between in above else ())
    return sorted(own for own, below in reached.items() if own in below)


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


def test_no_file_includes_one_that_includes_it() -> None:
    assert circles(SOURCES) == []


def test_a_circle_is_found_even_if_a_source_closes_it(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    for name, included in (
        *(("plan.h", "order.h"), ("tasks.h", "plan.h"), ("order.c", "tasks.h")),
        *(("above.c", "plan.h"), ("plan.c", "below.h"), ("below.c", "below.h")),
    ):
        (tmp_path / "plan" / name).write_text(f'#include "plan/{included}"\n')
    assert circles(tmp_path) == ["plan/order", "plan/plan", "plan/tasks"]
    (tmp_path / "plan" / "order.c").write_text('#include "plan/order.h"\n')
    assert circles(tmp_path) == []


def test_only_the_walk_knows_what_a_walk_keeps() -> None:
    members = re.compile(r'#include "walk/scratch\.h"|\bwalk->')
    inside = set(SOURCES.glob("walk/*.[ch]"))
    text_of = {path: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in files()}
    assert {path for path, text in text_of.items() if "struct hwi_walk {" in text} == {
        SOURCES / "walk" / "scratch.h"
    }
    assert any(members.search(text_of[path]) for path in inside)
    assert [path for path in files() if path not in inside and members.search(text_of[path])] == []


def test_a_function_is_declared_by_the_header_of_the_source_that_defines_it() -> None:
    defined, declared = {}, {}
    for path in files("c"):
        for name in re.findall(r"\b(hwi_\w+)\([^;{]*\)\s*;;", outside_braces(path)):
            defined[name] = f"{path.parent.name}/{path.stem}"
    for path in files("h"):
        for name in re.findall(
            r"\b(hwi_\w+)\([^;{]*\)\s*(?:__attribute__.*)?;(?!;)", outside_braces(path)
        ):
            declared[name] = f"{path.parent.name}/{path.stem}"
    assert len(defined) > 150
    for name, source in defined.items():  # builder.h says which file makes which part of a store
        if source.startswith("builder/") and declared[name] == "builder/builder":
            defined[name] = "builder/builder"
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
