"""The house: folders of both packages stand on floors, and nothing is imported from above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import headwater
import pytest
from headwater import shared

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 16
PARTS = (
    "headwater/python", "headwater/src", "headwater/include", "headwater/tests",
    "confluence/confluence", "confluence/src", "confluence/tests",
)  # fmt: skip


@dataclass(frozen=True)
class House:
    """A package. Folders of one floor do not know each other; the lowest floor is the first. Of
    the modules beside the folders, those of `cellar` lie below all of them, `doors` above."""

    package: Path
    floors: tuple[tuple[str, ...], ...]
    cellar: frozenset[str]
    doors: frozenset[str]

    def folders(self) -> dict[str, int]:
        """The floor of each folder, from 1."""
        return {folder: k for k, floor in enumerate(self.floors, 1) for folder in floor}

    def height(self, part: str) -> int:
        return 0 if part in self.cellar else self.folders().get(part, len(self.floors) + 1)

    def faults(self) -> list[str]:
        """Imports from above, or from another folder of the same floor."""
        found = []
        for path in self.package.rglob("*.py"):
            parts = path.relative_to(self.package).with_suffix("").parts
            own = self.height(parts[0])
            for line, module in imported(path, self.package.name):
                part = module.split(".")[0]
                if parts[0] in self.doors or part == parts[0] or {part, parts[0]} <= self.cellar:
                    continue
                if self.height(part) >= own:
                    found.append(f"{'/'.join(parts)}:{line} imports {module}")
        return found


HEADWATER = House(
    ROOT / "headwater" / "python" / "headwater",
    (
        ("binding",), ("metadata",), ("store", "sources"), ("facts",),
        ("sampling", "inference", "embedding"), ("audit", "builder"), ("cli",),
    ),
    frozenset({
        "console", "errors", "files", "interrupts", "machine", "notebook", "progress", "user_cache",
    }),
    frozenset({"__init__", "__main__", "shared", "shop"}),
)  # fmt: skip
CONFLUENCE = House(
    ROOT / "confluence" / "confluence",
    (
        ("ranks",), ("model",), ("data",), ("folder",), ("watch",), ("packs",), ("trees",),
        ("scores",), ("answers",), ("report",), ("training",), ("measure",), ("runs",), ("cli",),
    ),
    frozenset({"config", "value_checks", "version"}),
    frozenset({"__init__", "__main__"}),
)  # fmt: skip
HOUSES = pytest.mark.parametrize("house", [HEADWATER, CONFLUENCE], ids=["headwater", "confluence"])
FOLDERS = [(house, name) for house in (HEADWATER, CONFLUENCE) for name in sorted(house.folders())]


def imported(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """(line, module of the package) for each import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if (node.module or "").split(".")[0] == package:
                rest = str(node.module).split(".")[1:]
                yield from ((node.lineno, ".".join([*rest, name.name])) for name in node.names)
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith(f"{package}."):
                    yield node.lineno, name.name.removeprefix(f"{package}.")
                if name.name == package:
                    yield node.lineno, "__init__"


@HOUSES
def test_no_folder_imports_from_above(house: House) -> None:
    inside = {path.name for path in house.package.iterdir() if (path / "__init__.py").exists()}
    assert inside == {*house.folders()}
    assert {path.stem for path in house.package.glob("*.py")} == house.cellar | house.doors
    assert house.faults() == []


