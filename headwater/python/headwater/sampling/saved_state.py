"""Whether a saved state may be loaded: what a sampler and a seed pool have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.sampling.sampler_options import whole


def check_saved(state: Any, made: Mapping[str, Any], kind: str) -> None:
    """Raise unless `state` may be loaded where state_dict() gives `made`.

    TypeError for no dict; ValueError that names every option of another value, the store, the
    version, or what is missing. kind: whose state, for messages.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is {state!r}, expected the dict of state_dict()")
    if state.get("version") != made["version"]:
        raise ValueError(
            f"the state has version {state.get('version')!r}, expected {made['version']}"
        )
    missing = [name for name in made if name not in state]
    if missing:
        raise ValueError(f"the state is not whole: it lacks '{missing[0]}'")
    if not isinstance(state["options"], Mapping):
        raise ValueError(f"the state is not whole: 'options' is {state['options']!r}")
    faults = []
    if state["fingerprint"] != made["fingerprint"]:
        faults.append(f"store {state['fingerprint']} is now {made['fingerprint']}")
    saved, options = state["options"], made["options"]
    for name in sorted({*saved, *options}):
        before, now = saved.get(name), options.get(name)
        if before != now:
            faults.append(f"{name} was {before!r} and is {now!r}")
    if faults:
        raise ValueError(f"the state is of another {kind}: " + "; ".join(faults))


def natural(name: str, value: Any, most: int = 2**64 - 1) -> int:
    """A number of a saved state, from 0; ValueError that names it."""
    if not 0 <= whole(name, value) <= most:
        raise ValueError(f"the state is not whole: '{name}' is {value}, expected 0 to {most}")
    return int(value)
