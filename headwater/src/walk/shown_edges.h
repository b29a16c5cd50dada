/*
 * A foreign key may be the target of a cell task, or be hidden from a task. Its edge is then
 * withheld on the rows that docs/reference/sampling.md names, "Withheld cells". If such an edge
 * were drawn and dropped, the number of children would reveal it. So children are drawn from the
 * list of those whose edges are shown. In a list in the order of its rows these are the rows of one
 * range of time, without the anchor and without rows whose label may not be shown. The latter are a
 * bit for each edge, counted once when the sampler opens: a search and a count, however long the
 * list is.
 */
#ifndef HWI_SHOWN_EDGES_H
#define HWI_SHOWN_EDGES_H

#include "walk/walk.h"

/* The visible children of one row by such a key, or by a hidden one, of which some are shown. */
struct hwi_shown_children {
    uint32_t start, end; /* rows of the child table of which the others' edges are withheld */
    uint32_t low, high; /* places of the list that hold those; of a list in another order than its
                           rows all visible ones */
    uint32_t hole; /* the place of the anchor, if it is among them and withheld; HWI_NONE */
    uint8_t is_mixed; /* 1: between low and high there are rows outside of [start, end), too */
};

/* Whether edges of a key may be withheld for the target or a hidden column. */
static inline int hwi_is_partly_shown(const struct hwi_walk *walk, uint32_t key) {
    return (walk->view.task->special_keys[key] & (HWI_SPECIAL_TARGET | HWI_SPECIAL_HIDDEN)) != 0;
}

/* Takes the visible children of the rows that wait at the hop, walk->hops.segments, for those that
 * are shown. Cost for each list of such a key: some searches. Where children are listed by when
 * their edge is known, and only a range of times is shown, a pass over the visible ones. */
void hwi_shown_edges_filter(struct hwi_walk *walk);
/* Where a list names the child that is the `at`-th of those shown, from 0; `children` is where the
 * list begins, `place` its own in walk->hops.segments. The same cost for each call. */
const uint32_t *hwi_shown_edges_child(const struct hwi_walk *walk, uint32_t key,
                                      const uint32_t *children, uint32_t place, uint32_t at);

#endif
