"""How many hops contexts go, and whether they have label rows, if val chooses."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small import SMALL

import confluence
from confluence.cli.arguments import setting_parsers
from confluence.config import AUTO, Config, ConfigError, PastConfig, preset
from confluence.folder import checkpoint
from confluence.folder.checkpoint import Score
from confluence.training import context_choice, guard
from confluence.training.context_choice import with_contexts
from confluence.training.val_scores import ValScores

ASKED = Config(max_hops=AUTO, steps=600)


def store_of(val: int) -> Any:
    """A store with so many labels of val, and 10,000 of train."""
    labels = SimpleNamespace(
        splits=np.array([1] * val + [0] * 10_000), is_known=np.ones(val + 10_000, bool),
        is_labelled=np.ones(val + 10_000, bool),
    )  # fmt: skip
    batch = {"num_cells": np.array([100]), "num_sequences": np.array([1])}
    return SimpleNamespace(
        labels=[labels], weight=1.0, places=[SimpleNamespace(name="t", weight=1.0)],
        sampler=SimpleNamespace(batches_of=lambda seeds, task: [batch]),
    )  # fmt: skip


def choose(
    cfg: Config, goodness: Mapping[int, float | None], val: int = 500
) -> tuple[Any, list[tuple[Any, Any]]]:
    """The hops that are chosen by such scores, and the hops and steps of each trial."""
    tried: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def opened(settings: Config) -> Iterator[tuple[Any, ...]]:
        yield (store_of(val),)

    def trial(settings: Config, stores: Sequence[Any]) -> Score | None:
        tried.append((settings.max_hops, settings.steps))
        assert isinstance(settings.max_hops, int)
        value = goodness[settings.max_hops]
        return None if value is None else Score("auroc", value, value)

    return with_contexts(cfg, opened, trial, check=lambda stores: None).max_hops, tried


def test_the_better_score_chooses(capsys: Any) -> None:
    assert choose(ASKED, {1: 0.6, 2: 0.7}) == (2, [(1, 200), (2, 200)])
    said = capsys.readouterr().err
    assert "contexts go 2 hops: auroc on val by hops is 1 0.6000, 2 0.7000" in said
    assert "after 200 steps of each in 0 s" in said
    assert choose(ASKED, {1: 0.7, 2: 0.6})[0] == 1
    assert "contexts go 1 hop: " in capsys.readouterr().err
    assert choose(ASKED, {1: 0.7, 2: 0.7})[0] == 1  # the cheaper one
    assert choose(ASKED, {1: None, 2: None})[0] == 2
    assert choose(ASKED, {1: None, 2: 0.1})[0] == 2 and choose(ASKED, {1: 0.1, 2: None})[0] == 1


@pytest.mark.parametrize(
    "cfg",
    [
        Config(max_hops=2), Config(max_hops=1), Config(max_hops=None),
        ASKED.replace(eval_every=0), ASKED.replace(train_on_val=True),
        ASKED.replace(steps=299), ASKED.replace(steps=1),
        PastConfig(**{**ASKED.to_dict(), "time_split": ("2025-01-01", "2025-02-01")}),
    ],
)  # fmt: skip
def test_nothing_is_tried_if_nothing_may_be_chosen(cfg: Config) -> None:
    expected = 2 if cfg.max_hops == AUTO else cfg.max_hops
    assert choose(cfg, {1: 1.0, 2: 0.0}) == (expected, [])


def test_few_labels_choose_nothing() -> None:
    assert choose(ASKED, {1: 1.0, 2: 0.0}, val=199) == (2, [])
    assert choose(ASKED, {1: 1.0, 2: 0.0}, val=200)[0] == 1


def test_trials_are_a_part_of_a_training() -> None:
    assert choose(ASKED.replace(steps=300), {1: 0, 2: 1})[1] == [(1, 100), (2, 100)]
    assert choose(ASKED.replace(steps=6000), {1: 0, 2: 1})[1] == [(1, 200), (2, 200)]
    planned = preset(
        "small", batch_size=2000, label_rows=0
    )  # 20 epochs of 10,000 seeds are 100 steps
    assert choose(planned, {1: 0, 2: 1})[1] == [(1, 100), (2, 100)]


ROWS_ASKED = ASKED.replace(label_rows=AUTO)
BY_CONTEXTS = {(1, 0): 0.6, (2, 0): 0.7, (1, 8): 0.9, (2, 8): 0.8}


def contexts(
    cfg: Config, monkeypatch: pytest.MonkeyPatch, goodness: Mapping[tuple[Any, Any], float | None],
    *, could_have: bool = True,
) -> tuple[tuple[Any, Any], list[tuple[Any, Any]]]:  # fmt: skip
    """The hops and label rows that are chosen by such scores, and those of each trial."""
    tried: list[tuple[Any, Any]] = []
    monkeypatch.setattr(context_choice, "has_label_rows", lambda stores, cfg: could_have)

    @contextlib.contextmanager
    def opened(settings: Config) -> Iterator[tuple[Any, ...]]:
        yield (store_of(500),)

    def trial(settings: Config, stores: Sequence[Any]) -> Score | None:
        tried.append((settings.max_hops, settings.label_rows))
        value = goodness[tried[-1]]
        return None if value is None else Score("auroc", value, value)

    chosen = with_contexts(cfg, opened, trial, check=lambda stores: None)
    return (chosen.max_hops, chosen.label_rows), tried


def test_label_rows_are_tried_with_the_hops_that_were_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert contexts(ROWS_ASKED, monkeypatch, BY_CONTEXTS) == ((2, 8), [(1, 0), (2, 0), (2, 8)])
    said = capsys.readouterr().err
    assert "trying contexts with 8 label rows, 200 steps each (--label-rows)" in said
    assert (
        "contexts have up to 8 label rows: auroc on val by label rows is 0 0.7000, 8 0.8000" in said
    )
    worse = {**BY_CONTEXTS, (2, 8): 0.7}
    assert contexts(ROWS_ASKED, monkeypatch, worse)[0] == (2, 0)  # the cheaper one
    assert "contexts have no label rows: " in capsys.readouterr().err
    fixed = ROWS_ASKED.replace(max_hops=3)
    by_three = {(3, 0): 0.7, (3, 8): 0.8}
    capsys.readouterr()
    assert contexts(fixed, monkeypatch, by_three) == ((3, 8), [(3, 0), (3, 8)])
    assert "trying contexts with and without 8 label rows, 200 steps" in capsys.readouterr().err
    assert contexts(fixed, monkeypatch, {**by_three, (3, 8): None})[0] == (3, 0)


def test_label_rows_are_not_tried_where_no_context_has_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = contexts(ROWS_ASKED, monkeypatch, BY_CONTEXTS, could_have=False)
    assert found == ((2, 0), [(1, 0), (2, 0)])
    fixed = ROWS_ASKED.replace(max_hops=1)
    assert contexts(fixed, monkeypatch, BY_CONTEXTS, could_have=False) == ((1, 0), [])


@pytest.mark.parametrize("settings", [{"eval_every": 0}, {"train_on_val": True}, {"steps": 299}])
def test_there_are_no_label_rows_if_nothing_may_be_chosen(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = ROWS_ASKED.replace(**settings)
    assert contexts(cfg, monkeypatch, BY_CONTEXTS) == ((2, 0), [])


def test_auto_is_the_word() -> None:
    assert preset("small").max_hops == preset("laptop").max_hops == AUTO
    assert preset("small").label_rows == AUTO and preset("small").label_row_limit == 0
    assert preset("small", label_rows=3).label_row_limit == 3
    assert preset("laptop").label_rows == preset("demo").label_rows == 0
    assert [setting_parsers()["label_rows"](text) for text in ("auto", "3")] == [AUTO, 3]
    assert preset("small").hop_limit == 2 and preset("small", max_hops=1).hop_limit == 1
    read = setting_parsers()["max_hops"]
    assert [read(text) for text in ("auto", "3", "none")] == [AUTO, 3, None]
    with pytest.raises(ConfigError, match="max_hops is 'far', expected a whole number, or one of"):
        Config(max_hops="far")
    with pytest.raises(ConfigError, match="max_hops is -1, must be"):
        Config(max_hops=-1)


@pytest.mark.release
def test_a_run_keeps_the_hops_that_it_chose(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(context_choice, "LEAST_LABELS", 5)
    out, settings = tmp_path / "run", {**SMALL, "max_hops": AUTO, "steps": 300, "save_every": 0}
    run = confluence.train(shop_store, task="subscribed", out=out, trees=False, **settings)
    said = capsys.readouterr().err
    assert "trying contexts of 1 and of 2 hops, 100 steps each" in said
    assert f"contexts go {run.config.max_hops} hop" in said and "after 100 steps of each" in said
    assert "--max-hops 2 goes further" not in said  # it was tried
    kept = checkpoint.load_record(out)["config"]["max_hops"]
    assert kept == run.config.max_hops and kept in (1, 2)
    assert confluence.load(out).config.max_hops == kept
    again = confluence.train(
        shop_store, task="subscribed", out=out, trees=False, resume=True, **settings
    )
    assert again.config.max_hops == kept and "contexts go" not in capsys.readouterr().err
    with pytest.raises(checkpoint.CheckpointError, match=f"max_hops was {kept} and is {3 - kept}"):
        confluence.train(
            shop_store, task="subscribed", out=out, trees=False, resume=True,
            **{**settings, "max_hops": 3 - kept},
        )  # fmt: skip


TRIED = {**SMALL, "max_hops": AUTO, "steps": 300, "save_every": 0, "trees": False}


@pytest.fixture
def tried(shop_store: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What trains after trials."""
    monkeypatch.setattr(context_choice, "LEAST_LABELS", 5)
    return {"store": shop_store, "task": "subscribed", **TRIED}


