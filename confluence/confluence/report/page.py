"""A run on one page: `<run>/run.html`, which needs no other file, no script and no network.

    log.jsonl  evaluation-*.json  checkpoints/  the store ──► sections ──► run.html

Made when training ends and made again by every evaluation; `confluence page RUN` makes it at any
time, also of a run that is not finished. The verdict comes first, then the evaluations, then the
curves of the training. The page shows whatever metrics, baselines, intervals and parts an
evaluation has. Everything that comes from files is escaped.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import headwater
from headwater.shared import check_output, in_reach, open_checks, read_text, shown

from confluence.answers.several_runs import describe_runs
from confluence.config import Config
from confluence.data.verification import open_store
from confluence.folder.checkpoint import CheckpointError, load_record, saved_steps, store_paths
from confluence.folder.files import METADATA, write_whole
from confluence.report.charts import Line, histogram, line_chart, share, short
from confluence.report.evaluation_files import (
    EVALUATIONS,
    PROBES,
    RESULTS,
    Result,
    find_results,
    write_result,
)
from confluence.report.page_style import STYLE
from confluence.report.tables import (
    describe_base_rate,
    describe_left_out,
    describe_probe,
    describe_trees,
    time_range,
    who_answers,
)
from confluence.scores.baselines import title_of
from confluence.scores.scoring import HISTORY_PARTS
from confluence.watch.log import FILE
from confluence.watch.log_events import Event, completed, curve, of_kind, read_events

PAGE = "run.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
HEAD = (  # how every page begins
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
)
TABLES_SHOWN = 40
Facts = list[tuple[str, Any]]


class Markup(str):
    """HTML already; any other text is escaped where it is put on the page."""


def write_page(out: Path, opened: Mapping[str, headwater.Store] | None = None) -> Path:
    """Make the page of a run's folder; FileExistsError if another file has its name. opened: stores
    of the run that are open, by path; others are opened."""
    events = read_events(out / FILE)
    if not events:
        raise FileNotFoundError(f"'{out}' has no log of a run ('{out / FILE}')")
    path = out / PAGE
    check_output(path, "the name of the page", is_own=_is_page, what="the page of a run")
    write_whole(path, make_page(out, events, opened or {}))
    return path


def _is_page(path: Path) -> bool:
    """Whether a run's page, and nothing else, has this path."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD.encode()


def keep_result(
    out: Path, folder: Path, kind: str, result: Result, opened: Mapping[str, headwater.Store]
) -> None:
    """Write a result (`write_result`) and the page that shows it. If that fails, warn, so that the
    computed result is not lost. opened: stores of the run that are open, by path."""
    try:
        write_result(out, folder, kind, result)
    except OSError as error:
        warnings.warn(f"the result is not kept in '{folder}': {error}", stacklevel=3)
        return
    try:
        write_page(out, opened)
    except OSError as error:
        warnings.warn(f"the page does not show the result: {error}", stacklevel=3)


def make_page(out: Path, events: list[Event], opened: Mapping[str, headwater.Store]) -> str:
    """The whole page."""
    begun = of_kind(events, "start", "resume")
    place = begun[-1] if begun else {}
    title = ", ".join(place.get("tasks", ())) or out.resolve().name
    results = _results(out)
    sections = [
        ("In short", _verdicts(results)),
        ("Evaluation", _evaluations(results)),
        ("To check", _list(place.get("unseen_classes", ())) + _open_checks(out, place)),
        ("Training", _tiles(events) + _curves(events)),
        ("Time of steps", _step_times(events)),
        ("Checkpoints", _checkpoints(out, events)),
        ("Task and store", _store_facts(out, place, opened)),
        ("Sessions", _sessions(events)),
        ("Settings", _settings(place.get("config", {}))),
        ("Files", _files(out)),
    ]
    body = "".join(f"<section><h2>{name}</h2>{part}</section>" for name, part in sections if part)
    head = f"<h1>{escape(title)}</h1><p>{escape(_headline(out, place, events))}</p>"
    page: str = shown(  # names of a database may have control characters
        f'{HEAD}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><header>{head}</header>\n<main>{body}</main></body></html>\n"
    )
    return page


