/*
 * The walk of one seed: which rows its context holds, in which order, with which cells and edges.
 * It writes only to its own scratch (struct hwi_walk), sized once for the limits of the plan;
 * batch/emit.c then emits the scratch into a batch. docs/reference/sampling.md is the exact text.
 *
 * A walk goes in steps. A step ends where the next read would wait for memory: it asks for the
 * lines, returns, and reads them when it is called again. A thread that has several walks in hand
 * takes a step of each in turn (batch/worker.c), so that their waits overlap. Nothing a walk finds
 * depends on where its steps end or on the other walks.
 */
#ifndef HWI_WALK_H
#define HWI_WALK_H

#include "base/error.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "walk/child_counts.h"
#include "walk/child_draws.h"
#include "walk/children.h"
#include "walk/cutoff.h"
#include "walk/label_rows.h"
#include "walk/visible.h"

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

/* A parent that waits for its visit: of foreign key `slot` of local row `child`. */
struct hwi_parent_entry {
    uint32_t row, depth;
    uint32_t asked; /* the step that asked for its record */
    uint16_t table, child, slot;
    uint8_t chain;
    uint8_t is_end; /* 1: nothing is reached from it */
};

#define HWI_UNKNOWN_LOCAL UINT16_MAX /* no local row: there are at most that many */

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

enum hwi_walk_state {
    HWI_WALK_START, /* not begun */
    HWI_WALK_VISIT, /* parents, then the children drawn ahead */
    HWI_WALK_NAME, /* children were drawn: read which rows they are */
    HWI_WALK_REACH, /* their records are here: ask for their parents' */
    HWI_WALK_COUNT, /* the ends of a hop's lists are here: how many children are visible */
    HWI_WALK_SEARCH, /* where that takes a search */
    HWI_WALK_TALLY, /* the rows are complete; their children are counted (child_counts.c) */
};

struct hwi_walk {
    const struct hwi_plan *plan;
    struct hwi_view view;
    struct hwi_seed seed; /* what the view points at */
    struct hwi_rng rng;
    enum hwi_walk_state state;
    uint32_t step;

    /* The context, for batch/emit.c. */
    struct hwi_visit *visits; /* [max_context_rows] */
    uint32_t *parents; /* [R, P] global rows over edges that are not withheld, else
                          HWI_NONE; only as many as the row has keys */
    uint16_t *local_parents; /* [R, P] their local rows, HWI_UNKNOWN_LOCAL where not in the
                                context */
    uint32_t *cell_lists;
    uint32_t row_count, cell_count, list_count;
    uint32_t withheld_count; /* cells of visited rows, emitted columns alone */
    uint32_t deepest; /* hops from the first row beyond which no row is reached */
    uint32_t target_cell; /* position in the sequence; HWI_NONE: no task is asked */
    int64_t newest; /* time of the newest row of any table that the seed sees, or INT64_MIN; for the
                       age of the seed's row, where it has one */
    uint8_t stopped_by_rows;

    /* Visited rows: open addressing; entries whose tag has an older stamp are empty. */
    struct hwi_slot {
        uint32_t row, tag; /* stamp << 16 | local row */
    } *slots;
    uint32_t slot_bits, stamp;

    struct hwi_parent_entry *queue;
    uint32_t queue_head, queue_tail;

    struct hwi_cutoffs cutoffs;
    struct hwi_hops hops;
    struct hwi_draws draws;
    struct hwi_shown_children *shown_children; /* of keys with the target or a hidden column, places
                                                  as in hops.segments: shown_edges.h */
    struct hwi_labels labels;
    struct hwi_tallies tallies; /* with child_counts */
    struct hwi_chosen_cells chosen; /* with mask_words: what is masked */
    uint64_t scratch_bytes; /* of all the arrays */
};

HWI_CHECK hw_status hwi_walk_open(const struct hwi_plan *plan, struct hwi_walk *walk,
                                  hw_error *error);
void hwi_walk_release(struct hwi_walk *walk);
/* Begins the walk of a seed, which is copied. HW_BAD_STORE if its anchor is out of range. */
HWI_CHECK hw_status hwi_walk_start(struct hwi_walk *walk, const struct hwi_seed *seed,
                                   hw_error *error);
/* One step; *is_done receives 1 when the context is complete. HW_BAD_STORE if an id in the store is
 * out of range. */
HWI_CHECK hw_status hwi_walk_step(struct hwi_walk *walk, int *is_done, hw_error *error);
/* All steps. */
HWI_CHECK hw_status hwi_walk_seed(struct hwi_walk *walk, const struct hwi_seed *seed,
                                  hw_error *error);
/* Local row of a visited global row, HWI_NONE otherwise. */
uint32_t hwi_walk_local(const struct hwi_walk *walk, uint32_t row);

#endif
