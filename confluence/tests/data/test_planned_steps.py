"""How many steps a training takes if nobody says."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small import SMALL, opened_tasks

import confluence
from confluence.config import Config, preset
from confluence.data import planned_steps
from confluence.data.planned_steps import with_steps
from confluence.folder import checkpoint


def store_of(seeds: int, **cells: int) -> Any:
    """A store with some labelled train seeds for each task, whose contexts have so many cells."""
    labels = SimpleNamespace(
        splits=np.array([0] * seeds + [1, 2, 0]),
        is_labelled=np.array([True] * (seeds + 2) + [False]),
    )

    def batches_of(chosen: Any, task: str) -> Any:
        assert 0 < chosen.size <= 256 and chosen.max() < seeds
        for _ in chosen:
            yield {"num_cells": np.array([cells[task]]), "num_sequences": np.array([1])}

    return SimpleNamespace(
        sampler=SimpleNamespace(batches_of=batches_of),
        places=[SimpleNamespace(name=name, weight=1.0) for name in cells],
        labels=[labels] * len(cells), weight=float(len(cells)),
    )  # fmt: skip


def steps_of(*stores: Any, **settings: Any) -> int | None:
    return with_steps(preset("small", **settings), stores).steps


def test_a_number_that_is_given_stays() -> None:
    cfg = Config(steps=7)
    assert with_steps(cfg, [store_of(10_000, a=4_000)]) is cfg


def test_steps_follow_from_cells() -> None:
    """75 s of 3 ms and 20 µs for each cell, by a model of the preset small."""
    assert steps_of(store_of(10**6, a=128)) == 10 * int(75 / (0.003 + 0.02e-3 * 4_096) / 10)
    few, many = steps_of(store_of(10**6, a=14)), steps_of(store_of(10**6, a=128))
    assert few is not None and many is not None and 5 < few / many < 9  # of 9.1 times the cells
    assert steps_of(store_of(10**6, a=64), accumulate=2) == many
    assert steps_of(store_of(10**6, a=64), batch_size=64) == many
    assert steps_of(store_of(10**6, a=64, b=192)) == many  # in the mean
    assert steps_of(store_of(10**6, a=64), store_of(10**6, a=192)) == many


def test_all_parts_of_a_batch_of_masked_cells_count() -> None:
    sampler = SimpleNamespace(
        tasks=["a"], flat_shape=lambda name: {"cells": 1024}, shape={"batch_size": 8},
        num_seeds=lambda split: 10**6,
    )  # fmt: skip
    store = SimpleNamespace(sampler=sampler, places=[], labels=[], weight=1.0)
    assert steps_of(store, batch_size=32) == steps_of(store_of(10**6, a=128))


def test_a_larger_model_takes_fewer() -> None:
    small, deep = (steps_of(store_of(10**6, a=128), layers=n) for n in (2, 4))
    assert small is not None and deep is not None and 1.8 < small / deep < 2.2


@pytest.mark.parametrize("seeds", [1, 100, 300, 1_000])
def test_few_seeds_take_few_steps(seeds: int) -> None:
    found = steps_of(store_of(seeds, a=30))
    assert found == max(100, 10 * math.floor(20 * seeds / 32 / 10))


def test_a_run_keeps_its_steps(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Printed, recorded, and the same when it resumes, if the table has changed by then too."""
    settings = {**SMALL, "preset": "small", "heads": 2, "trees": False, "eval_every": 0}
    monkeypatch.setattr(planned_steps, "LEAST_STEPS", 5)
    monkeypatch.setattr(planned_steps, "EPOCHS", 0.5)
    with opened_tasks(shop_store, ["subscribed"], preset("small", **SMALL_SETTINGS)) as stores:
        expected = with_steps(preset("small", **SMALL_SETTINGS), stores).steps
    run = confluence.train(shop_store, task="subscribed", out=tmp_path / "run", **settings)
    said = capsys.readouterr().err
    assert run.config.steps == expected == run.step
    assert f"{expected} steps (--steps), by " in said and "on two cores" in said
    assert checkpoint.load_record(tmp_path / "run")["config"]["steps"] == expected
    monkeypatch.setattr(planned_steps, "LEAST_STEPS", 50)
    again = confluence.train(
        shop_store, task="subscribed", out=tmp_path / "run", resume=True, **settings
    )
    assert again.step == expected


SMALL_SETTINGS = {name: value for name, value in SMALL.items() if name != "preset"} | {"heads": 2}
