"""Texts that only say what a row is called: almost every row has its own, and others refer to it.

Such a name is a key by another name. Without an embedder that knows what names mean, a model can
only learn by heart what the rows of each did, which is no use for the next ones: on rel-f1 leaving
them out was the largest gain of AUROC of all settings (docs/notebook/rel-f1.md). `init` says so and
leaves them in, as a name may also say what a thing is. Texts with digits are codes, times and
amounts as often as names: of these it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.inference.draft import ColumnDraft, Cost, TableDraft

VALUES_MIN = 50
UNIQUE = 0.9  # distinct values of all
DIGITS_MAX = 0.5  # share of texts with a digit
LENGTH_MAX = 32.0  # characters in the mean; longer texts say more than a name
CHECK = (
    "almost every row has its own: if it is only what the row is called, set stype ignored, or a"
    " model learns by heart what each did"
)


def suggest_names_left_out(tables: Sequence[TableDraft]) -> None:
    """Say of the tables that others refer to which columns are only names of their rows."""
    keys = [key for table in tables for key in table.every_key()]
    referred = {key.table for key in keys}
    references = {(key.table, name) for key in keys for name in key.references}
    for table in tables:
        if table.name in referred:
            for column in table.columns:
                if _is_name(column) and (table.name, column.name) not in references:
                    column.check(CHECK, Cost.HINT)


def _is_name(column: ColumnDraft) -> bool:
    facts = column.facts
    return (
        column.stype == "text"
        and column.foreign_key is None
        and facts.value_count >= VALUES_MIN
        and facts.distinct_count >= UNIQUE * facts.value_count
        and facts.digit_count <= DIGITS_MAX * facts.value_count
        and facts.url_count == 0
        and facts.mean_length <= LENGTH_MAX
    )
