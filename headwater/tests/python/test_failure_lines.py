"""A failing test is named when it fails, not when all tests are over (see conftest.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

def test_fails():
    assert 1 == 2, "first line\\nsecond line"

@pytest.fixture
def broken():
    raise ValueError("no such shop")

def test_errs(broken):
    pass

def test_passes():
    pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_failing_test_is_named_before_the_next_one_ends(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS, encoding="utf-8")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", workers, "--dist", "loadfile", "--rootdir", tmp_path,
         "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    before_the_end = run.stdout.split("[100%]")[0].splitlines()
    named = [line for line in before_the_end if line.startswith("FAILED ")]
    assert named == [
        "FAILED test_shop.py::test_fails (call): AssertionError: first line",
        "FAILED test_shop.py::test_errs (setup): ValueError: no such shop",
    ]
