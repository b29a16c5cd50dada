"""When a training is scored, which of its weights answer, and when it ends."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import SMALL, events, labelled, write_sqlite

import confluence
from confluence.answers.calibration import Calibration
from confluence.answers.kept_trees import KeptTrees, TreeShare
from confluence.cli.main import main
from confluence.config import Config, PastConfig
from confluence.data.tasks import Labels
from confluence.folder import checkpoint
from confluence.runs.ensemble import Ensemble
from confluence.training import guard, session, val_scores
from confluence.training.guard import (
    evaluation_steps,
    is_guarded,
    is_over,
    of_sample,
    sample_of,
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
        PastConfig(steps=100, time_split=("2025-01-01", "2025-02-01"), eval_every=10),
    ]  # fmt: skip
    assert not any(is_guarded(cfg) for cfg in others)
    assert [evaluation_steps(cfg) for cfg in others] == [(), (), (), ()]
    assert not is_guarded(Config(steps=100, eval_every=10))


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


def test_a_sample_is_of_labels_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_of([True, False, True, True, False, True], [1, 1, 1, 1, 1, 0])
    assert sample_of(labels, 1, seed=3).tolist() == [0, 2, 3]
    assert sample_of(labels, 0, seed=3).tolist() == [5]
    assert sample_of(labels, 2, seed=3).tolist() == []
    monkeypatch.setattr(guard, "SAMPLE", 2)
    drawn = [tuple(sample_of(labels, 1, seed=seed).tolist()) for seed in range(20)]
    assert set(drawn) == {(0, 2), (0, 3), (2, 3)}
    assert drawn[7] == tuple(sample_of(labels, 1, seed=7).tolist())
    sample = of_sample(labels, np.array([0, 3]))
    assert sample.splits.tolist() == [1, 255, 255, 1, 255, 0]
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


def test_a_run_without_val_is_not_scored(shop_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = {**FEW, "split_ratios": (0.9, 0.0, 0.1)}
    run = confluence.train(shop_store, task="device", out=out, **settings)
    assert run.step == STEPS and not events(out, "evaluate")


def test_a_sample_is_answered_alike_from_a_pack(
    guarded: tuple[Path, Any], shop_store: Path, tmp_path: Path
) -> None:
    settings = {name: value for name, value in FEW.items() if name not in ("trees", "preset")}
    confluence.prebatch(
        shop_store, task="subscribed", out=tmp_path / "pack", preset="tiny", **settings
    )
    run = confluence.train(prebatched=tmp_path / "pack", out=tmp_path / "run", trees=False)
    found = [
        [(e["step"], e["scored"], e["metrics"]["auroc"]) for e in events(out, "evaluate")]
        for out in (guarded[0], tmp_path / "run")
    ]
    assert found[0] == found[1] and run.step == guarded[1].step


def test_the_best_weights_may_be_damaged(
    guarded: tuple[Path, Any], shop_store: Path, tmp_path: Path
) -> None:
    """Another checkpoint answers when the run is trained again, and the damaged one is named."""
    out = tmp_path / "run"
    shutil.copytree(guarded[0], out)
    best = guarded[1].step
    assert best < checkpoint.saved_steps(out)[-1]
    for path in (out / "checkpoints" / str(best) / "params").rglob("*"):
        if path.is_file() and path.stat().st_size > 1000:
            path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(checkpoint.DamagedCheckpointError, match="--checkpoint"):
        confluence.load(out)
    with pytest.warns(UserWarning, match=f"step {best} in .* is damaged.*another one answers"):
        again = confluence.train(shop_store, task="subscribed", out=out, resume=True, **FEW)
    assert again.step != best and confluence.load(out).step == again.step
    assert (out / "checkpoints" / f"{best}.damaged").is_dir()


def test_a_record_of_before_is_finished_at_its_last_step() -> None:
    assert checkpoint.is_finished({"step": 7, "config": {"steps": 7}})
    assert not checkpoint.is_finished({"step": 6, "config": {"steps": 7}})
    assert checkpoint.is_finished({"step": 6, "config": {"steps": 7}, "finished": True})


def test_a_map_is_of_the_weights_that_it_was_made_for(guarded: tuple[Path, Any]) -> None:
    place, map_ = guarded[1].place(), Calibration(kind="platt", slope=2.0)
    chosen = TreeShare(share=0.0)
    kept = KeptTrees(trees=None, chosen=chosen, step=guarded[1].step, calibration=map_)
    for step, expected in ((kept.step, map_), (kept.step + 1, None)):
        run = dataclasses.replace(guarded[1], step=step, trees={place.title: kept})
        assert Ensemble().calibration(run, place) is expected


# ------------------------------------------------------------------------------- train and val


def test_a_line_compares_train_with_val(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Answers that know train, and deal val by lot."""
    monkeypatch.setattr(val_scores, "LEAST_SCORED", 20)
    real, lot = val_scores.predict, np.random.default_rng(3)

    def by_heart(source: Any, params: Any, batches: Any, task: Any) -> Any:
        found = real(source, params, batches, task)
        seeds = found.seed_index.astype(np.int64)
        known = np.where(labels.splits[seeds] == 0, labels.targets[seeds], lot.random(seeds.size))
        return dataclasses.replace(found, values=known)

    _, labels = labelled(shop_store, Config(steps=STEPS), "subscribed")
    train = {"task": "subscribed", **FEW}
    with monkeypatch.context() as patch:
        patch.setattr(val_scores, "predict", by_heart)
        confluence.train(shop_store, out=tmp_path / "heart", **train)
    assert "subscribed: auroc is 1.000 on train and 0." in capsys.readouterr().err
    confluence.train(shop_store, out=tmp_path / "fair", **train)  # whose answer is in the row
    assert " on train and " not in capsys.readouterr().err


def test_skill_is_the_way_from_a_constant_to_the_truth(shop_store: Path) -> None:
    task, labels = labelled(shop_store, Config(steps=STEPS), "rating")
    known = np.flatnonzero(labels.is_known)[:50]
    targets, usual = labels.targets[known], np.median(labels.targets[labels.is_known])
    perfect = val_scores._skill(targets, targets, task, labels, "mae")
    assert perfect == (0.0, 1.0)
    value, skill = val_scores._skill((targets + usual) / 2, targets, task, labels, "mae")
    assert skill == pytest.approx(0.5, abs=0.1) and value is not None and value > 0


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
    """The answers have nothing to do with anything; 150 steps are 20 epochs of 242 seeds."""
    query = tmp_path / "lot.sql"
    query.write_text(LOT, encoding="utf-8")
    status = main([
        "run", people, "--task", "lot", "--query", str(query), "--anchor", "people.id",
        "--target", "answer", "--obs-time", "asked", "--out", str(tmp_path / "out"),
    ])  # fmt: skip
    said = capsys.readouterr()
    assert status == 0
    assert "no better than a constant" in said.out + said.err
    assert "150 steps (--steps), by 242 train seeds" in said.err
