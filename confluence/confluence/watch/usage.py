"""How busy and how full the device of a run was: samples that a thread takes, and their figures.

    loop: dispatched, left_out ──► Meter ◄── a thread: observe ──► samples ──► Usage ──► lines

A sample stands for 5 s of the run. So that short runs have samples too, the first stand for 5/64 s;
when there are 60 of them, neighbours become one, which halves their number and doubles their time,
until each stands for 5 s. All samples of a run stand for the same time, and a run of 2.4 s or more
has at least 30. The time begins when the first step has been dispatched: compiling it is not part
of it. Of several ranks the first one samples its own device.

The thread wakes 51 times a second, after two minutes 6 times, and ends with the run. It never
ends a training: an error in it ends the sampling, with a warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.shared import say

from confluence.watch.meters import (
    NVIDIA,
    PROCESS,
    STEPS,
    Clock,
    Memory,
    Meter,
    open_meter,
    process_memory,
    read_memory,
)
from confluence.watch.observer import Observer

SAMPLE_SECONDS = 5.0
FIRST_SECONDS = SAMPLE_SECONDS / 64
MOST_SHORT = 60  # samples that stand for less than SAMPLE_SECONDS
LONG_SLEEP = 0.1  # seconds that the end of a run does not wait for
LEAST_SAMPLES = 30  # to judge by
LOW = 0.8  # utilization below which the device is waiting for something
IDLE = 0.6  # utilization below which it is worth knowing for what, whatever it is
LONG_WAIT = 0.05  # share of the time, in which the next batch was not there
SHOWN = 0.01  # share of the time below which nothing is printed of what the host did
LEFT_OUT = ("evaluate", "save")  # what `StepMeter` leaves out
DOING = {  # in words, what the thread that trains does in spans of these names
    "fetch": "getting batches", "put": "putting batches on the device", "start": "starting steps",
    "evaluate": "evaluating", "save": "saving",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Usage:
    """The figures of a run by which its use of a device is judged; those of one process."""

    source: str  # of utilization: "nvml", NVIDIA's driver, or "steps" (`StepMeter`)
    samples: int
    utilization_mean: float  # from 0 to 1, as all shares
    utilization_median: float
    below_80_share: float  # of the samples
    memory_of: str  # "device" or "process"
    memory_median_bytes: int
    memory_median_share: float  # of what the device has, or the machine
    wall_seconds: float  # from when the run was opened, compiling and evaluations included
    # By the names of `DOING`, the shares of the time since the first step in which the thread that
    # trains did that; evaluating and saving are left out if the source is "steps".
    host_shares: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """All figures by name; JSON can hold it."""
        return dataclasses.asdict(self)


class Sample(NamedTuple):
    """A part of the run."""

    utilization: float
    memory: Memory


class UsageSampler(Observer):
    """Samples the device while a run trains; used within `with`, closed by its end.

    `dispatched`, `span` and `left_out` are for the thread that trains, which is watched from its
    first step on. `line` and `figures` may be called by any thread.
    """

    def __init__(
        self, meter: Meter | None = None, *, clock: Clock = time.perf_counter,
        memory: Callable[[Meter], tuple[str, Memory]] = read_memory,
    ) -> None:  # fmt: skip
        """`meter`: by default that of this process's device."""
        self._meter = open_meter(clock=clock) if meter is None else meter
        self._clock, self._read_memory = clock, memory
        self._lock = threading.Lock()  # of all below that both threads change
        self._samples: list[Sample] = []
        self._sample_seconds = FIRST_SECONDS
        self._memory_of = PROCESS
        self._values: list[float] = []  # of the sample that is being taken
        self._line_sum, self._line_count = 0.0, 0  # since the last line
        self._load: dict[str, float] = {}  # of the process, at the last sample
        self._host: Counter[str] = Counter()  # seconds of spans, without those within them
        self._within = 0.0  # seconds of spans within the present one
        self._started = self._load_at = self._watched_from = clock()
        self._processor_seconds = time.process_time()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> UsageSampler:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close()

    def dispatched(self, result: Any) -> None:
        """The device has been given work; the first time sampling begins."""
        self._meter.dispatched(result)
        if self._thread is None:
            self._load_at = self._watched_from = self._clock()
            self._within = 0.0  # compiling, which was before, does not count
            self._processor_seconds = time.process_time()
            self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
            self._thread.start()

    @contextlib.contextmanager
    def span(self, name: str, **attributes: int) -> Iterator[None]:
        """Within it the loop does something of this name."""
        began, outer, self._within = self._clock(), self._within, 0.0
        try:
            yield
        finally:
            now = self._clock()
            if self._thread is not None:
                watched = now - max(began, self._watched_from)
                self._host[name] += watched - self._within  # type: ignore[assignment]
            self._within = outer + now - began

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Within it no time counts."""
        self._meter.pause()
        try:
            yield
        finally:
            self._meter.resume()

    def close(self, how: str = "finished") -> None:
        """End the thread; what it found stays."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)  # a driver that hangs ends with the process
        with contextlib.suppress(Exception):  # of a driver
            self._meter.close()

    @property
    def tick_seconds(self) -> float:
        """How long after one moment the next is observed."""
        return self._meter.tick_seconds(self._sample_seconds)

    # ---- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        """Observe at a moment of each tick, drawn so that no rhythm of the steps is met."""
        draw, tick_began = random.Random(0).random, self._clock()
        try:
            while True:
                tick = self.tick_seconds
                due = tick_began + tick * draw()
                tick_began += tick
                if self._is_stopped_in(due - self._clock()):
                    return
                self.observe(due)
        except Exception as error:  # of a driver: it must not end a training
            say(f"warning: the device's utilization is no longer sampled: {error!r}")

    def _is_stopped_in(self, seconds: float) -> bool:
        if seconds > LONG_SLEEP:
            return self._stop.wait(seconds)
        time.sleep(max(0.0, seconds))  # half the work of a wait that can be ended
        return self._stop.is_set()

    def observe(self, due: float) -> None:
        """Read the meter for a moment of the past, and close the sample if it is whole."""
        value = self._meter.read(due)
        if value is None:
            return
        with self._lock:
            self._values.append(value)
            self._line_sum, self._line_count = self._line_sum + value, self._line_count + 1
            if len(self._values) * self.tick_seconds >= self._sample_seconds:
                self._close_sample()

    def _close_sample(self) -> None:
        self._memory_of, memory = self._read_memory(self._meter)
        self._samples.append(Sample(statistics.fmean(self._values), memory))
        self._values = []
        self._note_load()
        if len(self._samples) == MOST_SHORT and self._sample_seconds < SAMPLE_SECONDS:
            pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
            self._samples = [_joined(*pair) for pair in pairs]
            self._sample_seconds *= 2

    def _note_load(self) -> None:
        now, processor_seconds = self._clock(), time.process_time()
        cores = (processor_seconds - self._processor_seconds) / max(1e-9, now - self._load_at)
        self._load_at, self._processor_seconds = now, processor_seconds
        self._load = {
            "process_cores": cores, "process_memory_bytes": process_memory().used_bytes
        }  # fmt: skip

    # ---- what was found --------------------------------------------------------------------

    def line(self) -> dict[str, float]:
        """For a line of the log: utilization since the last line, and the newest sample of memory
        and of the process; values that are not known yet are left out."""
        with self._lock:
            found: dict[str, float] = {}
            if self._line_count:
                found["utilization"] = self._line_sum / self._line_count
            if self._samples and self._memory_of != PROCESS:
                found["device_memory_bytes"] = self._samples[-1].memory.used_bytes
            self._line_sum, self._line_count = 0.0, 0
            return {**found, **self._load}

    @property
    def samples(self) -> list[Sample]:
        """Those so far."""
        with self._lock:
            return list(self._samples)

    def figures(self) -> Usage | None:
        """Of the samples so far; None if there is none."""
        if not (samples := self.samples):
            return None
        return figures_of(
            samples, source=self._meter.source, memory_of=self._memory_of,
            wall_seconds=self._clock() - self._started, host_shares=self._host_shares(),
        )  # fmt: skip

    def _host_shares(self) -> dict[str, float]:
        skipped = LEFT_OUT if self._meter.source == STEPS else ()
        host = dict(self._host)  # the thread that trains may add to it
        seconds = self._clock() - self._watched_from - sum(host.get(name, 0.0) for name in skipped)
        return {name: took / seconds for name, took in host.items() if name not in skipped}


