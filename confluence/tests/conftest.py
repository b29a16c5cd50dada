"""Fixtures: a tiny configuration, and one small store of a made-up shop, shared by all tests."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
import pytest
from headwater import shop
from rank_processes import Ranks
from xla_flags import FLAGS, known_flags

from confluence.config import Config

# Tests spend their time in the compiler: it works less hard (by half) with these flags, and what it
# made is shared with the processes that tests start. JAX reads these when it is first imported.
COMPILED = tempfile.mkdtemp(prefix="confluence-tests-")
atexit.register(shutil.rmtree, COMPILED, ignore_errors=True)
LEFT_OUT: list[str] = []
if "XLA_FLAGS" not in os.environ:  # workers of pytest-xdist inherit it
    KNOWN = known_flags(FLAGS)
    LEFT_OUT += [flag for flag in FLAGS if flag not in KNOWN]
    os.environ["XLA_FLAGS"] = " ".join(KNOWN)
os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

ROOT = Path(__file__).resolve().parents[2]
SHOP_METADATA = ROOT / "examples" / "shop" / "shop.json"
CUSTOMERS = 250

TWICE = "(SELECT unnest([TIMESTAMP '2024-09-01', TIMESTAMP '2025-09-01']) AS obs_time)"
TASKS: dict[str, dict[str, Any]] = {
    # The answer stands in the anchor's own row, so a few steps learn it.
    "subscribed": {
        "query": f"""SELECT customer_id, obs_time, newsletter AS subscribed
                     FROM customers CROSS JOIN {TWICE} WHERE signed_up_on < obs_time""",
        "anchor_table": "customers", "target_column": "subscribed", "target_stype": "boolean",
        "observation_time_column": "obs_time",
    },
    "next_order": {
        "query": f"""SELECT customer_id, obs_time, min(ordered_at) AS next_order
                     FROM orders CROSS JOIN {TWICE} WHERE ordered_at > obs_time GROUP BY 1, 2""",
        "anchor_table": "customers", "target_column": "next_order", "target_stype": "timestamp",
        "observation_time_column": "obs_time", "label_window": "180 days",
    },
    "device": {
        "query": "SELECT visit_id, visited_at, device FROM visits",
        "anchor_table": "visits", "target_column": "device", "target_stype": "categorical",
        "observation_time_column": "visited_at",
    },
    "rating": {
        "query": "SELECT review_id, written_at, rating FROM reviews",
        "anchor_table": "reviews", "target_column": "rating", "target_stype": "numerical",
        "observation_time_column": "written_at", "hidden_columns": ["reviews.body"],
    },
}  # fmt: skip


def pytest_report_header() -> list[str]:
    """Name the flags that tests do without."""
    return [f"XLA does not know the flag {flag}: left out" for flag in LEFT_OUT]


@pytest.fixture
def cfg() -> Config:
    return Config(
        width=16, heads=2, layers=2, sequence_length=32, max_rows=10, batch_size=4, steps=100,
        compute_dtype="float32",
    )  # fmt: skip


@pytest.fixture(scope="session")
def shop_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of a small shop."""
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    shop.generate(path, customers=CUSTOMERS, products=60)
    return path


@pytest.fixture(scope="session")
def shop_store(shop_database: Path) -> Path:
    """A store of the small shop: the question of the example, and one task of each type."""
    metadata = json.loads(SHOP_METADATA.read_text(encoding="utf-8"))
    metadata["tasks"].update(TASKS)
    path = shop_database.parent / "store"
    headwater.build(f"sqlite:///{shop_database}", path, metadata=metadata)
    return path


@pytest.fixture(scope="session")
def other_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop of other customers, under another name."""
    folder = tmp_path_factory.mktemp("other")
    shop.generate(folder / "shop.sqlite", customers=120, products=30)
    metadata = json.loads(SHOP_METADATA.read_text(encoding="utf-8"))
    metadata["name"] = "other"
    headwater.build(f"sqlite:///{folder / 'shop.sqlite'}", folder / "store", metadata=metadata)
    return folder / "store"


@pytest.fixture
def no_openmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine without GCC's OpenMP library, on which LightGBM is installed and does not load: the
    message about it."""
    package = tmp_path / "no_openmp" / "lightgbm"
    package.mkdir(parents=True)
    found = "libgomp.so.1: cannot open shared object file: No such file or directory"
    (package / "__init__.py").write_text(f"raise OSError({found!r})\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.syspath_prepend(package.parent)
    return (
        f"LightGBM cannot be loaded ({found}): install GCC's OpenMP library (Debian and Ubuntu:"
        " apt-get install libgomp1)"
    )


@pytest.fixture
def started() -> Iterator[list[Ranks]]:
    """To put ranks in that end with the test, whatever comes of it."""
    ranks: list[Ranks] = []
    yield ranks
    for some in ranks:
        some.end()
