"""Where else the log of a run goes, if asked: TensorBoard, wandb, MLflow, OpenTelemetry, each an
extra.

    Log ──► Observers (`observer.py`) ──► tensorboard/  wandb/  mlflow/  traces.jsonl

All write to the run's folder and need no network: wandb runs in mode "offline" (`wandb sync` sends
it), MLflow writes SQLite with its system metrics. Who sets WANDB_MODE or MLFLOW_TRACKING_URI in the
environment decides otherwise. A run that goes on continues the same run of each. Nothing is
imported unless asked for; a package that is not there is an error before training begins. A tracker
that fails later is left out with a warning: it never ends a training.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluence.folder.files import read_json, write_whole
from confluence.watch.observer import Observer, Tracker
from confluence.watch.telemetry import TRACES, Otel
from confluence.watch.usage import SAMPLE_SECONDS

NAMES_FILE = "sinks.json"  # under which ids the trackers know this run
MADE = "made"  # in that file: which of their places were not there before the run
PROJECT = "confluence"

Scalars = Mapping[str, float]
Settings = Mapping[str, Any]


class TensorBoard(Tracker):
    """Event files in `tensorboard/`."""

    def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
        """`step`: what was written of later steps is hidden."""
        from tensorboardX import SummaryWriter

        self.run_id = run_id or "tensorboard"
        self._writer: Any = SummaryWriter(
            str(folder / "tensorboard"), purge_step=step + 1 if run_id else None,
            filename_suffix=f".{time.time_ns()}",  # else two files of one second are one
        )  # fmt: skip

    def settings(self, values: Settings) -> None:
        rows = "".join(f"| {name} | `{value}` |\n" for name, value in values.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def scalars(self, step: int, values: Scalars) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, how: str) -> None:
        self._writer.close()


class Wandb(Tracker):
    """An offline run in `wandb/`. Numbers are drawn over their own `step`, so that those of a run
    that goes on from an earlier step are not refused."""

    def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.run_id = run_id or uuid.uuid4().hex[:8]
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), name=folder.resolve().name,
            id=self.run_id, resume="allow", mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder), settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip
        self._run.define_metric("*", step_metric="step")

    def settings(self, values: Settings) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def scalars(self, step: int, values: Scalars) -> None:
        self._run.log({"step": step, **values})

    def close(self, how: str) -> None:
        self._run.finish(exit_code=1 if how == "failed" else 0)


class MLflow(Tracker):
    """A run in `mlflow/mlflow.db`, with the load of the machine measured by a thread of MLflow."""

    STATUS: Mapping[str, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

    def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
        from mlflow.tracking import MlflowClient

        here = (folder / "mlflow").resolve()
        here.mkdir(parents=True, exist_ok=True)
        place = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{here / 'mlflow.db'}")
        self._client: Any = MlflowClient(tracking_uri=place)
        self.run_id = run_id or self._create(folder.resolve().name, here / "artifacts")
        self._client.update_run(self.run_id, status="RUNNING")
        self._monitor: Any = SystemMetricsMonitor(
            self.run_id, sampling_interval=SAMPLE_SECONDS, resume_logging=run_id is not None,
            tracking_uri=place,
        )  # fmt: skip
        self._monitor.start()

    def _create(self, name: str, artifacts: Path) -> str:
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(project)
        where = (
            {} if "MLFLOW_TRACKING_URI" in os.environ else {"artifact_location": artifacts.as_uri()}
        )
        number = found.experiment_id if found else self._client.create_experiment(project, **where)
        run_id: str = self._client.create_run(number, run_name=name).info.run_id
        return run_id

    def settings(self, values: Settings) -> None:
        """A parameter that has another value since the run began is a tag beside it."""
        known = self._client.get_run(self.run_id).data.params
        for name, value in values.items():
            if name not in known:
                self._client.log_param(self.run_id, name, str(value))
            elif known[name] != str(value):
                self._client.set_tag(self.run_id, f"changed.{name}", str(value))

    def scalars(self, step: int, values: Scalars) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def close(self, how: str) -> None:
        self._monitor.finish()
        self._client.set_terminated(self.run_id, status=self.STATUS[how])


KINDS: Mapping[str, Callable[[Path, str | None, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
    "otel": Otel,
}
FILES = {"otel": TRACES}  # of trackers that write no folder of their name
PACKAGES = {  # that are imported
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
DISTRIBUTIONS = {  # that bring them, by their names for pip
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
}


def check_installed(kinds: Sequence[str]) -> None:
    """Raise for all trackers at once whose packages are not there; before anything slow begins."""
    missing = [kind for kind in kinds if not all(map(_is_there, PACKAGES[kind]))]
    if missing:
        what = " and ".join(f"'{kind}'" for kind in missing)
        names = " ".join(name for kind in missing for name in DISTRIBUTIONS[kind])
        raise ImportError(f"log_to has {what}, not installed here: pip install {names}")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # nor is what it would be a part of
        return False


def _place(folder: Path, name: str) -> Path:
    """What a tracker writes in the folder of a run."""
    return folder / FILES.get(name, name)


def own_places(folder: Path) -> list[Path]:
    """Folders and files of trackers that the run in a folder made; others may hold what is not its
    own."""
    made = read_json(folder / NAMES_FILE).get(MADE)
    paths = [_place(folder, name) for name in KINDS if isinstance(made, list) and name in made]
    return [path for path in paths if path.exists() and not path.is_symlink()]


def open_trackers(
    names: Sequence[str], folder: Path, *, resume_step: int | None
) -> dict[str, Observer]:  # fmt: skip
    """The trackers of the run in a folder by name; one that cannot begin is left out with a
    warning. `resume_step`: the run goes on after that step; None: it begins."""
    check_installed(names)
    file = folder / NAMES_FILE
    known = json.loads(file.read_text("utf-8")) if resume_step and file.is_file() else {}
    made = set(known.get(MADE, ())) | {
        name for name in names if not os.path.lexists(_place(folder, name))
    }
    opened: dict[str, Tracker] = {}
    for name in names:
        try:
            opened[name] = KINDS[name](folder, known.get(name), resume_step or 0)
        except Exception as error:  # such as of a server that is not there
            warnings.warn(f"{name} gets nothing of the log: {error!r}", stacklevel=2)
    if opened:
        known |= {name: tracker.run_id for name, tracker in opened.items()}
        known[MADE] = sorted(made)
        write_whole(file, json.dumps(known) + "\n")
    return dict(opened)