def figures_of(
    samples: Sequence[Sample], *, source: str, memory_of: str, wall_seconds: float,
    host_shares: Mapping[str, float],
) -> Usage:  # fmt: skip
    """The figures of some samples that stand for times of the same length, at least one; the rest
    as `Usage` has it."""
    shares = [sample.utilization for sample in samples]
    used = statistics.median(sample.memory.used_bytes for sample in samples)
    return Usage(
        source=source, samples=len(samples), utilization_mean=statistics.fmean(shares),
        utilization_median=statistics.median(shares),
        below_80_share=sum(share < LOW for share in shares) / len(shares),
        memory_of=memory_of, memory_median_bytes=round(used),
        memory_median_share=used / samples[-1].memory.limit_bytes, wall_seconds=wall_seconds,
        host_shares=host_shares,
    )  # fmt: skip


def _joined(first: Sample, second: Sample) -> Sample:
    """One sample of two neighbours, which stand for times of the same length."""
    memory = Memory(
        (first.memory.used_bytes + second.memory.used_bytes) // 2, second.memory.limit_bytes
    )
    return Sample((first.utilization + second.utilization) / 2, memory)


def describe_usage(usage: Usage) -> list[str]:
    """The five figures for people, with how many samples they are of and what was measured."""
    what = (
        "reported by the GPU's driver" if usage.source == NVIDIA
        else "time with an unfinished step"
    )  # fmt: skip
    few = "" if usage.samples >= LEAST_SAMPLES else ", too few to judge by"
    whose = "process" if usage.memory_of == PROCESS else "device"
    wall = datetime.timedelta(seconds=round(usage.wall_seconds))
    return [
        f"utilization ({what}): mean {usage.utilization_mean:.0%}, median"
        f" {usage.utilization_median:.0%}, below 80% in {usage.below_80_share:.0%} of"
        f" {usage.samples} samples{few}",
        f"memory of the {whose}: median {usage.memory_median_bytes / 1e9:.2f} GB"
        f" ({usage.memory_median_share:.0%}); wall clock {wall}",
    ]


