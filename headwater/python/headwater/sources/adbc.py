"""Results of a driver of ADBC, read by DuckDB: what postgres.py and sqlite_file.py share.

A result comes as an Arrow stream straight into DuckDB, so memory is bounded by a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from headwater import binding
from headwater.errors import SourceError
from headwater.sources.database import Connection
from headwater.sources.source import brief

NO_OPTIONS: Mapping[str, str] = {}
_AFTER = (" SQLSTATE:", "LINE 1:", "\nquery: ")  # from here on, nothing that says what is wrong
_MARKS = (
    "[libpq] ", "ERROR:  ", "Failed to connect: ", "FATAL:  ",
    "[SQLite] ", "Failed to prepare query: ", "Failed to step query: ", "failed to execute query: ",
)  # fmt: skip


def words(error: Exception) -> str:
    """What the server or library behind a driver says, on one line."""
    text = str(error)
    for mark in _AFTER:
        text = text.partition(mark)[0]
    for mark in _MARKS:
        text = text.replace(mark, "")
    text = re.sub("^(Invalid Input Error: )?(arrow_scan: get_next failed\\(\\): )?", "", text)
    text = re.sub("^[A-Z_]+: |^Invalid: ", "", text)  # ADBC's and Arrow's class of it
    return " ".join(brief(Exception(text)).split()).rstrip(". ")


class Reader:
    """A connection of a driver, and DuckDB as the reader of what it streams. Messages say what
    cannot be read, of which place, and what to do."""

    def __init__(self, link: Any, connection: Connection, place: str) -> None:
        self.link, self.connection, self.place = link, connection, place

    def run(self, statement: str) -> None:
        from adbc_driver_manager import AdbcStatement, Error

        with closing(AdbcStatement(self.link)) as prepared:
            prepared.set_sql_query(statement)
            try:
                prepared.execute_update()
            except Error as error:
                raise SourceError(f"{self.place} refuses '{statement}': {words(error)}") from error

    def rows(
        self, query: str, what: str = "its catalog", advice: str = ""
    ) -> list[tuple[Any, ...]]:
        """A small result."""
        with self.stream(query, what, advice) as cursor:
            return [tuple(row) for row in cursor.execute("SELECT * FROM stream").fetchall()]

    @contextmanager
    def stream(
        self, query: str, what: str, advice: str, options: Mapping[str, str] = NO_OPTIONS
    ) -> Iterator[Connection]:
        """A cursor of DuckDB in which `stream` is the result of a query, to be read once."""
        import duckdb
        from adbc_driver_manager import AdbcStatement, Error

        cursor = self.connection.cursor()
        try:
            with closing(AdbcStatement(self.link)) as prepared:
                prepared.set_options(**options)
                prepared.set_sql_query(query)
                try:
                    stream, _ = prepared.execute_query()
                    cursor.register("stream", binding.steady_stream(stream))
                    yield cursor
                    cursor.unregister("stream")
                except duckdb.OutOfMemoryException:
                    raise  # the build says what to do
                except (Error, duckdb.Error) as error:
                    raise SourceError(
                        f"cannot read {what} of {self.place}: {words(error)}{advice}"
                    ) from error
        finally:
            cursor.close()
