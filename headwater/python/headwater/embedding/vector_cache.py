"""Vectors of texts that were embedded before, by what they are of.

One SQLite file per folder, `vectors.sqlite`. A vector's address is the embedder's identity (model,
options, width) and a 128-bit BLAKE2b of the text, so that any store built with that embedder finds
it; the texts themselves are not kept. Vectors are added batch by batch, each in a transaction of
its own: a build that is killed loses at most the batch on its way, and SQLite's lock keeps
concurrent builds apart. Each vector carries a CRC of its address and bytes; one that does not match
counts as absent and is embedded again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwater.errors import EmbedderError
from headwater.files import check_regular

FILE_NAME = "vectors.sqlite"
KEY_BYTES = 16
LOCK_SECONDS = 60.0
QUERY_KEYS = 500  # SQLite's oldest limit on parameters is 999

_TABLES = (
    "CREATE TABLE IF NOT EXISTS embedder (number INTEGER PRIMARY KEY, identity TEXT UNIQUE)",
    "CREATE TABLE IF NOT EXISTS vector (embedder INTEGER, key BLOB, crc INTEGER, vector BLOB, "
    "PRIMARY KEY (embedder, key)) WITHOUT ROWID",
)


def text_key(text: str) -> bytes:
    """The address of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


class VectorCache:
    """The vectors of one embedder in a cache folder. Used by one thread."""

    def __init__(self, folder: Path, identity: str, *, read_only: bool = False) -> None:
        self.path, self.identity = folder / FILE_NAME, identity
        self.damaged_count = 0  # vectors whose CRC was wrong
        self.database: sqlite3.Connection | None = None
        if read_only and not self.path.exists():
            return
        try:
            check_regular(self.path)
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
            uri = f"{self.path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self.database = sqlite3.connect(
                uri, uri=True, timeout=LOCK_SECONDS, isolation_level=None
            )
            self.number = self._open(self.database, read_only)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise self._broken(error) from error

    def _open(self, database: sqlite3.Connection, read_only: bool) -> int | None:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in database.execute(query)}
        if tables not in (set(), {"embedder", "vector"}):
            self.close()
            raise EmbedderError(
                f"'{self.path}' is not a cache of vectors: name another folder with --cache"
            )
        if not read_only:
            # Two builds may make the file at once: the second waits and finds the tables there.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                database.execute(statement)
            database.execute(
                "INSERT OR IGNORE INTO embedder (identity) VALUES (?)", (self.identity,)
            )
            database.execute("COMMIT")
        row = database.execute(
            "SELECT number FROM embedder WHERE identity = ?", (self.identity,)
        ).fetchone()
        return None if row is None else int(row[0])

    def _broken(self, error: Exception) -> EmbedderError:
        return EmbedderError(
            f"cannot use the cache '{self.path}': {error}; name another folder with --cache, or "
            "remove the file, and its vectors are embedded again"
        )

    def __enter__(self) -> VectorCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.database is not None:
            self.database.close()
        self.database = None

    def find(self, texts: Sequence[str], width: int | None) -> dict[int, NDArray[np.float16]]:
        """float16 vectors by place in `texts`; of any one width if `width` is None."""
        if self.database is None or self.number is None:
            return {}
        places: dict[bytes, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text_key(text), []).append(place)
        found: dict[int, NDArray[np.float16]] = {}
        keys = list(places)
        for low in range(0, len(keys), QUERY_KEYS):
            for key, crc, data in self._rows(keys[low : low + QUERY_KEYS]):
                if self._crc(key, data) != crc or len(data) % 2:
                    self.damaged_count += 1
                    continue
                vector = np.frombuffer(data, np.float16)
                if width is None or len(vector) == width:
                    found |= dict.fromkeys(places[key], vector)
        return found

    def _rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, int, bytes]]:
        assert self.database is not None
        marks = ", ".join("?" * len(keys))
        try:
            return self.database.execute(
                f"SELECT key, crc, vector FROM vector WHERE embedder = ? AND key IN ({marks})",
                (self.number, *keys),
            ).fetchall()
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def add(self, texts: Iterable[str], vectors: NDArray[np.float16]) -> None:
        """Keep vectors [count, width]; when this returns they survive a kill."""
        assert self.database is not None
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            key, data = text_key(text), vector.tobytes()
            rows.append((self.number, key, self._crc(key, data), data))
        try:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?)", rows)
            self.database.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def _crc(self, key: bytes, data: bytes) -> int:
        return zlib.crc32(data, zlib.crc32(key, zlib.crc32(self.identity.encode())))
