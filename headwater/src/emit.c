/*
 * A context into the arrays of a batch; see emit.h. A row is emitted by its table's arrays of
 * masks, the same few operations for every cell whatever its type; only timestamps, texts and the
 * target are visited by list.
 */
#include "emit.h"

#include <string.h>

#include "calendar.h"
#include "error.h"
#include "moments.h"

/* ---- cells ------------------------------------------------------------------------------- */

/* The arrays of one sequence, [S] unless said otherwise. */
struct cell_arrays {
    uint8_t *semantic_types, *bool_values, *is_null, *is_target, *is_padding;
    int32_t *column_ids;
    uint16_t *row_ids, *col_perm, *out_perm;
    float *numeric_values, *timestamp_values; /* [S, 15] */
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
        .timestamp_values =
            hwi_field_at(plan, slab, HWI_TIMESTAMP_VALUES, 4 * HWI_TIME_FLOATS * at),
        .categories = hwi_field_at(plan, slab, HWI_CATEGORICAL_EMBED_IDS, 4 * at),
        .texts = hwi_field_at(plan, slab, HWI_TEXT_EMBED_IDS, 4 * at),
    };
}

/* Emits count cells of a row at position `at`; list names them, or NULL for the first ones.
 * Returns 1 if a category is out of range. */
static inline __attribute__((always_inline)) uint32_t
emit_cells(const struct cell_arrays *out, uint32_t at, uint32_t count,
           const struct hwi_table_plan *cells, const uint32_t *list, const uint8_t *record,
           const uint8_t *nulls, uint16_t local, uint32_t category_count) {
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

static void emit_time(const struct hwi_plan *plan, const struct cell_arrays *out, uint32_t at,
                      int64_t time_us) {
    const struct hwi_store_info *info = plan->store->info;
    hwi_calendar_encode(time_us, info->time_mean_us, info->time_std_us,
                        out->timestamp_values + (size_t)HWI_TIME_FLOATS * at);
}

/* Timestamps and texts of a row: the cells that need more than a mask. */
static void emit_listed(const struct hwi_plan *plan, const struct hwi_visit *visit,
                        const struct hwi_table_plan *cells, const uint32_t *list,
                        const uint8_t *nulls, const struct cell_arrays *out, uint16_t *text_cells,
                        uint32_t *text_cell_count) {
    uint32_t count = list == NULL ? cells->time_count + cells->text_count : visit->cell_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i, c;
        if (list != NULL) {
            c = list[i];
        } else {
            c = i < cells->time_count ? cells->time_cells[i]
                                      : cells->text_cells[i - cells->time_count];
            k = c;
        }
        if (k >= visit->cell_count || hwi_is_null_cell(cells, nulls, c)) {
            continue;
        }
        if (cells->stypes[c] == HW_TIMESTAMP) {
            int64_t time_us;
            memcpy(&time_us, visit->record + cells->lanes[c], sizeof time_us);
            emit_time(plan, out, visit->cell_start + k, time_us);
        } else if (cells->stypes[c] == HW_TEXT) {
            text_cells[(*text_cell_count)++] = (uint16_t)(visit->cell_start + k);
        }
    }
}

static hw_status emit_row(const struct hwi_plan *plan, const struct hwi_walk *walk, uint32_t local,
                          const struct cell_arrays *out, uint16_t *text_cells,
                          uint32_t *text_cell_count, hw_error *error) {
    const struct hwi_visit *visit = &walk->visits[local];
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    const uint8_t *nulls = visit->record + plan->store->tables[visit->table].info->null_offset;
    uint32_t limit = plan->store->info->category_count + (plan->store->info->category_count == 0);
    const uint32_t *list = visit->list == HWI_NONE ? NULL : walk->cell_lists + visit->list;
    uint32_t bad = list == NULL ? emit_cells(out, visit->cell_start, visit->cell_count, cells, NULL,
                                             visit->record, nulls, (uint16_t)local, limit)
                                : emit_cells(out, visit->cell_start, visit->cell_count, cells, list,
                                             visit->record, nulls, (uint16_t)local, limit);
    if (bad) {
        return hwi_fail(error, HW_BAD_STORE,
                        "row %u holds a category outside the store's %u; run "
                        "`headwater verify`",
                        visit->row, plan->store->info->category_count);
    }
    emit_listed(plan, visit, cells, list, nulls, out, text_cells, text_cell_count);
    return HW_OK;
}

