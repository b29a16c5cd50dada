"""What a training step is made of, measured part by part; then real steps, live and packed.

    sample: one thread makes a batch ──► put: it goes to the device ──► step: the device computes
                                         host: Python starts a step, and reads what came of it

Each part is measured alone, when no other part works: in TURNS turns, of which the median counts.
`Parts.predict` says from them how long a step takes when all work at once. Then the loop of a
training (`training.step.fit`) takes real steps, which were no part of the prediction. The method is
seed 002's probe; where sampler and step share a CPU's cores, they also share their time.

All seconds are those of a step, with all its batches.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from confluence.config import Config, kept_config
from confluence.data.stores import (
    OpenStore,
    category_limit,
    find_places,
    first_biases,
    open_stores,
    row_shape,
)
from confluence.data.tasks import device_tables, most_cells, open_sampler, sent_fields
from confluence.data.walk import estimated_bytes, kept_in_memory, order_of
from confluence.folder.log_events import StepReport
from confluence.folder.usage import LOW, UsageSampler
from confluence.runs.own_process import answer_question
from confluence.training.step import Constants, Fed, Feed, StepRunner, TrainState, first_state, fit

TURNS = 5
BLOCK = 32  # steps whose batches are levelled together, so that a turn has all that they cost
KEPT = 8  # batches that turns of put and step go round in
TURN_SECONDS = 0.5  # least length of a turn of steps
REAL_STEPS, REAL_SECONDS = 20, 3.0  # least of both
MOST_STEPS = 3_000
SETTLING_SECONDS = 1.0  # of real steps before they count, or as many as batches are ready
PACKED_STEPS = 64  # whose batches are kept in memory, to measure how fast they are taken


class Cost(NamedTuple):
    """What a part of a step takes."""

    seconds: float
    cpu_seconds: float  # of all threads of the process

    def times(self, count: int) -> Cost:
        """Of so many."""
        return Cost(count * self.seconds, count * self.cpu_seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a step."""

    sample: Cost  # of one thread
    put: Cost  # until all of it is on the device
    call_seconds: float  # of put, until Python may go on
    host: Cost
    step: Cost
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
            "step": self.step.seconds, "put": self.put.seconds,
            "host": made + self.call_seconds + self.host.seconds,
        }  # fmt: skip
        if self.threads:
            found["sampler"] = self.sample.seconds / self.threads
        if self.cores is not None:
            found["cores"] = self.cpu_seconds() / self.cores
        return found

    def cpu_seconds(self) -> float:
        """Of all parts."""
        return sum(part.cpu_seconds for part in (self.sample, self.put, self.host, self.step))

    def predict(self) -> tuple[float, str]:
        """Seconds of a step when all parts work at once, and what bounds it."""
        bounds = self.bounds()
        by = max(bounds, key=lambda name: bounds[name])
        return bounds[by], by

    def utilization(self) -> float:
        """The share of that time in which the device has a step to work on."""
        seconds, by = self.predict()
        return 1.0 if by in ("step", "cores") else min(1.0, self.step.seconds / seconds)

    def overlap(self) -> float:
        """Seconds of sampling and of the host that are hidden behind the rest."""
        one_by_one = self.sample.seconds / max(1, self.threads) + self.put.seconds
        return max(0.0, one_by_one + self.host.seconds + self.step.seconds - self.predict()[0])


def shared_cores() -> int | None:
    """How many cores sampler and steps share; None where a device computes the steps."""
    return len(os.sched_getaffinity(0)) if jax.default_backend() == "cpu" else None


def in_parts(cfg: Config, store: str, task: str, parts: int) -> Config:
    """The settings with the least `cell_budget` at which a batch is computed in so many parts."""
    if parts == 1:
        return cfg
    share = {
        "default_batch_size": cfg.batch_size // parts, "level_parts": cfg.accumulate * parts
    }  # fmt: skip
    with open_sampler(store, cfg, task, **share) as sampler:
        return cfg.replace(cell_budget=most_cells(sampler))


def measure_step(
    settings: Mapping[str, Any], store: str, task: str, parts: int, packed: bool
) -> dict[str, Any]:
    """Measure the parts of a step, predict it, and take real steps.

    Args:
        settings: of a `Config`.
        parts: in which a batch is computed; 1: as the settings say.
        packed: whether to take real steps from batches in memory, too.

    Returns:
        What JSON can hold; `live` and `packed` are of the real steps.
    """
    cfg, places = kept_config(settings), find_places([store], [task])
    cfg = in_parts(cfg, store, task, parts)
    with open_stores(places, cfg.replace(num_prefetch=0)) as (opened,):
        count = cfg.batch_size // int(opened.sampler.shape["batch_size"]) * cfg.accumulate
        sample, slowest = _sampled(opened.sampler, count)
    with open_stores(places, cfg) as stores:
        bench = Bench(cfg, stores[0], count)
        found = Parts(
            sample=sample,
            **bench.turns(),
            cores=shared_cores(),
            threads=int(stores[0].sampler.stats()["threads"]),
        )
        seconds, bound_by = found.predict()
        ahead = int(stores[0].sampler.stats()["train_queue"])
        return {
            "device": jax.devices()[0].device_kind, **found.to_dict(),
            "cell_budget": cfg.cell_budget, "batches": count,
            "contexts": int(stores[0].sampler.shape["batch_size"]),
            "cells": int(stores[0].sampler.flat_shape(task)["cells"]),
            "batch_bytes": bench.batch_bytes, "slowest_batch_seconds": slowest,
            "batches_ahead": ahead, **_epoch(stores[0], cfg),
            "predicted_seconds": seconds, "bound_by": bound_by,
            "predicted_utilization": found.utilization(), "overlap_seconds": found.overlap(),
            "live": bench.real_steps(seconds, ahead),
            "packed": bench.real_steps_packed(seconds) if packed else None,
        }  # fmt: skip


