"""A PostgreSQL server for tests: Debian's, in a folder of its own, on loopback and a socket.

One server serves a whole session of tests; every test makes databases of its own in it. Over the
socket everyone may in, over loopback with a password. Skips where no server is installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_connections": "20",
    "shared_buffers": "16MB",
    "listen_addresses": "127.0.0.1",
}
ACCESS = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


def server_programs() -> Path:
    """The folder of initdb and pg_ctl, of the newest version; skips where there is none."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name)
    )
    folders = [folder for folder in folders if (folder / "initdb").exists()]
    found = shutil.which("initdb")
    if folders:
        return folders[-1]
    if found is None:
        pytest.skip("no PostgreSQL server is installed (Debian's package is 'postgresql')")
    return Path(found).resolve().parent


class PostgresServer:
    """A running server, and psql to talk to it."""

    def __init__(self, programs: Path, folder: Path, port: int) -> None:
        self.programs, self.folder, self.port = programs, folder, port
        self.numbers = count()

    def database(self, script: str = "", *, encoding: str = "UTF8") -> str:
        """A new database in which the script was run; its name."""
        name = f"test{next(self.numbers)}"
        self.psql("postgres", f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'")
        self.psql(name, script)
        return name

    def psql(self, database: str, script: str) -> None:
        command = [str(self.programs / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", str(self.folder), "-p", str(self.port), "-U", "postgres", "-d", database]
        done = subprocess.run(command, input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def address(self, database: str, user: str = "postgres") -> str:
        """By the socket, without a password."""
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    def loopback(self, database: str, user: str = "postgres") -> str:
        """By TCP, with a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"


def server_user() -> dict[str, Any]:
    """As whom the server runs: it refuses root."""
    if os.getuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Start a server, and stop it whatever happens."""
    programs, user = server_programs(), server_user()
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))  # short, for the socket's path
    data, port = folder / "data", free_port()

    def call(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", str(data), *arguments]
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **user
        )
        assert done.returncode == 0, done.stderr.decode()

    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        call("initdb", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
        (data / "pg_hba.conf").write_text(ACCESS)
        options = [f"-c {name}={value}" for name, value in SETTINGS.items()]
        options += [f"-c unix_socket_directories={folder}", f"-c port={port}"]
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", " ".join(options), "start")
        try:
            yield PostgresServer(programs, folder, port)
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
