"""Progress of a build for people: one line that rewrites itself on a terminal, else plain lines."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

REDRAW_SECONDS = 0.1
CLEAR_LINE = "\r\x1b[2K"


class ProgressDisplay:
    """Shows stages as they come; call it with (stage, item), close it when done."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.start = self.drawn = time.monotonic()
        self.stage = ""

    def __call__(self, stage: str, item: str) -> None:
        now = time.monotonic()
        if not self.is_terminal:
            if stage != self.stage:
                self.stream.write(f"{now - self.start:7.1f} s  {stage}\n")
                self.stream.flush()
        elif stage != self.stage or now - self.drawn >= REDRAW_SECONDS:
            line = f"{now - self.start:7.1f} s  {stage}: {item}"
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(CLEAR_LINE + line[:width])
            self.stream.flush()
            self.drawn = now
        self.stage = stage

    def close(self) -> None:
        if self.is_terminal:
            self.stream.write(CLEAR_LINE)
            self.stream.flush()
