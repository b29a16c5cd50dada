"""How busy and how full a device is: what meters say, what samples are made of, and the figures."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headwater import SemanticType
from small import SMALL, events

import confluence
from confluence.config import Config
from confluence.training import smoke
from confluence.training.step import Feed, TrainState, fit
from confluence.watch import meters
from confluence.watch.log import Log
from confluence.watch.log_events import StepReport
from confluence.watch.meters import (
    DEVICE,
    PROCESS,
    Memory,
    StepMeter,
    driver_place,
    open_meter,
    read_memory,
)
from confluence.watch.usage import (
    FIRST_SECONDS,
    LEAST_SAMPLES,
    SAMPLE_SECONDS,
    Usage,
    UsageSampler,
    describe_usage,
    host_warning,
)

# ---- a device of our own, and a clock that moves when somebody works or waits


class World:
    """A device that works on steps one after another, and a host; seconds since the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self.free_at = 0.0  # when the device has done all that it was given
        self.busy_seconds = 0.0
        self.on_time: Callable[[float], None] = lambda until: None

    def clock(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    def wait_until(self, end: float) -> None:
        self.on_time(end)
        self.now = max(self.now, end)

    def work(self, seconds: float) -> Result:
        """Give the device so much to do."""
        self.free_at = max(self.now, self.free_at) + seconds
        self.busy_seconds += seconds
        return Result(self, self.free_at)


class Result:
    """An array that is there at a time."""

    dtype = np.dtype(np.float32)

    def __init__(self, world: World, ends: float) -> None:
        self._world, self._ends = world, ends

    def is_ready(self) -> bool:
        return self._world.now >= self._ends

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._world.wait_until(self._ends)
        return np.float32(0.5)


class Donated:
    """An array that the next step took."""

    def is_ready(self) -> bool:
        raise RuntimeError("Array has been deleted with shape=float32[].")


class ByHand(UsageSampler):
    """Observes when its world says so, in place of the thread."""

    def __init__(self, world: World, meter: Any, late: float = 0.0, **more: Any) -> None:
        super().__init__(
            meter, clock=world.clock, memory=lambda meter: (PROCESS, Memory(3, 4)), **more
        )
        self._world, self._late, self._due = world, late, None

    def _run(self) -> None:
        self._due = self._world.now
        self._world.on_time = self._observe_until

    def dispatched(self, result: Any) -> None:
        super().dispatched(result)
        assert self._thread is not None
        self._thread.join()

    def _observe_until(self, end: float) -> None:
        while self._due + self._late <= end:
            self._world.now = max(self._world.now, self._due + self._late)
            self.observe(self._due)
            self._due += self.tick_seconds


class Machine:
    """Stands for a StepRunner: steps take their time, and dispatching them takes none."""

    accumulate = 1

    def __init__(self, world: World, step_seconds: float) -> None:
        self._world, self._step_seconds = world, step_seconds

    def step(self, state: TrainState, batch: Any, next_input: Any) -> Any:
        loss = self._world.work(self._step_seconds)
        metrics = {"loss": loss, "gradient_norm": loss, "learning_rate": loss}
        return state._replace(step=state.step + 1), metrics

    def assert_one_compilation(self) -> None:
        pass


def trained(
    cfg: Config, *, step_s: float, fetch_s: float, steps: int = 400, late_s: float = 0.0,
    evaluate_s: float = 0.0,
) -> tuple[World, UsageSampler]:  # fmt: skip
    """The real loop in such a world."""
    world, batch = World(), smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)
    sampler = ByHand(world, StepMeter(world.clock), late_s)

    def next_batch() -> Any:
        world.spend(fetch_s)
        return batch, 0

    machine: Any = Machine(world, step_s)
    state: Any = TrainState(params={}, optimizer=None, step=np.int32(0))  # type: ignore[arg-type]
    fit(
        state, machine, Feed(next_batch, observer=sampler), steps=steps,
        on_report=lambda report: None, is_due=lambda step: evaluate_s > 0 and step % 20 == 0,
        on_state=lambda state, step, position: world.spend(evaluate_s),
    )  # fmt: skip
    return world, sampler


# ---- steps


def test_a_device_that_is_fed_in_time_is_always_busy(cfg: Config) -> None:
    _, sampler = trained(cfg, step_s=0.05, fetch_s=0.01)
    usage = sampler.figures()
    assert usage is not None
    assert (usage.utilization_mean, usage.utilization_median, usage.below_80_share) == (1, 1, 0)


