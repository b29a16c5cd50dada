"""One fit of each question: who answers best where nobody has tuned anything?

    questions ──► store (audited) ──► train ──► val: the model, the trees, both by the run's share
                                                test, with --test: the same, and the recorded trees

Each question's row is appended to a file of JSON lines, and those that it has are not asked again.
At the end a table stands of all of them. README.md describes the questions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluence.answers.kept_trees import TreeShare
from confluence.cli.arguments import setting_parsers
from confluence.data.tasks import SPLITS
from confluence.report.tables import aligned
from confluence.runs.ask import Queries
from confluence.runs.ask import ask as ask_run
from confluence.runs.ensemble import Ensemble
from confluence.scores.scoring import Terms, evaluate
from confluence.watch.log import read_summary
from suite_sources import UNUSED, label_tables, open_source

import confluence
import headwater

HERE = Path(__file__).resolve().parent
QUICK = {"steps": 60, "save_every": 0}
RECORDED = HERE / "results" / "opponent_answers.jsonl"  # of the trees of 2026-11-27 to test
CONSTANT, ENTITY, TREES, MODEL = "global_constant", "per_entity", "history", "model_alone"
TIE_AUC = 0.03  # half an interval that is narrow enough for a tie
TIE_MAE = 0.05  # the same of a MAE, as a share of it


class Question(NamedTuple):
    """One of the suite."""

    name: str  # its task
    database: str  # its metadata
    about: str


QUESTIONS = (
    Question("home-win", "football", "two sides; does the home team win?"),
    Question("margin", "football", "two sides; goals more than the other, on neutral ground"),
    Question("duel", "unvotes", "two sides; which of two countries said yes?"),
    Question("party-duel", "parlgov", "two sides; which of two parties has more votes?"),
    Question("screen-duel", "survivoR", "two sides; whom does the episode show more?"),
    Question("vote", "unvotes", "yes, no or abstain"),
    Question("no-votes", "unvotes", "how often a country says no in half a year"),
    Question("late", "nycflights13", "is a flight over 15 minutes late?"),
    Question("spend", "completejourney", "what a household spends in 30 days; a heavy tail"),
    Question("opinion", "euip", "does a case go on to the next stage within a year?"),
    Question("instrument", "eusa", "which of 14 instruments of aid; texts"),
    Question("catch", "portal_mammals", "animals caught on a plot in 60 days"),
    Question("order", "northwind", "does a customer order within 60 days? Few seeds"),
    Question("score", "se_history_meta", "the score of a post; long texts"),
    Question("top3", "rel-f1", "is a driver among the first three? Few seeds"),
    Question("churn", "shop", "does a customer stay away? The demo's question"),
)


def store_of(question: Question, data: Path, work: Path) -> tuple[Path, dict[str, int]]:
    """The audited store of a question's database, and how many labelled seeds each part has."""
    store = work / "stores" / question.database
    if not store.exists():
        headwater.build(
            open_source(question.database, data, work / "databases"), store,
            metadata=HERE / "metadata" / f"{question.database}.json",
            seeds_dir=label_tables(question.database, data, work / "labels"),
            exclude_tables=UNUSED.get(question.database, ()),
        )  # fmt: skip
    report = headwater.audit(store, tasks=[question.name])
    if not report.is_clean:
        raise SystemExit(f"the store of '{question.name}' leaks:\n{report}")
    with headwater.Store(store) as opened:
        (task,) = [task for task in opened.metadata["tasks"] if task["name"] == question.name]
    return store, {part: task["seeds"][part] for part in ("train", "val", "test")}


