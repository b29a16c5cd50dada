"""Several ranks train what one trains: equal sums, losses and parameters; a stop, evaluations and a
resumption with another number of ranks in between. The ranks are processes, as in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headwater import SemanticType
from rank_processes import FIRST_PARTS, run_ranks
from small import SMALL, events, words

import confluence
from confluence.config import Config, ConfigError
from confluence.data.tasks import INPUT_FIELDS, to_device
from confluence.folder import checkpoint
from confluence.ranks.group import ALONE, AgreedStop, Group
from confluence.ranks.launch import free_port
from confluence.ranks.stop import StopRequest
from confluence.scores.scoring import Predictions
from confluence.training import context_choice, guard, smoke
from confluence.training.step import Constants, GradientSums, StepRunner, first_state

CONFIG: dict[str, Any] = {
    "width": 16, "heads": 2, "layers": 1, "sequence_length": 32, "max_rows": 10, "batch_size": 8,
    "steps": 4, "accumulate": 2,
}  # fmt: skip
STEPPING = (
    FIRST_PARTS
    + f"sys.path.insert(0, {str(Path(__file__).parent)!r})"
    + """
from confluence.ranks.rendezvous import find_place
from confluence.ranks.group import Joined
from test_parallel import take_steps

with Joined(find_place({}, os.environ), collective_timeout_s=500.0) as group:
    take_steps(group, Path(sys.argv[2]))
