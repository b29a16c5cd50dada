"""The page of a run: whole, by itself, escaped, and about whatever the run's folder has."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from typing import Any

import headwater
import pytest
from small import write_sqlite

from confluence.cli.main import main
from confluence.config import Config
from confluence.report.charts import POINTS, Axis, Line, histogram, line_chart, short, thinned
from confluence.report.page import write_page
from confluence.report.page_style import STYLE
from confluence.watch.log_events import curve, of_kind, read_events

EVIL = "<script>alert('x')</script>"
EVIL_TASK = "<script>alert('x')<script>"  # a task's name holds no slash
VOID = {"meta"}  # tags that are never closed


class Outline(html.parser.HTMLParser):
    """Checks that every tag is closed, and gathers texts and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outline(path: Path) -> Outline:
    parser = Outline()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    assert parser.open == []
    return parser


def train_line(step: int, loss: float | None) -> dict[str, Any]:
    return {
        "event": "train", "step": step, "loss": loss, "gradient_norm": 1.0 + step,
        "learning_rate": 1e-3, "wait_share": 0.001, "fetch_share": 0.1, "cells_per_second": 5e4,
    }  # fmt: skip


def write_log(folder: Path, *events: dict[str, Any], tail: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"time": 1.7e9, **event}) + "\n" for event in events)
    (folder / "log.jsonl").write_text(lines + tail, encoding="utf-8")


START = {
    "event": "start", "stores": ["gone.hw"], "tasks": {"churn": 1.0}, "device": "cpu",
    "config": Config(width=48).to_dict(),
}  # fmt: skip
SCORED = {"event": "evaluate", "split": "val", "task": "churn", "metrics": {"auroc": 0.7}}
END = {
    "event": "end", "steps": 30, "seconds": 9.0, "parameters": 1234567, "wait_share": 0.002,
    "peak_device_memory_bytes": 4_200_000_000, "usage": {"utilization_mean": 0.274},
    "step_times": {"p50_ms": 7.5, "edges_ms": [5.0, 6.0, 7.1, 8.5], "counts": [3, 0, 26]},
}  # fmt: skip


# ---- the log


def test_steps_that_came_again_count_once_and_half_a_line_does_not(tmp_path: Path) -> None:
    write_log(
        tmp_path, START, train_line(10, 1.0), train_line(20, 9.0), {**SCORED, "step": 20},
        {"event": "resume", "step": 10}, train_line(20, 0.5), tail='{"event": "train", "st',
    )  # fmt: skip
    events = read_events(tmp_path / "log.jsonl")
    assert curve(of_kind(events, "train"), "loss") == [(10, 1.0), (20, 0.5)]
    assert of_kind(events, "evaluate") == []
    assert curve([{**SCORED, "step": 5}], "metrics/auroc") == [(5, 0.7)]
    assert read_events(tmp_path / "none.jsonl") == []


# ---- the page


def test_a_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    write_log(
        tmp_path, START, train_line(10, 1.0), {**SCORED, "step": 10}, {"event": "save", "step": 10},
        train_line(20, None), train_line(30, 0.25), END,
    )  # fmt: skip
    page = outline(write_page(tmp_path))
    texts = " ".join(page.texts)
    assert "finished after 30 steps" in texts
    assert "27.4 % device busy" in texts
    store = "The store 'gone.hw' is not there now."
    for shown in ("1.23M", "7.5 ms", "0.2 %", "4.2 GB", store, "log.jsonl"):
        assert shown in texts, shown
    assert page.tags.count("figure") == 7  # loss, auroc, 4 more of the training, and step times
    assert "script" not in page.tags and "img" not in page.tags and "link" not in page.tags
    links = [value for name, value in page.attributes if name in ("href", "src")]
    assert links == ["./log.jsonl"]
    policy = [value for name, value in page.attributes if name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policy
    assert "url(" not in (tmp_path / "run.html").read_text()
    assert "48" in page.texts and (tmp_path / "run.html").stat().st_size < 60_000


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ({"event": "stop", "step": 10, "by": "SIGTERM"}, "stopped by SIGTERM after step 10"),
        ({"event": "error", "message": "ValueError: no"}, "ended at step 10 by ValueError: no"),
        (train_line(20, 0.5), "running or killed, at step 20"),
    ],
)
def test_a_run_that_is_not_finished_says_so(
    last: dict[str, Any], state: str, tmp_path: Path
) -> None:
    write_log(tmp_path, START, train_line(10, 1.0), last)
    assert state in " ".join(outline(write_page(tmp_path)).texts)


