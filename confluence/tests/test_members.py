"""Runs of several members, which answer with their mean; last fits, which learn from val too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import headwater
import jax
import numpy as np
import pytest
from headwater import SemanticType

import confluence
from confluence import smoke
from confluence.checkpoint import CheckpointError
from confluence.config import Config, ConfigError
from confluence.data import open_sampler, to_device
from confluence.model import Params
from confluence.pretrain import pretrain
from confluence.run import Run, load
from confluence.train import Constants, Fed, Predictor, StepRunner, TrainState, first_state

LIMIT = smoke.CATEGORIES_PER_COLUMN
TINY: dict[str, Any] = {
    "preset": "tiny", "task": "subscribed", "width": 16, "heads": 2, "layers": 1,
    "sequence_length": 32, "max_rows": 8, "batch_size": 16, "steps": 6, "num_threads": 1,
}  # fmt: skip


def member(tree: Any, number: int) -> Any:
    """One member's part of what several share."""
    return jax.tree.map(lambda value: value[number], tree)


def stepped(cfg: Config, state: TrainState, batches: list[Any]) -> tuple[TrainState, list[float]]:
    runner = StepRunner(
        cfg, [Constants(smoke.synthetic_tables(), smoke.synthetic_scales(cfg))],
        text_width=smoke.TEXT_WIDTH, category_limit=LIMIT,
    )  # fmt: skip
    losses = []
    for first in range(0, len(batches), cfg.accumulate):
        rest = iter(batches[first + 1 :])
        state, metrics = runner.step(
            state, Fed(to_device(batches[first])), lambda _, rest=rest: Fed(to_device(next(rest)))
        )
        losses.append(float(metrics["loss"]))
    return state, losses


@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_member_takes_the_steps_it_would_take_alone(cfg: Config, accumulate: int) -> None:
    cfg = cfg.replace(cell_dropout=0.2, accumulate=accumulate)
    both = cfg.replace(members=2)
    batches = [smoke.synthetic_batch(cfg, SemanticType.NUMERICAL, seed=s) for s in range(4)]
    first = first_state(both, smoke.TEXT_WIDTH)
    starts = [
        TrainState(*(member(part, m) for part in first[:2]), step=first.step + 0) for m in (0, 1)
    ]
    weight = "encoder.column.weight"
    assert not np.array_equal(starts[0].params[weight], starts[1].params[weight])
    alone = [stepped(cfg, start, batches) for start in starts]
    state, losses = stepped(both, first, batches)
    np.testing.assert_allclose(losses, np.mean([own for _, own in alone], axis=0), rtol=1e-5)
    for m, (expected, _) in enumerate(alone):
        for name in ("encoder.column.weight", "heads.numerical.weight", "feed_forward.up"):
            np.testing.assert_allclose(
                member(state.params[name], m), expected.params[name], atol=2e-4, err_msg=name
            )


def test_the_mean_is_of_probabilities_and_of_numbers(cfg: Config) -> None:
    both = cfg.replace(members=2)
    params = dict(first_state(both, smoke.TEXT_WIDTH).params)
    params["heads.null.bias"] += np.array([[3.0], [-1.0]], np.float32)  # that they disagree
    params["heads.numerical.bias"] += np.array([[1.0], [-2.0]], np.float32)
    batch = smoke.synthetic_batch(cfg, SemanticType.CATEGORICAL)

    class Batch(dict[str, Any]):
        @property
        def info(self) -> dict[str, Any]:
            return {"seed_index": np.arange(cfg.batch_size)}

    def said(settings: Config, weights: Params) -> Any:
        predictor = Predictor(settings, smoke.synthetic_tables(), category_limit=LIMIT)
        ((output, _),) = predictor.outputs(weights, iter([Batch(batch)]))
        return output

    each = [said(cfg, member(params, m)) for m in (0, 1)]
    together = said(both, params)

    def share(logit: Any) -> Any:
        return 1 / (1 + np.exp(-np.asarray(logit, np.float64)))

    nulls = [share(output.null) for output in each]
    assert np.abs(nulls[0] - nulls[1]).min() > 0.2
    np.testing.assert_allclose(share(together.null), np.mean(nulls, axis=0), rtol=1e-4)
    numbers = [output.numerical for output in each]
    np.testing.assert_allclose(together.numerical, np.mean(numbers, axis=0), rtol=1e-3, atol=1e-4)
    shares = [jax.nn.softmax(output.categorical) for output in each]
    np.testing.assert_allclose(
        np.exp(together.categorical), np.mean(shares, axis=0), rtol=1e-3, atol=1e-6
    )