@pytest.mark.parametrize("step", [40, 100])  # 100 is the last of the trial
def test_a_stop_in_a_trial_leaves_nothing(
    step: int, tried: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real, scored = ValScores.score, list[int]()

    def asked(self: Any, params: Any, at: int, log: Any) -> Any:
        scored.append(at)
        if at == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, params, at, log)

    monkeypatch.setattr(ValScores, "score", asked)
    monkeypatch.setattr(guard, "PATIENCE", 99)
    with pytest.raises(confluence.TrainingStopped, match="before the training: nothing is saved"):
        confluence.train(out=tmp_path / "run", **tried)
    assert not (tmp_path / "run").exists()
    assert scored == [at for at in (10, 40, 70, 100) if at <= step]  # few, as they take long
    said = capsys.readouterr().err
    assert "nothing is saved yet" in said and "to save" not in said


def test_what_a_training_refuses_is_refused_before_the_trials(
    tried: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    short = {**tried, "steps": 3, "max_hops": 2, "width": 32}
    confluence.train(out=tmp_path / "run", **short)
    with pytest.raises(FileExistsError, match="holds a run"):
        confluence.train(out=tmp_path / "run", **tried)
    with pytest.raises(checkpoint.CheckpointError, match="has another model"):
        confluence.train(out=tmp_path / "other", init_from=str(tmp_path / "run"), **tried)
    with pytest.raises(checkpoint.CheckpointError, match="max_hops was 2 and is 'auto'"):
        confluence.train(out=tmp_path / "run", resume=True, **{**tried, "width": 32})
    assert "trying" not in capsys.readouterr().err


def test_a_trial_that_diverges_is_left_out(
    tried: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(context_choice, "TRIAL_RATE", 1e30)
    run = confluence.train(out=tmp_path / "run", **{**tried, "eval_every": None})
    assert run.config.max_hops == 2
    assert "contexts go" not in capsys.readouterr().err
