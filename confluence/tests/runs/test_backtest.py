"""Backtests see the train split alone, learn from before each cutoff, and go on where they were."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
from headwater.store.row_keys import time_us

import confluence
from confluence.cli.main import main
from confluence.config import Config, PastConfig
from confluence.data.tasks import NO_TIME, TRAIN, VAL
from confluence.report.tables import describe_backtest
from confluence.runs.backtest import _duration, _spans, summarise
from confluence.runs.train import train_with

SMALL: dict[str, Any] = {**small.SMALL, "steps": 3}


def fold(cutoff: str, auroc: float | None, seed: int = 42, **more: Any) -> dict[str, Any]:
    """One fold of a result."""
    return {
        "task": "t", "metric": "auroc", "cutoff": cutoff, "seed": seed, "scored": 9,
        "tree_share": 0.0,
        "frozen": {"auroc": auroc}, "rolling": {"auroc": 0.5},
        "baselines": {"per_entity": {"auroc": 0.6}}, **more,
    }  # fmt: skip


def test_folds_score_train_seeds_after_the_cutoff_and_learn_from_those_before(
    shop_store: Path, cfg: Config
) -> None:
    at, until = "2024-12-01", "2025-04-15"
    _, given = small.labelled(shop_store, cfg, "churn")
    dealt = PastConfig(**{**cfg.to_dict(), "time_split": (at, until), "visible_until": at})
    task, labels = small.labelled(shop_store, dealt, "churn")
    window = task.label_window_us
    assert np.all(given.splits[labels.splits <= VAL] == TRAIN)
    train, val = labels.splits == TRAIN, labels.splits == VAL
    assert window > 0
    assert train.sum() > 0 and val.sum() > 0
    assert np.all(labels.obs_times[train] < time_us(at))
    assert np.all(labels.obs_times[train] + window <= time_us(at))
    assert np.all((labels.obs_times[val] >= time_us(at)) & (labels.obs_times[val] < time_us(until)))
    assert NO_TIME not in labels.obs_times[val]


def test_a_backtest_has_a_run_per_fold_and_does_none_twice(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "backtest"
    arguments = ["backtest", str(shop_store), "--task", "churn", "--out", str(out)]
    arguments += ["--cutoffs", "2024-11-01,2025-02-01", "--horizon-days", "80", "--json"]
    arguments += small.words(SMALL)
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads((out / "backtest.json").read_text()) == result
    assert [fold["cutoff"] for fold in result["folds"]] == [
        "2024-11-01T00:00:00", "2025-02-01T00:00:00",
    ]  # fmt: skip
    own = [fold["frozen"]["auroc"] for fold in result["folds"]]
    assert result["tasks"]["churn"]["model"] == pytest.approx(sum(own) / 2)
    assert result["tasks"]["churn"]["baselines"]["global_constant"] == 0.5
    places = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert places == ["2024-11-01-seed-42", "2025-02-01-seed-42"]
    kept = json.loads((out / places[0] / "evaluation-val-frozen-2024-11-01.json").read_text())
    assert (kept["regime"], kept["visible_until"]) == ("frozen", "2024-11-01T00:00:00")
    log = (out / places[0] / "log.jsonl").read_text()
    assert main(arguments[: -len(SMALL) * 2 - 1] + arguments[-len(SMALL) * 2 :]) == 0
    assert "mean" in capsys.readouterr().out
    assert (out / places[0] / "log.jsonl").read_text() == log

    # One that is repeated and stopped leaves the result of all folds.
    trained: list[Any] = []

    def train_once(*args: Any, **settings: Any) -> confluence.Run:
        if trained:
            raise KeyboardInterrupt
        trained.append(args)
        return train_with(*args, **settings)

    monkeypatch.setattr(sys.modules["confluence.runs.backtest"], "train_with", train_once)
    assert main(arguments) == 130
    assert trained
    assert json.loads((out / "backtest.json").read_text()) == result


def test_cutoffs_of_one_day_are_folds_of_their_own(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were one folder, and the second fold was refused as a run of another configuration."""
    places: list[Path] = []

    class Fitted:
        titles = ()

    def note(cfg: Config, lessons: Any, out: Path, **settings: Any) -> Fitted:
        places.append(out)
        return Fitted()

    monkeypatch.setattr(sys.modules["confluence.runs.backtest"], "train_with", note)
    cutoffs = ["2024-11-01", "2024-11-01T09:30:00", "2024-11-01T21:30:00.25", "2024-11-01T00:00:00"]
    confluence.backtest(shop_store, task="churn", out=tmp_path, cutoffs=cutoffs, **SMALL)
    assert [path.name for path in places] == [
        "2024-11-01-seed-42", "2024-11-01T093000-seed-42", "2024-11-01T213000.250000-seed-42",
    ]  # fmt: skip


