/* Blocks of flat batches; see block.h. */
#include "loader/block.h"

#include <stdlib.h>

static void free_block(struct hwi_block *block) {
    free(block->lengths);
    free(block->levelled);
    free(block);
}

/* How the contexts of a batch's block are dealt. A batch of a pass is a block of its own, and
 * this rank's alone. */
static struct hwi_level_shape shape_of(const struct hwi_plan *plan,
                                       const struct hwi_batch_seeds *seeds) {
    const struct hwi_flat_task *flat = &plan->flat[seeds->task];
    struct hwi_level_shape shape = {.steps = seeds->range.step_count,
                                    .parts = 1,
                                    .ranks = 1,
                                    .each = seeds->sequence_count,
                                    .step_cells = UINT32_MAX,
                                    .step_rows = UINT32_MAX,
                                    .cells = flat->shape.cells,
                                    .rows = flat->shape.rows};
    if (seeds->given == NULL) {
        uint32_t rank;
        shape.parts = plan->options.level_parts;
        shape.ranks = hwi_level_ranks(plan, &rank);
        shape.step_cells = flat->step_cells;
        shape.step_rows = flat->step_rows;
    }
    return shape;
}

static hw_status new_block(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                           struct hwi_block **block, hw_error *error) {
    struct hwi_level_shape shape = shape_of(plan, seeds);
    uint64_t count = (uint64_t)shape.steps * shape.parts * shape.ranks * shape.each;
    uint64_t room = count < plan->shape.batch_size ? plan->shape.batch_size : count;
    struct hwi_block *made = calloc(1, sizeof *made);
    if (made == NULL || count > UINT32_MAX) {
        free(made);
        return hwi_no_memory(error, "a block of batches", count * sizeof *made->levelled);
    }
    made->seeds = *seeds;
    made->seeds.range.place = 0;
    made->shape = shape;
    made->context_count = (uint32_t)count;
    made->lengths = calloc(count, sizeof *made->lengths);
    made->levelled = calloc(room, sizeof *made->levelled);
    if (made->lengths == NULL || made->levelled == NULL) {
        free_block(made);
        return hwi_no_memory(error, "a block of batches", room * sizeof *made->levelled);
    }
    made->user_count = 1;
    *block = made;
    return HW_OK;
}

hw_status hwi_block_take(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                         struct hwi_block **kept, struct hwi_block **block, hw_error *error) {
    if (seeds->given != NULL) {
        return new_block(plan, seeds, block, error);
    }
    if (*kept == NULL || (*kept)->seeds.range.first_step != seeds->range.first_step) {
        struct hwi_block *made = NULL;
        HW_TRY(new_block(plan, seeds, &made, error));
        hwi_block_drop(*kept);
        *kept = made;
    }
    (*kept)->user_count++;
    *block = *kept;
    return HW_OK;
}

void hwi_block_drop(struct hwi_block *block) {
    if (block != NULL && --block->user_count == 0) {
        free_block(block);
    }
}

struct hwi_seed hwi_block_seed(const struct hwi_plan *plan, const struct hwi_block *block,
                               uint32_t i) {
    const struct hwi_batch_seeds *seeds = &block->seeds;
    if (seeds->given != NULL) {
        return hwi_stream_seed(plan, seeds, i);
    }
    struct hwi_shard shard = hwi_order_shard(plan, seeds->split, seeds->task);
    return hwi_order_seed(plan, seeds->split, seeds->task, &shard,
                          hwi_block_position(plan, &seeds->range) + i);
}

hw_status hwi_block_level(struct hwi_block *block, hw_error *error) {
    return hwi_level(block->lengths, &block->shape, block->levelled, error);
}

const struct hwi_levelled *hwi_block_batch(const struct hwi_plan *plan,
                                           const struct hwi_block *block,
                                           const struct hwi_block_range *range) {
    uint32_t rank;
    hwi_level_ranks(plan, &rank);
    size_t part = (size_t)range->place * block->shape.ranks + rank % block->shape.ranks;
    return block->levelled + part * block->shape.each;
}
