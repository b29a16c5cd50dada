"""A loss that is not finite names the column whose values are the largest of the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from headwater import SemanticType
from headwater.shared import CELL_BITS
from small import SMALL, opened_tasks

import confluence
from confluence.config import preset
from confluence.data.stores import Mixture
from confluence.training import session
from confluence.training.largest_values import describe_largest
from confluence.training.step import NonFiniteLossError

REST = {name: value for name, value in SMALL.items() if name != "preset"}
CFG = preset("tiny", **REST, batch_size=8)
MENDS = 'Add values that stand for none to its "null_values"'


def test_the_column_of_the_largest_value_is_named(shop_store: Path) -> None:
    with opened_tasks(shop_store, ["rating"], CFG, num_prefetch=0) as stores:
        mixture = Mixture(stores)
        batches = [mixture.next_batch() for _ in range(3)]
        (again,) = mixture.again(range(1, 2))  # the second one, wherever the stream stands
        assert np.array_equal(again[0]["cell_values"], batches[1][0]["cell_values"])
        arrays = {name: np.array(array) for name, array in batches[1][0].items()}
        usual = describe_largest([(arrays, 0)], stores, CFG)
        assert usual.startswith("no value of the batch is large (at most ")
        cells, values = arrays["cells"][0], arrays["cell_values"][0].view(np.float32)
        flags = CELL_BITS["is_null"] | CELL_BITS["is_target"] | CELL_BITS["is_padding"]
        is_number = (cells & CELL_BITS["semantic_type"]) == SemanticType.NUMERICAL
        place = int(np.flatnonzero(is_number & (cells & flags == 0))[0])
        column = stores[0].metadata["columns"][int(arrays["cell_columns"][0, place])]
        values[place] = -3e30
        text = describe_largest([(arrays, 0)], stores, CFG)
        assert f"the values of {column['table']}.{column['name']} are to blame" in text
        assert "one is 3e+30 deviations from the mean" in text and MENDS in text
        values[int(arrays["context_targets"][0, 2])] = np.inf
        text = describe_largest([batches[0], (arrays, 0)], stores, CFG)
        assert "rating, the target, are to blame, of which one is inf deviations" in text


def test_a_training_names_it(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "loss is nan at step 1 (train batch 0)", and no column."""

    def spoiled(self: Any, state: Any, *others: Any) -> Any:  # which compiles nothing
        nan = jnp.float32(np.nan)
        return state, {"loss": nan, "gradient_norm": nan, "learning_rate": jnp.float32(3e-4)}

    monkeypatch.setattr(session.StepRunner, "step", spoiled)
    settings = {**SMALL, "batch_size": 8, "steps": 2, "max_hops": 1, "label_rows": 0}
    with pytest.raises(NonFiniteLossError) as caught:
        confluence.train(shop_store, task="rating", out=tmp_path / "run", trees=False, **settings)
    begin, _, cause = str(caught.value).partition(": ")
    assert begin.startswith("loss is nan at step 1 (train batch 0), gradient norm nan")
    assert cause.startswith("no value of the batch is large (at most ")
