"""Probabilities that come true as often as they should, and zeros that are 0: a map of answers,
chosen on val.

    answers to val, their labels ──► no map, or one: the least error in parts of val that the map
                                     did not see ──► Calibration
    heads' outputs ──► Calibrated ──► heads' outputs

Platt's map is a logistic regression on the logit (Platt 1999), the isotonic one a monotone step
function (Zadrozny and Elkan 2002), here joined up between the middles of its steps. Categories have
one factor for all logits (temperature scaling; Guo et al. 2017). None of these maps changes the
order of two answers. A map is kept if its gain is more than its standard error. The error of
probabilities is the Brier score.

Numbers that are often 0 may be a hurdle, zero or not and then how much (Cragg 1971): an answer that
is nearer to 0 than a limit becomes 0. The limit has the least error of the task's metric.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray
from scipy import optimize

from confluence.answers.read_out import OutputSource, read_answers
from confluence.data.tasks import Floats, Task
from confluence.model.outputs import Pass, as_output, gathered, sigmoid, softmax
from confluence.model.transformer import Output, Params

PLATT, ISOTONIC, TEMPERATURE, ZERO = "platt", "isotonic", "temperature", "zero"
BRIER, ABSOLUTE, SQUARED = "brier", "absolute_error", "squared_error"
LEAST_LABELS = 200  # of val, by which a map is chosen
LEAST_ISOTONIC = 1_000  # the same of an isotonic one
PARTS = 5  # of val, by time
LEAST_SHARE = 1e-6  # of an answer: a logit is finite
OFTEN = 0.05  # of the labels are 0, or are not, before a limit is tried
KEPT_ORDER = 1e-3  # what the answer itself has of an isotonic map, so that no two become equal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """A map of answers, and why it is that.

    Attributes:
        kind: "platt", "isotonic", "temperature", "zero"; None: answers stay as they are.
        slope, offset: of a logit.
        points: (answer, probability) of an isotonic map, ascending; a "zero" has one, the limit
            and 0, both as the head has them.
        limit: of "zero", in the unit of the labels.
        measure: of the errors: "brier", "absolute_error", "squared_error".
        before, after: the mean error on val without a map and with it, of parts that it did not
            see; None: not measured.
        reason: why answers stay as they are, if val was not asked.
    """

    kind: str | None = None
    slope: float = 1.0
    offset: float = 0.0
    points: tuple[tuple[float, float], ...] = ()
    limit: float | None = None
    measure: str = BRIER
    before: float | None = None
    after: float | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it; JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Calibration:
        """Read `to_dict` back. TypeError or ValueError if it is not of that form."""
        points = tuple((float(a), float(b)) for a, b in found["points"])
        return cls(**{**found, "points": points})

    def applied(self, output: Output) -> Output:
        """Heads' outputs that mean the answers through the map."""
        if self.kind is None:
            return output
        null, numerical, timestamp, boolean, categorical = (
            np.asarray(part, np.float64) for part in output
        )
        if self.kind == TEMPERATURE:
            categorical = self.slope * categorical
        elif self.kind == ZERO:
            ((limit, zero),) = self.points
            numerical = np.where(np.abs(numerical - zero) < limit, zero, numerical)
        else:
            share = self.shares(sigmoid(boolean))
            boolean = np.log(share) - np.log1p(-share)
        return as_output([null, numerical, timestamp, boolean, categorical])

    def shares(self, answers: Floats) -> Floats:
        """The probabilities of truth that answers mean. [n] → [n]"""
        if self.kind == ISOTONIC:
            at, value = np.array(self.points).T
            found = np.interp(answers, at, value)
            return within((1 - KEPT_ORDER) * found + KEPT_ORDER * answers)
        return sigmoid(self.slope * logits(answers) + self.offset)


NO_MAP = Calibration()


class Calibrated:
    """An `OutputSource`: the outputs of another one through a map."""

    def __init__(self, source: OutputSource, calibration: Calibration) -> None:
        self._source, self._calibration = source, calibration
        self._before: list[Output] = []

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """The same seeds in the same order."""
        for output, info in self._source.outputs(params, batches):
            self._before.append(output)
            yield self._calibration.applied(output), info

    def joined(self) -> Output | None:
        """What went into the map; None without batches."""
        found: Output | None = gathered((output, {}) for output in self._before)[0]
        return found


