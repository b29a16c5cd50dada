"""What the Rust crates have of the header and of the options is what the library has today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
RUST = ROOT / "bindings" / "rust"
HEADER = ROOT / "headwater" / "include" / "headwater.h"
WRITTEN = {
    RUST / "headwater-sys" / "src" / "bindings.rs": ["rust_bindings.py", str(HEADER)],
    RUST / "headwater" / "src" / "option_table.rs": ["rust_options.py"],
    RUST / "headwater" / "src" / "field_table.rs": ["rust_fields.py"],
}


def checked(script: list[str], file: Path) -> int:
    name, *arguments = script
    command = [sys.executable, str(ROOT / "tools" / name), *arguments, "--check", str(file)]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_a_written_file_is_as_its_script_writes_it(file: Path, tmp_path: Path) -> None:
    assert checked(WRITTEN[file], file) == 0
    edited = tmp_path / file.name
    edited.write_text(file.read_text(encoding="utf-8").replace("u32", "u64", 1), encoding="utf-8")
    assert checked(WRITTEN[file], edited) == 1
