"""How close to the chip is a step? One command for a GPU, of under eight minutes.

    python confluence/bench/gpu.py RESULTS.jsonl [--label today] [--short] [--reduced]
        [--peer FOLDER] [--folder build/gpu] [--seconds 460]

Makes a shop of its own in `--folder`, and runs one process for each line that RESULTS.jsonl does
not have yet under this label and of this device, the most important first; a line that failed
comes again behind the others. If `--seconds` are nearly over, no further line is begun, and the
names of those that are left are printed: the same command measures them then. `--short` has presets
`base` and `small` only, for before and after a change on one machine, each with a label of its own.
`--reduced` has sizes that a CPU has time for.

A line of `train` is of a training by confluence as `training.py` measures it, with `ms`, the median
of a step, `mfu`, `memory`, the peak in bytes, `busy`, the share of the time in which the device
worked, and the figures of the whole run under `usage`. `busy` is the driver's figure, and null if
`nvidia-ml-py` is not installed. `mfu` is 6 · `cell_parameters` · cells of a step by its median, as
a share of `PEAKS`; null for a device that is not there, and in float32. Only parameters that meet
every cell count: those of attention and feed-forward, without what the last layer computes for
targets alone. The scores of attention are not counted.

A line of `profile` has the ten operations and the ten kernels of a step that take longest, in ms of
a step, by JAX's profiler; an operation that holds others counts theirs too. A line of `advise` has
the results of `confluence advise`. Lines of `dispatch` and `newton_schulz` time changes that might
be faster (gpu_tries.py). A line of `peer` is of relational-transformer's model (gpu_peer.py), from
PyPI's wheel, unpacked into the folder `--peer`; it needs PyTorch and einops.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

import confluence
from confluence.config import preset
from confluence.model.transformer import parameter_table
from confluence.training.kept_memory import keep_memory
from confluence.watch.log import read_summary

PEAKS = {  # bfloat16 operations per second, without sparsity
    "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H200": 989e12, "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
}  # fmt: skip
TOP = 10  # operations of a profile
PROFILED = 3  # steps
LONGEST = 170  # seconds of a line
SPARE = 15  # seconds behind `--seconds` in which a line may end
USUALLY = 40  # seconds that a line is expected to take
SHORT_SECONDS, WHOLE_SECONDS = 170.0, 460.0
KEPT = 4000  # characters of what a process that failed printed
TASK, TEXT_WIDTH = "churn", 256
CHOSEN = {"label_rows": 0, "max_hops": 2}  # what a training would choose by trying

Case = dict[str, Any]


def train(name: str, attention: str, steps: int, **settings: Any) -> Case:
    """A training of a preset."""
    settings = {"attention": attention, "eval_every": 0, "steps": steps, **settings}
    if name in ("tiny", "small", "laptop"):
        settings |= CHOSEN
    return {"what": "train", "preset": name, "settings": settings}


def profile(case: Case) -> Case:
    """The operations of a step of a training."""
    return {**case, "what": "profile"}


def cases(*, short: bool, reduced: bool, peer: bool) -> list[Case]:
    """All lines, the most important first."""
    if reduced:
        tiny = train("tiny", "auto", 60)
        return [tiny, profile(tiny), {"what": "newton_schulz", "preset": "tiny", "settings": {}}]
    base, small = train("base", "rows", 120), train("small", "rows", 2000)
    fused = train("base", "fused", 120)
    found = [base, fused, small, train("small", "fused", 2000)]
    if short:
        return found
    found += [{"what": "peer", "preset": "base", "settings": {}}] if peer else []
    found += [profile(base), profile(fused)]
    found += [train("base", "fused", 60, sequence_length=4096, max_rows=1024, batch_size=8)]
    for name in ("laptop", "demo"):
        found += [train(name, attention, 2000) for attention in ("rows", "fused")]
    found += [{**train("demo", "fused", 100), "what": "dispatch"}]
    found += [{"what": "newton_schulz", "preset": "base", "settings": {}}]
    found += [{"what": "advise", "preset": "small", "settings": {}}]
    found += [train("base", "fused", 60, sequence_length=2048, max_rows=512, batch_size=16)]
    return [*found, train("base", "rows", 40, sequence_length=4096, max_rows=1024, batch_size=8)]


def name_of(case: Case) -> str:
    """Which line of a label is this?"""
    settings = {n: v for n, v in case["settings"].items() if n not in ("eval_every", *CHOSEN)}
    return " ".join([case["what"], case["preset"], *(f"{n}={v}" for n, v in settings.items())])


# ------------------------------------------------------------------------------------- in a process


def cell_parameters(cfg: Any) -> int:
    """How many parameters meet every cell of a context."""

    sizes = {n: math.prod(p.shape) for n, p in parameter_table(cfg, TEXT_WIDTH).items()}
    of_layers = {n: size for n, size in sizes.items() if n.startswith(("attention", "feed_f"))}
    of_targets = sum(s for n, s in of_layers.items() if n.startswith("feed_f")) // cfg.layers
    last = ("attention.query", "attention.gate", "attention.out")  # along the target's column
    of_targets += sum(of_layers[name] for name in last) // (3 * cfg.layers)
    return sum(of_layers.values()) - of_targets


def share_of_peak(found: dict[str, Any]) -> float | None:
    """The `mfu` of a line of `training.py`."""
    peak = PEAKS.get(found["device"])
    if peak is None or found["compute_dtype"] != "bfloat16":
        return None
    per_second = found["batch_cells"] / (found["step_p50_ms"] / 1e3)
    return float(6 * found["cell_parameters"] * per_second / peak)


def run_training(store: str, case: Case) -> dict[str, Any]:
    """A whole training."""
    import training

    cfg = preset(case["preset"], **case["settings"])
    steps = case["settings"]["steps"]
    settings = {n: v for n, v in case["settings"].items() if n != "steps"}
    with tempfile.TemporaryDirectory(prefix="confluence-bench-") as temporary:
        folder = Path(temporary)
        found = training.measure(
            store, TASK, folder, name=case["preset"], steps=steps, settings=settings
        )
        usage = read_summary(folder).get("usage")
    found["cell_parameters"] = cell_parameters(cfg)
    is_told = usage is not None and usage["source"] == "nvml"
    return {
        **found, "ms": found["step_p50_ms"], "mfu": share_of_peak(found), "usage": usage,
        "memory": found["peak_device_memory_bytes"],
        "busy": usage["utilization_mean"] if is_told else None,
    }  # fmt: skip


class Taken(NamedTuple):
    """Nanoseconds of what ran, once it has ended."""

    operations: Counter[str]
    kernels: Counter[str]


@contextmanager
def profiled() -> Iterator[Taken]:
    """Times what runs within it."""
    taken = Taken(Counter(), Counter())
    with tempfile.TemporaryDirectory(prefix="confluence-profile-") as folder:
        with jax.profiler.trace(folder):
            yield taken
        for path in Path(folder).rglob("*.xplane.pb"):
            planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
            of_gpu = [p for p in planes if p.name.startswith("/device:GPU")]
            events = (e for p in of_gpu or planes for line in p.lines for e in line.events)
            for event in events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None and event.duration_ns > 0:
                    taken.operations[str(operation)] += int(event.duration_ns)
                    taken.kernels[event.name] += int(event.duration_ns)
    if not taken.operations:
        raise RuntimeError("JAX's profiler has no operation of the device: is CUPTI refused?")


def run_profile(store: str, case: Case) -> dict[str, Any]:
    """Some steps of a training, after one that compiles."""
    import training

    cfg = preset(case["preset"], **case["settings"])
    with training.ready_to_step(store, TASK, cfg) as (_, runner, feed, state):
        fed = [feed.next_on_device() for _ in range(1 + PROFILED)]
        state, metrics = jax.block_until_ready(runner.step(state, fed[0]))
        with profiled() as taken:
            for batch in fed[1:]:
                state, metrics = runner.step(state, batch)
            jax.block_until_ready(metrics)

    def longest(times: Counter[str]) -> list[dict[str, Any]]:
        return [{"name": n, "ms": ns / 1e6 / PROFILED} for n, ns in times.most_common(TOP)]

    return {
        **training.machine(), "operations": len(taken.operations),
        "total_ms": sum(taken.operations.values()) / 1e6 / PROFILED,
        "top": longest(taken.operations), "top_kernels": longest(taken.kernels),
    }  # fmt: skip


def run_advise(store: str, case: Case) -> dict[str, Any]:
    """The advice, and what each configuration was predicted and measured to take."""
    import advice
    import training

    result = confluence.advise(store, task=TASK, presets=[case["preset"]])
    told = [advice.told(row) for row in result["configurations"] if "failed" not in row]
    return {**training.machine(), "configurations": told, "advice": result["advice"]}


def run_dispatch(store: str, case: Case) -> dict[str, Any]:
    """Several steps by one call."""
    import gpu_tries
    import training

    cfg = preset(case["preset"], **case["settings"])
    return {**training.machine(), **gpu_tries.dispatch(store, TASK, cfg)}


def run_newton_schulz(store: str, case: Case) -> dict[str, Any]:
    """Muon's update by type; it needs no store."""
    import gpu_tries
    import training

    cfg = preset(case["preset"], **case["settings"])
    return {**training.machine(), **gpu_tries.newton_schulz(TEXT_WIDTH, cfg)}


