"""Settings of contexts reach every sampler of a run, and the age of the database the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained import noted_samplers, untrained_run

from confluence.config import preset
from confluence.data.tasks import open_sampler
from confluence.data.verification import open_store

SMALL: dict[str, Any] = {
    "width": 16, "layers": 1, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip
STALE = (0.5, 100.0)


def test_only_training_draws_gaps_and_leaves_cells_out(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = noted_samplers(monkeypatch)
    # A page needs a log.
    monkeypatch.setattr("confluence.report.page.write_page", lambda out, opened: None)
    cfg = preset("tiny", staleness=STALE, cell_dropout=0.25, child_counts=True, **SMALL)
    run = untrained_run(shop_store, "churn", cfg, tmp_path)
    run.evaluate("val", trees=False, resamples=0)
    run.predict(keys=[1, 2], at="2025-01-01")
    assert [options["child_counts"] for options in noted] == [True] * 3
    assert [options["staleness"] for options in noted] == [STALE, None, None]
    assert [options["cell_dropout"] for options in noted] == [0.25, 0.0, 0.0]


def test_a_question_after_the_end_of_the_database_shows_its_age(
    shop_store: Path, tmp_path: Path
) -> None:
    """Two questions of which neither sees more than the other, a year apart."""
    ages, answers = [], []
    run = untrained_run(shop_store, "churn", preset("tiny", **SMALL), tmp_path)
    with open_sampler(open_store(shop_store), preset("tiny", **SMALL), "churn") as sampler:
        for at in ("2026-05-01", "2027-05-01"):
            (batch,) = sampler.batches_for("churn", keys=[1], obs_time=at)
            ages.append(float(batch["row_ages"][0, 0]))
            answers.append([row["probability"] for row in run.predict(keys=[1, 2, 3], at=at)])
    assert ages[0] > 90 and np.diff(ages) == pytest.approx(365, abs=1e-3)
    assert not np.isclose(*answers).any()
