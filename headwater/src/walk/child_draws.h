/*
 * Drawing children: which of the waiting groups gives the next row. child_draws.c is the only place
 * that takes random words during a walk.
 */
#ifndef HWI_CHILD_DRAWS_H
#define HWI_CHILD_DRAWS_H

#include <stdint.h>

struct hwi_walk;

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

/* Forgets the groups of the last hop. */
void hwi_draw_reset(struct hwi_walk *walk);
/* Makes the groups of the rows that wait at the hop, whose visible children stand in
 * walk->hops.segments, and lays them out. */
void hwi_draw_lay_out(struct hwi_walk *walk);
/*
 * Draws up to HWI_DRAWS_AHEAD children into walk->draws.ahead and asks for the places that name
 * them; 0 if the hop has no quota left. Visits take no random words and add nothing to the hop, so
 * the draws are the same whether they are made one by one or together.
 */
uint32_t hwi_draw_ahead(struct hwi_walk *walk);

#endif
