"""Progress of a build for people: one line that rewrites itself on a terminal, else plain lines.

A reader that is gone does not end the build.
"""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from headwater.console import shown, write

REDRAW_SECONDS = 0.1
CLEAR_LINE = "\r\x1b[2K"


class ProgressDisplay:
    """Shows stages as they come; call it with (stage, item), close it when done."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.is_terminal = stream is not None and not stream.closed and stream.isatty()
        self.start = self.drawn = time.monotonic()
        self.stage = ""

    def __call__(self, stage: str, item: str) -> None:
        now = time.monotonic()
        if not self.is_terminal:
            if stage != self.stage:
                write(self.stream, f"{now - self.start:7.1f} s  {stage}\n")
        elif stage != self.stage or now - self.drawn >= REDRAW_SECONDS:
            line = shown(f"{now - self.start:7.1f} s  {stage}: {item}")
            line = line.replace("\n", " ").replace("\t", " ")
            width = shutil.get_terminal_size().columns - 1
            write(self.stream, CLEAR_LINE + line[:width])
            self.drawn = now
        self.stage = stage

    def close(self) -> None:
        if self.is_terminal:
            write(self.stream, CLEAR_LINE)
