/*
 * A context into the arrays of a batch; see emit.h. What a table's rows have in common is copied
 * eight cells at a time, over arrays that hold zeros; then the few cells that hold a value are
 * visited by their table's list, the same few operations whatever their type. Rows of which
 * something is withheld or cut off go cell by cell.
 */
#include "batch/emit.h"

#include <string.h>

#include "base/calendar.h"
#include "base/error.h"
#include "batch/attention_masks.h"
#include "batch/emit_compact.h"
#include "batch/emit_frame.h"
#include "batch/emit_rows.h"
#include "batch/masked_cells.h"
#include "plan/scales.h"
#include "walk/child_counts.h"

/* ---- cells ------------------------------------------------------------------------------- */

/* The arrays of one sequence, [S] unless said otherwise. */
struct cell_arrays {
    uint8_t *semantic_types, *bool_values, *is_null, *is_target, *is_padding;
    int32_t *column_ids;
    uint16_t *row_ids, *col_perm, *out_perm;
    float *numeric_values;
    uint32_t *categories, *texts;
};

static struct cell_arrays arrays_of(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    size_t at = (size_t)b * plan->shape.sequence_length;
    return (struct cell_arrays){
        .semantic_types = hwi_field_at(plan, slab, HWI_SEMANTIC_TYPES, at),
        .bool_values = hwi_field_at(plan, slab, HWI_BOOL_VALUES, at),
        .is_null = hwi_field_at(plan, slab, HWI_IS_NULL, at),
        .is_target = hwi_field_at(plan, slab, HWI_IS_TARGET, at),
        .is_padding = hwi_field_at(plan, slab, HWI_IS_PADDING, at),
        .column_ids = hwi_field_at(plan, slab, HWI_COLUMN_IDS, 4 * at),
        .row_ids = hwi_field_at(plan, slab, HWI_SEQ_ROW_IDS, 2 * at),
        .col_perm = hwi_field_at(plan, slab, HWI_COL_PERM, 2 * at),
        .out_perm = hwi_field_at(plan, slab, HWI_OUT_PERM, 2 * at),
        .numeric_values = hwi_field_at(plan, slab, HWI_NUMERIC_VALUES, 4 * at),
        .categories = hwi_field_at(plan, slab, HWI_CATEGORICAL_EMBED_IDS, 4 * at),
        .texts = hwi_field_at(plan, slab, HWI_TEXT_EMBED_IDS, 4 * at),
    };
}

/* Emits count cells of a row at position `at`, one by one; list names them, or NULL for the first
 * ones. Returns 1 if a category is out of range. */
static uint32_t emit_some(const struct cell_arrays *out, uint32_t at, uint32_t count,
                          const struct hwi_table_plan *cells, const uint32_t *list,
                          const uint8_t *record, const uint8_t *nulls, uint16_t local,
                          uint32_t category_count) {
    uint32_t bad = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t c = list == NULL ? k : list[k], p = at + k, lane;
        uint32_t null = (uint32_t)nulls[cells->null_bits[c] / 8] >> (cells->null_bits[c] % 8) & 1u;
        memcpy(&lane, record + cells->lanes[c], sizeof lane);
        lane &= null - 1; /* 0 where NULL */
        uint32_t number = lane & cells->numeric_masks[c];
        uint32_t category = lane & cells->category_masks[c];
        bad |= category >= category_count;
        out->semantic_types[p] = cells->stypes[c];
        out->column_ids[p] = (int32_t)cells->columns[c];
        out->row_ids[p] = local;
        memcpy(&out->numeric_values[p], &number, sizeof number);
        out->bool_values[p] = (uint8_t)(lane & cells->bool_masks[c]);
        out->categories[p] = category;
        out->texts[p] = lane & cells->text_masks[c];
        out->is_null[p] = (uint8_t)null;
    }
    return bad;
}

/* What rows of a table have in common, and their nulls; may write up to 7 cells past the row. */
static inline void emit_frame(const struct cell_arrays *out, uint32_t at,
                              const struct hwi_table_plan *cells, const uint8_t *nulls,
                              uint16_t local) {
    uint64_t locals = local * UINT64_C(0x0001000100010001);
    for (uint32_t k = 0; k < cells->cell_count; k += 8) {
        uint64_t spread = hwi_frame_nulls(cells, nulls, k);
        memcpy(out->semantic_types + at + k, cells->stypes + k, 8);
        memcpy(out->column_ids + at + k, cells->columns + k, 32);
        memcpy(out->row_ids + at + k, &locals, 8);
        memcpy(out->row_ids + at + k + 4, &locals, 8);
        memcpy(out->is_null + at + k, &spread, 8);
    }
}

