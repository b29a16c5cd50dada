"""Options of the sampler follow from one table: a row is an option wherever options are named."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import headwater
import pytest
from headwater.binding import constants
from headwater.binding.options import OPTIONS, Option, option_fields
from headwater.sampler_options import OWN, choices, help_text, meaning, members, signature
from tiny_store import write_tiny

ROOT = Path(__file__).resolve().parents[3]
SHARD = Option(
    "shard", constants.HW_OPTION_WORD, 9_000, 1, (0.0,), 0, 1, ("fixed", "dealt"), True,
    "whether a rank keeps its seeds",
)  # fmt: skip
BEAMS = Option(
    "beams", constants.HW_OPTION_UINT32, 9_008, 1, (0.0,), 2, 99, (), False,
    "walks of each seed; by default chosen",
)  # fmt: skip
MORE = {**OPTIONS, "shard": SHARD, "beams": BEAMS}


def test_a_new_row_is_an_option_everywhere() -> None:
    made = signature(MORE)
    assert (made.parameters["shard"].default, made.parameters["beams"].default) == ("fixed", None)
    assert 'shard: "fixed" or "dealt": whether a rank keeps its seeds.' in help_text(MORE)
    given = made.bind("a store", shard="dealt")
    given.apply_defaults()
    found = members(given.arguments, MORE)
    assert (found["shard"], found["beams"]) == (1, 0)
    with pytest.raises(ValueError, match="shard is 'dealed', expected"):
        members({**given.arguments, "shard": "dealed"}, MORE)
    with pytest.raises(ValueError, match="beams is 1, expected 2 to 99"):
        members({**given.arguments, "beams": 1}, MORE)
    assert choices(MORE)["shard"].option.decides_contexts


def test_the_signature_holds_every_option_once() -> None:
    names = list(inspect.signature(headwater.Sampler).parameters)
    assert names[:4] == ["db_path", "rank", "world_size", "split_ratios"]
    assert sorted(names) == sorted({*OWN, *choices()})
    for name in names:
        assert f"\n    {name}: " in str(headwater.Sampler.__doc__)


def test_the_library_is_asked_for_the_same_defaults(tmp_path: Path) -> None:
    """What a sampler of defaults tells of itself is what the table says."""
    with headwater.Sampler(write_tiny(tmp_path)) as sampler:
        options = sampler.state_dict()["options"]
        assert sampler.shape["batch_size"] == OPTIONS["batch_size"].standard[0]
        assert sampler.shape["sequence_length"] == OPTIONS["sequence_length"].standard[0]
    for name, choice in choices().items():
        assert (name in options or name == "text_budget") == choice.option.decides_contexts, name
    assert option_fields() == OPTIONS


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"default_batch_size": 0}, "default_batch_size is 0, expected 1 to 65536"),
        ({"bfs_child_width": 5000}, "bfs_child_width is 5000, expected 1 to 4096"),
        ({"max_rows": 1}, "max_rows is 1, expected 2 to 65535"),
        ({"num_prefetch": -1}, "num_prefetch is -1, expected at least 0"),
        ({"world_size": 0}, "world_size is 0, expected at least 1"),
        ({"mask_ratio": 1.5}, "mask_ratio is 1.5, expected 0 to 1"),
    ],
)
def test_values_out_of_their_range_are_named_as_they_were_given(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        headwater.Sampler(write_tiny(tmp_path), **given)


def test_a_name_that_is_no_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'child_with'"):
        headwater.Sampler(write_tiny(tmp_path), child_with=3)


def test_the_document_lists_the_options_as_the_table_does() -> None:
    rows = [
        f"| `{name}` | {choice.default} | {'yes' if choice.option.decides_contexts else ''} | "
        f"{meaning(choice)} |"
        for name, choice in choices().items()
    ]
    text = (ROOT / "docs" / "2-sampling.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in text, "\n".join(rows)
