"""Predictions: whose, in which order, in which files, and that none reads the future."""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import bakery
import duckdb
import headwater
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from untrained import untrained_run

import confluence
from confluence.answers import prediction_files as answers_module
from confluence.answers.key_file import KeyFileError, csv_lines, read_keys
from confluence.answers.prediction_files import import_duckdb
from confluence.cli.main import main
from confluence.config import Config

SMALL: dict[str, Any] = {
    "preset": "tiny", "width": 16, "layers": 2, "sequence_length": 32, "max_rows": 12, "steps": 6,
    "max_hops": 1,  # small contexts, of which no child is drawn by lot
    "compute_dtype": "float32",
}  # fmt: skip
AT = "2025-04-20"


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    """A run on a task whose anchors have a composite key."""
    out = tmp_path_factory.mktemp("runs") / "next_sale"
    return confluence.train(store, task="next_sale", out=out, **SMALL)


@pytest.fixture(scope="module")
def moods(store: Path, tmp_path_factory: pytest.TempPathFactory) -> confluence.Run:
    """A run on a task with categories, whose anchors have a key of text."""
    out = tmp_path_factory.mktemp("runs") / "mood"
    return confluence.train(store, task="mood", out=out, **SMALL)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---- splits


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_rows_of_a_split_are_in_the_order_of_its_label_file(
    run: confluence.Run, split: str, tmp_path: Path
) -> None:
    answers = run.predict(split=split, path=tmp_path / "p.csv")
    asked = bakery.label_rows(split)
    shown = [(str(row["key"][0]), row["key"][1], row["obs_time"]) for row in answers]
    assert shown == asked
    written = read_csv(tmp_path / "p.csv")
    assert [(w["key_city"], int(w["key_number"]), w["obs_time"]) for w in written] == asked
    assert [float(w["prediction"]) for w in written] == [row["prediction"] for row in answers]
    assert {w["probability"] for w in written} == {""}


def test_rows_of_a_query_are_in_its_order_and_all_there(moods: confluence.Run) -> None:
    seeds = headwater.Store(moods.place().store).task_seeds("mood")
    for split, number in (("val", 1), ("test", 2)):
        answers = moods.predict(split=split)
        with headwater.Sampler(moods.place().store, tasks=["mood"]) as sampler:
            mine = np.flatnonzero(sampler.splits("mood") == number)
        mine = mine[np.argsort(seeds["position"][mine])]
        keys = headwater.Store(moods.place().store).keys(seeds["anchor_row"][mine])["name"]
        assert [row["key"] for row in answers] == keys
        assert len(answers) > 3


def test_a_category_is_named_with_its_probability(moods: confluence.Run) -> None:
    answers = moods.predict(split="test")
    assert {row["prediction"] for row in answers} <= set(bakery.MOODS)
    assert all(1 / 3 <= row["probability"] < 1 for row in answers)


# ---- rows


def test_answers_are_a_sequence_of_rows(run: confluence.Run) -> None:
    answers = run.predict(split="val")
    rows = list(answers)
    assert len(answers) == len(rows) == bakery.SEEDS_BY_SPLIT["val"]
    assert answers[0] == rows[0] and answers[-1] == rows[-1] and answers[2:4] == rows[2:4]
    assert answers == rows and answers != rows[:-1]
    with pytest.raises(IndexError):
        answers[len(rows)]
    columns = answers.columns()
    assert list(columns) == ["key_city", "key_number", "obs_time", "prediction", "probability"]
    assert columns["prediction"] == [row["prediction"] for row in rows]