"""
)


def share(batch: dict[str, Any], group: Group) -> dict[str, Any]:
    """A rank's part of a synthetic batch, with its own texts under its own ids."""
    B = CONFIG["batch_size"]
    part = {
        name: value[group.rank :: group.size] if value.shape[0] == B else value
        for name, value in batch.items()
        if name in INPUT_FIELDS
    }
    part["num_sequences"] = np.array([B // group.size], np.uint32)
    used, ids = np.unique(np.append(0, part["text_embed_ids"]), return_inverse=True)
    table = np.zeros_like(batch["text_batch_embeddings"])
    table[: used.size] = batch["text_batch_embeddings"][used]
    part["text_batch_embeddings"] = table
    part["text_embed_ids"] = ids[1:].reshape(part["text_embed_ids"].shape).astype(np.uint32)
    return part


def step_runner(cfg: Config, group: Group) -> StepRunner:
    return StepRunner(
        cfg, [Constants(smoke.synthetic_tables(), smoke.synthetic_scales(cfg))],
        text_width=smoke.TEXT_WIDTH, category_limit=smoke.CATEGORIES_PER_COLUMN, group=group,
    )  # fmt: skip


def take_steps(group: Group, out: Path) -> None:
    """Two steps of two batches; writes what each came to."""
    cfg = Config(**CONFIG)
    runner = step_runner(cfg, group)
    state = group.broadcast(first_state(cfg, smoke.TEXT_WIDTH))
    found: dict[str, Any] = {}
    batches = [share(smoke.synthetic_batch(cfg, SemanticType(1), seed=s), group) for s in range(4)]
    for step in range(2):
        sums = runner._zeros(state.params)
        for part in range(2):
            batch = group.shards(to_device(batches[2 * step + part]))
            sums = runner._add(sums, state, batch, runner._stores[0])
        found |= {f"{step} gradient {n}": np.array(v) for n, v in sums.gradients.items()}
        found |= {f"{step} loss": np.array(sums.loss), f"{step} weight": np.array(sums.weight)}
        state, _ = runner._apply(state, sums)
        found |= {
            f"{step} parameter {n}": np.array(v) for n, v in group.local(state.params).items()
        }
    runner.assert_one_compilation()
    rows = Predictions(  # 64 bits must survive
        seed_index=np.arange(group.rank, 11, group.size, dtype=np.uint32),
        anchor_rows=np.arange(group.rank, 11, group.size, dtype=np.uint32),
        obs_times=2**60 + np.arange(group.rank, 11, group.size, dtype=np.int64),
        values=np.arange(group.rank, 11, group.size) / 3,
        probabilities=np.arange(group.rank, 11, group.size) / 3,
        null_probabilities=np.arange(group.rank, 11, group.size) / 3,
    )
    joined = group.joined(rows)
    found |= {
        f"row {name}": getattr(joined, name) for name in ("seed_index", "obs_times", "values")
    }
    np.savez(out / f"{group.size}-{group.rank}.npz", **found)


@pytest.fixture(scope="module")
def steps_of_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("steps")
    take_steps(ALONE, out)
    return dict(np.load(out / "1-0.npz"))


def assert_equal_to_rounding(found: Any, expected: Any, name: str) -> None:
    atol = 2e-5 * float(np.max(np.abs(expected)))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=atol, err_msg=name)


def assert_updates_are_those_of_one_process(found: dict[str, Any]) -> None:
    """One process that applies the sums of the ranks has their parameters after each step.

    The parameters of a whole step of one process are another matter: its sums differ from those of
    the ranks by rounding, and Muon makes all directions of a gradient equally long, those that
    rounding decides among them.
    """
    cfg = Config(**CONFIG)
    runner, state = step_runner(cfg, ALONE), first_state(cfg, smoke.TEXT_WIDTH)
    for step in range(2):
        sums = GradientSums(
            {n: found[f"{step} gradient {n}"] for n in state.params},
            found[f"{step} loss"], found[f"{step} weight"], np.zeros((), np.float32),
        )  # fmt: skip
        before = np.array(state.params["attention.query"])
        state, _ = runner._apply(state, sums)
        assert not np.array_equal(before, state.params["attention.query"])
        for name, expected in state.params.items():
            assert_equal_to_rounding(found[f"{step} parameter {name}"], expected, name)


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.release)])
def test_ranks_step_like_one_process_on_the_joined_batch(
    size: int, steps_of_one: dict[str, Any], tmp_path: Path
) -> None:
    place = {
        "CONFLUENCE_COORDINATOR": f"127.0.0.1:{free_port()}", "CONFLUENCE_PROCESSES": str(size)
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", STEPPING, str(Path(__file__).parents[1]), str(tmp_path)],
            env={**os.environ, **place, "CONFLUENCE_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=550)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, said
    found = [dict(np.load(tmp_path / f"{size}-{rank}.npz")) for rank in range(size)]
    for other in found[1:]:  # bit for bit the same everywhere
        assert [n for n, value in found[0].items() if not np.array_equal(value, other[n])] == []
    assert found[0].keys() == steps_of_one.keys()
    assert found[0]["0 weight"] == steps_of_one["0 weight"] == 2 * CONFIG["batch_size"]
    for name, expected in steps_of_one.items():
        if name.startswith(("0 gradient", "0 loss", "1 loss", "row")):
            assert_equal_to_rounding(found[0][name], expected, name)
    assert_updates_are_those_of_one_process(found[0])


# ---------------------------------------------------------------------------------- whole runs

STEPS = 10
TASKS = ("churn", "rating")
SETTINGS: dict[str, Any] = {
    **SMALL, "steps": STEPS, "cell_dropout": 0.1, "save_every": 4, "eval_every": 4, "log_every": 1,
    "collective_timeout_s": 500.0, "auxiliary_weight": 0.3, "mask_ratio": 0.3,
}  # fmt: skip
ASKED_TO_STOP = """
import signal
import confluence.training.step_counter

report = confluence.training.step_counter.RankLog.report

def report_and_ask(self, of_step):
    report(self, of_step)
    if of_step.step == 3 and os.environ["CONFLUENCE_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)

confluence.training.step_counter.RankLog.report = report_and_ask
"""


@pytest.mark.release
def test_a_signal_to_one_rank_stops_all_at_one_step_and_one_process_goes_on(
    shop_store: Path, other_store: Path, tmp_path: Path
) -> None:
    """With two stores by turns, one of two tasks, and masked cells beside them: the losses of one
    process."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    stores = [str(shop_store), str(other_store)]
    run = confluence.train(stores, task=TASKS, trees=False, out=whole, **SETTINGS)
    command = ["train", *stores, "--out", str(out), "--json", *words(SETTINGS)]
    command += [part for task in TASKS for part in ("--task", task)]
    stopped = run_ranks(2, command, before=ASKED_TO_STOP)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert stopped.stdout == ""  # nor what libraries print
    (step,) = checkpoint.saved_steps(out)[-1:]
    assert step in (5, 6, 7)  # votes are read two steps late, and reports one
    for rank in range(2):
        assert f"[rank {rank}] confluence: stopped by SIGTERM after step {step}" in stopped.stderr
    assert events(out, "start")[0]["ranks"] == 2
    assert [event["step"] for event in events(out, "stop")] == [step]
    found = checkpoint.load_record(out, step)
    of_other = (step + 1) // 3  # batches: it has one task of three
    assert found["samplers"]["counts"] == [step - of_other, of_other]
    shop, other = (s["streams"]["train"]["positions"] for s in found["samplers"]["samplers"])
    assert set(shop) == set(TASKS) and sum(shop.values()) == (step - of_other) * 8
    assert other == {"churn": of_other * 8}
    assert not [name for name in found["config"] if "rank" in name]

    again = confluence.train(stores, task=TASKS, trees=False, out=out, resume=True, **SETTINGS)
    for name, kind in (("train", "loss"), ("train", "gradient_norm")):
        expected = [event[kind] for event in events(whole, name)]
        np.testing.assert_allclose([e[kind] for e in events(out, name)], expected, rtol=1e-3)
    for kind in ("loss", "task_loss", "masked_loss"):
        losses = [[e[kind] for e in events(folder, "train")] for folder in (whole, out)]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert events(out, "resume")[0]["ranks"] == 1
    by_one, by_two = (events(folder, "evaluate")[:3] for folder in (whole, out))
    for alone, together in zip(by_one, by_two, strict=True):
        assert (alone["step"], together["step"]) == (4, 4)
        assert alone["task"] == together["task"]
        assert alone["scored"] == together["scored"] > 10
        for metric in {"auroc", "mae"} & set(alone["metrics"]):
            assert alone["metrics"][metric] == pytest.approx(together["metrics"][metric], abs=0.02)
    assert [event["task"] for event in by_one] == ["shop/churn", "rating", "other/churn"]
    assert {again.step, run.step} <= {4, 8, STEPS}  # the best on val
    assert checkpoint.saved_steps(out)[-1] == STEPS


GUARDED = """
from confluence.training import guard, context_choice, val_scores

guard.LEAST_STEPS = context_choice.LEAST_STEPS = 10
guard.SAMPLE, context_choice.LEAST_LABELS, val_scores.LEAST_SCORED = 15, 5, 5
"""


@pytest.mark.release
def test_ranks_choose_hops_and_weights_as_one_process_does(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a sample of which one rank has more than the other."""
    settings = {**SMALL, "max_hops": "auto", "steps": 30, "save_every": 0}
    command = [
        "train", str(shop_store), "--task", "subscribed", "--out", str(tmp_path / "two"),
        "--no-trees", *words(settings),
    ]  # fmt: skip
    done = run_ranks(2, command, before=GUARDED)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("contexts go ") == 1
    monkeypatch.setattr(guard, "LEAST_STEPS", 10)
    monkeypatch.setattr(context_choice, "LEAST_STEPS", 10)
    monkeypatch.setattr(guard, "SAMPLE", 15)
    monkeypatch.setattr(context_choice, "LEAST_LABELS", 5)
    run = confluence.train(
        shop_store, task="subscribed", out=tmp_path / "one", trees=False, **settings
    )
    found = {name: events(tmp_path / name, "evaluate") for name in ("one", "two")}
    assert min(map(len, found.values())) >= 7  # it may end early
    for alone, together in zip(found["one"][:7], found["two"][:7], strict=True):
        assert alone["step"] == together["step"] and alone["scored"] == together["scored"] == 15
        assert alone["metrics"]["auroc"] == pytest.approx(together["metrics"]["auroc"], abs=0.05)
    loaded = confluence.load(tmp_path / "two")
    assert loaded.config.max_hops == run.config.max_hops
    best = max(event["metrics"]["auroc"] for event in found["two"])
    (of_answer,) = (e["metrics"]["auroc"] for e in found["two"] if e["step"] == loaded.step)
    assert of_answer == best


KILLED = """
import signal
import confluence.watch.log, confluence.training.step_counter

def dying(kind, rank, step):
    report = kind.report

    def report_and_die(self, of_step):
        report(self, of_step)
        if of_step.step == step and os.environ.get("CONFLUENCE_RANK", "0") == rank:
            os.kill(os.getpid(), signal.SIGKILL)

    kind.report = report_and_die
"""


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:label_rows is 2, and task 'rating'")
def test_a_run_goes_on_with_more_ranks_whoever_was_killed(shop_store: Path, tmp_path: Path) -> None:
    """One process dies, then one of the two that go on, and four finish: the losses of one process,
    with all that is drawn for a batch or weighs its seeds."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    settings = {
        **SETTINGS, "staleness": (0.5, 90.0), "peer_labels": 2, "label_rows": 2,
        "half_life_days": 200.0, "child_counts": True, "save_every": 2,
        "eval_every": 0,
    }  # fmt: skip
    confluence.train(shop_store, task=["churn", "rating"], trees=False, out=whole, **settings)
    command = ["train", str(shop_store), "--task", "churn", "--task", "rating", "--out", str(out)]
    command += [*words(settings), "--resume"]
    died = subprocess.run(
        [
            sys.executable, "-c",
            f"import os, sys\n{KILLED}\ndying(confluence.watch.log.Log, '0', 3)\n"
            "from confluence.cli.main import main\nsys.exit(main(sys.argv[1:]))",
            *command,
        ],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert checkpoint.saved_steps(out)[-1] == 2
    died = run_ranks(
        2, command, before=f"{KILLED}\ndying(confluence.training.step_counter.RankLog, '1', 5)\n"
    )
    assert died.returncode != 0
    assert "rank 1" in died.stderr
    assert checkpoint.saved_steps(out)[-1] == 4
    done = run_ranks(4, command)
    assert done.returncode == 0, done.stderr
    assert [(e["step"], e["ranks"]) for e in events(out, "resume")] == [(2, 2), (4, 4)]
    by_step = {e["step"]: e for e in events(out, "train")}  # the later of two
    expected = events(whole, "train")
    assert sorted(by_step) == [e["step"] for e in expected]
    for kind, most in (("loss", 1e-4), ("task_loss", 1e-4), ("masked_loss", 1e-4)):
        found = [by_step[e["step"]][kind] for e in expected]
        np.testing.assert_allclose(found, [e[kind] for e in expected], rtol=most)


# ------------------------------------------------------------------------------- without ranks


def test_a_batch_that_cannot_be_dealt_is_refused() -> None:
    options = Group(rank=1, size=4).sampler_options(Config(batch_size=32))
    assert options == {
        "rank": 1, "world_size": 4, "local_world_size": 1, "default_batch_size": 8
    }  # fmt: skip
    with pytest.raises(ConfigError, match="batch_size is 30: 4 ranks need a multiple of 4"):
        Group(rank=1, size=4).sampler_options(Config(batch_size=30))


def test_a_group_of_one_changes_nothing() -> None:
    arrays = to_device(smoke.synthetic_batch(Config(**CONFIG), SemanticType.BOOLEAN))
    assert ALONE.shards(arrays) is arrays and ALONE.same(arrays) is arrays
    assert ALONE.tell([1, None]) == [1, None] and ALONE.gather(3) == [3]
    ALONE.check_same({"split_ratios": (0.8, 0.1, 0.1)})
    request = StopRequest()
    stop = AgreedStop(ALONE, request)
    assert not stop.ask()
    request.signal_number = signal.SIGTERM
    assert stop.ask() and stop.is_made()


def test_ranks_with_other_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "tell", lambda self, value: {**value, "steps": 7, "num_threads": 3})
    with pytest.raises(ConfigError, match=r"same: steps is 8 on rank 1 and 7 on rank 0$"):
        Group(rank=1, size=2).check_same({"steps": 8, "num_threads": None})
