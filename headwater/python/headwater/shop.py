"""A shop to try things on: about 100,000 rows in eight tables of one SQLite file.

    python -m headwater.shop shop.sqlite [--seed N] [--customers N]

What happens in it is invented, but it happens for a reason, and the reason lies in the relations.
A product is good or bad. Half of that is its line, a quarter its supplier, and a quarter is its own
and written nowhere. A customer whose last two orders held good products orders again within six
weeks; one who got bad ones stays away for months, and some close their account:

    line ------+
    supplier --+-> product ---> order_items ---> orders ---> customer: will they come back?
    (hidden) --+      |
                      +---> returns and reviews by the others who bought the same thing

No column of the customer says anything about it, and neither do counts of orders: what has to be
read are the products bought, and what other customers made of them. `examples/shop/churn.sql` asks
the question. Three columns know the answer because they are filled in later, and would give it away
to whoever ignored `known_at` in `examples/shop/shop.json`: `customers.closed_at`,
`orders.points_redeemed_at` (the points of an order are redeemed with the next) and
`order_items.returned`.

NULLs, free text, two self-references (a category's parent, who recommended the shop to whom), a
composite key, and dates as well as times occur on purpose. Everything is drawn from the seed by
`random.Random.random`, whose results Python guarantees: the same rows on any machine.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from headwater.files import check_output

__all__ = ["ROWS_PER_CUSTOMER", "generate"]

START = datetime(2024, 1, 1)
DAYS = 730.0  # from START to the end of the recording
ROWS_PER_CUSTOMER = 20  # roughly, to choose `customers` by

SOON_DAYS = (20.0, 45.0)  # a contented customer's next order
LATE_DAYS = (72.0, 190.0)  # a disappointed customer's, if there is one
CLOSING_SHARE = 0.2  # of disappointed customers
PULL = 5.0  # how much quality decides, in logits
LEANING = 0.35  # towards coming back when the goods were average, in logits

SCHEMA = """
CREATE TABLE categories (
    category_id INTEGER PRIMARY KEY, parent_category INTEGER REFERENCES categories (category_id),
    name VARCHAR NOT NULL);
CREATE TABLE suppliers (
    supplier_id INTEGER PRIMARY KEY, name VARCHAR NOT NULL, country VARCHAR NOT NULL,
    audit_score DOUBLE);
CREATE TABLE products (
    product_id INTEGER PRIMARY KEY, category_id INTEGER NOT NULL REFERENCES categories,
    supplier_id INTEGER REFERENCES suppliers, name VARCHAR NOT NULL, line VARCHAR NOT NULL,
    price DOUBLE NOT NULL, weight_kg DOUBLE, introduced_on DATE NOT NULL);
CREATE TABLE customers (
    customer_id INTEGER PRIMARY KEY, signed_up_on DATE NOT NULL, region VARCHAR NOT NULL,
    birth_year INTEGER, newsletter BOOLEAN NOT NULL,
    recommended_by INTEGER REFERENCES customers (customer_id), closed_at TIMESTAMP);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers,
    ordered_at TIMESTAMP NOT NULL, channel VARCHAR NOT NULL, shipping DOUBLE NOT NULL,
    points_redeemed_at TIMESTAMP);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders, line_no INTEGER NOT NULL,
    customer_id INTEGER NOT NULL REFERENCES customers,
    product_id INTEGER NOT NULL REFERENCES products, ordered_at TIMESTAMP NOT NULL,
    quantity INTEGER NOT NULL, unit_price DOUBLE NOT NULL, returned BOOLEAN NOT NULL,
    returned_at TIMESTAMP, PRIMARY KEY (order_id, line_no));
CREATE TABLE reviews (
    review_id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES products,
    customer_id INTEGER NOT NULL REFERENCES customers, written_at TIMESTAMP NOT NULL,
    rating INTEGER, body VARCHAR);
