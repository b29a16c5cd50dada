"""Several ranks answer what one process answers, each its share of the seeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import bakery
import numpy as np
import pytest
import small
from rank_processes import run_code, run_ranks

import confluence
from confluence.cli.main import main
from confluence.ranks.group import current

SMALL: dict[str, Any] = {**small.SMALL, "max_rows": 12, "steps": 4, "batch_size": 8}
TASK = ("--task", "next_sale")
AT = "2025-04-20"
FOLDER = f"sys.path.insert(0, {str(Path(__file__).parent)!r})"
ASKING = (
    FOLDER
    + """
from confluence.ranks.rendezvous import find_place
from confluence.ranks.group import Joined
from test_shared_answers import answer

with Joined(find_place({}, os.environ), collective_timeout_s=500.0) as group:
    answer([Path(folder) for folder in sys.argv[3:]], Path(sys.argv[2]))
import confluence

if group.is_first:  # which is alone again
    assert confluence.load(sys.argv[3]).evaluate("val", trees=False, resamples=0)["metrics"]
for work in (
    lambda: confluence.load(sys.argv[3]) and confluence.train(
        confluence.load(sys.argv[3]).stores[0], task="next_sale",
        out=sys.argv[2] + f"/late-{group.rank}", preset="tiny", steps=1,
    ),
    lambda: Joined(find_place({}, os.environ)).__enter__(),
):
    try:
        work()
        raise SystemExit("a process that has left its ranks went on")
    except ConnectionError as error:
        assert "was one of several ranks and has left them" in str(error), error
"""
)
ASKING_OTHERWISE = """
from confluence.ranks.rendezvous import find_place
from confluence.ranks.group import Joined
import confluence

with Joined(find_place({}, os.environ), collective_timeout_s=500.0) as group:
    run = confluence.load(sys.argv[3])
    at = "2025-04-20" if group.is_first else "2025-03-20"
    run.predict(**{
        "keys": {"keys": [("Aachen", 3), ("007", 12)], "at": at},
        "split": {"split": "val" if group.is_first else "test"},
        "tree_share": {"split": "val", "tree_share": 0.5 * group.rank},
    }[sys.argv[2]])
"""


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    others = {**SMALL, "batch_size": 5, "child_order": "uniform", "seed": 7}
    for name, settings in (("a", SMALL), ("b", others)):
        confluence.train(store, task="next_sale", out=folder / name, **settings)
    return [folder / "a", folder / "b"]


def answer(folders: list[Path], out: Path) -> None:
    """Everything that can be asked; each rank writes what it was told."""
    first, second = (confluence.load(folder) for folder in folders)
    rank = current().rank
    told: dict[str, Any] = {
        "val": first.evaluate("val", resamples=20),
        "together": first.evaluate(
            "val", others=[second], regime="frozen", visible_until="2025-02-20",
            resamples=0, trees=False, tree_share=0.5,
        ),
    }  # fmt: skip
    asked: dict[str, dict[str, Any]] = {
        "train": {"split": "train", "others": [second]},
        "test": {"split": "test"},
        "two keys": {"keys": [("Aachen", 3), ("007", 12)], "at": AT},  # fewer than ranks
        "keys": {
            "keys": bakery.SHOPS[:7] + bakery.SHOPS[40:30:-1],
            "at": AT,
            "others": [second],
            "tree_share": 0.25,
        },
    }
    for name, options in asked.items():
        path = out / f"{name}.csv" if rank == 0 else out / "no such folder" / "of other ranks.csv"
        told[name] = [list(row.values()) for row in first.predict(path=path, **options)]
    (out / f"{rank}.json").write_text(json.dumps(told), encoding="utf-8")


def equal(found: Any, expected: Any) -> bool:
    """Up to the rounding of numbers that ranks compute in other batches."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[n], expected[n]) for n in found)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, float):
        return bool(np.isclose(found, expected, rtol=1e-5, atol=1e-6))
    return bool(found == expected)


@pytest.mark.release
def test_three_ranks_answer_as_one_process_does(runs: list[Path], tmp_path: Path) -> None:
    for name in ("one", "three"):
        (tmp_path / name).mkdir()
    folders = [str(run) for run in runs]
    told = run_code(3, ASKING, str(tmp_path / "three"), *folders)
    assert told.returncode == 0, told.stderr
    answer(runs, tmp_path / "one")
    expected = json.loads((tmp_path / "one" / "0.json").read_text(encoding="utf-8"))
    found = [
        json.loads((tmp_path / "three" / f"{rank}.json").read_text(encoding="utf-8"))
        for rank in range(3)
    ]
    assert len(expected["two keys"]) == 2
    for name, result in expected.items():
        assert equal(found[0][name], result), name
        others = {} if isinstance(result, dict) else found[0][name]
        assert found[1][name] == found[2][name] == others, name
    for path in (tmp_path / "one").glob("*.csv"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len((tmp_path / "three" / path.name).read_text("utf-8").splitlines()) == len(lines)
    assert not (tmp_path / "three" / "no such folder").exists()


@pytest.mark.release
def test_the_commands_start_ranks(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = ["evaluate", str(runs[0]), *TASK, "--split", "val", "--json"]
    assert main(evaluation) == 0
    expected = json.loads(capsys.readouterr().out)
    told = run_ranks(2, evaluation)
    assert told.returncode == 0, told.stderr
    assert equal(json.loads(told.stdout), expected)
    keys = ["predict", str(runs[0]), "--split", "test", "--json", "--output"]
    assert main([*keys, str(tmp_path / "one.csv")]) == 0
    told = run_ranks(2, [*keys, str(tmp_path / "two.csv")])
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {"predictions": str(tmp_path / "two.csv"), "predicted": 9}
    one, two = ((tmp_path / f"{n}.csv").read_text("utf-8").splitlines() for n in ("one", "two"))
    assert [line.split(",")[:3] for line in one] == [line.split(",")[:3] for line in two]


def test_what_is_wrong_is_said_by_the_ranks(runs: list[Path]) -> None:
    told = run_ranks(2, ["predict", str(runs[0]), "--task", "nex_sale", "--split", "test"])
    assert told.returncode == 1
    assert "no task 'nex_sale': the run has next_sale" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("what", ["keys", "split", "tree_share"])
def test_ranks_that_ask_otherwise_are_refused(what: str, runs: list[Path]) -> None:
    told = run_code(2, ASKING_OTHERWISE, what, str(runs[0]))
    assert told.returncode == 1
    named = "questions" if what == "keys" else what
    assert f"the ranks do not work on the same: {named} is " in told.stderr


def test_a_probe_is_not_shared(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("COORDINATOR", "localhost:2000"), ("PROCESSES", "2"), ("RANK", "0")):
        monkeypatch.setitem(os.environ, f"CONFLUENCE_{name}", value)
    assert main(["probe", str(runs[0])]) == 1
    assert "probe works in one process and was started as one of several" in capsys.readouterr().err
