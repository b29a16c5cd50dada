"""The one command: from a database and a question to a trained model, metrics and predictions.

    infer ──► metadata.json ──► build ──► store.hw ──► train ──► evaluate ──► predict

Everything lands in one folder. A stage whose inputs have not changed since it last finished is
skipped, so a stopped run goes on where it was; nothing needs a network.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluence import checkpoint
from confluence.config import preset as preset_config
from confluence.run import Run, load, train

METADATA = "metadata.json"
STORE = "store.hw"
BUILT = "built.json"  # source and metadata of the store beside it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A prediction task in the words of the command line."""

    name: str
    query: str  # DuckDB SQL: the anchor's key, an observation time, the target
    anchor: str  # "table.column", or "table.column,column" for a composite key
    target: str  # column of the query
    target_type: str  # boolean, numerical, categorical or timestamp
    obs_time: str | None  # column of the query; None: "obs_time" if the query mentions it
    label_window: str | None  # e.g. "30 days"
    split_column: str | None

    def to_task(self) -> dict[str, Any]:
        """This question as an entry of metadata.json."""
        table, _, columns = self.anchor.rpartition(".")
        if not table or not columns:
            raise ValueError(f"anchor is '{self.anchor}', expected 'table.column'")
        keys = columns.split(",")
        obs_time = self.obs_time or ("obs_time" if "obs_time" in self.query else None)
        entry = {
            "query": self.query,
            "anchor_table": table,
            "anchor_key": keys[0] if len(keys) == 1 else keys,
            "target_column": self.target,
            "target_stype": self.target_type,
            "observation_time_column": obs_time,
            "label_window": self.label_window,
            "split_column": self.split_column,
        }
        return {name: value for name, value in entry.items() if value is not None}


def write_metadata(source: str, question: Question, out: Path, given: Path | None) -> Path:
    """metadata.json with the question as a task, from a given file or inferred from the source."""
    import headwater

    path = out / METADATA
    if given is not None:
        metadata = json.loads(given.read_text(encoding="utf-8"))
    else:
        headwater.infer(source).save(str(path))
        metadata = json.loads(path.read_text(encoding="utf-8"))
    tasks = metadata.setdefault("tasks", {})
    tasks[question.name] = {**tasks.get(question.name, {}), **question.to_task()}
    path.write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")
    return path


def build_store(source: str, metadata: Path, out: Path) -> Path:
    """Build the store, unless it was built from this source with this metadata."""
    import headwater

    store, mark = out / STORE, out / BUILT
    inputs = {"source": source, "metadata": metadata.read_text(encoding="utf-8")}
    if store.exists() and mark.is_file() and json.loads(mark.read_text("utf-8")) == inputs:
        return store
    mark.unlink(missing_ok=True)
    headwater.build(source, str(store), metadata=str(metadata))
    mark.write_text(json.dumps(inputs), encoding="utf-8")
    return store


def train_or_load(
    store: Path, task: str, out: Path, *, preset: str, overrides: dict[str, Any]
) -> Run:
    """Train, unless `out` holds a model with this configuration, trained on this very store."""
    cfg = preset_config(preset, **overrides)
    try:
        record = checkpoint.load_record(out)
    except checkpoint.CheckpointError:
        record = {}
    same = record.get("task") == task and record.get("config") == json.loads(
        json.dumps(cfg.to_dict())
    )
    if same and not _built_later(store, out):
        return load(out, store=store)
    return train(store, task=task, out=out, preset=preset, **overrides)


def _built_later(store: Path, out: Path) -> bool:
    return (store.parent / BUILT).stat().st_mtime > (out / checkpoint.FOLDER).stat().st_mtime


def run_pipeline(
    source: str,
    question: Question,
    out: Path,
    *,
    preset: str,
    overrides: dict[str, Any],
    metadata: Path | None = None,
    split: str = "test",
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """All stages. The result names the files and holds the evaluation."""
    out.mkdir(parents=True, exist_ok=True)
    say(f"reading the schema of {source}")
    path = write_metadata(source, question, out, metadata)
    say(f"building {out / STORE}")
    store = build_store(source, path, out)
    say(f"training on {question.name}")
    run = train_or_load(store, question.name, out, preset=preset, overrides=overrides)
    say(f"evaluating on {split}")
    evaluation = run.evaluate(split)
    rows = run.predict(split=split)
    return {
        "store": str(store),
        "out": str(out),
        "evaluation": evaluation,
        "predictions": str(out / f"predictions-{split}.csv"),
        "predicted": len(rows),
    }