CREATE TABLE visits (
    visit_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers,
    product_id INTEGER REFERENCES products, visited_at TIMESTAMP NOT NULL,
    device VARCHAR NOT NULL, seconds DOUBLE);
"""

DEPARTMENTS = {
    "Kitchen": ("Pans", "Knives", "Kettles", "Storage jars"),
    "Garden": ("Hand tools", "Planters", "Hoses", "Lanterns"),
    "Office": ("Pens", "Notebooks", "Desk lamps", "Chairs"),
    "Travel": ("Backpacks", "Bottles", "Rain wear", "Adapters"),
    "Bath": ("Towels", "Scales", "Mirrors", "Hooks"),
}
LINES = (
    "Aster",
    "Birch",
    "Cobalt",
    "Dune",
    "Ember",
    "Fjord",
    "Grove",
    "Harbor",
    "Indigo",
    "Juniper",
)
COUNTRIES = ("PT", "DE", "PL", "IT", "VN", "TR", "SE", "IN")
REGIONS = ("north", "east", "south", "west", "islands")
CHANNELS = ("web", "app", "phone")
DEVICES = ("phone", "tablet", "desktop")
PRAISE = (
    "works exactly as described",
    "sturdy and well made",
    "would buy it again",
    "my favourite purchase this year",
    "better than the old one",
    "a pleasure to use",
)
BLAME = (
    "broke within a week",
    "arrived scratched",
    "not worth the money",
    "feels flimsy",
    "stopped working already",
    "had to send it back",
)
SMALL_TALK = (
    "delivery took a few days",
    "the colour is darker than in the picture",
    "bought as a present",
    "the box was larger than expected",
    "second one we own",
    "comes without instructions",
)
Item = TypeVar("Item")


class Dice(random.Random):
    """Draws made of `random()` alone, the one method whose results are promised to stay."""

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.random() * len(items))]

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def normal(self) -> float:
        return math.sqrt(-2 * math.log(1 - self.random())) * math.cos(2 * math.pi * self.random())

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1 - self.random())


@dataclass
class Shop:
    """Rows as they will be inserted, and what the generator knows beyond them."""

    rows: dict[str, list[tuple[Any, ...]]] = field(
        default_factory=lambda: {table: [] for table in re.findall(r"CREATE TABLE (\w+)", SCHEMA)}
    )
    quality: list[float] = field(default_factory=list)  # of product i + 1, about N(0, 1)
    introduced: list[float] = field(default_factory=list)  # day of product i + 1, ascending

    def add(self, table: str, *row: Any) -> None:
        self.rows[table].append(row)


def generate(
    path: str | os.PathLike[str], *, seed: int = 0, customers: int = 5000, products: int = 600
) -> dict[str, int]:
    """Writes the shop to a new SQLite file; returns the number of rows by table.

    Raises ValueError for counts below 1 and FileExistsError where `path` exists.
    """
    if customers < 1 or products < 1:
        raise ValueError(
            f"customers is {customers} and products is {products}, expected at least 1"
        )
    check_output(path, "out")
    dice = Dice(seed)
    shop = Shop()
    add_products(shop, dice, products)
    for customer_id in range(1, customers + 1):
        add_customer(shop, dice, customer_id, customers)
    number_by_time(shop)
    write(path, shop)
    return {table: len(rows) for table, rows in shop.rows.items()}


def add_products(shop: Shop, dice: Dice, count: int) -> None:
    leaves: list[int] = []
    for department, names in DEPARTMENTS.items():
        parent = len(shop.rows["categories"]) + 1
        shop.add("categories", parent, None, department)
        for leaf, name in enumerate(names, parent + 1):
            shop.add("categories", leaf, parent, name)
            leaves.append(leaf)
    # Half of the lines are good; which ones is drawn.
    line_quality = {line: 0.75 for line in LINES}
    while sum(value < 0 for value in line_quality.values()) < len(LINES) // 2:
        line_quality[dice.pick(LINES)] = -0.75
    supplier_quality = []
    for supplier_id in range(1, 41):
        supplier_quality.append(0.5 * dice.normal())
        score = 70 + 20 * supplier_quality[-1] + 4 * dice.normal()
        name = f"{dice.pick(LINES)[:3]}{dice.pick(('tex', 'works', 'ware', 'ply'))} {supplier_id}"
        country, audited = dice.pick(COUNTRIES), not dice.chance(0.15)
        shop.add("suppliers", supplier_id, name, country, round(score, 1) if audited else None)
    shop.introduced = sorted(max(0.0, dice.between(-DAYS, DAYS - 60)) for _ in range(count))
    for product_id in range(1, count + 1):
        line = dice.pick(LINES)
        supplier = None if dice.chance(0.05) else 1 + int(dice.random() * len(supplier_quality))
        category = dice.pick(leaves)
        shop.quality.append(
            line_quality[line]
            + (supplier_quality[supplier - 1] if supplier else 0.0)
            + 0.5 * dice.normal()
        )
        introduced = START.date() + timedelta(days=int(shop.introduced[product_id - 1]))
        noun = shop.rows["categories"][category - 1][2].lower()
        name = f"{line} {noun} {dice.pick('ABCDEFGH')}{100 + int(dice.random() * 900)}"
        price = round(math.exp(dice.between(1.5, 5)), 2)
        weight = None if dice.chance(0.2) else round(dice.exponential(2) + 0.05, 2)
        shop.add("products", product_id, category, supplier, name, line, price, weight, introduced)


def add_customer(shop: Shop, dice: Dice, customer_id: int, customers: int) -> None:
    """One customer's whole life: signing up, orders as long as they come back, visits, closing."""
    # Sign-ups are spread evenly; customers are numbered in the order in which they signed up.
    signed_up = (customer_id - 1 + dice.random()) / customers * (DAYS - 30)
    closed = add_orders(shop, dice, customer_id, int(signed_up) + 1 + dice.exponential(4))
    day = signed_up + dice.exponential(60)
    while day < min(closed, DAYS):
        product = None if dice.chance(0.3) else product_on_sale(shop, dice, day)
        device = dice.pick(DEVICES)
        seconds = None if dice.chance(0.1) else round(dice.exponential(90), 1)
        shop.add("visits", 0, customer_id, product, moment(day), device, seconds)
        day += dice.exponential(60)
    recommended_by = 1 + int(dice.random() * (customer_id - 1)) if customer_id > 1 else None
    region = dice.pick(REGIONS)
    born = None if dice.chance(0.25) else 1940 + int(dice.random() * 66)
    newsletter = dice.chance(0.4)
    friend = recommended_by if dice.chance(0.4) else None
    closed_at = moment(closed) if closed < DAYS else None
    joined = moment(signed_up).date()
    shop.add("customers", customer_id, joined, region, born, newsletter, friend, closed_at)


