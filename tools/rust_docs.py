"""Runs the Rust programs of the documentation, as they stand.

    python tools/rust_docs.py FOLDER STORE

A block of Rust is one program. FOLDER becomes a crate with each as an example, and all of them run
there, with STORE as `shop.store`. The loop of docs/guides/own-training-loop.md has to print the
same as that in Python, which has to continue its run. `cargo` compiles in CARGO_TARGET_DIR.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CRATE = ROOT / "bindings" / "rust" / "headwater"
LOOPS = ROOT / "docs" / "guides" / "own-training-loop.md"
PAGES = (LOOPS, ROOT / "docs" / "guides" / "rust.md", CRATE / "README.md")
MANIFEST = """[package]
name = "headwater-docs"
edition = "2024"
publish = false

[dependencies]
headwater = {{ path = "{crate}" }}

[workspace]
"""


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_crate(folder: Path) -> dict[str, Path]:
    """The programs of the crate by name, each with its page."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "examples").mkdir(exist_ok=True)
    for left in (folder / "examples").iterdir():
        left.unlink()
    (folder / "Cargo.toml").write_text(MANIFEST.format(crate=CRATE), encoding="utf-8")
    (folder / "src" / "lib.rs").write_text("", encoding="utf-8")
    found = {}
    for page in PAGES:
        for number, block in enumerate(blocks(page, "rust"), start=1):
            name = f"{page.stem}-{number}".lower()
            (folder / "examples" / f"{name}.rs").write_text(block, encoding="utf-8")
            found[name] = page
    return found


def printed(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"rust: {' '.join(command)} failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the Rust programs of the documentation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("store", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    programs = write_crate(folder)
    if {*programs.values()} != {*PAGES}:
        sys.exit(f"rust: a page has no program: {programs}")
    (folder / "shop.store").unlink(missing_ok=True)
    (folder / "shop.store").symlink_to(arguments.store.resolve())
    cargo = ("cargo", "run", "--offline", "--quiet", "--example")
    saved = folder / "run.state"
    loop = next(name for name, page in programs.items() if page == LOOPS)
    python = (sys.executable, "-c", next(b for b in blocks(LOOPS, "python") if saved.name in b))
    saved.unlink(missing_ok=True)
    first, second = printed(folder, *python), printed(folder, *python)
    saved.unlink()
    for name in programs:
        if name != loop:
            printed(folder, *cargo, name)
    # The first epochs by Rust, the next by Rust and by Python.
    begun = printed(folder, *cargo, loop)
    state = saved.read_text(encoding="utf-8")
    continued = [printed(folder, *cargo, loop)]
    saved.write_text(state, encoding="utf-8")
    continued.append(printed(folder, *python))
    if begun != first or continued != [second, second] or first == second:
        sys.exit(f"rust: the loop prints {begun}{continued}, in Python {first}{second}")
    print(f"rust: {len(programs)} programs of the documentation run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
