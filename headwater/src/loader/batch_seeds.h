/*
 * Streams: which seeds make batch n. A stream is endless (train, val: it runs on from epoch to
 * epoch and switches between tasks by the schedule) or finite (a pass: one epoch of one task or of
 * all in turn, seeds of a task that the caller chose, or seeds that the caller made). Everything
 * here is arithmetic on the plan: no threads, no queues.
 */
#ifndef HWI_BATCH_SEEDS_H
#define HWI_BATCH_SEEDS_H

#include "base/error.h"
#include "batch/flat.h"
#include "plan/order.h"

/* Steps of a task's stream that are levelled together (batch/level.h): those of an epoch in equal
 * parts of about level_block. A step is level_parts batches of each rank. */
struct hwi_block_range {
    uint64_t first_step; /* of the task's steps */
    uint32_t step_count; /* 0: batches are not levelled */
    uint32_t place; /* of one of the block's batches on this rank */
};

/* Seeds of one batch on this rank: sequence (with packing, context) i < sequence_count is the seed
 * at position first + i * step of its shard; the others are empty. */
struct hwi_batch_seeds {
    uint32_t task; /* index into plan->tasks */
    uint32_t sequence_count;
    uint64_t first;
    uint32_t step;
    const struct hwi_pass_plan *given; /* the caller's seeds, or NULL: those of the split */
    hw_split split;
    int is_filled; /* flat: its sizes are those of passes */
    struct hwi_block_range range; /* flat, of a stream or a levelled pass */
    const struct hwi_levelled *levelled; /* [sequence_count] of the block, which lives as long as
                                            the batch is made; NULL: not levelled, or not yet */
};
struct hwi_seed hwi_stream_seed(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                                uint32_t i);

/* ---- endless ----------------------------------------------------------------------------- */

/* Batch of schedule slot k whose task stands at global position `position`; empty if this rank has
 * no seeds. HW_BAD_ARGUMENT past the last epoch that has a number. */
HWI_CHECK hw_status hwi_stream_endless(const struct hwi_plan *plan, hw_split split, uint32_t task,
                                       uint64_t position, struct hwi_batch_seeds *seeds,
                                       hw_error *error);
/* A flat stream: position, in the shard, of the first context of a block. */
uint64_t hwi_block_position(const struct hwi_plan *plan, const struct hwi_block_range *range);
/* N and R_n of a flat batch, and what it keeps. */
struct hwi_flat_sizes hwi_stream_sizes(const struct hwi_plan *plan,
                                       const struct hwi_batch_seeds *seeds);
/* Global positions that a batch of all ranks consumes. */
uint64_t hwi_stream_step(const struct hwi_plan *plan);

/* ---- passes ------------------------------------------------------------------------------ */

/* A task's part of a pass. */
struct hwi_pass_part {
    uint32_t task; /* index into plan->tasks */
    uint32_t count; /* seeds over all ranks */
    uint64_t batch_end; /* batches of this part and of those before it */
};

/* A flat batch of a pass. */
struct hwi_pass_batch {
    uint32_t first, count; /* of this rank's seeds of the part */
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
    struct hwi_pass_batch *batches; /* [batch_count] flat and filled (pass_fill.h), else NULL; flat
                                       and NULL: each batch is levelled by itself */
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
/* This rank's seeds of a part, as a batch of no more than all of them. */
struct hwi_batch_seeds hwi_pass_part_seeds(const struct hwi_plan *plan,
                                           const struct hwi_pass_plan *pass, uint32_t part);
void hwi_pass_plan_release(struct hwi_pass_plan *pass);
/* Batch n < batch_count. */
struct hwi_batch_seeds hwi_stream_pass(const struct hwi_plan *plan,
                                       const struct hwi_pass_plan *pass, uint64_t n);

/* Index into plan->tasks of a task of the store; HW_BAD_ARGUMENT if it is not selected. */
HWI_CHECK hw_status hwi_stream_task(const struct hwi_plan *plan, uint32_t store_task,
                                    uint32_t *task, hw_error *error);

#endif
