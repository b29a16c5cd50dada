"""Plain English: every folder keeps its budget of hard phrases, and the counter counts well."""

from __future__ import annotations

import json
from pathlib import Path

import english
import pytest


@pytest.fixture(scope="module")
def found() -> list[english.Fault]:
    return english.faults(english.files())


def phrases(text: str, name: str = "page.md") -> list[str]:
    return [fault.phrase for fault in english.faults_in(name, text)]


# ---- the project ---------------------------------------------------------------------------------


def test_no_folder_has_more_hard_phrases_than_its_budget(found: list[english.Fault]) -> None:
    problem = english.complaint(english.read_budget(), found)
    assert not problem, f"write these in plain English:\n{problem}"


def test_the_budget_falls_with_the_phrases(found: list[english.Fault]) -> None:
    rest = [
        f"{folder}: {count} of [{name}], budget {most}"
        for folder, name, most, count in english.differences(
            english.read_budget(), english.counted(found)
        )
        if count < most
    ]
    command = "python confluence/tests/english.py --lower"
    assert not rest, f"the English got better; run `{command}` and commit it:\n" + "\n".join(rest)


def test_every_kind_of_file_is_read() -> None:
    names = {path.relative_to(english.ROOT).as_posix() for path in english.files()}
    assert names >= {
        "README.md", "Makefile", "docs/reference/model.md", "headwater/include/headwater.h",
        "headwater/src/walk/walk.c", "headwater/meson.build", "tools/compile.sh",
        "headwater/python/headwater/builder/build.py", "confluence/confluence/cli/arguments.py",
        "headwater/python/headwater/metadata/metadata.schema.json", "examples/shop/churn.sql",
    }  # fmt: skip
    assert not any("/tests/" in name for name in names)


# ---- the phrases ---------------------------------------------------------------------------------

HARD = {
    "what is": (
        "What has no time is visible always.",
        "A batch adds what was cut to the counters.",
        "What a step has so far.",
        "It drops all of what happened later.",
    ),
    "where": (
        "The column is -1 where the row has no time.",
        "Where neither can be read, it is an error.",
        "Rows are dropped, where a key is missing.",
    ),
    "beside": ("The target is shown beside the input.", "Beside it two runs were stopped."),
    "Of X,": (
        "Six were fitted. Of the six runs, two were stopped.",
        "Of several ranks the first one samples.",
        "The mean of all; of several runs the first.",
    ),
    "is no": ("This is no store.", "The values are no numbers.", "It was no whole file."),
    "goes on": ("The run goes on after step 40.", "To go on, repeat it.", "It has gone on."),
    "says": (
        "A row without a key is said so.",
        "The task says when its labels are known.",
        "The sampler is told of it.",
        "It tells how far it is.",
    ),
    "by --option": ("Name it by --table.", "Replace it by `--overwrite`."),
}  # fmt: skip
PLAIN = (
    "What is a store? It is a folder.",
    "The message reports what is missing, and the page shows what was read.",
    "Print what changed.",
    "The folder where the store is.",
    "It shows where the time went, and where each list begins.",
    "Where to write a file, and how.",
    "The rows where it is set.",
    "`jnp.where(mask, 0, x)` and np.where(mask, 0, x) choose.",
    "Besides, it is fast.",
    "Of course, it is not.",
    "The mean of all rows; the first of six.",
    "There is no store, and there are no rows.",
    "It is no longer there and is no larger than before.",
    "It goes to the next step, and so on.",
    "The page docs/reference/sampling.md says why, a person says when.",
    "The two are easily told apart.",
    "Sorted by time; two -- or three -- by size.",
    "Give it with --table.",
)


@pytest.mark.parametrize(
    ("phrase", "text"), [(phrase, text) for phrase, texts in HARD.items() for text in texts]
)
def test_a_hard_phrase_is_counted_once(phrase: str, text: str) -> None:
    assert phrases(text) == [phrase]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_english_is_not_counted(text: str) -> None:
    assert phrases(text) == []


def test_every_phrase_has_examples() -> None:
    assert list(HARD) == [phrase.name for phrase in english.PHRASES]


# ---- prose ---------------------------------------------------------------------------------------


