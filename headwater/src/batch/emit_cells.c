/*
 * The cells of a context; see emit_cells.h. Rows that show all their table's first cells are
 * written in runs of eight cells, by what the table's rows share, over the row's end where there is
 * room: what lies behind belongs to the next row or to the padding, and is written after. Then the
 * few cells that hold a value are visited by their table's list, the same few operations whatever
 * their type. Rows of which something is withheld or cut off go cell by cell.
 */
#include "batch/emit_cells.h"

#include <assert.h> /* static_assert, until C23 */
#include <string.h>

#include "base/calendar.h"
#include "base/error.h"
#include "plan/scales.h"

/* What runs for every cell is compiled once per layout, with `is_compact` a constant. */
#if defined(__GNUC__)
#define PER_LAYOUT static inline __attribute__((always_inline))
#else
#define PER_LAYOUT static inline
#endif

enum { NULL_SHIFT = 3 };
static_assert(HW_CELL_NULL == 1u << NULL_SHIFT, "a null byte becomes the null bit of eight cells");
static_assert(HWI_MAX_COLUMNS <= UINT16_MAX, "cell_columns has 16 bits");

/* ---- arrays ------------------------------------------------------------------------------ */

/* Of one sequence, [S]. */
struct cell_arrays {
    int is_compact;
    uint8_t *types; /* semantic_types; compact: cells, with flags */
    uint8_t *nulls; /* is_null; compact: cells */
    uint32_t *numbers, *categories, *texts; /* 4-byte lanes; compact: all are cell_values */
    /* Compact only: */
    uint16_t *short_columns;
    uint32_t *times;
    /* Dense only; its numbers, categories, texts, bools and the canvas are zeros when rows come: */
    int32_t *columns;
    uint16_t *rows;
    uint8_t *bools, *is_target, *is_padding;
    struct hwi_canvas *canvas;
};

static struct cell_arrays arrays_of(const struct hwi_plan *plan, struct hwi_canvas *canvas,
                                    uint8_t *slab, uint32_t b) {
    size_t at = (size_t)b * plan->shape.sequence_length;
    if (hwi_is_compact(plan)) {
        uint8_t *cells = hwi_field_at(plan, slab, HWI_CELLS, at);
        uint32_t *values = hwi_field_at(plan, slab, HWI_CELL_VALUES, 4 * at);
        return (struct cell_arrays){
            .is_compact = 1,
            .types = cells,
            .nulls = cells,
            .numbers = values,
            .categories = values,
            .texts = values,
            .short_columns = hwi_field_at(plan, slab, HWI_CELL_COLUMNS, 2 * at),
            .times = hwi_field_at(plan, slab, HWI_CELL_TIMES, 4 * at),
        };
    }
    return (struct cell_arrays){
        .types = hwi_field_at(plan, slab, HWI_SEMANTIC_TYPES, at),
        .nulls = hwi_field_at(plan, slab, HWI_IS_NULL, at),
        .numbers = hwi_field_at(plan, slab, HWI_NUMERIC_VALUES, 4 * at),
        .categories = hwi_field_at(plan, slab, HWI_CATEGORICAL_EMBED_IDS, 4 * at),
        .texts = hwi_field_at(plan, slab, HWI_TEXT_EMBED_IDS, 4 * at),
        .columns = hwi_field_at(plan, slab, HWI_COLUMN_IDS, 4 * at),
        .rows = hwi_field_at(plan, slab, HWI_SEQ_ROW_IDS, 2 * at),
        .bools = hwi_field_at(plan, slab, HWI_BOOL_VALUES, at),
        .is_target = hwi_field_at(plan, slab, HWI_IS_TARGET, at),
        .is_padding = hwi_field_at(plan, slab, HWI_IS_PADDING, at),
        .canvas = canvas,
    };
}

/* Makes the arrays of the dense layout that are written sparsely all zero, and sets the padding's
 * flags. */
