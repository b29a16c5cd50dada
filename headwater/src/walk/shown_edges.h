/*
 * A foreign key may be hidden from a task: its edge is then withheld on the rows that
 * docs/reference/sampling.md names, "Withheld cells". If such an edge were drawn and dropped, the
 * number of children would reveal it. So children are drawn from those whose edges are shown. In a
 * list in the order of its rows these are one range of times. By a key that is the target of the
 * task no child is shown.
 */
#ifndef HWI_SHOWN_EDGES_H
#define HWI_SHOWN_EDGES_H

#include "walk/scratch.h"

/* Whether edges of a key may be withheld for the target or a hidden column. */
static inline int hwi_is_partly_shown(const struct hwi_walk *walk, uint32_t key) {
    return (walk->view.task->special_keys[key] & (HWI_SPECIAL_TARGET | HWI_SPECIAL_HIDDEN)) != 0;
}

/* Takes the visible children of the rows that wait at the hop, walk->hops.segments, for those that
 * are shown. Cost for each list of such a key: some searches. Where children are listed by when
 * their edge is known, a pass over the visible ones. */
void hwi_shown_edges_filter(struct hwi_walk *walk);
/* Where a list names the child that is the `at`-th of those shown, from 0; `children` is where the
 * list begins, `place` its own in walk->hops.segments. The same cost for each call. */
const uint32_t *hwi_shown_edges_child(const struct hwi_walk *walk, const uint32_t *children,
                                      uint32_t place, uint32_t at);

#endif
