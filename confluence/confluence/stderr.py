"""Lines for people on stderr, which may be gone while a run goes on: a terminal that was closed, a
pipe that nobody reads any more."""

from headwater.console import say

__all__ = ["say"]