def run_peer(store: str, case: Case) -> dict[str, Any]:
    """The other model, on the same contexts."""
    import gpu_peer

    return gpu_peer.measure(store, TASK, Path(case["peer"]))


RUN = {
    "train": run_training, "profile": run_profile, "advise": run_advise, "peer": run_peer,
    "dispatch": run_dispatch, "newton_schulz": run_newton_schulz,
}  # fmt: skip


# ------------------------------------------------------------------------------------- the command


def make_store(folder: Path, *, customers: int) -> Path:
    """A shop with the question of the example."""
    import headwater
    from headwater import shop

    store = folder / f"shop-{customers}.hw"
    if not store.exists():
        folder.mkdir(parents=True, exist_ok=True)
        database = folder / f"shop-{customers}.sqlite"
        if not database.exists():
            shop.generate(database, customers=customers)
        metadata = Path(__file__).resolve().parents[2] / "examples" / "shop" / "shop.json"
        headwater.build(f"sqlite:///{database}", store, metadata=str(metadata))
    return store


def device_kind() -> str:
    """The device of JAX, asked in a process that ends: this one must not hold a GPU's memory."""
    asked = [sys.executable, "-c", "import jax; print(jax.devices()[0].device_kind)"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"JAX does not start:\n{done.stderr[-KEPT:]}")
    return done.stdout.splitlines()[-1]