static void clear(const struct hwi_plan *plan, const struct cell_arrays *out, uint32_t cell_count) {
    size_t length = plan->shape.sequence_length;
    if (out->is_compact) {
        return;
    }
    memset(out->numbers, 0, 4 * length);
    memset(out->categories, 0, 4 * length);
    memset(out->texts, 0, 4 * length);
    memset(out->bools, 0, length);
    memset(out->is_target, 0, length);
    memset(out->is_padding, 0, cell_count);
    memset(out->is_padding + cell_count, 1, length - cell_count);
}

/* Padding in the arrays that rows write whole. */
static void write_padding(const struct hwi_plan *plan, const struct cell_arrays *out,
                          uint32_t cell_count) {
    size_t rest = plan->shape.sequence_length - cell_count;
    if (out->is_compact) {
        memset(out->types + cell_count, HW_CELL_PADDING, rest);
        memset(out->short_columns + cell_count, 0, 2 * rest);
        memset(out->numbers + cell_count, 0, 4 * rest);
        memset(out->times + cell_count, 0, 4 * rest);
    } else {
        memset(out->types + cell_count, 0, rest);
        memset(out->nulls + cell_count, 0, rest);
        memset(out->columns + cell_count, 0, 4 * rest);
        memset(out->rows + cell_count, 0, 2 * rest);
    }
}

/* ---- a cell ------------------------------------------------------------------------------ */

/* What every cell has; its values are zeros. */
PER_LAYOUT void write_cell(const struct cell_arrays *out, uint32_t at, uint32_t stype,
                           uint32_t column, uint32_t local, uint32_t null, int is_compact) {
    if (is_compact) {
        out->types[at] = (uint8_t)(stype | null << NULL_SHIFT);
        out->short_columns[at] = (uint16_t)column;
        out->numbers[at] = out->times[at] = 0;
    } else {
        out->types[at] = (uint8_t)stype;
        out->nulls[at] = (uint8_t)null;
        out->columns[at] = (int32_t)column;
        out->rows[at] = (uint16_t)local;
    }
}

PER_LAYOUT void write_number(const struct cell_arrays *out, uint32_t at, float number) {
    memcpy(&out->numbers[at], &number, sizeof number);
}

PER_LAYOUT void write_time(const struct hwi_plan *plan, const struct cell_arrays *out, uint32_t at,
                           int64_t time_us, int is_compact) {
    if (is_compact) {
        write_number(out, at, hwi_calendar_z(time_us, plan->time_mean_us, plan->time_std_us));
        out->times[at] = hwi_calendar_code(&plan->calendar, time_us);
    } else {
        hwi_calendar_encode(&plan->calendar, time_us, plan->time_mean_us, plan->time_std_us,
                            hwi_canvas_time(out->canvas, at));
    }
}

PER_LAYOUT void write_time_of(const struct hwi_plan *plan, const struct cell_arrays *out,
                              uint32_t at, const uint8_t *record, uint32_t lane, int is_compact) {
    int64_t time_us;
    memcpy(&time_us, record + lane, sizeof time_us);
    write_time(plan, out, at, time_us, is_compact);
}

PER_LAYOUT int is_null(const struct cell_arrays *out, uint32_t at, int is_compact) {
    return (out->nulls[at] & (is_compact ? HW_CELL_NULL : 1u)) != 0;
}

/* ---- a row of a table -------------------------------------------------------------------- */

/* Emits count cells of a row at position `at`, one by one; list names them, or NULL for the first
 * ones. Returns 1 if a category is out of range. */
