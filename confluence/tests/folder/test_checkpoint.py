"""Checkpoints come back bit for bit, are whole or not there, and refuse what does not fit."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from confluence.config import Config
from confluence.data.stores import TaskPlace
from confluence.folder.checkpoint import (
    CheckpointError,
    DamagedCheckpointError,
    Keeper,
    Score,
    UnreadableCheckpointError,
    check_resume,
    check_store,
    find_step,
    from_parts,
    load_parts,
    load_record,
    load_weights,
    make_record,
    newest_whole,
    saved_steps,
    set_aside,
    store_paths,
    to_parts,
)
from confluence.runs.run_folder import clear_run
from confluence.training import smoke
from confluence.training.step import TrainState, first_state

METADATA: dict[str, Any] = {
    "name": "shop",
    "fingerprint": "abc",
    "text": {"embedder": "hash", "dim": smoke.TEXT_WIDTH, "count": 3},
}


def record_of(cfg: Config) -> dict[str, Any]:
    place = TaskPlace(store="shop.hw", name="churn", title="churn", moments={"mean": 1.5})
    return make_record(cfg, [place], {"shop.hw": METADATA})


@pytest.fixture
def state(cfg: Config) -> TrainState:
    """Every array is different, so that none can stand for another."""
    like = first_state(cfg, smoke.TEXT_WIDTH)
    leaves, tree = jax.tree.flatten(like)
    rng = np.random.default_rng(0)
    return TrainState(
        *jax.tree.unflatten(
            tree, [jnp.asarray(rng.integers(0, 99, leaf.shape), leaf.dtype) for leaf in leaves]
        )
    )


def parts_of(state: TrainState, losses: list[float]) -> dict[str, Any]:
    rest = {"optimizer": state.optimizer, "step": state.step}
    return to_parts(state.params, rest, losses)


def save(keeper: Keeper, cfg: Config, state: TrainState, step: int, value: float | None) -> None:
    score = None if value is None else Score("mae", -value, value)
    keeper.save(step, parts_of(state, [0.1] * step), record_of(cfg), score=score)


def test_a_checkpoint_that_cannot_be_written_is_one_error(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    keeper = Keeper(tmp_path)
    (tmp_path / "checkpoints").touch()  # a file is in the way
    with pytest.raises(CheckpointError, match=r"the checkpoint in '.*/4' cannot be written \(\w+E"):
        save(keeper, cfg, state, 4, None)


def test_a_pipe_in_a_checkpoint_is_damage_that_is_named(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    save(Keeper(tmp_path), cfg, state, 4, None)
    file = next(path for path in (tmp_path / "checkpoints" / "4").rglob("*") if path.is_file())
    file.unlink()
    os.mkfifo(file)
    said = f"is damaged: '{file}' is not a file"
    with pytest.raises(DamagedCheckpointError, match=re.escape(said)):
        load_record(tmp_path)


def test_a_checkpoint_comes_back_bit_for_bit(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    losses = [0.1, float(np.float32(1) / 3), 1e-30]
    record = {**record_of(cfg), "sampler": {"positions": {"churn": 2**40}}}
    Keeper(tmp_path).save(3, parts_of(state, losses), record)
    found = load_record(tmp_path)
    assert found == {**record, "config": found["config"], "step": 3, "score": None}
    assert Config.from_dict(found["config"]) == cfg
    like = first_state(cfg, smoke.TEXT_WIDTH)
    params, rest, read = from_parts(
        tmp_path, 3, (like.params, {"optimizer": like.optimizer, "step": like.step})
    )
    again = TrainState(params, rest["optimizer"], rest["step"])
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for saved, loaded in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        assert saved.dtype == loaded.dtype
        assert np.array_equal(saved, loaded)
    assert read == [float(np.float32(loss)) for loss in losses]
    weights = load_weights(tmp_path, found)
    assert all(np.array_equal(weights[name], state.params[name]) for name in state.params)
    name = next(iter(state.params))
    other = {name: np.empty((*state.params[name].shape, 2), np.float32)}
    with pytest.raises(CheckpointError, match=rf"has '{name}' of shape \(.*, this version expects"):
        load_parts(tmp_path, 3, {"params": {**state.params, **other}})


def test_the_last_ones_and_the_best_one_stay(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    keeper = Keeper(tmp_path)
    for step, value in ((1, -5.0), (2, -3.0), (3, None), (4, -4.0), (5, None)):
        save(keeper, cfg, state, step, value)
    assert saved_steps(tmp_path) == [2, 4, 5]
    keeper = Keeper(tmp_path)  # another process goes on
    assert not keeper.is_best(Score("mae", 3.0, -3.0))
    assert keeper.is_best(Score("mae", 2.9, -2.9))
    save(keeper, cfg, state, 6, -1.0)
    assert saved_steps(tmp_path) == [5, 6]
    save(keeper, cfg, state, 7, None)
    save(keeper, cfg, state, 8, None)
    assert saved_steps(tmp_path) == [6, 7, 8]
    assert [find_step(tmp_path, which) for which in ("last", "best", 7)] == [8, 6, 7]
    with pytest.raises(CheckpointError, match="no checkpoint of step 5, it has 6, 7, 8"):
        find_step(tmp_path, 5)


def test_without_a_score_there_is_no_best(cfg: Config, state: TrainState, tmp_path: Path) -> None:
    save(Keeper(tmp_path), cfg, state, 1, None)
    with pytest.raises(CheckpointError, match="has a score: train with eval_every"):
        find_step(tmp_path, "best")


def test_a_run_goes_on_only_with_the_same_store_embedder_task_and_model(cfg: Config) -> None:
    record, out = record_of(cfg), Path("runs/churn")
    check_resume(out, record, record_of(cfg.replace(num_threads=1, log_every=3, save_every=7)))
    place = TaskPlace(store="shop.hw", name="rating", title="rating")
    wanted = make_record(
        cfg.replace(width=32), [place], {"shop.hw": {**METADATA, "fingerprint": "def"}}
    )
    wanted["embedder"] = {"name": "bert", "dim": 384}
    with pytest.raises(CheckpointError) as caught:
        check_resume(out, record, wanted)
    assert str(caught.value) == (
        "the run in 'runs/churn' cannot be resumed: the task was 'churn' and is 'rating'; the"
        " store's fingerprint was 'abc' and is 'def'; the embedder was {'name': 'hash', 'dim': 16}"
        " and is {'name': 'bert', 'dim': 384}; width was 16 and is 32. Change that back, choose"
        " another folder, or start again (`train` and `pretrain`: with --overwrite)"
    )


def test_a_store_is_found_from_wherever_its_run_is_opened(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path was recorded from the folder that the training began in, so that another folder's
    store of that name was taken."""
    for folder in ("here", "there"):
        (tmp_path / folder / "shop.hw").mkdir(parents=True)
    out = tmp_path / "run"
    monkeypatch.chdir(tmp_path / "here")
    record = record_of(cfg)
    monkeypatch.chdir(tmp_path / "there")
    assert store_paths(out, record) == [str(tmp_path / "here" / "shop.hw")]
    (tmp_path / "here" / "shop.hw").rmdir()
    with pytest.raises(CheckpointError, match=r"here/shop\.hw', which is not there: say where"):
        store_paths(out, record)
    record["stores"][0]["path"] = "shop.hw"  # as earlier versions have it
    assert store_paths(out, record) == ["shop.hw"]


