"""A pack trains as live batches do, bit for bit and without the store, or it is refused."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from rank_processes import run_ranks
from small import SMALL, events, opened, words

import confluence
from confluence.cli.main import main
from confluence.config import Config, preset
from confluence.data.stores import Mixture, OpenStore, find_places, open_stores
from confluence.data.tasks import (
    BATCH_SETTINGS,
    MASK_SETTINGS,
    batch_settings,
    open_sampler,
    open_seeds,
)
from confluence.data.verification import open_store
from confluence.folder import checkpoint
from confluence.packs import walk
from confluence.packs.pack import Pack, PackError
from confluence.packs.packed_store import packed_store
from confluence.packs.walk import available_memory, kept_in_memory, order_of, repeats_of
from confluence.training.step import first_state

TASKS = {"subscribed": 2.0, "next_order": 1.0}
STEPS = 6
SETTINGS: dict[str, Any] = {
    **SMALL, "steps": STEPS, "accumulate": 2, "batch_size": 4, "cell_dropout": 0.1,
    "staleness": (0.5, 90.0), "peer_labels": 2, "half_life_days": 200.0, "auxiliary_weight": 0.3,
    "eval_every": 3, "save_every": 3, "log_every": 1,
}  # fmt: skip
# An epoch of few batches; both tests have these settings and compile once.
LARGE: dict[str, Any] = {"accumulate": 1, "batch_size": 64, "steps": 14, "eval_every": 0}
CFG = preset(SETTINGS["preset"], **{n: v for n, v in SETTINGS.items() if n != "preset"})


def settings(**changes: Any) -> dict[str, Any]:
    return {**SETTINGS, **changes}


@pytest.fixture(scope="module")
def pack(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two tasks, for a run of 6 steps of two batches. Its store is not there any more."""
    folder = tmp_path_factory.mktemp("prebatch")
    shutil.copytree(shop_store, folder / "store")
    made = confluence.prebatch(
        folder / "store", task=list(TASKS), task_weights=TASKS, out=folder / "pack", **SETTINGS
    )
    assert (made["batches"], made["ranks"]) == (2 * STEPS, 1)
    shutil.rmtree(folder / "store")
    return folder / "pack"


