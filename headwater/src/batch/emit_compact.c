/* A context into the arrays of the compact layout; see emit_compact.h. */
#include "batch/emit_compact.h"

#include <assert.h> /* static_assert, until C23 */
#include <string.h>

#include "base/calendar.h"
#include "base/error.h"
#include "batch/emit_frame.h"
#include "plan/scales.h"
#include "walk/child_counts.h"

enum { NULL_SHIFT = 3 };
static_assert(HW_CELL_NULL == 1u << NULL_SHIFT, "a null byte becomes the null bit of eight cells");
static_assert(HWI_MAX_COLUMNS <= UINT16_MAX, "cell_columns has 16 bits");

/* The arrays of one sequence, [S]. */
struct compact_arrays {
    uint8_t *cells;
    uint16_t *columns;
    uint32_t *values, *times;
};

static struct compact_arrays arrays_of(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    size_t at = (size_t)b * plan->shape.sequence_length;
    return (struct compact_arrays){
        .cells = hwi_field_at(plan, slab, HWI_CELLS, at),
        .columns = hwi_field_at(plan, slab, HWI_CELL_COLUMNS, 2 * at),
        .values = hwi_field_at(plan, slab, HWI_CELL_VALUES, 4 * at),
        .times = hwi_field_at(plan, slab, HWI_CELL_TIMES, 4 * at),
    };
}

static uint32_t float_bits(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* ---- cells ------------------------------------------------------------------------------- */

/* A lane as the batch shows it: 0 where the cell is NULL. */
static inline uint32_t lane_of(const uint8_t *record, struct hwi_cell_value value,
                               const uint8_t *flags) {
    uint32_t lane;
    memcpy(&lane, record + value.lane, sizeof lane);
    return lane & ((uint32_t)(flags[value.cell] >> NULL_SHIFT) - 1);
}

/* Emits a row that shows all its table's first cells; may write up to 7 cells past it. Returns 1 if
 * a category is out of range. */
static inline uint32_t emit_whole(const struct compact_arrays *out, uint32_t at,
                                  const struct hwi_table_plan *cells, const uint8_t *record,
                                  const uint8_t *nulls, uint32_t category_count) {
    for (uint32_t k = 0; k < cells->cell_count; k += 8) {
        uint64_t run, spread = hwi_frame_nulls(cells, nulls, k);
        memcpy(&run, cells->stypes + k, 8);
        run |= spread << NULL_SHIFT;
        memcpy(out->cells + at + k, &run, 8);
        memcpy(out->columns + at + k, cells->short_columns + k, 16);
        memset(out->values + at + k, 0, 32);
        memset(out->times + at + k, 0, 32);
    }
    const uint8_t *flags = out->cells + at;
    uint32_t *values = out->values + at, most = 0;
    const struct hwi_cell_value *value = cells->values, *end = value + cells->number_count;
    for (; value < end; value++) {
        values[value->cell] = lane_of(record, *value, flags);
    }
    for (end += cells->category_count; value < end; value++) {
        uint32_t lane = lane_of(record, *value, flags);
        most = lane > most ? lane : most;
        values[value->cell] = lane;
    }
    for (end += cells->text_count; value < end; value++) {
        values[value->cell] = lane_of(record, *value, flags);
    }
    for (end += cells->bool_count; value < end; value++) {
        values[value->cell] = lane_of(record, *value, flags) & 1;
    }
    return most >= category_count;
}

/* Emits count cells of a row at position `at`; list names them, or NULL for the first ones.
 * Returns 1 if a category is out of range. */
static uint32_t emit_some(const struct compact_arrays *out, uint32_t at, uint32_t count,
                          const struct hwi_table_plan *cells, const uint32_t *list,
                          const uint8_t *record, const uint8_t *nulls, uint32_t category_count) {
    uint32_t bad = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t c = list == NULL ? k : list[k], p = at + k, lane;
        uint32_t null = (uint32_t)nulls[cells->null_bits[c] / 8] >> (cells->null_bits[c] % 8) & 1u;
        memcpy(&lane, record + cells->lanes[c], sizeof lane);
        lane &= null - 1; /* 0 where NULL */
        bad |= (lane & cells->category_masks[c]) >= category_count;
        out->cells[p] = (uint8_t)(cells->stypes[c] | null * HW_CELL_NULL);
        out->columns[p] = (uint16_t)cells->columns[c];
        out->values[p] = lane & cells->value_masks[c];
        out->times[p] = 0;
    }
    return bad;
}

static void emit_time(const struct hwi_plan *plan, const struct compact_arrays *out, uint32_t at,
                      int64_t time_us) {
    out->values[at] = float_bits(hwi_calendar_z(time_us, plan->time_mean_us, plan->time_std_us));
    out->times[at] = hwi_calendar_code(&plan->calendar, time_us);
}

static void emit_time_of(const struct hwi_plan *plan, const uint8_t *record, uint32_t lane,
                         const struct compact_arrays *out, uint32_t at) {
    int64_t time_us;
    memcpy(&time_us, record + lane, sizeof time_us);
    emit_time(plan, out, at, time_us);
}

