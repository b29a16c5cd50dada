/*
 * Attention masks made here instead of by the model: for each pair of cells, may the first attend
 * to the second. Made from the finished arrays of a sequence, whatever its layout; O(S^2).
 */
#ifndef HWI_ATTENTION_MASKS_H
#define HWI_ATTENTION_MASKS_H

#include "plan/plan.h"

/* Cells [first, first + count) that see nothing outside: a sequence, or a segment of a packed one.
 */
struct hwi_mask_span {
    uint32_t first, count;
};

/* Writes column_mask, feature_mask, neighbor_mask and padding_mask of sequence b from its columns,
 * row_starts and edges. The spans follow one another from cell 0; what is behind them is padding.
 */
void hwi_masks_make(const struct hwi_plan *plan, uint8_t *slab, uint32_t b,
                    const struct hwi_mask_span *spans, uint32_t span_count, uint32_t row_count);

#endif
