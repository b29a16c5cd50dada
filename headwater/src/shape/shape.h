/* The shape of the batches, the last of a plan. */
#ifndef HWI_SHAPE_H
#define HWI_SHAPE_H

#include "plan/plan.h"

/* Completes an open plan: the shape of the batches and where their arrays lie, from the options as
 * checked. */
HWI_CHECK hw_status hwi_plan_shape(struct hwi_plan *plan, hw_error *error);

#endif
