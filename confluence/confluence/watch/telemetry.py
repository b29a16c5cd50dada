"""OpenTelemetry (`log_to="otel"`): spans of what the loop does, and how long steps take.

    train ─┬─ fetch  put  (of each batch)
           ├─ step   (of each step)        ──► a collector, by OTLP over HTTP, where the standard
           └─ evaluate  save                   environment variables name one
    histogram ml.batch.duration_s          ──► else `traces.jsonl` in the run's folder

The variables are those of every program with OpenTelemetry: OTEL_EXPORTER_OTLP_ENDPOINT, or
..._TRACES_ENDPOINT and ..._METRICS_ENDPOINT for one of the two; headers, time limits, names.
All sessions of a run are one trace, whose id `sinks.json` keeps. Batches of spans are encoded and
sent by threads of the SDK, which does not raise; what a collector does not take is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.shared import regular, say

from confluence.watch.log_events import StepReport
from confluence.watch.observer import Tracker

TRACES = "traces.jsonl"
DURATION = "ml.batch.duration_s"
BOUNDS_S = tuple(0.001 * 2**k for k in range(18))  # of the histogram: 1 ms to 131 s
SERVICE = "confluence"
CLOSE_S = 30.0
LONGEST_NAME = 255  # of an instrument


class Otel(Tracker):
    """The spans and figures of one session of a run."""

    def __init__(self, folder: Path, run_id: str | None, step: int) -> None:
        check_protocol(os.environ)
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.trace import set_span_in_context

        lines = _Lines(folder / TRACES)
        if run_id is None and not (_has_collector("TRACES") and _has_collector("METRICS")):
            lines.check_absent()
        own = {"service.name": SERVICE, "confluence.run": folder.resolve().name}
        resource = Resource.create(own).merge(OTELResourceDetector().detect())
        self.run_id = run_id or os.urandom(16).hex()
        self._traces: Any = _tracer_provider(resource, int(self.run_id, 16), lines)
        self._metrics: Any = _meter_provider(resource, lines)
        self._tracer: Any = self._traces.get_tracer(SERVICE)
        self._meter: Any = self._metrics.get_meter(SERVICE)
        self._durations: Any = self._meter.create_histogram(
            DURATION, unit="s", description="from the end of the step before to that of the step",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )  # fmt: skip
        self._gauges: dict[str, Any] = {}
        self._root: Any = self._tracer.start_span("train", attributes={"from_step": step})
        self._within: Any = set_span_in_context(self._root)
        self._compiles = True  # the next step is the first of this process

    def settings(self, values: Mapping[str, Any]) -> None:
        """Attributes of the span of the session."""
        for name, value in values.items():
            is_plain = isinstance(value, bool | int | float | str)
            self._root.set_attribute(f"setting.{name}", value if is_plain else str(value))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """A gauge for each."""
        for name, value in values.items():
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(instrument_name(name))
            self._gauges[name].set(value)

    @contextlib.contextmanager
    def span(self, name: str, **attributes: int) -> Iterator[None]:
        from opentelemetry.trace import StatusCode

        span = self._tracer.start_span(name, context=self._within, attributes=attributes)
        try:
            yield
        except BaseException as error:
            span.set_status(StatusCode.ERROR, repr(error))
            raise
        finally:
            span.end()

    def step(self, report: StepReport) -> None:
        """The span of a step has its `seconds`; the histogram leaves out the first, which
        compiles."""
        now = time.time_ns()
        about = {
            "step": report.step, "fetch_s": report.fetch_seconds, "wait_s": report.wait_seconds
        }  # fmt: skip
        began = now - round(1e9 * report.seconds)
        span = self._tracer.start_span(
            "step", context=self._within, start_time=began, attributes=about
        )
        span.end(end_time=now)
        if not self._compiles:
            self._durations.record(report.seconds)
        self._compiles = False

    def close(self, how: str) -> None:
        """Send the rest, for at most CLOSE_S: an exporter limits each wait for bytes, and so not a
        collector that answers a byte at a time."""
        from opentelemetry.trace import StatusCode

        self._root.set_attribute("ended", how)
        if how == "failed":
            self._root.set_status(StatusCode.ERROR)
        self._root.end()
        threads = [
            threading.Thread(target=provider.shutdown, daemon=True)
            for provider in (self._traces, self._metrics)
        ]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(ends - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in threads):
            rest = "the last spans may be lost"
            say(f"warning: the collector takes longer than {CLOSE_S:g} s; {rest}")


def instrument_name(name: str) -> str:
    """A name as OpenTelemetry has them: letters, digits and `_.-/`."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", name)[:LONGEST_NAME]