/* A derived task's first row: when it is asked, and what. */
static void emit_seed_row(const struct hwi_plan *plan, const struct hwi_walk *walk,
                          const struct cell_arrays *out) {
    const struct hwi_task_info *info = walk->view.info;
    int64_t obs_time = walk->view.seed->obs_time;
    memset(out->numeric_values, 0, 8);
    memset(out->categories, 0, 8);
    memset(out->texts, 0, 8);
    for (uint32_t cell = 0; cell < 2; cell++) {
        out->bool_values[cell] = out->is_null[cell] = 0;
        out->row_ids[cell] = 0;
    }
    out->semantic_types[0] = HW_TIMESTAMP;
    out->semantic_types[1] = info->target_stype;
    out->column_ids[0] = (int32_t)info->obs_time_column;
    out->column_ids[1] = (int32_t)info->target_column;
    out->is_null[0] = obs_time == INT64_MAX;
    if (obs_time != INT64_MAX) {
        emit_time(plan, out, 0, obs_time);
    }
}

/* Padding holds 0 everywhere but is_padding, and orders that keep it at the end. */
static void emit_padding(const struct hwi_plan *plan, const struct cell_arrays *out,
                         uint32_t cell_count) {
    uint32_t rest = plan->shape.sequence_length - cell_count;
    memset(out->is_padding, 0, cell_count);
    memset(out->is_padding + cell_count, 1, rest);
    memset(out->is_target, 0, plan->shape.sequence_length);
    memset(out->semantic_types + cell_count, 0, rest);
    memset(out->bool_values + cell_count, 0, rest);
    memset(out->is_null + cell_count, 0, rest);
    memset(out->column_ids + cell_count, 0, (size_t)rest * 4);
    memset(out->row_ids + cell_count, 0, (size_t)rest * 2);
    memset(out->numeric_values + cell_count, 0, (size_t)rest * 4);
    memset(out->categories + cell_count, 0, (size_t)rest * 4);
    memset(out->texts + cell_count, 0, (size_t)rest * 4);
}

/* ---- the target -------------------------------------------------------------------------- */

struct target {
    uint8_t labelled, null;
    uint64_t value;
};

