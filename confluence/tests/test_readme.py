"""The README's way from a database to a model, run as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import headwater.cli
import pytest
from headwater import shop

from confluence import cli

README = Path(__file__).resolve().parents[2] / "README.md"
SECTION = "## Your own database, in three steps\n"
# Appended, so that the shop is small and training takes seconds.
LESS = {
    "python -m headwater.shop": ["--customers", "30"],
    "confluence run": [
        "--preset", "tiny", "--steps", "2", "--layers", "1", "--width", "16",
        "--heads", "1", "--sequence-length", "16", "--max-rows", "5", "--batch-size", "4",
        "--newton-schulz-steps", "1",
    ],
}  # fmt: skip


def blocks() -> list[tuple[str, str]]:
    """Fenced blocks of the section as (language, text), in order."""
    section = README.read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run(command: str) -> None:
    """A command line, in this process, where imports and the compiler's work are shared."""
    words = shlex.split(command.replace("\\\n", " "))
    words += next((more for start, more in LESS.items() if command.startswith(start)), [])
    if words[:3] == ["python", "-m", "headwater.shop"]:
        shop.main(words[3:])
    else:
        main = {"headwater": headwater.cli.main, "confluence": cli.main}[words[0]]
        assert main(words[1:]) == 0, command


def test_three_steps_lead_from_a_database_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks()
    assert [language for language, _ in found] == ["", "", "sql", ""]
    for language, text in found:
        if language == "sql":
            Path("churn.sql").write_text(text, encoding="utf-8")
        else:
            run(text)
    assert Path("runs/churn/predictions-test.csv").is_file()
    assert Path("runs/churn/run.html").is_file()
    assert "churned on test" in capsys.readouterr().out
