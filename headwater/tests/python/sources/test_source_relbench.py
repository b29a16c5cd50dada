"""RelBench cache folders: keys, times and tasks come from the files, relbench is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from databases import EXAMPLES, shared_data
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.inference.infer import infer
from headwater.metadata.schema import Schema
from headwater.store.store import Store

TEXT = pyarrow.string()
TIME = pyarrow.timestamp("ns")


def write_table(
    path: Path,
    columns: dict[str, Any],
    *,
    pkey: str | None = None,
    fkeys: dict[str, str] | None = None,
    time: str | None = None,
) -> None:
    """A Parquet file as RelBench's Table.save() writes it."""
    entries = {"fkey_col_to_pkey_table": fkeys or {}, "pkey_col": pkey, "time_col": time}
    table = pyarrow.table(columns)
    found = {**(table.schema.metadata or {}), b"pandas": b"{}"}
    found |= {key.encode(): json.dumps(value).encode() for key, value in entries.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table.replace_schema_metadata(found), path)


def days(*numbers: int) -> Any:
    return pyarrow.array([number * 86_400_000_000_000 for number in numbers], TIME)


def tiny_cache(folder: Path) -> Path:
    """Two tables and five tasks, two of which headwater has no task for."""
    write_table(folder / "db/users.parquet", {"uid": [0, 1, 2], "age": [30.0, None, 41.0]},
                pkey="uid")  # fmt: skip
    write_table(
        folder / "db/posts.parquet",
        {"pid": [0, 1, 2, 3], "author": [0, 0, None, 2], "at": days(1, 2, 3, 4),
         "due": days(5, 6, 7, 8), "score": [1, 2, 3, 4]},
        pkey="pid", fkeys={"author": "users"}, time="at",
    )  # fmt: skip
    for split, day in (("train", 1), ("val", 2), ("test", 3)):
        for task, target, values in (
            ("churn", "churned", [0, 1]),
            ("income", "amount", [1.5, -2.0]),
        ):
            write_table(
                folder / f"tasks/{task}/{split}.parquet",
                {"timestamp": days(day, day), "uid": [0, 2], target: values},
                fkeys={"uid": "users"}, time="timestamp",
            )  # fmt: skip
        write_table(
            folder / f"tasks/post-score/{split}.parquet",
            {"at": days(day), "post": [day - 1], "score": [day]},
            fkeys={"post": "posts"}, time="at",
        )  # fmt: skip
        write_table(
            folder / f"tasks/likes/{split}.parquet",
            {"at": days(day), "uid": [0], "pid": [[1, 2]]},
            fkeys={"uid": "users", "pid": "posts"}, time="at",
        )  # fmt: skip
        write_table(
            folder / f"tasks/tags/{split}.parquet",
            {"at": days(day), "uid": [0], "tags": [["a"]]}, fkeys={"uid": "users"}, time="at",
        )  # fmt: skip
    return folder


def test_keys_times_and_tasks_come_from_the_files(tmp_path: Path) -> None:
    schema = infer(tiny_cache(tmp_path / "rel-tiny"))
    assert schema.name == "rel-tiny"
    assert [table.name for table in schema.tables] == ["posts", "users"]
    posts, users = schema.tables
    assert (users.primary_key, users.temporal_column) == (("uid",), None)
    assert (posts.primary_key, posts.temporal_column) == (("pid",), "at")
    assert str(posts.column("author").foreign_key) == "users.uid"
    assert [task.to_dict() | {"name": task.name} for task in schema.tasks] == [
        {
            "name": name,
            "seeds": {split: f"tasks/{name}/{split}.parquet" for split in ("train", "val", "test")},
            "anchor_table": anchor,
            **({"anchor_key": key} if key else {}),
            "target_column": target,
            "target_stype": stype,
            "observation_time_column": time,
        }
        for name, anchor, key, target, stype, time in (
            ("churn", "users", None, "churned", "boolean", "timestamp"),
            ("income", "users", None, "amount", "numerical", "timestamp"),
            ("post-score", "posts", "post", "score", "numerical", "at"),
        )
    ]


def test_it_builds_without_a_metadata_file(tmp_path: Path) -> None:
    report = build(tiny_cache(tmp_path / "rel-tiny"), tmp_path / "s")
    assert report.source_notes == (
        "task likes is left out: it has 2 foreign keys, expected the anchor alone",
        "task tags is left out: its target 'tags' is of type VARCHAR[]",
    )
    assert report.losses() == []
    store = Store(tmp_path / "s")
    assert store.verify() == []
    tasks = {task["name"]: task for task in store.metadata["tasks"]}
    assert tasks["churn"]["seeds"] == {"train": 2, "val": 2, "test": 2, "unlabelled": 0}
    assert tasks["churn"]["split"] == "given"
    assert (tasks["churn"]["kind"], tasks["post-score"]["kind"]) == ("derived", "cell")
    assert tasks["income"]["latest_train_time"].startswith("1970-01-02")
    assert list(store.parents(store.find("posts", 3))) == [store.find("users", 2)]


