"""Which key a column refers to: the table that it names, then other names, then values alone."""

from __future__ import annotations

import pytest
from databases import TinyTable, draft
from headwater.facts.names import stem
from headwater.metadata.parts import ColumnRef


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("user", "users"), ("category", "categories"), ("box", "boxes"), ("glass", "glasses"),
        ("house", "houses"), ("status", "statuses"), ("bus", "buses"), ("analysis", "analyses"),
        ("cache", "caches"), ("church", "churches"), ("child", "children"), ("series", "series"),
        ("cookie", "cookies"), ("rechnung", "rechnungen"), ("ciudad", "ciudades"),
        ("transacao", "transacoes"), ("knife", "knives"), ("wolf", "wolves"), ("index", "indices"),
    ],
)  # fmt: skip
def test_a_word_and_its_plural_have_one_stem(one: str, several: str) -> None:
    assert stem(one) == stem(several)


def test_different_words_have_different_stems() -> None:
    words = ("plan", "plane", "stat", "state", "car", "care", "person", "persona", "store", "story")
    assert len({stem(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    ("held", "expected"),
    [(9, ColumnRef("stats", "id")), (8, ColumnRef("quick_stats", "id"))],
)
def test_the_table_that_a_column_names_comes_before_one_that_contains_its_values(
    held: int, expected: ColumnRef
) -> None:
    """Of ten values stats has nine, and quick_stats all, and fewer rows; of eight it is too few."""
    ids = list(range(held)) + list(range(100, 120))
    database = {
        "quick_stats": TinyTable(
            {"id": "INTEGER", "size": "DOUBLE"}, [(j, j / 3) for j in range(10)]
        ),
        "stats": TinyTable({"id": "INTEGER", "size": "DOUBLE"}, [(j, j / 7) for j in ids]),
        "natures": TinyTable(
            {"id": "INTEGER", "best_stat_id": "INTEGER"}, [(j, j % 10) for j in range(60)]
        ),
    }
    assert draft(database).table("natures").column("best_stat_id").foreign_key == expected


@pytest.mark.parametrize("named", [True, False])
def test_values_alone_say_what_a_column_refers_to_only_if_it_names_no_table(named: bool) -> None:
    """All codes of trips are codes of ports; half of them are stations, too."""
    codes = [f"{chr(65 + j // 26)}{chr(65 + j % 26)}X" for j in range(100)]
    column = "station_code" if named else "calls_at"
    database = {
        "ports": TinyTable({"code": "TEXT"}, [(code,) for code in codes]),
        "stations": TinyTable(
            {"station_code": "TEXT"},
            [(code if j < 40 else f"{code}{j}",) for j, code in enumerate(codes)],
        ),
        "trips": TinyTable({"trip_id": "INTEGER", column: "TEXT"}, list(enumerate(codes))),
    }
    expected = None if named else ColumnRef("ports", "code")
    assert draft(database).table("trips").column(column).foreign_key == expected


def test_keys_that_only_number_the_rows_of_their_tables_refer_to_nothing() -> None:
    """Each table of plurel has a row_idx from 0 on; a rank is not a rank of another table."""
    kinds = {"row_idx": "INTEGER", "size": "DOUBLE"}
    database = {
        name: TinyTable(kinds, [(j, j / 7) for j in range(count)])
        for name, count in (("red", 100), ("green", 200), ("blue", 300))
    }
    drafted = draft(database)
    assert [table.every_key() for table in drafted.tables] == [[], [], []]


def test_one_word_that_two_tables_share_is_a_key_unless_it_counts() -> None:
    """rcid is a key by its own word; lap is one of 1 to 60 in both."""
    rolls = [(3000 + 7 * j, f"text {j}") for j in range(60)]
    laps = [(j, 60.5 + j) for j in range(1, 61)]
    votes = [(3000 + 7 * (j % 60), j % 60 + 1, "yes") for j in range(300)]
    drafted = draft(
        {
            "roll_calls": TinyTable({"rcid": "INTEGER", "about": "TEXT"}, rolls),
            "lap_records": TinyTable({"lap": "INTEGER", "seconds": "DOUBLE"}, laps),
            "votes": TinyTable({"rcid": "INTEGER", "lap": "INTEGER", "vote": "TEXT"}, votes),
        }
    )
    votes_table = drafted.table("votes")
    assert votes_table.column("rcid").foreign_key == ColumnRef("roll_calls", "rcid")
    assert votes_table.column("lap").foreign_key is None


def test_a_text_that_is_called_as_its_table_is_what_others_refer_to() -> None:
    """Titles have blanks, and three tables have them all: they are films by the table's name."""
    titles = [f"The {j}th film" for j in range(30)]
    films = TinyTable({"number": "INTEGER", "film": "TEXT"}, list(enumerate(titles, 1)))
    takings = TinyTable({"film": "TEXT", "taken": "DOUBLE"}, [(t, 1.5) for t in titles])
    genres = TinyTable(
        {"genre": "TEXT", "film": "TEXT"}, [("abc"[j % 3], t) for j, t in enumerate(titles * 2)]
    )
    drafted = draft({"takings": takings, "my_films": films, "genres": genres})
    for name in ("takings", "genres"):
        assert drafted.table(name).column("film").foreign_key == ColumnRef("my_films", "film")
    assert drafted.table("my_films").every_key() == []


@pytest.mark.parametrize(("count", "refers"), [(4, False), (5, True)])
def test_a_name_that_is_only_likely_needs_five_values(count: int, refers: bool) -> None:
    """The types of departments are not those of beneficiaries as both are 1 to 4."""
    database = {
        "beneficiary_types": TinyTable(
            {"beneficiary_type_id": "INTEGER", "about": "TEXT"}, [(j, f"t {j}") for j in range(9)]
        ),
        "departments": TinyTable(
            {"department_id": "INTEGER", "department_type_id": "INTEGER"},
            [(j, j % count) for j in range(100)],
        ),
    }
    key = draft(database).table("departments").column("department_type_id").foreign_key
    assert (key is not None) == refers


# ---- keys of several columns -------------------------------------------------------------------


def seasons() -> dict[str, TinyTable]:
    """Eight seasons of five episodes and six players: viewers and ratings have a row for each
    episode, casts for each season and player, scores for each episode and player."""
    episodes = [(f"S{s}", e) for s in range(8) for e in range(1, 6)]
    casts = [(f"S{s}", f"P{p:02}") for s in range(8) for p in range(6)]
    seen = {"season": "TEXT", "episode": "INTEGER"}
    scores = [(s, e, p, j % 7) for j, (s, e) in enumerate(episodes) for t, p in casts if s == t]
    rows = {
        "viewers": (seen | {"millions": "DOUBLE"}, [(*episode, 2.5) for episode in episodes]),
        "ratings": (seen | {"stars": "DOUBLE"}, [(*episode, 1.5) for episode in episodes]),
        "seasons": ({"season": "TEXT", "host": "TEXT"}, [(f"S{s}", "h") for s in range(8)]),
        "players": ({"player": "TEXT", "age": "INTEGER"}, [(f"P{p:02}", p) for p in range(6)]),
        "casts": ({"season": "TEXT", "player": "TEXT", "role": "TEXT"}, [(*c, "r") for c in casts]),
        "scores": (seen | {"player": "TEXT", "points": "INTEGER"}, scores),
    }
    return {name: TinyTable(*entry) for name, entry in rows.items()}


def composites(database: dict[str, TinyTable], table: str) -> list[str]:
    keys = draft(database).table(table).foreign_keys
    return [f"{', '.join(key.columns)} -> {key.table}" for key in keys]


def test_of_tables_with_one_key_of_several_columns_rows_refer_to_one() -> None:
    """ratings and viewers had each other as parents, and every score had both."""
    database = seasons()
    assert composites(database, "scores") == ["season, episode -> viewers"]
    assert composites(database, "ratings") == ["season, episode -> viewers"]
    assert composites(database, "viewers") == []


def test_the_one_is_that_which_more_tables_refer_to() -> None:
    """Of the forty episodes viewers have thirty, which is too few for ratings and scores."""
    database = seasons()
    viewers = database["viewers"]
    database["viewers"] = TinyTable(viewers.types, viewers.rows[:30])
    assert composites(database, "scores") == ["season, episode -> ratings"]
    assert composites(database, "viewers") == ["season, episode -> ratings"]
    assert composites(database, "ratings") == []


def test_a_pair_of_things_is_referred_to_by_neither_of_its_parts() -> None:
    """A score has a season and a player: it does not refer to the row of casts with both."""
    found = draft(seasons())
    assert str(found.table("scores").column("season").foreign_key) == "seasons.season"
    assert str(found.table("scores").column("player").foreign_key) == "players.player"
    assert not any(key.table == "casts" for table in found.tables for key in table.every_key())


def test_a_key_of_several_columns_needs_nine_tenths_of_the_values() -> None:
    database = seasons()
    del database["viewers"]
    ratings = database["ratings"]
    for count, expected in ((36, ["season, episode -> ratings"]), (35, [])):
        database["ratings"] = TinyTable(ratings.types, ratings.rows[:count])
        assert composites(database, "scores") == expected
