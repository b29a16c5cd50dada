"""The commands of `confluence`: each is a function from parsed arguments to a result.

A command calls what Python users call too and returns its result, for JSON, and lines for people;
`main.py` prints them. What a command needs is imported where it is used, so that wrong usage is
reported at once.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headwater.shared import read_text, say

from confluence.config import Config, preset, until_measured

if TYPE_CHECKING:
    from confluence.answers.prediction_files import Answers
    from confluence.runs.evaluate import Scoring
    from confluence.runs.run import Run

Result = dict[str, Any]
Done = TypeVar("Done")
SETTING = "setting_"  # before the names of settings among the options


class Outcome(NamedTuple):
    """The result of a command, as data and as text."""

    result: Result | None  # for JSON; None: nothing is printed
    lines: Sequence[str] = ()  # for people
    failure: str | None = None  # an error that left a result; exit status 1
    status: int = 0  # exit status of other processes that did the work


def overrides_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line has."""
    given = vars(options).items()
    return {name.removeprefix(SETTING): v for name, v in given if name.startswith(SETTING)}


def default_out(*names: str) -> Path:
    """The folder of a run that is called after its tasks, in `runs`."""
    name = Path("-".join(names))
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise ValueError(f"a run cannot be called '{name}': name its folder with --out")
    return Path("runs") / name


def run_command(options: argparse.Namespace) -> Outcome:
    """Infer, build, train, evaluate, predict."""
    from headwater.shared import selected

    from confluence.report.tables import describe_evaluation
    from confluence.runs.ensemble import Ensemble
    from confluence.runs.evaluate import Examination
    from confluence.runs.pipeline import Database, Question, run_pipeline

    _check_alone("run", "use headwater build and confluence train")
    task = options.task or options.target
    question = None
    if options.query is not None:
        question = Question(
            query=read_text(options.query, is_given=True), anchor=options.anchor,
            target=options.target, target_type=options.target_type, obs_time=options.obs_time,
            label_window=options.label_window, split_column=options.split_column,
        )  # fmt: skip
    cfg = preset(options.preset, **overrides_of(options))
    database = Database(
        source=options.source, metadata=options.metadata, seeds_dir=options.seeds_dir,
        selected=selected(options), strict=options.strict, verify=options.verify,
        query_timeout=options.query_timeout,
    )  # fmt: skip
    ensemble = Ensemble(tree_share=options.tree_share)
    result = run_pipeline(
        database, task, options.out or default_out(task), cfg, question=question,
        examination=Examination(split=options.split, ensemble=ensemble),
        overwrite=options.overwrite, say=say,
    )  # fmt: skip
    lines = ["", *describe_evaluation(result["evaluation"]), ""]
    lines += [f"{name:<12} {path}" for name, path in result["files"].items()]
    return Outcome(result, lines)


def _check_alone(command: str, instead: str) -> None:
    """Raise if several processes would each do all the work in one folder."""
    from confluence.ranks.rendezvous import find_place

    if find_place({}, os.environ) is not None:
        raise ValueError(
            f"{command} works in one process and was started as one of several: {instead}"
        )


def train_command(options: argparse.Namespace) -> Outcome:
    """Train and save."""

    def train() -> Run:
        from confluence.runs.train import train

        names, pack = _names(options.task), options.prebatched
        return train(
            options.store or None, task=names, out=options.out or _out_of(names, pack),
            task_weights=dict(options.task or ()), prebatched=pack,
            trees=not options.no_trees, memory_fraction=options.memory_fraction,
            **_how_to_train(options),
        )  # fmt: skip

    return _train_together(options, train, _train_config(options))


def _names(tasks: Sequence[tuple[str, float]] | None) -> list[str] | None:
    return None if tasks is None else [name for name, _ in tasks]


def _train_config(options: argparse.Namespace) -> Config:
    settings = until_measured(overrides_of(options))
    if options.prebatched is None:
        return preset(options.preset or "small", **settings)
    from confluence.runs.train import train_config

    return train_config(options.preset, options.prebatched, settings)


def _out_of(names: Sequence[str] | None, pack: Path | None) -> Path:
    """The folder of a run by its tasks, or by those of a pack if none are given."""
    if names is None and pack is not None:
        from confluence.packs.packed_store import packed_tasks

        names = packed_tasks(pack)
    return default_out(*names or ())


def advise_command(options: argparse.Namespace) -> Outcome:
    """Measure a training before it begins."""
    from confluence.measure.advise import advise, describe

    _check_alone("advise", "start it once")
    result = advise(
        options.store, task=options.task, presets=options.preset, run=options.run,
        verify=options.verify, **overrides_of(options),
    )  # fmt: skip
    return Outcome(result, describe(result))


