"""The verdict of an evaluation: one sentence that names who answers best, from paired intervals.

    the main metric of everyone, and over the resamples ──► who is better than whom
    who is better than whom, the constant above all     ──► Verdict: kind, sentence, numbers

One is better than another if the interval of their difference, on the same draws, does not hold 0.
The kind of a verdict is the first of these that is true:

    unknown     the metric is undefined, or there are too few seeds or resamples to decide
    baseline    a baseline is better than the answer, and than a constant
    nothing     neither the answer nor a baseline is better than a constant, or a constant is best
    same        the answer is better than a constant, and does not differ from a baseline
    better      the answer is better than every baseline
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from headwater import SemanticType

from confluence.data.tasks import Floats
from confluence.scores.baselines import CONSTANT, HISTORY, MODEL_ALONE, subject_of
from confluence.scores.bootstrap import Interval, interval
from confluence.scores.metrics import metric_text

MODEL = "model"  # among the names of baselines
LEAST_ANCHORS = 20  # with fewer, bootstrap intervals are too narrow to decide
LEAST_DRAWS = 40  # one of 40 is 2.5 %, the part of the resamples below an interval
LEAST_OF_CLASS = 5  # true seeds, and false seeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The model, trees or probe whose answers are judged."""

    title: str  # its name in the sentence
    same_as: str | None = None  # the baseline with exactly the same answers
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # by baseline


OF_PROBE = Answer(title="the probe")


def of_model(tree_share: float = 0.0, *, has_trees: bool = True) -> Answer:
    """A model's answers, or their average with those of the trees on history.

    Args:
        has_trees: whether the run has trees that could answer.
    """
    alone = {MODEL_ALONE: "--tree-share 0 uses it alone"}
    if tree_share == 1.0:
        return Answer(title=subject_of(HISTORY), same_as=HISTORY, options=alone)
    if tree_share > 0.0:
        options = {HISTORY: "--tree-share 1 uses them alone", **alone}
        return Answer(title="model and trees together", options=options)
    use = "--tree-share 1 uses them" if has_trees else "`confluence train` with --resume keeps them"
    return Answer(title="the model", options={HISTORY: use})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The conclusion of an evaluation, for people and for programs."""

    kind: str  # unknown, baseline, nothing, same, better
    text: str  # one sentence, or two
    metric: str
    baseline: str | None = None  # that the answer is compared with
    better_by: float | None = None  # the answer than the baseline; below 0: the baseline is better
    interval: Interval = None  # of `better_by`


class Ahead(NamedTuple):
    """By how much one is better than another, and the ends of its interval."""

    by: float
    low: float
    high: float

    def text(self, metric: str) -> str:
        """The words of a sentence."""
        by, low, high = map(metric_text, self)
        return f"{by} [{low}, {high}] in {metric}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoreboard:
    """The main metric of the answer (MODEL) and of the baselines by name."""

    metric: str
    sign: int  # 1 if larger is better, else -1
    values: Mapping[str, float | None]
    samples: Mapping[str, Floats]  # [K] over the resamples

    @classmethod
    def of(
        cls, metric: str, sign: int, scored: Mapping[str, Any],
        samples: Mapping[str, Mapping[str, Floats]],
    ) -> Scoreboard:  # fmt: skip
        """From the metrics of an evaluation, and everyone's metrics over the resamples."""
        everyone = {MODEL: scored, **scored["baselines"]}
        return cls(
            metric=metric, sign=sign,
            values={name: one["metrics"][metric] for name, one in everyone.items()},
            samples={name: of_one[metric] for name, of_one in samples.items() if of_one},
        )  # fmt: skip

    def ahead(self, one: str, other: str) -> Ahead | None:
        """By how much one is better than another; None if that is undefined."""
        ours, theirs = self.values.get(one), self.values.get(other)
        if ours is None or theirs is None or not {one, other} <= self.samples.keys():
            return None
        found = interval(self.sign * (self.samples[one] - self.samples[other]))
        return None if found is None else Ahead(self.sign * (ours - theirs), *found)

    def is_better(self, one: str, other: str) -> bool:
        """Whether one is better than another by more than chance."""
        ahead = self.ahead(one, other)
        return ahead is not None and ahead.low > 0

    def best(self, names: Iterable[str], wanted: Iterable[str]) -> str:
        """The best of some names; a wanted one instead, if the best is not better than it."""
        names = list(names)
        first = max(names, key=lambda name: self.sign * (self.values[name] or 0.0))
        for name in wanted:
            if name in names and not self.is_better(first, name):
                return name
        return first


