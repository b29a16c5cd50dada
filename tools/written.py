"""Prints a text that a script of this folder wrote of the sources, or compares it with a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def parser(description: str) -> argparse.ArgumentParser:
    """Arguments of a script: --check FILE."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--check", type=Path, metavar="FILE", help="compare with this file")
    return made


def deliver(text: str, check: Path | None) -> int:
    """Prints the text, or compares it with a file; the status of the script."""
    if check is None:
        sys.stdout.write(text)
    elif check.read_text(encoding="utf-8") != text:
        print(f"{check} differs from the sources: write it again")
        return 1
    return 0
