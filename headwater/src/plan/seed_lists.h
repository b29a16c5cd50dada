/* The seeds of a task, dealt into splits: what tasks and tables of seeds have in common. */
#ifndef HWI_SEED_LISTS_H
#define HWI_SEED_LISTS_H

#include "plan/plan.h"

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
