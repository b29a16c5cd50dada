"""`confluence advise`: what bounds a training before it begins, and what to do about it.

    each preset ──► own process: batches whole and in parts: parts of a step, prediction, real steps
                    (`step_parts.py`)
    all of them ──► tables ──► advice, one line for each thing that can be set, with its reason

Nothing is advised that was not measured here. Which preset learns more is another question
(`confluence backtest`).
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.shared import say

from confluence.config import AUTO, Config, ConfigError, kept_config
from confluence.config import preset as preset_config
from confluence.data.stores import find_places
from confluence.data.verification import verified_stores
from confluence.folder import checkpoint
from confluence.measure import step_parts
from confluence.measure.own_process import OwnProcessError, ask_process
from confluence.measure.sizing import SizingError, measure
from confluence.measure.step_parts import keeps_busy
from confluence.packs.pack import in_units
from confluence.packs.walk import MEMORY_SHARE, available_memory
from confluence.ranks.group import current
from confluence.report.tables import aligned
from confluence.value_checks import typed
from confluence.watch.usage import LEAST_SAMPLES, LOW

USUAL, ON_A_DEVICE = ("small", "laptop"), "base"  # presets, and one where a device computes
RUN = "the run"  # in place of a preset's name
PARTS = (1, 4)  # of a batch, by budgets of cells
WORTH = 0.9  # of the time as it is, that a change must not take more than
AT_EASE = 0.8  # of a step, that sampling may take before more threads are advised
UNSTEADY = 2.0  # times the shortest turn of steps, of which no other may take more
LEAST_CORES = 0.5  # that steps have if they are computed by a processor that is theirs
Row = dict[str, Any]


class AdviceError(ValueError):
    """Nothing can be advised, as nothing could be measured."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """What is advised about one thing."""

    about: str
    settings: Mapping[str, Any]  # that differ from what was measured; empty: leave it
    text: str


def advise(
    store: str | Path, *, task: str, presets: Sequence[str] | None = None,
    run: str | Path | None = None, verify: str = "once", **overrides: Any,
) -> dict[str, Any]:  # fmt: skip
    """Measure what a training step is made of here, and say how to train faster.

    Args:
        store, task: one of each.
        presets: names in `confluence.PRESETS`, the smallest first; None: small and laptop, and base
            where a device computes.
        run: folder of a run whose settings are measured, in place of presets.
        verify: whether the store is read to its last byte before, as in `confluence.train`.
        overrides: any field of `Config`, for all presets.

    Returns:
        `configurations`, what was measured of each; `advice`, lines with `about`, `settings` and
        `text`; `preset` and `settings` of a training that follows it; `too_busy`, why nothing is
        advised, as the machine was busy with something else, or None; JSON can hold all of it.

    Raises:
        AdviceError: none of them could be measured; the message says why.
    """
    if current().size > 1:
        raise ValueError("advise measures one device: run it without --devices")
    if presets is not None and run is not None:
        raise ValueError("presets and run are both given: measure one of them")
    configs = _configs(presets, run, overrides)
    # An unknown task is an error before anything is measured.
    find_places(verified_stores([str(store)], verify), [task])
    rows = []
    for name, cfg in configs.items():
        rows += _measured(name, cfg, store, task)
    if presets is run is None and _has_device(rows):
        rows += _measured(ON_A_DEVICE, preset_config(ON_A_DEVICE, **overrides), store, task)
    if all("failed" in row for row in rows):
        raise AdviceError(f"nothing could be measured: {rows[0]['failed']}")
    chosen, problem = choose(rows), too_busy(rows)
    lines: list[Line] = []
    if problem is None:
        cfg = preset_config(chosen["preset"], **overrides) if run is None else configs[RUN]
        lines = advice(rows, chosen, cfg, _memory_of(cfg, store, task), available_memory())
    settings = {name: value for line in lines for name, value in line.settings.items()}
    is_named = run is None and problem is None
    return {
        "store": str(store), "task": task, "run": None if run is None else str(run),
        "preset": chosen["preset"] if is_named else None,
        "settings": {**overrides, **settings}, "configurations": rows, "too_busy": problem,
        "advice": [dataclasses.asdict(line) for line in lines],
    }  # fmt: skip


def _configs(
    presets: Sequence[str] | None, run: str | Path | None, overrides: Mapping[str, Any]
) -> dict[str, Config]:
    """By name what is to be measured."""
    if run is not None:
        folder = Path(run)
        record = checkpoint.load_record(folder, checkpoint.find_step(folder, "last"))
        found = {RUN: kept_config(record["config"]).replace(**overrides)}
    else:
        names = dict.fromkeys(presets or USUAL)
        found = {name: preset_config(name, **overrides) for name in names}
    for cfg in found.values():
        if cfg.objective == "masked_cells":
            raise ConfigError("advise is for tasks, and the objective 'masked_cells' has none")
        if cfg.prebatch is not None:
            raise ConfigError("prebatch is what advise is asked about: leave it out")
        if cfg.batch_size == AUTO:
            raise ConfigError("advise measures one batch_size: give a number instead of 'auto'")
    return found


def _measured(name: str, cfg: Config, store: str | Path, task: str) -> list[Row]:
    """A preset with its batches whole and in parts, in turns of a process of its own."""
    say(f"measuring {name}")
    parts = [
        count for count in (PARTS if cfg.cell_budget is None else PARTS[:1])
        if cfg.contexts % count == 0
    ]  # fmt: skip
    question = {
        "settings": cfg.to_dict(), "store": str(Path(store).absolute()), "task": task,
        "parts": parts,
    }  # fmt: skip
    try:
        rows = ask_process(step_parts.__name__, question)["rows"]
    except OwnProcessError as error:
        return [{"preset": name, "parts": 1, "failed": str(error)}]
    return [{"preset": name, **row} for row in rows]


def _has_device(rows: Sequence[Row]) -> bool:
    """Whether something else than the cores computes the steps."""
    return any("failed" not in row and row["cores"] is None for row in rows)


def _memory_of(cfg: Config, store: str | Path, task: str) -> dict[str, Any] | str:
    """What two points say of the memory of a step, or why they say nothing."""
    say("measuring the memory of two sizes of batches")
    try:
        return measure(cfg.replace(cell_budget=None), str(store), task).to_dict()
    except SizingError as error:
        return str(error)


# --------------------------------------------------------------------------------------- the advice


def too_busy(rows: Sequence[Row]) -> str | None:
    """Why nothing can be advised: the machine did something else meanwhile; None if it did not."""
    for row in rows:
        if "failed" in row:
            continue
        for steps in (row["live"], row["packed"]):
            shortest, longest = min(steps["turns"]), max(steps["turns"])
            had = steps["cpu_seconds"] / steps["seconds"]
            if row["cores"] is not None and had < LEAST_CORES:
                what = f"the process had {had:.1f} of {row['cores']} cores"
            elif longest > UNSTEADY * shortest:
                what = f"a step took {_ms(shortest)} in one turn and {_ms(longest)} in another"
            else:
                continue
            return (
                f"this machine is too busy to advise: in the steps of {_title(row)} {what}. Run"
                " the command again when nothing else runs, or with more than half a core"
            )
    return None


def choose(rows: Sequence[Row]) -> Row:
    """The configuration of the smallest preset at which the device bounds the run; else of the
    largest one."""
    first = dict[str, Row]()  # of each preset: as the settings say
    for row in rows:
        if "failed" not in row:
            first.setdefault(row["preset"], row)
    found = list(first.values())
    return next((row for row in found if keeps_busy(row)), found[-1])


def advice(
    rows: Sequence[Row], chosen: Row, cfg: Config, memory: Mapping[str, Any] | str, free: int
) -> list[Line]:
    """One line for each thing that can be set.

    Args:
        chosen: the row that it is about.
        cfg: its settings.
        memory: of `Sizing.to_dict`, or why it could not be measured.
        free: bytes of memory that batches could be kept in.
    """
    budget = _about_budget(rows, chosen, memory)
    return [
        _about_preset(rows, chosen), _about_threads(chosen), _about_prefetch(chosen), budget,
        _about_batches(_with_budget(rows, chosen, budget), cfg, free),
    ]  # fmt: skip


def _with_budget(rows: Sequence[Row], chosen: Row, budget: Line) -> Row | None:
    """The row of the chosen preset that was measured with the advised budget, if any was."""
    if not budget.settings:
        return chosen
    wanted = {"preset": chosen["preset"], **budget.settings}
    return next((row for row in rows if row.items() >= wanted.items()), None)


def _about_preset(rows: Sequence[Row], chosen: Row) -> Line:
    name, busy = chosen["preset"], _busy(chosen["live"])
    is_one = len({row["preset"] for row in rows}) == 1
    if keeps_busy(chosen):
        which = "" if is_one else "the smallest of these at which "
        text = f"{name}: {which}the device bounds the run (busy {busy} of the time)"
    else:
        which = "" if is_one else "the largest of these, and none keeps the device busy: "
        text = (
            f"{name}: {which}the device is done before the host (busy {busy} of the time, bound by"
            f" the {chosen['bound_by']}); a larger model or batch_size gives it more to do"
        )
    return Line(about="preset", settings={}, text=text)


def _about_threads(row: Row) -> Line:
    made, step, threads = row["sample"]["seconds"], row["step"]["seconds"], row["threads"]
    host = row["call_seconds"] + row["host"]["seconds"]  # until Python's thread asks for more
    text = f"one thread makes the batches of a step in {_ms(made)}, the device's step takes"
    text += f" {_ms(step)}" + (f", Python's thread {_ms(host)}" if host > step else "")
    needed = math.ceil(made / (AT_EASE * max(step, host)))
    most = max(threads, min(needed, len(os.sched_getaffinity(0))))
    if threads == 0:
        text = f"num_prefetch none, so that threads make batches ahead: {text}"
        return Line(about="threads", settings={"num_prefetch": None}, text=text)
    if most == threads:
        text += ", and there are no more cores" if needed > threads else ""
        return Line(about="threads", settings={}, text=f"leave num_threads at {threads}: {text}")
    return Line(
        about="threads", settings={"num_threads": most},
        text=f"num_threads {most} in place of {threads}: {text}",
    )  # fmt: skip


def _about_prefetch(row: Row) -> Line:
    ahead, slowest = row["batches_ahead"], row["slowest_batch_seconds"]
    each = row["predicted_seconds"] / row["batches"]
    needed = 1 + math.ceil(slowest / each)
    text = f"the slowest batch took {_ms(slowest)} to make, a step takes one each {_ms(each)}"
    if needed <= max(ahead, 1) or row["threads"] == 0:
        return Line(
            about="prefetch", settings={}, text=f"leave num_prefetch ({ahead} are ready): {text}"
        )
    return Line(
        about="prefetch", settings={"num_prefetch": needed},
        text=f"num_prefetch {needed} in place of {ahead}: {text}",
    )  # fmt: skip


def _about_budget(rows: Sequence[Row], chosen: Row, memory: Mapping[str, Any] | str) -> Line:
    if isinstance(memory, str):
        text, budget = f"the memory of a step is not known ({memory})", None
    else:
        text = (
            f"{memory['memory']}, {memory['fraction']:.0%} of {in_units(memory['limit_bytes'])},"
            f" holds about {memory['contexts']:,} contexts, and a batch has {chosen['contexts']:,}"
        )
        budget = memory["budget"] if chosen["contexts"] > memory["contexts"] else None
    own = [row for row in rows if row["preset"] == chosen["preset"] and "failed" not in row]
    for row in own:
        if row["cells"] < chosen["cells"]:
            text += f"; in parts of {row['cells']:,} cells a step takes"
            text += f" {_ms(row['live']['seconds'])} in place of {_ms(chosen['live']['seconds'])}"
        if budget is None and _is_faster(row, chosen):
            budget = row["cell_budget"]
    if budget is None:
        return Line(about="budget", settings={}, text=f"leave cell_budget: {text}")
    return Line(
        about="budget", settings={"cell_budget": budget}, text=f"cell_budget {budget}: {text}"
    )


def _is_faster(row: Row, chosen: Row) -> bool:
    """Whether steps of smaller batches are worth while: shorter, and not by chance, for they take
    less work of the processor too where it computes them."""
    one, other = row["live"], chosen["live"]
    is_less_work = one["cpu_seconds"] <= WORTH * other["cpu_seconds"] or chosen["cores"] is None
    is_shorter = one["seconds"] <= WORTH * other["seconds"]
    return row["cells"] < chosen["cells"] and is_shorter and is_less_work


def _about_batches(row: Row | None, cfg: Config, free: int) -> Line:
    """Live, or made before, as it was measured with the budget that is advised."""
    if row is None:
        text = "live: batches that are made before were not measured with this cell_budget"
        return Line(about="batches", settings={}, text=text)
    packed, live = row["packed"], row["live"]
    per_step = row["batches"]
    making = row["kept_batches"] / per_step * row["sample"]["seconds"] / max(1, row["threads"])
    steps = row["needed_batches"] / per_step
    before, after = steps * live["seconds"], making + steps * packed["seconds"]
    text = (
        f"{steps:,.0f} steps take {_seconds(before)} with live batches, {_seconds(after)} with"
        f" {row['kept_batches']:,} batches made before ({in_units(row['kept_bytes'])}, made in"
        f" {_seconds(making)}; a step {_ms(packed['seconds'])} in place of {_ms(live['seconds'])})"
    )
    if after > WORTH * before or packed["cpu_seconds"] > live["cpu_seconds"]:
        return Line(about="batches", settings={}, text=f"live: {text}")
    draws = cfg.child_order == "uniform" or cfg.staleness is not None or cfg.cell_dropout > 0
    if draws and row["kept_batches"] < row["needed_batches"]:
        text += "; their contexts repeat, while live ones are drawn anew: more prebatch_epochs"
    if row["kept_bytes"] > MEMORY_SHARE * free:
        text = f"made before and kept on a disk (`confluence prebatch`): {text}"
        return Line(about="batches", settings={}, text=text)
    return Line(about="batches", settings={"prebatch": "memory"}, text=f"prebatch memory: {text}")


# --------------------------------------------------------------------------------------- for people


def describe(result: Mapping[str, Any]) -> list[str]:
    """The tables and the advice."""
    rows = [row for row in result["configurations"] if "failed" not in row]
    shared = rows[0]["cores"]
    where = f"its {shared} cores sample and compute" if shared else "the host samples"
    lines = [
        f"{result['task']} of {result['store']}, on {rows[0]['device']} ({where}); ms of a step",
        "", *aligned([_PARTS, *map(_parts_row, rows)]),
        "", _PACKED_TITLE, *aligned([_PACKED, *map(_packed_row, rows)]),
        "", "of the measured steps",
        *aligned([_FIGURES, *map(_figures_row, rows)]),
        "",
    ]  # fmt: skip
    lines += [
        f"{row['preset']} could not be measured: {row['failed']}"
        for row in result["configurations"] if "failed" in row
    ]  # fmt: skip
    if result["too_busy"] is not None:
        return [*lines, result["too_busy"]]
    lines += [f"{line['about']:<9} {line['text']}" for line in result["advice"]]
    return [*lines, "", _command(result)]


_PARTS = [
    "", "cells", "contexts", "MB", "sample", "put", "MB/s", "host", "step", "hidden", "predicted",
    "measured", "turns", "off by", "busy, predicted", "measured", "bound by",
]  # fmt: skip


def _parts_row(row: Row) -> list[str]:
    sent, put = row["batches"] * row["batch_bytes"] / 1e6, row["put"]["seconds"]
    predicted, measured = row["predicted_seconds"], row["live"]["seconds"]
    return [
        _title(row), f"{row['cells']:,}", str(row["contexts"]), f"{row['batch_bytes'] / 1e6:.2f}",
        *(_number(row["sample"]["seconds"]), _number(put), f"{sent / put:,.0f}"),
        *(_number(row["host"]["seconds"]), _number(row["step"]["seconds"])),
        *(_number(row["overlap_seconds"]), _number(predicted), _number(measured)),
        _turns(row["live"]),
        f"{predicted / measured - 1:+.0%}", f"{row['predicted_utilization']:.0%}",
        _busy(row["live"]), row["bound_by"],
    ]  # fmt: skip


_PACKED_TITLE = "live against packed: batches as they are made, and kept in memory"
_PACKED = ["", "step, live", "packed", "its turns", "busy, live", "packed", "CPU, live", "packed"]


def _packed_row(row: Row) -> list[str]:
    both = [row["live"], row["packed"]]
    return [
        _title(row), *(_number(own["seconds"]) for own in both), _turns(row["packed"]),
        *(_busy(own) for own in both),
        *(_number(own["cpu_seconds"]) for own in both),
    ]  # fmt: skip


_FIGURES = [
    "", "utilization mean", "median", f"below {LOW:.0%}", "memory median", "wall clock", "samples"
]  # fmt: skip


def _figures_row(row: Row) -> list[str]:
    usage = row["live"]["usage"]
    if usage is None:
        return [_title(row), *["-"] * (len(_FIGURES) - 2), "0"]
    few = "" if usage["samples"] >= LEAST_SAMPLES else " (few)"
    return [
        _title(row), f"{usage['utilization_mean']:.0%}", f"{usage['utilization_median']:.0%}",
        f"{usage['below_80_share']:.0%}", in_units(usage["memory_median_bytes"]),
        str(datetime.timedelta(seconds=round(usage["wall_seconds"]))),
        f"{usage['samples']}{few}",
    ]  # fmt: skip


def _turns(steps: Mapping[str, Any]) -> str:
    """A step of the shortest turn and of the longest."""
    return f"{_number(min(steps['turns']))} to {_number(max(steps['turns']))}"


def _busy(steps: Mapping[str, Any]) -> str:
    """The sampled utilization of real steps."""
    return "-" if steps["usage"] is None else f"{steps['usage']['utilization_mean']:.0%}"


def _title(row: Row) -> str:
    return str(row["preset"]) + (f" in {row['parts']} parts" if row["parts"] > 1 else "")


def _command(result: Mapping[str, Any]) -> str:
    """The training that follows the advice."""
    words: list[str] = ["confluence", "train", result["store"], "--task", result["task"]]
    if result["run"] is None:
        words += ["--preset", result["preset"]]
    for name, value in result["settings"].items():
        words += [f"--{name.replace('_', '-')}", typed(value)]
    line: str = shlex.join(words)
    return line if result["run"] is None else f"{line}, and what {result['run']} has"


def _ms(seconds: float) -> str:
    return f"{_number(seconds)} ms"


def _number(seconds: float) -> str:
    """Of ms, with about three digits."""
    ms = 1e3 * seconds
    return f"{ms:,.{2 if ms < 10 else 1 if ms < 100 else 0}f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.{1 if seconds < 10 else 0}f} s"
