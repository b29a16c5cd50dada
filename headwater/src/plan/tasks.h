/* The tasks of a plan: splits, labels, targets and the schedule. */
#ifndef HWI_TASKS_H
#define HWI_TASKS_H

#include "plan/plan.h"

/* The selected tasks, from the options as the caller gave them. */
HWI_CHECK hw_status hwi_plan_tasks(struct hwi_plan *plan, const hw_sampler_options *options,
                                   hw_error *error);
void hwi_plan_tasks_release(struct hwi_plan *plan);
/* Values by selected task, [task_count], to those by the store's number of the task: 0 for others.
 * [store's task count; with seed tables its table count more] */
void hwi_plan_spread(const struct hwi_plan *plan, const uint64_t *values, uint64_t *spread);
/* Which batches of a block are each task's, by the seeds that the lists of the split hold. */
HWI_CHECK hw_status hwi_plan_schedule(struct hwi_plan *plan, const double *weights, hw_split split,
                                      hw_error *error);

#endif
