"""Runs that learn masked cells alone, and runs that start with their weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confluence.checkpoint import CheckpointError
from confluence.cli import main
from confluence.config import Config, ConfigError
from confluence.held_out import HeldOut
from confluence.pretrain import pretrain
from confluence.run import Run, train
from confluence.train import first_state
from confluence.transfer import start_from

TINY: dict[str, Any] = {
    "preset": "tiny", "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 8,
    "batch_size": 4, "num_threads": 1, "log_every": 1,
}  # fmt: skip
TABLES = ("orders", "reviews")


@pytest.fixture(scope="module")
def pretrained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(
        shop_store, out=tmp_path_factory.mktemp("pre") / "run", steps=24, eval_every=12,
        seed_tables=TABLES, learning_rate=3e-3, **TINY,
    )  # fmt: skip


def events(run: Run, name: str) -> list[dict[str, Any]]:
    lines = (run.out / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_the_held_out_loss_of_masked_cells_falls(pretrained: Run) -> None:
    result = pretrained.evaluate("val")
    assert result["contexts"] > 0
    assert result["types"]["numerical"]["cells"] > 0
    losses = [event["loss"] for event in events(pretrained, "evaluate")]
    assert len(losses) == 2
    assert losses[-1] == pytest.approx(result["loss"], rel=1e-4)
    assert json.loads((pretrained.out / "evaluation-val.json").read_text())["loss"] > 0
    first = np.mean([event["loss"] for event in events(pretrained, "train")[:5]])
    assert result["loss"] < first


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
    pretrained: Run, shop_store: Path, tmp_path: Path
) -> None:
    again = tmp_path / "run"
    shutil.copytree(pretrained.out, again)
    shutil.rmtree(again / "checkpoints" / "24")
    more = {**TINY, "seed_tables": TABLES, "learning_rate": 3e-3, "eval_every": 12}
    with pytest.raises(CheckpointError, match=r"mask_ratio was 0\.15 and is 0\.2"):
        pretrain(shop_store, out=again, steps=24, resume=True, mask_ratio=0.2, **more)
    run = pretrain(shop_store, out=again, steps=24, resume=True, **more)
    assert len(events(run, "resume")) == 1
    for name, value in pretrained.params.items():
        assert np.array_equal(run.params[name], value), name


def test_a_task_s_run_starts_with_the_weights(
    pretrained: Run, shop_store: Path, tmp_path: Path
) -> None:
    """All but the biases of heads, which start at the task's base rates."""
    cfg = Config(**{k: v for k, v in TINY.items() if k != "preset"})
    embedder = {"name": "hash", "dim": 256}
    first = first_state(cfg, 256, {"heads.null": -3.0})
    started = start_from(first, pretrained.out, cfg, embedder)
    for name, value in started.params.items():
        expected = first.params if name.endswith(".bias") and "heads" in name else None
        expected = pretrained.average if expected is None else expected
        assert np.array_equal(value, expected[name]), name
    assert "heads.text.weight" not in started.params
    run = train(
        shop_store, task="subscribed", out=tmp_path / "run", steps=2,
        init_from=str(pretrained.out), auxiliary_weight=0.3, **TINY,
    )  # fmt: skip
    for line in events(run, "train"):
        assert line["masked_loss"] > 0
        parts = line["task_loss"] + 0.3 * line["masked_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
    assert "Loss of the task and of masked cells" in (run.out / "run.html").read_text()
    moved = np.abs(run.params["attention.query"] - pretrained.average["attention.query"]).max()
    assert moved < 0.1  # two steps from there, where another start would be far
    assert run.evaluate("val")["metrics"]["auroc"] is not None
    assert len(run.predict(split="train")) > 0  # no cell of which is masked


def test_other_models_and_embedders_are_refused(pretrained: Run) -> None:
    cfg = Config(**{**{k: v for k, v in TINY.items() if k != "preset"}, "width": 32})
    with pytest.raises(CheckpointError, match=r"has another model: 'attention.gate'"):
        start_from(first_state(cfg, 256), pretrained.out, cfg, {"name": "hash", "dim": 256})
    with pytest.raises(CheckpointError, match="read texts embedded by"):
        start_from(first_state(cfg, 64), pretrained.out, cfg, {"name": "hash", "dim": 64})


def test_the_command_tells_the_losses_by_type(
    pretrained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(pretrained.out), "--split", "val"]) == 0
    said = capsys.readouterr().out
    assert "masked cells on val" in said
    assert "numerical" in said


def test_settings_that_cannot_be_together_are_named(shop_store: Path, tmp_path: Path) -> None:
    for settings, message in (
        ({"mask_ratio": 0.0}, "mask_ratio must be in"),
        ({"auxiliary_weight": -1.0}, "auxiliary_weight must be"),
        ({"objective": "cells"}, "objective is 'cells'"),
        ({"seed_tables": ("orders",)}, "seed_tables need objective 'masked_cells'"),
        ({"objective": "masked_cells", "label_rows": 2}, "label_rows need objective 'task'"),
        ({"objective": "masked_cells", "auxiliary_weight": 1.0}, "auxiliary_weight needs"),
    ):
        with pytest.raises(ConfigError, match=message):
            Config(**settings)
    with pytest.raises(ValueError, match="confluence pretrain"):
        train(shop_store, task="device", out=tmp_path / "run", objective="masked_cells", **TINY)
    with pytest.raises(ValueError, match="either tasks or seed_tables"):
        pretrain(shop_store, out=tmp_path / "run", tasks=["device"], seed_tables=TABLES, **TINY)


def test_a_split_without_contexts_has_no_loss(shop_store: Path) -> None:
    class Empty:
        def num_seeds(self, split: str) -> int:
            return 0

    result = HeldOut(Config(**{k: v for k, v in TINY.items() if k != "preset"}), None).evaluate(  # type: ignore[arg-type]
        {}, Empty(), "val"
    )
    assert result["loss"] is None
    assert result["contexts"] == 0
