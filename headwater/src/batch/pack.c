/* Contexts placed into sequences; see pack.h. */
#include "batch/pack.h"

#include <stdlib.h>
#include <string.h>

#include "batch/counters.h"

/* ---- scratch ----------------------------------------------------------------------------- */

hw_status hwi_packing_open(const struct hwi_plan *plan, struct hwi_packing **packing,
                           hw_error *error) {
    size_t slots = (size_t)plan->shape.batch_size * plan->shape.contexts_per_sequence;
    struct hwi_packing *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "the packing of a batch", sizeof *made);
    }
    made->places = calloc(plan->shape.contexts_per_batch, sizeof *made->places);
    made->spans = calloc(slots, sizeof *made->spans);
    made->fits = calloc(plan->shape.batch_size, sizeof *made->fits);
    if (made->places == NULL || made->spans == NULL || made->fits == NULL) {
        hwi_packing_close(made);
        return hwi_no_memory(error, "the places of a packed batch", slots * sizeof *made->spans);
    }
    *packing = made;
    return HW_OK;
}

void hwi_packing_close(struct hwi_packing *packing) {
    if (packing == NULL) {
        return;
    }
    free(packing->places);
    free(packing->spans);
    free(packing->fits);
    free(packing);
}

/* ---- where ------------------------------------------------------------------------------- */

uint32_t hwi_fit_add(struct hwi_fit *fits, const hw_shape *shape, uint32_t cell_count,
                     uint32_t row_count) {
    for (uint32_t b = 0; b < shape->batch_size; b++) {
        if (cell_count <= shape->sequence_length - fits[b].cells &&
            row_count <= shape->max_rows - fits[b].rows &&
            fits[b].contexts < shape->contexts_per_sequence) {
            fits[b].cells += cell_count;
            fits[b].rows += row_count;
            fits[b].contexts++;
            return b;
        }
    }
    return HWI_NONE;
}

/* A finished context in the staging slab. */
struct context {
    uint32_t cell_count, row_count;
    uint32_t least_cells; /* up to its target */
    const uint16_t *row_starts;
};

static uint32_t target_end(const struct hwi_plan *staging, uint8_t *slab, uint32_t k,
                           uint32_t cell_count) {
    int is_compact = hwi_is_compact(staging);
    const uint8_t *flags = hwi_field_at(staging, slab, is_compact ? HWI_CELLS : HWI_IS_TARGET,
                                        (size_t)k * staging->shape.sequence_length);
    uint8_t bit = is_compact ? HW_CELL_TARGET : 1;
    uint32_t cell = 0;
    while (cell < cell_count && !(flags[cell] & bit)) {
        cell++;
    }
    return cell + 1;
}

static struct context read_context(const struct hwi_plan *staging, uint8_t *slab, uint32_t k) {
    size_t starts = (size_t)staging->shape.max_rows + 1;
    struct context context = {.row_starts =
                                  hwi_field_at(staging, slab, HWI_ROW_STARTS, 2 * k * starts)};
    memcpy(&context.cell_count, hwi_field_at(staging, slab, HWI_NUM_CELLS, 4 * (size_t)k), 4);
    memcpy(&context.row_count, hwi_field_at(staging, slab, HWI_NUM_ROWS, 4 * (size_t)k), 4);
    context.least_cells = target_end(staging, slab, k, context.cell_count);
    return context;
}

/* How many cells of a context a sequence can keep. */
static uint32_t keepable(const struct context *context, uint32_t cell_room, uint32_t row_room) {
    uint32_t cells = context->cell_count < cell_room ? context->cell_count : cell_room;
    if (row_room < context->row_count && context->row_starts[row_room] < cells) {
        cells = context->row_starts[row_room];
    }
    return cells;
}

/* Cuts a context to where most of it can stay. */
static uint32_t cut(struct hwi_fit *fits, const hw_shape *shape, struct context *context) {
    uint32_t best = HWI_NONE, most = 0;
    for (uint32_t b = 0; b < shape->batch_size; b++) {
        uint32_t cells = keepable(context, shape->sequence_length - fits[b].cells,
                                  shape->max_rows - fits[b].rows);
        if (fits[b].contexts < shape->contexts_per_sequence && cells >= context->least_cells &&
            cells > most) {
            most = cells;
            best = b;
        }
    }
    if (best == HWI_NONE) {
        return best;
    }
    while (context->row_count > 0 && context->row_starts[context->row_count - 1] >= most) {
        context->row_count--;
    }
    context->cell_count = most;
    fits[best].cells += context->cell_count;
    fits[best].rows += context->row_count;
    fits[best].contexts++;
    return best;
}