def test_a_run_of_several_tasks_shows_them_all(tmp_path: Path) -> None:
    other = {**SCORED, "task": "shop/mood", "metrics": {"f1": 0.25}}
    write_log(
        tmp_path, {**START, "tasks": {"churn": 1.0, "shop/mood": 2.0}}, train_line(10, 1.0),
        {**SCORED, "step": 10}, {**other, "step": 10},
        {"event": "save", "step": 10, "best": True},
    )  # fmt: skip
    (tmp_path / "checkpoints" / "10").mkdir(parents=True)
    for folder, task in (("churn", "churn"), ("shop--mood", "shop/mood")):
        (tmp_path / folder).mkdir()
        result = {"task": task, "split": "test", "metrics": {}}
        (tmp_path / folder / "evaluation-test.json").write_text(json.dumps(result))
    texts = outline(write_page(tmp_path)).texts
    for shown in (
        "auroc of churn", "f1 of shop/mood", "0.2500", "last, best on val", "churn on test",
        "shop/mood on test", "shop--mood/evaluation-test.json",
    ):  # fmt: skip
        assert shown in texts, shown
    assert texts.count("churn, shop/mood") == 2  # the page's title, and its heading


def test_masked_cells_have_their_loss_by_type(tmp_path: Path) -> None:
    result = {
        "objective": "masked_cells", "split": "val", "contexts": 1234, "loss": 0.75,
        "types": {"numerical": {"cells": 9, "loss": 0.125}, "boolean": {"cells": 0, "loss": None}},
    }  # fmt: skip
    write_log(tmp_path, START, train_line(10, 1.0), {"event": "evaluate", "step": 10, **result})
    (tmp_path / "evaluation-val.json").write_text(json.dumps(result))
    texts = outline(write_page(tmp_path)).texts
    for shown in ("masked_cells on val", "1,234 contexts", "0.7500", "0.1250", "loss on val"):
        assert shown in texts, shown


def test_a_page_shows_what_an_evaluation_has(tmp_path: Path) -> None:
    write_log(tmp_path, START, train_line(10, 1.0))
    part = {
        "scored": 40, "metrics": {"mae": 2.5}, "intervals": {"mae": [2.25, 2.75]},
        "baselines": {"global_constant": {"metrics": {"mae": 3.0}}},
    }  # fmt: skip
    result = {
        **part, "task": "position", "split": "test", "regime": "frozen", "seeds": 55, "anchors": 21,
        "visible_until": "2005-01-01", "unlabelled": 15,
        "baselines": {
            "global_constant": {
                "constant": "median of the train labels", "metrics": {"mae": 3.0},
                "intervals": {"mae": [2.9, 3.1]}, "differences": {"mae": -0.5},
                "difference_intervals": {"mae": [-0.75, -0.25]},
            },
            "own_columns": {"missing": "lightgbm is not installed", "metrics": {"mae": None}},
        },
        "history": {"with": part, "without": {**part, "metrics": {"mae": 123456.0}}},
        "obs_time": [
            {"from": "2004-01-01T00:00:00", "to": "2005-01-01T00:00:00", **part},
            {"from": "2006-01-01T00:00:00", "to": "2006-01-01T00:00:00", **part},
        ],
        "resampling": {"resamples": 1000, "level": 0.95, "clusters": "anchors"},
    }  # fmt: skip
    (tmp_path / "evaluation-test.json").write_text(json.dumps(result))
    (tmp_path / "evaluation-val.json").write_text('{"task": ')
    texts = outline(write_page(tmp_path)).texts
    for shown in (
        "position on test", "frozen at 2005-01-01 · 40 of 55 seeds scored · 21 anchors"
        " · 15 unlabelled", "2.500", "2.250 to 2.750", "the model's mae less this", "-0.5000",
        "-0.7500 to -0.2500", "with history", "123,456.0", "2004-01-01 to 2005-01-01", "2006-01-01",
        "trees, own columns: lightgbm is not installed",
        "intervals: 95 % of 1,000 draws of anchors", "evaluation-val.json cannot be read.",
    ):  # fmt: skip
        assert shown in texts, (shown, texts)


