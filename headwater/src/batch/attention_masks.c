/* Attention masks; see attention_masks.h. 1 is masked; all starts masked, and what may be seen is
 * cleared. */
#include "batch/attention_masks.h"

#include <string.h>

/* The arrays of one sequence. */
struct sequence {
    uint32_t length, rows, slots; /* S, R, P */
    const int32_t *column_ids; /* [S] dense layout, else NULL */
    const uint16_t *cell_columns; /* [S] compact layout */
    const uint16_t *row_starts; /* [R + 1] */
    const uint16_t *parents; /* [R, P] */
    uint8_t *column_mask, *feature_mask, *neighbor_mask; /* [S, S] */
};

static struct sequence sequence_of(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    size_t length = plan->shape.sequence_length, rows = plan->shape.max_rows;
    size_t slots = plan->shape.parent_slots, pairs = (size_t)b * length * length;
    int is_compact = plan->options.layout == HW_LAYOUT_COMPACT;
    return (struct sequence){
        .length = (uint32_t)length,
        .rows = (uint32_t)rows,
        .slots = (uint32_t)slots,
        .column_ids = is_compact ? NULL : hwi_field_at(plan, slab, HWI_COLUMN_IDS, 4 * b * length),
        .cell_columns =
            is_compact ? hwi_field_at(plan, slab, HWI_CELL_COLUMNS, 2 * b * length) : NULL,
        .row_starts = hwi_field_at(plan, slab, HWI_ROW_STARTS, 2 * b * (rows + 1)),
        .parents = hwi_field_at(plan, slab, HWI_PARENTS, 2 * b * rows * slots),
        .column_mask = hwi_field_at(plan, slab, HWI_COLUMN_MASK, pairs),
        .feature_mask = hwi_field_at(plan, slab, HWI_FEATURE_MASK, pairs),
        .neighbor_mask = hwi_field_at(plan, slab, HWI_NEIGHBOR_MASK, pairs),
    };
}

/* Clears the pairs of two runs of cells: row i's against row j's. */
static void show_rows(const struct sequence *in, uint8_t *mask, uint32_t i, uint32_t j) {
    uint32_t first = in->row_starts[j], count = in->row_starts[j + 1] - first;
    for (uint32_t cell = in->row_starts[i]; cell < in->row_starts[i + 1]; cell++) {
        memset(mask + (size_t)cell * in->length + first, 0, count);
    }
}

static void show_columns(const struct sequence *in, struct hwi_mask_span span) {
    uint32_t end = span.first + span.count;
    for (uint32_t i = span.first; i < end; i++) {
        uint8_t *mask = in->column_mask + (size_t)i * in->length;
        for (uint32_t j = span.first; in->column_ids != NULL && j < end; j++) {
            mask[j] = in->column_ids[j] != in->column_ids[i];
        }
        for (uint32_t j = span.first; in->cell_columns != NULL && j < end; j++) {
            mask[j] = in->cell_columns[j] != in->cell_columns[i];
        }
    }
}

static void show_neighbors(const struct sequence *in, uint32_t row) {
    for (uint32_t slot = 0; slot < in->slots; slot++) {
        uint32_t parent = in->parents[(size_t)row * in->slots + slot];
        if (parent < in->rows) {
            show_rows(in, in->neighbor_mask, row, parent);
            show_rows(in, in->neighbor_mask, parent, row);
        }
    }
}

void hwi_masks_make(const struct hwi_plan *plan, uint8_t *slab, uint32_t b,
                    const struct hwi_mask_span *spans, uint32_t span_count, uint32_t row_count) {
    struct sequence in = sequence_of(plan, slab, b);
    size_t pairs = (size_t)in.length * in.length;
    uint8_t *padding = hwi_field_at(plan, slab, HWI_PADDING_MASK, (size_t)b * in.length);
    memset(in.column_mask, 1, pairs);
    memset(in.feature_mask, 1, pairs);
    memset(in.neighbor_mask, 1, pairs);
    memset(padding, 1, in.length);
    for (uint32_t s = 0; s < span_count; s++) {
        memset(padding + spans[s].first, 0, spans[s].count);
        show_columns(&in, spans[s]);
    }
    for (uint32_t row = 0; row < row_count; row++) {
        show_rows(&in, in.feature_mask, row, row);
        show_neighbors(&in, row);
    }
    for (uint32_t cell = 0; cell < in.length; cell++) {
        size_t at = (size_t)cell * in.length + cell;
        in.column_mask[at] = in.feature_mask[at] = in.neighbor_mask[at] = 0;
    }
}
