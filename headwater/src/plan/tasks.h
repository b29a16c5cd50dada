/* The tasks of a plan: splits, labels, targets and the schedule. */
#ifndef HWI_TASKS_H
#define HWI_TASKS_H

#include "plan/plan.h"

/* The selected tasks, from the options as the caller gave them. */
HWI_CHECK hw_status hwi_plan_tasks(struct hwi_plan *plan, const hw_sampler_options *options,
                                   hw_error *error);
void hwi_plan_tasks_release(struct hwi_plan *plan);
/* Which batches of a block are each task's, by the seeds that the lists of the split hold. */
HWI_CHECK hw_status hwi_plan_schedule(struct hwi_plan *plan, const double *weights, hw_split split,
                                      hw_error *error);
/* Memory for the splits and lists of a task's seeds; then the lists from the splits, where
 * HW_SPLIT_NONE means none. */
HWI_CHECK hw_status hwi_task_lists_open(struct hwi_task_plan *task, hw_error *error);
void hwi_task_lists_deal(struct hwi_task_plan *task);
/* The split of a seed, HW_BAD_STORE where the store holds none. */
HWI_CHECK hw_status hwi_seed_split(const struct hwi_plan *plan, uint32_t task, uint32_t seed,
                                   uint8_t *split, hw_error *error);
/* What train_on_val and time_split make of a split, given when the seed is asked and when its label
 * is known. */
uint8_t hwi_dealt_split(const struct hwi_plan *plan, uint8_t split, int64_t asked, int64_t known);

#endif
