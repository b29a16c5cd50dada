"""README and tutorial do what they say: their commands and code run as they stand, in a shell that
has only what they gave it (the activation of `.venv`, and the system's own folders on PATH), and
their links lead somewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
OWN_DATABASE = ROOT / "docs" / "tutorial" / "your-own-database.md"
FIRST_MODEL = ROOT / "docs" / "tutorial" / "first-model.md"
# Appended, so that the shop is small and training takes seconds; `make release-check` sets
# README_AS_IT_IS, and then nothing is.
AS_IT_IS = "README_AS_IT_IS" in os.environ
TINY = {
    "steps": 2, "layers": 1, "width": 16, "heads": 1, "sequence_length": 16, "max_rows": 5,
    "batch_size": 4,
}  # fmt: skip
COMPILER = {
    "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
}  # fmt: skip
LESS = {
    "python -m headwater.shop": " --customers 30",
    "confluence run": " --preset tiny"
    + "".join(f" --{name.replace('_', '-')} {value}" for name, value in TINY.items()),
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Fenced blocks of a page as (language, text), in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def script(found: list[tuple[str, str]]) -> str:
    """What a reader types: each block's lines, and the query saved under the name it is given."""
    lines = ["set -eu"]
    for language, text in found:
        if language == "sql":
            lines.append(f"cat > churn.sql <<'END'\n{text}END")
            continue
        for command in text.replace("\\\n", " ").splitlines():
            lines.append(command + ("" if AS_IT_IS else _less(command)))
    return "\n".join(lines) + "\n"


def _less(command: str) -> str:
    return next((more for start, more in LESS.items() if command.startswith(start)), "")


def in_a_shell(folder: Path, lines: str) -> str:
    """What the lines print, typed in a folder where the project was installed."""
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "examples").symlink_to(ROOT / "examples")
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    if not AS_IT_IS:  # the compiler works less hard, and once for both ways (conftest.py)
        environment |= {name: os.environ[name] for name in os.environ if name in COMPILER}
    done = subprocess.run(
        ["sh"], input=lines, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_three_steps_lead_from_a_database_to_predictions(tmp_path: Path) -> None:
    found = blocks(OWN_DATABASE)
    assert [language for language, _ in found] == ["", "", "", "sql", ""]
    assert found[0] == ("", ". .venv/bin/activate\n")
    printed = in_a_shell(tmp_path, script(found))
    assert (tmp_path / "runs/churn/predictions-test.csv").is_file()
    assert (tmp_path / "runs/churn/run.html").is_file()
    assert "churned on test" in printed


def test_ten_lines_of_python_lead_from_a_database_to_answers_and_batches(tmp_path: Path) -> None:
    (code,) = [text for language, text in blocks(README) if language == "python"]
    assert len([line for line in code.splitlines() if line]) == 10
    (typed,) = re.findall(
        r"After `(\. \.venv.*?)` and `(.*?)`:", README.read_text(encoding="utf-8")
    )
    if not AS_IT_IS:
        preset = 'preset="demo"'
        assert code.count(preset) == 1
        less = "".join(f", {name}={value}" for name, value in TINY.items())
        code = code.replace(preset, f'preset="tiny"{less}')
    (tmp_path / "ten.py").write_text(code, encoding="utf-8")
    printed = in_a_shell(tmp_path, script([("", "\n".join([*typed, "python ten.py"]))]))
    metrics, *answers, arrays = printed.splitlines()[-5:]
    assert "'auroc': " in metrics
    assert [line.split()[0] for line in answers] == ["1", "2", "3"]
    assert all(0 <= float(line.split()[1]) <= 1 for line in answers)
    assert arrays.startswith("dict_keys(['")


def test_the_readme_begins_with_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert re.match(r"# Tributary\n\n```\nmake demo +# .*\nmake test +# .*\n```\n", text)


def test_a_first_model_is_made_by_the_commands_of_make_demo() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ndemo:")[1].split("\n\n")[0]
    recipe = recipe.replace("\\\n", " ").replace("$(BIN)/", "").replace("$(DEMO)", "build/demo")
    made = [" ".join(line.split("|| ")[-1].split()) for line in recipe.splitlines()[2:]]
    shown = [text.replace("\\\n", " ") for _, text in blocks(FIRST_MODEL)]
    assert len(made) == 3
    assert made == [
        " ".join(text.split()) for text in shown if text.startswith(("python", "con", "head"))
    ]


# ---- links -----------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as a code host makes them: without what marks code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """Relative links of a page that lead to no file, or to no heading of it."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            found.append(link)
    return found


@pytest.mark.parametrize(
    "page", ["README.md", "confluence/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
)
def test_links_lead_to_files_and_headings(page: str) -> None:
    assert broken(ROOT / page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## What `init` does, and how\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#what-init-does-and-how) [c](https://example.org/none.md)\n"
        "[d](gone.md) [e](other.md#what) [f](#g)\n"
    )
    assert broken(page) == ["gone.md", "other.md#what", "#g"]