/* Timestamps and texts of a row that shows its table's first cells: those need more than a lane. */
static void emit_listed(const struct hwi_plan *plan, const struct hwi_visit *visit,
                        const struct hwi_table_plan *cells, const struct compact_arrays *out,
                        struct hwi_text_cells *texts) {
    const uint8_t *flags = out->cells + visit->cell_start;
    for (uint32_t i = 0; i < cells->time_count; i++) {
        uint32_t c = cells->time_cells[i];
        if (c < visit->cell_count && !(flags[c] & HW_CELL_NULL)) {
            emit_time_of(plan, visit->record, cells->lanes[c], out, visit->cell_start + c);
        }
    }
    for (uint32_t i = 0; i < cells->text_count; i++) {
        uint32_t c = cells->text_cells[i];
        if (c < visit->cell_count && !(flags[c] & HW_CELL_NULL)) {
            texts->cells[texts->count++] = (uint16_t)(visit->cell_start + c);
        }
    }
}

/* The same of a row that lists its cells. */
static void emit_chosen(const struct hwi_plan *plan, const struct hwi_visit *visit,
                        const struct hwi_table_plan *cells, const uint32_t *list,
                        const struct compact_arrays *out, struct hwi_text_cells *texts) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list[k], at = visit->cell_start + k;
        if (out->cells[at] & HW_CELL_NULL) {
            continue;
        }
        if (cells->stypes[c] == HW_TIMESTAMP) {
            emit_time_of(plan, visit->record, cells->lanes[c], out, at);
        } else if (cells->stypes[c] == HW_TEXT) {
            texts->cells[texts->count++] = (uint16_t)at;
        }
    }
}

/* Numbers of a row as this sampler shows them; list as in emit_some. */
static void scale_numbers(const struct hwi_plan *plan, const struct hwi_visit *visit,
                          const struct hwi_table_plan *cells, const uint32_t *list,
                          const struct compact_arrays *out) {
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = list == NULL ? k : list[k], at = visit->cell_start + k;
        float number;
        if (cells->stypes[c] == HW_NUMERICAL && !(out->cells[at] & HW_CELL_NULL)) {
            memcpy(&number, &out->values[at], sizeof number);
            out->values[at] = float_bits(hwi_shown_number(plan, cells->columns[c], number));
        }
    }
}

static hw_status emit_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                          const struct hwi_visit *visit, const struct compact_arrays *out,
                          struct hwi_text_cells *texts, hw_error *error) {
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    const uint8_t *nulls = visit->record + cells->null_offset;
    const uint32_t *list = visit->list == HWI_NONE ? NULL : walk->cell_lists + visit->list;
    uint32_t limit = plan->store->info->category_count + (plan->store->info->category_count == 0);
    uint32_t bad = hwi_frame_fits(plan, visit, cells)
                       ? emit_whole(out, visit->cell_start, cells, visit->record, nulls, limit)
                       : emit_some(out, visit->cell_start, visit->cell_count, cells, list,
                                   visit->record, nulls, limit);
    if (bad) {
        return hwi_frame_bad_category(plan, visit, error);
    }
    if (plan->scales != NULL) {
        scale_numbers(plan, visit, cells, list, out);
    }
    if (list == NULL) {
        emit_listed(plan, visit, cells, out, texts);
    } else {
        emit_chosen(plan, visit, cells, list, out, texts);
    }
    return HW_OK;
}

/* A derived task's first row: when it is asked, and what. */
static void emit_seed_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                          const struct compact_arrays *out) {
    const struct hwi_task_info *info = walk->view.info;
    int64_t obs_time = walk->view.seed->obs_time;
    out->cells[0] = (uint8_t)(HW_TIMESTAMP | (obs_time == INT64_MAX ? HW_CELL_NULL : 0));
    out->cells[1] = info->target_stype;
    out->columns[0] = (uint16_t)info->obs_time_column;
    out->columns[1] = (uint16_t)info->target_column;
    memset(out->values, 0, 2 * sizeof *out->values);
    memset(out->times, 0, 2 * sizeof *out->times);
    if (obs_time != INT64_MAX) {
        emit_time(plan, out, 0, obs_time);
    }
}

static void emit_padding(const struct hwi_plan *plan, const struct compact_arrays *out,
                         uint32_t cell_count) {
    size_t rest = plan->shape.sequence_length - cell_count;
    memset(out->cells + cell_count, HW_CELL_PADDING, rest);
    memset(out->columns + cell_count, 0, rest * sizeof *out->columns);
    memset(out->values + cell_count, 0, rest * sizeof *out->values);
    memset(out->times + cell_count, 0, rest * sizeof *out->times);
}

