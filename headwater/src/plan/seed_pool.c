/*
 * The seeds of a split in the hands of a trainer: which are left, and which come next. A pool is
 * the plan of a sampler without contexts: seed n of a task's shard is hwi_order_seed, the task of
 * batch k is hwi_order_task, so a sampler of the same options has the same seeds in the same order.
 *
 * Drawn together, the lists of all tasks are one list, in the order of the tasks, with one shard:
 *
 *     customers 0 2 3 | orders 1 2 4 7     `starts` 0 3 7: entry 4 is row 2 of orders
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "plan/open_plan.h"
#include "plan/options.h"
#include "plan/order.h"
#include "plan/tasks.h"
#include "store/store.h"

struct hw_seed_pool {
    struct hwi_plan *plan;
    hw_split split;
    uint32_t *label_columns; /* [task_count] of seed tables; HWI_NONE: none */
    struct hwi_shard *shards; /* [task_count]; together only the first counts */
    uint64_t *positions; /* [task_count] seeds drawn of the shard, over all epochs; together the
                            same of each task */
    uint64_t *starts; /* [task_count + 1] first entries of the tasks in the list of all, and their
                         end; NULL: tasks take turns */
    uint8_t has_turns; /* 1: options say how tasks take turns */
    uint64_t batch_count;
};

/* ---- labels ------------------------------------------------------------------------------- */

static double task_label(const hw_seeds *seeds, const struct hwi_task_info *info, uint32_t index) {
    if ((seeds->states[index] & 15) != HWI_LABEL_VALUE) {
        return NAN;
    }
    if (info->target_stype == HW_NUMERICAL) {
        double number;
        memcpy(&number, &seeds->targets[index], sizeof number);
        return number;
    }
    return info->target_stype == HW_TIMESTAMP ? (double)(int64_t)seeds->targets[index]
                                              : (double)seeds->targets[index];
}

/* NaN where the seed has none, or NULL. */
static hw_status read_label(const struct hw_seed_pool *pool, uint32_t t, uint32_t index,
                            double *label, hw_error *error) {
    const struct hwi_task_plan *task = &pool->plan->tasks[t];
    const hw_store *store = pool->plan->store;
    *label = NAN;
    if (task->seed_table == HWI_NONE) {
        *label = task_label(&store->seeds[task->task], task->info, index);
    } else if (pool->label_columns[t] != HWI_NONE) {
        uint32_t row = store->tables[task->seed_table].row_start + index;
        return hwi_store_number(store, row, pool->label_columns[t], label, error);
    }
    return HW_OK;
}

static hw_status keep_labelled(struct hw_seed_pool *pool, hw_error *error) {
    for (uint32_t t = 0; t < pool->plan->task_count; t++) {
        struct hwi_task_plan *task = &pool->plan->tasks[t];
        struct hwi_seed_list *list = &task->lists[pool->split];
        if (task->seed_table != HWI_NONE && pool->label_columns[t] == HWI_NONE) {
            continue;
        }
        uint32_t *kept = task->seed_storage + (list->seeds - task->seed_storage), count = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            double label = NAN;
            HW_TRY(read_label(pool, t, list->seeds[i], &label, error));
            kept[count] = list->seeds[i];
            count += isnan(label) ? 0 : 1;
        }
        list->count = count;
    }
    return HW_OK;
}

static hw_status read_label_columns(struct hw_seed_pool *pool, const uint32_t *columns,
                                    hw_error *error) {
    const hw_store *store = pool->plan->store;
    for (uint32_t t = 0; t < pool->plan->task_count; t++) {
        uint32_t column = columns == NULL ? HWI_NONE : columns[t];
        uint32_t table = pool->plan->tasks[t].seed_table;
        pool->label_columns[t] = column;
        if (column != HWI_NONE &&
            (column >= store->info->column_count || store->columns[column].table != table)) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "label_columns[%u] is %u, expected a column of seed table %u", t,
                            column, table);
        }
    }
    return HW_OK;
}

/* ---- open and close ----------------------------------------------------------------------- */

void hw_seed_pool_close(hw_seed_pool *pool) {
    if (pool != NULL) {
        hwi_plan_close(pool->plan);
        free(pool->label_columns);
        free(pool->shards);
        free(pool->positions);
        free(pool->starts);
        free(pool);
    }
}

