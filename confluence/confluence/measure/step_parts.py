"""What a training step is made of, measured part by part; then real steps, live and packed.

    sample: one thread makes a batch ──► put: it goes to the device ──► step: the device computes
                                         host: Python starts a step, and reads what came of it

There are TURNS turns, of which the median counts. In each turn every part is measured alone, when
no other part works, and after that the loop of a training (`training.step.fit`) takes real steps,
so that a machine whose speed changes changes it for both, and for all configurations.
`Parts.predict` says from the parts how long a step takes when all work at once; the real steps are
no part of that. The method is seed 002's probe; where sampler and step share a CPU's cores, they
also share their time.

A GPU may have done most of a step when the call that starts it returns. So its part is what its
driver reports.

All seconds are those of a step, with all its batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import headwater
import jax

from confluence.config import Config, kept_config
from confluence.data.planned_steps import with_steps
from confluence.data.stores import (
    OpenStore,
    category_limit,
    find_places,
    first_biases,
    open_stores,
    row_shape,
)
from confluence.data.tasks import cells_in_parts, device_tables, parts_of, sent_fields
from confluence.data.verification import open_store
from confluence.measure.own_process import answer_question
from confluence.packs.walk import estimated_bytes, kept_in_memory, order_of
from confluence.training.step import Constants, Fed, Feed, StepRunner, TrainState, first_state, fit
from confluence.watch.log_events import StepReport
from confluence.watch.meters import NVIDIA, open_meter
from confluence.watch.usage import LOW, Sample, Usage, UsageSampler, figures_of

TURNS = 5
BLOCK = 32  # steps whose batches are levelled together, so that a turn has all that they cost
KEPT = 8  # batches that a turn puts on the device, and then steps on
READY = 2  # batches that are fetched when they are ready; more may not be
TURN_SECONDS = 0.5  # least length of a turn of steps
DRIVER_SECONDS = 2.0  # the same with a driver, which reports of a past period of up to a second
REAL_STEPS, REAL_SECONDS = 20, 3.0  # least of both
MOST_STEPS = 3_000
SETTLING_SECONDS = 1.0  # of real steps before they count, or as many as batches are ready
PACKED_STEPS = 64  # whose batches are kept in memory, to measure how fast they are taken


class Cost(NamedTuple):
    """What a part of a step takes."""

    seconds: float
    cpu_seconds: float  # of all threads of the process

    def times(self, count: float) -> Cost:
        """Of so many."""
        return Cost(count * self.seconds, count * self.cpu_seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a step."""

    sample: Cost  # of one thread
    put: Cost  # until all of it is on the device
    call_seconds: float  # until Python has a batch that is ready, and may go on while it is put
    host: Cost
    step: Cost
    alone_seconds: float  # of a step that nothing else disturbs: the host's and the device's
    threads: int  # of the sampler; 0: the host makes the batches
    cores: int | None  # that all parts share; None: the step is computed by a device of its own

    def to_dict(self) -> dict[str, Any]:
        """All of it by name; JSON can hold it."""
        return {
            name: value._asdict() if isinstance(value, Cost) else value
            for name, value in vars(self).items()
        }

    def bounds(self) -> dict[str, float]:
        """The least seconds of a step by what may bound it."""
        made = self.sample.seconds if self.threads == 0 else 0.0
        found = {
            "step": self.step.seconds + self._taken(), "put": self.put.seconds,
            "host": made + self.call_seconds + self.host.seconds + self._lost(),
        }  # fmt: skip
        if self.threads:
            found["sampler"] = self.sample.seconds / self.threads
        return found

    def _taken(self) -> float:
        """What the other parts take of the cores on which the step is computed. It cannot use the
        rest of them meanwhile, as each of its operations is dealt to all and ends with the last."""
        if self.cores is None:
            return 0.0
        return sum(part.cpu_seconds for part in (self.sample, self.put, self.host)) / self.cores

    def _lost(self) -> float:
        """What Python's thread loses while a step is computed by as many threads as there are
        cores: of so many cores each of the threads has its share, and Python's is one more."""
        return 0.0 if self.cores is None else self.step.seconds / (self.cores + 1)

    def predict(self) -> tuple[float, str]:
        """Seconds of a step when all parts work at once, and what bounds it."""
        bounds = self.bounds()
        by = max(bounds, key=lambda name: bounds[name])
        return bounds[by], by

    def utilization(self) -> float:
        """The share of that time in which the device has a step to work on."""
        seconds, by = self.predict()
        return 1.0 if by == "step" else min(1.0, self.step.seconds / seconds)

    def overlap(self) -> float:
        """Seconds of sampling and of the host that are hidden behind the rest."""
        one_by_one = self.sample.seconds / max(1, self.threads) + self.put.seconds
        return max(0.0, one_by_one + self.alone_seconds - self.predict()[0])


