/*
 * Cutoffs: rows of a table are in time order, so what a seed may see of it is "row < cutoff".
 */
#ifndef HWI_CUTOFF_H
#define HWI_CUTOFF_H

#include "walk/walk.h"

/* The latest time of a row that passes (as no chain row); INT64_MIN: no such row has a time. */
int64_t hwi_newest_visible(struct hwi_walk *walk);
/* First row of the table that does not pass (for rows that are no chain rows), global. */
uint32_t hwi_cutoff_find(const struct hwi_walk *walk, uint32_t table);

/* The same, found on first touch. */
static inline uint32_t hwi_cutoff(struct hwi_walk *walk, uint32_t table) {
    struct hwi_cutoff *cutoff = &walk->cutoffs[table];
    if (cutoff->stamp != walk->cutoff_stamp) {
        cutoff->stamp = walk->cutoff_stamp;
        cutoff->row = hwi_cutoff_find(walk, table);
    }
    return cutoff->row;
}

#endif
