"""What the two packages are made of and bring: their wheels, what they import, and how people are
told to install something."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest

from confluence.watch.trackers import DISTRIBUTIONS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "headwater": ROOT / "headwater" / "python" / "headwater",
    "confluence": ROOT / "confluence" / "confluence",
}
# Distributions that bring a module of another name than their own.
BRINGS = {
    "adbc_driver_manager": "adbc-driver-sqlite",
    "jaxlib": "jax",
    "opentelemetry": "opentelemetry-sdk",
    "orbax": "orbax-checkpoint",
    "pynvml": "nvidia-ml-py",
}
# Nothing imports these: a tracker finds its exporter, and DuckDB the frames of whoever has them.
NOT_IMPORTED = {"opentelemetry-exporter-otlp-proto-http", "pandas", "polars"}


def project(package: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / package / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements: Iterable[str]) -> set[str]:
    """Names of requirements, without extras and versions, as indexes write them."""
    found = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in found if name is not None}


def imported(package: str) -> set[str]:
    """Distributions that the package's modules import, anywhere in them."""
    modules = set()
    for path in SOURCES[package].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                modules.add(node.module.split(".")[0])
    others = modules - set(sys.stdlib_module_names) - {package}
    return names(BRINGS.get(module, module) for module in others)


@pytest.mark.parametrize("package", SOURCES)
def test_a_package_declares_what_it_imports_and_nothing_else(package: str) -> None:
    declared = project(package)["project"]
    needed = names(declared["dependencies"])
    extras = set().union(*map(names, declared["optional-dependencies"].values()))
    assert not needed & extras
    found = imported(package)
    assert (needed | extras) - NOT_IMPORTED <= found
    if "headwater[build]" in declared["dependencies"]:
        needed |= names(project("headwater")["project"]["optional-dependencies"]["build"])
    assert found <= needed | extras


def test_trees_need_no_extra() -> None:
    assert "lightgbm" in names(project("confluence")["project"]["dependencies"])


def test_hints_on_trackers_name_what_the_extras_bring() -> None:
    extras = project("confluence")["project"]["optional-dependencies"]
    assert {kind: names(extras[kind]) for kind in DISTRIBUTIONS} == {
        kind: names(found) for kind, found in DISTRIBUTIONS.items()
    }


def test_make_builds_with_what_the_packages_build_with() -> None:
    lines = (ROOT / "tools" / "requirements-build.txt").read_text(encoding="utf-8").splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    required = {
        requirement.replace(" ", "")
        for package in SOURCES
        for requirement in project(package)["build-system"]["requires"]
    }
    assert listed == required


# ---- wheels --------------------------------------------------------------------------------


def installed(package: str) -> Distribution:
    found = distribution(package)
    assert found.files is not None
    return found


@pytest.mark.parametrize("package", SOURCES)
def test_an_installed_package_has_the_licence(package: str) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    assert (ROOT / package / "LICENSE").read_bytes() == licence  # of source distributions
    found = installed(package)
    (path,) = (p for p in found.files or () if p.parts[-2:] == ("licenses", "LICENSE"))
    assert path.locate().read_bytes() == licence
    assert found.metadata.get_all("License-File") == ["LICENSE"]
    assert found.metadata["License-Expression"] == "MIT"


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_is_for_every_later_cpython(package: str) -> None:
    wheel = installed(package).read_text("WHEEL")
    assert wheel is not None
    (tag,) = re.findall(r"^Tag: (.*)$", wheel, re.MULTILINE)
    python, abi, _ = tag.split("-")
    assert re.fullmatch(r"cp3\d+", python) and int(python[3:]) <= sys.version_info.minor
    assert abi == "abi3"


# ---- hints ---------------------------------------------------------------------------------

# Strangers may own these names at an index, and one does: only paths install ours.
FROM_AN_INDEX = re.compile(
    r"(?:pip3? install|pipx install|uv add|uv pip install|uvx)\b[^`\n]*?"
    r"(?<![\w./-])(?:headwater|confluence)(?![\w./-])"
)
READ_BY_PEOPLE = (
    "*.md", "*/README.md", "Makefile", "docs/**/*.md", "docs/**/*.ipynb", "examples/**/*",
    "tools/*", "headwater/python/**/*.py", "headwater/include/*.h", "headwater/src/**/*.c",
    "confluence/confluence/**/*.py", "confluence/src/*.c", "*/bench/*.py", "*/pyproject.toml",
)  # fmt: skip


def test_nobody_is_told_to_install_our_names_from_an_index() -> None:
    found = [path for pattern in READ_BY_PEOPLE for path in ROOT.glob(pattern) if path.is_file()]
    assert ROOT / "README.md" in found and len(found) > 300
    told = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in found
        for match in FROM_AN_INDEX.finditer(path.read_text(encoding="utf-8"))
    ]
    assert told == []


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("pip install 'confluence[otel]'", True),
        ("pip install -U duckdb headwater", True),
        ("uv add headwater", True),
        ("pip install ./headwater ./confluence", False),
        ("pip install './confluence[otel]'", False),
        ("python -m pip install --no-deps ../headwater", False),
        ("`pip install jax`; then headwater build", False),
        ("pip install lightgbm", False),
    ],
)
def test_names_and_paths_are_told_apart(text: str, is_told: bool) -> None:
    assert (FROM_AN_INDEX.search(text) is not None) == is_told