def shared_cores() -> int | None:
    """How many cores sampler and steps share; None where a device computes the steps."""
    return len(os.sched_getaffinity(0)) if jax.default_backend() == "cpu" else None


def device_part(whole: Cost, host: Cost, busy: float | None) -> Cost:
    """What of a step alone is the device's.

    Args:
        whole, host: the step, and what of it is Python's thread's.
        busy: in which share of it the device worked, as its driver reports; None where no driver
            reports: then the device has all that the host does not take.
    """
    seconds = whole.seconds - host.seconds if busy is None else busy * whole.seconds
    return Cost(seconds, whole.cpu_seconds - host.cpu_seconds)


def in_parts(cfg: Config, store: headwater.Store, task: str, parts: int) -> Config:
    """The settings with the least `cell_budget` at which a batch is computed in so many parts."""
    if parts == 1:
        return cfg
    return cfg.replace(cell_budget=cells_in_parts(store, cfg, task, parts))


def measure_steps(
    settings: Mapping[str, Any], store: str, task: str, parts: Sequence[int]
) -> dict[str, Any]:
    """Measure the parts of a step, predict it, and take real steps.

    Args:
        settings: of a `Config`.
        parts: in which a batch is computed, each a configuration; 1: as the settings say. One
            whose batches have no fewer cells than whole ones is left out.

    Returns:
        `rows`, one of each configuration, as JSON can hold it; `live` and `packed` in them are of
        the real steps.
    """
    cfg, opened = kept_config(settings), open_store(store)
    with contextlib.ExitStack() as stack:
        found = [
            Configuration(stack, in_parts(cfg, opened, task, count), opened, task)
            for count in parts
        ]
        found = [found[0], *(one for one in found[1:] if one.parts > 1)]
        for turn in range(TURNS):
            for one in found:
                one.turn(turn)
        return {"rows": [one.row() for one in found]}


class Configuration:
    """Measures some settings, turn by turn."""

    def __init__(
        self, stack: contextlib.ExitStack, cfg: Config, store: headwater.Store, task: str
    ) -> None:
        """`stack`: shuts the samplers down."""
        known = {str(store.path): store}
        places = find_places(known, [task])
        (alone,) = stack.enter_context(open_stores(known, places, cfg.replace(num_prefetch=0)))
        (opened,) = stack.enter_context(open_stores(known, places, cfg))
        cfg = with_steps(cfg, [opened])
        self._cfg, self._task, self._store, self._alone = cfg, task, opened, alone.sampler
        self.parts = parts_of(opened.sampler, cfg.contexts)  # perhaps fewer than were asked for
        self._count = self.parts * cfg.accumulate
        kept = _in_memory(opened, cfg)
        self._bench = Bench(cfg, opened, self._count)
        self._expected = self._bench.compile()
        self._ahead = int(opened.sampler.stats()["train_queue"])
        self._live = self._real_steps(opened, self._ahead)
        self._packs = self._real_steps(kept, 0)
        self._turns: list[tuple[Cost, ...]] = []
        self._fetched: list[float] = []
        self._slowest = 0.0

    def _real_steps(self, store: OpenStore, ahead: int) -> RealSteps:
        next_batch = store.train_batches.next_train_batch
        return RealSteps(self._bench, next_batch, self._expected, ahead=ahead)

    def turn(self, turn: int) -> None:
        """Measure each part, and take real steps."""
        sample, slowest = _sampled(self._alone, self._count)
        self._slowest = max(slowest, self._slowest)
        self._turns.append((sample, *self._bench.parts(turn)))
        self._fetched.append(self._bench.fetch_ready(self._ahead))
        self._live.take()
        self._packs.take()

    def row(self) -> dict[str, Any]:
        """All that was found."""
        sample, put, call, host, step, alone = (
            _median(costs) for costs in zip(*self._turns, strict=True)
        )
        sampler = self._store.sampler
        found = Parts(
            sample=sample, put=put, host=host, step=step, alone_seconds=alone.seconds,
            call_seconds=statistics.median(self._fetched) + call.seconds,
            threads=int(sampler.stats()["threads"]), cores=shared_cores(),
        )  # fmt: skip
        seconds, bound_by = found.predict()
        return {
            "parts": self.parts, "device": jax.devices()[0].device_kind, **found.to_dict(),
            "cell_budget": self._cfg.cell_budget, "batches": self._count,
            "contexts": int(sampler.shape["batch_size"]),
            "cells": int(sampler.flat_shape(self._task)["cells"]),
            "batch_bytes": self._bench.batch_bytes, "slowest_batch_seconds": self._slowest,
            "batches_ahead": self._ahead, **_epoch(self._store, self._cfg),
            "predicted_seconds": seconds, "bound_by": bound_by,
            "predicted_utilization": found.utilization(), "overlap_seconds": found.overlap(),
            "live": self._live.figures(),
            "packed": self._packs.figures(),
        }  # fmt: skip


