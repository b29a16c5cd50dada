"""The demo in small: one command from a generated database to metrics, files and a context."""

from __future__ import annotations

import csv
import json
import re
from html import escape
from pathlib import Path

import headwater
import pytest
from headwater import shop
from headwater.cli import main as headwater_cli

from confluence.cli.main import main

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
    assert "building" in shown.err and re.search(r"step \d+/350 ", shown.err)  # it may end early

    result = json.loads((out / "evaluation-test-rolling.json").read_text())
    baselines = {name: b["metrics"]["auroc"] for name, b in result["baselines"].items()}
    assert baselines["global_constant"] == 0.5
    assert baselines["own_columns"] < 0.6  # no column of the customer says anything
    # 680 seeds have a standard error of 0.02; 0.89 after 500 steps, learnt from step 130.
    assert result["metrics"]["auroc"] > 0.65, result
    verdict = result["verdict"]
    assert verdict["kind"] != "unknown" and verdict["text"] in shown.out.splitlines()
    page = (out / "run.html").read_text(encoding="utf-8")
    assert "<h1>churn</h1>" in page
    assert page.index(escape(verdict["text"])) < page.index("<h2>Evaluation</h2>")
    with (out / "predictions-test.csv").open() as file:
        assert len(list(csv.DictReader(file))) == result["seeds"] > 200
    events = [json.loads(line)["event"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert events[0] == "start" and events[-1] == "end"
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")

    assert headwater_cli.main(["sample", str(out / "store"), "--task", "churn"]) == 0
    assert "customers" in capsys.readouterr().out
    assert headwater.Store(out / "store").verify() == []

    # Again: nothing is built or trained twice. With another source, everything is.
    assert main([*command(database, out), "--json"]) == 0
    again = capsys.readouterr()
    assert "up to date" in again.err and "trained already" in again.err
    assert json.loads(again.out)["evaluation"]["metrics"] == result["metrics"]
    assert json.loads(again.out)["evaluation"]["verdict"] == verdict


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

    assert main([*arguments, "--tree-share", "0.5"]) == 0  # of the same model
    shared = json.loads(capsys.readouterr().out)
    assert shared["evaluation"]["trees"]["share"] == 0.5
    for verdict in (result["evaluation"]["verdict"], shared["evaluation"]["verdict"]):
        # Two steps have learned nothing that trees have not.
        assert verdict["kind"] in ("baseline", "nothing", "same"), verdict
    path = Path(shared["files"]["predictions"])
    assert path.name == "predictions-test-trees-0.5.csv"
    with path.open() as file, open(result["files"]["predictions"]) as before:
        assert len(list(csv.DictReader(file))) == len(list(csv.DictReader(before))) > 50


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"name":', "confluence: '{}' is not JSON: Expecting value: line 1 column 9 (char 8)"),
        ("[1]", "  the document must be an object, found a list"),
        ('{"tasks": []}', "  'tasks' must be an object, found a list"),
        ('{"tasks": {"churn": 3}}', "  task 'churn' must be an object, found a number"),
        (
            '{"timezon": "UTC", "tasks": {"churn": {}}}',  # the rest is left to the build
            "  the document has an unknown key 'timezon', did you mean 'timezone'?",
        ),
    ],
)
def test_what_is_wrong_with_metadata_is_listed(
    text: str, says: str, shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text, encoding="utf-8")
    arguments = ["--metadata", str(wrong), "--task", "churn", "--out", str(tmp_path / "run")]
    assert main(["run", f"sqlite:///{shop_database}", *arguments]) == 1
    assert says.replace("{}", str(wrong)) in capsys.readouterr().err.splitlines()


def small(database: Path, out: Path, *more: str) -> list[str]:
    """A run of two steps."""
    arguments = ["run", f"sqlite:///{database}", "--metadata", str(METADATA), "--out", str(out)]
    return [*arguments, "--preset", "tiny", "--steps", "2", "--width", "16", "--layers", "1", *more]


