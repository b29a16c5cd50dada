/* A plan as a whole, opened and closed. */
#ifndef HWI_OPEN_PLAN_H
#define HWI_OPEN_PLAN_H

#include "plan/plan.h"

/* Fills defaults, checks every option (HW_BAD_ARGUMENT names it), reads the seeds once. All but the
 * shape of the batches, which shape/shape.h adds. */
HWI_CHECK hw_status hwi_plan_open(hw_store *store, const hw_sampler_options *options,
                                  struct hwi_plan **plan, hw_error *error);
void hwi_plan_close(struct hwi_plan *plan);

#endif
