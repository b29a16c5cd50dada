"""The bench for a GPU, reduced to what a CPU has time for."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from confluence.config import preset

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("gpu")


def told(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def test_the_reduced_form_measures_a_training_and_its_operations_once(
    gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    command = [str(results), "--reduced", "--folder", str(tmp_path / "gpu"), "--label", "before"]
    gpu.main(command)
    train, profile, tried = told(results)
    assert train["case"] == "train tiny attention=auto steps=60" and train["label"] == "before"
    assert train["ms"] == train["step_p50_ms"] > 0 and train["timed_steps"] == 59
    assert train["mfu"] is train["memory"] is train["busy"] is None  # what no CPU tells
    assert 0 < train["usage"]["utilization_mean"] <= 1 and train["usage"]["samples"] > 0
    assert train["first_step_seconds"] > 0 and train["batch_cells"] > 8
    for top in (profile["top"], profile["top_kernels"]):
        taken = [row["ms"] for row in top]
        assert len(taken) == gpu.TOP < profile["operations"]
        assert taken == sorted(taken, reverse=True) and taken[-1] > 0
    assert profile["total_ms"] > profile["top"][0]["ms"]
    assert tried["matrices"] == 2 * (5 * 3 + 5 + 3)  # of 2 layers
    assert tried["float32_ms"] > 0 < tried["bfloat16_ms"]
    capsys.readouterr()
    gpu.main(command)
    said = "3 lines of label 'before' are there already\n"
    assert len(told(results)) == 3 and capsys.readouterr().out == said


def test_what_failed_is_told_and_measured_again_and_what_has_no_time_is_named(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, store = tmp_path / "results.jsonl", tmp_path / "no.hw"
    monkeypatch.setattr(gpu, "make_store", lambda folder, customers: store)
    command = [str(results), "--reduced", "--folder", str(tmp_path)]
    gpu.main([*command, "--seconds", "0"])
    assert capsys.readouterr().out.splitlines() == [
        "left, no time: train tiny attention=auto steps=60",
        "left, no time: profile tiny attention=auto steps=60",
        "left, no time: newton_schulz tiny",
    ]
    assert not results.exists()
    (tmp_path / "gpu_one.py").write_text("raise ValueError('no store')", encoding="utf-8")
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "gpu_one.py"))
    gpu.main(command)
    first = told(results)
    assert [x["failed"] for x in first] == ["status 1"] * 3
    assert all("ValueError: no store" in x["stderr"] for x in first)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("train tiny attention=auto steps=60: status 1 (")
    again = {**first[1], "ms": 1.0}
    del again["failed"]
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(again) + "\n{cut off")
    gpu.main(command)
    assert [x["case"] for x in told(results)[4:]] == [first[0]["case"], first[2]["case"]]
    assert capsys.readouterr().out.startswith("1 lines of label 'today' are there already\n")


def test_a_line_that_takes_too_long_ends_with_all_that_it_started(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); time.sleep(600)\n"
    )
    (tmp_path / "slow.py").write_text(program, encoding="utf-8")
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "slow.py"))
    case = {"what": "advise", "preset": "tiny", "settings": {}}
    found = gpu.in_a_process(tmp_path / "no.hw", case, tmp_path / "cache", 2.0)
    assert found == {"failed": "took more than 2 s"}
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
    assert not status.exists() or "zombie" in status.read_text(encoding="utf-8")


def test_the_first_lines_are_todays_base_and_the_short_form_has_two_presets(gpu: Any) -> None:
    whole = [gpu.name_of(c) for c in gpu.cases(short=False, reduced=False, peer=True)]
    assert whole[0] == "train base attention=rows steps=120" and len({*whole}) == len(whole)
    for name in ("demo", "small", "laptop", "base"):
        for attention in ("rows", "fused"):
            assert any(n.startswith(f"train {name} attention={attention}") for n in whole)
    short = [gpu.name_of(c) for c in gpu.cases(short=True, reduced=False, peer=True)]
    assert short == whole[:4] and {n.split()[1] for n in short} == {"base", "small"}
    longest = {c["settings"].get("sequence_length") for c in gpu.cases(
        short=False, reduced=False, peer=False
    )}  # fmt: skip
    assert longest == {None, 2048, 4096}


def test_the_share_of_the_peak_counts_six_operations_for_a_parameter_and_cell(gpu: Any) -> None:
    line = {
        "device": "NVIDIA H100 80GB HBM3", "compute_dtype": "bfloat16", "batch_cells": 32_000,
        "step_p50_ms": 25.0, "cell_parameters": 37_000_000,
    }  # fmt: skip
    assert gpu.share_of_peak(line) == pytest.approx(7.104e12 / 0.025 / 989e12)
    for other in ("cpu", "NVIDIA H100 PCIe"):
        assert gpu.share_of_peak({**line, "device": other}) is None
    assert gpu.share_of_peak({**line, "compute_dtype": "float32"}) is None


def test_parameters_that_meet_every_cell_are_those_of_attention_and_feed_forward(gpu: Any) -> None:
    """By hand, of 2 layers: five matrices for each of three patterns, three of the feed-forward."""
    cfg = preset("tiny")
    D, F = cfg.width, cfg.feed_forward_width
    matrices = 2 * 15 * D * D + 2 * 3 * D * F - 3 * D * D - 3 * D * F
    found = gpu.cell_parameters(cfg)
    assert matrices < found < matrices + 2 * (3 * D + 3 * cfg.heads + D)  # and norms
    assert 33e6 < gpu.cell_parameters(preset("base")) < 35e6


@pytest.mark.release
def test_steps_by_one_call_are_timed_against_steps_by_calls(gpu: Any, shop_store: Path) -> None:
    settings = {**gpu.CHOSEN, "steps": 20}
    case = {"what": "dispatch", "preset": "tiny", "settings": settings}
    found = gpu.RUN["dispatch"](str(shop_store), case)
    assert found["steps"] == 8
    assert found["calls_ms"] > 0 < found["one_call_ms"]
