/*
 * Order: which seed a position holds, and which task a batch trains. Nothing is shuffled or stored:
 * an epoch is a keyed permutation, computed where it is needed, so a run resumes at any position in
 * O(1) and every rank agrees without a message. docs/reference/sampling.md, "Order", is the exact
 * text.
 */
#include "plan/order.h"

#include <assert.h>

#include "base/error.h"
#include "base/rng.h"

enum { FEISTEL_ROUNDS = 8 };

hw_status hwi_order_check_split(hw_split split, hw_error *error) {
    if ((unsigned)split >= HW_SPLIT_COUNT) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "split is %d, expected 0 (train) to 2 (test)",
                        (int)split);
    }
    return HW_OK;
}

uint32_t hwi_permute(uint64_t key, uint32_t count, uint32_t index) {
    assert(index < count);
    uint32_t half = 1; /* bits of each side: 4^half >= count */
    while (half < 16 && ((uint64_t)1 << (2 * half)) < count) {
        half++;
    }
    uint64_t mask = ((uint64_t)1 << half) - 1, value = index;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t mixed = left ^ (hwi_mix(key ^ (round << 32 | right)) & mask);
            left = right;
            right = mixed;
        }
        value = left << half | right;
    } while (value >= count);
    return (uint32_t)value;
}

struct hwi_seed hwi_task_seed(const struct hwi_plan *plan, uint32_t task, uint32_t index,
                              uint32_t epoch) {
    const struct hwi_task_plan *task_plan = &plan->tasks[task];
    uint32_t split = task_plan->splits[index];
    struct hwi_seed seed = {.task = task, .split = split, .epoch = epoch, .index = index};
    if (task_plan->seed_table == HWI_NONE) {
        const hw_seeds *seeds = &plan->store->seeds[task_plan->task];
        seed.anchor = seeds->anchors[index];
        seed.obs_time = seeds->obs_times[index];
    } else {
        const struct hwi_table *table = &plan->store->tables[task_plan->seed_table];
        seed.anchor = table->row_start + index;
        seed.obs_time = table->times != NULL ? table->times[index] : plan->visible_until[split];
    }
    return seed;
}

struct hwi_shard hwi_order_list(const struct hwi_plan *plan, hw_split split, uint32_t task) {
    return (struct hwi_shard){.step = 1, .count = plan->tasks[task].lists[split].count};
}

struct hwi_shard hwi_order_shard(const struct hwi_plan *plan, hw_split split, uint32_t task) {
    return hwi_order_part(plan, plan->tasks[task].lists[split].count);
}

struct hwi_shard hwi_order_part(const struct hwi_plan *plan, uint32_t count) {
    uint32_t rank = plan->options.rank, world = plan->options.world_size;
    if (plan->options.shard == HW_SHARD_DEALT) {
        return (struct hwi_shard){.step = 1, .count = count};
    }
    return (struct hwi_shard){
        .first = rank,
        .step = world,
        .count = rank < count ? (count - rank - 1) / world + 1 : 0,
    };
}

uint32_t hwi_order_entry(const struct hwi_plan *plan, hw_split split, uint32_t task,
                         const struct hwi_shard *shard, uint64_t position) {
    assert(shard->count > 0);
    uint64_t epoch = position / shard->count;
    uint64_t key = hwi_key(plan->options.seed, HWI_KEY_EPOCH, (uint64_t)split << 32 | task,
                           (uint64_t)shard->first << 32 | epoch);
    uint32_t place = hwi_permute(key, shard->count, (uint32_t)(position % shard->count));
    return shard->first + place * shard->step;
}

struct hwi_seed hwi_order_seed(const struct hwi_plan *plan, hw_split split, uint32_t task,
                               const struct hwi_shard *shard, uint64_t position) {
    const struct hwi_task_plan *task_plan = &plan->tasks[task];
    uint32_t entry = hwi_order_entry(plan, split, task_plan->task, shard, position);
    uint32_t index = task_plan->lists[split].seeds[entry];
    return hwi_task_seed(plan, task, index, (uint32_t)(position / shard->count));
}

/* The task that owns a slot of a block. */
static uint32_t slot_task(const struct hwi_plan *plan, hw_split split, uint32_t slot) {
    uint32_t task = 0;
    while (plan->schedule[split][task + 1] <= slot) {
        task++;
    }
    return task;
}

static uint32_t scheduled_task(const struct hwi_plan *plan, hw_split split, uint64_t block,
                               uint32_t place) {
    uint64_t key = hwi_key(plan->options.seed, HWI_KEY_SCHEDULE, (uint64_t)split, block);
    return slot_task(plan, split, hwi_permute(key, HWI_SCHEDULE_BLOCK, place));
}

/* Round robin: tasks with seeds in turn; the n-th of them. */
static uint32_t turn_task(const struct hwi_plan *plan, hw_split split, uint64_t turn) {
    uint32_t task = 0;
    for (;; task++) {
        if (plan->tasks[task].active[split] && turn-- == 0) {
            return task;
        }
    }
}

hw_status hwi_order_task(const struct hwi_plan *plan, hw_split split, uint64_t k, uint32_t *task,
                         hw_error *error) {
    static const char *const names[HW_SPLIT_COUNT] = {"train", "val", "test"};
    uint32_t active = plan->active_tasks[split];
    if (active == 0) {
        return hwi_fail(error, HW_BAD_TASK,
                        "split '%s' has no seeds in any of the %u selected tasks", names[split],
                        plan->task_count);
    }
    if (plan->options.task_order == HW_TASKS_ROUND_ROBIN) {
        *task = turn_task(plan, split, k % active);
    } else {
        *task =
            scheduled_task(plan, split, k / HWI_SCHEDULE_BLOCK, (uint32_t)(k % HWI_SCHEDULE_BLOCK));
    }
    return HW_OK;
}

uint64_t hwi_order_task_batches(const struct hwi_plan *plan, hw_split split, uint64_t k,
                                uint32_t task) {
    uint32_t active = plan->active_tasks[split];
    if (!plan->tasks[task].active[split]) {
        return 0;
    }
    if (active == 1) {
        return k;
    }
    if (plan->options.task_order == HW_TASKS_ROUND_ROBIN) {
        uint64_t rounds = k / active, rest = k % active, before = 0;
        for (uint32_t other = 0; other < task; other++) {
            before += plan->tasks[other].active[split];
        }
        return rounds + (before < rest);
    }
    const uint32_t *schedule = plan->schedule[split];
    uint64_t block = k / HWI_SCHEDULE_BLOCK;
    uint64_t count = block * (schedule[task + 1] - schedule[task]);
    for (uint32_t place = 0; place < k % HWI_SCHEDULE_BLOCK; place++) {
        count += scheduled_task(plan, split, block, place) == task;
    }
    return count;
}
