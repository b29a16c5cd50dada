"""A run that was opened as for a training, and not trained; and what its samplers are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import jax
import pytest
from small import opened_tasks

from confluence.config import Config
from confluence.model.transformer import init
from confluence.runs.run import Run


def noted_samplers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every sampler that is opened from here on, in a list that grows."""
    noted: list[dict[str, Any]] = []

    class Noting(headwater.Sampler):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            noted.append(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(headwater, "Sampler", Noting)
    return noted


def untrained_run(store: Path, task: str, cfg: Config, out: Path) -> Run:
    with opened_tasks(store, [task], cfg) as (opened,):
        params = init(jax.random.key(0), cfg, int(opened.metadata["text"]["dim"]))
        place = opened.places[0].with_moments(opened.tasks[0])
    return Run(
        out=out, places=(place,), config=cfg, step=0, params=params,
        stores=(str(store),),
    )  # fmt: skip