PER_LAYOUT uint32_t emit_some(const struct cell_arrays *out, uint32_t at, uint32_t count,
                              const struct hwi_table_plan *cells, const uint32_t *list,
                              const uint8_t *record, const uint8_t *nulls, uint32_t local,
                              uint32_t category_count, int is_compact) {
    uint32_t bad = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t c = list == NULL ? k : list[k], p = at + k, lane;
        uint32_t null = (uint32_t)hwi_is_null_cell(cells, nulls, c);
        memcpy(&lane, record + cells->lanes[c], sizeof lane);
        lane &= null - 1; /* 0 where NULL */
        uint32_t category = lane & cells->category_masks[c];
        bad |= category >= category_count;
        write_cell(out, p, cells->stypes[c], cells->columns[c], local, null, is_compact);
        if (is_compact) {
            out->numbers[p] = lane & cells->value_masks[c];
        } else {
            out->numbers[p] = lane & cells->numeric_masks[c];
            out->categories[p] = category;
            out->texts[p] = lane & cells->text_masks[c];
            out->bools[p] = (uint8_t)(lane & cells->bool_masks[c]);
        }
    }
    return bad;
}

/* 1 if the row may be written in runs of eight. */
static inline int frame_fits(const struct hwi_plan *plan, const struct hwi_visit *visit,
                             const struct hwi_table_plan *cells) {
    return visit->list == HWI_NONE && visit->cell_count == cells->cell_count &&
           visit->cell_start + (cells->cell_count + 7) / 8 * 8 <= plan->shape.sequence_length;
}

/* Nulls of the eight cells from k, a multiple of 8, as bytes of 0 or 1. */
static inline uint64_t frame_nulls(const struct hwi_table_plan *cells, const uint8_t *nulls,
                                   uint32_t k) {
    uint64_t spread = 0;
    if (!cells->nulls_in_order) {
        for (uint32_t i = 0; i < 8 && k + i < cells->cell_count; i++) {
            spread |= (uint64_t)hwi_is_null_cell(cells, nulls, k + i) << (8 * i);
        }
        return spread;
    }
    spread = (nulls[k / 8] * UINT64_C(0x0101010101010101)) & UINT64_C(0x8040201008040201);
    return ((spread + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7) & UINT64_C(0x0101010101010101);
}

/* What rows of a table have in common, and their nulls; may write up to 7 cells past the row. */
PER_LAYOUT void emit_frame(const struct cell_arrays *out, uint32_t at,
                           const struct hwi_table_plan *cells, const uint8_t *nulls, uint32_t local,
                           int is_compact) {
    uint64_t locals = local * UINT64_C(0x0001000100010001);
    for (uint32_t k = 0; k < cells->cell_count; k += 8) {
        uint64_t run, spread = frame_nulls(cells, nulls, k);
        memcpy(&run, cells->stypes + k, 8);
        if (is_compact) {
            run |= spread << NULL_SHIFT;
            memcpy(out->types + at + k, &run, 8);
            memcpy(out->short_columns + at + k, cells->short_columns + k, 16);
            memset(out->numbers + at + k, 0, 32);
            memset(out->times + at + k, 0, 32);
        } else {
            memcpy(out->types + at + k, &run, 8);
            memcpy(out->columns + at + k, cells->columns + k, 32);
            memcpy(out->rows + at + k, &locals, 8);
            memcpy(out->rows + at + k + 4, &locals, 8);
            memcpy(out->nulls + at + k, &spread, 8);
        }
    }
}

/* A lane as the batch shows it: 0 where the cell is NULL, the only flag that a new frame has. */
PER_LAYOUT uint32_t lane_of(const uint8_t *record, struct hwi_cell_value value,
                            const uint8_t *nulls, int is_compact) {
    uint32_t lane, null = nulls[value.cell] >> (is_compact ? NULL_SHIFT : 0);
    memcpy(&lane, record + value.lane, sizeof lane);
    return lane & (null - 1);
}

/* Emits a row that shows all its table's first cells. Returns 1 if a category is out of range. */
PER_LAYOUT uint32_t emit_whole(const struct cell_arrays *out, uint32_t at,
                               const struct hwi_table_plan *cells, const uint8_t *record,
                               const uint8_t *nulls, uint32_t local, uint32_t category_count,
                               int is_compact) {
    emit_frame(out, at, cells, nulls, local, is_compact);
    const uint8_t *flags = out->nulls + at;
    uint32_t *numbers = out->numbers + at, most = 0;
    uint32_t *categories = is_compact ? numbers : out->categories + at;
    uint32_t *texts = is_compact ? numbers : out->texts + at;
    const struct hwi_cell_value *value = cells->values, *end = value + cells->number_count;
    for (; value < end; value++) {
        numbers[value->cell] = lane_of(record, *value, flags, is_compact);
    }
    for (end += cells->category_count; value < end; value++) {
        uint32_t lane = lane_of(record, *value, flags, is_compact);
        most = lane > most ? lane : most;
        categories[value->cell] = lane;
    }
    for (end += cells->text_count; value < end; value++) {
        texts[value->cell] = lane_of(record, *value, flags, is_compact);
    }
    for (end += cells->bool_count; value < end; value++) {
        uint32_t bit = lane_of(record, *value, flags, is_compact) & 1;
        if (is_compact) {
            numbers[value->cell] = bit;
        } else {
            out->bools[at + value->cell] = (uint8_t)bit;
        }
    }
    return most >= category_count;
}

/* Timestamps and texts of a row that shows its table's first cells: those need more than a lane. */
PER_LAYOUT void emit_listed(const struct hwi_plan *plan, const struct hwi_visit *visit,
                            const struct hwi_table_plan *cells, const struct cell_arrays *out,
                            struct hwi_text_cells *texts, int is_compact) {
    uint32_t at = visit->cell_start;
    for (uint32_t i = 0; i < cells->time_count; i++) {
        uint32_t c = cells->time_cells[i];
        if (c < visit->cell_count && !is_null(out, at + c, is_compact)) {
            write_time_of(plan, out, at + c, visit->record, cells->lanes[c], is_compact);
        }
    }
    for (uint32_t i = 0; i < cells->text_count && cells->text_cells[i] < visit->cell_count; i++) {
        uint32_t c = cells->text_cells[i];
        texts->cells[texts->count] = (uint16_t)(at + c);
        texts->count += !is_null(out, at + c, is_compact);
    }
}

/* The same of a row that lists its cells. */
PER_LAYOUT void emit_chosen(const struct hwi_plan *plan, const struct hwi_visit *visit,
                            const struct hwi_table_plan *cells, const uint32_t *list,
                            const struct cell_arrays *out, struct hwi_text_cells *texts,
                            int is_compact) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list[k], at = visit->cell_start + k;
        if (is_null(out, at, is_compact)) {
            continue;
        }
        if (cells->stypes[c] == HW_TIMESTAMP) {
            write_time_of(plan, out, at, visit->record, cells->lanes[c], is_compact);
        } else if (cells->stypes[c] == HW_TEXT) {
            texts->cells[texts->count++] = (uint16_t)at;
        }
    }
}

