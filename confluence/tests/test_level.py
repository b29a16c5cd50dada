"""Which train seeds tell the level of answers, and what level they tell (level.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from headwater import SemanticType

import confluence.level
from confluence.config import Config, ConfigError
from confluence.data import NO_TIME, Labels, Task
from confluence.evaluate import Predictions
from confluence.level import MOST_SEEDS, levelled, newest_train

DAY = 86_400_000_000
TRAIN, VAL = 0, 1


def labels(days: list[float], splits: list[int], known: list[bool] | None = None) -> Labels:
    count = len(days)
    is_known = np.ones(count, bool) if known is None else np.array(known)
    times = [NO_TIME if day == np.inf else int(day * DAY) for day in days]
    return Labels(
        anchor_rows=np.arange(count, dtype=np.uint32) + 7, obs_times=np.array(times, np.int64),
        targets=np.arange(count, dtype=np.float64) ** 2, is_known=is_known, is_labelled=is_known,
        splits=np.array(splits, np.uint8),
    )  # fmt: skip


def test_the_newest_are_counted_back_from_the_last_train_seed_with_a_label() -> None:
    made = labels([0, 70, 71, 99, 100, 101, 500, np.inf], [0, 0, 0, 0, 0, 0, VAL, TRAIN],
                  [True, True, True, True, True, False, True, True])  # fmt: skip
    assert newest_train(made, 30.0).tolist() == [1, 2, 3, 4]
    assert newest_train(made, 0.5).tolist() == [4]
    assert newest_train(made, 1e6).tolist() == [0, 1, 2, 3, 4]
    assert newest_train(labels([1, 2], [VAL, VAL]), 30.0).size == 0
    assert newest_train(labels([np.inf], [TRAIN]), 30.0).size == 0


def test_of_very_many_evenly_many_are_asked() -> None:
    many = labels(list(np.linspace(0, 1, 10 * MOST_SEEDS)), [TRAIN] * (10 * MOST_SEEDS))
    chosen = newest_train(many, 30.0)
    assert chosen.size == MOST_SEEDS and chosen[0] == 0 and chosen[-1] == 10 * MOST_SEEDS - 1
    assert set(np.diff(chosen).tolist()) <= {10, 11}


class Asked:
    """Stands for a sampler: notes what it is asked."""

    def batches_for(self, task: str, *, rows: Any, obs_time: Any) -> list[Any]:
        self.rows, self.times = rows.tolist(), obs_time.tolist()
        return []


def level_of(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[float, Asked]:
    """Of seeds with the labels 1, 4, 9 and 16, of which the model says 0, 2, 4 and 6, in the order
    of another pass."""
    made = labels([0, 100, 101, 102, 103], [TRAIN] * 5)
    order = np.array([2, 0, 3, 1])

    def predict(*_: Any, clamp: bool) -> Predictions:
        assert clamp is False
        nothing = np.zeros(4)
        return Predictions(
            seed_index=order.astype(np.uint32), anchor_rows=nothing.astype(np.uint32),
            obs_times=nothing.astype(np.int64), values=2.0 * order, probabilities=nothing,
            null_probabilities=nothing,
        )  # fmt: skip

    monkeypatch.setattr(confluence.level, "predict", predict)
    task = Task(
        name="t", index=0, stype=settings.pop("stype", SemanticType.NUMERICAL), categories=(),
        column_mean=0, column_std=1, mean=0, std=1, low=0, high=1, positive_share=0, null_share=0,
        label_window_us=0,
    )  # fmt: skip
    asked = Asked()
    nothing: Any = None
    found = levelled(task, made, asked, nothing, nothing, Config(**settings))
    assert dataclasses.replace(found, level=0.0) == task
    return found.level, asked


def test_the_level_is_the_median_error_or_for_rmse_the_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    level, asked = level_of(monkeypatch, level_days=10.0)
    assert level == np.median([1, 2, 5, 10])
    assert asked.rows == [8, 9, 10, 11] and asked.times == [day * DAY for day in range(100, 104)]
    assert level_of(monkeypatch, level_days=10.0, metric="rmse")[0] == np.mean([1, 2, 5, 10])


def test_without_the_setting_or_a_number_there_is_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    assert level_of(monkeypatch, level_days=None)[0] == 0.0
    assert level_of(monkeypatch, level_days=10.0, stype=SemanticType.BOOLEAN)[0] == 0.0
    with pytest.raises(ConfigError, match="level_days is 0, must be > 0"):
        Config(level_days=0)
