"""The log: one JSON line per event, a picture of the losses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import pytest
from small import events

from confluence.watch.log import Log, read_summary, step_times, to_json
from confluence.watch.log_events import StepReport
from confluence.watch.observer import numbers


def report(step: int, loss: float, *, seconds: float = 0.1, wait_seconds: float = 0) -> StepReport:
    return StepReport(
        step=step, loss=loss, gradient_norm=1.0, learning_rate=3e-4, seconds=seconds,
        fetch_seconds=seconds / 20, wait_seconds=wait_seconds, cells=500,
        positions=800,
    )  # fmt: skip


def stats(since: Mapping[str, Any] | None) -> dict[str, Any]:
    """A sampler that was idle until the log began, then bound by its consumer."""
    if since is None:
        return {"bound_by": "idle"}
    return {"bound_by": "consumer", "contexts_cut": 2, "cells_cut": 5, "packed_cells": 1995}


def test_a_line_says_how_fast_steps_were_and_what_they_waited_for(tmp_path: Path) -> None:
    with Log(tmp_path, steps=4, every=2, contexts_per_step=8, read_stats=stats) as log:
        for step, seconds in ((1, 9.9), (2, 0.1), (3, 0.1), (4, 0.3)):
            log.report(report(step, 0.5, seconds=seconds, wait_seconds=seconds / 100))
        log.event("end", **log.summary())
    lines = events(tmp_path)
    assert {name: lines[1][name] for name in ("step", "bound_by")} == {
        "step": 4, "bound_by": "consumer"
    }  # fmt: skip
    assert lines[1]["step_seconds"] == pytest.approx(0.2)
    assert lines[1]["fetch_share"] == pytest.approx(0.05)
    assert lines[1]["wait_share"] == pytest.approx(0.01)
    assert lines[1]["cells_per_second"] == pytest.approx(2500)
    assert lines[1]["contexts_per_second"] == pytest.approx(40)
    assert lines[1]["alive_share"] == pytest.approx(500 / 800)
    summary = read_summary(tmp_path)
    assert (summary["contexts_cut"], summary["cut_share"]) == (2, 5 / 2000)
    assert (summary["timed_steps"], summary["first_step_seconds"]) == (3, 9.9)  # it compiles
    assert summary["step_seconds"] == pytest.approx(0.5 / 3)
    assert summary["bound_by"] == "consumer"
    assert summary["step_times"]["p50_ms"] == pytest.approx(100)
    assert read_summary(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("told", "expected"),
    [({"peak_bytes_in_use": 3 << 30, "bytes_in_use": 7}, 3 << 30), ({}, None), (None, None)],
)
def test_the_end_says_how_much_memory_of_the_device_was_needed(
    told: Mapping[str, int] | None, expected: int | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("confluence.watch.log.device_memory", lambda: told)
    with Log(tmp_path, steps=2, every=2, contexts_per_step=8) as log:
        for step in (1, 2):
            log.report(report(step, 0.5))
        log.event("end", **log.summary())
    assert read_summary(tmp_path).get("peak_device_memory_bytes") == expected
    assert "peak_device_memory_bytes" not in events(tmp_path)[0]


def test_the_device_itself_is_asked(tmp_path: Path) -> None:
    stats = jax.local_devices()[0].memory_stats()  # of a CPU None
    with Log(tmp_path, steps=1, every=1, contexts_per_step=8) as log:
        log.report(report(1, 0.5))
        assert ("peak_device_memory_bytes" in log.summary()) == bool(stats)


def test_the_losses_of_the_task_and_of_masked_cells_are_told_apart(tmp_path: Path) -> None:
    with Log(tmp_path, steps=3, every=2, contexts_per_step=8) as log:
        for step, parts in ((1, (0.5, 2.0)), (2, (0.25, 1.0)), (3, (None, None))):
            task, masked = parts
            told = report(step, 0.5)
            log.report(dataclasses.replace(told, task_loss=task, masked_loss=masked))
    first, last = events(tmp_path)
    assert (first["task_loss"], first["masked_loss"]) == (0.375, 1.5)
    assert not {"task_loss", "masked_loss"} & last.keys()
    assert dict(numbers("train", first))["train/masked_loss"] == 1.5  # what sinks are told


def test_the_histogram_holds_every_step_once() -> None:
    found = step_times([0.1, 0.1, 0.102, 0.2, 1.0])
    edges, counts = found["edges_ms"], found["counts"]
    assert len(edges) == len(counts) + 1
    assert sum(counts) == 5
    assert edges[0] <= 100 and edges[-1] >= 1000
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        assert count == sum(low <= ms < high for ms in (100, 100, 102, 200, 1000))
    assert found["max_ms"] == pytest.approx(1000)
    assert step_times([]) == {}
    assert sum(step_times([1e-6, 1e9])["counts"]) == 2  # however far apart


def test_a_log_holds_mean_losses_goes_on_where_the_checkpoint_was_and_ends_with_a_picture(
    tmp_path: Path,
) -> None:
    losses: list[float] = []
    for first, end in ((1, 4), (4, 8)):
        with Log(tmp_path, steps=7, every=2, contexts_per_step=8, losses=losses) as log:
            for step in range(first, end):
                log.report(report(step, float(step)))
        losses = log.losses
    lines = [(line["step"], line["loss"]) for line in events(tmp_path)]
    assert lines == [(2, 1.5), (4, 3.5), (6, 5.5), (7, 7.0)]
    assert losses == [1, 2, 3, 4, 5, 6, 7]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_terminal_progress_is_about_ten_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Log(tmp_path, steps=200, every=10, contexts_per_step=8) as log:
        for step in range(1, 201):
            log.report(report(step, 0.5))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("step  20/200  loss 0.5000  ")
    assert lines[-1].startswith("step 200/200  loss 0.5000  ")


def test_what_json_cannot_say_becomes_null() -> None:
    assert to_json({"a": float("nan"), "b": [1.0, float("inf")]}) == '{"a": null, "b": [1.0, null]}'