def judge(
    board: Scoreboard, answer: Answer, *, targets: Floats, anchors: int, stype: SemanticType
) -> Verdict:
    """The verdict on an answer.

    Args:
        targets: the labels scored. [n]
        anchors: how many different anchors these labels have.
    """
    reason = _why_unknown(board, targets, anchors, stype)
    if reason is not None:
        text = f"The evaluation does not show who is better: {reason}."
        return Verdict(kind="unknown", text=text, metric=board.metric)
    others = [
        name
        for name in board.values
        if name not in (MODEL, answer.same_as) and board.ahead(MODEL, name) is not None
    ]
    kind, name, text = _compared(board, answer, [n for n in others if n != CONSTANT])
    if HISTORY not in others and answer.same_as != HISTORY:
        text += " No boosted trees were compared."
    ahead = board.ahead(MODEL, name)
    return Verdict(
        kind=kind, text=text[0].upper() + text[1:], metric=board.metric, baseline=name,
        better_by=None if ahead is None else ahead.by,
        interval=None if ahead is None else [ahead.low, ahead.high],
    )  # fmt: skip


def _compared(board: Scoreboard, answer: Answer, others: list[str]) -> tuple[str, str, str]:
    """The kind, the baseline that the sentence names, and the sentence.

    Args:
        others: all baselines except the constant.
    """
    who, constant = answer.title, subject_of(CONSTANT)
    is_learned = board.is_better(MODEL, CONSTANT)
    learned = [name for name in others if board.is_better(name, CONSTANT)]
    worth_it = others if is_learned else learned
    winners = [name for name in worth_it if board.is_better(name, MODEL)]
    if winners or (learned and not is_learned):
        name = board.best(winners or learned, answer.options)
        use = f": {answer.options[name]}" if name in answer.options else ""
        them, are = subject_of(name), _verb(subject_of(name))
        if winners:
            by = _text(board, name, MODEL)
            return "baseline", name, f"{them} {are} better than {who} by {by}{use}."
        by = _text(board, name, CONSTANT)
        text = (
            f"{who} {_verb(who)} no better than {constant}, but {them} {are} better by {by}{use}."
        )
        return "baseline", name, text
    if board.is_better(CONSTANT, MODEL):
        by = _text(board, CONSTANT, MODEL)
        text = f"{who} {_verb(who)} worse than {constant} by {by}: nothing was learned."
        return "nothing", CONSTANT, text
    if not is_learned:
        by = _text(board, MODEL, CONSTANT)
        text = f"{who} {_verb(who)} no better than {constant} ({by}): nothing was learned."
        return "nothing", CONSTANT, text
    equals = [name for name in others if not board.is_better(MODEL, name)]
    if equals:
        name = board.best(equals, answer.options)
        by = _text(board, MODEL, name)
        do = "do" if _verb(who) == "are" else "does"
        return "same", name, f"{who} {do} not differ from {subject_of(name)} ({by})."
    name = board.best([CONSTANT, *others], ())
    than = f"{subject_of(name)}, the best baseline," if others else subject_of(name)
    by = _text(board, MODEL, name)
    return "better", name, f"{who} {_verb(who)} better than {than} by {by}."


def _text(board: Scoreboard, one: str, other: str) -> str:
    ahead = board.ahead(one, other)
    assert ahead is not None
    return ahead.text(board.metric)


def _verb(subject: str) -> str:
    return "are" if "trees" in subject else "is"


def _why_unknown(
    board: Scoreboard, targets: Floats, anchors: int, stype: SemanticType
) -> str | None:
    """Why the numbers do not decide who is better; None if they do."""
    if not targets.size:
        return "no seed of the split has a label"
    count, metric = f"{targets.size:,} labels scored", board.metric
    if board.values[MODEL] is None:
        is_one = np.unique(targets).size == 1
        return f"{metric} is undefined" + (f", because all {count} are equal" if is_one else "")
    if anchors < LEAST_ANCHORS:
        return f"the {count} are of {anchors} anchors, and {LEAST_ANCHORS} are needed"
    drawn = board.samples[MODEL].size if MODEL in board.samples else 0
    if 0 < drawn < LEAST_DRAWS:
        return f"its intervals are of {drawn} resamples, and {LEAST_DRAWS} are needed"
    if stype == SemanticType.BOOLEAN:
        true = int(np.sum(targets > 0.5))
        fewest, which = min((true, "true"), (targets.size - true, "false"))
        if fewest < LEAST_OF_CLASS:
            return f"{fewest} of the {count} are {which}, and {LEAST_OF_CLASS} are needed"
    if board.ahead(MODEL, CONSTANT) is None:
        return f"{metric} is undefined in most of the draws"
    return None