def add_orders(shop: Shop, dice: Dice, customer_id: int, first_day: float) -> float:
    """Returns the day on which the account is closed, infinity if it never is."""
    day, before = first_day, 0.0
    while day < DAYS:
        bought = [product_on_sale(shop, dice, day) for _ in range(1 + int(dice.exponential(1.2)))]
        bought = bought[:5]
        quality = sum(shop.quality[product - 1] for product in bought) / len(bought)
        content = PULL * (0.75 * quality + 0.25 * before) + LEANING
        returns = dice.chance(1 / (1 + math.exp(-content)))
        next_day = day + dice.between(*(SOON_DAYS if returns else LATE_DAYS))
        closes = not returns and dice.chance(CLOSING_SHARE)
        redeemed = moment(next_day) if next_day < DAYS and not closes else None
        # An order's number is its place by time, known only at the end: a stand-in until then.
        stand_in = len(shop.rows["orders"])
        channel, shipping = dice.pick(CHANNELS), dice.pick((0.0, 3.9, 4.9, 7.9))
        shop.add("orders", stand_in, customer_id, moment(day), channel, shipping, redeemed)
        for line_no, product in enumerate(bought, 1):
            add_item(shop, dice, (stand_in, line_no, customer_id, product), day)
        if closes:
            return day + dice.between(15, 60)
        day, before = next_day, quality
    return math.inf


