/* Contexts side by side; see flat.h. */
#include "batch/flat.h"

#include <string.h>

#include "batch/counters.h"
#include "batch/pack.h"

#define NO_PARENT UINT16_MAX

struct flat {
    const struct hwi_plan *plan, *staging;
    uint8_t *from, *to;
    uint32_t cell_room, row_room; /* N, R_n */
    uint32_t cells, rows; /* laid out so far */
};

/* A staged context, and how much of it is kept. */
struct context {
    uint32_t k;
    uint32_t cells, rows; /* kept */
    uint32_t whole_cells;
    const uint16_t *row_starts; /* [R + 1] */
};

/* An array with an entry for each cell or row, and the byte that stands where nothing is. */
struct along {
    enum hwi_field_id id;
    uint8_t item_bytes, blank;
};
static const struct along BY_CELL[] = {
    {HWI_CELLS, 1, HW_CELL_PADDING},
    {HWI_CELL_COLUMNS, 2, 0},
    {HWI_CELL_VALUES, 4, 0},
    {HWI_CELL_TIMES, 4, 0},
};
static const struct along BY_ROW[] = {
    {HWI_ROW_AGES, 4, 0}, /* and -1 where unused: blank_ages */
    {HWI_ROW_TABLES, 2, 0},
    {HWI_ROW_DEPTHS, 1, 0},
    {HWI_INFO_ROW_IDS, 4, 0xff},
};
enum {
    CELL_ARRAYS = sizeof BY_CELL / sizeof BY_CELL[0],
    ROW_ARRAYS = sizeof BY_ROW / sizeof BY_ROW[0],
};

/* Arrays [n] and [n, 15], which are as they are staged. */
static const struct {
    enum hwi_field_id id;
    uint8_t item_bytes;
} BY_CONTEXT[] = {
    {HWI_IS_LABELLED, 1},     {HWI_TARGET_VALUES, 4 * HWI_TIME_FLOATS},
    {HWI_TARGET_IS_NULL, 1},  {HWI_INFO_OBS_TIME, 8},
    {HWI_INFO_SEED_INDEX, 4}, {HWI_INFO_ANCHOR_ROWS, 4},
};

static int has(const struct flat *flat, enum hwi_field_id id) {
    return flat->plan->offsets[id] != UINT64_MAX;
}

static void *from_at(const struct flat *flat, enum hwi_field_id id, size_t bytes) {
    return hwi_field_at(flat->staging, flat->from, id, bytes);
}

static void *to_at(const struct flat *flat, enum hwi_field_id id, size_t bytes) {
    return hwi_field_at(flat->plan, flat->to, id, bytes);
}

/* ---- one context ------------------------------------------------------------------------- */

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* What is kept of staged context k: whole rows, the first if it has room at all. */
static struct context read_context(const struct flat *flat, uint32_t k,
                                   const struct hwi_length *limit) {
    size_t starts = (size_t)flat->staging->shape.max_rows + 1;
    struct context context = {.k = k, .row_starts = from_at(flat, HWI_ROW_STARTS, 2 * k * starts)};
    memcpy(&context.whole_cells, from_at(flat, HWI_NUM_CELLS, 4 * (size_t)k), 4);
    memcpy(&context.rows, from_at(flat, HWI_NUM_ROWS, 4 * (size_t)k), 4);
    uint32_t cells = flat->cell_room - flat->cells, rows = flat->row_room - flat->rows;
    if (limit != NULL) {
        cells = least(cells, limit->cells);
        rows = least(rows, limit->rows);
    }
    context.rows = least(context.rows, rows);
    while (context.rows > 0 && context.row_starts[context.rows] > cells) {
        context.rows--;
    }
    context.cells = context.row_starts[context.rows];
    return context;
}

static void copy_along(const struct flat *flat, const struct along *array, size_t from, size_t at,
                       size_t count) {
    if (has(flat, array->id)) {
        memcpy(to_at(flat, array->id, at * array->item_bytes),
               from_at(flat, array->id, from * array->item_bytes), count * array->item_bytes);
    }
}

