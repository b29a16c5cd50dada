/*
 * What a context says of the children it does not hold: for each foreign key that points at a
 * visited row, how many of its children the seed may see, and how old the last and the first are.
 * Three cells behind the row's own, with columns of their own; docs/reference/sampling.md, "Child
 * counts".
 */
#ifndef HWI_CHILD_COUNTS_H
#define HWI_CHILD_COUNTS_H

#include "base/error.h"

struct hwi_walk;

/* Begins the tallies of a walk that is otherwise complete: its states follow. HW_BAD_STORE if an id
 * in the store is out of range; also of the steps. */
HWI_CHECK hw_status hwi_tally_begin(struct hwi_walk *walk, hw_error *error);
HWI_CHECK hw_status hwi_tally_step(struct hwi_walk *walk, int *is_done, hw_error *error);

#endif
