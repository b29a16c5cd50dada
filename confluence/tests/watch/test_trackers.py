"""The log in TensorBoard, wandb and MLflow, with the real packages where they are installed.
`test_telemetry.py` has OpenTelemetry."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import confluence
from confluence.config import Config, preset
from confluence.value_checks import settings_of
from confluence.watch.log import Log
from confluence.watch.log_events import StepReport
from confluence.watch.observer import Observer, Observers, numbers
from confluence.watch.trackers import (
    DISTRIBUTIONS,
    FILES,
    KINDS,
    PACKAGES,
    check_installed,
    open_trackers,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages, inside
ABSENT = "not installed: `make test-extras` brings it"
SETTINGS = {"config": {"width": 16, "split_ratios": (0.8, 0.1, 0.1)}, "tasks": {"churn": 1.0}}
VAL = {
    "split": "val", "task": "churn", "metrics": {"auroc": 0.75, "f1": None}, "seeds": 9,
    "baselines": {"global_constant": {"metrics": {"auroc": 0.5}}},
}  # fmt: skip


def train_event(loss: float) -> dict[str, Any]:
    return {"loss": loss, "learning_rate": 1e-3, "bound_by": "consumer"}


def two_sessions(name: str, folder: Path, *, apart_s: float = 0.0) -> None:
    """Steps 10 and 20, a kill, and on from step 10 to the end."""
    first = Observers(open_trackers((name,), folder, resume_step=None))
    first.event("start", SETTINGS)
    first.event("train", {"step": 10, **train_event(1.0)})
    first.event("train", {"step": 20, **train_event(9.0)})
    first.close()
    time.sleep(apart_s)
    second = Observers(open_trackers((name,), folder, resume_step=10))
    second.event("resume", {"step": 10, **SETTINGS, "config": {"width": 16, "log_every": 5}})
    second.event("train", {"step": 20, **train_event(0.5)})
    second.event("evaluate", {"step": 20, **VAL})
    second.event("end", {"steps": 20, "wait_share": 0.01, "step_times": {"p50_ms": 3.0}})
    second.close()


# ---- each sink


def read_events(folder: Path) -> Iterator[Any]:
    """The events of all files of TensorBoard, oldest file first."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length


def test_tensorboard_has_the_curves_and_hides_what_a_killed_process_said(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason=ABSENT)
    two_sessions("tensorboard", tmp_path)
    events = list(read_events(tmp_path / "tensorboard"))
    scalars = [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value]
    losses = [(step, value) for step, tag, value in scalars if tag == "train/loss"]
    assert losses == [(10, 1.0), (20, 9.0), (20, 0.5)]
    restarts = [e.step for e in events if e.HasField("session_log")]
    assert restarts == [11], "TensorBoard drops what came before with this step or a later one"
    found = {tag: value for _, tag, value in scalars}
    assert (found["val/churn/auroc"], found["run/step_times/p50_ms"]) == (0.75, 3.0)
    texts = [v.tensor.string_val for e in events for v in e.summary.value if "settings" in v.tag]
    assert len(texts) == 2 and b"| width | `16` |" in texts[0][0]
    assert "tensorflow" not in sys.modules and "torch" not in sys.modules


def test_mlflow_goes_on_with_its_run_and_measures_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason=ABSENT)
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    monkeypatch.setattr(Observers, "close", _after(Observers.close, 1.0))
    two_sessions("mlflow", tmp_path)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    run_id = json.loads((tmp_path / "sinks.json").read_text())["mlflow"]
    experiment = client.get_experiment_by_name("confluence")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
    history = client.get_metric_history(run_id, "train/loss")
    assert [(m.step, m.value) for m in history] == [(10, 1.0), (20, 9.0), (20, 0.5)]
    assert run.data.metrics["val/churn/auroc"] == 0.75
    assert run.data.params["width"] == "16" and run.data.params["log_every"] == "5"
    load = client.get_metric_history(run_id, "system/cpu_utilization_percentage")
    steps = [metric.step for metric in load]
    assert len(steps) >= 2 and sorted(set(steps)) == steps, "the second session goes on counting"


def _after(close: Any, seconds: float) -> Any:
    def later(sinks: Observers) -> None:
        time.sleep(seconds)
        close(sinks)

    return later


def test_wandb_writes_offline_and_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason=ABSENT)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    two_sessions("wandb", tmp_path, apart_s=1.1)  # it names a folder by the second
    run_id = json.loads((tmp_path / "sinks.json").read_text())["wandb"]
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))
    assert len(files) == 2, "both sessions are one run: they have one id"
    for file, name in zip(files, (b"train/loss", b"val/churn/auroc"), strict=True):
        # A process of its own writes the file, and may do so after the run has been closed.
        give_up = time.monotonic() + 60
        while name not in file.read_bytes() and time.monotonic() < give_up:
            time.sleep(0.1)
    first, second = (file.read_bytes() for file in files)
    assert b"train/loss" in first and b"learning_rate" in first
    assert b"val/churn/auroc" in second and b"step_times/p50_ms" in second


