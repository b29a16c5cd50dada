"""The databases of the suite, with tables and columns that their questions need.

A question about a pair has two sides: `first` and `second` are keys of one table. A pair is drawn
by hashes of its own keys, and so are its sides, so that they are the same on every machine. The
database is copied first; no copy is committed.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import headwater.shop

# By database: a table and its pairs, or a column. Of a roll call six countries that said yes are
# each paired with one that did not; of an election or an episode a share of all unequal pairs is
# taken.
ADDITIONS = {
    "unvotes": """
        CREATE TABLE duels (
            duel_id INTEGER PRIMARY KEY,
            rcid INTEGER REFERENCES un_roll_calls (rcid),
            first TEXT REFERENCES countries (country),
            second TEXT REFERENCES countries (country)
        );
        WITH drawn AS (
            SELECT rcid, country, vote = 'yes' AS yes, row_number() OVER (
                PARTITION BY rcid, vote = 'yes' ORDER BY digest(rcid || country), country
            ) AS place
            FROM un_votes
        )
        INSERT INTO duels (rcid, first, second)
        SELECT rcid, iif(turned, b, a), iif(turned, a, b) FROM (
            SELECT y.rcid, y.country AS a, n.country AS b,
                digest(y.rcid || y.country || n.country) % 2 AS turned
            FROM drawn y JOIN drawn n ON n.rcid = y.rcid AND n.place = y.place AND NOT n.yes
            WHERE y.yes AND y.place <= 6
        )
        ORDER BY rcid, a, b;
    """,
    "parlgov": """
        CREATE TABLE duels (
            duel_id INTEGER PRIMARY KEY,
            election_id INTEGER REFERENCES election (id),
            first INTEGER REFERENCES party (id),
            second INTEGER REFERENCES party (id)
        );
        INSERT INTO duels (election_id, first, second)
        SELECT election_id, iif(turned, b, a), iif(turned, a, b) FROM (
            SELECT x.election_id, x.party_id AS a, y.party_id AS b,
                digest(x.election_id || '-' || x.party_id || '-' || y.party_id) AS code,
                digest(y.party_id || '-' || x.party_id || '-' || x.election_id) % 2 AS turned
            FROM election_result x JOIN election_result y
                ON y.election_id = x.election_id AND y.party_id > x.party_id
            WHERE x.vote_share > 0 AND y.vote_share > 0 AND x.vote_share <> y.vote_share
        )
        WHERE code % 4 = 0
        ORDER BY election_id, a, b;
    """,
    "survivoR": """
        CREATE TABLE duels (
            duel_id INTEGER PRIMARY KEY,
            version_season TEXT,
            episode INTEGER,
            first TEXT REFERENCES castaway_details (castaway_id),
            second TEXT REFERENCES castaway_details (castaway_id),
            FOREIGN KEY (version_season, episode) REFERENCES episodes (version_season, episode)
        );
        INSERT INTO duels (version_season, episode, first, second)
        SELECT version_season, episode, iif(turned, b, a), iif(turned, a, b) FROM (
            SELECT x.version_season, x.episode, x.castaway_id AS a, y.castaway_id AS b,
                digest(x.version_season || x.episode || x.castaway_id || y.castaway_id) AS code,
                digest(y.castaway_id || x.castaway_id || x.version_season || x.episode) % 2
                    AS turned
            FROM confessionals x JOIN confessionals y
                ON y.version_season = x.version_season AND y.episode = x.episode
                AND y.castaway_id > x.castaway_id
            WHERE x.confessional_count <> y.confessional_count
        )
        WHERE code % 8 = 0
        ORDER BY version_season, episode, a, b;
    """,
    "euip": """
        ALTER TABLE cases ADD COLUMN opened TEXT;
        UPDATE cases SET opened = first.date FROM (
            SELECT case_id, min(decision_date) AS date FROM decisions GROUP BY case_id
        ) AS first WHERE first.case_id = cases.case_id;
    """,
}
# Tables that no question needs: without times, or written from what came later.
UNUSED = {
    "completejourney": ["promotions"],
    "eusa": ["aid_instruments"],
    "parlgov": ["info_data_source", "info_table", "info_variable", "party_change",
                "party_name_change", "politician_president"],
    "survivoR": ["advantage_*", "auction_details", "boot_*", "castaway_scores", "castaways",
                 "challenge_*", "journeys", "jury_votes", "survivor_auction", "tribe_*",
                 "vote_history"],
}  # fmt: skip
# The test part that rel-f1 comes with has no labels: its val is the test here, and the end of its
# train the val.
F1_PARTS = {
    "train": ("train", "< '2001-12-01'"),
    "val": ("train", ">= '2001-12-01'"),
    "test": ("val", "IS NOT NULL"),
}


def digest(text: str) -> int:
    """31 bits of the MD5 of a text."""
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16) >> 1


def open_source(database: str, data: Path, work: Path) -> str:
    """The source of a database, by the name of its metadata; a copy in `work` if it needs one."""
    if database == "shop":
        return f"sqlite:///{made(work / 'shop.sqlite', headwater.shop.generate)}"
    if database == "football":
        return str(data / "international_results")
    folder = data / database
    file = (folder if folder.is_dir() else data / "corpus" / database) / f"{database}.sqlite"
    if database in ADDITIONS:
        file = made(work / f"{database}.sqlite", lambda copy: extend(file, copy))
    return f"sqlite:///{file}"


def made(path: Path, make: Callable[[Path], object]) -> Path:
    """A file, made unless it is there; one that is interrupted is not."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"unfinished-{path.name}")
        unfinished.unlink(missing_ok=True)
        make(unfinished)
        unfinished.rename(path)
    return path


def extend(database: Path, copy: Path) -> None:
    """Copy a SQLite database, and add what its questions need."""
    shutil.copyfile(database, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.create_function("digest", 1, digest, deterministic=True)
        connection.executescript(ADDITIONS[database.stem])
        connection.commit()


def label_tables(database: str, data: Path, work: Path) -> Path | None:
    """The folder of a database's label tables; None if its questions are queries."""
    if database != "rel-f1":
        return None
    work.mkdir(parents=True, exist_ok=True)
    for part, (given, when) in F1_PARTS.items():
        source = data / database / "tasks" / f"driver-top3.{given}.csv"
        query = f"SELECT * FROM read_csv('{source}', all_varchar = true) WHERE date {when}"
        duckdb.sql(query).write_csv(str(work / f"top3.{part}.csv"))
    return work
