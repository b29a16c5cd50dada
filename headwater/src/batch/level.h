/*
 * Levelling: contexts of different lengths dealt to batches of nearly equal ones. Longest first,
 * each goes to the emptiest batch that has a place left (Graham 1969, "longest processing time"),
 * and within a batch in the same way to the ranks. The differences that remain are those of the
 * means of whole blocks. docs/reference/batch.md, "Flat".
 */
#ifndef HWI_LEVEL_H
#define HWI_LEVEL_H

#include "base/error.h"
#include "batch/flat.h"

/* How a block of contexts becomes batches. */
struct hwi_level_shape {
    uint32_t steps; /* of the block */
    uint32_t parts, ranks, each; /* batches of a step, ranks of a batch, contexts of a rank */
    uint32_t step_cells, step_rows; /* of a step, at most; UINT32_MAX: any */
    uint32_t cells, rows; /* of a rank's part of a batch, at most */
};

/* Ranks that share the batches of a stream, and which this one is: 1 and 0 with fixed shards. */
uint32_t hwi_level_ranks(const struct hwi_plan *plan, uint32_t *rank);
/* Contexts of a step: of level_parts batches of these ranks. */
uint64_t hwi_level_step(const struct hwi_plan *plan);

/*
 * Deals a block's contexts, lengths [steps · parts · ranks · each]: levelled, of as many, are those
 * of rank 0 in the first batch of step 0, of rank 1 in it, ..., each by their places in the block.
 * Where they would be too long, the longest are shortened, by no more than half at once.
 */
HWI_CHECK hw_status hwi_level(const struct hwi_length *lengths, const struct hwi_level_shape *shape,
                              struct hwi_levelled *levelled, hw_error *error);

#endif