def _sampled(sampler: Any, count: int) -> tuple[Cost, float]:
    """What a step's batches cost one thread, and the slowest batch."""
    sampler.next_train_batch()  # reads what no memory has yet
    turns, slowest = [], 0.0
    for _ in range(TURNS):
        started = _Clock()
        for _ in range(BLOCK * count):
            before = time.perf_counter()
            batch = sampler.next_train_batch()
            slowest = max(slowest, time.perf_counter() - before)
            del batch
        turns.append(started.cost(BLOCK))
    return _median(turns), slowest


def _epoch(store: OpenStore, cfg: Config) -> dict[str, Any]:
    """How many batches an epoch has, and what those that a run would keep in memory take."""
    order = order_of(store.sampler, cfg, cfg.prebatch_epochs)
    needed = cfg.steps * cfg.accumulate
    kept = min(order.count, needed)
    return {
        "epoch_batches": order.count, "kept_batches": kept, "needed_batches": needed,
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


def _median(turns: list[Cost]) -> Cost:
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
        self._start = store.sampler.state_dict()
        self._batches = [store.sampler.next_train_batch() for _ in range(KEPT)]
        self.batch_bytes = sum(
            self._batches[0][name].nbytes for name in sent_fields(self._batches[0])
        )

    def _feed(self, next_batch: Callable[[], Any], **more: Any) -> Feed:
        return Feed(lambda: (next_batch(), 0), texts=[self._tables.texts], **more)

    # ---- part by part ----------------------------------------------------------------------

    def turns(self) -> dict[str, Any]:
        """What putting, the host, and the device's step cost; fields of `Parts`."""
        _, fed = self._put_all()
        self._step(fed, 0)  # compiles
        started = time.perf_counter()
        self._step(fed, 0)
        steps = math.ceil(TURN_SECONDS / (time.perf_counter() - started))
        puts, calls, hosts, computed = [], [], [], []
        for _ in range(TURNS):
            clock = _Clock()
            call_seconds, fed = self._put_all()
            puts.append(clock.cost(len(fed)).times(self._count))
            calls.append(call_seconds / len(fed) * self._count)
            clock, own = _Clock(), [self._step(fed, k) for k in range(steps)]
            whole, host = clock.cost(steps), Cost(*map(statistics.fmean, zip(*own, strict=True)))
            hosts.append(host)
            computed.append(
                Cost(whole.seconds - host.seconds, whole.cpu_seconds - host.cpu_seconds)
            )
        return {
            "put": _median(puts), "call_seconds": statistics.median(calls),
            "host": _median(hosts), "step": _median(computed),
        }  # fmt: skip

    def _put_all(self) -> tuple[float, list[Fed]]:
        """The kept batches on the device, and for how many seconds Python put them there."""
        batches = iter(self._batches)
        feed, found = self._feed(lambda: next(batches)), []
        for _ in self._batches:
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

    # ---- real steps ------------------------------------------------------------------------

    def real_steps(self, expected: float, ahead: int) -> dict[str, Any]:
        """The loop of a training, with batches as they are made.

        Args:
            expected: seconds of a step.
            ahead: batches that are ready, which the sampler no longer has to make.
        """
        settling = min(3 + ahead, math.ceil(SETTLING_SECONDS / expected))
        return self._loop(self._store.train_batches.next_train_batch, expected, settling)

    def real_steps_packed(self, expected: float) -> dict[str, Any]:
        """The same with batches in memory."""
        self._store.sampler.load_state_dict(self._start)
        kept = self._cfg.replace(
            prebatch="memory", prebatch_epochs=1, steps=min(PACKED_STEPS, self._cfg.steps)
        )
        (store,) = kept_in_memory([self._store], kept, sharing=1, each=lambda: None)
        return self._loop(store.train_batches.next_train_batch, expected, 3)

    def _loop(
        self, next_batch: Callable[[], Any], expected: float, settling: int
    ) -> dict[str, Any]:
        """Real steps after some that do not count: median of TURNS turns, and the figures of the
        device."""
        wanted = max(REAL_STEPS, math.ceil(REAL_SECONDS / expected))
        steps = math.ceil(min(wanted, MOST_STEPS) / TURNS) * TURNS
        seconds: list[float] = []
        cpu_seconds: list[float] = []

        def on_report(report: StepReport) -> None:
            seconds.append(report.seconds)
            cpu_seconds.append(time.process_time())

        with UsageSampler() as usage:
            self._state = fit(
                self._state, self._runner, self._feed(next_batch, watch=usage),
                steps=int(self._state.step) + 1 + settling + steps, on_report=on_report,
            )  # fmt: skip
            figures = usage.figures()
        length = steps // TURNS
        turns = [statistics.fmean(seconds[-length * k :][:length]) for k in range(1, TURNS + 1)]
        return {
            "steps": steps, "seconds": statistics.median(turns),
            "cpu_seconds": (cpu_seconds[-1] - cpu_seconds[-1 - steps]) / steps,
            "usage": None if figures is None else figures.to_dict(),
        }  # fmt: skip


def keeps_busy(found: Mapping[str, Any]) -> bool:
    """Whether the device bounds the steps of a measured configuration."""
    usage = found["live"]["usage"]
    return found["predicted_utilization"] >= LOW and (
        usage is None or usage["utilization_mean"] >= LOW
    )


if __name__ == "__main__":
    answer_question(measure_step)