@pytest.mark.parametrize("late_s", [0.0, 0.004])
def test_a_sampler_that_takes_twice_as_long_as_a_step_leaves_half(
    cfg: Config, late_s: float
) -> None:
    """Also where the thread gets its turn late: it asks about the moment at which it was due."""
    world, sampler = trained(cfg, step_s=0.05, fetch_s=0.1, late_s=late_s)
    usage = sampler.figures()
    assert usage is not None and usage.source == "steps"
    truth = world.busy_seconds / world.now
    assert truth == pytest.approx(0.5, abs=0.01)
    assert truth - 0.06 <= usage.utilization_mean <= truth + 0.01
    assert usage.below_80_share == 1
    assert usage.wall_seconds == world.now == pytest.approx(400 * 0.1, rel=0.01)


def test_evaluations_and_saves_are_left_out(cfg: Config) -> None:
    world, sampler = trained(cfg, step_s=0.05, fetch_s=0.01, evaluate_s=3.0)
    usage = sampler.figures()
    assert usage is not None
    assert world.busy_seconds / world.now < 0.3
    assert usage.utilization_mean > 0.98
    assert usage.wall_seconds == world.now


def test_a_meter_never_says_too_much() -> None:
    """Asked late, it said busy: the next step was running by then."""
    world = World()
    meter = StepMeter(world.clock)
    assert meter.read(0.0) == 0
    meter.dispatched(world.work(1.0))  # from 0 to 1
    world.now = 0.5
    assert meter.read(0.4) == 1
    world.now = 2.0
    meter.dispatched(world.work(1.0))  # from 2 to 3
    world.now = 2.1
    assert (meter.read(1.5), meter.read(2.05)) == (0, 1)
    meter.dispatched(world.work(1.0))  # the device goes on from 3 to 4
    world.now = 3.5
    assert (meter.read(2.05), meter.read(3.2)) == (1, 1)
    world.now = 4.0
    assert meter.read(3.9) == 0, "the step ended meanwhile: it is not known when"


def test_a_result_that_was_donated_tells_nothing() -> None:
    world = World()
    meter = StepMeter(world.clock)
    meter.dispatched(Donated())
    assert meter.read(0.0) == 0
    world.now = 1.0
    meter.dispatched(world.work(1.0))
    assert (meter.read(0.5), meter.read(1.0)) == (0, 1)


def test_what_happens_in_a_pause_does_not_count() -> None:
    world = World()
    meter = StepMeter(world.clock)
    meter.dispatched(world.work(9.0))
    meter.pause()
    world.now = 2.0
    assert meter.read(1.5) is None
    meter.resume()
    assert (meter.read(1.9), meter.read(2.0)) == (None, 1)
    meter.close()
    assert meter.read(3.0) == 0


# ---- samples


class Steady:
    """A meter that is asked once for each sample, and what it says."""

    source = "nvml"

    def __init__(self, *values: float) -> None:
        self._values = list(values)

    def tick_seconds(self, sample_seconds: float) -> float:
        return sample_seconds

    def read(self, due: float) -> float:
        return self._values.pop(0) if self._values else 1.0

    def dispatched(self, result: Any) -> None:
        pass

    pause = resume = close = lambda self: None

    def memory(self) -> None:
        return None


def after(seconds: float, meter: Any | None = None) -> ByHand:
    """A sampler that was at work for so long."""
    world = World()
    sampler = ByHand(world, meter or StepMeter(world.clock))
    sampler.dispatched(world.work(1e9))
    world.spend(seconds)
    return sampler


@pytest.mark.parametrize("seconds", [2.4, 4.7, 10.0, 100.0, 160.0, 1000.0])
def test_a_run_has_at_least_thirty_samples_and_one_every_five_seconds(seconds: float) -> None:
    for meter in (Steady(), None):
        usage = after(seconds, meter).figures()
        assert usage is not None and usage.utilization_mean == 1
        assert LEAST_SAMPLES <= usage.samples <= max(60, seconds / SAMPLE_SECONDS)
    assert usage.samples >= seconds / SAMPLE_SECONDS - 1


def test_a_short_run_has_fewer_and_one_without_a_sample_has_no_figures() -> None:
    usage = after(5 * FIRST_SECONDS + 0.01).figures()
    assert usage is not None and usage.samples == 5
    assert "5 samples, too few to judge by" in describe_usage(usage)[0]
    assert after(0.01).figures() is None
    assert UsageSampler(Steady()).line() == {}


def test_the_five_figures_of_samples_worked_out_by_hand() -> None:
    """0.2, 0.4, 0.9 and 1.0: mean 0.625, median 0.65, two of four below 0.8."""
    sampler = after(3.5 * FIRST_SECONDS, Steady(0.2, 0.4, 0.9, 1.0))
    usage = sampler.figures()
    assert usage is not None and usage.samples == 4
    assert usage.utilization_mean == pytest.approx(0.625)
    assert usage.utilization_median == pytest.approx(0.65)
    assert usage.below_80_share == 0.5
    assert (usage.memory_of, usage.memory_median_bytes) == (PROCESS, 3)
    assert (usage.memory_median_share, usage.wall_seconds) == (0.75, 3.5 * FIRST_SECONDS)
    line = sampler.line()
    assert line["utilization"] == pytest.approx(0.625) and line["process_memory_bytes"] > 1 << 20
    assert "utilization" not in sampler.line(), "nothing was measured since"


