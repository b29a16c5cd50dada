"""Runs that answer together: whose mean it is, in which units, and which runs may."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import bakery
import numpy as np
import pytest
from stand_ins import Pass, batch

import confluence
from confluence.answers.several_runs import (
    SeveralRuns,
    describe_runs,
    in_units_of,
    mark,
)
from confluence.cli.main import main
from confluence.config import PastConfig
from confluence.data.tasks import Task, TaskError
from confluence.report.tables import describe_evaluation
from confluence.training.step import Predictor

SMALL: dict[str, Any] = {
    "preset": "tiny", "width": 16, "layers": 2, "sequence_length": 32, "max_rows": 12, "steps": 4,
    "compute_dtype": "float32",
}  # fmt: skip
BOTH = ["next_sale", "mood"]
PLAIN: dict[str, Any] = {"trees": False, "resamples": 0}


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[confluence.Run]:
    """Of two tasks; of the same with another seed; of one, with other contexts."""
    folder = tmp_path_factory.mktemp("runs")
    wider = {"sequence_length": 40, "max_rows": 16}
    return [
        confluence.train(store, task=BOTH, out=folder / "a", **SMALL),
        confluence.train(store, task=BOTH, out=folder / "b", **SMALL, seed=7),
        confluence.train(store, task="next_sale", out=folder / "c", **{**SMALL, **wider}),
    ]


# ---- outputs


def task(**moments: float) -> Task:
    fields: dict[str, Any] = {f.name: 0 for f in dataclasses.fields(Task)}
    return Task(**{**fields, "std": 1.0, "column_std": 1.0, **moments})


def test_numbers_and_times_change_their_units_and_nothing_else() -> None:
    output, _ = batch([1, 2], [3.0, -1.0])
    theirs = task(mean=10.0, std=2.0, column_mean=100.0, column_std=50.0)
    ours = task(mean=4.0, std=5.0, column_mean=20.0, column_std=10.0)
    changed = in_units_of(ours, theirs, output)
    # 3 means 3 * 2 + 10 = 16 to them, which is (16 - 4) / 5 of ours
    np.testing.assert_allclose(changed.numerical, [12 / 5, (8 - 4) / 5])
    # and an epoch of 3 means 250, which is 23 of ours; the cyclic parts have no units
    np.testing.assert_allclose(changed.timestamp[:, -1], [23.0, 3.0])
    np.testing.assert_array_equal(changed.timestamp[:, :-1], output.timestamp[:, :-1])
    for name in ("null", "boolean", "categorical"):
        np.testing.assert_array_equal(getattr(changed, name), getattr(output, name))
    for part, same in zip(in_units_of(theirs, theirs, output), output, strict=True):
        np.testing.assert_allclose(part, same, atol=1e-12)


def test_each_run_counts_once_and_seeds_are_found_again() -> None:
    first = [batch([4, 2], [0.0, 1.0]), batch([9], [2.0])]
    others = [
        (Path("b"), task(), iter([batch([9, 4, 2], [5.0, 3.0, 4.0])])),
        (Path("c"), task(mean=3.0), iter([batch([2], [-2.0]), batch([4, 9], [0.0, 2.0])])),
    ]
    several = SeveralRuns(Pass(), task(), others)
    ((output, info),) = several.outputs({}, iter(first))
    assert info["seed_index"].tolist() == [4, 2, 9]
    np.testing.assert_allclose(output.numerical, [(0 + 3 + 3) / 3, (1 + 4 + 1) / 3, 12 / 3])
    shares = 1 / (1 + np.exp(-np.array([[0, 3, 0], [1, 4, -2], [2, 5, 2]], float)))
    for logits in (output.null, output.boolean):
        np.testing.assert_allclose(1 / (1 + np.exp(-logits)), shares.mean(axis=1))
    np.testing.assert_allclose(np.exp(output.categorical), [[0.25, 0.75]] * 3)


@pytest.mark.parametrize("said", [[], [batch([4, 3], [0.0, 0.0])], [batch([4], [0.0])]])
def test_a_run_that_says_nothing_or_of_other_seeds_is_refused(said: list[Any]) -> None:
    several = SeveralRuns(Pass(), task(), [(Path("runs/b"), task(), iter(said))])
    with pytest.raises(ValueError, match="the run in 'runs/b' does not answer the same seeds"):
        list(several.outputs({}, iter([batch([4, 2], [0.0, 1.0])])))


# ---- runs


def test_a_prediction_is_the_mean_of_those_of_the_runs(
    runs: list[confluence.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluence.answers.read_out.clamped", lambda values, task: values)
    first, *others = runs
    alone = [
        [row["prediction"] for row in run.predict(split="val", task=title)]
        for run, title in zip(runs, ["next_sale", "next_sale", None], strict=True)
    ]
    assert alone[0] != alone[1]
    together = first.predict(split="val", task="next_sale", others=others)
    said = [row["prediction"] for row in together]
    np.testing.assert_allclose(said, np.mean(alone, axis=0), rtol=1e-5)
    name = f"predictions-val-{mark([(run.out, run.step) for run in runs])}.csv"
    file = first.predictions_file("val", task="next_sale", others=others)
    assert file == first.out / "next_sale" / name
    turned = runs[2].predict(split="val", others=[first, runs[1]], path=first.out / "turned.csv")
    np.testing.assert_allclose([row["prediction"] for row in turned], said, rtol=1e-5)


def test_keys_that_can_be_read_once_are_answered(
    runs: list[confluence.Run], tmp_path: Path
) -> None:
    keys, at = [("Aachen", 3), ("007", 1)], ["2025-04-01", "2025-04-02"]
    ask: dict[str, Any] = {"task": "next_sale", "path": tmp_path / "p.csv"}
    once = runs[0].predict(keys=iter(keys), at=iter(at), **ask)
    assert list(once) == list(runs[0].predict(keys=keys, at=at, **ask))
    assert len(once) == 2


def test_of_no_keys_there_are_no_answers(runs: list[confluence.Run], tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("city,number,obs_time\n", encoding="utf-8")
    ask: dict[str, Any] = {"keys_file": empty, "task": "next_sale", "path": tmp_path / "p.csv"}
    assert len(runs[0].predict(**ask)) == 0
    assert len(runs[0].predict(**ask, others=runs[1:])) == 0


def test_keys_are_answered_together_too(runs: list[confluence.Run], tmp_path: Path) -> None:
    """Of answers within the labels' range: where one alone is cut to it, the mean is another."""
    keys, at = [("007", 12), ("007", 1)], "2025-04-01"

    def said(run: confluence.Run, **options: Any) -> list[float]:
        task = "next_sale" if len(run.places) > 1 else None
        answers = run.predict(keys=keys, at=at, task=task, path=tmp_path / "k.csv", **options)
        return [row["prediction"] for row in answers]

    alone = [said(run) for run in runs]
    assert np.min(alone) > 3.0  # the least label
    np.testing.assert_allclose(said(runs[0], others=runs[1:]), np.mean(alone, axis=0), rtol=1e-5)