static void place_contexts(const struct hwi_plan *plan, struct hwi_packing *packing,
                           uint8_t *staging, uint32_t context_count,
                           struct hwi_counters *counters) {
    const hw_shape *shape = &plan->shape;
    struct hwi_fit *fits = packing->fits;
    memset(fits, 0, shape->batch_size * sizeof *fits);
    for (uint32_t k = 0; k < context_count; k++) {
        struct context context = read_context(plan->staging, staging, k);
        uint32_t whole = context.cell_count;
        uint32_t b = hwi_fit_add(fits, shape, context.cell_count, context.row_count);
        if (b == HWI_NONE) {
            b = cut(fits, shape, &context);
            counters->contexts_cut += b != HWI_NONE;
            counters->contexts_dropped += b == HWI_NONE;
            counters->cells_cut += b == HWI_NONE ? whole : whole - context.cell_count;
        }
        struct hwi_place *place = &packing->places[k];
        *place = (struct hwi_place){.sequence = b};
        if (b == HWI_NONE) {
            continue;
        }
        place->segment = fits[b].contexts - 1;
        place->cell_start = fits[b].cells - context.cell_count;
        place->row_start = fits[b].rows - context.row_count;
        place->cell_count = context.cell_count;
        place->row_count = context.row_count;
        packing->spans[(size_t)b * shape->contexts_per_sequence + place->segment] =
            (struct hwi_mask_span){.first = place->cell_start, .count = place->cell_count};
        counters->packed_cells += place->cell_count;
    }
    counters->packed_sequences += shape->batch_size;
}

/* ---- cells and rows ---------------------------------------------------------------------- */

/* Arrays along the cells, along the rows, and of a whole context. */
enum axis { ALONG_CELLS, ALONG_ROWS, ALONG_CONTEXTS };

/* What a packing copies, and the byte that stands where nothing is. */
struct copied {
    enum hwi_field_id id;
    enum axis axis;
    uint8_t blank;
};
static const struct copied COPIED[] = {
    {HWI_SEMANTIC_TYPES, ALONG_CELLS, 0},
    {HWI_COLUMN_IDS, ALONG_CELLS, 0},
    {HWI_SEQ_ROW_IDS, ALONG_CELLS, 0},
    {HWI_NUMERIC_VALUES, ALONG_CELLS, 0},
    {HWI_TIMESTAMP_VALUES, ALONG_CELLS, 0},
    {HWI_BOOL_VALUES, ALONG_CELLS, 0},
    {HWI_CATEGORICAL_EMBED_IDS, ALONG_CELLS, 0},
    {HWI_TEXT_EMBED_IDS, ALONG_CELLS, 0},
    {HWI_IS_NULL, ALONG_CELLS, 0},
    {HWI_IS_TARGET, ALONG_CELLS, 0},
    {HWI_IS_PADDING, ALONG_CELLS, 1},
    {HWI_CELLS, ALONG_CELLS, HW_CELL_PADDING},
    {HWI_CELL_COLUMNS, ALONG_CELLS, 0},
    {HWI_CELL_VALUES, ALONG_CELLS, 0},
    {HWI_CELL_TIMES, ALONG_CELLS, 0},
    {HWI_ROW_AGES, ALONG_ROWS, 0}, /* and -1 where unused: blank_ages */
    {HWI_ROW_TABLES, ALONG_ROWS, 0},
    {HWI_ROW_DEPTHS, ALONG_ROWS, 0},
    {HWI_INFO_ROW_IDS, ALONG_ROWS, 0xff},
    {HWI_IS_LABELLED, ALONG_CONTEXTS, 0},
    {HWI_TARGET_VALUES, ALONG_CONTEXTS, 0},
    {HWI_TARGET_IS_NULL, ALONG_CONTEXTS, 1},
    {HWI_INFO_OBS_TIME, ALONG_CONTEXTS, 0}, /* and INT64_MAX where unused: blank_times */
    {HWI_INFO_SEED_INDEX, ALONG_CONTEXTS, 0},
    {HWI_INFO_ANCHOR_ROWS, ALONG_CONTEXTS, 0},
};

