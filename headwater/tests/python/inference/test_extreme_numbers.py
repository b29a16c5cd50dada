"""Numbers next to which the others of their column look the same: named, counted, never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from databases import TinyTable, arrow_tables, asked, draft, write_csv, write_sqlite
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.facts.extremes import far_values, is_nines
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source
from headwater.metadata.schema import parse_schema
from headwater.store.inspection import losses_of
from headwater.store.store import Store

TYPES = {
    "id": "INTEGER", "gamma": "DOUBLE", "drift": "DOUBLE", "power": "DOUBLE", "chance": "DOUBLE",
    "built": "INTEGER", "price": "DOUBLE", "tip": "DOUBLE", "sold": "INTEGER", "reading": "DOUBLE",
    "pack": "INTEGER",
}  # fmt: skip
# Of 60 rows. Beyond what float32 holds: 2 of power. Too small for it: 3 of chance. Far from all
# others: 6 of gamma (0.5 to 119.5), and 5 of built (1990 to 2019), which have nines; 7 of drift
# (-2.95 to 2.95), which are not nines but 4,095 away, and the others 5.9 apart.
ROWS = [
    (
        j,
        -999.25 if j % 10 == 0 else 0.5 + 119.0 * j / 59,
        4095.0 if j % 9 == 0 else (j - 29.5) / 10,
        -3e39 if j in (7, 31) else 1.5 * j,
        2e-45 if j in (3, 4, 5) else j / 60,
        9999 if j % 12 == 0 else 1990 + j % 30,
        999.0 if j < 5 else 1.25 + 16 * j,  # 999 is within the others, 81.25 to 945.25
        0.0 if j % 2 else 10.0 + j / 6,  # not given is 0, and no more than 10 away
        90_000 if j == 40 else j % 50,  # once
        -9999.0 if j in (1, 2) else 20.0 + j,  # twice
        (1, 2, 3, 5, 10, 200)[j % 6],  # one of few sizes
    )
    for j in range(60)
]
NAMED = {
    "gamma": "6 values are '-999.25' (6), far from all others (2.51695 to 119.5); if that means"
    ' not known, set "null_values": ["-999.25"]',
    "drift": "7 values are '4095.0' (7), far from all others (-2.85 to 2.95); if that means not"
    ' known, set "null_values": ["4095.0"]',
    "power": "2 values are beyond what float32 holds (3.4e38): '-3e+39' (2); next to them all other"
    " values of the column look the same: if they stand for no value, add them to "
    '"null_values": ["-3e+39"]',
    "chance": "3 values are too close to 0 for float32 (below 1.2e-38): '2e-45' (3); a column with"
    ' an "expression" such as their logarithm keeps them apart; if they stand for no value, add '
    'them to "null_values": ["2e-45"]',
    "built": "5 values are '9999' (5), far from all others (1990 to 2019); if that means not known,"
    ' set "null_values": ["9999"]',
}
"""By hand: the others of gamma and of drift begin with j = 1, and 1990 is also of j = 30."""


@pytest.fixture(scope="module", params=["csv", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The same numbers as texts and as numbers."""
    folder, database = tmp_path_factory.mktemp("extremes"), {"log": TinyTable(TYPES, ROWS)}
    if request.param == "csv":
        return write_csv(folder / "csv", database)
    return write_sqlite(folder / "log.db", database)


def checks(found: Draft) -> dict[str, list[str]]:
    table = found.table("log")
    return {column.name: list(map(str, column.checks)) for column in table.columns if column.checks}


def test_a_draft_names_them_with_the_setting_and_a_build_counts_them(
    source: Path | str, tmp_path: Path
) -> None:
    found = draft_source(source)
    assert checks(found) == {name: [text] for name, text in NAMED.items()}
    report = build(source, tmp_path / "store", found.schema())
    lines = {
        name: f"{count} values of log.{name} {rest}"
        for name, (count, _, rest) in ((n, t.partition(" values ")) for n, t in NAMED.items())
    }
    assert report.losses() == [lines["power"], lines["chance"]]
    assert [line for line in report.notes() if " of log." in line] == [
        lines["gamma"], lines["drift"], lines["built"],
    ]  # fmt: skip
    with Store(tmp_path / "store") as store:
        (table,) = store.metadata["tables"]
        assert losses_of(store.metadata) == report.losses()
        assert [cell["cells"]["built"] for cell in (store.row(0), store.row(1))] == [9999, 1991]
    assert table["extremes"][2:4] == [
        {"column": "power", "reason": "beyond float32", "count": 2, "values": {"-3e+39": 2}},
        {"column": "chance", "reason": "too small for float32", "count": 3, "values": {"2e-45": 3}},
    ]
    with pytest.raises(SourceError, match="strict") as refused:
        build(source, tmp_path / "strict", found.schema(), strict=True)
    assert lines["power"] in str(refused.value) and lines["gamma"] not in str(refused.value)


