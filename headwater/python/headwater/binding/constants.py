"""The words that Python has for the numbers of headwater.h."""

from __future__ import annotations

from headwater.binding import header
from headwater.binding.header import ENUMS


def words(enum: str, prefix: str = "HW_") -> dict[str, int]:
    """The numbers of an enum by their names without a prefix: {"train": 0, ...}."""
    return {name.removeprefix(prefix).lower(): number for name, number in ENUMS[enum].items()}


FORMAT_VERSION = header.HW_FORMAT_VERSION
SEMANTIC_TYPES = words("hw_semantic_type")
SPLITS = words("hw_split")
KNOWN = words("hw_known", "HW_KNOWN_")
CONTEXT_LABELS = words("hw_context_labels", "HW_LABELS_")
LOADS = words("hw_load", "HW_LOAD_")
VERIFY = words("hw_verify", "HW_VERIFY_")
VERIFIED = words("hw_verified", "HW_VERIFIED_")
EMBEDDING_KINDS = words("hw_embedding_kind", "HW_EMBED_")
DTYPES = {number: name for name, number in words("hw_dtype").items()}
CELL_BITS = {
    "semantic_type": header.HW_CELL_TYPE_MASK,
    "is_null": header.HW_CELL_NULL,
    "is_target": header.HW_CELL_TARGET,
    "is_padding": header.HW_CELL_PADDING,
}
TIME_SHIFTS = {
    "weekday": header.HW_TIME_WEEKDAY_SHIFT,
    "year_day": header.HW_TIME_YEAR_DAY_SHIFT,
}
