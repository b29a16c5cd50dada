"""`Schema`: a metadata.json that was read, as a value with its methods for people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.metadata.check import parse_document
from headwater.metadata.from_json import read_document
from headwater.metadata.parts import Document


@dataclass(frozen=True, repr=False)
class Schema(Document):
    """A whole metadata.json.

    `directory` is where the document was read from: label tables are found relative to it.
    """

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Schema:
        """Read a metadata.json; SchemaError lists every problem at once."""
        return parse_schema(read_document(Path(path)), directory=Path(path).resolve().parent)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Schema:
        """Read a document that is already parsed; SchemaError lists every problem at once."""
        return parse_schema(document)


def parse_schema(
    document: Any,
    *,
    directory: Path | None = None,
    source: Mapping[str, list[str]] | None = None,
    zones: Sequence[str] = (),
) -> Schema:
    """Check a document, and against `source` (table to its columns) and the names of time zones if
    given."""
    found = parse_document(document, directory=directory, source=source, zones=zones)
    return Schema(**vars(found))
