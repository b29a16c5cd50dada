"""Configuration: unknown settings are errors, presets work, everything survives JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pytest

from confluence.config import PRESETS, Config, ConfigError, preset


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


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    cfg = preset(name)
    assert Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg


def test_the_laptop_preset_is_the_recipe_of_the_model_document() -> None:
    cfg = preset("laptop")
    assert (cfg.sequence_length, cfg.max_rows, cfg.batch_size) == (256, 64, 32)
    assert (cfg.width, cfg.layers, cfg.heads, cfg.feed_forward_width) == (96, 3, 6, 256)
    assert (cfg.child_order, cfg.identifier_cells, cfg.max_hops) == ("recent", "none", 2)


def test_every_field_says_what_it_means() -> None:
    lines = inspect.getsource(Config).splitlines()
    for field in dataclasses.fields(Config):
        line = next(text for text in lines if text.startswith(f"    {field.name}:"))
        assert "  # " in line, field.name


def test_what_was_trained_on_is_not_scored() -> None:
    cfg = Config(train_on_val=True)
    cfg.check_scored("test")
    with pytest.raises(ConfigError, match="val was trained on"):
        cfg.check_scored("val")
    with pytest.raises(ConfigError, match="eval_every needs train_on_val off"):
        cfg.replace(eval_every=10)
    with pytest.raises(ConfigError, match="a backtest leaves val alone"):
        cfg.replace(time_split=("2020-01-01", "2021-01-01"))
