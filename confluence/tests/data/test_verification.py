"""No run learns from a damaged store, or asks one, unless it is told to; and none is read twice."""

from __future__ import annotations

import dataclasses
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import pytest
import small
from headwater.store import verified
from rank_processes import Service

import confluence
from confluence.cli.main import main
from confluence.data import verification
from confluence.ranks.watchdog import Watchdog
from confluence.runs.backtest import backtest
from confluence.runs.load import load
from confluence.runs.pipeline import Database, build_store
from confluence.runs.pretrain import pretrain
from confluence.runs.run import Run
from confluence.watch.log import FILE
from confluence.watch.log_events import first_event

SMALL: dict[str, Any] = {**small.SMALL, "steps": 2, "num_threads": 1}
OPTIONS = small.words(SMALL)
DAMAGE = "a section has a wrong checksum (in '"


@pytest.fixture(scope="module")
def trained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return confluence.train(shop_store, task="churn", out=out, **SMALL)


@pytest.fixture
def damaged(shop_store: Path, tmp_path: Path) -> Path:
    """The store with a byte flipped where columns' vectors are: what was learned from is the same
    build."""
    store = Path(shutil.copytree(shop_store, tmp_path / "store"))
    (file,) = store.rglob("categorical_embeddings.bin")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return store


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The store, for each time that one is read; nothing is remembered by this machine."""
    found: list[str] = []

    class Noting(verified._Progress):
        def __call__(self, done: int, total: int) -> None:
            found.append(self._path)
            super().__call__(done, total)

    monkeypatch.setattr(verified, "_Progress", Noting)
    monkeypatch.setattr(verified, "_verified", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


@pytest.mark.parametrize(
    "command", ["train", "pretrain", "evaluate", "predict", "probe", "backtest"]
)
def test_a_damaged_store_is_one_clear_error(
    command: str, trained: Run, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model of a damaged store was trained, scored and asked as any other."""
    out = tmp_path / "out"
    arguments = {
        "train": ["train", str(damaged), "--task", "churn", "--out", str(out), *OPTIONS],
        "pretrain": ["pretrain", str(damaged), "--out", str(out), *OPTIONS],
        "evaluate": ["evaluate", str(trained.out), "--store", str(damaged)],
        "predict": ["predict", str(trained.out), "--store", str(damaged), "--split", "val"],
        "probe": ["probe", str(trained.out), "--store", str(damaged)],
        # Behind the store comes a horizon that no task has.
        "backtest": ["backtest", str(damaged), "--task", "churn", "--out", str(out), *OPTIONS],
    }[command]
    quick = {
        "evaluate": ["--resamples", "0", "--no-trees"], "predict": ["--output", f"{out}.csv"],
        "probe": ["--resamples", "0", "--no-trees"],
        "backtest": ["--horizon-days", "-1"],
    }.get(command, [])  # fmt: skip
    assert main([*arguments, *quick]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"confluence: {DAMAGE}{damaged}/") and said.count("\n") == 1
    assert "/categorical_embeddings.bin', section 64.0, byte 128); build the store again" in said
    assert not out.exists()
    status = main([*arguments, *quick, "--no-verify"])
    said = capsys.readouterr().err
    if command == "backtest":
        assert said == "confluence: horizon_days is -1.0, expected a number of days above 0\n"
    else:
        assert status == 0 and "checksum" not in said


