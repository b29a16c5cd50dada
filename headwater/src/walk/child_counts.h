/*
 * What a context says of the children it does not hold: for each foreign key that points at a
 * visited row, how many of its children the seed may see, and how old the last and the first are.
 * Three cells behind the row's own, with columns of their own; docs/reference/sampling.md, "Child
 * counts".
 */
#ifndef HWI_CHILD_COUNTS_H
#define HWI_CHILD_COUNTS_H

#include "plan/plan.h"

struct hwi_walk;

/* What stands in the cells of one (visited row, foreign key). */
struct hwi_tally {
    uint32_t last, first; /* while it is made: global rows of the children whose times are read */
    float values[HWI_TALLY_CELLS]; /* 0 where NULL */
    uint8_t is_null[HWI_TALLY_CELLS];
};

struct hwi_tallies {
    struct hwi_tally *all; /* of each row that has them, in local order, by key; places as in
                              hops.segments */
    uint8_t state;
};

/* Begins the tallies of a walk that is otherwise complete: its states follow. HW_BAD_STORE if an id
 * in the store is out of range; also of the steps. */
HWI_CHECK hw_status hwi_tally_begin(struct hwi_walk *walk, hw_error *error);
HWI_CHECK hw_status hwi_tally_step(struct hwi_walk *walk, int *is_done, hw_error *error);

/* The column of cell `index` of the tallies of a row of a table. */
static inline uint32_t hwi_tally_column(const struct hwi_plan *plan, uint32_t table,
                                        uint32_t index) {
    uint32_t key = plan->store->tables[table].incoming[index / HWI_TALLY_CELLS];
    return plan->store->info->column_count + HWI_TALLY_CELLS * key + index % HWI_TALLY_CELLS;
}

/* Where the tallies of the next row begin, given where those of a row of this table do. */
static inline uint32_t hwi_tally_next(const struct hwi_plan *plan, uint32_t table, uint32_t place) {
    return place + plan->store->tables[table].info->child_slot_count;
}

#endif
