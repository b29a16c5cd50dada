"""The metadata.json that the C builder writes if it is given none, and which documents Python can
use."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pyarrow as pa
import pytest
from databases import arrow_tables
from headwater import binding
from headwater.builder import encode
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.store.metadata_shape import metadata_faults
from headwater.store.store import Store
from tiny_store import CUSTOMERS, METADATA, ORDERS, write_tiny

# What only the schema and the source say, which C does not know.
PYTHON_ONLY = {
    "options", "description", "csv_bytes", "keys_out_of_graph", "obs_time_column_id",
    "null_targets", "unlike_cells", "repeated", "stats", "latest_train_time", "label_window_us",
    "dropped_by_split", "unknown_key",
}  # fmt: skip


def database() -> dict[str, Any]:
    """`tiny` with descriptions, known_at of every kind, a hidden column and a task by category."""
    metadata = copy.deepcopy(METADATA)
    columns = metadata["tables"]["orders"]["columns"]
    columns["quantity"]["description"] = 'how "many"'
    columns["quantity"]["known_at"] = "at"
    columns["status"]["known_at"] = "+36 hours"
    metadata["tables"]["customers"]["columns"]["name"]["known_at"] = "never"
    metadata["tasks"]["churn"]["hidden_columns"] = ["customers.vip"]
    metadata["tasks"]["state"] = copy.deepcopy(metadata["tasks"]["churn"]) | {
        "query": """SELECT id, TIMESTAMP '1970-01-12' AS seen, CASE WHEN id < 5 THEN 'good' END
                    AS mood FROM customers""",
        "target_column": "mood",
        "target_stype": "categorical",
    }
    return metadata


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same database with Python's metadata.json, and with C's."""
    folder = tmp_path_factory.mktemp("stores")
    source = arrow_tables({"customers": CUSTOMERS, "orders": ORDERS})
    build(source, folder / "python.hw", database())
    finish, stream_columns = binding.Builder.finish, encode.stream_columns

    def named(table: Any) -> list[str]:
        """Key parts under the names of their columns, as a C program writes them."""
        columns = stream_columns(table)
        for place, name in enumerate(table.table.primary_key, int(table.temporal)):
            columns[place] = re.sub(r"s\d+$", f'"{name}"', columns[place])
        return columns

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding.Builder, "finish", lambda self, metadata: finish(self))
        patch.setattr(encode, "stream_columns", named)
        build(source, folder / "c.hw", database())
    return folder / "python.hw", folder / "c.hw"


def compare(ours: Any, other: Any, where: str = "") -> None:
    """That C says what Python says, and says it of everything but PYTHON_ONLY."""
    if isinstance(ours, dict) and isinstance(other, dict):
        if where.endswith(".stats"):
            # A task's columns have no cells, of which Python says nothing.
            other = {"count": 0, "nulls": 0} | other
        missing = {key for key in other if key not in ours}
        assert missing <= PYTHON_ONLY, where
        for key in ours:
            if key == "csv_bytes":
                assert ours[key] == 0
            elif key != "query" and key != "fingerprint":
                compare(ours[key], other[key], f"{where}.{key}")
    elif isinstance(ours, list):
        assert len(ours) == len(other), where
        for number, pair in enumerate(zip(ours, other, strict=True)):
            compare(*pair, f"{where}[{number}]")
    else:
        assert ours == other, where


def test_what_c_says_is_what_python_says(stores: tuple[Path, Path]) -> None:
    with Store(stores[0]) as python, Store(stores[1]) as ours:
        assert ours.metadata["tables"][1]["foreign_keys"][0]["dangling"] == 1
        assert ours.metadata["tasks"][0]["hidden_columns"] == ["customers.vip"]
        assert [c.get("known_at") for c in ours.metadata["columns"][1:8]] == [
            "never", None, None, None, "at", "+36 hours", None,
        ]  # fmt: skip
        compare(ours.metadata, python.metadata)


def test_all_other_bytes_are_the_same(stores: tuple[Path, Path]) -> None:
    builds = [next(path for path in store.iterdir() if path.is_dir()) for store in stores]
    files = [{p.relative_to(b): p for p in b.rglob("*.bin")} for b in builds]
    assert {*files[0]} == {*files[1]} and len(files[0]) == 2 + 1 + 3 + 3 + 2 + 1
    for name in files[0]:
        ours, other = (found[name].read_bytes() for found in files)
        # Both fingerprints, in headers, come from metadata.json too; schema.bin lists its checksum.
        if name.name != "schema.bin":
            assert ours[64:] == other[64:], name


