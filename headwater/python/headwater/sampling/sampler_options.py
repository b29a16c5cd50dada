"""Options of `Sampler`: what each is called, takes and means, by the library's table of them.

The table of headwater.h (`hw_option_field_at`) is the only place that lists them: the
signature and the help of `Sampler`, the checks, the struct that C gets and what a saved state holds
follow from it. What Python has in another form than C stands here: names instead of numbers, times
of any kind, None where C chooses.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater import binding
from headwater.binding.options import NAMES, OPTIONS, Option, in_python
from headwater.errors import brief, named, nearest
from headwater.store.row_keys import NO_TIME_US, Time, time_us
from headwater.store.store import word

MAX_THREADS = 16
MASK_RATIO = 0.15  # of the objective masked_cells, where none is given
UNSEEN = ("staleness_zero_share",)  # set with another
DOCS = {  # of those that Python takes in another form
    "max_hops": "most hops from the anchor to a row; None: no limit",
    "num_threads": "threads of the sampler's own that make batches; None: all samplers of the"
    " process share as many as there are usable cores, at most 16; with local_world_size above 1:"
    " its own, usable cores / local_world_size",
    "staleness": "(p0, days): a train seed sees less by a gap of up to so many days, of none with"
    ' probability p0 (docs/reference/sampling.md, "Staleness"); None: no gap',
    "tasks": "which tasks of the store, by name; None: all",
    "task_weights": "how often each task has its turn, by name, or a list in the order of `tasks`,"
    " or of the store without; None: equally often",
    "seed_tables": "with masked cells: the rows of these tables, each at its own time, are the"
    " seeds; functions that take a task then take a table",
    "time_split": "(at, until): deals the seeds of train anew, for a backtest: train are those"
    " whose label is known by `at`, val those asked from then on and before `until`, and the others"
    ' are in no split (docs/reference/sampling.md, "Splits by time")',
    "layout": "arrays that are ready to compute with; at most a fifth as large, which"
    ' `headwater.expand` makes dense; or without padding (docs/reference/batch.md, "Flat")',
    "visible_until": "a time, or one per split in a dict: nothing later is ever shown",
}
CHOSEN = ("staleness", "mask_ratio")  # None is another default than C's 0
POSITIONAL = (
    "rank", "world_size", "split_ratios", "split_seed", "seed", "num_prefetch",
    "default_batch_size", "default_sequence_length", "bfs_child_width", "task_weights",
)  # fmt: skip
# What the front takes besides: where the store is, and how many share the machine.
OWN: dict[str, tuple[Any, str]] = {
    "db_path": (None, "a store directory"),
    "store": (None, "an open `Store`, which several samplers may share, instead of db_path"),
    "local_world_size": (1, "processes on this machine, which share its cores"),
    "load": ("mmap", "of db_path, as of `Store`: mmap or ram"),
    "verify": (
        "once",
        "of db_path, as of `Store`: once, header or full; a damaged store is a StoreError",
    ),
}
Table = Mapping[str, Option]


@dataclass(frozen=True)
class Choice:
    """An option as `Sampler` takes it."""

    name: str
    default: Any
    option: Option


def choices(table: Table = OPTIONS) -> dict[str, Choice]:
    """The options of a table by their names in Python."""
    found = {}
    for option in table.values():
        if option.name not in UNSEEN:
            name = NAMES.get(option.name, option.name)
            found[name] = Choice(name, _default(name, option), option)
    return found


def _default(name: str, option: Option) -> Any:
    if option.is_list or name in CHOSEN or _is_chosen(option):
        return None
    if option.words:
        standard = option.words[int(option.standard[0])]
        return None if standard == "default" else standard
    if option.type == binding.header.HW_OPTION_FLAG:
        return bool(option.standard[0])
    if option.type == binding.header.HW_OPTION_DOUBLE:
        return option.standard if option.count > 1 else option.standard[0]
    return int(option.standard[0])


def _is_chosen(option: Option) -> bool:
    """Whether C chooses a value, and has a default below the least for that."""
    return not option.is_list and option.standard[0] < option.least


# ---- signature and help ------------------------------------------------------------------------


def signature(table: Table = OPTIONS) -> inspect.Signature:
    """Of `Sampler`: db_path and those of seed 000 by position, the others by name."""
    defaults = {name: default for name, (default, _) in OWN.items()}
    defaults |= {name: choice.default for name, choice in choices(table).items()}
    order = ["db_path", *POSITIONAL]
    order += [name for name in defaults if name not in order]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[place > len(POSITIONAL)], default=defaults[name])
            for place, name in enumerate(order)
        ]
    )


def bound(positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """All options by name, with their defaults; TypeError for one that there is not."""
    made = signature()
    strange = next((name for name in named if name not in made.parameters), None)
    if strange is not None:
        hint = f", did you mean '{NAMES[strange]}'?" if strange in NAMES else ""
        hint = hint or nearest(strange, made.parameters)
        raise TypeError(f"a sampler has no option '{strange}'{hint}")
    try:
        arguments = made.bind(*positional, **named)
    except TypeError as error:
        raise TypeError(f"Sampler(): {error}") from None
    arguments.apply_defaults()
    return arguments.arguments


def help_text(table: Table = OPTIONS) -> str:
    """What each option means, a paragraph for each."""
    docs = {name: doc for name, (_, doc) in OWN.items()}
    docs |= {name: meaning(choice) for name, choice in choices(table).items()}
    wrap = textwrap.TextWrapper(92, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(wrap.fill(f"{name}: {doc}.") for name, doc in docs.items())


def meaning(choice: Choice) -> str:
    """Which words an option takes, and what it means."""
    words = [f'"{one}"' for one in choice.option.words if one != "default"]
    doc = DOCS.get(choice.name, in_python(choice.option.doc))
    return f"{', '.join(words)}: {doc}" if words else doc


# ---- checks, and what C gets -------------------------------------------------------------------


def members(given: Mapping[str, Any], table: Table = OPTIONS) -> dict[str, Any]:
    """What hw_sampler_options holds of options; those of the front itself are left alone."""
    found: dict[str, Any] = {}
    for name, choice in choices(table).items():
        read = READERS.get(name, functools.partial(_plain, choice))
        with named(name, given[name]):
            found[choice.option.name] = read(given[name])
    shares = found["staleness_max_days"]
    found["staleness_zero_share"], found["staleness_max_days"] = shares
    return found


def _plain(choice: Choice, value: Any) -> Any:
    option = choice.option
    if option.is_list:
        return value
    if value is None and choice.default is None:
        return int(option.standard[0])
    if option.words:
        return word(choice.name, value, {one: i for i, one in enumerate(option.words)})
    if option.type == binding.header.HW_OPTION_FLAG:
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{choice.name} is {brief(value)}, expected True or False")
        return bool(value)
    number = _number(choice, value)
    if not option.least <= number <= option.most or number == 2**64:
        expected = f"{option.least:g} to {_most(option)}"
        raise ValueError(f"{choice.name} is {brief(value)}, expected {expected}")
    return number


def _number(choice: Choice, value: Any) -> int | float:
    if choice.option.type == binding.header.HW_OPTION_DOUBLE:
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise ValueError(f"{choice.name} is {brief(value)}, expected a number")
        return float(value)
    return whole(choice.name, value)


def _most(option: Option) -> str:
    whole = {2.0**64: 2**64 - 1}.get(option.most, option.most)
    return str(whole if isinstance(whole, int) else f"{whole:.10g}")


def whole(name: str, value: Any) -> int:
    """A whole number; ValueError with the option's name."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {brief(value)}, expected a whole number") from None


