/*
 * The cells of a context in the arrays of a batch, by one driver for both layouts. Dense has an
 * array for each of a cell's values. Compact has 11 bytes per cell: a byte of type and flags, its
 * column, one value lane and one word of calendar; docs/reference/batch.md, "Compact".
 */
#ifndef HWI_EMIT_CELLS_H
#define HWI_EMIT_CELLS_H

#include "batch/canvas.h"
#include "batch/emit_rows.h"

/* Positions of the cells of a sequence that hold texts, [S]. */
struct hwi_text_cells {
    uint16_t *cells;
    uint32_t count;
};

/* Writes all cells of sequence b, padding and target included, and lists its texts. HW_BAD_STORE if
 * a category or a label is out of range. */
HWI_CHECK hw_status hwi_emit_cells(const struct hwi_plan *plan, const struct hwi_context *context,
                                   struct hwi_canvas *canvas, uint8_t *slab, uint32_t b,
                                   const struct hwi_target *target, struct hwi_text_cells *texts,
                                   hw_error *error);
/* The cells of a sequence b that has none. */
void hwi_emit_no_cells(const struct hwi_plan *plan, uint8_t *slab, uint32_t b);
/* Makes a cell a target: its inputs hold nothing but what kind of cell it is. A text's number
 * stays, for hwi_masked_take_texts. */
void hwi_hide_cell(const struct hwi_plan *plan, struct hwi_canvas *canvas, uint8_t *slab,
                   uint32_t b, uint32_t position, uint8_t stype);

#endif
