"""From a source to a store: the whole path, stage by stage.

    source ──► raw ──► rows ──► seeds, parents ──► builder (C) ──► <out>/<fingerprint>
      sources.py  convert.py  tasks.py, edges.py      encode.py, embed.py, report.py

Everything between is a DuckDB database on disk inside `<out>/.building-*`, so memory is bounded by
`memory_limit` and not by the source. A lock on the target keeps two builds apart; what an earlier,
killed build left behind is removed under it. The store appears by one atomic replacement at the
end, so a build that fails leaves what was there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .convert import CanonicalTable, convert_tables, to_timestamp
from .derive import derive
from .document import read_document
from .edges import find_parents
from .embed import EmbedFunction, embedder_name, write_embeddings
from .encode import Encoder, Layout
from .report import BuildReport, file_sizes, store_metadata
from .schema import Schema
from .selection import Selection
from .sources import Source, SourceData, brief, load_source
from .tasks import create_views, load_labels, make_seeds, run_queries, stats_until_us
from .validate import check_schema, csv_formats, parse_schema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Progress = Callable[[str, str], None]  # (stage, what is being done)
Metadata = str | os.PathLike[str] | Mapping[str, Any] | Schema

BUILD_PREFIX = ".building-"
FINGERPRINT = re.compile(r"[0-9a-f]{32}")
DUCKDB_VERSION_MIN = (1, 5, 4)


def build(
    source: Source,
    out: str | os.PathLike[str],
    metadata: Metadata | None = None,
    *,
    embedder: str | EmbedFunction = "hash",
    text_dim: int = 256,
    stats_until: str | date | None = None,
    seeds_dir: str | os.PathLike[str] | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
    strict: bool = False,
    schemas: Sequence[str] = (),
    tables: Sequence[str] = (),
    exclude_tables: Sequence[str] = (),
) -> BuildReport:
    """Build the store `out` from a source.

    metadata: a metadata.json (path, dict or Schema); None infers one. embedder: "hash" or a
    callable from a list of strings to an array [count, width]. stats_until: moments of numbers use
    rows up to here (default: the latest train time of the tasks with given temporal splits).
    seeds_dir: where label tables are (default: beside the metadata file). memory_limit: of DuckDB,
    such as "4GB". progress: called with (stage, item). strict: anything dropped is a SourceError.
    schemas, tables, exclude_tables: patterns such as "a*" that choose what is read of the source.
    """
    embedder_name(embedder)
    options = _Options(
        source=source,
        target=Path(out),
        metadata=metadata,
        embedder=embedder,
        text_dim=text_dim,
        stats_until=stats_until,
        seeds_dir=None if seeds_dir is None else Path(seeds_dir),
        memory_limit=memory_limit,
        tell=progress if progress is not None else lambda stage, item: None,
        strict=strict,
        selection=Selection(tuple(schemas), tuple(tables), tuple(exclude_tables)),
    )
    with _building(options.target) as folder:
        report = _Build(folder, options).run()
    return replace(report, store_bytes=file_sizes(options.target / report.fingerprint))


@dataclass(frozen=True)
class _Options:
    """What build() was asked."""

    source: Source
    target: Path
    metadata: Metadata | None
    embedder: str | EmbedFunction
    text_dim: int
    stats_until: str | date | None
    seeds_dir: Path | None
    memory_limit: str | None
    tell: Progress
    strict: bool
    selection: Selection


class _Build:
    """One build, stage by stage, in a folder of its own."""

    def __init__(self, folder: Path, options: _Options) -> None:
        self.folder, self.options, self.tell = folder, options, options.tell
        self.label_bytes = 0  # of the label tables as CSV

    def run(self) -> BuildReport:
        """Read, convert, label, encode; what DuckDB cannot do is told in its words."""
        from .errors import SourceError

        duckdb = import_duckdb()
        try:
            return self.stages()
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"the build needs a larger memory_limit: {brief(error)}") from error
        except duckdb.Error as error:
            raise SourceError(f"DuckDB cannot go on: {brief(error)}") from error

    def stages(self) -> BuildReport:
        connection = self.connect()
        try:
            data = self.load(connection)
            schema = self.settle_schema(connection, data)
            data = derive(connection, data, schema)
            sources = {table.name: table for table in data.tables}
            tables = convert_tables(
                connection, schema, sources, tell=lambda name: self.tell("convert", name)
            )
            connection = self.label(connection, data, schema, tables)
            layout = self.plan(connection, schema, tables)
            return self.encode(connection, data, schema, tables, layout)
        finally:
            connection.close()

    def connect(self) -> DuckDBPyConnection:
        return open_database(self.folder, memory_limit=self.options.memory_limit)

    def load(self, connection: DuckDBPyConnection) -> SourceData:
        """The source in `raw.*`; CSV files as metadata.json describes them."""
        document = self.document()
        return load_source(
            self.options.source,
            connection,
            selection=self.options.selection,
            tell=lambda name: self.tell("read", name),
            csv_formats={} if document is None else csv_formats(document),
            detect_csv=document is None,
        )

    def document(self) -> Any:
        """metadata.json as it is read; before the source, which may take long."""
        metadata = self.options.metadata
        if metadata is None or isinstance(metadata, Schema | Mapping):
            return metadata
        return read_document(Path(metadata))

    def settle_schema(self, connection: DuckDBPyConnection, data: SourceData) -> Schema:
        """The schema as given, checked against the source; inferred if none is given."""
        found = {table.name: table.column_names() for table in data.tables}
        metadata = self.options.metadata
        if metadata is None:
            from .infer import infer_schema

            schema = infer_schema(connection, data)
            check_schema(schema, found)
            return schema
        if isinstance(metadata, Schema):
            check_schema(metadata, found)
            return metadata
        if isinstance(metadata, Mapping):
            return parse_schema(metadata, source=found)
        path = Path(metadata)
        return parse_schema(read_document(path), directory=path.resolve().parent, source=found)

    def label(
        self,
        connection: DuckDBPyConnection,
        data: SourceData,
        schema: Schema,
        tables: list[CanonicalTable],
    ) -> DuckDBPyConnection:
        """Rows of every task; queries run in a database that can reach nothing else."""
        connection.execute("CREATE SCHEMA labels")
        directories = [self.options.seeds_dir or schema.directory or Path()]
        directories += [Path(data.directory)] if data.directory is not None else []
        self.label_bytes = load_labels(connection, schema, directories)
        if all(task.query is None for task in schema.tasks):
            return connection
        self.tell("tasks", "queries")
        create_views(connection, tables)
        connection.close()
        locked = open_database(self.folder, memory_limit=self.options.memory_limit, locked=True)
        try:
            run_queries(locked, schema)
        finally:
            locked.close()
        return self.connect()

    def plan(
        self, connection: DuckDBPyConnection, schema: Schema, tables: list[CanonicalTable]
    ) -> Layout:
        self.tell("tasks", "seeds")
        seeds = make_seeds(connection, schema, tables)
        edges = find_parents(connection, tables, tell=lambda key: self.tell("keys", key))
        return Layout.plan(tables, edges, seeds)

    def encode(
        self,
        connection: DuckDBPyConnection,
        data: SourceData,
        schema: Schema,
        tables: list[CanonicalTable],
        layout: Layout,
    ) -> BuildReport:
        """Write and publish the store."""
        from ._core import Builder

        until_us = _until_us(connection, self.options.stats_until, schema, layout)
        builder = Builder(self.folder / "store", name=schema.name, stats_until_us=until_us)
        try:
            encoder = Encoder(builder, connection, layout)
            encoder.declare()
            encoder.write(lambda item: self.tell("encode", item))
            metadata = store_metadata(
                schema.name,
                encoder,
                text=self.embed(encoder),
                stats_until_us=until_us,
                options={"timezone": schema.timezone},
                csv_bytes=sum(table.csv_bytes for table in tables) + self.label_bytes,
                undecodable_count=data.undecodable_count,
            )
            report = BuildReport(
                path=self.options.target,
                fingerprint="",
                metadata=metadata,
                conversions=tuple(c for table in tables for c in table.conversions),
                undecodable_count=data.undecodable_count,
                inferred=self.options.metadata is None,
                source_notes=data.notes,
            )
            self.refuse_losses(report)
            self.tell("write", "graph and records")
            document = json.dumps(metadata, indent=1, ensure_ascii=False)
            fingerprint = builder.finish(document.encode("utf-8"))
            builder.publish(self.options.target)
            return replace(report, fingerprint=fingerprint)
        finally:
            builder.close()

    def embed(self, encoder: Encoder) -> dict[str, Any]:
        """Write the three embedding tables; what metadata.json says about texts."""
        builder, embedder = encoder.builder, self.options.embedder
        self.tell("embed", f"{builder.text_count():,} texts")
        width = write_embeddings(
            builder,
            embedder,
            encoder.layout.column_phrases(),
            encoder.category_phrases(),
            text_dim=self.options.text_dim,
            tell=lambda item: self.tell("embed", item),
        )
        count = builder.text_count()
        return {"embedder": embedder_name(embedder), "dim": width, "count": count}

    def refuse_losses(self, report: BuildReport) -> None:
        from .errors import SourceError

        if self.options.strict and report.losses():
            lines = "".join(f"\n  {line}" for line in report.losses())
            raise SourceError(f"the build is strict, and not all was taken as it is:{lines}")


def open_database(
    folder: Path, *, memory_limit: str | None = None, locked: bool = False
) -> DuckDBPyConnection:
    """The database of a build: times in UTC, nothing taken from the caller's variables."""
    duckdb = import_duckdb()
    connection: DuckDBPyConnection = duckdb.connect(str(folder / "work.duckdb"))
    settings = {
        "temp_directory": f"'{str(folder / 'spill').replace(chr(39), chr(39) * 2)}'",
        "TimeZone": "'UTC'",
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "arrow_large_buffer_size": "true",  # texts of one batch may pass 2 GiB
    }
    if memory_limit is not None:
        settings["memory_limit"] = "'" + memory_limit.replace("'", "''") + "'"
    if locked:
        settings |= {"threads": "1", "enable_external_access": "false"}
        settings["lock_configuration"] = "true"
    try:
        for name, value in settings.items():
            connection.execute(f"SET GLOBAL {name} = {value}")
    except duckdb.Error as error:
        connection.close()
        raise ValueError(f"DuckDB does not take the setting: {error}") from error
    return connection


