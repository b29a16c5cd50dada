"""The demo in small: one command from a generated database to metrics, files and a context."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import headwater.cli
import pytest
from headwater import shop

from confluence.cli import main

ROOT = Path(__file__).resolve().parents[2]
METADATA = ROOT / "examples" / "shop" / "shop.json"
QUERY = ROOT / "examples" / "shop" / "churn.sql"


def command(database: Path, out: Path) -> list[str]:
    """The command of `make demo`, with a smaller model and fewer steps."""
    arguments = ["run", f"sqlite:///{database}", "--metadata", str(METADATA), "--task", "churn"]
    arguments += ["--out", str(out), "--preset", "demo"]
    return [*arguments, "--width", "32", "--heads", "2", "--batch-size", "16", "--steps", "350"]


def test_one_command_goes_from_a_database_to_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, out = tmp_path / "shop.sqlite", tmp_path / "run"
    shop.generate(database, customers=1500, products=100)
    assert main(command(database, out)) == 0
    shown = capsys.readouterr()
    for title in ("model", "global constant", "per entity", "trees, own columns", "trees, history"):
        assert title in shown.out
    assert "building" in shown.err and "step 350/350" in shown.err

    result = json.loads((out / "evaluation-test-rolling.json").read_text())
    baselines = {name: b["metrics"]["auroc"] for name, b in result["baselines"].items()}
    assert baselines["global_constant"] == 0.5
    assert baselines["own_columns"] < 0.6  # no column of the customer says anything
    # 680 seeds have a standard error of 0.02; 0.89 after 500 steps, learnt from step 130.
    assert result["metrics"]["auroc"] > 0.65, result
    with (out / "predictions-test.csv").open() as file:
        assert len(list(csv.DictReader(file))) == result["seeds"] > 200
    events = [json.loads(line)["event"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert events[0] == "start" and events[-1] == "end"
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")

    assert headwater.cli.main(["sample", str(out / "store"), "--task", "churn"]) == 0
    assert "customers" in capsys.readouterr().out
    assert headwater.Store(out / "store").verify() == []

    # Again: nothing is built or trained twice. With another source, everything is.
    assert main([*command(database, out), "--json"]) == 0
    again = capsys.readouterr()
    assert "up to date" in again.err and "trained already" in again.err
    assert json.loads(again.out)["evaluation"]["metrics"] == result["metrics"]


def test_a_question_of_ones_own_needs_only_its_query(
    shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", f"sqlite:///{shop_database}", "--metadata", str(METADATA)]
    arguments += ["--query", str(QUERY), "--anchor", "customers.customer_id"]
    arguments += ["--target", "churned", "--split-column", "split", "--out", str(tmp_path)]
    arguments += ["--preset", "tiny", "--steps", "2", "--width", "16", "--layers", "1", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["evaluation"]["task"] == "churned"
    assert result["predicted"] == result["evaluation"]["seeds"] > 50


def test_what_is_wrong_is_said_in_one_line(
    shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"sqlite:///{shop_database}"
    arguments = ["--metadata", str(METADATA), "--task", "churn", "--out", str(tmp_path / "run")]
    assert main(["run", "sqlite:///none.sqlite", *arguments]) == 1
    assert "none.sqlite" in capsys.readouterr().err
    arguments[3] = "chrn"
    assert main(["run", source, *arguments]) == 1
    assert "no task 'chrn', did you mean 'churn'?" in capsys.readouterr().err
    assert main(["run", source, *arguments, "--heads", "7"]) == 1
    assert capsys.readouterr().err == "confluence: width must be a multiple of heads\n"
