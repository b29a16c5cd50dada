/*
 * A foreign key may be what a cell task asks for. Its edge is then withheld on the rows that
 * docs/2-sampling.md names, "Withheld cells", and were a draw made for such an edge and dropped,
 * the number of children would tell the label. So children are drawn from the list of those whose
 * edges are shown, without reading it: whether the label of a row may be shown is a bit for each
 * edge, counted once when the sampler opens, and what depends on the seed is the end of a list, or
 * one place in it.
 */
#ifndef HWI_TARGET_EDGES_H
#define HWI_TARGET_EDGES_H

#include "walk.h"

/* Of one foreign key that has the target: which edges of its parents' lists contexts may show. */
struct hwi_target_edges {
    uint32_t key;
    uint64_t *shown; /* a bit for each of the parent table's edges; NULL: all of them */
    uint32_t *ranks; /* how many are set before every RANK_WORDS-th word */
};

/* The visible children of one row by such a key, of which some are shown. */
struct hwi_shown_children {
    uint32_t visible; /* places of the list */
    uint32_t head; /* places before it are shown as their bits say, but for the hole */
    uint32_t head_count; /* how many are */
    uint32_t hole; /* the place of the anchor; HWI_NONE: not there, or not shown anyway */
};

/* One pass over the lists of each such key of a task, into task->target_edges. Reads the bits of
 * task->label_hidden and task->special_keys. HW_BAD_STORE, HW_NO_MEMORY. */
HWI_CHECK hw_status hwi_target_edges_open(const hw_store *store, struct hwi_task_plan *task,
                                          hw_error *error);
void hwi_target_edges_release(struct hwi_task_plan *task);

/* Takes the visible children of the rows that wait at the hop, walk->segments, for those that are
 * shown. Cost for each list of such a key: some searches; but if children are listed by when they
 * are known and the cutoff is inclusive, a pass over those known from the anchor's time on. */
void hwi_target_edges_filter(struct hwi_walk *walk);
/* Where a list names the child that is the `at`-th of those shown, from 0; `children` is where the
 * list begins, `place` its own in walk->segments. */
const uint32_t *hwi_target_edges_child(const struct hwi_walk *walk, uint32_t key,
                                       const uint32_t *children, uint32_t place, uint32_t at);

#endif
