/*
 * What emission has in common whatever the layout: rows that show all their table's first cells are
 * written in runs of eight cells, by what the table's rows share, over the row's end where there is
 * room: what lies behind belongs to the next row or to the padding, and is written after.
 */
#ifndef HWI_EMIT_FRAME_H
#define HWI_EMIT_FRAME_H

#include <string.h>

#include "base/error.h"
#include "walk/walk.h"

/* Positions of the cells of a sequence that hold texts, [S]. */
struct hwi_text_cells {
    uint16_t *cells;
    uint32_t count;
};

/* 1 if the row may be written in runs of eight. */
static inline int hwi_frame_fits(const struct hwi_plan *plan, const struct hwi_visit *visit,
                                 const struct hwi_table_plan *cells) {
    return visit->list == HWI_NONE && visit->cell_count == cells->cell_count &&
           visit->cell_start + (cells->cell_count + 7) / 8 * 8 <= plan->shape.sequence_length;
}

/* Nulls of the eight cells from k, a multiple of 8, as bytes of 0 or 1. */
static inline uint64_t hwi_frame_nulls(const struct hwi_table_plan *cells, const uint8_t *nulls,
                                       uint32_t k) {
    uint64_t spread = 0;
    if (!cells->nulls_in_order) {
        for (uint32_t i = 0; i < 8 && k + i < cells->cell_count; i++) {
            spread |= (uint64_t)hwi_is_null_cell(cells, nulls, k + i) << (8 * i);
        }
        return spread;
    }
    spread = (nulls[k / 8] * UINT64_C(0x0101010101010101)) & UINT64_C(0x8040201008040201);
    return ((spread + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7) & UINT64_C(0x0101010101010101);
}

static inline hw_status hwi_frame_bad_category(const struct hwi_plan *plan,
                                               const struct hwi_visit *visit, hw_error *error) {
    return hwi_fail(error, HW_BAD_STORE,
                    "row %u holds a category outside the store's %u; run `headwater verify`",
                    visit->row, plan->store->info->category_count);
}

#endif
