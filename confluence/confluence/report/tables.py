"""Evaluations and backtests as tables: values with intervals, differences, parts.

The first metric has its interval and, for each baseline, the model's difference with its interval;
the others stand beside it. Everything else is in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluence.answers.prediction_files import Answers
from confluence.answers.several_runs import describe_runs
from confluence.scores.baselines import title_of
from confluence.scores.metrics import metric_text
from confluence.scores.scoring import HISTORY_PARTS, short_time

ANSWERS_SHOWN = 20  # of predictions by keys
CELL_CHARACTERS = 60  # of a key or a category
RARE = 0.1  # share of true seeds, below which a line names it
TOO_GOOD = 0.995  # score of the columns of the anchor and its parents alone
Result = dict[str, Any]


def describe_held_out(result: Result) -> list[str]:
    """The losses of masked cells, by type."""
    contexts = f"{result['contexts']:,} contexts"
    lines = [f"masked cells on {result['split']}, {_regime(result)}, {contexts}"]
    parts = [("all", result["loss"], "")]
    parts += [(name, t["loss"], f"{t['cells']:,} cells") for name, t in result["types"].items()]
    for name, loss, cells in parts:
        lines.append(f"  {name:<12} {'-' if loss is None else f'{loss:.4f}':>10}  {cells}".rstrip())
    for own in result.get("stores", ()):
        loss = "-" if own["loss"] is None else f"{own['loss']:.4f}"
        lines.append(f"  all of {own['contexts']:,} contexts of '{own['store']}'  {loss}")
    return lines


def describe_evaluation(result: Result) -> list[str]:
    """The metrics of the model and its baselines, and of parts of the seeds; then who is best."""
    if result.get("objective") == "masked_cells":
        return describe_held_out(result)
    names = list(result["metrics"])
    first, others = names[0], names[1:]
    who = "with trees," if "trees" in result else "model's"
    rows = [["", first, f"{who} {first} less this", *others]]
    rows.append(_row(who_answers(result), result, first, others))
    for name, baseline in result["baselines"].items():
        rows.append(_row(title_of(name), baseline, first, others))
    verdict = ["", result["verdict"]["text"]] if "verdict" in result else []
    tables = [*aligned(rows), *_notes(result), *_parts(result, first)]
    return [_headline(result), *tables, *verdict]


def describe_answers(answers: Answers) -> list[str]:
    """The first predictions as a table."""
    columns = answers.columns(0, ANSWERS_SHOWN)
    columns["obs_time"] = list(map(short_time, columns["obs_time"]))
    rows = [
        list(columns),
        *([_cell(v) for v in row] for row in zip(*columns.values(), strict=True)),
    ]
    more = len(answers) - ANSWERS_SHOWN
    return [*aligned(rows), *([f"  and {more:,} more"] if more > 0 else [])]


def _cell(value: Any) -> str:
    """A value of a prediction on one line; unprintable characters are spelled as in Python."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1 else f"{value:.6g}"
    text = str(value)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= CELL_CHARACTERS else f"{text[:CELL_CHARACTERS]}..."


def describe_backtest(result: Result) -> list[str]:
    """The metric of each task by cutoff and in the mean, beside the baselines."""
    lines: list[str] = []
    for title, summary in result["tasks"].items():
        metric, names = summary["metric"], list(summary["baselines"])
        folds = [fold for fold in result["folds"] if fold["task"] == title]
        share = folds[0]["tree_share"]
        who = "with trees" if share else "model"
        joint = {fold["cutoff"]: fold for fold in result["together"] if fold["task"] == title}
        rows = [["cutoff", "seed", "scored", who, "rolling", *map(title_of, names)]]
        for number, fold in enumerate(folds, start=1):
            values = [fold["frozen"][metric], fold["rolling"][metric]]
            values += [fold["baselines"][name].get(metric) for name in names]
            cutoff, scored = short_time(fold["cutoff"]), f"{fold['scored']:,}"
            rows.append([cutoff, str(fold["seed"]), scored, *map(four_digits, values)])
            is_last = number == len(folds) or folds[number]["cutoff"] != fold["cutoff"]
            if is_last and fold["cutoff"] in joint:
                both = [joint[fold["cutoff"]][regime][metric] for regime in ("frozen", "rolling")]
                rows.append([cutoff, "all", scored, *map(four_digits, both), *[""] * len(names)])
        means = [summary["model"], summary["rolling"], *map(summary["baselines"].get, names)]
        rows.append(["mean", "", "", *map(four_digits, means)])
        if summary["together"]:
            both = [summary["together"][regime] for regime in ("frozen", "rolling")]
            rows.append(["mean", "all", "", *map(four_digits, both), *[""] * len(names)])
        with_trees = f", {describe_trees({'share': share})}" if share else ""
        lines += ["", f"{title}, {metric}, frozen at each cutoff{with_trees}", *aligned(rows)]
        if summary["std"] is not None:
            lines.append(f"  standard deviation over seeds: {summary['std']:.4f}")
        if summary["together"]:
            count = len(next(iter(joint.values()))["runs"])
            lines.append(f"  all: the {count} runs at each cutoff answer together")
    return lines[1:]