@pytest.fixture(scope="module")
def live(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that samples as it trains."""
    out = tmp_path_factory.mktemp("live") / "run"
    confluence.train(
        shop_store, task=list(TASKS), task_weights=TASKS, trees=False, out=out, **SETTINGS
    )
    return out


state_of = functools.cache(first_state)


def everything(out: Path) -> dict[str, Any]:
    """All that the last checkpoint of a run holds: weights, optimizer, every loss, the place in
    the stream."""
    record = checkpoint.load_record(out)
    like = state_of(Config.from_dict(record["config"]), int(record["embedder"]["dim"]))
    rest = {"optimizer": like.optimizer, "step": like.step}
    params, rest, losses = checkpoint.from_parts(out, record["step"], (like.params, rest))
    return {
        **checkpoint.named_leaves({"params": params, "rest": rest}), "losses": np.array(losses),
        "samplers": record["samplers"],
    }  # fmt: skip


def assert_same(out: Path, other: Path) -> None:
    one, two = everything(out), everything(other)
    assert one.keys() == two.keys()
    assert [name for name in one if not np.array_equal(one[name], two[name])] == []
    for kind, keys in (("train", ("step", "loss")), ("evaluate", ("step", "task", "metrics"))):
        told = [
            {(e["step"], e.get("task")): [e[key] for key in keys] for e in events(run, kind)}
            for run in (out, other)
        ]
        assert told[0] and told[0] == told[1]


@pytest.fixture(scope="module")
def packed(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from the pack, with the settings that it was made with."""
    out = tmp_path_factory.mktemp("packed") / "run"
    run = confluence.train(prebatched=pack, trees=False, out=out)
    assert run.config == CFG and run.titles == tuple(TASKS)
    return out


def test_a_pack_trains_without_its_store_as_live_batches_do(
    pack: Path, packed: Path, live: Path
) -> None:
    assert_same(packed, live)
    (start,) = events(packed, "start")
    about = start["prebatched"][0]
    assert (about["from"], about["path"], about["batches"]) == ("pack", str(pack), 2 * STEPS)
    (end,) = events(packed, "end")
    assert end["bound_by"] == "prebatched"


def test_what_needs_the_store_says_that_it_is_not_there(
    packed: Path, pack: Path, shop_store: Path
) -> None:
    run = confluence.train(prebatched=pack, trees=False, out=packed, resume=True)  # which is done
    with pytest.raises(headwater.StoreError, match="store' is not there; a pack"):
        run.evaluate("val", task="subscribed")
    with pytest.raises(headwater.StoreError, match="store' is not there; a pack"):
        run.predict(split="val", task="subscribed")
    with pytest.raises(confluence.CheckpointError, match=f"is not there .the pack '{pack}' can"):
        confluence.load(packed)
    again = confluence.load(packed, store=shop_store)
    assert again.evaluate("val", task="subscribed", trees=False, resamples=0)["scored"] > 0


@pytest.mark.parametrize(("first", "then"), [("pack", "pack"), ("pack", "live"), ("live", "pack")])
def test_a_run_goes_on_from_its_middle_with_either(
    first: str, then: str, pack: Path, packed: Path, live: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(live if first == "live" else packed, out)
    shutil.rmtree(out / "checkpoints" / str(STEPS))
    if then == "pack":
        confluence.train(shop_store, prebatched=pack, trees=False, out=out, resume=True)
    else:
        confluence.train(
            shop_store,
            task=list(TASKS),
            task_weights=TASKS,
            trees=False,
            out=out,
            resume=True,
            **SETTINGS,
        )
    assert_same(out, live)
    assert [event["step"] for event in events(out, "resume")] == [3]


def test_epochs_repeat_in_a_new_order_and_a_run_goes_on_within_them(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = settings(**LARGE, save_every=7)
    made = confluence.prebatch(
        shop_store, task="subscribed", epochs=2, out=tmp_path / "pack", **small
    )
    assert made["epochs"] == 2 and made["batches"] < 12
    capsys.readouterr()
    out = tmp_path / "run"
    confluence.train(prebatched=tmp_path / "pack", trees=False, out=out)
    said = [line for line in capsys.readouterr().err.splitlines() if "epochs repeat" in line]
    assert said == [
        f"14 steps take 14 train batches, and {made['batches']} were made: from step"
        f" {made['batches'] + 1} on their 2 epochs repeat in a new order of batches"
    ]
    whole = everything(out)
    shutil.rmtree(out / "checkpoints" / "14")
    with pytest.raises(
        confluence.CheckpointError,
        match=rf"the batches that repeat were {made['batches']} of 2 epochs and are none",
    ):
        confluence.train(shop_store, task="subscribed", trees=False, out=out, resume=True, **small)
    confluence.prebatch(shop_store, task="subscribed", epochs=1, out=tmp_path / "one", **small)
    with pytest.raises(confluence.CheckpointError, match=r"of 2 epochs and are \d of 1 epochs"):
        confluence.train(prebatched=tmp_path / "one", trees=False, out=out, resume=True)
    confluence.train(prebatched=tmp_path / "pack", trees=False, out=out, resume=True)
    again = everything(out)
    assert [name for name in whole if not np.array_equal(whole[name], again[name])] == []


# ---- what does not fit -------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    "seed": 7, "split_seed": 5, "split_ratios": (0.6, 0.2, 0.2), "train_on_val": True,
    "batch_size": 8, "accumulate": 1, "sequence_length": 48, "max_rows": 12, "max_hops": 1,
    "child_width": 3, "child_order": "uniform", "child_counts": True, "identifier_cells": "all",
    "label_rows": 2, "peer_labels": 0, "context_labels": "none", "staleness": None,
    "cell_dropout": 0.2, "visible_until": "2025-01-01", "objective": "masked_cells",
    "mask_ratio": 0.3, "max_targets_per_type": 3, "auxiliary_weight": 0.0,
    "cell_budget": 3,
}  # fmt: skip
NEEDED = {  # with some of them
    "train_on_val": {"eval_every": 0},
    "objective": {"auxiliary_weight": 0.0, "half_life_days": None, "peer_labels": 0},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_pack_that_does_not_fit_is_refused_with_both_values(name: str, pack: Path) -> None:
    cfg = CFG.replace(**{name: OTHERS[name]}, **NEEDED.get(name, {}))
    shown = {"auxiliary_weight": "auxiliary_weight > 0"}.get(name, name)
    before, after = batch_settings(CFG)[shown], batch_settings(cfg)[shown]
    texts = [", ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in (after, before)]
    with pytest.raises(PackError) as caught:
        packed_store(pack, cfg)
    assert f"{shown}: the run has {texts[0]}, the pack {texts[1]}" in str(caught.value)


def test_every_setting_that_a_sampler_is_opened_with_is_compared(shop_store: Path) -> None:
    assert {*OTHERS} == {*BATCH_SETTINGS, *MASK_SETTINGS, "auxiliary_weight"} - {"seed_tables"}

    read = set()
    names = {"hop_limit": "max_hops", "label_row_limit": "label_rows", "contexts": "batch_size"}

    class Watched(Config):
        def __getattribute__(self, name: str) -> Any:
            if sys._getframe(1).f_code.co_name == "open_sampler":
                read.add(names.get(name, name))
            return super().__getattribute__(name)

    with open_sampler(open_store(shop_store), Watched(**CFG.to_dict()), "subscribed"):
        pass
    own = {"num_prefetch", "num_threads", "masks_cells", "past"}
    assert read - own == {*BATCH_SETTINGS, *MASK_SETTINGS}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"names": ["subscribed"]}, "tasks: the run has subscribed, the pack next_order, subscrib"),
        (
            {"names": ["next_order", "subscribed"], "weights": {"next_order": 3.0}},
            "task weights: the run has next_order 3, subscribed 1, the pack subscribed 2, next_ord",
        ),
    ],
)
def test_a_pack_of_other_tasks_is_refused(given: dict[str, Any], says: str, pack: Path) -> None:
    with pytest.raises(PackError, match=says):
        packed_store(pack, CFG, **given)


