"""The bench for a GPU, reduced to what a CPU has time for."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("gpu")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_reduced_form_measures_a_training_and_its_operations_once(
    gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    command = [str(results), "--reduced", "--folder", str(tmp_path / "gpu"), "--label", "before"]
    gpu.main(command)
    train, profile, tried = lines_of(results)
    assert train["case"] == "train tiny attention=auto steps=12" and train["label"] == "before"
    assert train["ms"] == train["step_p50_ms"] > 0 and train["timed_steps"] == 11
    assert train["mfu"] is None and train["memory"] is None  # a CPU tells neither
    assert 0 < train["busy"] <= 1 and train["usage"]["samples"] > 0
    assert train["first_step_seconds"] > 0 and train["batch_cells"] > 8
    assert len(profile["top"]) == gpu.TOP < profile["operations"]
    taken = [row["ms"] for row in profile["top"]]
    assert taken == sorted(taken, reverse=True) and taken[-1] > 0
    assert tried["matrices"] == 2 * (5 * 3 + 5 + 3)  # of 2 layers
    assert tried["float32_ms"] > 0 < tried["bfloat16_ms"]
    capsys.readouterr()
    gpu.main(command)
    assert len(lines_of(results)) == 3 and capsys.readouterr().out == ""


def test_what_failed_is_told_and_measured_again_and_what_has_no_time_is_named(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, store = tmp_path / "results.jsonl", tmp_path / "no.hw"
    monkeypatch.setattr(gpu, "make_store", lambda folder, customers: store)
    command = [str(results), "--reduced", "--folder", str(tmp_path)]
    gpu.main([*command, "--seconds", "0"])
    assert capsys.readouterr().out.splitlines() == [
        "left, no time: train tiny attention=auto steps=12",
        "left, no time: profile tiny attention=auto steps=12",
        "left, no time: newton_schulz tiny",
    ]
    assert not results.exists()
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nValueError: there is no store")
    monkeypatch.setattr(gpu, "device_kind", lambda: "cpu")
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: failed)
    for expected in (3, 6):
        gpu.main(command)
        assert len(lines_of(results)) == expected
    assert {x["failed"] for x in lines_of(results)} == {"status 1: ValueError: there is no store"}
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("train tiny attention=auto steps=12: status 1: ValueError: there is")


def test_the_first_lines_are_todays_base_and_the_short_form_has_two_presets(gpu: Any) -> None:
    whole = [gpu.name_of(c) for c in gpu.cases(short=False, reduced=False, peer=True)]
    assert whole[0] == "train base attention=rows steps=40" and len({*whole}) == len(whole)
    for preset in ("demo", "small", "laptop", "base"):
        for attention in ("rows", "fused"):
            assert any(n.startswith(f"train {preset} attention={attention}") for n in whole)
    short = [gpu.name_of(c) for c in gpu.cases(short=True, reduced=False, peer=True)]
    assert short == whole[:4] and {n.split()[1] for n in short} == {"base", "small"}
    longest = {c["settings"].get("sequence_length") for c in gpu.cases(
        short=False, reduced=False, peer=False
    )}  # fmt: skip
    assert longest == {None, 2048, 4096}


def test_the_share_of_the_peak_counts_six_operations_for_a_parameter_and_cell(gpu: Any) -> None:
    line = {
        "device": "NVIDIA H100 80GB HBM3", "compute_dtype": "bfloat16", "batch_cells": 32_000,
        "step_p50_ms": 25.0, "parameters": 37_000_000,
    }  # fmt: skip
    assert gpu.share_of_peak(line) == pytest.approx(7.104e12 / 0.025 / 989e12)
    assert gpu.share_of_peak({**line, "device": "cpu"}) is None
    assert gpu.share_of_peak({**line, "compute_dtype": "float32"}) is None


@pytest.mark.release
def test_steps_by_one_call_are_timed_against_steps_by_calls(gpu: Any, shop_store: Path) -> None:
    settings = {**gpu.CHOSEN, "steps": 20}
    case = {"what": "dispatch", "preset": "tiny", "settings": settings}
    found = gpu.RUN["dispatch"](str(shop_store), case)
    assert found["steps"] == 8
    assert found["calls_ms"] > 0 < found["one_call_ms"]
