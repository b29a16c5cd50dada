"""A limit of the address space is a message, and never a crash of a library."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from headwater.machine import check_address_space, machine_bytes

MIB = 1 << 20


def run(code: str, mib: int) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'ulimit -v {mib << 10} && exec "$@"', "sh", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_a_limit_anything_is_left() -> None:
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        check_address_space(1 << 60, "all")


def test_what_a_limit_leaves_is_named_and_bounds_the_memory_of_the_machine() -> None:
    code = (
        "from headwater.machine import *\nprint(machine_bytes() >> 20)\n"
        "check_address_space(1 << 20, 'little')\ncheck_address_space(1 << 30, 'DuckDB')"
    )
    done = run(code, 900)
    assert done.stdout.strip() == "900" and machine_bytes() > 900 * MIB
    last = done.stderr.splitlines()[-1]
    assert last.startswith("MemoryError: DuckDB needs 1,024 MiB of address space, and `ulimit -v`")
    left = int(last.split("leaves ")[1].split()[0])
    assert 0 < left < 900


@pytest.mark.parametrize("mib", [250, 400, 600])
def test_a_build_ends_with_a_message(mib: int, tmp_path: Path) -> None:
    """It was a segmentation fault, "pip install 'duckdb<2'", or a bare MemoryError."""
    code = (
        "import sys\nfrom headwater.cli.main import main\n"
        f"sys.exit(main(['build', 'sqlite:///{tmp_path / 'x.db'}', '{tmp_path / 's'}']))"
    )
    done = run(code, mib)
    assert done.returncode == 1
    assert "headwater: DuckDB needs 768 MiB of address space" in done.stderr.splitlines()[-1]
