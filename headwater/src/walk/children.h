/*
 * Visible children of a hop's rows: which prefix of each list a seed may see.
 */
#ifndef HWI_CHILDREN_H
#define HWI_CHILDREN_H

#include "base/error.h"

struct hwi_walk;

/* Forgets the rows of the last walk. */
void hwi_children_reset(struct hwi_walk *walk);
/* Lets the children of a visited row wait, one hop further than the row. */
void hwi_children_wait(struct hwi_walk *walk, uint32_t local);
/* 1 if some visible child waits at a hop after the current one. O(waiting rows * keys). */
int hwi_children_waits(struct hwi_walk *walk);
/* Opens the next hop at which children wait and asks for the ends of their lists; *is_open receives
 * 0 if there is none. HW_BAD_STORE if a list is out of range. */
HWI_CHECK hw_status hwi_children_open(struct hwi_walk *walk, int *is_open, hw_error *error);
/* Opens the lists of all visited rows as if they were one hop, for when the walk is over, and asks
 * for their ends and starts. HW_BAD_STORE if a list is out of range. */
HWI_CHECK hw_status hwi_children_open_all(struct hwi_walk *walk, hw_error *error);
/* Reads those ends, and lists the searches that are needed where not all children are visible. */
void hwi_children_count(struct hwi_walk *walk);
/* One probe of every search, and asks for the next; 1 when all are over. */
int hwi_children_search(struct hwi_walk *walk);

#endif
