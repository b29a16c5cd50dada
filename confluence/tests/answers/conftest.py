"""One store of bakeries for all tests of answers."""

from __future__ import annotations

from pathlib import Path

import bakery
import pytest


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bakery.build(tmp_path_factory.mktemp("bakery") / "as_it_is")
