"""A run that was killed or stopped and goes on gives the same bits as one that was left alone.

The run that dies is a process of its own, which sends itself the signal at a step that the test
chooses; the checkpoint before, the log and the one that goes on are read here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import SMALL, events, opened, words

import confluence
from confluence.cli.main import main
from confluence.config import Config, preset
from confluence.data.tasks import open_sampler
from confluence.data.verification import open_store
from confluence.folder import checkpoint
from confluence.runs.pipeline import train_or_load
from confluence.training.session import percent
from confluence.training.step import first_state

STEPS = 12
SETTINGS: dict[str, Any] = {
    **SMALL, "steps": STEPS, "cell_dropout": 0.1, "save_every": 4, "log_every": 3,
    "staleness": (0.5, 90.0), "peer_labels": 2, "half_life_days": 200.0, "auxiliary_weight": 0.3,
    "learning_rate": 3e-2,
}  # fmt: skip
CFG = preset(SETTINGS["preset"], **{n: v for n, v in SETTINGS.items() if n != "preset"})

DYING = """
import json, os, signal, sys
import confluence.cli.main, confluence.watch.log, orbax.checkpoint

number, step, in_save = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "in_save"
report, begin = confluence.watch.log.Log.report, orbax.checkpoint.JsonCheckpointHandler.async_save
saves = []

def report_and_die(self, of_step):
    report(self, of_step)
    if of_step.step == step and not in_save:
        os.kill(os.getpid(), number)

async def save_and_die(*arguments, **options):
    saves.append(1)
    if in_save and len(saves) == 2:
        os.kill(os.getpid(), number)
    return await begin(*arguments, **options)

confluence.watch.log.Log.report = report_and_die
orbax.checkpoint.JsonCheckpointHandler.async_save = save_and_die
sys.exit(confluence.cli.main.main(sys.argv[4:]))
"""


LOSING_ITS_TERMINAL = """
import fcntl, os, pathlib, sys, termios, time
import confluence.cli.main, confluence.watch.log

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
report = confluence.watch.log.Log.report

def report_and_wait(self, of_step):
    report(self, of_step)
    if of_step.step == 5:
        pathlib.Path(sys.argv[1]).touch()
        while os.isatty(2):
            time.sleep(0.02)
        time.sleep(0.5)