def brier(output: Output, targets: Floats, stype: SemanticType) -> Floats | None:
    """The squared distance of each answer's probabilities from the truth, summed over categories;
    None if the answers have none. [n]"""
    if stype == SemanticType.BOOLEAN:
        found = (sigmoid(np.asarray(output.boolean, np.float64)) - targets) ** 2
        return np.asarray(found, np.float64)
    if stype == SemanticType.CATEGORICAL:
        shares = softmax(np.asarray(output.categorical, np.float64))
        truth = np.arange(shares.shape[1]) == targets[:, None]
        return np.asarray(np.sum((shares - truth) ** 2, axis=1), np.float64)
    return None


def measure_of(stype: SemanticType, metric: str) -> str:
    """The name of `errors_of`. metric: of `Config`."""
    if stype == SemanticType.NUMERICAL:
        return SQUARED if metric == "rmse" else ABSOLUTE
    return BRIER


def errors_of(output: Output, targets: Floats, task: Task, measure: str) -> Floats | None:
    """How far each answer is from the truth; None if no map changes answers of the kind. [n]"""
    if task.stype != SemanticType.NUMERICAL:
        return brier(output, targets, task.stype)
    off = read_answers(output, task)[0] - targets
    return off**2 if measure == SQUARED else np.abs(off)


def choose(
    output: Output, targets: Floats, task: Task, times: NDArray[np.int64], metric: str = "mae"
) -> Calibration:
    """The map for answers to labelled seeds of val.

    Args:
        targets: [n] labels.
        times: [n] of the seeds, which deal them to parts.
        metric: of `Config`.
    """
    measure = measure_of(task.stype, metric)
    before = errors_of(output, targets, task, measure)
    if before is None:
        return Calibration(reason="the answers are times")
    if targets.size < LEAST_LABELS:
        few = f"val has {targets.size:,} labels, too few to calibrate by"
        return Calibration(reason=few)
    if np.unique(targets).size < 2:
        return Calibration(reason="all labels of val are equal")
    if task.stype == SemanticType.NUMERICAL and not OFTEN <= np.mean(targets == 0) <= 1 - OFTEN:
        return Calibration(reason="the numbers of val are 0 too seldom, or nearly all of them are")
    part = _parts(times)
    score = float(before.mean())
    best, least = Calibration(before=score, after=score, measure=measure), score
    for fit in _fits(task, measure, targets.size):
        found = _held_out(fit, output, targets, task, measure, part)
        if found is None:
            continue
        gain = before - found
        error = gain.std() / np.sqrt(gain.size)
        after = float(found.mean())
        is_better = gain.mean() > error and after < least
        if is_better and (whole := fit(output, targets)) is not None:
            best = dataclasses.replace(whole, before=score, after=after, measure=measure)
            least = after
    return best


Fit = Callable[[Output, Floats], Calibration | None]
"""A map by answers and labels; None: they have none that is of use."""


def _fits(task: Task, measure: str, count: int) -> tuple[Fit, ...]:
    if task.stype == SemanticType.NUMERICAL:
        return (functools.partial(fit_zero, task=task, measure=measure),)
    if task.stype == SemanticType.CATEGORICAL:
        return (fit_temperature,)
    return (fit_platt, fit_isotonic) if count >= LEAST_ISOTONIC else (fit_platt,)