def test_label_tables_are_found_from_a_metadata_file_elsewhere(tmp_path: Path) -> None:
    cache = tiny_cache(tmp_path / "rel-tiny")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "metadata.json"
    infer(cache).save(path)
    report = build(cache, tmp_path / "s", path)
    plain = build(cache, tmp_path / "s2")
    assert report.fingerprint == plain.fingerprint


def test_a_plain_folder_of_its_tables_has_the_keys_too(tmp_path: Path) -> None:
    cache = tiny_cache(tmp_path / "rel-tiny")
    schema = infer(cache / "db")
    assert schema.tables[0].primary_key == ("pid",)
    assert schema.tasks == ()


def test_a_task_of_a_table_that_is_not_read_is_told(tmp_path: Path) -> None:
    cache = tiny_cache(tmp_path / "rel-tiny")
    report = build(cache, tmp_path / "s", exclude_tables=["posts"])
    assert "task post-score is left out: its table 'posts' is not read" in report.source_notes
    assert [task["name"] for task in report.metadata["tasks"]] == ["churn", "income"]


def test_metadata_that_name_what_is_not_there(tmp_path: Path) -> None:
    write_table(tmp_path / "c/db/t.parquet", {"id": [1]}, pkey="ID")
    message = r"the RelBench metadata of '.*t.parquet' name the column 'ID', which it does not have"
    with pytest.raises(SourceError, match=message):
        infer(tmp_path / "c")


def test_rel_f1_laid_out_as_a_cache_gives_the_store_of_its_sqlite_file(tmp_path: Path) -> None:
    """The keys, times and tasks of examples/rel-f1.json, found without it."""
    import duckdb

    data = shared_data("rel-f1")
    given = Schema.load(EXAMPLES / "rel-f1.json")
    cache = tmp_path / "rel-f1"
    with duckdb.connect() as connection:
        tables = infer_tables(connection, data / "rel-f1.sqlite")
        for table in given.tables:
            write_table(
                cache / f"db/{table.name}.parquet",
                tables[table.name],
                pkey=table.primary_key[0],
                fkeys={key.columns[0]: key.table for key in table.every_key()},
                time=table.temporal_column,
            )
        for task in given.tasks:
            if task.name.startswith("driver-"):
                for split, name in task.seeds:
                    labels = connection.execute(
                        f"SELECT * REPLACE (CAST(date AS TIMESTAMP) AS date) "
                        f"FROM read_csv('{data / 'tasks' / name}')"
                    ).to_arrow_table()
                    write_table(
                        cache / f"tasks/{task.name}/{split}.parquet",
                        {n: labels.column(n) for n in labels.column_names},
                        fkeys={"driverId": "drivers"}, time="date",
                    )  # fmt: skip
    report = build(cache, tmp_path / "s")
    store = Store(tmp_path / "s")
    assert store.verify() == [] and report.losses() == []
    keys = [key for table in store.metadata["tables"] for key in table["foreign_keys"]]
    assert len(keys) == 13 and sum(key["dangling"] + key["nulls"] for key in keys) == 0
    assert store.metadata["tables"][-1]["row_range"][1] == 74_063
    tasks = {task["name"]: task for task in store.metadata["tasks"]}
    assert {name: tuple(task["seeds"].values()) for name, task in tasks.items()} == {
        "driver-position": (7_453, 499, 760, 760),
        "driver-dnf": (11_411, 566, 702, 702),
        "driver-top3": (1_353, 588, 726, 726),
    }
    assert {name: task["target_stype"] for name, task in tasks.items()} == {
        "driver-position": "numerical", "driver-dnf": "boolean", "driver-top3": "boolean",
    }  # fmt: skip


def infer_tables(connection: Any, path: Path) -> dict[str, Any]:
    """Arrow tables of an SQLite file, with the types its values have."""
    from headwater.sources.open import load_source

    tables = {}
    for table in load_source(f"sqlite:///{path}", connection).tables:
        columns = connection.execute(f"SELECT * FROM raw.t{table.index}").to_arrow_table()
        named = dict(zip(table.column_names(), columns.columns, strict=True))
        for name in named:
            if name == "date":
                query = f"SELECT CAST(c{table.column_names().index(name)} AS TIMESTAMP) AS v"
                named[name] = connection.execute(
                    f"{query} FROM raw.t{table.index}"
                ).to_arrow_table()[0]
        tables[table.name] = named
    return tables