/* A lane as the batch shows it: 0 where the cell is NULL. */
static inline uint32_t lane_of(const uint8_t *record, struct hwi_cell_value value,
                               const uint8_t *is_null) {
    uint32_t lane;
    memcpy(&lane, record + value.lane, sizeof lane);
    return lane & ((uint32_t)is_null[value.cell] - 1);
}

/* Emits a row that shows all its table's first cells. Returns 1 if a category is out of range. */
static inline uint32_t emit_whole(const struct cell_arrays *out, uint32_t at,
                                  const struct hwi_table_plan *cells, const uint8_t *record,
                                  const uint8_t *nulls, uint16_t local, uint32_t category_count) {
    const uint8_t *is_null = out->is_null + at;
    const struct hwi_cell_value *value = cells->values, *end = value + cells->number_count;
    uint32_t most = 0;
    emit_frame(out, at, cells, nulls, local);
    for (float *numbers = out->numeric_values + at; value < end; value++) {
        uint32_t lane = lane_of(record, *value, is_null);
        memcpy(numbers + value->cell, &lane, sizeof lane);
    }
    end += cells->category_count;
    for (uint32_t *categories = out->categories + at; value < end; value++) {
        uint32_t lane = lane_of(record, *value, is_null);
        most = lane > most ? lane : most;
        categories[value->cell] = lane;
    }
    end += cells->text_count;
    for (uint32_t *texts = out->texts + at; value < end; value++) {
        texts[value->cell] = lane_of(record, *value, is_null);
    }
    end += cells->bool_count;
    for (uint8_t *bools = out->bool_values + at; value < end; value++) {
        bools[value->cell] = lane_of(record, *value, is_null) & 1;
    }
    return most >= category_count;
}

static void emit_time(const struct hwi_plan *plan, struct hwi_canvas *canvas, uint32_t at,
                      int64_t time_us) {
    hwi_calendar_encode(&plan->calendar, time_us, plan->time_mean_us, plan->time_std_us,
                        hwi_canvas_time(canvas, at));
}

/* Makes the arrays that are written sparsely all zero, and sets the padding's flags. */
static void clear(const struct hwi_plan *plan, const struct cell_arrays *out, uint32_t cell_count) {
    size_t length = plan->shape.sequence_length;
    memset(out->numeric_values, 0, 4 * length);
    memset(out->categories, 0, 4 * length);
    memset(out->texts, 0, 4 * length);
    memset(out->bool_values, 0, length);
    memset(out->is_target, 0, length);
    memset(out->is_padding, 0, cell_count);
    memset(out->is_padding + cell_count, 1, length - cell_count);
}

/* Padding holds 0 in the arrays that rows write whole. */
static void emit_padding(const struct hwi_plan *plan, const struct cell_arrays *out,
                         uint32_t cell_count) {
    size_t rest = plan->shape.sequence_length - cell_count;
    memset(out->semantic_types + cell_count, 0, rest);
    memset(out->is_null + cell_count, 0, rest);
    memset(out->column_ids + cell_count, 0, 4 * rest);
    memset(out->row_ids + cell_count, 0, 2 * rest);
}

static void emit_time_of(const struct hwi_plan *plan, const uint8_t *record, uint32_t lane,
                         uint32_t at, struct hwi_canvas *canvas) {
    int64_t time_us;
    memcpy(&time_us, record + lane, sizeof time_us);
    emit_time(plan, canvas, at, time_us);
}

/* Timestamps and texts of a row that shows its table's first cells: those need more than a lane. */
static void emit_listed(const struct hwi_plan *plan, const struct hwi_visit *visit,
                        const struct hwi_table_plan *cells, const uint8_t *is_null,
                        struct hwi_canvas *canvas, struct hwi_text_cells *texts) {
    for (uint32_t i = 0; i < cells->time_count; i++) {
        uint32_t c = cells->time_cells[i];
        if (c < visit->cell_count && !is_null[c]) {
            emit_time_of(plan, visit->record, cells->lanes[c], visit->cell_start + c, canvas);
        }
    }
    for (uint32_t i = 0; i < cells->text_count; i++) {
        uint32_t c = cells->text_cells[i];
        texts->cells[texts->count] = (uint16_t)(visit->cell_start + c);
        texts->count += c < visit->cell_count && !is_null[c];
    }
}

