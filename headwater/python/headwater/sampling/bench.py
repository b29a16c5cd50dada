"""What `headwater bench` measures: batches per second by configuration, and single requests.

Configurations take turns, so that whatever else the machine does hits all of them alike, and each
figure is the median of its turns. A turn opens a sampler, takes WARM_BATCHES and then batches for
some seconds, as a training loop does that never waits: the last HELD batches stay alive, as if
their transfers were still in flight, so memory is reused as late as it is in training.

Every line names its configuration, the machine and the store, so that it can be read alone. Rates
are of padded cells (B·S a batch) unless they say real.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwater import binding
from headwater.sampling.batch import Batch
from headwater.sampling.sampler import Sampler
from headwater.store import inspection
from headwater.store.store import Store, row_counts

SECONDS = 2.0  # of a turn
REPEATS = 3
HELD = 2
WARM_BATCHES = 8
WARM_REQUESTS = 50
CONTENT_BATCHES = 4
STAGES = ("walk", "emit", "text")
RESET_PEAK = "5"  # what /proc/self/clear_refs takes to forget VmHWM


@dataclass(frozen=True)
class Configuration:
    """One thing to measure. None: the sampler's own default."""

    threads: int = 1
    layout: str = "dense"
    text_mode: str | None = None
    batch_size: int = 32
    length: int = 1024
    width: int = 16
    task: str | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of a `Sampler`."""
        options: dict[str, Any] = {
            "num_threads": self.threads,
            "layout": self.layout,
            "default_batch_size": self.batch_size,
            "default_sequence_length": self.length,
            "bfs_child_width": self.width,
            "tasks": None if self.task is None else [self.task],
        }
        return options if self.text_mode is None else {**options, "text_mode": self.text_mode}


def configurations(**choices: Sequence[Any]) -> list[Configuration]:
    """Every combination of the values given by field; a field left out has its default."""
    names = list(choices)
    return [
        Configuration(**dict(zip(names, values, strict=True)))
        for values in itertools.product(*choices.values())
    ]


def thread_counts() -> list[int]:
    """1, 2, 4 and so on up to the usable cores, and those."""
    cores = len(os.sched_getaffinity(0))
    return sorted({*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores})


# ---- throughput ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """One configuration for some seconds."""

    waits: list[float]  # seconds from batch to batch
    cells: int
    padded_cells: int
    seconds: float
    cpu_seconds: float
    stats: dict[str, float]  # of the turn alone
    bound_by: Any
    shape: dict[str, int]
    bytes: int  # of a batch
    memory: dict[str, int]


def _sizes(batch: Batch) -> tuple[int, int]:
    """Cells of a batch, without padding and with it."""
    if "context_cells" in batch:
        return int(batch["context_cells"][0, -1]), batch["cells"].size
    return int(batch["num_cells"].sum()), batch["cells" if "cells" in batch else "is_null"].size


def throughput(
    path: str | os.PathLike[str],
    wanted: Sequence[Configuration],
    *,
    seconds: float = SECONDS,
    repeats: int = REPEATS,
) -> list[dict[str, Any]]:
    """A line per configuration, in their order, once all have had their turns.

    The store's pages are read once before, as a long run has them.
    """
    machine, (store, open_ms) = machine_facts(), _open(path)
    store_facts = _store_facts(store, open_ms)
    turns: list[list[Turn]] = [[] for _ in wanted]
    for _ in range(repeats):
        for configuration, taken in zip(wanted, turns, strict=True):
            taken.append(_turn(store, configuration, seconds))
    content: dict[tuple[Any, ...], dict[str, float]] = {}
    lines = []
    for configuration, taken in zip(wanted, turns, strict=True):
        key = (configuration.task, configuration.length, configuration.width)
        if key not in content:
            content[key] = _content(store, configuration)
        facts = {**store_facts, **content[key]}
        lines.append({**_line(configuration, taken), "machine": machine, "store": facts})
    return lines


def _open(path: str | os.PathLike[str]) -> tuple[Store, float]:
    """The store, its pages read once, and the milliseconds that opening it took."""
    start = time.perf_counter()
    store = Store(path, verify="header")
    open_ms = 1e3 * (time.perf_counter() - start)
    store.warm_up()
    return store, open_ms


def _turn(store: Store, configuration: Configuration, seconds: float) -> Turn:
    with contextlib.suppress(OSError):  # a read-only /proc keeps the peak of earlier turns
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    with Sampler(store=store, **configuration.options()) as sampler:
        held: deque[Batch] = deque(maxlen=HELD)
        for _ in range(WARM_BATCHES):
            held.append(sampler.next_train_batch())
        before, cpu_start = sampler.stats(), time.process_time()
        waits: list[float] = []
        cells = padded_cells = 0
        start = last = time.perf_counter()
        while last - start < seconds:
            batch = sampler.next_train_batch()
            now = time.perf_counter()
            waits.append(now - last)
            last = now
            own_cells, own_padded = _sizes(batch)
            cells, padded_cells = cells + own_cells, padded_cells + own_padded
            held.append(batch)
        cpu_seconds, after = time.process_time() - cpu_start, sampler.stats()
        names = [name for name in after if name.endswith("_seconds")]
        return Turn(
            waits=waits,
            cells=cells,
            padded_cells=padded_cells,
            seconds=last - start,
            cpu_seconds=cpu_seconds,
            stats={name: after[name] - before[name] for name in names},
            bound_by=after.get("bound_by"),
            shape=sampler.shape,
            bytes=sum(array.nbytes for array in batch.values()),
            memory=memory(store),
        )


def _line(configuration: Configuration, turns: Sequence[Turn]) -> dict[str, Any]:
    shape = turns[0].shape
    rates = [turn.padded_cells / turn.seconds for turn in turns]
    real_rates = [turn.cells / turn.seconds for turn in turns]
    padded = sum(turn.padded_cells for turn in turns)
    return {
        "question": "throughput",
        **_named(configuration, shape),
        "repeats": len(turns),
        "seconds": round(statistics.median(turn.seconds for turn in turns), 3),
        **_spread("padded_cells_per_s", rates),
        "padded_cells_per_s_per_thread": round(statistics.median(rates) / configuration.threads),
        "padded_cells_per_cpu_s": round(
            statistics.median(turn.padded_cells / turn.cpu_seconds for turn in turns)
        ),
        **_spread("real_cells_per_s", real_rates),
        "fill": round(sum(turn.cells for turn in turns) / padded, 4),
        "batches": sum(len(turn.waits) for turn in turns),
        "batch_ms_p50": _median_ms(turns, 0.5),
        "batch_ms_p99": _median_ms(turns, 0.99),
        **_shares(turns, configuration.threads),
        "bound_by": turns[-1].bound_by,
        "cpu_per_wall": round(statistics.median(t.cpu_seconds / t.seconds for t in turns), 3),
        "bytes_per_padded_cell": round(
            turns[0].bytes * len(turns[0].waits) / turns[0].padded_cells, 2
        ),
        **turns[-1].memory,
    }


def _named(configuration: Configuration, shape: dict[str, int]) -> dict[str, Any]:
    return {
        "threads": configuration.threads,
        "layout": configuration.layout,
        "text_mode": configuration.text_mode,
        "task": configuration.task,
        "B": shape["batch_size"],
        "S": shape["sequence_length"],
        "R": shape["max_rows"],
        "U": shape["usual_texts"],
        "w": configuration.width,
    }


def _spread(name: str, rates: Sequence[float]) -> dict[str, int]:
    return {
        name: round(statistics.median(rates)),
        f"{name}_min": round(min(rates)),
        f"{name}_max": round(max(rates)),
    }


def _shares(turns: Sequence[Turn], threads: int) -> dict[str, dict[str, float]]:
    """Stages as shares of the time threads worked; waits as shares of the time they had."""
    stages = {name: sum(turn.stats[f"{name}_seconds"] for turn in turns) for name in STAGES}
    worked = sum(stages.values()) or 1.0
    wall = sum(turn.seconds for turn in turns)
    producers = sum(turn.stats["producer_wait_seconds"] for turn in turns)
    consumer = sum(turn.stats["consumer_wait_seconds"] for turn in turns)
    return {
        "stage_shares": {name: round(value / worked, 4) for name, value in stages.items()},
        "wait_shares": {
            "producers": round(producers / (wall * threads), 4),
            "consumer": round(consumer / wall, 4),
        },
    }


def _median_ms(turns: Sequence[Turn], share: float) -> float:
    return round(1e3 * statistics.median(quantile(turn.waits, share) for turn in turns), 3)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---- latency ---------------------------------------------------------------------------------


def latency(
    path: str | os.PathLike[str],
    wanted: Sequence[Configuration],
    *,
    requests: int = 2000,
) -> Iterator[dict[str, Any]]:
    """A line per configuration: microseconds until one context is there, B = 1, no threads.

    `batch` is `sampler.batch("train", k)`; `batches_for` asks about one key at one time, as a
    service does. Keys are those of random seeds of the task, so they lie all over the store.
    """
    machine, (store, open_ms) = machine_facts(), _open(path)
    for configuration in wanted:
        task = configuration.task or store.metadata["tasks"][0]["name"]
        options = {**configuration.options(), "tasks": [task], "num_prefetch": 0}
        options["default_batch_size"] = 1
        with Sampler(store=store, **options) as sampler:
            asked = _questions(store, task, requests + WARM_REQUESTS)
            yield {
                "question": "latency",
                **_named(configuration, sampler.shape),
                "threads": 0,
                "task": task,
                "requests": requests,
                **_times(sampler, task, asked),
                "machine": machine,
                "store": _store_facts(store, open_ms),
            }


def _questions(store: Store, task: str, count: int) -> list[tuple[Any, int]]:
    """(key, time) of random seeds, drawn again where a task has fewer."""
    seeds = store.task_seeds(task)
    if len(seeds["anchor_row"]) == 0:
        raise ValueError(f"task '{task}' has no seeds")
    chosen = np.random.default_rng(0).integers(0, len(seeds["anchor_row"]), count)
    rows = seeds["anchor_row"][chosen].tolist()
    return [
        (store.row(row)["key"], time_us)
        for row, time_us in zip(rows, seeds["obs_time"][chosen].tolist(), strict=True)
    ]


def _times(sampler: Sampler, task: str, asked: Sequence[tuple[Any, int]]) -> dict[str, float]:
    """Both ways in turn, so that neither profits from a quieter moment."""
    times: dict[str, list[float]] = {"batch": [], "batches_for": []}
    for k, (key, time_us) in enumerate(asked):
        start = time.perf_counter()
        sampler.batch("train", k)
        between = time.perf_counter()
        for _ in sampler.batches_for(task, [key], time_us):
            pass
        end = time.perf_counter()
        if k >= WARM_REQUESTS:
            times["batch"].append(between - start)
            times["batches_for"].append(end - between)
    return {
        f"{name}_us_p{round(100 * share)}": round(1e6 * quantile(values, share), 1)
        for name, values in times.items()
        for share in (0.5, 0.99)
    }


# ---- what was measured on --------------------------------------------------------------------


def machine_facts() -> dict[str, Any]:
    """The processor, its caches, the kernel's page setting, and what the library was built by."""
    model = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    huge = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    compiler = re.search(
        rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", binding.LIBRARY.read_bytes()
    )
    return {
        "cpu": model[1] if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "huge_pages": huge[1] if huge else None,
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "headwater": binding.VERSION,
        "compiler": compiler[0].decode() if compiler else None,
    }


