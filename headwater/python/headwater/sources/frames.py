"""Tables of Python as a source: pandas, polars, Arrow, any Arrow stream, dicts of NumPy columns.

A stream is read batch by batch and once; a function without arguments that gives any of these is
called when its table's turn comes, so nothing is in memory before, and a second reading (infer,
then build) works. Keys are declared by the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater import binding
from headwater.errors import SourceError
from headwater.metadata.selection import Selection
from headwater.sources.database import Connection
from headwater.sources.source import SourceData, copy_scan

CONVERT = "make it text, times or numbers, such as by .astype(str)"


def load_frames(
    source: Mapping[str, Any],
    connection: Connection,
    selection: Selection,
    tell: Callable[[str], None],
) -> SourceData:
    selection.refuse_schemas("a dict of tables")
    for name in source:
        if not isinstance(name, str):
            raise SourceError(f"the name of a table is {name!r}, expected a string")
    found = [((name,), (name, table), "") for name, table in source.items()]
    chosen, _ = selection.choose(found, where="the dict of tables")
    tables = []
    for index, (name, table) in enumerate(chosen):
        tell(name)
        scanned = None
        try:
            scanned = _scannable(table)
            connection.register("scan", scanned)
        except Exception as error:
            fault = _unread_column(connection, scanned)
            why = f"{error}" if fault is None else f"{fault}; {CONVERT}"
            raise SourceError(f"table '{name}' cannot be read: {why}") from error
        try:
            tables.append(copy_scan(connection, name, index, "scan"))
        except SourceError as error:
            fault = _unread_column(connection, scanned)
            if fault is None:
                raise
            raise SourceError(f"{error}; {fault}; {CONVERT}") from error
        connection.unregister("scan")
    return SourceData("database", tuple(tables))


def _unread_column(connection: Connection, table: Any) -> str | None:
    """The first column of pandas or NumPy that DuckDB cannot read, with its type; a stream, which
    is read once, tells none."""
    if isinstance(table, Mapping):
        columns = [(name, column.dtype, {name: column}) for name, column in table.items()]
    elif _is_pandas(table):
        places = range(table.shape[1])
        columns = [(table.columns[j], table.dtypes.iloc[j], table.iloc[:, [j]]) for j in places]
    else:
        return None
    for name, dtype, alone in columns:
        try:
            connection.register("column_alone", alone)
            connection.execute("SELECT count(COLUMNS(*)) FROM column_alone").fetchall()
        except Exception:  # DuckDB's errors, and those of its binding
            return f"column '{name}' has the type '{dtype}', whose values DuckDB does not take"
        finally:
            connection.unregister("column_alone")
    return None


def _is_pandas(table: Any) -> bool:
    return type(table).__module__.partition(".")[0] == "pandas"


def _scannable(table: Any) -> Any:
    """pandas goes to DuckDB as it is (its Arrow stream needs pyarrow), with its index where that
    has a name; the rest as a stream."""
    if callable(table) and not hasattr(table, "__arrow_c_stream__"):
        table = table()
    if hasattr(table, "collect_batches"):  # a LazyFrame of polars
        table = table.collect(engine="streaming")
    if type(table).__name__ == "Series":  # of pandas or polars
        raise TypeError("a Series is one column, expected a table: give series.to_frame()")
    if _is_pandas(table):
        is_named = any(name is not None for name in table.index.names)
        return table.reset_index() if is_named else table
    if isinstance(table, Mapping):
        import numpy

        columns = list(table.values())
        if not all(isinstance(column, numpy.ndarray) for column in columns):
            raise TypeError("a dict must hold NumPy arrays, or give a data frame or Arrow table")
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            raise ValueError("the arrays of a dict must have one dimension and the same length")
        return table
    if hasattr(table, "__arrow_c_stream__"):
        return binding.steady_stream(table)
    raise TypeError(f"a {type(table).__name__} is not a table (it has no __arrow_c_stream__)")
