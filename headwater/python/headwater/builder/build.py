"""From a source to a store: the whole path, stage by stage.

    source ──► raw ──► rows ──► seeds, parents ──► builder (C) ──► <out>/<fingerprint>
      sources/    convert.py  task_seeds.py, edges.py encode.py, embedding/, build_report.py

Everything between is a DuckDB database on disk inside `<out>/.building-*`, so memory is bounded by
`memory_limit` and not by the source. A lock on the target keeps two builds apart (workspace.py);
what a killed build had done is used again if its source is provably unchanged, and removed
otherwise (journal.py). The store appears by one atomic replacement at the end, so a build that
fails leaves what was there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from headwater.binding import Builder
from headwater.builder.build_report import BuildReport, store_metadata
from headwater.builder.convert import CanonicalTable, convert_tables
from headwater.builder.derive import derive
from headwater.builder.edges import find_parents
from headwater.builder.encode import Encoder, Layout
from headwater.builder.journal import Journal, restore
from headwater.builder.label_tables import create_views, load_labels, run_queries
from headwater.builder.ownership import left_builds
from headwater.builder.rehearsal import Rehearsal, check_texts, rehearse
from headwater.builder.task_seeds import TaskSeeds, make_seeds, stats_until_us
from headwater.builder.workspace import (
    Workspace,
    file_facts,
    open_workspace,
    source_files,
    work_key,
)
from headwater.embedding.embedders import (
    EmbedderOptions,
    EmbedFunction,
    Precomputed,
    make_embedder,
)
from headwater.embedding.previous_store import count_new, open_previous, store_changes
from headwater.embedding.text_vectors import (
    Embedding,
    EmbeddingCounts,
    text_windows,
    write_embeddings,
)
from headwater.errors import EmbedderError, HeadwaterError, SourceError, StoreError
from headwater.inference.infer import draft_schema
from headwater.interrupts import is_interrupt
from headwater.metadata.check import check_schema, csv_formats
from headwater.metadata.from_json import read_document
from headwater.metadata.schema import Schema, parse_schema
from headwater.metadata.selection import Selection
from headwater.sources.database import (
    Connection,
    full_disk,
    import_duckdb,
    one_row,
    open_database,
    time_zones,
)
from headwater.sources.open import load_source
from headwater.sources.source import Source, SourceData, brief, source_text
from headwater.sources.value_sql import to_timestamp
from headwater.store.inspection import file_sizes
from headwater.user_cache import cache_folder

Result = TypeVar("Result")
Progress = Callable[[str, str], None]  # (stage, what is being done)
Metadata = str | os.PathLike[str] | Mapping[str, Any] | Schema

Cache = str | os.PathLike[str] | bool

QUERY_TIMEOUT_S = 600.0
LONGEST_S = 1e9


def build(
    source: Source,
    out: str | os.PathLike[str],
    metadata: Metadata | None = None,
    *,
    embedder: str | EmbedFunction = "hash",
    embedder_options: Mapping[str, Any] | None = None,
    text_dim: int | None = None,
    cache: Cache = True,
    stats_until: str | date | None = None,
    seeds_dir: str | os.PathLike[str] | None = None,
    memory_limit: str | None = None,
    query_timeout: float = QUERY_TIMEOUT_S,
    progress: Progress | None = None,
    strict: bool = False,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> BuildReport:
    """Build the store `out` from a source.

    metadata: a metadata.json (path, dict or Schema); None infers one. embedder: "hash", another
    name (embedders.py) or a callable from a list of strings to an array [count, width];
    embedder_options: EmbedderOptions by name. text_dim: width of `hash` (256) or of what the
    embedder is asked for (default: its own). cache: the folder of vectors that are kept between
    builds; True is the user's cache folder, False none. stats_until: means and deviations are of
    rows up to here and of cells known by then (default: the latest train time of the tasks with
    given temporal splits). seeds_dir: where label tables are (default: beside the metadata file,
    and then they must lie in that folder).
    memory_limit: of the process, such as "4GB" (default: DuckDB takes up to a quarter of RAM).
    query_timeout: seconds after which the query of a task is stopped, with a TaskError; 0: never.
    progress: called with (stage, item). strict: anything dropped is a SourceError.
    schemas, tables, exclude_tables: patterns such as "a*" that choose what is read of the source.
    """
    options = _Options(
        source=source,
        target=Path(out),
        metadata=metadata,
        embedding=_embedding(embedder, embedder_options, text_dim, cache),
        stats_until=stats_until,
        seeds_dir=None if seeds_dir is None else Path(seeds_dir),
        memory_limit=memory_limit,
        query_timeout=query_timeout,
        progress=progress,
        strict=strict,
        selection=Selection(tuple(schemas), tuple(tables), tuple(exclude_tables)),
    )
    with open_workspace(options.target, options.work_key()) as workspace:
        try:
            report = _Build(workspace, options).run()
        except EmbedderError as error:
            workspace.keep = workspace.is_resumable
            kept = "; finished work is kept, and the same command resumes from there"
            raise EmbedderError(f"{error}{kept if workspace.keep else ''}") from error
        except KeyboardInterrupt:
            workspace.keep = True
            raise
        except RuntimeError as error:
            if not is_interrupt(error):
                raise
            workspace.keep = True
            raise KeyboardInterrupt from error
    return replace(
        report,
        store_bytes=file_sizes(options.target / report.fingerprint),
        left=tuple(left_builds(options.target, report.fingerprint)),
    )


def dry_run(
    source: Source,
    metadata: Metadata | None = None,
    *,
    embedder: str | EmbedFunction = "hash",
    embedder_options: Mapping[str, Any] | None = None,
    text_dim: int | None = None,
    cache: Cache = True,
    seeds_dir: str | os.PathLike[str] | None = None,
    memory_limit: str | None = None,
    query_timeout: float = QUERY_TIMEOUT_S,
    progress: Progress | None = None,
    texts: str | os.PathLike[str] | None = None,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> Rehearsal:
    """What a build would have to embed: texts, characters, what is cached, requests. The source is
    read and converted in a temporary folder. If `texts` is named, every text that needs a vector is
    written to it, a new Parquet file; nothing else is written."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as name:
        options = _Options(
            source=source,
            target=Path(name) / "store",
            metadata=metadata,
            embedding=_embedding(embedder, embedder_options, text_dim, cache),
            seeds_dir=None if seeds_dir is None else Path(seeds_dir),
            memory_limit=memory_limit,
            query_timeout=query_timeout,
            progress=progress,
            selection=Selection(tuple(schemas), tuple(tables), tuple(exclude_tables)),
        )
        file = None if texts is None else Path(texts)
        if file is not None:
            check_texts(file, options.inputs())
        with open_workspace(options.target, None) as workspace:
            return _Build(workspace, options).rehearse(file)


