"""Whole runs on a real store: train, evaluate, predict, load; and what stops them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import headwater
import jax
import numpy as np
import pytest
from small import SMALL

import confluence
from confluence.config import ConfigError
from confluence.data.tasks import TaskError, open_sampler
from confluence.data.verification import open_store
from confluence.runs.regime import regime_config

ROOT = Path(__file__).resolve().parents[3]
SHARED_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def trained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    out = tmp_path_factory.mktemp("runs") / "subscribed"
    return confluence.train(
        shop_store, task="subscribed", trees=False, out=out, steps=80, learning_rate=1e-2,
        batch_size=16,
        eval_every=40, **SMALL,
    )  # fmt: skip


def test_a_run_learns_and_is_scored_on_exactly_the_seeds_of_the_split(
    trained: confluence.Run, shop_store: Path
) -> None:
    result = trained.evaluate("test")
    with headwater.Sampler(shop_store, tasks=["subscribed"]) as sampler:
        expected = sampler.num_seeds("test", "subscribed")
    assert (result["seeds"], result["scored"], result["unlabelled"]) == (expected, expected, 0)
    assert result["metrics"]["auroc"] > 0.9, result
    baselines = result["baselines"]
    assert baselines["global_constant"]["metrics"]["auroc"] == 0.5
    assert baselines["own_columns"]["metrics"]["auroc"] > 0.9  # it has the column as well
    assert baselines["history"]["metrics"]["auroc"] > 0.9
    low, high = baselines["global_constant"]["difference_intervals"]["auroc"]
    assert 0.3 < low <= result["metrics"]["auroc"] - 0.5 <= high
    parts = [part["scored"] for part in result["history"].values()]
    assert sum(parts) == sum(part["scored"] for part in result["obs_time"]) == expected
    assert json.loads((trained.out / "evaluation-test-rolling.json").read_text()) == result
    page = (trained.out / "run.html").read_text()
    assert "subscribed on test" in page, "the page is made again"


def test_a_last_fit_learns_from_val_and_is_scored_on_test_alone(
    shop_store: Path, tmp_path: Path
) -> None:
    run = confluence.train(
        shop_store,
        task="subscribed",
        trees=False,
        out=tmp_path / "last",
        steps=1,
        train_on_val=True,
        **SMALL,
    )
    with headwater.Sampler(shop_store, tasks=["subscribed"]) as sampler:
        own = [sampler.num_seeds(split) for split in ("train", "val", "test")]
    result = run.evaluate("test", resamples=0, trees=False)
    assert result["scored"] == own[2] > 0
    with open_sampler(open_store(shop_store), run.config, "subscribed") as sampler:
        assert [sampler.num_seeds(split) for split in ("train", "val")] == [own[0] + own[1], 0]
    with pytest.raises(ConfigError, match="val was trained on"):
        run.evaluate("val")


def test_a_run_and_its_evaluations_show_themselves_in_2_kb(trained: confluence.Run) -> None:
    """They took 64,591 and 35,772 characters, most of them weights and intervals."""
    here = dataclasses.replace(trained, out=Path("runs/churn"))
    count = sum(value.size for value in trained.params.values())
    (store,) = trained.stores
    assert repr(here).splitlines() == [
        f"<Run 'runs/churn': step {trained.step} of 80, {count:,} parameters>",
        f"  task subscribed of {store}" if len(store) < 70 else repr(here).splitlines()[1],
    ]
    html = here._repr_html_()
    assert f"<td>subscribed</td><td>{store}</td>" in html and "<td>width</td><td>16</td>" in html
    evil = [
        dataclasses.replace(trained.place(), title=f"<b>{n}", store="\x1b[31m" + "ü" * 900)
        for n in range(113)
    ]
    several = dataclasses.replace(trained, places=tuple(evil), out=Path("ü" * 200))
    assert len(repr(several).encode()) < 2_000 and "\x1b" not in repr(several)
    assert repr(several).splitlines()[-1] == "  ... and 94 more tasks"
    assert "<b>" not in several._repr_html_() and "&lt;b&gt;0" in several._repr_html_()
    found = trained.evaluate("test", trees=False)
    assert isinstance(found, dict) and len(repr(found).encode()) < 2_000
    assert str(found).startswith("subscribed on test, rolling, ")
    assert "<td>model</td>" in found._repr_html_()
    (read,) = [other for other in trained.evaluations() if other == found]
    assert repr(read) == repr(found)


def test_the_regime_is_named_and_frozen_at_the_first_time_of_the_split(
    trained: confluence.Run,
) -> None:
    assert trained.evaluate("val", resamples=0, trees=False)["regime"] == "rolling"
    frozen = trained.evaluate("val", regime="frozen")
    assert (frozen["regime"], frozen["visible_until"]) == ("frozen", "2024-09-01T00:00:00")
    given = trained.evaluate("val", visible_until="2024-03-01", resamples=0, trees=False)
    assert given["visible_until"] == "2024-03-01"
    (other,) = {40, 80} - {trained.step}
    of_other = confluence.load(trained.out, which=other).evaluate("val", resamples=0, trees=False)
    names = [f"evaluation-val-{name}.json" for name in (
        "frozen-2024-03-01", "frozen-2024-09-01", "rolling", f"rolling-step-{other}"
    )]  # fmt: skip
    assert set(names) <= {path.name for path in trained.out.iterdir()}
    for result in (frozen, given, of_other):
        assert result in trained.evaluations()
    page = (trained.out / "run.html").read_text()
    for said in ("frozen at 2024-09-01", "frozen at 2024-03-01", f"weights of step {other}<"):
        assert said in page
    frozen = trained.config.replace(visible_until="2024-03-01")
    store = open_store(trained.place().store)
    assert regime_config(frozen, store, "subscribed", "val", "frozen", None) == frozen
    with pytest.raises(ValueError, match="split is 'dev', expected one of train, val, test"):
        trained.evaluate("dev")
    with pytest.raises(ValueError, match="a rolling regime has no visible_until"):
        trained.evaluate("val", regime="rolling", visible_until="2024-03-01")
    with pytest.raises(ValueError, match="resamples is -1, expected at least 0"):
        trained.evaluate("val", resamples=-1)


def test_a_probe_reads_what_training_put_into_the_representation(trained: confluence.Run) -> None:
    result = trained.probe("test", resamples=0, trees=False)
    assert result["metrics"]["auroc"] > 0.9
    assert result["metrics"]["auroc"] > result["baselines"]["untrained"]["metrics"]["auroc"]
    assert (trained.out / "probe-subscribed-test-rolling.json").is_file()


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The compilations of whatever happens inside."""
    found: list[str] = []

    def note(event: str, seconds: float, **more: Any) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def test_a_model_is_compiled_once_for_all_evaluations_and_predictions(
    trained: confluence.Run,
) -> None:
    with compilations() as first:
        jax.jit(lambda x: x + len(first))(1.0)
    assert len(first) == 1

    def ask() -> None:
        run = confluence.load(trained.out)
        run.evaluate("val")
        run.evaluate("test")
        run.predict(keys=[51, 54], at="2026-03-01", path=trained.out / "two.csv")

    ask()  # val, test and keys may have batches of three sizes
    with compilations() as later:
        ask()
    assert later == []


