/*
 * The compact layout: the same context as the dense one in 11 bytes per cell and, per row, its
 * parents, its place in the row order and what dense has too. A cell is a byte of type and flags,
 * its column, one value lane and one word of calendar; docs/3-batch.md, "Compact".
 */
#ifndef HWI_EMIT_COMPACT_H
#define HWI_EMIT_COMPACT_H

#include "batch/emit_frame.h"
#include "batch/emit_rows.h"

/* Writes all cells of sequence b, padding and target included, and lists its texts. HW_BAD_STORE if
 * a category is out of range. */
HWI_CHECK hw_status hwi_emit_compact(const struct hwi_plan *plan, const struct hwi_walk *walk,
                                     uint8_t *slab, uint32_t b, const struct hwi_target *target,
                                     struct hwi_text_cells *texts, hw_error *error);
/* The cells of a sequence b that has none. */
void hwi_emit_compact_nothing(const struct hwi_plan *plan, uint8_t *slab, uint32_t b);

#endif
