"""The bench of training: one line, with what the log of its run says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from confluence.config import Config
from confluence.watch.log import read_summary

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("training")


SMALL = {
    "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 10, "batch_size": 4,
    "attention": "dense", "num_threads": 1,
}  # fmt: skip


@pytest.mark.release
def test_one_line_says_what_the_log_says(
    bench: Any, shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]
    command = [str(shop_store), "--task", "subscribed", "--preset", "tiny", "--out", str(tmp_path)]
    bench.main([*command, "--steps", "5", *given])
    (line,) = capsys.readouterr().out.splitlines()
    found, summary = json.loads(line), read_summary(tmp_path)
    assert (found["timed_steps"], found["preset"], found["attention"]) == (4, "tiny", "dense")
    assert (found["batch_size"], found["sequence_length"], found["max_rows"]) == (4, 32, 10)
    assert (found["settings"]["steps"], found["settings"]["width"]) == (5, 16)
    assert found["sampler_threads"] == 1
    for name in ("first_step_seconds", "cells_per_second", "wait_share", "bound_by", "parameters"):
        assert found[name] == summary[name], name
    assert found["step_p50_ms"] == summary["step_times"]["p50_ms"] > 0
    assert found["loss"] > 0
    assert found["host_peak_rss_bytes"] > 50 << 20  # JAX alone is more
    products = 2 * 4 * 32 * 12 * 16 * 16  # of all cells with the weights of three attentions
    assert found["step_flops"] > products
    assert found["flops_per_second"] == pytest.approx(
        1e3 * found["step_flops"] / found["step_p50_ms"]
    )


def test_a_step_of_several_batches_has_no_flops(bench: Any, shop_store: Path) -> None:
    cfg = Config(**SMALL, accumulate=2)
    found = bench.inspect(str(shop_store), "subscribed", cfg)
    assert found["step_flops"] is None
    assert found["batch_bytes"] > 4 * 32 * 13  # of the compact cells, and more