def test_neighbours_become_one_sample() -> None:
    """60 samples of 5/64 s, 1 and 0 in turn, are 30 of one half."""
    sampler = after(59.5 * FIRST_SECONDS, Steady(*[1.0, 0.0] * 30))
    usage = sampler.figures()
    assert usage is not None and (usage.samples, usage.utilization_median) == (30, 0.5)
    assert sampler.tick_seconds == 2 * FIRST_SECONDS


# ---- words

SEEN = Usage(
    source="nvml", samples=643, utilization_mean=0.274, utilization_median=0.16,
    below_80_share=0.86, memory_of="device", memory_median_bytes=14_900_000_000,
    memory_median_share=0.933, wall_seconds=3271.0,
    host_shares={"fetch": 0.04, "put": 0.12, "start": 0.41, "evaluate": 0.004, "save": 0.003},
)  # fmt: skip


def test_the_figures_are_said_in_two_lines() -> None:
    assert describe_usage(SEEN) == [
        "utilization (reported by the GPU's driver): mean 27%, median 16%, below 80% in 86% of 643"
        " samples",
        "memory of the device: median 14.90 GB (93%); wall clock 0:54:31",
    ]


def with_figures(**other: Any) -> Usage:
    return Usage(**{**SEEN.to_dict(), **other})


def test_a_device_that_is_done_before_the_host_is_warned_of_with_the_remedy() -> None:
    said = host_warning(SEEN, wait_share=0.6)
    assert said is not None and "busy 27% of the time" in said and "num_prefetch" in said
    assert host_warning(with_figures(samples=29), wait_share=0.6) is None
    # Between 60 and 80 % only if the next batch was not there.
    assert host_warning(with_figures(utilization_mean=0.79), wait_share=0.05) is not None
    assert host_warning(with_figures(utilization_mean=0.6), wait_share=0.049) is None
    assert host_warning(with_figures(utilization_mean=0.8), wait_share=0.6) is None


def test_a_device_that_no_batch_kept_waiting_is_warned_of_with_what_the_host_did() -> None:
    """Seed 002's own counterexample: 27.4 % in 643 samples, and no batch was waited for."""
    said = host_warning(SEEN, wait_share=0.04)
    assert said is not None
    assert (
        "busy 27% of the time, and the host spent 41% starting steps, 12% putting batches on"
        " the device, 4% getting batches. A larger batch_size or a larger model" in said
    )
    saves = host_warning(
        with_figures(host_shares={"start": 0.2, "evaluate": 0.3, "save": 0.4}), wait_share=0.0
    )
    assert saves is not None and "40% saving, 30% evaluating, 20% starting steps" in saves
    assert "larger eval_every or save_every" in saves


def test_what_the_host_did_is_measured_in_spans_without_those_within_them() -> None:
    """From the first step on 10 s: 4 of starting steps, of which 1 fetched; 2 of evaluating, which
    a `StepMeter` leaves out of all."""
    for source, evaluated in (("steps", {}), ("nvml", {"evaluate": 0.2})):
        world, meter = World(), Steady()
        meter.source = source
        sampler = ByHand(world, meter)
        with sampler.span("start"):
            with sampler.span("fetch"):
                world.spend(10.0)
            world.spend(100.0)  # compiles
            sampler.dispatched(world.work(1e9))
            world.spend(1.0)  # the rest of a step of several batches
            with sampler.span("fetch"):
                world.spend(1.0)
            world.spend(2.0)
        with sampler.left_out(), sampler.span("evaluate"):
            world.spend(2.0)
        world.spend(4.0)
        usage, whole = sampler.figures(), 10.0 if evaluated else 8.0
        assert usage is not None
        assert usage.host_shares == pytest.approx(
            {"start": 3.0 / whole, "fetch": 1.0 / whole, **evaluated}
        )


# ---- what a GPU reports


class Gpu:
    """The second GPU that this process may use."""

    local_hardware_id = 1
    device_kind = "NVIDIA V100"
    client = types.SimpleNamespace(platform_version="PJRT C API\ncuda 12090")


