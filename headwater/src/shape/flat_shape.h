/* How large flat batches are: docs/reference/batch.md, "Flat". */
#ifndef HWI_FLAT_SHAPE_H
#define HWI_FLAT_SHAPE_H

#include "base/error.h"
#include "plan/plan.h"

/* Chooses plan->flat and the sizes of plan->shape from a sample of contexts; the rest of the shape
 * is known. */
HWI_CHECK hw_status hwi_flat_plan(struct hwi_plan *plan, hw_error *error);

#endif
