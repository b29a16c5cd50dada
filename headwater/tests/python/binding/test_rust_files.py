"""What the Rust crates have of the header, of options and of arrays is what the library has today,
and their version is the library's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
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


def test_the_crates_have_the_version_of_the_library() -> None:
    (version,) = re.findall('HW_VERSION "(.*)"', HEADER.read_text(encoding="utf-8"))
    manifests = [tomllib.loads(file.read_text()) for file in RUST.rglob("Cargo.toml")]
    packages = [manifest["package"] for manifest in manifests if "package" in manifest]
    assert {"headwater", "headwater-sys"} <= {package["name"] for package in packages}
    for package in packages:
        is_common = package["version"] == {"workspace": True}
        assert package["version"] == version or is_common or package.get("publish") is False
    for manifest in manifests:
        common = manifest.get("workspace", {}).get("package", {})
        assert common.get("version", version) == version
        for name, needed in manifest.get("dependencies", {}).items():
            if name.startswith("headwater"):
                is_published = manifest["package"].get("publish", True)
                assert needed.get("version") == version or not is_published


def test_what_the_guide_of_burn_shows_stands_in_its_examples() -> None:
    """Tests compile and run the examples; their lines may be indented further."""
    guide = (ROOT / "docs" / "guides" / "burn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```rust\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    # Without its hidden lines, the program of the crate's documentation.
    shown = (RUST / "burn" / "src" / "lib.rs").read_text(encoding="utf-8")
    for hidden in ("^//! ?", r"^# (?:let stores|std::env).*\n", "^# "):
        shown = re.sub(hidden, "", shown, flags=re.MULTILINE)
    files = (RUST / "burn").glob("examples/**/*.rs")
    examples = [shown, *(file.read_text(encoding="utf-8") for file in files)]
    flat = [re.sub(r"\n +", "\n", text) for text in examples]
    assert len(blocks) >= 3
    for block in blocks:
        assert any("\n" + re.sub(r"\n +", "\n", block) in text for text in flat), block
    (line,) = re.findall(r"^burn = .*", guide, re.MULTILINE)
    manifest = tomllib.loads((RUST / "burn" / "Cargo.toml").read_text(encoding="utf-8"))
    assert tomllib.loads(line)["burn"]["version"] == manifest["dependencies"]["burn"]["version"]
