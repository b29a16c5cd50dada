"""The sentence about an evaluation: every case, with numbers that can be worked out by hand.

Everyone's resamples are value + spread × (-1, -0.95, ... 1): 41 of them, so that the 2.5 % and
97.5 % quantiles are those before the ends, value ± 0.95 spread. Differences are between such.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from headwater import SemanticType
from test_scoring import labels_of, predictions_of, task_of

from confluence.report.tables import describe_evaluation
from confluence.scores.metrics import main_metric
from confluence.scores.scoring import Terms, evaluate
from confluence.scores.verdict import (
    OF_PROBE,
    Answer,
    Scoreboard,
    Verdict,
    judge,
    of_model,
)

UNIT = np.linspace(-1.0, 1.0, 41)
MANY = np.tile([0.0, 1.0], 100)


def verdict(
    answer: Answer | None = None, *, stype: SemanticType = SemanticType.BOOLEAN,
    targets: Any = MANY, anchors: int = 100, **everyone: tuple[float | None, float],
) -> Verdict:  # fmt: skip
    """Of everyone's metric and its spread."""
    names = {"constant": "global_constant"}
    metric, sign = main_metric(stype, "mae")
    board = Scoreboard(
        metric=metric, sign=sign,
        values={names.get(name, name): value for name, (value, _) in everyone.items()},
        samples={
            names.get(name, name): (np.nan if value is None else value) + spread * UNIT
            for name, (value, spread) in everyone.items()
        },
    )  # fmt: skip
    return judge(
        board, answer or of_model(), targets=np.array(targets), anchors=anchors, stype=stype
    )


def test_trees_that_are_better_are_named_with_their_option() -> None:
    """The README's own example: .803 against .741, on draws that vary alike."""
    found = verdict(
        model=(0.741, 0.03), constant=(0.5, 0.0), history=(0.803, 0.01), own_columns=(0.51, 0.02)
    )
    assert found == Verdict(
        kind="baseline", metric="auroc", baseline="history",
        text="Trees on history are better than the model by 0.0620 [0.0430, 0.0810] in auroc:"
        " --tree-share 1 uses them.",
        better_by=pytest.approx(-0.062), interval=pytest.approx([-0.081, -0.043]),
    )  # fmt: skip


def test_of_errors_the_smaller_is_better() -> None:
    numbers = {"stype": SemanticType.NUMERICAL, "targets": np.arange(200.0)}
    found = verdict(**numbers, model=(3.0, 0.0), constant=(9.0, 0.0), history=(2.5, 0.2))
    assert found.text == (
        "Trees on history are better than the model by 0.5000 [0.3100, 0.6900] in mae:"
        " --tree-share 1 uses them."
    )
    found = verdict(**numbers, model=(2.0, 0.0), constant=(9.0, 0.0), history=(2.5, 0.2))
    assert (found.kind, found.better_by) == ("better", 0.5)
    assert found.text == (
        "The model is better than trees on history, the best baseline, by 0.5000 [0.3100, 0.6900]"
        " in mae."
    )


def test_a_baseline_that_no_option_uses_has_none() -> None:
    for name, subject in (("own_columns", "Trees on own columns are"),
                          ("per_entity", "A constant for each entity is")):  # fmt: skip
        found = verdict(
            model=(0.6, 0.0), constant=(0.5, 0.0), history=(0.61, 0.0), **{name: (0.8, 0.1)}
        )
        assert (found.kind, found.baseline) == ("baseline", name)
        assert found.text == f"{subject} better than the model by 0.2000 [0.1050, 0.2950] in auroc."


def test_of_equal_winners_the_one_with_an_option_is_named() -> None:
    found = verdict(
        model=(0.6, 0.0), constant=(0.5, 0.0), history=(0.79, 0.0), own_columns=(0.8, 0.1)
    )  # .01 [-.085, .105] apart
    assert found.baseline == "history"


def test_a_model_that_is_better_than_all_is_compared_with_the_best() -> None:
    found = verdict(
        model=(0.9, 0.0), constant=(0.5, 0.0), per_entity=(0.7, 0.0), history=(0.8, 0.02)
    )
    assert found.kind == "better" and found.baseline == "history"
    assert found.text == (
        "The model is better than trees on history, the best baseline, by 0.1000 [0.0810, 0.1190]"
        " in auroc."
    )


def test_a_model_and_trees_that_do_not_differ() -> None:
    found = verdict(model=(0.81, 0.0), constant=(0.5, 0.0), history=(0.8, 0.02))
    assert (found.kind, found.baseline) == ("same", "history")
    assert found.text == (
        "The model does not differ from trees on history (0.0100 [-0.0090, 0.0290] in auroc)."
    )


def test_one_baseline_that_does_not_differ_is_enough() -> None:
    """Trees on own columns are clearly worse; those on history vary so much that nobody knows."""
    found = verdict(
        model=(0.81, 0.0), constant=(0.5, 0.0), history=(0.7, 0.2), own_columns=(0.75, 0.0)
    )
    assert (found.kind, found.baseline) == ("same", "history")


def test_nothing_was_learned() -> None:
    found = verdict(model=(0.51, 0.02), constant=(0.5, 0.0), history=(0.5, 0.01))
    assert (found.kind, found.baseline) == ("nothing", "global_constant")
    assert found.text == (
        "The model is no better than a constant (0.0100 [-0.0090, 0.0290] in auroc):"
        " nothing was learned."
    )
    worse = verdict(model=(0.4, 0.02), constant=(0.5, 0.0), history=(0.5, 0.1))
    assert (worse.kind, worse.better_by) == ("nothing", pytest.approx(-0.1))
    assert worse.text == (
        "The model is worse than a constant by 0.1000 [0.0810, 0.1190] in auroc:"
        " nothing was learned."
    )