def test_a_store_that_moved_with_its_run_is_found(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "shop.hw").mkdir(parents=True)
    (tmp_path / "work" / "runs" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    place = TaskPlace(store="shop.hw", name="churn", title="churn", moments={})
    record = make_record(cfg, [place], {"shop.hw": METADATA}, out=Path("runs/a"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").rename(tmp_path / "moved")
    beside = str((tmp_path / "moved" / "shop.hw").resolve())
    assert store_paths(Path("moved/runs/a"), record) == [beside]
    (tmp_path / "work" / "shop.hw").mkdir(parents=True)  # another project, where this one was
    assert store_paths(Path("moved/runs/a"), record) == [str(tmp_path / "work" / "shop.hw")]
    (tmp_path / "moved" / "shop.hw" / "manifest.json").write_text('{"fingerprint": "abc"}')
    assert store_paths(Path("moved/runs/a"), record) == [beside]


def test_another_text_embedder_is_refused_with_the_reason(cfg: Config) -> None:
    record = record_of(cfg)
    check_store(record, METADATA)
    other = {**METADATA, "text": {"embedder": "bert", "dim": 384}}
    with pytest.raises(CheckpointError, match="embedded by 'bert' with width 384, the model was"):
        check_store(record, other)
    with pytest.warns(UserWarning, match="rebuilt since training"):
        check_store(record, {**METADATA, "fingerprint": "def"})


def test_a_folder_without_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_record(tmp_path)
    with pytest.raises(CheckpointError, match="there is no such folder"):
        load_record(tmp_path / "nowhere")


def test_a_folder_of_checkpoints_elsewhere_is_let_go(tmp_path: Path) -> None:
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    (scratch / "4").mkdir(parents=True)
    out.mkdir()
    (out / "checkpoints").symlink_to(scratch)
    clear_run(out, overwrite=True)
    assert list(out.iterdir()) == [] and (scratch / "4").exists()


def flip(path: Path, at: float) -> None:
    """Flip a bit at this share of a file."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 16
    path.write_bytes(content)


def read_all(out: Path, like: TrainState, step: int) -> list[Any]:
    """All that a run goes on from."""
    rest = {"optimizer": like.optimizer, "step": like.step}
    record = load_record(out, step)
    return [record, *jax.tree.leaves(from_parts(out, step, (like.params, rest)))]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's own
def test_a_flipped_bit_never_comes_back_as_other_weights_or_another_record(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    """12 of 84 did: arrays are compressed without a checksum, and the record is plain JSON."""
    save(Keeper(tmp_path), cfg, state, 1, 0.5)
    whole = read_all(tmp_path, state, 1)
    refused = 0
    files = sorted(path for path in (tmp_path / "checkpoints" / "1").rglob("*") if path.is_file())
    for path in files:
        content = path.read_bytes()
        if not content:
            continue
        flip(path, 0.5)
        try:
            found = read_all(tmp_path, state, 1)
        except CheckpointError:
            refused += 1
        else:  # Orbax does not read this byte
            assert found[0] == whole[0], path
            assert all(map(np.array_equal, found[1:], whole[1:])), path
        path.write_bytes(content)
    assert refused > 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's own
def test_a_changed_number_of_the_record_is_noticed(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    save(Keeper(tmp_path), cfg, state, 1, 0.5)
    file = next((tmp_path / "checkpoints" / "1" / "record").rglob("*"))
    text = file.read_text(encoding="utf-8")
    assert '"value": -0.5' in text
    file.write_text(text.replace('"value": -0.5', '"value": -0.4'), encoding="utf-8")
    with pytest.raises(DamagedCheckpointError, match=r"damaged: its record has another"):
        load_record(tmp_path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's own
def test_the_newest_whole_checkpoint_is_where_a_run_resumes(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    keeper = Keeper(tmp_path)
    for step in (1, 2, 3):
        save(keeper, cfg, state, step, -float(step))
    folder = tmp_path / "checkpoints"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (folder / "1" / "record" / "metadata").write_text("{")  # an old one is in nobody's way
        assert newest_whole(tmp_path) == 3
        keeper = Keeper(tmp_path)
        assert not keeper.is_best(Score("mae", 2.0, -2.0)) and find_step(tmp_path, "best") == 2
    shutil.rmtree(folder / "3" / "training")
    with pytest.warns(UserWarning, match=r"step 3 in .* is damaged: .*: resuming at step 2$"):
        assert newest_whole(tmp_path) == 2
    set_aside(tmp_path, 2)
    assert saved_steps(tmp_path) == [1, 2] and (folder / "3.damaged" / "params").is_dir()
    save(Keeper(tmp_path), cfg, state, 3, None)
    assert newest_whole(tmp_path) == 3
    for step in (2, 3):
        shutil.rmtree(folder / str(step) / "params")
    with pytest.raises(DamagedCheckpointError, match="no checkpoint of the run is whole, start ag"):
        newest_whole(tmp_path)
    assert newest_whole(tmp_path / "nowhere") is None


def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(
    cfg: Config, state: TrainState, tmp_path: Path
) -> None:
    """Where the system refuses a file, here for a link to itself, a run stops and says why: it does
    not go back to an older checkpoint and rename this one. An old one is in nobody's way."""
    keeper = Keeper(tmp_path)
    for step in (1, 2):
        save(keeper, cfg, state, step, float(step))
    old, new = (tmp_path / "checkpoints" / str(step) / "record" / "metadata" for step in (1, 2))
    old.unlink()
    old.symlink_to(old)
    assert newest_whole(tmp_path) == find_step(tmp_path, "best") == 2
    kept = new.rename(tmp_path / "kept")
    new.symlink_to(new)
    with pytest.raises(UnreadableCheckpointError, match=r"step 2 .* cannot be read: .*/metadata"):
        newest_whole(tmp_path)
    new.unlink()
    kept.rename(new)
    assert newest_whole(tmp_path) == 2
