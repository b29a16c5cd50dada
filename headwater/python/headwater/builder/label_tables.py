"""Rows of the tasks as their authors give them: results of queries, and label tables.

A query runs in a DuckDB that may reach nothing but views of the converted tables, on one thread,
and only if it would give the same again. `labels.q<k>` and the label tables are what
task_seeds.py makes seeds of.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headwater.builder.convert import CanonicalTable, query_view
from headwater.errors import HeadwaterError, TaskError, collected, raise_together
from headwater.files import check_regular
from headwater.metadata.parts import Task
from headwater.metadata.schema import Schema
from headwater.sources.database import (
    CLOCK_WORDS,
    Connection,
    count_rows,
    one_row,
    unrepeatable_functions,
)
from headwater.sources.file_folder import scan_of
from headwater.sources.source import brief, quote

TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$\$.*?\$\$|\w+|\s+|.", re.DOTALL
)


def create_views(connection: Connection, tables: Sequence[CanonicalTable]) -> None:
    """Name every table as queries may: orders, "orders", 'orders.parquet', 'orders.csv'."""
    names = {table.table.name.casefold() for table in tables}
    for table in tables:
        for suffix in ("", ".parquet", ".csv"):
            name = table.table.name + suffix
            if not suffix or name.casefold() not in names:
                connection.execute(f"CREATE OR REPLACE VIEW {quote(name)} AS {query_view(table)}")


def run_queries(
    connection: Connection, schema: Schema, timeout_s: float, tell: Callable[[str], None]
) -> None:
    """Write each query's result, in its order, to `labels.q<k>`. The connection is locked down.

    timeout_s: after which a query is stopped, with a TaskError; 0: never.
    """
    import duckdb

    problems: list[HeadwaterError] = []
    for index, task in enumerate(schema.tasks):
        if task.query is None:
            continue
        tell(f"query of {task.name}" + (f", at most {_span(timeout_s)}" if timeout_s else ""))
        with collected(problems), _Deadline(connection, timeout_s) as deadline:
            query = _only_select(connection, task, [table.name for table in schema.tables])
            try:
                described = connection.execute(f"DESCRIBE {query}").fetchall()
                _refuse_twins(task, schema, [row[0] for row in described])
                connection.execute(f"CREATE TABLE labels.q{index} AS SELECT * FROM (\n{query}\n)")
            except duckdb.OutOfMemoryException:
                raise  # the build says what to do
            except (duckdb.Error, RuntimeError) as error:
                if deadline.is_over:
                    raise TaskError(
                        f"the query of task '{task.name}' did not end within {_span(timeout_s)}: "
                        "make it end, or give it more time with --query-timeout SECONDS "
                        "(0: no limit)"
                    ) from error
                if not isinstance(error, duckdb.Error):
                    raise
                raise TaskError(f"the query of task '{task.name}' failed: {error}") from error
    raise_together(problems)


class _Deadline:
    """Interrupts what a connection executes once the time is over, until the context ends."""

    AGAIN_S = 0.1  # DuckDB forgets an interrupt that comes between two statements

    def __init__(self, connection: Connection, seconds: float) -> None:
        self.is_over = False
        self._connection, self._seconds = connection, seconds
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Deadline:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        if self._seconds:
            self._thread.join()

    def _watch(self) -> None:
        wait = self._seconds
        while not self._is_done.wait(wait):
            self.is_over, wait = True, self.AGAIN_S
            self._connection.interrupt()


def _span(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % 60 else f"{seconds / 60:g} min"


def _only_select(connection: Connection, task: Task, tables: list[str]) -> str:
    import duckdb

    assert task.query is not None
    try:
        statements = connection.extract_statements(name_files(task.query, tables))
    except duckdb.Error as error:
        raise TaskError(f"the query of task '{task.name}' is not SQL: {error}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise TaskError(f"the query of task '{task.name}' must be one SELECT statement")
    tokens = TOKEN.findall(statements[0].query)
    refuse_unrepeatable(connection, task, tokens)
    while tokens and (tokens[-1].isspace() or tokens[-1] == ";" or _is_comment(tokens[-1])):
        tokens.pop()
    return "".join(tokens)


def _refuse_twins(task: Task, schema: Schema, columns: list[str]) -> None:
    """TaskError where two columns of a result have a name that the task uses: DuckDB keeps the
    first, which may be the key of another table."""
    names = task.anchor_key or schema.table(task.anchor_table).primary_key
    used = (*names, task.target_column, task.observation_time_column, task.split_column)
    folded = [column.casefold() for column in columns]
    for name in filter(None, (*used, task.label_known_at)):
        if folded.count(name.casefold()) > 1:
            raise TaskError(
                f"the query of task '{task.name}' has {folded.count(name.casefold())} columns "
                f"'{name}': rename all but the one that is meant"
            )


def tables_read(connection: Connection, task: Task, tables: list[str]) -> list[str]:
    """The tables that a task's query reads, of those of these names; all of them if DuckDB cannot
    tell."""
    assert task.query is not None
    query = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
    row = one_row(connection, query, [name_files(task.query, tables)])
    tree = json.loads(row[0])
    if tree["error"]:
        return tables
    named = {text.casefold() for text in _base_tables(tree)}
    return [
        name
        for name in tables
        if named & {name.casefold() + suffix for suffix in ("", ".parquet", ".csv")}
    ]


def _base_tables(tree: Any) -> Iterator[str]:
    """The names of tables in a tree of a query."""
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield tree["table_name"]
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else ():
        yield from _base_tables(part)


def refuse_unrepeatable(connection: Connection, task: Task, tokens: list[str]) -> None:
    """TaskError for a function that gives another answer tomorrow: the same source gives the same
    store (a hash of the key splits at random, a fixed time stands for now)."""
    unstable = unrepeatable_functions(connection)
    code = [token.lower() for token in tokens if not (token.isspace() or _is_comment(token))]
    for before, token, after in zip(["", *code], code, [*code[1:], ""], strict=False):
        is_call = token in unstable and after == "(" and before != "."
        is_word = token in CLOCK_WORDS and before not in (".", "as") and after != "."
        is_sample = token == "tablesample" or (before, token) == ("using", "sample")
        if is_call or is_word or (is_sample and "repeatable" not in code):
            raise TaskError(
                f"the query of task '{task.name}' uses '{token}', whose result differs from run to "
                "run; use a hash of the key instead of chance, and a fixed time instead of now"
            )


def _is_comment(token: str) -> bool:
    return token.startswith(("--", "/*"))


def name_files(query: str, tables: list[str]) -> str:
    """FROM 'orders.parquet' and JOIN 'orders.csv' become "orders", so that orders.id works too."""
    names = {f"'{table}{suffix}'": table for table in tables for suffix in (".parquet", ".csv")}
    tokens = TOKEN.findall(query)
    before = ""
    for position, token in enumerate(tokens):
        if token in names and before in ("from", "join"):
            tokens[position] = quote(names[token])
        if not (token.isspace() or _is_comment(token)):
            before = token.lower()
    return "".join(tokens)


def check_label_table(task: str, name: str, directory: Path) -> None:
    """TaskError if a label table is named so that it lies outside of the metadata's folder, by an
    absolute path, by '..' or through a link. Metadata may come from others; whoever gives the
    folder by hand may name any file."""
    path = Path(name)
    is_outside = path.is_absolute() or ".." in path.parts or "\0" in name
    if not is_outside:
        is_outside = not (directory / path).resolve().is_relative_to(directory.resolve())
    if is_outside:
        raise TaskError(
            f"label table '{name}' of task '{task}' lies outside of '{directory}', the folder of "
            "the metadata: to read it, name the folder of label tables with --seeds-dir "
            "(seeds_dir in Python)"
        )


def load_labels(
    connection: Connection, schema: Schema, directories: Sequence[Path], *, is_given: bool = False
) -> int:
    """Copy the label tables of every task to `labels.q<k>_<split>`; their size as CSV. A table is
    looked for in each of the folders. is_given: the first of them by hand, not as that of the
    metadata."""
    import duckdb

    csv_bytes = 0
    for index, task in enumerate(schema.tasks):
        for split, name in task.seeds:
            if not is_given:
                check_label_table(task.name, name, directories[0])
            paths = [directory / name for directory in directories]
            path = next((path for path in paths if path.is_file()), paths[0])
            relation = f"labels.q{index}_{split}"
            where = f"label table '{path}' of task '{task.name}'"
            if path.suffix not in (".csv", ".parquet"):
                raise TaskError(f"{where} is neither .csv nor .parquet")
            check_regular(path)
            if not path.is_file():
                raise TaskError(f"{where} is not there")
            try:
                scan = scan_of(connection, path)
                connection.execute(f"CREATE TABLE {relation} AS SELECT * FROM {scan}")
            except duckdb.Error as error:
                raise TaskError(f"{where} cannot be read: {brief(error)}") from error
            sizes = "coalesce(strlen(CAST(COLUMNS(*) AS VARCHAR)), 0) + 1"
            query = f"SELECT sum(list_sum([{sizes}])) FROM {relation}"
            csv_bytes += count_rows(connection, query)
    return csv_bytes