def prebatch_command(options: argparse.Namespace) -> Outcome:
    """Write the batches of a training into a pack."""
    from confluence.packs.prebatch import describe, prebatch

    _check_alone("prebatch", "start it once, with --ranks for how many it writes")
    result = prebatch(
        options.store, task=[name for name, _ in options.task], out=options.out,
        epochs=options.epochs, ranks=options.ranks, task_weights=dict(options.task),
        preset=options.preset, overwrite=options.overwrite, verify=options.verify,
        **overrides_of(options),
    )  # fmt: skip
    return Outcome(result, describe(result))


def pretrain_command(options: argparse.Namespace) -> Outcome:
    """Learn masked cells and save."""

    def pretrain() -> Run:
        from confluence.runs.pretrain import pretrain

        return pretrain(
            options.store, out=options.out, tasks=options.task,
            store_weights=options.store_weights, **_how_to_train(options),
        )  # fmt: skip

    settings = {**overrides_of(options), "objective": "masked_cells"}
    return _train_together(options, pretrain, preset(options.preset, **settings))


def _how_to_train(options: argparse.Namespace) -> dict[str, Any]:
    names = ("preset", "overwrite", "resume", "verify")
    return {**{name: getattr(options, name) for name in names}, **overrides_of(options)}


def _train_together(options: argparse.Namespace, train: Callable[[], Run], cfg: Config) -> Outcome:
    """Train on one device, or on several."""

    def report(run: Run) -> Outcome:
        from confluence.folder.checkpoint import saved_steps
        from confluence.watch.log import read_summary

        summary = read_summary(run.out)
        tasks = {"tasks": run.titles} if run.titles else {}
        steps = saved_steps(run.out)[-1]
        result = {"out": str(run.out), **tasks, "steps": steps, "summary": summary}
        done = f"trained {steps} steps, saved in {run.out}"
        return Outcome(result, [done, *describe_summary(summary)])

    cfg.check_ranks(options.devices or 1)
    return _together(options, train, report, timeout_s=cfg.collective_timeout_s)


def _together(
    options: argparse.Namespace, work: Callable[[], Done], report: Callable[[Done], Outcome], *,
    timeout_s: float,
) -> Outcome:  # fmt: skip
    """Work on one device or as one of several ranks, or start these.

    Args:
        report: what comes of it. Rank 0 alone does that, when the others have left.
        timeout_s: after how long a rank that waits for another one ends.
    """
    from confluence.ranks.launch import is_launched, launch
    from confluence.ranks.rendezvous import find_place

    if options.devices is not None and options.devices > 1 and not is_launched(os.environ):
        if find_place(vars(options), os.environ) is not None:
            raise ValueError(
                "--devices starts the ranks of one machine, and this process is already one of"
                " several: start as many as there are devices, without --devices"
            )
        return Outcome(None, status=launch(options.arguments, options.devices))
    from confluence.ranks.group import Joined

    place = find_place(vars(options), os.environ)
    with Joined(place, collective_timeout_s=timeout_s) as group:
        if not group.is_first:
            warnings.simplefilter("ignore")  # rank 0 has the same to say
        done = work()
    return report(done) if group.is_first else Outcome(None)


def evaluate_command(options: argparse.Namespace) -> Outcome:
    """Evaluate a trained run."""

    def ask() -> list[Scoring]:
        from confluence.runs.ensemble import Ensemble
        from confluence.runs.evaluate import Examination, scoring

        run, *others = _load_runs(options)
        ensemble = Ensemble(others=others, tree_share=options.tree_share)
        titles = (run.titles or [None]) if options.task is None else [options.task]
        how = _how_to_score(options)
        wanted = [
            Examination(split=options.split, task=title, ensemble=ensemble, **how)
            for title in titles
        ]
        return [scoring(run, each, verify=options.verify) for each in wanted]

    def report(scorings: list[Scoring]) -> Outcome:
        from confluence.report.tables import describe_evaluation

        results = [scoring.result() for scoring in scorings]
        lines = [line for result in results for line in ["", *describe_evaluation(result)]][1:]
        return Outcome(results[0] if len(results) == 1 else {"tasks": results}, lines)

    return _together(options, ask, report, timeout_s=_patience_of(options))


def _how_to_score(options: argparse.Namespace) -> dict[str, Any]:
    names = ("regime", "visible_until", "resamples")
    return {**{name: getattr(options, name) for name in names}, "trees": not options.no_trees}


def probe_command(options: argparse.Namespace) -> Outcome:
    """Probe a trained or pretrained run."""
    from confluence.report.tables import describe_evaluation
    from confluence.runs.load import load

    _check_alone("probe", "start it once")
    run = load(options.run, store=options.store, which=options.checkpoint, verify=options.verify)
    result = run.probe(
        options.split, task=options.task, verify=options.verify, **_how_to_score(options)
    )
    return Outcome(result, describe_evaluation(result))


