/*
 * The walk of one seed: which rows its context holds, in which order, with which cells and edges.
 * It writes only to its own scratch, sized once for the limits of the plan; batch/emit.c then emits
 * the context that is there into a batch. docs/reference/sampling.md is the exact text.
 *
 * A walk goes in steps. A step ends where the next read would wait for memory: it asks for the
 * lines, returns, and reads them when it is called again. A thread that has several walks in hand
 * takes a step of each in turn (batch/worker.c), so that their waits overlap. Nothing a walk finds
 * depends on where its steps end or on the other walks.
 */
#ifndef HWI_WALK_H
#define HWI_WALK_H

#include "base/error.h"
#include "walk/context.h"

struct hwi_walk; /* scratch.h */

HWI_CHECK hw_status hwi_walk_open(const struct hwi_plan *plan, struct hwi_walk **walk,
                                  hw_error *error);
void hwi_walk_close(struct hwi_walk *walk);
/* Begins the walk of a seed, which is copied. HW_BAD_STORE if its anchor is out of range. */
HWI_CHECK hw_status hwi_walk_start(struct hwi_walk *walk, const struct hwi_seed *seed,
                                   hw_error *error);
/* One step; *is_done receives 1 when the context is complete. HW_BAD_STORE if an id in the store is
 * out of range. */
HWI_CHECK hw_status hwi_walk_step(struct hwi_walk *walk, int *is_done, hw_error *error);
/* All steps. */
HWI_CHECK hw_status hwi_walk_seed(struct hwi_walk *walk, const struct hwi_seed *seed,
                                  hw_error *error);
/* The context, complete after the last step; the same place for every seed. */
struct hwi_context *hwi_walk_context(struct hwi_walk *walk);
/* Local row of a visited global row, HWI_NONE otherwise. */
uint32_t hwi_walk_local(const struct hwi_walk *walk, uint32_t row);
/* Bytes of the walk's arrays. */
uint64_t hwi_walk_bytes(const struct hwi_walk *walk);

#endif