def _embedding(
    embedder: str | EmbedFunction,
    given: Mapping[str, Any] | None,
    text_dim: int | None,
    cache: Cache,
) -> Embedding:
    options = EmbedderOptions.parse(given or {})
    if text_dim is not None and text_dim < 1:
        raise ValueError(f"text_dim is {text_dim}, expected 1 or more")
    folder = None if cache is False else cache_folder() if cache is True else Path(cache)
    return Embedding(make_embedder(embedder, options, text_dim), options, text_dim, folder)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What build() or dry_run() was asked."""

    source: Source
    target: Path
    metadata: Metadata | None
    embedding: Embedding
    seeds_dir: Path | None
    memory_limit: str | None
    query_timeout: float
    progress: Progress | None
    selection: Selection
    stats_until: str | date | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        given = self.query_timeout
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 <= given < LONGEST_S):
            raise ValueError(f"query_timeout is {given!r}, expected seconds; 0: no limit")

    def tell(self, stage: str, item: str) -> None:
        if self.progress is not None:
            self.progress(stage, item)

    def work_key(self) -> str | None:
        """What the tables of the build's database depend on (workspace.py)."""
        document = self.document()
        if isinstance(document, Schema):
            document = document.to_dict()
        depends_on = {
            "duckdb": import_duckdb().__version__,
            "source": self.source if isinstance(self.source, Mapping) else source_text(self.source),
            "selection": dataclasses.asdict(self.selection),
            "metadata": document,
            "labels": file_facts(self.label_files(document)),
        }
        return work_key(self.source, self.target, depends_on)

    def label_files(self, document: Any) -> list[Path]:
        """The label tables that a document names, whatever else is wrong with it."""
        files: list[Path] = []
        tasks = document.get("tasks") if isinstance(document, Mapping) else None
        for task in tasks.values() if isinstance(tasks, Mapping) else ():
            seeds = task.get("seeds") if isinstance(task, Mapping) else None
            names = seeds.values() if isinstance(seeds, Mapping) else ()
            files += [self.label_directory() / str(name) for name in names]
        return files

    def inputs(self) -> list[tuple[str, list[Path]]]:
        """The files that are read, by the options that name them."""
        document, embedder = self.document(), self.embedding.embedder
        metadata = [] if isinstance(self.metadata, Schema | Mapping | None) else [self.metadata]
        if isinstance(document, Schema):
            document = document.to_dict()
        return [
            ("SOURCE", source_files(self.source, self.target) or []),
            ("--metadata", [Path(path) for path in metadata]),
            ("a label table", self.label_files(document)),
            ("--embedder", [embedder.file] if isinstance(embedder, Precomputed) else []),
        ]

    def label_directory(self) -> Path:
        if self.seeds_dir is not None:
            return self.seeds_dir
        if isinstance(self.metadata, Schema):
            return self.metadata.directory or Path()
        if self.metadata is None or isinstance(self.metadata, Mapping):
            return Path()
        return Path(self.metadata).resolve().parent

    def document(self) -> Any:
        """metadata.json as it is read; before the source, which may take long."""
        metadata = self.metadata
        if metadata is None or isinstance(metadata, Schema | Mapping):
            return metadata
        return read_document(Path(metadata))


