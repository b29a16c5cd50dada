"""An evaluation shows itself: the table at a prompt and in a notebook, short and escaped."""

from __future__ import annotations

import json
from typing import Any

from confluence.report.evaluation import Evaluation

EVIL = "<b>\x1b[31m" + "ü" * 900


def scores(**more: Any) -> dict[str, Any]:
    return {"metrics": {"auroc": 0.75, "f1": 0.5}, **more}


def result(parts: int = 0, **more: Any) -> dict[str, Any]:
    baselines = {"per_entity": scores(fallback_share=0.25), "global_constant": scores()}
    part = {"from": "2025-01-01", "to": "2025-02-01", "scored": 3, "anchors": 2}
    return scores(
        task="churn", split="test", regime="rolling", visible_until=None, step=40, seeds=9,
        scored=8, anchors=7, null=0, unlabelled=1, baselines=baselines,
        obs_time=[scores(**part, baselines=baselines)] * parts, **more,
    )  # fmt: skip


def test_an_evaluation_is_a_dict_that_prints_as_its_table() -> None:
    found = Evaluation(result())
    assert found == result() and json.loads(json.dumps(found)) == result()
    assert repr(found) == str(found)
    assert str(found).splitlines() == [
        "churn on test, rolling, 8 seeds of 7 anchors scored, 1 without a label not",
        "                    auroc  model's auroc less this      f1",
        "  model            0.7500                           0.5000",
        "  per entity       0.7500                           0.5000",
        "  global constant  0.7500                           0.5000",
        "  per entity falls back to the global constant for 25% of the seeds",
    ]
    assert "<tr><td>model</td><td>0.7500</td><td>0.5000</td></tr>" in found._repr_html_()


def test_a_long_evaluation_shows_its_beginning_and_counts_the_rest() -> None:
    found = Evaluation(result(parts=90))
    lines = repr(found).splitlines()
    assert len(repr(found).encode()) < 2_000
    assert lines[:-1] == str(found).splitlines()[: len(lines) - 1]
    more = len(str(found).splitlines()) - len(lines) + 1
    assert lines[-1] == f"  ... and {more} more lines: print(evaluation)" and more > 50


def test_the_verdict_is_shown_however_long_an_evaluation_is() -> None:
    verdict = {"kind": "same", "text": "The model and <b>trees</b> do not differ."}
    for parts in (0, 90):
        found = Evaluation(result(parts=parts, verdict=verdict))
        assert str(found).splitlines()[-2:] == ["", verdict["text"]]
        assert repr(found).splitlines()[0] == str(found).splitlines()[0]
        assert repr(found).splitlines()[-1] == verdict["text"]
        assert ("more lines" in repr(found)) == (parts > 0) and len(repr(found).encode()) < 2_000
        assert found._repr_html_().startswith("<p>The model and &lt;b&gt;trees&lt;/b&gt; do not")


def test_names_in_an_evaluation_are_escaped_and_cut() -> None:
    found = Evaluation(result() | {"task": EVIL, "visible_until": EVIL})
    assert len(repr(found).encode()) < 2_000 and "\x1b" not in repr(found)
    assert "<b>" not in found._repr_html_() and "&lt;b&gt;" in found._repr_html_()


def test_the_loss_of_masked_cells_is_a_table_by_type() -> None:
    types = {"numerical": {"cells": 1200, "loss": 0.5}, "text": {"cells": 0, "loss": None}}
    found = Evaluation(
        objective="masked_cells", split="val", regime="rolling", visible_until=None, contexts=9,
        loss=0.25, types=types, step=3,
    )  # fmt: skip
    assert repr(found).startswith("masked cells on val, rolling, 9 contexts\n  all ")
    html = found._repr_html_()
    assert "<p>masked cells on val, rolling, 9 contexts</p><table>" in html
    assert "<td>all</td><td>0.2500</td><td></td>" in html
    assert "<td>numerical</td><td>0.5000</td><td>1,200</td>" in html
    assert "<td>text</td><td>-</td><td>0</td>" in html


def test_what_lacks_scores_shows_what_it_has() -> None:
    """Of the ranks the first alone scores."""
    assert repr(Evaluation()) == "<Evaluation with nothing in it>"
    assert Evaluation(mine=1)._repr_html_() == "<p>&lt;Evaluation with mine&gt;</p>"