def add_item(shop: Shop, dice: Dice, key: tuple[int, int, int, int], day: float) -> None:
    """A line of an order, and whether it is sent back or reviewed, by the quality of the thing."""
    product = key[3]
    liked = shop.quality[product - 1] + 0.5 * dice.normal()
    returned = day + dice.between(3, 20) if dice.chance(1 / (1 + math.exp(3 + 2 * liked))) else DAYS
    price = shop.rows["products"][product - 1][5]
    quantity = 1 + int(dice.exponential(0.6))
    paid = round(price * dice.pick((1.0, 1.0, 1.0, 0.9)), 2)
    sent_back = moment(returned) if returned < DAYS else None
    shop.add("order_items", *key, moment(day), quantity, paid, returned < DAYS, sent_back)
    written = day + dice.between(4, 40)
    if dice.chance(0.3) and written < DAYS:
        stars = min(5, max(1, round(3.2 + 1.3 * liked)))
        said = dice.pick(PRAISE if liked > 0 else BLAME)
        body = f"{said}, {dice.pick(SMALL_TALK)}" if dice.chance(0.5) else said
        rating = None if dice.chance(0.08) else stars
        shown = None if dice.chance(0.3) else body
        shop.add("reviews", 0, product, key[2], moment(written), rating, shown)


def product_on_sale(shop: Shop, dice: Dice, day: float) -> int:
    """A product introduced before the day; some are bought far more often than others."""
    count = 0
    for step in (512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        while count + step <= len(shop.introduced) and shop.introduced[count + step - 1] <= day - 1:
            count += step
    return 1 + int(dice.random() ** 1.5 * max(1, count))


def moment(day: float) -> datetime:
    return START + timedelta(seconds=int(day * 86400))


def number_by_time(shop: Shop) -> None:
    """Gives orders, reviews and visits their numbers in order of time, as a shop would."""
    orders = sorted(shop.rows["orders"], key=lambda row: (row[2], row[0]))
    number = {row[0]: order_id for order_id, row in enumerate(orders, 1)}
    shop.rows["orders"] = [(number[row[0]], *row[1:]) for row in orders]
    shop.rows["order_items"] = sorted(
        (number[row[0]], *row[1:]) for row in shop.rows["order_items"]
    )
    for table in ("reviews", "visits"):
        rows = sorted(shop.rows[table], key=lambda row: (row[3], row[1]))
        shop.rows[table] = [(i, *row[1:]) for i, row in enumerate(rows, 1)]


def write(path: str | os.PathLike[str], shop: Shop) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.executescript(SCHEMA)
        for table, rows in shop.rows.items():
            places = ", ".join("?" * len(rows[0])) if rows else "NULL"
            # Dates and times as ISO text, as SQLite keeps them.
            plain = ([str(v) if isinstance(v, date) else v for v in row] for row in rows)
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", plain)
        connection.commit()
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m headwater.shop", description="Writes a made-up shop to a SQLite file."
    )
    parser.add_argument("out", help="the file to write; it must not exist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--customers", type=int, default=5000, help=f"about {ROWS_PER_CUSTOMER} rows each"
    )
    options = parser.parse_args(arguments)
    try:
        counts = generate(options.out, seed=options.seed, customers=options.customers)
    except (ValueError, OSError, sqlite3.Error) as error:
        raise SystemExit(f"headwater.shop: {error}") from None
    print(f"{options.out}: {sum(counts.values())} rows in {len(counts)} tables")
    for table, count in counts.items():
        print(f"  {table:<12} {count:>8}")


if __name__ == "__main__":
    main()
