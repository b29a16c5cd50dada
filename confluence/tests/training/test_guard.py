"""When a training is scored, which of its weights answer, and when it ends."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small import SMALL, events, write_sqlite

import confluence
from confluence.cli.main import main
from confluence.config import Config, PastConfig
from confluence.data.tasks import Labels
from confluence.folder import checkpoint
from confluence.training import session
from confluence.training.guard import (
    evaluation_steps,
    first_labelled,
    is_guarded,
    is_over,
    of_sample,
)

STEPS = 100
FEW = {**SMALL, "batch_size": 8, "steps": STEPS, "save_every": 0, "trees": False}


def planned(steps: int, **settings: Any) -> tuple[int, ...]:
    return evaluation_steps(Config(steps=steps, **settings))


def test_the_steps_of_evaluations() -> None:
    assert planned(100) == (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    assert planned(250) == (25, 50, 75, 100, 125, 150, 175, 200, 225, 250)
    assert planned(700) == (25, 50, 75, 100, 200, 300, 400, 500, 600, 700)
    assert planned(99) == ()
    assert planned(100, eval_every=40) == (40, 80)
    assert planned(100, eval_every=0) == ()


@pytest.mark.parametrize("steps", [100, 101, 137, 249, 251, 599, 1800, 20_000])
def test_four_evaluations_come_early_and_ten_in_all(steps: int) -> None:
    found = planned(steps)
    assert sum(step <= 100 for step in found) >= 4 and len(found) == 10
    assert found[-1] == steps and sorted(set(found)) == list(found)


def test_nothing_is_chosen_by_what_is_learned_or_scored_later() -> None:
    assert is_guarded(Config(steps=100))
    others = [
        Config(steps=100, train_on_val=True), Config(steps=100, objective="masked_cells"),
        PastConfig(steps=100, time_split=("2025-01-01", "2025-02-01")),
        Config(steps=100, eval_every=10),
    ]  # fmt: skip
    assert not any(is_guarded(cfg) for cfg in others)
    assert [evaluation_steps(cfg) for cfg in others[:3]] == [(), (), ()]


def test_scores_that_get_no_better_end_a_training() -> None:
    cfg = Config(steps=700)  # scored at 25, 50, 75, 100, 200, ..., 700
    assert [step for step in evaluation_steps(cfg) if is_over(cfg, step, 50)] == [500, 600, 700]
    assert [step for step in evaluation_steps(cfg) if is_over(cfg, step, 100)] == [700]
    assert not any(is_over(cfg, step, 200) for step in evaluation_steps(cfg))
    assert not any(is_over(cfg, step, None) for step in evaluation_steps(cfg))
    asked = Config(steps=700, eval_every=100)  # somebody else's business
    assert not any(is_over(asked, step, 100) for step in evaluation_steps(asked))


def labels_of(known: list[bool], splits: list[int]) -> Labels:
    n = len(known)
    return Labels(
        anchor_rows=np.zeros(n, np.uint32), obs_times=np.zeros(n, np.int64),
        targets=np.zeros(n), is_known=np.array(known), is_labelled=np.array(known),
        splits=np.array(splits, np.uint8),
    )  # fmt: skip


class Batch(SimpleNamespace):
    """Contexts of some seeds, and two places that hold none."""

    def __init__(self, seeds: list[int]) -> None:
        super().__init__(
            info={"seed_index": np.array([*seeds, 0, 0])},
            values={"num_sequences": np.array([len(seeds)])},
        )

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def test_a_sample_has_whole_batches_up_to_its_last_label() -> None:
    labels = labels_of([True, False, True, True, False, True], [1, 1, 1, 1, 1, 0])
    read = []

    def batches() -> Iterator[Batch]:
        for seeds in ([1, 4], [0, 2], [3]):
            read.append(seeds)
            yield Batch(seeds)

    kept = list(first_labelled(batches(), labels, 2))
    assert len(kept) == 2 and read == [[1, 4], [0, 2]]
    assert len(list(first_labelled(batches(), labels, 3))) == 3
    assert len(list(first_labelled(batches(), labels, 99))) == 3
    sample = of_sample(labels, np.array([1, 4, 0, 2], np.uint32))
    assert sample.splits.tolist() == [1, 1, 1, 255, 1, 0]
    assert labels.splits.tolist() == [1, 1, 1, 1, 1, 0]


@pytest.fixture(scope="module")
def guarded(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("guarded") / "run"
    return out, confluence.train(shop_store, task="subscribed", out=out, **FEW)


def test_the_best_weights_on_val_answer(guarded: tuple[Path, Any], capsys: Any) -> None:
    out, run = guarded
    scores = {e["step"]: e["metrics"]["auroc"] for e in events(out, "evaluate")}
    assert list(scores) == list(planned(STEPS))[: len(scores)]
    best = max(scores, key=lambda step: (scores[step], -step))
    loaded = confluence.load(out)
    assert run.step == loaded.step == best
    for name, value in run.params.items():
        np.testing.assert_array_equal(value, loaded.params[name])
    assert confluence.load(out, which="last").step == checkpoint.saved_steps(out)[-1]
    assert main(["evaluate", str(out), "--split", "val", "--no-trees", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == best
    assert found["metrics"]["auroc"] == pytest.approx(scores[best])  # val is smaller than a sample


def test_a_run_that_goes_on_chooses_alike(
    guarded: tuple[Path, Any], shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the midst, it has the scores, weights and end of one that was not."""
    whole, run = guarded
    real = checkpoint.Keeper.save

    def stopping(self: Any, step: int, *rest: Any, **more: Any) -> None:
        real(self, step, *rest, **more)
        if step >= 20:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Keeper, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            confluence.train(shop_store, task="subscribed", out=out, **FEW)
    again = confluence.train(shop_store, task="subscribed", out=out, resume=True, **FEW)
    assert events(out, "resume")
    assert again.step == run.step
    for name, value in run.params.items():
        np.testing.assert_array_equal(value, again.params[name])
    found = [{e["step"]: e["metrics"] for e in events(o, "evaluate")} for o in (whole, out)]
    assert found[0] == found[1]


