"""Tables of Python as a source: what is taken, when, and how much of it is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest
from headwater import binding
from headwater.builder.build import build, dry_run
from headwater.errors import SourceError
from headwater.inference.infer import infer
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.store.store import Store


def test_every_kind_of_table_in_one_database(tmp_path: Path) -> None:
    """With the keys declared by the metadata."""
    values = {"id": [1, 2, 3], "up": [3, None, 1]}
    kinds: dict[str, Any] = {
        "arrow": pyarrow.table(values),
        "stream": pyarrow.table(values).to_reader(),
        "function": lambda: pyarrow.table(values).to_reader(),
        "polars": polars.DataFrame(values),
        "lazy": polars.DataFrame(values).lazy(),
        "pandas": pandas.DataFrame(values),
        "numpy": {"id": numpy.array([1, 2, 3]), "up": numpy.array([3.0, numpy.nan, 1.0])},
        "relation": duckdb.sql("SELECT * FROM (VALUES (1, 3), (2, NULL), (3, 1)) AS v(id, up)"),
    }
    metadata = {
        "tables": {
            name: {
                "primary_key": "id",
                "columns": {
                    "id": {"stype": "identifier"},
                    "up": {"stype": "identifier", "foreign_key": f"{name}.id"},
                },
            }
            for name in kinds
        }
    }
    build(kinds, tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    assert store.verify() == []
    for name in kinds:
        rows = [store.find(name, key) for key in (1, 2, 3)]
        assert list(store.parents(rows[0])) == [rows[2]], name
        assert list(store.parents(rows[2])) == [rows[0]], name


def test_an_index_of_pandas_with_a_name_is_a_column(tmp_path: Path) -> None:
    """It was dropped without a word, and with it the key."""
    frame = pandas.DataFrame({"user_id": [7, 8], "age": [30, 40]}).set_index("user_id")
    schema = infer({"users": frame, "plain": pandas.DataFrame({"x": [1, 2]})})
    assert schema.table("users").column_names() == ["user_id", "age"]
    assert schema.table("users").primary_key == ("user_id",)
    assert schema.table("plain").column_names() == ["x"]
    assert list(frame.columns) == ["age"]  # as it was


def test_a_stream_is_read_batch_by_batch_and_in_its_turn(tmp_path: Path) -> None:
    """No batch is made before its table is read, and the second not before the first is gone."""
    schema = pyarrow.schema([("id", pyarrow.int64())])
    made: list[str] = []

    def reader(name: str) -> Any:
        def batches() -> Iterator[Any]:
            for start in range(3):
                made.append(f"{name}{start}")
                yield pyarrow.record_batch([pyarrow.array([start])], schema=schema)

        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    told: list[tuple[str, int]] = []
    connection = open_database(tmp_path)
    source = {"a": lambda: reader("a"), "b": reader("b")}
    data = load_source(source, connection, tell=lambda name: told.append((name, len(made))))
    connection.close()
    assert told == [("a", 0), ("b", 3)]
    assert made == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [table.row_count for table in data.tables] == [3, 3]


def test_a_function_can_be_read_again(tmp_path: Path) -> None:
    source = {"t": lambda: pyarrow.table({"id": [1, 2]}).to_reader()}
    schema = infer(source)
    build(source, tmp_path / "s", schema)
    assert Store(tmp_path / "s").metadata["tables"][0]["row_range"] == [0, 2]


def test_tables_are_chosen_by_name(tmp_path: Path) -> None:
    source = {"a1": pyarrow.table({"id": [1]}), "a2": pyarrow.table({"id": [1]}), "b": None}
    schema = infer(source, tables=["a*"], exclude_tables=["a2"])
    assert [table.name for table in schema.tables] == ["a1"]
    with pytest.raises(SourceError, match="a dict of tables has no schemas"):
        infer(source, schemas=["public"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({1: pyarrow.table({"id": [1]})}, "the name of a table is 1, expected a string"),
        ({"t": 5}, "table 't' cannot be read: a int is not a table"),
        ({"t": {"a": numpy.zeros(2), "b": numpy.zeros(3)}}, "the same length"),
        ({"t": {"a": [1, 2]}}, "a dict must hold NumPy arrays"),
        ({"t": pandas.Series([1])}, "'t' cannot be read: a Series is one column, expected a table"),
        ({"t": polars.Series([1])}, "'t' cannot be read: a Series is one column, expected a table"),
        ({}, "has no tables"),
    ],
)
def test_what_is_no_table_is_named(source: dict[Any, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        infer(source)


@pytest.mark.parametrize(
    ("column", "type_name"),
    [
        (pandas.cut(pandas.Series([0, 1]), [-1, 0, 1]), "category"),
        (pandas.Series(pandas.period_range("2020-01", periods=2, freq="M")), "period[M]"),
        (pandas.Series(pandas.arrays.SparseArray([0, 1])), "Sparse[int64, 0]"),
        (pandas.Series([1j, 2j]), "complex128"),
        (pandas.Series([1, b"x"], dtype=object), "object"),
        (numpy.array([1j, 2j]), "complex128"),
    ],
)
def test_a_column_that_cannot_be_read_is_named_with_its_type(column: Any, type_name: str) -> None:
    """It was "Unable to cast Python instance of type <class 'numpy.ndarray'> to C++ type '?'"."""
    columns = {"id": numpy.array([1, 2]), "v": column}
    source = columns if isinstance(column, numpy.ndarray) else pandas.DataFrame(columns)
    with pytest.raises(SourceError) as caught:
        infer({"a": source})
    assert "table 'a'" in str(caught.value)
    assert str(caught.value).endswith(
        f"column 'v' has the type '{type_name}', whose values DuckDB does not take; make it text, "
        "times or numbers, such as by .astype(str)"
    )


def test_a_function_that_fails_names_its_table() -> None:
    def broken() -> Any:
        raise OSError("the disk is away")

    with pytest.raises(SourceError, match="table 't' cannot be read: the disk is away"):
        infer({"t": broken})


class FailingOnce:
    """Batches of which the second fails; asked again it has another thing to say."""

    def __init__(self) -> None:
        self.words = iter(["the disk is full", "the reader is closed"])
        self.batches = iter([pyarrow.record_batch({"id": [1, 2]})])

    def __iter__(self) -> FailingOnce:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        for batch in self.batches:
            return batch
        raise OSError(next(self.words))

    def reader(self) -> pyarrow.RecordBatchReader:
        schema = pyarrow.schema([("id", pyarrow.int64())])
        return pyarrow.RecordBatchReader.from_batches(schema, self)


def read_capsule(capsule: object) -> pyarrow.RecordBatchReader:
    return pyarrow.RecordBatchReader._import_from_c_capsule(capsule)


def test_a_stream_that_failed_says_the_same_again() -> None:
    """DuckDB's threads ask again, and the second answer came out instead of the first."""
    plain = FailingOnce().reader()
    assert plain.read_next_batch().num_rows == 2
    for words in ("the disk is full", "the reader is closed"):
        with pytest.raises(OSError, match=words):
            plain.read_next_batch()

    steady = read_capsule(binding.steady_stream(FailingOnce().reader()))
    assert steady.read_next_batch().num_rows == 2
    for _ in range(3):
        with pytest.raises(OSError, match="the disk is full"):
            steady.read_next_batch()


