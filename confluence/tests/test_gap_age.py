"""The setting `gap_age`: who shows gaps, in which samplers, and that the model reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained import noted_samplers, untrained_run

from confluence.config import Config, preset
from confluence.data import open_sampler
from confluence.probe import question_config

SMALL: dict[str, Any] = {
    "width": 16, "layers": 1, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip
STALE = (0.5, 100.0)


@pytest.mark.parametrize(
    ("gap_age", "staleness", "shown"),
    [
        (None, None, False),
        (None, STALE, True),
        (False, STALE, False),
        (True, None, True),
    ],
)
def test_gaps_are_shown_in_runs_with_staleness(
    gap_age: bool | None, staleness: tuple[float, float] | None, shown: bool
) -> None:
    """Also where the answers' contexts are, of which none draws a gap."""
    cfg = Config(gap_age=gap_age, staleness=staleness)
    assert cfg.shows_gaps == shown
    assert cfg.asked().shows_gaps == shown and cfg.asked().staleness is None
    assert question_config(cfg).shows_gaps == shown


@pytest.mark.parametrize("shown", [True, False])
def test_training_evaluation_and_prediction_open_samplers_with_it(
    shown: bool, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = noted_samplers(monkeypatch)
    monkeypatch.setattr("confluence.run.write_page", lambda out: None)  # which needs a log
    cfg = preset("tiny", staleness=STALE if shown else None, **SMALL)
    run = untrained_run(shop_store, "churn", cfg, tmp_path)
    run.evaluate("val", trees=False, resamples=0)
    run.predict(keys=[1, 2], at="2025-01-01")
    assert [options["gap_age"] for options in noted] == [shown] * 3
    assert [options["staleness"] for options in noted] == [cfg.staleness, None, None]


def test_a_question_after_the_end_of_the_database_has_a_gap(
    shop_store: Path, tmp_path: Path
) -> None:
    """And its answers differ from those of a run that does not show it; fresh ones do not."""
    answers = {}
    for gap_age in (True, False):
        cfg = preset("tiny", gap_age=gap_age, **SMALL)
        run = untrained_run(shop_store, "churn", cfg, tmp_path / str(gap_age))
        answers[gap_age] = {
            at: np.array([row["probability"] for row in run.predict(keys=[1, 2, 3], at=at)])
            for at in ("2023-06-01", "2035-01-01")
        }
    told, plain = answers[True], answers[False]
    assert np.array_equal(told["2023-06-01"], plain["2023-06-01"])
    assert not np.isclose(told["2035-01-01"], plain["2035-01-01"]).any()


def test_frozen_contexts_have_the_gap_as_the_age_of_their_first_row(shop_store: Path) -> None:
    cfg = preset("tiny", gap_age=True, visible_until="2023-06-01", **SMALL)
    with open_sampler(str(shop_store), cfg, "churn", num_prefetch=0) as sampler:
        batch = sampler.batch("train", 0)
        days = (batch.info["obs_time"] - np.int64(1685577600000000)) / 86_400_000_000
    assert (days > 0).any()
    assert np.allclose(batch["row_ages"][:, 0], np.maximum(days, 0), rtol=1e-6)
