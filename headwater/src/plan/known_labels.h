/* The labels of a task that contexts may show once they are known. */
#ifndef HWI_KNOWN_LABELS_H
#define HWI_KNOWN_LABELS_H

#include "plan/plan.h"

struct hwi_known_label {
    int64_t known_at; /* us */
    uint32_t seed;
};

/* Whether the target of a task is a column of a foreign key. How many rows still point at a row
 * would then tell which of them do not, so contexts show the column on no row at all. */
int hwi_asks_for_key(const hw_store *store, const struct hwi_task_info *task);

/* Whose labels contexts show: by the sampler's option, else the task's, else the default. */
hw_context_labels hwi_label_rule(const struct hwi_plan *plan, const struct hwi_task_info *task);

/* Whether contexts may show the label of a seed once it is known, which is at some time. */
static inline int hwi_may_show_label(const struct hwi_plan *plan, const struct hwi_task_plan *task,
                                     const hw_seeds *seeds, uint32_t i) {
    hw_context_labels rule = hwi_label_rule(plan, task->info);
    return rule != HW_LABELS_NONE && (rule == HW_LABELS_ALL || task->splits[i] == HW_TRAIN) &&
           (seeds->states[i] & 15u) != HWI_LABEL_NONE && seeds->label_times[i] != INT64_MAX;
}

/* With peer_labels, lists them in the order of when they are known. O(seeds log seeds). */
HWI_CHECK hw_status hwi_known_labels_open(const struct hwi_plan *plan, struct hwi_task_plan *task,
                                          hw_error *error);

#endif
