"""Packs: batches that were made before training, in a folder that is read in order.

    what-this-is.txt   the mark of a pack, the same in all
    manifest.json      format, what the pack was made from and for, contents of the other files
    tables.bin         arrays by name: vectors of columns, categories and texts; labels of the tasks
    batches-0.bin      the batches of rank 0, one behind the other: train, then the passes over val
    index-0.bin        arrays by name: place, layout and checksum of each batch, where the stream of
                       train stands before and after each, and which batches are a pass

All numbers are little-endian. Arrays and batches begin at multiples of 64 bytes, so that a map of
the file is handed out as it is. Batches of one `Layout` have the same arrays, types and shapes: a
task has one or two. Every byte of a pack counts in some checksum (XXH64): of an array or a batch
with the zeros behind it, of the mark, and in the manifest of its own text and of its files' sizes.

A reader checks the manifest, tables and index when it opens a pack, and each batch before it hands
it out for the first time; `verify` reads all of them at once. docs/guides/packs.md is about the
use.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import headwater
import numpy as np
from headwater.shared import hash64
from numpy.typing import NDArray

from confluence.data.whole_batch import ALIGNMENT, Bytes, Layout, padded, size_of

FORMAT = 3
MARK, MANIFEST, TABLES = "what-this-is.txt", "manifest.json", "tables.bin"
MARK_TEXT = (
    "A pack of confluence: batches that were made before training, by `confluence prebatch`.\n"
    "`confluence train --prebatched FOLDER` learns from it. A folder called .unfinished-* is what\n"
    "a killed prebatch left; the same command removes it and begins anew.\n"
)
UNFINISHED = ".unfinished-"
HEAD, MIDDLE, TAIL = '{"checksum": "', '",\n"pack": ', "}\n"  # of a manifest, around its text
AGAIN = "make the pack again (`confluence prebatch --overwrite`), or copy it again"

Arrays = Mapping[str, NDArray[Any]]


class PackError(ValueError):
    """There is no pack, it is damaged, or it does not fit the run."""


def in_units(size: float) -> str:
    """Bytes for people."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def batches_file(rank: int) -> str:
    """The file with a rank's batches."""
    return f"batches-{rank}.bin"


def index_file(rank: int) -> str:
    """The file that says where a rank's batches are."""
    return f"index-{rank}.bin"


class Batches(Protocol):
    """Batches by their number, from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> headwater.Batch: ...

    def expect(self, number: int) -> None:
        """This one is asked for soon."""


class KeptBatches:
    """Batches in memory, which nobody can change."""

    def __init__(self) -> None:
        self._kept: list[tuple[Layout, Bytes]] = []

    def append(self, batch: headwater.Batch) -> None:
        """Keep a copy of a batch."""
        layout = Layout.of(batch)
        memory = _aligned(layout.size)
        layout.write(batch, memory)
        memory.flags.writeable = False
        self._kept.append((layout, memory))

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, number: int, /) -> headwater.Batch:
        layout, memory = self._kept[number]
        return layout.read(memory)

    def expect(self, number: int) -> None:
        """It is there."""

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(layout.size for layout, _ in self._kept)

    def checksum(self) -> int:
        """Of all their bytes."""
        return functools.reduce(lambda seed, kept: hash64(kept[1], seed), self._kept, 0)


def _aligned(size: int) -> Bytes:
    """So many bytes that are 0, from a multiple of 64 on."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


# ---------------------------------------------------------------------------------------- writing


def write_arrays(file: Path, arrays: Arrays) -> dict[str, Any]:
    """Write arrays into a new file; returns what the manifest says of it."""
    entries, place = [], 0
    with file.open("xb") as stream:
        for name, array in arrays.items():
            dtype = array.dtype.newbyteorder("<").str
            memory = _aligned(padded(array.nbytes))
            flat = np.ascontiguousarray(array, dtype).reshape(-1)
            memory[: array.nbytes] = flat.view(np.uint8)
            stream.write(memory.data)
            about = {"name": name, "dtype": dtype, "shape": list(array.shape), "offset": place}
            entries.append({**about, "checksum": hash64(memory)})
            place += memory.size
        _sync(stream)
    return {"bytes": place, "arrays": entries}


