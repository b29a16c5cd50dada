"""The command `confluence`: run, advise, prebatch, train, pretrain, evaluate, probe, predict, page,
backtest, smoke.

Exit status 0 on success, 1 on bad input with one clear message on stderr, 2 on wrong usage, 130
after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP (training saves first and prints how to
resume). With --json the result is one JSON object on stdout; otherwise it is a few lines for
people. Progress goes to stderr.

    arguments ──► `arguments.py` ──► a function of `commands.py` ──► its result ──► stdout, status
"""

from __future__ import annotations

import argparse
import io
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import headwater
from headwater.shared import (
    SIGNALLED,
    Interrupts,
    check_address_space,
    is_interrupt,
    keep_places,
    run_process,
    say,
    tell,
)

from confluence.cli.arguments import check_usage, make_parser
from confluence.cli.commands import Outcome, page_command
from confluence.training.kept_memory import keep_memory

EXPLAINED = (ValueError, TypeError, OSError, LookupError, ArithmeticError, ImportError, MemoryError)
XLA_BYTES = 3 << 30  # of address space; with 1.5 GB XLA crashed as it compiled a tiny model


def command() -> None:
    """Entry point of the process."""
    keep_memory()
    run_process(main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    keep_places()
    options = make_parser().parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    check_usage(options)
    # If a checkpoint cannot be written, Orbax logs a traceback for each file, after our message.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    return _leave(_status(options))


def _status(options: argparse.Namespace) -> int:
    shown, warnings.showwarning = warnings.showwarning, _warn
    try:
        with Interrupts() as interrupts:
            try:
                if options.command is not page_command:  # which computes nothing
                    check_address_space(XLA_BYTES, "a model")
                return _show(options.command(options), as_json=options.json)
            except Exception as error:
                if not interrupts.is_made:  # else a library may have turned Ctrl-C into this
                    return _failed(error)
                reason = "" if is_interrupt(error) else f"interrupted ({_one_line(error)})"
                raise KeyboardInterrupt(reason) from error
    except KeyboardInterrupt as error:
        _fail(str(error) or "interrupted")
        return int(SIGNALLED + getattr(error, "signal_number", signal.SIGINT))
    finally:
        warnings.showwarning = shown


def _failed(error: Exception) -> int:
    """Print the error of a user; raise a fault of ours."""
    if isinstance(error, EXPLAINED):
        return _fail(_one_line(error))
    if isinstance(error, headwater.HeadwaterError):
        return _fail(str(error))  # it may list problems, one to a line
    raise error


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning to people, without the place in our code."""
    say(f"confluence: warning: {message}")


def _leave(status: int) -> int:
    """The exit status; a rank of several that failed ends here and does not wait for the others."""
    if "confluence.ranks.group" in sys.modules:
        from confluence.ranks.group import leave_after_failure

        leave_after_failure(status)
    return status


def _fail(message: str) -> int:
    say(f"confluence: {message}")
    return 1


def _one_line(error: Exception) -> str:
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, MemoryError) and not message:
        message = "no memory is left for this process"
    return " ".join(message.split()) or type(error).__name__


def _show(outcome: Outcome, *, as_json: bool) -> int:
    """Print the result of a command; returns the exit status."""
    if outcome.result is not None:
        from confluence.watch.log import to_json

        tell(to_json(outcome.result) if as_json else "\n".join(outcome.lines))
    return outcome.status if outcome.failure is None else _fail(outcome.failure)
