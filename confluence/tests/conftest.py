"""Fixtures: a tiny configuration and everything a step needs, shared by all tests."""

from __future__ import annotations

import tempfile

import jax
import pytest

from confluence.config import Config

# Tests spend their time in the compiler, and many compile the same step: let them share it.
jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp(prefix="confluence-tests-"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def cfg() -> Config:
    return Config(
        width=16, heads=2, layers=2, sequence_length=32, max_rows=10, batch_size=4, steps=100,
        attention_block=2,
    )  # fmt: skip
