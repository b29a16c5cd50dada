/* Rows, edges, targets and figures of a sequence; see emit_rows.h. */
#include "batch/emit_rows.h"

#include <string.h>

#include "base/calendar.h"
#include "base/moments.h"

/* ---- the truth --------------------------------------------------------------------------- */

hw_status hwi_target_read(const struct hwi_plan *plan, const struct hwi_seed *seed,
                          struct hwi_target *target, hw_error *error) {
    *target = (struct hwi_target){.null = 1};
    if (seed->split == HWI_SPLIT_AD_HOC || !hwi_is_task_objective(plan)) {
        return HW_OK;
    }
    uint32_t task = plan->tasks[seed->task].task;
    const struct hwi_task_info *info = &plan->store->tasks[task];
    const hw_seeds *seeds = &plan->store->seeds[task];
    uint8_t state = seeds->states[seed->index] & 15;
    target->labelled = state != HWI_LABEL_NONE;
    target->null = state != HWI_LABEL_VALUE;
    target->value = target->null ? 0 : seeds->targets[seed->index];
    uint64_t limit = info->target_stype == HW_BOOLEAN ? 2 : UINT64_MAX;
    if (info->target_stype == HW_CATEGORICAL) {
        limit = plan->store->columns[info->target_column].category_count;
    }
    if (!target->null && target->value >= limit && limit != UINT64_MAX) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the target of seed %u of task %u is %llu, expected "
                        "less than %llu; run `headwater verify`",
                        seed->index, task, (unsigned long long)target->value,
                        (unsigned long long)limit);
    }
    return HW_OK;
}

hw_status hwi_label_read(const struct hwi_plan *plan, const struct hwi_context *context,
                         const struct hwi_visit *visit, struct hwi_target *label, hw_error *error) {
    struct hwi_seed seed = {.task = context->seed.task, .index = visit->list};
    return hwi_target_read(plan, &seed, label, error);
}

float hwi_target_z(const hw_target_stats *stats, uint64_t bits) {
    double number;
    memcpy(&number, &bits, sizeof number);
    return hwi_z_score(number, stats->column_mean, stats->column_std);
}

void hwi_emit_target_beside(const struct hwi_plan *plan, const struct hwi_context *context,
                            uint8_t *slab, uint32_t b, const struct hwi_target *target) {
    float *values = hwi_field_at(plan, slab, HWI_TARGET_VALUES, (size_t)b * 4 * HWI_TIME_FLOATS);
    *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_IS_NULL, b) = target->null;
    memset(values, 0, 4 * HWI_TIME_FLOATS);
    if (target->null) {
        return;
    }
    uint8_t stype = context->task->info->target_stype;
    if (stype == HW_TIMESTAMP) {
        hwi_calendar_encode(&plan->calendar, (int64_t)target->value, plan->time_mean_us,
                            plan->time_std_us, values);
    } else {
        values[0] = stype == HW_NUMERICAL ? hwi_target_z(&context->task->stats, target->value)
                                          : (float)target->value;
    }
}

/* ---- rows -------------------------------------------------------------------------------- */

/* INT64_MAX or INT64_MIN: none. From the record where it stands there, which is in cache. */
static int64_t time_of(const struct hwi_plan *plan, const struct hwi_visit *visit) {
    const struct hwi_table *table = &plan->store->tables[visit->table];
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    int64_t time_us = INT64_MAX;
    if (cells->time_lane == 0) {
        return table->times == NULL ? time_us : table->times[visit->row - table->row_start];
    }
    const uint8_t *nulls = visit->record + cells->null_offset;
    if (!(nulls[cells->time_null_bit / 8] >> (cells->time_null_bit % 8) & 1)) {
        memcpy(&time_us, visit->record + cells->time_lane, sizeof time_us);
        time_us = (int64_t)((uint64_t)time_us + (uint64_t)cells->time_offset_us);
    }
    return time_us;
}

/* Days from a row's time to obs_time. A label row has the time that it was asked at, the row of the
 * seed that of the newest row of any table that the seed sees. */
static float age_of(const struct hwi_plan *plan, const struct hwi_context *context,
                    const struct hwi_visit *visit) {
    int64_t obs_time = context->seed.obs_time, time_us = INT64_MAX;
    if (obs_time == INT64_MAX) {
        return -1;
    }
    if (visit->table != HWI_NONE) {
        time_us = time_of(plan, visit);
    } else if (visit->list != HWI_NONE) {
        time_us = plan->store->seeds[context->task->task].obs_times[visit->list];
    } else {
        time_us = context->newest;
    }
    if (time_us == INT64_MAX || time_us == INT64_MIN) {
        return -1;
    }
    return (float)(((double)obs_time - (double)time_us) / 86400e6);
}