def test_predictions_are_made_for_splits_and_keys(
    trained: confluence.Run, shop_store: Path
) -> None:
    rows = trained.predict(split="test")
    assert {row["obs_time"] for row in rows} == {"2024-09-01T00:00:00", "2025-09-01T00:00:00"}
    store = headwater.Store(shop_store)
    truth = [store.row(store.find("customers", r["key"]))["cells"]["newsletter"] for r in rows]
    assert np.mean([r["prediction"] == t for r, t in zip(rows, truth, strict=True)]) > 0.8
    by_key = trained.predict(keys=[51, 54], at="2026-03-01")
    assert [(row["key"], row["obs_time"]) for row in by_key] == [
        (51, "2026-03-01T00:00:00"), (54, "2026-03-01T00:00:00"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="either a split or keys"):
        trained.predict()
    with pytest.raises(KeyError, match="999999"):
        trained.predict(keys=[999_999], at="2026-03-01")


def test_threads_ask_one_run_at_once_and_nothing_is_written(trained: confluence.Run) -> None:
    """22 of 96 calls failed: threads shared the name of an unfinished file (`predict-in-threads` of
    ../shared/data/field)."""
    keys = [51, 54]

    def contents() -> dict[str, int]:
        return {str(path): path.lstat().st_mtime_ns for path in trained.out.rglob("*")}

    before = contents()
    run = confluence.load(trained.out)
    alone = list(run.predict(keys=keys, at="2026-03-01"))
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(run.predict, keys=keys, at="2026-03-01") for _ in range(24)]
        assert [list(each.result()) for each in asked] == [alone] * 24
    assert contents() == before


