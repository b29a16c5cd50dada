"""Configuration: unknown settings are errors, presets work, everything survives JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from confluence.config import PRESETS, Config, ConfigError, PastConfig, preset
from confluence.value_checks import GROUPS, setting, settings_of


def test_an_unknown_setting_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'batchsize', did you mean 'batch_size'"):
        preset("tiny", batchsize=3)
    with pytest.raises(ConfigError, match="unknown setting 'xyzzy'"):
        Config.from_dict({"xyzzy": 1})
    with pytest.raises(ConfigError, match="unknown preset 'huge', expected one of tiny, small"):
        preset("huge")


def test_values_that_cannot_work_are_all_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(steps=0, metric="mse", width=10, heads=3)
    for part in ("steps is 0", "metric is 'mse'", "width must be a multiple of heads"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 2.5}, "steps is 2.5, expected a whole number"),
        ({"width": 96.0}, "width is 96.0, expected a whole number"),
        ({"seed": True}, "seed is True, expected a whole number"),
        ({"learning_rate": math.nan}, "learning_rate is nan, expected a number"),
        (
            {"max_hops": "2"},
            "max_hops is '2', expected a whole number, or one of ('auto',) or None",
        ),
        ({"child_counts": 1}, "child_counts is 1, expected true or false"),
        ({"staleness": (0.5,)}, "staleness is (0.5,), expected 2 numbers or None"),
        ({"visible_until": 3}, "visible_until is 3, expected a text or None"),
        ({"collective_timeout_s": 0}, "collective_timeout_s is 0, must be > 0 and finite"),
        ({"collective_timeout_s": math.inf}, "collective_timeout_s is inf, must be > 0 and finite"),
        ({"max_targets_per_type": 0}, "max_targets_per_type is 0, must be ≥ 1"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0, must be > 0"),
        ({"beta2": 1.5}, "beta2 is 1.5, must be in [0, 1)"),
        ({"save_every": -5}, "save_every is -5, must be ≥ 0"),
        ({"max_rows": 65_536}, "max_rows is 65536, must be in [1, 65535]"),
        ({"log_to": ("csv",)}, "log_to is ('csv',), expected some of ('tensorboard', 'wandb', 'ml"),
    ],
)
def test_a_value_of_another_kind_or_range_is_told(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Config(**settings)


def test_numbers_of_numpy_become_those_of_json() -> None:
    numbers = {"steps": np.int64(3), "beta1": np.float32(0.5), "clip_norm": 1}
    cfg = Config(**numbers, staleness=(np.float32(0.5), np.int32(9)))
    assert json.loads(json.dumps(cfg.to_dict()))["staleness"] == [0.5, 9]
    assert Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    cfg = preset(name)
    assert Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg


def test_no_cap_is_the_cap_of_the_preset() -> None:
    laptop = preset("laptop", sequence_length=None, max_rows=None)
    assert laptop == preset("laptop")
    assert preset("laptop", max_rows=None, sequence_length=99).sequence_length == 99


def test_the_laptop_preset_is_the_recipe_of_the_model_document() -> None:
    cfg = preset("laptop")
    assert (cfg.sequence_length, cfg.max_rows, cfg.batch_size) == (256, 64, 32)
    assert (cfg.width, cfg.layers, cfg.heads, cfg.feed_forward_width) == (96, 3, 6, 256)
    assert (cfg.child_order, cfg.identifier_cells, cfg.max_hops) == ("recent", "none", "auto")


def test_every_field_says_what_it_means() -> None:
    settings = settings_of(Config)
    assert list(settings) == [field.name for field in dataclasses.fields(Config)]
    assert len(settings) <= 50
    for name, about in settings.items():
        assert about.group in GROUPS and len(about.doc) > 10, name
    shown = [name for name, about in settings.items() if about.group != "expert"]
    assert len(shown) <= 25


def test_a_new_setting_is_one_line() -> None:
    """It has its type, default, range, help and words from its field."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class More(Config):
        beams: int = setting("training", 3, "beams of the search", "[1, 9]")
        shard: str = setting("context", "fixed", "whose seeds", words=("fixed", "dealt"))

    assert More().beams == 3
    with pytest.raises(ConfigError, match=r"beams is 10, must be in \[1, 9\]; shard is 'odd', exp"):
        More(beams=10, shard="odd")
    assert settings_of(More)["beams"].doc == "beams of the search"


def test_what_was_trained_on_is_not_scored() -> None:
    cfg = Config(train_on_val=True)
    cfg.check_scored("test")
    with pytest.raises(ConfigError, match="val was trained on"):
        cfg.check_scored("val")
    with pytest.raises(ConfigError, match="eval_every needs train_on_val off"):
        cfg.replace(eval_every=10)
    with pytest.raises(ConfigError, match="train_on_val is not for a backtest"):
        PastConfig(train_on_val=True, time_split=("2020-01-01", "2021-01-01"))
