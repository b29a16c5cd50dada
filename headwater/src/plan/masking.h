/* Which cells may be masked, and seeds that are rows of tables. */
#ifndef HWI_MASKING_H
#define HWI_MASKING_H

#include "plan/plan.h"

/* Which cells may be masked, once the tables are planned. */
HWI_CHECK hw_status hwi_plan_masked(struct hwi_plan *plan, const hw_sampler_options *options,
                                    hw_error *error);
void hwi_plan_masked_release(struct hwi_plan *plan);
/* The seeds of a task plan that stands for a table. */
HWI_CHECK hw_status hwi_plan_seed_table(const struct hwi_plan *plan, uint32_t table,
                                        struct hwi_task_plan *task, hw_error *error);

#endif
