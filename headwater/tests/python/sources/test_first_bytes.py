"""Files that are not what their names say are refused by their first bytes, and no good one is."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pytest
from headwater.errors import SourceError
from headwater.inference.infer import infer
from headwater.sources.folder.first_bytes import check_first_bytes

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:77\nsize 9\n"
PAGE = b"\n<!-- gone -->\n<!DOCTYPE HTML>\n<title>404</title>\n"

REFUSED: dict[str, tuple[str, bytes, str]] = {
    "a pointer": ("a.csv", POINTER, "a Git LFS pointer.*git lfs pull"),
    "a pointer for a packed file": ("a.csv.gz", POINTER, "a Git LFS pointer"),
    "a pointer for a Parquet file": ("a.parquet", POINTER, "a Git LFS pointer"),
    "a pointer of git-annex": (
        "a.tsv", b"/annex/objects/MD5E-s3--ab.csv\n", "a pointer of git-annex.*git annex get",
    ),
    "a page": ("a.csv", PAGE, "an HTML page.*download the file again"),
    "a page, packed": ("a.dat.gz", gzip.compress(PAGE), "an HTML page"),
    "a page for a Parquet file": ("a.parquet", PAGE, "an HTML page"),
    "a part of a page": ("a.csv", b"<h1>Bad Gateway</h1>\n", "an HTML page"),
    "XML": ("a.csv", b'<?xml version="1.0"?>\n<rows/>', "XML"),
    "XML without its first line": ("a.csv", b"<Error><Code>Denied</Code></Error>", "XML"),
    "XML by lines": ("a.tsv", b"<rows>\n\t<row id='1'/>\n</rows>", "XML"),
    "JSON": ("a.csv", b'[{"id": 1, "x": "a"}]', "JSON"),
    "JSON by lines": ("a.dat", b'{"id": 1, "x": 2}\n{"id": 2, "x": 3}\n', "JSON"),
    "a dump of MySQL": (
        "a.csv", b"/*M!999999\\- enable */\n-- MariaDB dump 10.19\n", "an SQL dump.*a database",
    ),
    "a dump of PostgreSQL": ("a.csv", b"--\n-- PostgreSQL database dump\n--\n", "an SQL dump"),
    "a dump of SQLite": (
        "a.tsv", b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n", "an SQL dump",
    ),
    "statements": (
        "a.csv", b"-- orders of 2024\n/* a */ create table o (id int);\n", "an SQL dump",
    ),
    "a script in UTF-16": ("a.csv", "USE [shop]\r\nGO\r\n".encode("utf-16"), "an SQL dump"),
    "a database": ("a.csv", b"SQLite format 3\0" + bytes(84), "an SQLite database"),
    "Parquet": ("a.csv", b"PAR1" + bytes(40), "a Parquet file.*name it .parquet"),
    "gzip": ("a.csv", gzip.compress(b"a,b\n1,2\n"), "compressed by gzip.*name it .gz"),
    "a workbook": ("a.csv", b"PK\x03\x04" + bytes(40), "a ZIP archive or an Excel file"),
    "a PDF": ("a.csv", b"%PDF-1.7\n", "a PDF"),
}  # fmt: skip


@pytest.mark.parametrize("way", REFUSED)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path: Path, way: str) -> None:
    name, data, message = REFUSED[way]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=f"{name}' is {message}"):
        infer(tmp_path)


@pytest.mark.parametrize(("scheme", "data"), [("sqlite", POINTER), ("duckdb", PAGE)])
def test_so_is_a_database(tmp_path: Path, scheme: str, data: bytes) -> None:
    (tmp_path / "a.db").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.db' is (a Git LFS pointer|an HTML page)"):
        infer(f"{scheme}:///{tmp_path / 'a.db'}")


def test_a_zstandard_file_is_judged_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_bytes(PAGE)
    target = tmp_path / "a.csv.zst"
    duckdb.sql(
        f"COPY (FROM read_csv('{tmp_path / 'page.txt'}', header = false, delim = '', quote = '', "
        "escape = '', auto_detect = false, columns = {'line': 'VARCHAR'})) "
        f"TO '{target}' (FORMAT csv, HEADER false, COMPRESSION zstd)"
    )
    (tmp_path / "page.txt").unlink()
    with pytest.raises(SourceError, match="zst' is an HTML page"):
        infer(tmp_path)


def test_a_file_that_is_left_out_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "gone.csv").write_bytes(PAGE)
    (tmp_path / "users.csv").write_text("id,x\n1,a\n2,b\n")
    assert infer(tmp_path, exclude_tables=["gone"]).table_names() == ["users"]


GOOD = {
    "prices with brackets": b"<TICKER>,<PER>,<DATE>\nA,D,20240105\n",
    "prices with brackets and tabs": b"<DATE>\t<OPEN>\n2024.01.05\t1.5\n",
    "words of SQL": b"set number;use case;begin;\n1;2;3;\n",
    "a use": b"use case;count\na;1\n",
    "a column of SQL": b"create,insert\n1,2\n",
    "marked-up cells": b"<b>name</b>,x\n<i>a</i>,1\n",
    "braces in a cell": b'{"a": 1}\t5\n{"a": 2}\t6\n',
    "a column version": b"version,url\n1,https://git-lfs.github.com\n",
    "brackets": b"[id],[name]\n1,a\n",
    "a dash": b"--,dump\n1,2\n"[2:],
    "nothing": b"",
}


@pytest.mark.parametrize("way", GOOD)
def test_a_table_that_begins_alike_is_not(tmp_path: Path, way: str) -> None:
    (tmp_path / "a.csv").write_bytes(GOOD[way])
    assert check_first_bytes(tmp_path / "a.csv") == tmp_path / "a.csv"


def test_a_long_row_of_comments_takes_no_time(tmp_path: Path) -> None:
    """A pattern with two ways for each comment took longer than anyone waits."""
    (tmp_path / "a.csv").write_bytes(b"/**/ " * 900 + b"<!-- -->" * 900)
    assert check_first_bytes(tmp_path / "a.csv").name == "a.csv"
