/*
 * Opens a plan: options checked once, seeds dealt into splits once, and for each table the arrays
 * that turn its records into cells. Costs one pass over the seeds; nothing here is touched again
 * while batches are made.
 */
#include "plan/open_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/masking.h"
#include "plan/options.h"
#include "plan/scales.h"
#include "plan/tasks.h"
#include "plan/time_marks.h"

/* ---- options ----------------------------------------------------------------------------- */

/* docs/reference/sampling.md, "Staleness". */
static hw_status plan_staleness(struct hwi_plan *plan, hw_error *error) {
    double share = plan->options.staleness_zero_share, days = plan->options.staleness_max_days;
    double seconds = floor(days * 86400 + 0.5);
    if ((days > 0 && seconds < 1) || (days == 0 && share > 0)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "staleness_max_days: the longest gap is %g days, expected 1 second to %u "
                        "days",
                        days, HWI_MAX_STALE_DAYS);
    }
    plan->stale_seconds = (uint32_t)seconds;
    plan->fresh_words = (uint64_t)floor(share * 4294967296.0 + 0.5);
    return HW_OK;
}

static hw_status check_time_split(const struct hwi_plan *plan, hw_error *error) {
    return plan->is_split_by_time && plan->time_split[0] >= plan->time_split[1]
               ? hwi_fail(error, HW_BAD_ARGUMENT, "time_split ends before it begins")
               : HW_OK;
}

/* Counts of children have columns behind those of the store. */
static hw_status check_child_counts(const struct hwi_plan *plan, hw_error *error) {
    const struct hwi_store_info *info = plan->store->info;
    uint64_t more = (uint64_t)HWI_TALLY_CELLS * info->key_count;
    if (plan->options.child_counts && info->column_count + more > HWI_MAX_COLUMNS) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "child_counts needs %llu columns for %u foreign keys besides the %u of the "
                        "store, expected at most %u together",
                        (unsigned long long)more, info->key_count, info->column_count,
                        HWI_MAX_COLUMNS);
    }
    return HW_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

static int is_ignored(const hw_store *store, uint32_t column) {
    return store->columns[column].stype == HW_IGNORED;
}

static int is_key_column(const hw_store *store, const struct hwi_table_info *table,
                         uint32_t column) {
    for (uint32_t k = table->key_start; k < table->key_start + table->key_count; k++) {
        const struct hwi_key_info *key = &store->keys[k];
        for (uint32_t i = 0; i < key->column_count; i++) {
            if (store->key_columns[key->column_start + i] == column) {
                return 1;
            }
        }
    }
    return 0;
}

static int is_wanted(const struct hwi_plan *plan, const struct hwi_table_info *table,
                     uint32_t column) {
    if (plan->store->columns[column].stype != HW_IDENTIFIER) {
        return 1;
    }
    switch (plan->options.identifier_cells) {
    case HW_IDENTIFIERS_ALL:
        return 1;
    case HW_IDENTIFIERS_KEYS:
        return is_key_column(plan->store, table, column);
    case HW_IDENTIFIERS_NONE:
    default:
        return 0;
    }
}

static void add_cell(struct hwi_table_plan *cells, const hw_store *store, uint32_t column) {
    const struct hwi_column_info *info = &store->columns[column];
    uint32_t i = cells->all_count++;
    cells->columns[i] = column;
    cells->short_columns[i] = (uint16_t)column;
    cells->stypes[i] = info->stype;
    cells->null_bits[i] = info->null_bit;
    cells->lanes[i] = info->lane_offset == HWI_NONE ? 0 : info->lane_offset;
    cells->numeric_masks[i] = info->stype == HW_NUMERICAL ? UINT32_MAX : 0;
    cells->category_masks[i] = info->stype == HW_CATEGORICAL ? UINT32_MAX : 0;
    cells->text_masks[i] = info->stype == HW_TEXT ? UINT32_MAX : 0;
    cells->bool_masks[i] = info->stype == HW_BOOLEAN;
    cells->value_masks[i] = cells->numeric_masks[i] | cells->category_masks[i] |
                            cells->text_masks[i] | cells->bool_masks[i];
    cells->late_cells |= info->known_kind != HWI_KNOWN_CREATION;
    cells->nulls_in_order &= info->null_bit == i;
}

