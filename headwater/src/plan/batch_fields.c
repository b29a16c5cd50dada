/*
 * The batch format as one table, and the memory of a batch made from it: every array in one slab,
 * each 64-byte aligned. Python's BATCH_FIELDS, the binding's loop and docs/reference/batch.md all
 * come from this table.
 */
#include "plan/batch_fields.h"

#include <string.h>

#include "base/error.h"
#include "plan/plan.h"

enum { ALIGN = 64, PAGE_SKEW_BYTES = 320 };

#define FIELD(name, dtype, info, when, meaning, ...)                                               \
    {name, dtype, {__VA_ARGS__}, info, when, meaning}

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
    FIELD("parents", HW_UINT16, 0, "layout=compact, flat",
          "local parent by foreign key, 65535 where none is in the context, each parent once", "B",
          "R", "P"),
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

const hw_batch_field *hw_batch_fields(uint32_t *count) {
    *count = HWI_FIELD_COUNT;
    return FIELDS;
}

uint32_t hw_dtype_bytes(hw_dtype dtype) {
    static const uint8_t bytes[] = {1, 1, 2, 4, 4, 8, 2, 4};
    return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}

static uint64_t dimension(const hw_shape *shape, const char *letters) {
    const struct {
        const char *letters;
        uint64_t size;
    } sizes[] = {
        {"B", shape->batch_size},
        {"B+1", (uint64_t)shape->batch_size + 1},
        {"S", shape->sequence_length},
        {"R", shape->max_rows},
        {"R+1", (uint64_t)shape->max_rows + 1},
        {"U", shape->text_budget},
        {"D_t", shape->text_dim},
        {"P", shape->parent_slots},
        {"M", shape->max_targets_per_type},
        {"15", 15},
        {"1", 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(letters, sizes[i].letters) == 0) {
            return sizes[i].size;
        }
    }
    return 0;
}

static int is_flat(const struct hwi_plan *plan) {
    return plan->options.layout == HW_LAYOUT_FLAT && plan->staging != NULL;
}

/* As the table's `when` says, but for edges, which the staging batch of a packing lists in either
 * layout. The staging batch of the flat layout is a compact one without row_order. */
static int is_wanted(const struct hwi_plan *plan, unsigned id) {
    const hw_sampler_options *options = &plan->options;
    int is_task = options->objective == HW_OBJECTIVE_TASK;
    const struct {
        const char *when;
        int holds;
    } words[] = {
        {"layout=dense", options->layout == HW_LAYOUT_DENSE},
        {"layout=compact", options->layout == HW_LAYOUT_COMPACT},
        {"layout=compact, flat", hwi_is_compact(plan)},
        {"layout=dense, compact", !is_flat(plan)},
        {"layout=flat", is_flat(plan)},
        {"text_mode=batch", options->text_mode == HW_TEXTS_BATCH},
        {"text_mode=numbers", options->text_mode == HW_TEXTS_NUMBERS},
        {"text_mode=batch, numbers", hwi_lists_texts(plan)},
        {"attention_masks", options->attention_masks},
        {"packing", options->packing},
        {"packing, layout=flat", options->packing || is_flat(plan)},
        {"with_rows", options->with_rows},
        {"targets=separate", options->targets == HW_TARGETS_SEPARATE && is_task},
        {"mask_ratio", options->mask_ratio > 0},
        {"mask_ratio, objective=task, layout=dense, compact",
         options->mask_ratio > 0 && is_task && !is_flat(plan)},
    };
    if (id == HWI_FK_ADJ || id == HWI_PARENTS) {
        return plan->lists_parents == (id == HWI_PARENTS);
    }
    for (size_t i = 0; FIELDS[id].when != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(FIELDS[id].when, words[i].when) == 0) {
            return words[i].holds;
        }
    }
    return FIELDS[id].when == NULL;
}