def code() -> str:
    """The version of confluence, and a hash of its model."""
    folder = Path(confluence.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.glob("model/*.py")):
        digest.update(path.read_bytes())
    return f"{confluence.__version__} {digest.hexdigest()[:12]}"


def in_a_process(store: Path, case: Case, cache: Path, seconds: float) -> dict[str, Any]:
    """A line, or why there is none. A compiled step is kept for its profile, and for no other."""
    command = [sys.executable, __file__, "--one", json.dumps(case), "--store", str(store)]
    if case["what"] == "train":
        shutil.rmtree(cache, ignore_errors=True)
    started = subprocess.Popen(
        [*command, "--cache", str(cache)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "JAX_TRACEBACK_FILTERING": "off"},
    )  # fmt: skip
    try:
        printed, errors = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # with the processes that it started
        started.communicate()
        return {"failed": f"took more than {seconds:.0f} s"}
    if started.returncode != 0:
        return {"failed": f"status {started.returncode}", "stderr": errors[-KEPT:]}
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, without one that was cut off."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def add_line(path: Path, line: dict[str, Any]) -> None:
    """Add a line, behind the end of one that was cut off."""
    is_cut = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if is_cut else "") + json.dumps(line) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", help="JSON lines are added to it")
    parser.add_argument("--label", default="today", help="of all lines, such as before")
    parser.add_argument("--short", action="store_true", help="presets base and small only")
    parser.add_argument("--reduced", action="store_true", help="sizes for a CPU")
    parser.add_argument("--peer", type=Path, help="unpacked wheel of relational-transformer")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="of the shop")
    parser.add_argument(
        "--seconds", type=float, help="of the whole command, by default 460, short 170"
    )
    for hidden in ("--one", "--store", "--cache"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is None and options.results is None:
        parser.error("RESULTS.jsonl is missing")
    if options.seconds is None:
        options.seconds = SHORT_SECONDS if options.short else WHOLE_SECONDS
    return options


def measure_one(options: argparse.Namespace) -> None:
    """Print one line, in a process of its own."""
    keep_memory()
    jax.config.update("jax_compilation_cache_dir", options.cache)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    case = json.loads(options.one)
    sys.stdout.write(json.dumps(RUN[case["what"]](options.store, case)) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """The whole command."""
    started = time.perf_counter()
    options = parse(arguments)
    if options.one is not None:
        measure_one(options)
        return
    on = device_kind()
    if on == "cpu" and not options.reduced:
        raise SystemExit("JAX has no GPU here; --reduced is for a CPU")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = [x for x in lines_of(options.results) if (x["label"], x["on"]) == (options.label, on)]
    measured = {x["case"] for x in known if "failed" not in x}
    failed = {x["case"] for x in known} - measured
    all_cases = cases(short=options.short, reduced=options.reduced, peer=options.peer is not None)
    wanted = [case for case in all_cases if name_of(case) not in measured]
    wanted.sort(key=lambda case: name_of(case) in failed)
    if len(wanted) < len(all_cases):
        sys.stdout.write(
            f"{len(all_cases) - len(wanted)} lines of label '{options.label}' are there already\n"
        )
    store = make_store(options.folder, customers=200 if options.reduced else 5000)
    for case in wanted:
        name = name_of(case)
        left = options.seconds - (time.perf_counter() - started)
        if left < USUALLY:
            sys.stdout.write(f"left, no time: {name}\n")
            continue
        begun = time.perf_counter()
        given = case if options.peer is None else {**case, "peer": str(options.peer)}
        step = name.split(" ", 1)[1].replace(" ", "-")
        cache = options.folder / "compiled" / f"{options.label}-{step}"
        found = in_a_process(store, given, cache, min(LONGEST, left + SPARE))
        line = {
            "date": datetime.date.today().isoformat(), "label": options.label, "on": on,
            "case": name, "code": code(),
            "line_seconds": round(time.perf_counter() - begun, 1), **found,
        }  # fmt: skip
        add_line(options.results, line)
        said = f"{found['ms']:.2f} ms" if "ms" in found else found.get("failed", "done")
        sys.stdout.write(f"{name}: {said} ({line['line_seconds']} s)\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
