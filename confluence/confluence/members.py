"""A run of several members: models that differ in their first weights, and answer together.

Of such a run (`members` = M > 1) every parameter and the optimizer's state have one more
axis in front, [M]. All members train on the same batches, one after the other in one compiled
step, so that memory beside the state is that of one. What is answered is the mean of their
probabilities, and of their numbers and times. A run of one member has no such axis.

Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive uncertainty
estimation using deep ensembles", is where averaging nets that differ by their start is from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from confluence.average import average_outputs
from confluence.config import Config
from confluence.model import Output, Params, init


def first_params(
    cfg: Config, text_width: int, first_biases: Mapping[str, float] | None = None
) -> Params:
    """First parameters of all members, from `cfg.seed`."""
    key = jax.random.key(cfg.seed)
    if cfg.members == 1:
        return init(key, cfg, text_width, first_biases)
    keys = [jax.random.fold_in(key, member) for member in range(cfg.members)]
    each = [init(key, cfg, text_width, first_biases) for key in keys]
    return {name: jnp.stack([params[name] for params in each]) for name in each[0]}


def each_member(function: Callable[..., Any], cfg: Config) -> Callable[..., Any]:
    """A function of one member's parameters and more → of all members', one after the other;
    its results are stacked on a first axis."""
    if cfg.members == 1:
        return function
    return lambda params, *more: jax.lax.map(lambda own: function(own, *more), params)


def one_output(output: Output, cfg: Config) -> Output:
    """What the members say together, on the host."""
    if cfg.members == 1:
        return output
    return average_outputs([Output(*parts) for parts in zip(*output, strict=True)])
