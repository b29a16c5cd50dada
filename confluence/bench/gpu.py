"""How close to the chip is a step? One command for a GPU, of under eight minutes.

    python confluence/bench/gpu.py RESULTS.jsonl [--label today] [--short] [--reduced]
        [--peer FOLDER] [--seconds 460]

Makes a shop of its own in `--folder`, and runs one process for each line that RESULTS.jsonl does
not have yet under this label and of this device, the most important first. If `--seconds` are
nearly over, no further line is begun, and the names of those that are left are printed. `--short`
has presets `base` and `small` only, for before and after a change on one machine. `--reduced` has
sizes that a CPU has time for.

A line of `train` is of a training by confluence as `training.py` measures it, with `ms`, the median
of a step, `mfu`, `memory`, the peak in bytes, `busy`, the share of the time in which the device
worked (its driver's figure), and the figures of the whole run under `usage`. `mfu` is
6 · parameters · cells of a step by its median, as a share of `PEAKS`; null for a device that is not
there, and in float32. Attention is not counted.

A line of `profile` has the ten operations of a step that take longest, in ms of a step, by JAX's
profiler; an operation that holds others counts theirs too. A line of `advise` has the results of
`confluence advise`. Lines of `dispatch` and `newton_schulz` time changes that might be faster
(gpu_tries.py). A line of `peer` is of relational-transformer's model (gpu_peer.py), whose
unpacked wheel is `--peer`; it needs PyTorch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # bfloat16, without sparsity, per second
TOP = 10  # operations of a profile
PROFILED = 3  # steps
LONGEST = 170  # seconds of a line
USUALLY = 40  # seconds that a line is expected to take
TASK, TEXT_WIDTH = "churn", 256
CHOSEN = {"label_rows": 0, "max_hops": 2}  # what a training would choose by trying

Case = dict[str, Any]


def train(preset: str, attention: str, steps: int, **settings: Any) -> Case:
    """A training of a preset."""
    settings = {"attention": attention, "eval_every": 0, "steps": steps, **settings}
    if preset in ("tiny", "small", "laptop"):
        settings |= CHOSEN
    return {"what": "train", "preset": preset, "settings": settings}


def profile(case: Case) -> Case:
    """The operations of a step of a training."""
    return {**case, "what": "profile"}


def cases(*, short: bool, reduced: bool, peer: bool) -> list[Case]:
    """All lines, the most important first."""
    if reduced:
        tiny = train("tiny", "auto", 12)
        return [tiny, profile(tiny), {"what": "newton_schulz", "preset": "tiny", "settings": {}}]
    base, small = train("base", "rows", 40), train("small", "rows", 300)
    fused = train("base", "fused", 40)
    found = [base, fused, small, train("small", "fused", 300)]
    if short:
        return found
    found += [{"what": "peer", "preset": "base", "settings": {}}] if peer else []
    found += [profile(base), profile(fused)]
    found += [train("base", "fused", 40, sequence_length=4096, max_rows=1024, batch_size=8)]
    for preset in ("laptop", "demo"):
        found += [train(preset, attention, 300) for attention in ("rows", "fused")]
    found += [{**train("demo", "fused", 100), "what": "dispatch"}]
    found += [{"what": "newton_schulz", "preset": "base", "settings": {}}]
    found += [train("base", "fused", 40, sequence_length=2048, max_rows=512, batch_size=16)]
    found += [train("base", "rows", 20, sequence_length=4096, max_rows=1024, batch_size=8)]
    return [*found, {"what": "advise", "preset": "small", "settings": {}}]


def name_of(case: Case) -> str:
    """Which line of a label is this?"""
    settings = {n: v for n, v in case["settings"].items() if n not in ("eval_every", *CHOSEN)}
    return " ".join([case["what"], case["preset"], *(f"{n}={v}" for n, v in settings.items())])


# ------------------------------------------------------------------------------------- in a process


def share_of_peak(found: dict[str, Any]) -> float | None:
    """The `mfu` of a line of `training.py`."""
    peak = next((p for name, p in PEAKS.items() if name in found["device"]), None)
    if peak is None or found["compute_dtype"] != "bfloat16":
        return None
    per_second = found["batch_cells"] / (found["step_p50_ms"] / 1e3)
    return float(6 * found["parameters"] * per_second / peak)


def run_training(store: str, case: Case) -> dict[str, Any]:
    """A whole training."""
    import training

    from confluence.watch.log import read_summary

    steps = case["settings"]["steps"]
    settings = {n: v for n, v in case["settings"].items() if n != "steps"}
    with tempfile.TemporaryDirectory(prefix="confluence-bench-") as temporary:
        folder = Path(temporary)
        found = training.measure(
            store, TASK, folder, name=case["preset"], steps=steps, settings=settings
        )
        usage = read_summary(folder).get("usage")
    return {
        **found, "ms": found["step_p50_ms"], "mfu": share_of_peak(found), "usage": usage,
        "memory": found["peak_device_memory_bytes"],
        "busy": usage and usage["utilization_mean"],
    }  # fmt: skip


@contextmanager
def profiled() -> Iterator[Counter[str]]:
    """What runs within it: nanoseconds by operation, once it has ended."""
    taken: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="confluence-profile-") as folder:
        with jax.profiler.trace(folder):
            yield taken
        for path in Path(folder).rglob("*.xplane.pb"):
            planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
            of_gpu = [p for p in planes if p.name.startswith("/device:GPU")]
            for plane in of_gpu or planes:
                for line in plane.lines:
                    for event in line.events:
                        found = dict(event.stats).get("hlo_op")
                        if found is not None and event.duration_ns > 0:
                            name = found if event.name == found else f"{event.name} ({found})"
                            taken[str(name)] += int(event.duration_ns)


def run_profile(store: str, case: Case) -> dict[str, Any]:
    """Some steps of a training, after one that compiles."""
    import training

    from confluence.config import preset

    cfg = preset(case["preset"], **case["settings"])
    with training.ready_to_step(store, TASK, cfg) as (_, runner, feed, state):
        fed = [feed.next_on_device() for _ in range(1 + PROFILED)]
        state, metrics = jax.block_until_ready(runner.step(state, fed[0]))
        with profiled() as taken:
            for batch in fed[1:]:
                state, metrics = runner.step(state, batch)
            jax.block_until_ready(metrics)
    share = 1e6 * PROFILED
    top = [{"operation": name, "ms": ns / share} for name, ns in taken.most_common(TOP)]
    return {**training.machine(), "operations": len(taken), "top": top}


def run_advise(store: str, case: Case) -> dict[str, Any]:
    """The advice, and what each configuration was predicted and measured to take."""
    import advice
    import training

    import confluence

    result = confluence.advise(store, task=TASK, presets=[case["preset"]])
    told = [advice.told(row) for row in result["configurations"] if "failed" not in row]
    return {**training.machine(), "configurations": told, "advice": result["advice"]}


def run_dispatch(store: str, case: Case) -> dict[str, Any]:
    """Several steps by one call."""
    import gpu_tries
    import training

    from confluence.config import preset

    cfg = preset(case["preset"], **case["settings"])
    return {**training.machine(), **gpu_tries.dispatch(store, TASK, cfg)}


def run_newton_schulz(store: str, case: Case) -> dict[str, Any]:
    """Muon's update by type; it needs no store."""
    import gpu_tries
    import training

    from confluence.config import preset

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
    """What JAX finds, asked in a process that ends: this one must not hold the memory of a GPU."""
    asked = [sys.executable, "-c", "import jax; print(jax.devices()[0].device_kind)"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def in_a_process(store: Path, case: Case, cache: Path) -> dict[str, Any]:
    """A line, or why there is none. Compiled steps are kept, so that a profile compiles none."""
    command = [sys.executable, __file__, "--one", json.dumps(case), "--store", str(store)]
    try:
        done = subprocess.run(
            [*command, "--cache", str(cache)], capture_output=True, text=True, timeout=LONGEST,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {LONGEST} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"status {done.returncode}: {last[:500]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told_by(path: Path) -> set[tuple[str, str, str]]:
    """Label, device and name of the lines that a file has; failed ones are tried again."""
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(x["label"], x["on"], x["case"]) for x in lines if "failed" not in x}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", help="JSON lines are added to it")
    parser.add_argument("--label", default="today", help="what the lines are of, such as before")
    parser.add_argument("--short", action="store_true", help="presets base and small only")
    parser.add_argument("--reduced", action="store_true", help="sizes for a CPU")
    parser.add_argument("--peer", type=Path, help="unpacked wheel of relational-transformer")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="of the shop")
    parser.add_argument("--seconds", type=float, default=460.0, help="begin no line behind these")
    for hidden in ("--one", "--store", "--cache"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is None and options.results is None:
        parser.error("RESULTS.jsonl is missing")
    return options


def main(arguments: list[str] | None = None) -> None:
    """The whole command."""
    started = time.perf_counter()
    options = parse(arguments)
    if options.one is not None:
        jax.config.update("jax_compilation_cache_dir", options.cache)
        case = json.loads(options.one)
        sys.stdout.write(json.dumps(RUN[case["what"]](options.store, case)) + "\n")
        return
    wanted = cases(short=options.short, reduced=options.reduced, peer=options.peer is not None)
    on = device_kind()
    store = make_store(options.folder, customers=200 if options.reduced else 5000)
    cache, known, left = options.folder / f"compiled-{options.label}", told_by(options.results), []
    for case in wanted:
        name = name_of(case)
        if (options.label, on, name) in known:
            continue
        if time.perf_counter() - started > options.seconds - USUALLY:
            left.append(name)
            continue
        begun = time.perf_counter()
        given = case if options.peer is None else {**case, "peer": str(options.peer)}
        found = in_a_process(store, given, cache)
        line = {
            "date": datetime.date.today().isoformat(), "label": options.label, "on": on,
            "case": name, "line_seconds": round(time.perf_counter() - begun, 1), **found,
        }  # fmt: skip
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        said = f"{found['ms']:.2f} ms" if "ms" in found else "done"
        sys.stdout.write(f"{name}: {found.get('failed', said)} ({line['line_seconds']} s)\n")
        sys.stdout.flush()
    for name in left:
        sys.stdout.write(f"left, no time: {name}\n")


if __name__ == "__main__":
    main()