def four_digits(value: float | None) -> str:
    """A loss or a metric; "-" if there is none."""
    return "-" if value is None else f"{value:.4f}"


def _regime(result: Result) -> str:
    until = result["visible_until"]
    return str(result["regime"]) + (f" at {until}" if until else "")


def _headline(result: Result) -> str:
    seeds = f"{result['scored']:,} seeds of {result['anchors']:,} anchors scored"
    for name, what in (("unlabelled", "without a label"), ("null", "with NULL")):
        if result[name]:
            seeds += f", {result[name]:,} {what} not"
    return f"{result['task']} on {result['split']}, {_regime(result)}, {seeds}"


def _row(title: str, scores: Result, first: str, others: list[str]) -> list[str]:
    """The first metric with its interval, the model's distance in it, and the other metrics."""
    difference = ""
    if scores.get("differences"):
        difference = _with_interval(
            scores["differences"][first], scores["difference_intervals"][first], sign="+"
        )
    value = _with_interval(scores["metrics"][first], (scores.get("intervals") or {}).get(first))
    return [title, value, difference, *(metric_text(scores["metrics"][name]) for name in others)]


def _notes(result: Result) -> list[str]:
    share = result["baselines"]["per_entity"]["fallback_share"]
    lines = [f"  {describe_probe(result['probe'])}"] if "probe" in result else []
    if result["scored"]:
        lines.append(f"  per entity falls back to the global constant for {share:.0%} of the seeds")
    lines += [f"  {line}" for line in describe_base_rate(result)]
    lines += [f"  {result['open_windows']}"] if "open_windows" in result else []
    lines += _too_good_columns(result)
    drawn = result.get("resampling")
    if drawn and result.get("intervals"):
        lines.append(
            f"  [low, high]: {drawn['level']:.0%} intervals of {drawn['resamples']:,} draws of"
            " anchors; differences on the same draws"
        )
    if "runs" in result:
        lines.append("  " + describe_runs(result["runs"]))
    if "trees" in result:
        lines.append(f"  {describe_trees(result['trees'])}")
    if "calibration" in result:
        lines.append(f"  {describe_calibration(result['calibration'])}")
    left_out = max((b.get("left_out", 0) for b in result["baselines"].values()), default=0)
    if left_out:
        lines.append(f"  {describe_left_out(left_out)}")
    missing = {b["missing"]: None for b in result["baselines"].values() if "missing" in b}
    return [*lines, *(f"  no boosted trees: {reason}" for reason in missing)]


def who_answers(result: Mapping[str, Any]) -> str:
    """The title of the answers that a result scores."""
    if "probe" in result:
        return "probe"
    share = share_of_trees(result)
    return "model" if share == 0 else "trees" if share == 1 else "model and trees"


def share_of_trees(result: Mapping[str, Any]) -> float:
    """What trees have of the answers that a result scores."""
    return float((result.get("trees") or {}).get("share", 0.0))


def describe_trees(trees: Result) -> str:
    """The share of trees in the answers, in a line, and why it is that."""
    line = f"trees on history have {trees['share']:g} of each answer"
    chosen = trees.get("chosen")
    if chosen is None:
        return line
    return f"{line}: {reason_for_share(chosen)}"