def test_threads_that_write_one_file_leave_one_whole_file(
    trained: confluence.Run, tmp_path: Path
) -> None:
    answers = trained.predict(split="test")
    answers.write(tmp_path / "alone.csv")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(answers.write, [tmp_path / "p.csv"] * 48))
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.csv", "p.csv"]


@pytest.fixture(scope="module")
def of_three_types(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    return confluence.train(
        shop_store, task=["device", "next_order", "rating"], steps=6, **SMALL,
        trees=False, out=tmp_path_factory.mktemp("runs") / "three",
    )  # fmt: skip


@pytest.mark.parametrize("task", ["device", "next_order", "rating"])
def test_every_type_of_target_goes_all_the_way(task: str, of_three_types: confluence.Run) -> None:
    run = of_three_types
    result = run.evaluate("val", task=task)
    assert result["scored"] >= 9  # of next_order: windows that end after the data have no label
    assert all(value is not None for value in result["metrics"].values()), result
    for baseline in result["baselines"].values():
        assert set(baseline["metrics"]) == set(result["metrics"])
    answers = [row["prediction"] for row in run.predict(split="val", task=task)]
    assert len(answers) == result["seeds"]
    if task == "device":
        assert set(answers) <= {"desktop", "phone", "tablet"}
    elif task == "next_order":
        assert all(2020 < datetime.fromisoformat(answer).year < 2030 for answer in answers)
        assert result["metrics"]["mae_days"] < 1000
    else:
        assert all(1 <= answer <= 5 for answer in answers)
        assert result["null"] > 0 and result["null"] + result["scored"] == result["seeds"]


def test_what_is_missing_is_an_error_with_a_suggestion(shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no task 'chrn', did you mean 'churn'"):
        confluence.train(shop_store, task="chrn", trees=False, out=tmp_path, preset="tiny")
    with pytest.raises(headwater.HeadwaterError, match=r"none\.hw"):
        confluence.train(
            tmp_path / "none.hw", task="churn", trees=False, out=tmp_path, preset="tiny"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_trained_run_is_not_replaced_by_accident(
    trained: confluence.Run, shop_store: Path
) -> None:
    with pytest.raises(FileExistsError, match="holds a run: resume it with --resume"):
        confluence.train(
            shop_store, task="subscribed", trees=False, out=trained.out, steps=1, **SMALL
        )
    assert confluence.load(trained.out).config == trained.config


def test_a_second_ctrl_c_says_what_is_left(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)  # only taken note of
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("confluence.training.session.fit", interrupt)
    with pytest.raises(KeyboardInterrupt, match="after step 0 of 5: no model is saved, the log is"):
        confluence.train(
            shop_store, task="churn", trees=False, out=tmp_path / "run", steps=5, **SMALL
        )
    assert "KeyboardInterrupt" in (tmp_path / "run" / "log.jsonl").read_text()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.release
def test_rel_f1_with_its_label_tables(tmp_path: Path) -> None:
    data, metadata = SHARED_DATA / "rel-f1", ROOT / "examples" / "rel-f1.json"
    if not data.exists():
        pytest.skip(f"'{data}' is not here")
    store = tmp_path / "store"
    headwater.build(
        f"sqlite:///{data / 'rel-f1.sqlite'}", store, metadata=metadata, seeds_dir=data / "tasks"
    )
    run = confluence.train(
        store, task="driver-top3", trees=False, out=tmp_path / "run", steps=4, **SMALL
    )
    rolling = run.evaluate("val")
    frozen = run.evaluate("val", visible_until="2005-01-01", resamples=0, trees=False)
    assert rolling["scored"] == frozen["scored"] == 588
    assert frozen["regime"] == "frozen"
    hidden = run.evaluate("test")
    assert (hidden["scored"], hidden["unlabelled"]) == (0, 726)
    assert set(hidden["metrics"].values()) == {None}
    assert len(run.predict(split="test")) == 726
