"""The README's way from a database to a model, line by line, in a shell that has only what the
README gave it: the activation of `.venv`, and the system's own folders on PATH.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SECTION = "## Your own database, in three steps\n"
# Appended, so that the shop is small and training takes seconds; `make release-check` sets
# README_AS_IT_IS, and then nothing is.
LESS = {
    "python -m headwater.shop": " --customers 30",
    "confluence run": " --preset tiny --steps 2 --layers 1 --width 16 --heads 1"
    " --sequence-length 16 --max-rows 5 --batch-size 4",
}


def blocks() -> list[tuple[str, str]]:
    """Fenced blocks of the section as (language, text), in order."""
    section = README.read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def script(found: list[tuple[str, str]]) -> str:
    """What a reader types: each block's lines, and the query saved under the name it is given."""
    lines = ["set -eu"]
    for language, text in found:
        if language == "sql":
            lines.append(f"cat > churn.sql <<'END'\n{text}END")
            continue
        for command in text.replace("\\\n", " ").splitlines():
            more = "" if "README_AS_IT_IS" in os.environ else _less(command)
            lines.append(command + more)
    return "\n".join(lines) + "\n"


def _less(command: str) -> str:
    return next((more for start, more in LESS.items() if command.startswith(start)), "")


def test_three_steps_lead_from_a_database_to_predictions(tmp_path: Path) -> None:
    found = blocks()
    assert [language for language, _ in found] == ["", "", "", "sql", ""]
    assert found[0] == ("", ". .venv/bin/activate\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["sh"], input=script(found), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/churn/predictions-test.csv").is_file()
    assert (tmp_path / "runs/churn/run.html").is_file()
    assert "churned on test" in done.stdout