def test_categories_are_those_with_the_largest_mean_share(runs: list[confluence.Run]) -> None:
    """Of three categories and two runs: the mean share of the winner lies between theirs of it."""
    first, second = runs[:2]
    rows = first.predict(split="val", task="mood", others=[second])
    alone = [run.predict(split="val", task="mood") for run in (first, second)]
    for row, *ones in zip(rows, *alone, strict=True):
        if ones[0]["prediction"] == ones[1]["prediction"]:
            assert row["prediction"] == ones[0]["prediction"]
            mean = np.mean([one["probability"] for one in ones])
            assert row["probability"] == pytest.approx(mean, abs=1e-5)
        else:
            assert row["probability"] < max(one["probability"] for one in ones)


def test_an_evaluation_says_which_runs_it_is_of(runs: list[confluence.Run]) -> None:
    first, *others = runs
    alone = first.evaluate("val", task="next_sale", **PLAIN)
    assert "runs" not in alone
    result = first.evaluate("val", task="next_sale", others=others, **PLAIN)
    predicted = first.predict(split="val", task="next_sale", others=others)
    labels = {(c, n, t): bakery.amount(bakery.SHOPS.index((c, n)), 3)
              for c, n, t in bakery.label_rows("val")}  # fmt: skip
    errors = [
        abs(row["prediction"] - labels[str(row["key"][0]), row["key"][1], row["obs_time"]])
        for row in predicted
    ]
    assert result["metrics"]["mae"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert [run["out"] for run in result["runs"]] == [str(run.out) for run in runs]
    assert [run["step"] for run in result["runs"]] == [4, 4, 4]
    told = "\n".join(describe_evaluation(result))
    assert describe_runs(result["runs"]) in told
    assert describe_runs(result["runs"]) in (first.out / "run.html").read_text(encoding="utf-8")
    files = {json.loads(f.read_text())["metrics"]["mae"] for f in first.out.glob("*/eval*.json")}
    assert {alone["metrics"]["mae"], result["metrics"]["mae"]} <= files


def test_runs_that_cannot_answer_together(
    runs: list[confluence.Run], store: Path, tmp_path: Path
) -> None:
    first, second, third = runs
    with pytest.raises(ValueError, match="one is given twice"):
        first.evaluate("val", task="mood", others=[second, first], **PLAIN)
    with pytest.raises(TaskError, match=r"run in '.*c' has no task 'mood', it has next_sale"):
        first.predict(split="val", task="mood", others=[third])
    last = {"config": third.config.replace(train_on_val=True, eval_every=0)}
    with pytest.raises(ValueError, match="train_on_val"):
        first.evaluate(
            "val", task="next_sale", others=[dataclasses.replace(third, **last)], **PLAIN
        )
    span = {"time_split": ("2025-03-01", "2025-04-01")}
    past = {"config": PastConfig(**third.config.to_dict(), **span)}
    with pytest.raises(ValueError, match="does not answer the same seeds"):
        first.evaluate(
            "val", task="next_sale", others=[dataclasses.replace(third, **past)], **PLAIN
        )
    masked = dataclasses.replace(
        first, config=first.config.replace(objective="masked_cells", mask_ratio=0.2)
    )
    with pytest.raises(TaskError, match=r"the run in '.*a' learned masked cells"):
        masked.evaluate("val", others=[second])
    rebuilt = bakery.build(tmp_path / "changed", changed_from="2025-02-01")
    place = dataclasses.replace(third.place(), store=str(rebuilt))
    with pytest.raises(TaskError, match="'next_sale' in another build of a store"):
        first.predict(
            split="val", task="next_sale", others=[dataclasses.replace(third, places=(place,))]
        )


def test_runs_are_refused_before_any_has_answered(
    runs: list[confluence.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last run without the task cost the passes of all before it."""
    asked: list[Any] = []
    monkeypatch.setattr(Predictor, "outputs", lambda *given: asked.append(given))
    first, second, third = runs
    with pytest.raises(TaskError, match="has no task 'mood'"):
        first.predict(split="val", task="mood", others=[second, third])
    assert asked == []


def test_the_commands_take_several_runs(
    runs: list[confluence.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(run.out) for run in runs]
    options = ["--task", "next_sale", "--split", "val"]
    assert main(["predict", *folders, *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["predictions"]) == runs[0].predictions_file(
        "val", task="next_sale", others=runs[1:]
    )
    assert main(["evaluate", *folders, *options, "--resamples", "0", "--no-trees"]) == 0
    assert "average of 3 runs" in capsys.readouterr().out