def test_a_training_that_ends_early_is_done(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(session, "is_over", lambda cfg, step, best: step == 30)
    run = confluence.train(shop_store, task="subscribed", out=out, **FEW)
    said = capsys.readouterr().err
    assert checkpoint.saved_steps(out)[-1] == 30 and run.step <= 30
    assert "the training ended after step 30 of 100: the weights of step" in said
    (end,) = events(out, "end")
    assert end["steps"] == 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a run that should be resumed
        assert confluence.load(out).step == run.step
    again = confluence.train(shop_store, task="subscribed", out=out, resume=True, **FEW)
    assert again.step == run.step and len(events(out, "evaluate")) == 3


def test_a_small_val_of_one_class_leaves_the_last_weights(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No score is defined, so nothing is chosen, and nothing ends."""
    monkeypatch.setattr("confluence.training.val_scores._score", lambda *given: None)
    out = tmp_path / "run"
    run = confluence.train(shop_store, task="subscribed", out=out, **FEW)
    assert run.step == STEPS and confluence.load(out).step == STEPS


# -------------------------------------------------------------------------- labels dealt by lot


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    """300 people with five things each did."""
    deal = random.Random(7)

    def deeds() -> Iterator[tuple[Any, ...]]:
        for number in range(1500):
            at = f"2025-{deal.randrange(5) + 1:02}-{deal.randrange(28) + 1:02}"
            yield number, number % 300, at, deal.random()

    towns = ((number, deal.choice(["Ulm", "Bonn", "Kiel"])) for number in range(300))
    path = tmp_path_factory.mktemp("lot") / "lot.sqlite"
    return write_sqlite(
        path,
        {
            "people": ("id INTEGER PRIMARY KEY, town TEXT", towns),
            "deeds": (
                "id INTEGER PRIMARY KEY, person INTEGER REFERENCES people(id), at TIMESTAMP,"
                " worth REAL",
                deeds(),
            ),
        },
    )


LOT = """SELECT id, TIMESTAMP '2025-06-01' + (id % 28) * INTERVAL 1 DAY AS asked,
                hash(id) % 2 = 0 AS answer
         FROM people"""


def test_labels_by_lot_end_with_no_better_than_a_constant(
    people: str, tmp_path: Path, capsys: Any
) -> None:
    """The answers have nothing to do with anything; 187 steps are 20 epochs of 300 seeds."""
    query = tmp_path / "lot.sql"
    query.write_text(LOT, encoding="utf-8")
    status = main([
        "run", people, "--task", "lot", "--query", str(query), "--anchor", "people.id",
        "--target", "answer", "--obs-time", "asked", "--out", str(tmp_path / "out"),
    ])  # fmt: skip
    said = capsys.readouterr()
    assert status == 0
    assert "no better than a constant" in said.out + said.err
