"""Real databases of ../shared/data by their example metadata, against counts worked out without
headwater, with csv and sqlite3; skipped where the data is absent."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from built_examples import SOURCES, Builder, source_of
from databases import EXAMPLES, shared_data
from headwater.builder.build import build
from headwater.inference.infer import draft_source
from headwater.inference.update import update_schema
from headwater.metadata.parts import TASK_KEYS
from headwater.metadata.schema import Schema
from headwater.sampling.sampler import Sampler

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "guides" / "real-data.md"


@pytest.mark.parametrize("name", SOURCES)
def test_every_store_is_sound_and_at_most_twice_its_csv(built_example: Builder, name: str) -> None:
    found = built_example(name)
    assert found.store.verify() == []
    assert found.report.conversions == ()
    main = found.report.store_bytes["graph, tables and tasks"]
    assert main <= 2 * found.report.metadata["csv_bytes"]


@pytest.mark.parametrize("name", SOURCES)
def test_the_page_gives_the_size_of_the_store(built_example: Builder, name: str) -> None:
    report = built_example(name).report
    line = re.search(rf"^\| {name} \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert line is not None
    cells = [cell.strip(" x").replace(",", "") for cell in line[1].split("|")]
    rows, csv_bytes, store_bytes, ratio = cells[:4]
    assert int(rows) == report.metadata["tables"][-1]["row_range"][1]
    assert int(csv_bytes) == report.metadata["csv_bytes"]
    main = report.store_bytes["graph, tables and tasks"]
    assert int(store_bytes) == main
    assert float(ratio) == pytest.approx(main / report.metadata["csv_bytes"], abs=0.005)


SMALL = {
    "default_batch_size": 32, "default_sequence_length": 128, "max_rows": 32, "max_hops": 2,
    "num_prefetch": 0,
}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", SOURCES)
def test_at_least_93_of_100_positions_of_flat_batches_are_cells(
    built_example: Builder, name: str, ranks: int
) -> None:
    """Of an epoch, with two ranks as with one; and next to no cell is cut. Passes keep the order of
    seeds, and those over few of them have a last batch that is not full: they may have less."""
    store = built_example(name).store
    each = {**SMALL, "default_batch_size": 32 // ranks, "layout": "flat", "shard": "dealt"}
    for task in store.metadata["tasks"]:
        for rank in range(ranks):
            with Sampler(store.path, rank, ranks, **each, tasks=[task["name"]]) as sampler:
                for _ in range(sampler.num_seeds("train") // 32):
                    sampler.next_train_batch()
                stats = sampler.stats()
                assert stats["fill"] >= 0.93, task["name"]
                assert stats["cells_cut"] <= 0.0005 * stats["cells"], task["name"]
                for split in ("val", "test"):
                    if sampler.num_seeds(split):
                        before, _ = sampler.stats(), sum(1 for _ in sampler.epoch(split))
                        least = 0.92 if sampler.num_seeds(split) >= 100 else 0.8
                        fill = sampler.stats(since=before)["fill"]
                        assert fill >= least, (task["name"], split)


@pytest.mark.parametrize("name", SOURCES)
def test_at_most_a_tenth_of_a_dense_batch_is_rows_for_texts_that_it_does_not_have(
    built_example: Builder, name: str
) -> None:
    store = built_example(name).store
    for task in store.metadata["tasks"]:
        with Sampler(store.path, **SMALL, layout="dense", tasks=[task["name"]]) as sampler:
            unused, whole = 0, 0
            for k in range(32):
                batch = sampler.batch("train", k)
                texts = batch["text_batch_embeddings"]
                unused += texts[int(batch["num_texts"][0]) :].nbytes
                whole += sum(array.nbytes for array in batch.values())
            assert unused <= 0.1 * whole, task["name"]


def test_the_page_has_every_setting_of_a_task() -> None:
    section = PAGE.read_text().partition("### Tasks\n")[2].partition("\n## ")[0]
    assert [key for key in TASK_KEYS if key != "note" and f"`{key}`" not in section] == []


@pytest.mark.parametrize("name", SOURCES)
def test_the_page_explains_every_edit_of_what_init_drafts(name: str) -> None:
    """Nothing of the source is missing in an example, and what differs is named in the docs."""
    schema = Schema.load(EXAMPLES / f"{name}.json")
    _, told = update_schema(schema, draft_source(source_of(name), schema))
    assert told["added"] == told["gone"] == []
    section = PAGE.read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert told["otherwise"]
    for line in told["otherwise"]:
        assert f"`{line.partition(':')[0]}`" in section, line


# ---- OpenFlights -------------------------------------------------------------------------------


def openflights_rows(name: str) -> list[list[str]]:
    with (shared_data("openflights") / f"{name}.dat").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_openflights_has_every_row_and_edge_of_its_files(built_example: Builder) -> None:
    found = built_example("openflights")
    rows = {name: openflights_rows(name) for name in ("airlines", "airports", "planes", "routes")}
    for name, lines in rows.items():
        assert found.row_count(name) == len(lines)
    airports, airlines = ({row[0] for row in rows[name]} for name in ("airports", "airlines"))
    for column, place, known in (
        ("airline_id", 1, airlines), ("source_id", 3, airports), ("destination_id", 5, airports),
    ):  # fmt: skip
        values = Counter(
            "null" if row[place] == "\\N" else "edge" if row[place] in known else "dangling"
            for row in rows["routes"]
        )
        expected = (values["edge"], values["dangling"], values["null"])
        assert found.key("routes", column) == expected
    countries = Counter(row[0] for row in openflights_rows("countries"))
    assert found.row_count("countries") == len(countries)
    assert found.table("countries")["duplicates_dropped"] == countries.total() - len(countries)


def test_openflights_has_four_spellings_of_null_and_namibia(
    built_example: Builder,
) -> None:
    found = built_example("openflights")
    airlines = openflights_rows("airlines")
    spellings = Counter(row[3] for row in airlines if row[3] in ("", "\\N", "-", "--"))
    assert len(spellings) == 4
    assert found.nulls("airlines", "iata") == spellings.total()
    icao = sum(row[4] in ("", "\\N", "N/A", "---") for row in airlines)
    assert found.nulls("airlines", "icao") == icao
    namibia = found.store.row(found.store.find("countries", "Namibia"))
    assert namibia["cells"]["iso_code"] == "NA"


# ---- football ----------------------------------------------------------------------------------


def football_rows(name: str) -> list[dict[str, str]]:
    path = shared_data("international_results") / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_football_joins_by_natural_keys_and_drops_the_one_duplicate(
    built_example: Builder,
) -> None:
    found = built_example("football")
    parts = ("date", "home_team", "away_team")
    results = football_rows("results")
    keys = Counter(tuple(row[part] for part in parts) for row in results)
    assert (found.row_count("results"), keys.total() - len(keys)) == (len(keys), 1)
    assert found.table("results")["duplicates_dropped"] == 1
    for name in ("goalscorers", "shootouts"):
        rows = [tuple(row[part] for part in parts) for row in football_rows(name)]
        edges = sum(row in keys for row in rows)
        assert found.key(name, *parts) == (edges, len(rows) - edges, 0)
    teams = {row[side] for row in results for side in ("home_team", "away_team")}
    assert found.row_count("teams") == len(teams)
    scorers = football_rows("goalscorers")
    assert found.nulls("goalscorers", "minute") == sum(row["minute"] == "NA" for row in scorers)
    assert found.key("goalscorers", "team") == (len(scorers), 0, 0)


def test_a_table_of_teams_gives_a_match_its_history(built_example: Builder, tmp_path: Path) -> None:
    """Without it a match is alone, as goals and shootouts of the same day are not yet known."""
    document = json.loads((EXAMPLES / "football.json").read_text())
    del document["tables"]["teams"]
    for table in document["tables"].values():
        for column in table["columns"].values():
            if column.get("foreign_key") == "teams.team":
                del column["foreign_key"]
    build(source_of("football"), tmp_path / "s", document)
    counts = {}
    for name, path in (("with", built_example("football").path), ("without", tmp_path / "s")):
        with Sampler(
            db_path=path, default_batch_size=32, default_sequence_length=512, num_prefetch=0
        ) as sampler:
            counts[name] = np.asarray(sampler.batch("train", 0)["num_rows"])
    assert counts["without"].max() == 1
    assert np.median(counts["with"]) > 20


# ---- Stack Exchange ----------------------------------------------------------------------------


def test_stack_exchange_has_self_references_and_deleted_users(
    built_example: Builder,
) -> None:
    found = built_example("stack-exchange")
    path = shared_data(SOURCES["stack-exchange"])
    with closing(sqlite3.connect(path)) as database:
        for column, parent in (("OwnerUserId", "Users"), ("ParentId", "Posts")):
            edges, total, nulls = database.execute(
                f"SELECT count(p.Id), count(*), sum(c.{column} IS NULL) FROM Posts c "
                f"LEFT JOIN {parent} p ON c.{column} = p.Id"
            ).fetchone()
            assert found.key("Posts", column) == (edges, total - edges - nulls, nulls)
        authorless = database.execute(
            "SELECT count(*) FROM Comments WHERE UserId IS NULL"
        ).fetchone()
        assert found.key("Comments", "UserId")[2] == authorless[0] > 0
        accepted = database.execute(
            "SELECT count(*) FROM Posts WHERE AcceptedAnswerId IS NOT NULL"
        ).fetchone()
    assert accepted[0] == 181
    # Never known, so that not even its edges are there to be walked.
    row = found.store.find("Posts", 1)
    assert row >= 0
    post = found.store.row(row)
    assert post["time"].microsecond % 1000 == 0 and post["time"].microsecond > 0
    assert post["cells"]["Body"].startswith("<p>")


def test_what_was_written_late_is_in_no_context(built_example: Builder) -> None:
    found = built_example("stack-exchange")
    schema = Schema.load(EXAMPLES / "stack-exchange.json")
    never = {
        number
        for number, entry in enumerate(found.store.metadata["columns"])
        if entry["table"]
        and schema.table(entry["table"]).column(entry["name"]).known_at.kind == "never"
    }
    assert len(never) == 14
    with Sampler(
        db_path=found.path, tasks=["answered"], default_batch_size=32,
        default_sequence_length=512, num_prefetch=0,
    ) as sampler:  # fmt: skip
        batch = sampler.batch("train", 0)
        shown = set(
            np.unique(np.asarray(batch["column_ids"])[np.asarray(batch["is_padding"]) == 0])
        )
    assert len(shown) > 10
    assert shown & never == set()


# ---- Chinook -----------------------------------------------------------------------------------


def test_chinook_has_every_row_and_its_lines_the_time_of_their_invoice(
    built_example: Builder,
) -> None:
    found = built_example("chinook")
    with closing(sqlite3.connect(shared_data(SOURCES["chinook"]))) as database:
        for table in found.store.metadata["tables"]:
            count = database.execute(f"SELECT count(*) FROM {table['name']}").fetchone()[0]
            assert found.row_count(table["name"]) == count
        lines = database.execute(
            "SELECT InvoiceLineId, InvoiceDate FROM InvoiceLine JOIN Invoice USING (InvoiceId) "
            "ORDER BY InvoiceLineId"
        ).fetchall()
    for key, stamp in lines[::100]:
        row = found.store.row(found.store.find("InvoiceLine", key))
        assert row["time"].replace(tzinfo=None).isoformat(" ") == stamp
    assert found.key("Employee", "ReportsTo") == (7, 0, 1)


def test_chinook_of_postgresql_is_the_same_under_the_names_of_its_dump() -> None:
    """Only names differ; the dump has every table and column that is described."""

    def snake(name: str) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

    one = Schema.load(EXAMPLES / "chinook.json")
    other = Schema.load(EXAMPLES / "chinook-postgresql.json")
    assert [snake(table.name) for table in one.tables] == [table.name for table in other.tables]
    for left, right in zip(one.tables, other.tables, strict=True):
        pairs = zip(left.columns, right.columns, strict=True)
        assert all((snake(a.name), a.stype) == (b.name, b.stype) for a, b in pairs)
    dump = (shared_data("chinook") / "Chinook_PostgreSql.sql").read_text(encoding="utf-8")
    for table in other.tables:
        body = re.search(rf"CREATE TABLE {table.name}\n\((.*?)\n\);", dump, re.DOTALL)
        assert body is not None
        names = re.findall(r"^\s+(\w+) (?!\w+ PRIMARY KEY)[A-Z]", body[1], re.MULTILINE)
        assert [name for name in names if name != "CONSTRAINT"] == table.source_columns()