/* Numbers of a row as this sampler shows them; list as in emit_some. */
static void scale_numbers(const struct hwi_plan *plan, const struct hwi_visit *visit,
                          const struct hwi_table_plan *cells, const uint32_t *list,
                          const struct cell_arrays *out) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list == NULL ? k : list[k], at = visit->cell_start + k;
        float number;
        if (cells->stypes[c] == HW_NUMERICAL && !is_null(out, at, out->is_compact)) {
            memcpy(&number, &out->numbers[at], sizeof number);
            write_number(out, at, hwi_shown_number(plan, cells->columns[c], number));
        }
    }
}

PER_LAYOUT hw_status emit_row(const struct hwi_plan *plan, const struct hwi_context *context,
                              uint32_t local, const struct cell_arrays *out,
                              struct hwi_text_cells *texts, int is_compact, hw_error *error) {
    const struct hwi_visit *visit = &context->visits[local];
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    const uint8_t *nulls = visit->record + cells->null_offset;
    const uint32_t *list = visit->list == HWI_NONE ? NULL : context->cell_lists + visit->list;
    uint32_t limit = plan->store->info->category_count + (plan->store->info->category_count == 0);
    uint32_t bad = frame_fits(plan, visit, cells)
                       ? emit_whole(out, visit->cell_start, cells, visit->record, nulls, local,
                                    limit, is_compact)
                       : emit_some(out, visit->cell_start, visit->cell_count, cells, list,
                                   visit->record, nulls, local, limit, is_compact);
    if (bad) {
        return hwi_fail(error, HW_BAD_STORE,
                        "row %u holds a category outside the store's %u; run `headwater verify`",
                        visit->row, plan->store->info->category_count);
    }
    if (plan->scales != NULL) {
        scale_numbers(plan, visit, cells, list, out);
    }
    if (list == NULL) {
        emit_listed(plan, visit, cells, out, texts, is_compact);
    } else {
        emit_chosen(plan, visit, cells, list, out, texts, is_compact);
    }
    return HW_OK;
}

