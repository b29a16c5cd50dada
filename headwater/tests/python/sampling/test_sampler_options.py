"""Options of the sampler follow from one table: a row is an option wherever options are named."""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from headwater.binding import header
from headwater.binding.options import OPTIONS, Option
from headwater.sampling.sampler_options import (
    OWN,
    choices,
    deciding,
    help_text,
    meaning,
    members,
    signature,
)
from tiny_store import DAY_US, write_tiny

ROOT = Path(__file__).resolve().parents[4]
WINDS = Option(
    "winds", header.HW_OPTION_WORD, 9_000, 1, (0.0,), 0, 1, ("calm", "gusty"), True,
    "whether walks are blown about",
)  # fmt: skip
BEAMS = Option(
    "beams", header.HW_OPTION_UINT32, 9_008, 1, (0.0,), 2, 99, (), False,
    "walks of each seed; by default chosen",
)  # fmt: skip
DECIDE = {
    "split_ratios", "split_seed", "seed", "default_sequence_length", "max_rows", "bfs_child_width",
    "max_hops", "child_width_per", "child_order", "identifier_cells", "context_labels",
    "task_order", "tasks", "task_weights", "visible_until", "packing", "staleness", "child_counts",
    "label_rows", "time_split", "train_on_val", "objective", "mask_ratio", "seed_tables",
    "max_targets_per_type", "peer_labels", "shard", "cell_dropout", "context_length",
    "max_context_rows",
}  # fmt: skip
MORE = {**OPTIONS, "winds": WINDS, "beams": BEAMS}