def test_settings_that_decide_no_batch_may_differ(pack: Path) -> None:
    free = {
        "width": 32, "heads": 1, "layers": 2, "steps": 9, "learning_rate": 1.0, "metric": "rmse",
        "num_threads": 1, "log_every": 3, "eval_every": 0, "half_life_days": None,
    }  # fmt: skip
    store = packed_store(
        pack, CFG.replace(**free), names=["next_order", "subscribed"], weights=TASKS
    )
    assert [place.name for place in store.places] == ["next_order", "subscribed"]
    assert [task.name for task in store.tasks] == ["next_order", "subscribed"]


def test_stores_that_a_pack_was_not_made_from_are_refused(
    pack: Path, shop_store: Path, other_store: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"prebatched": pack, "out": tmp_path / "run"}
    with pytest.raises(PackError, match=r"2 stores are given, and the pack .* is of one"):
        confluence.train([shop_store, other_store], **options)
    found = headwater.Store(other_store).fingerprint
    was = headwater.Store(shop_store).fingerprint
    with pytest.raises(PackError, match=f"has the fingerprint {found}, the pack .* with {was}"):
        confluence.train(other_store, **options)
    with pytest.raises(PackError, match="is a pack and not a store: give it with --prebatched"):
        confluence.train(pack, task="subscribed", trees=False, out=tmp_path / "run")
    with pytest.raises(ValueError, match="lies in it"):
        confluence.train(prebatched=pack, trees=False, out=pack / "run")
    with pytest.raises(ValueError, match="a pack has the batches already"):
        confluence.train(prebatched=pack, trees=False, out=tmp_path / "run", prebatch="memory")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"objective": "masked_cells"}, PackError, "a pack is of tasks"),
        ({"prebatch": "memory"}, ValueError, "leave it out of a pack"),
        ({"epochs": 0}, ValueError, "epochs is 0, expected at least 1"),
        ({"ranks": 3}, ValueError, "batch_size is 32: 3 ranks need a multiple of 3"),
        ({"task": "no"}, confluence.TaskError, "no task 'no'"),
    ],
)
def test_what_cannot_be_packed_is_refused_before_anything_is_written(
    changes: dict[str, Any], error: type[Exception], says: str, shop_store: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        confluence.prebatch(
            shop_store, **{"task": "subscribed", "out": tmp_path / "pack", **changes}
        )
    with pytest.raises(PackError, match="a pack is of one store"):
        confluence.prebatch([shop_store], task="subscribed", out=tmp_path / "pack")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lies in it"):
        confluence.prebatch(shop_store, task="subscribed", out=shop_store / "pack")
    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_has_no_room_is_refused_with_both_sizes(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluence.packs.prebatch.free_on_disk", lambda folder: 10_000)
    with pytest.raises(PackError, match=r"about [\d.]+ kB, and 10 kB are free there: take"):
        confluence.prebatch(shop_store, task="subscribed", out=tmp_path / "pack", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verify", ["once", "header"])
def test_a_damaged_batch_is_never_trained_on(verify: str, pack: Path, tmp_path: Path) -> None:
    copied = tmp_path / "pack"
    shutil.copytree(pack, copied)
    offset = int(Pack.open(copied).batches(0).index["offset"][4])
    with (copied / "batches-0.bin").open("r+b") as file:
        file.seek(offset + 70)
        byte = file.read(1)
        file.seek(offset + 70)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(PackError, match=r"batches-0.bin' is damaged: batch 4 \(bytes"):
        confluence.train(prebatched=copied, trees=False, out=tmp_path / "run", verify=verify)
    # Two batches are a step, and the next step's first is fetched while one runs.
    assert (tmp_path / "run").exists() == (verify == "header")
    if verify == "header":
        assert [event["step"] for event in events(tmp_path / "run", "train")] in ([], [1])


# ---- several ranks -----------------------------------------------------------------------------


def test_two_ranks_train_from_a_pack_as_one_process_does(
    live: Path, shop_store: Path, tmp_path: Path
) -> None:
    made = confluence.prebatch(
        shop_store, task=list(TASKS), task_weights=TASKS, ranks=2, out=tmp_path / "pack", **SETTINGS
    )
    assert (made["batches"], made["ranks"]) == (2 * STEPS, 2)
    with pytest.raises(PackError, match="ranks: the run has 1, the pack 2"):
        confluence.train(prebatched=tmp_path / "pack", trees=False, out=tmp_path / "run")
    done = run_ranks(
        2, ["train", "--prebatched", str(tmp_path / "pack"), "--out", str(tmp_path / "run")]
    )
    assert done.returncode == 0, done.stderr
    for kind, name in (("train", "loss"), ("evaluate", "scored")):
        told = [[event[name] for event in events(out, kind)] for out in (tmp_path / "run", live)]
        np.testing.assert_allclose(told[0], told[1], rtol=2e-3)
    assert events(tmp_path / "run", "start")[0]["ranks"] == 2


# ---- a kill ------------------------------------------------------------------------------------

DYING = """
import json, os, signal, sys
from pathlib import Path
import confluence
from confluence.packs.pack import BatchWriter, Pack, PackError
import confluence.packs.prebatch, confluence.packs.unfinished

store, out, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
parent, seen, limit, child = str(out.parent), 0, 0, None

def step():
    global seen
    seen += child == 0
    if seen == limit:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(event, arguments):
    if event.split(".")[0] in ("open", "os") and any(
        str(a).startswith(parent) for a in arguments if isinstance(a, (str, Path))
    ):
        step()

fsync, append = os.fsync, BatchWriter.append
os.fsync = lambda file: (step(), fsync(file), step())
BatchWriter.append = lambda self, batch: (append(self, batch), step())
sys.addaudithook(watch)

while True:
    limit += 1
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        confluence.prebatch(store, out=out, overwrite=True, **options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    found = []
    for folder in sorted(os.listdir(parent)):
        try:
            pack = Pack.open(Path(parent) / folder)
            pack.batches(0).verify(lambda done, total: None)
            found.append([folder, len(pack.batches(0))])
        except PackError:
            found.append([folder, None])
    print(json.dumps([limit, killed, status, found]), flush=True)
    if not killed:
        break
"""


@pytest.mark.parametrize("is_there", [False, True])
def test_a_kill_at_any_step_of_the_write_leaves_nothing_that_opens(
    is_there: bool, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "packs" / "pack"
    out.parent.mkdir()
    options = {"task": "subscribed", "epochs": 1, **SMALL, "batch_size": 128, "num_threads": 1}
    if is_there:
        confluence.prebatch(shop_store, out=out, **options)
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(shop_store), str(out), json.dumps(options)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) > 20 and [killed for _, killed, *_ in told] == [True] * (len(told) - 1) + [
        False
    ]
    assert told[-1][2:] == [0, [["pack", told[-1][3][0][1]]]]
    count = told[-1][3][0][1]
    for _, _, _, found in told[:-1]:
        opened = {folder: batches for folder, batches in found if batches is not None}
        assert set(opened) <= {"pack", ".replaced-pack"} and set(opened.values()) <= {count}
    first = told[0][3]
    assert first == ([["pack", count]] if is_there else [])


# ---- in memory ---------------------------------------------------------------------------------


def test_batches_in_memory_are_those_of_live_training_and_never_change(
    live: Path, shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    confluence.train(
        shop_store, task=list(TASKS), task_weights=TASKS, trees=False, out=out, prebatch="memory",
        prebatch_epochs=3, **SETTINGS
    )  # fmt: skip
    assert_same(out, live)  # no more than the run takes
    (start,) = events(out, "start")
    about = start["prebatched"][0]
    assert (about["from"], about["batches"]) == ("memory", 2 * STEPS)
    assert about["bytes"] > 10_000 and about["seconds"] > 0
    assert "12 train batches (of 1 epoch) are in memory: " in capsys.readouterr().err


def test_batches_in_memory_have_the_same_hash_after_two_epochs(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    keep = walk.kept_in_memory

    def kept(*arguments: Any, **options: Any) -> tuple[OpenStore, ...]:
        stores = keep(*arguments, **options)
        seen.extend(store.made._batches for store in stores)
        seen.append([batches.checksum() for batches in seen])
        return stores

    monkeypatch.setattr("confluence.runs.train.kept_in_memory", kept)
    cfg = settings(**LARGE, save_every=0)
    confluence.train(
        shop_store, task="subscribed", trees=False, out=tmp_path / "run", prebatch="memory", **cfg
    )
    batches, before = seen
    assert 2 * len(batches) <= 14 and [batches.checksum()] == before
    losses = [event["loss"] for event in events(tmp_path / "run", "train")]
    assert len(set(losses)) == 14


@pytest.mark.parametrize("objective", ["task", "masked_cells"])
def test_batches_of_several_stores_and_of_masked_cells_are_kept_too(
    objective: str, shop_store: Path, other_store: Path
) -> None:
    cfg = preset("tiny", objective=objective, steps=7, batch_size=4, prebatch="memory")
    paths = [str(shop_store), str(other_store)]
    seen = []
    for is_kept in (False, True):
        with ExitStack() as stack:
            if objective == "task":
                known = opened(*paths)
                places = find_places(known, ["churn"], {"other/churn": 0.5})
                stores = stack.enter_context(open_stores(known, places, cfg))
            else:
                samplers = [
                    stack.enter_context(open_seeds(open_store(path), cfg, None)) for path in paths
                ]
                stores = tuple(
                    OpenStore(path=path, sampler=sampler, metadata={})
                    for path, sampler in zip(paths, samplers, strict=True)
                )
            assert repeats_of(stores, cfg) == [None, None]
            if is_kept:
                stores = kept_in_memory(stores, cfg, sharing=1, each=lambda: None)
            mixture = Mixture(stores)
            batches = [mixture.next_batch() for _ in range(7)]
            arrays = [{n: np.array(a) for n, a in {**b, **b.info}.items()} for b, _ in batches]
            seen.append((arrays, [store for _, store in batches], mixture.state_dict()))
    (live, kept) = seen
    assert live[1:] == kept[1:] and len(set(live[1])) == 2
    for one, two in zip(live[0], kept[0], strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


def test_batches_that_do_not_fit_into_memory_are_refused_before(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "available_memory", lambda: 50_000)
    with pytest.raises(
        MemoryError, match=r"12 train batches take about [\d.]+ kB, and of the 50 kB"
    ):
        confluence.train(
            shop_store,
            task="subscribed",
            trees=False,
            out=tmp_path / "run",
            prebatch="memory",
            **SETTINGS,
        )
    cfg = CFG.replace(prebatch="memory")
    with open_sampler(open_store(shop_store), cfg, "subscribed") as sampler:
        order = order_of(sampler, cfg, None)
        size = walk.estimated_bytes(sampler, order.count)
        store = OpenStore(path=str(shop_store), sampler=sampler, metadata={})
        monkeypatch.setattr(walk, "available_memory", lambda: int(size / walk.MEMORY_SHARE) + 1)
        (kept,) = kept_in_memory([store], cfg, sharing=1, each=lambda: None)
        assert kept.made is not None and abs(kept.made.about["bytes"] - size) < 0.2 * size
        with pytest.raises(MemoryError):
            kept_in_memory([store], cfg, sharing=2, each=lambda: None)


def test_a_pack_has_the_batches_that_the_run_takes_or_whole_epochs() -> None:
    class Seeds:
        world_size, shape = 1, {"batch_size": 4}

        def num_seeds(self, split: str) -> int:
            return {"train": 9}[split]

    cfg = preset("tiny", batch_size=4, steps=3)  # the third batch begins in epoch 0
    assert order_of(Seeds(), cfg, None).ends == (3,)
    assert order_of(Seeds(), cfg.replace(steps=4), None).ends == (3, 4)
    assert order_of(Seeds(), cfg.replace(steps=4, accumulate=2), None).ends == (4, 6, 8)
    assert order_of(Seeds(), cfg, 2).ends == (3, 5)


def test_the_memory_of_a_control_group_counts(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 1 << 20  # the machine's
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_memory(tmp_path) == 4000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) > 1 << 20


# ---- the commands ------------------------------------------------------------------------------


def test_the_commands_make_a_pack_and_train_from_it(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    few = {**SMALL, "steps": 2, "batch_size": 8}
    command = ["prebatch", str(shop_store), "--task", "subscribed", "--out", "p", *words(few)]
    assert main(command) == 0
    told = capsys.readouterr()
    assert (
        "'p' will have 2 train batches (of 1 epoch) and" in told.err
        and " of val: about " in told.err
    )
    assert told.out.startswith("packed 2 train batches of subscribed in ")
    assert "train with: confluence train --prebatched p --out RUN" in told.out
    assert main(command) == 1
    assert "'p' holds a pack: replace it with --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 2
    assert main(["train", "--prebatched", "p"]) == 0
    assert checkpoint.saved_steps(Path("runs/subscribed")) == [2]
    assert main(["train", "--prebatched", "p", "--preset", "tiny", "--out", "other"]) == 1
    assert "max_rows: the run has 16, the pack 10" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train"])
    assert "train needs STORE and --task, or a pack (--prebatched)" in capsys.readouterr().err


def test_packs_of_the_same_batches_have_the_same_bytes(shop_store: Path, tmp_path: Path) -> None:
    for name, threads in (("one", 1), ("two", 2)):
        confluence.prebatch(
            shop_store, task="subscribed", out=tmp_path / name, **settings(num_threads=threads)
        )
    for file in (tmp_path / "one").iterdir():
        if file.name != "manifest.json":  # it has num_threads
            assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    found = [Pack.open(tmp_path / name).about["settings"] for name in ("one", "two")]
    assert [about.pop("num_threads") for about in found] == [1, 2] and found[0] == found[1]
