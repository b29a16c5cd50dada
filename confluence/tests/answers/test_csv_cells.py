"""Texts of a database do not run as formulas in a spreadsheet, and are read again as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from confluence.answers.csv_cells import as_read, written
from confluence.answers.key_file import csv_lines

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "=", "'=1", "''-x"]
PLAIN = ["Aachen", "007", "-5", "+49", "-.5", "-1e-3", "'", "'a", "a=1", "", 5, -0.25, True, None]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_has_an_apostrophe_in_front(text: str) -> None:
    assert written(text) == f"'{text}"
    assert as_read(written(text)) == text


@pytest.mark.parametrize("value", PLAIN)
def test_numbers_and_other_texts_stay_as_they_are(value: Any) -> None:
    assert written(value) is value
    assert not isinstance(value, str) or as_read(value) == value


def test_a_file_of_keys_may_have_a_long_cell(tmp_path: Path) -> None:
    """Python's reader ended at 131,072 characters, with "field larger than field limit"."""
    path, long = tmp_path / "keys.csv", "x" * 200_000
    path.write_text(f"key,note\n7,{long}\n", encoding="utf-8")
    assert [cells for _, cells in csv_lines(path)] == [["key", "note"], ["7", long]]