/* The same of a row that lists its cells. */
static void emit_chosen(const struct hwi_plan *plan, const struct hwi_visit *visit,
                        const struct hwi_table_plan *cells, const uint32_t *list,
                        const uint8_t *is_null, struct hwi_canvas *canvas,
                        struct hwi_text_cells *texts) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list[k];
        if (is_null[k]) {
            continue;
        }
        if (cells->stypes[c] == HW_TIMESTAMP) {
            emit_time_of(plan, visit->record, cells->lanes[c], visit->cell_start + k, canvas);
        } else if (cells->stypes[c] == HW_TEXT) {
            texts->cells[texts->count++] = (uint16_t)(visit->cell_start + k);
        }
    }
}

/* Numbers of a row as this sampler shows them; list as in emit_some. */
static void scale_numbers(const struct hwi_plan *plan, const struct hwi_visit *visit,
                          const struct hwi_table_plan *cells, const uint32_t *list,
                          const struct cell_arrays *out) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list == NULL ? k : list[k], at = visit->cell_start + k;
        if (cells->stypes[c] == HW_NUMERICAL && !out->is_null[at]) {
            float *number = &out->numeric_values[at];
            *number = hwi_shown_number(plan, cells->columns[c], *number);
        }
    }
}

static hw_status emit_row(const struct hwi_plan *plan, const struct hwi_walk *walk, uint32_t local,
                          const struct cell_arrays *out, struct hwi_canvas *canvas,
                          struct hwi_text_cells *texts, hw_error *error) {
    const struct hwi_visit *visit = &walk->visits[local];
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    const uint8_t *nulls = visit->record + cells->null_offset;
    const uint32_t *list = visit->list == HWI_NONE ? NULL : walk->cell_lists + visit->list;
    uint32_t limit = plan->store->info->category_count + (plan->store->info->category_count == 0);
    uint32_t at = visit->cell_start;
    uint32_t bad = hwi_frame_fits(plan, visit, cells)
                       ? emit_whole(out, at, cells, visit->record, nulls, (uint16_t)local, limit)
                       : emit_some(out, at, visit->cell_count, cells, list, visit->record, nulls,
                                   (uint16_t)local, limit);
    if (bad) {
        return hwi_frame_bad_category(plan, visit, error);
    }
    if (plan->scales != NULL) {
        scale_numbers(plan, visit, cells, list, out);
    }
    if (list == NULL) {
        emit_listed(plan, visit, cells, out->is_null + at, canvas, texts);
    } else {
        emit_chosen(plan, visit, cells, list, out->is_null + at, canvas, texts);
    }
    return HW_OK;
}

/* A derived task's first row: when it is asked, and what. */
static void emit_seed_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                          const struct cell_arrays *out, struct hwi_canvas *canvas) {
    const struct hwi_task_info *info = walk->view.info;
    int64_t obs_time = walk->view.seed->obs_time;
    out->is_null[1] = 0;
    out->row_ids[0] = out->row_ids[1] = 0;
    out->semantic_types[0] = HW_TIMESTAMP;
    out->semantic_types[1] = info->target_stype;
    out->column_ids[0] = (int32_t)info->obs_time_column;
    out->column_ids[1] = (int32_t)info->target_column;
    out->is_null[0] = obs_time == INT64_MAX;
    if (obs_time != INT64_MAX) {
        emit_time(plan, canvas, 0, obs_time);
    }
}

/* The counts of a row's children, behind its own cells. */
static void emit_tallies(const struct hwi_walk *walk, uint32_t local, uint32_t place,
                         const struct cell_arrays *out) {
    const struct hwi_visit *visit = &walk->visits[local];
    for (uint32_t i = 0; i < visit->tally_cells; i++) {
        const struct hwi_tally *tally = &walk->tallies.all[place + i / HWI_TALLY_CELLS];
        uint32_t at = visit->cell_start + visit->cell_count + i;
        out->semantic_types[at] = HW_NUMERICAL;
        out->column_ids[at] = (int32_t)hwi_tally_column(walk->plan, visit->table, i);
        out->row_ids[at] = (uint16_t)local;
        out->numeric_values[at] = tally->values[i % HWI_TALLY_CELLS];
        out->is_null[at] = tally->is_null[i % HWI_TALLY_CELLS];
    }
}