def test_another_run_in_the_folder_is_replaced_by_no_accident(
    shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    churn = ["--task", "churn", "--split", "val"]
    assert main(small(shop_database, tmp_path / "run", *churn)) == 0
    (tmp_path / "run").rename(tmp_path / "moved")  # with its store
    assert main(["predict", str(tmp_path / "moved"), "--split", "val"]) == 0
    assert main(["page", str(tmp_path / "moved")]) == 0
    assert "is not there now" not in (tmp_path / "moved" / "run.html").read_text()
    before = sorted(path for path in (tmp_path / "moved").rglob("*") if path.is_file())
    capsys.readouterr()
    for more in ([*churn, "--batch-size", "4"], ["--task", "rebuy"]):
        assert main(small(shop_database, tmp_path / "moved", *more)) == 1
    other = tmp_path / "other.sqlite"
    shop.generate(other, customers=60, products=20)
    assert main(small(other, tmp_path / "moved", *churn)) == 1
    said = capsys.readouterr().err
    assert "holds a run of another source or other metadata, or the source has changed" in said
    assert "batch_size was 8 and is 4. Replace it with --overwrite" in said
    assert "the task was 'churn' and is 'rebuy'" in said
    assert sorted(path for path in (tmp_path / "moved").rglob("*") if path.is_file()) == before
    (graph,) = (tmp_path / "moved" / "store").rglob("graph.bin")
    graph.write_bytes(graph.read_bytes()[:1000])
    assert main(small(shop_database, tmp_path / "moved", *churn, "--overwrite")) == 0
    assert "is damaged and is built again: " in capsys.readouterr().err
    for path in (tmp_path / "moved" / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    assert main(small(shop_database, tmp_path / "moved", *churn)) == 1
    assert main(small(shop_database, tmp_path / "moved", *churn, "--overwrite")) == 0
    assert "no checkpoint of the run is whole" in capsys.readouterr().err


def test_a_build_that_fails_leaves_the_run_that_is_there(
    shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, out = tmp_path / "x.sql", tmp_path / "run"
    asked = ["--query", str(query), "--anchor", "customers.customer_id", "--target", "churned"]
    asked += ["--split-column", "split"]
    query.write_text(QUERY.read_text())
    assert main(small(shop_database, out, *asked)) == 0
    query.write_text("SELECT nothing AS churned, customer_id FROM customers")
    assert main(small(shop_database, out, *asked, "--overwrite")) == 1
    query.write_text(QUERY.read_text())
    capsys.readouterr()
    assert main(small(shop_database, out, *asked)) == 0
    said = capsys.readouterr().err
    assert "up to date" in said and "trained already" in said

    mark = out / "built.json"  # killed when another store had taken its place
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "store": "of before"}))
    assert main(small(shop_database, out, *asked)) == 1
    assert "holds a run of another source" in capsys.readouterr().err


def test_answers_that_are_not_what_they_are_taken_for_are_refused(
    shop_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT customer_id, TIMESTAMP '2025-09-01' AS obs_time, 3.5 AS x FROM customers"
    (tmp_path / "x.sql").write_text(query)
    asked = ["--query", str(tmp_path / "x.sql"), "--anchor", "customers.customer_id"]
    assert main(small(shop_database, tmp_path / "run", *asked, "--target", "x")) == 1
    assert (
        "250 of 250 values of 'x' are neither true nor false: give their type with --target-type"
    ) in capsys.readouterr().err
    as_number = ["--target", "x", "--target-type", "numerical", "--split", "val"]
    for value, fault in (("3.5", "are 3.5"), ("NULL", "are NULL or NaN")):
        (tmp_path / "x.sql").write_text(query.replace("3.5", value))
        assert main(small(shop_database, tmp_path / "run", *asked, *as_number)) == 1
        said = capsys.readouterr().err
        assert "train, val and test of x differ by customers, not by time" in said
        assert f"of split 'train' {fault}, there is nothing to learn from (train 175 " in said
        assert "No split can mend that: correct the task's query" in said
    assert main(small(shop_database, tmp_path / "run", "--task", "chrun")) == 1


def test_a_damaged_checkpoint_is_one_clear_error(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    train = [
        "train",
        str(shop_store),
        "--task",
        "subscribed",
        "--out",
        str(out),
        "--preset",
        "tiny",
    ]
    assert main([*train, "--steps", "1", "--width", "16", "--layers", "1"]) == 0
    for path in (out / "checkpoints" / "1" / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    capsys.readouterr()
    assert main(["predict", str(out), "--split", "val"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"confluence: the checkpoint of step 1 in '{out}' is damaged: some file")
    assert said.endswith(": train again")
