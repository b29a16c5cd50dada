"""Labels that teach nothing, or cannot be scored, are refused before anything is trained."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import duckdb
import headwater
import numpy as np
import pytest
from small import opened_tasks

import confluence
from confluence.config import Config
from confluence.data.stores import unseen_classes
from confluence.data.tasks import SPLITS, US_PER_DAY, Labels, TaskError
from confluence.data.verification import open_store
from confluence.runs.backtest import _check_spans
from confluence.runs.pipeline import check_scored
from confluence.training import session

# Rows 0 to 39 are for train, 40 to 49 for val, 50 to 59 for test where a column says so.
PART = "CASE WHEN id < 40 THEN 'train' WHEN id < 50 THEN 'val' ELSE 'test' END AS part"
ANSWERS = {
    # by hash
    "rare": "id IN (1, 2, 3)", "two": "id IN (1, 2)", "even": "id % 2 = 0", "true": "true",
    "null": "NULL::BOOLEAN", "nan": "'nan'::DOUBLE", "seven": "7.0",
    # by the column
    "late": "id < 50 AND id % 2 = 0", "early": "id >= 40 AND id % 2 = 0",
    "unscored": "id NOT BETWEEN 40 AND 49 AND id % 2 = 0",
    "flat": "CASE WHEN id < 50 THEN id ELSE 5 END",
    "word": "CASE WHEN id < 50 AND id % 2 = 0 THEN 'good' ELSE 'bad' END",
    "untold": "CASE WHEN id < 50 THEN id % 2 = 0 END",
    "some": "CASE WHEN id IN (40, 41, 42) THEN 'c' WHEN id IN (50, 51) THEN 'd'"
            " WHEN id % 2 = 0 THEN 'a' ELSE 'b' END",
    "new": "CASE WHEN id < 50 THEN 'old ' || id % 2 ELSE 'new ' || id % 3 END",
    "huge": "CASE WHEN id < 3 THEN 1e39 WHEN id = 45 THEN -1e300 ELSE id END",
}  # fmt: skip
KEYS = {"nobody": "id + 100", "unasked": "CASE WHEN id BETWEEN 40 AND 49 THEN id + 100 ELSE id END"}
ANSWERS |= dict.fromkeys(KEYS, "id % 2 = 0")
GIVEN = ("unasked", "late", "early", "unscored", "flat", "word", "untold", "some", "new", "huge")
STYPES = {"nan": "numerical", "seven": "numerical", "flat": "numerical", "word": "categorical"}
STYPES |= {"some": "categorical", "new": "categorical", "huge": "numerical"}


def task_of(name: str) -> dict[str, Any]:
    entry = {
        "query": f"SELECT {KEYS.get(name, 'id')} AS id, {ANSWERS[name]} AS answer, {PART} FROM t",
        "anchor_table": "t",
        "target_column": "answer", "target_stype": STYPES.get(name, "boolean"),
    }  # fmt: skip
    return {**entry, "split_column": "part"} if name in GIVEN else entry


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "t.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS id, range % 7 AS x FROM range(60)")
    return path


@pytest.fixture(scope="module")
def store(database: Path) -> Path:
    table = {
        "primary_key": "id",
        "columns": {"id": {"stype": "identifier"}, "x": {"stype": "numerical"}},
    }
    metadata = {"tables": {"t": table}, "tasks": {name: task_of(name) for name in ANSWERS}}
    path = database.parent / "store"
    headwater.build(f"duckdb:///{database}", path, metadata=metadata)
    return path


NO_SPLIT = " No split can mend that: correct the task's query, or the times that it asks about"
GIVEN_WRONG = " Correct the column or the label tables that say which seed is in which split"
BY_PART = "(train 20 true, 20 false; val 5 true, 5 false; test "


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("late", f"all 10 labels of split 'test' are false, there is nothing to be scored on"
         f" {BY_PART}0 true, 10 false).{GIVEN_WRONG}"),
        ("early", "all 40 labels of split 'train' are false, there is nothing to learn from (train"
         f" 0 true, 40 false; val 5 true, 5 false; test 5 true, 5 false).{GIVEN_WRONG}"),
        ("flat", "all 10 labels of split 'test' are 5, there is nothing to be scored on (train 40"
         " labels of 40 values; val 10 labels of 10 values; test 10 labels of 1 value)."),
        ("word", "all 10 labels of split 'test' are 'bad', there is nothing to be scored on"),
        ("untold", "all labels of split 'test' are NULL or NaN, there is nothing to be scored on"
         f" {BY_PART}10 NULL or NaN).{GIVEN_WRONG}"),
        ("true", "labels of split 'train' are true, there is nothing to learn from (train "),
        ("true", NO_SPLIT),
        ("new", "10 of 10 labels of split 'test' are of classes that train does not have, 3 in all,"
         " such as 'new 2' (4), 'new 0' (3), 'new 1' (3)"),
        ("new", "(--split-column). Split 'test' has nothing else to be scored on"),
        ("huge", "4 of 60 labels in 'answer' are beyond what float32 holds (3.4e38), such as"
         " -1e+300 (train 3, val 1, test 0): no loss of them is finite. If they stand for no value,"
         " let the query answer NULL for them; else give them in a larger unit"),
        ("null", "all labels of split 'train' are NULL or NaN, there is nothing to learn from"),
        ("nan", "all labels of split 'train' are NULL or NaN, there is nothing to learn from"),
        ("seven", "labels of split 'train' are 7, there is nothing to learn from"),
        ("seven", NO_SPLIT),
        ("nobody", "split 'train' has no seeds to learn from (train 0 seeds; val 0 seeds; test 0"
         " seeds). All 60 rows of the task are dropped: 60 have a key that names no row of t, such"
         " as '100' (looked for in t.id): select keys of that column, or name the columns that"
         ' hold them with "anchor_key"'),
    ],
)  # fmt: skip
def test_labels_of_one_value_are_named_with_the_counts_of_each_split(
    store: Path, task: str, message: str
) -> None:
    """The run ended in dashes and an accuracy of 1.000, with status 0."""
    with pytest.raises(TaskError) as caught:
        check_scored(open_store(store), task, Config(), "test")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"task '{task}': ")


def test_a_split_whose_rows_were_all_dropped_says_why(store: Path) -> None:
    """It was told to correct the column that says which seed is in which split."""
    with pytest.raises(TaskError) as caught:
        check_scored(open_store(store), "unasked", Config(), "val")
    assert (
        str(caught.value)
        .partition("; test 5 true, 5 false). ")[2]
        .startswith(
            "All 10 rows of split 'val' are dropped: 10 have a key that names no row of t, such as"
            " '140' (looked for in t.id)"
        )
    )


def test_labels_that_differ_are_no_fault(store: Path) -> None:
    check_scored(open_store(store), "even", Config(), "test")
    check_scored(open_store(store), "late", Config(), "val")
    check_scored(open_store(store), "flat", Config(), "train")
    check_scored(open_store(store), "new", Config(), "val")
    check_scored(open_store(store), "some", Config(), "test")


IN_VAL = " and 3 of 10 labels of split 'val'"
SOME = (
    f"task 'some': 2 of 10 labels of split 'test'{IN_VAL} are of classes that train does not have,"
    " 2 in all, such as 'c' (3), 'd' (2): no training can teach them, and they count as wrong"
    " answers. Give rare classes one name in the query, or give train some of them (--split-column)"
)
WITH_VAL = SOME.replace(IN_VAL, "").replace("2 in all, such as 'c' (3),", "1 in all, such as")


def test_classes_that_train_lacks_are_counted_before_the_training(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """All steps were trained without a word, which compiles; these ones end at the first."""

    def ended(*given: Any) -> None:
        raise KeyboardInterrupt

    for cfg, lines in ((Config(), [SOME]), (Config(train_on_val=True), [WITH_VAL])):
        with opened_tasks(store, ["some", "word"], cfg, num_prefetch=0) as stores:
            assert unseen_classes(stores, cfg) == lines
    monkeypatch.setattr(session.StepRunner, "step", ended)
    with pytest.raises(KeyboardInterrupt):
        confluence.train(store, task="some", out=tmp_path / "run", preset="tiny", steps=2)
    assert capsys.readouterr().err.count(SOME) == 1
    assert html.escape(SOME) in (tmp_path / "run" / "run.html").read_text()


def test_ratios_that_deal_no_seed_of_a_run_are_refused(store: Path) -> None:
    cfg = Config(split_ratios=(0.5, 0.25, 0.25))
    refused = r"split_ratios is \(0.5, 0.25, 0.25\), but the seeds of 'late', 'flat' say"
    with (
        pytest.raises(TaskError, match=refused),
        opened_tasks(store, ["late", "flat"], cfg, num_prefetch=0),
    ):
        pass
    with opened_tasks(store, ["flat", "even"], cfg, num_prefetch=0) as (opened,):
        flat, even = (np.bincount(labels.splits, minlength=3) for labels in opened.labels)
        assert flat.tolist() == [40, 10, 10] and even[0] < 40
    check_scored(open_store(store), "flat", cfg, "train")  # one of them, asked of such a run


def has_both(store: Path, task: str, split_seed: int) -> bool:
    """Whether every split has a true and a false label, by the labels and splits themselves."""
    with headwater.Sampler(store, tasks=[task], split_seed=split_seed) as sampler:
        splits = sampler.splits(task)
    targets = headwater.Store(store).task_seeds(task)["target"]
    return all(set(targets[splits == split]) == {0.0, 1.0} for split in range(3))


def test_the_seed_that_is_named_is_the_first_that_deals_both_to_every_split(store: Path) -> None:
    with pytest.raises(TaskError) as caught:
        check_scored(open_store(store), "rare", Config(), "test")
    advice = str(caught.value).partition(" a column of the query (--split-column), or use ")[2]
    seed = int(advice.removeprefix("--split-seed ").partition(": every split then has true and")[0])
    assert [s for s in range(seed + 1) if has_both(store, "rare", s)] == [seed]
    check_scored(open_store(store), "rare", Config(split_seed=seed), "test")


def test_no_seed_is_named_where_none_can_do_it(store: Path) -> None:
    """Rows of one anchor stay together: two anchors cannot be in three splits."""
    for split, number in SPLITS.items():
        with headwater.Sampler(store, tasks=["two"], split_seed=123) as sampler:
            if (sampler.splits("two")[[1, 2]] == number).any():
                continue
        with pytest.raises(TaskError, match=r"with a column of the query \(--split-column\)$"):
            check_scored(open_store(store), "two", Config(), split)


def test_train_refuses_what_it_cannot_learn_or_is_told_to_score(
    store: Path, tmp_path: Path
) -> None:
    """It warned, trained all steps and ended with 0."""
    options: dict[str, Any] = {"out": tmp_path / "run", "preset": "tiny", "steps": 2}
    for task in ("seven", "null", "early"):
        with pytest.raises(
            TaskError, match=f"task '{task}': all .* there is nothing to learn from"
        ):
            confluence.train(store, task=["even", task], **options)
    with pytest.raises(
        TaskError, match=r"all .* labels of split 'val' are false, there is nothing"
    ):
        confluence.train(store, task="unscored", eval_every=1, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([1, 1, 1, 0, 1, 1], "the 3 labels to learn from of task 't' are all the same"),
        ([1, 0, 1, 0, 0, 0], "the 3 labels to be scored on of task 't' are all the same"),
        ([1, 0, 1, 0, 1, 0], None),
    ],
)
def test_a_fold_of_one_value_is_refused(targets: list[float], message: str | None) -> None:
    """All folds before it were trained, and its scores were dashes."""
    labels = Labels(
        anchor_rows=np.arange(6, dtype=np.uint32),
        obs_times=np.arange(6) * US_PER_DAY,
        targets=np.array(targets, float),
        is_known=np.ones(6, bool),
        is_labelled=np.ones(6, bool),
        splits=np.zeros(6, np.uint8),
    )
    spans = [(3 * US_PER_DAY, 6 * US_PER_DAY)]
    if message is None:
        _check_spans(labels, "t", spans)
        return
    with pytest.raises(TaskError, match=message):
        _check_spans(labels, "t", spans)
