/* A context into the arrays of a batch; see emit.h. */
#include "batch/emit.h"

#include "batch/attention_masks.h"
#include "batch/emit_cells.h"
#include "batch/emit_rows.h"
#include "batch/masked_cells.h"

/* The orders of cells, in the compact layout of rows, in the flat one none. */
static void emit_orders(const struct hwi_plan *plan, const struct hwi_context *context,
                        struct hwi_permuter *permuter, uint8_t *slab, uint32_t b) {
    if (plan->options.layout == HW_LAYOUT_FLAT) {
        return;
    }
    hwi_order_rows(permuter, context->row_count);
    if (hwi_is_compact(plan)) {
        size_t at = 2 * (size_t)b * plan->shape.max_rows;
        hwi_list_rows(permuter, context, hwi_field_at(plan, slab, HWI_ROW_ORDER, at));
    } else {
        size_t at = 2 * (size_t)b * plan->shape.sequence_length;
        hwi_permute_rows(permuter, context, hwi_field_at(plan, slab, HWI_OUT_PERM, at));
        hwi_permute_columns(permuter, context, hwi_field_at(plan, slab, HWI_COL_PERM, at));
    }
}

static void emit_masks(const struct hwi_plan *plan, const struct hwi_context *context,
                       uint8_t *slab, uint32_t b) {
    if (plan->options.attention_masks) {
        struct hwi_mask_span all = {.count = context->cell_count};
        hwi_masks_make(plan, slab, b, &all, 1, context->row_count);
    }
}

/* All but the cells, which are on the canvas or in the batch. */
static void emit_rest(const struct hwi_plan *plan, const struct hwi_context *context,
                      struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                      uint32_t b, const struct hwi_seed *seed, const struct hwi_target *target) {
    if (plan->offsets[HWI_TARGET_VALUES] != UINT64_MAX) {
        hwi_emit_target_beside(plan, context, slab, b, target);
    }
    hwi_emit_rows(plan, context, slab, b);
    hwi_emit_edges(plan, context, canvas, permuter, slab, b);
    hwi_canvas_copy_out(canvas, plan, slab, b);
    emit_orders(plan, context, permuter, slab, b);
    hwi_emit_scalars(plan, slab, b, seed, target, context->cell_count, context->row_count);
    emit_masks(plan, context, slab, b);
}

hw_status hwi_emit_sequence(const struct hwi_plan *plan, struct hwi_context *context,
                            struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                            uint32_t b, const struct hwi_seed *seed, uint16_t *text_cells,
                            uint32_t *text_cell_count, hw_error *error) {
    struct hwi_text_cells texts = {.cells = text_cells};
    struct hwi_target target;
    hwi_canvas_clear(canvas);
    HW_TRY(hwi_target_read(plan, seed, &target, error));
    HW_TRY(hwi_emit_cells(plan, context, canvas, slab, b, &target, &texts, error));
    *text_cell_count = texts.count;
    if (plan->mask_words > 0) {
        hwi_masked_emit(plan, context, canvas, slab, b);
    }
    emit_rest(plan, context, canvas, permuter, slab, b, seed, &target);
    return HW_OK;
}

void hwi_emit_nothing(const struct hwi_plan *plan, struct hwi_context *context,
                      struct hwi_canvas *canvas, struct hwi_permuter *permuter, uint8_t *slab,
                      uint32_t b) {
    struct hwi_target target = {.null = 1};
    context->row_count = context->cell_count = context->chosen.count =
        context->chosen.surplus_count = 0;
    hwi_canvas_clear(canvas);
    hwi_emit_no_cells(plan, slab, b);
    if (plan->mask_words > 0) {
        hwi_masked_clear(plan, slab, b);
    }
    emit_rest(plan, context, canvas, permuter, slab, b, NULL, &target);
}
