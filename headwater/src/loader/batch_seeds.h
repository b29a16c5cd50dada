/*
 * Streams: which seeds make batch n. A stream is endless (train, val: it runs on from epoch to
 * epoch and switches between tasks by the schedule) or finite (a pass: one epoch of one task or of
 * all in turn, seeds of a task that the caller chose, or seeds that the caller made). Everything
 * here is arithmetic on the plan: no threads, no queues.
 */
#ifndef HWI_BATCH_SEEDS_H
#define HWI_BATCH_SEEDS_H

#include "base/error.h"
#include "plan/plan.h"

/* Seeds of one batch on this rank: sequence (with packing, context) i < sequence_count is the seed
 * at position first + i * step of its shard; the others are empty. */
struct hwi_batch_seeds {
    uint32_t task; /* index into plan->tasks */
    uint32_t sequence_count;
    uint64_t first;
    uint32_t step;
    const struct hwi_pass_plan *given; /* the caller's seeds, or NULL: those of the split */
    hw_split split;
};
struct hwi_seed hwi_stream_seed(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                                uint32_t i);

/* ---- endless ----------------------------------------------------------------------------- */

/* Batch of schedule slot k whose task stands at global position `position`; empty if this rank has
 * no seeds. HW_BAD_ARGUMENT past the last epoch that has a number. */
HWI_CHECK hw_status hwi_stream_endless(const struct hwi_plan *plan, hw_split split, uint32_t task,
                                       uint64_t position, struct hwi_batch_seeds *seeds,
                                       hw_error *error);
/* Global positions that a batch of all ranks consumes. */
uint64_t hwi_stream_step(const struct hwi_plan *plan);

/* ---- passes ------------------------------------------------------------------------------ */

/* A task's part of a pass. */
struct hwi_pass_part {
    uint32_t task; /* index into plan->tasks */
    uint32_t count; /* seeds over all ranks */
    uint64_t batch_end; /* batches of this part and of those before it */
};

struct hwi_pass_plan {
    hw_split split;
    uint32_t index; /* epoch */
    struct hwi_pass_part *parts; /* [part_count] */
    uint32_t part_count;
    uint64_t batch_count;
    /* [parts[0].count] each, if the caller gave the seeds, else NULL: */
    uint32_t *anchors; /* of ad-hoc seeds */
    int64_t *obs_times; /* of them */
    uint32_t *chosen; /* seeds of the task, all of them this rank's */
    uint32_t *epochs; /* of them */
};

/* One epoch of a task (the store's number), or with UINT32_MAX of every selected one that has
 * seeds; HW_BAD_TASK if there are none. An all-zero plan may be released. */
HWI_CHECK hw_status hwi_pass_plan_epoch(const struct hwi_plan *plan, hw_split split, uint32_t task,
                                        uint32_t index, struct hwi_pass_plan *pass,
                                        hw_error *error);
/* Seeds given by the caller, copied. */
HWI_CHECK hw_status hwi_pass_plan_seeds(const struct hwi_plan *plan, uint32_t task,
                                        const uint32_t *anchors, const int64_t *obs_times,
                                        uint32_t count, struct hwi_pass_plan *pass,
                                        hw_error *error);
/* Seeds of a task by their numbers, copied; epochs NULL: all 0. */
HWI_CHECK hw_status hwi_pass_plan_chosen(const struct hwi_plan *plan, uint32_t task,
                                         const uint32_t *seeds, const uint32_t *epochs,
                                         uint32_t count, struct hwi_pass_plan *pass,
                                         hw_error *error);
void hwi_pass_plan_release(struct hwi_pass_plan *pass);
/* Batch n < batch_count. */
struct hwi_batch_seeds hwi_stream_pass(const struct hwi_plan *plan,
                                       const struct hwi_pass_plan *pass, uint64_t n);

/* Index into plan->tasks of a task of the store; HW_BAD_ARGUMENT if it is not selected. */
HWI_CHECK hw_status hwi_stream_task(const struct hwi_plan *plan, uint32_t store_task,
                                    uint32_t *task, hw_error *error);

#endif
