"""How well masked cells of contexts that were not trained on are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from confluence.config import Config
from confluence.data.tasks import to_device
from confluence.model.expand import Inputs, as_flat
from confluence.model.masked_loss import MASKED_TYPES, context_means, masked_losses
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Params, Tables, read_context
from confluence.training.step import batch_shape, compiled_by_shape

Sums = dict[str, float]  # of losses and counts, by name


class HeldOut:
    """The compiled loss of masked cells, summed over the contexts of a split."""

    def __init__(self, cfg: Config, tables: Tables, *, row_shape: RowShape | None = None) -> None:
        def losses(params: Params, batch: Inputs, tables: Tables) -> dict[str, Array]:
            flat = as_flat(batch)
            h = read_context(params, flat, tables, cfg, row_shape=row_shape, everywhere=True)
            sums, counts = masked_losses(params, h, flat, tables, cfg)
            means, is_masked = context_means(sums, counts)
            found = {"loss": jnp.sum(means * is_masked), "contexts": jnp.sum(is_masked)}
            for name, value in sums.items():
                found[f"{name} loss"] = jnp.sum(value)
                found[f"{name} cells"] = jnp.sum(counts[name])
            return found

        self._losses: Any = jax.jit(losses)
        self._tables = tables

    def sums(
        self, params: Params, sampler: Any, split: str, *,
        watched: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    ) -> Sums:  # fmt: skip
        """Losses and counts over the contexts of a split, by a rank's sampler of its own share.

        The contexts and their masks are those of epoch 0.

        Args:
            watched: the batches as they are, told of one by one (`Group.watched`).
        """
        totals: Sums = {}
        batches = sampler.epoch(split) if sampler.num_seeds(split) else ()
        with compiled_by_shape(self._losses, "losses of masked cells") as seen:
            for batch in watched(batches):
                seen.add(batch_shape(batch))
                inputs = to_device(batch, self._tables.texts)
                found = jax.device_get(self._losses(params, inputs, self._tables))
                for name, value in found.items():
                    totals[name] = totals.get(name, 0.0) + float(np.float64(value))
        return totals


def evaluate_held_out(
    stores: Sequence[tuple[str, Sums]], split: str, visible_until: str | None = None,
    gather: Callable[[Sums], list[Sums]] = lambda own: [own],
) -> dict[str, Any]:  # fmt: skip
    """The mean loss of a split's contexts, as in training, and the mean by type over cells, as
    metrics of one evaluation. None where there is none.

    Args:
        visible_until: of the split's contexts; None: they are rolling.
        stores: their paths, and the sums of each (`HeldOut.sums`). Of several the contexts of all
            count alike, and "stores" has the same of each.
        gather: of the sums over this rank's contexts, those of all ranks.
    """
    sums = [(path, _added(gather(own))) for path, own in stores]
    result = {
        "objective": "masked_cells", "split": split,
        "regime": "rolling" if visible_until is None else "frozen",
        "visible_until": visible_until, **_means(_added([own for _, own in sums]))
    }  # fmt: skip
    if len(sums) > 1:
        result["stores"] = [{"store": path, **_means(own)} for path, own in sums]
    return result


def _added(parts: Sequence[Sums]) -> Sums:
    return {name: sum(part.get(name, 0.0) for part in parts) for part in parts for name in part}


def _means(sums: Sums) -> dict[str, Any]:
    types = {}
    for stype in MASKED_TYPES:
        name = stype.name.lower()
        cells = int(sums.get(f"{name} cells", 0))
        types[name] = {"cells": cells, "loss": _mean(sums.get(f"{name} loss", 0.0), cells)}
    contexts = int(sums.get("contexts", 0))
    return {"contexts": contexts, "loss": _mean(sums.get("loss", 0.0), contexts), "types": types}


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