# --------------------------------------------------------------------------------- state and curves


def _headline(out: Path, place: Mapping[str, Any], events: list[Event]) -> str:
    parts = [f"run {out.resolve().name}", _state(events)]
    if place.get("device"):
        parts.append(f"on {place['device']}")
    parts.append(f"begun {_date(events[0].get('time'))}")
    return " · ".join(parts)


def _state(events: list[Event]) -> str:
    steps = [e["step"] for e in of_kind(events, "train")]
    reached = f"at step {steps[-1]:,}" if steps else "before the first line of its log"
    last = of_kind(events, "start", "resume", "end", "stop", "error")[-1]
    if last["event"] == "end":
        return f"finished after {last['steps']:,} steps"
    if last["event"] == "stop":
        return f"stopped by {last.get('by', 'a signal')} after step {last['step']:,}"
    if last["event"] == "error":
        return f"ended {reached} by {last.get('message', 'an error')}"
    return f"running or killed, {reached}"


def _tiles(events: list[Event]) -> str:
    """The numbers that are asked for first."""
    told = of_kind(events, "train")
    last = (of_kind(events, "end", "stop") or [{}])[-1]
    rates = {**(told[-1] if told else {}), **last}
    memory = rates.get("peak_device_memory_bytes")
    p50 = (rates.get("step_times") or {}).get("p50_ms")
    found: list[tuple[str, Any, Callable[[Any], str]]] = [
        ("loss", told[-1]["loss"] if told else None, short),
        ("parameters", rates.get("parameters"), short),
        ("median step", p50, lambda ms: f"{short(ms)} ms"),
        ("device busy", (rates.get("usage") or {}).get("utilization_mean"), share),
        ("waiting for data", rates.get("wait_share"), share),
        ("cells per second", rates.get("cells_per_second"), short),
        ("contexts per second", rates.get("contexts_per_second"), short),
        ("peak memory of the device", memory, lambda size: f"{short(size / 1e9)} GB"),
    ]
    shown = "".join(
        f"<div><dd>{escape(show(value))}</dd><dt>{name}</dt></div>"
        for name, value, show in found
        if value is not None
    )
    return f'<dl class="tiles">{shown}</dl>' if shown else ""


def _curves(events: list[Event]) -> str:
    told, scored = of_kind(events, "train"), of_kind(events, "evaluate")

    def lines(*names: str) -> list[Line]:
        return [Line(name.replace("_", " "), curve(told, name)) for name in names]

    charts = [
        line_chart("Loss", lines("loss")),
        line_chart("Loss of the task and of masked cells", lines("task_loss", "masked_loss")),
        *_val_charts(scored),
        line_chart("Learning rate", lines("learning_rate"), from_zero=True),
        line_chart("Gradient norm", lines("gradient_norm"), from_zero=True),
        line_chart(
            "Share of the time",
            lines("utilization", "wait_share", "fetch_share"),
            show=share,
            from_zero=True,
        ),
        line_chart("Cells per second", lines("cells_per_second"), from_zero=True),
    ]
    drawn = "".join(charts)
    if not drawn:
        return ""
    notes = _list(
        [
            "utilization: the device was busy; waiting: the device had finished and the next batch"
            " was not there; fetching: the host got batches, mostly while the device worked",
        ]
    )
    return f'<div class="grid">{drawn}</div>{notes}'


