"""Spans and the histogram of OpenTelemetry, with the real packages where they are installed, sent
to a collector on loopback or written to a file."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small import SMALL, events

import confluence
from confluence.watch.log_events import StepReport
from confluence.watch.observer import Observers
from confluence.watch.telemetry import DURATION, check_protocol, instrument_name
from confluence.watch.trackers import open_trackers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages, inside
ABSENT = "not installed: `make test-extras` brings it"
SETTINGS = {"config": {"width": 16, "split_ratios": (0.8, 0.1, 0.1)}, "tasks": {"churn": 1.0}}
STEPS = 6


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry, and an environment that says nothing of it."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=ABSENT)
    for signal in ("", "TRACES_", "METRICS_"):
        for what in ("ENDPOINT", "PROTOCOL"):
            monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{signal}{what}", raising=False)
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


class Collector:
    """Takes OTLP over HTTP on loopback, and keeps what came to each path."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        told = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> Iterator[tuple[Any, Any]]:
        """(resource, span) of all requests."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        for path, body in self.bodies:
            if path == "/v1/traces":
                for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in part.scope_spans:
                        yield from ((part.resource, span) for span in scope.spans)

    def metrics(self) -> dict[str, Any]:
        """The newest value of each metric."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        found = {}
        for path, body in self.bodies:
            if path == "/v1/metrics":
                for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in part.scope_metrics:
                        found |= {metric.name: metric for metric in scope.metrics}
        return found


def train(store: Path, out: Path) -> None:
    confluence.train(
        store, task="subscribed", trees=False, out=out, steps=STEPS, log_every=2, eval_every=3,
        log_to=("otel",), **SMALL,
    )  # fmt: skip


def count_of_spans(evaluations: int, saves: int) -> dict[str, int]:
    """A batch for each step, all within one span."""
    of_steps = dict.fromkeys(("fetch", "put", "start", "step"), STEPS)
    return {"train": 1, **of_steps, "evaluate": evaluations, "save": saves}


