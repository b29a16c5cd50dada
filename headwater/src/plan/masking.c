/*
 * What a sampler that masks cells decides once: which cells may be chosen at all, which are labels
 * that no loss and no context may have, and the seeds that are rows of tables. One pass over the
 * seeds of the cell tasks, and one over the rows of seed tables.
 */
#include "plan/masking.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/known_labels.h"
#include "plan/seed_lists.h"
#include "store/described.h"
#include "store/hashed_split.h"

#define DEFAULT_MASK_RATIO 0.15

/* ---- options ----------------------------------------------------------------------------- */

static hw_status check_masked(struct hwi_plan *plan, hw_error *error) {
    hw_sampler_options *options = &plan->options;
    int is_masked = options->objective == HW_OBJECTIVE_MASKED_CELLS;
    if (is_masked && options->mask_ratio == 0) {
        options->mask_ratio = DEFAULT_MASK_RATIO;
    }
    if (options->mask_ratio > 0 && options->packing) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "mask_ratio is %g, expected 0 with packing: its lists of masked cells are "
                        "by sequence",
                        options->mask_ratio);
    }
    if (options->max_targets_per_type > options->sequence_length ||
        (options->max_targets_per_type > 0 && options->mask_ratio == 0)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "max_targets_per_type is %u, expected at most sequence_length, %u, and "
                        "none without mask_ratio",
                        options->max_targets_per_type, options->sequence_length);
    }
    if (is_masked && options->label_rows > 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "label_rows is %u, contexts of masked cells have no label rows",
                        options->label_rows);
    }
    if (is_masked && options->peer_labels > 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "peer_labels is %u, contexts of masked cells have no label rows",
                        options->peer_labels);
    }
    plan->mask_words = (uint64_t)floor(options->mask_ratio * 4294967296.0 + 0.5);
    return HW_OK;
}

static hw_status check_seed_tables(const struct hwi_plan *plan, const hw_sampler_options *options,
                                   hw_error *error) {
    if (options->seed_tables == NULL) {
        return HW_OK;
    }
    if (hwi_is_task_objective(plan) || options->tasks != NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "seed_tables go with the objective 'masked_cells' and without tasks");
    }
    if (options->seed_table_count == 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "seed_tables is empty, expected tables");
    }
    return HW_OK;
}

/* ---- labels ------------------------------------------------------------------------------ */

/* The bits of a column, one for each row of its table; NULL where there is no memory. */
static uint64_t *bits_of(uint64_t **maps, uint32_t column, uint32_t row_count) {
    if (maps[column] == NULL) {
        maps[column] = calloc((size_t)row_count / 64 + 1, sizeof(uint64_t));
    }
    return maps[column];
}

/* Marks the labels of a cell task: those of val and test, and those that contexts may not show. */
static hw_status mark_labels(struct hwi_plan *plan, uint32_t task, hw_error *error) {
    const struct hwi_task_info *info = &plan->store->tasks[task];
    const struct hwi_table_info *table = plan->store->tables[info->anchor_table].info;
    const hw_seeds *seeds = &plan->store->seeds[task];
    hw_context_labels rule = hwi_label_rule(plan, info);
    int is_hiding = rule != HW_LABELS_ALL && !hwi_is_task_objective(plan);
    uint64_t *held_out = bits_of(plan->held_out, info->target_column, table->row_count);
    uint64_t *hidden = held_out; /* a task of its own hides them by its own list */
    if (is_hiding) {
        hidden = bits_of(plan->hidden_labels, info->target_column, table->row_count);
    }
    if (held_out == NULL || hidden == NULL) {
        return hwi_no_memory(error, "the labels of a cell task", table->row_count / 8);
    }
    for (uint32_t i = 0; i < seeds->count; i++) {
        uint32_t row = seeds->anchors[i] - table->row_start;
        uint8_t split = 0;
        if (row >= table->row_count) {
            return hwi_fail(error, HW_BAD_STORE,
                            "seed %u of task %u has anchor row %u, outside its table", i, task,
                            seeds->anchors[i]);
        }
        HW_TRY(hwi_seed_split(plan, task, i, &split, error));
        uint64_t bit = (uint64_t)1 << (row % 64);
        held_out[row / 64] |= split != HW_TRAIN ? bit : 0;
        int is_hidden = is_hiding && (rule == HW_LABELS_NONE || split != HW_TRAIN);
        hidden[row / 64] |= is_hidden ? bit : 0;
    }
    return HW_OK;
}

static hw_status mark_all_labels(struct hwi_plan *plan, hw_error *error) {
    size_t columns = (size_t)plan->store->info->column_count + 1;
    plan->held_out = calloc(columns, sizeof *plan->held_out);
    plan->hidden_labels = calloc(columns, sizeof *plan->hidden_labels);
    if (plan->held_out == NULL || plan->hidden_labels == NULL) {
        return hwi_no_memory(error, "the labels of the columns", columns * sizeof(uint64_t *));
    }
    for (uint32_t task = 0; task < plan->store->info->task_count; task++) {
        if (plan->store->tasks[task].flags & HWI_TASK_CELL) {
            HW_TRY(mark_labels(plan, task, error));
        }
    }
    return HW_OK;
}

/* ---- cells ------------------------------------------------------------------------------- */

