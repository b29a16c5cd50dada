/*
 * Emission: a walked context straight into the memory of its batch. Every byte of the sequence's
 * place is written, whatever stood there before, except the vectors of texts: cells of texts hold
 * the store's numbers until texts.c makes them local.
 */
#ifndef HWI_EMIT_H
#define HWI_EMIT_H

#include "base/error.h"
#include "batch/canvas.h"
#include "batch/cell_order.h"
#include "walk/context.h"

/* Emits the context of `seed` as sequence b; text_cells[S] receives the
 * positions of its texts that are not NULL. HW_BAD_STORE if a category or a target is out of range.
 */
HWI_CHECK hw_status hwi_emit_sequence(const struct hwi_plan *plan, struct hwi_context *context,
                                      struct hwi_canvas *canvas, struct hwi_permuter *permuter,
                                      uint8_t *slab, uint32_t b, const struct hwi_seed *seed,
                                      uint16_t *text_cells, uint32_t *text_cell_count,
                                      hw_error *error);
/* A place without a seed: an empty context, emitted. */
void hwi_emit_nothing(const struct hwi_plan *plan, struct hwi_context *context,
                      struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                      uint32_t b);

#endif