def test_the_table_tells_cutoffs_of_one_day_apart_and_all_seeds_of_one_answer_together() -> None:
    def joint(cutoff: str, auroc: float) -> dict[str, Any]:
        return {
            "task": "t", "cutoff": cutoff, "runs": ["a", "b"], "frozen": {"auroc": auroc},
            "rolling": {"auroc": 0.7},
        }  # fmt: skip

    first, second = "2024-11-01T00:00:00", "2024-11-01T09:30:00"
    folds = [fold(first, 0.6, 1), fold(first, 0.7, 2), fold(second, 0.8, 1), fold(second, 0.9, 2)]
    folds[0] |= {"scored": 1200}
    folds[1] |= {"scored": 1200, "baselines": {"per_entity": {"auroc": None}}}
    together = [joint(first, 0.75), joint(second, 0.95)]
    tasks = summarise(folds, together)
    assert tasks["t"]["together"] == {
        "frozen": pytest.approx(0.85), "rolling": pytest.approx(0.7)
    }  # fmt: skip
    assert tasks["t"]["model"] == pytest.approx(0.75)
    assert describe_backtest({"tasks": tasks, "folds": folds, "together": together}) == [
        "t, auroc, frozen at each cutoff",
        "  cutoff               seed  scored   model  rolling  per entity",
        "  2024-11-01              1   1,200  0.6000   0.5000      0.6000",
        "  2024-11-01              2   1,200  0.7000   0.5000           -",
        "  2024-11-01            all   1,200  0.7500   0.7000",
        "  2024-11-01T09:30:00     1       9  0.8000   0.5000      0.6000",
        "  2024-11-01T09:30:00     2       9  0.9000   0.5000      0.6000",
        "  2024-11-01T09:30:00   all       9  0.9500   0.7000",
        "  mean                               0.7500   0.5000      0.6000",
        "  mean                  all          0.8500   0.7000",
        "  standard deviation over seeds: 0.0707",
        "  all: the 2 runs at each cutoff answer together",
    ]


@pytest.mark.release
def test_a_backtest_of_two_seeds_scores_both_together(shop_store: Path, tmp_path: Path) -> None:
    result = confluence.backtest(
        shop_store, task="churn", out=tmp_path / "back", cutoffs=["2025-02-01"], seeds=(1, 2),
        horizon_days=80, **SMALL,
    )  # fmt: skip
    assert result["tree_share"] is None
    (joint,) = result["together"]
    assert (joint["seeds"], joint["task"], joint["cutoff"]) == (
        [1, 2], "churn", "2025-02-01T00:00:00",
    )  # fmt: skip
    runs = [confluence.load(tmp_path / "back" / f"2025-02-01-seed-{seed}") for seed in (1, 2)]
    said = runs[1].evaluate(
        "val", regime="frozen", visible_until="2025-02-01", trees=False, resamples=0,
        others=runs[:1],
    )  # fmt: skip
    assert joint["frozen"]["auroc"] == pytest.approx(said["metrics"]["auroc"])
    assert result["tasks"]["churn"]["together"]["frozen"] == joint["frozen"]["auroc"]
    written = json.loads((tmp_path / "back" / "backtest.json").read_text())
    assert written["together"] == result["together"]


