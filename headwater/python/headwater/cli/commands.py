"""The commands of `headwater`.

Each imports what it needs, so that wrong usage is reported at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headwater.console import say, tell, to_json
from headwater.files import check_no_input, check_output
from headwater.progress import ProgressDisplay

BENCH_DIMENSIONS = ("threads", "layout", "task")


def selected(options: argparse.Namespace) -> dict[str, list[str]]:
    """The filters as infer() and build() take them."""
    return {
        "schemas": options.schema,
        "tables": options.table,
        "exclude_tables": options.exclude_table,
    }


def init(options: argparse.Namespace) -> int:
    from headwater.builder.workspace import source_files
    from headwater.inference.infer import draft_source
    from headwater.inference.update import update_schema
    from headwater.metadata.schema import Schema

    output = Path(options.output)
    if options.check and options.update:
        options.refuse("--check writes nothing: give it without --update")
    if options.check:
        return _print_open(output, options)
    if options.source is None:
        options.refuse("SOURCE, the database, is needed")
    if options.update and not output.exists():
        raise ValueError(f"'{output}' does not exist, so there is nothing to update")
    inputs = [("SOURCE", source_files(options.source) or [])]
    if options.update:
        check_no_input(output, "-o", inputs)
    else:
        advice = "--update adds new entries to it, -o writes another file"
        check_output(output, "-o", inputs, advice=advice)
    edited = Schema.load(output) if options.update else None
    draft = draft_source(options.source, edited, **selected(options))
    if edited is None:
        draft.schema().save(output)
        tell(to_json(draft.to_dict()) if options.json else draft.text(full=options.full))
        if not options.json:
            tell(
                f"\n{output} is written, and a build uses it as it is: every proposal is in it."
                " Go through the lines under 'to check': correct wrong entries, and remove the"
                f" line from its note. headwater init --check -o {output} prints what is left."
            )
        return 0
    schema, told = update_schema(edited, draft)
    if schema != edited:
        schema.save(output)
    tell(to_json(draft.to_dict() | {"update": told}) if options.json else _update_text(told))
    if not options.json:
        state = "is updated" if schema != edited else "is as it was"
        tell(f"{output} {state}. Entries that were there are unchanged.")
    return 0


def _print_open(path: Path, options: argparse.Namespace) -> int:
    from headwater.metadata.review import checks_text, every_name, open_checks
    from headwater.metadata.schema import Schema

    schema = Schema.load(path)
    found = open_checks(schema)
    if options.json:
        tell(
            to_json(
                [
                    {"of": e.subject(), "cost": e.check.cost.name.lower(), "check": e.check}
                    for e in found
                ]
            )
        )
    else:
        text = checks_text(found, every_name(schema), full=options.full)
        tell(text if found else "nothing is open")
    return 1 if found else 0


def _update_text(told: dict[str, list[str]]) -> str:
    titles = {
        "added": "added, each with a note",
        "gone": "in the file and not in the source",
        "otherwise": "kept as in the file, though init would now choose otherwise",
    }
    parts = []
    for kind, title in titles.items():
        lines = "".join(f"\n  {line}" for line in told[kind])
        parts.append(f"{title} ({len(told[kind])}):{lines}" if lines else f"{title}: nothing")
    return "\n".join(parts)


def build(options: argparse.Namespace) -> int:
    from headwater.builder import build as stages

    if options.out is None and not options.dry_run:
        options.refuse("OUT, the folder of the store, or --dry-run is needed")
    if options.texts is not None and not options.dry_run:
        options.refuse("--texts needs --dry-run")
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
    if options.query_timeout is not None:
        shared["query_timeout"] = options.query_timeout
    report: Any
    try:
        if options.dry_run:
            report = stages.dry_run(options.source, options.metadata, texts=options.texts, **shared)
        else:
            report = stages.build(
                options.source, options.out, options.metadata, strict=options.strict, **shared
            )
    finally:
        display.close()
    tell(to_json(report.to_dict()) if options.json else report)
    return 0


def _named_values(given: Sequence[str], option: str) -> dict[str, Any]:
    values = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise ValueError(f"{option} is '{pair}', expected NAME=VALUE")
        values[name] = value
    return values


def inspect(options: argparse.Namespace) -> int:
    from headwater.store import inspection

    metadata, sizes = inspection.open_metadata(options.store)
    found = metadata if options.name is None else inspection.find(metadata, options.name)
    if options.json:
        tell(to_json(found | ({"bytes": sizes} if found is metadata else {}), indent=1))
    else:
        tell(inspection.describe(metadata, sizes, options.name))
    return 0


def sample(options: argparse.Namespace) -> int:
    from headwater.audit.run import OWN_OPTIONS, check_options
    from headwater.sampling.sampler import Sampler
    from headwater.store import inspection
    from headwater.store.rendering import read_context
    from headwater.store.store import Store

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
            if not count:
                sampler.epoch(options.split, options.task)  # TaskError with the reason
            if not 0 <= options.seed_index < count:
                raise ValueError(
                    f"--seed-index is {options.seed_index}, task '{options.task}' has {count} seeds"
                    f" in split '{options.split}'"
                )
            batch = sampler.batch(options.split, options.seed_index)
            context = read_context(store, store.metadata, batch, 0)
    tell(to_json(context.to_dict()) if options.json else context)
    return 0


def verify(options: argparse.Namespace) -> int:
    from headwater.binding import Store
    from headwater.store.store import faults_of

    faults = faults_of(Store(options.store))
    if options.json:
        tell(to_json({"faults": faults}))
    elif not faults:
        tell(f"{options.store}: sound")
    for fault in [] if options.json else faults:
        tell(fault)
    if faults:
        say(f"headwater: {len(faults)} faults in '{options.store}'")
    return 1 if faults else 0


def audit(options: argparse.Namespace) -> int:
    from headwater.audit import run

    given = _sampler_options(options)
    run.check_options(given, "an audit", run.OWN_OPTIONS)
    report = run.audit(
        options.store,
        tasks=options.task,
        seeds=run.SEEDS_DEFAULT if options.seeds is None else options.seeds,
        verify=options.verify,
        **given,
    )
    tell(to_json(report.to_dict()) if options.json else report)
    if report.leaks:
        say(f"headwater: {len(report.leaks)} leaks in '{options.store}'")
    return 0 if report.is_clean else 1


def _sampler_options(options: argparse.Namespace) -> dict[str, Any]:
    given = _named_values(options.sampler_option, "--sampler-option")
    for name, text in given.items():
        with contextlib.suppress(ValueError):  # then it is a word
            given[name] = json.loads(text)
    return given


def bench(options: argparse.Namespace) -> int:
    from headwater.sampling import bench as benchmark

    given = {name: getattr(options, name) for name in BENCH_DIMENSIONS}
    choices = {name: values for name, values in given.items() if values is not None}
    lines: Iterable[dict[str, Any]]
    if options.latency is not None:
        if options.latency < 1:
            raise ValueError(f"--latency is {options.latency}, expected at least 1")
        wanted = benchmark.configurations(**choices)
        lines = benchmark.latency(options.store, wanted, requests=options.latency)
    else:
        wanted = benchmark.configurations(**{"threads": benchmark.thread_counts(), **choices})
        if sys.stderr is not None and sys.stderr.isatty():
            seconds = len(wanted) * benchmark.REPEATS * benchmark.SECONDS
            say(f"{len(wanted)} configurations, about {seconds:.0f} seconds")
        lines = benchmark.throughput(
            options.store, wanted, seconds=benchmark.SECONDS, repeats=benchmark.REPEATS
        )
    for line in lines:
        if not tell(to_json(line)):
            break
    return 0
