/*
 * The tasks of a plan: seeds dealt into splits, labels that contexts may not show, columns
 * withheld, the scale of targets, and how many batches of a block are each task's. One pass over
 * the seeds.
 */
#include "plan/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/moments.h"
#include "plan/known_labels.h"
#include "plan/masking.h"
#include "plan/scales.h"
#include "plan/seed_lists.h"

static hw_status deal_seeds(const struct hwi_plan *plan, struct hwi_task_plan *task,
                            hw_error *error) {
    HW_TRY(hwi_task_lists_open(task, error));
    for (uint32_t i = 0; i < task->info->seed_count; i++) {
        HW_TRY(hwi_seed_split(plan, task->task, i, &task->splits[i], error));
    }
    hwi_task_lists_deal(task);
    return HW_OK;
}

/* ---- labels and withheld columns ---------------------------------------------------------- */

/* Marks the anchors whose own target cell other contexts may not show. A foreign key that is asked
 * for has no marks, as no row shows it: HW_BAD_TASK if labels of it should be shown. */
static hw_status mark_labels(const struct hwi_plan *plan, struct hwi_task_plan *task,
                             hw_error *error) {
    const struct hwi_task_info *info = &plan->store->tasks[task->task];
    const struct hwi_table_info *table = plan->store->tables[info->anchor_table].info;
    const hw_seeds *seeds = &plan->store->seeds[task->task];
    hw_context_labels labels = hwi_label_rule(plan, info);
    if (!(info->flags & HWI_TASK_CELL) || !hwi_is_task_objective(plan)) { /* masking.c */
        return HW_OK;
    }
    task->asks_for_key = (uint8_t)hwi_asks_for_key(plan->store, info);
    if (task->asks_for_key && labels != HW_LABELS_NONE) {
        char name[128];
        return hwi_fail(error, HW_BAD_TASK,
                        "task '%s' predicts a foreign key and context_labels is '%s', expected "
                        "'none': how many rows still point at each row would tell the answer "
                        "(an older build of the store has 'train' there: build it again)",
                        hwi_store_name(plan->store, info->name, name, sizeof name),
                        labels == HW_LABELS_ALL ? "all" : "train");
    }
    if (labels == HW_LABELS_ALL || task->asks_for_key) {
        return HW_OK;
    }
    size_t words = (size_t)table->row_count / 64 + 1;
    task->label_hidden = calloc(words, sizeof(uint64_t));
    if (task->label_hidden == NULL) {
        return hwi_no_memory(error, "the labels of a cell task", words * sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < seeds->count; i++) {
        uint32_t row = seeds->anchors[i] - table->row_start;
        if (row >= table->row_count) {
            return hwi_fail(error, HW_BAD_STORE,
                            "seed %u of task %u has anchor row %u, outside "
                            "its table",
                            i, task->task, seeds->anchors[i]);
        }
        if (labels == HW_LABELS_NONE || task->splits[i] != HW_TRAIN) {
            task->label_hidden[row / 64] |= (uint64_t)1 << (row % 64);
        }
    }
    return HW_OK;
}

/* Tables and keys that hold a hidden column or the target of a cell task. */
static hw_status mark_special(const struct hwi_plan *plan, struct hwi_task_plan *task,
                              hw_error *error) {
    const hw_store *store = plan->store;
    const struct hwi_task_info *info = task->info;
    uint32_t column_count = store->info->column_count;
    task->special_tables = calloc((size_t)store->info->table_count + 1, 1);
    task->special_keys = calloc((size_t)store->info->key_count + 1, 1);
    task->special_columns = calloc((size_t)column_count + 1, 1);
    if (task->special_tables == NULL || task->special_keys == NULL ||
        task->special_columns == NULL) {
        return hwi_no_memory(error, "the withheld columns of a task", column_count);
    }
    for (uint32_t i = 0; i < info->hidden_count; i++) {
        task->special_columns[store->hidden[info->hidden_start + i]] = HWI_SPECIAL_HIDDEN;
    }
    if ((info->flags & HWI_TASK_CELL) && hwi_is_task_objective(plan)) {
        task->special_columns[info->target_column] |= HWI_SPECIAL_TARGET;
    }
    for (uint32_t column = 0; column < column_count; column++) {
        if (!hwi_is_task_objective(plan) && plan->hidden_labels[column] != NULL) {
            task->special_columns[column] |= HWI_SPECIAL_LABELS;
        }
        if (task->special_columns[column] && store->columns[column].table != HWI_NONE) {
            task->special_tables[store->columns[column].table] = 1;
        }
    }
    for (uint32_t k = 0; k < store->info->key_count; k++) {
        for (uint32_t i = 0; i < store->keys[k].column_count; i++) {
            task->special_keys[k] |=
                task->special_columns[store->key_columns[store->keys[k].column_start + i]];
        }
        task->hides_edges |=
            (task->special_keys[k] & (HWI_SPECIAL_TARGET | HWI_SPECIAL_HIDDEN)) != 0;
    }
    return HW_OK;
}

/* ---- targets ------------------------------------------------------------------------------ */

static double target_number(const hw_seeds *seeds, const struct hwi_task_info *info, uint32_t i) {
    if (info->target_stype == HW_NUMERICAL) {
        double number;
        memcpy(&number, &seeds->targets[i], sizeof number);
        return number;
    }
    return info->target_stype == HW_BOOLEAN ? (double)(seeds->targets[i] != 0) : 0;
}

/* Moments of the train labels, in stored order. */
static void measure_target(const struct hwi_plan *plan, struct hwi_task_plan *task) {
    const struct hwi_task_info *info = &plan->store->tasks[task->task];
    const hw_seeds *seeds = &plan->store->seeds[task->task];
    const struct hwi_seed_list *train = &task->lists[HW_TRAIN];
    hw_target_stats *stats = &task->stats;
    struct hwi_moments moments = {0};
    for (uint32_t i = 0; i < train->count; i++) {
        uint8_t state = seeds->states[train->seeds[i]] & 15;
        stats->null_count += state == HWI_LABEL_NULL;
        if (state == HWI_LABEL_VALUE) {
            hwi_moments_add(&moments, target_number(seeds, info, train->seeds[i]));
        }
    }
    stats->train_count = moments.count + stats->null_count;
    hwi_moments_result(&moments, &stats->mean, &stats->std);
    int is_cell = (info->flags & HWI_TASK_CELL) != 0;
    stats->column_mean = stats->mean;
    stats->column_std = stats->std;
    if (is_cell) {
        hwi_column_scale(plan, info->target_column, &stats->column_mean, &stats->column_std);
    }
}

/* ---- the schedule ------------------------------------------------------------------------- */

/* Largest remainder: how many batches of each block a task gets. */
hw_status hwi_plan_schedule(struct hwi_plan *plan, const double *weights, hw_split split,
                            hw_error *error) {
    uint32_t count = plan->task_count, given = 0;
    uint32_t *schedule = calloc((size_t)count + 1, sizeof *schedule);
    double *rests = calloc((size_t)count + 1, sizeof *rests);
    free(plan->schedule[split]);
    plan->schedule[split] = schedule;
    plan->active_tasks[split] = 0;
    if (schedule == NULL || rests == NULL) {
        free(rests);
        return hwi_no_memory(error, "the schedule", count * sizeof *rests);
    }
    double sum = 0;
    for (uint32_t t = 0; t < count; t++) {
        double weight = weights == NULL ? 1 : weights[t];
        plan->tasks[t].active[split] = weight > 0 && plan->tasks[t].lists[split].count > 0;
        plan->active_tasks[split] += plan->tasks[t].active[split];
        sum += plan->tasks[t].active[split] ? weight : 0;
    }
    for (uint32_t t = 0; t < count; t++) {
        double share = 0;
        if (plan->tasks[t].active[split]) {
            share = (weights == NULL ? 1 : weights[t]) / sum * HWI_SCHEDULE_BLOCK;
        }
        schedule[t + 1] = (uint32_t)share;
        rests[t] = plan->tasks[t].active[split] ? share - floor(share) : -1;
        given += schedule[t + 1];
    }
    while (plan->active_tasks[split] > 0 && given < HWI_SCHEDULE_BLOCK) {
        uint32_t best = 0;
        for (uint32_t t = 1; t < count; t++) {
            best = rests[t] > rests[best] ? t : best;
        }
        rests[best] = -1;
        schedule[best + 1]++;
        given++;
    }
    for (uint32_t t = 0; t < count; t++) {
        schedule[t + 1] += schedule[t];
    }
    free(rests);
    return HW_OK;
}

/* ---- all of it ---------------------------------------------------------------------------- */

/* Numbers that a caller gives: distinct, ascending, below `total`. */
static hw_status check_numbers(const char *name, const uint32_t *numbers, uint32_t count,
                               uint32_t total, hw_error *error) {
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] >= total || (i > 0 && numbers[i] <= numbers[i - 1])) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "%s[%u] is %u, expected distinct ascending numbers below %u", name, i,
                            numbers[i], total);
        }
    }
    return HW_OK;
}

