/*
 * The rows and cells that a seed may see: times against cutoffs, withheld cells, columns known
 * later. These are the rules of docs/reference/sampling.md, "Seeds and time"; the walk calls them
 * and decides none of it itself.
 */
#ifndef HWI_VISIBLE_H
#define HWI_VISIBLE_H

#include "plan/order.h"

/* What the walk of one seed may see, resolved once. */
struct hwi_view {
    const struct hwi_seed *seed;
    const struct hwi_task_plan *task;
    const struct hwi_task_info *info;
    int64_t until; /* T of the documentation */
    int64_t anchor_time;
    uint8_t anchor_timed, inclusive;
    uint8_t is_cell; /* the context begins at the anchor */
    uint8_t has_target_cell; /* of which one cell is the target */
};

/* stale_seconds: how much less than its cutoff the seed may see. */
void hwi_view_init(struct hwi_view *view, const struct hwi_plan *plan, const struct hwi_seed *seed,
                   uint32_t stale_seconds);
/* 1 if a time passes the cutoff for a row that is (not) a chain row. */
static inline int hwi_view_passes(const struct hwi_view *view, int64_t time_us, int chain) {
    if (view->until == INT64_MAX) {
        return 1;
    }
    return view->inclusive || chain ? time_us <= view->until : time_us < view->until;
}
/* 1 if the cell of `column` is withheld on a row; the target of a cell task counts as withheld on
 * the anchor. */
int hwi_view_withholds(const struct hwi_view *view, const struct hwi_plan *plan, uint32_t table,
                       uint32_t row, uint32_t column, int chain);
/* 1 if the cell's known-at time passes. */
int hwi_view_knows(const struct hwi_view *view, const struct hwi_plan *plan, uint32_t table,
                   uint32_t row, uint32_t column, int chain);

#endif