def test_long_outputs_are_the_same_piece_by_piece(
    run: confluence.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run.predict(split="train", path=tmp_path / "whole.csv")
    rows = list(whole)
    whole.write(tmp_path / "whole.parquet")
    monkeypatch.setattr(answers_module, "PIECE", 7)  # 40 rows: the last piece is short
    assert list(whole) == rows
    whole.write(tmp_path / "pieces.csv")
    whole.write(tmp_path / "pieces.parquet")
    assert (tmp_path / "pieces.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    both = [
        duckdb.sql(
            f"SELECT * REPLACE (epoch_us(obs_time) AS obs_time) FROM '{tmp_path / name}.parquet'"
        ).fetchall()
        for name in ("whole", "pieces")
    ]
    assert both[0] == both[1] and len(both[0]) == len(rows)


# ---- files


def test_parquet_has_the_rows_of_the_csv_with_types(
    run: confluence.Run, moods: confluence.Run, tmp_path: Path
) -> None:
    for trained, keys in ((run, "key_city VARCHAR, key_number BIGINT"), (moods, "key VARCHAR")):
        answers = trained.predict(split="test", path=tmp_path / "sub" / "p.PARQUET")
        described = duckdb.sql(f"DESCRIBE FROM read_parquet('{tmp_path / 'sub' / 'p.PARQUET'}')")
        types = {name: kind for name, kind, *_ in described.fetchall()}
        kind = "DOUBLE" if trained is run else "VARCHAR"
        expected = dict(column.split() for column in keys.split(", "))
        assert types == {
            **expected, "obs_time": "TIMESTAMP WITH TIME ZONE", "prediction": kind,
            "probability": "DOUBLE",
        }  # fmt: skip
        shown = ", ".join(expected)
        found = duckdb.sql(
            f"SELECT {shown}, epoch_us(obs_time), prediction, probability"
            f" FROM read_parquet('{tmp_path / 'sub' / 'p.PARQUET'}')"
        ).fetchall()
        columns = answers.columns()
        columns[next(iter(expected))] = [str(key) for key in columns[next(iter(expected))]]
        columns["obs_time"] = [
            int(np.datetime64(text, "us").astype(np.int64)) for text in columns["obs_time"]
        ]
        assert found == list(zip(*columns.values(), strict=True))
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["p.PARQUET"]


def test_answers_are_written_to_a_path_that_is_a_text(run: confluence.Run, tmp_path: Path) -> None:
    answers = run.predict(split="val", path=tmp_path / "given.csv")
    answers.write(f"{tmp_path}/sub/p.csv")
    written = (tmp_path / "sub" / "p.csv").read_text(encoding="utf-8")
    assert written == (tmp_path / "given.csv").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"'p\.txt' ends in neither \.csv nor \.parquet"):
        answers.write("p.txt")


def test_an_output_that_cannot_be_written_is_told_before_anything_is_predicted(
    run: confluence.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluence.runs.ask.Predictor", None)  # nothing is predicted
    with pytest.raises(ValueError, match=r"'.*p\.txt' ends in neither \.csv nor \.parquet"):
        run.predict(split="val", path=tmp_path / "p.txt")
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'duckdb<2'$"):
        run.predict(split="val", path=tmp_path / "p.parquet")
    with pytest.raises(ImportError, match="Parquet needs duckdb, which is not installed"):
        import_duckdb()
    assert list(tmp_path.iterdir()) == []


# ---- keys


def test_a_key_does_not_run_as_a_formula_and_is_read_again_as_it_was(
    run: confluence.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = run.predict(split="val", path=tmp_path / "first.csv")
    columns = answers.columns()
    count = len(columns["prediction"])
    columns |= {name: ["=1+1", "-5", "'@x"] * count for name in answers.key_columns}
    monkeypatch.setattr(
        type(answers), "columns",
        lambda self, start=0, stop=None: {n: v[:count][start:stop] for n, v in columns.items()},
    )  # fmt: skip
    path = tmp_path / "formulas.csv"
    answers.write(path)
    found = [row[answers.key_columns[0]] for row in read_csv(path)]
    assert found[:3] == ["'=1+1", "-5", "''@x"]
    assert [values[0] for _, values in csv_lines(path)][1:4] == ["=1+1", "-5", "'@x"]


def test_keys_of_text_are_taken_as_they_are(
    moods: confluence.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.csv"
    asked = '007,"Ulm, Donau", 12,Aachen'
    command = ["predict", str(moods.out), "--keys", asked, "--at", AT, "--output", str(path)]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["key"] for row in rows] == ["007", "Ulm, Donau", 12, "Aachen"]
    assert [row["key"] for row in read_csv(path)] == ["007", "Ulm, Donau", "12", "Aachen"]
    assert {row["obs_time"] for row in rows} == {f"{AT}T00:00:00"}
    command[3] = asked.replace(",Aachen", "\n\nAachen\n")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == rows
    assert main(command) == 0  # for people: the rows, though they are in a file
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["key", "007", "Ulm,", "12", "Aachen", "4"]
    assert table[1].split()[1:3] == [AT, str(rows[0]["prediction"])]
    assert table[-1] == f"4 predictions in {path}"
    with pytest.raises(TypeError, match="keys is the text '007', which would be a key per letter"):
        moods.predict(keys="007", at=AT)


@pytest.mark.parametrize("series", [pandas.Series, polars.Series])
def test_a_series_is_a_list_of_keys_that_is_given_by_name(
    moods: confluence.Run, series: Any
) -> None:
    names = ["007", "Aachen"]
    expected = moods.predict(keys=names, at=AT)
    assert moods.predict(keys=series(names), at=series([AT, AT])) == expected
    with pytest.raises(TypeError) as caught:
        moods.predict(series(names))
    assert str(caught.value) == (
        "predict got a Series without a name: give keys=..., such as"
        " predict(keys=[42, 77], at='2026-11-01'), keys_file=... or split='test'"
    )


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table, dict])
def test_a_table_of_keys_is_refused(moods: confluence.Run, frame: Any) -> None:
    """The names of its columns were taken for keys."""
    with pytest.raises(
        TypeError, match=r"^keys is a \w+, expected a list: give the column of keys"
    ):
        moods.predict(keys=frame({"name": ["007", "Aachen"]}), at=AT)


