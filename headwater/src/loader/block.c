/* Blocks of a flat stream; see block.h. */
#include "loader/block.h"

#include <stdlib.h>

#include "batch/level.h"

static void free_block(struct hwi_block *block) {
    free(block->lengths);
    free(block->levelled);
    free(block);
}

static hw_status new_block(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                           struct hwi_block **block, hw_error *error) {
    uint64_t count = seeds->range.step_count * hwi_level_step(plan);
    struct hwi_block *made = calloc(1, sizeof *made);
    if (made == NULL || count > UINT32_MAX) {
        free(made);
        return hwi_no_memory(error, "a block of batches", count * sizeof *made->levelled);
    }
    made->range = seeds->range;
    made->range.place = 0;
    made->split = seeds->split;
    made->task = seeds->task;
    made->context_count = (uint32_t)count;
    made->lengths = calloc(count, sizeof *made->lengths);
    made->levelled = calloc(count, sizeof *made->levelled);
    if (made->lengths == NULL || made->levelled == NULL) {
        free_block(made);
        return hwi_no_memory(error, "a block of batches", count * sizeof *made->levelled);
    }
    *block = made;
    return HW_OK;
}

hw_status hwi_block_take(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                         struct hwi_block **kept, struct hwi_block **block, hw_error *error) {
    if (*kept == NULL || (*kept)->range.first_step != seeds->range.first_step) {
        struct hwi_block *made = NULL;
        HW_TRY(new_block(plan, seeds, &made, error));
        hwi_block_drop(*kept);
        made->user_count = 1;
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
    struct hwi_shard shard = hwi_order_shard(plan, block->split, block->task);
    return hwi_order_seed(plan, block->split, block->task, &shard,
                          hwi_block_position(plan, &block->range) + i);
}

hw_status hwi_block_level(const struct hwi_plan *plan, struct hwi_block *block, hw_error *error) {
    const struct hwi_flat_task *flat = &plan->flat[block->task];
    uint32_t rank;
    struct hwi_level_shape shape = {.steps = block->range.step_count,
                                    .parts = plan->options.level_parts,
                                    .ranks = hwi_level_ranks(plan, &rank),
                                    .each = plan->shape.batch_size,
                                    .step_cells = flat->step_cells,
                                    .step_rows = flat->step_rows,
                                    .cells = flat->shape.cells,
                                    .rows = flat->shape.rows};
    return hwi_level(block->lengths, &shape, block->levelled, error);
}

const struct hwi_levelled *hwi_block_batch(const struct hwi_plan *plan,
                                           const struct hwi_block *block,
                                           const struct hwi_block_range *range) {
    uint32_t rank, ranks = hwi_level_ranks(plan, &rank);
    size_t part = (size_t)range->place * ranks + rank;
    return block->levelled + part * plan->shape.batch_size;
}
