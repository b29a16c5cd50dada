"""What tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests; skips where none is installed."""
    pytest.importorskip("adbc_driver_postgresql", reason="the driver of PostgreSQL is not here")
    with running_server() as server:
        yield server
