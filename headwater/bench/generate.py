"""Generates a forum of any size with power-law degrees and builds it into a store.

The question it is for: how fast are batches made from a store much larger than the caches?

    python headwater/bench/generate.py OUT.hw [--rows 5000000] [--text-share 0.0]

Users write posts and comments; a few users and posts get most of them. Everything follows from
DuckDB's `hash` of the row number, so the same rows come out every time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import duckdb
import headwater

START = "TIMESTAMP '2010-01-01'"
SPAN_SECONDS = 500_000_000
SHARES = {"users": 1 / 16, "posts": 5 / 16, "comments": 10 / 16}


def _uniform(salt: int) -> str:
    """SQL for a number in [0, 1) from the row number i."""
    return f"(hash(i, {salt}) % 1000000007) / 1000000007.0"


def tables(connection: duckdb.DuckDBPyConnection, rows: int, text_share: float) -> list[str]:
    """Creates users, posts and comments; returns their names."""
    count = {name: max(16, int(rows * share)) for name, share in SHARES.items()}
    heavy_user = f"CAST(floor(pow({{u}}, 3) * {count['users']}) AS BIGINT)"
    text = f"CASE WHEN {_uniform(90)} < {text_share} THEN 'text ' || (hash(i, 91) % 100000) END"
    at = "{start} + to_microseconds(CAST(i / {n} * {span} AS BIGINT) * 1000000)"

    def when(name: str) -> str:
        return at.format(start=START, n=f"{count[name]}.0", span=SPAN_SECONDS)

    statements = {
        "users": f"""SELECT i AS user_id, {when("users")} AS joined_at, {_uniform(1)} AS karma,
            'c' || (hash(i, 2) % 40) AS country, {text} AS about
            FROM range({count["users"]}) t(i)""",
        "posts": f"""SELECT i AS post_id, {heavy_user.format(u=_uniform(3))} AS user_id,
            CASE WHEN i > 1000 AND {_uniform(4)} < 0.6
                 THEN CAST(floor(i * sqrt({_uniform(5)})) AS BIGINT) END AS reply_to,
            {when("posts")} AS posted_at, {_uniform(6)} AS score, {_uniform(7)} AS words,
            't' || (hash(i, 8) % 1000) AS topic, {text} AS title, hash(i, 9) % 3 = 0 AS pinned
            FROM range({count["posts"]}) t(i)""",
        "comments": f"""SELECT i AS comment_id, {heavy_user.format(u=_uniform(10))} AS user_id,
            CAST(floor(greatest(10, i / {count["comments"]}.0 * {count["posts"]})
                 * (1 - pow({_uniform(11)}, 3))) AS BIGINT) AS post_id,
            {when("comments")} AS written_at, {_uniform(12)} AS score, {text} AS body
            FROM range({count["comments"]}) t(i)""",
    }
    for name, statement in statements.items():
        connection.execute(f"CREATE TABLE {name} AS {statement}")
    return list(statements)


def metadata() -> dict[str, object]:
    """metadata.json of the forum, with one derived task."""

    def table(key: str, time_column: str, columns: dict[str, object]) -> dict[str, object]:
        return {"primary_key": key, "temporal_column": time_column, "columns": columns}

    identifier = {"stype": "identifier"}
    user = {"stype": "identifier", "foreign_key": "users.user_id"}
    number, stamp = {"stype": "numerical"}, {"stype": "timestamp"}
    category, text = {"stype": "categorical"}, {"stype": "text"}
    query = f"""
        SELECT user_id, {START} + to_seconds(CAST({SPAN_SECONDS} * (0.5 + 0.49 * ({_uniform(20)}))
            AS BIGINT)) AS obs_time, hash(i, 21) % 2 = 0 AS active
        FROM (SELECT user_id, user_id AS i FROM users WHERE hash(user_id, 22) % 4 = 0)"""
    return {
        "name": "forum",
        "tables": {
            "users": table(
                "user_id",
                "joined_at",
                {
                    "user_id": identifier,
                    "joined_at": stamp,
                    "karma": number,
                    "country": category,
                    "about": text,
                },
            ),
            "posts": table(
                "post_id",
                "posted_at",
                {
                    "post_id": identifier,
                    "user_id": user,
                    "reply_to": {"stype": "identifier", "foreign_key": "posts.post_id"},
                    "posted_at": stamp,
                    "score": number,
                    "words": number,
                    "topic": category,
                    "title": text,
                    "pinned": {"stype": "boolean"},
                },
            ),
            "comments": table(
                "comment_id",
                "written_at",
                {
                    "comment_id": identifier,
                    "user_id": user,
                    "post_id": {"stype": "identifier", "foreign_key": "posts.post_id"},
                    "written_at": stamp,
                    "score": number,
                    "body": text,
                },
            ),
        },
        "tasks": {
            "active": {
                "query": query,
                "anchor_table": "users",
                "anchor_key": "user_id",
                "target_column": "active",
                "target_stype": "boolean",
                "observation_time_column": "obs_time",
                "allow_future_anchor": True,
            }
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--text-share", type=float, default=0.0)
    arguments = parser.parse_args()
    if (arguments.out / "manifest.json").exists():
        return 0
    connection = duckdb.connect()
    names = tables(connection, arguments.rows, arguments.text_share)
    start = time.perf_counter()
    source = {name: connection.cursor().table(name) for name in names}
    headwater.build(source, arguments.out, metadata=metadata())
    seconds = time.perf_counter() - start
    json.dump({"rows": arguments.rows, "build_seconds": round(seconds, 2)}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
