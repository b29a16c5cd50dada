/*
 * Cutoffs: rows of a table are in time order, so what a seed may see of it is "row < cutoff".
 */
#ifndef HWI_CUTOFF_H
#define HWI_CUTOFF_H

#include "plan/plan.h"
#include "walk/visible.h"

struct hwi_cutoffs {
    struct hwi_cutoff {
        uint32_t stamp, row;
    } *found; /* [tables] found on first touch, kept while the next seed has the same */
    uint32_t stamp;
};

/* First row of the table that does not pass (for rows that are no chain rows), global. */
uint32_t hwi_cutoff_find(const struct hwi_plan *plan, const struct hwi_view *view, uint32_t table);

/* The same, found on first touch. */
static inline uint32_t hwi_cutoff(struct hwi_cutoffs *cutoffs, const struct hwi_plan *plan,
                                  const struct hwi_view *view, uint32_t table) {
    struct hwi_cutoff *cutoff = &cutoffs->found[table];
    if (cutoff->stamp != cutoffs->stamp) {
        cutoff->stamp = cutoffs->stamp;
        cutoff->row = hwi_cutoff_find(plan, view, table);
    }
    return cutoff->row;
}

/* The latest time of a row that passes (as no chain row); INT64_MIN: no such row has a time. */
int64_t hwi_newest_visible(struct hwi_cutoffs *cutoffs, const struct hwi_plan *plan,
                           const struct hwi_view *view);

#endif
