"""What C says of a store by number and by name is what metadata.json says."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import pytest
from headwater import binding
from headwater.binding import library
from headwater.store.store import column_numbers, key_name
from natural_keys import write_ships
from tiny_store import write_tiny

NONE = 2**32 - 1


@pytest.fixture(scope="module", params=[write_tiny, write_ships])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[headwater.Store]:
    with headwater.Store(request.param(tmp_path_factory.mktemp("names"))) as opened:
        yield opened


def info(store: headwater.Store, kind: str, number: int) -> dict[str, Any]:
    made = library.filled(f"hw_{kind}_info")
    function = getattr(library.lib, f"hw_store_{kind}_info")
    library.call(function, store.core.open_handle(), number, ctypes.byref(made))
    found = library.as_dict(made)
    return {**found, "name": found["name"].decode()}


def found(store: headwater.Store, kind: str, *names: str) -> int:
    number = ctypes.c_uint32()
    function = getattr(library.lib, f"hw_store_find_{kind}")
    encoded = [name.encode() for name in names]
    library.call(function, store.core.open_handle(), *encoded, ctypes.byref(number))
    return number.value


def test_tables_and_their_keys(store: headwater.Store) -> None:
    key = 0
    for number, table in enumerate(store.metadata["tables"]):
        said, columns = info(store, "table", number), column_numbers(store.metadata, table)
        assert said["name"] == table["name"]
        assert found(store, "table", table["name"]) == number
        first, count = said["first_row"], said["row_count"]
        assert [first, first + count] == table["row_range"]
        first, count = said["first_column"], said["column_count"]
        assert [first, first + count] == table["column_range"]
        assert said["temporal_column"] == columns.get(table["temporal_column"], NONE)
        parts = said["primary_key"][: said["primary_key_count"]]
        assert parts == [columns[name] for name in table["primary_key"]]
        assert said["is_keyed"] == bool(table["primary_key"])
        assert said["key_count"] == len(table["foreign_keys"])
        for entry in table["foreign_keys"]:
            assert said["first_key"] <= key < said["first_key"] + said["key_count"]
            check_key(store, number, key, entry)
            key += 1
    assert key == store.core.counts()["key_count"] > 0


def check_key(store: headwater.Store, table: int, key: int, entry: dict[str, Any]) -> None:
    said, tables = info(store, "key", key), store.metadata["tables"]
    parent, count = tables[said["parent_table"]], said["column_count"]
    assert said["child_table"] == table
    assert parent["name"] == entry["references"]["table"]
    for name, side, names in (
        ("columns", tables[table], entry["columns"]),
        ("parent_columns", parent, entry["references"]["columns"]),
    ):
        numbers = column_numbers(store.metadata, side)
        assert said[name][:count] == [numbers[column] for column in names]
    assert said["name"] == key_name(tables[table]["name"], entry)
    assert found(store, "key", said["name"]) == key
    counts = [said[f"{name}_count"] for name in ("edge", "null", "dangling")]
    assert counts == [entry[name] for name in ("edges", "nulls", "dangling")]


def test_columns_and_their_categories(store: headwater.Store) -> None:
    categories = 0
    for number, column in enumerate(store.metadata["columns"]):
        said, stats = info(store, "column", number), column["stats"]
        assert said["name"] == column["name"]
        assert binding.SEMANTIC_TYPES[column["stype"]] == said["stype"]
        if column["table"] is not None:
            assert found(store, "column", column["table"], column["name"]) == number
            assert (said["value_count"], said["null_count"]) == (stats["count"], stats["nulls"])
        if column["stype"] == "numerical" and column["table"] is not None:
            assert (said["mean"], said["std"]) == (stats["mean"], stats["std"])
        listed = stats.get("categories", [])
        assert said["category_count"] == len(listed)
        for place, text in enumerate(listed, said["first_category"]):
            assert category(store, place) == text
        categories += len(listed)
    assert categories == store.core.counts()["category_count"] > 0


def category(store: headwater.Store, number: int) -> str:
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    place = ctypes.byref(text), ctypes.byref(size)
    library.call(library.lib.hw_store_category, store.core.open_handle(), number, *place)
    assert text.value is not None
    return ctypes.string_at(text.value, size.value).decode()


def test_tasks(store: headwater.Store) -> None:
    for number, task in enumerate(store.metadata["tasks"]):
        said = info(store, "task", number)
        assert said["name"] == task["name"]
        assert found(store, "task", task["name"]) == number
        anchor = store.metadata["tables"][said["anchor_table"]]
        assert anchor["name"] == task["anchor_table"]
        assert said["target_column"] == task["target_column_id"]
        own = task["obs_time_column_id"]
        assert said["obs_time_column"] == (NONE if own is None else own)
        assert said["is_cell"] == (own is None)
        assert said["target_stype"] == binding.SEMANTIC_TYPES[task["target_stype"]]
        assert said["exclusive"] == (task["cutoff"] == "exclusive")
        assert said["seed_count"] == len(store.task_seeds(task["name"])["position"])


def test_a_wrong_name_says_which_there_are(store: headwater.Store) -> None:
    table = store.metadata["tables"][0]["name"]
    with pytest.raises(ValueError, match=rf"no table '{table}x', did you mean '{table}'\?; it has"):
        found(store, "table", f"{table}x")


def test_metadata_is_read_once_and_proved(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Store(path, verify="header") as store:
        file = Path(store.core.directory()) / "metadata.json"
        whole = file.read_bytes()
        file.write_bytes(whole.replace(b"tiny", b"tidy", 1))
        with pytest.raises(headwater.StoreError, match="wrong checksum"):
            assert store.metadata
        file.write_bytes(whole)
        assert store.metadata["name"] == "tiny"
        file.unlink()
        assert store.core.metadata() == whole
