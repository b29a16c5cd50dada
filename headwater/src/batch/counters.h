/* What workers, and those who finish batches, count; the loader collects it. */
#ifndef HWI_COUNTERS_H
#define HWI_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

/* Nothing but uint64_t. */
struct hwi_counters {
    uint64_t sequences, cells, rows, walk_ns, emit_ns, text_ns, stopped_by_rows, texts_over_budget;
    uint64_t contexts_cut, contexts_dropped, cells_cut, packed_cells, packed_sequences;
    uint64_t padded_cells;
    uint64_t masked_cells, masked_over_limit, withheld_cells;
};

/* Adds counters to *sum and clears them. */
static inline void hwi_counters_take(struct hwi_counters *own, struct hwi_counters *sum) {
    uint64_t *counts = (uint64_t *)own, *sums = (uint64_t *)sum;
    for (size_t i = 0; i < sizeof *own / sizeof *counts; i++) {
        sums[i] += counts[i];
    }
    *own = (struct hwi_counters){0};
}

#endif