def test_a_stream_is_made_steady_in_its_place() -> None:
    reader = pyarrow.table({"id": [1, 2]}).to_reader()
    capsule = reader.__arrow_c_stream__()
    assert binding.steady_stream(capsule) is capsule
    assert read_capsule(capsule).read_all()["id"].to_pylist() == [1, 2]
    with pytest.raises(ValueError, match="was read already"):
        binding.steady_stream(capsule)
    with pytest.raises(TypeError, match="expected an Arrow C stream"):
        binding.steady_stream(3)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (pandas.DataFrame({"id": [1]}), "DataFrame"), (polars.DataFrame({"id": [1]}), "DataFrame"),
        (pandas.Series([1], name="id"), "Series"), (pyarrow.table({"id": [1]}), "Table"),
        ([pandas.DataFrame({"id": [1]})], "list"), (None, "NoneType"), (b"shop", "bytes"),
    ],
)  # fmt: skip
def test_a_table_without_a_name_is_one_error_that_shows_the_dict(
    source: Any, kind: str, tmp_path: Path
) -> None:
    expected = (
        f"the source is a {kind}, expected an address such as 'sqlite:///file.db', a folder, or a"
        " dict that names each table, such as {'orders': frame}"
    )
    for ask in (infer, lambda given: build(given, tmp_path / "s"), dry_run):
        with pytest.raises(SourceError) as caught:
            ask(source)
        assert str(caught.value) == expected
    assert list(tmp_path.iterdir()) == []