def test_means_are_over_folds_and_the_spread_over_the_means_of_seeds() -> None:
    values = ((0.7, 1), (0.8, 1), (0.9, 2), (None, 2))
    found = summarise([fold("2024-11-01", value, seed) for value, seed in values])["t"]
    assert found["model"] == pytest.approx(0.8)
    assert found["std"] == pytest.approx(np.std([0.75, 0.9], ddof=1))
    assert found["baselines"] == {"per_entity": pytest.approx(0.6)}


def test_cutoffs_outside_of_the_train_split_are_refused(shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(confluence.TaskError, match="cutoff 2035-01-01T00:00:00: the"):
        confluence.backtest(shop_store, task="churn", out=tmp_path, cutoffs=["2035-01-01"], **SMALL)
    for seeds in ((), (1, 1)):
        with pytest.raises(ValueError, match="at least one seed, and each once"):
            confluence.backtest(shop_store, task="churn", out=tmp_path, seeds=seeds, **SMALL)


def test_what_cannot_be_a_backtest_is_said_before_anything_is_trained(
    shop_store: Path, tmp_path: Path
) -> None:
    def asked(**settings: Any) -> None:
        confluence.backtest(
            shop_store, out=tmp_path / "b", **{"task": "churn", **SMALL, **settings}
        )

    with pytest.raises(ValueError, match=r"seed is what a backtest sets itself: give seeds \(--se"):
        asked(seed=7)
    with pytest.raises(
        confluence.TaskError, match=r"cutoff 2025-01-03T.* asked from then until 20"
    ):
        asked(cutoffs=["2024-11-01", "2025-01-03"], horizon_days=5)
    with pytest.raises(confluence.TaskError, match=r"cutoff 2024-04-15T.* is known by then"):
        asked(cutoffs=["2024-04-15", "2024-11-01"], horizon_days=60)
    assert not (tmp_path / "b").exists()


def test_a_task_that_does_not_say_when_labels_are_known_is_warned_of(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InterruptedError

    monkeypatch.setattr(sys.modules["confluence.runs.backtest"], "train_with", refuse)
    monkeypatch.setattr(sys.modules["confluence.runs.backtest"], "_check_spans", lambda *_: None)
    asked = {"out": tmp_path, "cutoffs": ["2025-01-01"], **SMALL}
    with (
        pytest.warns(UserWarning, match="'subscribed' does not say when a label is known"),
        pytest.raises(InterruptedError),
    ):
        confluence.backtest(shop_store, task=["churn", "subscribed", "rating"], **asked)
    with pytest.raises(InterruptedError):  # and of these no warning
        confluence.backtest(shop_store, task=["churn", "next_order", "rating"], **asked)


def test_a_horizon_is_as_long_as_val_lasts_with_its_last_time() -> None:
    firsts = np.arange("2020-01", "2023-01", dtype="datetime64[M]").astype("datetime64[us]")
    months = firsts.astype(np.int64)
    for count in (2, 3, 4, 6, 12):
        for val in range(12):
            least, most = _duration(months[val : val + count])
            for cutoff in range(12, 24):
                until = months[cutoff] + (most or 0)
                assert np.sum((months >= months[cutoff]) & (months < until)) == count
                assert months[cutoff + count - 1] + 1 - months[cutoff] >= least  # not too short
    assert _duration(months[[3, 3]]) == (0, None)


@pytest.mark.parametrize("days", [0.0, -5.0, float("nan"), float("inf")])
def test_a_horizon_that_is_none_is_refused(days: float, shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"horizon_days is .*, expected a number of days above 0"):
        confluence.backtest(
            shop_store, task="churn", out=tmp_path, horizon_days=days, preset="tiny"
        )


@pytest.mark.filterwarnings("ignore:cutoff .* sooner than the horizon")
def test_fewer_folds_than_asked_for_are_told(shop_store: Path, cfg: Config) -> None:
    _, labels = small.labelled(shop_store, cfg, "churn")
    with pytest.warns(UserWarning, match=r"\d+ folds, not 90: the train seeds of task 'churn'"):
        spans = _spans(labels, "churn", None, 90, 30.0)
    assert len(spans) < 90
