"""The model alone on val of the suite, by settings: which of them are better for a first answer?

    python suite/try_settings.py --data DIR --out FILE --set max_hops=1 --set steps=600 [--seed 43]

One fit of each question without trees, with the preset small and these settings. A row has the
score on all of val of the weights that answer, and the scores on the sample by step. Rows that
the file has are not made again; at the end the table has all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from ask_suite import QUESTIONS, Question, main_of, parse, read_rows, store_of
from confluence.report.tables import aligned
from confluence.watch.log import FILE, read_lines

import confluence


def try_one(question: Question, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a question."""
    store, _ = store_of(question, options.data, options.work)
    began = time.perf_counter()
    run = confluence.train(
        store, task=question.name, out=options.work / "tried" / question.name, overwrite=True,
        trees=False, seed=options.seed, **options.settings,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    result = run.evaluate("val", trees=False, resamples=0)
    metric = main_of(result)
    events = list(read_lines(run.out / FILE))
    return {
        "question": question.name, "settings": options.settings, "seed": options.seed,
        "metric": metric, "score": result["metrics"][metric], "step": run.step,
        "steps": max(event["step"] for event in events if event["event"] == "train"),
        "train_seconds": seconds,
        "by_step": [
            [event["step"], event["metrics"][metric]]
            for event in events if event["event"] == "evaluate"
        ],
    }  # fmt: skip


def key_of(row: dict[str, Any]) -> tuple[str, str]:
    """What a row is of."""
    settings = json.loads(json.dumps({**row["settings"], "seed": row["seed"]}))
    return row["question"], " ".join(f"{name}={value}" for name, value in settings.items())


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each settings, a column for each question."""
    scores = {key_of(row): f"{row['score']:.4f}" for row in rows}
    asked = [q.name for q in QUESTIONS if any(q.name == name for name, _ in scores)]
    settings = dict.fromkeys(text for _, text in scores)
    lines = [[text, *(scores.get((name, text), "") for name in asked)] for text in settings]
    return aligned([["settings", *asked], *lines])


def main() -> None:
    """The whole command."""
    options = parse()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for question in QUESTIONS:
        empty = {"question": question.name, "settings": options.settings, "seed": options.seed}
        known = {key_of(row) for row in read_rows(options.out)}
        is_asked = question.name in (options.questions or [question.name])
        if key_of(empty) in known or not is_asked:
            continue
        sys.stderr.write(f"{question.name}: {question.about}\n")
        row = try_one(question, options)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    sys.stdout.write("\n".join(table(read_rows(options.out))) + "\n")


if __name__ == "__main__":
    main()