class _Build:
    """One build, stage by stage, in a folder of its own."""

    connection: Connection
    journal: Journal
    data: SourceData
    schema: Schema
    tables: list[CanonicalTable]

    def __init__(self, workspace: Workspace, options: _Options) -> None:
        self.workspace, self.folder = workspace, workspace.folder
        self.options, self.tell = options, options.tell
        self.label_bytes = 0  # of the label tables as CSV
        self.assumed: tuple[str, ...] = ()  # by inference
        self.previous = open_previous(options.target)

    def run(self) -> BuildReport:
        return self.in_words(self.encode, elsewhere="build somewhere else")

    def rehearse(self, texts: Path | None) -> Rehearsal:
        def stage(layout: Layout) -> Rehearsal:
            return rehearse(self.connection, layout, self.options.embedding, self.tell, texts)

        return self.in_words(stage, elsewhere="set TMPDIR to another place")

    def in_words(self, stage: Callable[[Layout], Result], *, elsewhere: str) -> Result:
        """What DuckDB cannot do is told in its words; but for a full disk, which is nobody's fault,
        least of all that of the task whose query found it so."""
        duckdb = import_duckdb()
        try:
            self.connect()
            try:
                return stage(self.layout())
            finally:
                self.connection.close()
        except (duckdb.Error, HeadwaterError, OSError) as error:
            full = full_disk(error)
            if full is not None:
                raise OSError(
                    f"the disk of '{self.options.target}' is full: free space there, or "
                    f"{elsewhere} ({brief(full)})"
                ) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise MemoryError(
                    f"the build needs a larger memory_limit: {brief(error)}"
                ) from error
            if isinstance(error, duckdb.Error):
                raise SourceError(f"DuckDB cannot continue: {brief(error)}") from error
            raise
        finally:
            if self.previous is not None:
                self.previous.close()

    def layout(self) -> Layout:
        """Read, convert, label, link."""
        self.journal = Journal(self.connection)
        data = self.load()
        self.schema = self.settle_schema(data)
        self.data = derive(self.connection, data, self.schema)
        self.tables = convert_tables(
            self.connection,
            self.schema,
            {table.name: table for table in self.data.tables},
            journal=self.journal,
            tell=lambda name: self.tell("convert", name),
        )
        self.check_unchanged()
        self.label()
        self.tell("tasks", "seeds")
        seeds = self.seeds()
        edges = find_parents(self.connection, self.tables, tell=lambda key: self.tell("keys", key))
        return Layout.plan(self.tables, edges, seeds)

    def connect(self) -> None:
        self.connection = open_database(self.folder, memory_limit=self.options.memory_limit)

    def load(self) -> SourceData:
        """The source in `raw.*`; CSV files as metadata.json describes them."""
        files = source_files(self.options.source, self.options.target) or []
        self.facts = file_facts(files)
        found = self.journal.find("source")
        if found is not None:
            return restore(SourceData, found)
        self.connection.execute("DROP SCHEMA IF EXISTS raw CASCADE")
        document = self.options.document()
        try:
            data = load_source(
                self.options.source,
                self.connection,
                selection=self.options.selection,
                tell=lambda name: self.tell("read", name),
                csv_formats={} if document is None else csv_formats(document),
                detect_csv=document is None,
            )
        except SourceError:
            if document is not None and not isinstance(document, Schema):
                parse_schema(document)  # what is wrong in it may be why, and is told all at once
            raise
        self.journal.record("source", data)
        return data

    def check_unchanged(self) -> None:
        """Files are read more than once, so they must stay as they are. A database gives a
        snapshot: what is written to it meanwhile is only no ground for a later build."""
        files = source_files(self.options.source, self.options.target) or []
        changed = [fact for fact in file_facts(files) if fact not in self.facts]
        if not changed:
            return
        if "://" in str(self.options.source):
            self.journal.forget()
            self.workspace.is_resumable = False
        else:
            raise SourceError(f"'{changed[0][0]}' changed while it was read; build again")

    def settle_schema(self, data: SourceData) -> Schema:
        """The schema as given, checked against the source; inferred if none is given."""
        found = {table.name: table.usable_names() for table in data.tables}
        document = self.options.document()
        if document is None:
            done = self.journal.find("schema")
            if done is not None:
                self.assumed = tuple(done["assumed"])
                return parse_schema(done["schema"], source=found)
            draft = draft_schema(self.connection, data)
            schema, self.assumed = draft.schema(), tuple(draft.every_check())
            check_schema(schema, found)
            self.journal.record("schema", {"schema": schema.to_dict(), "assumed": self.assumed})
            return schema
        zones = time_zones(self.connection)
        if isinstance(document, Schema):
            check_schema(document, found, zones)
            return document
        directory = self.options.label_directory()
        return parse_schema(document, directory=directory, source=found, zones=zones)

    def label(self) -> None:
        """Rows of every task; queries run in a database that can reach nothing else."""
        done = self.journal.find("labels")
        if done is not None:
            self.label_bytes = done["csv_bytes"]
            return
        self.connection.execute("DROP SCHEMA IF EXISTS labels CASCADE")
        self.connection.execute("CREATE SCHEMA labels")
        directories = [self.options.seeds_dir or self.schema.directory or Path()]
        directories += [Path(self.data.directory)] if self.data.directory is not None else []
        is_given = self.options.seeds_dir is not None
        self.label_bytes = load_labels(self.connection, self.schema, directories, is_given=is_given)
        if any(task.query is not None for task in self.schema.tasks):
            create_views(self.connection, self.tables)
            self.connection.close()
            locked = open_database(self.folder, memory_limit=self.options.memory_limit, locked=True)
            try:
                timeout_s = self.options.query_timeout
                run_queries(locked, self.schema, timeout_s, lambda name: self.tell("tasks", name))
            finally:
                locked.close()
            self.connect()
            self.journal.connection = self.connection
        self.journal.record("labels", {"csv_bytes": self.label_bytes})

    def seeds(self) -> list[TaskSeeds]:
        done = self.journal.find("seeds")
        if done is not None:
            return [restore(TaskSeeds, facts) for facts in done]
        self.connection.execute("DROP SCHEMA IF EXISTS seeds CASCADE")
        self.connection.execute("DROP TABLE IF EXISTS labels.matched")
        seeds = make_seeds(self.connection, self.schema, self.tables)
        self.journal.record("seeds", [dataclasses.asdict(task) for task in seeds])
        return seeds

    def encode(self, layout: Layout) -> BuildReport:
        """Write and publish the store."""
        until_us = _until_us(self.connection, self.options.stats_until, self.schema, layout)
        builder = Builder(self.folder / "store", name=self.schema.name, stats_until_us=until_us)
        try:
            encoder = Encoder(builder, self.connection, layout, self.journal)
            encoder.declare()
            encoder.write(lambda item: self.tell("encode", item))
            text, counts = self.embed(encoder)
            embedder = self.options.embedding.embedder
            undecodable_count = self.data.undecodable_count + sum(t.zero_count for t in self.tables)
            metadata = store_metadata(
                self.schema.name,
                encoder,
                text=text,
                stats_until_us=until_us,
                options={"timezone": self.schema.timezone},
                csv_bytes=sum(table.csv_bytes for table in self.tables) + self.label_bytes,
                undecodable_count=undecodable_count,
            )
            report = BuildReport(
                path=self.options.target,
                fingerprint="",
                metadata=metadata,
                conversions=tuple(c for table in self.tables for c in table.conversions),
                undecodable_count=undecodable_count,
                inferred=self.options.metadata is None,
                assumed=self.assumed,
                source_notes=(*self.data.notes, *filter(None, (e.note for e in layout.edges))),
                embedding=dataclasses.asdict(counts) | (embedder.usage() if embedder else {}),
                changes=self.changes(encoder, metadata),
                resumed=tuple(self.journal.resumed),
            )
            self.refuse_losses(report)
            self.tell("write", "graph and records")
            document = json.dumps(metadata, indent=1, ensure_ascii=False)
            fingerprint = builder.finish(document.encode("utf-8"))
            self.tell("write", "publish")
            builder.publish(self.options.target)
            return replace(report, fingerprint=fingerprint)
        finally:
            builder.close()

    def embed(self, encoder: Encoder) -> tuple[dict[str, Any], EmbeddingCounts]:
        """Write the three embedding tables; what metadata.json says about texts, and counts."""
        self.tell("embed", f"{encoder.builder.text_count():,} texts")
        return write_embeddings(
            encoder.builder,
            self.options.embedding,
            encoder.layout.column_phrases(),
            encoder.category_phrases(),
            tell=lambda item: self.tell("embed", item),
        )

    def changes(self, encoder: Encoder, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """What differs from the store that is there; None of a first build."""
        if self.previous is None:
            return None
        self.tell("write", "changes")
        try:
            windows = (texts for _, texts in text_windows(encoder.builder))
            new_count = count_new(self.previous, windows)
            return store_changes(self.previous.metadata, metadata, new_texts=new_count)
        except (StoreError, KeyError, TypeError):
            return None  # a damaged store is replaced, not compared with

    def refuse_losses(self, report: BuildReport) -> None:
        if self.options.strict and report.losses():
            lines = "".join(f"\n  {line}" for line in report.losses())
            raise SourceError(f"the build is strict, and not all was taken as it is:{lines}")


def _until_us(
    connection: Connection, given: str | date | None, schema: Schema, layout: Layout
) -> int:
    """stats_until in microseconds; a naive time is a time of the schema's zone."""
    if given is None:
        return stats_until_us(layout.tasks)
    text = given if isinstance(given, str) else given.isoformat()
    sql, _ = to_timestamp("v", "VARCHAR", zone=schema.timezone)
    (found,) = one_row(connection, f"SELECT epoch_us({sql}) FROM (SELECT ?::VARCHAR AS v)", [text])
    if found is None:
        raise ValueError(f"stats_until is {given!r}, expected a time such as '2020-01-31'")
    return int(found)
