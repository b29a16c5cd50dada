"""The linear probe: its regressions against answers by hand, and what of a run it reads."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flat_layout import lay_out

from confluence.cli.main import main
from confluence.config import Config
from confluence.data.tasks import TaskError, device_tables, open_sampler
from confluence.data.verification import open_store
from confluence.model.transformer import init
from confluence.report.evaluation_files import read_results
from confluence.runs.load import load
from confluence.runs.pretrain import pretrain
from confluence.runs.probe import Reader
from confluence.runs.run import Run
from confluence.scores import linear
from confluence.scores.linear import Ridge, Softmax
from confluence.training.step import RecompilationError

TINY: dict[str, Any] = {
    "preset": "tiny", "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 8,
    "batch_size": 32, "num_threads": 1,
}  # fmt: skip
QUICK: dict[str, Any] = {"resamples": 0, "trees": False}


# ---- the regressions


def test_ridge_is_as_worked_out_by_hand() -> None:
    """x of mean 2 and spread 1 has the standard values -1 and 1; y = 0 and 2 has the slope 1, which
    the penalty divides by 1 + strength."""
    x, y = np.array([[1.0], [3.0], [1.0], [3.0]]), np.array([0.0, 2.0, 0.0, 2.0])
    fitted = linear.fit(Ridge(), x, y, np.arange(4), strength=1.0).linear
    assert fitted.weight == pytest.approx(np.array([[0.5]]))
    assert fitted.scores(np.array([[1.0], [3.0], [5.0]]))[:, 0] == pytest.approx([0.5, 1.5, 2.5])


def test_two_classes_are_told_as_the_equation_of_the_optimum_says() -> None:
    """Classes at -1 and 1 with scores -wx and wx lose softplus(-2w) + strength·w² in the mean; its
    derivative is 0 where strength·w = 1/(1 + e^(2w))."""
    x, y = np.array([[-1.0], [1.0]] * 3), np.array([0, 1] * 3)
    weight = linear.fit(Softmax(2), x, y, np.arange(6), strength=0.1).linear.weight[0]
    assert weight[1] == pytest.approx(-weight[0])
    assert 0.1 * weight[1] == pytest.approx(1 / (1 + np.exp(2 * weight[1])), rel=1e-6)
    assert weight[1] > 0.5


def test_three_classes_are_those_of_another_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where scores exist for a few rows at a time. A class that never occurs is unlikely."""
    sklearn = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = (x @ rng.normal(size=(5, 3)) + rng.gumbel(size=(200, 3))).argmax(axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    other = sklearn.LogisticRegression(C=1 / (200 * 0.05), tol=1e-10, max_iter=10_000).fit(x, y)
    monkeypatch.setattr(linear, "BLOCK_SCORES", 90)
    fitted = linear.fit(Softmax(3), x, y, np.arange(200), strength=0.05).linear
    np.testing.assert_allclose(fitted.weight.T, other.coef_, atol=1e-4)
    biases, expected = fitted.bias, other.intercept_
    np.testing.assert_allclose(biases - biases.mean(), expected - expected.mean(), atol=1e-3)
    with_fourth = linear.fit(Softmax(4), x, y, np.arange(200), strength=0.05).linear
    assert np.all(with_fourth.scores(x).argmax(axis=1) < 3)


def test_noise_is_penalised_and_a_signal_is_not() -> None:
    rng = np.random.default_rng(1)
    x, groups = rng.normal(size=(300, 20)), np.repeat(np.arange(60), 5)
    noise, signal = rng.normal(size=300), x @ np.arange(20.0)
    assert linear.fit(Ridge(), x, noise, groups).strength == max(linear.STRENGTHS)
    assert linear.fit(Ridge(), x, signal, groups).strength == min(linear.STRENGTHS)
    truth = (signal > 0).astype(np.int64)
    assert linear.fit(Softmax(2), x, truth, groups).strength < 0.1
    assert linear.fit(Ridge(), x, signal, np.zeros(300)).strength == 1.0  # nothing to hold out


def test_rows_of_a_group_are_in_one_fold() -> None:
    groups = np.random.default_rng(2).integers(0, 12, 100)
    folds = linear._folds(groups)
    assert set(folds) == set(range(linear.FOLDS))
    for group in range(12):
        assert len(set(folds[groups == group])) == 1


def test_a_column_that_never_varies_weighs_nothing() -> None:
    x = np.array([[0.1, -1.0], [0.1, 1.0]] * 2, np.float32)
    fitted = linear.fit(Ridge(), x, np.array([-1.0, 1.0] * 2), np.arange(4), strength=1e-9).linear
    assert fitted.weight[:, 0] == pytest.approx([0.0, 1.0])


# ---- the representations


def test_one_more_compilation_than_batches_have_shapes_is_an_error(
    shop_store: Path, cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where not all of the last batch is wanted."""

    def zeros(params: Any, batch: Any, tables: Any) -> Any:
        return jnp.zeros((batch["context_targets"].shape[1], 16))

    module = sys.modules["confluence.runs.probe"]
    monkeypatch.setattr(module, "_jitted_context", lambda *given: jax.jit(zeros))
    options = {"layout": "compact", "text_mode": "batch", "num_prefetch": 0}
    with open_sampler(open_store(shop_store), cfg, "subscribed", **options) as sampler:
        batch = sampler.batch("train", 0)
        reader = Reader(cfg, device_tables(sampler, 1), sampler.database_metadata())
    batches = [lay_out(batch, cells=192, rows=rows) for rows in (40, 40, 41, 42)]
    assert reader.read([{}, {}], batches[:2], limit=7).vectors[1].shape == (7, 16)
    with pytest.raises(RecompilationError, match="compiled 2 times, expected 1"):
        reader.read([{}, {}], batches[2:], limit=7)


# ---- whole probes


@pytest.fixture(scope="module")
def pretrained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of masked cells that never saw a task."""
    return pretrain(
        shop_store, out=tmp_path_factory.mktemp("probed") / "run", steps=60, learning_rate=3e-3,
        **TINY,
    )  # fmt: skip


def with_weights(run: Run, params: Any) -> Run:
    return dataclasses.replace(run, params=params)


def test_what_is_probed_is_the_representation_of_the_frozen_weights(pretrained: Run) -> None:
    """Other weights have other answers, and none where all representations are 0; what is left then
    is the base rate, so the average precision is the share of true seeds."""
    before = {name: np.array(value) for name, value in pretrained.params.items()}
    result = pretrained.probe(task="subscribed", **QUICK)
    for name, value in load(pretrained.out).params.items():
        assert np.array_equal(value, before[name]), name

    first = init(jax.random.key(pretrained.config.seed), pretrained.config, 256)
    control = with_weights(pretrained, first).probe(task="subscribed", **QUICK)
    assert control["metrics"] == result["baselines"]["untrained"]["metrics"]
    assert control["metrics"] != result["metrics"]

    blank = {**pretrained.params}
    blank["heads.norm"] = blank["heads.norm"] * 0 - 1  # h·(1 + γ) = 0 at every target
    nothing = with_weights(pretrained, blank).probe(task="subscribed", **QUICK)
    assert nothing["metrics"]["auroc"] == 0.5
    assert nothing["metrics"] == nothing["baselines"]["global_constant"]["metrics"]


def test_a_probe_is_scored_like_an_evaluation_and_repeats(pretrained: Run) -> None:
    found = pretrained.probe("test", task="subscribed")
    assert (found["regime"], found["step"]) == ("rolling", 60)
    assert found["probe"]["regression"] == "logistic regression"
    assert found["probe"]["width"] == 16
    assert found["scored"] > 10
    assert found["probe"]["train_seeds"] > 50
    assert "the model" not in found["verdict"]["text"].lower()
    assert {"global_constant", "per_entity", "own_columns", "history", "untrained"} == set(
        found["baselines"]
    )
    low, high = found["baselines"]["untrained"]["difference_intervals"]["auroc"]
    assert low <= found["metrics"]["auroc"] - found["baselines"]["untrained"]["metrics"]["auroc"]
    assert low < high
    again = load(pretrained.out).probe("test", task="subscribed", trees=False)
    assert again["metrics"] == found["metrics"]
    assert again["probe"] == found["probe"]


@pytest.mark.parametrize("task", ["rating", "device", "next_order"])
def test_numbers_categories_and_times_are_probed(
    pretrained: Run, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["confluence.runs.probe"], "TRAIN_SEEDS", 100)
    result = pretrained.probe(task=task, **QUICK)
    assert all(value is not None for value in result["metrics"].values())
    assert 0 < result["probe"]["train_seeds"] <= 100
    assert result["probe"]["strength"] in linear.STRENGTHS


def test_the_command_has_files_of_their_own_and_the_page_shows_them(
    pretrained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(pretrained.out)
    arguments = ["probe", out, "--task", "subscribed", "--no-trees", "--resamples", "0"]
    assert main(arguments) == 0
    written = capsys.readouterr()
    said, told = written.out, written.err.splitlines()
    first = re.fullmatch(r"probe of subscribed: reading train, ([0-9]+) contexts", told[0])
    assert first is not None and int(first[1]) > 100
    assert told[1].startswith("probe of subscribed: reading val, ")
    assert told[2:4] == [
        f"probe of subscribed: logistic regression on the vectors of {whose} weights"
        for whose in ("the run's", "first")
    ]
    assert told[4].startswith("probe of subscribed: scoring ")
    assert "a linear probe: logistic regression on 16 numbers of each context" in said
    assert "probe, untrained" in said
    assert main([*arguments, "--visible-until", "2024-03-01", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["regime"], result["visible_until"]) == ("frozen", "2024-03-01")
    names = {path.name for path in pretrained.out.glob("probe-*")}
    assert {
        "probe-subscribed-val-rolling.json", "probe-subscribed-val-frozen-2024-03-01.json",
    } <= names  # fmt: skip
    assert result in read_results(pretrained.out, "probe-*.json")
    page = (pretrained.out / "run.html").read_text()
    assert "subscribed on val, linear probe" in page
    assert main(["probe", out, "--task", "nothing"]) == 1
    assert "no task 'nothing': the run's stores have churn, " in capsys.readouterr().err


def test_a_probe_that_takes_long_says_how_far_it_is(
    pretrained: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve minutes passed without a line. Each look at the clock is 11 seconds after the last."""
    now = iter(range(0, 1_000_000, 11))
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr("confluence.data.progress.time", clock)
    pretrained.probe(task="subscribed", **QUICK)
    told = capsys.readouterr().err
    assert re.search(r"subscribed: reading train: [0-9]+ of [0-9]+, [1-9][0-9]* s left", told)
    assert re.search(r"subscribed: reading train: ([0-9]+) of \1, 0 s left", told)
    whole = re.findall(r"weights: ([0-9]+) of 31, [0-9]+ s left", told)
    assert [int(done) for done in whole] == [*range(1, 31)] * 2  # of 5 folds, 6 strengths, 1 last


def test_questions_that_cannot_be_are_refused(pretrained: Run) -> None:
    with pytest.raises(TaskError, match="which task"):
        pretrained.probe()
    with pytest.raises(ValueError, match="split is 'dev'"):
        pretrained.probe("dev", task="subscribed")