def _val_charts(scored: list[Event]) -> Iterator[str]:
    """One chart for each metric that was measured during training, a line for each task."""
    metrics = dict.fromkeys(name for event in scored for name in event.get("metrics", {}))
    tasks = dict.fromkeys((event.get("task"), event.get("split")) for event in scored)
    for metric in metrics:
        lines = [
            Line(
                _words(task),
                curve([e for e in scored if (e.get("task"), e.get("split")) == (task, split)],
                      f"metrics/{metric}"),
            )
            for task, split in tasks
        ]  # fmt: skip
        splits = ", ".join(dict.fromkeys(str(split) for _, split in tasks))
        yield line_chart(f"{metric.replace('_', ' ')} on {splits}", lines)


def _step_times(events: list[Event]) -> str:
    last = (of_kind(events, "end", "stop") or [{}])[-1]
    times = last.get("step_times") or {}
    chart = histogram(
        "Steps by their time in ms", times.get("edges_ms", ()), times.get("counts", ()),
        x_label="ms; each edge is the fourth root of two times the one before",
    )  # fmt: skip
    if not chart:
        return ""
    facts: Facts = [
        (name.removesuffix("_ms"), f"{short(times[name])} ms")
        for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")
        if name in times
    ]
    if "first_step_seconds" in last:
        facts.append(("first step, which compiles", f"{short(last['first_step_seconds'])} s"))
    if "bound_by" in last:
        facts.append(("the sampler was bound by", last["bound_by"]))
    return f'<div class="beside">{chart}{_facts(facts)}</div>'


def _sessions(events: list[Event]) -> str:
    """When processes began and ended."""
    rows = []
    for event in of_kind(events, "start", "resume", "stop", "error", "end"):
        step = event.get("step", event.get("steps"))
        more = event.get("message") or event.get("by") or event.get("device")
        seconds = event.get("seconds")
        said = more if seconds is None else f"{short(seconds)} s of training"
        rows.append([_date(event.get("time")), event["event"], _whole(step), said])
    return _table(["time", "event", "step", ""], rows)


# ------------------------------------------------------------------------------------------- scores


def _results(out: Path) -> dict[str, Result | None]:
    """Evaluations, the plain ones first, then probes; None for a file that cannot be read."""
    found: dict[str, Result | None] = {}
    evaluations = find_results(out, EVALUATIONS)
    evaluations.sort(key=lambda path: not path.name.endswith("-rolling.json"))
    for path in [*evaluations, *find_results(out, PROBES)]:
        try:
            result = completed(json.loads(read_text(path)))
        except (OSError, ValueError):
            result = None
        found[str(path.relative_to(out))] = result
    return found


def _verdicts(results: Mapping[str, Result | None]) -> str:
    """The sentence of each evaluation; if there are several, with the name of the evaluation."""
    judged = [result for result in results.values() if result and "text" in _verdict(result)]
    found = []
    for result in judged:
        which = f"<small>{escape(_which(result))}</small>" if len(judged) > 1 else ""
        found.append(f'<p class="verdict">{which}{escape(str(_verdict(result)["text"]))}</p>')
    return "".join(found)


def _verdict(result: Mapping[str, Any]) -> Mapping[str, Any]:
    found = result.get("verdict")
    return found if isinstance(found, Mapping) else {}


def _which(result: Mapping[str, Any]) -> str:
    """The name of an evaluation, which differs from those of the others of a run."""
    parts = [_title(result), str(result.get("regime", ""))]
    if result.get("visible_until"):
        parts[1] += f" at {result['visible_until']}"
    parts += [describe_runs(result["runs"])] if "runs" in result else []
    if "trees" in result:
        parts.append(f"trees have {result['trees']['share']:g} of each answer")
    parts += [f"weights of step {_whole(result['step'])}"] if "step" in result else []
    return " · ".join(part for part in parts if part)


def _evaluations(results: Mapping[str, Result | None]) -> str:
    return "".join(
        f"<p>{escape(name)} cannot be read.</p>"
        if result is None
        else f'<div class="evaluation">{evaluation_html(result)}</div>'
        for name, result in results.items()
    )


