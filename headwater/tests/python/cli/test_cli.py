"""The command `headwater`: output, exit status, messages."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import headwater
import pytest
from databases import asked, bookstore, bookstore_metadata, write_sqlite
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.metadata.schema import Schema
from headwater.progress import ProgressDisplay


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with bookstore.db and metadata.json that has one task, as working directory."""
    monkeypatch.chdir(tmp_path)
    write_sqlite(tmp_path / "bookstore.db", bookstore())
    query = "SELECT book_id, TIMESTAMP '2020-04-15' AS seen, 1.5 AS sold FROM books"
    metadata = bookstore_metadata(sold=asked(query, "books", "sold numerical", "seen"))
    Schema.from_dict(metadata).save(tmp_path / "metadata.json")
    return tmp_path


@pytest.fixture
def store(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["build", "sqlite:///bookstore.db", "s", "--metadata", "metadata.json"]) == 0
    capsys.readouterr()
    return folder / "s"


def test_build_prints_a_summary_and_plain_stages(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "sqlite:///bookstore.db", "s", "--metadata", "metadata.json"]) == 0
    output = capsys.readouterr()
    assert "1 keys of sales.book_id name no row" in output.out
    assert "task sold (derived, numerical)" in output.out
    stages = re.findall(r"s  (\w+)$", output.err, re.MULTILINE)
    assert stages == ["read", "convert", "tasks", "keys", "encode", "embed", "write"]


def test_build_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "sqlite:///bookstore.db", "s", "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["inferred"] is True
    assert "books: no temporal column is obvious among appeared" in report["assumed"]
    assert "the schema is inferred" in output.err


def test_bad_input_is_one_message_and_status_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text('{"tables": {"books": {}}, "x": 1}')
    assert main(["build", "sqlite:///bookstore.db", "s", "--metadata", "bad.json"]) == 1
    error = capsys.readouterr().err
    assert error.count("headwater: ") == 1
    assert "problems in the metadata:" in error and "unknown key 'x'" in error
    assert main(["build", "sqlite:///absent.db", "s"]) == 1
    assert "there is no SQLite file 'absent.db'" in capsys.readouterr().err
    assert main(["verify", "absent"]) == 1
    assert "absent" in capsys.readouterr().err


def test_strict_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["build", "sqlite:///bookstore.db", "s", "--metadata", "metadata.json", "--strict"]
    assert main(arguments) == 1
    assert "the build is strict" in capsys.readouterr().err


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["build"], ["fly"], ["verify", "s", "--fast"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    capsys.readouterr()


def test_init_writes_a_draft_and_never_over_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "sqlite:///bookstore.db", "-o", "draft.json"]) == 0
    assert "sold_at" in capsys.readouterr().out
    assert Schema.load(folder / "draft.json").table("books").temporal_column is None
    assert main(["init", "sqlite:///bookstore.db", "-o", "draft.json"]) == 1
    assert "'draft.json' exists already" in capsys.readouterr().err


