"""Runs of several tasks and several stores: who is trained how often, and what is theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small import SMALL, events, opened, opened_tasks

import confluence
from confluence.cli.main import main
from confluence.config import Config
from confluence.data.stores import (
    Mixture,
    OpenStore,
    SeedWeights,
    TaskPlace,
    find_places,
)
from confluence.data.tasks import TaskError, context_count


class Counting:
    """A sampler whose batches are numbers."""

    def __init__(self) -> None:
        self.count = 0

    def next_train_batch(self) -> int:
        self.count += 1
        return self.count

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def mixture_of(weights: list[float]) -> Mixture:
    places = [(TaskPlace(store="s", name="t", title="t", weight=weight),) for weight in weights]
    return Mixture(
        [
            OpenStore(path="s", sampler=Counting(), metadata={}, places=p, tasks=(), labels=())
            for p in places
        ]
    )


def test_every_store_has_had_its_share_at_any_point() -> None:
    mixture, counts = mixture_of([1, 3, 2]), np.zeros(3)
    for k in range(1, 601):
        batch, number = mixture.next_batch()
        counts[number] += 1
        assert batch == counts[number]
        assert np.all(np.abs(counts - k * np.array([1, 3, 2]) / 6) <= 1)
    assert counts.tolist() == [100, 300, 200]


def test_a_mixture_goes_on_where_its_state_says() -> None:
    first, second = mixture_of([1, 2]), mixture_of([1, 2])
    for _ in range(7):
        first.next_batch()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [first.next_batch() for _ in range(9)] == [second.next_batch() for _ in range(9)]
    with pytest.raises(ValueError, match="the state is of 2 stores, this run has 1"):
        mixture_of([1]).load_state_dict(first.state_dict())


def test_a_task_is_taken_from_every_store_that_has_it(shop_store: Path, other_store: Path) -> None:
    paths = [str(shop_store), str(other_store)]
    both = opened(*paths)
    places = find_places(both, ["churn", "device"], {"churn": 2, "other/churn": 3})
    assert [(p.store, p.title, p.weight) for p in places] == [
        (paths[0], "shop/churn", 2), (paths[1], "other/churn", 3), (paths[0], "device", 1),
    ]  # fmt: skip
    with pytest.raises(TaskError, match="no store has the task 'chrn'"):
        find_places(both, ["churn", "chrn"])
    with pytest.raises(TaskError, match="has none of the tasks device"):
        find_places(both, ["device"])
    with pytest.raises(TaskError, match="a weight for 'churm'"):
        find_places(both, ["churn"], {"churm": 1})
    for weight in (0, float("inf")):
        with pytest.raises(TaskError, match="expected more than 0"):
            find_places(both, ["churn"], {"churn": weight})
    with pytest.raises(TaskError, match="did you mean 'churn'"):
        find_places(opened(shop_store), ["chrn"])


def test_scales_stand_at_the_index_of_their_task(shop_store: Path, cfg: Config) -> None:
    with opened_tasks(shop_store, ["rating", "churn"], cfg, num_prefetch=0) as (store,):
        scales = store.scales(cfg)
        for task in store.tasks:
            own = task.scales(cfg)
            for found, expected in zip(scales, own, strict=True):
                assert found[task.index] == expected[task.index]
    assert float(scales.scale[store.tasks[0].index]) != float(scales.scale[store.tasks[1].index])


def test_two_tasks_of_a_store_are_trained_by_weight_and_have_results_of_their_own(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    run = confluence.train(
        shop_store, task=["churn", "rating"], task_weights={"rating": 3}, trees=False, out=out,
        steps=8,
        eval_every=8, **SMALL,
    )  # fmt: skip
    assert run.titles == ("churn", "rating")
    assert events(out)[0]["tasks"] == {"churn": 1, "rating": 3}
    assert [event["task"] for event in events(out, "evaluate")] == ["churn", "rating"]
    assert confluence.folder.checkpoint.load_record(out)["score"]["metric"] == "mean over 2 tasks"
    position = confluence.folder.checkpoint.load_record(out)["samplers"]["samplers"][0]
    asked = position["streams"]["train"]["positions"]
    assert asked["churn"] + asked["rating"] == 8 * 8
    with pytest.raises(TaskError, match="which task"):
        run.evaluate("val")
    assert run.evaluate("val", task="rating")["metrics"]["mae"] > 0
    assert (out / "rating" / "evaluation-val-rolling.json").is_file()
    rows = confluence.load(out).predict(split="test", task="churn")
    assert len(rows) > 0 and all(0 <= row["probability"] <= 1 for row in rows)
    capsys.readouterr()
    assert main(["evaluate", str(out), "--split", "val", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["tasks"]
    assert [result["task"] for result in results] == ["churn", "rating"]


@pytest.mark.release
def test_two_stores_train_one_model_and_a_run_of_them_goes_on(
    shop_store: Path, other_store: Path, tmp_path: Path
) -> None:
    stores = [shop_store, other_store]
    settings = {**SMALL, "steps": 6, "save_every": 3}
    whole = confluence.train(stores, task="churn", trees=False, out=tmp_path / "whole", **settings)
    assert whole.titles == ("shop/churn", "other/churn")
    assert whole.evaluate("val", task="other/churn")["scored"] > 0
    part = tmp_path / "part"
    shutil.copytree(whole.out, part)
    shutil.rmtree(part / "checkpoints" / "6")  # as if it had been killed after step 3
    again = confluence.train(stores, task="churn", trees=False, out=part, resume=True, **settings)
    for name, value in whole.params.items():
        assert np.array_equal(value, again.params[name]), name
    with pytest.raises(confluence.CheckpointError, match="the task was 'shop/churn"):
        confluence.train(shop_store, task="churn", trees=False, out=part, resume=True, **settings)
    with pytest.raises(confluence.CheckpointError, match="learned from 2 stores"):
        confluence.load(part, store=shop_store)


def test_older_seeds_weigh_half_each_half_life_and_a_tasks_seeds_one_in_the_mean(
    shop_store: Path, cfg: Config
) -> None:
    settings = cfg.replace(batch_size=64)
    with opened_tasks(shop_store, ["churn", "rating"], settings, num_prefetch=0) as stores:
        weigh = SeedWeights(stores, half_life_days=90)
        for task, labels in zip(stores[0].tasks, stores[0].labels, strict=True):
            last = labels.obs_times[labels.splits == 0].max()
            total, count = 0.0, 0
            for batch in stores[0].sampler.epoch("train", task=task.name):
                n = context_count(batch)
                weights = weigh(batch, 0)[:n]
                ages = (last - batch.info["obs_time"][:n]) / 86_400e6
                first = weights[0] * 2.0 ** (ages[0] / 90)
                np.testing.assert_allclose(weights, first * 2.0 ** (-ages / 90), rtol=1e-5)
                total, count = total + float(weights.sum()), count + n
            assert total / count == pytest.approx(1, rel=1e-4)


def test_a_run_of_weighted_seeds_learns_other_weights(shop_store: Path, tmp_path: Path) -> None:
    runs = [
        confluence.train(
            shop_store, task="churn", trees=False, out=tmp_path / str(days), half_life_days=days,
            **{**SMALL, "steps": 2},
        )
        for days in (None, 30.0)
    ]  # fmt: skip
    logs = [(run.out / "log.jsonl").read_text().splitlines() for run in runs]
    losses = [[json.loads(line)["loss"] for line in log if '"train"' in line] for log in logs]
    assert losses[0] != losses[1]
    with pytest.raises(confluence.ConfigError, match="half_life_days is 0"):
        Config(half_life_days=0)
