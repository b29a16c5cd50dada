"""Texts stay on the device where they fit; the model gets the bits that batches would bring."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import bakery
import headwater
import numpy as np
import pytest
from headwater.machine import machine_bytes
from small import opened_tasks

from confluence.config import Config, preset
from confluence.data import tasks
from confluence.data.tasks import TEXTS, device_bytes, device_tables, open_sampler, to_device
from confluence.data.verification import open_store
from confluence.training.step import batch_shape

LIMIT = 8
CFG = preset(
    "tiny", width=16, layers=1, sequence_length=48, max_rows=12, batch_size=4, num_prefetch=0,
    auxiliary_weight=0.5, mask_ratio=0.4, attention="dense",
)  # fmt: skip


def text_bytes(store: Path) -> int:
    with headwater.Store(store) as opened:
        counts = opened.core.counts()
    return 2 * int(counts["text_count"]) * int(counts["text_dim"])


def shape_of(store: Path, cfg: Config, **overrides: Any) -> dict[str, int]:
    with open_sampler(open_store(store), cfg, "churn", **overrides) as sampler:
        return dict(sampler.shape)


def test_texts_stay_on_the_device_up_to_a_tenth_of_its_memory(
    shop_store: Path, other_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_bytes() == machine_bytes()  # of a processor
    sizes = text_bytes(shop_store), text_bytes(other_store)
    paths = [str(shop_store), str(other_store)]
    for room, expected in (
        (sum(sizes), ["numbers", "numbers"]),
        (sum(sizes) - 1, ["numbers", "batch"]),
        (sizes[0] - 1, ["batch", "numbers" if sizes[1] < sizes[0] else "batch"]),
        (0, ["batch", "batch"]),  # as where a device says nothing
    ):
        monkeypatch.setattr(tasks, "device_bytes", lambda room=room: 10 * room)
        assert tasks.text_modes([open_store(path) for path in paths]) == expected


def test_a_store_without_texts_has_nothing_to_keep(tmp_path: Path) -> None:
    store = bakery.build(tmp_path / "bakery")
    assert text_bytes(store) == 0
    assert tasks.text_modes([open_store(store)]) == ["batch"]


def test_batches_of_both_numbers_of_texts_are_known_by_their_shape(shop_store: Path) -> None:
    with open_sampler(open_store(shop_store), CFG, "churn", text_mode="numbers") as sampler:
        batch = sampler.batch("train", 0)
        texts = device_tables(sampler, LIMIT).texts
    assert batch_shape(batch) == batch_shape(to_device(batch, texts))
    assert batch_shape(batch)[1] == sampler.shape["usual_texts"]


def test_a_run_opens_its_samplers_by_that(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room, expected in ((text_bytes(shop_store), "numbers"), (0, "batch")):
        monkeypatch.setattr(tasks, "device_bytes", lambda room=room: 10 * room)
        with opened_tasks(shop_store, ["churn"], CFG) as (opened,):
            assert opened.sampler.text_mode == expected
            texts = device_tables(opened.sampler, LIMIT).texts
            assert (texts is not None) == (expected == "numbers")
        with open_sampler(open_store(shop_store), CFG, "churn") as sampler:
            assert sampler.text_mode == expected


def test_batches_of_several_ranks_have_one_shape(shop_store: Path) -> None:
    alone = shape_of(shop_store, CFG)
    assert alone["usual_texts"] < alone["text_budget"]
    ranks = [shape_of(shop_store, CFG, rank=rank, world_size=2) for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert ranks[0]["usual_texts"] == ranks[0]["text_budget"] == alone["text_budget"]


def test_the_model_gets_the_bits_that_batches_would_bring(shop_store: Path) -> None:
    made: dict[str, list[dict[str, Any]]] = {}
    for mode in ("batch", "numbers"):
        with open_sampler(open_store(shop_store), CFG, "device", text_mode=mode) as sampler:
            texts = device_tables(sampler, LIMIT).texts
            batches = [sampler.batch("train", k) for k in range(3)]
        sampler.store.close()
        del sampler
        gc.collect()  # the vectors of the map outlive the sampler and the store
        made[mode] = [to_device(batch, texts) for batch in batches]
    used = 0
    for one, other in zip(made["batch"], made["numbers"], strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            assert np.asarray(array).tobytes() == np.asarray(other[name]).tobytes(), name
        used += int(np.asarray(one[TEXTS]).any(axis=1).sum())
        assert not np.asarray(other[TEXTS][0]).any()
    assert used > 0
