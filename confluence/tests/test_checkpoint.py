"""Checkpoints come back bit for bit, and refuse a store they cannot read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confluence import smoke
from confluence.checkpoint import (
    CheckpointError,
    check_store,
    load_arrays,
    load_record,
    make_record,
    save,
)
from confluence.config import Config
from confluence.train import first_state

METADATA: dict[str, Any] = {
    "name": "shop",
    "fingerprint": "abc",
    "text": {"embedder": "hash", "dim": smoke.TEXT_WIDTH, "count": 3},
}


def record_of(cfg: Config) -> dict[str, Any]:
    return make_record(cfg, METADATA, store="shop.hw", task="churn", moments={"mean": 1.5})


def test_a_checkpoint_comes_back_bit_for_bit(cfg: Config, tmp_path: Path) -> None:
    state = first_state(cfg, smoke.TEXT_WIDTH)
    average = {name: value + 1.0 for name, value in state.params.items()}
    for _ in range(2):  # the second save replaces the first
        save(tmp_path, state.params, average, record_of(cfg))
    record = load_record(tmp_path)
    assert Config.from_dict(record["config"]) == cfg
    assert (record["task"], record["moments"]) == ("churn", {"mean": 1.5})
    params, loaded = load_arrays(tmp_path, record)
    assert set(params) == set(state.params)
    for name in params:
        assert np.array_equal(params[name], state.params[name]), name
        assert np.array_equal(loaded[name], average[name]), name


def test_another_text_embedder_is_refused_with_the_reason(cfg: Config) -> None:
    record = record_of(cfg)
    check_store(record, METADATA)
    other = {**METADATA, "text": {"embedder": "bert", "dim": 384}}
    with pytest.raises(CheckpointError, match="embedded by 'bert' with width 384, the model was"):
        check_store(record, other)
    with pytest.warns(UserWarning, match="rebuilt since training"):
        check_store(record, {**METADATA, "fingerprint": "def"})


def test_a_folder_without_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_record(tmp_path)
