"""Checks in the notes of a metadata.json, and the tables that a task can reach."""

from __future__ import annotations

from databases import bookstore_metadata
from headwater.metadata import review
from headwater.metadata.review import Check, Cost, checks_in, checks_text, note_text, open_checks
from headwater.metadata.schema import Schema


def test_a_note_gives_back_its_checks() -> None:
    checks = [Check("a; b: c", Cost.LINKS), Check("set x to 'values'", Cost.UNSEEN)]
    note = note_text(checks)
    assert note == "unseen: set x to 'values'; links: a; b: c"
    assert [(str(check), check.cost) for check in checks_in(note)] == [
        ("set x to 'values'", Cost.UNSEEN),
        ("a; b: c", Cost.LINKS),
    ]
    assert checks_in("") == checks_in("a person's; future") == []


def test_a_walk_reaches_tables_by_keys_either_way() -> None:
    """Not by a key that is known never, nor through a table that is in no context."""
    document = bookstore_metadata()
    document["tables"]["logs"] = {"columns": {"x": {"stype": "text"}}}

    def reached(start: str) -> set[str]:
        return review.in_reach(Schema.from_dict(document), start)

    assert reached("sales") == reached("authors") == {"authors", "books", "sales"}
    assert reached("logs") == {"logs"}
    document["tables"]["sales"]["columns"]["book_id"]["known_at"] = "never"
    assert reached("sales") == {"sales"}
    del document["tables"]["sales"]["columns"]["book_id"]["known_at"]
    document["tables"]["books"]["graph"] = False
    document["tasks"] = {}
    assert reached("authors") == {"authors"}


def test_only_what_is_in_reach_is_repeated_and_the_costly_comes_first() -> None:
    document = bookstore_metadata()
    document["tables"]["logs"] = {"note": "unseen: far away", "columns": {"x": {"stype": "text"}}}
    document["tables"]["books"]["note"] = "hint: near; future: nearer"
    schema = Schema.from_dict(document)
    found = open_checks(schema, review.in_reach(schema, "sales"))
    assert [str(entry.check) for entry in found] == ["nearer", "near"]
    assert open_checks(schema)[0].check == "far away"


def test_checks_that_are_alike_share_a_line() -> None:
    document = bookstore_metadata()
    columns = {f"x{j}": {"stype": "text", "note": f"values: {j} of 9 are NULL"} for j in range(30)}
    document["tables"]["wide"] = {"columns": columns, "note": "links: no key"}
    found = open_checks(Schema.from_dict(document))
    text = checks_text(found, {"wide", *columns}, title="open")
    assert text.splitlines() == [
        "open (31, of 2 kinds; headwater init --check --full lists them all, metadata.json has "
        "each as a 'note'):",
        "  wide: no key",
        "  wide.x0: 0 of 9 are NULL",
        "    and 29 more like this: wide.x1, wide.x2, wide.x3 and 26 more",
    ]
    assert len(checks_text(found, set(), full=True).splitlines()) == 32