def _parts(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Parts of about equal size, each a stretch of time; by lot if all have one time. [n]"""
    order = np.argsort(times, kind="stable")
    if times.size and times[order[0]] == times[order[-1]]:
        order = np.random.default_rng(0).permutation(times.size)
    part = np.empty(times.size, np.int64)
    part[order] = np.arange(times.size) * PARTS // max(1, times.size)
    return part


def _held_out(
    fit: Fit, output: Output, targets: Floats, task: Task, measure: str, part: NDArray[np.int64]
) -> Floats | None:
    """The error of each answer through a map that the other parts made. [n]"""
    found = np.empty(targets.size)
    for number in range(PARTS):
        own = part == number
        calibration = fit(at_rows(output, ~own), targets[~own])
        if calibration is None:
            return None
        errors = errors_of(calibration.applied(at_rows(output, own)), targets[own], task, measure)
        assert errors is not None
        found[own] = errors
    return found


def at_rows(output: Output, rows: NDArray[np.bool_]) -> Output:
    """Some of the answers."""
    return as_output([np.asarray(part)[rows] for part in output])


# ------------------------------------------------------------------------------------------- maps


def fit_platt(output: Output, targets: Floats) -> Calibration | None:
    """Slope and offset of the logit, with Platt's targets, which never are 0 or 1."""
    x = np.asarray(output.boolean, np.float64)
    x = logits(sigmoid(x))
    true = float(np.sum(targets > 0.5))
    aim = np.where(targets > 0.5, (true + 1) / (true + 2), 1 / (targets.size - true + 2))

    def loss(at: Floats) -> tuple[float, Floats]:
        slope, offset = at
        z = slope * x + offset
        off = sigmoid(z) - aim
        value = np.mean(np.logaddexp(0.0, z) - aim * z)
        return float(value), np.array([np.mean(off * x), np.mean(off)])

    found = optimize.minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS")
    slope, offset = map(float, found.x)
    return Calibration(kind=PLATT, slope=slope, offset=offset) if slope > 0 else None


def fit_isotonic(output: Output, targets: Floats) -> Calibration | None:
    """The monotone steps nearest to the labels, each with one more label, which is its answers'
    mean, so that few labels make no certainty."""
    answers = sigmoid(np.asarray(output.boolean, np.float64))
    at, place = np.unique(answers, return_inverse=True)
    weights = np.bincount(place.reshape(-1)).astype(np.float64)
    means = np.bincount(place.reshape(-1), weights=targets) / weights
    blocks = optimize.isotonic_regression(means, weights=weights).blocks
    sums = np.add.reduceat(weights, blocks[:-1])
    middle = np.add.reduceat(weights * at, blocks[:-1]) / sums
    level = np.add.reduceat(weights * means, blocks[:-1]) / sums
    level = np.maximum.accumulate((sums * level + middle) / (sums + 1))
    points = tuple(zip(middle.tolist(), level.tolist(), strict=True))
    return Calibration(kind=ISOTONIC, points=points)


def fit_temperature(output: Output, targets: Floats) -> Calibration | None:
    """One factor for the logits of all categories, by the likelihood."""
    z = np.log(np.maximum(softmax(np.asarray(output.categorical, np.float64)), LEAST_SHARE))
    rows, truth = np.arange(targets.size), targets.astype(np.int64)

    def loss(log_slope: float) -> float:
        scaled = np.exp(log_slope) * z
        return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - scaled[rows, truth]))

    found = optimize.minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    return Calibration(kind=TEMPERATURE, slope=float(np.exp(found.x)))


def fit_zero(output: Output, targets: Floats, *, task: Task, measure: str) -> Calibration | None:
    """The limit under which answers become 0 with the least error; None if it is best that none
    does."""
    if not task.low <= 0 <= task.high:
        return None  # no answer is read as 0
    values, _ = read_answers(output, task)
    distances = np.abs(np.asarray(output.numerical, np.float64) * task.std + task.mean)
    order = np.argsort(distances, kind="stable")
    targets, values, distances = targets[order], values[order], distances[order]
    more = np.abs(targets) - np.abs(values - targets)
    if measure == SQUARED:
        more = targets**2 - (values - targets) ** 2
    more = np.cumsum(more)  # of the error, if so many answers become 0
    following = np.append(distances[1:], 2 * distances[-1])
    more[following <= distances] = np.inf  # equal answers stay equal
    best = int(np.argmin(more))
    if not more[best] < 0:
        return None
    limit = float(distances[best] + following[best]) / 2
    points = ((limit / task.std, _as_zero(task)),)
    return Calibration(kind=ZERO, points=points, limit=limit)


def _as_zero(task: Task) -> float:
    """The output of the head that is read as 0, exactly if there is one."""
    near = -task.mean / task.std
    around = (near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf))
    return float(min(around, key=lambda z: abs(z * task.std + task.mean)))


def logits(shares: Floats) -> Floats:
    """Finite, of any shares."""
    shares = within(shares)
    return np.asarray(np.log(shares) - np.log1p(-shares), np.float64)


def within(shares: Floats) -> Floats:
    """Shares that are neither 0 nor 1."""
    return np.clip(shares, LEAST_SHARE, 1 - LEAST_SHARE)