class BatchWriter:
    """Writes the batches of a rank into a new file, one behind the other; a context manager, at
    whose end they are on the disk."""

    def __init__(self, file: Path, layouts: list[Layout]) -> None:
        """`layouts`: of all ranks so far; new ones are added."""
        self._stream = file.open("xb")
        self._layouts = layouts
        self._places: list[tuple[int, int, int]] = []  # layout, offset, checksum
        self.size = 0

    def append(self, batch: headwater.Batch) -> None:
        """Write a batch."""
        layout = Layout.of(batch)
        if layout not in self._layouts:
            self._layouts.append(layout)
        memory = _aligned(layout.size)
        layout.write(batch, memory)
        self._stream.write(memory.data)
        self._places.append((self._layouts.index(layout), self.size, hash64(memory)))
        self.size += layout.size

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> BatchWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Have all of it on the disk, if nothing failed."""
        with self._stream:
            if error is None:
                _sync(self._stream)

    def index(self) -> dict[str, NDArray[Any]]:
        """Where each batch is, as `index-<rank>.bin` has it."""
        layout, offset, checksum = zip(*self._places, strict=True) if self._places else ((),) * 3
        return {
            "layout": np.array(layout, np.uint16),
            "offset": np.array(offset, np.uint64),
            "checksum": np.array(checksum, np.uint64),
        }


def write_manifest(
    folder: Path, about: Mapping[str, Any], files: Mapping[str, Any], layouts: Sequence[Layout]
) -> None:
    """Write a pack's manifest, when its files are whole.

    Args:
        about: what the pack was made from and for; JSON can hold it.
        files: of each its "bytes", and its "arrays" if it has some (`write_arrays`).
    """
    arrays = [layout.arrays for layout in layouts]
    text = json.dumps({"format": FORMAT, **about, "files": files, "layouts": arrays})
    checksum = f"{hash64(text.encode()):016x}"
    with (folder / MANIFEST).open("xb") as stream:
        stream.write(f"{HEAD}{checksum}{MIDDLE}{text}{TAIL}".encode())
        _sync(stream)


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


# ---------------------------------------------------------------------------------------- reading


@dataclasses.dataclass(frozen=True)
class Pack:
    """An open pack; its files are mapped when they are asked for."""

    folder: Path
    about: Mapping[str, Any]  # the manifest
    identity: str  # its checksum: packs of the same bytes have the same

    @classmethod
    def open(cls, folder: Path) -> Pack:
        """Open a pack after a look at its mark, manifest and the sizes of its files."""
        if not (folder / MARK).is_file() or not (folder / MANIFEST).is_file():
            missing = MANIFEST if (folder / MARK).is_file() else MARK
            what = f"it has no {missing}" if folder.is_dir() else "there is no such folder"
            raise PackError(f"'{folder}' is not a pack: {what}")
        if folder.name.startswith(UNFINISHED):
            raise PackError(f"'{folder}' is what a prebatch left that did not end: run it again")
        about, identity = _read_manifest(folder / MANIFEST)
        if (folder / MARK).read_bytes() != MARK_TEXT.encode():
            raise PackError(f"'{folder / MARK}' is damaged: it has another text: {AGAIN}")
        for name, entry in about["files"].items():
            size = (folder / name).stat().st_size if (folder / name).is_file() else None
            if size != entry["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes"
                raise PackError(
                    f"'{folder / name}' {found}, expected {entry['bytes']:,} bytes: {AGAIN}"
                )
        return cls(folder, about, identity)

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(int(entry["bytes"]) for entry in self.about["files"].values())

    @functools.cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The arrays that all ranks have."""
        return self._arrays(TABLES)

    def batches(self, rank: int) -> PackedBatches:
        """The batches of a rank."""
        layouts = [Layout.from_json(arrays) for arrays in self.about["layouts"]]
        file = self.folder / batches_file(rank)
        return PackedBatches(file, self._arrays(index_file(rank)), layouts)

    def _arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of a file, which are checked."""
        memory, found = _map(self.folder / name)[1], {}
        for entry in self.about["files"][name]["arrays"]:
            shape, start = tuple(entry["shape"]), entry["offset"]
            size = size_of(entry["dtype"], shape)
            whole = memory[start : start + padded(size)]
            if hash64(whole) != entry["checksum"]:
                raise PackError(
                    f"'{self.folder / name}' is damaged: array '{entry['name']}' (bytes"
                    f" {start:,} to {start + padded(size):,}) has another checksum: {AGAIN}"
                )
            found[entry["name"]] = whole[:size].view(entry["dtype"]).reshape(shape)
        return found


def _read_manifest(file: Path) -> tuple[dict[str, Any], str]:
    text = file.read_bytes().decode("utf-8", "replace")
    head, _, rest = text.partition(MIDDLE)
    checksum, body = head.removeprefix(HEAD), rest.removesuffix(TAIL)
    is_whole = f"{HEAD}{hash64(body.encode()):016x}{MIDDLE}{body}{TAIL}" == text
    try:
        about = json.loads(body)
        found = about["format"]
    except (ValueError, TypeError, KeyError):
        about, found = {}, FORMAT
    if is_whole and found != FORMAT:
        raise PackError(
            f"'{file.parent}' is a pack of format {found}, this version reads format {FORMAT}: make"
            " the pack again"
        )
    if not is_whole or not about:
        raise PackError(f"'{file}' is damaged: its text has another checksum: {AGAIN}")
    return about, checksum


def _map(file: Path) -> tuple[mmap.mmap | None, Bytes]:
    """A file's bytes, read-only."""
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return None, np.empty(0, np.uint8)
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return mapped, np.frombuffer(mapped, np.uint8)