static hw_status open_lists(struct hw_seed_pool *pool, const hw_sampler_options *options,
                            uint8_t require_label, const uint32_t *label_columns, hw_error *error) {
    size_t count = (size_t)pool->plan->task_count + 1;
    pool->label_columns = calloc(count, sizeof *pool->label_columns);
    pool->shards = calloc(count, sizeof *pool->shards);
    pool->positions = calloc(count, sizeof *pool->positions);
    if (pool->label_columns == NULL || pool->shards == NULL || pool->positions == NULL) {
        return hwi_no_memory(error, "a seed pool", count * 32);
    }
    HW_TRY(read_label_columns(pool, label_columns, error));
    if (require_label) {
        HW_TRY(keep_labelled(pool, error));
        HW_TRY(hwi_plan_schedule(pool->plan, options->task_weights, pool->split, error));
    }
    uint32_t task = 0;
    HW_TRY(hwi_order_task(pool->plan, pool->split, 0, &task, error));
    for (uint32_t t = 0; t < pool->plan->task_count; t++) {
        pool->shards[t] = hwi_order_shard(pool->plan, pool->split, t);
    }
    return HW_OK;
}

hw_status hw_seed_pool_open(hw_store *store, const hw_sampler_options *options, hw_split split,
                            uint8_t require_label, const uint32_t *label_columns,
                            hw_seed_pool **pool, hw_error *error) {
    HW_TRY(hwi_order_check_split(split, error));
    hw_sampler_options own;
    HW_TRY(hwi_options_copy(options, &own, error));
    own.shard = HW_SHARD_FIXED;
    own.objective = own.seed_tables == NULL ? HW_OBJECTIVE_TASK : HW_OBJECTIVE_MASKED_CELLS;
    struct hw_seed_pool *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a seed pool", sizeof *made);
    }
    made->split = split;
    made->has_turns = own.task_weights != NULL || own.task_order != HW_TASKS_WEIGHTED;
    hw_status status = hwi_plan_open(store, &own, &made->plan, error);
    if (status == HW_OK) {
        status = open_lists(made, &own, require_label, label_columns, error);
    }
    if (status != HW_OK) {
        hw_seed_pool_close(made);
        return status;
    }
    *pool = made;
    return HW_OK;
}

hw_status hw_seed_pool_together(hw_seed_pool *pool, hw_error *error) {
    uint32_t count = pool->plan->task_count;
    if (pool->has_turns) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "the seeds of all tasks are drawn together: leave out task_weights and "
                        "task_order, which say how tasks take turns");
    }
    uint64_t *starts = calloc((size_t)count + 1, sizeof *starts);
    if (starts == NULL) {
        return hwi_no_memory(error, "a seed pool", ((size_t)count + 1) * sizeof *starts);
    }
    for (uint32_t t = 0; t < count; t++) {
        starts[t + 1] = starts[t] + pool->plan->tasks[t].lists[pool->split].count;
    }
    if (starts[count] > UINT32_MAX) {
        hw_status status = hwi_fail(error, HW_BAD_ARGUMENT,
                                    "%llu seeds are drawn together, expected at most 2^32 - 1",
                                    (unsigned long long)starts[count]);
        free(starts);
        return status;
    }
    free(pool->starts);
    pool->starts = starts;
    return hw_seed_pool_keep(pool, 0, 1, UINT32_MAX, error);
}

/* ---- parts, counts and positions ---------------------------------------------------------- */

/* Lists that are shuffled each by itself. */
static uint32_t list_count(const struct hw_seed_pool *pool) {
    return pool->starts != NULL ? 1 : pool->plan->task_count;
}

static int is_drawn(const struct hw_seed_pool *pool, uint32_t list) {
    return pool->starts != NULL || pool->plan->tasks[list].active[pool->split];
}

/* Before hw_seed_pool_keep. */
static struct hwi_shard whole_shard(const struct hw_seed_pool *pool, uint32_t list) {
    if (pool->starts == NULL) {
        return hwi_order_shard(pool->plan, pool->split, list);
    }
    return hwi_order_part(pool->plan, (uint32_t)pool->starts[pool->plan->task_count]);
}

hw_status hw_seed_pool_keep(hw_seed_pool *pool, uint32_t first, uint32_t step, uint32_t most,
                            hw_error *error) {
    if (step == 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "step is 0, expected at least 1");
    }
    for (uint32_t i = 0; i < list_count(pool); i++) {
        struct hwi_shard shard = whole_shard(pool, i);
        uint32_t count = first < shard.count ? (shard.count - first - 1) / step + 1 : 0;
        uint64_t longer = (uint64_t)shard.step * step;
        pool->shards[i] = (struct hwi_shard){
            .first = count > 0 ? shard.first + first * shard.step : 0,
            .step = longer < UINT32_MAX ? (uint32_t)longer : UINT32_MAX, /* of one seed: unused */
            .count = count < most ? count : most,
        };
    }
    memset(pool->positions, 0, pool->plan->task_count * sizeof *pool->positions);
    pool->batch_count = 0;
    return HW_OK;
}