static hw_status read_target(const struct hwi_plan *plan, const struct hwi_seed *seed,
                             struct target *target, hw_error *error) {
    *target = (struct target){.null = 1};
    if (seed->split == HWI_SPLIT_AD_HOC) {
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

static float target_z(const hw_target_stats *stats, uint64_t bits) {
    double number;
    memcpy(&number, &bits, sizeof number);
    return hwi_z_score(number, stats->column_mean, stats->column_std);
}

/* Writes the truth over the target cell. */
static void emit_target_inline(const struct hwi_plan *plan, const struct hwi_walk *walk,
                               const struct cell_arrays *out, const struct target *target) {
    uint32_t at = walk->target_cell;
    const struct hwi_column_info *column = &plan->store->columns[walk->view.info->target_column];
    out->numeric_values[at] = 0;
    out->bool_values[at] = 0;
    out->categories[at] = 0;
    memset(out->timestamp_values + (size_t)HWI_TIME_FLOATS * at, 0, 4 * HWI_TIME_FLOATS);
    out->is_null[at] = plan->options.targets == HW_TARGETS_INLINE && target->null;
    out->is_target[at] = 1;
    if (target->null || plan->options.targets == HW_TARGETS_SEPARATE) {
        return;
    }
    switch ((hw_semantic_type)walk->view.info->target_stype) {
    case HW_NUMERICAL:
        out->numeric_values[at] = target_z(&walk->view.task->stats, target->value);
        break;
    case HW_BOOLEAN:
        out->bool_values[at] = target->value != 0;
        break;
    case HW_CATEGORICAL:
        out->categories[at] = column->category_start + (uint32_t)target->value;
        break;
    case HW_TIMESTAMP:
        emit_time(plan, out, at, (int64_t)target->value);
        break;
    case HW_IDENTIFIER:
    case HW_TEXT:
    case HW_IGNORED:
    default:
        break;
    }
}

/* Writes the truth beside the inputs. */
static void emit_target_beside(const struct hwi_plan *plan, const struct hwi_walk *walk,
                               uint8_t *slab, uint32_t b, const struct target *target) {
    float *values = hwi_field_at(plan, slab, HWI_TARGET_VALUES, (size_t)b * 4 * HWI_TIME_FLOATS);
    *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_IS_NULL, b) = target->null;
    memset(values, 0, 4 * HWI_TIME_FLOATS);
    if (target->null) {
        return;
    }
    uint8_t stype = walk->view.info->target_stype;
    if (stype == HW_TIMESTAMP) {
        const struct hwi_store_info *info = plan->store->info;
        hwi_calendar_encode((int64_t)target->value, info->time_mean_us, info->time_std_us, values);
    } else {
        values[0] = stype == HW_NUMERICAL ? target_z(&walk->view.task->stats, target->value)
                                          : (float)target->value;
    }
}

/* ---- rows -------------------------------------------------------------------------------- */

static float age_of(const struct hwi_plan *plan, const struct hwi_walk *walk,
                    const struct hwi_visit *visit) {
    int64_t obs_time = walk->view.seed->obs_time;
    if (obs_time == INT64_MAX) {
        return -1;
    }
    if (visit->table == HWI_NONE) {
        return 0;
    }
    const struct hwi_table *table = &plan->store->tables[visit->table];
    if (table->times == NULL) {
        return -1;
    }
    int64_t time_us = table->times[visit->row - table->info->row_start];
    if (time_us == INT64_MAX || time_us == INT64_MIN) {
        return -1;
    }
    return (float)(((double)obs_time - (double)time_us) / 86400e6);
}

static void emit_rows(const struct hwi_plan *plan, const struct hwi_walk *walk, uint8_t *slab,
                      uint32_t b) {
    size_t rows = plan->shape.max_rows, at = (size_t)b * rows;
    float *ages = hwi_field_at(plan, slab, HWI_ROW_AGES, 4 * at);
    uint16_t *starts = hwi_field_at(plan, slab, HWI_ROW_STARTS, 2 * (size_t)b * (rows + 1));
    uint16_t *tables = hwi_field_at(plan, slab, HWI_ROW_TABLES, 2 * at);
    for (uint32_t row = 0; row < rows; row++) {
        const struct hwi_visit *visit = row < walk->row_count ? &walk->visits[row] : NULL;
        ages[row] = visit == NULL ? -1 : age_of(plan, walk, visit);
        starts[row] = (uint16_t)(visit == NULL ? walk->cell_count : visit->cell_start);
        tables[row] = visit == NULL ? 0 : (uint16_t)visit->table; /* HWI_NONE: 65535 */
    }
    starts[rows] = (uint16_t)walk->cell_count;
    if (!plan->options.with_rows) {
        return;
    }
    uint8_t *depths = hwi_field_at(plan, slab, HWI_ROW_DEPTHS, at);
    uint32_t *ids = hwi_field_at(plan, slab, HWI_INFO_ROW_IDS, 4 * at);
    for (uint32_t row = 0; row < rows; row++) {
        const struct hwi_visit *visit = row < walk->row_count ? &walk->visits[row] : NULL;
        uint32_t depth = visit == NULL ? 0 : visit->depth;
        depths[row] = (uint8_t)(depth < 255 ? depth : 255);
        ids[row] = visit == NULL ? HWI_NONE : visit->row;
    }
}

/* fk_adj, parents, and the edges for the row order. */
static void emit_edges(const struct hwi_plan *plan, const struct hwi_walk *walk,
                       struct hwi_permuter *permuter, uint8_t *slab, uint32_t b) {
    size_t rows = plan->shape.max_rows, slots = plan->shape.parent_slots;
    uint8_t *dense = NULL;
    uint16_t *listed = NULL;
    if (plan->offsets[HWI_FK_ADJ] != UINT64_MAX) {
        dense = hwi_field_at(plan, slab, HWI_FK_ADJ, (size_t)b * rows * rows);
        memset(dense, 0, rows * rows);
    }
    if (plan->offsets[HWI_PARENTS] != UINT64_MAX) {
        listed = hwi_field_at(plan, slab, HWI_PARENTS, 2 * (size_t)b * rows * slots);
        memset(listed, 0xff, 2 * rows * slots);
    }
    permuter->edge_count = 0;
    for (uint32_t i = 0; i < walk->row_count; i++) {
        uint32_t table = walk->visits[i].table, seen = permuter->edge_count;
        uint32_t keys = table == HWI_NONE ? 1 : plan->store->tables[table].info->key_count;
        int self = 0;
        for (uint32_t slot = 0; slot < keys; slot++) {
            uint32_t parent = walk->parents[i * slots + slot];
            uint32_t j = parent == HWI_NONE ? HWI_NONE : hwi_walk_local(walk, parent);
            if (j == HWI_NONE || (j == i && self)) {
                continue;
            }
            int is_new = 1;
            for (uint32_t e = seen; e < permuter->edge_count; e++) {
                is_new &= permuter->edges[2 * e + 1] != j;
            }
            if (!is_new) {
                continue;
            }
            if (dense != NULL) {
                dense[i * rows + j] = 1;
            }
            if (listed != NULL) {
                listed[i * slots + slot] = (uint16_t)j;
            }
            if (j == i) {
                self = 1;
                continue;
            }
            permuter->edges[2 * permuter->edge_count] = (uint16_t)i;
            permuter->edges[2 * permuter->edge_count++ + 1] = (uint16_t)j;
        }
    }
}

static void emit_scalars(const struct hwi_plan *plan, uint8_t *slab, uint32_t b,
                         const struct hwi_seed *seed, const struct target *target,
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

/* ---- one sequence ------------------------------------------------------------------------ */

hw_status hwi_emit_sequence(const struct hwi_plan *plan, const struct hwi_walk *walk,
                            struct hwi_permuter *permuter, uint8_t *slab, uint32_t b,
                            const struct hwi_seed *seed, uint16_t *text_cells,
                            uint32_t *text_cell_count, hw_error *error) {
    struct cell_arrays out = arrays_of(plan, slab, b);
    *text_cell_count = 0;
    memset(out.timestamp_values, 0, (size_t)plan->shape.sequence_length * 4 * HWI_TIME_FLOATS);
    for (uint32_t row = 0; row < walk->row_count; row++) {
        if (walk->visits[row].table == HWI_NONE) {
            emit_seed_row(plan, walk, &out);
        } else {
            HW_TRY(emit_row(plan, walk, row, &out, text_cells, text_cell_count, error));
        }
    }
    emit_padding(plan, &out, walk->cell_count);
    struct target target;
    HW_TRY(read_target(plan, seed, &target, error));
    emit_target_inline(plan, walk, &out, &target);
    if (plan->options.targets == HW_TARGETS_SEPARATE) {
        emit_target_beside(plan, walk, slab, b, &target);
    }
    emit_rows(plan, walk, slab, b);
    emit_edges(plan, walk, permuter, slab, b);
    hwi_permute_columns(permuter, walk, out.column_ids, out.col_perm);
    hwi_permute_rows(permuter, walk, out.out_perm);
    emit_scalars(plan, slab, b, seed, &target, walk->cell_count, walk->row_count);
    return HW_OK;
}

void hwi_emit_nothing(const struct hwi_plan *plan, struct hwi_walk *walk,
                      struct hwi_permuter *permuter, uint8_t *slab, uint32_t b) {
    struct cell_arrays out = arrays_of(plan, slab, b);
    struct target target = {.null = 1};
    uint32_t length = plan->shape.sequence_length;
    walk->row_count = walk->cell_count = 0;
    memset(out.timestamp_values, 0, (size_t)length * 4 * HWI_TIME_FLOATS);
    emit_padding(plan, &out, 0);
    emit_rows(plan, walk, slab, b);
    emit_edges(plan, walk, permuter, slab, b);
    for (uint32_t cell = 0; cell < length; cell++) {
        out.col_perm[cell] = out.out_perm[cell] = (uint16_t)cell;
    }
    if (plan->options.targets == HW_TARGETS_SEPARATE) {
        memset(hwi_field_at(plan, slab, HWI_TARGET_VALUES, (size_t)b * 4 * HWI_TIME_FLOATS), 0,
               4 * HWI_TIME_FLOATS);
        *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_IS_NULL, b) = 1;
    }
    emit_scalars(plan, slab, b, NULL, &target, 0, 0);
}
