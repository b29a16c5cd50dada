"""The house: folders stand on floors, and nothing is imported from above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "confluence" / "confluence"
# The lowest first; folders of one floor do not know each other. Of the modules beside the folders,
# those of SETTINGS lie below all of them, those of DOORS above.
FLOORS = (
    ("ranks",), ("model",), ("data",), ("folder",), ("trees",), ("scores",), ("answers",),
    ("report",), ("training",), ("runs",), ("cli",),
)  # fmt: skip
SETTINGS, DOORS = {"settings", "config"}, {"__init__", "__main__"}
MOST_MODULES = 16
HEIGHT = {folder: height for height, floor in enumerate(FLOORS) for folder in floor}


def modules() -> Iterator[Path]:
    return (path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module of confluence) for each import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 or path.parent == PACKAGE, f"{path}: a relative import"
            if (node.module or "").split(".")[0] == "confluence":
                rest = str(node.module).split(".")[1:]
                yield from ((node.lineno, ".".join([*rest, name.name])) for name in node.names)
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("confluence."):
                    yield node.lineno, name.name.removeprefix("confluence.")


def height_of(part: str) -> int:
    if part in SETTINGS:
        return -1
    return HEIGHT.get(part, len(FLOORS))


def faults(package: Path) -> list[str]:
    """Imports from above, or from another folder of the same floor."""
    found = []
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        own = height_of(parts[0])
        for line, module in imported(path) if parts[0] not in DOORS else ():
            part = module.split(".")[0]
            if part != parts[0] and height_of(part) >= own and not {part, parts[0]} <= SETTINGS:
                found.append(f"{'/'.join(parts)}:{line} imports {module}")
    return found


def test_no_folder_imports_from_above() -> None:
    assert len(FLOORS) >= 7
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == {*HEIGHT}
    assert {path.stem for path in PACKAGE.glob("*.py")} == SETTINGS | DOORS
    assert faults(PACKAGE) == []


def test_an_import_from_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "loss.py").write_text("def f():\n    from confluence.runs import run\n")
    assert faults(tmp_path) == ["model/loss:2 imports runs.run"]


@pytest.mark.parametrize("folder", sorted(HEIGHT))
def test_a_folder_says_what_it_owns_and_is_small(folder: str) -> None:
    files = [path for path in (PACKAGE / folder).glob("*.py") if path.name != "__init__.py"]
    assert 0 < len(files) <= MOST_MODULES
    tree = ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))
    owned = " ".join((ast.get_docstring(tree) or "").split())
    assert len(owned) > 40
    row = f"| {HEIGHT[folder] + 1} | `{folder}/` | {owned} |"
    assert row in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_names_tell_modules_apart() -> None:
    names = [path.stem for path in modules() if path.name != "__init__.py"]
    assert len(set(names)) == len(names)
    assert not any("util" in name for name in names)
    for name in names:  # by more than an ending
        assert not {f"{name}s", f"{name}er", f"{name}ing"} & {*names}, name
