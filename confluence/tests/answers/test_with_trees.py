"""A model and boosted trees that answer together: whose share is what, of which questions."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import bakery
import headwater
import numpy as np
import pytest
import small
from headwater import SemanticType
from headwater.store.row_keys import time_us
from small import labelled, words, write_sqlite
from stand_ins import Pass, batch
from untrained import untrained_run

import confluence
from confluence.answers.with_trees import WithTrees
from confluence.cli.main import main
from confluence.config import preset
from confluence.data.tasks import (
    NO_TIME,
    SPLITS,
    TEST,
    TRAIN,
    VAL,
    Task,
    TaskError,
)
from confluence.data.verification import open_store
from confluence.model.transformer import Output
from confluence.report.tables import describe_evaluation
from confluence.trees.boosted import TreeAnswers
from confluence.trees.features import longest_gap, train_seeds
from confluence.trees.own_columns import OwnColumns
from confluence.trees.task_trees import AskedTrees, fit_trees, last_time
from confluence.trees.tree_baselines import tree_baselines

DAY = 86_400_000_000
SMALL: dict[str, Any] = {**small.SMALL, "max_rows": 12, "steps": 4}
PLAIN: dict[str, Any] = {"trees": False, "resamples": 0}


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    out = tmp_path_factory.mktemp("runs") / "a"
    return confluence.train(store, task=["next_sale", "mood"], out=out, **SMALL)


# ---- outputs


class Trees:
    """Stands for `AskedTrees`: has an answer for each seed or question by its number."""

    def __init__(self, values: dict[int, float], shares: dict[int, list[float]] | None = None):
        self.values, self.shares = values, shares
        self.asked: list[Any] = []

    def answers(self, index: Any, anchor_rows: Any, obs_times: Any) -> TreeAnswers:
        self.asked.append([part.tolist() for part in (index, anchor_rows, obs_times)])
        shares = None if self.shares is None else np.array([self.shares[i] for i in index])
        return TreeAnswers(np.array([self.values[i] for i in index]), shares)


def said(
    stype: SemanticType, trees: Trees, share: float, split: str | None = "val", **moments: float
) -> tuple[Output, Any]:
    fields: dict[str, Any] = {f.name: 0 for f in dataclasses.fields(Task)}
    task = Task(**{**fields, "std": 1.0, "column_std": 1.0, "stype": stype, **moments})
    both = WithTrees(Pass(), trees, task, share, split=split)  # type: ignore[arg-type]
    batches = [batch([4, 2], [0.0, 1.0]), batch([9], [2.0])]
    ((output, info),) = both.outputs({}, iter(batches))
    return output, info


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.array(x)))


def test_trees_have_their_share_of_a_probability_and_none_of_null() -> None:
    trees = Trees({2: 0.9, 4: 0.2, 9: 0.6})
    output, info = said(SemanticType.BOOLEAN, trees, 0.25)
    assert info["seed_index"].tolist() == [4, 2, 9]
    expected = 0.75 * sigmoid([0, 1, 2]) + 0.25 * np.array([0.2, 0.9, 0.6])
    np.testing.assert_allclose(sigmoid(output.boolean), expected)
    np.testing.assert_allclose(output.null, [0, 1, 2], atol=1e-9)
    np.testing.assert_allclose(output.numerical, [0, 1, 2])
    assert trees.asked == [[[2, 4, 9], [7, 9, 14], [60, 120, 270]]]  # in the order of seeds


def test_numbers_and_times_are_averaged_in_the_units_of_the_model() -> None:
    trees = Trees({2: 14.0, 4: 4.0, 9: 24.0})
    output, _ = said(SemanticType.NUMERICAL, trees, 0.5, mean=4.0, std=10.0)
    np.testing.assert_allclose(output.numerical, [(0 + 0) / 2, (1 + 1) / 2, (2 + 2) / 2])
    output, _ = said(SemanticType.TIMESTAMP, trees, 0.5, column_mean=4.0, column_std=5.0)
    np.testing.assert_allclose(output.timestamp[:, -1], [0.0, (1 + 2) / 2, (2 + 4) / 2])
    np.testing.assert_allclose(output.timestamp[:, 0], [0, 1, 2])


def test_shares_of_categories_are_averaged_also_of_those_without_any() -> None:
    trees = Trees({2: 0, 4: 1, 9: 1}, {2: [1.0, 0.0], 4: [0.5, 0.5], 9: [0.0, 1.0]})
    output, _ = said(SemanticType.CATEGORICAL, trees, 0.5)
    expected = [[0.375, 0.625], [0.625, 0.375], [0.125, 0.875]]
    np.testing.assert_allclose(np.exp(output.categorical), expected)
    output, _ = said(SemanticType.CATEGORICAL, trees, 1.0)
    np.testing.assert_allclose(np.exp(output.categorical), [[0.5, 0.5], [1, 0], [0, 1]])


def test_questions_have_no_numbers_of_their_own() -> None:
    """Of these `seed_index` means nothing."""
    trees = Trees({0: 0.2, 1: 0.9, 2: 0.6})
    output, _ = said(SemanticType.BOOLEAN, trees, 1.0, split=None)
    np.testing.assert_allclose(sigmoid(output.boolean), [0.2, 0.9, 0.6])


def test_trees_that_had_nothing_to_learn_from_are_refused() -> None:
    with pytest.raises(TaskError, match="trees have no answers for task"):
        said(SemanticType.BOOLEAN, Trees({2: 0.9, 4: np.nan, 9: 0.6}), 0.5)


# ---- runs


@pytest.mark.parametrize("title", ["next_sale", "mood"])
def test_answers_are_shared_and_the_trees_are_the_baseline(
    run: confluence.Run, title: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.csv"
    model, both, trees = (
        run.predict(split="val", task=title, path=path, tree_share=share) for share in (0, 0.25, 1)
    )
    if title == "next_sale":
        values = [np.array([row["prediction"] for row in rows]) for rows in (model, both, trees)]
        is_cut = values[0] == values[0].min()  # at the lower end of the labels of train
        assert not is_cut.all()
        expected = 0.75 * values[0] + 0.25 * values[2]
        np.testing.assert_allclose(values[1][~is_cut], expected[~is_cut], rtol=1e-6)
        assert np.abs(values[0] - values[2]).max() > 1
    else:
        shares = [[row["probability"] for row in rows] for rows in (model, both, trees)]
        assert shares[0] != shares[1] != shares[2]
    alone = run.evaluate("val", task=title, resamples=0, tree_share=1.0)
    assert alone["metrics"] == alone["baselines"]["history"]["metrics"]
    again = run.evaluate("val", task=title, resamples=0, tree_share=0.0)
    assert again["baselines"]["history"]["metrics"] == alone["metrics"]
    assert again["metrics"] != alone["metrics"] or title == "mood"
    assert again["metrics"] == alone["baselines"]["model_alone"]["metrics"]
    assert (alone["trees"]["share"], again["trees"]["share"]) == (1.0, 0.0)
    by_default = run.evaluate("val", task=title, resamples=0)
    assert by_default["trees"]["share"] == by_default["trees"]["chosen"]["share"] == 0.5
    assert by_default["baselines"]["model_alone"]["metrics"] == again["metrics"]
    names = {file.name for file in run.results(title).glob("evaluation-*.json")}
    assert {"evaluation-val-rolling.json", "evaluation-val-rolling-trees-1.0.json"} <= names
    lines = describe_evaluation(alone)
    assert any(line.startswith("  trees  ") for line in lines)
    assert any(line.startswith("  model alone ") for line in lines)
    assert "  trees on history have 1 of each answer" in lines
    lines = describe_evaluation(by_default)
    assert any(line.startswith("  model and trees ") for line in lines)
    (reason,) = [line for line in lines if line.startswith("  trees on history have 0.5")]
    assert re.fullmatch(r".*: val has \d+ labels, too few to choose by", reason)


def test_a_key_is_answered_as_its_seed_is(run: confluence.Run, tmp_path: Path) -> None:
    """By trees alone, which learn from the same seeds whoever asks."""
    path = tmp_path / "p.csv"
    ask: dict[str, Any] = {"task": "next_sale", "path": path, "tree_share": 1.0}
    seeds = list(run.predict(split="test", **ask))
    keys = [row["key"] for row in seeds]
    asked = list(run.predict(keys=keys, at=[row["obs_time"] for row in seeds], **ask))
    np.testing.assert_allclose(
        [row["prediction"] for row in asked], [row["prediction"] for row in seeds], rtol=1e-12
    )
    assert len({round(row["prediction"], 6) for row in seeds}) > 1


@pytest.mark.filterwarnings("ignore:the page does not show the result")  # of a run without a log
def test_what_comes_later_changes_no_answer(run: confluence.Run, tmp_path: Path) -> None:
    """A thousand times the sales from March 5 on: frozen before that, trees say the same."""
    changed = bakery.build(tmp_path / "changed", changed_from="2025-03-05 00:00:00")
    other = dataclasses.replace(
        untrained_run(changed, "next_sale", run.config, tmp_path / "run"), trees=run.trees
    )
    ask: dict[str, Any] = {"task": "next_sale", "tree_share": 1.0, **PLAIN}
    frozen = {**ask, "visible_until": "2025-03-05"}
    same, still = (each.evaluate("val", **frozen)["metrics"] for each in (run, other))
    assert same == still
    # Rolling, they are told of changed sales, or the test tells nothing.
    before, after = (each.evaluate("val", **ask)["metrics"] for each in (run, other))
    assert before != after


def trees_of(store: Path, name: str, **settings: Any) -> AskedTrees:
    cfg = preset("tiny", **settings)
    task, labels = labelled(store, cfg, name)
    own_columns = OwnColumns(open_store(store), cfg, task)
    return AskedTrees(own_columns, labels, fit_trees(own_columns, labels))


def test_questions_after_the_end_of_the_database_see_old_data(store: Path) -> None:
    end = last_time(open_store(store))
    assert end == time_us("2025-05-08 12:00:00")
    trees = trees_of(store, "next_sale")
    labels = trees._history.labels
    rows = np.array([labels.anchor_rows[0]] * 2, np.int64)
    early, late = end - DAY, end + 30 * DAY
    times = np.array([late, early, NO_TIME])
    assert trees.cutoffs(times).tolist() == [end, early, NO_TIME]
    frozen = trees_of(store, "next_sale", visible_until="2025-03-05")
    until = time_us("2025-03-05")
    assert frozen.cutoffs(times).tolist() == [until, until, until]
    exclusive = trees_of(store, "next_sale")
    exclusive._task = dataclasses.replace(exclusive._task, inclusive=False)
    assert exclusive.cutoffs(times).tolist() == [end + 1, early, NO_TIME]  # the last rows are seen
    both = trees.answers(np.arange(2), rows, times[:2]).values
    alone = [trees.answers(np.arange(1), rows[:1], times[[i]]).values[0] for i in (0, 1)]
    assert both.tolist() == alone  # what is asked beside changes no answer
    assert both[0] != both[1]


def test_some_trees_learn_from_old_data(store: Path) -> None:
    """As old as a question can see that is asked with the database frozen before val or test."""
    _, labels = labelled(store, preset("tiny"), "next_sale")
    window = 7 * DAY
    spans = [np.ptp(labels.obs_times[labels.splits == split]) for split in (VAL, TEST)]
    longest = longest_gap(labels, window)
    assert longest == max(*spans, window)
    assert longest_gap(labels, 400 * DAY) == 400 * DAY
    seeds = train_seeds(labels, int(NO_TIME), inclusive=True)
    assert (seeds.moments.cutoffs == seeds.moments.obs_times).all()
    old = train_seeds(labels, int(NO_TIME), inclusive=True, longest_gap=longest)
    assert np.bincount(old.index)[seeds.index].tolist() == [3] * seeds.index.size
    gaps = old.moments.obs_times - old.moments.cutoffs
    assert gaps.min() >= 1 and longest / 2 < gaps.max() <= longest
    frozen = train_seeds(labels, time_us("2025-01-05"), inclusive=True)
    assert frozen.moments.cutoffs.max() == time_us("2025-01-05")


def test_times_are_told_from_the_question_on(shop_store: Path) -> None:
    """However late it is asked: as epochs they end with the last that trees have seen."""
    trees = trees_of(shop_store, "next_order")
    labels = trees._history.labels
    rows = labels.anchor_rows[labels.splits == TRAIN][:20].astype(np.int64)
    first, later = time_us("2025-06-01"), time_us("2027-06-01")
    for asked in (first, later):
        days = (trees.answers(np.arange(20), rows, np.full(20, asked)).values - asked) / DAY
        assert days.min() > 0
        assert days.max() < 400


@pytest.mark.parametrize("until", [None, "2025-02-01"])
def test_baselines_of_times_are_answers_however_old_the_data_is(
    until: str | None, shop_store: Path
) -> None:
    """Own columns are read once for each seed, though train seeds stand for old data thrice."""
    cfg = preset("tiny", visible_until=until)
    task, labels = labelled(shop_store, cfg, "next_order")
    found = tree_baselines(open_store(shop_store), cfg, task, labels, "test")
    asked = labels.splits == SPLITS["test"]
    for name in ("own_columns", "history"):
        days = (found[name]["values"] - labels.obs_times)[asked] / DAY
        assert days.min() > 0
        assert days.max() < 400


def test_questions_without_a_time_leave_the_others_their_times(shop_store: Path) -> None:
    trees = trees_of(shop_store, "next_order")
    rows = trees._history.labels.anchor_rows[:2].astype(np.int64)
    asked = time_us("2025-06-01")
    alone = trees.answers(np.arange(1), rows[:1], np.array([asked])).values
    both = trees.answers(np.arange(2), rows, np.array([asked, NO_TIME])).values
    assert both[0] == alone[0]
    assert np.isnan(both[1])  # it has no time that an answer could be told from


def test_the_last_time_is_that_of_a_row_that_has_one(tmp_path: Path) -> None:
    timed_rows = [
        ("early", [(1, "2020-01-01 10:00:00"), (2, None)]),
        ("late", [(1, "2021-01-01 10:00:00"), (2, None), (3, "2019-05-05 08:00:00")]),
        ("never", [(1, None)]),
    ]
    source = write_sqlite(tmp_path / "a.sqlite", {
        "plain": ("id INTEGER PRIMARY KEY", [(1,)]),
        **{table: ("id INTEGER PRIMARY KEY, at TIMESTAMP", rows) for table, rows in timed_rows},
    })  # fmt: skip
    key, time = {"stype": "identifier"}, {"stype": "timestamp"}
    timed = {"primary_key": "id", "temporal_column": "at", "columns": {"id": key, "at": time}}
    plain = {"primary_key": "id", "columns": {"id": key}}

    def built(name: str, tables: dict[str, Any]) -> str:
        left_out = {"graph": False, "columns": {"id": key, "at": time}}
        others = dict.fromkeys({"early", "late", "never"} - tables.keys(), left_out)
        metadata = {"tables": {**tables, **others, "plain": plain}}
        headwater.build(source, tmp_path / name, metadata=metadata)
        return str(tmp_path / name)

    shown = {**timed, "null_time": "visible"}
    for name, tables, expected in (
        ("all", {"early": timed, "late": timed, "never": timed}, time_us("2021-01-01 10:00:00")),
        ("shown", {"early": shown, "never": shown}, time_us("2020-01-01 10:00:00")),
        ("none", {"never": shown}, 2**63 - 1),
        ("hidden", {"never": timed}, 2**63 - 1),
    ):
        assert last_time(open_store(built(name, tables))) == expected, name


# ---- the commands


def test_of_several_tasks_each_has_its_verdict(
    run: confluence.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bakery asks about 12 shops and 5 cities, which are too few to conclude from."""
    arguments = ["evaluate", str(run.out), "--split", "val", "--no-trees", "--resamples", "200"]
    assert main([*arguments, "--json"]) == 0
    told = {found["task"]: found for found in json.loads(capsys.readouterr().out)["tasks"]}
    assert told.keys() == {"next_sale", "mood"}
    sentences = []
    for found in told.values():
        verdict, anchors = found["verdict"], found["anchors"]
        assert verdict["kind"] == "unknown" and anchors < 20
        assert f"are of {anchors} anchors, and 20 are needed" in verdict["text"]
        sentences.append(verdict["text"])
    assert main(arguments) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line in sentences] == sentences


