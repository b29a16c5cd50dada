"""The leakage audit of a store: it compares what contexts show with what they may show.

    findings.py   leaks, to check        stored.py    the store's files, without the library
    view.py       a batch, flat          rules.py     docs/reference/sampling.md, a second time
    contexts.py   rows, cells, links     counts.py    child counts
    questions.py  seeds and splits       declared.py  the store against its metadata
    columns.py    columns that hold the target        tables.py  values written later

The contexts come from the real sampler, with the options it will be trained with. The first eight
files prove or disprove; the last two suspect, from what contexts show, and ask a person.
"""

from __future__ import annotations

from headwater.audit.findings import AuditReport, Finding
from headwater.audit.run import audit

__all__ = ["AuditReport", "Finding", "audit"]
