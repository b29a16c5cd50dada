"""A pack appears whole or not at all, and nothing is removed that is not a pack's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from confluence.packs.pack import MARK, MARK_TEXT
from confluence.packs.unfinished import is_pack, publishing


def fill(folder: Path, text: str) -> None:
    (folder / "tables.bin").write_text(text)
    (folder / "manifest.json").write_text("{}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def publish(out: Path, text: str = "new", *, overwrite: bool = False) -> None:
    with publishing(out, overwrite=overwrite) as work:
        assert work == out.parent / f".unfinished-{out.name}"
        assert names(work) == [MARK]
        fill(work, text)


def left(folder: Path, mark: str | None = MARK_TEXT, **files: str) -> None:
    """What a kill left in a folder."""
    folder.mkdir()
    if mark is not None:
        (folder / MARK).write_text(mark)
    for name, text in files.items():
        (folder / f"{name}.bin").write_text(text)


def test_a_pack_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "pack"
    publish(out)
    assert names(out.parent) == ["pack"]
    assert names(out) == ["manifest.json", "tables.bin", MARK]
    (tmp_path / "empty").mkdir()
    publish(tmp_path / "empty")
    assert is_pack(tmp_path / "empty")


def test_an_error_removes_what_was_written(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), publishing(tmp_path / "pack") as work:
        fill(work, "half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "leave",
    [
        lambda work: left(work, tables="half", **{"batches-0": "half"}),
        lambda work: left(work),
        lambda work: left(work, mark=MARK_TEXT[:20]),
        lambda work: left(work, mark=None),
    ],
)
def test_what_a_kill_left_is_removed_and_begun_anew(leave: Any, tmp_path: Path) -> None:
    leave(tmp_path / ".unfinished-pack")
    left(tmp_path / ".replaced-pack", tables="old")
    publish(tmp_path / "pack")
    assert names(tmp_path) == ["pack"]
    assert (tmp_path / "pack" / "tables.bin").read_text() == "new"


@pytest.mark.parametrize(
    "leave",
    [
        lambda work: left(work, notes="mine"),
        lambda work: left(work, mark=None, tables="mine"),
        lambda work: left(work, mark="mine"),
        lambda work: left(work, mark=MARK_TEXT[:20], tables="mine"),
        lambda work: work.write_text("a file"),
        lambda work: work.symlink_to(work.parent),
    ],
)
def test_a_folder_that_no_prebatch_left_stays(leave: Any, tmp_path: Path) -> None:
    for name in (".unfinished-pack", "pack"):
        leave(tmp_path / name)
        with pytest.raises(FileExistsError, match=r"move it|is not a pack and is not empty"):
            publish(tmp_path / "pack", overwrite=True)
        assert (tmp_path / name).exists()
        if name.startswith("."):
            (tmp_path / name).rename(tmp_path / "elsewhere")
    assert names(tmp_path) == ["elsewhere", "pack"]


def test_a_pack_is_replaced_only_if_that_is_asked_for(tmp_path: Path) -> None:
    publish(tmp_path / "pack", "old")
    with pytest.raises(FileExistsError, match="holds a pack: replace it with --overwrite"):
        publish(tmp_path / "pack")
    assert (tmp_path / "pack" / "tables.bin").read_text() == "old"
    publish(tmp_path / "pack", overwrite=True)
    assert (tmp_path / "pack" / "tables.bin").read_text() == "new"
    assert names(tmp_path) == ["pack"]


def test_two_prebatches_of_one_name_do_not_meet(tmp_path: Path) -> None:
    with publishing(tmp_path / "pack") as work:
        fill(work, "first")
        with pytest.raises(FileExistsError, match="another process writes a pack into"):
            publish(tmp_path / "pack", "second")
    assert (tmp_path / "pack" / "tables.bin").read_text() == "first"