def check_protocol(environment: Mapping[str, str]) -> None:
    """Raise where the environment asks for a protocol of OTLP that is not spoken."""
    for signal in ("", "TRACES_", "METRICS_"):
        name = f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL"
        if environment.get(name, "http/protobuf") != "http/protobuf":
            raise ValueError(
                f"{name} is '{environment[name]}', only 'http/protobuf' is spoken: collectors take"
                " it on port 4318"
            )


def _has_collector(signal: str) -> bool:
    """Whether the environment names a collector of "TRACES" or "METRICS"."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(os.environ.get(name) for name in names)


def _tracer_provider(resource: Any, trace_id: int, lines: _Lines) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class OneTrace(RandomIdGenerator):  # type: ignore[misc]
        def generate_trace_id(self) -> int:
            return trace_id

    class SpanLines(SpanExporter):  # type: ignore[misc]
        def export(self, spans: Iterable[Any]) -> Any:
            lines.write(map(_span_line, spans))
            return SpanExportResult.SUCCESS

    provider = TracerProvider(
        resource=resource,
        id_generator=OneTrace(),
        shutdown_on_exit=False,  # `close` does that
    )
    exporter = OTLPSpanExporter() if _has_collector("TRACES") else SpanLines()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _meter_provider(resource: Any, lines: _Lines) -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )

    class HistogramLines(MetricExporter):  # type: ignore[misc]
        def export(self, metrics_data: Any, timeout_millis: float = 0, **more: Any) -> Any:
            lines.write(_histogram_lines(metrics_data))
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **more: Any) -> None:
            pass

    exporter = OTLPMetricExporter() if _has_collector("METRICS") else HistogramLines()
    readers = [PeriodicExportingMetricReader(exporter)]
    return MeterProvider(readers, resource=resource, shutdown_on_exit=False)


# ---- without a collector


class _Lines:
    """`traces.jsonl`; threads of the SDK write to it, each some whole lines at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_full = False

    def check_absent(self) -> None:
        """Raise FileExistsError where a run that begins would add to another's file."""
        if os.path.lexists(self._path):
            raise FileExistsError(f"'{self._path}' is not of this run")

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add them; a file that cannot be written is left as it is, with one warning."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        if self._is_full or not text:
            return
        try:
            with open(self._path, "a", encoding="utf-8", opener=regular) as file:
                file.write(text)
        except OSError as error:
            self._is_full = True
            say(f"warning: '{self._path}' gets no more spans: {error}")


def _span_line(span: Any) -> dict[str, Any]:
    parent = None if span.parent is None else f"{span.parent.span_id:016x}"
    return {
        "name": span.name,
        "start": span.start_time / 1e9,  # unix time
        "duration_s": (span.end_time - span.start_time) / 1e9,
        "attributes": dict(span.attributes),
        "is_error": not span.status.is_ok,
        "span_id": f"{span.context.span_id:016x}",
        "parent_id": parent,
        "trace_id": f"{span.context.trace_id:032x}",
    }


def _histogram_lines(metrics_data: Any) -> Iterator[dict[str, Any]]:
    """Of the session so far. Gauges are left out: they stand in `log.jsonl`."""
    scopes = [scope for part in metrics_data.resource_metrics for scope in part.scope_metrics]
    for metric in (metric for scope in scopes for metric in scope.metrics):
        for point in metric.data.data_points:
            if hasattr(point, "bucket_counts"):
                yield {
                    "name": metric.name, "unit": metric.unit, "time": point.time_unix_nano / 1e9,
                    "count": point.count, "sum": point.sum, "min": point.min, "max": point.max,
                    "explicit_bounds": list(point.explicit_bounds),
                    "bucket_counts": list(point.bucket_counts),
                }  # fmt: skip