static void emit_row_names(const struct hwi_plan *plan, const struct hwi_context *context,
                           uint8_t *slab, uint32_t b) {
    size_t rows = plan->shape.max_rows, at = (size_t)b * rows;
    uint8_t *depths = hwi_field_at(plan, slab, HWI_ROW_DEPTHS, at);
    uint32_t *ids = hwi_field_at(plan, slab, HWI_INFO_ROW_IDS, 4 * at);
    for (uint32_t row = 0; row < rows; row++) {
        const struct hwi_visit *visit = row < context->row_count ? &context->visits[row] : NULL;
        uint32_t depth = visit == NULL ? 0 : visit->depth;
        depths[row] = (uint8_t)(depth < 255 ? depth : 255);
        ids[row] = visit == NULL ? HWI_NONE : visit->row;
    }
}

void hwi_emit_rows(const struct hwi_plan *plan, const struct hwi_context *context, uint8_t *slab,
                   uint32_t b) {
    size_t rows = plan->shape.max_rows, at = (size_t)b * rows;
    float *ages = hwi_field_at(plan, slab, HWI_ROW_AGES, 4 * at);
    uint16_t *starts = hwi_field_at(plan, slab, HWI_ROW_STARTS, 2 * (size_t)b * (rows + 1));
    uint16_t *tables = hwi_field_at(plan, slab, HWI_ROW_TABLES, 2 * at);
    for (uint32_t row = 0; row < context->row_count; row++) {
        const struct hwi_visit *visit = &context->visits[row];
        ages[row] = age_of(plan, context, visit);
        starts[row] = (uint16_t)visit->cell_start;
        tables[row] = (uint16_t)visit->table; /* HWI_NONE: 65535 */
    }
    for (size_t row = context->row_count; row < rows; row++) {
        ages[row] = -1;
        starts[row] = (uint16_t)context->cell_count;
        tables[row] = 0;
    }
    starts[rows] = (uint16_t)context->cell_count;
    if (plan->options.with_rows) {
        emit_row_names(plan, context, slab, b);
    }
}

/* ---- edges ------------------------------------------------------------------------------- */

/* The edges of a row: listed is its part of `parents`, which has every key. A pair of rows is one
 * edge elsewhere, however many keys join it. */
static void emit_row_edges(const struct hwi_plan *plan, const struct hwi_context *context,
                           uint32_t row, struct hwi_canvas *canvas, struct hwi_permuter *permuter,
                           uint16_t *listed) {
    uint32_t slots = plan->shape.parent_slots;
    uint32_t keys = context->visits[row].key_count;
    const uint16_t *parents = context->local_parents + (size_t)row * slots;
    for (uint32_t slot = 0; slot < keys; slot++) {
        uint32_t parent = parents[slot];
        if (parent == HWI_UNKNOWN_LOCAL) {
            continue;
        }
        listed[slot] = (uint16_t)parent;
        if (hwi_lists_parent(parents, slot, parent)) {
            continue;
        }
        if (canvas->edges != NULL) {
            hwi_canvas_edge(canvas, row * plan->shape.max_rows + parent);
        }
        int is_new = parent > row || !hwi_is_edge(context, parent, row);
        if (parent != row && is_new) {
            permuter->edges[2 * permuter->edge_count] = (uint16_t)row;
            permuter->edges[2 * permuter->edge_count++ + 1] = (uint16_t)parent;
        }
    }
}

void hwi_emit_edges(const struct hwi_plan *plan, const struct hwi_context *context,
                    struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                    uint32_t b) {
    size_t rows = plan->shape.max_rows, slots = plan->shape.parent_slots;
    uint16_t *listed = hwi_field_at(plan, slab, HWI_PARENTS, 2 * (size_t)b * rows * slots);
    memset(listed, 0xff, 2 * rows * slots);
    permuter->edge_count = 0;
    for (uint32_t row = 0; row < context->row_count; row++) {
        emit_row_edges(plan, context, row, canvas, permuter, listed + row * slots);
    }
}

/* ---- figures ----------------------------------------------------------------------------- */

void hwi_emit_scalars(const struct hwi_plan *plan, uint8_t *slab, uint32_t b,
                      const struct hwi_seed *seed, const struct hwi_target *target,
                      uint32_t cell_count, uint32_t row_count) {
    int64_t obs_time = seed == NULL ? INT64_MAX : seed->obs_time;
    uint32_t index = seed == NULL ? 0 : seed->index, anchor = seed == NULL ? 0 : seed->anchor;
    memcpy(hwi_field_at(plan, slab, HWI_NUM_CELLS, 4 * (size_t)b), &cell_count, 4);
    memcpy(hwi_field_at(plan, slab, HWI_NUM_ROWS, 4 * (size_t)b), &row_count, 4);
    memcpy(hwi_field_at(plan, slab, HWI_INFO_OBS_TIME, 8 * (size_t)b), &obs_time, 8);
    memcpy(hwi_field_at(plan, slab, HWI_INFO_SEED_INDEX, 4 * (size_t)b), &index, 4);
    memcpy(hwi_field_at(plan, slab, HWI_INFO_ANCHOR_ROWS, 4 * (size_t)b), &anchor, 4);
    *(uint8_t *)hwi_field_at(plan, slab, HWI_IS_LABELLED, b) = target->labelled;
}