/* Columns whose value stands elsewhere in a context: times that row_ages or child counts say, and
 * both ends of foreign keys. */
static void mark_keys_and_times(const hw_store *store, const struct hwi_described *described,
                                uint8_t *is_kept) {
    for (uint32_t t = 0; t < store->info->table_count; t++) {
        if (store->tables[t].info->temporal_column != HWI_NONE) {
            is_kept[store->tables[t].info->temporal_column] = 1;
        }
    }
    for (uint32_t k = 0; k < store->info->key_count; k++) {
        for (uint32_t i = 0; i < store->keys[k].column_count; i++) {
            uint32_t place = store->keys[k].column_start + i;
            uint32_t column = store->key_columns[place];
            is_kept[column] = 1;
            if (described->parent_columns[place] != HWI_NONE) {
                is_kept[described->parent_columns[place]] = 1;
            }
            if (store->columns[column].known_kind == HWI_KNOWN_COLUMN) {
                is_kept[store->columns[column].known_column] = 1;
            }
        }
    }
}

static hw_status mark_cells(struct hwi_plan *plan, hw_error *error) {
    const hw_store *store = plan->store;
    const struct hwi_described *described = NULL;
    HW_TRY(hwi_store_described(store, &described, error));
    uint8_t *is_kept = calloc((size_t)store->info->column_count + 1, 1);
    hw_status status = HW_OK;
    if (is_kept == NULL) {
        return hwi_no_memory(error, "the columns that are never masked", store->info->column_count);
    }
    mark_keys_and_times(store, described, is_kept);
    for (uint32_t t = 0; t < store->info->table_count && status == HW_OK; t++) {
        struct hwi_table_plan *cells = &plan->tables[t];
        cells->maskable = calloc((size_t)cells->all_count + 1, 1);
        if (cells->maskable == NULL) {
            status = hwi_no_memory(error, "the plan of a table", cells->all_count);
            break;
        }
        for (uint32_t c = 0; c < cells->all_count; c++) {
            cells->maskable[c] = cells->stypes[c] != HW_IDENTIFIER && !is_kept[cells->columns[c]];
        }
    }
    free(is_kept);
    return status;
}

hw_status hwi_plan_masked(struct hwi_plan *plan, const hw_sampler_options *options,
                          hw_error *error) {
    HW_TRY(check_masked(plan, error));
    HW_TRY(check_seed_tables(plan, options, error));
    if (plan->mask_words == 0) {
        return HW_OK;
    }
    HW_TRY(mark_all_labels(plan, error));
    return mark_cells(plan, error);
}

static void free_maps(uint64_t **maps, uint32_t count) {
    for (uint32_t i = 0; maps != NULL && i < count; i++) {
        free(maps[i]);
    }
    free(maps);
}

void hwi_plan_masked_release(struct hwi_plan *plan) {
    free_maps(plan->held_out, plan->store->info->column_count);
    free_maps(plan->hidden_labels, plan->store->info->column_count);
}

/* ---- seeds that are rows ----------------------------------------------------------------- */

/* The split of a row, HW_SPLIT_NONE where it is no seed: without a time where its table has times,
 * or later than what its split may see. */
static uint8_t split_of_row(const struct hwi_plan *plan, const struct hwi_table *table,
                            uint32_t row, uint64_t name_hash) {
    uint64_t key_hash = 0;
    if (table->key_hashes != NULL) {
        key_hash = table->key_hashes[row];
    } else {
        uint8_t number[8] = {(uint8_t)row, (uint8_t)(row >> 8), (uint8_t)(row >> 16),
                             (uint8_t)(row >> 24)};
        key_hash = hw_hash64(number, sizeof number, 0);
    }
    uint8_t split = hwi_hashed_split(&plan->options, key_hash, name_hash);
    int64_t asked = plan->visible_until[split];
    if (table->times != NULL) {
        asked = table->times[row];
        if (asked == INT64_MIN || asked == INT64_MAX) {
            return HW_SPLIT_NONE;
        }
    }
    split = hwi_dealt_split(plan, split, asked, INT64_MIN);
    int is_late = split != HW_SPLIT_NONE && asked > plan->visible_until[split];
    return table->times != NULL && is_late ? HW_SPLIT_NONE : split;
}

hw_status hwi_plan_seed_table(const struct hwi_plan *plan, uint32_t table,
                              struct hwi_task_plan *task, hw_error *error) {
    const struct hwi_table *rows = &plan->store->tables[table];
    const struct hwi_name name = rows->info->name;
    task->task = plan->store->info->task_count + table;
    task->seed_table = table;
    task->row_info = (struct hwi_task_info){
        .name = name,
        .flags = HWI_TASK_EXCLUSIVE,
        .anchor_table = table,
        .target_column = HWI_NONE,
        .obs_time_column = HWI_NONE,
        .seed_count = rows->row_count,
        .name_hash = hw_hash64(plan->store->names + name.offset, name.bytes, 0),
    };
    task->info = &task->row_info;
    HW_TRY(hwi_task_lists_open(task, error));
    for (uint32_t row = 0; row < rows->row_count; row++) {
        task->splits[row] = split_of_row(plan, rows, row, task->row_info.name_hash);
    }
    hwi_task_lists_deal(task);
    return HW_OK;
}
