/*
 * The walk of one seed: which rows its context holds, in which order, with which cells and edges.
 * It writes only to its own scratch (struct hwi_walk), sized once for the limits of the plan;
 * emit.c then emits the scratch into a batch. docs/2-sampling.md is the exact text.
 */
#ifndef HWI_WALK_H
#define HWI_WALK_H

#include "error.h"
#include "plan.h"
#include "rng.h"
#include "visible.h"

/* A visited row; its place in the array is its local row. */
struct hwi_visit {
    const uint8_t *record; /* NULL for a task's seed row */
    uint32_t row; /* global, HWI_NONE for the seed row */
    uint32_t table; /* HWI_NONE for the seed row */
    uint32_t depth;
    uint32_t cell_start, cell_count;
    uint32_t list; /* where its cells stand in cell_lists; HWI_NONE: its table's first ones */
    uint8_t chain;
};

struct hwi_parent_entry {
    uint32_t row, table, depth;
    uint8_t chain;
};

/* Children of one row by one key (or by all its keys, pooled) that may still be drawn. */
struct hwi_group {
    const uint32_t *children; /* the row's list for the key; pooled: all its lists */
    const int64_t *times; /* edge times beside them, or NULL where row order is time order */
    uint32_t key; /* global; pooled: HWI_NONE */
    uint32_t row; /* pooled: local row of the parent */
    uint32_t visible, quota, drawn;
    uint32_t draws; /* its run in `draws`; HWI_NONE before the first draw */
    uint32_t segments; /* pooled: its run in `segments` */
    uint32_t next; /* the group added after it with the same hops */
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

struct hwi_walk {
    const struct hwi_plan *plan;
    struct hwi_view view;
    struct hwi_rng rng;

    /* The context, for emit.c. */
    struct hwi_visit *visits; /* [R] */
    uint32_t *parents; /* [R, P] global rows over edges that are not withheld */
    uint32_t *cell_lists;
    uint32_t row_count, cell_count, list_count;
    uint32_t target_cell; /* position in the sequence */
    uint8_t stopped_by_rows;

    /* Visited rows: open addressing, entries of older stamps are empty. */
    struct hwi_slot {
        uint32_t stamp, row, local;
    } *slots;
    uint32_t slot_mask, stamp;

    /* The cutoff of each table, found on first touch. */
    struct hwi_cutoff {
        uint32_t stamp, row;
    } *cutoffs; /* [tables] */

    struct hwi_parent_entry *queue;
    uint32_t queue_head, queue_tail;

    struct hwi_group *groups;
    uint32_t group_count;
    uint32_t *hop_first, *hop_last; /* [R + 2] groups by hops, HWI_NONE where none */
    uint32_t hop, hop_end; /* the hop being drawn from; one past the highest used */
    uint32_t *bucket; /* groups at the current hop, once for each draw left */
    uint32_t bucket_count;
    uint32_t *draws; /* child_width entries for each group drawn from */
    uint32_t draws_count;
    uint32_t *segments; /* visible children by key of pooled groups */
    uint32_t segment_count;
    uint32_t *quotas; /* [child slots] for dealing a row's width */
    struct hwi_turn *turns;
    uint32_t turn_count, turn_next;
    struct hwi_drawn ahead[HWI_DRAWS_AHEAD];
    uint32_t ahead_count, ahead_next;
};

HWI_CHECK hw_status hwi_walk_open(const struct hwi_plan *plan, struct hwi_walk *walk,
                                  hw_error *error);
void hwi_walk_release(struct hwi_walk *walk);
/* Walks a seed. HW_BAD_STORE if an id in the store is out of range. */
HWI_CHECK hw_status hwi_walk_seed(struct hwi_walk *walk, const struct hwi_seed *seed,
                                  hw_error *error);
/* Local row of a visited global row, HWI_NONE otherwise. */
uint32_t hwi_walk_local(const struct hwi_walk *walk, uint32_t row);

#endif