def test_a_new_row_is_in_the_signature_the_help_the_checks_and_the_state() -> None:
    made = signature(MORE)
    assert (made.parameters["winds"].default, made.parameters["beams"].default) == ("calm", None)
    assert 'winds: "calm", "gusty": whether walks are blown about.' in help_text(MORE)
    given = made.bind("a store", winds="gusty")
    given.apply_defaults()
    found = members(given.arguments, MORE)
    assert (found["winds"], found["beams"]) == (1, 0)
    with pytest.raises(ValueError, match="winds is 'gusted', expected"):
        members({**given.arguments, "winds": "gusted"}, MORE)
    with pytest.raises(ValueError, match="beams is 1, expected 2 to 99"):
        members({**given.arguments, "beams": 1}, MORE)
    kept = deciding(found, MORE)
    assert kept["winds"] == "gusty" and "beams" not in kept


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
        of_packing = {"context_length", "max_context_rows"}
        assert set(options) == {*DECIDE - of_packing, "texts_per_sequence", "world_size"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"default_batch_size": 0}, "default_batch_size is 0, expected 1 to 65536"),
        ({"bfs_child_width": 5000}, "bfs_child_width is 5000, expected 1 to 4096"),
        ({"max_rows": 1}, "max_rows is 1, expected 2 to 65535"),
        ({"num_prefetch": -1}, "num_prefetch is -1, expected 0 to 1024"),
        ({"world_size": 0}, "world_size is 0, expected 1 to 4294967295"),
        ({"mask_ratio": 1.5}, "mask_ratio is 1.5, expected 0 to 1"),
        ({"mask_ratio": "0.1"}, "mask_ratio is '0.1', expected a number"),
        ({"seed": 2**64}, "seed is 18446744073709551616, expected 0 to 18446744073709551615"),
        ({"num_threads": 0}, "num_threads is 0, expected 1 to 256"),
        ({"max_hops": 2**32}, "max_hops is 4294967296, expected 0 to 4294967294"),
        ({"default_batch_size": 4.0}, "default_batch_size is 4.0, expected a whole number"),
        ({"split_ratios": (0.5, -0.1, 0.6)}, "split_ratios: 'val' is -0.1, expected 0 to 1"),
        ({"split_ratios": (0, 0, 0)}, "split_ratios sum to 0, expected 1"),
        ({"split_ratios": 0.8}, "split_ratios is 0.8: 'float' object is not iterable"),
        ({"rank": -1}, "rank is -1, expected 0 to 4294967295"),
        ({"child_order": ["recent"]}, "child_order is ['recent'], expected one of 'uniform'"),
        ({"tasks": 3}, "tasks is 3: "),
        ({"tasks": ["churn", 3]}, "tasks is ['churn', 3]: the task is 3, expected its name"),
        ({"visible_until": "soon"}, "visible_until is 'soon': 'soon' is not an ISO 8601 time"),
        ({"visible_until": 1.5}, "visible_until is 1.5: expected a time"),
        ({"contexts_per_batch": 3}, "3, without packing it is default_batch_size"),
        (
            {"max_rows": 65_535, "bfs_child_width": 4096, "default_sequence_length": 65_535},
            "and bfs_child_width 4096 needs more than 2147483648 bytes of scratch for each thread:"
            " lower max_rows or bfs_child_width",
        ),
        (
            {"default_batch_size": 65_536, "default_sequence_length": 65_535, "max_rows": 65_535},
            "lower default_batch_size, default_sequence_length, max_rows or text_budget",
        ),
        ({"max_targets_per_type": 2000, "mask_ratio": 0.1}, "at most default_sequence_length"),
        ({"packing": "false"}, "packing is 'false', expected True or False"),
        ({"child_counts": math.nan}, "child_counts is nan, expected True or False"),
        ({"train_on_val": 1}, "train_on_val is 1, expected True or False"),
        ({"with_rows": None}, "with_rows is None, expected True or False"),
        ({"attention_masks": np.array(False)}, "attention_masks is array(False), expected True or"),
        ({"mask_ratio": 10**400}, "mask_ratio is 1000"),
        ({"seed": 10**400}, "seed is 1000"),
        ({"seed": 10**5000}, "seed is a whole number of 5000 digits, expected 0 to"),
        ({"split_ratios": (10**400, 0, 0)}, "split_ratios is (1000"),
        ({"staleness": (0.5, 10**400)}, "staleness is (0.5, 1000"),
        ({"task_weights": [10**400, 1]}, "task_weights is [1000"),
        ({"visible_until": 10**400}, "visible_until is 1000"),
        ({"local_world_size": -(10**400)}, "local_world_size is -1000"),
        ({"task_weights": [1.0]}, "is [1.0]: expected one for each of ['churn', 'quantity'], in"),
        ({"task_weights": [1.0, -1.0]}, "task_weights is [1.0, -1.0]: expected 0 to 1e+12"),
    ],
)
def test_values_out_of_their_range_are_named_as_they_were_given(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        headwater.Sampler(write_tiny(tmp_path), **given)


def test_a_name_that_is_no_option_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    for name, meant in (("max_row", "max_rows"), ("batch_size", "default_batch_size")):
        with pytest.raises(TypeError, match=f"no option '{name}', did you mean '{meant}'"):
            headwater.Sampler(path, **{name: 3})


def test_a_state_is_the_same_for_the_same_values_and_json(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    given: dict[str, Any] = {
        "child_counts": np.True_, "seed": np.int64(7), "max_hops": np.int32(2), "packing": False,
        "split_ratios": (share for share in (0.5, 0.25, 0.25)), "context_labels": "default",
        "task_weights": {"churn": np.float32(1), "quantity": 2},
        "label_rows": np.int64(2), "default_sequence_length": np.int32(64), "max_rows": np.uint(16),
        "visible_until": np.int64(9 * DAY_US), "staleness": (np.float32(0.5), np.int64(3)),
    }  # fmt: skip
    plain: dict[str, Any] = {
        "child_counts": True, "seed": 7, "max_hops": 2, "split_ratios": (0.5, 0.25, 0.25),
        "task_weights": {"churn": 1.0, "quantity": 2.0},
        "label_rows": 2, "default_sequence_length": 64, "max_rows": 16,
        "visible_until": 9 * DAY_US, "staleness": (0.5, 3.0),
    }  # fmt: skip
    with headwater.Sampler(path, **given) as one, headwater.Sampler(path, **plain) as other:
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        assert one.state_dict() == other.state_dict()
        state = other.state_dict()
        state["streams"]["train"] = {
            "positions": {"churn": np.uint64(64), "quantity": np.int32(32)}, "batches": np.int64(3),
        }  # fmt: skip
        one.load_state_dict(state)
        moved = json.loads(json.dumps(one.state_dict()))["streams"]["train"]
        assert moved == {"positions": {"churn": 64, "quantity": 32}, "batches": 3}


def test_a_list_of_weights_has_the_order_of_the_tasks_as_they_are_given(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    for tasks, churn in ((None, 1.0), (["churn", "quantity"], 1.0), (["quantity", "churn"], 3.0)):
        options = {"tasks": tasks, "default_batch_size": 1, "default_sequence_length": 8}
        with headwater.Sampler(path, task_weights=[1, 3], **options) as sampler:
            weights = {"churn": churn, "quantity": 4.0 - churn}
            assert sampler.state_dict()["options"]["task_weights"] == weights
            found = [int(sampler.batch("train", k)["task_idx"][0]) for k in range(1024)]
            assert found.count(0) == 256 * churn


def test_the_document_lists_the_options_as_the_table_does() -> None:
    rows = [
        f"| `{name}` | {choice.default} | {'yes' if choice.option.decides_contexts else ''} | "
        f"{meaning(choice)} |"
        for name, choice in choices().items()
    ]
    text = (ROOT / "docs" / "reference" / "sampling.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in text, "\n".join(rows)


@pytest.mark.parametrize("split", ["nope", 0, "Train"])
def test_a_split_that_is_not_one_is_named_by_all_that_take_it(tmp_path: Path, split: Any) -> None:
    """`Loader` ended in a KeyError."""
    with headwater.Sampler(write_tiny(tmp_path), tasks=["churn"]) as sampler:
        for ask in (
            lambda: headwater.Loader(sampler, split),
            lambda: sampler.num_seeds(split),
            lambda: sampler.epoch(split),
            lambda: sampler.remaining(split),
            lambda: headwater.SeedPool(sampler.store, split=split),
        ):
            with pytest.raises(ValueError, match=f"split is {split!r}, expected"):
                ask()
