/* The memory of a batch: every array in one slab, each 64-byte aligned. */
#include "plan/batch_layout.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

enum { ALIGN = 64, PAGE_SKEW_BYTES = 320 };

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

/* As the table's `when` says, but for fk_adj, which the staging batch of a packing lacks. The
 * staging batch of the flat layout is a compact one without row_order. */
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
    const char *when = hwi_batch_field(id)->when;
    if (id == HWI_FK_ADJ) {
        return plan->has_fk_adj;
    }
    for (size_t i = 0; when != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(when, words[i].when) == 0) {
            return words[i].holds;
        }
    }
    return when == NULL;
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
    if (field->format == hwi_batch_field(HWI_NUM_CONTEXTS)) {
        field->shape[0] = 1;
    }
    if (field->format == hwi_batch_field(HWI_ROW_STARTS)) {
        field->dtype = HW_UINT32;
    }
}

/* Arrays that have one entry per context: [B] or [B, 15]. */
static int is_by_context(const hw_batch_field *field) {
    int is_by_sequence = strcmp(field->dims[0], "B") == 0;
    int is_flat = field->dims[1] == NULL || strcmp(field->dims[1], "15") == 0;
    return is_by_sequence && is_flat && field != hwi_batch_field(HWI_NUM_CONTEXTS);
}

hw_status hwi_fields_plan(struct hwi_plan *plan, hw_error *error) {
    uint64_t offset = 0;
    plan->field_count = 0;
    for (unsigned id = 0; id < HWI_FIELD_COUNT; id++) {
        plan->offsets[id] = UINT64_MAX;
        if (!is_wanted(plan, id)) {
            continue;
        }
        const hw_batch_field *format = hwi_batch_field(id);
        struct hwi_field *field = &plan->fields[plan->field_count++];
        int is_texts = strcmp(format->dims[0], "U") == 0;
        *field = (struct hwi_field){.format = format,
                                    .dtype = format->dtype,
                                    .varies = is_texts ? HWI_VARIES_TEXTS : HWI_VARIES_NOT,
                                    .offset = offset};
        for (uint32_t dim = 0; dim < 3 && format->dims[dim] != NULL; dim++) {
            field->shape[field->rank++] = dimension(&plan->shape, format->dims[dim]);
            if (dim == 0 && plan->options.packing && is_by_context(format)) {
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
                            format->name);
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