def test_the_setting_that_a_check_names_mends_it(source: Path | str, tmp_path: Path) -> None:
    document = draft_source(source).schema().to_dict()
    columns = document["tables"]["log"]["columns"]
    for name, text in NAMED.items():
        columns[name]["null_values"] = [text.split('"null_values": ["')[1].removesuffix('"]')]
    schema = parse_schema(document)
    texts = str(checks(draft_source(source, schema)))
    assert "taken for NULL: '-999.25' (6)" in texts and "null_values" not in texts
    report = build(source, tmp_path / "store", schema, strict=True)
    assert "extremes" not in report.metadata["tables"][0]
    nulls = {c["name"]: c["stats"]["nulls"] for c in report.metadata["columns"] if c["stats"]}
    assert [nulls[name] for name in NAMED] == [6, 7, 2, 3, 5] and not nulls["reading"]


def test_targets_beyond_float32_are_counted(tmp_path: Path) -> None:
    database = arrow_tables({"log": TinyTable({"id": "INTEGER"}, [(j,) for j in range(9)])})
    answers = "CASE WHEN id < 2 THEN -1e39 WHEN id = 2 THEN 3.4e38 ELSE id END"
    query = f"SELECT id, {answers} AS sum FROM log"
    document = draft_source(database).schema().to_dict()
    document["tasks"] = {"sum": asked(query, "log", "sum numerical")}
    report = build(database, tmp_path / "store", parse_schema(document))
    assert report.losses() == [
        "2 targets of task sum are beyond what float32 holds (3.4e38): let the query answer NULL"
        " for them, or answer in a larger unit"
    ]


@pytest.mark.parametrize(
    ("values", "far"),
    [
        # low, high, rows with each, the ends of the others
        ((-9999.0, 45.0, 3, 1, -30.0, 44.0), [-9999.0]),  # 9,969 away from 75
        ((-9999.0, 45.0, 2, 1, -30.0, 44.0), []),  # two rows only
        ((-999.25, 2000.0, 3, 1, 0.2, 1900.0), [-999.25]),  # none but it is below 0
        ((-999.0, 2000.0, 3, 1, -1.0, 1900.0), []),  # 998 away from 2,001
        ((0.0, 9999999.0, 1, 3, 1.0, 5000.0), [9999999.0]),
        ((0.0, 999.0, 1, 3, 1.0, 800.0), []),  # 199 away from 800
        ((-1.0, 90.0, 50, 1, 0.0, 80.0), []),  # 1 away
        ((0.0, 1010.0, 5, 1, 1000.0, 1009.0), [0.0]),  # 1,000 away from 10
        ((0.0, 1010.0, 4, 1, 1000.0, 1009.0), []),  # four rows only
        ((0.0, 1200.0, 5, 1, 1000.0, 1100.0), []),  # 1,000 away from 200
        ((-9999.0, 9999999.0, 9, 9, 0.0, 100.0), [-9999.0, 9999999.0]),
        ((-9999.0, 45.0, 9, 9, None, None), []),  # there are no others
    ],
)
def test_far_is_by_the_range_of_the_others(values: tuple[float, ...], far: list[float]) -> None:
    assert far_values(*values) == far


def test_nines() -> None:
    assert all(map(is_nines, (-9999.0, 999.0, 9999999.0, -999.25, 999.9, 999.99)))
    assert not any(map(is_nines, (99.0, 9998.0, 19999.0, 999.5, 0.999, 1e308)))


@pytest.mark.parametrize(
    ("ends", "far"),
    [
        ((-5000.0, 5000.0), ["-5000.0", "5000.0"]),  # 4,950 away from 100
        ((-9999.0, 1000.0), ["-9999.0"]),  # 900 away from 128
        ((-9999.0, 9999999.0), ["9999999.0", "-9999.0"]),
    ],
)
def test_both_ends_may_be_far(ends: tuple[float, float], far: list[str]) -> None:
    rows = [(j, ends[j % 2] if j < 22 else float(j - 50)) for j in range(151)]  # -28 to 100
    table = TinyTable({"id": "INTEGER", "depth": "DOUBLE"}, rows)
    (text,) = checks(draft({"log": table}))["depth"]
    assert all(f"'{value}' (11)" in text for value in far) and text.count("(11)") == len(far)