def test_an_unknown_key_is_one_error_with_the_nearest(
    moods: confluence.Run, run: confluence.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(moods.out), "--keys", "7,Achen,12", "--at", AT]) == 1
    assert capsys.readouterr().err == (
        "confluence: table 'cities' has no rows with the keys '7', 'Achen',"
        " did you mean 'Aachen'?\n"
    )
    with pytest.raises(KeyError, match=r"\('Ulm Donau', 3\), did you mean \('Ulm, Donau', 3\)"):
        run.predict(keys=[("Ulm Donau", 3)], at=AT)
    with pytest.raises(ValueError, match="has 2 key columns"):
        run.predict(keys=["Aachen"], at=AT)


def test_times_have_an_offset_or_are_utc(run: confluence.Run, tmp_path: Path) -> None:
    key = ("Aachen", 3)
    path = tmp_path / "p.csv"
    naive = run.predict(keys=[key], at="2025-03-10T05:30:00", path=path)
    zoned = run.predict(keys=[key], at="2025-03-10T06:30:00+01:00", path=path)
    each = run.predict(keys=[key, key], at=["2025-03-10T05:30:00Z", "2025-03-11"], path=path)
    assert naive == zoned == each[:1]
    assert each[1]["obs_time"] == "2025-03-11T00:00:00"
    with pytest.raises(ValueError, match="seeds of a split have times of their own"):
        run.predict(split="val", at=AT)
    file = tmp_path / "keys.csv"
    file.write_text("key_city,key_number\nAachen,3\n")
    for asked in ({"keys": [key]}, {"keys_file": file}):
        with pytest.raises(headwater.TaskError) as caught:
            run.predict(**asked, path=path)
        assert str(caught.value) == (
            "task 'next_sale' needs the time of each question, without which its contexts would"
            " show everything that ever happened: give at=, such as at='2026-11-01' (--at on the"
            " command line)"
        )


def test_a_time_far_from_all_seeds_is_told(run: confluence.Run, tmp_path: Path) -> None:
    key = ("Aachen", 3)
    times = ["2225-03-10T05:30:00", "2025-03-10"]
    told = (
        r"1 of 2 questions are asked far from the seeds of task '\w+' \(.+ to .+\), such as at 2225"
    )
    with pytest.warns(UserWarning, match=told):
        answers = run.predict(keys=[key, key], at=times, path=tmp_path / "p.csv")
    assert len(answers) == 2


def test_questions_before_their_row_came_to_be_are_refused(
    shop_store: Path, cfg: Config, tmp_path: Path
) -> None:
    with headwater.Store(shop_store) as store:
        _, high = store.metadata["tables"][store.table_index("customers")]["row_range"]
        last = high - 1  # rows are in the order of their times
        key = store.keys([last])["customer_id"][0]
        came = np.datetime64(store.core.row_time(last), "us")
    day = np.timedelta64(1, "D")
    times = [str(came - day), str(came), str(came + day)]
    told = (
        rf"1 of 3 questions is asked before the row of 'customers' came to be: {key} at .+, but "
        rf"the day in customers.signed_up_on is over at {str(came)[:10]}"
    )
    run = untrained_run(shop_store, "churn", cfg, tmp_path)
    with pytest.raises(headwater.TaskError, match=told):
        run.predict(keys=[key] * 3, at=times)
    assert len(run.predict(keys=[key] * 2, at=times[1:])) == 2