# ---- all of them


def test_nothing_is_imported_unless_asked_for(tmp_path: Path) -> None:
    known = set(sys.modules)
    sinks = Observers(open_trackers((), tmp_path, resume_step=None))
    sinks.event("start", SETTINGS)
    sinks.close()
    assert not {name.split(".")[0] for name in set(sys.modules) - known} & {
        "tensorboardX", "wandb", "mlflow", "opentelemetry", "pynvml",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    assert tuple(KINDS) == tuple(PACKAGES) == tuple(DISTRIBUTIONS)
    assert tuple(KINDS) == settings_of(Config)["log_to"].words


def test_missing_packages_are_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"'wandb' and 'mlflow'.*: pip install wandb mlflow$"):
        check_installed(("wandb", "mlflow"))
    with pytest.raises(ImportError, match=r"pip install tensorboardX$"):
        confluence.train(
            tmp_path / "no.hw",
            task="churn",
            trees=False,
            out=tmp_path / "run",
            log_to=("tensorboard",),
        )
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("importlib.util.find_spec", no_parent)
    exporter = "opentelemetry-exporter-otlp-proto-http"
    with pytest.raises(ImportError, match=rf"'otel'.*: pip install opentelemetry-sdk {exporter}$"):
        check_installed(("otel",))
    with pytest.raises(confluence.ConfigError, match=r"log_to is \('tensorbord',\), expected some"):
        preset("tiny", log_to=["tensorbord"])
    assert preset("tiny", log_to=["wandb"]).log_to == ("wandb",)


def no_parent(name: str) -> None:
    raise ModuleNotFoundError("No module named 'opentelemetry'")


class Broken(Observer):
    """A sink whose disk is full."""

    run_id = "b"

    def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
        self.told: list[int] = []

    def settings(self, values: Any) -> None:
        pass

    def scalars(self, step: int, values: Any) -> None:
        self.told.append(step)
        raise OSError(28, "No space left on device")

    def close(self, how: str) -> None:
        raise AssertionError("it was left out")


def test_a_sink_that_fails_is_left_out_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluence.watch.trackers.KINDS", {"wandb": Broken})
    monkeypatch.setattr("confluence.watch.trackers.check_installed", lambda names: None)
    trackers = open_trackers(("wandb",), tmp_path, resume_step=None)
    log = Log(tmp_path, steps=2, every=1, contexts_per_step=1, trackers=trackers)
    said = r"wandb gets no more of the log: .*No space left"
    with pytest.warns(UserWarning, match=said) as told, log:
        for step in (1, 2):
            log.report(StepReport(step, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, cells=1, positions=2))
    assert len(told) == 1
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]


def test_a_sink_that_cannot_begin_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError("no API key")

    monkeypatch.setattr("confluence.watch.trackers.KINDS", {"wandb": refuse})
    monkeypatch.setattr("confluence.watch.trackers.check_installed", lambda names: None)
    with pytest.warns(UserWarning, match="wandb gets nothing of the log: .*no API key"):
        sinks = Observers(open_trackers(("wandb",), tmp_path, resume_step=None))
    sinks.event("train", {"step": 1, **train_event(0.5)})
    sinks.close()


def test_numbers_of_events_have_names() -> None:
    assert dict(numbers("train", {"step": 3, **train_event(0.5)})) == {
        "train/loss": 0.5, "train/learning_rate": 1e-3,
    }  # fmt: skip
    assert dict(numbers("evaluate", {"step": 3, **VAL})) == {"val/churn/auroc": 0.75}
    masked = {"objective": "masked_cells", "split": "val", "loss": 0.5, "types": {}}
    assert dict(numbers("evaluate", masked)) == {"val/masked_cells/loss": 0.5}
    assert dict(numbers("end", {"steps": 3, "usage": {"samples": 5, "source": "nvml"}})) == {
        "run/usage/samples": 5
    }  # fmt: skip
    assert dict(numbers("save", {"step": 3, "best": True})) == {}


@pytest.mark.parametrize("name", tuple(KINDS))
def test_a_run_logs_to_what_its_settings_say(
    name: str, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=ABSENT)
    out = tmp_path / "run"
    confluence.train(
        shop_store, task="subscribed", trees=False, out=out, preset="tiny", width=16, layers=1,
        sequence_length=32, max_rows=10, steps=2, log_every=1, log_to=(name,),
    )  # fmt: skip
    sinks = json.loads((out / "sinks.json").read_text())
    assert sinks.keys() == {name, "made"} and sinks["made"] == [name]
    place = out / FILES.get(name, name)
    assert place.stat().st_size > 0 if name in FILES else any(place.iterdir())
