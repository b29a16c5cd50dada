"""A program goes together with a newer library: one whose every struct has a member more."""

from __future__ import annotations

import re
import shutil
import subprocess
from ctypes import sizeof
from pathlib import Path

from headwater.binding.header import STRUCTS
from headwater.binding.library import LIBRARY

C = Path(__file__).parents[3]
SIZED = re.compile(r"(typedef struct (\w+) \{\n    size_t struct_bytes;.*?)(\n\} \2;)", re.DOTALL)
FLAGS = ("-std=c17", "-O1", "-ffp-contract=off", "-pthread")


def compiled(output: Path, include: Path, *arguments: str | Path) -> Path:
    """What the compiler makes, with the header of a folder."""
    command = ["cc", *FLAGS, f"-I{include}", "-o", output, *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def grown_library(folder: Path) -> Path:
    """The library from a copy of its sources, after each struct has one member more."""
    shutil.copytree(C / "src", folder / "src")
    (folder / "include").mkdir()
    header, count = SIZED.subn(
        r"\1\n    uint64_t appended_by_test;\3", (C / "include" / "headwater.h").read_text()
    )
    sized = [name for name, kind in STRUCTS.items() if kind._fields_[0][0] == "struct_bytes"]
    assert count == len(sized) > 20
    assert [name for name in STRUCTS if name not in sized] == ["hw_error"]
    (folder / "include" / "headwater.h").write_text(header)
    sources = sorted((folder / "src").rglob("*.c"))
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", f"-I{folder / 'src'}")
    return compiled(folder / "libgrown.so", folder / "include", *shared, *sources, "-lm")


def transcript(library: Path, folder: Path) -> str:
    """What tests/c/grown.c, compiled against the header as it is, prints with a library."""
    folder.mkdir()
    support = C / "tests" / "c"
    program = compiled(
        folder / "grown", C / "include", f"-I{support}", f"-Wl,-rpath,{library.parent}",
        support / "grown.c", support / "support" / "fixtures.c", library,
    )  # fmt: skip
    done = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_runs_with_a_library_whose_structs_all_have_grown(tmp_path: Path) -> None:
    expected = transcript(LIBRARY, tmp_path / "same")
    assert "behind" not in expected
    assert expected.count("\n") > 100
    assert transcript(grown_library(tmp_path), tmp_path / "other") == expected


def test_a_member_that_is_appended_never_lies_within_the_old_size() -> None:
    for name, kind in STRUCTS.items():
        last, item = kind._fields_[-1][:2]
        assert getattr(kind, last).offset + sizeof(item) == sizeof(kind), name


def test_the_program_has_every_struct_that_crosses() -> None:
    program = (C / "tests" / "c" / "grown.c").read_text()
    missing = [name for name in STRUCTS if name not in program and name != "hw_error"]
    assert missing == []
