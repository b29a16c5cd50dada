/*
 * Drawing children: which of the waiting groups gives the next row. draw.c is the only place that
 * takes random words during a walk.
 */
#ifndef HWI_DRAW_H
#define HWI_DRAW_H

#include "walk.h"

/* Forgets the groups of the last walk. */
void hwi_draw_reset(struct hwi_walk *walk);
/*
 * Adds the groups of a visited row: its lists start at `start` among its table's children, list
 * lengths are uint32 [slots] at list_counts (unaligned), visible[slots] of them may be drawn.
 * `visible` is the end of walk->segments; pooled groups keep it.
 */
void hwi_draw_add(struct hwi_walk *walk, const struct hwi_visit *visit, uint64_t start,
                  const uint8_t *list_counts, const uint32_t *visible);
/* Draws the next child; 0 if no group has quota left. The row is not checked. */
int hwi_draw_next(struct hwi_walk *walk, struct hwi_drawn *drawn);
/* 1 if some group has quota left. */
int hwi_draw_waits(const struct hwi_walk *walk);

#endif
