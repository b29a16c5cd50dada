"""docs/guides/graph-batch.md: its code runs, and makes each member of its table; by hand, of a
store of two cups on two shelves.

shelves (no time)  columns 0 to 5:   id, width, built, open, wood, name
cups (by at)       columns 6 to 13:  id, shelf_id, at, weight, washed, clean, colour, note

A context is a cup and its shelf, 14 cells in the order of the columns, cup first. All cells that
may be masked are, but only one of each type: those of the cup, at 3 to 7, so that the shelf is
shown.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import TinyTable, arrow_tables, sql_types, typed
from headwater import shop
from headwater.builder.build import build

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "guides" / "graph-batch.md").read_text(encoding="utf-8")
FUNCTIONS, OF_THE_SHOP = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MEMBERS = re.findall(r"^\| `(\w+)` \| \[(.*?)\] \|", PAGE, re.MULTILINE)
SHELVES = TinyTable(
    sql_types("id INTEGER, width DOUBLE, built TIMESTAMP, open BOOLEAN, wood TEXT, name TEXT"),
    [
        (1, 80.0, datetime(1970, 1, 3), True, "oak", "tall"),
        (2, 120.0, datetime(1970, 1, 5), None, "ash", "low"),
    ],
)
CUPS = TinyTable(
    sql_types(
        "id INTEGER, shelf_id INTEGER, at TIMESTAMP, weight DOUBLE, washed TIMESTAMP, "
        "clean BOOLEAN, colour TEXT, note TEXT"
    ),
    [
        (1, 1, datetime(1970, 1, 8), 1.0, datetime(1970, 1, 1, 6), True, "red", "chipped"),
        (2, 2, datetime(1970, 1, 9), 3.0, None, None, "blue", None),
    ],
)
METADATA: dict[str, Any] = {
    "name": "cupboard",
    "tables": {
        "shelves": {
            "primary_key": "id",
            "columns": typed(
                "id identifier, width numerical, built timestamp, open boolean, "
                "wood categorical, name text"
            ),
        },
        "cups": {
            "primary_key": "id",
            "temporal_column": "at",
            "columns": typed(
                "id identifier, shelf_id identifier shelves.id, at timestamp, weight numerical, "
                "washed timestamp, clean boolean, colour categorical, note text"
            ),
        },
    },
}
D_T = 4
D = 18 + 2 * D_T  # the weights below are the unit matrix
TYPES = np.array([0, 0, 2, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0])
# Of the times 2, 4, 7, 8 and 0.25 days the mean is 4.25 and the variance 42.75 / 5.
DAYS_STD = 8.55**0.5


def vectors(texts: list[str]) -> Any:
    """A vector of a text: its length, the place of its first letter and of its last, and 1. A build
    scales it to length 1."""
    of = [(len(t), ord(t[:1] or "`") - 96, ord(t[-1:] or "`") - 96, 1) for t in texts]
    return np.array(of, np.float16).reshape(len(texts), D_T)


def unit(*vector: float) -> list[float]:
    return [x / math.hypot(*vector) for x in vector]


def turn(share: float) -> tuple[float, float]:
    return math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)


Names = dict[str, Any]


@pytest.fixture(scope="module")
def functions() -> Names:
    names: Names = {}
    exec(compile(FUNCTIONS, "guides/graph-batch.md", "exec"), names)
    return names


@pytest.fixture(scope="module")
def made(functions: Names, tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The members for both cups, in order, and the tables of vectors."""
    path = tmp_path_factory.mktemp("cupboard") / "cupboard.hw"
    tables = arrow_tables({"shelves": SHELVES, "cups": CUPS})
    build(tables, path, METADATA, embedder=vectors, cache=False)
    with headwater.Sampler(
        path, objective="masked_cells", seed_tables=["cups"], mask_ratio=1.0,
        max_targets_per_type=1, split_ratios=(1.0, 0.0, 0.0), attention_masks=True,
        default_batch_size=2, default_sequence_length=16, max_hops=1,
    ) as sampler:  # fmt: skip
        (batch,) = sampler.epoch("train")
        columns, categories = sampler.column_embeddings(), sampler.categorical_embeddings()
    mask_vectors = 100.0 + np.arange(6)[:, None] * np.ones(D)
    found = functions["graph_batch"](batch, columns, categories, np.eye(D), mask_vectors)
    found |= found.pop("targets")
    order = np.argsort(batch.info["seed_index"])
    return {
        **{name: array[order] for name, array in found.items()},
        "columns": columns,
        "categories": categories,
    }


def test_each_member_of_the_table_is_made_with_its_shape(made: Names) -> None:
    sizes = {"B": 2, "S": 16, "M": 1, "D_t": D_T, "D": D, "15": 15}
    shapes = {name: tuple(sizes[d] for d in dims.split(", ")) for name, dims in MEMBERS}
    assert len(shapes) == 8 + 10
    tables = {"columns", "categories"}
    assert {name: a.shape for name, a in made.items() if name not in tables} == shapes
    kinds = {name: made[name].dtype.kind for name, _ in MEMBERS}
    for name, kind in kinds.items():
        is_flag = name.endswith(("mask", "positions")) or name == "boolean_values"
        expected = "b" if is_flag else "i" if name.endswith("indices") else "f"
        assert kind == ("u" if name == "cell_types" else expected), name


