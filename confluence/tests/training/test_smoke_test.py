"""The smoke test as a newcomer starts it: in a fresh copy of the project, with nothing but uv."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from confluence.training import smoke

ROOT = Path(__file__).resolve().parents[3]
SMOKE_TEST = ROOT / "confluence" / "smoke_test.py"
LINE = "uv run --project confluence python confluence/smoke_test.py"
# What this process has for itself: a virtual environment, and how JAX compiles in tests.
OWN = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "XLA_FLAGS")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line typed into a shell that finds the uv of this environment first."""
    kept = {k: v for k, v in os.environ.items() if k not in OWN and not k.startswith("JAX_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env={**kept, "PATH": path}, capture_output=True, text=True
    )


def fresh_clone(to: Path) -> Path:
    """The files that git does not ignore, as they are now; without git, all but what is built."""
    listed = shell("git ls-files -z --cached --others --exclude-standard", ROOT)
    if listed.returncode != 0:
        made = shutil.ignore_patterns(
            ".git", ".venv", "build", "uv.lock", "__pycache__", ".*_cache"
        )
        return Path(shutil.copytree(ROOT, to, ignore=made))
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def files_in(folder: Path) -> set[str]:
    """Paths below the folder, without what is inside of environments and of `__pycache__`."""
    skipped = {"__pycache__", ".venv"}
    paths = [path.relative_to(folder) for path in folder.rglob("*")]
    return {str(path) for path in paths if not skipped & set(path.parts[:-1])}


@pytest.mark.release
def test_the_line_of_the_seed_ends_with_0_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path / "clone")
    before = files_in(clone)
    done = shell(LINE, clone)
    assert done.returncode == 0, done.stderr + done.stdout
    found = re.search(r"in (\d+) steps: first 5 (\S+), last 5 (\S+), ratio (\S+)\n", done.stdout)
    assert found is not None, done.stdout
    steps, first, last, ratio = (float(part) for part in found.groups())
    assert steps >= 30 and last <= 0.7 * first
    assert ratio == pytest.approx(last / first, abs=1e-3)

    # Git ignores all that is new. An installed confluence was found once and never again.
    new = {name for name in files_in(clone) - before if not name.endswith("__pycache__")}
    assert new == {"confluence/uv.lock", "confluence/.venv"}
    ignored = (clone / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/confluence/uv.lock", "/confluence/.venv/", "__pycache__/"} <= set(ignored)
    again = shell(
        "uv run --project . python -c 'import confluence.training.smoke'", clone / "confluence"
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("change", "status"), [({}, 0), ({"passed": False}, 1), ({"steps": 29}, 1)]
)
def test_the_status_says_whether_the_losses_fell_in_30_steps(
    change: dict[str, Any], status: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    result = {"steps": 30, "first_loss": 2.0, "last_loss": 1.4, "ratio": 0.7, "passed": True}
    monkeypatch.setattr(smoke, "run_smoke", lambda: {**result, **change})
    spec = importlib.util.spec_from_file_location("smoke_test", SMOKE_TEST)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main() == status
    assert "first 5 2.0000, last 5 1.4000, ratio 0.700" in capsys.readouterr().out