def evaluation_html(result: Mapping[str, Any]) -> str:
    """One evaluation: who scored how, on all seeds and on parts of them."""
    metrics = list(result.get("metrics", {}))
    baselines = result.get("baselines", {})
    apart = any("differences" in entry for entry in baselines.values())
    first = metrics[0] if metrics else ""
    header = ["", *metrics, *([f"{_whose(result)} {first} less this"] if apart else [])]
    rows = [[who_answers(result), *_scores(result, metrics), *([""] if apart else [])]]
    for name, entry in baselines.items():
        difference = _with_interval(
            (entry.get("differences") or {}).get(first),
            (entry.get("difference_intervals") or {}).get(first), sign="+",
        )  # fmt: skip
        rows.append([title_of(name), *_scores(entry, metrics), *([difference] if apart else [])])
    return (
        f"<h3>{escape(_title(result))}</h3><p>{escape(_regime(result))}</p>"
        f'<div class="scores">{_table(header, rows)}</div>'
        f"{_parts(result, first)}{_list(_notes(result))}"
    )


def _title(result: Mapping[str, Any]) -> str:
    """The task and the split; for a probe also that it is one."""
    title = f"{_words(result.get('task'))} on {result.get('split')}"
    return title + (", linear probe" if "probe" in result else "")


def _whose(result: Mapping[str, Any]) -> str:
    return {"trees": "the trees'", "model and trees": "with trees,"}.get(
        who_answers(result), "the model's"
    )


def _regime(result: Mapping[str, Any]) -> str:
    parts = [str(result.get("regime", ""))]
    if result.get("visible_until"):
        parts[0] += f" at {result['visible_until']}"
    if "scored" in result:
        parts.append(f"{_whole(result['scored'])} of {_whole(result.get('seeds'))} seeds scored")
    if "contexts" in result:
        parts.append(f"{_whole(result['contexts'])} contexts")
    if result.get("anchors") is not None:
        parts.append(f"{_whole(result['anchors'])} anchors")
    if result.get("step") is not None:
        parts.append(f"weights of step {_whole(result['step'])}")
    for name in ("null", "unlabelled"):
        if result.get(name):
            parts.append(f"{_whole(result[name])} {name}")
    return " · ".join(part for part in parts if part)


def _notes(result: Mapping[str, Any]) -> list[str]:
    notes = [describe_probe(result["probe"])] if "probe" in result else []
    notes += describe_base_rate(result)
    notes += [str(result["open_windows"])] if "open_windows" in result else []
    for name, entry in result.get("baselines", {}).items():
        said = [str(entry[part]) for part in ("constant", "model", "missing") if part in entry]
        if entry.get("fallback_share") is not None:
            fallback = str(entry.get("fallback", ""))
            said.append(f"{title_of(fallback)} for {share(entry['fallback_share'])} of the seeds")
        if entry.get("left_out"):
            said.append(describe_left_out(entry["left_out"]))
        if said:
            notes.append(f"{title_of(name)}: {'; '.join(said)}")
    drawn = result.get("resampling") or {}
    if drawn.get("resamples") and result.get("intervals"):
        notes.append(
            f"intervals: {share(drawn.get('level', 0))} of {_whole(drawn['resamples'])} draws of"
            f" {drawn.get('clusters', 'seeds')}"
        )
    if "runs" in result:
        notes.append(describe_runs(result["runs"]))
    if "trees" in result:
        notes.append(describe_trees(result["trees"]))
    return notes


def _parts(result: Mapping[str, Any], first: str) -> str:
    """The first metric on parts of the seeds."""
    history = result.get("history") or {}
    parts = [(HISTORY_PARTS.get(name, name), part) for name, part in history.items()]
    parts += [(time_range(part), part) for part in result.get("obs_time") or ()]
    if not parts:
        return ""
    names = list(result.get("baselines", {}))
    rows = []
    for title, part in parts:
        beside = [_scores(part.get("baselines", {}).get(name, {}), [first])[0] for name in names]
        rows.append([title, _whole(part.get("scored")), *_scores(part, [first]), *beside])
    header = ["seeds apart", "scored", f"{_whose(result)} {first}"]
    return _table([*header, *(title_of(name) for name in names)], rows)


