"""Generates a forum of any size with power-law degrees and builds it into a store.

The question it is for: how fast are batches made from a store much larger than the caches?

    python headwater/bench/generate.py OUT.hw [--rows 5000000] [--text-share 0.2] [--texts 1000000]
                                              [--exponent 3] [--hub 10000000] [--pad-rows]

Users write posts and comments, about six cells per row that is visited; a few users and posts get
most of them: the k-th busiest user has about k^-(1 - 1/exponent) times the degree of the first, and
its number is scrambled, so that busy users lie all over their table. Everybody joined before the
first post, so a parent is always visible. Two tasks: `active` asks about users at random times,
`answered` about comments at their own times.

--text-share is the share of cells that hold a text. The columns that carry texts hold numbers
instead where it is 0, so contexts have the same shape with and without. --texts is how many
distinct ones to draw from (one in 32 rows; a million for 32 million rows).

--hub N adds places and visits: place 0 has N visits, and N/100 places have exactly 100 each, their
rows just as scattered. The tasks `hub` and `ordinary` ask about the first and about the others, at
the same times (bench/hub.py). Visitors of the hub go nowhere else, so neither kind of context
strays into the other. Visits hold no texts.

--pad-rows adds tables of a few rows that refer to users, posts and comments, so that each record
carries their child counts and fills 64 bytes, as those of the yardstick do.

Everything follows from DuckDB's `hash` of the row number: the same options give the same
fingerprint. A store that was made with the same options is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import headwater

VERSION = 2  # of what is generated
START = "TIMESTAMP '2010-01-01'"
SPAN_SECONDS = 500_000_000
USER_SHARE, POST_SHARE, COMMENT_SHARE = 1 / 16, 5 / 16, 10 / 16
SCRAMBLE = 2_654_435_761  # a prime larger than any table
ROWS_PER_TEXT = 32
CONTENT_SHARE = 0.22  # of the visited cells that the content columns make up, as measured
ORDINARY_DEGREE = 100
PADDING = {"users": 5, "posts": 2, "comments": 7}  # incoming keys that bring a record to 64 bytes
PADDING_ROWS = 16


@dataclass(frozen=True)
class Forum:
    """What a store is made of; its name in the store is all of it."""

    rows: int = 5_000_000
    text_share: float = 0.0
    texts: int = 0  # distinct; 0: one in ROWS_PER_TEXT rows
    exponent: float = 3.0
    hub: int = 0
    pad_rows: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.text_share <= CONTENT_SHARE:
            raise ValueError(f"--text-share is {self.text_share}, expected 0 to {CONTENT_SHARE}")
        if self.exponent < 1:
            raise ValueError(f"--exponent is {self.exponent}, expected at least 1")
        if self.hub < 0 or self.hub % ORDINARY_DEGREE:
            raise ValueError(f"--hub is {self.hub}, expected a multiple of {ORDINARY_DEGREE}")

    @property
    def name(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in asdict(self).items())
        return f"forum {VERSION} {options}"

    @property
    def users(self) -> int:
        return max(16, int(self.rows * USER_SHARE))

    @property
    def posts(self) -> int:
        return max(16, int(self.rows * POST_SHARE))

    @property
    def comments(self) -> int:
        return max(16, int(self.rows * COMMENT_SHARE))

    @property
    def places(self) -> int:
        """The hub and the ordinary ones."""
        return 1 + self.hub // ORDINARY_DEGREE


# ---- rows ----------------------------------------------------------------------------------


def _uniform(salt: int) -> str:
    """SQL for a number in [0, 1) from the row number i."""
    return f"(hash(i, {salt}) % 1000000007) / 1000000007.0"


def _time(count: int) -> str:
    """SQL for the time of row i of `count`, evenly over the span."""
    return f"{START} + to_microseconds(CAST(i / {count}.0 * {SPAN_SECONDS} AS BIGINT) * 1000000)"


def _user(forum: Forum, salt: int) -> str:
    rank = f"floor(pow({_uniform(salt)}, {forum.exponent}) * {forum.users})"
    return f"(CAST({rank} AS BIGINT) * {SCRAMBLE} + 17) % {forum.users}"


def _content(forum: Forum, salt: int) -> str:
    """SQL for a text, NULL as often as the share of texts wants it; a number where it is 0."""
    if forum.text_share == 0:
        return _uniform(salt)
    number = f"hash(i, {salt + 1}) % {forum.texts or max(1, forum.rows // ROWS_PER_TEXT)}"
    return (
        f"CASE WHEN {_uniform(salt)} < {forum.text_share / CONTENT_SHARE} "
        f"THEN 'case ' || ({number}) || ' of subject ' || ({number}) % 977 END"
    )


def _forum_rows(forum: Forum) -> dict[str, str]:
    return {
        "users": f"""SELECT i AS user_id, {START} - INTERVAL 1 YEAR + to_seconds(i % 31000000)
            AS joined_at, {_uniform(1)} AS karma, 'c' || (hash(i, 2) % 40) AS country,
            {_content(forum, 90)} AS about FROM range({forum.users}) t(i)""",
        "posts": f"""SELECT i AS post_id, {_user(forum, 3)} AS user_id,
            CASE WHEN i > 1000 AND {_uniform(4)} < 0.6
                 THEN CAST(floor(i * sqrt({_uniform(5)})) AS BIGINT) END AS reply_to,
            {_time(forum.posts)} AS posted_at, 't' || (hash(i, 8) % 1000) AS topic,
            {_content(forum, 92)} AS title, {_content(forum, 94)} AS body,
            hash(i, 9) % 3 = 0 AS pinned FROM range({forum.posts}) t(i)""",
        "comments": f"""SELECT i AS comment_id, {_user(forum, 10)} AS user_id,
            CAST(floor(greatest(10, i / {forum.comments}.0 * {forum.posts})
                 * (1 - pow({_uniform(11)}, {forum.exponent}))) AS BIGINT) AS post_id,
            {_time(forum.comments)} AS written_at, {_content(forum, 96)} AS body
            FROM range({forum.comments}) t(i)""",
    }


def _hub_rows(forum: Forum) -> dict[str, str]:
    """Visits take turns: one of the hub by an even user, one of the next place by an odd one."""
    half = forum.users // 2
    return {
        "places": f"""SELECT i AS place_id, 'p' || (hash(i, 30) % 20) AS kind,
            {_uniform(31)} AS size FROM range({forum.places}) t(i)""",
        "visits": f"""SELECT i AS visit_id,
            CASE WHEN i % 2 = 0 THEN 0 ELSE 1 + (i // 2) % {forum.places - 1} END AS place_id,
            2 * (hash(i, 32) % {half}) + i % 2 AS user_id,
            {_time(2 * forum.hub)} AS visited_at, {_uniform(33)} AS stay,
            hash(i, 34) % 2 = 0 AS paid FROM range({2 * forum.hub}) t(i)""",
    }


def _padding_tables(forum: Forum) -> list[tuple[str, str]]:
    """(table, the table it refers to)."""
    if not forum.pad_rows:
        return []
    return [(f"{name}_mark_{k}", name) for name, count in PADDING.items() for k in range(count)]


def rows(forum: Forum) -> dict[str, str]:
    """A SELECT by table."""
    statements = _forum_rows(forum) | (_hub_rows(forum) if forum.hub else {})
    for table, _ in _padding_tables(forum):
        statements[table] = f"SELECT i AS mark_id, i AS target_id FROM range({PADDING_ROWS}) t(i)"
    return statements


# ---- metadata.json -------------------------------------------------------------------------


def _table(key: str, time_column: str | None, **columns: Any) -> dict[str, Any]:
    temporal = {} if time_column is None else {"temporal_column": time_column}
    return {"primary_key": key, **temporal, "columns": columns}


def _reference(target: str) -> dict[str, str]:
    return {"stype": "identifier", "foreign_key": target}


IDENTIFIER = {"stype": "identifier"}
NUMBER, STAMP = {"stype": "numerical"}, {"stype": "timestamp"}
CATEGORY, BOOLEAN = {"stype": "categorical"}, {"stype": "boolean"}


def _forum_tables(forum: Forum) -> dict[str, Any]:
    content = {"stype": "text"} if forum.text_share else NUMBER
    user, post = _reference("users.user_id"), _reference("posts.post_id")
    return {
        "users": _table(
            "user_id",
            "joined_at",
            user_id=IDENTIFIER,
            joined_at=STAMP,
            karma=NUMBER,
            country=CATEGORY,
            about=content,
        ),
        "posts": _table(
            "post_id",
            "posted_at",
            post_id=IDENTIFIER,
            user_id=user,
            reply_to=post,
            posted_at=STAMP,
            topic=CATEGORY,
            title=content,
            body=content,
            pinned=BOOLEAN,
        ),
        "comments": _table(
            "comment_id",
            "written_at",
            comment_id=IDENTIFIER,
            user_id=user,
            post_id=post,
            written_at=STAMP,
            body=content,
        ),
    }


def _hub_tables() -> dict[str, Any]:
    place, user = _reference("places.place_id"), _reference("users.user_id")
    return {
        "places": _table("place_id", None, place_id=IDENTIFIER, kind=CATEGORY, size=NUMBER),
        "visits": _table(
            "visit_id",
            "visited_at",
            visit_id=IDENTIFIER,
            place_id=place,
            user_id=user,
            visited_at=STAMP,
            stay=NUMBER,
            paid=BOOLEAN,
        ),
    }


def _task(table: str, key: str, query: str) -> dict[str, Any]:
    """A boolean question; the seeds say their split, so that all can be train."""
    return {
        "query": query,
        "anchor_table": table,
        "anchor_key": key,
        "target_column": "answer",
        "target_stype": "boolean",
        "observation_time_column": "obs_time",
        "split_column": "split",
    }


def _tasks(forum: Forum) -> dict[str, Any]:
    answer = "hash(i, 21) % 2 = 0 AS answer, 'train' AS split"
    late = f"{START} + to_seconds(CAST({SPAN_SECONDS} * (0.6 + 0.39 * ({_uniform(20)})) AS BIGINT))"
    tasks = {
        "active": _task(
            "users",
            "user_id",
            f"""SELECT user_id, {late} AS obs_time, {answer}
            FROM (SELECT user_id, user_id AS i FROM users WHERE hash(user_id, 22) % 4 = 0)""",
        ),
        "answered": _task(
            "comments",
            "comment_id",
            f"""SELECT comment_id, written_at AS obs_time, {answer}
            FROM (SELECT comment_id, written_at, comment_id AS i FROM comments
                  WHERE comment_id * 2 >= {forum.comments} AND hash(comment_id, 23) % 8 = 0)""",
        ),
    }
    if forum.hub:
        places = "FROM (SELECT place_id, place_id AS i FROM places WHERE place_id > 0)"
        for name, place in (("hub", "0"), ("ordinary", "place_id")):
            query = f"SELECT {place} AS place_id, {late} AS obs_time, {answer} {places}"
            tasks[name] = _task("places", "place_id", query)
    return tasks


def metadata(forum: Forum) -> dict[str, Any]:
    tables = _forum_tables(forum) | (_hub_tables() if forum.hub else {})
    for table, target in _padding_tables(forum):
        key = f"{target}.{target.removesuffix('s')}_id"
        tables[table] = _table("mark_id", None, mark_id=IDENTIFIER, target_id=_reference(key))
    return {"name": forum.name, "tables": tables, "tasks": _tasks(forum)}


# ---- building ------------------------------------------------------------------------------


def is_built(forum: Forum, out: Path) -> bool:
    """Whether `out` holds a store that was made with the same options."""
    if not (out / "manifest.json").exists():
        return False
    with headwater.Store(out) as store:
        return bool(store.metadata["name"] == forum.name)


def generate(forum: Forum, out: Path) -> None:
    """Builds the store at `out`, in place of another one."""
    connection = duckdb.connect()
    for name, statement in rows(forum).items():
        connection.execute(f"CREATE TABLE {name} AS {statement}")
    source = {name: connection.cursor().table(name) for name in rows(forum)}
    headwater.build(source, out, metadata=metadata(forum))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=Forum.rows)
    parser.add_argument("--text-share", type=float, default=Forum.text_share)
    parser.add_argument("--texts", type=int, default=Forum.texts, help="distinct texts")
    parser.add_argument("--exponent", type=float, default=Forum.exponent)
    parser.add_argument("--hub", type=int, default=Forum.hub, metavar="N", help="its children")
    parser.add_argument("--pad-rows", action="store_true", help="records of 64 bytes")
    options = vars(parser.parse_args())
    out = options.pop("out")
    try:
        forum = Forum(**options)
    except ValueError as error:
        parser.error(str(error))
    start = time.perf_counter()
    built = is_built(forum, out)
    if not built:
        generate(forum, out)
    line = {"store": str(out), **asdict(forum), "kept": built}
    json.dump({**line, "seconds": round(time.perf_counter() - start, 2)}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
