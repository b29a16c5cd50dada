"""A shop whose customers are asked about again and again, and the label rows of their contexts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from plain_database import BOOLEAN, TEST, TRAIN, VAL, Database, Key, Options, Seed, Task
from world_store import Arrays, epoch_of, open_sampler, write_store
from worlds import at, table

OPTIONS = Options(sequence_length=128, max_rows=24, batch_size=8, recent=True, peer_labels=9)
# Global rows: the cities, the customers, the orders.
NORTH, SOUTH, ANN, BOB, CID, DAN, BOBS, ANNS, DANS, BOBS_LATE = range(10)
ROW_OF_TASK = 2**32 - 1
# By (customer, day): what is known when. That of cid's day 4 is a val seed's.
SEEDS = (
    Seed(0, at(1), True, split=TRAIN, known=at(2)),
    Seed(0, at(20), True, split=TEST, known=at(30)),
    Seed(1, at(1), True, split=TRAIN, known=at(3)),
    Seed(1, at(5), None, split=TRAIN, known=at(9)),
    Seed(2, at(2), False, split=TRAIN, known=at(3)),
    Seed(2, at(4), True, split=VAL, known=at(6)),
    Seed(3, at(6), True, split=TRAIN, known=at(8)),
    Seed(3, at(25), False, split=TRAIN, known=at(26)),
)
# Peers of ann's seed of day 20, by (known, stored): days 2 (her own), 3, 3, 8 and 9.
PEERS = [(15.0, None, BOB), (14.0, True, DAN), (18.0, False, CID), (19.0, True, BOB)]
CID_4 = (16.0, True, CID)
Label = tuple[float, bool | None, int | None]


def shop(
    seeds: tuple[Seed, ...] = SEEDS, friends: tuple[int | None, ...] = (None,) * 4, **task: Any
) -> Database:
    """Cities, customers who live in one and may have a friend, and their orders.

    Columns: cities 0; customers 1 id, 2 city, 3 friend, 4 name; orders 5 id, 6 customer, 7 placed;
    the task's 8 obs_time, 9 target. Ann and dan live in the north, bob and cid in the south.
    """
    cities = table("cities", "city_id identifier", [(True,), (True,)])
    names = ("ann", "bob", "cid", "dan")
    customers = table(
        "customers",
        "customer_id identifier, city_id identifier, friend_id identifier, name text",
        [(True, True, friend is not None or None, name)
         for friend, name in zip(friends, names, strict=True)],
        (Key(("city_id",), "cities", (0, 1, 1, 0)), Key(("friend_id",), "customers", friends)),
    )  # fmt: skip
    orders = table(
        "orders",
        "order_id identifier, customer_id identifier, placed timestamp",
        [(True, True, at(day)) for day in (1, 2, 3, 21)],
        (Key(("customer_id",), "customers", (1, 0, 3, 1)),),
        "placed",
    )
    asked = Task("t", "customers", "t", BOOLEAN, seeds, **{"label_times": True, **task})
    return Database("shop", (cities, customers, orders), (asked,))


def changed(i: int, seeds: tuple[Seed, ...] = SEEDS, **change: Any) -> tuple[Seed, ...]:
    """The same seeds but for one."""
    return (*seeds[:i], replace(seeds[i], **change), *seeds[i + 1 :])


def contexts_of(
    database: Database,
    folder: Path,
    seed: int,
    split: int,
    options: Options = OPTIONS,
    epochs: int = 1,
    **more: Any,
) -> list[Arrays]:
    """The batches of a split's epochs, of which only the sequence of one seed is kept."""
    path = folder / "world.hw"
    if not path.exists():
        write_store(database, folder)
    found = []
    with open_sampler(path, database, options, text_budget=99, **more) as sampler:
        for epoch in range(epochs):
            (batch,) = epoch_of(sampler, split, 0, epoch)
            (b,) = np.flatnonzero(batch["seed_index"][: batch["num_sequences"][0]] == seed)
            found.append({name: array[b] for name, array in batch.items() if len(array) == 8})
    return found


def context_of(database: Database, folder: Path, *args: Any, **more: Any) -> Arrays:
    (context,) = contexts_of(database, folder, *args, **more)
    return context


def links_of(context: Arrays, row: int) -> list[int]:
    if "fk_adj" in context:
        return [int(place) for place in context["fk_adj"][row].nonzero()[0]]
    return [int(place) for place in context["parents"][row] if place != 65535]


def labels_of(context: Arrays) -> list[Label]:
    """Age, answer and anchor of each label row, in order; None: not in the context."""
    found: list[Label] = []
    for row in range(1, int(context["num_rows"])):
        if context["row_tables"][row] != 65535:
            continue
        assert context["row_ids"][row] == ROW_OF_TASK
        assert context["row_depths"][row] == 2
        linked = links_of(context, row)
        start = int(context["row_starts"][row])
        if context["row_starts"][row + 1] - start == 2:
            assert context["column_ids"][start : start + 2].tolist() == [8, 9]
            assert not context["is_target"][start : start + 2].any()
        answer = None if context["is_null"][start + 1] else bool(context["bool_values"][start + 1])
        anchor = int(context["row_ids"][linked[0]]) if linked else None
        found.append((float(context["row_ages"][row]), answer, anchor))
    return found


def rows_of(context: Arrays) -> list[int]:
    return list(context["row_ids"][: int(context["num_rows"])].tolist())