def test_no_file_of_a_store_may_be_damaged(trained: Run, shop_store: Path, tmp_path: Path) -> None:
    """Of metadata.json it is said before anybody wonders at what it says."""
    names = [p.relative_to(shop_store) for p in shop_store.rglob("*") if p.is_file()]
    assert len(names) > 20
    for number, name in enumerate(names):
        if name.name == ".lock":
            continue
        store = Path(shutil.copytree(shop_store, tmp_path / str(number)))
        data = bytearray((store / name).read_bytes())
        data[len(data) // 2] ^= 1
        (store / name).write_bytes(data)
        with pytest.raises(headwater.StoreError, match=rf"{re.escape(str(name))}'.*, byte \d+\)"):
            load(trained.out, store=store)
        shutil.rmtree(store)


def test_the_functions_take_the_same_words(
    trained: Run, damaged: Path, tmp_path: Path, shop_store: Path
) -> None:
    run = load(trained.out, store=damaged, verify="header")
    again = dataclasses.replace(run, out=tmp_path / "again")
    for ask in (
        lambda: load(trained.out, store=damaged),
        lambda: run.evaluate("val"),
        lambda: run.predict(split="val"),
        lambda: run.probe("val"),
        lambda: trained.predict(split="val", others=[again]),
        lambda: confluence.train(
            [shop_store, damaged], task="churn", trees=False, out=tmp_path / "a", **SMALL
        ),
        lambda: pretrain(damaged, out=tmp_path / "a", **SMALL),
        lambda: backtest(damaged, task="churn", out=tmp_path / "a", **SMALL),
    ):
        with pytest.raises(headwater.StoreError, match="a section has a wrong checksum"):
            ask()
    with pytest.raises(ValueError, match="verify is 'never', expected one of 'once', 'header'"):
        run.predict(split="val", verify="never")


def test_a_store_is_opened_once_for_each_thing_asked_for(
    trained: Run, shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation opened it 21 times and five samplers, a prediction six times."""
    opened: list[str] = []

    def counted(kind: str, init: Any) -> Any:
        def noting(self: Any, *arguments: Any, **options: Any) -> None:
            opened.append(kind)
            init(self, *arguments, **options)

        return noting

    for kind in (headwater.Store, headwater.Sampler):
        monkeypatch.setattr(kind, "__init__", counted(kind.__name__, kind.__init__))
    trained.evaluate("test", resamples=0)
    assert Counter(opened) == {"Store": 1, "Sampler": 3}  # the model's, the trees', a baseline's
    opened.clear()
    trained.evaluate("val", resamples=0, trees=False)
    trained.predict(split="test")
    trained.predict(keys=[1, 2], at="2025-01-01", path=tmp_path / "p.csv")
    assert Counter(opened) == {"Store": 3, "Sampler": 6}
    opened.clear()
    trained.evaluate("test", regime="frozen", resamples=0, trees=False)
    assert Counter(opened) == {"Store": 1, "Sampler": 3}  # one for the first time of the split


def test_each_thing_asked_for_reads_a_store_once_or_never(
    trained: Run, shop_store: Path, tmp_path: Path, readings: list[str]
) -> None:
    """It is opened a dozen times by an evaluation."""
    quick: dict[str, Any] = {"resamples": 0, "tree_share": 0.5}
    trained.evaluate("val", verify="header", **quick)
    trained.predict(split="val", verify="header")
    out = tmp_path / "run"
    confluence.train(shop_store, task="churn", trees=False, out=out, verify="header", **SMALL)
    assert readings == [] and not (tmp_path / "cache").exists()
    trained.evaluate("val", verify="full", **quick)
    assert readings == [str(shop_store)]
    trained.predict(split="val", verify="full", tree_share=0.5)
    assert len(readings) == 2
    # It is no part of a run: one that was started without goes on with it.
    confluence.train(
        shop_store, task="churn", trees=False, out=out, verify="full", resume=True, **SMALL
    )
    assert len(readings) == 3
    trained.predict(split="val")
    assert len(readings) == 3
    start = first_event(out / FILE) or {}
    assert "steps" in start["config"] and "verify" not in start["config"]


def test_a_store_that_is_there_and_damaged_is_built_again(
    tmp_path: Path, readings: list[str]
) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("id,note\n1,a few words\n2,some other words\n")
    said: list[str] = []

    def build(verify: str = "once") -> Path:
        schema = headwater.infer(str(tmp_path / "csv"))
        database = Database(source=str(tmp_path / "csv"), verify=verify)
        return build_store(database, schema, tmp_path, say=said.append)

    store = build(verify="header")
    assert readings == []
    (file,) = store.rglob("texts.bin")
    data = bytearray(file.read_bytes())
    data[128] ^= 1
    file.write_bytes(data)
    build(verify="header")
    assert said[-1] == f"{store} is up to date" and readings == []
    build()
    assert any("is damaged and is built again: a " in line for line in said)
    assert headwater.Store(store).verify() == []
    count = len(readings)
    build()
    assert said[-1] == f"{store} is up to date" and len(readings) == count


def test_run_hands_on_whether_it_verifies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[str] = []

    def pipeline(database: Database, *_: Any, **__: Any) -> None:
        given.append(database.verify)
        raise ValueError("far enough")

    monkeypatch.setattr("confluence.runs.pipeline.run_pipeline", pipeline)
    arguments = ["run", "sqlite:///d", "--metadata", "m.json", "--task", "t"]
    assert [main(arguments), main([*arguments, "--no-verify"])] == [1, 1]
    assert given == ["once", "header"]
    capsys.readouterr()


def test_a_rank_that_reads_or_waits_for_a_reading_is_not_silent(
    shop_store: Path, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    watchdog = Watchdog(
        Service(), rank=0, names=["rank 0"], timeout_s=1.0, end=lambda _: ended.set()
    )
    group = confluence.ranks.group.Group(watchdog=watchdog)
    monkeypatch.setattr(verification, "current", lambda: group)
    before = watchdog._beat_at
    time.sleep(0.1)
    verification.verified_stores([str(shop_store)], "once")
    assert readings and watchdog._beat_at > before + 0.05
    for _ in range(15):  # as a long reading does
        group.still()
        time.sleep(0.1)
    assert not ended.is_set()
    assert ended.wait(timeout=30)
