"""Parts of a step within a budget of cells, and the budget that the memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import opened_tasks

import confluence
from confluence.cli.main import main
from confluence.config import Config, ConfigError
from confluence.data.tasks import most_cells, open_sampler, parts_of
from confluence.data.verification import open_store
from confluence.measure import sizing
from confluence.measure.sizing import Point, Sizing, SizingError, fitting_budget
from confluence.watch.log import FILE
from confluence.watch.log_events import of_kind, read_events

SETTINGS: dict[str, Any] = {
    "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 10, "batch_size": 8,
    "steps": 4, "log_every": 1, "compute_dtype": "float32", "num_prefetch": 0,
}  # fmt: skip
CFG = Config(**SETTINGS)


def sizing_of(
    first: tuple[int, int], second: tuple[int, int], limit: int = 1000, fraction: float = 0.5
) -> Sizing:
    """From (cells, bytes) of two points."""
    points = tuple(
        Point(contexts=1, cells=cells, peak_bytes=size) for cells, size in (first, second)
    )
    return Sizing(
        points=(points[0], points[1]), memory="memory of the device", limit_bytes=limit,
        fraction=fraction,
    )  # fmt: skip


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in of_kind(read_events(run / FILE), "train")]


def train(store: Path, out: Path, **more: Any) -> confluence.runs.run.Run:
    return confluence.train(store, task="device", trees=False, out=out, **{**SETTINGS, **more})


def test_two_points_make_a_line() -> None:
    # 2 bytes for each cell and 100 beside: half of 1000 bytes hold 200 cells, 192 by 64.
    found = sizing_of((10, 120), (60, 220))
    assert (found.bytes_per_cell, found.fixed_bytes) == (2.0, 100.0)
    assert found.predict(200) == 500.0
    assert found.budget() == 192
    assert sizing_of((10, 120), (60, 220), fraction=1.0).budget() == 448
    first, second = found.describe()
    assert "0 MB at 10 cells and 0 MB at 60 cells (memory of the device)" in first
    assert "at 192 cells, 50% of" in second


@pytest.mark.parametrize("second", [(60, 120), (60, 119)])
def test_a_peak_that_does_not_grow_says_nothing(second: tuple[int, int]) -> None:
    with pytest.raises(SizingError, match="no more memory for more cells"):
        sizing_of((10, 120), second).budget()


def test_a_model_that_does_not_fit_at_all_is_refused() -> None:
    with pytest.raises(SizingError, match=r"50% of 0 MB hold no step"):
        sizing_of((10, 120), (60, 220), limit=400).budget()


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
    monkeypatch.setattr(sizing, "CLEAR", tmp_path / "none")
    sizing.reset_peak()
    with pytest.raises(SizingError, match="does not say the peak"):
        sizing.read_peak()
    monkeypatch.setattr(sizing.jax, "default_backend", lambda: "gpu")  # whose memory nobody says
    with pytest.raises(SizingError, match="the device does not say"):
        sizing.read_peak()


def test_a_step_that_cannot_run_is_one_error(shop_store: Path) -> None:
    with pytest.raises(
        SizingError, match=r"a step of 8 contexts could not be measured: no task 'x'"
    ):
        fitting_budget(CFG, [shop_store], ["x"])


@pytest.mark.release
def test_auto_measures_two_sizes_each_in_its_process(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of batches and a model that are large enough for cells to take more than what varies."""
    out, large = tmp_path / "run", {"batch_size": 256, "width": 64, "heads": 4, "layers": 2}
    settings = [
        f"--{name.replace('_', '-')}={value}" for name, value in {**SETTINGS, **large}.items()
    ]
    command = ["train", str(shop_store), "--task", "device", "--out", str(out), *settings]
    assert main([*command, "--cell-budget", "auto", "--memory-fraction", "0.5", "--json"]) == 0
    said = capsys.readouterr().err
    assert "a step takes" in said and "resident memory of the process" in said
    budget = confluence.load(out).config.cell_budget
    assert budget is not None and budget % 64 == 0
    assert f"at most {budget:,} cells at once" in said


@pytest.mark.release
def test_the_peak_of_a_second_size_is_predicted(shop_store: Path) -> None:
    """Of larger batches than the others here, so that cells take more than what varies."""
    cfg = CFG.replace(batch_size=256, width=64, heads=4, layers=2)
    found = sizing.measure(cfg, str(shop_store), "device")
    assert found.points[1].cells > 3 * found.points[0].cells
    assert found.bytes_per_cell > 4 * cfg.width  # at least an activation
    with opened_tasks(shop_store, ["device"], cfg) as stores:
        assert found.points[0].cells == stores[0].sampler.flat_shape("device")["cells"]


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