def deciding(found: Mapping[str, Any], table: Table = OPTIONS) -> dict[str, Any]:
    """The options that decide contexts, as JSON has them, by what `members` made of them."""
    return {
        name: _kept(choice, found)
        for name, choice in choices(table).items()
        if choice.option.decides_contexts
    }


def _kept(choice: Choice, found: Mapping[str, Any]) -> Any:
    option, value = choice.option, found[choice.option.name]
    if choice.name == "staleness":
        return [found["staleness_zero_share"], value] if value else None
    if choice.name == "max_hops":
        return value - 1 if value else None
    if option.words:
        word = option.words[value]
        return None if word == "default" else word
    if _is_chosen(option) and value == option.standard[0]:
        return None
    return list(value) if isinstance(value, tuple) else value


def split_ratios_of(given: Iterable[float]) -> tuple[float, ...]:
    ratios = tuple(float(ratio) for ratio in given)
    if len(ratios) != 3:
        raise ValueError(f"split_ratios has {len(ratios)} entries, expected 3: train, val, test")
    for split, ratio in zip(binding.SPLITS, ratios, strict=True):
        if not 0 <= ratio <= 1:
            raise ValueError(f"split_ratios: '{split}' is {ratio:g}, expected 0 to 1")
    return ratios


def split_number(split: str) -> int:
    return word("split", split, binding.SPLITS)


