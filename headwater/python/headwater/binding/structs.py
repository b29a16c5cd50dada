"""The structs of headwater.h. An enum is a c_uint, a pointer to many items a pointer to one."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from headwater.binding.constants import HW_DATE_COUNT

Numbers = POINTER(c_uint32)
Times = POINTER(c_int64)
Weights = POINTER(c_double)
Words = POINTER(c_char_p)


def alike(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Fields of one type."""
    return [(name, kind) for name in names.split()]


class Error(Structure):
    _fields_ = (("status", c_uint), ("message", c_char * 500))


class ArrowArrayStream(Structure):
    """Of the Arrow C stream interface."""

    _fields_ = (
        *alike(c_void_p, "get_schema get_next get_last_error"),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    )


# ---- builder ---------------------------------------------------------------------------------


class BuilderOptions(Structure):
    _fields_ = (("struct_bytes", c_size_t), ("name", c_char_p), ("stats_until_us", c_int64))


class TableSpec(Structure):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("key_part_count", c_uint32),
        *alike(c_uint8, "temporal null_time_visible days"),
    )


class ColumnSpec(Structure):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        *alike(c_uint, "stype known"),
        ("known_column", c_uint32),
        ("known_offset_us", c_int64),
        *alike(c_uint8, "temporal stored"),
    )


class KeySpec(Structure):
    _fields_ = (
        ("struct_bytes", c_size_t),
        *alike(c_uint32, "child_table parent_table"),
        ("columns", Numbers),
        ("column_count", c_uint32),
    )


class TaskSpec(Structure):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        *alike(c_uint32, "anchor_table target_column"),
        ("target_name", c_char_p),
        ("target_stype", c_uint),
        ("categories", Words),
        ("category_count", c_uint32),
        ("hidden", Numbers),
        ("hidden_count", c_uint32),
        *alike(c_uint8, "exclusive given_split"),
        ("context_labels", c_uint),
        ("label_times", c_uint8),
    )


class ColumnStats(Structure):
    _fields_ = (
        *alike(c_uint64, "value_count null_count"),
        *alike(c_double, "mean std min max"),
        *alike(c_int64, "min_us max_us"),
        ("true_count", c_uint64),
        *alike(c_uint32, "category_start category_count"),
    )


# ---- store -----------------------------------------------------------------------------------


class StoreCounts(Structure):
    _fields_ = (
        *alike(
            c_uint32,
            "table_count column_count key_count task_count row_count category_count "
            "text_count text_dim",
        ),
    )


class Verification(Structure):
    _fields_ = (("how", c_uint), ("not_remembered", c_char * 200))


class Cell(Structure):
    _fields_ = (
        ("column", c_uint32),
        ("stype", c_uint),
        ("is_null", c_uint8),
        ("number", c_double),
        ("time_us", c_int64),
        ("index", c_uint32),
    )


class Seeds(Structure):
    _fields_ = (
        ("count", c_uint32),
        *alike(c_void_p, "anchors obs_times targets states key_hashes positions label_times"),
    )


# ---- sampler ---------------------------------------------------------------------------------


class OptionField(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("type", c_uint),
        *alike(c_uint32, "offset count"),
        ("standard", c_double * 3),
        *alike(c_double, "least most"),
        ("words", Words),
        ("decides_contexts", c_uint8),
        ("doc", c_char_p),
    )


class Shape(Structure):
    _fields_ = (
        *alike(
            c_uint32,
            "batch_size sequence_length max_rows text_budget text_dim parent_slots "
            "contexts_per_batch contexts_per_sequence max_targets_per_type",
        ),
    )


class TargetStats(Structure):
    _fields_ = (
        *alike(c_uint64, "train_count null_count"),
        *alike(c_double, "mean std column_mean column_std"),
    )


class SamplerStats(Structure):
    _fields_ = (
        *alike(
            c_uint64,
            "batches sequences cells padded_cells rows walk_ns emit_ns text_ns "
            "producer_wait_ns consumer_wait_ns elapsed_ns stopped_by_rows texts_over_budget",
        ),
        *alike(c_uint32, "threads train_queue val_queue"),
        *alike(
            c_uint64,
            "slab_bytes slab_count contexts_cut contexts_dropped cells_cut packed_cells "
            "packed_sequences masked_cells masked_over_limit withheld_cells",
        ),
    )


# ---- batch -----------------------------------------------------------------------------------


class Tensor(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_uint),
        ("rank", c_uint32),
        ("shape", c_uint64 * 3),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("info", c_uint8),
    )


class BatchField(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_uint),
        ("dims", c_char_p * 3),
        ("info", c_uint8),
        *alike(c_char_p, "when meaning"),
    )


class CalendarTables(Structure):
    _fields_ = (
        ("sixtieths", c_float * 2 * 60),
        ("hours", c_float * 2 * 24),
        ("weekdays", c_float * 2 * 7),
        ("dates", c_float * 6 * HW_DATE_COUNT),
    )


# By their names in C, as signatures.py and the test that compiles them have them.
STRUCTS: dict[str, type[Structure]] = {
    "hw_error": Error,
    "struct ArrowArrayStream": ArrowArrayStream,
    "hw_builder_options": BuilderOptions,
    "hw_table_spec": TableSpec,
    "hw_column_spec": ColumnSpec,
    "hw_key_spec": KeySpec,
    "hw_task_spec": TaskSpec,
    "hw_column_stats": ColumnStats,
    "hw_store_counts": StoreCounts,
    "hw_verification": Verification,
    "hw_cell": Cell,
    "hw_seeds": Seeds,
    "hw_option_field": OptionField,
    "hw_shape": Shape,
    "hw_target_stats": TargetStats,
    "hw_sampler_stats": SamplerStats,
    "hw_tensor": Tensor,
    "hw_batch_field": BatchField,
    "hw_calendar_tables": CalendarTables,
}
ProgressCallback = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)
FaultCallback = CFUNCTYPE(None, c_void_p, c_char_p)
CALLBACKS = {"hw_progress_callback": ProgressCallback, "hw_fault_callback": FaultCallback}