def ask(question: Question, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a question: one fit, and everybody's scores."""
    store, seeds = store_of(question, options.data, options.work)
    began = time.perf_counter()
    run = confluence.train(
        store, task=question.name, out=options.work / "runs" / question.name, overwrite=True,
        seed=options.seed, **options.settings,
    )  # fmt: skip
    trained = time.perf_counter()
    row = on_val(run.evaluate("val"), run.trees[question.name].chosen)
    if options.test:
        row["test"] = on_test(run.evaluate("test"), beside_recorded(run, question.name))
    summary = read_summary(run.out)
    return {
        "question": question.name, "database": question.database, "seed": options.seed,
        "settings": options.settings, "seeds": seeds, **row, "steps": summary["steps"],
        "step": run.step, "hops": run.config.max_hops,
        "train_seconds": trained - began, "seconds": time.perf_counter() - began,
        "alive_share": summary.get("alive_share"),
    }  # fmt: skip


def on_val(result: Mapping[str, Any], chosen: TreeShare) -> dict[str, Any]:
    """Everybody's score by the main metric, and the share of trees that the run chose.

    Args:
        result: what `evaluate` makes of the run's answers.
    """
    return {
        "metric": main_of(result), **scores_of(result), "share": chosen.share,
        "by_share": dict(chosen.by_share), "verdict": result["verdict"]["text"],
    }  # fmt: skip


def on_test(result: Mapping[str, Any], recorded: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same of test, with how much better the answer is than the trees alone, and than the
    recorded trees, with intervals.

    Args:
        recorded: what `evaluate` makes of the run's answers beside those of the recorded trees;
            None: there are none.
    """
    text = result["verdict"]["text"]
    found = {**scores_of(result), **better_than(result, TREES), "verdict": text}
    if recorded is not None:
        found["recorded"] = {
            "trees": recorded["baselines"]["recorded"]["metrics"][main_of(result)],
            **better_than(recorded, "recorded"),
        }  # fmt: skip
    return found


def better_than(result: Mapping[str, Any], baseline: str) -> dict[str, Any]:
    """How much more the answer's main metric is than a baseline's, with its interval."""
    metric, entry = main_of(result), result["baselines"][baseline]
    return {
        "better_than_trees": entry["differences"][metric],
        "interval": entry["difference_intervals"][metric],
    }  # fmt: skip


def beside_recorded(run: confluence.Run, name: str) -> dict[str, Any] | None:
    """An evaluation on test of the run's answers beside those of the recorded trees, if these have
    answered the question."""
    recorded = {row["question"]: row["trees"] for row in read_rows(RECORDED)}
    if name not in recorded:
        return None
    place, cfg = run.place(), run.config.for_answers()
    queries = Queries(lambda sampler: sampler.epoch("test", task=place.name), "test")
    with headwater.Store(place.store) as store:
        answered = ask_run(run, place, cfg, queries, Ensemble(), {place.store: store})
    values = np.full(answered.labels.targets.size, np.nan)
    values[answered.labels.splits == SPLITS["test"]] = recorded[name]
    return evaluate(
        answered.predictions, answered.labels, answered.target,
        Terms("test", cfg.metric, resamples=None), more={"recorded": {"values": values}},
    )  # fmt: skip


def scores_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The main metric of everybody: baselines, model, and the answer, which may be both."""
    metric, baselines = main_of(result), result["baselines"]
    names = {"constant": CONSTANT, "per_entity": ENTITY, "trees": TREES, "model": MODEL}
    found = {short: baselines.get(name, result)["metrics"][metric] for short, name in names.items()}
    return {**found, "both": result["metrics"][metric]}


def main_of(result: Mapping[str, Any]) -> str:
    """The metric that decides, which an evaluation names first."""
    return str(next(iter(result["metrics"])))


def sign_of(metric: str) -> int:
    """1 if more is better."""
    return -1 if metric in ("mae", "rmse") else 1


# ------------------------------------------------------------------------------------- the table

TITLES = [
    "question", "metric", "constant", "entity", "trees", "model", "both", "share", "won",
    "better by", "than recorded", "seeds", "steps", "s", "alive",
]  # fmt: skip


def line_of(row: Mapping[str, Any]) -> list[str]:
    """A row of the table: of test if it was looked at, else of val."""
    shown = row.get("test", row)
    names = ("constant", "per_entity", "trees", "model", "both")
    won, by, than_recorded = "", "", ""
    seeds = row["seeds"]["test" if "test" in row else "val"]
    if "test" in row:
        (low, high), by = ends_of(row["metric"], shown)
        won = "both" if low > 0 else "trees" if high < 0 else tie(row, high - low)
        if "recorded" in shown:
            _, than_recorded = ends_of(row["metric"], shown["recorded"])
    return [
        row["question"], row["metric"], *(f"{shown[name]:.4f}" for name in names),
        f"{row['share']:g}", won, by, than_recorded, f"{seeds:,}",
        f"{row['steps']:,}", f"{row['seconds']:.0f}", f"{row['alive_share']:.0%}",
    ]  # fmt: skip


def ends_of(metric: str, shown: Mapping[str, Any]) -> tuple[list[float], str]:
    """How much better the answer is, above 0 for a smaller error too: the ends of the interval, and
    all of it as a text."""
    sign = sign_of(metric)
    low, high = sorted(sign * end for end in shown["interval"])
    return [low, high], f"{sign * shown['better_than_trees']:.4f} [{low:.4f}, {high:.4f}]"


def tie(row: Mapping[str, Any], width: float) -> str:
    """A tie counts if the interval is narrow enough to have shown a difference."""
    narrow = TIE_AUC if sign_of(row["metric"]) > 0 else TIE_MAE * row["test"]["trees"]
    return "tie" if width / 2 <= narrow else "not told apart"


# ----------------------------------------------------------------------------------- the command


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE of a setting of `confluence train`."""
    name, _, value = text.partition("=")
    return name, value if name == "preset" else setting_parsers()[name](value)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of the databases")
    add("--work", type=Path, default=Path("build/suite"), help="stores and runs [build/suite]")
    add("--out", type=Path, required=True, help="JSON lines; questions that it has are left out")
    add("--questions", type=lambda text: text.split(","), metavar="Q,Q", help="default: all")
    add("--set", type=setting, action="append", default=[], metavar="SETTING=VALUE")
    add("--seed", type=int, default=42)
    add("--quick", action="store_true", help="a tenth of the steps")
    add("--test", action="store_true", help="look at test, too: once, when all is decided")
    options = parser.parse_args(arguments)
    options.settings = {**(QUICK if options.quick else {}), **dict(options.set)}
    unknown = set(options.questions or ()) - {question.name for question in QUESTIONS}
    if unknown:
        parser.error(f"no question is called {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    """The whole command."""
    options = parse()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = {row["question"] for row in read_rows(options.out)}
    for question in QUESTIONS:
        if question.name in known or question.name not in (options.questions or [question.name]):
            continue
        sys.stderr.write(f"{question.name}: {question.about}\n")
        row = ask(question, options)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    rows = read_rows(options.out)
    sys.stdout.write("\n".join(aligned([TITLES, *map(line_of, rows)])) + "\n")


if __name__ == "__main__":
    main()
