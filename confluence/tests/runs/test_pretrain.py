"""Runs that learn masked cells alone, and runs that start with their weights."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_processes import run_ranks
from small import events, words

from confluence.cli.main import main
from confluence.config import Config, ConfigError
from confluence.data.tasks import Alive, TaskError, open_seeds
from confluence.data.verification import open_store
from confluence.folder import checkpoint
from confluence.folder.checkpoint import CheckpointError, load_record
from confluence.report.tables import describe_evaluation
from confluence.runs.load import load
from confluence.runs.pretrain import pretrain
from confluence.runs.probe import find_task_place
from confluence.runs.run import Run
from confluence.runs.train import train
from confluence.training.masked_cell_score import HeldOut, evaluate_held_out
from confluence.training.step import first_state
from confluence.training.warm_start import check_start, start_from

TINY: dict[str, Any] = {
    "preset": "tiny", "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 8,
    "batch_size": 4, "num_threads": 1, "log_every": 1,
}  # fmt: skip
TABLES = ("orders", "reviews")


@pytest.fixture(scope="module")
def pretrained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(
        shop_store, out=tmp_path_factory.mktemp("pre") / "run", steps=24, eval_every=12,
        seed_tables=TABLES, learning_rate=3e-3, **TINY,
    )  # fmt: skip


def test_the_held_out_loss_of_masked_cells_falls(pretrained: Run) -> None:
    with pytest.raises(ValueError, match="masked cells, which has no task and no regime"):
        pretrained.evaluate("val", task="subscribed", regime="frozen")
    result = pretrained.evaluate("val")
    assert result["contexts"] > 0
    assert result["types"]["numerical"]["cells"] > 0
    losses = [event["loss"] for event in events(pretrained.out, "evaluate")]
    assert len(losses) == 2
    assert min(losses) == pytest.approx(result["loss"], rel=1e-4)  # the best weights answer
    kept = json.loads((pretrained.out / "evaluation-val-rolling.json").read_text())
    assert kept["loss"] > 0 and kept["visible_until"] is None
    assert {event["regime"] for event in events(pretrained.out, "evaluate")} == {"rolling"}
    first = np.mean([event["loss"] for event in events(pretrained.out, "train")[:5]])
    assert result["loss"] < first


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
    pretrained: Run, shop_store: Path, tmp_path: Path
) -> None:
    again = tmp_path / "run"
    shutil.copytree(pretrained.out, again)
    shutil.rmtree(again / "checkpoints" / "24")
    more = {**TINY, "seed_tables": TABLES, "learning_rate": 3e-3, "eval_every": 12}
    with pytest.raises(CheckpointError, match=r"mask_ratio was 0\.15 and is 0\.2"):
        pretrain(shop_store, out=again, steps=24, resume=True, mask_ratio=0.2, **more)
    run = pretrain(shop_store, out=again, steps=24, resume=True, **more)
    assert len(events(run.out, "resume")) == 1
    for name, value in pretrained.params.items():
        assert np.array_equal(run.params[name], value), name


def test_a_task_s_run_starts_with_the_weights(
    pretrained: Run, shop_store: Path, tmp_path: Path
) -> None:
    """All but the biases of heads, which start at the task's base rates."""
    cfg = Config(**{k: v for k, v in TINY.items() if k != "preset"})
    first = first_state(cfg, 256, {"heads.null": -3.0})
    started = start_from(first, pretrained.out, cfg, 256)
    for name, value in started.params.items():
        expected = first.params if name.endswith(".bias") and "heads" in name else None
        expected = pretrained.params if expected is None else expected
        assert np.array_equal(value, expected[name]), name
    assert "heads.text.weight" not in started.params
    run = train(
        shop_store, task="subscribed", out=tmp_path / "run", steps=2,
        init_from=str(pretrained.out), auxiliary_weight=0.3, **TINY,
    )  # fmt: skip
    for line in events(run.out, "train"):
        assert line["masked_loss"] > 0
        parts = line["task_loss"] + 0.3 * line["masked_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
    assert "Loss of the task and of masked cells" in (run.out / "run.html").read_text()
    moved = np.abs(run.params["attention.query"] - pretrained.params["attention.query"]).max()
    assert moved < 0.1  # two steps from there, where another start would be far
    assert run.evaluate("val")["metrics"]["auroc"] is not None
    assert len(run.predict(split="train")) > 0  # no cell of which is masked


def test_another_start_is_refused_before_anything_is_removed(
    pretrained: Run, shop_store: Path, tmp_path: Path
) -> None:
    out, own = tmp_path / "run", {"preset": "tiny", "steps": 1, "width": 32}
    train(shop_store, task="subscribed", out=out, **own)
    left = sorted(path for path in out.rglob("*") if path.is_file())
    asked = {"task": "subscribed", "out": out, "overwrite": True, **own}
    with pytest.raises(CheckpointError, match=r"has another model: 'attention.gate' has shape \("):
        train(shop_store, init_from=str(pretrained.out), **asked)
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        train(shop_store, init_from=str(tmp_path / "misspelt"), **asked)
    with pytest.raises(CheckpointError, match="the run that this one would replace"):
        train(shop_store, init_from=str(out), **asked)
    assert sorted(path for path in out.rglob("*") if path.is_file()) == left
    record = {**load_record(out), "embedder": {"name": "hash", "dim": 64}}
    with pytest.raises(CheckpointError, match="read texts embedded by"):
        check_start(pretrained.out, record, out)


def test_the_command_tells_the_losses_by_type(
    pretrained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(pretrained.out), "--split", "val"]) == 0
    said = capsys.readouterr().out
    assert "masked cells on val, rolling, " in said
    assert "numerical" in said


