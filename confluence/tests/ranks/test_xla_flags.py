"""Flags that XLA does not know are left out, as XLA itself decides."""

from __future__ import annotations

from xla_flags import FLAGS, known_flags

UNKNOWN = "--xla_which_no_version_knows=1"


def test_a_flag_that_xla_does_not_know_is_left_out() -> None:
    assert known_flags([UNKNOWN, FLAGS[0]]) == [FLAGS[0]]
