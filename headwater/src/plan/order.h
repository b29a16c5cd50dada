/* Order: positions to seeds. */
#ifndef HWI_ORDER_H
#define HWI_ORDER_H

#include "plan/plan.h"

/* HW_BAD_ARGUMENT unless it is one of the three. */
HWI_CHECK hw_status hwi_order_check_split(hw_split split, hw_error *error);
/* The selected task (index into plan->tasks) of batch k of a split's stream; HW_BAD_TASK if the
 * split has no seeds in any task. */
HWI_CHECK hw_status hwi_order_task(const struct hwi_plan *plan, hw_split split, uint64_t k,
                                   uint32_t *task, hw_error *error);
/* How many of the batches [0, k) are of that task. */
uint64_t hwi_order_task_batches(const struct hwi_plan *plan, hw_split split, uint64_t k,
                                uint32_t task);

/* What one sequence is made from. */
struct hwi_seed {
    uint32_t task; /* index into plan->tasks */
    uint32_t split; /* hw_split, or HWI_SPLIT_AD_HOC */
    uint32_t epoch;
    uint32_t index; /* seed within the task (stored order), or position in an ad-hoc list */
    uint32_t anchor; /* global row */
    int64_t obs_time;
};
/* A seed of a task by its number, which is less than their count, in an epoch of its split. */
struct hwi_seed hwi_task_seed(const struct hwi_plan *plan, uint32_t task, uint32_t index,
                              uint32_t epoch);
/* The seeds of a list that are shuffled together in each epoch: its entries first, first + step,
 * ... */
struct hwi_shard {
    uint32_t first, step, count;
};
/* What this rank's positions count: its own entries with fixed shards, else the whole list. */
struct hwi_shard hwi_order_shard(const struct hwi_plan *plan, hw_split split, uint32_t task);
/* The same of any list of `count` entries. */
struct hwi_shard hwi_order_part(const struct hwi_plan *plan, uint32_t count);
/* The whole list. */
struct hwi_shard hwi_order_list(const struct hwi_plan *plan, hw_split split, uint32_t task);
/* The entry of a list at a position of a shard of it, which is not empty: position / count is the
 * epoch. task: the store's number of the task that has the list; HWI_NONE: a list of all tasks. */
uint32_t hwi_order_entry(const struct hwi_plan *plan, hw_split split, uint32_t task,
                         const struct hwi_shard *shard, uint64_t position);
/* The seed there. */
struct hwi_seed hwi_order_seed(const struct hwi_plan *plan, hw_split split, uint32_t task,
                               const struct hwi_shard *shard, uint64_t position);

/* Keyed permutation of [0, count): where `index` goes. count >= 1, index < count. */
uint32_t hwi_permute(uint64_t key, uint32_t count, uint32_t index);

#endif
