"""Parts of a step within a budget of cells, and the budget that the memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confluence
from confluence.cli.main import main
from confluence.config import Config, ConfigError
from confluence.data.tasks import most_cells, open_sampler, parts_of
from confluence.data.verification import open_store
from confluence.measure import sizing
from confluence.measure.sizing import (
    Point,
    Sizing,
    SizingError,
    TooLargeError,
    fitting_budget,
)
from confluence.watch.log import FILE
from confluence.watch.log_events import of_kind, read_events

SETTINGS: dict[str, Any] = {
    "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 10, "batch_size": 8,
    "steps": 4, "log_every": 1, "compute_dtype": "float32", "num_prefetch": 0,
}  # fmt: skip
CFG = Config(**SETTINGS)


MB = 10**6


def sizing_of(
    first: tuple[int, ...], second: tuple[int, ...], check: tuple[int, ...] | None = (500, 1100),
    *, limit: int = 10_000, fraction: float = 0.5,
) -> Sizing:  # fmt: skip
    """From cells, of contexts of 10 each, and the bytes of each measurement."""
    points = [
        Point(contexts=point[0] // 10, cells=point[0], peaks=point[1:])
        for point in (first, second, *([check] if check else []))
    ]
    return Sizing(
        points=(points[0], points[1]), check=points[2] if check else None,
        memory="memory of the device", limit_bytes=limit, fraction=fraction,
    )  # fmt: skip


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in of_kind(read_events(run / FILE), "train")]


def train(store: Path, out: Path, **more: Any) -> confluence.runs.run.Run:
    return confluence.train(store, task="device", trees=False, out=out, **{**SETTINGS, **more})


def test_two_points_make_a_line_which_a_third_checks() -> None:
    # 2 bytes for each cell, 20 for a context, and 100 fixed: half of 10,000 bytes hold 2,450
    # cells, 38 x 64 = 2,432, of 245 contexts, 240 to two digits.
    found = sizing_of((10, 119, 121), (100, 300, 300))
    assert (found.bytes_per_cell, found.fixed_bytes) == (2.0, 100.0)
    assert (found.predict(200), found.noise_bytes) == (500.0, 2)
    assert (found.contexts(), found.budget()) == (240, 2432)
    assert sizing_of((10, 120), (100, 300), fraction=1.0).contexts() == 500, "of 495"
    assert sizing_of((10, 120), (100, 300), limit=2050).contexts() == 46, "of 46.25"
    check, held = found.describe()
    assert check == "the line of two sizes is +0 MB off the third, by memory of the device"
    assert held.startswith("50% of 0 MB hold about 240 contexts: a step computes at most 2,432")


@pytest.mark.parametrize("second", [(100, 120, 120), (100, 129, 130), (100, 119, 119)])
def test_points_that_are_not_ten_times_their_noise_apart_say_nothing(
    second: tuple[int, ...],
) -> None:
    with pytest.raises(SizingError, match=r"the points are not 10 times as far apart as"):
        sizing_of((10, 119, 120), second).budget()
    # 10.5 times 1 byte.
    assert sizing_of((10, 119, 120), (100, 130, 130), (40, 123)).budget() > 0


def test_a_line_that_fails_its_check_says_nothing() -> None:
    # The points are 180 bytes apart, so it may be 18 off the 180 that 40 cells have.
    for measured, is_held in ((198, True), (199, False), (162, True), (161, False)):
        found = sizing_of((10, 120), (100, 300), (40, measured))
        if is_held:
            assert found.contexts() == 240
        else:
            with pytest.raises(SizingError, match=r"MB off 0 MB at 4 contexts .* more than 10% of"):
                found.contexts()


def test_a_model_that_does_not_fit_at_all_is_refused() -> None:
    assert sizing_of((10, 120), (100, 300), limit=240).contexts() == 1
    with pytest.raises(SizingError, match=r"50% of 0 MB hold no context"):
        sizing_of((10, 120), (100, 300), limit=239).contexts()


@pytest.mark.parametrize(
    ("free_mb", "fixed_mb", "context_mb", "most_that_runs", "expected"),
    [
        # 32 contexts take 420.25 MB on average: 16 times that is within the limit.
        (90_000, 100, 10, 10**6, (32, 512, 128)),
        (6_724, 100, 10, 10**6, (32, 512, 128)),
        # It is not, and 16 times the 180 MB of 8 contexts are.
        (6_723, 100, 10, 10**6, (8, 128, 32)),
        # No step of 512 contexts runs.
        (90_000, 100, 10, 511, (8, 128, 32)),
        # 0.5 MB of noise hides less than 5 MB: 480 contexts add 4.8, and 1,920 add 19.
        (90_000, 100, 0.02, 10**6, (32, 512, 128)),
        (90_000, 100, 0.01, 10**6, (128, 2048, 512)),
    ],
)
def test_sizes_go_up_to_be_clear_of_noise_and_down_to_fit(
    free_mb: int, fixed_mb: int, context_mb: float, most_that_runs: int,
    expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    measured: list[int] = []
    limit_mb = 90_000  # of which others have a part

    def ask(cfg: Config, store: str, task: str) -> dict[str, Any]:
        contexts = cfg.batch_size
        if contexts > most_that_runs:
            raise TooLargeError("it does not run")
        noise = 0.5 * (contexts in measured)  # of the second measurement
        measured.append(contexts)
        size = round((fixed_mb + context_mb * contexts + noise) * MB)
        return {
            "cells": 20 * contexts, "peak_bytes": size, "limit_bytes": limit_mb * MB, "memory": "x",
            "free_bytes": free_mb * MB,
        }  # fmt: skip

    monkeypatch.setattr(sizing, "_ask", ask)
    found = sizing.measure(CFG, "store", "task", fraction=1.0)
    assert found.check is not None
    assert (*(point.contexts for point in found.points), found.check.contexts) == expected
    assert [measured.count(contexts) for contexts in expected[:2]] == [2, 2]
    assert max(measured.count(contexts) for contexts in measured) == 2
    assert found.contexts() == pytest.approx((limit_mb - fixed_mb) / context_mb, rel=0.1)


def test_a_line_that_never_gets_clear_of_its_noise_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks, asked = iter(range(100, 10_000, 7)), list[int]()

    def ask(cfg: Config, store: str, task: str) -> dict[str, Any]:
        asked.append(cfg.contexts)
        return {
            "cells": cfg.batch_size, "peak_bytes": next(peaks), "limit_bytes": 10**6, "memory": "x",
            "free_bytes": 10**6,
        }  # fmt: skip

    monkeypatch.setattr(sizing, "_ask", ask)
    with pytest.raises(SizingError, match="times as far apart"):
        sizing.measure(CFG, "store", "task").contexts()
    assert sorted(set(asked)) == [32, 128, 512, 2048, 8192], "twice up from 32 and 512"


def test_a_batch_is_made_in_the_fewest_equal_parts_within_the_budget(shop_store: Path) -> None:
    path = str(shop_store)
    with open_sampler(open_store(path), CFG, "device") as whole:
        most = most_cells(whole)
        contexts = {
            tuple(b.info["seed_index"]) for b in (whole.batch("train", k) for k in range(4))
        }
    seen = {}
    for budget in (most, most - 1, most // 3):
        with open_sampler(open_store(path), CFG.replace(cell_budget=budget), "device") as sampler:
            parts, size = parts_of(sampler, CFG.batch_size), sampler.shape["batch_size"]
            assert parts * size == CFG.batch_size
            assert most_cells(sampler) <= budget
            steps = [
                [sampler.batch("train", k * parts + part) for part in range(parts)]
                for k in range(4)
            ]
            own = {frozenset(i for b in step for i in b.info["seed_index"]) for step in steps}
            assert own == {frozenset(step) for step in contexts}
            seen[budget] = parts
    assert seen[most] == 1 < seen[most - 1] <= seen[most // 3]


def test_losses_are_those_of_steps_in_one_part(shop_store: Path, tmp_path: Path) -> None:
    train(shop_store, tmp_path / "whole")
    run = train(shop_store, tmp_path / "parts", cell_budget=64)
    start = of_kind(read_events(tmp_path / "parts" / FILE), "start")[0]
    assert start["parts"] > 1
    assert run.config.cell_budget == 64
    np.testing.assert_allclose(
        losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=2e-5, atol=1e-6
    )
    assert run.evaluate("val", trees=False, resamples=0)["metrics"]  # within the budget too


def test_a_run_goes_on_with_the_budget_that_it_has(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(shop_store, tmp_path / "whole", cell_budget=64)
    out = tmp_path / "resumed"
    train(shop_store, out, cell_budget=64, save_every=2)
    for step in (out / "checkpoints").iterdir():
        if step.name == "4":
            step.rename(tmp_path / "last")
    monkeypatch.setattr("confluence.runs.train.fitting_budget", None)  # not asked
    run = train(shop_store, out, cell_budget="auto", save_every=2, resume=True)
    assert run.config.cell_budget == 64
    expected = confluence.load(tmp_path / "whole").params
    for name, value in run.params.items():
        assert np.array_equal(value, expected[name]), name


def test_one_context_must_fit(shop_store: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cell_budget is 3, and a batch of one context has up to"
    ):
        open_sampler(open_store(shop_store), CFG.replace(cell_budget=3), "device")


def test_several_tasks_are_refused(shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="cell_budget is for a run of one task, and this one has 2"
    ):
        confluence.train(
            shop_store,
            task=["device", "rating"],
            trees=False,
            out=tmp_path,
            **SETTINGS,
            cell_budget=4096,
        )
    with pytest.raises(
        ConfigError, match="cell_budget is for a run of one task, and this one has 2"
    ):
        confluence.prebatch(
            shop_store, task=["device", "rating"], out=tmp_path / "pack", cell_budget=4096
        )
    with pytest.raises(ValueError, match="'auto' is for one task of one store"):
        fitting_budget(CFG, [shop_store], ["device", "rating"])
    with pytest.raises(ValueError, match=r"memory_fraction is 1\.5, expected more than 0"):
        fitting_budget(CFG, [shop_store], ["device"], fraction=1.5)


def test_nothing_is_guessed_where_memory_cannot_be_read(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "REFERENCES", tmp_path / "none")
    sizing.reset_peak()
    with pytest.raises(SizingError, match="does not say the peak"):
        sizing.read_peak()
    monkeypatch.setattr(sizing.jax, "default_backend", lambda: "gpu")  # whose memory nobody says
    with pytest.raises(SizingError, match="the device does not say"):
        sizing.read_peak()


def test_a_step_that_cannot_run_is_one_error(shop_store: Path) -> None:
    with pytest.raises(
        SizingError, match=r"a step of 32 contexts could not be measured: no task 'x'"
    ):
        fitting_budget(CFG, [shop_store], ["x"])


@pytest.mark.release
def test_auto_measures_two_sizes_and_what_it_says_is_measured(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    command = ["train", str(shop_store), "--task", "device", "--out", str(out), *settings]
    assert main([*command, "--cell-budget", "auto", "--memory-fraction", "0.5", "--json"]) == 0
    said = capsys.readouterr().err
    assert "a step takes" in said and "resident memory of the process" in said
    budget = confluence.load(out).config.cell_budget
    assert budget is not None and budget % 64 == 0
    assert f"at most {budget:,} cells at once" in said

    found = sizing.measure(CFG, str(shop_store), "device")
    assert found.contexts() > 0 and found.check is not None
    assert found.points[0].contexts < found.check.contexts < found.points[1].contexts
    assert found.bytes_per_cell > 4 * CFG.width  # at least an activation
    asked = sizing._ask(CFG.replace(batch_size=100 * 8), str(shop_store), "device")
    assert found.predict(asked["cells"]) == pytest.approx(asked["peak_bytes"], rel=0.15)


def test_ranks_share_the_parts_of_a_step(shop_store: Path) -> None:
    """Step k has the same contexts for one rank and two, whose parts are as many."""
    store, cfg = open_store(shop_store), CFG.replace(cell_budget=64)
    steps: dict[int, list[set[int]]] = {}
    for ranks in (1, 2):
        found: list[set[int]] = [set() for _ in range(3)]
        for rank in range(ranks):
            asked = CFG.batch_size // ranks
            with open_sampler(
                store, cfg, "device", rank=rank, world_size=ranks, default_batch_size=asked
            ) as sampler:
                parts = parts_of(sampler, asked)
                assert most_cells(sampler) <= 64 and parts * sampler.shape["batch_size"] == asked
                for k, step in enumerate(found):
                    for part in range(parts):
                        batch = sampler.batch("train", k * parts + part)
                        step.update(batch.info["seed_index"].tolist())
        steps[ranks] = found
    assert steps[1] == steps[2]
    assert all(len(step) == CFG.batch_size for step in steps[1])