static void copy_rows(const struct flat *flat, const struct context *context) {
    size_t most = flat->staging->shape.max_rows, slots = flat->plan->shape.parent_slots;
    const uint16_t *from = from_at(flat, HWI_PARENTS, 2 * context->k * most * slots);
    uint16_t *parents = to_at(flat, HWI_PARENTS, 2 * (size_t)flat->rows * slots);
    for (size_t i = 0; i < context->rows * slots; i++) {
        parents[i] = from[i] < context->rows ? from[i] : NO_PARENT;
    }
    uint32_t *starts = to_at(flat, HWI_ROW_STARTS, 4 * (size_t)flat->rows);
    for (uint32_t row = 0; row < context->rows; row++) {
        starts[row] = flat->cells + context->row_starts[row];
    }
    for (size_t i = 0; i < ROW_ARRAYS; i++) {
        copy_along(flat, &BY_ROW[i], context->k * most, flat->rows, context->rows);
    }
}

/* Where the task's target stands in a context; HWI_NONE: nowhere, or among the rows cut off. */
static uint32_t find_target(const struct flat *flat, const struct context *context) {
    uint32_t at = HWI_NONE;
    if (!hwi_is_task_objective(flat->plan)) {
        return HWI_NONE;
    }
    if (flat->staging->offsets[HWI_TARGET_INDICES] != UINT64_MAX) {
        memcpy(&at, from_at(flat, HWI_TARGET_INDICES, 4 * (size_t)context->k), 4);
        return at < context->cells ? at : HWI_NONE;
    }
    const uint8_t *cells =
        from_at(flat, HWI_CELLS, (size_t)context->k * flat->staging->shape.sequence_length);
    for (at = 0; at < context->cells; at++) {
        if (cells[at] & HW_CELL_TARGET) {
            return at;
        }
    }
    return HWI_NONE;
}

/* The masked cells of a context: positions in the row of all; those cut off are none. */
static void copy_masked(const struct flat *flat, const struct context *context) {
    static const uint8_t value_bytes[HWI_MASKED_TYPES] = {4, 4 * HWI_TIME_FLOATS, 1, 4, 4};
    size_t most = flat->plan->shape.max_targets_per_type, first = context->k * most;
    for (uint32_t type = 0; type < HWI_MASKED_TYPES; type++) {
        uint32_t list = HWI_MASKED_LISTS + 3 * type;
        size_t bytes = value_bytes[type], kept = 0;
        const int32_t *from = hwi_field_at(flat->staging, flat->from, list, 4 * first);
        int32_t *indices = hwi_field_at(flat->plan, flat->to, list, 4 * first);
        while (kept < most && from[kept] >= 0 && (uint32_t)from[kept] < context->cells) {
            indices[kept] = from[kept] + (int32_t)flat->cells;
            kept++;
        }
        memset(indices + kept, 0xff, 4 * (most - kept));
        for (uint32_t part = 1; part <= 2; part++, bytes = 1) {
            uint8_t *to = hwi_field_at(flat->plan, flat->to, list + part, bytes * first);
            memcpy(to, hwi_field_at(flat->staging, flat->from, list + part, bytes * first),
                   bytes * kept);
            memset(to + bytes * kept, 0, bytes * (most - kept));
        }
    }
}