def test_a_check_is_open_until_it_is_removed_from_its_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else stands in the note is a person's. Nothing is written, and no source is read."""
    metadata = bookstore_metadata()
    metadata["note"] = "hint: of the document"
    table = metadata["tables"]["books"]
    table["note"] = "new: added by init --update; links: a key; values: two; of values"
    for name in ("price", "genre"):
        table["columns"][name]["note"] = "future: shown too early"
    table["columns"]["in_print"]["note"] = "a person says: is fine"
    Path("m.json").write_text(json.dumps(metadata))
    assert main(["init", "--check", "-o", "m.json"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "to check (4):",
        "  books.genre, price: shown too early",
        "  books: a key",
        "  books: two; of values",
        "  bookstore: of the document",
    ]
    assert main(["init", "--check", "-o", "m.json", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found[1] == {"of": "books", "cost": "links", "check": "a key"}
    assert main(["init", "nowhere.db", "--check", "-o", "m.json", "--table", "sales"]) == 1
    capsys.readouterr()
    Path("m.json").write_text(json.dumps(bookstore_metadata()))
    before = Path("m.json").stat().st_mtime_ns
    assert main(["init", "--check", "-o", "m.json"]) == 0
    assert capsys.readouterr().out == "nothing is open\n"
    assert Path("m.json").stat().st_mtime_ns == before
    with pytest.raises(SystemExit):
        main(["init"])
    assert "SOURCE, the database, is needed" in capsys.readouterr().err


def test_inspect_shows_store_table_and_task(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "s"]) == 0
    assert "bookstore, build" in capsys.readouterr().out
    assert main(["inspect", "s", "books"]) == 0
    output = capsys.readouterr().out
    assert "2: essay, novel" in output and "sales.book_id" in output
    assert main(["inspect", "s", "sold"]) == 0
    assert "SELECT book_id" in capsys.readouterr().out
    assert main(["inspect", "s", "book"]) == 1
    assert "did you mean 'books'?" in capsys.readouterr().err
    assert main(["inspect", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][1]["row_range"] == [4, 8]


def test_inspect_shows_what_was_not_taken_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """These counts were in the store's metadata.json and in no text of inspect."""
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("id,x,day\n1,a,2020-01-01\n1,2,\n2,-,2020-01-02\n")
    columns = {
        "id": {"stype": "identifier"},
        "x": {"stype": "numerical", "null_values": ["-"]},
        "day": {"stype": "timestamp"},
    }
    table = {"primary_key": "id", "temporal_column": "day", "on_duplicate_key": "last"}
    document = {"tables": {"t": {**table, "columns": columns}}}
    build(tmp_path / "csv", tmp_path / "s", document, cache=False)
    for arguments in ([], ["t"]):
        assert main(["inspect", str(tmp_path / "s"), *arguments]) == 0
        output = capsys.readouterr().out
        assert "1 values of t are spelled as NULL" in output
        assert "1 rows of t have no time" in output
        assert "1 values of t.x became NULL: not a finite number" in output
        assert "1 rows of t dropped: duplicate primary key" in output


def test_verify_finds_a_flipped_byte(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "s"]) == 0
    assert "sound" in capsys.readouterr().out
    file = next(store.glob("*/texts.bin"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert main(["verify", "s"]) == 1
    assert "texts.bin" in capsys.readouterr().out


def test_sample_shows_one_context(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Four seeds: the splits are by hash, so ask for the one that has any.
    for split in ("train", "val", "test"):
        status = main(["sample", "s", "--task", "sold", "--split", split])
        output = capsys.readouterr()
        if status == 0:
            break
    assert re.search(r"task sold, seed \d, observed at 2020-04-15", output.out)
    assert re.search(r"question mark, sold: [\d.]+\n", output.out)
    assert "#0 task sold seed" in output.out
    assert "parent by the task's anchor key" in output.out
    assert "?" in output.out
    late = ["--sampler-option", "visible_until=2020-04-05"]
    assert main(["sample", "s", "--task", "sold", "--split", split, *late]) == 0
    assert "#0 task sold seed, the newest row seen:  (-13.6 d)\n" in capsys.readouterr().out
    assert main(["sample", "s", "--task", "sold", "--split", split, "--seed-index", "99"]) == 1
    assert "has" in capsys.readouterr().err
    assert main(["sample", "s", "--task", "solt"]) == 1
    assert "did you mean 'sold'?" in capsys.readouterr().err


def test_sample_shows_label_rows_and_whose_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Books 10 and 11 are asked in April and in May; the answer is known two days later."""
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["tasks"]["sold"] |= {
        "query": "SELECT book_id, TIMESTAMP '2020-04-15' + INTERVAL (i * 30) DAY AS seen, "
        "book_id * 10 + i AS sold, CASE i WHEN 0 THEN 'train' ELSE 'test' END AS part "
        "FROM books, range(0, 2) t(i) WHERE book_id <= 11",
        "split_column": "part",
        "label_window": "2 days",
        "allow_open_window": True,  # no book is newer than the questions
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    assert main(["build", "sqlite:///bookstore.db", "s", "--metadata", "metadata.json"]) == 0
    capsys.readouterr()
    command = ["sample", "s", "--task", "sold", "--split", "test"]
    command += ["--sampler-option", "label_rows=3", "--sampler-option", "peer_labels=3"]
    assert main([*command, "--json"]) == 0
    context = json.loads(capsys.readouterr().out)
    rows = {row["row"]: row for row in context["rows"]}
    labels = [row for row in rows.values() if row["key"] == "label"]
    asked = int(float(context["truth"])) // 10
    expected = [f"{asked * 10}", f"{(21 - asked) * 10}"]  # the book's own, then the other's
    assert [row["cells"]["sold"] for row in labels] == expected
    assert {row["cells"]["obs_time"] for row in labels} == {"2020-04-15"}
    assert {row["age_days"] for row in labels} == {30.0}
    assert labels[0]["link"] == {"to": 1, "by": "child by the task's anchor key"}
    assert labels[1]["link"] is None
    other = rows[labels[1]["row"] + 1]
    assert other["table"] == "books" and other["key"] == str(21 - asked)
    assert other["link"] == {"to": labels[1]["row"], "by": "parent by the task's anchor key"}
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"#{labels[1]['row']} task sold label  (-30.0 d)\n" in shown
    for option, message in (
        ("packing=true", "sample sets packing itself"),
        ("peer_label=3", "no option 'peer_label', did you mean 'peer_labels'?"),
    ):
        assert main([*command, "--sampler-option", option]) == 1
        assert message in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_rewrites_itself() -> None:
    terminal = Terminal()
    display = ProgressDisplay(terminal)
    display("read", "books")
    display("convert", "books")
    display.close()
    text = terminal.getvalue()
    assert "\n" not in text
    assert text.count("\r\x1b[2K") == 3
    assert "read: books" in text and text.endswith("\r\x1b[2K")


def test_a_closed_pipe_and_a_terminal_without_unicode_are_no_errors(store: Path) -> None:
    """They were 'Broken pipe' and a codec error."""
    call = f"{sys.executable} -m headwater inspect {store}"
    done = subprocess.run(f"{call} | true", shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(call.split(), capture_output=True, text=True, check=True, env=variables)
    assert "books" in done.stdout


@pytest.mark.parametrize("package", ["headwater", "confluence"])
def test_the_commands_run_as_modules(package: str) -> None:
    pytest.importorskip(package)
    command = [sys.executable, "-m", package, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: {package} ")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headwater {headwater.__version__}\n"
