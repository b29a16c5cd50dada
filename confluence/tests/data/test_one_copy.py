"""One copy to the device gives the arrays that a copy of each would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from confluence.config import Config
from confluence.data.one_copy import put_whole
from confluence.data.tasks import open_sampler, to_device
from confluence.data.verification import open_store
from confluence.data.whole_batch import WholeBatch
from confluence.packs.pack import KeptBatches


@pytest.mark.parametrize("auxiliary_weight", [0.0, 0.5])
def test_one_copy_brings_every_array_of_a_batch_bit_for_bit(
    auxiliary_weight: float, shop_store: Path, cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = cfg.replace(auxiliary_weight=auxiliary_weight, width=64)
    kept = KeptBatches()
    with open_sampler(open_store(shop_store), cfg, "next_order", text_mode="batch") as sampler:
        batch = sampler.next_train_batch()
    kept.append(batch)
    expected = to_device(batch)
    copies: list[Any] = []
    put = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda value: copies.append(value) or put(value))
    found = to_device(kept[0])
    assert [copy.dtype for copy in copies] == [np.uint8]
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.asarray(found[name]).tobytes() == np.asarray(array).tobytes(), name
    assert {array.dtype.name for array in found.values()} >= {
        "uint8", "uint16", "float16", "int32", "uint32", "float32"
    }  # fmt: skip


def test_arrays_of_the_host_stay_there(shop_store: Path, cfg: Config) -> None:
    kept = KeptBatches()
    with open_sampler(open_store(shop_store), cfg, "subscribed") as sampler:
        kept.append(sampler.next_train_batch())
    batch = kept[0]
    assert isinstance(batch, WholeBatch)
    assert [*put_whole(batch, ["cells", "obs_time"])] == ["cells"]
    assert batch["obs_time"].dtype == np.int64  # read as ever
