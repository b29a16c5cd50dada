"""The files of a pack: byte by byte, and every damaged byte is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from headwater.binding import hash64

from confluence.data.progress import Progress
from confluence.packs import pack as format_of_packs
from confluence.packs.pack import (
    MARK,
    MARK_TEXT,
    BatchWriter,
    KeptBatches,
    Layout,
    Pack,
    PackError,
    in_units,
    write_arrays,
    write_manifest,
)


def batch(first: int) -> headwater.Batch:
    """A batch of 3 cells and one context: 3 bytes, 4 bytes and 8 bytes."""
    arrays = {
        "cells": np.array([[first, first + 1, first + 2]], np.uint8),
        "row_ages": np.array([[first + 0.5]], np.float32),
    }
    return headwater.Batch.of(arrays, {"obs_time": np.array([-first], np.int64)})


def write_pack(folder: Path, count: int = 3) -> Path:
    """A pack of some batches for one rank."""
    folder.mkdir()
    (folder / MARK).write_text(MARK_TEXT)
    layouts: list[Layout] = []
    with BatchWriter(folder / "batches-0.bin", layouts) as writer:
        for number in range(count):
            writer.append(batch(number))
    files = {
        "tables.bin": write_arrays(folder / "tables.bin", {"columns": np.arange(3, dtype="<f2")}),
        "batches-0.bin": {"bytes": writer.size},
        "index-0.bin": write_arrays(folder / "index-0.bin", writer.index()),
    }
    write_manifest(folder, {"ranks": 1}, files, layouts)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pack(tmp_path_factory.mktemp("pack") / "pack")


def test_every_byte_of_a_pack_is_as_docs_say(folder: Path) -> None:
    def at_64(*parts: bytes) -> bytes:
        return b"".join(part.ljust(64, b"\0") for part in parts)

    second = at_64(b"\1\2\3", np.float32(1.5).tobytes(), np.int64(-1).tobytes())
    batches = (folder / "batches-0.bin").read_bytes()
    assert len(batches) == 3 * 192 and batches[192:384] == second
    assert (folder / "tables.bin").read_bytes() == at_64(np.arange(3, dtype="<f2").tobytes())
    checksums = [hash64(batches[start : start + 192]) for start in (0, 192, 384)]
    assert (folder / "index-0.bin").read_bytes() == at_64(
        np.zeros(3, "<u2").tobytes(), np.array([0, 192, 384], "<u8").tobytes(),
        np.array(checksums, "<u8").tobytes(),
    )  # fmt: skip
    assert (folder / "what-this-is.txt").read_text() == MARK_TEXT
    text = (folder / "manifest.json").read_text()
    inner = text.split('"pack": ', 1)[1][:-2]
    assert text == f'{{"checksum": "{hash64(inner.encode()):016x}",\n"pack": {inner}}}\n'
    manifest = json.loads(text)["pack"]
    assert manifest["format"] == 3
    assert manifest["layouts"] == [
        [["cells", False, "|u1", [1, 3]], ["row_ages", False, "<f4", [1, 1]],
         ["obs_time", True, "<i8", [1]]]
    ]  # fmt: skip
    assert manifest["files"]["tables.bin"] == {
        "bytes": 64,
        "arrays": [
            {"name": "columns", "dtype": "<f2", "shape": [3], "offset": 0,
             "checksum": hash64((folder / "tables.bin").read_bytes())}
        ],
    }  # fmt: skip


def test_batches_come_back_as_views_of_the_file_that_nobody_can_change(folder: Path) -> None:
    batches = Pack.open(folder).batches(0)
    assert len(batches) == 3
    for number in (2, 0, 1, 2):
        found, written = batches[number], batch(number)
        assert list(found) == list(written) and list(found.info) == list(written.info)
        for name, array in {**found, **found.info}.items():
            expected = written[name]
            assert array.dtype == expected.dtype and np.array_equal(array, expected)
            assert array.ctypes.data % 64 == 0
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    assert found["cells"].base is not None  # no copy
    batches.expect(1)
    assert np.array_equal(Pack.open(folder).tables["columns"], np.arange(3))


def test_a_pack_without_batches_or_with_empty_arrays_opens(tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "pack", count=0)
    assert len(Pack.open(folder).batches(0)) == 0
    about = write_arrays(tmp_path / "some.bin", {"none": np.zeros((0, 4), np.float16)})
    assert about["bytes"] == 0 and about["arrays"][0]["shape"] == [0, 4]


def read_all(folder: Path) -> None:
    """As a training does with `verify="header"`, which reads each batch once."""
    pack = Pack.open(folder)
    assert pack.tables
    batches = pack.batches(0)
    for number in range(len(batches)):
        batches[number]


def mark_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / MARK).write_text(MARK_TEXT)


FILES = ("what-this-is.txt", "manifest.json", "tables.bin", "batches-0.bin", "index-0.bin")


@pytest.mark.parametrize("name", FILES)
def test_every_damaged_byte_is_refused_with_its_file(
    name: str, folder: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "pack"
    shutil.copytree(folder, copied)
    file, whole = copied / name, (folder / name).read_bytes()
    read_all(copied)
    for place in range(0, len(whole), 7 if len(whole) > 300 else 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(PackError, match=name):
            read_all(copied)
    for size in (0, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(PackError, match=name):
            read_all(copied)
    file.unlink()
    with pytest.raises(PackError, match=name):
        read_all(copied)


def test_the_damaged_batch_is_named_and_the_others_are_read(folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / "pack"
    shutil.copytree(folder, copied)
    whole = (copied / "batches-0.bin").read_bytes()
    (copied / "batches-0.bin").write_bytes(whole[:200] + b"!" + whole[201:])
    batches = Pack.open(copied).batches(0)
    assert batches[0]["cells"][0, 0] == 0 and batches[2]["cells"][0, 0] == 2
    says = r"batches-0.bin' is damaged: batch 1 \(bytes 192 to 384\) has another checksum"
    for _ in range(2):
        with pytest.raises(PackError, match=says):
            batches[1]
    told: list[tuple[int, int]] = []
    with pytest.raises(PackError, match=says):
        Pack.open(copied).batches(0).verify(lambda *done: told.append(done))
    assert told == [(192, 576)]


def test_another_format_is_refused_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_of_packs, "FORMAT", 4)
    folder = write_pack(tmp_path / "pack")
    monkeypatch.undo()
    with pytest.raises(PackError, match="is a pack of format 4, this version reads format 3"):
        Pack.open(folder)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "is not a pack: there is no such folder"),
        (lambda path: path.mkdir(), "is not a pack: it has no what-this-is.txt"),
        (lambda path: mark_alone(path), "is not a pack: it has no manifest.json"),
        (lambda path: write_pack(path).rename(path.with_name(".unfinished-p")), "did not end"),
    ],
)
def test_what_is_no_pack_does_not_open(make: Any, says: str, tmp_path: Path) -> None:
    make(tmp_path / "p")
    unfinished = tmp_path / ".unfinished-p"
    with pytest.raises(PackError, match=says):
        Pack.open(unfinished if unfinished.exists() else tmp_path / "p")


def test_batches_in_memory_have_the_same_bytes_as_in_a_file(folder: Path) -> None:
    kept = KeptBatches()
    for number in range(3):
        kept.append(batch(number))
    assert kept.size == 3 * 192
    whole = (folder / "batches-0.bin").read_bytes()
    expected = 0
    for start in (0, 192, 384):
        expected = hash64(whole[start : start + 192], expected)
    assert kept.checksum() == expected
    with pytest.raises(ValueError, match="read-only"):
        kept[1]["cells"][0, 0] = 7
    assert kept.checksum() == expected


def test_progress_is_printed_once_something_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    calls: list[int] = []
    progress = Progress("writing 'p'", in_units, each=lambda: calls.append(1))
    for seconds, done in ((1.0, 5e6), (2.5, 10e6), (9.0, 20e6), (13.0, 26e6)):
        now[0] = seconds
        progress(int(done), 40_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "writing 'p': 10 MB of 40 MB, 8 s left", "writing 'p': 26 MB of 40 MB, 7 s left"
    ]  # fmt: skip
    assert len(calls) == 4