def test_cells_have_their_types_columns_and_padding(made: Names) -> None:
    for b in range(2):
        assert made["cell_types"][b].tolist() == TYPES.tolist()
        assert made["padding_mask"][b].nonzero()[0].tolist() == [14, 15]
        assert made["masked_positions"][b].nonzero()[0].tolist() == [3, 4, 5, 6, 7]
        expected = np.zeros((16, D_T), np.float16)
        expected[:14] = made["columns"][[6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5]]
        assert np.array_equal(made["column_embeddings"][b], expected)
        assert expected[:14].any(axis=1).all()


def test_masks_hide_what_is_not_joined(made: Names) -> None:
    cup, shelf = np.arange(16) < 8, (np.arange(16) >= 8) & (np.arange(16) < 14)
    same_row = cup[:, None] & cup | shelf[:, None] & shelf | np.eye(16, dtype=bool)
    other_row = cup[:, None] & shelf | shelf[:, None] & cup | np.eye(16, dtype=bool)
    for b in range(2):
        assert np.array_equal(made["feature_mask"][b], ~same_row)
        assert np.array_equal(made["neighbor_mask"][b], ~other_row)
        assert np.array_equal(made["column_mask"][b], ~np.eye(16, dtype=bool))


def test_features_are_the_values_of_the_cells_that_are_shown(made: Names) -> None:
    """Places: number 0, time 1 to 15, boolean 16, NULL 17, category 18 to 21, text 22 to 25."""
    expected = np.zeros((2, 16, D))
    midnight = (*turn(0), *turn(0), *turn(0))
    for b, (at, built) in enumerate([(8, 3), (9, 5)]):  # days of January, the 1st a Thursday
        for cell, day in ((2, at), (10, built)):
            date = (*turn((day + 2) % 7 / 7), *turn((day - 1) / 31), 0, 1, *turn((day - 1) / 366))
            expected[b, cell, 1:16] = (*midnight, *date, (day - 1 - 4.25) / DAYS_STD)
        expected[b, 3:8] = [[101], [102], [103], [104], [105]]
    expected[:, 9, 0] = -1, 1  # of 80 and 120 the mean is 100, the deviation 20
    expected[0, 11, 16] = 1
    expected[1, 11, 17] = 1
    ash, oak = 0, 1  # categories in the order of their columns, then of their values
    expected[:, 12, 18:22] = made["categories"][[oak, ash]]
    assert made["features"][..., :22] == pytest.approx(expected[..., :22], abs=1e-6)
    expected[:, 13, 22:] = unit(4, 20, 12, 1), unit(3, 12, 23, 1)  # "tall", "low"
    assert made["features"] == pytest.approx(expected, abs=1e-3)  # float16


def test_targets_are_the_values_of_the_masked_cells_but_for_null(made: Names) -> None:
    assert made["numerical_indices"].tolist() == [[3], [3]]
    assert made["numerical_values"].tolist() == [[-1], [1]]  # of 1 and 3
    assert made["timestamp_indices"].tolist() == [[4], [-1]]
    thursday, first = turn(3 / 7), (0, 1)
    washed = (0, 1, 0, 1, 1, 0, *thursday, *first, *first, *first, -4 / DAYS_STD)  # 6 o'clock
    assert made["timestamp_values"][0, 0] == pytest.approx(washed, abs=1e-6)
    assert made["boolean_indices"].tolist() == [[5], [-1]]
    assert made["boolean_values"][0].tolist() == [True]
    assert made["categorical_indices"].tolist() == [[6], [6]]
    blue, red = 2, 3
    assert np.array_equal(made["categorical_embeddings"][:, 0], made["categories"][[red, blue]])
    assert made["text_indices"].tolist() == [[7], [-1]]
    chipped = unit(7, 3, 4, 1)
    assert made["text_embeddings"][0, 0] == pytest.approx(chipped, abs=1e-3)  # float16
    for name in ("timestamp_values", "boolean_values", "text_embeddings"):
        assert not made[name][1].any(), name


def test_the_page_s_batch_of_the_shop_is_printed(
    functions: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.main([str(tmp_path / "shop.sqlite"), "--customers", "60"])
    metadata = ROOT / "examples" / "shop" / "shop.json"
    headwater.build(f"sqlite:///{tmp_path / 'shop.sqlite'}", tmp_path / "shop.store", metadata)
    capsys.readouterr()
    with contextlib.chdir(tmp_path):
        exec(compile(OF_THE_SHOP, "guides/graph-batch.md", "exec"), functions)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [name for name, _ in MEMBERS]
    assert printed[0] == "features float32 (32, 96, 64)"