def _sampled(sampler: Any, count: int) -> tuple[Cost, float]:
    """What a step's batches cost one thread, in a block of them, and the slowest batch."""
    sampler.next_train_batch()  # reads what no memory has yet
    clock, slowest = _Clock(), 0.0
    for _ in range(BLOCK * count):
        before = time.perf_counter()
        batch = sampler.next_train_batch()
        slowest = max(slowest, time.perf_counter() - before)
        del batch
    return clock.cost(BLOCK), slowest


def _in_memory(store: OpenStore, cfg: Config) -> OpenStore:
    """The store with some of its batches kept in memory; its sampler goes back to where it was."""
    start = store.sampler.state_dict()
    kept = cfg.replace(
        prebatch="memory", prebatch_epochs=1, steps=min(PACKED_STEPS, cfg.step_count)
    )  # fmt: skip
    (found,) = kept_in_memory([store], kept, sharing=1, each=lambda: None)
    store.sampler.load_state_dict(start)
    return found


def _epoch(store: OpenStore, cfg: Config) -> dict[str, Any]:
    """How many batches a run takes, how many of them it would keep in memory, and their bytes."""
    order = order_of(store.sampler, cfg, cfg.prebatch_epochs)
    needed = cfg.step_count * order.accumulate
    kept = min(order.count, needed)
    return {
        "kept_batches": kept, "needed_batches": needed,
        "kept_bytes": estimated_bytes(store.sampler, kept),
    }  # fmt: skip


class _Clock:
    """Wall clock and processor time since it was made."""

    def __init__(self) -> None:
        self._seconds, self._cpu_seconds = time.perf_counter(), time.process_time()

    def cost(self, steps: int) -> Cost:
        """Of each of so many steps."""
        return Cost(
            (time.perf_counter() - self._seconds) / steps,
            (time.process_time() - self._cpu_seconds) / steps,
        )


def _median(turns: Iterable[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*turns, strict=True)))


class Bench:
    """The compiled step of a configuration, with its state, and batches of its store."""

    def __init__(self, cfg: Config, store: OpenStore, count: int) -> None:
        """`count`: batches of a step."""
        self._cfg, self._store, self._count = cfg, store, count
        limit, width = category_limit([store]), int(store.metadata["text"]["dim"])
        self._tables = device_tables(store.sampler, limit)
        self._runner = StepRunner(
            cfg, [Constants(self._tables, store.scales(cfg))], text_width=width,
            category_limit=limit, row_shape=row_shape([store], cfg),
            parts=count // cfg.accumulate,
        )  # fmt: skip
        self._state: TrainState = first_state(cfg, width, first_biases([store]))
        # No turn gets one that was looked at: the arrays of a batch are made at the first look.
        self._batches = [store.sampler.next_train_batch() for _ in range((1 + TURNS) * KEPT)]
        meter = open_meter()
        self._driver = meter if meter.source == NVIDIA else None
        first = self._batches[0]
        self.batch_bytes = sum(first[name].nbytes for name in sent_fields(first))

    def feed(self, next_batch: Callable[[], Any], **more: Any) -> Feed:
        """Batches on their way to the device."""
        return Feed(lambda: (next_batch(), 0), texts=[self._tables.texts], **more)

    def compile(self) -> float:
        """Compile the step; returns about how many seconds one takes: the least of three, as
        another program may hold one up."""
        _, fed = self._put_all(0)
        self._step(fed, 0)
        return min(self._timed_step(fed) for _ in range(3))

    def _timed_step(self, fed: list[Fed]) -> float:
        started = time.perf_counter()
        self._step(fed, 0)
        return time.perf_counter() - started

    def train(self, feed: Feed, steps: int, on_report: Callable[[StepReport], None]) -> None:
        """The loop of a training, so many steps of it."""
        steps += int(self._state.step)
        self._state = fit(self._state, self._runner, feed, steps=steps, on_report=on_report)

    def parts(self, turn: int) -> tuple[Cost, Cost, Cost, Cost, Cost]:
        """What putting, Python's share of it (`call`), the host, the device's step, and a step
        alone, which is both, cost; `turn`: from 0."""
        clock = _Clock()
        call_seconds, fed = self._put_all(1 + turn)
        put = clock.cost(len(fed)).times(self._count)
        call = Cost(call_seconds, call_seconds).times(self._count / len(fed))
        seconds = TURN_SECONDS if self._driver is None else DRIVER_SECONDS
        clock, own = _Clock(), [self._step(fed, 0)]
        while clock.cost(1).seconds < seconds:
            own.append(self._step(fed, len(own)))
        whole, host = clock.cost(len(own)), Cost(*map(statistics.fmean, zip(*own, strict=True)))
        busy = None if self._driver is None else self._driver.read(0.0)
        return put, call, host, device_part(whole, host, busy), whole

    def fetch_ready(self, ahead: int) -> float:
        """Seconds in which Python gets the batches of a step that the sampler has ready."""
        ready = min(READY, ahead)
        started = time.perf_counter()
        for _ in range(ready):
            self._store.sampler.next_train_batch()
        return (time.perf_counter() - started) / max(1, ready) * self._count

    def _put_all(self, turn: int) -> tuple[float, list[Fed]]:
        """The batches of a turn on the device, and for how many seconds Python put them there."""
        batches = iter(self._batches[turn * KEPT :])
        feed, found = self.feed(lambda: next(batches)), []
        for _ in range(KEPT):
            found.append(feed.next_on_device())
            for array in found[-1].inputs.values():
                array.block_until_ready()
        return feed.fetch_seconds, found

    def _step(self, fed: list[Fed], k: int) -> tuple[float, float]:
        """Step k; returns the host's seconds, and those of its own thread."""
        due = itertools.count(k * self._count)

        def next_input(running: Any = None) -> Fed:
            return fed[next(due) % len(fed)]

        began, thread_began = time.perf_counter(), time.thread_time()
        self._state, metrics = self._runner.step(self._state, next_input(), next_input)
        host, thread = time.perf_counter() - began, time.thread_time() - thread_began
        for value in metrics.values():
            value.block_until_ready()
        began, thread_began = time.perf_counter(), time.thread_time()
        jax.device_get(metrics)
        host += time.perf_counter() - began
        return host, thread + time.thread_time() - thread_began


