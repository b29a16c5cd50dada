/* Seeds dealt into splits; see seed_lists.h. */
#include "plan/seed_lists.h"

#include <stdlib.h>

#include "base/error.h"
#include "store/hashed_split.h"

/* The split of a seed of train under `time_split`. Where the task does not say when labels are
 * known, that of an earlier seed is. */
static uint8_t split_by_time(const int64_t *time_split, int64_t asked, int64_t known) {
    int64_t from = time_split[0], until = time_split[1];
    if (asked >= from) {
        return asked < until ? HW_VAL : HW_SPLIT_NONE;
    }
    return known <= from ? HW_TRAIN : HW_SPLIT_NONE;
}

uint8_t hwi_dealt_split(const struct hwi_plan *plan, uint8_t split, int64_t asked, int64_t known) {
    if (plan->options.train_on_val && split == HW_VAL) {
        split = HW_TRAIN;
    }
    if (!plan->is_split_by_time) {
        return split;
    }
    return split == HW_TRAIN ? split_by_time(plan->time_split, asked, known) : HW_SPLIT_NONE;
}

hw_status hwi_seed_split(const struct hwi_plan *plan, uint32_t task, uint32_t seed, uint8_t *split,
                         hw_error *error) {
    const hw_seeds *seeds = &plan->store->seeds[task];
    *split = seeds->states[seed] >> 4;
    if (*split == HWI_SPLIT_HASHED) {
        *split = hwi_hashed_split(&plan->options, seeds->key_hashes[seed],
                                  plan->store->tasks[task].name_hash);
    } else if (*split >= HW_SPLIT_COUNT) {
        return hwi_fail(error, HW_BAD_STORE, "seed %u of task %u has split %u, expected 0 to 2",
                        seed, task, *split);
    }
    int64_t known = seeds->label_times == NULL ? INT64_MIN : seeds->label_times[seed];
    *split = hwi_dealt_split(plan, *split, seeds->obs_times[seed], known);
    return HW_OK;
}

hw_status hwi_task_lists_open(struct hwi_task_plan *task, hw_error *error) {
    size_t count = task->info->seed_count;
    task->splits = malloc(count + 1);
    task->seed_storage = malloc((count + 1) * sizeof(uint32_t));
    if (task->splits == NULL || task->seed_storage == NULL) {
        return hwi_no_memory(error, "the splits of the seeds", (uint64_t)count * 5);
    }
    return HW_OK;
}

void hwi_task_lists_deal(struct hwi_task_plan *task) {
    uint32_t counts[HW_SPLIT_COUNT + 1] = {0}; /* the last: in no split */
    uint32_t count = task->info->seed_count;
    uint32_t *next[HW_SPLIT_COUNT], *start = task->seed_storage;
    for (uint32_t i = 0; i < count; i++) {
        counts[task->splits[i]]++;
    }
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        task->lists[split] = (struct hwi_seed_list){.seeds = start, .count = counts[split]};
        next[split] = start;
        start += counts[split];
    }
    for (uint32_t i = 0; i < count; i++) {
        if (task->splits[i] != HW_SPLIT_NONE) {
            *next[task->splits[i]]++ = i;
        }
    }
}
