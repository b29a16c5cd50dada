"""Several contexts of each seed: how they differ, how they are averaged, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import confluence
from confluence.config import Config
from confluence.contexts import (
    SeveralContexts,
    child_widths,
    context_settings,
    describe_contexts,
)
from confluence.evaluation_table import describe_evaluation
from confluence.model import Output

SMALL: dict[str, Any] = {
    "preset": "tiny", "width": 16, "layers": 2, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip


def test_uniform_draws_differ_by_seed_and_recent_children_by_width() -> None:
    uniform = Config(child_order="uniform", seed=7)
    assert context_settings(uniform, 3) == [{}, {"seed": 8}, {"seed": 9}]
    assert describe_contexts(uniform, 3) == "draws of children"
    recent = Config(child_order="recent", child_width=12)
    assert context_settings(recent, 3) == [{}, {"bfs_child_width": 15}, {"bfs_child_width": 9}]
    assert describe_contexts(recent, 4) == "child_width 12, 15, 9, 18"
    assert child_widths(2, 5) == [2, 3, 1, 4, 5]  # never 0
    assert child_widths(1, 3) == [1, 2, 3]
    for count in (0, 65):
        with pytest.raises(ValueError, match=f"contexts is {count}, expected 1 to 64"):
            context_settings(recent, count)


class Passes:
    """Stands for a Predictor: a batch says what its outputs are."""

    def outputs(self, params: Any, batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches


def batch(seeds: list[int], logits: list[float], categories: list[list[float]]) -> Any:
    values = np.array(logits, np.float32)
    output = Output(
        null=values, numerical=values, timestamp=np.repeat(values[:, None], 15, axis=1),
        boolean=values, categorical=np.array(categories, np.float32),
    )  # type: ignore[arg-type]  # fmt: skip
    index = np.array(seeds)
    info = {"seed_index": index, "anchor_rows": index * 10, "obs_time": index, "rank": np.array(0)}
    return output, info


def log(*shares: float) -> list[float]:
    return np.log(shares).tolist()


def test_probabilities_and_numbers_are_averaged_seed_by_seed() -> None:
    first = [
        batch([4, 2], [0.0, 2.0], [log(0.5, 0.5), log(0.9, 0.1)]),
        batch([3], [1.0], [log(0.2, 0.8)]),
    ]
    other = [batch([3, 4, 2], [1.0, 4.0, 2.0], [log(0.2, 0.8), log(0.1, 0.9), log(0.9, 0.1)])]
    several = SeveralContexts(Passes(), [other])  # type: ignore[arg-type]
    ((output, info),) = several.outputs({}, iter(first))
    assert info["seed_index"].tolist() == [4, 2, 3]
    assert np.asarray(output.numerical).tolist() == [2.0, 2.0, 1.0]
    assert np.asarray(output.timestamp)[0].tolist() == [2.0] * 15
    share = 1 / (1 + np.exp(-np.asarray(output.boolean)))
    expected = [(0.5 + 1 / (1 + np.exp(-4.0))) / 2, 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(-1.0))]
    np.testing.assert_allclose(share, expected, rtol=1e-6)
    np.testing.assert_allclose(np.exp(output.categorical[0]), [0.3, 0.7], rtol=1e-6)
    np.testing.assert_allclose(np.exp(output.categorical[2]), [0.2, 0.8], rtol=1e-6)
    assert several.changed_share == pytest.approx(1 / 3)


def test_passes_over_other_seeds_are_refused() -> None:
    first, other = [batch([1], [0.0], [[0.0]])], [batch([2], [0.0], [[0.0]])]
    several = SeveralContexts(Passes(), [other])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not over the same seeds"):
        list(several.outputs({}, iter(first)))
    assert list(SeveralContexts(Passes(), []).outputs({}, iter([]))) == []  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    out = tmp_path_factory.mktemp("runs") / "churn"
    return confluence.train(
        shop_store, task="churn", out=out, steps=2, child_order="uniform", child_width=2, **SMALL
    )


def test_a_run_averages_what_the_passes_say(trained: confluence.Run) -> None:
    passes = []
    for k in range(2):
        settings = {**vars(trained), "config": trained.config.replace(seed=trained.config.seed + k)}
        rows = confluence.Run(**settings).predict(split="val")
        passes.append({(r["key"], r["obs_time"]): r["probability"] for r in rows})
    assert passes[0] != passes[1]
    both = trained.predict(split="val", contexts=2)
    for row in both:
        mean = np.mean([one[row["key"], row["obs_time"]] for one in passes])
        assert row["probability"] == pytest.approx(mean, abs=1e-5)
    keys = [row["key"] for row in both][:3]
    by_key = trained.predict(keys=keys, at="2025-08-01", contexts=2, path=trained.out / "keys.csv")
    assert [row["key"] for row in by_key] == keys
    assert by_key != trained.predict(keys=keys, at="2025-08-01", path=trained.out / "keys.csv")


def test_an_evaluation_says_how_many_seeds_contexts_changed(trained: confluence.Run) -> None:
    options = {"trees": False, "resamples": 20}
    result = trained.evaluate("val", contexts=2, **options)
    assert result["contexts"]["count"] == 2
    assert result["contexts"]["differ_by"] == "draws of children"
    assert 0 < result["contexts"]["changed_share"] <= 1
    assert set(result["baselines"]) == {"global_constant", "per_entity"}
    assert trained.evaluate("val", **options)["contexts"] == {"count": 1}
    # Without hops there are no children to draw.
    alone = trained.config.replace(max_hops=1, child_order="recent")
    same = confluence.Run(**{**vars(trained), "config": alone})
    result = same.evaluate("val", contexts=2, **options)
    assert result["contexts"] == {
        "count": 2, "differ_by": "child_width 2, 3", "changed_share": 0.0,
    }  # fmt: skip
    assert any("averaging changed nothing" in line for line in describe_evaluation(result))
    assert jnp.isfinite(result["metrics"]["auroc"])