def _caches() -> dict[str, str]:
    """Sizes by level, such as {"L1d": "32K"}."""
    caches = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = {"Data": "d", "Instruction": "i"}.get(_read(folder / "type"), "")
        caches[f"L{_read(folder / 'level')}{kind}"] = _read(folder / "size")
    return caches


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _store_facts(store: Store, open_ms: float) -> dict[str, Any]:
    metadata, sizes = inspection.open_metadata(store.path)
    return {
        "name": metadata["name"],
        "fingerprint": store.fingerprint,
        "rows": sum(row_counts(metadata).values()),
        "edges": sum(key["edges"] for table in metadata["tables"] for key in table["foreign_keys"]),
        "texts": metadata["text"]["count"],
        "text_dim": metadata["text"]["dim"],
        "bytes": sizes,
        "csv_bytes": metadata.get("csv_bytes"),
        "open_ms": round(open_ms, 3),
    }


def _content(store: Store, configuration: Configuration) -> dict[str, float]:
    """Of some contexts: the share of cells that hold a text, and cells per row."""
    options = {**configuration.options(), "num_prefetch": 0}
    for name in ("layout", "text_mode"):
        options.pop(name, None)
    text = binding.SEMANTIC_TYPES["text"]
    cells = texts = rows = 0
    with Sampler(store=store, **options) as sampler:
        for k in range(CONTENT_BATCHES):
            batch = sampler.batch("train", k)
            shown = (batch["is_padding"] == 0) & (batch["is_null"] == 0)
            texts += int(np.sum((batch["semantic_types"] == text) & shown))
            cells += int(batch["num_cells"].sum())
            rows += int(batch["num_rows"].sum())
    return {
        "text_share_of_cells": round(texts / max(cells, 1), 4),
        "cells_per_row": round(cells / max(rows, 1), 3),
    }


def memory(store: Store) -> dict[str, int]:
    """Bytes of this process that are in memory, their peak, and those of the store's files."""
    status = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB$", _read("/proc/self/status"), re.MULTILINE))
    directory = os.path.realpath(store.core.directory())
    mapped = 0
    inside = False
    for line in _read("/proc/self/smaps").splitlines():
        if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
            inside = directory in line
        elif inside and line.startswith("Rss:"):
            mapped += int(line.split()[1])
    return {
        "rss_bytes": 1024 * int(status.get("VmRSS", 0)),
        "rss_peak_bytes": 1024 * int(status.get("VmHWM", 0)),
        "rss_map_bytes": 1024 * mapped,
    }