VERDICT = {
    "kind": "baseline", "text": "Trees on history are better than the model by 0.0620 <auroc>.",
    "metric": "auroc", "baseline": "history", "better_by": -0.062, "interval": [-0.08, -0.04],
}  # fmt: skip


def test_the_title_is_the_question_and_the_answer_comes_before_the_training(tmp_path: Path) -> None:
    write_log(tmp_path / "run-7", START, train_line(10, 1.0), END)
    result = {"task": "churn", "split": "test", "metrics": {"auroc": 0.7}, "verdict": VERDICT}
    (tmp_path / "run-7" / "evaluation-test.json").write_text(json.dumps(result))
    texts = outline(write_page(tmp_path / "run-7")).texts
    assert texts.count("churn") >= 2  # the page's title, and its heading
    assert any(text.startswith("run run-7 · finished after 30 steps · on cpu") for text in texts)
    shown = ["In short", VERDICT["text"], "Evaluation", "churn on test", "Training", "1.23M"]
    places = [texts.index(text) for text in shown]
    assert places == sorted(places)


def test_the_page_carries_what_nobody_has_checked(tmp_path: Path) -> None:
    """Of the tables that its task can reach, the costly first, escaped; nothing if all is."""
    write_log(tmp_path, START, train_line(10, 1.0))
    columns = {"id": {"stype": "identifier"}, "v": {"stype": "numerical", "note": f"hint: {EVIL}"}}
    people = {"primary_key": "id", "columns": columns, "note": "future: shown early"}
    far = {"columns": {"x": {"stype": "text"}}, "note": "unseen: far away"}
    task = {"query": "SELECT 1", "anchor_table": "people", "target_column": "v",
            "target_stype": "numerical"}  # fmt: skip
    tasks = {"churn": task, "other": {**task, "note": "hint: of another"}}
    document = {"tables": {"people": people, "far": far}, "tasks": tasks}
    (tmp_path / "metadata.json").write_text(json.dumps(document))
    texts = outline(write_page(tmp_path)).texts
    place = texts.index("people: shown early")
    assert texts[place + 1] == f"people.v: {EVIL}" and "To check" in texts
    assert not any("far away" in text or "of another" in text for text in texts)
    document["tables"] = {"people": {**people, "note": "", "columns": {"id": columns["id"]}}}
    document["tasks"] = {"churn": {**task, "target_column": "id"}}
    (tmp_path / "metadata.json").write_text(json.dumps(document))
    assert "To check" not in outline(write_page(tmp_path)).texts


def test_of_several_evaluations_each_has_its_sentence(tmp_path: Path) -> None:
    write_log(tmp_path, START, train_line(10, 1.0))
    same = {**VERDICT, "text": "The model and trees on history do not differ."}
    frozen = {"regime": "frozen", "visible_until": "2025-01-01", "step": 400, "verdict": same}
    for name, more in (("test", {"verdict": VERDICT, "regime": "rolling"}), ("test-2", frozen),
                       ("val", {}), ("val-2", {"verdict": 7})):  # fmt: skip
        result = {"task": "churn", "split": name[:4], "metrics": {"auroc": 0.7}, **more}
        (tmp_path / f"evaluation-{name}.json").write_text(json.dumps(result))
    texts = outline(write_page(tmp_path)).texts
    first = texts.index("In short") + 1
    assert texts[first : first + 5] == [
        "churn on test · frozen at 2025-01-01 · weights of step 400", same["text"],
        "churn on test · rolling", VERDICT["text"], "Evaluation",
    ]  # fmt: skip


def test_the_first_sentence_is_of_the_evaluation_without_options(tmp_path: Path) -> None:
    """The first by name is frozen, and with half of the answers from trees."""
    write_log(tmp_path, START, train_line(10, 1.0))
    for name in ("test-frozen-2025-01-01", "test-rolling-trees-0.5", "test-rolling"):
        result = {"task": "churn", "split": "test", "metrics": {}, "verdict": {"text": name}}
        (tmp_path / f"evaluation-{name}.json").write_text(json.dumps(result))
    texts = outline(write_page(tmp_path)).texts
    assert [text for text in texts if text.startswith("test-")] == [
        "test-rolling", "test-frozen-2025-01-01", "test-rolling-trees-0.5",
    ]  # fmt: skip


def test_names_in_the_first_column_are_not_broken_letter_by_letter() -> None:
    """On a telephone the column of "model" and "trees, history" was three letters wide."""
    (rule,) = (line for line in STYLE.splitlines() if line.startswith("th:first-child"))
    assert "min-width: 7em" in rule and "overflow-wrap" not in rule