/* What a flat batch has in place of sequences of cells and rows. */
static enum hwi_varies varies_in_flat(const hw_batch_field *field) {
    const char *second = field->dims[1];
    if (second == NULL || strcmp(field->dims[0], "B") != 0) {
        return HWI_VARIES_NOT;
    }
    return strcmp(second, "S") == 0     ? HWI_VARIES_CELLS
           : strcmp(second, "R") == 0   ? HWI_VARIES_ROWS
           : strcmp(second, "R+1") == 0 ? HWI_VARIES_ROW_STARTS
                                        : HWI_VARIES_NOT;
}

/* Makes an array of a batch of sequences one of a flat batch. */
static void flatten(const hw_shape *shape, struct hwi_field *field) {
    enum hwi_varies varies = varies_in_flat(field->format);
    if (varies != HWI_VARIES_NOT) {
        field->varies = varies;
        uint64_t rows = shape->rows_per_batch;
        field->shape[0] = 1;
        field->shape[1] = varies == HWI_VARIES_CELLS  ? shape->cells_per_batch
                          : varies == HWI_VARIES_ROWS ? rows
                                                      : rows + 1;
    }
    if (field->format == &FIELDS[HWI_NUM_CONTEXTS]) {
        field->shape[0] = 1;
    }
    if (field->format == &FIELDS[HWI_ROW_STARTS]) {
        field->dtype = HW_UINT32;
    }
}

/* Arrays that have one entry per context: [B] or [B, 15]. */
static int is_by_context(const hw_batch_field *field) {
    int is_by_sequence = strcmp(field->dims[0], "B") == 0;
    int is_flat = field->dims[1] == NULL || strcmp(field->dims[1], "15") == 0;
    return is_by_sequence && is_flat && field != &FIELDS[HWI_NUM_CONTEXTS];
}

hw_status hwi_fields_plan(struct hwi_plan *plan, hw_error *error) {
    uint64_t offset = 0;
    plan->field_count = 0;
    for (unsigned id = 0; id < HWI_FIELD_COUNT; id++) {
        plan->offsets[id] = UINT64_MAX;
        if (!is_wanted(plan, id)) {
            continue;
        }
        struct hwi_field *field = &plan->fields[plan->field_count++];
        int is_texts = strcmp(FIELDS[id].dims[0], "U") == 0;
        *field = (struct hwi_field){.format = &FIELDS[id],
                                    .dtype = FIELDS[id].dtype,
                                    .varies = is_texts ? HWI_VARIES_TEXTS : HWI_VARIES_NOT,
                                    .offset = offset};
        for (uint32_t dim = 0; dim < 3 && FIELDS[id].dims[dim] != NULL; dim++) {
            field->shape[field->rank++] = dimension(&plan->shape, FIELDS[id].dims[dim]);
            if (dim == 0 && plan->options.packing && is_by_context(&FIELDS[id])) {
                field->shape[field->rank++] = plan->shape.contexts_per_sequence;
            }
        }
        if (is_flat(plan)) {
            flatten(&plan->shape, field);
        }
        uint64_t bytes = hw_dtype_bytes(field->dtype);
        for (uint32_t dim = 0; dim < field->rank; dim++) {
            if (hwi_mul_overflows(bytes, field->shape[dim], &bytes)) {
                bytes = UINT64_MAX / 2;
            }
        }
        if (bytes > (uint64_t)1 << 40 || offset > (uint64_t)1 << 40) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "a batch of this shape needs more than 2^40 bytes (array '%s'): lower "
                            "batch_size, sequence_length, max_rows or text_budget",
                            FIELDS[id].name);
        }
        field->bytes = bytes;
        if (id == HWI_IN_PERM) { /* both patterns symmetrise to the same graph */
            field->offset = plan->offsets[HWI_OUT_PERM];
        } else {
            /* Arrays of power-of-two size would all start in the same cache set; skew them. */
            offset = (offset + bytes + PAGE_SKEW_BYTES + ALIGN - 1) / ALIGN * ALIGN;
        }
        plan->offsets[id] = field->offset;
    }
    plan->slab_bytes = offset;
    return HW_OK;
}
