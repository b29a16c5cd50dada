"""A whole run over a store in memory: train, evaluate, predict, load; and what stops it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from headwater import SemanticType

import confluence
from confluence import smoke
from confluence.config import preset
from confluence.data import TaskError
from confluence.evaluate import US_PER_DAY

SEEDS = 60
SPLITS = np.repeat([0, 1, 2], [40, 10, 10]).astype(np.uint8)
CHURNED = (np.arange(SEEDS) % 3 == 0).astype(np.float64)
METADATA: dict[str, Any] = {
    "name": "memory",
    "fingerprint": "0123",
    "text": {"embedder": "hash", "dim": smoke.TEXT_WIDTH, "count": 9},
    "columns": [{"stats": {}}] * smoke.COLUMN_COUNT,
    "tasks": [{"name": "churn", "target_stype": "boolean", "target_column_id": 14}],
}


class MemoryStore:
    """The methods of `headwater.Store` that confluence calls."""

    def __init__(self, path: str) -> None:
        self.path = path

    def task_seeds(self, task: str) -> dict[str, Any]:
        return {
            "anchor_row": np.arange(SEEDS, dtype=np.uint32) + 100,
            "obs_time": np.arange(SEEDS, dtype=np.int64) * US_PER_DAY,
            "target": CHURNED,
            "is_null": np.zeros(SEEDS, bool),
            "labelled": np.arange(SEEDS) != SEEDS - 1,
        }

    def row(self, row: int) -> dict[str, Any]:
        return {"table": "customers", "key": {"customer_id": row - 100}}


class MemorySampler:
    """The methods of `headwater.Sampler` that confluence calls; a number tells the answer."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.cfg = preset("tiny").replace(
            batch_size=options["default_batch_size"],
            sequence_length=options["default_sequence_length"],
            max_rows=options["max_rows"],
        )
        self.position = 0

    def __enter__(self) -> MemorySampler:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def database_metadata(self) -> dict[str, Any]:
        return METADATA

    def splits(self, task: str) -> Any:
        return SPLITS

    def column_embeddings(self) -> Any:
        return np.asarray(smoke.synthetic_tables().columns)

    def categorical_embeddings(self) -> Any:
        return np.asarray(smoke.synthetic_tables().categories)

    def batch_of(self, seeds: list[int]) -> Any:
        batch = smoke.synthetic_batch(self.cfg, SemanticType.BOOLEAN, sequences=len(seeds))
        batch["task_idx"][0] = 0
        at = batch["is_target"] == 1
        batch["is_null"][at] = 0
        batch["bool_values"][at] = CHURNED[seeds]
        anchor = (batch["seq_row_ids"] == 1) & (batch["is_padding"] == 0)
        numbers = anchor & (batch["semantic_types"] == SemanticType.NUMERICAL)
        batch["is_null"][numbers] = 0
        batch["numeric_values"][numbers] = CHURNED[seeds] * 4 - 2
        padded = np.resize(seeds, self.cfg.batch_size) if seeds else np.zeros(self.cfg.batch_size)
        batch.info = {
            "seed_index": padded.astype(np.uint32),
            "anchor_rows": (padded + 100).astype(np.uint32),
            "obs_time": padded.astype(np.int64) * US_PER_DAY,
        }
        for array in batch.values():
            array.setflags(write=False)
        return batch

    def next_train_batch(self) -> Any:
        start, size = self.position, self.cfg.batch_size
        self.position += size
        return self.batch_of([(start + i) % 40 for i in range(size)])

    def epoch(self, split: str, *, task: str) -> Any:
        wanted = {"train": 0, "val": 1, "test": 2}[split]
        seeds = np.flatnonzero(wanted == SPLITS).tolist()
        size = self.cfg.batch_size
        return [self.batch_of(seeds[i : i + size]) for i in range(0, len(seeds), size)]

    def batches_for(self, task: str, *, keys: list[int], obs_time: str | None) -> Any:
        return iter([self.batch_of(keys)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headwater, "Sampler", MemorySampler, raising=False)
        patch.setattr(headwater, "Store", MemoryStore, raising=False)
        out = tmp_path_factory.mktemp("runs") / "churn"
        run = confluence.train(
            "memory.hw", task="churn", out=out, preset="tiny", steps=40, width=16,
            sequence_length=32, max_rows=10, eval_every=20, learning_rate=3e-3,
        )  # fmt: skip
        yield run


def test_a_run_learns_and_beats_its_baselines(trained: confluence.Run) -> None:
    result = trained.evaluate("test")
    assert (result["seeds"], result["scored"], result["unlabelled"]) == (10, 9, 1)
    assert result["metrics"]["auroc"] > 0.95, result
    assert result["baselines"]["global_constant"]["metrics"]["auroc"] == 0.5
    assert result["baselines"]["per_entity"]["fallback_share"] == 1.0
    written = json.loads((trained.out / "evaluation-test.json").read_text())
    assert written == result


def test_a_run_leaves_its_log_and_picture(trained: confluence.Run) -> None:
    lines = [json.loads(line) for line in (trained.out / "log.jsonl").read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[0] == "start" and events[-1] == "end"
    assert events.count("evaluate") == 2
    assert lines[0]["config"]["width"] == 16
    assert (trained.out / "loss.png").stat().st_size > 1000


def test_the_regime_is_named_and_frozen_at_the_first_time_of_the_split(
    trained: confluence.Run,
) -> None:
    assert trained.evaluate("val")["regime"] == "rolling"
    frozen = trained.evaluate("val", regime="frozen")
    assert (frozen["regime"], frozen["visible_until"]) == ("frozen", "1970-02-10T00:00:00")
    given = trained.evaluate("val", visible_until="1970-01-05")
    assert given["visible_until"] == "1970-01-05"
    with pytest.raises(ValueError, match="split is 'dev', expected one of train, val, test"):
        trained.evaluate("dev")


def test_predictions_are_written_for_splits_and_keys(trained: confluence.Run) -> None:
    rows = trained.predict(split="test")
    with (trained.out / "predictions-test.csv").open() as file:
        written = list(csv.DictReader(file))
    assert list(written[0]) == ["key", "obs_time", "prediction", "probability"]
    assert [int(row["key"]) for row in written] == list(range(50, 60))
    assert written[0]["obs_time"] == "1970-02-20T00:00:00"
    assert [row["prediction"] for row in rows] == [bool(c) for c in CHURNED[50:]]
    by_key = trained.predict(keys=[51, 54], at="1970-03-01", path=trained.out / "two.csv")
    assert [row["key"] for row in by_key] == [51, 54]
    assert (trained.out / "two.csv").is_file()
    with pytest.raises(ValueError, match="either a split or keys"):
        trained.predict()


def test_a_loaded_run_predicts_the_same(trained: confluence.Run) -> None:
    loaded = confluence.load(trained.out)
    assert loaded.config == trained.config
    assert loaded.predict(split="val") == trained.predict(split="val")


def test_another_embedder_is_refused(
    trained: confluence.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METADATA, "text", {"embedder": "bert", "dim": 384})
    with pytest.raises(confluence.CheckpointError, match="embedded by 'bert'"):
        confluence.load(trained.out, store="other.hw")


def test_an_unknown_task_is_an_error_with_a_suggestion(
    trained: confluence.Run, tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match="no task 'chrn', did you mean 'churn'"):
        confluence.train("memory.hw", task="chrn", out=tmp_path, preset="tiny")
