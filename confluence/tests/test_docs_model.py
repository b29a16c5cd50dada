"""docs/reference/model.md says what the code says: settings, optimizers, limits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from confluence.config import PRESETS, Config
from confluence.data.tasks import HUBER_DELTA
from confluence.model import attention
from confluence.model import transformer as model

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "reference" / "model.md").read_text(encoding="utf-8")


def test_the_table_of_settings_holds_every_default_of_config() -> None:
    found = dict(re.findall(r"\| `(\w+)` \| ([^|]+?) (?=\|)", TEXT.split("## 6.")[1]))
    config = Config()
    expected = {f.name: str(getattr(config, f.name)) for f in dataclasses.fields(Config)}
    assert found == expected


def test_settings_cite_the_rows_that_decided_them() -> None:
    notebook = (DOCS / "notebook" / "rel-f1.md").read_text(encoding="utf-8")
    rows = {name for row in notebook.splitlines() if row.startswith("| ")
            for name in re.findall(r"`(\w+)`", row.split("|")[1])}  # fmt: skip
    cited = TEXT.split("has a row of results for each of")[1].split("The others say")[0]
    settings = {f.name for f in dataclasses.fields(Config)}
    assert {*re.findall(r"`(\w+)`", cited)} == rows & settings
    assert rows - settings == {"tree_share"}


def test_presets_and_limits_are_named() -> None:
    assert all(f"`{name}`" in TEXT for name in PRESETS)
    assert PRESETS["laptop"]() == Config()
    assert f"-{attention.LOGIT_LIMIT:.0f}, {attention.LOGIT_LIMIT:.0f})" in TEXT
    assert f"min(a, {model.AGE_LIMIT_DAYS:.0f})" in TEXT
    assert f"Normal(0, {model.VECTOR_SCALE})" in TEXT
    assert f"delta {HUBER_DELTA['mae']} if `metric` is mae, 1 if rmse" in TEXT