def predict_command(options: argparse.Namespace) -> Outcome:
    """Predict with a trained run."""

    def ask() -> tuple[Path, Answers]:
        from confluence.answers.prediction_files import check_predictions_file
        from confluence.ranks.group import current

        run, *others = _load_runs(options)
        keys = options.keys
        if keys is not None:
            keys = _keys(keys, run.key_of_anchors(options.task))
        path = options.output
        path = path or run.predictions_file(
            options.split, task=options.task, others=others, tree_share=options.tree_share
        )
        if current().is_first:
            check_predictions_file(path, options.keys_file)
        return path, run.predict(
            split=options.split, keys=keys, keys_file=options.keys_file, at=options.at,
            task=options.task, others=others, tree_share=options.tree_share,
            verify=options.verify,
        )  # fmt: skip

    def report(done: tuple[Path, Answers]) -> Outcome:
        from confluence.report.tables import describe_answers

        path, answers = done
        answers.write(path)
        result = {"predictions": str(path), "predicted": len(answers)}
        lines = [f"{len(answers)} predictions in {path}"]
        if options.keys is not None:
            result["rows"] = list(answers)
            lines = [*describe_answers(answers), *lines]
        return Outcome(result, lines)

    return _together(options, ask, report, timeout_s=_patience_of(options))


def page_command(options: argparse.Namespace) -> Outcome:
    """Make the page of a run."""
    from confluence.report.page import write_page

    path = write_page(options.run)
    return Outcome({"page": str(path)}, [str(path)])


def backtest_command(options: argparse.Namespace) -> Outcome:
    """Train and score at several cutoffs."""
    from confluence.report.tables import describe_backtest
    from confluence.runs.backtest import backtest

    _check_alone("backtest", "start it once, or once for each seed in a folder of its own")
    result = backtest(
        options.store, task=options.task,
        out=options.out or default_out("backtest", *options.task),
        cutoffs=options.cutoffs, folds=options.folds, horizon_days=options.horizon_days,
        seeds=options.seeds, tree_share=options.tree_share,
        preset=options.preset, verify=options.verify,
        **overrides_of(options),
    )  # fmt: skip
    return Outcome(result, describe_backtest(result))


def smoke_command(options: argparse.Namespace) -> Outcome:
    """Train on synthetic batches."""
    from confluence.training.smoke import run_smoke

    result = run_smoke()
    lines = ["loss {first_loss:.4f} → {last_loss:.4f} in {steps} steps".format(**result)]
    for name, title in (("task_loss", "of the tasks"), ("masked_loss", "of masked cells")):
        lines.append(f"  {title} {result[f'first_{name}']:.4f} → {result[f'last_{name}']:.4f}")
    failure = None if result["passed"] else "a loss is not finite, or did not fall far enough"
    return Outcome(result, lines, failure)


def describe_summary(summary: Result) -> list[str]:
    """How long steps took, and how much of that the device waited for data."""
    times = summary.get("step_times")
    if not times:
        return []
    return [
        "step {p50_ms:.0f} ms (p99 {p99_ms:.0f} ms), ".format(**times)
        + "{wait_share:.2%} of it waiting for data, {cells_per_second:,.0f} cells/s".format(
            **summary
        )
    ]


def _load_runs(options: argparse.Namespace) -> list[Run]:
    """The runs that are to answer together, in the order given."""
    from confluence.runs.load import load

    return [
        load(run, store=options.store, which=options.checkpoint, verify=options.verify)
        for run in options.runs
    ]


def _patience_of(options: argparse.Namespace) -> float:
    """`collective_timeout_s` of the first run; where its log does not say so, the default."""
    from confluence.watch.log import FILE
    from confluence.watch.log_events import first_event

    settings = (first_event(Path(options.runs[0]) / FILE) or {}).get("config", {})
    return float(settings.get("collective_timeout_s", Config().collective_timeout_s))


def _keys(text: str, names: Sequence[str]) -> list[str]:
    """Keys between commas or on lines of their own, as in CSV; a store has keys as texts.

    Args:
        names: the columns of the key.
    """
    if len(names) > 1:
        raise ValueError(
            f"--keys is for keys of one column, these have {', '.join(names)}: give a file of them"
            " (--keys-file)"
        )
    if text.count('"') % 2:
        raise ValueError(f"--keys {text!r} has a quote that nothing closes")
    lines = csv.reader(text.splitlines(keepends=True), skipinitialspace=True)
    keys = [key for line in lines for key in line]
    if not keys:
        raise ValueError("--keys has no key")
    return [key.strip() for key in keys]
