"""Foreign keys are told apart by their names: who of two sides is which, in any store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from small import write_sqlite

from confluence.config import Config
from confluence.data.tasks import device_tables, open_sampler, to_device
from confluence.data.verification import open_store
from confluence.model.transformer import Params, forward, init

CFG = Config(
    width=16, heads=2, layers=2, sequence_length=32, max_rows=8, max_hops=1, batch_size=8,
    compute_dtype="float32", num_prefetch=0, split_ratios=(0.8, 0.1, 0.1),
)  # fmt: skip
MATCHES, SIDES = 60, 9
TEXT_WIDTH = 256  # of names that nobody embeds otherwise


def write_store(folder: Path, *, first: str = "home", exchanged: bool = False) -> Path:
    """Matches of two sides with a skill each; `first`: the side whose column, and key, is first.

    Args:
        exchanged: each match has the sides of the other one's key.
    """
    rng = np.random.default_rng(0)
    folder.mkdir()
    skills = rng.normal(size=SIDES).tolist()
    pairs = [rng.permutation(SIDES)[:2].tolist() for _ in range(MATCHES)]
    names = ["home", "away"] if first == "home" else ["away", "home"]
    rows = []
    for number, (home, away) in enumerate(pairs):
        sides = {"home": away, "away": home} if exchanged else {"home": home, "away": away}
        rows.append((number, *(sides[name] for name in names), number % 2))
    source = write_sqlite(
        folder / "sides.sqlite",
        {
            "sides": ("id INTEGER PRIMARY KEY, skill REAL", list(enumerate(skills))),
            "matches": (f"id INTEGER PRIMARY KEY, {names[0]} INT, {names[1]} INT, won INT", rows),
        },
    )
    key = {"stype": "identifier", "foreign_key": "sides.id"}
    metadata = {
        "name": "sides",
        "tables": {
            "sides": {
                "primary_key": "id",
                "columns": {"id": {"stype": "identifier"}, "skill": {"stype": "numerical"}},
            },
            "matches": {
                "primary_key": "id",
                "columns": {
                    "id": {"stype": "identifier"}, **{name: key for name in names},
                    "won": {"stype": "boolean"},
                },
            },
        },
        "tasks": {"won": {
            "query": "SELECT id, won FROM matches", "anchor_table": "matches",
            "target_column": "won", "target_stype": "boolean",
        }},
    }  # fmt: skip
    headwater.build(source, folder / "store", metadata=metadata)
    return folder / "store"


def random_params() -> Params:
    """Of the model of any of these stores."""
    params = init(jax.random.key(0), CFG, TEXT_WIDTH)
    draws = np.random.default_rng(5)
    return {n: jnp.asarray(v + 0.2 * draws.normal(size=v.shape), "f4") for n, v in params.items()}


def answers(store: Path, *, named: bool = True) -> NDArray[Any]:
    """The logits of all seeds, in their order; not `named`: all foreign keys have one name."""
    with open_sampler(open_store(store), CFG, "won") as sampler:
        tables = device_tables(sampler, 1)
        if not named:
            tables = tables._replace(keys=jnp.broadcast_to(tables.keys[:1], tables.keys.shape))
        step = jax.jit(
            lambda arrays: forward(random_params(), arrays, tables, CFG, category_limit=1)
        )
        found = np.full(MATCHES, np.nan)
        for split in ("train", "val", "test"):
            for batch in sampler.epoch(split):
                count = int(batch["num_contexts"][0])
                seeds = batch.info["seed_index"][:count]
                found[seeds] = step(to_device(batch, tables.texts)).boolean[:count]
    assert np.isfinite(found).all()
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("sides") / "usual")


def test_weights_carry_over_to_a_store_with_its_keys_in_another_order(
    store: Path, tmp_path: Path
) -> None:
    other = write_store(tmp_path / "other", first="away")
    np.testing.assert_allclose(answers(other), answers(store), rtol=1e-5, atol=1e-5)


def test_two_sides_that_change_places_are_answered_otherwise(store: Path, tmp_path: Path) -> None:
    exchanged = write_store(tmp_path / "exchanged", exchanged=True)
    assert np.abs(answers(exchanged) - answers(store)).min() > 1e-4
    same = [answers(path, named=False) for path in (exchanged, store)]
    np.testing.assert_allclose(*same, rtol=1e-5, atol=1e-5)