static void lay_out(struct flat *flat, const struct context *context,
                    struct hwi_counters *counters) {
    size_t length = flat->staging->shape.sequence_length, k = context->k;
    for (size_t i = 0; i < CELL_ARRAYS; i++) {
        copy_along(flat, &BY_CELL[i], k * length, flat->cells, context->cells);
    }
    copy_rows(flat, context);
    uint32_t target = find_target(flat, context);
    int32_t at = target == HWI_NONE ? -1 : (int32_t)(flat->cells + target);
    memcpy(to_at(flat, HWI_CONTEXT_TARGETS, 4 * k), &at, 4);
    if (target == HWI_NONE) {
        *(uint8_t *)to_at(flat, HWI_IS_LABELLED, k) = 0;
    }
    if (flat->plan->mask_words > 0) {
        copy_masked(flat, context);
    }
    flat->cells += context->cells;
    flat->rows += context->rows;
    memcpy(to_at(flat, HWI_CONTEXT_CELLS, 4 * (k + 1)), &flat->cells, 4);
    memcpy(to_at(flat, HWI_CONTEXT_ROWS, 4 * (k + 1)), &flat->rows, 4);
    counters->contexts_cut += context->cells < context->whole_cells;
    counters->contexts_dropped += context->cells == 0 && context->whole_cells > 0;
    counters->cells_cut += context->whole_cells - context->cells;
}

/* ---- the batch --------------------------------------------------------------------------- */

/* What stands behind the last context. */
static void blank_rest(const struct flat *flat) {
    size_t cells = flat->cell_room - flat->cells, rows = flat->row_room - flat->rows;
    size_t slots = flat->plan->shape.parent_slots;
    for (size_t i = 0; i < CELL_ARRAYS; i++) {
        size_t bytes = BY_CELL[i].item_bytes;
        memset(to_at(flat, BY_CELL[i].id, flat->cells * bytes), BY_CELL[i].blank, cells * bytes);
    }
    for (size_t i = 0; i < ROW_ARRAYS; i++) {
        size_t bytes = BY_ROW[i].item_bytes;
        if (has(flat, BY_ROW[i].id)) {
            memset(to_at(flat, BY_ROW[i].id, flat->rows * bytes), BY_ROW[i].blank, rows * bytes);
        }
    }
    memset(to_at(flat, HWI_PARENTS, 2 * flat->rows * slots), 0xff, 2 * rows * slots);
    float *ages = to_at(flat, HWI_ROW_AGES, 4 * (size_t)flat->rows);
    uint32_t *starts = to_at(flat, HWI_ROW_STARTS, 4 * (size_t)flat->rows);
    for (size_t row = 0; row < rows; row++) {
        ages[row] = -1;
        starts[row] = flat->cells;
    }
    starts[rows] = flat->cells;
}

static void copy_by_context(const struct flat *flat) {
    for (size_t i = 0; i < sizeof BY_CONTEXT / sizeof BY_CONTEXT[0]; i++) {
        if (has(flat, BY_CONTEXT[i].id)) {
            memcpy(to_at(flat, BY_CONTEXT[i].id, 0), from_at(flat, BY_CONTEXT[i].id, 0),
                   (size_t)flat->plan->shape.batch_size * BY_CONTEXT[i].item_bytes);
        }
    }
}

void hwi_flatten(const struct hwi_plan *plan, uint8_t *staging, uint8_t *slab,
                 const struct hwi_flat_sizes *sizes, struct hwi_counters *counters) {
    struct flat flat = {.plan = plan,
                        .staging = plan->staging,
                        .from = staging,
                        .to = slab,
                        .cell_room = sizes->cells,
                        .row_room = sizes->rows};
    copy_by_context(&flat);
    memset(to_at(&flat, HWI_CONTEXT_CELLS, 0), 0, 4);
    memset(to_at(&flat, HWI_CONTEXT_ROWS, 0), 0, 4);
    for (uint32_t k = 0; k < plan->shape.batch_size; k++) {
        const struct hwi_length *limit = sizes->contexts == NULL ? NULL : &sizes->contexts[k].limit;
        struct context context = read_context(&flat, k, limit);
        lay_out(&flat, &context, counters);
    }
    blank_rest(&flat);
    hwi_copy_question(plan, staging, slab);
    memcpy(to_at(&flat, HWI_NUM_CONTEXTS, 0), from_at(&flat, HWI_NUM_SEQUENCES, 0), 4);
    counters->packed_cells += flat.cells;
    counters->padded_cells += sizes->cells;
}
