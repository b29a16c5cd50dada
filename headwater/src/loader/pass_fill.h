/*
 * Flat batches of a pass: the seeds keep their order, and a batch is full when the next context has
 * no room in it, so nothing is cut. All of a rank's seeds are walked for their lengths when the
 * pass opens.
 */
#ifndef HWI_PASS_FILL_H
#define HWI_PASS_FILL_H

#include <stdatomic.h>

#include "batch/worker.h"
#include "loader/batch_seeds.h"

/* Replaces a pass's batches by flat ones. The worker has no works. HW_SHUT_DOWN once *is_over. */
HWI_CHECK hw_status hwi_pass_fill(const struct hwi_plan *plan, struct hwi_worker *worker,
                                  const atomic_int *is_over, struct hwi_pass_plan *pass,
                                  hw_error *error);

#endif
