/*
 * The state of a walk from step to step: the context it makes, and the rows that wait for a visit.
 * Private to walk/; others have the context alone (context.h).
 */
#ifndef HWI_SCRATCH_H
#define HWI_SCRATCH_H

#include "base/rng.h"
#include "walk/context.h"
#include "walk/cutoff.h"
#include "walk/visible.h"

enum hwi_walk_state {
    HWI_WALK_VISIT, /* parents, then the children drawn ahead */
    HWI_WALK_NAME, /* children were drawn: read which rows they are */
    HWI_WALK_REACH, /* their records are here: ask for their parents' */
    HWI_WALK_COUNT, /* the ends of a hop's lists are here: how many children are visible */
    HWI_WALK_SEARCH, /* where that takes a search */
    HWI_WALK_TALLY, /* the rows are complete; their children are counted (child_counts.c) */
};

/* A parent that waits for its visit: of foreign key `slot` of local row `child`. */
struct hwi_parent_entry {
    uint32_t row, depth;
    uint32_t asked; /* the step that asked for its record */
    uint16_t table, child, slot;
    uint8_t chain;
    uint8_t is_end; /* 1: nothing is reached from it */
};

/* ---- children (children.c) --------------------------------------------------------------- */

/* A list whose visible prefix is searched: it ends in [low, high]. */
struct hwi_search {
    const uint32_t *children;
    const int64_t *times; /* edge times beside them, or NULL where row order is time order */
    uint32_t cutoff, low, high;
    uint32_t place; /* of the answer, in `segments` */
};

/* The rows whose children wait, and how many children of the rows at one hop are visible. */
struct hwi_hops {
    uint32_t *first,
        *last; /* [R + 2] rows whose children have that many hops, HWI_NONE where none */
    uint32_t current, end; /* the hop being drawn from; one past the highest used */
    uint32_t *segments; /* visible children by key, of each row of the hop in turn; once it is laid
                           out, of a key that has the target or a hidden column those
                           that are shown */
    struct hwi_search *searches;
    uint32_t search_count;
};

/* The visible children of one row by a key of which some edges are withheld (shown_edges.c). */
struct hwi_shown_children {
    uint32_t start, end; /* rows of the child table that show the key */
    uint32_t low, high; /* places of the list that hold those; of a list in another order than its
                           rows all visible ones */
    uint8_t is_mixed; /* 1: between low and high there are rows outside of [start, end), too */
};

/* ---- draws (child_draws.c) --------------------------------------------------------------- */

/* Children of one row by one key (or by all its keys, pooled) that may still be drawn. */
struct hwi_group {
    const uint32_t *children; /* the row's list for the key; pooled: all its lists */
    const int64_t *times; /* edge times beside them, or NULL where row order is time order */
    uint32_t key; /* global; pooled: HWI_NONE */
    uint32_t row; /* pooled: local row of the parent */
    uint32_t visible, quota, drawn;
    uint32_t draws; /* its run in `entries`; HWI_NONE before the first draw */
    uint32_t segments; /* pooled: its run in hops.segments; else its place there if not all of its
                          visible children may be drawn (shown_edges.h), or HWI_NONE */
};

/* A drawn child: where its list names it, then its global row. */
struct hwi_drawn {
    const uint32_t *child;
    uint32_t row, key, depth;
};

/* Draws made ahead of their visits, so that the misses on their records overlap. */
#define HWI_DRAWS_AHEAD 8u

/* Under "recent": the groups of one key at the current hop. */
struct hwi_turn {
    uint32_t key, start, count;
    uint8_t timed;
};

/* The draws from one hop. */
struct hwi_draws {
    struct hwi_group *groups; /* of the hop */
    uint32_t group_count;
    uint32_t *bucket; /* groups, once for each draw left */
    uint32_t bucket_count;
    uint32_t *entries; /* child_width entries for each group drawn from */
    uint32_t entry_count;
    uint32_t *quotas; /* [child slots] for dealing a row's width */
    struct hwi_turn *turns;
    uint32_t turn_count, turn_next;
    struct hwi_drawn ahead[HWI_DRAWS_AHEAD];
    uint32_t ahead_count, ahead_next;
};

/* ---- label rows (label_rows.c) ----------------------------------------------------------- */

struct hwi_labels {
    uint32_t *seeds; /* [label_rows + peer_labels] of the task: of the anchor, the latest first,
                        then of other anchors */
    uint32_t count, next;
    uint8_t sought; /* 1: not found yet */
};

/* ---- all of it --------------------------------------------------------------------------- */

enum { HWI_WALK_ARRAYS = 20 };

struct hwi_walk {
    struct hwi_context context;
    const struct hwi_plan *plan;
    struct hwi_view view; /* of context.seed */
    struct hwi_rng rng;
    enum hwi_walk_state state;
    uint32_t step;
    uint32_t deepest; /* hops from the first row beyond which no row is reached */

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
    uint8_t tally_state; /* with child_counts */

    void *arrays[HWI_WALK_ARRAYS]; /* all of the above, and the context's */
    uint32_t array_count;
    uint64_t scratch_bytes; /* of all of them */
};

#endif