def test_phrases_of_python_are_those_of_strings_and_comments() -> None:
    text = '''\
"""This is no store.

It goes
on.
"""
where = beside(what, "beside")  # A key that is
# no number, beside it.
message = (
    f"'{folder['beside']}' is"
    " no store; replace it by"
    f" --{option} or 'goes on' \\
on"
)
pattern, data = r"is \\d+ beside it", b"this is no text beside it"
'''
    faults = [(it.line, it.phrase) for it in english.faults_in("module.py", text)]
    # Line 6: "is no" begins in the comment at its end. Bytes are not read, regular expressions are.
    assert sorted(faults) == [
        (1, "is no"), (3, "goes on"), (6, "is no"), (7, "beside"), (9, "is no"),
        (10, "by --option"), (11, "goes on"), (14, "beside"),
    ]  # fmt: skip


def test_phrases_of_c_are_those_of_strings_and_comments() -> None:
    text = """\
/* A row that is
 * no seed; of a
 * table the first. */
int beside = where(goes, "on");  // it goes on
fail("the file '%s' is "
     "no store beside %s", '"', name);  /* is no store */
"""
    faults = [(it.line, it.phrase) for it in english.faults_in("file.c", text)]
    assert sorted(faults) == [
        (1, "is no"), (2, "Of X,"), (4, "goes on"), (5, "is no"), (6, "beside"), (6, "is no"),
    ]  # fmt: skip


def test_phrases_of_markdown_are_those_outside_of_code() -> None:
    text = """\
# What is printed

```
it goes on beside this
```

It says `is no` and `goes on`, and is
no more.

    is no prose beside this

1. A list
   of one.

    It goes on.
"""
    faults = [(it.line, it.phrase) for it in english.faults_in("page.md", text)]
    assert sorted(faults) == [(1, "what is"), (7, "says"), (15, "goes on")]


def test_phrases_of_scripts_builds_queries_and_schemas_are_counted() -> None:
    assert phrases("run beside  # it goes on\n# and is no test", "run.sh") == ["is no", "goes on"]
    assert phrases("# beside it\ninstall:\n\tbeside # beside\n", "Makefile") == ["beside"] * 2
    assert phrases("SELECT where -- beside it\n", "churn.sql") == ["beside"]
    assert phrases('{"beside": "rows stand beside it"}', "a.schema.json") == ["beside"]


def test_a_phrase_does_not_extend_over_a_paragraph() -> None:
    assert phrases("the row goes\n\non it reads") == []
    assert phrases("the row goes\non, it reads") == ["goes on"]


# ---- the budget ----------------------------------------------------------------------------------


def test_a_complaint_names_the_line_the_phrase_and_the_plain_words() -> None:
    faults = list(english.faults_in("docs/index.md", "One line.\nThis is no store."))
    assert english.complaint({"docs": {"is no": 1}}, faults) == ""
    assert english.complaint({}, faults) == (
        'docs: 1 of [is no], at most 0. Instead: "is not a"\n'
        "  docs/index.md:2: [is no] One line. This >is no store."
    )


def test_a_folder_is_not_better_for_another_ones_phrases() -> None:
    budget = {"a": {"beside": 2}, "b": {"beside": 1, "goes on": 1}}
    counts = {"a": {"beside": 1}, "b": {"beside": 2, "goes on": 1}}
    assert english.differences(budget, counts) == [("a", "beside", 2, 1), ("b", "beside", 1, 2)]


def test_lower_writes_fewer_and_refuses_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, budget = tmp_path / "README.md", tmp_path / "budget.json"
    page.write_text("This is no store, and that is no store.", encoding="utf-8")
    budget.write_text('{".": {"is no": 3}}', encoding="utf-8")
    monkeypatch.setattr(english, "ROOT", tmp_path)
    monkeypatch.setattr(english, "BUDGET", budget)
    monkeypatch.setattr(english, "files", lambda: [page])
    monkeypatch.setattr("sys.argv", ["english.py", "--lower"])
    assert english.main() == 0
    assert json.loads(budget.read_text(encoding="utf-8")) == {".": {"is no": 2}}

    page.write_text("This is no store, that is no store, it goes on.", encoding="utf-8")
    before = budget.read_bytes()
    assert english.main() == 1
    assert "README.md:1: [goes on]" in capsys.readouterr().err
    assert budget.read_bytes() == before