/* Those of the cells every row has that need more than a lane. */
static void list_times_and_texts(struct hwi_table_plan *cells) {
    for (uint32_t i = 0; i < cells->cell_count; i++) {
        if (cells->stypes[i] == HW_TIMESTAMP) {
            cells->time_cells[cells->time_count++] = i;
        }
        if (cells->stypes[i] == HW_TEXT) {
            cells->text_cells[cells->text_count++] = i;
        }
    }
}

static uint32_t list_values(struct hwi_table_plan *cells, hw_semantic_type stype, uint32_t place) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < cells->cell_count; i++) {
        if (cells->stypes[i] == stype) {
            cells->values[place + count++] =
                (struct hwi_cell_value){.lane = cells->lanes[i], .cell = i};
        }
    }
    return count;
}

/* The lanes that emission copies, of the cells every row has. */
static void list_all_values(struct hwi_table_plan *cells) {
    cells->number_count = list_values(cells, HW_NUMERICAL, 0);
    cells->category_count = list_values(cells, HW_CATEGORICAL, cells->number_count);
    uint32_t place = cells->number_count + cells->category_count;
    place += list_values(cells, HW_TEXT, place);
    cells->bool_count = list_values(cells, HW_BOOLEAN, place);
}

/* The cells of a table's rows, in the order of struct hwi_table_plan. */
static void add_cells(const struct hwi_plan *plan, const struct hwi_table_info *info,
                      struct hwi_table_plan *cells) {
    uint32_t end = info->column_start + info->column_count;
    cells->nulls_in_order = 1;
    for (uint32_t column = info->column_start; column < end; column++) {
        if (!is_ignored(plan->store, column) && is_wanted(plan, info, column)) {
            add_cell(cells, plan->store, column);
        }
    }
    cells->cell_count = cells->all_count;
    for (uint32_t column = info->column_start; column < end; column++) {
        if (!is_ignored(plan->store, column) && !is_wanted(plan, info, column)) {
            add_cell(cells, plan->store, column);
        }
    }
}

static hw_status plan_table(struct hwi_plan *plan, uint32_t table, hw_error *error) {
    const struct hwi_table_info *info = plan->store->tables[table].info;
    struct hwi_table_plan *cells = &plan->tables[table];
    size_t count = (size_t)info->column_count + 8; /* whole runs of eight may be read */
    uint32_t **arrays[] = {&cells->columns,       &cells->null_bits,  &cells->lanes,
                           &cells->numeric_masks, &cells->text_masks, &cells->category_masks,
                           &cells->bool_masks,    &cells->time_cells, &cells->text_cells,
                           &cells->value_masks};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        *arrays[i] = calloc(count, sizeof(uint32_t));
        if (*arrays[i] == NULL) {
            return hwi_no_memory(error, "the plan of a table", count * sizeof(uint32_t));
        }
    }
    cells->stypes = calloc(count, 1);
    cells->short_columns = calloc(count, sizeof *cells->short_columns);
    cells->values = calloc(count, sizeof *cells->values);
    if (cells->stypes == NULL || cells->short_columns == NULL || cells->values == NULL) {
        return hwi_no_memory(error, "the plan of a table", count);
    }
    add_cells(plan, info, cells);
    list_times_and_texts(cells);
    list_all_values(cells);
    cells->null_offset = info->null_offset;
    for (uint32_t k = info->key_start; k < info->key_start + info->key_count; k++) {
        cells->late_keys |= plan->store->keys[k].known_late != 0;
    }
    if (info->flags & HWI_TABLE_TIME_IN_LANE) {
        cells->time_lane = plan->store->columns[info->temporal_column].lane_offset;
        cells->time_null_bit = plan->store->columns[info->temporal_column].null_bit;
        cells->time_offset_us = info->time_offset_us;
    }
    return hwi_time_marks_open(&cells->marks, &plan->store->tables[table], error);
}

