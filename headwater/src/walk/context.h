/*
 * The context of one seed as its walk leaves it: rows in the order of their visits, with their
 * cells and edges. batch/ chooses and drops cells in it, then emits it. The arrays are the walk's,
 * which writes over them when it walks the next seed.
 */
#ifndef HWI_CONTEXT_H
#define HWI_CONTEXT_H

#include "plan/order.h"

#define HWI_UNKNOWN_LOCAL UINT16_MAX /* no local row: there are at most that many */

/* A visited row; its place in the array is its local row. */
struct hwi_visit {
    const uint8_t *record; /* NULL for a task's seed row */
    uint32_t row; /* global, HWI_NONE for the seed row and label rows */
    uint32_t table; /* HWI_NONE for those */
    uint32_t depth;
    uint32_t cell_start, cell_count;
    uint32_t key_count; /* foreign keys; 1 of the seed row and label rows */
    uint32_t list; /* where its cells stand in cell_lists; HWI_NONE: its table's first ones; of a
                      label row: its seed */
    uint32_t next; /* local row visited after it whose children wait at the same hop */
    uint32_t tally_list; /* with tally_cells: where they stand in cell_lists; HWI_NONE: the first */
    uint16_t tally_cells; /* of its children's counts, behind its own */
    uint8_t chain;
};

/* A cell that is chosen to be masked. */
struct hwi_chosen_cell {
    uint16_t row; /* local */
    uint16_t position;
    uint32_t cell; /* of the row's table plan */
};
struct hwi_chosen_cells {
    struct hwi_chosen_cell *cells; /* by position */
    uint32_t count;
    uint32_t surplus_count; /* besides these, beyond the most of their type: shown */
};

/* What stands in the cells of one (visited row, foreign key): child_counts.h. */
struct hwi_tally {
    uint32_t last, first; /* while it is made: global rows of the children whose times are read */
    float values[HWI_TALLY_CELLS]; /* 0 where NULL */
    uint8_t is_null[HWI_TALLY_CELLS];
};

struct hwi_context {
    const struct hwi_plan *plan;
    struct hwi_seed seed;
    const struct hwi_task_plan *task; /* the seed's */
    struct hwi_visit *visits; /* [max_context_rows] */
    uint32_t *parents; /* [R, P] global rows over edges that are not withheld, else
                          HWI_NONE; only as many as the row has keys */
    uint16_t *local_parents; /* [R, P] their local rows, HWI_UNKNOWN_LOCAL where not in the
                                context */
    uint32_t *cell_lists;
    uint32_t row_count, cell_count, list_count;
    uint32_t withheld_count; /* cells of visited rows, emitted columns alone */
    uint32_t target_cell; /* position in the sequence; HWI_NONE: no task is asked */
    int64_t newest; /* time of the newest row of any table that the seed sees, or INT64_MIN; for the
                       age of the seed's row, where it has one */
    uint8_t stopped_by_rows;
    struct hwi_tally *tallies; /* with child_counts: of each row that has them, in local order, by
                                  key */
    struct hwi_chosen_cells chosen; /* with mask_words: what is masked */
};

/* Whether one of a row's first `slots` parents is the local row `parent`. */
static inline int hwi_lists_parent(const uint16_t *parents, uint32_t slots, uint32_t parent) {
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (parents[slot] == parent) {
            return 1;
        }
    }
    return 0;
}

/* Whether some foreign key leads from one local row to another. */
static inline int hwi_is_edge(const struct hwi_context *context, uint32_t child, uint32_t parent) {
    size_t first = (size_t)child * context->plan->shape.parent_slots;
    return hwi_lists_parent(context->local_parents + first, context->visits[child].key_count,
                            parent);
}

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
