"""The numbers of headwater.h, by their names in C, and the words that Python has for them."""

from __future__ import annotations

# hw_status
(
    HW_OK,
    HW_NO_MEMORY,
    HW_BAD_ARGUMENT,
    HW_BAD_SOURCE,
    HW_BAD_STORE,
    HW_BAD_TASK,
    HW_IO,
    HW_TIMED_OUT,
    HW_SHUT_DOWN,
    HW_END,
    HW_INTERRUPTED,
    HW_FORKED,
) = range(12)
# hw_semantic_type
(
    HW_IDENTIFIER,
    HW_NUMERICAL,
    HW_TIMESTAMP,
    HW_BOOLEAN,
    HW_CATEGORICAL,
    HW_TEXT,
    HW_IGNORED,
) = range(7)
# hw_split, and what stands in hw_sampler_splits for none of them
HW_TRAIN, HW_VAL, HW_TEST, HW_SPLIT_NONE = range(4)
HW_SPLIT_COUNT = 3
# hw_known
HW_KNOWN_CREATION, HW_KNOWN_NEVER, HW_KNOWN_COLUMN, HW_KNOWN_OFFSET = range(4)
# hw_context_labels
HW_LABELS_DEFAULT, HW_LABELS_TRAIN, HW_LABELS_NONE, HW_LABELS_ALL = range(4)
# hw_child_order, hw_width_scope, hw_identifier_cells, hw_objective, hw_task_order
HW_CHILDREN_UNIFORM, HW_CHILDREN_RECENT = range(2)
HW_WIDTH_PER_KEY, HW_WIDTH_PER_ROW = range(2)
HW_IDENTIFIERS_ALL, HW_IDENTIFIERS_KEYS, HW_IDENTIFIERS_NONE = range(3)
HW_OBJECTIVE_TASK, HW_OBJECTIVE_MASKED_CELLS = range(2)
HW_TASKS_WEIGHTED, HW_TASKS_ROUND_ROBIN = range(2)
# hw_layout, hw_targets, hw_text_mode
HW_LAYOUT_DENSE, HW_LAYOUT_COMPACT = range(2)
HW_TARGETS_INLINE, HW_TARGETS_SEPARATE = range(2)
HW_TEXTS_BATCH, HW_TEXTS_RESIDENT = range(2)
# hw_option_type
HW_OPTION_FLAG, HW_OPTION_WORD, HW_OPTION_UINT32, HW_OPTION_INT32 = range(4)
HW_OPTION_UINT64, HW_OPTION_DOUBLE, HW_OPTION_TIMES = range(4, 7)
HW_OPTION_NUMBERS, HW_OPTION_WEIGHTS = range(7, 9)
# hw_load, hw_verify, hw_verified, hw_embedding_kind
HW_LOAD_MMAP, HW_LOAD_RAM = range(2)
HW_VERIFY_ONCE, HW_VERIFY_HEADER, HW_VERIFY_FULL = range(3)
HW_VERIFIED_HEADER, HW_VERIFIED_BEFORE, HW_VERIFIED_NOW = range(3)
HW_EMBED_TEXTS, HW_EMBED_COLUMNS, HW_EMBED_CATEGORIES = range(3)
# hw_dtype
(
    HW_INT8,
    HW_UINT8,
    HW_UINT16,
    HW_INT32,
    HW_UINT32,
    HW_INT64,
    HW_FLOAT16,
    HW_FLOAT32,
) = range(8)
# bits of a compact cell and of its time, the days of hw_calendar_tables, and the format of stores
HW_CELL_TYPE_MASK, HW_CELL_NULL, HW_CELL_TARGET, HW_CELL_PADDING = 7, 8, 16, 32
HW_TIME_WEEKDAY_SHIFT, HW_TIME_YEAR_DAY_SHIFT = 17, 20
HW_DATE_COUNT = 732
HW_FORMAT_VERSION = 2

FORMAT_VERSION = HW_FORMAT_VERSION
SEMANTIC_TYPES = {
    "identifier": HW_IDENTIFIER,
    "numerical": HW_NUMERICAL,
    "timestamp": HW_TIMESTAMP,
    "boolean": HW_BOOLEAN,
    "categorical": HW_CATEGORICAL,
    "text": HW_TEXT,
    "ignored": HW_IGNORED,
}
SPLITS = {"train": HW_TRAIN, "val": HW_VAL, "test": HW_TEST}
KNOWN = {
    "creation": HW_KNOWN_CREATION,
    "never": HW_KNOWN_NEVER,
    "column": HW_KNOWN_COLUMN,
    "offset": HW_KNOWN_OFFSET,
}
CONTEXT_LABELS = {
    "default": HW_LABELS_DEFAULT,
    "train": HW_LABELS_TRAIN,
    "none": HW_LABELS_NONE,
    "all": HW_LABELS_ALL,
}
LOADS = {"mmap": HW_LOAD_MMAP, "ram": HW_LOAD_RAM}
VERIFY = {"once": HW_VERIFY_ONCE, "header": HW_VERIFY_HEADER, "full": HW_VERIFY_FULL}
VERIFIED = {"header": HW_VERIFIED_HEADER, "before": HW_VERIFIED_BEFORE, "now": HW_VERIFIED_NOW}
EMBEDDING_KINDS = {
    "texts": HW_EMBED_TEXTS,
    "columns": HW_EMBED_COLUMNS,
    "categories": HW_EMBED_CATEGORIES,
}
CELL_BITS = {
    "semantic_type": HW_CELL_TYPE_MASK,
    "is_null": HW_CELL_NULL,
    "is_target": HW_CELL_TARGET,
    "is_padding": HW_CELL_PADDING,
}
TIME_SHIFTS = {"weekday": HW_TIME_WEEKDAY_SHIFT, "year_day": HW_TIME_YEAR_DAY_SHIFT}
DTYPES = {
    HW_INT8: "int8",
    HW_UINT8: "uint8",
    HW_UINT16: "uint16",
    HW_INT32: "int32",
    HW_UINT32: "uint32",
    HW_INT64: "int64",
    HW_FLOAT16: "float16",
    HW_FLOAT32: "float32",
}