def test_the_commands_take_a_share(
    run: confluence.Run, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--task", "next_sale", "--split", "val", "--tree-share", "0.5"]
    evaluation = ["evaluate", str(run.out), *asked, "--resamples", "0", "--json"]
    assert main(evaluation) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trees"]["share"] == 0.5
    assert main(["predict", str(run.out), *asked]) == 0
    assert (run.results("next_sale") / "predictions-val-trees-0.5.csv").is_file()
    assert main(["evaluate", str(run.out), "--task", "next_sale", "--tree-share", "1.5"]) == 1
    assert "tree_share is 1.5, expected a number from 0 to 1" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::UserWarning")  # of the task, which says little
def test_a_backtest_scores_the_model_with_trees(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["backtest", str(store), "--task", "next_sale", "--out", str(tmp_path / "b")]
    arguments += ["--cutoffs", "2025-03-15", "--horizon-days", "60", "--seeds", "1,2"]
    arguments += words(SMALL)
    assert main([*arguments, "--tree-share", "1"]) == 0
    text = capsys.readouterr().out
    assert "next_sale, mae, frozen at each cutoff, trees on history have 1 of each answer" in text
    found = json.loads((tmp_path / "b" / "backtest-trees-1.0.json").read_text())
    assert found["tree_share"] == 1.0
    task = found["tasks"]["next_sale"]
    # Of two seeds the trees are the same; their errors are added up in the order of the batches.
    assert task["std"] == pytest.approx(0.0, abs=1e-12)
    assert task["model"] == pytest.approx(task["baselines"]["history"], rel=1e-12)
    assert task["model"] == pytest.approx(task["together"]["frozen"], rel=1e-12)
    assert main([*arguments, "--tree-share", "0"]) == 0  # the fits are there; they are scored alone
    alone = json.loads((tmp_path / "b" / "backtest-trees-0.0.json").read_text())
    assert alone["tree_share"] == 0.0
    assert alone["tasks"]["next_sale"]["model"] != task["model"]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "b" / "backtest.json").read_text())
    assert found["tree_share"] is None
    assert {fold["tree_share"] for fold in found["folds"]} == {0.5}
    assert "trees on history have 0.5 of each answer" in capsys.readouterr().out


def test_without_openmp_a_share_is_refused_and_an_evaluation_prints_the_reason(
    run: confluence.Run, no_openmp: str
) -> None:
    refused = re.escape(f"tree_share is 0.5, which needs boosted trees: {no_openmp}")
    with pytest.raises(ValueError, match=refused):
        run.evaluate("val", task="next_sale", tree_share=0.5, **PLAIN)
    with pytest.raises(ValueError, match="With 0 the model answers alone"):
        run.predict(split="val", task="next_sale")  # which chose a half
    result = run.evaluate("val", task="next_sale", tree_share=0, **{**PLAIN, "trees": True})
    assert result["metrics"]
    assert f"  no boosted trees: {no_openmp}" in describe_evaluation(result)