static void emit_all_tallies(const struct hwi_walk *walk, const struct cell_arrays *out) {
    for (uint32_t row = 0, place = 0; row < walk->row_count; row++) {
        if (walk->visits[row].table != HWI_NONE) {
            emit_tallies(walk, row, place, out);
            place = hwi_tally_next(walk->plan, walk->visits[row].table, place);
        }
    }
}

/* ---- the target -------------------------------------------------------------------------- */

/* A label, over zeros. */
static void emit_label(const struct hwi_plan *plan, const struct hwi_walk *walk,
                       const struct cell_arrays *out, struct hwi_canvas *canvas, uint32_t at,
                       const struct hwi_target *label) {
    const struct hwi_column_info *column = &plan->store->columns[walk->view.info->target_column];
    switch ((hw_semantic_type)walk->view.info->target_stype) {
    case HW_NUMERICAL:
        out->numeric_values[at] = hwi_target_z(&walk->view.task->stats, label->value);
        break;
    case HW_BOOLEAN:
        out->bool_values[at] = label->value != 0;
        break;
    case HW_CATEGORICAL:
        out->categories[at] = column->category_start + (uint32_t)label->value;
        break;
    case HW_TIMESTAMP:
        emit_time(plan, canvas, at, (int64_t)label->value);
        break;
    case HW_IDENTIFIER:
    case HW_TEXT:
    case HW_IGNORED:
    default:
        break;
    }
}

/* Writes the truth over the target cell. */
static void emit_target_inline(const struct hwi_plan *plan, const struct hwi_walk *walk,
                               const struct cell_arrays *out, struct hwi_canvas *canvas,
                               const struct hwi_target *target) {
    uint32_t at = walk->target_cell;
    out->numeric_values[at] = 0;
    out->bool_values[at] = 0;
    out->categories[at] = 0;
    memset(canvas->times + (size_t)HWI_TIME_FLOATS * at, 0, 4 * HWI_TIME_FLOATS);
    out->is_null[at] = plan->options.targets == HW_TARGETS_INLINE && target->null;
    out->is_target[at] = 1;
    if (!target->null && plan->options.targets == HW_TARGETS_INLINE) {
        emit_label(plan, walk, out, canvas, at, target);
    }
}

/* An earlier seed of the anchor, with its answer; it may be cut. */
static hw_status emit_label_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                                uint32_t local, const struct cell_arrays *out,
                                struct hwi_canvas *canvas, hw_error *error) {
    const struct hwi_visit *visit = &walk->visits[local];
    const struct hwi_task_info *info = walk->view.info;
    uint32_t at = visit->cell_start;
    struct hwi_target label;
    HW_TRY(hwi_label_read(plan, walk, visit, &label, error));
    for (uint32_t i = 0; i < visit->cell_count; i++) {
        out->semantic_types[at + i] = i == 0 ? HW_TIMESTAMP : info->target_stype;
        out->column_ids[at + i] = (int32_t)(i == 0 ? info->obs_time_column : info->target_column);
        out->row_ids[at + i] = (uint16_t)local;
        out->is_null[at + i] = i == 0 ? 0 : label.null;
    }
    emit_time(plan, canvas, at, plan->store->seeds[walk->view.task->task].obs_times[visit->list]);
    if (visit->cell_count > 1 && !label.null) {
        emit_label(plan, walk, out, canvas, at + 1, &label);
    }
    return HW_OK;
}

/* ---- one sequence ------------------------------------------------------------------------ */

static hw_status emit_dense(const struct hwi_plan *plan, const struct hwi_walk *walk,
                            struct hwi_canvas *canvas, uint8_t *slab, uint32_t b,
                            const struct hwi_target *target, struct hwi_text_cells *texts,
                            hw_error *error) {
    struct cell_arrays out = arrays_of(plan, slab, b);
    clear(plan, &out, walk->cell_count);
    for (uint32_t row = 0; row < walk->row_count; row++) {
        if (walk->visits[row].table != HWI_NONE) {
            HW_TRY(emit_row(plan, walk, row, &out, canvas, texts, error));
        } else if (row == 0) {
            emit_seed_row(plan, walk, &out, canvas);
        } else {
            HW_TRY(emit_label_row(plan, walk, row, &out, canvas, error));
        }
    }
    if (plan->options.child_counts) { /* after all rows, which may write past their ends */
        emit_all_tallies(walk, &out);
    }
    emit_padding(plan, &out, walk->cell_count);
    if (walk->target_cell != HWI_NONE) {
        emit_target_inline(plan, walk, &out, canvas, target);
    }
    return HW_OK;
}