def thread_count(num_threads: int | None, local_world_size: int) -> int | None:
    """How many threads a sampler has of its own; None: it shares those of its process."""
    if num_threads is not None:
        return whole("num_threads", num_threads)
    if whole("local_world_size", local_world_size) < 1:
        raise ValueError(f"local_world_size is {local_world_size}, expected at least 1")
    if local_world_size == 1:
        return None
    return min(max(len(os.sched_getaffinity(0)) // local_world_size, 1), MAX_THREADS)


def hop_limit(max_hops: int | None) -> int:
    """C has 0 for no limit, and else 1 more."""
    limit = 0 if max_hops is None else whole("max_hops", max_hops) + 1
    if not (max_hops is None or 1 <= limit < 2**32):
        raise ValueError(f"max_hops is {brief(max_hops)}, expected 0 to {2**32 - 2}")
    return limit


def staleness_days(given: tuple[float, float] | None) -> tuple[float, float]:
    if given is None:
        return 0, 0
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"staleness is {given!r}, expected (probability of no gap, longest days)")
    share, days = float(given[0]), float(given[1])
    if not 0 <= share <= 1:
        raise ValueError(f"staleness: the probability of no gap is {share:g}, expected 0 to 1")
    most = OPTIONS["staleness_max_days"].most
    if not 0 < days <= most:
        raise ValueError(
            f"staleness: the longest gap is {days:g} days, expected more than 0, at most {most:g}"
        )
    return share, days


def time_split_us(given: tuple[Time, Time] | None) -> tuple[int, int] | None:
    if given is None:
        return None
    if isinstance(given, str) or len(given) != 2:
        raise ValueError(f"time_split is {given!r}, expected (at, until)")
    at, until = (time_us(time) for time in given)
    if at >= until:
        raise ValueError(f"time_split is {given!r}, expected a time and a later one")
    return at, until


def visible_until_us(given: Time | Mapping[str, Time | None] | None) -> tuple[int, int, int]:
    """visible_until by split, in microseconds."""
    by_split = given if isinstance(given, Mapping) else dict.fromkeys(binding.SPLITS, given)
    strange = set(by_split) - set(binding.SPLITS)
    if strange:
        raise ValueError(f"visible_until names {sorted(strange)}, expected {list(binding.SPLITS)}")
    times = [by_split.get(split) for split in binding.SPLITS]
    train, val, test = (NO_TIME_US if time is None else time_us(time) for time in times)
    return train, val, test


READERS: dict[str, Callable[[Any], Any]] = {
    "split_ratios": split_ratios_of,
    "max_hops": hop_limit,
    "staleness": staleness_days,
    "time_split": time_split_us,
    "visible_until": visible_until_us,
}
