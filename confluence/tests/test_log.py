"""The log: one JSON line per event, a picture of the losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from confluence.log import Log, to_json
from confluence.train import StepReport


def test_the_log_holds_mean_losses_and_ends_with_a_picture(tmp_path: Path) -> None:
    with Log(tmp_path, steps=5, every=2, contexts_per_step=8) as log:
        for step in range(1, 6):
            log.report(StepReport(step, float(step), 1.0, 3e-4, 0.0))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(2, 1.5), (4, 3.5), (5, 5.0)]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_terminal_progress_is_about_ten_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Log(tmp_path, steps=200, every=10, contexts_per_step=8) as log:
        for step in range(1, 201):
            log.report(StepReport(step, 0.5, 1.0, 3e-4, 0.0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("step  20/200  loss 0.5000  ")
    assert lines[-1].startswith("step 200/200  loss 0.5000  ")


def test_what_json_cannot_say_becomes_null() -> None:
    assert to_json({"a": float("nan"), "b": [1.0, float("inf")]}) == '{"a": null, "b": [1.0, null]}'
