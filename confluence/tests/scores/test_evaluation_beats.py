"""A long evaluation is no silence: each of its batches is a beat."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import headwater
import pytest

from confluence.ranks import group as parallel
from confluence.ranks.group import Group
from confluence.ranks.watchdog import Watchdog
from confluence.runs.pretrain import pretrain
from confluence.runs.run import train

TINY: dict[str, Any] = {
    "preset": "tiny", "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 8,
    "batch_size": 16, "num_threads": 1, "steps": 2, "eval_every": 1,
}  # fmt: skip


class Beats:
    """A watchdog that keeps what it is told."""

    def __init__(self) -> None:
        self.on_end: Any = None
        self.told: list[str] = []

    def beat(self, doing: str) -> None:
        self.told.append(doing)

    def of_evaluations(self) -> list[str]:
        return [doing for doing in self.told if doing.endswith("of an evaluation")]


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Beats:
    kept = Beats()
    monkeypatch.setattr(parallel, "_current", Group(watchdog=cast("Watchdog", kept)))
    return kept


def named(count: int) -> list[str]:
    return [f"batch {number} of an evaluation" for number in range(count)]


def test_the_batches_of_a_task(shop_store: Path, tmp_path: Path, beats: Beats) -> None:
    train(shop_store, task="rating", out=tmp_path / "run", **TINY)
    size = TINY["batch_size"]
    with headwater.Sampler(shop_store, seed=0, default_batch_size=size, tasks=["rating"]) as opened:
        val = opened.batches_per_epoch("val")
    assert val > 1
    assert beats.of_evaluations() == 2 * named(val)


def test_the_batches_of_masked_cells(shop_store: Path, tmp_path: Path, beats: Beats) -> None:
    pretrain(shop_store, out=tmp_path / "run", seed_tables=("reviews", "orders"), **TINY)
    found = beats.of_evaluations()
    assert len(found) > 2
    assert found == 2 * named(len(found) // 2)