/* One packing: from a staging slab of one plan to the slab of another. */
struct pack {
    const struct hwi_plan *plan, *staging;
    uint8_t *from, *to;
    const struct hwi_place *places; /* [context_count] */
    uint32_t context_count;
};

/* Start of an array of context k, or of sequence b. */
static void *from_at(const struct pack *pack, enum hwi_field_id id, size_t stride, uint32_t k) {
    return hwi_field_at(pack->staging, pack->from, id, stride * k);
}

static void *to_at(const struct pack *pack, enum hwi_field_id id, size_t stride, uint32_t b) {
    return hwi_field_at(pack->plan, pack->to, id, stride * b);
}

static uint64_t array_bytes(const struct hwi_plan *plan, enum hwi_field_id id) {
    for (uint32_t i = 0; i < plan->field_count; i++) {
        if (plan->fields[i].offset == plan->offsets[id]) {
            return plan->fields[i].bytes;
        }
    }
    return 0;
}

/* Items of an array that a sequence has. */
static size_t items_along(const hw_shape *shape, enum axis axis) {
    return axis == ALONG_CELLS  ? shape->sequence_length
           : axis == ALONG_ROWS ? shape->max_rows
                                : shape->contexts_per_sequence;
}

static void copy_array(const struct pack *pack, const struct copied *copied) {
    const hw_shape *shape = &pack->plan->shape;
    size_t items = items_along(shape, copied->axis);
    uint64_t bytes = array_bytes(pack->plan, copied->id);
    size_t item_bytes = bytes / shape->batch_size / items;
    size_t from_stride = items_along(&pack->staging->shape, copied->axis) * item_bytes;
    memset(to_at(pack, copied->id, 0, 0), copied->blank, bytes);
    for (uint32_t k = 0; k < pack->context_count; k++) {
        const struct hwi_place *place = &pack->places[k];
        if (place->sequence == HWI_NONE) {
            continue;
        }
        uint32_t start = copied->axis == ALONG_CELLS  ? place->cell_start
                         : copied->axis == ALONG_ROWS ? place->row_start
                                                      : place->segment;
        uint32_t count = copied->axis == ALONG_CELLS  ? place->cell_count
                         : copied->axis == ALONG_ROWS ? place->row_count
                                                      : 1;
        uint8_t *to = to_at(pack, copied->id, items * item_bytes, place->sequence);
        memcpy(to + start * item_bytes, from_at(pack, copied->id, from_stride, k),
               count * item_bytes);
    }
}

static int has(const struct hwi_plan *plan, enum hwi_field_id id) {
    return plan->offsets[id] != UINT64_MAX;
}

/* What bytes cannot say of places without a row or a context. */
static void blank_rest(const struct pack *pack, const struct hwi_fit *fits) {
    const hw_shape *shape = &pack->plan->shape;
    for (uint32_t b = 0; b < shape->batch_size; b++) {
        float *ages = to_at(pack, HWI_ROW_AGES, 4 * (size_t)shape->max_rows, b);
        for (uint32_t row = fits[b].rows; row < shape->max_rows; row++) {
            ages[row] = -1;
        }
        size_t slots = shape->contexts_per_sequence;
        int64_t *times = to_at(pack, HWI_INFO_OBS_TIME, 8 * slots, b);
        for (size_t slot = fits[b].contexts; slot < slots; slot++) {
            times[slot] = INT64_MAX;
        }
    }
}

/* ---- what names rows and cells ----------------------------------------------------------- */

/* Positions below `count`, in their order, moved by `start`. */
static void move_order(uint16_t *to, const uint16_t *from, uint32_t from_count, uint32_t start,
                       uint32_t count) {
    uint32_t place = start;
    for (uint32_t i = 0; i < from_count; i++) {
        if (from[i] < count) {
            to[place++] = (uint16_t)(start + from[i]);
        }
    }
}

static void move_orders(const struct pack *pack, const struct hwi_place *place, uint32_t k) {
    const hw_shape *shape = &pack->plan->shape, *from = &pack->staging->shape;
    if (has(pack->plan, HWI_ROW_ORDER)) {
        move_order(to_at(pack, HWI_ROW_ORDER, 2 * (size_t)shape->max_rows, place->sequence),
                   from_at(pack, HWI_ROW_ORDER, 2 * (size_t)from->max_rows, k), from->max_rows,
                   place->row_start, place->row_count);
        return;
    }
    size_t stride = 2 * (size_t)shape->sequence_length;
    static const enum hwi_field_id orders[] = {HWI_COL_PERM, HWI_OUT_PERM};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        move_order(to_at(pack, orders[i], stride, place->sequence),
                   from_at(pack, orders[i], 2 * (size_t)from->sequence_length, k),
                   from->sequence_length, place->cell_start, place->cell_count);
    }
    uint16_t *row_ids = to_at(pack, HWI_SEQ_ROW_IDS, stride, place->sequence);
    for (uint32_t cell = 0; cell < place->cell_count; cell++) {
        uint16_t *row = &row_ids[place->cell_start + cell];
        *row = (uint16_t)(*row + place->row_start);
    }
}

