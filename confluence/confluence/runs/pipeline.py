"""The one command: from a database and a question to a trained model, metrics and predictions.

    infer ──► metadata.json ──► build ──► store ──► train ──► evaluate ──► predict

Everything lands in one folder. A stage whose inputs have not changed since it last finished is
skipped, so a stopped run goes on where it was; nothing needs a network.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater
from headwater.shared import (
    ProgressDisplay,
    check_label_table,
    check_output,
    checks_text,
    counted,
    draft_source,
    every_name,
    in_reach,
    nearest,
    open_checks,
    read_bytes,
    read_document,
    read_text,
    source_files,
    whole,
)

from confluence.config import Config
from confluence.data.label_values import check_label_values
from confluence.data.stores import find_places
from confluence.data.tasks import NO_BATCHES, TaskError, find_task, open_sampler, read_labels
from confluence.data.verification import open_store, verified_stores
from confluence.folder import checkpoint
from confluence.folder.files import METADATA, build_at, read_json, write_whole
from confluence.report.evaluation import Evaluation
from confluence.report.page import PAGE
from confluence.runs.evaluate import Examination, scoring
from confluence.runs.predict import Request, predictions
from confluence.runs.run import Run
from confluence.runs.train import Lessons, train_with
from confluence.watch.trackers import check_installed

BEFORE = "metadata.before{}.json"  # what metadata.json held, with -2 and so on
STORE = "store"
BUILT = "built.json"  # source and metadata of the store beside it

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A prediction task in the words of the command line."""

    query: str  # DuckDB SQL: the anchor's key, an observation time, the target
    anchor: str  # "table.column", or "table.column,column" for a composite key
    target: str  # column of the query
    target_type: str | None  # boolean, numerical, categorical or timestamp; None: boolean
    obs_time: str | None  # column of the query; None: "obs_time" if the query mentions it
    label_window: str | None  # e.g. "30 days"
    split_column: str | None

    def to_task(self) -> dict[str, Any]:
        """This question as an entry of metadata.json."""
        table, _, columns = self.anchor.rpartition(".")
        if not table or not columns:
            raise ValueError(
                f"anchor is '{self.anchor}', expected 'table.column', or 'table.column,column' for"
                " a key of several columns"
            )
        keys = columns.split(",")
        obs_time = self.obs_time or ("obs_time" if "obs_time" in self.query else None)
        entry = {
            "query": self.query,
            "anchor_table": table,
            "anchor_key": keys[0] if len(keys) == 1 else keys,
            "target_column": self.target,
            "target_stype": self.target_type or "boolean",
            "observation_time_column": obs_time,
            "label_window": self.label_window,
            "split_column": self.split_column,
        }
        return {name: value for name, value in entry.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Database:
    """The database of a run, and how a store is built from it.

    Attributes:
        metadata: a metadata.json; None: it is inferred.
        seeds_dir: folder of label tables; None: that of the metadata.
        selected: the choice of tables, as `headwater.infer` and `headwater.build` take it.
        strict: stop if without metadata anything must be assumed, or the build drops anything.
        verify: whether the store is read to its last byte, as of `headwater.Store`.
        query_timeout: seconds after which a query is stopped; None: 600. 0: never.
    """

    source: str
    metadata: Path | None = None
    seeds_dir: Path | None = None
    selected: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    strict: bool = False
    verify: str = "once"
    query_timeout: float | None = None


def write_metadata(
    database: Database, task: str, question: Question | None, out: Path, say: Say
) -> Path:
    """metadata.json of the run: a given file or an inferred one, and the question."""
    path, given = out / METADATA, database.metadata
    if given is not None:
        metadata = read_metadata(given)
    else:
        choice: dict[str, Any] = dict(database.selected)
        metadata = draft_source(database.source, **choice).schema().to_dict()
    if question is not None:
        tasks = metadata.setdefault("tasks", {})
        tasks[task] = {**tasks.get(task, {}), **question.to_task()}
    before = read_bytes(path) if path.exists() else None
    is_edited_here = given is not None and path.exists() and given.samefile(path)
    if not (is_edited_here and metadata == read_metadata(path)):
        with whole(path) as unfinished:
            if given is None:
                headwater.Schema.from_dict(metadata).save(unfinished)  # as init writes it
            else:
                unfinished.write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")
            if before not in (None, unfinished.read_bytes()):
                how = "inferred" if given is None else "written"
                say(f"{path} is {how} anew; its old content is in {_keep(before, out)}")
    return path


def _keep(content: bytes, out: Path) -> Path:
    """The file that has an old content of metadata.json; a new one, unless there is one already."""
    paths = (out / BEFORE.format("" if n == 1 else f"-{n}") for n in itertools.count(1))
    path = next(
        path
        for path in paths
        if not os.path.lexists(path) or (path.is_file() and read_bytes(path) == content)
    )
    if not path.exists():
        path.write_bytes(content)
    return path


def read_metadata(path: Path) -> dict[str, Any]:
    """A given metadata.json as an object, and its tasks as some; a build checks the rest."""
    document: dict[str, Any] = read_document(path)
    tasks = document.get("tasks", {}) if isinstance(document, dict) else None
    if not (isinstance(tasks, dict) and all(isinstance(task, dict) for task in tasks.values())):
        headwater.Schema.from_dict(document)  # raises, with all that is wrong
    return document


def check_label_tables(metadata: Mapping[str, Any], directory: Path) -> None:
    """Raise where label tables of metadata lie outside of their folder."""
    for task, entry in metadata.get("tasks", {}).items():
        seeds = entry.get("seeds")
        for name in seeds.values() if isinstance(seeds, dict) else ():
            if isinstance(name, str):  # else a build says what is wrong
                check_label_table(task, name, directory)


def show_open(database: Database, schema: headwater.Schema, path: Path, say: Say) -> None:
    """What nobody has checked of the tables that the task can reach, the costly first. ValueError
    if it was inferred by a strict run, which assumes nothing."""
    (task,) = schema.tasks
    reached = in_reach(schema, task.anchor_table)
    found, every = open_checks(schema, reached), open_checks(schema)
    if not every:
        return
    is_inferred = database.metadata is None
    what = "no --metadata given; assumed" if is_inferred else f"open in {path}"
    of = f"of the {counted(len(reached), 'table')} that {task.name} can reach"
    if found:
        say(checks_text(found, every_name(schema), title=f"{what} {of}"))
    where = f"edit {path} and run again with --metadata {path}"
    if is_inferred and database.strict:
        raise ValueError(f"{len(every)} assumptions are made, and the run is strict: {where}")
    if found:
        say(f"to change any of it, {where}; a line ends when it is removed from its note")


def build_store(
    database: Database, schema: headwater.Schema, out: Path, *, say: Say, keep: bool = False
) -> Path:
    """Build the store, unless it was built from this source as it is, with this schema, and is not
    damaged.

    Args:
        schema: with the run's task alone (`read_schema`).
        keep: a run learned from the store that is there: raise if another would take its place.
    """
    store, mark = out / STORE, out / BUILT
    source, selected, seeds_dir = database.source, database.selected, database.seeds_dir
    files = source_files(source, store)
    stamped = (files or []) + _label_files(schema, seeds_dir)
    inputs = {
        "source": source,
        "selected": {name: list(patterns) for name, patterns in selected.items()},
        "files": {str(path): _stamp(path) for path in stamped},
        "metadata": json.dumps(schema.to_dict()),
    }
    # Which store it was built into says whether that is still there, whatever ended since.
    there = {"store": build_at(store)}
    same = {**there, **read_json(mark)} == {**inputs, **there}
    if store.exists() and keep and not same:
        raise FileExistsError(
            f"'{out}' holds a run of another source or other metadata, or the source has changed."
            " Replace it with --overwrite, or choose another folder"
        )
    if store.exists() and same and (keep or files is not None):
        # A server does not say what changed, and what a run learned from stays.
        damage = _damage(store, database.verify)
        if damage is None:
            say(f"{store} is up to date")
            return store
        say(f"{store} is damaged and is built again: {damage}")
    say(f"building {store}")
    display, timeout_s = ProgressDisplay(sys.stderr), database.query_timeout
    more: dict[str, Any] = dict(selected)
    if timeout_s is not None:
        more["query_timeout"] = timeout_s
    try:
        report = headwater.build(
            source, str(store), metadata=schema, seeds_dir=seeds_dir, progress=display,
            strict=database.strict, **more,
        )  # fmt: skip
    finally:
        display.close()
    say(str(report))
    write_whole(mark, json.dumps({**inputs, "store": report.fingerprint}))
    verified_stores([str(store)], database.verify)
    return store


def _damage(store: Path, verify: str) -> str | None:
    """What is wrong with a store; None where nothing is."""
    try:
        verified_stores([str(store)], verify)
    except headwater.HeadwaterError as error:
        return str(error)
    return None


def _label_files(schema: headwater.Schema, seeds_dir: Path | None) -> list[Path]:
    """Label tables of the task."""
    folder = seeds_dir or schema.directory or Path()
    return [folder / name for task in schema.tasks for _, name in task.seeds]


def _is_mark(path: Path) -> bool:
    return not path.is_symlink() and {"source", "metadata"} <= read_json(path).keys()


def _stamp(path: Path) -> list[int]:
    """What changes when a file does: its size and when it was written."""
    return [path.stat().st_size, path.stat().st_mtime_ns] if path.exists() else []


def read_schema(metadata: Path, task: str, say: Say) -> headwater.Schema:
    """The metadata with one task, which they must have. The run's store has no other: none that
    only was drafted can stop the run, or make it wait."""
    document = json.loads(read_text(metadata))
    tasks = document.get("tasks") or {}
    if task not in tasks:
        has = f", {metadata} has {', '.join(tasks) or 'none'}"
        raise TaskError(f"no task '{task}'{nearest(task, tasks) or has}")
    others = [name for name in tasks if name != task]
    if others:
        say(f"the store is built for {task}, without the tasks {', '.join(others)}")
    schema = headwater.Schema.from_dict({**document, "tasks": {task: tasks[task]}})
    return dataclasses.replace(schema, directory=metadata.resolve().parent)


def check_anchor(schema: headwater.Schema, question: Question) -> None:
    """Raise, before anything is built, unless --anchor names columns of its table."""
    (task,) = schema.tasks
    table = schema.table(task.anchor_table)
    for name in task.anchor_key:
        if table.spelling(name) is None:
            keys = ",".join(table.primary_key)
            raise TaskError(
                f"--anchor {question.anchor}: table '{table.name}' has no column '{name}'"
                f"{nearest(name, table.column_names())}; its primary key is {keys}: name the"
                f" query's column so, and use --anchor {table.name}.{keys}"
            )


def check_seeds(store: headwater.Store, task: str, question: Question | None, say: Say) -> None:
    """Raise where a question's answers are not what they were taken for; say how it is split."""
    entry = store.metadata["tasks"][find_task(store.metadata, task)]
    if question is None:
        return
    if question.target_type is None and entry["bad_targets"]:
        raise ValueError(
            f"{entry['bad_targets']:,} of {entry['rows']:,} values of '{question.target}' are"
            " neither true nor false: give their type with --target-type (numerical, categorical,"
            " timestamp; boolean: these are NULL)"
        )
    if entry["split"] == "hash":
        say(
            f"train, val and test of {task} differ by {entry['anchor_table']}, not by time: give"
            " --split-column to learn from the past and be tested on later answers"
        )


def check_scored(store: headwater.Store, task: str, cfg: Config, split: str) -> None:
    """Raise, before anything is trained, where nothing can be learned, or scored on the split."""
    with open_sampler(store, cfg, task, **NO_BATCHES) as sampler:
        metadata, labels = sampler.database_metadata(), read_labels(sampler, task)
    check_label_values(task, metadata, labels, cfg, store=store, scored=split)


def check_folder(out: Path, task: str, cfg: Config, *, overwrite: bool) -> None:
    """Raise, before anything is read, where the folder holds a run of another task or of other
    settings."""
    step = None if overwrite else checkpoint.newest_whole(out)
    if step is not None:
        record = checkpoint.load_record(out, step)
        _check_same(out, record, {**record, "config": cfg.to_dict(), "tasks": [{"title": task}]})


def _check_same(out: Path, record: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if found := checkpoint.differences(record, wanted):
        raise FileExistsError(
            f"'{out}' holds another run: {'; '.join(found)}. Replace it with --overwrite, or choose"
            " another folder"
        )


def train_or_load(
    opened: Mapping[str, headwater.Store], task: str, out: Path, cfg: Config, *, say: Say,
    overwrite: bool = False, trees: bool = True,
) -> Run:  # fmt: skip
    """Train; or resume, or open, a run in `out` of these settings on this very store. If the run is
    of another one that is an error, unless it is to be replaced. opened: one store, by path.
    trees: whether boosted trees are fitted too."""
    metadata = {path: store.metadata for path, store in opened.items()}
    wanted = checkpoint.make_record(cfg, find_places(opened, [task]), metadata)
    lessons = Lessons(paths=list(opened), names=[task], opened=opened, trees=trees)
    done = None
    try:
        step = checkpoint.newest_whole(out)
        if step is not None:
            record = checkpoint.load_record(out, step)
            if not overwrite:
                _check_same(out, record, wanted)
            done = None if checkpoint.differences(record, wanted) else step
        if done is not None and checkpoint.is_finished(record):
            say(f"the model in {out} is trained already")
            return train_with(cfg, lessons, out, resume=True)
    except checkpoint.CheckpointError as error:
        if not overwrite:
            raise
        say(f"{error}: it is replaced")
        done = None
    if done is not None:
        say(f"resuming the training on {task} after step {done} of {record['config']['steps']}")
        return train_with(cfg, lessons, out, resume=True)
    say(f"training on {task}")
    return train_with(cfg, lessons, out, overwrite=overwrite)


def run_pipeline(
    database: Database, task: str, out: Path, cfg: Config, *, examination: Examination,
    question: Question | None = None, overwrite: bool = False, say: Say = lambda message: None,
) -> dict[str, Any]:  # fmt: skip
    """All stages. The result names the files and holds the evaluation.

    Args:
        task: name of the question, or without one a task of the metadata.
        examination: the split that is scored and predicted, and the share of trees.
        overwrite: replace the run that `out` holds of another task, store or other settings.
        say: called with a line or a paragraph at each stage.
    """
    check_installed(cfg.log_to)  # before anything slow
    cfg.check_scored(examination.split)
    check_folder(out, task, cfg, overwrite=overwrite)
    check_output(out / BUILT, "--out", is_own=_is_mark, what="a file of a run")
    out.mkdir(parents=True, exist_ok=True)
    if database.seeds_dir is None and (given := database.metadata) is not None:
        folder = given.resolve().parent
        database = dataclasses.replace(database, seeds_dir=folder)
        check_label_tables(read_metadata(given), folder)
    say("reading the schema")
    before = read_bytes(out / METADATA) if (out / METADATA).exists() else None
    has_store = (out / BUILT).exists()
    path = write_metadata(database, task, question, out, say)
    try:
        schema = read_schema(path, task, say)
        show_open(database, schema, path, say)
        if question is not None:
            check_anchor(schema, question)
        keep = bool(checkpoint.saved_steps(out)) and not overwrite
        store = build_store(database, schema, out, say=say, keep=keep)
    except BaseException as error:
        if before is not None and (has_store or isinstance(error, FileExistsError | TaskError)):
            path.write_bytes(before)  # the old content
        raise
    opened = {str(store): open_store(store)}  # verified when it was built or found
    check_seeds(opened[str(store)], task, question, say)
    check_scored(opened[str(store)], task, cfg, examination.split)
    ensemble = examination.ensemble
    run = train_or_load(
        opened, task, out, cfg, say=say, overwrite=overwrite, trees=ensemble.tree_share != 0
    )
    say(f"evaluating on {examination.split}")
    evaluation = Evaluation(scoring(run, examination, opened=opened).result())
    file = run.predictions_file(examination.split, tree_share=ensemble.tree_share)
    request = Request(split=examination.split, ensemble=ensemble)
    answers = predictions(run, request, file, opened=opened)
    files = {
        "store": str(store),
        "predictions": str(file),
        "log": str(out / "log.jsonl"),
        "curve": str(out / "loss.png"),
        "page": str(out / PAGE),
    }
    return {"out": str(out), "evaluation": evaluation, "predicted": len(answers), "files": files}
