"""A pack of batches that are made in parts, within a budget of cells, trains as live ones do."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small import SMALL, events, opened_tasks
from test_prebatch import assert_same

import confluence
from confluence.config import preset
from confluence.data.stores import OpenStore
from confluence.data.tasks import most_cells, open_sampler, open_seeds
from confluence.data.verification import open_store
from confluence.folder import checkpoint
from confluence.packs.pack import Pack, PackError
from confluence.packs.packed_store import packed_store
from confluence.packs.replay import Order
from confluence.packs.walk import estimated_bytes, kept_in_memory, order_of, repeats_of

# 128 cells hold 4 contexts: each of the two batches of 8 in a step is made in 2 parts.
SETTINGS: dict[str, Any] = {
    **SMALL, "batch_size": 8, "accumulate": 2, "cell_budget": 128, "steps": 4, "cell_dropout": 0.1,
    "eval_every": 2, "save_every": 2, "log_every": 1,
}  # fmt: skip
CFG = preset(SETTINGS["preset"], **{n: v for n, v in SETTINGS.items() if n != "preset"})
TASK: dict[str, Any] = {"task": "subscribed", "trees": False}


@pytest.fixture(scope="module")
def pack(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parts") / "pack"
    made = confluence.prebatch(shop_store, task="subscribed", out=out, **SETTINGS)
    assert made["batches"] == 4 * 2 * 2  # steps, batches, parts
    return out


@pytest.fixture(scope="module")
def live(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parts") / "live"
    confluence.train(shop_store, out=out, **TASK, **SETTINGS)
    return out


def cells_of(store: Path, parts: int) -> int:
    """N, of a sampler that is asked for the parts and knows nothing of a budget."""
    share = {"default_batch_size": 8 // parts, "level_parts": 2 * parts}
    cfg = CFG.replace(cell_budget=None)
    with open_sampler(open_store(store), cfg, "subscribed", **share) as sampler:
        return most_cells(sampler)


def test_packs_and_memory_train_as_live_batches_within_a_budget_do(
    pack: Path, live: Path, shop_store: Path, tmp_path: Path
) -> None:
    run = confluence.train(prebatched=pack, trees=False, out=tmp_path / "pack")
    assert run.config == CFG
    confluence.train(shop_store, out=tmp_path / "memory", prebatch="memory", **TASK, **SETTINGS)
    for name in ("pack", "memory"):
        assert_same(tmp_path / name, live)
        (start,) = events(tmp_path / name, "start")
        assert start["parts"] == 2
        assert (start["prebatched"][0]["batches"], start["prebatched"][0]["epochs"]) == (16, 1)


@pytest.mark.parametrize("then", ["pack", "live"])
def test_a_run_goes_on_between_its_steps_with_either(
    then: str, pack: Path, live: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(live, out)
    shutil.rmtree(out / "checkpoints" / "4")
    streams = checkpoint.load_record(out)["samplers"]["samplers"]
    assert [own["streams"]["train"]["batches"] for own in streams] == [8]  # of two steps
    how: dict[str, Any] = {"prebatched": pack, "trees": False} if then == "pack" else TASK
    confluence.train(shop_store, out=out, resume=True, **how, **SETTINGS)
    assert_same(out, live)


def test_a_pack_fits_the_budgets_that_lead_to_its_parts(pack: Path, shop_store: Path) -> None:
    least, fewer = (cells_of(shop_store, parts) for parts in (2, 1))
    assert Pack.open(pack).about["budgets"] == [least, fewer]
    for budget in (least, fewer - 1):
        store = packed_store(pack, CFG.replace(cell_budget=budget))
        assert store.made is not None and store.made.order.accumulate == 4
    for other in (least - 1, fewer, None):
        says = f"cell_budget: the run has {other}, the pack 128. Change"
        with pytest.raises(PackError, match=says):
            packed_store(pack, CFG.replace(cell_budget=other))


def test_the_parts_of_a_step_stay_together_when_epochs_repeat(shop_store: Path) -> None:
    cfg = CFG.replace(batch_size=64, accumulate=1, cell_budget=640, prebatch="memory", steps=10)
    with opened_tasks(shop_store, ["subscribed"], cfg) as stores:
        sampler = stores[0].sampler
        parts = 64 // sampler.shape["batch_size"]
        assert sampler.num_seeds("train") == 247 and parts > 1  # steps of 64: 4 begin in an epoch
        assert repeats_of(stores, cfg) == [{"batches": 4 * parts, "epochs": 1}]
        assert repeats_of(stores, cfg.replace(steps=4)) == [None]
        (kept,) = kept_in_memory(stores, cfg, sharing=1, each=lambda: None)
        made = kept.made
        assert made is not None and made.about["batches"] == 4 * parts
        assert made.about["bytes"] == estimated_bytes(sampler, 4 * parts)
        steps = [
            tuple(
                sorted(
                    seed
                    for _ in range(parts)
                    for seed in made.next_train_batch().info["seed_index"].tolist()
                )
            )
            for _ in range(10)
        ]
        assert all(len(step) == 64 for step in steps)
        assert {*steps[4:8]} == {*steps[:4]} and {*steps[8:]} < {*steps[:4]}
        assert steps[4:8] != steps[:4]
        assert made.shortage(4, 1.0) is None
        assert (
            f"10 steps take {10 * parts} train batches, and {4 * parts} were made: from step 5"
            in (made.shortage(10, 1.0) or "")
        )


@pytest.mark.parametrize("ranks", [1, 2])
def test_epochs_end_behind_all_parts_of_the_steps_that_begin_in_them(ranks: int) -> None:
    """9 seeds, and batches of 4 in two parts over all ranks."""
    sampler = SimpleNamespace(
        num_seeds={"train": 9}.get, world_size=ranks, shape={"batch_size": 2 // ranks}
    )
    cfg = preset("tiny", batch_size=4, steps=3)  # the third step begins in epoch 0
    order = order_of(sampler, cfg, None)
    assert (order.ends, order.accumulate) == ((6,), 2)
    assert order_of(sampler, cfg.replace(steps=4), None).ends == (6, 8)
    assert order_of(sampler, cfg, 2).ends == (6, 10)
    more = order_of(sampler, cfg.replace(steps=4, accumulate=2), None)  # 8 seeds in 4 batches
    assert (more.ends, more.accumulate) == ((8, 12, 16), 4)


def test_a_run_repeats_batches_if_its_steps_take_more_parts_than_were_made() -> None:
    made = SimpleNamespace(order=Order(ends=(6,), accumulate=2, seed=1))
    stores: Any = [SimpleNamespace(weight=1.0, made=made)]
    cfg = preset("tiny", steps=3)
    assert repeats_of(stores, cfg) == [None]
    assert repeats_of(stores, cfg.replace(steps=4)) == [{"batches": 6, "epochs": 1}]


def test_masked_cells_of_one_task_are_kept_in_parts_too(shop_store: Path) -> None:
    cfg = CFG.replace(objective="masked_cells", prebatch="memory")
    with open_seeds(open_store(shop_store), cfg, ("subscribed",)) as sampler:
        store = OpenStore(path=str(shop_store), sampler=sampler, metadata={})
        (kept,) = kept_in_memory([store], cfg, sharing=1, each=lambda: None)
        assert kept.made is not None and kept.made.order == Order((16,), 4, cfg.seed)
        for k in range(16):
            one, two = kept.made.next_train_batch(), sampler.batch("train", k)
            assert one.keys() == two.keys()
            assert all(np.array_equal(one[name], two[name]) for name in one)
