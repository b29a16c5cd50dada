"""`headwater.Store` and the binding under it, on the tiny store."""

from __future__ import annotations

import gc
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import headwater
import numpy as np
import pytest
from headwater import binding
from headwater.store.row_keys import canonical_text, key_value, time_us
from tiny_store import DAY_US, write_tiny

HEADER = Path(__file__).parents[3] / "include" / "headwater.h"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def store(path: Path) -> headwater.Store:
    return headwater.Store(path)


def test_the_version_is_the_one_of_the_header() -> None:
    from importlib.metadata import version

    assert f'#define HW_VERSION "{headwater.__version__}"' in HEADER.read_text()
    assert version("headwater") == headwater.__version__


def test_a_row_reads_as_in_the_source(store: headwater.Store) -> None:
    assert store.row(store.find("orders", 7)) == {
        "table": "orders",
        "key": {"id": 7},
        "time": datetime(1970, 1, 8, tzinfo=UTC),
        "cells": {
            "id": 7,
            "customer_id": 3,
            "quantity": 3.5,
            "status": "paid",
            "at": datetime(1970, 1, 8, tzinfo=UTC),
        },
    }
    assert store.row(2)["cells"] == {"id": 3, "name": None, "vip": None}
    assert store.row(5)["cells"] == {"id": 6, "name": "", "vip": True}
    dangling = store.row(store.find("orders", 24))["cells"]
    assert dangling["customer_id"] is True
    assert store.row(store.find("orders", 3))["cells"]["quantity"] is None
    with pytest.raises(ValueError, match="30"):
        store.row(30)


def test_rows_are_found_by_key(store: headwater.Store) -> None:
    assert store.find("customers", 1) == store.find("customers", "1") == 0
    assert store.find("customers", (np.int64(2),)) == store.find("customers", {"id": 2.0}) == 1
    with pytest.raises(KeyError, match="99"):
        store.find("customers", 99)
    with pytest.raises(ValueError, match="did you mean 'customers'"):
        store.find("customer", 1)
    with pytest.raises(ValueError, match="1 key columns"):
        store.find("customers", (1, 2))


def test_links_go_both_ways(store: headwater.Store) -> None:
    assert store.parents(6).tolist() == [1]
    assert store.parents(29).tolist() == [2**32 - 1]
    assert store.parents(0).tolist() == []
    children = store.children(1)["orders.customer_id"]
    assert children.dtype == np.uint32
    assert children.tolist() == [6, 11, 16, 21, 26]
    assert store.children(1, limit=2)["orders.customer_id"].tolist() == [21, 26]
    assert store.children(5)["orders.customer_id"].tolist() == []
    assert store.children(6) == {}


def test_a_whole_key_lists_the_children_of_each_parent(store: headwater.Store) -> None:
    edges = store.edges("orders.customer_id")
    assert edges["starts"].tolist() == [0, 4, 9, 14, 19, 23, 23]  # order 24 dangles
    for customer in range(6):
        low, high = edges["starts"][customer : customer + 2]
        children = store.children(customer)["orders.customer_id"]
        assert edges["rows"][low:high].tolist() == children.tolist()
        assert edges["times"][low:high].tolist() == [(int(r) - 5) * DAY_US for r in children]
    with pytest.raises(ValueError, match=r"did you mean 'orders\.customer_id'"):
        store.edges("orders.customer")


def test_a_whole_column_is_numbers_with_the_times_they_are_known(store: headwater.Store) -> None:
    quantity = store.column("orders", "quantity")
    np.testing.assert_allclose(quantity["numbers"][[0, 1, 2, 23]], [0.5, 1.0, np.nan, 12.0], 1e-5)
    assert set(quantity["times"]) == {-(2**63)}  # with their rows
    assert store.column("orders", "at")["numbers"][3] == 4 * DAY_US
    status = store.column("orders", "status")["numbers"]
    assert set(status) == {0, 1}
    assert store.row(6 + int(np.flatnonzero(status == 1)[0]))["cells"]["status"] == "paid"
    with pytest.raises(ValueError, match="did you mean 'quantity'"):
        store.column("orders", "quantitty")


def test_seeds_are_arrays_in_stored_order(store: headwater.Store) -> None:
    seeds = store.task_seeds("quantity")
    assert seeds["anchor_row"].tolist() == list(range(6, 30))
    assert seeds["obs_time"].dtype == np.int64
    assert seeds["obs_time"][3] == 4 * DAY_US
    assert seeds["target"][9] == 5.0
    assert seeds["is_null"].nonzero()[0].tolist() == [2]
    assert seeds["labelled"].all()
    assert set(seeds["split"]) == {255}
    assert store.task_seeds("churn")["target"].tolist() == [0, 0, 0, 1, 1, 1] * 3


def test_a_sound_store_has_no_faults(store: headwater.Store) -> None:
    assert store.verify() == []
    told: list[tuple[int, int]] = []
    store.warm_up(lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0


def test_arrays_outlive_the_store_and_are_read_only(path: Path) -> None:
    store = headwater.Store(path, load="ram")
    children = store.children(1)["orders.customer_id"]
    vectors = np.asarray(store.core.vectors(binding.EMBEDDING_KINDS["columns"]))
    store.close()
    store.close()
    gc.collect()
    assert children.tolist() == [6, 11, 16, 21, 26]
    assert vectors.dtype == np.float16
    assert vectors.shape == (10, 8)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-2)
    with pytest.raises(ValueError, match="read-only"):
        children[0] = 1
    with pytest.raises(ValueError, match="closed"):
        store.verify()


