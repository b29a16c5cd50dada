"""A run's folder: whole files, and one training at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import confluence
from confluence.cli.main import main
from confluence.folder.files import held
from confluence.report.page import keep_result
from confluence.watch.log import FILE, Log, read_summary
from confluence.watch.log_events import read_events

HOLDING = """
import sys
from pathlib import Path
from confluence.folder.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_folder_that_another_process_trains_in_is_refused_until_that_ends(
    shop_store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(FileExistsError, match="another process trains in"):
            confluence.train(shop_store, task="churn", out=out, preset="tiny", resume=True)
        assert [path.name for path in out.iterdir()] == [".lock"]
    finally:
        other.kill()
        other.communicate()
    with held(out):  # what a killed process held is free
        assert (out / ".lock").exists()
    assert list(out.iterdir()) == []


def test_a_finished_run_is_opened_whoever_has_its_folder(shop_store: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "churn", "out": tmp_path, "preset": "tiny", "steps": 1}
    asked |= {"width": 16, "layers": 1, "resume": True}
    assert confluence.train(shop_store, **asked).step == 1
    with held(tmp_path):
        assert confluence.train(shop_store, **asked).step == 1


def test_no_run_is_written_into_the_store_that_it_learns_from(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints and a log were written beside the store's files."""
    (tmp_path / "link").symlink_to(shop_store)
    before = sorted(shop_store.rglob("*"))
    for out in (shop_store, shop_store / "run", tmp_path / "link" / "run"):
        for command in (
            ["train", "--task", "churn"],
            ["pretrain"],
            ["backtest", "--task", "churn"],
        ):
            asked = [command[0], str(shop_store), *command[1:], "--out", str(out)]
            assert main([*asked, "--preset", "tiny"]) == 1
            said = capsys.readouterr().err
            assert f"'{out}' is the store '{shop_store}' or lies in it: choose another" in said
    assert sorted(shop_store.rglob("*")) == before


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path: Path) -> None:
    with pytest.raises(KeyError), held(tmp_path / "none"):
        raise KeyError
    assert not (tmp_path / "none").exists()
    with held(tmp_path / "some"):
        (tmp_path / "some" / "kept").touch()
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["kept"]


def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with held(tmp_path), held(tmp_path):
        pass


def test_a_result_that_cannot_be_kept_is_not_lost(tmp_path: Path) -> None:
    result = {"split": "val", "step": 3}
    with pytest.warns(UserWarning, match="the page does not show the result: .* has no log"):
        keep_result(tmp_path, tmp_path, "evaluation", result, {})
    assert json.loads((tmp_path / "evaluation-val.json").read_text()) == result
    with pytest.warns(UserWarning, match="the result is not kept in .*: .*No such file"):
        keep_result(tmp_path, tmp_path / "gone" / "task", "evaluation", result, {})


def test_a_line_that_was_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    whole = '{"event": "train", "step": 2, "loss": 0.5}\n{"event": "train", "step": 4, "lo'
    (tmp_path / FILE).write_text(whole)
    with Log(tmp_path, steps=6, every=2, contexts_per_step=8, losses=[0.5, 0.5]) as log:
        log.event("resume", step=2, config={})
        log.event("end", steps=6)
    assert [event["event"] for event in read_events(tmp_path / FILE)] == ["train", "resume", "end"]
    with (tmp_path / FILE).open("a") as file:
        file.write('{"event": "en')
    assert read_summary(tmp_path)["steps"] == 6


def test_a_full_disk_does_not_take_the_place_of_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("confluence.watch.log.draw_losses", full)
    options = {"steps": 6, "every": 2, "contexts_per_step": 8, "losses": [0.5]}
    with pytest.raises(KeyError, match="no such part"), Log(tmp_path, **options):
        raise KeyError("no such part")
    with pytest.raises(OSError, match="No space left"), Log(tmp_path, **options):
        pass
