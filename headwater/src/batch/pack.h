/*
 * Packing: several contexts in one sequence. The contexts of a batch are made as ever, one to a
 * sequence, in a staging slab that belongs to the batch's scratch (plan->staging is its plan, of
 * sequences of the shape of a context); then one thread places them, in the order of their seeds,
 * each into the first sequence that has room.
 *
 *     staging  a a a .   b b b b   c c . .     contexts_per_batch sequences of context_length
 *     packed   a a a c c .   b b b b . .       batch_size sequences of sequence_length
 *
 * A context that has room nowhere is cut: it goes where most of its cells can stay, and keeps a
 * prefix of them. One that cannot even keep the cells up to its target is dropped. Both are
 * counted. Where a context lands depends on its batch-mates; what it holds, unless it is cut, does
 * not.
 */
#ifndef HWI_PACK_H
#define HWI_PACK_H

#include "base/error.h"
#include "batch/attention_masks.h"
#include "plan/plan.h"

struct hwi_counters; /* counters.h */

/* What a sequence of a batch holds so far. */
struct hwi_fit {
    uint32_t cells, rows, contexts;
};
/* Adds a context to the first of fits[B] with room for all of it; HWI_NONE if there is none. */
uint32_t hwi_fit_add(struct hwi_fit *fits, const hw_shape *shape, uint32_t cell_count,
                     uint32_t row_count);

/* Where a context went: a run of cells and one of rows of a sequence. */
struct hwi_place {
    uint32_t sequence; /* HWI_NONE: dropped */
    uint32_t segment; /* from 0 */
    uint32_t cell_start, cell_count;
    uint32_t row_start, row_count;
};

/* Scratch of one batch. */
struct hwi_packing {
    struct hwi_place *places; /* [contexts_per_batch] */
    struct hwi_mask_span *spans; /* [B, contexts_per_sequence] cells of the segments */
    struct hwi_fit *fits; /* [B] */
};
HWI_CHECK hw_status hwi_packing_open(const struct hwi_plan *plan, struct hwi_packing **packing,
                                     hw_error *error);
void hwi_packing_close(struct hwi_packing *packing);

/* Packs the first `context_count` finished contexts of the staging slab into `slab`, all of whose
 * arrays are written; adds to the counters of what was packed. */
void hwi_pack(const struct hwi_plan *plan, struct hwi_packing *packing, uint8_t *staging,
              uint8_t *slab, uint32_t context_count, struct hwi_counters *counters);

/* Copies what a batch asks, and its texts, from a staging slab. */
void hwi_copy_question(const struct hwi_plan *plan, uint8_t *staging, uint8_t *slab);

#endif