def driver(**changed: Any) -> Any:
    """What of nvidia-ml-py is used; the real one has these, see `test_telemetry.py`."""
    rates = types.SimpleNamespace(gpu=27, memory=5)
    memory = types.SimpleNamespace(used=15, total=16)
    asked: list[Any] = []
    return types.SimpleNamespace(**{
        "asked": asked, "nvmlInit": lambda: None, "nvmlShutdown": lambda: asked.append("end"),
        "nvmlDeviceGetHandleByIndex": lambda index: asked.append(index),
        "nvmlDeviceGetHandleByUUID": lambda uuid: asked.append(uuid),
        "nvmlDeviceGetName": lambda handle: "NVIDIA V100",
        "nvmlDeviceGetUtilizationRates": lambda handle: rates,
        "nvmlDeviceGetMemoryInfo": lambda handle: memory, **changed,
    })  # fmt: skip


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What meters say to people."""
    lines: list[str] = []
    monkeypatch.setattr(meters, "say", lines.append)
    meters._say_once.cache_clear()
    return lines


def test_a_gpu_is_asked_through_its_driver(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    nvml = driver()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    meter = open_meter(Gpu())
    assert (meter.source, meter.read(0.0), meter.memory()) == ("nvml", 0.27, Memory(15, 16))
    assert read_memory(meter, lambda: None) == (DEVICE, Memory(15, 16))
    full = {"peak_bytes_in_use": 7, "bytes_limit": 8, "bytes_in_use": 1}
    assert read_memory(meter, lambda: full) == (DEVICE, Memory(7, 8))
    meter.close()
    assert nvml.asked == [5, "end"] and said == []


def test_devices_are_counted_as_the_process_may_see_them() -> None:
    assert driver_place(3, {}) == 3
    assert driver_place(1, {"CUDA_VISIBLE_DEVICES": "7,3"}) == 3
    assert driver_place(0, {"CUDA_VISIBLE_DEVICES": "GPU-8f2a"}) == "GPU-8f2a"


def fails(*_: Any) -> Any:
    raise OSError("Not Supported")


@pytest.mark.parametrize(
    ("nvml", "problem"),
    [
        (None, "needs nvidia-ml-py: pip install nvidia-ml-py"),
        (driver(nvmlInit=fails), "cannot be read: Not Supported"),
        (driver(nvmlDeviceGetUtilizationRates=fails), "cannot be read: Not Supported"),
        (driver(nvmlDeviceGetName=lambda handle: "NVIDIA T4"), "is NVIDIA T4, not NVIDIA V100"),
    ],
)
def test_without_a_driver_steps_are_watched_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, said: list[str], nvml: Any, problem: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # None: it cannot be imported
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for _ in range(2):
        assert open_meter(Gpu()).source == "steps"
    assert len(said) == 1 and problem in said[0]


def test_a_processor_has_the_memory_of_the_process(said: list[str]) -> None:
    meter = open_meter()
    assert meter.source == "steps" and said == []
    whose, memory = read_memory(meter, lambda: None)
    assert whose == PROCESS and 1 << 20 < memory.used_bytes < memory.limit_bytes


# ---- in runs


def test_a_run_logs_and_prints_how_busy_its_device_was(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "steps": 60, "log_every": 30, "eval_every": 30, "width": 64}
    confluence.train(shop_store, task="subscribed", trees=False, out=tmp_path / "run", **settings)
    (end,) = events(tmp_path / "run", "end")
    usage = Usage(**end["usage"])
    assert 0 <= usage.utilization_mean <= 1 and usage.samples > 0
    assert usage.wall_seconds >= end["seconds"]
    assert usage.memory_median_bytes > 1 << 20
    last = events(tmp_path / "run", "train")[-1]
    assert 0 <= last["utilization"] <= 1 and last["process_memory_bytes"] > 1 << 20
    printed = capsys.readouterr().err
    assert all(f"{line}\n" in printed for line in describe_usage(usage))
    assert not [thread for thread in threading.enumerate() if thread.name == "usage"]


def report(step: int) -> StepReport:
    return StepReport(step, 1.0, 1.0, 1.0, 0.1, 0.09, 0.09, cells=1, positions=2)


def test_an_idle_device_is_warned_of_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = after(10.0, Steady(*[0.1] * 100))
    with Log(tmp_path, steps=2, every=1, contexts_per_step=1, usage=sampler) as log:
        for step in (1, 2):
            log.report(report(step))
        log.event("end", **log.summary())
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("warning: the device is done before the host: it was busy ")


class Broken(Steady):
    """The device went away."""

    def read(self, due: float) -> float:
        raise OSError("GPU is lost")


def test_an_error_in_the_thread_ends_the_sampling_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler: Any = UsageSampler(Broken())  # type: ignore[arg-type]
    with Log(tmp_path, steps=1, every=1, contexts_per_step=1, usage=sampler) as log:
        log.observer.dispatched(None)
        sampler._thread.join()
        log.report(report(1))
    assert "no longer sampled: OSError('GPU is lost')" in capsys.readouterr().err
    assert events(tmp_path)[-1]["loss"] == 1.0
