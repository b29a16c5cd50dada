"""The command `headwater`: init, build, inspect, sample, verify, audit, bench.

Exit status 0 on success, 1 on bad input with one message on stderr, 2 on wrong usage. A reader of
stdout or stderr that is gone changes neither what a command does nor its status.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .console import keep_places, say, tell, to_json
from .errors import HeadwaterError
from .interrupts import Interrupts, is_interrupt

BENCH_REQUESTS = 2000
BENCH_DIMENSIONS = ("threads", "layout", "task")


def main(arguments: Sequence[str] | None = None) -> int:
    keep_places()
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode is no reason to fail
    with Interrupts() as interrupts, warnings.catch_warnings():
        warnings.showwarning = _warn
        try:
            return int(options.command(options))
        except KeyboardInterrupt:
            said = ""
        except Exception as error:
            if not interrupts.is_made:  # else it may be what a library made of Ctrl-C
                return _failed(error)
            said = "" if is_interrupt(error) else f" ({_message(error)})"
    say(f"headwater: interrupted{said}")
    return 130


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"headwater: warning: {message}")


def _failed(error: Exception) -> int:
    """Say what went wrong; raises what is a fault of ours."""
    if not isinstance(error, (HeadwaterError, OSError, ValueError, ImportError, MemoryError)):
        raise error
    say(f"headwater: {_message(error)}")
    return 1


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headwater", description="From a relational database to batches of contexts."
    )
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    init = commands.add_parser("init", help="draft a metadata.json from a source")
    add_source(init)
    init.add_argument("-o", "--output", default="metadata.json", metavar="F")
    init.add_argument(
        "--update", action="store_true", help="keep what the file says, add what is new"
    )
    init.add_argument(
        "--full", action="store_true", help="print every check and column, however many"
    )
    init.set_defaults(command=_init)

    build = commands.add_parser("build", help="build a store from a source")
    add_source(build)
    build.add_argument("out", metavar="OUT", nargs="?", help="folder of the store")
    build.add_argument("--metadata", metavar="F", help="metadata.json; inferred without it")
    build.add_argument(
        "--embedder",
        default="hash",
        metavar="NAME",
        help="of texts: hash (the default), sentence-transformers:NAME_OR_FOLDER, "
        "openai:MODEL@URL, or precomputed:FILE.parquet with columns text and vector",
    )
    build.add_argument(
        "--embedder-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="matryoshka, prefix, max_characters, batch_texts, batch_characters, concurrency, "
        "timeout_s, attempts, key_variable (OPENAI_API_KEY), device",
    )
    build.add_argument(
        "--text-dim", type=int, metavar="N", help="width of `hash` (256), or asked of a model"
    )
    build.add_argument(
        "--cache", metavar="DIR", help="vectors kept between builds (~/.cache/headwater)"
    )
    build.add_argument("--no-cache", action="store_true", help="keep no vectors between builds")
    build.add_argument(
        "--dry-run", action="store_true", help="count texts and requests; write nothing"
    )
    build.add_argument(
        "--texts", metavar="FILE", help="of --dry-run: write the texts to a Parquet file"
    )
    build.add_argument(
        "--seeds-dir",
        metavar="DIR",
        help="where label tables are (in the folder of the metadata, and nowhere else)",
    )
    build.add_argument("--memory-limit", metavar="SIZE", help="of the process, such as 4GB")
    build.add_argument("--strict", action="store_true", help="fail if anything is dropped")
    build.set_defaults(command=_build, refuse=build.error)

    inspect = commands.add_parser("inspect", help="schema, statistics, tasks and sizes of a store")
    inspect.add_argument("store", metavar="STORE")
    inspect.add_argument("name", nargs="?", metavar="TABLE|TASK")
    inspect.set_defaults(command=_inspect)

    sample = commands.add_parser("sample", help="show one context")
    sample.add_argument("store", metavar="STORE")
    sample.add_argument("--task", required=True)
    sample.add_argument(
        "--seed-index", type=int, default=0, metavar="N", help="N-th seed of the split's order"
    )
    sample.add_argument("--split", default="train", choices=("train", "val", "test"))
    sample.add_argument("--length", type=int, default=256, metavar="S", help="cells (256)")
    sample.add_argument("--width", type=int, default=4, metavar="W", help="children per key (4)")
    sample.add_argument(
        "--sampler-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="in JSON or as a word, such as label_rows=4, peer_labels=16; repeatable",
    )
    add_no_verify(sample)
    sample.set_defaults(command=_sample)

    verify = commands.add_parser("verify", help="prove every invariant of a store")
    verify.add_argument("store", metavar="STORE")
    verify.set_defaults(command=_verify)

    _add_audit(commands)

    bench = commands.add_parser(
        "bench",
        help="throughput and latency, one JSON line per configuration",
        description="Every combination of the repeatable options (+) is measured in turn. "
        "docs/7-performance.md says what the fields of a line mean.",
    )
    bench.add_argument("store", metavar="STORE")
    _add_bench_options(bench)
    bench.set_defaults(command=_bench)

    for command in (init, build, inspect, sample, verify, bench):
        command.add_argument("--json", action="store_true", help="for programs")
    return parser


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser(
        "audit",
        help="look for leaks in what contexts show; exit 1 on any",
        description="Samples contexts of every task and split, and holds each row, cell and link "
        "against the rules of docs/2-sampling.md, read from the store's files a second time. "
        "Exit 1 on any leak; what only looks like one is listed as 'to check'.",
    )
    audit.add_argument("store", metavar="STORE")
    audit.add_argument("--task", action="append", metavar="T", help="only this; repeatable")
    audit.add_argument(
        "--seeds", type=int, metavar="N", help="of each task and split (1000, always the same)"
    )
    audit.add_argument(
        "--sampler-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what you will train with, in JSON or as a word: default_sequence_length=512, "
        "visible_until=2010-01-01, label_rows=8, peer_labels=16, child_order=recent; "
        "repeatable",
    )
    add_no_verify(audit)
    audit.add_argument("--json", action="store_true", help="for programs")
    audit.set_defaults(command=_audit)


def add_no_verify(parser: argparse.ArgumentParser) -> None:
    """Whether a store is read before it is used, as `verify` of `Store`."""
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_const",
        const="header",
        default="once",
        help="do not read the store to its last byte, even the first time on this machine",
    )


def _add_bench_options(bench: argparse.ArgumentParser) -> None:
    """The dimensions of a benchmark; each may be given several times."""
    cores = "threads (1, 2, 4, ... usable cores) +"
    bench.add_argument("--threads", action="append", type=int, metavar="N", help=cores)
    bench.add_argument("--layout", action="append", metavar="L", help="dense or compact (dense) +")
    bench.add_argument("--task", action="append", help="one task (all of the store, mixed) +")
    bench.add_argument(
        "--latency",
        type=int,
        nargs="?",
        const=BENCH_REQUESTS,
        metavar="REQUESTS",
        help=f"time single contexts instead ({BENCH_REQUESTS} requests)",
    )


SOURCE_HELP = (
    "sqlite:///file.db, postgresql://user@host/database (password from PGPASSWORD or ~/.pgpass), "
    "duckdb:///file.duckdb, a folder of Parquet or CSV files, or a RelBench cache folder"
)


def add_source(parser: argparse.ArgumentParser) -> None:
    """SOURCE and what chooses its tables."""
    parser.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    for option, metavar, text in (
        (
            "--schema",
            "S",
            "read this schema (public, or main of DuckDB); repeatable, with wildcards",
        ),
        ("--table", "T", "read only tables named so, such as 'a*'; repeatable; names a view too"),
        ("--exclude-table", "T", "leave out tables named so; repeatable"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)


def selected(options: argparse.Namespace) -> dict[str, list[str]]:
    """The filters as infer() and build() take them."""
    return {
        "schemas": options.schema,
        "tables": options.table,
        "exclude_tables": options.exclude_table,
    }


# ---- commands --------------------------------------------------------------------------------


def _init(options: argparse.Namespace) -> int:
    from .infer import draft_source
    from .inference.update import update_schema
    from .schema import Schema

    output = Path(options.output)
    if output.exists() and not options.update:
        raise ValueError(
            f"'{output}' is there already; --update adds what is new to it, -o writes another"
        )
    if options.update and not output.exists():
        raise ValueError(f"'{output}' is not there, so there is nothing to update")
    edited = Schema.load(output) if options.update else None
    draft = draft_source(options.source, edited, **selected(options))
    if edited is None:
        draft.schema().save(output)
        tell(to_json(draft.to_dict()) if options.json else draft.text(full=options.full))
        if not options.json:
            tell(f"\n{output} is written. Check it, above all the lines under 'to check'.")
        return 0
    schema, told = update_schema(edited, draft)
    if schema != edited:
        schema.save(output)
    tell(to_json(draft.to_dict() | {"update": told}) if options.json else _update_text(told))
    if not options.json:
        state = "is updated" if schema != edited else "is as it was"
        tell(f"{output} {state}. Entries that were there are unchanged.")
    return 0


def _update_text(told: dict[str, list[str]]) -> str:
    titles = {
        "added": "added, each with a note",
        "gone": "in the file and not in the source",
        "otherwise": "kept as in the file, though init would now say otherwise",
    }
    parts = []
    for kind, title in titles.items():
        lines = "".join(f"\n  {line}" for line in told[kind])
        parts.append(f"{title} ({len(told[kind])}):{lines}" if lines else f"{title}: nothing")
    return "\n".join(parts)


def _build(options: argparse.Namespace) -> int:
    from .build import build, dry_run
    from .progress import ProgressDisplay

    if options.out is None and not options.dry_run:
        options.refuse("OUT, the folder of the store, or --dry-run is needed")
    if options.texts is not None and not options.dry_run:
        options.refuse("--texts is of --dry-run")
    if options.metadata is None:
        say("no --metadata given: the schema is inferred")
    display = ProgressDisplay(sys.stderr)
    shared: dict[str, Any] = {
        "embedder": options.embedder,
        "embedder_options": _named_values(options.embedder_option, "--embedder-option"),
        "text_dim": options.text_dim,
        "cache": False if options.no_cache else options.cache or True,
        "seeds_dir": options.seeds_dir,
        "memory_limit": options.memory_limit,
        "progress": display,
        **selected(options),
    }
    report: Any
    try:
        if options.dry_run:
            report = dry_run(options.source, options.metadata, texts=options.texts, **shared)
        else:
            report = build(
                options.source,
                options.out,
                options.metadata,
                strict=options.strict,
                **shared,
            )
    finally:
        display.close()
    tell(to_json(report.to_dict()) if options.json else report)
    return 0


def _named_values(given: Sequence[str], option: str) -> dict[str, str]:
    values = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise ValueError(f"{option} is '{pair}', expected NAME=VALUE")
        values[name] = value
    return values


def _inspect(options: argparse.Namespace) -> int:
    from . import inspection

    metadata, sizes = inspection.open_metadata(options.store)
    found = metadata if options.name is None else inspection.find(metadata, options.name)
    if options.json:
        tell(to_json(found | ({"bytes": sizes} if found is metadata else {}), indent=1))
    else:
        tell(inspection.describe(metadata, sizes, options.name))
    return 0


def _sample(options: argparse.Namespace) -> int:
    from . import inspection
    from .audit.run import OWN_OPTIONS, check_options
    from .render import read_context
    from .sampler import Sampler
    from .store import Store

    with Store(options.store, verify=options.verify) as store:
        inspection.find_task(store.metadata, options.task)
        given = _sampler_options(options)
        own = {"default_sequence_length", "bfs_child_width", "objective", "seed_tables"}
        check_options(given, "sample", OWN_OPTIONS | own)
        with Sampler(
            store=store,
            tasks=[options.task],
            with_rows=True,
            default_batch_size=1,
            default_sequence_length=options.length,
            bfs_child_width=options.width,
            num_prefetch=0,
            **given,
        ) as sampler:
            count = sampler.num_seeds(options.split, options.task)
            if not 0 <= options.seed_index < count:
                raise ValueError(
                    f"--seed-index is {options.seed_index}, task '{options.task}' has {count} seeds"
                    f" in split '{options.split}'"
                )
            batch = sampler.batch(options.split, options.seed_index)
            context = read_context(store, store.metadata, batch, 0)
    tell(to_json(context.to_dict()) if options.json else context)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from .binding import Store

    faults = Store(options.store).verify()
    if options.json:
        tell(to_json({"faults": faults}))
    elif not faults:
        tell(f"{options.store}: sound")
    for fault in [] if options.json else faults:
        tell(fault)
    if faults:
        say(f"headwater: {len(faults)} faults in '{options.store}'")
    return 1 if faults else 0


def _audit(options: argparse.Namespace) -> int:
    from .audit import audit
    from .audit.run import OWN_OPTIONS, SEEDS_DEFAULT, check_options

    given = _sampler_options(options)
    check_options(given, "an audit", OWN_OPTIONS)
    report = audit(
        options.store,
        tasks=options.task,
        seeds=SEEDS_DEFAULT if options.seeds is None else options.seeds,
        verify=options.verify,
        **given,
    )
    tell(to_json(report.to_dict()) if options.json else report)
    if report.leaks:
        say(f"headwater: {len(report.leaks)} leaks in '{options.store}'")
    return 0 if report.is_clean else 1


def _sampler_options(options: argparse.Namespace) -> dict[str, Any]:
    given = _named_values(options.sampler_option, "--sampler-option")
    return {name: _json_or_word(value) for name, value in given.items()}


def _json_or_word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _bench(options: argparse.Namespace) -> int:
    from . import bench

    given = {name: getattr(options, name) for name in BENCH_DIMENSIONS}
    choices = {name: values for name, values in given.items() if values is not None}
    if options.latency is not None:
        if options.latency < 1:
            raise ValueError(f"--latency is {options.latency}, expected at least 1")
        wanted = bench.configurations(**choices)
        for line in bench.latency(options.store, wanted, requests=options.latency):
            if not tell(to_json(line)):
                break
        return 0
    wanted = bench.configurations(**{"threads": bench.thread_counts(), **choices})
    if sys.stderr is not None and sys.stderr.isatty():
        seconds = len(wanted) * bench.REPEATS * bench.SECONDS
        say(f"{len(wanted)} configurations, about {seconds:.0f} seconds")
    lines = bench.throughput(options.store, wanted, seconds=bench.SECONDS, repeats=bench.REPEATS)
    for line in lines:
        if not tell(to_json(line)):
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
