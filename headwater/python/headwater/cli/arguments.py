"""The arguments of `headwater`; a command calls the function of its name in commands.py."""

from __future__ import annotations

import argparse
from typing import Any

from headwater.binding import VERSION
from headwater.cli import commands

BENCH_REQUESTS = 2000


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(
        prog="headwater", description="From a relational database to batches of contexts."
    )
    command_line.add_argument("--version", action="version", version=f"headwater {VERSION}")
    subparsers = command_line.add_subparsers(required=True, metavar="COMMAND")
    init = subparsers.add_parser("init", help="draft a metadata.json from a source")
    add_source(init, nargs="?")
    init.add_argument("-o", "--output", default="metadata.json", metavar="F")
    init.add_argument(
        "--update", action="store_true", help="keep the entries of the file, and add new ones"
    )
    init.add_argument(
        "--check",
        action="store_true",
        help="print the open checks of the file, which stand in its notes, and write nothing "
        "(SOURCE is not read; exit status 1 if there are any)",
    )
    init.add_argument(
        "--full", action="store_true", help="print every check and column, however many"
    )

    build = subparsers.add_parser("build", help="build a store from a source")
    add_source(build)
    build.add_argument("out", metavar="OUT", nargs="?", help="folder of the store")
    build.add_argument("--metadata", metavar="F", help="metadata.json; inferred without it")
    build.add_argument(
        "--embedder",
        default="hash",
        metavar="NAME",
        help="embedder of texts: hash (the default), sentence-transformers:NAME_OR_FOLDER, "
        "openai:MODEL@URL, or precomputed:FILE.parquet with columns text and vector",
    )
    _add_named_values(
        build,
        "--embedder-option",
        "matryoshka, prefix, max_characters, batch_texts, batch_characters, concurrency, "
        "timeout_s, attempts, key_variable (OPENAI_API_KEY), device",
    )
    build.add_argument(
        "--text-dim",
        type=int,
        metavar="N",
        help="width of `hash` (256), or the width to request from a model",
    )
    build.add_argument(
        "--cache", metavar="DIR", help="vectors kept between builds (~/.cache/headwater)"
    )
    build.add_argument("--no-cache", action="store_true", help="keep no vectors between builds")
    build.add_argument(
        "--dry-run", action="store_true", help="count texts and requests; write no store"
    )
    build.add_argument(
        "--texts", metavar="FILE", help="with --dry-run: write the texts to a new Parquet file"
    )
    build.add_argument(
        "--seeds-dir",
        metavar="DIR",
        help="folder of label tables (default: only the folder of the metadata)",
    )
    build.add_argument(
        "--memory-limit", metavar="SIZE", help="memory that the process may use, such as 4GB"
    )
    build.add_argument(
        "--query-timeout",
        type=float,
        metavar="SECONDS",
        help="stop the query of a task after so long (600; 0: no limit)",
    )
    build.add_argument("--strict", action="store_true", help="fail if anything is dropped")

    inspect = subparsers.add_parser(
        "inspect", help="schema, statistics, tasks and sizes of a store"
    )
    inspect.add_argument("store", metavar="STORE")
    inspect.add_argument("name", nargs="?", metavar="TABLE|TASK")

    sample = subparsers.add_parser("sample", help="show one context")
    sample.add_argument("store", metavar="STORE")
    sample.add_argument("--task", required=True)
    sample.add_argument(
        "--seed-index", type=int, default=0, metavar="N", help="N-th seed of the split's order"
    )
    sample.add_argument("--split", default="train", choices=("train", "val", "test"))
    sample.add_argument("--length", type=int, default=256, metavar="S", help="cells (256)")
    sample.add_argument("--width", type=int, default=4, metavar="W", help="children per key (4)")
    _add_named_values(
        sample,
        "--sampler-option",
        "an option of the sampler, in JSON or as a word, such as label_rows=4, peer_labels=16; "
        "repeatable",
    )
    add_no_verify(sample)

    verify = subparsers.add_parser("verify", help="prove every invariant of a store")
    verify.add_argument("store", metavar="STORE")

    _add_audit(subparsers)

    bench = subparsers.add_parser(
        "bench",
        help="throughput and latency, one JSON line per configuration",
        description="Every combination of the repeatable options (+) is measured in turn. "
        "docs/notebook/performance.md explains the fields of a line.",
    )
    bench.add_argument("store", metavar="STORE")
    _add_bench_options(bench)

    for name, command in subparsers.choices.items():
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
        command.set_defaults(command=getattr(commands, name), refuse=command.error)
    return command_line


def _add_audit(subparsers: Any) -> None:
    audit = subparsers.add_parser(
        "audit",
        help="look for leaks in contexts; exit 1 on any",
        description="Samples contexts of every task and split, and holds each row, cell and link "
        "against the rules of docs/reference/sampling.md, read from the store's files a second "
        "time. Exit 1 on any leak; doubtful findings are listed as 'to check'.",
    )
    audit.add_argument("store", metavar="STORE")
    audit.add_argument(
        "--task", action="append", metavar="T", help="audit only this task; repeatable"
    )
    audit.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="seeds of each task and split (1000, always the same)",
    )
    _add_named_values(
        audit,
        "--sampler-option",
        "an option you will train with, in JSON or as a word: default_sequence_length=512, "
        "visible_until=2010-01-01, label_rows=8, peer_labels=16, child_order=recent; "
        "repeatable",
    )
    add_no_verify(audit)


def _add_named_values(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    parser.add_argument(option, action="append", default=[], metavar="NAME=VALUE", help=text)


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
    bench.add_argument(
        "--layout", action="append", metavar="L", help="dense, compact or flat (dense) +"
    )
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


def add_source(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """SOURCE and the options that choose its tables."""
    parser.add_argument("source", metavar="SOURCE", nargs=nargs, help=SOURCE_HELP)
    for option, metavar, text in (
        (
            "--schema",
            "S",
            "read this schema (public, or main of DuckDB); repeatable, with wildcards",
        ),
        (
            "--table",
            "T",
            "read only tables of this name, such as 'a*'; repeatable; also names a view",
        ),
        ("--exclude-table", "T", "leave out tables of this name; repeatable"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)