def reason_for_share(chosen: Mapping[str, Any]) -> str:
    """Why the trees have their share."""
    if chosen["reason"] is not None:
        return str(chosen["reason"])
    found = ", ".join(f"{metric_text(value)} with {share:g}" for share, value in chosen["by_share"])
    return f"{chosen['metric']} on val is {found}"


MEASURE_TITLES = {
    "brier": "Brier score",
    "absolute_error": "mean absolute error",
    "squared_error": "mean squared error",
}


def describe_calibration(calibration: Mapping[str, Any]) -> str:
    """The map of the answers, and what it brings, in a line."""
    kind, limit = calibration["kind"], calibration.get("limit")
    title = {"platt": "Platt's method", "isotonic": "isotonic regression"}.get(
        kind, "one temperature for all categories"
    )
    does = f"probabilities are calibrated by {title}"
    if limit is not None:
        does = f"answers nearer to 0 than {metric_text(limit)} become 0"
    before, after = (metric_text(calibration[name]) for name in ("before", "after"))
    of_val = "" if "val" in calibration else " on parts of val that were held out"
    measure = MEASURE_TITLES[calibration["measure"]]
    return f"{does}: {measure} {after}, {before} before{of_val}"


def describe_left_out(count: int) -> str:
    """How many columns of parents the trees did not see, in a line."""
    return f"trees do not see {count:,} columns of parents: the anchor has too many parents"


def _too_good_columns(result: Result) -> list[str]:
    """A line if the columns of the anchor and its parents alone score so well that the answer may
    be among them."""
    metrics = result["baselines"].get("own_columns", {}).get("metrics", {})
    for name in ("auroc", "r2"):
        if (metrics.get(name) or 0.0) >= TOO_GOOD:
            return [
                f"  the columns of the anchor and its parents alone have {name}"
                f" {metrics[name]:.3f}: if they hold the answer, hide them (hidden_columns of the"
                " task)"
            ]
    return []


def describe_base_rate(result: Mapping[str, Any]) -> list[str]:
    """A line if few seeds are true: their share, and whether any is called true."""
    true, scored = result.get("true"), result.get("scored")
    if true is None or not scored or true >= RARE * scored:
        return []
    line = f"{true / scored:.1%} of the {scored:,} {result['split']} seeds are true"
    if not result["called_true"]:
        line += "; no row is called true, as no probability is above 0.5"
    return [line]


def describe_probe(probe: Result) -> str:
    """A probe's regression and its size, in a line."""
    return (
        f"a linear probe: {probe['regression']} on {probe['width']} numbers of each context,"
        f" {probe['train_seeds']:,} train seeds, strength {probe['strength']:g}"
    )


def _parts(result: Result, first: str) -> list[str]:
    """The first metric on parts of the seeds: of the model with its interval, of the baselines."""
    parts = [(HISTORY_PARTS[name], part) for name, part in (result.get("history") or {}).items()]
    parts += [(time_range(part), part) for part in result.get("obs_time") or ()]
    if not parts:
        return []
    named = [title_of(name) for name in result["baselines"]]
    whose = {"model": "of the model", "trees": "of trees"}.get(who_answers(result), "with trees")
    rows = [["", "seeds", "anchors", f"{first} {whose}", *named]]
    for title, part in parts:
        ours = _with_interval(part["metrics"][first], (part.get("intervals") or {}).get(first))
        theirs = [
            metric_text(baseline["metrics"][first]) for baseline in part["baselines"].values()
        ]
        rows.append([title, f"{part['scored']:,}", f"{part['anchors']:,}", ours, *theirs])
    return ["", *aligned(rows)]


def time_range(part: Mapping[str, Any]) -> str:
    """One time or two, without the time of day if both are midnights."""
    whole = [str(part.get(end, "")) for end in ("from", "to")]
    low, high = map(short_time, whole)
    if len(low) != len(high):
        low, high = whole
    return low if low == high else f"{low} to {high}"


def aligned(rows: list[list[str]]) -> list[str]:
    """Rows of equal length as lines, the first column to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _with_interval(value: float | None, interval: list[float] | None, sign: str = "") -> str:
    if interval is None or value is None:
        return metric_text(value, sign)
    low, high = (metric_text(end, sign) for end in interval)
    return f"{metric_text(value, sign)} [{low}, {high}]"
