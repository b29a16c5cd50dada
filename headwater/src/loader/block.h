/*
 * Blocks: flat batches of a task whose contexts are levelled together (batch/level.h), those of a
 * stream, or one batch of a levelled pass. The contexts of a block are walked for their lengths
 * first, by many threads as parts of the first job that needs the block, or by the calling thread;
 * then one thread deals them to batches.
 */
#ifndef HWI_BLOCK_H
#define HWI_BLOCK_H

#include "batch/level.h"
#include "loader/batch_seeds.h"

/* The sampler's mutex guards all but `lengths`, whose entries are of whoever walks for them, and
 * `levelled`, which is constant once is_levelled. */
struct hwi_block {
    struct hwi_batch_seeds seeds; /* of its first batch; constant, as is the shape */
    struct hwi_level_shape shape;
    uint32_t context_count; /* of all ranks that share its batches */
    uint32_t user_count; /* jobs that hold it, and the stream or sampler that keeps it */
    int is_begun, is_levelled; /* is_begun: a job has its contexts as parts */
    struct hwi_length *lengths; /* [context_count] */
    struct hwi_levelled *levelled; /* [context_count], and empty ones to a whole batch */
};

/* The block of a batch, with one more user. For a stream *kept, if it is that one; else a new one
 * takes its place there. For a pass a new one, which nobody keeps. */
HWI_CHECK hw_status hwi_block_take(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                                   struct hwi_block **kept, struct hwi_block **block,
                                   hw_error *error);
/* One user less; NULL: nothing. */
void hwi_block_drop(struct hwi_block *block);
/* Context i of a block. */
struct hwi_seed hwi_block_seed(const struct hwi_plan *plan, const struct hwi_block *block,
                               uint32_t i);
/* Deals the contexts, whose lengths are known, to batches. */
HWI_CHECK hw_status hwi_block_level(struct hwi_block *block, hw_error *error);
/* What this rank has of the batch of `range` of a levelled block, [batch_size]; it lives as long as
 * the block. */
const struct hwi_levelled *hwi_block_batch(const struct hwi_plan *plan,
                                           const struct hwi_block *block,
                                           const struct hwi_block_range *range);

#endif
