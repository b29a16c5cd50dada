"""The shop of the demo: its size, its sameness, and a cause that lies in the relations."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import duckdb
import pyarrow
import pytest
from headwater import shop

EXAMPLE = Path(__file__).parents[3] / "examples" / "shop"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    shop.generate(path)
    return path


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_the_shop_has_about_a_hundred_thousand_rows(database: Path) -> None:
    tables = [
        str(row[0])
        for row in rows_of(database, "SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    counts = [rows_of(database, f"SELECT count(*) FROM {table}")[0][0] for table in tables]
    assert len(tables) == 8
    assert 90_000 < sum(int(str(count)) for count in counts) < 110_000


def test_keys_of_the_shop_hold(database: Path) -> None:
    assert rows_of(database, "PRAGMA foreign_key_check") == []


def test_a_seed_gives_the_same_shop_and_another_seed_another(tmp_path: Path) -> None:
    dumps = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shop.generate(tmp_path / name, seed=seed, customers=50, products=30)
        connection = sqlite3.connect(tmp_path / name)
        dumps.append("\n".join(connection.iterdump()))
        connection.close()
    assert dumps[0] == dumps[1] != dumps[2]


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="customers is 0"):
        shop.generate(tmp_path / "shop", customers=0)
    (tmp_path / "there").touch()
    with pytest.raises(FileExistsError):
        shop.generate(tmp_path / "there")


def test_the_query_of_the_metadata_is_the_query_of_the_example() -> None:
    metadata = json.loads((EXAMPLE / "shop.json").read_text())
    assert metadata["tasks"]["churn"]["query"] == (EXAMPLE / "churn.sql").read_text()


def test_the_metadata_lists_every_column_in_order(database: Path) -> None:
    metadata = json.loads((EXAMPLE / "shop.json").read_text())
    for table, about in metadata["tables"].items():
        columns = [row[1] for row in rows_of(database, f"PRAGMA table_info({table})")]
        assert list(about["columns"]) == columns


def test_churn_follows_the_line_of_the_products_but_not_the_region(database: Path) -> None:
    """Share that stays away, by line of the last products and by region of the customer."""
    connection = duckdb.connect()
    for table in ("customers", "products", "orders", "order_items"):
        about = rows_of(database, f"PRAGMA table_info({table})")
        columns = ", ".join(f"{column[1]} {column[2]}" for column in about)
        cells = zip(*rows_of(database, f"SELECT * FROM {table}"), strict=True)
        names = [column[1] for column in about]
        connection.register("cells", pyarrow.table([list(column) for column in cells], names))
        connection.execute(f"CREATE TABLE {table} ({columns})")
        connection.execute(f"INSERT INTO {table} SELECT * FROM cells")
    connection.execute(f"CREATE TABLE seeds AS {(EXAMPLE / 'churn.sql').read_text()}")
    sizes = dict(connection.execute("SELECT split, count(*) FROM seeds GROUP BY 1").fetchall())
    assert 6000 < sizes["train"] < 12000 and sizes["val"] > 1000 and sizes["test"] > 1000

    def spread(column: str) -> float:
        low, high = connection.execute(f"""
            SELECT min(share), max(share) FROM (
                SELECT {column}, avg(churned::INT) AS share FROM seeds
                JOIN customers USING (customer_id) JOIN orders USING (customer_id)
                JOIN order_items USING (order_id) JOIN products USING (product_id)
                WHERE orders.ordered_at > seeds.obs_time - INTERVAL 25 DAY
                  AND orders.ordered_at <= seeds.obs_time
                GROUP BY 1)""").fetchall()[0]
        return float(high - low)

    assert spread("products.line") > 0.35
    assert spread("customers.region") < 0.06