/* The counts of a row's children, behind its own cells. */
static void emit_tallies(const struct hwi_walk *walk, const struct hwi_visit *visit, uint32_t place,
                         const struct compact_arrays *out) {
    for (uint32_t i = 0; i < visit->tally_cells; i++) {
        const struct hwi_tally *tally = &walk->tallies.all[place + i / HWI_TALLY_CELLS];
        uint32_t at = visit->cell_start + visit->cell_count + i, cell = i % HWI_TALLY_CELLS;
        out->cells[at] = (uint8_t)(HW_NUMERICAL | (tally->is_null[cell] ? HW_CELL_NULL : 0));
        out->columns[at] = (uint16_t)hwi_tally_column(walk->plan, visit->table, i);
        out->values[at] = float_bits(tally->values[cell]);
        out->times[at] = 0;
    }
}

static void emit_all_tallies(const struct hwi_walk *walk, const struct compact_arrays *out) {
    for (uint32_t row = 0, place = 0; row < walk->row_count; row++) {
        const struct hwi_visit *visit = &walk->visits[row];
        if (visit->table != HWI_NONE) {
            emit_tallies(walk, visit, place, out);
            place = hwi_tally_next(walk->plan, visit->table, place);
        }
    }
}

/* ---- the target -------------------------------------------------------------------------- */

/* A label, over zeros. */
static void emit_label(const struct hwi_plan *plan, const struct hwi_walk *walk,
                       const struct compact_arrays *out, uint32_t at,
                       const struct hwi_target *label) {
    uint8_t stype = walk->view.info->target_stype;
    const struct hwi_column_info *column = &plan->store->columns[walk->view.info->target_column];
    if (stype == HW_NUMERICAL) {
        out->values[at] = float_bits(hwi_target_z(&walk->view.task->stats, label->value));
    } else if (stype == HW_BOOLEAN) {
        out->values[at] = label->value != 0;
    } else if (stype == HW_CATEGORICAL) {
        out->values[at] = column->category_start + (uint32_t)label->value;
    } else if (stype == HW_TIMESTAMP) {
        emit_time(plan, out, at, (int64_t)label->value);
    }
}

/* An earlier seed of the anchor, with its answer; it may be cut. */
static hw_status emit_label_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                                const struct hwi_visit *visit, const struct compact_arrays *out,
                                hw_error *error) {
    const struct hwi_task_info *info = walk->view.info;
    uint32_t at = visit->cell_start;
    struct hwi_target label;
    HW_TRY(hwi_label_read(plan, walk, visit, &label, error));
    out->cells[at] = HW_TIMESTAMP;
    out->columns[at] = (uint16_t)info->obs_time_column;
    emit_time(plan, out, at, plan->store->seeds[walk->view.task->task].obs_times[visit->list]);
    if (visit->cell_count == 1) {
        return HW_OK;
    }
    out->cells[at + 1] = (uint8_t)(info->target_stype | (label.null ? HW_CELL_NULL : 0));
    out->columns[at + 1] = (uint16_t)info->target_column;
    out->values[at + 1] = out->times[at + 1] = 0;
    if (!label.null) {
        emit_label(plan, walk, out, at + 1, &label);
    }
    return HW_OK;
}

/* Over the target cell: the truth, or nothing where it stands beside the inputs. */
static void emit_target(const struct hwi_plan *plan, const struct hwi_walk *walk,
                        const struct compact_arrays *out, const struct hwi_target *target) {
    uint32_t at = walk->target_cell;
    uint8_t stype = walk->view.info->target_stype;
    int is_inline = plan->options.targets == HW_TARGETS_INLINE;
    out->cells[at] =
        (uint8_t)(stype | HW_CELL_TARGET | (is_inline && target->null ? HW_CELL_NULL : 0));
    out->values[at] = out->times[at] = 0;
    if (!target->null && is_inline) {
        emit_label(plan, walk, out, at, target);
    }
}

/* ---- one sequence ------------------------------------------------------------------------ */

hw_status hwi_emit_compact(const struct hwi_plan *plan, const struct hwi_walk *walk, uint8_t *slab,
                           uint32_t b, const struct hwi_target *target,
                           struct hwi_text_cells *texts, hw_error *error) {
    struct compact_arrays out = arrays_of(plan, slab, b);
    for (uint32_t row = 0; row < walk->row_count; row++) {
        const struct hwi_visit *visit = &walk->visits[row];
        if (visit->table != HWI_NONE) {
            HW_TRY(emit_row(plan, walk, visit, &out, texts, error));
        } else if (row == 0) {
            emit_seed_row(plan, walk, &out);
        } else {
            HW_TRY(emit_label_row(plan, walk, visit, &out, error));
        }
    }
    if (plan->options.child_counts) { /* after all rows, which may write past their ends */
        emit_all_tallies(walk, &out);
    }
    emit_padding(plan, &out, walk->cell_count);
    if (walk->target_cell != HWI_NONE) {
        emit_target(plan, walk, &out, target);
    }
    return HW_OK;
}

void hwi_emit_compact_nothing(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    struct compact_arrays out = arrays_of(plan, slab, b);
    emit_padding(plan, &out, 0);
}