@pytest.fixture(scope="module")
def run(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("members") / "run"
    return confluence.train(shop_store, out=out, members=2, save_every=3, **TINY)


def test_a_run_of_members_is_opened_evaluated_and_goes_on(
    run: Run, shop_store: Path, tmp_path: Path
) -> None:
    found = run.evaluate("val", resamples=0, trees=False)
    assert load(run.out).evaluate("val", resamples=0, trees=False)["metrics"] == found["metrics"]

    def said(asked: Run) -> Any:
        return asked.predict(split="val", path=tmp_path / "answers.csv").columns()["probability"]

    cfg, both = run.config.replace(members=1), said(run)
    parts = [
        said(dataclasses.replace(run, config=cfg, params=member(run.params, m))) for m in (0, 1)
    ]
    np.testing.assert_allclose(both, np.mean(parts, axis=0), rtol=1e-4)
    assert np.abs(np.subtract(*parts)).max() > 1e-3

    (run.out / "checkpoints" / "6").rename(tmp_path / "6")  # as if stopped after step 3
    again = confluence.train(shop_store, out=run.out, members=2, save_every=3, resume=True, **TINY)
    for name, value in run.params.items():
        assert np.array_equal(again.params[name], value), name


def test_a_probe_reads_all_members(run: Run) -> None:
    result = run.probe(task="subscribed", resamples=0, trees=False)
    assert result["probe"]["width"] == 2 * run.config.width


def test_masked_cells_of_val_are_told_as_the_members_tell_them_on_average(
    shop_store: Path, tmp_path: Path
) -> None:
    settings = {name: value for name, value in TINY.items() if name != "task"}
    run = pretrain(shop_store, out=tmp_path / "run", members=2, **{**settings, "steps": 2})
    found = run.evaluate("val")
    alone = [
        dataclasses.replace(
            run, config=run.config.replace(members=1), params=member(run.params, m)
        ).evaluate("val")
        for m in (0, 1)
    ]  # fmt: skip
    assert found["contexts"] == alone[0]["contexts"] > 0
    assert alone[0]["loss"] != alone[1]["loss"]
    assert found["loss"] == pytest.approx((alone[0]["loss"] + alone[1]["loss"]) / 2, rel=1e-4)
    assert [t["cells"] for t in found["types"].values()] == [
        t["cells"] for t in alone[1]["types"].values()
    ]


def test_a_last_fit_learns_from_val_and_is_scored_on_test_alone(
    shop_store: Path, tmp_path: Path
) -> None:
    settings = {**TINY, "steps": 1, "train_on_val": True}
    run = confluence.train(shop_store, out=tmp_path / "last", **settings)
    with headwater.Sampler(shop_store, tasks=["subscribed"]) as sampler:
        own = [sampler.num_seeds(split) for split in ("train", "val", "test")]
    result = run.evaluate("test", resamples=0, trees=False)
    assert result["scored"] == own[2] > 0
    with open_sampler(str(shop_store), run.config, "subscribed") as sampler:
        assert [sampler.num_seeds(split) for split in ("train", "val")] == [own[0] + own[1], 0]
    with pytest.raises(ConfigError, match="val was trained on"):
        run.evaluate("val")


def test_members_do_not_start_from_one_model(run: Run, shop_store: Path, tmp_path: Path) -> None:
    """They would stay equal. From as many they do."""
    with pytest.raises(CheckpointError, match=r"another model: .* has shape \(2, "):
        confluence.train(shop_store, out=tmp_path / "one", init_from=str(run.out), **TINY)
    other = confluence.train(
        shop_store, out=tmp_path / "two", init_from=str(run.out), members=2,
        **{**TINY, "steps": 1, "learning_rate": 1e-9, "muon_learning_rate": 1e-9},
    )  # fmt: skip
    name = "encoder.column.weight"
    np.testing.assert_allclose(other.params[name], run.params[name], atol=1e-6)
