"""The functions of headwater.h, as it declares them, and their ctypes.

The declarations are C, so that a test can hand them to the compiler behind the header itself: one
that differs in anything is an error there.
"""

from __future__ import annotations

import re
from ctypes import (
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from headwater.binding.structs import CALLBACKS, STRUCTS

# Called without the interpreter's lock: they work, wait, read what is not in memory or call back.
WORKING = """
void hw_builder_close(hw_builder *builder);
hw_status hw_builder_write_rows(hw_builder *b, uint32_t table, struct ArrowArrayStream *stream,
    hw_error *error);
hw_status hw_builder_write_edges(hw_builder *b, uint32_t key, struct ArrowArrayStream *stream,
    uint64_t null_count, uint64_t *edge_count, hw_error *error);
hw_status hw_builder_write_seeds(hw_builder *b, uint32_t task, struct ArrowArrayStream *stream,
    hw_error *error);
hw_status hw_builder_write_vectors(hw_builder *b, hw_embedding_kind kind, const void *vectors,
    uint64_t count, hw_error *error);
hw_status hw_builder_hash_texts(hw_builder *b, hw_error *error);
hw_status hw_builder_finish(hw_builder *b, const void *metadata, size_t metadata_bytes, char
    fingerprint[33], hw_error *error);
hw_status hw_builder_publish(hw_builder *b, const char *store_path, hw_error *error);
hw_status hw_store_open(const char *path, hw_load load, hw_store **store, hw_error *error);
hw_status hw_store_check_files(const hw_store *store, hw_verify verify, const char *folder,
    hw_progress_callback progress, void *context, hw_verification *verification, hw_error
    *error);
hw_status hw_store_verify(const hw_store *store, hw_fault_callback fault, void *context,
    uint64_t *count, hw_error *error);
hw_status hw_store_edges(const hw_store *store, uint32_t key, uint64_t *starts, uint32_t *rows,
    int64_t *times_us, hw_error *error);
hw_status hw_store_column(const hw_store *store, uint32_t column, double *numbers, int64_t
    *times_us, hw_error *error);
hw_status hw_store_warm_up(const hw_store *store, uint32_t threads, hw_error *error);
hw_status hw_sampler_open(hw_store *store, const hw_sampler_options *options, hw_sampler
    **sampler, hw_error *error);
void hw_sampler_shutdown(hw_sampler *sampler);
void hw_sampler_close(hw_sampler *sampler);
hw_status hw_sampler_next(hw_sampler *sampler, hw_split split, int64_t timeout_ms,
    hw_interrupt_callback interrupt, void *context, hw_batch **batch, hw_error *error);
hw_status hw_sampler_batch(hw_sampler *sampler, hw_split split, uint64_t k, hw_batch **batch,
    hw_error *error);
hw_status hw_pass_open(hw_sampler *sampler, hw_split split, uint32_t task, uint32_t index,
    hw_pass **pass, hw_error *error);
hw_status hw_pass_open_seeds(hw_sampler *sampler, uint32_t task, const uint32_t *anchors, const
    int64_t *obs_times, uint32_t count, hw_pass **pass, hw_error *error);
hw_status hw_pass_next(hw_pass *pass, int64_t timeout_ms, hw_interrupt_callback interrupt, void
    *context, hw_batch **batch, hw_error *error);
void hw_pass_close(hw_pass *pass);
hw_status hw_sampler_set_position(hw_sampler *sampler, hw_split split, const uint64_t
    *positions, uint64_t batches, hw_error *error);
"""
# Called with it: giving it up and taking it back would cost more than they do, and much more where
# other threads of Python are at work.
QUICK = """
const char *hw_version(void);
uint64_t hw_hash64(const void *data, size_t size, uint64_t seed);
hw_status hw_steady_stream(struct ArrowArrayStream *stream, hw_error *error);
hw_status hw_builder_open(const char *directory, const hw_builder_options *options, hw_builder
    **builder, hw_error *error);
hw_status hw_builder_add_table(hw_builder *b, const hw_table_spec *spec, uint32_t *index,
    hw_error *error);
hw_status hw_builder_add_column(hw_builder *b, uint32_t table, const hw_column_spec *spec,
    uint32_t *index, hw_error *error);
hw_status hw_builder_add_key(hw_builder *b, const hw_key_spec *spec, uint32_t *index, hw_error
    *error);
hw_status hw_builder_add_task(hw_builder *b, const hw_task_spec *spec, uint32_t *index, hw_error
    *error);
hw_status hw_builder_set_categories(hw_builder *b, uint32_t column, const char *const
    *categories, uint32_t count, hw_error *error);
hw_status hw_builder_seed_splits(const hw_builder *b, uint32_t task, uint64_t counts[3],
    hw_error *error);
hw_status hw_builder_column_stats(const hw_builder *b, uint32_t column, hw_column_stats *stats,
    hw_error *error);
uint32_t hw_builder_text_count(const hw_builder *b);
hw_status hw_builder_text(hw_builder *b, uint32_t index, const char **text, size_t *bytes,
    hw_error *error);
hw_status hw_builder_set_embedder(hw_builder *b, const char *name, uint32_t text_dim, hw_error
    *error);
hw_status hw_hash_embed(const char *text, size_t bytes, uint32_t text_dim, void *vector,
    hw_error *error);
void hw_store_close(hw_store *store);
hw_store *hw_store_retain(hw_store *store);
const char *hw_store_directory(const hw_store *store);
const char *hw_store_fingerprint(const hw_store *store);
hw_store_counts hw_store_get_counts(const hw_store *store);
void hw_store_identity(const hw_store *store, char identity[33]);
hw_status hw_store_row_table(const hw_store *store, uint32_t row, uint32_t *table, hw_error
    *error);
hw_status hw_store_row_time(const hw_store *store, uint32_t row, int64_t *time_us, hw_error
    *error);
hw_status hw_store_cell(const hw_store *store, uint32_t row, uint32_t column, hw_cell *cell,
    hw_error *error);
hw_status hw_store_parent(const hw_store *store, uint32_t row, uint32_t key, uint32_t *parent,
    hw_error *error);
hw_status hw_store_children(const hw_store *store, uint32_t row, uint32_t key, const uint32_t
    **children, uint32_t *count, hw_error *error);
hw_status hw_store_row_key(const hw_store *store, uint32_t row, const void **key, size_t *bytes,
    hw_error *error);
hw_status hw_store_find(const hw_store *store, uint32_t table, const void *key, size_t bytes,
    uint32_t *row, hw_error *error);
hw_status hw_store_text(const hw_store *store, uint32_t index, const char **text, size_t *bytes,
    hw_error *error);
hw_status hw_store_vectors(const hw_store *store, hw_embedding_kind kind, const void **vectors,
    uint64_t *count, hw_error *error);
hw_status hw_store_seeds(const hw_store *store, uint32_t task, hw_seeds *seeds, hw_error
    *error);
hw_status hw_store_edge_counts(const hw_store *store, uint32_t key, uint32_t *parent_rows,
    uint64_t *edges, hw_error *error);
hw_status hw_store_column_rows(const hw_store *store, uint32_t column, uint32_t *rows, hw_error
    *error);
void hw_sampler_options_init(hw_sampler_options *options, size_t bytes);
const hw_option_field *hw_sampler_options_fields(uint32_t *count);
hw_shape hw_sampler_shape(const hw_sampler *sampler);
uint64_t hw_pass_batch_count(const hw_pass *pass);
hw_status hw_sampler_seed_count(const hw_sampler *sampler, hw_split split, uint32_t task,
    uint32_t *count, hw_error *error);
hw_status hw_sampler_splits(const hw_sampler *sampler, uint32_t task, uint8_t *splits, uint32_t
    count, hw_error *error);
hw_status hw_sampler_target_stats(const hw_sampler *sampler, uint32_t task, hw_target_stats
    *stats, hw_error *error);
hw_status hw_sampler_column_scale(const hw_sampler *sampler, uint32_t column, double *mean,
    double *std, hw_error *error);
hw_status hw_sampler_get_position(hw_sampler *sampler, hw_split split, uint64_t *positions,
    uint64_t *batches, hw_error *error);
hw_sampler_stats hw_sampler_get_stats(hw_sampler *sampler);
uint32_t hw_dtype_bytes(hw_dtype dtype);
hw_batch *hw_batch_retain(hw_batch *batch);
void hw_batch_release(hw_batch *batch);
uint32_t hw_batch_tensor_count(const hw_batch *batch);
hw_tensor hw_batch_tensor(const hw_batch *batch, uint32_t index);
const void *hw_batch_memory(const hw_batch *batch, size_t *bytes);
const hw_batch_field *hw_batch_fields(uint32_t *count);
void hw_calendar_tables_fill(hw_calendar_tables *tables);
"""

ENUMS = (
    "hw_status", "hw_semantic_type", "hw_split", "hw_known", "hw_context_labels", "hw_load",
    "hw_verify", "hw_verified", "hw_embedding_kind", "hw_dtype",
)  # fmt: skip
VALUES: dict[str, Any] = {
    "void": None,
    "int32_t": c_int32,
    "int64_t": c_int64,
    "size_t": c_size_t,
    "uint8_t": c_uint8,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
    "hw_interrupt_callback": c_void_p,  # none is given: waits are short, and Python looks itself
    **dict.fromkeys(ENUMS, c_uint),
    **STRUCTS,
    **CALLBACKS,
}
DECLARATION = re.compile(r"\s*(.*?)(hw_\w+)\((.*)\)", re.DOTALL)


def types_of(declarations: str) -> dict[str, tuple[Any, list[Any]]]:
    """What each function returns, and what it takes."""
    found = {}
    for declaration in declarations.split(";"):
        if match := DECLARATION.match(declaration):
            result, name, parameters = match.groups()
            taken = [] if parameters == "void" else parameters.split(",")
            found[name] = (type_of(result), [type_of(parameter) for parameter in taken])
    return found


def type_of(declared: str) -> Any:
    """The type of a parameter or of a result. What is pointed at is the caller's to know."""
    if "*" not in declared and "[" not in declared:
        return VALUES[declared.split()[0]]
    is_text = declared.count("*") == 1 and declared.split()[:2] == ["const", "char"]
    return c_char_p if is_text else c_void_p
