"""What a step is made of, how long that says it takes, and what is advised then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import confluence
from confluence.cli.main import main
from confluence.config import Config, ConfigError
from confluence.data.tasks import most_cells, open_sampler, parts_of
from confluence.data.verification import open_store
from confluence.measure import advise as advising
from confluence.measure import step_parts
from confluence.measure.advise import advice, choose
from confluence.measure.own_process import OwnProcessError
from confluence.measure.step_parts import Cost, Parts, device_part, in_parts, measure_steps
from confluence.watch import usage
from confluence.watch.meters import NVIDIA, StepMeter

SETTINGS: dict[str, Any] = {
    "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 10, "batch_size": 8,
    "steps": 40, "compute_dtype": "float32",
}  # fmt: skip
CFG = Config(**SETTINGS)
FREE = 10**12
ROOMY = {
    "memory": "memory of the device", "fraction": 0.9, "limit_bytes": 10**10, "budget": 10**6,
    "contexts": 11_000,
}  # fmt: skip


def ms(seconds: float, cpu_seconds: float | None = None) -> Cost:
    return Cost(seconds / 1e3, (seconds if cpu_seconds is None else cpu_seconds) / 1e3)


def parts_of_step(**more: Any) -> Parts:
    """One that the device bounds: 10 ms, beside 4 of sampling and 1 of the host."""
    return Parts(
        **{
            "sample": ms(4), "put": ms(0.75), "call_seconds": 0.00075, "host": ms(0.25),
            "step": ms(10, 0.0), "alone_seconds": 0.01025, "threads": 2, "cores": None, **more,
        }
    )  # fmt: skip


# ---- the prediction


@pytest.mark.parametrize(
    ("more", "seconds", "by", "utilization"),
    [
        ({}, 10, "step", 1.0),
        ({"sample": ms(40)}, 20, "sampler", 0.5),  # two threads: one batch each 20 ms
        ({"sample": ms(40), "threads": 4}, 10, "step", 1.0),
        ({"sample": ms(19), "threads": 0}, 20, "host", 0.5),  # and 1 ms to put and to start it
        ({"call_seconds": 0.03, "host": ms(10)}, 40, "host", 0.25),
        ({"put": ms(40)}, 40, "put", 0.25),  # which Python need not wait for
        ({"cores": 2}, 12.5, "step", 1.0),  # 5 ms of work that the step's two cores also do
        # Four threads compute the step on four cores: Python's is the fifth, and loses 10 / 5 ms.
        ({"cores": 4, "call_seconds": 0.02}, 22.25, "host", 10 / 22.25),
    ],
)
def test_a_step_takes_as_long_as_what_bounds_it(
    more: dict[str, Any], seconds: float, by: str, utilization: float
) -> None:
    found = parts_of_step(**more)
    assert found.predict() == (pytest.approx(seconds / 1e3), by)
    assert found.utilization() == pytest.approx(utilization)


def test_what_is_hidden_is_what_one_after_another_would_take_longer() -> None:
    assert parts_of_step().overlap() == pytest.approx((4 / 2 + 1 + 10 - 10) / 1e3)
    assert parts_of_step(threads=0).overlap() == pytest.approx((4 + 1 + 10 - 10) / 1e3)


def test_the_part_of_a_step_that_a_driver_reports_is_the_devices() -> None:
    """The call takes 103 ms, in most of which the device works, and 17 ms are left after it."""
    whole, host = ms(120, 110), ms(103, 100)
    assert device_part(whole, host, None) == pytest.approx(ms(17, 10))
    assert device_part(whole, host, 0.9) == pytest.approx(ms(108, 10))
    found = parts_of_step(host=host, step=device_part(whole, host, 0.9), alone_seconds=0.12)
    assert found.predict() == (pytest.approx(0.108), "step")
    assert found.overlap() == pytest.approx((4 / 2 + 0.75 + 120 - 108) / 1e3)


# ---- the advice


def row(preset: str = "small", **more: Any) -> dict[str, Any]:
    """Of a configuration with nothing to advise."""
    busy = more.pop("busy", 1.0)
    usage = None if busy is None else {"utilization_mean": busy}
    live = {"seconds": 0.010, "cpu_seconds": 0.015, "usage": usage, "turns": [0.009, 0.010]}
    return {
        "preset": preset, "parts": 1, "cores": 2,
        "sample": {"seconds": 0.004}, "step": {"seconds": 0.010},
        "call_seconds": 0.001, "host": {"seconds": 0.002},
        "threads": 1, "predicted_seconds": 0.010, "predicted_utilization": 1.0, "batches": 1,
        "batches_ahead": 3, "slowest_batch_seconds": 0.020, "cells": 2752, "cell_budget": None,
        "contexts": 32,
        "bound_by": "step", "kept_batches": 300, "needed_batches": 600,
        "kept_bytes": 10**6, "live": live, "packed": {**live, "seconds": 0.0099}, **more,
    }  # fmt: skip


def advised(chosen: dict[str, Any], *others: dict[str, Any], **more: Any) -> dict[str, Any]:
    """By what it is about: the settings and what is said."""
    options = {"cfg": CFG, "memory": ROOMY, "free": FREE, **more}
    lines = advice([chosen, *others], chosen, **options)
    assert [line.about for line in lines] == ["preset", "threads", "prefetch", "budget", "batches"]
    return {line.about: (dict(line.settings), line.text) for line in lines}


def test_the_smallest_preset_that_keeps_the_device_busy_is_chosen() -> None:
    idle = row("tiny", predicted_utilization=0.4, busy=0.4)
    unlucky = row("demo", busy=0.7)  # predicted to be busy, and was not
    broken = {"preset": "laptop", "parts": 1, "failed": "exit code -9"}
    in_parts = row("base", parts=4)
    assert choose([idle, unlucky, row("small"), row("base")])["preset"] == "small"
    assert choose([idle, broken, row("base"), in_parts]) == row("base")
    assert choose([idle, unlucky, broken])["preset"] == "demo"
    assert choose([in_parts]) == in_parts  # by a cell_budget of the settings
    assert "none keeps the device busy" in advised(unlucky, idle)["preset"][1]
    assert "the smallest of these" in advised(row(), idle)["preset"][1]


def test_steps_that_ended_before_the_device_was_sampled_are_judged_by_the_prediction() -> None:
    idle = row("tiny", predicted_utilization=0.4, busy=None)
    assert choose([idle, row("small", busy=None), row("base")])["preset"] == "small"
    assert "(busy - of the time, bound by" in advised(idle)["preset"][1]
    assert advising._figures_row(idle) == ["tiny", "-", "-", "-", "-", "-", "0"]


def test_nothing_is_changed_where_nothing_is_gained() -> None:
    found = advised(row(), row(parts=4, cells=704, live={"seconds": 0.0095, "cpu_seconds": 0.015}))
    assert [settings for settings, _ in found.values()] == [{}] * 5
    assert found["batches"][1].startswith("live: 600 steps take 6.0 s with live batches, 7.1 s")


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ({"threads": 2}, {}),  # they sleep where nothing is to be made
        ({"sample": {"seconds": 0.012}}, {"num_threads": 2}),
        ({"sample": {"seconds": 0.112}}, {"num_threads": 2}),  # there are no more
        ({"sample": {"seconds": 0.012}, "host": {"seconds": 0.014}}, {}),  # 15 ms of Python's
        ({"threads": 0}, {"num_prefetch": None}),
    ],
)
def test_threads_follow_from_sampling_and_step(
    more: dict[str, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising.os, "sched_getaffinity", lambda _: {0, 1})
    assert advised(row(**more))["threads"][0] == settings


def test_more_batches_are_kept_ready_for_a_slow_one() -> None:
    assert advised(row(slowest_batch_seconds=0.045))["prefetch"][0] == {"num_prefetch": 6}


def test_a_budget_is_advised_where_parts_are_faster_or_memory_ends() -> None:
    faster = row(parts=4, cell_budget=704, cells=704, live={"seconds": 0.008, "cpu_seconds": 0.012})
    assert advised(row(), faster)["budget"][0] == {"cell_budget": 704}
    by_luck = {**faster, "live": {"seconds": 0.008, "cpu_seconds": 0.014}}
    assert advised(row(), by_luck)["budget"][0] == {}
    small = {**ROOMY, "budget": 2048, "contexts": 24}
    settings, said = advised(row(), memory=small)["budget"]
    assert settings == {"cell_budget": 2048}
    assert "holds about 24 contexts, and a batch has 32" in said
    settings, said = advised(row(), memory="nobody says")["budget"]
    assert (settings, "nobody says" in said) == ({}, True)


def test_batches_are_made_before_where_that_is_faster_in_all() -> None:
    fast = {"seconds": 0.005, "cpu_seconds": 0.01}
    # 300 batches of 4 ms by one thread, and 600 steps of 5 ms, against 600 of 10.
    settings, said = advised(row(packed=fast))["batches"]
    assert settings == {"prebatch": "memory"}
    assert "6.0 s with live batches, 4.2 s with 300 batches" in said
    assert "drawn anew" not in said
    assert (
        "drawn anew" in advised(row(packed=fast), cfg=CFG.replace(cell_dropout=0.1))["batches"][1]
    )
    settings, said = advised(row(packed=fast), free=10**6)["batches"]
    assert (settings, "confluence prebatch" in said) == ({}, True)
    slow = row(packed=fast, sample={"seconds": 0.012}, threads=1)  # making them takes 3.6 s
    assert advised(slow)["batches"][0] == {}
    by_luck = row(packed={**fast, "cpu_seconds": 0.02})
    assert advised(by_luck)["batches"][0] == {}


def test_nothing_is_advised_of_a_machine_that_is_busy_with_something_else() -> None:
    def taking(turns: list[float], cpu_seconds: float = 0.015, **more: Any) -> dict[str, Any]:
        live = {"seconds": 0.010, "cpu_seconds": cpu_seconds, "usage": None, "turns": turns}
        return row(**{"live": live, **more})

    broken = {"preset": "laptop", "parts": 1, "failed": "exit code -9"}
    assert advising.too_busy([taking([0.008, 0.016]), broken]) is None
    said = advising.too_busy([broken, row(), taking([0.0088, 0.012, 0.294], parts=4)])
    assert said is not None
    assert "steps of small in 4 parts a step took 8.80 ms in one turn and 294 ms in another" in said
    assert advising.too_busy([row(packed={**row()["packed"], "turns": [0.004, 0.009]})])
    assert advising.too_busy([taking([0.010, 0.010], cpu_seconds=0.005)]) is None
    # A tenth of a core, as of a container: all turns are alike, and the step is always unfinished.
    said = advising.too_busy([taking([0.010, 0.010], cpu_seconds=0.001)])
    assert said is not None and "the process had 0.1 of 2 cores" in said
    # A device of its own computes, and the process waits for it.
    assert advising.too_busy([taking([0.010, 0.010], cpu_seconds=0.001, cores=None)]) is None


@pytest.mark.usefixtures("short")
def test_a_busy_machine_gets_its_figures_and_no_command(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(advising, "UNSTEADY", 0.0)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    command = ["advise", str(shop_store), "--task", "device", "--preset", "tiny", *words]
    assert main(command) == 0
    *_, last = capsys.readouterr().out.strip().splitlines()
    assert last.startswith("this machine is too busy to advise: in the steps of tiny a step took")


def test_batches_are_made_before_within_a_budget_if_that_was_measured() -> None:
    live = {"seconds": 0.008, "cpu_seconds": 0.012}
    fast = {"seconds": 0.005, "cpu_seconds": 0.01}
    # 2400 batches, which 600 steps of 4 take; 1200 of them are made before, in 300 times 4 ms.
    parts: dict[str, Any] = {
        "parts": 4, "cell_budget": 704, "cells": 704, "live": live, "batches": 4,
        "kept_batches": 1200, "needed_batches": 2400,
    }  # fmt: skip
    found = advised(row(packed=fast), row(**parts, packed=fast))
    assert found["budget"][0] == {"cell_budget": 704}
    assert found["batches"][0] == {"prebatch": "memory"}
    assert "600 steps take 4.8 s with live batches, 4.2 s with 1,200 batches" in found["batches"][1]
    # Whole batches are faster if they are made before; those within the budget are not.
    found = advised(row(packed=fast), row(**parts, packed=live))
    assert (found["budget"][0], found["batches"][0]) == ({"cell_budget": 704}, {})
    assert "600 steps take 4.8 s with live batches, 6.0 s with 1,200" in found["batches"][1]
    # Memory ends before a batch does: nothing was measured within that budget.
    found = advised(row(packed=fast), memory={**ROOMY, "budget": 2048, "contexts": 24})
    assert found["budget"][0] == {"cell_budget": 2048}
    assert found["batches"] == (
        {},
        "live: batches that are made before were not measured with this cell_budget",
    )


def test_the_command_to_follow_has_settings_as_they_are_typed() -> None:
    settings = {"log_to": ("otel", "mlflow"), "child_counts": True, "num_prefetch": None}
    told = {"store": "a b", "task": "t", "run": None, "preset": "small", "settings": settings}
    assert advising._command(told) == (
        "confluence train 'a b' --task t --preset small --log-to otel,mlflow --child-counts true"
        " --num-prefetch none"
    )


# ---- the measurement


def in_this_process(module: str, question: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own would answer."""
    assert module == step_parts.__name__
    answer: dict[str, Any] = json.loads(
        json.dumps(measure_steps(**json.loads(json.dumps(question))))
    )
    return answer


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements that are quick, and say nothing."""
    for name, value in {"BLOCK": 2, "REAL_SECONDS": 0.3, "TURN_SECONDS": 1e-9}.items():
        monkeypatch.setattr(step_parts, name, value)
    monkeypatch.setattr(advising, "UNSTEADY", 1e9)  # a test may run on a busy machine
    monkeypatch.setattr(advising, "LEAST_CORES", 0.0)
    monkeypatch.setattr(advising, "ask_process", in_this_process)
    monkeypatch.setattr(advising, "_memory_of", lambda *_: "not measured")


class IdleDriver(StepMeter):
    """A driver that reports an idle device, whatever it does."""

    source = NVIDIA

    def read(self, due: float) -> float:
        return 0.0


def test_parts_are_as_many_as_were_asked_for(shop_store: Path) -> None:
    cfg = in_parts(CFG, open_store(shop_store), "device", 4)
    with open_sampler(open_store(shop_store), cfg, "device") as sampler:
        assert parts_of(sampler, CFG.batch_size) == 4
        assert most_cells(sampler) == cfg.cell_budget
    assert in_parts(CFG, open_store(shop_store), "device", 1) is CFG


@pytest.mark.usefixtures("short")
def test_the_command_measures_and_advises(
    shop_store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising, "USUAL", ("tiny",))
    words = [str(shop_store), "--task", "device", "--accumulate", "2", "--num-threads", "1"]
    for name in ("width", "heads", "layers", "sequence_length", "max_rows", "batch_size", "steps"):
        words += [f"--{name.replace('_', '-')}", str(SETTINGS[name])]
    assert main(["advise", *words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    whole, parts = result["configurations"]
    assert (whole["parts"], whole["batches"], whole["contexts"]) == (1, 2, 8)
    assert (parts["parts"], parts["batches"], parts["contexts"]) == (4, 8, 2)
    assert parts["cells"] == parts["cell_budget"] < whole["cells"]
    assert 0 < whole["kept_batches"] <= whole["needed_batches"] == 80
    assert parts["kept_batches"] == 4 * whole["kept_batches"]
    assert parts["needed_batches"] == 4 * 80
    for found in (whole["live"], whole["packed"], parts["live"], parts["packed"]):
        assert found["steps"] >= 20
        assert found["seconds"] > 0
        assert found["cpu_seconds"] > 0
    for name in ("sample", "put", "host", "step"):
        assert whole[name]["seconds"] > 0
    assert result["settings"].items() >= {"accumulate": 2, "num_threads": 1}.items()
    said = "\n".join(advising.describe(result))
    for title in ("sample", "MB/s", "hidden", "predicted", "live against packed", "below 80%"):
        assert title in said
    assert f"confluence train {shop_store} --task device --preset tiny --accumulate 2" in said


@pytest.mark.usefixtures("short")
def test_the_settings_of_a_run_are_measured(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_parts, "DRIVER_SECONDS", 1e-9)
    monkeypatch.setattr(step_parts, "open_meter", IdleDriver)
    monkeypatch.setattr(usage, "FIRST_SECONDS", 1e9)
    out = tmp_path / "run"
    confluence.train(shop_store, task="device", trees=False, out=out, **{**SETTINGS, "steps": 1})
    result = confluence.advise(shop_store, task="device", run=out, batch_size=6)
    (row,) = result["configurations"]  # 6 contexts are not dealt to 4 parts
    assert (row["preset"], row["contexts"]) == ("the run", 6)
    assert row["step"]["seconds"] == 0
    assert row["live"]["usage"] is None  # in so little time
    assert (result["preset"], result["run"]) == (None, str(out))
    assert advising.describe(result)[-1].endswith(f", and what {out} has")


def test_what_cannot_be_measured_is_said(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise OwnProcessError("ended by SIGKILL")

    monkeypatch.setattr(advising, "ask_process", fails)
    assert main(["advise", str(shop_store), "--task", "device"]) == 1
    assert "nothing could be measured: ended by SIGKILL" in capsys.readouterr().err


def test_what_advise_is_not_for_is_refused(shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is what advise is asked about"):
        confluence.advise(shop_store, task="device", prebatch="memory")
    with pytest.raises(ConfigError, match="has none"):
        confluence.advise(shop_store, task="device", objective="masked_cells")
    with pytest.raises(ValueError, match="measure one of them"):
        confluence.advise(shop_store, task="device", presets=["tiny"], run=tmp_path)
    with pytest.raises(confluence.TaskError, match="did you mean"):
        confluence.advise(shop_store, task="devise")
