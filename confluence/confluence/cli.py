"""The command `confluence`: run, train, evaluate, probe, predict, backtest, smoke.

Exit status 0 on success, 1 on bad input with one clear message on stderr, 2 on wrong usage, 130
after Ctrl-C and 143 after SIGTERM (training saves first and says how to go on). With --json the
result is one JSON object on stdout; otherwise it is a few lines for people. Progress goes to
stderr.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluence.config import PRESETS, Config, preset

Result = dict[str, Any]
SIGNALLED = 128  # exit status, as a shell has it: this and the number of the signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    if options.command is run_command:
        _check_question(parser, options)
    return _leave(_status(options))


def _status(options: argparse.Namespace) -> int:
    try:
        return int(options.command(options))
    except KeyboardInterrupt as error:
        _fail(str(error) or "interrupted")
        return SIGNALLED + int(getattr(error, "signal_number", signal.SIGINT))
    except (ValueError, TypeError, OSError, LookupError, ArithmeticError, ImportError) as error:
        return _fail(_one_line(error))
    except Exception as error:
        if _is_headwater_error(error):
            return _fail(_one_line(error))
        raise


def _leave(status: int) -> int:
    """The exit status; a rank of several that failed ends here and does not wait for the others."""
    if "confluence.parallel" in sys.modules:
        from confluence.parallel import leave_after_failure

        leave_after_failure(status)
    return status


def _fail(message: str) -> int:
    print(f"confluence: {message}", file=sys.stderr)
    return 1


def _one_line(error: Exception) -> str:
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(message.split()) or type(error).__name__


def _is_headwater_error(error: Exception) -> bool:
    import headwater

    return isinstance(error, getattr(headwater, "HeadwaterError", ()))


# ---------------------------------------------------------------------------------- the arguments


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from headwater.cli import add_source

    parser = argparse.ArgumentParser(
        prog="confluence", description="Train relational transformers on databases."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = _command(commands, "run", run_command, "from a database to predictions, in one go")
    add_source(command)
    command.add_argument(
        "--metadata", type=Path, help="metadata.json; without it one is inferred, and the run says "
        "what it assumed",
    )  # fmt: skip
    command.add_argument(
        "--strict", action="store_true",
        help="stop where anything has to be assumed, or is dropped from the source",
    )  # fmt: skip
    command.add_argument("--task", help="a task of the metadata; with --query the new task's name")
    command.add_argument("--query", type=Path, help="file with the SQL of a new task")
    command.add_argument("--anchor", help="table.column of the predicted entity")
    command.add_argument("--target", help="column of the query to predict")
    command.add_argument(
        "--target-type", default="boolean",
        choices=("boolean", "numerical", "categorical", "timestamp"), help="default: boolean",
    )  # fmt: skip
    command.add_argument("--obs-time", help="column of the query; default: obs_time if mentioned")
    command.add_argument("--label-window", help="how long after obs_time a label is known")
    command.add_argument("--split-column", help="column of the query with train, val or test")
    command.add_argument("--seeds-dir", type=Path, help="where label tables of the metadata are")
    command.add_argument("--out", type=Path, help="folder; default: runs/<task>")
    command.add_argument("--split", default="test", choices=("train", "val", "test"))
    _add_settings(command)

    command = _command(commands, "train", train_command, "train on tasks of one or more stores")
    command.add_argument("store", nargs="+")
    command.add_argument(
        "--task", required=True, action="append", type=_task,
        help="a task, or task=weight: how often it is trained beside others; several by several"
        " --task",
    )  # fmt: skip
    command.add_argument("--out", type=Path, help="folder; default: runs/<task>")
    there = command.add_mutually_exclusive_group()
    there.add_argument(
        "--resume", action="store_true",
        help="go on with the run that is there as if it had not stopped; start it if there is none",
    )  # fmt: skip
    there.add_argument("--overwrite", action="store_true", help="remove the run that is there")
    _add_ranks(command)
    _add_settings(command)

    command = _command(
        commands, "pretrain", pretrain_command, "learn masked cells of a store, before any task"
    )
    command.add_argument("store")
    command.add_argument("--task", action="append", help="whose seeds; default: all; repeatable")
    command.add_argument("--out", type=Path, default=Path("runs") / "masked-cells", help="folder")
    there = command.add_mutually_exclusive_group()
    there.add_argument("--resume", action="store_true", help="go on with the run that is there")
    there.add_argument("--overwrite", action="store_true", help="remove the run that is there")
    _add_settings(command)

    command = _command(commands, "evaluate", evaluate_command, "metrics beside baselines")
    command.add_argument("run", type=Path, help="folder of a trained run")
    command.add_argument("--store", action="append", help="another place of its store, or of each")
    command.add_argument("--task", help="which, of a run of several")
    command.add_argument(
        "--checkpoint", type=_which, default="last", help="last (default), best on val, or a step"
    )
    command.add_argument("--split", default="test", choices=("train", "val", "test"))
    command.add_argument("--regime", choices=("rolling", "frozen"))
    command.add_argument("--visible-until", help="the database as of this time")
    _add_contexts(command)
    command.add_argument(
        "--resamples", type=int, metavar="K", help="of the bootstrap; 0: no intervals"
    )
    command.add_argument("--no-trees", action="store_true", help="without those baselines")

    command = _command(
        commands,
        "probe",
        probe_command,
        "a linear regression on what a frozen model makes of seeds",
    )
    command.add_argument("run", type=Path, help="folder of a trained or pretrained run")
    command.add_argument("--store", action="append", help="another place of its store, or of each")
    command.add_argument("--task", help="of the run, or any task of its stores")
    command.add_argument(
        "--checkpoint", type=_which, default="last", help="last (default), best on val, or a step"
    )
    command.add_argument("--split", default="val", choices=("train", "val", "test"))
    command.add_argument("--regime", choices=("rolling", "frozen"))
    command.add_argument("--visible-until", help="the database as of this time")
    command.add_argument(
        "--strength", type=float, help="of the penalty on weights; default: chosen on train"
    )
    command.add_argument("--train-seeds", type=_count, metavar="N", help="most that are read")
    command.add_argument(
        "--resamples", type=int, metavar="K", help="of the bootstrap; 0: no intervals"
    )
    command.add_argument("--no-trees", action="store_true", help="without those baselines")
    command.add_argument(
        "--no-control", action="store_true", help="without the probe of the first weights"
    )

    command = _command(commands, "predict", predict_command, "predictions as CSV or Parquet")
    command.add_argument("run", type=Path, help="folder of a trained run")
    command.add_argument("--store", action="append", help="another place of its store, or of each")
    command.add_argument("--task", help="which, of a run of several")
    command.add_argument(
        "--checkpoint", type=_which, default="last", help="last (default), best on val, or a step"
    )
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--split", choices=("train", "val", "test"))
    which.add_argument(
        "--keys", help="keys of the anchor table, separated by commas, quoted if they have some"
    )
    which.add_argument(
        "--keys-file", type=Path,
        help="CSV with a header, or Parquet: the columns of the key, and maybe obs_time",
    )  # fmt: skip
    command.add_argument("--at", help="time of the question, for keys; UTC unless it has an offset")
    _add_contexts(command)
    command.add_argument(
        "--output", type=Path, help=".csv or .parquet; default: a CSV file in the run's folder"
    )

    command = _command(commands, "page", page_command, "one HTML file about a run")
    command.add_argument("run", type=Path, help="folder of a run, finished or not")

    command = _command(
        commands, "backtest", backtest_command, "score a recipe on the past of the train split"
    )
    command.add_argument("store")
    command.add_argument(
        "--task", required=True, action="append", help="a task; several are trained jointly"
    )
    command.add_argument("--out", type=Path, help="folder; default: runs/backtest-<task>")
    command.add_argument(
        "--cutoffs", type=_tuple_reader(str), help="ISO times in the train split, with commas"
    )
    command.add_argument("--folds", type=int, default=4, help="how many, without --cutoffs")
    command.add_argument("--horizon-days", type=float, help="how long after a cutoff is scored")
    command.add_argument(
        "--seeds", type=_tuple_reader(int), default=(42,), help="default: 42; 1,2,3: three of each"
    )
    _add_settings(command)

    _command(commands, "smoke", smoke_command, "train on synthetic batches, without a store")
    return parser


def _command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(command=function)
    return command


def _add_contexts(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--contexts", type=int, default=1, metavar="K", help="average K contexts of each seed"
    )


def _add_settings(command: argparse.ArgumentParser) -> None:
    """--preset, and one option for each field of Config."""
    command.add_argument("--preset", default="small", choices=tuple(PRESETS))
    group = command.add_argument_group("settings, each replaces the preset's")
    for field, read in _settings().items():
        group.add_argument(
            f"--{field.replace('_', '-')}",
            dest=f"setting_{field}",
            type=read,
            metavar="VALUE",
            default=argparse.SUPPRESS,
        )


def _add_ranks(command: argparse.ArgumentParser) -> None:
    """Options of training on several devices."""
    group = command.add_argument_group("several devices (docs/12-parallel.md)")
    group.add_argument("--devices", type=_count, metavar="N", help="start N ranks on this machine")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where rank 0 waits for others")
    group.add_argument("--processes", type=_count, metavar="N", help="how many ranks there are")
    group.add_argument("--rank", type=int, metavar="R", help="which one this is, from 0")
    group.add_argument(
        "--join-timeout-s", type=float, default=300.0, metavar="S",
        help="how long the ranks wait for each other at the start; default: 300",
    )  # fmt: skip


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


def _settings() -> dict[str, Callable[[str], Any]]:
    """How to read each field of Config from the command line."""
    hints = typing.get_type_hints(Config)
    readers: dict[str, Callable[[str], Any]] = {}
    for field in dataclasses.fields(Config):
        kinds = set(typing.get_args(hints[field.name])) or {hints[field.name]}
        readers[field.name] = _reader(kinds)
    readers["split_ratios"] = _tuple_reader(float)
    readers["log_to"] = lambda text: _tuple_reader(str)(text) or ()
    readers["staleness"] = _tuple_reader(float)
    readers["time_split"] = _tuple_reader(str)
    readers["seed_tables"] = _tuple_reader(str)
    return readers


def _tuple_reader(read_part: Callable[[str], Any]) -> Callable[[str], Any]:
    """Values separated by commas, or "none"."""

    def read(text: str) -> Any:
        if text.lower() == "none":
            return None
        return tuple(read_part(part) for part in text.split(","))

    return read


def _reader(kinds: set[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if type(None) in kinds and text.lower() == "none":
            return None
        if bool in kinds:
            if text.lower() not in ("true", "false"):
                raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
            return text.lower() == "true"
        for kind in (int, float):
            if kind in kinds:
                return kind(text)
        return text

    return read


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    prefix = "setting_"
    given = vars(options).items()
    return {name.removeprefix(prefix): v for name, v in given if name.startswith(prefix)}


# ----------------------------------------------------------------------------------- the commands


def _check_question(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """`run` needs a task of a metadata file, or a query with its anchor and target."""
    if options.query is not None:
        missing = [n for n in ("anchor", "target") if getattr(options, n) is None]
        if missing:
            parser.error("--query also needs " + " and ".join(f"--{name}" for name in missing))
    elif options.metadata is None or options.task is None:
        parser.error("run needs --metadata with --task, or --query with --anchor and --target")


def run_command(options: argparse.Namespace) -> int:
    """Infer, build, train, evaluate, predict."""
    from headwater.cli import selected

    from confluence.evaluation_table import describe_evaluation
    from confluence.meeting import find_place
    from confluence.pipeline import Question, run_pipeline

    if find_place({}, os.environ) is not None:
        raise ValueError(
            "run works in one process and was started as one of several: use headwater build and"
            " confluence train"
        )
    task = options.task or options.target
    question = None
    if options.query is not None:
        question = Question(
            query=options.query.read_text(encoding="utf-8"), anchor=options.anchor,
            target=options.target, target_type=options.target_type, obs_time=options.obs_time,
            label_window=options.label_window, split_column=options.split_column,
        )  # fmt: skip
    result = run_pipeline(
        options.source, task, options.out or Path("runs") / task, question=question,
        preset=options.preset, overrides=_overrides(options), metadata=options.metadata,
        seeds_dir=options.seeds_dir, selected=selected(options), split=options.split,
        strict=options.strict,
        say=lambda message: print(message, file=sys.stderr, flush=True),
    )  # fmt: skip
    lines = ["", *describe_evaluation(result["evaluation"]), ""]
    lines += [f"{name:<12} {path}" for name, path in result["files"].items()]
    return _show(options, result, lines)


def train_command(options: argparse.Namespace) -> int:
    """Train and save, on one device or as one of several ranks, or start these."""
    from confluence.launch import is_launched, launch

    cfg = preset(options.preset, **_overrides(options))
    if options.devices is not None and options.devices > 1 and not is_launched(os.environ):
        return launch(options.arguments, options.devices)
    from confluence.log import read_summary
    from confluence.meeting import find_place
    from confluence.parallel import Joined
    from confluence.run import train

    names = [name for name, _ in options.task]
    limits = {
        "timeout_s": options.join_timeout_s, "collective_timeout_s": cfg.collective_timeout_s
    }  # fmt: skip
    with Joined(find_place(vars(options), os.environ), **limits) as group:
        run = train(
            options.store, task=names, out=options.out or Path("runs") / "-".join(names),
            task_weights=dict(options.task), preset=options.preset, overwrite=options.overwrite,
            resume=options.resume, **_overrides(options),
        )  # fmt: skip
    if not group.is_first:
        return 0
    summary = read_summary(run.out)
    result = {
        "out": str(run.out), "tasks": run.titles, "steps": run.config.steps, "summary": summary
    }  # fmt: skip
    lines = [f"trained {run.config.steps} steps, saved in {run.out}", *describe_summary(summary)]
    return _show(options, result, lines)


def pretrain_command(options: argparse.Namespace) -> int:
    """Learn masked cells and save."""
    from confluence.log import read_summary
    from confluence.pretrain import pretrain

    run = pretrain(
        options.store, out=options.out, tasks=options.task, preset=options.preset,
        overwrite=options.overwrite, resume=options.resume, **_overrides(options),
    )  # fmt: skip
    summary = read_summary(run.out)
    result = {"out": str(run.out), "steps": run.config.steps, "summary": summary}
    lines = [f"trained {run.config.steps} steps, saved in {run.out}", *describe_summary(summary)]
    return _show(options, result, lines)


def evaluate_command(options: argparse.Namespace) -> int:
    """Evaluate a trained run."""
    from confluence.evaluation_table import describe_evaluation
    from confluence.run import load

    run = load(options.run, store=options.store, which=options.checkpoint)
    titles = (run.titles or [None]) if options.task is None else [options.task]
    results = [
        run.evaluate(
            options.split, task=title, regime=options.regime, visible_until=options.visible_until,
            contexts=options.contexts, resamples=options.resamples, trees=not options.no_trees,
        )
        for title in titles
    ]  # fmt: skip
    lines = [line for result in results for line in ["", *describe_evaluation(result)]][1:]
    return _show(options, results[0] if len(results) == 1 else {"tasks": results}, lines)


def probe_command(options: argparse.Namespace) -> int:
    """Probe a trained or pretrained run."""
    from confluence.evaluation_table import describe_evaluation
    from confluence.run import load

    run = load(options.run, store=options.store, which=options.checkpoint)
    limit = {} if options.train_seeds is None else {"train_seeds": options.train_seeds}
    result = run.probe(
        options.split, task=options.task, regime=options.regime,
        visible_until=options.visible_until, strength=options.strength,
        resamples=options.resamples, trees=not options.no_trees, control=not options.no_control,
        **limit,
    )  # fmt: skip
    return _show(options, result, describe_evaluation(result))


def predict_command(options: argparse.Namespace) -> int:
    """Predict with a trained run."""
    from confluence.run import load

    run = load(options.run, store=options.store, which=options.checkpoint)
    keys = None if options.keys is None else _keys(options.keys)
    name = f"predictions-{options.split or 'keys'}.csv"
    path = options.output or run.results(options.task) / name
    answers = run.predict(
        split=options.split, keys=keys, keys_file=options.keys_file, at=options.at, path=path,
        task=options.task, contexts=options.contexts,
    )  # fmt: skip
    result = {"predictions": str(path), "predicted": len(answers)}
    if keys is not None:
        result["rows"] = list(answers)
    return _show(options, result, [f"{len(answers)} predictions in {path}"])


def page_command(options: argparse.Namespace) -> int:
    """Make the page of a run."""
    from confluence.page import write_page

    path = write_page(options.run)
    return _show(options, {"page": str(path)}, [str(path)])


def backtest_command(options: argparse.Namespace) -> int:
    """Train and score at several cutoffs."""
    from confluence.backtest import backtest
    from confluence.evaluation_table import describe_backtest

    result = backtest(
        options.store, task=options.task,
        out=options.out or Path("runs") / "-".join(["backtest", *options.task]),
        cutoffs=options.cutoffs, folds=options.folds, horizon_days=options.horizon_days,
        seeds=options.seeds, preset=options.preset, **_overrides(options),
    )  # fmt: skip
    return _show(options, result, describe_backtest(result))


def smoke_command(options: argparse.Namespace) -> int:
    """Train on synthetic batches."""
    from confluence.smoke import run_smoke

    result = run_smoke()
    lines = ["loss {first_loss:.4f} → {last_loss:.4f} in {steps} steps".format(**result)]
    for name, title in (("task_loss", "of the tasks"), ("masked_loss", "of masked cells")):
        lines.append(f"  {title} {result[f'first_{name}']:.4f} → {result[f'last_{name}']:.4f}")
    _show(options, result, lines)
    return 0 if result["passed"] else _fail("a loss did not fall, or was not finite")


def _task(text: str) -> tuple[str, float]:
    """A task and its weight, from "task" or "task=weight"."""
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        return name, float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{weight}' is no weight") from None


def _which(text: str) -> int | str:
    if text in ("last", "best"):
        return text
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is neither last, best nor a step")


def _keys(text: str) -> list[str]:
    """Keys between commas, as a line of CSV; a store has keys as texts."""
    return [key.strip() for key in next(csv.reader([text], skipinitialspace=True))]


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


def _show(options: argparse.Namespace, result: Result, lines: list[str]) -> int:
    from confluence.log import to_json

    print(to_json(result) if options.json else "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