def test_settings_that_cannot_be_together_are_named(shop_store: Path, tmp_path: Path) -> None:
    for settings, message in (
        ({"mask_ratio": 0.0}, "mask_ratio is 0.0, must be in"),
        ({"auxiliary_weight": -1.0}, "auxiliary_weight is -1.0, must be"),
        ({"objective": "cells"}, "objective is 'cells'"),
        ({"seed_tables": ("orders",)}, "seed_tables need objective 'masked_cells'"),
        ({"objective": "masked_cells", "label_rows": 2}, "label_rows need objective 'task'"),
        ({"objective": "masked_cells", "auxiliary_weight": 1.0}, "auxiliary_weight needs"),
    ):
        with pytest.raises(ConfigError, match=message):
            Config(**settings)
    with pytest.raises(ValueError, match="confluence pretrain"):
        train(shop_store, task="device", out=tmp_path / "run", objective="masked_cells", **TINY)
    with pytest.raises(ValueError, match="either tasks or seed_tables"):
        pretrain(shop_store, out=tmp_path / "run", tasks=["device"], seed_tables=TABLES, **TINY)


def test_contexts_of_train_are_scored_whole(pretrained: Run) -> None:
    """The loss is that of a run without dropout, of which contexts of train would lose cells."""
    dropping = pretrained.config.replace(cell_dropout=0.5)
    result = dataclasses.replace(pretrained, config=dropping).evaluate("train")
    assert result["contexts"] > 0
    assert result["loss"] == pretrained.evaluate("train")["loss"]


def test_a_split_without_contexts_has_no_loss(shop_store: Path) -> None:
    class Empty:
        def num_seeds(self, split: str) -> int:
            return 0

    held_out = HeldOut(Config(**{k: v for k, v in TINY.items() if k != "preset"}), None)  # type: ignore[arg-type]
    result = evaluate_held_out([("s", held_out.sums({}, Empty(), "val"))], "val", "2025-01-01")
    assert (result["regime"], result["visible_until"]) == ("frozen", "2025-01-01")
    assert result["loss"] is None
    assert result["contexts"] == 0
    assert "stores" not in result


# -------------------------------------------------------------------------------- several stores


