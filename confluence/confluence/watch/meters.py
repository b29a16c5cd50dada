"""Meters of how busy and how full a device is: NVIDIA's driver, JAX's allocator, or the steps.

    a GPU of NVIDIA, with nvidia-ml-py ──► NvidiaMeter: what the driver reports
    any other device, and a CPU        ──► StepMeter: is a dispatched step unfinished?

A CPU reports nothing of the kind: its cores also sample and evaluate. There utilization is the
share of the time in which a dispatched step is unfinished. JAX does not report when a step ends,
and a thread that looks must first wait for the interpreter, perhaps until the next step runs. So
`StepMeter` answers for a moment that is past. The device was busy then if a step is unfinished
now, and if there has been an unfinished one without a gap since before that moment. Its figure is
never too high, and too low only where a step ended while the thread waited.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import psutil
from headwater.shared import machine_bytes, say

TICK_SECONDS = 5 / 256  # least time between the moments that a StepMeter is asked about
TICKS = 32  # most such moments for one sample
STEPS, NVIDIA = "steps", "nvml"  # sources of utilization
DEVICE, PROCESS = "device", "process"  # whose memory

Clock = Callable[[], float]
DeviceStats = Callable[[], Mapping[str, int] | None]


class Meter(Protocol):
    """Measures how busy a device is. The thread that trains reports its work, another one reads."""

    source: str

    def tick_seconds(self, sample_seconds: float) -> float:
        """Time between two reads, if a sample stands for so long."""

    def dispatched(self, result: Any) -> None:
        """The device has been given work, of which this array is a result; from the loop."""

    def pause(self) -> None:
        """Until `resume` the loop does something other than steps."""

    def resume(self) -> None:
        """The loop takes steps again."""

    def read(self, due: float) -> float | None:
        """Utilization, from 0 to 1, at a moment of the past; None if that does not count."""

    def memory(self) -> Memory | None:
        """Of the device, if this meter knows; else None."""

    def close(self) -> None:
        """The meter is not read any more."""


class Memory(NamedTuple):
    """Memory in use, and how much there is."""

    used_bytes: int
    limit_bytes: int


class StepMeter:
    """Whether a dispatched step is unfinished. Moments are those of `clock`, in seconds."""

    source = STEPS

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        # The last result, and since when there has been an unfinished one. The loop replaces both
        # at once, so that the thread that reads never sees one without the other.
        self._running: tuple[Any, float] = (None, math.inf)
        self._is_paused = False
        self._counts_from = -math.inf

    def tick_seconds(self, sample_seconds: float) -> float:
        return max(TICK_SECONDS, sample_seconds / TICKS)

    def dispatched(self, result: Any) -> None:
        before, since = self._running
        if result is before:
            return
        # The new work is there already, so if the old one is still unfinished there is no gap.
        self._running = (result, since if _is_unfinished(before) else self._clock())

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._counts_from = self._clock()
        self._is_paused = False

    def read(self, due: float) -> float | None:
        running, since = self._running
        busy = since <= due and _is_unfinished(running)
        if self._is_paused or due < self._counts_from:
            return None
        return float(busy)

    def memory(self) -> Memory | None:
        return None

    def close(self) -> None:
        self._running = (None, math.inf)


def _is_unfinished(result: Any) -> bool:
    """Whether the device works on it; False for an array that was donated to the next step."""
    try:
        return result is not None and not result.is_ready()
    except RuntimeError:
        return False


class NvidiaMeter:
    """What NVIDIA's driver reports of a device: the share of its last sample period, up to a
    second, in which a kernel ran. Whatever the loop does counts, evaluations too."""

    source = NVIDIA

    def __init__(self, device: Any, environment: Mapping[str, str] = os.environ) -> None:
        """Raises ImportError without nvidia-ml-py, NVMLError without a driver, LookupError where
        the driver knows the device by another name."""
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        place = driver_place(device.local_hardware_id, environment)
        by_id = isinstance(place, str)
        find = pynvml.nvmlDeviceGetHandleByUUID if by_id else pynvml.nvmlDeviceGetHandleByIndex
        self._handle: Any = find(place)
        name = pynvml.nvmlDeviceGetName(self._handle)
        if name != device.device_kind:
            raise LookupError(f"the driver's device {place} is {name}, not {device.device_kind}")
        self.read(0.0)  # a part of a device reports none

    def tick_seconds(self, sample_seconds: float) -> float:
        return sample_seconds

    def dispatched(self, result: Any) -> None:
        """The driver sees it."""

    def pause(self) -> None:
        """The driver goes on."""

    def resume(self) -> None:
        """The driver goes on."""

    def read(self, due: float) -> float | None:
        return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu) / 100

    def memory(self) -> Memory | None:
        found = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return Memory(int(found.used), int(found.total))

    def close(self) -> None:
        self._nvml.nvmlShutdown()


def driver_place(number: int, environment: Mapping[str, str]) -> int | str:
    """Index or UUID by which the driver knows the device that this process counts as `number`."""
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if not visible:
        return number
    place = visible.split(",")[number].strip()
    return int(place) if place.isdigit() else place


def open_meter(device: Any | None = None, clock: Clock = time.perf_counter) -> Meter:
    """The meter of a device of this process, by default its first. If the driver of a GPU cannot be
    read, one line per process reports why."""
    device = jax.local_devices()[0] if device is None else device
    if "cuda" not in str(getattr(device.client, "platform_version", "")):
        return StepMeter(clock)
    try:
        return NvidiaMeter(device)
    except ImportError:
        _say_once("needs nvidia-ml-py: pip install nvidia-ml-py")
    except Exception as error:  # of a driver, which must not end a training
        _say_once(f"cannot be read: {error}")
    return StepMeter(clock)


@functools.cache
def _say_once(problem: str) -> None:
    say(
        f"the GPU's own utilization {problem}; in its place stands the share of the time in which a"
        " dispatched step is unfinished"
    )


def device_memory() -> Mapping[str, int] | None:
    """Statistics of the allocator of this process's device, in bytes by name; None on a CPU."""
    stats: Mapping[str, int] | None = jax.local_devices()[0].memory_stats()
    return stats


def process_memory() -> Memory:
    """The resident memory of this process, and the memory of the machine."""
    return Memory(_process(os.getpid()).memory_info().rss, int(machine_bytes()))


@functools.cache
def _process(number: int) -> Any:
    return psutil.Process(number)


def read_memory(meter: Meter, device_stats: DeviceStats = device_memory) -> tuple[str, Memory]:
    """Whose memory, and how much of it is in use.

    Of a device that is the most that was in use so far: its allocator takes the memory of a step
    back when the step is launched, so a look at any moment would leave activations out.
    """
    stats = device_stats() or {}
    if "peak_bytes_in_use" in stats and stats.get("bytes_limit"):
        return DEVICE, Memory(int(stats["peak_bytes_in_use"]), int(stats["bytes_limit"]))
    known = meter.memory()
    return (PROCESS, process_memory()) if known is None else (DEVICE, known)