def test_no_name_can_become_markup(tmp_path: Path) -> None:
    source = write_sqlite(
        tmp_path / "evil.sqlite",
        {f'"{EVIL}"': ("id INTEGER PRIMARY KEY, x REAL", [(i, i) for i in range(9)])},
    )
    task = {
        "query": f"SELECT id, x > 4 AS y, '{EVIL.replace(chr(39), '')}' AS z FROM \"{EVIL}\"",
        "anchor_table": EVIL, "target_column": "y", "target_stype": "boolean",
    }  # fmt: skip
    schema = tmp_path / "schema.json"
    headwater.infer(source).save(str(schema))
    document = json.loads(schema.read_text())
    document["tasks"] = {EVIL_TASK: task}
    headwater.build(source, tmp_path / "store", metadata=document)
    out = tmp_path / "run<b>"
    start = {**START, "tasks": {EVIL_TASK: 1}, "stores": [str(tmp_path / "store")]}
    write_log(
        out, {**start, "config": {EVIL: EVIL}},
        train_line(1, 1.0), {"event": "error", "message": EVIL},
        {**SCORED, "step": 1, "task": EVIL_TASK, "split": EVIL, "metrics": {EVIL: 1}},
    )  # fmt: skip
    evaluation = {
        "task": EVIL_TASK, "split": EVIL, "regime": EVIL, "visible_until": EVIL,
        "metrics": {EVIL: EVIL},
        "baselines": {EVIL: {"metrics": {EVIL: 1.0}, "constant": EVIL, "fallback": EVIL,
                             "fallback_share": 0.5}},
        "obs_time": [{"from": EVIL, "to": EVIL, "metrics": {}}], "verdict": {"text": EVIL},
    }  # fmt: skip
    (out / "evaluation-<i>.json").write_text(json.dumps(evaluation))
    page = outline(write_page(out))
    assert not {"script", "b>", "i"} & set(page.tags)
    assert "<script" not in (out / "run.html").read_text()
    assert sum(EVIL in text for text in page.texts) > 10
    assert ("href", "./evaluation-%3Ci%3E.json") in page.attributes


def test_control_characters_of_names_are_spelled_out(tmp_path: Path) -> None:
    """U+202E turns the text behind it round; half of a surrogate pair cannot be written."""
    name = "a\x1b[2J\u202eb\ud800"
    write_log(tmp_path, {**START, "tasks": {name: 1}}, train_line(1, 1.0))
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert "<h1>a\\x1b[2J\\u202eb\\ud800</h1>" in page


def test_the_command_makes_the_page_or_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "run", START)
    assert main(["page", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run' / 'run.html'}\n"
    assert main(["page", str(tmp_path / "other")]) == 1
    assert "has no log of a run" in capsys.readouterr().err


# ---- the charts


def test_ticks_are_round_and_within_the_ends() -> None:
    assert Axis(0, 100, 0, 1).ticks() == [0, 20, 40, 60, 80, 100]
    assert Axis(0.93, 2.1, 0, 1).ticks() == pytest.approx([1.0, 1.5, 2.0])
    assert Axis(-1, 1, 100, 0).place(0.5) == 25
    assert [short(v) for v in (0, 0.01234, 12.34, 1234.5, 2.5e6, 3e9, 1.2e-7)] == [
        "0", "0.0123", "12.3", "1,234", "2.5M", "3G", "1.2e-07",
    ]  # fmt: skip


def test_long_curves_are_thinned_to_means() -> None:
    points = [(float(i), float(i % 2)) for i in range(10 * POINTS)]
    few = thinned(points)
    assert len(few) == POINTS and {y for _, y in few} == {0.5}
    assert thinned(points[:POINTS]) == points[:POINTS]


def test_values_that_are_no_numbers_are_not_drawn() -> None:
    nan = float("nan")
    chart = line_chart("t", [Line("a", [(1, 1.0), (2, nan), (3, 2.0)]), Line("b", [(1, nan)])])
    assert "nan" not in chart and chart.count("polyline") == 1
    assert line_chart("t", [Line("b", [(1, nan)])]) == ""
    assert "<circle" in line_chart("t", [Line("one", [(7, 3.0)])])
    assert histogram("t", [], [], x_label="ms") == histogram("t", [1, 2], [0], x_label="ms") == ""
