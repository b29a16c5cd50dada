"""Questions of ../shared/data/field that cannot be scored are refused before anything is trained.

`field_by_hand.json` of headwater's tests has how they fare now, like the other folders.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import headwater
import pytest

from confluence.config import Config
from confluence.data.tasks import TaskError
from confluence.data.verification import open_store
from confluence.runs.pipeline import check_scored

ROOT = Path(__file__).parents[3]
FIELD = ROOT.parent / "shared" / "data" / "field"
BY_HAND = ROOT / "headwater" / "tests" / "python" / "inference" / "field_by_hand.json"


@pytest.mark.skipif(not FIELD.is_dir(), reason=f"'{FIELD}' is not here")
@pytest.mark.parametrize(
    ("name", "anchor", "target", "refusal"),
    [
        ("rare-event-hash-split", "person", "dies boolean", r"split 'test' are false.*split-seed"),
        # None of the answers of test is an answer of train.
        ("classes-unseen-in-train", "account", "y categorical", r"\b(\d+) of (the )?\1\b.*train"),
        # The drafted question.
        ("target-of-1e308", "obs", "flux numerical", r"\b8 of 400 labels in obs\.flux.*float32"),
    ],
)
def test_a_question_of_the_field_is_refused(
    name: str, anchor: str, target: str, refusal: str, tmp_path: Path
) -> None:
    source = f"sqlite:///{FIELD / name / 'data.db'}"
    metadata = headwater.infer(source).to_dict()
    column, stype = target.split()
    task = {"anchor_table": anchor, "target_column": column, "target_stype": stype}
    if (query := FIELD / name / "question.sql").exists():
        task |= {"query": query.read_text(), "observation_time_column": "obs_time"}
    else:
        (task,) = (t for t in metadata["tasks"].values() if t.items() >= task.items())
    metadata["tasks"] = {column: task}
    headwater.build(source, tmp_path / "store", metadata=metadata)
    message = ""
    try:
        check_scored(open_store(tmp_path / "store"), column, Config(), "test")
    except TaskError as error:
        message = str(error)
    state = "decided" if re.search(refusal, message) else "wrong"
    assert state == json.loads(BY_HAND.read_text())[name]["now"], message
