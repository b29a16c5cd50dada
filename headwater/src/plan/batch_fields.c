/*
 * The batch format as one table. The memory of a batch (batch_layout.c), Python's BATCH_FIELDS, the
 * binding's loop and docs/reference/batch.md all come from it.
 */
#include "plan/batch_fields.h"

#include "base/sized.h"

#define FIELD(name, dtype, info, when, meaning, ...)                                               \
    {0, name, dtype, {__VA_ARGS__}, info, when, meaning} /* 0: struct_bytes */

static const hw_batch_field FIELDS[HWI_FIELD_COUNT] = {
    FIELD("semantic_types", HW_INT8, 0, "layout=dense", "hw_semantic_type of the cell", "B", "S"),
    FIELD("column_ids", HW_INT32, 0, "layout=dense", "global column", "B", "S"),
    FIELD("seq_row_ids", HW_UINT16, 0, "layout=dense", "sequence-local row", "B", "S"),
    FIELD("numeric_values", HW_FLOAT32, 0, "layout=dense", "z-score by column", "B", "S"),
    FIELD("timestamp_values", HW_FLOAT32, 0, "layout=dense",
          "sin, cos of second/60, minute/60, hour/24, weekday/7, day-1/31, month-1/12, day of "
          "year-1/366; then the z-scored epoch",
          "B", "S", "15"),
    FIELD("bool_values", HW_UINT8, 0, "layout=dense", "0 or 1", "B", "S"),
    FIELD("categorical_embed_ids", HW_UINT32, 0, "layout=dense", "global category", "B", "S"),
    FIELD("text_embed_ids", HW_UINT32, 0, "layout=dense", "batch-local text; resident: text + 1",
          "B", "S"),
    FIELD("is_null", HW_UINT8, 0, "layout=dense", "1 where the cell is NULL", "B", "S"),
    FIELD("is_target", HW_UINT8, 0, "layout=dense", "1 at the cell to predict", "B", "S"),
    FIELD("is_padding", HW_UINT8, 0, "layout=dense", "1 past the last cell", "B", "S"),
    FIELD("fk_adj", HW_UINT8, 0, "layout=dense",
          "1 at [b, i, j] iff row i has a foreign key to row j", "B", "R", "R"),
    FIELD("parents", HW_UINT16, 0, NULL,
          "local parent by foreign key, 65535 where none is in the context", "B", "R", "P"),
    FIELD("col_perm", HW_UINT16, 0, "layout=dense", "stable order by (padding, column, position)",
          "B", "S"),
    FIELD("out_perm", HW_UINT16, 0, "layout=dense",
          "cells by row in reverse Cuthill-McKee order, padding last", "B", "S"),
    FIELD("in_perm", HW_UINT16, 0, "layout=dense", "the same order as out_perm, the same memory",
          "B", "S"),
    FIELD("cells", HW_UINT8, 0, "layout=compact, flat",
          "semantic type in bits 0-2; is_null 8, is_target 16, is_padding 32", "B", "S"),
    FIELD("cell_columns", HW_UINT16, 0, "layout=compact, flat", "global column", "B", "S"),
    FIELD("cell_values", HW_UINT32, 0, "layout=compact, flat",
          "bits of a float32 z-score (numbers, times), 0 or 1, category, or text", "B", "S"),
    FIELD("cell_times", HW_UINT32, 0, "layout=compact, flat",
          "second of the day | weekday << 17 | (day of the year, + 366 in a leap year) << 20", "B",
          "S"),
    FIELD("row_order", HW_UINT16, 0, "layout=compact",
          "rows in reverse Cuthill-McKee order, 65535 where unused", "B", "R"),
    FIELD("column_mask", HW_UINT8, 0, "attention_masks",
          "0 where both cells are of one column, and on the diagonal; else 1", "B", "S", "S"),
    FIELD("feature_mask", HW_UINT8, 0, "attention_masks",
          "0 where both cells are of one row, and on the diagonal; else 1", "B", "S", "S"),
    FIELD("neighbor_mask", HW_UINT8, 0, "attention_masks",
          "0 where an edge joins the cells' rows either way, and on the diagonal; else 1", "B", "S",
          "S"),
    FIELD("padding_mask", HW_UINT8, 0, "attention_masks", "1 past the last cell", "B", "S"),
    FIELD("segment_ids", HW_UINT16, 0, "packing", "context of the cell from 1, 0 past the last",
          "B", "S"),
    FIELD("num_contexts", HW_UINT32, 0, "packing, layout=flat", "contexts of each sequence", "B"),
    FIELD("context_cells", HW_INT32, 0, "layout=flat",
          "first cell of each context, then the cells of all; empty ones repeat them", "1", "B+1"),
    FIELD("context_rows", HW_INT32, 0, "layout=flat", "the same of rows", "1", "B+1"),
    FIELD("context_targets", HW_INT32, 0, "layout=flat",
          "position of the task's target, -1 where none", "1", "B"),
    FIELD("text_batch_embeddings", HW_FLOAT16, 0, "text_mode=batch",
          "row 0 zero, then distinct texts by first appearance, then zero", "U", "D_t"),
    FIELD("text_numbers", HW_UINT32, 0, "text_mode=numbers",
          "the same texts by the store's number + 1; 0, which is none, where those have zeros",
          "U"),
    FIELD("target_stype", HW_UINT8, 0, NULL, "semantic type of the target", "1"),
    FIELD("task_idx", HW_UINT32, 0, NULL, "task, in store order", "1"),
    FIELD("cat_emb_start", HW_UINT32, 0, NULL, "first category of the target, else 0", "1"),
    FIELD("cat_emb_count", HW_UINT32, 0, NULL, "categories of the target, else 0", "1"),
    FIELD("row_ages", HW_FLOAT32, 0, NULL, "days before obs_time, -1 where none", "B", "R"),
    FIELD("row_starts", HW_UINT16, 0, NULL, "first cell of each row, then num_cells", "B", "R+1"),
    FIELD("row_tables", HW_UINT16, 0, NULL,
          "table of each row, 65535 for a task's seed row; 0 where unused", "B", "R"),
    FIELD("row_depths", HW_UINT8, 0, "with_rows", "hops from the first row, at most 255", "B", "R"),
    FIELD("num_sequences", HW_UINT32, 0, "layout=dense, compact",
          "sequences that count; the rest is padding", "1"),
    FIELD("num_texts", HW_UINT32, 0, "text_mode=batch, numbers",
          "texts of the batch, with the first, which is none", "1"),
    FIELD("num_cells", HW_UINT32, 0, "layout=dense, compact", "cells of each sequence", "B"),
    FIELD("num_rows", HW_UINT32, 0, "layout=dense, compact", "rows of each sequence", "B"),
    FIELD("is_labelled", HW_UINT8, 0, NULL, "1 where the sequence counts and has a target", "B"),
    FIELD("target_values", HW_FLOAT32, 0, "targets=separate",
          "truth: 15 values of a timestamp; else [0] is the z-score, 0/1, or place in the block",
          "B", "15"),
    FIELD("target_is_null", HW_UINT8, 0, "targets=separate", "1 where the truth is NULL", "B"),
    FIELD("target_indices", HW_INT32, 0, "mask_ratio, objective=task, layout=dense, compact",
          "position of the task's target, -1 where none", "B"),
    FIELD("masked_numerical_indices", HW_INT32, 0, "mask_ratio",
          "positions of masked numbers, -1 where unused", "B", "M"),
    FIELD("masked_numerical_values", HW_FLOAT32, 0, "mask_ratio", "z-score by column", "B", "M"),
    FIELD("masked_numerical_is_null", HW_UINT8, 0, "mask_ratio", "1 where NULL", "B", "M"),
    FIELD("masked_timestamp_indices", HW_INT32, 0, "mask_ratio",
          "positions of masked times, -1 where unused", "B", "M"),
    FIELD("masked_timestamp_values", HW_FLOAT32, 0, "mask_ratio", "as timestamp_values", "B", "M",
          "15"),
    FIELD("masked_timestamp_is_null", HW_UINT8, 0, "mask_ratio", "1 where NULL", "B", "M"),
    FIELD("masked_boolean_indices", HW_INT32, 0, "mask_ratio",
          "positions of masked booleans, -1 where unused", "B", "M"),
    FIELD("masked_boolean_values", HW_UINT8, 0, "mask_ratio", "0 or 1", "B", "M"),
    FIELD("masked_boolean_is_null", HW_UINT8, 0, "mask_ratio", "1 where NULL", "B", "M"),
    FIELD("masked_categorical_indices", HW_INT32, 0, "mask_ratio",
          "positions of masked categories, -1 where unused", "B", "M"),
    FIELD("masked_categorical_values", HW_UINT32, 0, "mask_ratio", "global category", "B", "M"),
    FIELD("masked_categorical_is_null", HW_UINT8, 0, "mask_ratio", "1 where NULL", "B", "M"),
    FIELD("masked_text_indices", HW_INT32, 0, "mask_ratio",
          "positions of masked texts, -1 where unused", "B", "M"),
    FIELD("masked_text_values", HW_UINT32, 0, "mask_ratio", "as text_embed_ids", "B", "M"),
    FIELD("masked_text_is_null", HW_UINT8, 0, "mask_ratio", "1 where NULL", "B", "M"),
    FIELD("obs_time", HW_INT64, 1, NULL, "microseconds; INT64_MAX: none", "B"),
    FIELD("seed_index", HW_UINT32, 1, NULL, "seed within the whole task", "B"),
    FIELD("anchor_rows", HW_UINT32, 1, NULL, "global row of the anchor", "B"),
    FIELD("row_ids", HW_UINT32, 1, "with_rows", "global rows, 2^32-1 where unused or the seed row",
          "B", "R"),
};

const hw_batch_field *hwi_batch_field(unsigned id) {
    return &FIELDS[id];
}

uint32_t hw_batch_field_count(void) {
    return HWI_FIELD_COUNT;
}

hw_status hw_batch_field_at(uint32_t index, hw_batch_field *field, hw_error *error) {
    if (index >= HWI_FIELD_COUNT) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "array %u of %u", index, HWI_FIELD_COUNT);
    }
    return HWI_GIVE(hw_batch_field, field, &FIELDS[index], error);
}

uint32_t hw_dtype_bytes(hw_dtype dtype) {
    static const uint8_t bytes[] = {1, 1, 2, 4, 4, 8, 2, 4};
    return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}