static hw_status select_tables(struct hwi_plan *plan, const hw_sampler_options *options,
                               hw_error *error) {
    HW_TRY(check_numbers("seed_tables", options->seed_tables, options->seed_table_count,
                         plan->store->info->table_count, error));
    for (uint32_t i = 0; i < options->seed_table_count; i++) {
        HW_TRY(hwi_plan_seed_table(plan, options->seed_tables[i], &plan->tasks[plan->task_count++],
                                   error));
    }
    return HW_OK;
}

static hw_status select_tasks(struct hwi_plan *plan, const hw_sampler_options *options,
                              hw_error *error) {
    uint32_t total = plan->store->info->task_count;
    uint32_t count = options->tasks == NULL ? total : options->task_count;
    if (options->tasks != NULL) {
        HW_TRY(check_numbers("tasks", options->tasks, count, total, error));
    }
    for (uint32_t i = 0; i < count; i++) {
        struct hwi_task_plan *task = &plan->tasks[plan->task_count++];
        task->task = options->tasks == NULL ? i : options->tasks[i];
        task->seed_table = HWI_NONE;
        task->info = &plan->store->tasks[task->task];
        HW_TRY(deal_seeds(plan, task, error));
        HW_TRY(mark_labels(plan, task, error));
        HW_TRY(hwi_known_labels_open(plan, task, error));
        measure_target(plan, task);
    }
    return HW_OK;
}