def test_trees_that_beat_the_model_and_no_constant_are_not_recommended() -> None:
    found = verdict(model=(0.4, 0.02), constant=(0.5, 0.0), history=(0.51, 0.02))
    assert (found.kind, found.baseline) == ("nothing", "global_constant")
    assert "tree-share" not in found.text


def test_trees_that_learned_where_the_model_did_not_are_named() -> None:
    """They are .04 [-.017, .097] apart, which is no difference; only one of them beats .5."""
    found = verdict(model=(0.52, 0.05), constant=(0.5, 0.0), history=(0.56, -0.01))
    assert (found.kind, found.baseline) == ("baseline", "history")
    assert found.text == (
        "The model is no better than a constant, but trees on history are better by 0.0600"
        " [0.0505, 0.0695] in auroc: --tree-share 1 uses them."
    )


def test_an_answer_that_is_mixed_with_trees() -> None:
    given = {"model": (0.8, 0.0), "constant": (0.5, 0.0), "history": (0.9, 0.1)}
    assert verdict(of_model(0.5), **given).text == (
        "Trees on history are better than model and trees together by 0.1000 [0.0050, 0.1950] in"
        " auroc: --tree-share 1 uses them alone."
    )
    # With all of the answer they are compared with the others, not with themselves.
    found = verdict(of_model(1.0), **{**given, "history": given["model"]})
    assert found.text == (
        "Trees on history are better than a constant by 0.3000 [0.3000, 0.3000] in auroc."
    )


def test_a_probe_has_no_option_for_trees() -> None:
    given = {"constant": (0.5, 0.0), "history": (0.9, 0.1), "untrained": (0.6, 0.0)}
    found = verdict(OF_PROBE, model=(0.8, 0.0), **given)
    assert found.text == (
        "Trees on history are better than the probe by 0.1000 [0.0050, 0.1950] in auroc."
    )


def test_trees_that_were_not_there_are_mentioned() -> None:
    found = verdict(model=(0.8, 0.0), constant=(0.5, 0.0))
    assert found.text == (
        "The model is better than a constant by 0.3000 [0.3000, 0.3000] in auroc."
        " No boosted trees were compared."
    )


@pytest.mark.parametrize(
    ("targets", "anchors", "model", "reason"),
    [
        ([], 0, None, "no seed of the split has a label"),
        (np.ones(37), 37, None, "auroc is undefined, because all 37 labels scored are equal"),
        (MANY, 19, 0.9, "the 200 labels scored are of 19 anchors, and 20 are needed"),
        ([1.0] * 4 + [0.0] * 1996, 2000, 0.9,
         "4 of the 2,000 labels scored are true, and 5 are needed"),
        ([1.0] * 96 + [0.0] * 3, 99, 0.9, "3 of the 99 labels scored are false, and 5 are needed"),
    ],
)  # fmt: skip
def test_too_little_to_tell_is_no_guess(
    targets: Any, anchors: int, model: float | None, reason: str
) -> None:
    found = verdict(
        targets=targets, anchors=anchors, model=(model, 0.0), constant=(model and 0.5, 0.0)
    )
    assert found == Verdict(
        kind="unknown",
        text=f"The evaluation does not show who is better: {reason}.",
        metric="auroc",
    )


def test_an_evaluation_has_a_verdict_and_the_table_ends_with_it() -> None:
    """Half of 200 anchors are true. The model takes 4 of each kind for the other, trees none."""
    rows = [(anchor, 1, float(anchor % 2), 2 * int(anchor >= 20)) for anchor in range(220)]
    labels, task = labels_of(rows), task_of(SemanticType.BOOLEAN)
    index = np.arange(20, 220)
    truth = index % 2
    model = np.where(index < 28, 1 - truth, truth) * 1.0  # 4 of each are the wrong way round
    trees = np.full(220, np.nan)
    trees[index] = truth
    result = evaluate(
        predictions_of(index.tolist(), model.tolist()),
        labels,
        task,
        Terms(split="test", metric="mae", resamples=None),
        more={"history": {"model": "trees", "values": trees}},
    )
    # Of 100 × 100 pairs 96 × 96 are right and 2 × 96 × 4 are ties: .9216 + .0384.
    assert result["metrics"]["auroc"] == pytest.approx(0.96)
    found = result["verdict"]
    assert (found["kind"], found["baseline"]) == ("baseline", "history")
    assert found["better_by"] == pytest.approx(-0.04)
    entry = result["baselines"]["history"]
    assert found["interval"] == entry["difference_intervals"]["auroc"]
    assert found["text"].startswith("Trees on history are better than the model by 0.0400 [0.0")
    assert describe_evaluation(result)[-2:] == ["", found["text"]]
    plain = evaluate(
        predictions_of(index.tolist(), model.tolist()),
        labels,
        task,
        Terms(split="test", metric="mae"),
    )
    assert "verdict" not in plain  # without intervals nobody can tell


@pytest.mark.parametrize(("resamples", "kind"), [(1, "unknown"), (39, "unknown"), (40, "better")])
def test_a_few_resamples_decide_nothing(resamples: int, kind: str) -> None:
    """One draw has an interval of one point, which never holds 0."""
    rows = [(anchor, 1, float(anchor % 2), 2 * int(anchor >= 20)) for anchor in range(220)]
    index = np.arange(20, 220)
    result = evaluate(
        predictions_of(index.tolist(), (index % 2 * 1.0).tolist()),
        labels_of(rows),
        task_of(SemanticType.BOOLEAN),
        Terms(split="test", metric="mae", resamples=resamples),
    )
    assert result["verdict"]["kind"] == kind
    wanted = f"its intervals are of {resamples} resamples, and 40 are needed"
    assert (wanted in result["verdict"]["text"]) == (kind == "unknown")