SEVERAL: dict[str, Any] = {
    **TINY, "seed_tables": TABLES, "batch_size": 4, "steps": 8, "eval_every": 4, "mask_ratio": 0.3,
    "save_every": 4, "collective_timeout_s": 500.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def of_two(shop_store: Path, other_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(
        [shop_store, other_store], out=tmp_path_factory.mktemp("two") / "run",
        store_weights=[3, 1], **SEVERAL,
    )  # fmt: skip


def alive_share_of_val(run: Run) -> float | None:
    """Of the batches of all its stores."""
    alive = Alive()
    for path in run.stores:
        with open_seeds(open_store(path), run.config, TABLES) as sampler:
            deque(alive.counted(sampler.epoch("val")), maxlen=0)
    return alive.share()


def test_two_stores_are_learned_by_weight_and_scored_apart_and_together(
    of_two: Run, shop_store: Path, other_store: Path
) -> None:
    record = checkpoint.load_record(of_two.out)
    assert record["samplers"]["counts"] == [6, 2]
    assert events(of_two.out, "start")[0]["store_weights"] == [3, 1]
    again = load(of_two.out)
    assert again.seeds == (TABLES, TABLES)
    result = again.evaluate("val")
    assert [own["store"] for own in result["stores"]] == [str(shop_store), str(other_store)]
    counts, losses = zip(*[(own["contexts"], own["loss"]) for own in result["stores"]], strict=True)
    assert counts[0] > counts[1] > 0 and counts[0] + counts[1] == result["contexts"]
    assert result["loss"] == pytest.approx(np.average(losses, weights=counts), rel=1e-9)
    for name, whole in result["types"].items():
        parts = [own["types"][name] for own in result["stores"]]
        assert whole["cells"] == sum(part["cells"] for part in parts)
    while_training = events(of_two.out, "evaluate")[-1]
    assert while_training["step"] == 8
    assert while_training["loss"] == pytest.approx(result["loss"], rel=1e-4)
    assert [own["contexts"] for own in while_training["stores"]] == list(counts)
    assert while_training["alive_share"] == alive_share_of_val(of_two)
    assert find_task_place(again, "subscribed").store == str(shop_store)
    assert find_task_place(again, "shop/subscribed").title == "subscribed"
    assert find_task_place(again, "other/churn").store == str(other_store)
    twins = dataclasses.replace(again, stores=(str(shop_store), str(shop_store)))
    with pytest.raises(TaskError, match="two of the run's stores are 'shop': rename one"):
        find_task_place(twins, "subscribed")
    with pytest.raises(TaskError, match="which 'churn'\\? the run's stores have"):
        find_task_place(again, "churn")
    said = describe_evaluation(result)
    assert any(f"{counts[1]:,} contexts of '{other_store}'" in line for line in said)


@pytest.mark.release
def test_two_ranks_learn_masked_cells_of_two_stores_as_one_process_does(
    of_two: Run, shop_store: Path, other_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["pretrain", str(shop_store), str(other_store), "--store-weights", "3,1"]
    command += ["--out", str(out), "--json"]
    command += words(SEVERAL)
    told = run_ranks(2, command)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["steps"] == 8
    run = load(out)
    assert events(run.out, "start")[0]["ranks"] == 2
    for name, kinds in (("train", ("loss", "gradient_norm")), ("evaluate", ("loss", "contexts"))):
        for kind in kinds:
            expected = [event[kind] for event in events(of_two.out, name)]
            np.testing.assert_allclose(
                [e[kind] for e in events(run.out, name)], expected, rtol=1e-4
            )


@pytest.mark.release
def test_two_ranks_evaluate_masked_cells_as_one_process_does(of_two: Run) -> None:
    told = run_ranks(2, ["evaluate", str(of_two.out), "--split", "val", "--json"])
    assert told.returncode == 0, told.stderr
    found, expected = json.loads(told.stdout), of_two.evaluate("val")
    for one, other in zip([found, *found["stores"]], [expected, *expected["stores"]], strict=True):
        assert one["contexts"] == other["contexts"] > 0
        np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-5)


def test_a_run_of_other_stores_or_shares_does_not_go_on(
    of_two: Run, shop_store: Path, other_store: Path
) -> None:
    stores = [shop_store, other_store]
    for given, message in (
        (
            {"store_weights": [1, 1]},
            r"weights of the stores were \[3.0, 1.0\] and are \[1.0, 1",
        ),
        ({"seed_tables": ("orders",)}, r"the seeds of the stores were \[\['orders', 'reviews'\]"),
    ):
        more: dict[str, Any] = {"store_weights": [3, 1], **SEVERAL, **given}
        with pytest.raises(CheckpointError, match=message):
            pretrain(stores, out=of_two.out, resume=True, **more)
    again = pretrain(stores, out=of_two.out, resume=True, store_weights=[3, 1], **SEVERAL)
    for name, value in of_two.params.items():
        assert np.array_equal(again.params[name], value), name


def test_stores_and_seeds_that_do_not_fit_are_named(
    shop_store: Path, other_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores, free = [shop_store, other_store], {"preset": "tiny"}
    for given, message in (
        ({"store_weights": [1]}, "store_weights are 1, expected 2 numbers above 0, one for each"),
        ({"store_weights": [1, 0]}, "store_weights are 1, 0, expected 2 numbers above 0"),
        ({"store_weights": [np.inf, 1]}, "store_weights are inf, 1, expected 2 numbers above 0"),
        ({"tasks": []}, "none of the tasks is asked for"),
        ({"tasks": ["churn", "chrun"]}, "no store has 'chrun' among its tasks"),
        ({"tasks": ["subscribed"]}, f"store '{other_store}' has none of the tasks subscribed"),
        ({"seed_tables": ("order",)}, f"store '{shop_store}' has none of the tables order"),
        ({"overwrite": True, "resume": True}, "give one of them"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrain(stores, out=tmp_path / "run", **free, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="each once"):
        pretrain([shop_store, shop_store], out=tmp_path / "run", preset="tiny")
    with pytest.raises(ValueError, match="no task 'chrun', did you mean"):
        pretrain(shop_store, tasks=["chrun"], out=tmp_path / "run", preset="tiny")
    command = ["pretrain", *map(str, stores), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit):
        main([*command, "--store-weights", "2,one"])
    assert "--store-weights: invalid float,... value: '2,one'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