def host_warning(usage: Usage, wait_share: float) -> str | None:
    """What to do about a device that is done before the host, with what the host did; None if it is
    not, or if there are fewer than 30 samples. `wait_share`: of the log's `end` line."""
    waits = wait_share >= LONG_WAIT
    least = LOW if waits else IDLE
    if usage.samples < LEAST_SAMPLES or usage.utilization_mean >= least:
        return None
    shares = sorted(usage.host_shares.items(), key=lambda item: -item[1])
    spent = [f"{share:.0%} {DOING.get(name, name)}" for name, share in shares if share >= SHOWN]
    said = [
        f"the device is done before the host: it was busy {usage.utilization_mean:.0%} of the time,"
        f" and the host spent {', '.join(spent) or 'none of it in a measured part of the loop'}."
    ]
    if waits:
        said.append(
            "Often the next batch was not there: more num_threads or num_prefetch bring batches"
            " sooner, and batches made before (`confluence prebatch`) cost the host least."
        )
    if sum(usage.host_shares.get(name, 0.0) for name in LEFT_OUT) >= LONG_WAIT:
        said.append("A larger eval_every or save_every leaves more time to the steps.")
    said.append(
        "A larger batch_size or a larger model gives the device more to do in each step"
        " (docs/guides/tuning.md)"
    )
    return " ".join(said)
