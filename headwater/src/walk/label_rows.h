/*
 * Label rows: seeds of the same task whose answers are known by now, as rows of the task's own.
 * Those of the same anchor, and those of other anchors, its peers; docs/reference/sampling.md,
 * "Label rows" and "Peer labels".
 */
#ifndef HWI_LABEL_ROWS_H
#define HWI_LABEL_ROWS_H

#include "walk/scratch.h"

#define HWI_LABEL_DEPTH 2u /* hops from the seed's row, one more than from the anchor */

/* Whether the walk may have label rows, which are then found when the walk comes to them; asks for
 * what finding them reads. */
void hwi_labels_start(struct hwi_walk *walk);
/* Finds them, once: the anchor's own, the latest first, then those of peers, which takes words of
 * the stream. O(seeds of the anchor before the seed's time), a binary search for a seed given by
 * the caller, and one for peers. */
void hwi_labels_find(struct hwi_walk *walk);

/* 1 if some may be left to find or to visit. */
static inline int hwi_labels_left(const struct hwi_labels *labels) {
    return labels->sought || labels->next < labels->count;
}

#endif