def import_duckdb() -> Any:
    """The duckdb module, or an error that says how to get it."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("building needs DuckDB: pip install 'headwater[build]'") from error
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_VERSION_MIN <= version < (2,):
        raise ImportError(f"building needs duckdb >= 1.5.4, < 2, found {duckdb.__version__}")
    return duckdb


def _until_us(
    connection: DuckDBPyConnection, given: str | date | None, schema: Schema, layout: Layout
) -> int:
    """stats_until in microseconds; a naive time is a time of the schema's zone."""
    if given is None:
        return stats_until_us(layout.tasks)
    zone = schema.timezone
    if isinstance(given, datetime):
        text = given.isoformat()
    else:
        text = given if isinstance(given, str) else given.isoformat()
    sql, _ = to_timestamp("v", "VARCHAR", zone=zone)
    row = connection.execute(f"SELECT epoch_us({sql}) FROM (SELECT ?::VARCHAR AS v)", [text])
    found = row.fetchone()
    if found is None or found[0] is None:
        raise ValueError(f"stats_until is {given!r}, expected a time such as '2020-01-31'")
    return int(found[0])


@contextmanager
def _building(target: Path) -> Iterator[Path]:
    """A folder to build in, inside the target, under the target's lock."""
    from .errors import StoreError

    if target.exists() and not target.is_dir():
        raise StoreError(f"'{target}' is a file, expected a folder for the store")
    existed = target.is_dir()
    if existed and not (target / "manifest.json").exists():
        # A first build that was killed while it published leaves its folder without a manifest.
        names = [entry.name for entry in target.iterdir()]
        strange = [n for n in names if not n.startswith(".") and not FINGERPRINT.fullmatch(n)]
        if strange:
            raise StoreError(f"'{target}' is no store and not empty (it holds '{strange[0]}')")
    target.mkdir(parents=True, exist_ok=True)
    lock = os.open(target / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(f"another build of '{target}' is running") from error
    try:
        for stale in target.glob(f"{BUILD_PREFIX}*"):
            shutil.rmtree(stale, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=target))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        # Only whoever has the lock may remove the folder: in it another build may be at work.
        if not existed and not (target / "manifest.json").exists():
            shutil.rmtree(target, ignore_errors=True)
        os.close(lock)
