/*
 * Visible children of a hop's rows: which prefix of each list a seed may see.
 */
#ifndef HWI_CHILDREN_H
#define HWI_CHILDREN_H

#include "base/error.h"

struct hwi_walk;

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