def test_what_is_no_store_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(headwater.StoreError, match="nothing"):
        headwater.Store(tmp_path / "nothing")
    with pytest.raises(ValueError, match="expected one of 'mmap', 'ram'"):
        headwater.Store(tmp_path, load="disk")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (42.0, "42"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (Decimal("7.00"), "7"),
        (True, "true"),
        ("x ", "x "),
        (np.int32(5), "5"),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3, 4, 5, 500000), "2020-01-02 03:04:05.5"),
        (np.datetime64("2020-01-02T03:04:05"), "2020-01-02 03:04:05"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x01\xff", "01ff"),
    ],
)
def test_keys_have_one_text(value: object, text: str) -> None:
    assert canonical_text(value) == text


def test_times_and_keys_of_people() -> None:
    assert time_us("1970-01-02") == time_us(date(1970, 1, 2)) == DAY_US
    assert time_us("1970-01-02T01:00:00+01:00") == time_us(np.datetime64("1970-01-02")) == DAY_US
    assert [key_value(text) for text in ("7", "-7", "007", "x", "-0")] == [7, -7, "007", "x", "-0"]
    with pytest.raises(ValueError, match="ISO 8601"):
        time_us("tomorrow")
    with pytest.raises(TypeError):
        time_us(1.5)  # type: ignore[arg-type]


# ---- the builder's binding ---------------------------------------------------------------------


def open_builder(folder: Path) -> binding.Builder:
    builder = binding.Builder(folder / "building", name="one", stats_until_us=0)
    builder.add_table("numbers", key_part_count=1)
    builder.add_column(0, "n", stype=binding.SEMANTIC_TYPES["numerical"])
    return builder


def test_duckdb_streams_straight_into_the_builder(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    builder = open_builder(tmp_path)
    connection = duckdb.connect()
    query = "SELECT i::VARCHAR AS key, i / 2.0::DOUBLE AS n FROM range(100000) t(i)"
    builder.write_rows(0, connection.sql(query))
    assert builder.column_stats(0)["value_count"] == 100_000
    assert connection.sql("SELECT 1").fetchall() == [(1,)]  # the stream was released
    builder.close()
    assert not (tmp_path / "building").exists()


def test_a_builder_names_what_is_wrong_with_a_stream(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    builder = open_builder(tmp_path)
    with pytest.raises(TypeError, match="Arrow C stream"):
        builder.write_rows(0, [1, 2])
    reader = pa.table({"key": ["1"], "n": ["x"]}).to_reader()
    with pytest.raises(headwater.SourceError, match=r"numbers.*n"):
        builder.write_rows(0, reader)
    builder.close()
    with pytest.raises(ValueError, match="closed"):
        builder.text_count()


def test_integers_out_of_range_are_value_errors(tmp_path: Path) -> None:
    builder = open_builder(tmp_path)
    with pytest.raises(ValueError, match="-1 is not an integer"):
        builder.add_column(-1, "x", stype=1)
    with pytest.raises(TypeError):
        builder.add_column(0, "x", stype="numerical")  # type: ignore[arg-type]
    builder.close()


def test_a_stream_that_fails_in_python_raises_its_error(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    builder = open_builder(tmp_path)
    schema = pa.schema({"key": pa.string(), "n": pa.float64()})

    def batches() -> object:
        yield pa.record_batch({"key": ["1"], "n": [1.0]}, schema)
        raise RuntimeError("the source went away")

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(headwater.SourceError, match="the source went away"):
        builder.write_rows(0, reader)
    builder.close()


def test_hash_functions_are_those_of_the_library() -> None:
    assert binding.hash64(b"abc") == 0x44BC2CF5AD770999
    vectors = np.asarray(binding.hash_embed(["a b", "", "a b"], 16))
    assert vectors.shape == (3, 16)
    assert vectors.dtype == np.float16
    assert (vectors[0] == vectors[2]).all()
    assert np.linalg.norm(vectors[0].astype(np.float32)) == pytest.approx(1, abs=1e-2)


# ---- many keys at once -------------------------------------------------------------------------


def test_many_keys_are_found_and_read_at_once(store: headwater.Store) -> None:
    found = store.find_all("orders", [7, "3", 999, {"id": 24}])
    assert found.dtype == np.uint32
    one_by_one = [store.find("orders", key) for key in (7, 3, 24)]
    assert found.tolist() == [*one_by_one[:2], 2**32 - 1, one_by_one[2]]
    assert store.keys(found[[3, 0, 1, 0]]) == {"id": [24, 7, 3, 7]}
    assert store.keys([]) == {}
    with pytest.raises(ValueError, match="the rows are not all of table 'orders'"):
        store.keys([int(found[0]), 0])


def test_keys_that_are_not_there_are_named_with_the_nearest(store: headwater.Store) -> None:
    said = store.unknown_keys("orders", ["24 ", 900, 901, *range(1000, 1010)])
    assert said == (
        "table 'orders' has no rows with the keys '24 ', 900, 901, 1000, 1001, 1002, 1003, 1004,"
        " 1005, 1006 and 3 more, did you mean 24?"
    )
