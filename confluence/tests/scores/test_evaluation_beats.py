"""A long evaluation is no silence: it is one beat, and each of its batches says that it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from confluence.config import preset
from confluence.data.tasks import open_sampler
from confluence.data.verification import open_store
from confluence.ranks import group as parallel
from confluence.ranks.group import Group
from confluence.ranks.watchdog import Watchdog
from confluence.runs.pretrain import pretrain
from confluence.runs.train import train

TINY: dict[str, Any] = {
    "preset": "tiny", "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 8,
    "batch_size": 16, "num_threads": 1, "steps": 2, "eval_every": 1,
}  # fmt: skip


class Beats:
    """A watchdog that keeps what it is told."""

    def __init__(self) -> None:
        self.on_end: Any = None
        self.told: list[str] = []
        self.evaluations: list[int] = []  # batches of each

    def beat(self, doing: str) -> None:
        self.told.append(doing)
        if doing == "an evaluation":
            self.evaluations.append(0)

    def still(self) -> None:
        if self.told[-1:] == ["an evaluation"]:  # nothing yet while a store is verified
            self.evaluations[-1] += 1


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Beats:
    kept = Beats()
    monkeypatch.setattr(parallel, "_current", Group(watchdog=cast("Watchdog", kept)))
    return kept


def test_the_batches_of_a_task(shop_store: Path, tmp_path: Path, beats: Beats) -> None:
    train(shop_store, task="rating", trees=False, out=tmp_path / "run", **TINY)
    with open_sampler(
        open_store(shop_store),
        preset(TINY["preset"], **{n: v for n, v in TINY.items() if n != "preset"}),
        "rating",
    ) as opened:
        val = len(opened.epoch("val"))
    assert val > 1
    assert beats.evaluations == [val, val]


@pytest.mark.release
def test_the_batches_of_masked_cells(shop_store: Path, tmp_path: Path, beats: Beats) -> None:
    pretrain(shop_store, out=tmp_path / "run", seed_tables=("reviews", "orders"), **TINY)
    found = beats.evaluations
    assert len(found) == 2 and found[0] == found[1] > 1