def _scores(entry: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    values, intervals = entry.get("metrics") or {}, entry.get("intervals") or {}
    return [_with_interval(values.get(name), intervals.get(name)) for name in metrics]


def _with_interval(value: Any, interval: Any, sign: str = "") -> Markup:
    """A value, and below it the interval if there is one."""
    shown = escape(_metric(value, sign))
    if value is None or not isinstance(interval, list | tuple) or len(interval) != 2:
        return Markup(shown)
    low, high = (escape(_metric(end, sign)) for end in interval)
    return Markup(f"{shown}<br/><small>{low} to {high}</small>")


def _metric(value: Any, sign: str = "") -> str:
    if not isinstance(value, int | float):
        return "-" if value is None else str(value)
    digits = 4 if abs(value) < 1 else 3 if abs(value) < 100 else 1
    return f"{value:{sign},.{digits}f}"


# ---------------------------------------------------------------------------- checkpoints and store


def _checkpoints(out: Path, events: list[Event]) -> str:
    saved = {event["step"]: event for event in of_kind(events, "save")}
    scores: dict[tuple[str, str], dict[int, Any]] = {}  # by metric and task, then by step
    for event in of_kind(events, "evaluate"):
        for metric, value in event.get("metrics", {}).items():
            scores.setdefault((metric, event["task"]), {})[event["step"]] = value
    several = len({task for _, task in scores}) > 1
    there = saved_steps(out)
    best = [step for step in there if saved.get(step, {}).get("best")]
    rows = []
    for step in there:
        marks = ["last"] * (step == there[-1]) + ["best on val"] * (step in best[-1:])
        values = [_metric(by_step.get(step)) for by_step in scores.values()]
        date = _date(saved.get(step, {}).get("time"))
        rows.append([_whole(step), date, *values, ", ".join(marks)])
    metrics = [f"{metric} of {task}" if several else metric for metric, task in scores]
    return _table(["step", "saved", *metrics, ""], rows) if rows else ""


def _store_facts(out: Path, place: Mapping[str, Any], opened: Mapping[str, headwater.Store]) -> str:
    found, known = [], {Path(path).resolve(): store for path, store in opened.items()}
    try:
        paths = store_paths(out, load_record(out))
    except CheckpointError:  # there is none yet, or a store is gone
        paths = place.get("stores", [])
    for path in paths:
        try:
            store = known.get(Path(path).resolve()) or open_store(path)
            found.append(_one_store(store, place))
        except (headwater.HeadwaterError, OSError):
            found.append(f"<p>The store '{escape(str(path))}' is not there now.</p>")
    return "".join(found)


def _one_store(store: headwater.Store, place: Mapping[str, Any]) -> str:
    """A store, and the tasks of the run that it has."""
    metadata = store.metadata
    text, tables = metadata.get("text") or {}, metadata["tables"]
    facts: Facts = [
        ("store", store.path), ("name", metadata.get("name")), ("fingerprint", store.fingerprint),
        ("embedder", f"{text.get('embedder')}, width {text.get('dim')}"),
    ]  # fmt: skip
    titles = place.get("tasks", ())
    told = [
        _task_facts(task)
        for task in metadata["tasks"]
        if task["name"] in titles or f"{metadata.get('name')}/{task['name']}" in titles
    ]
    beside = "".join(about for about, _ in told) + _facts(facts)
    queries = "".join(query for _, query in told)
    header = ["table", "rows", "columns", "time", "points at"]
    rows = [_table_facts(table) for table in tables[:TABLES_SHOWN]]
    more = len(tables) - TABLES_SHOWN
    note = f"<p>and {more:,} more tables</p>" if more > 0 else ""
    return f'<div class="beside">{beside}</div>{queries}{_table(header, rows)}{note}'


def _table_facts(table: Mapping[str, Any]) -> list[str]:
    (first, end), (low, high) = table["row_range"], table["column_range"]
    parents = dict.fromkeys(key["references"]["table"] for key in table["foreign_keys"])
    return [
        table["name"], _whole(end - first), _whole(high - low),
        table.get("temporal_column") or "-", ", ".join(parents) or "-",
    ]  # fmt: skip


def _task_facts(task: Mapping[str, Any]) -> tuple[str, str]:
    """The facts of a task, and its query."""
    seeds = task.get("seeds") or {}
    facts: Facts = [
        ("task", task["name"]), ("predicts", f"{task['target_column']} ({task['target_stype']})"),
        ("of each", task["anchor_table"]),
        *((f"{name} seeds", _whole(count)) for name, count in seeds.items()),
        ("asked from, to", " to ".join(str(t)[:10] for t in task.get("obs_time_range") or ())),
        ("hidden columns", ", ".join(map(str, task.get("hidden_columns") or ()))),
    ]  # fmt: skip
    query = str(task.get("query") or "")
    code = f"<details><summary>its query</summary><pre>{escape(query)}</pre></details>"
    return _facts(facts), code if query else ""


def _open_checks(out: Path, place: Mapping[str, Any]) -> str:
    """What nobody has checked of the tables that the run's tasks can reach, the costly first."""
    try:
        schema = headwater.Schema.load(out / METADATA)
    except (headwater.HeadwaterError, OSError):
        return ""
    tasks = tuple(task for task in schema.tasks if task.name in place.get("tasks", ()))
    reached = {name for task in tasks for name in in_reach(schema, task.anchor_table)}
    found = open_checks(replace(schema, tasks=tasks), reached)
    if not found:
        return ""
    lines = _list([f"{entry.subject()}: {entry.check}" for entry in found])
    what = f"{len(found)} lines of {METADATA} that nobody has removed from its notes"
    return f"<details><summary>{what}, the costly first</summary>{lines}</details>"


def _settings(config: Mapping[str, Any]) -> str:
    """All settings, those other than the default marked."""
    usual = json.loads(json.dumps(Config().to_dict()))  # as a log has them
    rows = []
    for name, value in config.items():
        changed = name in usual and value != usual[name]
        mark = Markup(f"<b>{escape(_words(value))}</b>") if changed else _words(value)
        rows.append(f"<div><dt>{escape(name)}</dt><dd>{_cell(mark)}</dd></div>")
    if not rows:
        return ""
    note = "<p>Bold: other than the default of <code>confluence.Config</code>.</p>"
    return f'{note}<dl class="settings">{"".join(rows)}</dl>'


def _files(out: Path) -> str:
    paths = [path for name in (FILE, "loss.png", *RESULTS) for path in find_results(out, name)]
    names = [path.relative_to(out).as_posix() for path in paths]
    links = [Markup(f'<a href="./{quote(name)}">{escape(name)}</a>') for name in names]
    sizes = [f"{path.stat().st_size:,}" for path in paths]
    return _table(["file", "bytes"], list(zip(links, sizes, strict=True))) if paths else ""


# ------------------------------------------------------------------------------------------ pieces


def _table(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """A table; the first column to the left, the others to the right."""
    head = "".join(f"<th>{_cell(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{whole}</div>'


def _facts(facts: Facts) -> str:
    shown = "".join(
        f"<div><dt>{escape(str(name))}</dt><dd>{_cell(value)}</dd></div>"
        for name, value in facts
        if value not in (None, "")
    )
    return f'<dl class="facts">{shown}</dl>'


def _list(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _cell(value: Any) -> str:
    if isinstance(value, Markup):
        return value
    return escape("" if value is None else str(value))


def _words(value: Any) -> str:
    """A name, several of them, or any setting, as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return str(value)


def _whole(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def _date(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