class RealSteps:
    """Steps of a training, a turn after each turn of its parts."""

    def __init__(
        self, bench: Bench, next_batch: Callable[[], Any], expected: float, *, ahead: int
    ) -> None:
        """
        Args:
            next_batch: where the batches come from.
            expected: about how many seconds a step takes.
            ahead: batches that are ready, which the sampler no longer has to make.
        """
        self._bench, self._next_batch = bench, next_batch
        settled = SETTLING_SECONDS / TURNS / expected
        self._settling = 1 + min(3 + ahead, math.ceil(settled))  # steps that do not count
        wanted = max(REAL_STEPS, math.ceil(REAL_SECONDS / expected))
        self._steps = math.ceil(min(wanted, MOST_STEPS) / TURNS)
        self._turns: list[Cost] = []
        self._samples: list[Sample] = []
        self._usages: list[Usage] = []

    def take(self) -> None:
        """A turn of steps."""
        ends: list[tuple[float, float]] = []
        with UsageSampler() as usage:
            self._bench.train(
                self._bench.feed(self._next_batch, observer=usage), self._settling + self._steps,
                lambda report: ends.append((time.perf_counter(), time.process_time())),
            )  # fmt: skip
            figures = usage.figures()
        (began, cpu_began), (ended, cpu_ended) = ends[-1 - self._steps], ends[-1]
        took = Cost(ended - began, cpu_ended - cpu_began)
        self._turns.append(took.times(1 / self._steps))
        self._samples += usage.samples
        self._usages += [figures] if figures is not None else []

    def figures(self) -> dict[str, Any]:
        """Of all turns; `usage` is None if they ended before the device was sampled."""
        return {
            "steps": TURNS * self._steps, **_median(self._turns)._asdict(), "usage": self._usage(),
            "turns": [turn.seconds for turn in self._turns],
        }  # fmt: skip

    def _usage(self) -> dict[str, Any] | None:
        if not self._usages:
            return None
        last = self._usages[-1]
        return figures_of(
            self._samples, source=last.source, memory_of=last.memory_of,
            wall_seconds=sum(usage.wall_seconds for usage in self._usages),
            host_shares=last.host_shares,
        ).to_dict()  # fmt: skip


def keeps_busy(found: Mapping[str, Any]) -> bool:
    """Whether the device bounds the steps of a measured configuration: as predicted, and as was
    sampled, if it was."""
    usage, predicted = found["live"]["usage"], found["predicted_utilization"]
    return bool(predicted >= LOW and (usage is None or usage["utilization_mean"] >= LOW))


if __name__ == "__main__":
    answer_question(measure_steps)
