"""One fit of each question: who answers best where nobody has tuned anything?

    questions ──► store (audited) ──► train ──► val: the model, the trees, both by each share
                                                test, with --test: with the share that val chose

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

from confluence.cli.arguments import setting_parsers
from confluence.report.tables import aligned
from confluence.watch.log import read_summary
from suite_sources import UNUSED, label_tables, open_source

import confluence
import headwater

HERE = Path(__file__).resolve().parent
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of trees, in the answer of both
FEW_LABELS = 200  # of val: too few to choose a share by
QUICK = {"steps": 60, "save_every": 0}
CONSTANT, ENTITY, TREES = "global_constant", "per_entity", "history"
TIE_AUC, TIE_MAE = (
    0.03,
    0.05,
)  # half an interval that is narrow enough for a tie; of a MAE its share


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
    val = {share: evaluation(run, "val", share) for share in SHARES if share < 1}
    row = on_val(val, seeds["val"])
    if options.test:
        share = row["share"]
        alone = evaluation(run, "test", 0.0)
        mixed = evaluation(run, "test", share) if 0 < share < 1 else alone
        row["test"] = on_test(alone, mixed, share)
    summary = read_summary(run.out)
    return {
        "question": question.name, "database": question.database, "seed": options.seed,
        "settings": options.settings, "seeds": seeds, **row, "steps": summary["steps"],
        "train_seconds": trained - began, "seconds": time.perf_counter() - began,
        "alive_share": summary.get("alive_share"),
    }  # fmt: skip


def evaluation(run: confluence.Run, split: str, share: float) -> Mapping[str, Any]:
    """What `evaluate --json` writes, of an answer of which trees have a share."""
    result: Mapping[str, Any] = run.evaluate(split, tree_share=share)
    return result


def on_val(results: Mapping[float, Mapping[str, Any]], labels: int) -> dict[str, Any]:
    """Everybody's score by the main metric, and the share of trees that is best.

    Args:
        results: of val, by the trees' share.
        labels: how many seeds of val are labelled; with few of them the share is a half.
    """
    alone = results[0.0]
    metric = main_of(alone)
    by_share = {share: result["metrics"][metric] for share, result in results.items()}
    by_share[1.0] = alone["baselines"][TREES]["metrics"][metric]
    best = max(by_share, key=lambda share: sign_of(metric) * by_share[share])
    share = 0.5 if labels < FEW_LABELS else best
    return {
        "metric": metric, **beside(alone, metric), "model": by_share[0.0],
        "both": by_share[share], "share": share, "by_share": by_share,
        "verdict": alone["verdict"]["text"],
    }  # fmt: skip


def on_test(
    alone: Mapping[str, Any], mixed: Mapping[str, Any], share: float
) -> dict[str, Any]:  # fmt: skip
    """The same of test, with how much better than the trees alone both are, and its interval."""
    metric = main_of(alone)
    trees = alone["baselines"][TREES]["metrics"][metric]
    apart = mixed["baselines"][TREES]
    is_trees = share == 1.0
    return {
        **beside(alone, metric), "model": alone["metrics"][metric],
        "both": trees if is_trees else mixed["metrics"][metric],
        "better_than_trees": 0.0 if is_trees else apart["differences"][metric],
        "interval": [0.0, 0.0] if is_trees else apart["difference_intervals"][metric],
        "verdict": alone["verdict"]["text"],
    }  # fmt: skip


def beside(result: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """The scores of the baselines."""
    names = {"constant": CONSTANT, "per_entity": ENTITY, "trees": TREES}
    return {
        short: result["baselines"][name]["metrics"][metric] for short, name in names.items()
    }  # fmt: skip


def main_of(result: Mapping[str, Any]) -> str:
    """The metric that decides, which an evaluation names first."""
    return str(next(iter(result["metrics"])))


def sign_of(metric: str) -> int:
    """1 if more is better."""
    return -1 if metric in ("mae", "rmse") else 1


# ------------------------------------------------------------------------------------- the table

TITLES = [
    "question", "metric", "constant", "entity", "trees", "model", "both", "share", "won",
    "better by", "seeds", "steps", "s", "alive",
]  # fmt: skip


def line_of(row: Mapping[str, Any]) -> list[str]:
    """A row of the table: of test if it was looked at, else of val."""
    shown = row.get("test", row)
    names = ("constant", "per_entity", "trees", "model", "both")
    won, by = "", ""
    if "test" in row:
        sign = sign_of(row["metric"])
        low, high = sorted(sign * end for end in shown["interval"])
        won = "both" if low > 0 else "trees" if high < 0 else tie(row, high - low)
        by = f"{sign * shown['better_than_trees']:.4f} [{low:.4f}, {high:.4f}]"
    return [
        row["question"], row["metric"], *(f"{shown[name]:.4f}" for name in names),
        f"{row['share']:g}", won, by, f"{row['seeds']['test' if 'test' in row else 'val']:,}",
        f"{row['steps']:,}", f"{row['seconds']:.0f}", f"{row['alive_share']:.0%}",
    ]  # fmt: skip


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