/* Edges between rows that are there. */
static void move_edges(const struct pack *pack, const struct hwi_place *place, uint32_t k) {
    size_t rows = pack->plan->shape.max_rows, slots = pack->plan->shape.parent_slots;
    size_t context_rows = pack->staging->shape.max_rows;
    const uint16_t *from = from_at(pack, HWI_PARENTS, 2 * context_rows * slots, k);
    uint16_t *listed = to_at(pack, HWI_PARENTS, 2 * rows * slots, place->sequence);
    uint8_t *dense = NULL;
    if (has(pack->plan, HWI_FK_ADJ)) {
        dense = to_at(pack, HWI_FK_ADJ, rows * rows, place->sequence);
    }
    for (uint32_t row = 0; row < place->row_count; row++) {
        for (uint32_t slot = 0; slot < slots; slot++) {
            uint32_t parent = from[row * slots + slot], child = place->row_start + row;
            if (parent >= place->row_count) {
                continue;
            }
            parent += place->row_start;
            listed[child * slots + slot] = (uint16_t)parent;
            if (dense != NULL) {
                dense[child * rows + parent] = 1;
            }
        }
    }
}

static void move_starts(const struct pack *pack, const struct hwi_place *place, uint32_t k) {
    size_t starts = (size_t)pack->plan->shape.max_rows + 1;
    size_t context_starts = (size_t)pack->staging->shape.max_rows + 1;
    const uint16_t *from = from_at(pack, HWI_ROW_STARTS, 2 * context_starts, k);
    uint16_t *to = to_at(pack, HWI_ROW_STARTS, 2 * starts, place->sequence);
    for (uint32_t row = 0; row < place->row_count; row++) {
        to[place->row_start + row] = (uint16_t)(place->cell_start + from[row]);
    }
}

/* The sizes and the number of a context as it was placed. */
static void write_segment(const struct pack *pack, const struct hwi_place *place) {
    size_t slots = pack->plan->shape.contexts_per_sequence;
    uint32_t *cells = to_at(pack, HWI_NUM_CELLS, 4 * slots, place->sequence);
    uint32_t *rows = to_at(pack, HWI_NUM_ROWS, 4 * slots, place->sequence);
    uint16_t *segments = to_at(pack, HWI_SEGMENT_IDS, 2 * (size_t)pack->plan->shape.sequence_length,
                               place->sequence);
    cells[place->segment] = place->cell_count;
    rows[place->segment] = place->row_count;
    for (uint32_t cell = 0; cell < place->cell_count; cell++) {
        segments[place->cell_start + cell] = (uint16_t)(place->segment + 1);
    }
}

/* Everything that move_* and write_segment then write into, as it is where nothing was placed. */
static void blank_names(const struct pack *pack, const struct hwi_fit *fits) {
    const struct hwi_plan *plan = pack->plan;
    static const struct {
        enum hwi_field_id id;
        uint8_t blank;
    } blanks[] = {{HWI_FK_ADJ, 0},      {HWI_PARENTS, 0xff}, {HWI_ROW_ORDER, 0xff},
                  {HWI_SEGMENT_IDS, 0}, {HWI_NUM_CELLS, 0},  {HWI_NUM_ROWS, 0}};
    for (size_t i = 0; i < sizeof blanks / sizeof blanks[0]; i++) {
        if (has(plan, blanks[i].id)) {
            memset(to_at(pack, blanks[i].id, 0, 0), blanks[i].blank,
                   array_bytes(plan, blanks[i].id));
        }
    }
    uint32_t length = plan->shape.sequence_length, rows = plan->shape.max_rows;
    for (uint32_t b = 0; b < plan->shape.batch_size; b++) {
        uint16_t *starts = to_at(pack, HWI_ROW_STARTS, 2 * ((size_t)rows + 1), b);
        for (uint32_t row = fits[b].rows; row <= rows; row++) {
            starts[row] = (uint16_t)fits[b].cells;
        }
        if (!has(plan, HWI_COL_PERM)) {
            continue;
        }
        uint16_t *col_perm = to_at(pack, HWI_COL_PERM, 2 * (size_t)length, b);
        uint16_t *out_perm = to_at(pack, HWI_OUT_PERM, 2 * (size_t)length, b);
        for (uint32_t cell = fits[b].cells; cell < length; cell++) {
            col_perm[cell] = out_perm[cell] = (uint16_t)cell;
        }
    }
}

