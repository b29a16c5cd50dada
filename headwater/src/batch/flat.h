/*
 * The flat layout: the contexts of a batch side by side in one row of cells. They are made as ever,
 * one to a sequence, in a staging slab that belongs to the batch's scratch (plan->staging is its
 * plan); then one thread lays them out, in the order of their seeds.
 *
 *     staging  a a a . . .   b b b b . .   c c . . . .        batch_size sequences of S
 *     flat     a a a b b b b c c . . .                        N cells
 *
 * docs/reference/batch.md, "Flat".
 */
#ifndef HWI_FLAT_H
#define HWI_FLAT_H

#include "plan/plan.h"

struct hwi_counters; /* counters.h */

/* What a context takes of a batch. */
struct hwi_length {
    uint32_t cells, rows;
    int is_capped; /* the walk ended at S or R, whatever of its cells was dropped then */
};

/* A context of a batch: its place in the block that was levelled, and how much is kept. */
struct hwi_levelled {
    uint32_t place;
    struct hwi_length limit; /* whole rows, up to so many rows and cells */
};

/* Sizes of a flat batch, and what it keeps of its contexts. */
struct hwi_flat_sizes {
    uint32_t cells, rows; /* N, R_n: at most those of plan->shape */
    const struct hwi_levelled *contexts; /* [batch_size]; NULL: all of each is kept */
};

/* Lays the staged contexts out in `slab`, all of whose arrays are written; adds what was cut to the
 * counters. The caller sees to it that the contexts, cut to their limits, have room; one that does
 * not loses more rows. */
void hwi_flatten(const struct hwi_plan *plan, uint8_t *staging, uint8_t *slab,
                 const struct hwi_flat_sizes *sizes, struct hwi_counters *counters);

#endif
