"""Tables in memory as a source: pandas, polars, Arrow, any Arrow stream, dicts of NumPy columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import SourceError
from .sources import SourceData, copy_scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def load_frames(
    source: Mapping[str, Any], connection: DuckDBPyConnection, tell: Callable[[str], None]
) -> SourceData:
    tables = []
    for index, (name, table) in enumerate(source.items()):
        if not isinstance(name, str):
            raise SourceError(f"the name of a table is {name!r}, expected a string")
        tell(name)
        try:
            connection.register("scan", _scannable(table))
        except Exception as error:
            raise SourceError(f"table '{name}' cannot be read: {error}") from error
        tables.append(copy_scan(connection, name, index, "scan"))
        connection.unregister("scan")
    return SourceData("database", tuple(tables))


def _scannable(table: Any) -> Any:
    """pandas goes to DuckDB as it is (its Arrow stream needs pyarrow), the rest as a stream."""
    if type(table).__module__.partition(".")[0] == "pandas":
        return table
    if isinstance(table, Mapping):
        import numpy

        columns = list(table.values())
        if not all(isinstance(column, numpy.ndarray) for column in columns):
            raise TypeError("a dict must hold NumPy arrays, or give a data frame or Arrow table")
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            raise ValueError("the arrays of a dict must have one dimension and the same length")
        return table
    if hasattr(table, "__arrow_c_stream__"):
        return table.__arrow_c_stream__()
    raise TypeError(f"a {type(table).__name__} is no table (it has no __arrow_c_stream__)")
