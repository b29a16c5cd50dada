"""The arguments of the command `confluence`: its commands, and the options of each.

What several commands have is declared once, and every field of `Config` is an option by itself. A
parsed command line has its function of `commands.py` as `command`.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import headwater
from headwater.shared import add_no_verify, add_source

from confluence.cli import commands as does
from confluence.config import AUTO, MEMORY_FRACTION, PRESETS, USUAL_CONTEXTS, Config
from confluence.value_checks import GROUPS, in_signs, setting_kinds, settings_of, tuple_kind, typed
from confluence.version import VERSION

SPLITS = ("train", "val", "test")
EXPERT = GROUPS[-1]


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage of sixty settings, and suggests a name."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Unknown options of a command are an error here, because the known ones are at hand."""
        options, rest = super().parse_known_args(args, namespace)
        strange = [word for word in rest if word.startswith("-")]
        if strange and options is not None and "command" in options:
            name = strange[0].partition("=")[0]
            near = difflib.get_close_matches(name, self._option_string_actions, n=1)
            self.error(
                f"unrecognized arguments: {' '.join(rest)}"
                + (f", did you mean {near[0]}?" if near else "")
            )
        return options, rest


class HelpAll(argparse.Action):
    """Prints the help with the settings that `--help` leaves out, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        usual = PRESETS["small"]()
        for option in parser._actions:
            if option.help == argparse.SUPPRESS and option.dest.startswith(does.SETTING):
                option.help = setting_text(option.dest.removeprefix(does.SETTING), usual)
        parser.print_help()
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = Parser(prog="confluence", description="Train relational transformers on databases.")
    versions = f"confluence {VERSION}, headwater {headwater.__version__}"
    parser.add_argument("--version", action="version", version=versions)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _add_run, _add_advise, _add_prebatch, _add_train, _add_pretrain, _add_evaluate, _add_probe,
        _add_predict, _add_page, _add_backtest, _add_smoke,
    ):  # fmt: skip
        add(commands)
    return parser


def check_usage(options: argparse.Namespace) -> None:
    """Leave with a message if a command lacks what no single option can ask for."""
    if options.command is does.run_command:
        _check_question(options)
    elif options.command is does.train_command and options.prebatched is None:
        missing = [name for name in ("store", "task") if not getattr(options, name)]
        if missing:
            words = {"store": "STORE", "task": "--task"}
            options.parser.error(
                f"train needs {' and '.join(words[name] for name in missing)}, or a pack"
                " (--prebatched)"
            )


def _check_question(options: argparse.Namespace) -> None:
    """`run` needs a task of a metadata file, or a query with its anchor and target."""
    if options.query is not None:
        missing = [n for n in ("anchor", "target") if getattr(options, n) is None]
        if missing:
            options.parser.error(
                "--query also needs " + " and ".join(f"--{name}" for name in missing)
            )
        first, *others = str(options.query).split() or [""]
        if others and first.lower() in ("select", "with") and not os.path.exists(options.query):
            options.parser.error(
                "--query takes a file: write the query into one, and give its path"
            )
    elif options.metadata is None or options.task is None:
        options.parser.error(
            "run needs --metadata with --task, or --query with --anchor and --target"
        )


# ----------------------------------------------------------------------------------- the commands


def _command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], does.Outcome], text: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(command=function, parser=command)
    return command


def _add_run(commands: Any) -> None:
    text = "from a database to predictions, in one go"
    command = _command(commands, "run", does.run_command, text)
    add_source(command)
    command.add_argument(
        "--metadata", type=Path, help="metadata.json; without it one is inferred, and the run "
        "prints its assumptions",
    )  # fmt: skip
    command.add_argument(
        "--strict", action="store_true",
        help="stop if anything has to be assumed, or is dropped from the source",
    )  # fmt: skip
    command.add_argument("--task", help="a task of the metadata; with --query the new task's name")
    command.add_argument(
        "--query", type=Path,
        help="file with the query of a new task, in DuckDB's SQL whatever the source is",
    )  # fmt: skip
    command.add_argument(
        "--anchor",
        help="table.column of the predicted entity: its primary key or a unique column,"
        " which the query has too; table.column,column of a longer key",
    )
    command.add_argument("--target", help="column of the query to predict")
    command.add_argument(
        "--target-type", choices=("boolean", "numerical", "categorical", "timestamp"),
        help="default: boolean",
    )  # fmt: skip
    command.add_argument("--obs-time", help="column of the query; default: obs_time if mentioned")
    command.add_argument("--label-window", help="how long after obs_time a label is known")
    command.add_argument("--split-column", help="column of the query with train, val or test")
    command.add_argument(
        "--query-timeout", type=float, metavar="SECONDS",
        help="stop the query of a task after so long (600; 0: no limit)",
    )  # fmt: skip
    command.add_argument("--seeds-dir", type=Path, help="where label tables are (by the metadata)")
    command.add_argument("--out", type=Path, help="folder; default: runs/<task>")
    command.add_argument(
        "--overwrite", action="store_true",
        help="replace the run in the folder if it has another task, store or settings",
    )  # fmt: skip
    command.add_argument("--split", default="test", choices=SPLITS)
    _add_tree_share(command)
    add_no_verify(command)
    _add_settings(command)


def _add_train(commands: Any) -> None:
    text = "train on tasks of one or more stores, or from a pack"
    command = _command(commands, "train", does.train_command, text)
    command.add_argument("store", nargs="*", help="not needed with a pack")
    _add_weighted_tasks(command)
    command.add_argument(
        "--prebatched", type=Path, metavar="PACK",
        help="take the batches from a pack of `confluence prebatch`, and its settings too, unless"
        " --preset is given",
    )  # fmt: skip
    command.add_argument("--out", type=Path, help="folder; default: runs/<task>")
    command.add_argument(
        "--no-trees", action="store_true",
        help="fit no boosted trees to answer together with the model",
    )  # fmt: skip
    command.add_argument(
        "--memory-fraction", type=float, default=MEMORY_FRACTION, metavar="SHARE",
        help="share of the memory that a step may take with --cell-budget auto"
        f" [{MEMORY_FRACTION}]",
    )  # fmt: skip
    _add_what_is_there(command)
    add_no_verify(command)
    _add_ranks(command)
    _add_settings(command, standard=None)


def _add_advise(commands: Any) -> None:
    text = "measure the bottleneck of a training on this machine, and advise how to train faster"
    command = _command(commands, "advise", does.advise_command, text)
    command.add_argument("store")
    command.add_argument("--task", required=True, help="one task of the store")
    command.add_argument(
        "--run", type=Path, help="measure the settings of this run instead of presets"
    )
    add_no_verify(command)
    _add_settings(
        command, standard=None, action="append",
        help="repeatable, the smallest first; default: small and laptop, and base if a device"
        " computes",
    )  # fmt: skip


def _add_prebatch(commands: Any) -> None:
    text = "write the batches of a training to disk, for `train --prebatched`"
    command = _command(commands, "prebatch", does.prebatch_command, text)
    command.add_argument("store")
    _add_weighted_tasks(command, required=True)
    command.add_argument(
        "--epochs", type=_count, metavar="E",
        help="passes over the train seeds; default: as many batches as --steps needs",
    )  # fmt: skip
    command.add_argument("--out", type=Path, required=True, metavar="PACK", help="folder")
    command.add_argument(
        "--ranks",
        type=_count,
        default=1,
        metavar="W",
        help="number of ranks that will train from it [1]",
    )
    command.add_argument("--overwrite", action="store_true", help="replace the pack in the folder")
    add_no_verify(command)
    _add_settings(command)


def _add_pretrain(commands: Any) -> None:
    text = "learn masked cells of one or more stores, before any task"
    command = _command(commands, "pretrain", does.pretrain_command, text)
    command.add_argument("store", nargs="+")
    command.add_argument(
        "--task", action="append", help="a task whose seeds are used; repeatable; default: all"
    )
    command.add_argument(
        "--store-weights", type=_tuple_reader(float), metavar="W,W",
        help="how often a batch comes from each store, in their order; default: equally often",
    )  # fmt: skip
    command.add_argument("--out", type=Path, default=Path("runs") / "masked-cells", help="folder")
    _add_what_is_there(command)
    add_no_verify(command)
    _add_ranks(command)
    _add_settings(command)


def _add_evaluate(commands: Any) -> None:
    command = _command(
        commands, "evaluate", does.evaluate_command, "metrics of a run and of baselines"
    )
    _add_opened_run(command, task="the task, if the run has several", several=True)
    _add_scoring(command, split="test")
    _add_tree_share(command)
    add_no_verify(command)
    _add_ranks(command)


def _add_probe(commands: Any) -> None:
    text = "a linear regression on a frozen model's vectors of seeds"
    command = _command(commands, "probe", does.probe_command, text)
    _add_opened_run(command, task="a task of the run, or of its stores")
    _add_scoring(command, split="val")
    add_no_verify(command)


def _add_predict(commands: Any) -> None:
    command = _command(commands, "predict", does.predict_command, "predictions as CSV or Parquet")
    _add_opened_run(command, task="the task, if the run has several", several=True)
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--split", choices=SPLITS)
    which.add_argument(
        "--keys",
        help="keys of the anchor table, separated by commas; quote a key that contains one",
    )
    which.add_argument(
        "--keys-file", type=Path,
        help="CSV with a header, or Parquet: the columns of the key, optionally obs_time",
    )  # fmt: skip
    command.add_argument("--at", help="time of the question, for keys; UTC unless it has an offset")
    _add_tree_share(command)
    command.add_argument(
        "--output", type=Path, help=".csv or .parquet; default: a CSV file in the run's folder"
    )
    add_no_verify(command)
    _add_ranks(command)


def _add_page(commands: Any) -> None:
    command = _command(commands, "page", does.page_command, "one HTML file about a run")
    command.add_argument("run", type=Path, help="folder of a run, finished or not")


def _add_backtest(commands: Any) -> None:
    text = "score a recipe on the past of the train split"
    command = _command(commands, "backtest", does.backtest_command, text)
    command.add_argument("store")
    command.add_argument(
        "--task", required=True, action="append", help="a task; several are trained jointly"
    )
    command.add_argument("--out", type=Path, help="folder; default: runs/backtest-<task>")
    command.add_argument(
        "--cutoffs",
        type=_tuple_reader(str),
        help="ISO times in the train split, separated by commas",
    )
    command.add_argument(
        "--folds", type=int, default=4, help="number of cutoffs, without --cutoffs"
    )
    command.add_argument("--horizon-days", type=float, help="days after a cutoff that are scored")
    command.add_argument(
        "--seeds",
        type=_tuple_reader(int),
        default=(42,),
        help="one run per seed and cutoff, such as 1,2,3; default: 42",
    )
    _add_tree_share(command)
    add_no_verify(command)
    _add_settings(command)


def _add_smoke(commands: Any) -> None:
    text = "train on synthetic batches, without a store"
    _command(commands, "smoke", does.smoke_command, text)


# ------------------------------------------------------------------------ what several of them have


def _add_weighted_tasks(command: argparse.ArgumentParser, *, required: bool = False) -> None:
    command.add_argument(
        "--task", required=required, action="append", type=_task,
        help="a task, or task=weight: how often it is trained, relative to the others; repeat"
        " --task for several",
    )  # fmt: skip


def _add_what_is_there(command: argparse.ArgumentParser) -> None:
    """Whether a run that is in the folder already is resumed or removed."""
    there = command.add_mutually_exclusive_group()
    there.add_argument(
        "--resume", action="store_true",
        help="resume the run in the folder as if it had not stopped; start it if there is none",
    )  # fmt: skip
    there.add_argument("--overwrite", action="store_true", help="remove the run in the folder")


def _add_opened_run(command: argparse.ArgumentParser, *, task: str, several: bool = False) -> None:
    """A run that was trained, or several that answer together, a checkpoint, and a task."""
    text = "folder of a trained or pretrained run"
    if several:
        command.add_argument(
            "runs", type=Path, nargs="+", metavar="run", help=f"{text}; several answer together"
        )
    else:
        command.add_argument("run", type=Path, help=text)
    command.add_argument(
        "--store", action="append", help="another path of its store, or of each store"
    )
    command.add_argument("--task", help=task)
    command.add_argument(
        "--checkpoint",
        type=_which,
        help="last, best on val, or a step; default: best if val was scored, else last",
    )


def _add_scoring(command: argparse.ArgumentParser, *, split: str) -> None:
    """The split to score, and the baselines."""
    command.add_argument("--split", default=split, choices=SPLITS, help=f"default: {split}")
    command.add_argument("--regime", choices=("rolling", "frozen"))
    command.add_argument("--visible-until", help="answer from the database as it was at this time")
    command.add_argument(
        "--resamples", type=int, metavar="K", help="resamples of the bootstrap; 0: no intervals"
    )
    command.add_argument(
        "--no-trees", action="store_true", help="leave out the baselines of boosted trees"
    )


def _add_tree_share(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tree-share", type=float, metavar="SHARE",
        help="share of each answer, 0 to 1, from the run's boosted trees; 0: the model alone; by"
        " default what the run chose on val",
    )  # fmt: skip


def _add_settings(
    command: argparse.ArgumentParser, *, standard: str | None = "small", **preset: Any
) -> None:
    """--preset, and one option for each field of Config."""
    command.add_argument("--preset", default=standard, choices=tuple(PRESETS), **preset)
    title = "settings (in brackets those of the preset small)"
    groups = {name: command.add_argument_group(f"{name} {title}") for name in GROUPS}
    usual, parsers = PRESETS["small"](), setting_parsers()
    for field, about in settings_of(Config).items():
        is_switch = isinstance(getattr(usual, field), bool)
        no_value: dict[str, Any] = {"nargs": "?", "const": True} if is_switch else {}
        groups[about.group].add_argument(
            f"--{field.replace('_', '-')}",
            dest=f"{does.SETTING}{field}",
            type=parsers[field],
            metavar="VALUE",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS if about.group == EXPERT else setting_text(field, usual),
            **no_value,
        )
    command.add_argument("--help-all", action=HelpAll, nargs=0, help="show the expert settings too")


def _add_ranks(command: argparse.ArgumentParser) -> None:
    """Options of work on several devices."""
    group = command.add_argument_group("several devices (docs/guides/several-devices.md)")
    group.add_argument("--devices", type=_count, metavar="N", help="start N ranks on this machine")
    group.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="the address on which rank 0 waits for the others",
    )
    group.add_argument("--processes", type=_count, metavar="N", help="number of ranks")
    group.add_argument("--rank", type=int, metavar="R", help="number of this rank, from 0")


# -------------------------------------------------------------------------------- reading values


def setting_text(field: str, usual: Config) -> str:
    """The help of a setting, with its usual value."""
    about = settings_of(Config)[field]
    words = f" ({', '.join(about.words)})" if about.words and not about.within else ""
    within = f" ({in_signs(about.within)})" if about.within else ""
    return f"{about.doc}{words}{within} [{typed(getattr(usual, field))}]".replace("%", "%%")


def _task(text: str) -> tuple[str, float]:
    """A task and its weight, from "task" or "task=weight"."""
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        return name, float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{weight}' is not a weight") from None


def _which(text: str) -> int | str:
    if text in ("last", "best"):
        return text
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is neither last, best nor a step")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


@functools.cache
def setting_parsers() -> dict[str, Callable[[str], Any]]:
    """How to read each field of Config from the command line."""
    readers = {name: _setting_reader(kinds) for name, kinds in setting_kinds(Config).items()}
    chosen = ("batch_size", "cell_budget", *USUAL_CONTEXTS)
    return {**readers, **{name: _or_auto(readers[name]) for name in chosen}}


def _or_auto(read_number: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return text if text == AUTO else read_number(text)

    read.__name__ = f"int or {AUTO}"
    return read


def _setting_reader(kinds: tuple[Any, ...]) -> Callable[[str], Any]:
    parts = tuple_kind(kinds)
    if parts is None:
        return _reader(set(kinds))
    none = None if type(None) in kinds else ()
    return _tuple_reader(typing.get_args(parts)[0], none)


def _tuple_reader(
    read_part: Callable[[str], Any], none: tuple[()] | None = None
) -> Callable[[str], Any]:
    """Values separated by commas, or "none"."""

    def read(text: str) -> Any:
        if text.lower() == "none":
            return none
        return tuple(read_part(part) for part in text.split(","))

    read.__name__ = f"{read_part.__name__},..."  # argparse prints "invalid ... value"
    return read


def _reader(kinds: set[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if type(None) in kinds and text.lower() == "none":
            return None
        if bool in kinds:
            if text.lower() not in ("true", "false"):
                raise argparse.ArgumentTypeError(
                    f"'{text}' is neither true nor false; write an argument that does not"
                    " belong to this option before it"
                )
            return text.lower() == "true"
        for kind in (int, float):
            if kind in kinds:
                return kind(text)
        return text

    read.__name__ = next((kind.__name__ for kind in (int, float) if kind in kinds), "text")
    return read