confluence.watch.log.Log.report = report_and_wait
sys.exit(confluence.cli.main.main(sys.argv[2:]))
"""


# A parent that is under nohup itself has its children ignore the signal.
NOT_UNDER_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"


def arguments(store: Path, out: Path) -> list[str]:
    return ["train", str(store), "--task", "subscribed", "--out", str(out), *words(SETTINGS)]


def die(
    number: int, step: int, command: list[str], *, in_save: bool = False
) -> subprocess.CompletedProcess[str]:
    place = [str(number), str(step), "in_save" if in_save else "at_step"]
    return subprocess.run(
        [sys.executable, "-c", NOT_UNDER_NOHUP + DYING, *place, *command],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def train(store: Path, out: Path, **changes: Any) -> confluence.Run:
    return confluence.train(
        store, task="subscribed", trees=False, out=out, **{**SETTINGS, **changes}
    )


state_of = functools.cache(first_state)


def everything(out: Path) -> dict[str, Any]:
    """All that the last checkpoint of a run holds."""
    record = checkpoint.load_record(out)
    like = state_of(Config.from_dict(record["config"]), int(record["embedder"]["dim"]))
    rest = {"optimizer": like.optimizer, "step": like.step}
    params, rest, losses = checkpoint.from_parts(out, record["step"], (like.params, rest))
    arrays = {"params": params, "rest": rest}
    return {
        **checkpoint.named_leaves(arrays), "losses": np.array(losses),
        "sampler": record["samplers"],
    }  # fmt: skip


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert [n for n, value in one.items() if not np.array_equal(value, other[n])] == []


def train_lines(out: Path) -> dict[int, float]:
    """Mean losses of the log by step; where a step comes twice, the later line."""
    return {line["step"]: line["loss"] for line in events(out, "train")}


@pytest.fixture(scope="module")
def whole(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(shop_store, out)
    return out


# Within a window of the log, and between checkpoints.
@pytest.mark.parametrize("step", [7, pytest.param(10, marks=pytest.mark.release)])
def test_a_run_killed_at_any_step_goes_on_with_the_same_losses(
    step: int, whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    died = die(signal.SIGKILL, step, arguments(shop_store, out))
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert checkpoint.saved_steps(out)[-1] == step // 4 * 4
    assert main([*arguments(shop_store, out), "--resume"]) == 0
    assert_same(everything(out), everything(whole))
    assert train_lines(out) == train_lines(whole)
    assert [event["step"] for event in events(out, "resume")] == [step // 4 * 4]


def test_a_kill_while_saving_leaves_the_last_good_checkpoint(
    whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    died = die(signal.SIGKILL, 0, arguments(shop_store, out), in_save=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(list((out / "checkpoints").iterdir())) == 2  # that of step 8 was under way
    assert checkpoint.saved_steps(out) == [4]
    said: list[str] = []
    train_or_load(opened(shop_store), "subscribed", out, CFG, say=said.append)
    assert said == [f"resuming the training on subscribed after step 4 of {STEPS}"]
    assert_same(everything(out), everything(whole))


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGINT, "Ctrl-C"),
        pytest.param(signal.SIGTERM, "SIGTERM", marks=pytest.mark.release),
        pytest.param(signal.SIGHUP, "SIGHUP", marks=pytest.mark.release),
    ],
)
def test_signals_that_ask_for_a_stop_save_and_say_how_to_go_on(
    number: int, name: str, whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped = die(number, 5, arguments(shop_store, out))
    assert stopped.returncode == 128 + number, stopped.stderr
    (step,) = checkpoint.saved_steps(out)[-1:]
    assert step in (6, 7)  # metrics of step 5 are read while step 6 runs
    assert (
        f"confluence: stopped by {name} after step {step} of {STEPS} and saved in '{out}': the same"
        " command resumes from there (`train` and `pretrain`: with --resume)\n"
    ) in stopped.stderr
    assert main(arguments(shop_store, out)) == 1  # not by accident
    with pytest.warns(UserWarning, match=f"is at step {step} of {STEPS}; --resume finishes it"):
        confluence.load(out)
    train(shop_store, out, resume=True)
    assert_same(everything(out), everything(whole))
    assert train_lines(out) == train_lines(whole)


def test_a_terminal_that_closes_stops_a_run_which_saves(
    whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out, mark = tmp_path / "run", tmp_path / "mark"
    ours, theirs = pty.openpty()
    died = subprocess.Popen(
        [
            sys.executable, "-c", NOT_UNDER_NOHUP + LOSING_ITS_TERMINAL, str(mark),
            *arguments(shop_store, out),
        ],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while not mark.exists() and died.poll() is None:
        if select.select([ours], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # the other end is closed
                shown += os.read(ours, 65536)
    os.close(ours)
    assert died.wait(timeout=300) == 128 + signal.SIGHUP, shown
    (step,) = checkpoint.saved_steps(out)[-1:]
    assert step in (6, 7)
    train(shop_store, out, resume=True)
    assert_same(everything(out), everything(whole))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's own
def test_a_run_whose_newest_checkpoint_is_damaged_resumes_from_the_one_before(
    whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    steps = checkpoint.saved_steps(out)
    newest = out / "checkpoints" / str(steps[-1])
    for path in (newest / "params").rglob("d/*"):  # the arrays' bytes
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(
        confluence.CheckpointError, match=rf"--checkpoint \({steps[-2]}\), or train"
    ):
        confluence.load(out)
    with pytest.warns(UserWarning, match=rf"step {STEPS} .* damaged: .*: resuming at step 8$"):
        train(shop_store, out, resume=True)
    assert_same(everything(out), everything(whole))
    assert newest.with_name(f"{STEPS}.damaged").is_dir()


@pytest.mark.release
def test_nohup_keeps_a_run_going(whole: Path, shop_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    place = [str(int(signal.SIGHUP)), "5", "at_step"]
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + DYING
    done = subprocess.run(
        [sys.executable, "-c", code, *place, *arguments(shop_store, out)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_same(everything(out), everything(whole))


def test_resume_starts_a_run_and_opens_a_finished_one(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    first = train(shop_store, out, resume=True)
    log = (out / "log.jsonl").read_text()
    again = train(shop_store, out, resume=True, num_threads=1)
    assert again.step == first.step == STEPS
    assert (out / "log.jsonl").read_text() == log
    for name, value in first.params.items():
        assert np.array_equal(again.params[name], value)
    with pytest.raises(confluence.CheckpointError, match="steps was 12 and is 13"):
        train(shop_store, out, steps=13, resume=True)
    with pytest.raises(confluence.CheckpointError, match="the task was 'subscribed' and is 'chur"):
        confluence.train(shop_store, task="churn", trees=False, out=out, resume=True, **SETTINGS)
    with pytest.raises(ValueError, match="give one of them"):
        train(shop_store, out, resume=True, overwrite=True)
    record = checkpoint.load_record(out)
    record["stores"][0]["fingerprint"] = "another"
    monkeypatch.setattr(checkpoint, "load_record", lambda *arguments: record)
    with pytest.raises(confluence.CheckpointError, match="fingerprint was 'another' and is '"):
        train(shop_store, out, resume=True)


def test_sizes_of_batches_and_the_share_of_contexts_at_a_cap_are_said(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def leave(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("confluence.training.session.fit", leave)  # nothing is compiled
    with open_sampler(open_store(shop_store), CFG, "subscribed", num_prefetch=0) as sampler:
        shape = sampler.flat_shape()
    assert 0 < shape["capped"] < shape["sampled"]
    for attention in ("rows", "dense"):
        out = tmp_path / attention
        with pytest.raises(KeyboardInterrupt):
            train(shop_store, out, attention=attention)
        (sizes,) = events(out, "start")[0]["batches"].values()
        said = capsys.readouterr().err
        share = sizes["capped_share"]
        assert share == shape["capped"] / shape["sampled"]
        assert f"subscribed: {share:.0%} of contexts reach the 32 cells of" in said
        assert f"a batch has {sizes['cells']:,} cells" in said
        assert ("slots" in sizes) == (attention == "rows") == ("attention by rows" in said)
        assert ("subscribed: most contexts are cut: --sequence-length 64" in said) == (share > 0.5)
    rows = events(tmp_path / "rows", "start")[0]["batches"]["subscribed"]
    assert rows["slots"] % rows["rows"] == 0 and rows["slots"] >= rows["cells"]


def test_a_training_names_the_tables_that_it_cannot_show(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def leave(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("confluence.training.session.fit", leave)
    for hops, is_far in ((0, True), (None, False)):
        with pytest.raises(KeyboardInterrupt):
            train(shop_store, tmp_path / str(hops), max_hops=hops)
        said = capsys.readouterr().err
        assert ("subscribed: contexts end before " in said) == is_far
        assert ("--max-hops 1 goes further" in said) == is_far


def test_a_small_share_is_not_said_to_be_none_nor_a_large_one_all() -> None:
    """0.4 % was 0%."""
    said = [percent(share) for share in (0.0, 0.0002, 0.004, 0.012, 0.986, 0.996, 1.0)]
    assert said == ["0%", "under 1%", "under 1%", "1%", "99%", "over 99%", "100%"]


def test_the_best_on_val_stays_and_can_be_evaluated(shop_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(shop_store, out, eval_every=2, save_every=0)
    evaluations = events(out, "evaluate")
    assert all(0.5 < event["alive_share"] <= 1.0 for event in evaluations)
    scores = {e["step"]: e["metrics"]["auroc"] for e in evaluations}
    assert len(scores) == 6
    best = max(scores, key=lambda step: (scores[step], -step))
    saved = [
        step
        for step in scores
        if scores[step] > max([-1.0, *(scores[s] for s in scores if s < step)])
    ]
    assert checkpoint.saved_steps(out) == sorted({best, *sorted({*saved, STEPS})[-2:]})
    run = confluence.load(out, which="best")
    assert run.step == best
    assert run.evaluate("val")["metrics"]["auroc"] == scores[best]
    assert confluence.load(out).step == best
    assert confluence.load(out, which="last").step == STEPS


@pytest.mark.release
def test_accumulated_batches_of_a_store_train_like_larger_ones(
    whole: Path, shop_store: Path, tmp_path: Path
) -> None:
    out, halves = tmp_path / "run", {"batch_size": 4, "accumulate": 2}
    train(shop_store, out, **halves)
    expected = everything(out)
    losses = expected["losses"][:4]
    np.testing.assert_allclose(losses, everything(whole)["losses"][:4], rtol=1e-3)
    state = checkpoint.load_record(out)["samplers"]["samplers"][0]["streams"]["train"]
    assert state["positions"]["subscribed"] == 8 * STEPS and state["batches"] == 2 * STEPS

    shutil.rmtree(out / "checkpoints" / str(STEPS))
    train(shop_store, out, resume=True, **halves)
    assert [event["step"] for event in events(out, "resume")] == [8]
    assert_same(everything(out), expected)
