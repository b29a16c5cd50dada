"""Columns that foreign keys refer to are never masked, by C alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import TinyTable, arrow_tables, sql_types, typed
from headwater import binding
from headwater.builder.build import build
from natural_keys import write_ships

TRAIN = 0
SIZES: dict[str, Any] = {"max_rows": 16, "text_budget": 64, "num_prefetch": 0}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ships(tmp_path_factory.mktemp("ships"))


def masked_columns(store: headwater.Store, batch: Any) -> set[tuple[str, str]]:
    columns = batch["column_ids"][batch["is_target"] == 1].tolist()
    entries = (store.metadata["columns"][column] for column in columns)
    return {(entry["table"], entry["name"]) for entry in entries}


def test_both_ends_of_every_foreign_key_are_kept(path: Path) -> None:
    """Kept are code and number of countries, flag and line of ships and ports; of the others `id`
    is an identifier, and `built` the time of its row."""
    options: dict[str, Any] = {"objective": "masked_cells", "mask_ratio": 1.0, **SIZES}
    tables = ["countries", "ships", "ports"]
    with headwater.Sampler(path, seed_tables=tables, split_ratios=(1, 0, 0), **options) as sampler:
        found = set()
        for table in tables:
            for batch in sampler.epoch("train", table):
                found |= masked_columns(sampler.store, batch)
    assert found == {("countries", "area"), ("ships", "tons"), ("ports", "depth")}


def test_a_numerical_key_is_kept_where_one_refers_to_it(tmp_path: Path) -> None:
    """`line` of the second store is as in the first, but no key: it is masked, and so is number."""
    parents = TinyTable(sql_types("id INTEGER, number INTEGER"), [(1, 7), (2, 8)])
    children = TinyTable(sql_types("id INTEGER, parent INTEGER, line INTEGER"),
                         [(1, 1, 7), (2, 2, 8), (3, 1, 8)])  # fmt: skip
    found = []
    for reference in (" parents.number", ""):
        names = f"id identifier, parent identifier parents.id, line numerical{reference}"
        metadata = {
            "name": "numbers",
            "tables": {
                "parents": {
                    "primary_key": "id",
                    "columns": typed("id identifier, number numerical"),
                },
                "children": {"primary_key": "id", "columns": typed(names)},
            },
        }
        path = tmp_path / f"{len(found)}.hw"
        tables = arrow_tables({"parents": parents, "children": children})
        build(tables, path, metadata, embedder="hash", cache=False)
        options = {**SIZES, "objective": "masked_cells", "mask_ratio": 1.0}
        with headwater.Sampler(path, seed_tables=["children"], **options) as sampler:
            found.append({
                name for batch in sampler.epoch("train")
                for _, name in masked_columns(sampler.store, batch)
            })  # fmt: skip
    assert found == [set(), {"number", "line"}]


@pytest.mark.parametrize("objective", ["task", "masked_cells"])
@pytest.mark.parametrize("layout", ["dense", "compact", "flat"])
def test_c_alone_makes_the_batches_of_python(objective: str, layout: str, path: Path) -> None:
    """C gets options as numbers, and nothing that follows from metadata.json."""
    numbers = {
        "layout": ("dense", "compact", "flat").index(layout),
        "objective": ("task", "masked_cells").index(objective),
    }
    options: dict[str, Any] = {"mask_ratio": 0.4, **SIZES}
    compared = 0
    with (
        headwater.Sampler(path, layout=layout, objective=objective, **options) as sampler,
        headwater.Store(path) as store,
    ):
        alone = binding.Pass(binding.Sampler(store.core, **numbers, **options), TRAIN, 0, 2)
        for expected in sampler.epoch("train", "sinks", index=2):
            core = alone.next(None)
            assert core is not None
            arrays, info = core.arrays()
            assert arrays.keys() == expected.keys()
            for name, array in {**arrays, **info}.items():
                np.testing.assert_array_equal(array, expected[name], name)
                compared += 1
        assert alone.next(None) is None
    assert compared > 20