static hw_status plan_tables(struct hwi_plan *plan, hw_error *error) {
    uint32_t count = plan->store->info->table_count;
    plan->tables = calloc(count + 1, sizeof *plan->tables);
    if (plan->tables == NULL) {
        return hwi_no_memory(error, "the plan of the tables", count * sizeof *plan->tables);
    }
    plan->shape.parent_slots = 1; /* a seed row's anchor */
    plan->child_slots = 1;
    for (uint32_t table = 0; table < count; table++) {
        HW_TRY(plan_table(plan, table, error));
        const struct hwi_table_info *info = plan->store->tables[table].info;
        if (info->key_count > plan->shape.parent_slots) {
            plan->shape.parent_slots = info->key_count;
        }
        if (info->child_slot_count > plan->child_slots) {
            plan->child_slots = info->child_slot_count;
        }
    }
    return HW_OK;
}

/* ---- open and close ---------------------------------------------------------------------- */

/* Each part rests on those before it; `given` has the pointers of the caller. */
static hw_status decide(struct hwi_plan *plan, const hw_sampler_options *given, hw_error *error) {
    HW_TRY(hwi_options_settle(&plan->options, error));
    HW_TRY(hwi_calendar_open(&plan->calendar, error));
    HW_TRY(plan_staleness(plan, error));
    HW_TRY(check_child_counts(plan, error));
    HW_TRY(check_time_split(plan, error));
    HW_TRY(plan_tables(plan, error));
    HW_TRY(hwi_plan_scales(plan, error));
    HW_TRY(hwi_plan_masked(plan, given, error));
    return hwi_plan_tasks(plan, given, error);
}

hw_status hwi_plan_open(hw_store *store, const hw_sampler_options *options, struct hwi_plan **plan,
                        hw_error *error) {
    hw_sampler_options given;
    HW_TRY(hwi_options_copy(options, &given, error));
    struct hwi_plan *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "the plan of a sampler", sizeof *made);
    }
    made->store = hw_store_retain(store);
    memset(made->offsets, 0xff, sizeof made->offsets); /* no array yet: the sample needs none */
    made->options = given;
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        made->visible_until[split] =
            given.visible_until == NULL ? INT64_MAX : given.visible_until[split];
    }
    if (given.time_split != NULL) {
        made->is_split_by_time = 1;
        memcpy(made->time_split, given.time_split, sizeof made->time_split);
    }
    made->options.tasks = NULL;
    made->options.task_weights = NULL;
    made->options.visible_until = NULL;
    made->options.time_split = NULL;
    made->options.seed_tables = NULL;
    made->has_fk_adj = given.layout == HW_LAYOUT_DENSE;
    hw_status status = decide(made, &given, error);
    if (status != HW_OK) {
        hwi_plan_close(made);
        return status;
    }
    *plan = made;
    return HW_OK;
}

static void close_table(struct hwi_table_plan *cells) {
    hwi_time_marks_release(&cells->marks);
    free(cells->columns);
    free(cells->stypes);
    free(cells->short_columns);
    free(cells->values);
    free(cells->null_bits);
    free(cells->lanes);
    free(cells->numeric_masks);
    free(cells->category_masks);
    free(cells->text_masks);
    free(cells->bool_masks);
    free(cells->value_masks);
    free(cells->time_cells);
    free(cells->text_cells);
    free(cells->maskable);
}

void hwi_plan_close(struct hwi_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (uint32_t t = 0; plan->tables != NULL && t < plan->store->info->table_count; t++) {
        close_table(&plan->tables[t]);
    }
    hwi_calendar_release(&plan->calendar);
    hwi_plan_tasks_release(plan);
    hwi_plan_masked_release(plan);
    free(plan->scales);
    free(plan->tables);
    free(plan->staging);
    free(plan->flat);
    hw_store_close(plan->store);
    free(plan);
}