/* ---- the batch --------------------------------------------------------------------------- */

/* Used texts, and zeros over those that the slab's last batch had behind them. */
static void copy_texts(const struct hwi_plan *plan, uint8_t *staging, uint8_t *slab) {
    const struct hwi_plan *staged = plan->staging;
    uint32_t used, dirty;
    size_t bytes = hwi_text_bytes(plan);
    memcpy(&used, hwi_field_at(staged, staging, HWI_NUM_TEXTS, 0), 4);
    memcpy(&dirty, hwi_field_at(plan, slab, HWI_NUM_TEXTS, 0), 4);
    memcpy(hwi_field_at(plan, slab, HWI_NUM_TEXTS, 0), &used, 4);
    uint8_t *to = hwi_field_at(plan, slab, hwi_texts_field(plan), 0);
    memcpy(to, hwi_field_at(staged, staging, hwi_texts_field(plan), 0), used * bytes);
    if (used < dirty) {
        memset(to + used * bytes, 0, (dirty - used) * bytes);
    }
}

void hwi_copy_question(const struct hwi_plan *plan, uint8_t *staging, uint8_t *slab) {
    static const enum hwi_field_id scalars[] = {HWI_TASK_IDX, HWI_CAT_EMB_START, HWI_CAT_EMB_COUNT};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        memcpy(hwi_field_at(plan, slab, scalars[i], 0),
               hwi_field_at(plan->staging, staging, scalars[i], 0), 4);
    }
    memcpy(hwi_field_at(plan, slab, HWI_TARGET_STYPE, 0),
           hwi_field_at(plan->staging, staging, HWI_TARGET_STYPE, 0), 1);
    if (hwi_lists_texts(plan)) {
        copy_texts(plan, staging, slab);
    }
}

static void write_batch(const struct pack *pack, const struct hwi_fit *fits) {
    const struct hwi_plan *plan = pack->plan;
    hwi_copy_question(plan, pack->from, pack->to);
    uint32_t used = 0; /* sequences fill in order */
    uint32_t *counts = to_at(pack, HWI_NUM_CONTEXTS, 0, 0);
    for (uint32_t b = 0; b < plan->shape.batch_size; b++) {
        counts[b] = fits[b].contexts;
        used += fits[b].contexts > 0;
    }
    memcpy(to_at(pack, HWI_NUM_SEQUENCES, 0, 0), &used, 4);
}

void hwi_pack(const struct hwi_plan *plan, struct hwi_packing *packing, uint8_t *staging,
              uint8_t *slab, uint32_t context_count, struct hwi_counters *counters) {
    const struct hwi_fit *fits = packing->fits;
    place_contexts(plan, packing, staging, context_count, counters);
    struct pack pack = {.plan = plan,
                        .staging = plan->staging,
                        .from = staging,
                        .to = slab,
                        .places = packing->places,
                        .context_count = context_count};
    for (size_t i = 0; i < sizeof COPIED / sizeof COPIED[0]; i++) {
        if (has(plan, COPIED[i].id)) {
            copy_array(&pack, &COPIED[i]);
        }
    }
    blank_rest(&pack, fits);
    blank_names(&pack, fits);
    for (uint32_t k = 0; k < context_count; k++) {
        const struct hwi_place *place = &packing->places[k];
        if (place->sequence != HWI_NONE) {
            move_orders(&pack, place, k);
            move_edges(&pack, place, k);
            move_starts(&pack, place, k);
            write_segment(&pack, place);
        }
    }
    write_batch(&pack, fits);
    for (uint32_t b = 0; plan->options.attention_masks && b < plan->shape.batch_size; b++) {
        hwi_masks_make(plan, slab, b,
                       packing->spans + (size_t)b * plan->shape.contexts_per_sequence,
                       fits[b].contexts, fits[b].rows);
    }
}
