"""The way of the README in a kernel of Jupyter, where DuckDB draws progress bars by ipywidgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HIDE = """
import sys
sys.modules["ipywidgets"] = None  # as if it were not installed
"""
BEGIN = """
import duckdb, headwater, jax, numpy, pandas
import confluence
times = pandas.date_range("2024-01-01", periods=60, freq="6D")
numbers = numpy.arange(60)
tables = {
    "users": pandas.DataFrame({"user_id": range(12), "age": [20 + 3 * n for n in range(12)]}),
    "visits": pandas.DataFrame(
        {"visit_id": numbers, "user_id": numbers % 12, "visited_at": times, "spent": numbers / 4}
    ),
}
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **more: "/compile/" in name and print("COMPILED", file=sys.stderr)
)
"""
BAR = (
    "print(duckdb.connect().execute(\"SELECT current_setting('enable_progress_bar')\").fetchone())"
)
TOUCH = "duckdb.connect().execute('SET enable_progress_bar = false')"
INFER = "schema = headwater.infer(tables); schema"
BUILD = """
document = schema.to_dict() | {"tasks": {"spent": {
    "query": "SELECT visit_id, visited_at, spent FROM visits", "anchor_table": "visits",
    "target_column": "spent", "target_stype": "numerical", "observation_time_column": "visited_at",
}}}
report = headwater.build(tables, folder + "/store", document)
report
"""
TRAIN = """
run = confluence.train(
    folder + "/store", task="spent", out=folder + "/run", preset="tiny", width=16, layers=1,
    sequence_length=16, max_rows=4, steps=2,
)
run
"""
EVALUATE = "run.evaluate('val', trees=False)"
PREDICT = "answers = run.predict(keys=[3, 4], at='2024-11-01'); print(len(answers))"
PARQUET = """
answers.write(folder + "/p.parquet")
print(run.predict(keys_file=folder + "/p.parquet") == answers)
"""
STEPS = {
    "begin": BEGIN, "bar": BAR, "touch": TOUCH, "infer": INFER, "build": BUILD, "train": TRAIN,
    "evaluate": EVALUATE, "predict": PREDICT, "parquet": PARQUET,
}  # fmt: skip
VERBS = ("infer", "build", "train", "evaluate", "predict", "parquet")
Told = dict[str, Any]  # of a cell: its error, streams, and what it showed


def lines_of(told: Told) -> list[str]:
    """What a cell printed; a kernel sends a line in one message or in two."""
    return "".join(told["streams"]).splitlines()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Told]]]:
    """What each step showed, "without" ipywidgets, and then "with" it in the same kernel, as
    DuckDB looks again for what it did not find."""
    out = tmp_path_factory.mktemp("notebook")
    cells, places = [HIDE], [("without", "hide")]
    for which in ("without", "with"):
        (out / which).mkdir()
        cells.append(f"folder = {str(out / which)!r}")
        places.append((which, "folder"))
        steps = {name: cell for name, cell in STEPS.items() if (which, name) != ("with", "begin")}
        cells += steps.values()
        places += [(which, name) for name in steps]
        if which == "without":
            cells.append('del sys.modules["ipywidgets"]')
            places.append(("without", "found again"))
    # The name of a socket has at most 107 bytes, and a test's folder may be long.
    with tempfile.TemporaryDirectory() as sockets:
        places_of_jupyter = {"IPYTHONDIR": sockets, "JUPYTER_CONFIG_DIR": sockets}
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("kernel_cells.py")), sockets],
            input=json.dumps(cells), capture_output=True, text=True,
            env={**os.environ, **places_of_jupyter},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Told]] = {"without": {}, "with": {}}
    for (which, name), shown in zip(places, json.loads(done.stdout), strict=True):
        found[which][name] = shown
    yield found


def test_duckdb_refuses_the_setting_in_a_kernel_without_ipywidgets_only(
    told: dict[str, dict[str, Told]],
) -> None:
    """So that the other tests test something."""
    without, there = told["without"], told["with"]
    assert [without["begin"]["error"], without["bar"]["error"]] == [None, None]
    assert "'ipywidgets' is missing" in without["touch"]["error"]
    assert there["touch"]["error"] is None
    assert [lines_of(of["bar"]) for of in (without, there)] == [["(False,)"], ["(True,)"]]


@pytest.mark.parametrize("which", ["without", "with"])
def test_a_model_is_made_and_used_in_a_kernel(told: dict[str, dict[str, Told]], which: str) -> None:
    steps = told[which]
    assert {name: steps[name]["error"] for name in VERBS} == dict.fromkeys(VERBS)
    assert lines_of(steps["predict"])[-1] == "2"
    assert lines_of(steps["parquet"])[-1] == "True"


@pytest.mark.parametrize("which", ["without", "with"])
def test_a_cell_that_trains_prints_a_line_before_it_compiles(
    told: dict[str, dict[str, Told]], which: str
) -> None:
    lines = lines_of(told[which]["train"])
    assert "COMPILED" in lines
    assert [line for line in lines[: lines.index("COMPILED")] if line.startswith("compiling for ")]


@pytest.mark.parametrize("step", ["infer", "build", "train", "evaluate"])
def test_a_result_shows_itself_as_a_short_text_and_as_tables(
    told: dict[str, dict[str, Told]], step: str
) -> None:
    (shown,) = told["without"][step]["shown"]
    assert len(shown["text/plain"].encode()) < 2_000
    assert "<table>" in shown["text/html"]