uint64_t hw_seed_pool_count(const hw_seed_pool *pool) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < list_count(pool); i++) {
        count += is_drawn(pool, i) ? pool->shards[i].count : 0;
    }
    return count;
}

uint64_t hw_seed_pool_remaining(const hw_seed_pool *pool) {
    uint64_t left = 0;
    for (uint32_t i = 0; i < list_count(pool); i++) {
        uint64_t count = pool->shards[i].count;
        if (count > 0 && is_drawn(pool, i)) {
            left += count - pool->positions[i] % count;
        }
    }
    return left;
}

void hw_seed_pool_get_position(const hw_seed_pool *pool, uint64_t *positions, uint64_t *batches) {
    hwi_plan_spread(pool->plan, pool->positions, positions);
    *batches = pool->batch_count;
}

void hw_seed_pool_set_position(hw_seed_pool *pool, const uint64_t *positions, uint64_t batches) {
    for (uint32_t t = 0; t < pool->plan->task_count; t++) {
        pool->positions[t] = positions[pool->plan->tasks[t].task];
    }
    pool->batch_count = batches;
}

/* ---- drawing ------------------------------------------------------------------------------ */

/* The task that has an entry of the list of all. */
static uint32_t task_of_entry(const struct hw_seed_pool *pool, uint32_t entry) {
    uint32_t task = 0, end = pool->plan->task_count;
    while (end - task > 1) {
        uint32_t middle = task + (end - task) / 2;
        if (pool->starts[middle] <= entry) {
            task = middle;
        } else {
            end = middle;
        }
    }
    return task;
}

static struct hwi_seed seed_at(const struct hw_seed_pool *pool, uint32_t list, uint64_t position) {
    const struct hwi_shard *shard = &pool->shards[list];
    if (pool->starts == NULL) {
        return hwi_order_seed(pool->plan, pool->split, list, shard, position);
    }
    uint32_t entry = hwi_order_entry(pool->plan, pool->split, HWI_NONE, shard, position);
    uint32_t task = task_of_entry(pool, entry);
    const struct hwi_seed_list *seeds = &pool->plan->tasks[task].lists[pool->split];
    uint32_t index = seeds->seeds[entry - pool->starts[task]];
    return hwi_task_seed(pool->plan, task, index, (uint32_t)(position / shard->count));
}

static hw_status put_seed(const struct hw_seed_pool *pool, uint32_t list, uint64_t position,
                          uint32_t i, const hw_drawn_seeds *drawn, hw_error *error) {
    struct hwi_seed seed = seed_at(pool, list, position);
    if (drawn->tasks != NULL) {
        drawn->tasks[i] = pool->plan->tasks[seed.task].task;
    }
    drawn->seeds[i] = seed.index;
    drawn->epochs[i] = seed.epoch;
    drawn->rows[i] = seed.anchor;
    drawn->obs_times[i] = seed.obs_time;
    return read_label(pool, seed.task, seed.index, &drawn->labels[i], error);
}

hw_status hw_seed_pool_next(hw_seed_pool *pool, uint32_t count, const hw_drawn_seeds *drawn,
                            uint32_t *task, uint32_t *taken, hw_error *error) {
    uint32_t list = 0;
    hw_drawn_seeds into;
    HW_TRY(HWI_TAKE(hw_drawn_seeds, drawn, &into, error));
    if (pool->starts == NULL) {
        HW_TRY(hwi_order_task(pool->plan, pool->split, pool->batch_count, &list, error));
    } else if (into.tasks == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "hw_drawn_seeds.tasks is NULL, expected an array, as the seeds of all "
                        "tasks are drawn together");
    }
    uint64_t first = pool->positions[list], last = 0, own = pool->shards[list].count;
    if (own > 0 && (__builtin_add_overflow(first, count, &last) || last > own << 32)) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "position %llu is past the last epoch, 2^32 - 1",
                        (unsigned long long)first);
    }
    *task = pool->starts != NULL ? HWI_NONE : pool->plan->tasks[list].task;
    *taken = own > 0 ? count : 0;
    for (uint32_t i = 0; i < *taken; i++) {
        HW_TRY(put_seed(pool, list, first + i, i, &into, error));
    }
    for (uint32_t t = 0; t < pool->plan->task_count; t++) {
        pool->positions[t] += pool->starts != NULL || t == list ? *taken : 0;
    }
    pool->batch_count++;
    return HW_OK;
}