def test_times_that_no_line_has_are_as_none(store: Path, tmp_path: Path) -> None:
    """As in the predictions of a task without times."""
    opened = headwater.Store(store)
    file = tmp_path / "keys.csv"
    file.write_text("key_city,key_number,obs_time,prediction\nAachen,1,,3.5\nAachen,2,,2.5\n")
    asked = read_keys(file, opened, "next_sale")
    assert (asked.rows.size, asked.obs_times) == (2, None)
    day = np.datetime64(AT, "us").astype(np.int64)
    assert read_keys(file, opened, "next_sale", AT).obs_times == [day, day]
    file.write_text("key_city,key_number,obs_time\n")
    assert read_keys(file, opened, "next_sale").obs_times == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [("", "--keys has no key"), ('"Ulm, Donau', "has a quote that nothing closes")],
)
def test_keys_that_are_none_are_refused(
    asked: str, says: str, moods: confluence.Run, run: confluence.Run, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    output = ["--at", AT, "--output", str(tmp_path / "p.csv")]
    assert main(["predict", str(moods.out), "--keys", asked, *output]) == 1
    assert says in capsys.readouterr().err
    assert main(["predict", str(run.out), "--keys", "Aachen,1", *output]) == 1
    said = "keys of one column, these have city, number: give a file of them (--keys-file)"
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_keys_is_answered_in_its_order(run: confluence.Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    file.write_text(
        "\ufeffobs_time,number, city\n2025-03-10T05:30:00,3,Aachen\n\n,11,007\n"
        '2025-03-10,1,"Bad ""Soden"""\n', encoding="utf-8",
    )  # fmt: skip
    path = tmp_path / "p.csv"
    answers = run.predict(keys_file=file, at=AT, path=path)
    assert [(row["key"], row["obs_time"]) for row in answers] == [
        (("Aachen", 3), "2025-03-10T05:30:00"), (("007", 11), f"{AT}T00:00:00"),
        (('Bad "Soden"', 1), "2025-03-10T00:00:00"),
    ]  # fmt: skip
    one_by_one = [
        run.predict(keys=[row["key"]], at=row["obs_time"], path=path)[0]["prediction"]
        for row in answers
    ]
    np.testing.assert_allclose([row["prediction"] for row in answers], one_by_one, rtol=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_replace_predictions_and_no_input(
    moods: confluence.Run, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The keys were replaced by the answers."""
    path, keys = tmp_path / f"p.{suffix}", tmp_path / f"keys.{suffix}"
    answers = moods.predict(split="val", path=path)
    answers.write(path)
    columns = {"name": answers.columns()["key"][:1], "obs_time": [AT]}
    table = pandas.DataFrame(columns)
    table.to_csv(keys, index=False) if suffix == "csv" else table.to_parquet(keys)
    (tmp_path / f"link.{suffix}").symlink_to(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    command = ["predict", str(moods.out), "--keys-file"]
    for asked in (path, keys):
        assert main([*command, str(asked), "--output", str(asked)]) == 1
        said = f"'{asked}' is an input (--keys-file) and the output (--output)"
        assert said in capsys.readouterr().err
        with pytest.raises(ValueError, match="is an input"):
            moods.predict(keys_file=asked, path=asked)
    for taken in (keys, tmp_path / f"link.{suffix}"):
        assert main(["predict", str(moods.out), "--split", "val", "--output", str(taken)]) == 1
        assert f"'{taken}' exists already and is not a file of" in capsys.readouterr().err
        with pytest.raises(FileExistsError, match="exists already and is not a file of predict"):
            answers.write(taken)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert main([*command, str(keys), "--output", str(path)]) == 0
    assert path.read_bytes() != before[path.name]


def test_keys_come_through_no_pipe_but_one_of_the_shell(store: Path, tmp_path: Path) -> None:
    opened = headwater.Store(store)
    for name in ("keys.csv", "keys.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(OSError, match="Is a named pipe, not a file"):
            read_keys(tmp_path / name, opened, "next_sale")
    reading, writing = os.pipe()
    os.write(writing, b"city,number\nAachen,1\n")
    os.close(writing)
    try:
        assert read_keys(Path(f"/dev/fd/{reading}"), opened, "next_sale").rows.size == 1
    finally:
        os.close(reading)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_of_predictions_can_be_asked_about_again(
    run: confluence.Run, moods: confluence.Run, tmp_path: Path, suffix: str
) -> None:
    for trained in (run, moods):
        first = trained.predict(split="test", path=tmp_path / f"first.{suffix}")
        command = ["predict", str(trained.out), "--keys-file", str(tmp_path / f"first.{suffix}")]
        assert main([*command, "--output", str(tmp_path / f"again.{suffix}")]) == 0
        store = headwater.Store(trained.place().store)
        asked = read_keys(tmp_path / f"again.{suffix}", store, trained.place().name)
        keys = [list(column) for column in store.keys(asked.rows).values()]
        columns = first.columns()
        assert keys == list(columns.values())[: len(keys)]
        times = [np.datetime64(text, "us").astype(np.int64) for text in columns["obs_time"]]
        assert asked.obs_times == times


def test_all_problems_of_a_file_come_at_once(store: Path, tmp_path: Path) -> None:
    opened = headwater.Store(store)
    file = tmp_path / "keys.csv"
    file.write_text(
        "city,number,obs_time\nAachen,1,2025-03-10\nAchen,1,2025-03-10\nAachen,2\n"
        "Aachen,3,yesterday\nAachen,4,\nAachen,99,2025-03-10\n"
    )
    with pytest.raises(KeyFileError) as caught:
        read_keys(file, opened, "next_sale")
    assert str(caught.value) == (
        f"'{file}' has 4 problems: line 4: 2 values, not 3; line 5: 'yesterday' is not an ISO 8601"
        " time such as '2026-11-01'; line 6: no obs_time, and no time for all is given; lines 3, 7:"
        " table 'shops' has no rows with the keys ('Achen', '1'), ('Aachen', '99'), did you mean"
        " ('Aachen', 1) and ('Aachen', 9)?"
    )
    file.write_text("town,number,obstime,prediction\nAachen,1,2025-03-10,\n")
    with pytest.raises(KeyFileError) as caught:
        read_keys(file, opened, "next_sale")
    assert str(caught.value) == (
        f"'{file}' has 3 problems: no column 'city' or 'key_city', the key of 'shops'; unknown"
        " column 'town'; unknown column 'obstime', did you mean 'obs_time'?"
    )
    file.write_bytes(b"city,number\nAachen,1\nM\xfcnchen,1\n")
    with pytest.raises(
        KeyFileError, match=r"it is no CSV file in UTF-8: .* can't decode byte 0xfc"
    ):
        read_keys(file, opened, "next_sale")
    file.write_text("city,number\n" + "Aachen\n" * 25)
    with pytest.raises(KeyFileError, match=r"has 25 problems: .*line 21: .*; and 5 more$"):
        read_keys(file, opened, "next_sale")
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        read_keys(tmp_path / "none.parquet", opened, "next_sale")
    for text in ("", "city,number\nAachen,1\n"):
        (tmp_path / "no.parquet").write_text(text)
        with pytest.raises(KeyFileError, match=r"no\.parquet': it is no Parquet file: .*"):
            read_keys(tmp_path / "no.parquet", opened, "next_sale")
    file.write_text("city,key_city,number\nAachen,Aachen,1\n")
    with pytest.raises(KeyFileError, match="the key is there twice, as 'city' and as 'key_city'"):
        read_keys(file, opened, "next_sale")
    duckdb.sql(
        "SELECT 'Aachen' AS city, 1 AS number, TIMESTAMP 'infinity' AS obs_time"
    ).write_parquet(str(tmp_path / "ever.parquet"))
    with pytest.raises(KeyFileError, match="line 2: obs_time is infinite"):
        read_keys(tmp_path / "ever.parquet", opened, "next_sale")


# ---- time


def test_a_prediction_does_not_read_what_comes_after_its_time(
    run: confluence.Run, tmp_path: Path
) -> None:
    keys = bakery.SHOPS[::7]
    before, after = f"{AT}T11:59:59", f"{AT}T12:00:01"
    canary = bakery.build(tmp_path / "canary", changed_from=f"{AT} 12:00:00")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the store was rebuilt
        other = confluence.load(run.out, store=canary)

    def values(trained: confluence.Run, at: str) -> list[float]:
        answers = trained.predict(keys=keys, at=at, path=tmp_path / "p.csv")
        return [row["prediction"] for row in answers]

    assert values(other, before) == values(run, before)
    changed = Counter(a != b for a, b in zip(values(other, after), values(run, after), strict=True))
    assert changed[True] > len(keys) / 2, "the canary shows where it may be seen"