hw_status hwi_plan_tasks(struct hwi_plan *plan, const hw_sampler_options *options,
                         hw_error *error) {
    const struct hwi_store_info *info = plan->store->info;
    plan->tasks = calloc((size_t)info->task_count + info->table_count + 1, sizeof *plan->tasks);
    if (plan->tasks == NULL) {
        return hwi_no_memory(error, "the plan of the tasks", sizeof *plan->tasks);
    }
    HW_TRY(options->seed_tables != NULL ? select_tables(plan, options, error)
                                        : select_tasks(plan, options, error));
    for (uint32_t t = 0; t < plan->task_count; t++) {
        struct hwi_task_plan *task = &plan->tasks[t];
        if (options->task_weights != NULL &&
            !(options->task_weights[t] >= 0 && options->task_weights[t] <= 1e12)) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "task_weights[%u] is %g, expected 0 to 1e12", t,
                            options->task_weights[t]);
        }
        HW_TRY(mark_special(plan, task, error));
    }
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        HW_TRY(hwi_plan_schedule(plan, options->task_weights, (hw_split)split, error));
    }
    return HW_OK;
}

void hwi_plan_spread(const struct hwi_plan *plan, const uint64_t *values, uint64_t *spread) {
    const struct hwi_store_info *info = plan->store->info;
    uint32_t more = plan->options.seed_table_count > 0 ? info->table_count : 0;
    memset(spread, 0, ((size_t)info->task_count + more) * sizeof *spread);
    for (uint32_t t = 0; t < plan->task_count; t++) {
        spread[plan->tasks[t].task] = values[t];
    }
}

static void close_task(struct hwi_task_plan *task) {
    free(task->seed_storage);
    free(task->splits);
    free(task->label_hidden);
    free(task->known_labels);
    free(task->special_tables);
    free(task->special_keys);
    free(task->special_columns);
}

void hwi_plan_tasks_release(struct hwi_plan *plan) {
    for (uint32_t t = 0; plan->tasks != NULL && t < plan->task_count; t++) {
        close_task(&plan->tasks[t]);
    }
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        free(plan->schedule[split]);
    }
    free(plan->tasks);
}