def test_a_collector_is_sent_spans_the_histogram_and_the_numbers_of_the_log(
    sdk: None, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=red")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        train(shop_store, tmp_path / "run")
    found = list(collector.spans())
    saves = len(events(tmp_path / "run", "save"))
    assert Counter(span.name for _, span in found) == count_of_spans(2, saves)
    about = {pair.key: pair.value.string_value for pair in found[0][0].attributes}
    assert (about["service.name"], about["confluence.run"], about["team"]) == (
        "confluence", "run", "red"
    )  # fmt: skip
    (root,) = [span for _, span in found if span.name == "train"]
    assert {span.parent_span_id for _, span in found} == {root.span_id, b""}
    assert {span.trace_id for _, span in found} == {root.trace_id}
    steps = [
        pair.value.int_value for _, span in found if span.name == "step"
        for pair in span.attributes if pair.key == "step"
    ]  # fmt: skip
    assert steps == [1, 2, 3, 4, 5, 6]
    (point,) = collector.metrics()[DURATION].histogram.data_points
    assert point.count == STEPS - 1, "the first step compiles"
    assert len(point.explicit_bounds) == 18 and sum(point.bucket_counts) == STEPS - 1
    (loss,) = collector.metrics()["train/loss"].gauge.data_points
    assert loss.as_double == events(tmp_path / "run", "train")[-1]["loss"]
    assert not (tmp_path / "run" / "traces.jsonl").exists()


def test_without_a_collector_spans_go_to_a_file(
    sdk: None, shop_store: Path, tmp_path: Path
) -> None:
    train(shop_store, tmp_path / "run")
    lines = read(tmp_path / "run")
    saves = len(events(tmp_path / "run", "save"))
    named = Counter(line["name"] for line in lines)
    assert named == {**count_of_spans(2, saves), DURATION: 1}
    (histogram,) = [line for line in lines if line["name"] == DURATION]
    assert histogram["count"] == STEPS - 1
    later = [line["duration_s"] for line in lines if line["name"] == "step"][1:]
    assert histogram["sum"] == pytest.approx(sum(later), abs=1e-6)
    (end,) = events(tmp_path / "run", "end")
    assert 1e3 * max(later) == pytest.approx(end["step_times"]["max_ms"], abs=1e-3)


def read(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def test_a_run_that_goes_on_is_one_trace(sdk: None, tmp_path: Path) -> None:
    for step, kind, how in ((None, "start", "stop"), (10, "resume", "end")):
        sinks = Observers(open_trackers(("otel",), tmp_path, resume_step=step))
        sinks.event(kind, {"step": step or 0, **SETTINGS})
        with sinks.span("fetch", batch=0):
            pass
        sinks.event(how, {"step": 20})
        sinks.close()
    lines = read(tmp_path)
    assert [line["name"] for line in lines] == ["fetch", "train"] * 2
    assert len({line["trace_id"] for line in lines}) == 1
    assert json.loads((tmp_path / "sinks.json").read_text())["otel"] == lines[0]["trace_id"]
    begun = [line["attributes"] for line in lines if line["name"] == "train"]
    assert [(a["from_step"], a["ended"], a["setting.width"]) for a in begun] == [
        (0, "stopped", 16), (10, "finished", 16),
    ]  # fmt: skip


def test_what_fails_is_an_error_in_the_trace(sdk: None, tmp_path: Path) -> None:
    sinks = Observers(open_trackers(("otel",), tmp_path, resume_step=None))
    with contextlib.suppress(OSError), sinks.span("save", step=1):
        raise OSError(28, "No space left on device")
    sinks.close()
    assert [(line["name"], line["is_error"]) for line in read(tmp_path)] == [
        ("save", True), ("train", True),
    ]  # fmt: skip


def test_a_collector_that_is_not_there_ends_no_training(
    sdk: None, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        train(shop_store, tmp_path / "run")
    assert events(tmp_path / "run", "end")


def test_a_collector_that_drips_does_not_hold_a_training(
    sdk: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answers a byte at a time, so that no wait for the next one is long."""
    has_ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            with contextlib.suppress(OSError):
                while not has_ended.wait(0.05):
                    self.wfile.write(b" ")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setattr("confluence.watch.telemetry.CLOSE_S", 0.5)
    began = time.monotonic()
    sinks = Observers(open_trackers(("otel",), tmp_path, resume_step=None))
    sinks.event("start", {"step": 0, **SETTINGS})
    sinks.event("end", {"step": 1})
    sinks.close()
    took = time.monotonic() - began
    has_ended.set()
    server.shutdown()
    server.server_close()
    assert took < 5
    assert "warning: the collector takes longer than 0.5 s" in capsys.readouterr().err


def test_a_file_that_is_somebody_else_s_is_left_alone(sdk: None, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text("theirs\n")
    with pytest.warns(UserWarning, match="otel gets nothing of the log.*is not of this run"):
        assert open_trackers(("otel",), tmp_path, resume_step=None) == {}
    assert (tmp_path / "traces.jsonl").read_text() == "theirs\n"


def test_a_disk_that_is_full_is_said_once(
    sdk: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    sinks = Observers(open_trackers(("otel",), folder, resume_step=None))
    (folder / "traces.jsonl").mkdir()  # in place of the disk
    sinks.step(StepReport(1, 1.0, 1.0, 1.0, 0.1, 0.0, 0.0, cells=1, positions=1))
    sinks.step(StepReport(2, 1.0, 1.0, 1.0, 0.1, 0.0, 0.0, cells=1, positions=1))
    sinks.close()
    assert capsys.readouterr().err.count("gets no more spans") == 1


def test_a_protocol_that_is_not_spoken_is_named() -> None:
    check_protocol({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    with pytest.raises(ValueError, match=r"METRICS_PROTOCOL is 'grpc', only 'http/protobuf'"):
        check_protocol({"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"})


def test_names_are_what_opentelemetry_takes() -> None:
    assert instrument_name("val/driver top 3/f1") == "val/driver_top_3/f1"
    assert len(instrument_name("a" * 300)) == 255


def test_the_driver_of_nvidia_has_what_is_asked_of_it() -> None:
    pynvml = pytest.importorskip("pynvml", reason=ABSENT)
    for name in (
        "nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetName", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo",
    ):  # fmt: skip
        assert callable(getattr(pynvml, name))
    assert {name for name, *_ in pynvml.c_nvmlUtilization_t._fields_} == {"gpu", "memory"}
    assert {"total", "used"} <= {name for name, *_ in pynvml.c_nvmlMemory_t._fields_}
