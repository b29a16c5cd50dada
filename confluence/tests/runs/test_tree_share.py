"""The trees that a run keeps: their share is chosen on val, and who asks has one answer."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pyarrow as pa
import pytest
from small import SMALL, opened, words

import confluence
from confluence.answers.calibration import NO_MAP, Calibration
from confluence.answers.kept_trees import FILE, KeptTreesError, read_kept
from confluence.cli.main import main
from confluence.data.tasks import US_PER_DAY
from confluence.report.page import write_page
from confluence.runs.tree_share import LEAST_LABELS, with_trees
from confluence.scores.metrics import MEASURES, metric_text, metrics_of

MEMBERS = 260
ASKED = {70: "train", 100: "train", 150: "val", 200: "test"}  # split of each day
BUSY = 3  # visits in the last 30 days; whoever has as many is `busy`
PLAIN: dict[str, Any] = {"resamples": 0, "trees": False}


def build(folder: Path, *, by_lot: bool = False, val: int = MEMBERS) -> Path:
    """Members and their visits. That a member is busy, and how often, only a count tells.

    Args:
        by_lot: whether labels of val are dealt anew.
        val: how many members are asked in val.
    """
    rng = np.random.default_rng(5)
    who = rng.integers(0, MEMBERS, 12_000)
    when = rng.uniform(0, 200, who.size)
    rates, born = rng.uniform(0.1, 1.0, MEMBERS), rng.integers(1950, 2000, MEMBERS)
    keep = rng.uniform(size=who.size) < rates[who] * 0.6
    who, when = who[keep], when[keep]
    seeds = []
    for day, split in ASKED.items():
        counts = np.bincount(who[(when > day - 30) & (when <= day)], minlength=MEMBERS)
        if by_lot and split == "val":
            counts = rng.permutation(counts)
        members = range(val if split == "val" else MEMBERS)
        seeds += [
            (member, day, counts[member] >= BUSY, counts[member], split) for member in members
        ]
    keys, days, busy, counts, splits = zip(*seeds, strict=True)

    def times(values: Any) -> Any:
        return pa.array((np.asarray(values) * US_PER_DAY).astype("int64"), pa.timestamp("us"))

    tables = {
        "members": pa.table({"id": range(MEMBERS), "born": born}),
        "visits": pa.table({"id": range(who.size), "member": who, "at": times(when)}),
        "asked": pa.table({
            "id": range(len(seeds)), "member": keys, "asked_on": times(days), "busy": busy,
            "visits": counts, "split": splits,
        }),
    }  # fmt: skip
    key, number = {"stype": "identifier"}, {"stype": "numerical"}
    question = {
        "anchor_table": "members", "anchor_key": "member", "observation_time_column": "asked_on",
        "split_column": "split", "label_window": "1 day",
    }  # fmt: skip
    metadata = {
        "tables": {
            "members": {"primary_key": "id", "columns": {"id": key, "born": number}},
            "visits": {
                "primary_key": "id", "temporal_column": "at",
                "columns": {
                    "id": key, "member": {**key, "foreign_key": "members.id"},
                    "at": {"stype": "timestamp"},
                },
            },
            "asked": {"graph": False, "columns": {
                name: {"stype": "ignored"} for name in tables["asked"].column_names
            }},
        },
        "tasks": {
            name: {
                **question, "query": f"SELECT member, asked_on, {name}, split FROM asked",
                "target_column": name, "target_stype": stype,
            }
            for name, stype in (("busy", "boolean"), ("visits", "numerical"))
        },
    }  # fmt: skip
    headwater.build(tables, folder, metadata=metadata)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("members") / "store")


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    out = tmp_path_factory.mktemp("runs") / "a"
    return confluence.train(store, task=["busy", "visits"], out=out, steps=6, **SMALL)


def values_of(answers: Any) -> list[float]:
    return [row["prediction"] for row in answers]


# ---- the share


def test_the_share_is_the_best_of_five_on_val(run: confluence.Run) -> None:
    for title in ("busy", "visits"):
        chosen = run.trees[title].chosen
        assert list(chosen.by_share) == [0.0, 0.25, 0.5, 0.75, 1.0]
        assert chosen.reason is None
        for share, expected in chosen.by_share.items():
            found = run.evaluate("val", task=title, tree_share=share, **PLAIN)
            assert found["metrics"][chosen.metric] == expected
        best = max if chosen.metric == "auroc" else min
        assert chosen.by_share[chosen.share] == best(chosen.by_share.values())
        assert chosen.share >= 0.75  # counts tell all, and trees have them
    assert run.trees["busy"].chosen.by_share[1.0] > 0.99
    assert run.trees["busy"].chosen.by_share[0.0] < 0.9


def test_labels_of_val_that_are_dealt_by_lot_change_the_share(
    run: confluence.Run, tmp_path: Path
) -> None:
    """The trees learn from train alone; what they are worth is said by val."""
    other = build(tmp_path / "store", by_lot=True)
    dealt = with_trees(
        dataclasses.replace(
            run, out=tmp_path / "run", stores=(str(other),), trees={},
            places=tuple(dataclasses.replace(p, store=str(other)) for p in run.places),
        ), opened(other),
    )  # fmt: skip
    for title in ("busy", "visits"):
        before, after = run.trees[title], dealt.trees[title]
        assert after.trees.fitted["fresh"] == before.trees.fitted["fresh"]
        assert after.chosen.share != before.chosen.share
    assert max(abs(v - 0.5) for v in dealt.trees["busy"].chosen.by_share.values()) < 0.12


def test_with_few_labels_of_val_it_is_a_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = build(tmp_path / "store", val=LEAST_LABELS - 1)
    run = confluence.train(few, task="busy", out=tmp_path / "run", steps=1, **SMALL)
    assert run.trees["busy"].chosen.share == 0.5
    said = capsys.readouterr().err.splitlines()
    assert f"fitting boosted trees on {2 * MEMBERS} train seeds of busy" in said
    why = "val has 199 labels, too few to choose by"
    assert f"busy: trees on history have 0.5 of each answer: {why}" in said


# ---- one answer


def test_everyone_who_asks_has_one_answer_to_the_bit(
    run: confluence.Run, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, ask = "visits", ["--task", "visits", "--split", "test"]
    seeds = run.predict(split="test", task=title)
    answers = values_of(seeds)
    assert answers != values_of(run.predict(split="test", task=title, tree_share=0))
    # Python, from the folder; keys in place of seeds; the command.
    again = confluence.load(run.out)
    assert again.trees == run.trees
    assert values_of(again.predict(split="test", task=title)) == answers
    keys, at = [row["key"] for row in seeds], [row["obs_time"] for row in seeds]
    assert values_of(run.predict(keys=keys, at=at, task=title)) == answers
    few = run.predict(keys=keys[:3], at=at[:3], task=title)
    np.testing.assert_allclose(values_of(few), answers[:3], rtol=1e-5)  # batches of another size
    assert main(["predict", str(run.out), *ask]) == 0
    with (run.results(title) / "predictions-test.csv").open(encoding="utf-8") as file:
        assert [float(row["prediction"]) for row in csv.DictReader(file)] == answers
    # The evaluation of these answers, on the page too.
    result = run.evaluate("test", task=title, **PLAIN)
    with opened(store)[str(store)] as open_store:
        labels = open_store.task_seeds(title)
    is_test = labels["split"] == 2
    measured = MEASURES[headwater.SemanticType.NUMERICAL](
        labels["target"][is_test], np.array(answers)[np.argsort(labels["position"][is_test])]
    )
    mae = metrics_of(measured, len(answers))["mae"]
    assert result["metrics"]["mae"] == pytest.approx(mae, rel=1e-12)  # added up in another order
    page = write_page(run.out).read_text(encoding="utf-8")
    assert f"<td>{metric_text(result['metrics']['mae'])}</td>" in page
    capsys.readouterr()
    assert main(["evaluate", str(run.out), *ask, "--resamples", "0", "--no-trees", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == result["metrics"]


def test_a_backtest_scores_the_answers_of_its_fits(store: Path, tmp_path: Path) -> None:
    spans = {"cutoffs": ["1970-04-11"]}
    found = confluence.backtest(store, task="busy", out=tmp_path, **spans, steps=1, **SMALL)
    (fold,) = found["folds"]
    fit = confluence.load(next(tmp_path.glob("1970*")))
    asked = {"task": "busy", "visible_until": fold["cutoff"], **PLAIN}
    assert fit.evaluate("val", **asked)["metrics"]["auroc"] == fold["frozen"]["auroc"]
    assert fit.trees["busy"].chosen.share == fold["tree_share"] == 0.5


# ---- the folder


def test_trees_are_fitted_once(
    run: confluence.Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("trees are fitted again")

    monkeypatch.setattr("confluence.runs.tree_share.fit_trees", refused)
    monkeypatch.setattr("confluence.trees.boosted.fit", refused)
    run.predict(keys=[1], at="1971-02-01", task="busy")  # long after the end of the database
    run.evaluate("test", task="busy", **PLAIN)
    run.evaluate("test", task="busy", regime="frozen", **PLAIN)
    resumed = confluence.train(
        store, task=["busy", "visits"], out=run.out, steps=6, resume=True, **SMALL
    )
    assert resumed.trees == run.trees


def test_a_run_without_trees_answers_alone_until_it_is_resumed(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    command = ["train", str(store), "--task", "busy", "--out", str(out), "--steps", "1"]
    command += words(SMALL)
    assert main([*command, "--no-trees"]) == 0
    run = confluence.load(out)
    assert not run.trees and not (out / FILE).exists()
    assert "trees" not in run.evaluate("val", **PLAIN)
    with pytest.raises(ValueError, match=r"has no trees for task 'busy'.*--resume fits them"):
        run.predict(split="val", tree_share=0.5)
    assert main([*command, "--resume"]) == 0
    assert confluence.load(out).trees["busy"].chosen.share >= 0.75
    assert main([*command, "--overwrite", "--no-trees"]) == 0
    assert not (out / FILE).exists()


def shares_of(answers: Any) -> np.ndarray:
    return np.array([row["probability"] for row in answers])


def test_probabilities_are_calibrated_with_the_share_that_was_chosen(
    run: confluence.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A map that halves the logits is put in the place of the run's: whoever asks has it."""
    kept = run.trees["busy"]
    half = Calibration(kind="platt", slope=0.5, before=0.2, after=0.1)
    plain, found = (
        dataclasses.replace(
            run, trees={**run.trees, "busy": dataclasses.replace(kept, calibration=calibration)}
        )
        for calibration in (NO_MAP, half)
    )
    share, asked = kept.chosen.share, {"split": "test", "task": "busy"}
    before, after = (shares_of(of.predict(**asked)) for of in (plain, found))
    inner = (before > 1e-5) & (before < 1 - 1e-5)
    odds = before[inner] / (1 - before[inner])
    np.testing.assert_allclose(after[inner], np.sqrt(odds) / (1 + np.sqrt(odds)), rtol=1e-5)
    assert np.array_equal(shares_of(found.predict(**asked, tree_share=share)), after)
    other = 0.25 if share != 0.25 else 0.5
    others = (of.predict(**asked, tree_share=other) for of in (plain, found))
    assert np.array_equal(*map(shares_of, others))  # a map belongs to its share
    result = found.evaluate("test", task="busy", **PLAIN)
    scores = result["calibration"]
    assert scores["measure"] == "brier" and "limit" not in scores
    with opened(Path(run.place("busy").store))[run.place("busy").store] as store:
        labels = store.task_seeds("busy")
    is_test = labels["split"] == 2
    truth = labels["target"][is_test]
    order = np.argsort(labels["position"][is_test])
    assert scores["after"] == pytest.approx(np.mean((after - truth[order]) ** 2), rel=1e-6)
    assert result["calibration"]["val"] == {"before": 0.2, "after": 0.1}
    line = "probabilities are calibrated by Platt's method: Brier score"
    assert line in str(result)