/* The counts of a row's children, behind its own cells. */
static void emit_tallies(const struct hwi_context *context, uint32_t local, uint32_t place,
                         const struct cell_arrays *out) {
    const struct hwi_visit *visit = &context->visits[local];
    for (uint32_t i = 0; i < visit->tally_cells; i++) {
        uint32_t index =
            visit->tally_list == HWI_NONE ? i : context->cell_lists[visit->tally_list + i];
        const struct hwi_tally *tally = &context->tallies[place + index / HWI_TALLY_CELLS];
        uint32_t at = visit->cell_start + visit->cell_count + i, cell = index % HWI_TALLY_CELLS;
        write_cell(out, at, HW_NUMERICAL, hwi_tally_column(context->plan, visit->table, index),
                   local, tally->is_null[cell], out->is_compact);
        write_number(out, at, tally->values[cell]);
    }
}

static void emit_all_tallies(const struct hwi_context *context, const struct cell_arrays *out) {
    for (uint32_t row = 0, place = 0; row < context->row_count; row++) {
        if (context->visits[row].table != HWI_NONE) {
            emit_tallies(context, row, place, out);
            place = hwi_tally_next(context->plan, context->visits[row].table, place);
        }
    }
}

/* ---- a task's own rows and its target ---------------------------------------------------- */

/* A derived task's first row: when it is asked, and what. */
static void emit_seed_row(const struct hwi_plan *plan, const struct hwi_context *context,
                          const struct cell_arrays *out) {
    const struct hwi_task_info *info = context->task->info;
    int64_t obs_time = context->seed.obs_time;
    int has_time = obs_time != INT64_MAX;
    write_cell(out, 0, HW_TIMESTAMP, info->obs_time_column, 0, !has_time, out->is_compact);
    write_cell(out, 1, info->target_stype, info->target_column, 0, 0, out->is_compact);
    if (has_time) {
        write_time(plan, out, 0, obs_time, out->is_compact);
    }
}

/* A label, over zeros. */
static void write_label(const struct hwi_plan *plan, const struct hwi_context *context,
                        const struct cell_arrays *out, uint32_t at,
                        const struct hwi_target *label) {
    uint8_t stype = context->task->info->target_stype;
    const struct hwi_column_info *column =
        &plan->store->columns[context->task->info->target_column];
    if (stype == HW_NUMERICAL) {
        write_number(out, at, hwi_target_z(&context->task->stats, label->value));
    } else if (stype == HW_BOOLEAN && out->is_compact) {
        out->numbers[at] = label->value != 0;
    } else if (stype == HW_BOOLEAN) {
        out->bools[at] = label->value != 0;
    } else if (stype == HW_CATEGORICAL) {
        out->categories[at] = column->category_start + (uint32_t)label->value;
    } else if (stype == HW_TIMESTAMP) {
        write_time(plan, out, at, (int64_t)label->value, out->is_compact);
    }
}

