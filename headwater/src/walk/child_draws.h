/*
 * Drawing children: which of the waiting groups gives the next row. child_draws.c is the only place
 * that takes random words during a walk.
 */
#ifndef HWI_CHILD_DRAWS_H
#define HWI_CHILD_DRAWS_H

#include <stdint.h>

struct hwi_walk;

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