def test_columns_and_categories_are_embedded_by_their_phrases(stores: tuple[Path, Path]) -> None:
    phrases = {
        "columns": [
            "id of customers", "name of customers", "vip of customers", "id of orders",
            "customer_id of orders", 'quantity of orders: how "many"', "status of orders",
            "at of orders", "obs_time of churn", "churned of churn", "obs_time of state",
            "mood of state",
        ],
        "categories": ["status is open", "status is paid", "mood is good"],
        "texts": ["Ann", "Bob", "Eve", ""],
    }  # fmt: skip
    with Store(stores[1]) as store:
        for kind, texts in phrases.items():
            vectors = store.core.vectors(binding.EMBEDDING_KINDS[kind])
            assert vectors.shape == (len(texts), 256)
            np.testing.assert_array_equal(vectors, binding.hash_embed(texts, 256), kind)


def test_every_command_takes_a_store_that_c_described(
    stores: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(stores[1])
    for command in (
        ["inspect", path], ["inspect", path, "orders"], ["inspect", path, "churn"],
        ["sample", path, "--task", "churn"], ["verify", path], ["audit", path],
    ):  # fmt: skip
        assert main(command) == 0, (command, capsys.readouterr())
    assert "as CSV" not in capsys.readouterr().out


def test_both_stores_give_the_same_batches(stores: tuple[Path, Path]) -> None:
    batches = []
    for path in stores:
        with headwater.Sampler(db_path=path, default_sequence_length=64) as sampler:
            batches.append([dict(batch) for batch in sampler.epoch("train")])
    assert len(batches[0]) > 0
    for ours, other in zip(*batches, strict=True):
        assert {*ours} == {*other}
        for name in ours:
            np.testing.assert_array_equal(ours[name], other[name], name)


# ---- what Python cannot use ----------------------------------------------------------------------


def document(stores: tuple[Path, Path]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(stores[1].glob("*/metadata.json")).read_bytes())
    return found


def faults(found: Any, **changes: int) -> list[str]:
    counts = {"table_count": 2, "column_count": 12, "task_count": 3} | changes
    return metadata_faults(json.dumps(found).encode(), counts)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda d: d.clear(), "metadata.json lacks 'name'"),
        (lambda d: d["tables"][1].pop("row_range"), "metadata.json lacks 'tables[1].row_range'"),
        (
            lambda d: d["tables"][0].update(null_time="later"),
            "metadata.json has \"later\" in 'tables[0].null_time', expected 'visible' or 'hidden'",
        ),
        (
            lambda d: d["tasks"][2]["seeds"].update(val=True),
            "metadata.json has true in 'tasks[2].seeds.val', expected a count",
        ),
        (lambda d: d["columns"].pop(), "metadata.json lists 11 columns, the store has 12"),
        (
            lambda d: d["columns"][6]["stats"].pop("categories"),
            "metadata.json lacks 'columns[6].stats.categories'",
        ),
        (lambda d: d.update(format_version=1), "metadata.json has format_version 1, expected 2"),
        (
            lambda d: d.update(tables={}),
            "metadata.json has {} in 'tables', expected a list",
        ),
    ],
)
def test_a_document_that_python_cannot_use_is_a_fault(
    stores: tuple[Path, Path], change: Any, fault: str
) -> None:
    found = document(stores)
    assert faults(found) == []
    change(found)
    assert fault in faults(found)


def test_what_is_no_object_is_a_fault(stores: tuple[Path, Path]) -> None:
    assert faults([]) == ["metadata.json has [] in '', expected an object"]
    (fault,) = metadata_faults(b"\xff", {})
    assert fault.startswith("metadata.json is not JSON: ")


def test_verify_names_an_empty_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`{}` was sound for `verify`, and the sampler said what it lacks."""
    builder = binding.Builder(tmp_path / "work", name="bare", stats_until_us=2**63 - 1)
    builder.add_table("t")
    builder.add_column(0, "n", stype=binding.SEMANTIC_TYPES["numerical"])

    builder.write_rows(0, pa.table({"n": [1.0, 2.0]}).to_reader())
    builder.finish(b"{}")
    builder.publish(tmp_path / "bare.hw")
    builder.close()
    assert main(["verify", str(tmp_path / "bare.hw")]) == 1
    said = capsys.readouterr().out
    assert "metadata.json lacks 'tables'" in said and "sound" not in said
    assert "metadata.json lacks 'columns'" in Store(tmp_path / "bare.hw").verify()


def test_a_store_whose_folder_is_gone_is_verified_as_it_is_open(tmp_path: Path) -> None:
    with Store(write_tiny(tmp_path)) as store:
        assert store.verify() == []
        (tmp_path / "tiny.hw").rename(tmp_path / "away")
        assert store.verify() == []