def circles(package: Path) -> list[str]:
    """The files of a circle of imports, those for types and those inside functions too."""
    files = {
        ".".join(path.relative_to(package).with_suffix("").parts): path
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    graph = {
        own: {
            found
            for _, module in imported(path, package.name)
            for found in (module, module.rpartition(".")[0])
            if found in files
        }
        for own, path in files.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@HOUSES
def test_files_form_no_circle(house: House) -> None:
    assert circles(house.package) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Hidden behind TYPE_CHECKING, and inside a function."""
    (tmp_path / "shed").mkdir()
    one = "if TYPE_CHECKING:\n    from shed.two import Two\n"
    (tmp_path / "shed" / "one.py").write_text(one)
    (tmp_path / "shed" / "two.py").write_text("def f():\n    from shed import one\n")
    assert {*circles(tmp_path / "shed")} == {"one", "two"}


def test_an_import_from_above_is_found(tmp_path: Path) -> None:
    house = House(tmp_path / "shed", (("model",), ("runs",)), frozenset(), frozenset())
    (tmp_path / "shed" / "model").mkdir(parents=True)
    text = "import shed\ndef f():\n    from shed.runs import run\n"
    (tmp_path / "shed" / "model" / "loss.py").write_text(text)
    faults = ["model/loss:1 imports __init__", "model/loss:3 imports runs.run"]
    assert house.faults() == faults


MOST_PARAMETERS = 8
LONG_SIGNATURES = {  # that people call; each parameter is an option of a command, too
    "confluence": {"train", "pretrain", "prebatch", "backtest", "Run.evaluate", "Run.predict"},
    "headwater": {"build", "dry_run", "SeedPool.__init__", "init"},
}


def long_signatures(package: Path) -> set[str]:
    """Functions with more than MOST_PARAMETERS, `self` aside, by name; methods with their class."""
    found = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for owner in ast.walk(tree):
            for node in ast.iter_child_nodes(owner):
                if isinstance(node, ast.FunctionDef):
                    names = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                    count = len([name for name in names if name.arg not in ("self", "cls")])
                    count += node.args.kwarg is not None
                    within = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
                    if count > MOST_PARAMETERS:
                        found.add(f"{within}{node.name}")
    return found


@HOUSES
def test_a_signature_has_at_most_eight_parameters(house: House) -> None:
    allowed = LONG_SIGNATURES[house.package.name]
    assert long_signatures(house.package) == allowed


def names_taken(path: Path) -> Iterator[str]:
    """What a file takes of headwater: names it imports, and `core`, the inside of a store."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "headwater":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("headwater."))
        elif isinstance(node, ast.Attribute) and (
            node.attr == "core" or ast.unparse(node.value) == "headwater"
        ):
            yield ast.unparse(node)


def test_confluence_takes_public_names_of_headwater_alone() -> None:
    public = {f"headwater.{name}" for name in headwater.__all__}
    public |= {f"headwater.shared.{name}" for name in shared.__all__}
    taken = {name for path in CONFLUENCE.package.rglob("*.py") for name in names_taken(path)}
    assert taken - public == set()
    unused = {f"headwater.shared.{name}" for name in shared.__all__} - taken
    assert unused == set(), "shared has what is used across the seam, and nothing more"


@pytest.mark.parametrize(
    ("house", "folder"), FOLDERS, ids=[f"{house.package.name}-{name}" for house, name in FOLDERS]
)
def test_a_folder_says_what_it_owns_and_is_small(house: House, folder: str) -> None:
    files = [path for path in (house.package / folder).glob("*.py") if path.name != "__init__.py"]
    assert 0 < len(files) <= MOST_MODULES
    tree = ast.parse((house.package / folder / "__init__.py").read_text(encoding="utf-8"))
    owned = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    assert len(owned) > 40
    row = f"| {house.folders()[folder]} | `{folder}/` | {owned} |"
    page = ROOT / "docs" / "explanation" / "architecture.md"
    assert row in page.read_text(encoding="utf-8").splitlines()


@HOUSES
def test_names_tell_modules_apart(house: House) -> None:
    # A module of the binding is named as its handle in headwater.h, which its front may be too.
    names = [
        path.stem
        for path in house.package.rglob("*.py")
        if path.name != "__init__.py" and path.parent.name != "binding"
    ]
    assert len(set(names)) == len(names)
    assert not any("util" in name for name in names)
    for name in names:  # by more than an ending
        assert not {f"{name}s", f"{name}er", f"{name}ing"} & {*names}, name


def test_tools_pass_over_no_folder_of_ours() -> None:
    """Search, counters of lines and pytest do by these names: 6,900 lines were unseen."""
    skipped = {"build", "dist", "venv", "node_modules", "vendor", "target"}
    code = (path for part in PARTS for path in (ROOT / part).rglob("*") if path.is_dir())
    assert not [path for path in code if path.name in skipped]
