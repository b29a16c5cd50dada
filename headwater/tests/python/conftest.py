"""What tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from built_examples import Builder, example_builder
from postgres_server import PostgresServer, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests; skips where none is installed."""
    pytest.importorskip("adbc_driver_postgresql", reason="the driver of PostgreSQL is not here")
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def built_example(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Stores of the real databases, each built once; skips where its data is absent."""
    return example_builder(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys and proxies of the user, and with a cache folder of the test's own."""
    for name in ("OPENAI_API_KEY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
