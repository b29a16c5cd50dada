"""What programs that are built on headwater share with it, besides the names of `headwater` itself:
messages and errors, files, a process's end, commands, drafts and builds, keys and times of rows.

confluence imports names of these two modules alone. The module that defines a name describes it.
"""

from __future__ import annotations

from headwater.binding import hash64
from headwater.builder.label_tables import check_label_table
from headwater.builder.workspace import source_files
from headwater.cli.arguments import add_no_verify, add_source
from headwater.cli.commands import selected
from headwater.console import keep_places, say, shown, tell, to_json
from headwater.errors import TimeNeededError, nearest
from headwater.files import (
    check_output,
    check_regular,
    open_given,
    read_bytes,
    read_text,
    regular,
    whole,
)
from headwater.inference.infer import draft_source
from headwater.interrupts import SIGNALLED, Interrupts, is_interrupt, leave, run_process
from headwater.machine import check_address_space, machine_bytes
from headwater.metadata.from_json import read_document
from headwater.metadata.review import checks_text, every_name, in_reach, open_checks
from headwater.notebook import CELL_BYTES, counted, html_line, html_table, short, short_lines
from headwater.progress import ProgressDisplay
from headwater.sampling.expand import (
    CELL_BITS,
    DATE_SHIFT,
    SECOND_MASK,
    WEEKDAY_MASK,
    WEEKDAY_SHIFT,
)
from headwater.sampling.saved_state import check_saved
from headwater.sources.database import hide_progress_bar
from headwater.sources.folder.csv_files import long_cells
from headwater.sources.value_sql import canonical_text
from headwater.store.dropped_seeds import why_empty
from headwater.store.inspection import open_windows_text
from headwater.store.row_keys import ALWAYS_US, NO_TIME_US, Time, time_us
from headwater.store.store import NO_ROW

__all__ = [
    "ALWAYS_US",
    "CELL_BITS",
    "CELL_BYTES",
    "DATE_SHIFT",
    "NO_ROW",
    "NO_TIME_US",
    "SECOND_MASK",
    "SIGNALLED",
    "WEEKDAY_MASK",
    "WEEKDAY_SHIFT",
    "Interrupts",
    "ProgressDisplay",
    "Time",
    "TimeNeededError",
    "add_no_verify",
    "add_source",
    "canonical_text",
    "check_address_space",
    "check_label_table",
    "check_output",
    "check_regular",
    "check_saved",
    "checks_text",
    "counted",
    "draft_source",
    "every_name",
    "hash64",
    "hide_progress_bar",
    "html_line",
    "html_table",
    "in_reach",
    "is_interrupt",
    "keep_places",
    "leave",
    "long_cells",
    "machine_bytes",
    "nearest",
    "open_checks",
    "open_given",
    "open_windows_text",
    "read_bytes",
    "read_document",
    "read_text",
    "regular",
    "run_process",
    "say",
    "selected",
    "short",
    "short_lines",
    "shown",
    "source_files",
    "tell",
    "time_us",
    "to_json",
    "whole",
    "why_empty",
]
