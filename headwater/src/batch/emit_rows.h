/*
 * What every layout has beside its cells: the truth, rows, edges, and the figures of a sequence.
 */
#ifndef HWI_EMIT_ROWS_H
#define HWI_EMIT_ROWS_H

#include "base/error.h"
#include "batch/canvas.h"
#include "batch/cell_order.h"
#include "walk/context.h"

/* The truth of a seed. */
struct hwi_target {
    uint8_t labelled, null;
    uint64_t value;
};
/* HW_BAD_STORE if it is out of range. */
HWI_CHECK hw_status hwi_target_read(const struct hwi_plan *plan, const struct hwi_seed *seed,
                                    struct hwi_target *target, hw_error *error);
/* The same of a label row. */
HWI_CHECK hw_status hwi_label_read(const struct hwi_plan *plan, const struct hwi_context *context,
                                   const struct hwi_visit *visit, struct hwi_target *label,
                                   hw_error *error);
/* A numerical target as a z-score. */
float hwi_target_z(const hw_target_stats *stats, uint64_t bits);
/* target_values and target_is_null. */
void hwi_emit_target_beside(const struct hwi_plan *plan, const struct hwi_context *context,
                            uint8_t *slab, uint32_t b, const struct hwi_target *target);
/* row_ages, row_starts, row_tables; row_depths and row_ids where wanted. */
void hwi_emit_rows(const struct hwi_plan *plan, const struct hwi_context *context, uint8_t *slab,
                   uint32_t b);
/* The edges of fk_adj on the canvas, parents, and the pairs of rows for permuter. */
void hwi_emit_edges(const struct hwi_plan *plan, const struct hwi_context *context,
                    struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                    uint32_t b);
/* What a sequence has once; seed NULL: an empty one. */
void hwi_emit_scalars(const struct hwi_plan *plan, uint8_t *slab, uint32_t b,
                      const struct hwi_seed *seed, const struct hwi_target *target,
                      uint32_t cell_count, uint32_t row_count);

#endif