class PackedBatches:
    """The batches of a rank in a pack: views of the map of its file."""

    def __init__(self, file: Path, index: Arrays, layouts: Sequence[Layout]) -> None:
        self._file = file
        self._map, self._memory = _map(file)
        self.index = index
        self._layouts = layouts
        self._is_checked = np.zeros(len(index["offset"]), bool)

    def __len__(self) -> int:
        return len(self._is_checked)

    def __getitem__(self, number: int, /) -> headwater.Batch:
        layout = self._layouts[int(self.index["layout"][number])]
        memory = self._memory_of(number)
        if not self._is_checked[number]:
            self._check(number, memory)
        return layout.read(memory)

    def _memory_of(self, number: int) -> Bytes:
        start = int(self.index["offset"][number])
        return self._memory[start : start + self._layouts[int(self.index["layout"][number])].size]

    def _check(self, number: int, memory: Bytes) -> None:
        if hash64(memory) != self.index["checksum"][number]:
            start = int(self.index["offset"][number])
            raise PackError(
                f"'{self._file}' is damaged: batch {number} (bytes {start:,} to"
                f" {start + memory.size:,}) has another checksum: {AGAIN}"
            )
        self._is_checked[number] = True

    def verify(self, each: Callable[[int, int], None]) -> None:
        """Check all batches. `each`: called with the bytes that are done, and all of them."""
        done = 0
        for number in range(len(self)):
            memory = self._memory_of(number)
            self._check(number, memory)
            done += memory.size
            each(done, self._memory.size)

    def expect(self, number: int) -> None:
        """Have the system read a batch that is asked for soon."""
        if self._map is not None:
            start = int(self.index["offset"][number])
            page = start // mmap.PAGESIZE * mmap.PAGESIZE
            size = self._memory_of(number).size
            self._map.madvise(mmap.MADV_WILLNEED, page, start - page + size)