/* An earlier seed of the anchor, with its answer; it may be cut. */
static hw_status emit_label_row(const struct hwi_plan *plan, const struct hwi_context *context,
                                uint32_t local, const struct cell_arrays *out, hw_error *error) {
    const struct hwi_visit *visit = &context->visits[local];
    const struct hwi_task_info *info = context->task->info;
    uint32_t at = visit->cell_start;
    struct hwi_target label;
    HW_TRY(hwi_label_read(plan, context, visit, &label, error));
    write_cell(out, at, HW_TIMESTAMP, info->obs_time_column, local, 0, out->is_compact);
    write_time(plan, out, at, plan->store->seeds[context->task->task].obs_times[visit->list],
               out->is_compact);
    if (visit->cell_count == 1) {
        return HW_OK;
    }
    write_cell(out, at + 1, info->target_stype, info->target_column, local, label.null,
               out->is_compact);
    if (!label.null) {
        write_label(plan, context, out, at + 1, &label);
    }
    return HW_OK;
}

static void hide(const struct cell_arrays *out, uint32_t at, uint8_t stype) {
    if (out->is_compact) {
        out->types[at] = (uint8_t)(stype | HW_CELL_TARGET);
        out->numbers[at] = stype == HW_TEXT ? out->numbers[at] : 0;
        out->times[at] = 0;
        return;
    }
    out->is_target[at] = 1;
    out->numbers[at] = 0;
    out->categories[at] = 0;
    out->bools[at] = 0;
    out->nulls[at] = 0;
    if (stype == HW_TIMESTAMP) {
        memset(out->canvas->times + (size_t)HWI_TIME_FLOATS * at, 0, 4 * HWI_TIME_FLOATS);
    }
}

void hwi_hide_cell(const struct hwi_plan *plan, struct hwi_canvas *canvas, uint8_t *slab,
                   uint32_t b, uint32_t position, uint8_t stype) {
    struct cell_arrays out = arrays_of(plan, canvas, slab, b);
    hide(&out, position, stype);
}

/* Over the target cell: the truth, or nothing where it stands beside the inputs. */
static void emit_target(const struct hwi_plan *plan, const struct hwi_context *context,
                        const struct cell_arrays *out, const struct hwi_target *target) {
    uint32_t at = context->target_cell;
    hide(out, at, context->task->info->target_stype);
    if (plan->options.targets != HW_TARGETS_INLINE) {
        return;
    }
    if (target->null) {
        out->nulls[at] |= out->is_compact ? HW_CELL_NULL : 1;
    } else {
        write_label(plan, context, out, at, target);
    }
}

/* ---- one sequence ------------------------------------------------------------------------ */

PER_LAYOUT hw_status emit_rows(const struct hwi_plan *plan, const struct hwi_context *context,
                               const struct cell_arrays *out, struct hwi_text_cells *texts,
                               int is_compact, hw_error *error) {
    for (uint32_t row = 0; row < context->row_count; row++) {
        if (context->visits[row].table != HWI_NONE) {
            HW_TRY(emit_row(plan, context, row, out, texts, is_compact, error));
        } else if (row == 0) {
            emit_seed_row(plan, context, out);
        } else {
            HW_TRY(emit_label_row(plan, context, row, out, error));
        }
    }
    return HW_OK;
}

hw_status hwi_emit_cells(const struct hwi_plan *plan, const struct hwi_context *context,
                         struct hwi_canvas *canvas, uint8_t *slab, uint32_t b,
                         const struct hwi_target *target, struct hwi_text_cells *texts,
                         hw_error *error) {
    struct cell_arrays out = arrays_of(plan, canvas, slab, b);
    clear(plan, &out, context->cell_count);
    HW_TRY(out.is_compact ? emit_rows(plan, context, &out, texts, 1, error)
                          : emit_rows(plan, context, &out, texts, 0, error));
    if (plan->options.child_counts) { /* after all rows, which may write past their ends */
        emit_all_tallies(context, &out);
    }
    write_padding(plan, &out, context->cell_count);
    if (context->target_cell != HWI_NONE) {
        emit_target(plan, context, &out, target);
    }
    return HW_OK;
}

void hwi_emit_no_cells(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    struct cell_arrays out = arrays_of(plan, NULL, slab, b);
    clear(plan, &out, 0);
    write_padding(plan, &out, 0);
}