def test_answers_do_not_depend_on_how_many_are_asked_at_once(
    run: confluence.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = values_of(run.predict(split="test", task="visits"))
    monkeypatch.setattr("confluence.trees.task_trees.MOST_AT_ONCE", 7)
    assert values_of(run.predict(split="test", task="visits")) == whole


def test_a_lost_file_is_missed(run: confluence.Run, tmp_path: Path) -> None:
    shutil.copytree(run.out, tmp_path / "run")
    (confluence.load(tmp_path / "run").results("busy") / FILE).unlink()
    with pytest.warns(UserWarning, match=f"has no {FILE} for busy, so the model answers alone"):
        found = confluence.load(tmp_path / "run")
    assert list(found.trees) == ["visits"]
    said = found.evaluate("val", task="busy")["verdict"]["text"]
    assert "--tree-share" not in said


def test_a_run_that_goes_on_without_trees_has_those_of_its_folder(
    run: confluence.Run, store: Path
) -> None:
    found = confluence.train(
        store, task=["busy", "visits"], out=run.out, steps=6, resume=True, **SMALL, trees=False
    )
    assert found.trees == run.trees


def test_a_damaged_file_is_named(run: confluence.Run, tmp_path: Path) -> None:
    whole = (run.results("busy") / FILE).read_bytes()
    assert read_kept(tmp_path) is None
    other = gzip.compress(gzip.decompress(whole).replace(b'"share": ', b'"share": 0.'))
    for damaged in (b"", b"plain", whole[: len(whole) // 2], gzip.compress(b'{"trees": 3}'), other):
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(KeptTreesError, match=f"{FILE}' does not hold the trees of a run"):
            read_kept(tmp_path)