static void emit_dense_nothing(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    struct cell_arrays out = arrays_of(plan, slab, b);
    clear(plan, &out, 0);
    emit_padding(plan, &out, 0);
}

/* The orders of cells, or in the compact layout of rows. */
static void emit_orders(const struct hwi_plan *plan, const struct hwi_walk *walk,
                        struct hwi_permuter *permuter, uint8_t *slab, uint32_t b) {
    hwi_order_rows(permuter, walk->row_count);
    if (plan->options.layout == HW_LAYOUT_COMPACT) {
        size_t at = 2 * (size_t)b * plan->shape.max_rows;
        hwi_list_rows(permuter, walk, hwi_field_at(plan, slab, HWI_ROW_ORDER, at));
    } else {
        size_t at = 2 * (size_t)b * plan->shape.sequence_length;
        hwi_permute_rows(permuter, walk, hwi_field_at(plan, slab, HWI_OUT_PERM, at));
        hwi_permute_columns(permuter, walk, hwi_field_at(plan, slab, HWI_COL_PERM, at));
    }
}

static void emit_masks(const struct hwi_plan *plan, const struct hwi_walk *walk, uint8_t *slab,
                       uint32_t b) {
    if (plan->options.attention_masks) {
        struct hwi_mask_span all = {.count = walk->cell_count};
        hwi_masks_make(plan, slab, b, &all, 1, walk->row_count);
    }
}

hw_status hwi_emit_sequence(const struct hwi_plan *plan, struct hwi_walk *walk,
                            struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                            uint32_t b, const struct hwi_seed *seed, uint16_t *text_cells,
                            uint32_t *text_cell_count, hw_error *error) {
    struct hwi_text_cells texts = {.cells = text_cells};
    struct hwi_target target;
    hwi_canvas_clear(canvas);
    HW_TRY(hwi_target_read(plan, seed, &target, error));
    if (plan->options.layout == HW_LAYOUT_COMPACT) {
        HW_TRY(hwi_emit_compact(plan, walk, slab, b, &target, &texts, error));
    } else {
        HW_TRY(emit_dense(plan, walk, canvas, slab, b, &target, &texts, error));
    }
    *text_cell_count = texts.count;
    if (plan->mask_words > 0) {
        hwi_masked_emit(plan, walk, canvas, slab, b);
    }
    if (plan->offsets[HWI_TARGET_VALUES] != UINT64_MAX) {
        hwi_emit_target_beside(plan, walk, slab, b, &target);
    }
    hwi_emit_rows(plan, walk, slab, b);
    hwi_emit_edges(plan, walk, canvas, permuter, slab, b);
    hwi_canvas_copy_out(canvas, plan, slab, b);
    emit_orders(plan, walk, permuter, slab, b);
    hwi_emit_scalars(plan, slab, b, seed, &target, walk->cell_count, walk->row_count);
    emit_masks(plan, walk, slab, b);
    return HW_OK;
}

void hwi_emit_nothing(const struct hwi_plan *plan, struct hwi_walk *walk, struct hwi_canvas *canvas,
                      struct hwi_permuter *permuter, uint8_t *slab, uint32_t b) {
    struct hwi_target target = {.null = 1};
    walk->row_count = walk->cell_count = walk->chosen.count = walk->chosen.surplus_count = 0;
    hwi_canvas_clear(canvas);
    if (plan->options.layout == HW_LAYOUT_COMPACT) {
        hwi_emit_compact_nothing(plan, slab, b);
    } else {
        emit_dense_nothing(plan, slab, b);
    }
    hwi_emit_rows(plan, walk, slab, b);
    hwi_emit_edges(plan, walk, canvas, permuter, slab, b);
    hwi_canvas_copy_out(canvas, plan, slab, b);
    emit_orders(plan, walk, permuter, slab, b);
    if (plan->mask_words > 0) {
        hwi_masked_clear(plan, slab, b);
    }
    if (plan->offsets[HWI_TARGET_VALUES] != UINT64_MAX) {
        memset(hwi_field_at(plan, slab, HWI_TARGET_VALUES, (size_t)b * 4 * HWI_TIME_FLOATS), 0,
               4 * HWI_TIME_FLOATS);
        *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_IS_NULL, b) = 1;
    }
    hwi_emit_scalars(plan, slab, b, NULL, &target, 0, 0);
    emit_masks(plan, walk, slab, b);
}
