"""The setting `database_age`: it reaches every sampler of a run, and the model reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained import noted_samplers, untrained_run

from confluence.config import Config, ConfigError, preset
from confluence.data.tasks import open_sampler

SMALL: dict[str, Any] = {
    "width": 16, "layers": 1, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip
STALE = (0.5, 100.0)


@pytest.mark.parametrize("shown", [True, False])
def test_training_evaluation_and_prediction_open_samplers_with_it(
    shown: bool, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which only the first draws gaps."""
    noted = noted_samplers(monkeypatch)
    monkeypatch.setattr("confluence.report.page.write_page", lambda out: None)  # which needs a log
    cfg = preset("tiny", staleness=STALE, database_age=shown, **SMALL)
    run = untrained_run(shop_store, "churn", cfg, tmp_path)
    run.evaluate("val", trees=False, resamples=0)
    run.predict(keys=[1, 2], at="2025-01-01")
    assert [options["database_age"] for options in noted] == [shown] * 3
    assert [options["staleness"] for options in noted] == [STALE, None, None]


def test_a_run_of_before_the_setting_does_not_show_it() -> None:
    settings = Config(staleness=STALE).to_dict()
    del settings["database_age"]
    assert Config.from_dict(settings).database_age is False


def test_a_question_after_the_end_of_the_database_is_told_so(
    shop_store: Path, tmp_path: Path
) -> None:
    """Two questions of which neither sees more than the other, a year apart."""
    ends = {"2035-01-01": 0.0, "2036-01-01": 0.0}
    with open_sampler(str(shop_store), preset("tiny", **SMALL), "churn") as sampler:
        for at in ends:
            (batch,) = sampler.batches_for("churn", keys=[1], obs_time=at)
            ends[at] = float(batch["row_ages"][0, 0])
    assert set(ends.values()) == {0.0}
    cfg = preset("tiny", database_age=True, **SMALL)
    with open_sampler(str(shop_store), cfg, "churn") as sampler:
        for at in ends:
            (batch,) = sampler.batches_for("churn", keys=[1], obs_time=at)
            ends[at] = float(batch["row_ages"][0, 0])
    assert ends["2035-01-01"] > 365 and np.diff(list(ends.values())) == pytest.approx(365, abs=1e-3)


def test_the_model_reads_it(shop_store: Path, tmp_path: Path) -> None:
    answers = []
    for shown in (True, False):
        cfg = preset("tiny", database_age=shown, **SMALL)
        run = untrained_run(shop_store, "churn", cfg, tmp_path / str(shown))
        rows = run.predict(keys=[1, 2, 3], at="2027-01-01")
        answers.append([row["probability"] for row in rows])
    assert not np.isclose(*answers).any()


def test_where_it_would_do_nothing_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="database_age needs objective 'task'"):
        Config(database_age=True, objective="masked_cells")
