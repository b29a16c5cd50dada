"""Compares two installations of headwater in one run: what crosses from C to Python.

    python headwater/bench/installed.py FOLDER FOLDER STORE [--turns 40] [--seconds 0.25]
                                        [--pairs 20]

A folder is what `pip install --target` fills; the first one is taken as the measure. The questions:
are all arrays of an epoch the same bits, how many batches a second does one thread make, does
memory stay flat, how soon does Ctrl-C end a wait, and what does the import cost? The installations
take turns, each in processes of its own. Prints one JSON line per question; a ratio is the median
over the pairs of turns. Where other work shares the machine, look at batches per second of CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"layout": "dense", "attention_masks": True},
    "compact": {"layout": "compact"},
    "packed": {"layout": "compact", "packing": True},
    "masked cells": {"layout": "dense", "mask_ratio": 0.3, "targets": "separate"},
}
LENGTHS = (1024, 128)
PREFETCH = (3, 0)  # 0: the calling thread makes the batches, and no other work hides its own
WARM_BATCHES = 50
MEMORY_BATCHES = 3000
EPOCH_BATCHES = 100
INTERRUPTS = 20


# ---- in a process of its own -------------------------------------------------------------------


def sampler_of(store: str, **options: Any) -> Any:
    import headwater

    return headwater.Sampler(db_path=store, verify="header", num_threads=1, **options)


def bits(store: str) -> dict[str, Any]:
    """A digest of the arrays of an epoch, or of its first batches, in each layout."""
    found = {}
    for name, options in LAYOUTS.items():
        digest, count = hashlib.blake2b(digest_size=16), 0
        with sampler_of(store, default_sequence_length=256, with_rows=True, **options) as sampler:
            for batch, _ in zip(sampler.epoch("train"), range(EPOCH_BATCHES), strict=False):
                for array_name, array in sorted({**batch, **batch.info}.items()):
                    digest.update(f"{array_name} {array.dtype} {array.shape}".encode())
                    digest.update(array.tobytes())
                count += 1
        found[name] = {"batches": count, "digest": digest.hexdigest()}
    return found


def rate(store: str, length: int, layout: str, prefetch: int) -> dict[str, Any]:
    """A turn for each line of standard input, of as many seconds as it says. Batches a second, a
    second of CPU of all threads, and microseconds of the calling thread for each."""
    options = {"default_sequence_length": length, "layout": layout, "num_prefetch": prefetch}
    with sampler_of(store, **options) as sampler:
        for _ in range(WARM_BATCHES):
            sampler.next_train_batch()
        for line in sys.stdin:
            count, start = 0, time.perf_counter()
            all_cpu, own_cpu = time.process_time(), time.thread_time()
            while time.perf_counter() - start < float(line):
                sampler.next_train_batch()
                count += 1
            turn = {
                "batches_per_s": count / (time.perf_counter() - start),
                "batches_per_cpu_s": count / (time.process_time() - all_cpu),
                "own_us": 1e6 * (time.thread_time() - own_cpu) / count,
            }
            print(json.dumps(turn), flush=True)
    return {}


def memory(store: str) -> dict[str, int]:
    with sampler_of(store, default_sequence_length=128) as sampler:
        for _ in range(WARM_BATCHES):
            sampler.next_train_batch()
        before = _resident_kb()
        for _ in range(MEMORY_BATCHES):
            sampler.next_train_batch()
        return {"batches": MEMORY_BATCHES, "before_kb": before, "after_kb": _resident_kb()}


def _resident_kb() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def interrupt(store: str) -> dict[str, float]:
    """Milliseconds from Ctrl-C to the end of a wait for a batch that takes long."""
    took = []
    large = {"default_batch_size": 20_000, "default_sequence_length": 1024, "num_prefetch": 1}
    with sampler_of(store, **large) as sampler:
        for number in range(INTERRUPTS):
            sent: list[float] = []

            def send(sent: list[float] = sent) -> None:
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            threading.Timer(0.05 + 0.007 * number, send).start()
            try:
                while True:
                    sampler.next_train_batch()
            except KeyboardInterrupt:
                took.append(1e3 * (time.perf_counter() - sent[0]))
    return {"median_ms": statistics.median(took), "most_ms": max(took)}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "bits": bits,
    "rate": rate,
    "memory": memory,
    "interrupt": interrupt,
}


# ---- the turns ---------------------------------------------------------------------------------


def asked(folder: Path, question: str, *arguments: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--ask", json.dumps([question, *arguments])],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(folder: Path, question: str, *arguments: Any) -> dict[str, Any]:
    said, _ = asked(folder, question, *arguments).communicate()
    found: dict[str, Any] = json.loads(said)
    return found


def take_turn(process: subprocess.Popen[str], seconds: float) -> dict[str, float]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def import_cpu_s(folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "import headwater"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_turns(count: int, asks: list[Callable[[], Any]]) -> list[list[Any]]:
    """Answers of each; every other turn begins with the second one."""
    answers: list[list[Any]] = [[] for _ in asks]
    for turn in range(count):
        for number in (0, 1) if turn % 2 == 0 else (1, 0):
            answers[number].append(asks[number]())
    return answers


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    folders, store = [options.before, options.now], str(options.store)
    before, now = (answer(folder, "bits", store) for folder in folders)
    yield {"question": "bits", "equal": before == now, "before": before, "now": now}
    for length, layout, prefetch in itertools.product(LENGTHS, ("dense", "compact"), PREFETCH):
        processes = [asked(folder, "rate", store, length, layout, prefetch) for folder in folders]
        asks = [partial(take_turn, process, options.seconds) for process in processes]
        in_turns(1, asks)
        line = {"question": "rate", "B": 32, "S": length, "layout": layout, "prefetch": prefetch}
        yield {**line, **compared(in_turns(options.turns, asks))}
        for process in processes:
            process.communicate()
    for question in ("memory", "interrupt"):
        before, now = (answer(folder, question, store) for folder in folders)
        yield {"question": question, "before": before, "now": now}
    asks = [partial(import_cpu_s, folder) for folder in folders]
    in_turns(1, asks)  # compiles the modules
    seconds = in_turns(options.pairs, asks)
    times = [[{"cpu_ms": 1e3 * each} for each in answers] for answers in seconds]
    yield {"question": "import", **compared(times)}


def compared(answers: list[list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of both, and of the ratios of pairs with their quartiles."""
    line: dict[str, Any] = {"pairs": len(answers[0])}
    for name in answers[0][0]:
        before, now = ([each[name] for each in of_one] for of_one in answers)
        ratios = [second / first for first, second in zip(before, now, strict=True)]
        line[name] = {
            "before": round(statistics.median(before), 1),
            "now": round(statistics.median(now), 1),
            "ratio": round(statistics.median(ratios), 3),
            "quartiles": [round(each, 3) for each in statistics.quantiles(ratios, n=4)[::2]],
        }
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--pairs", type=int, default=20)
    for line in measure(parser.parse_args()):
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        question, *arguments = json.loads(sys.argv[2])
        print(json.dumps(QUESTIONS[question](*arguments)))
    else:
        sys.exit(main())
