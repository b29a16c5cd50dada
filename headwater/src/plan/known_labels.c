/* Known labels; see known_labels.h. */
#include "plan/known_labels.h"

#include <stdlib.h>

int hwi_asks_for_key(const hw_store *store, const struct hwi_task_info *task) {
    for (uint32_t k = 0; k < store->info->key_count && (task->flags & HWI_TASK_CELL); k++) {
        const uint32_t *columns = store->key_columns + store->keys[k].column_start;
        for (uint32_t i = 0; i < store->keys[k].column_count; i++) {
            if (columns[i] == task->target_column) {
                return 1;
            }
        }
    }
    return 0;
}

hw_context_labels hwi_label_rule(const struct hwi_plan *plan, const struct hwi_task_info *task) {
    hw_context_labels rule = plan->options.context_labels;
    rule = rule == HW_LABELS_DEFAULT ? (hw_context_labels)task->context_labels : rule;
    if (rule != HW_LABELS_DEFAULT) {
        return rule;
    }
    return hwi_asks_for_key(plan->store, task) ? HW_LABELS_NONE : HW_LABELS_TRAIN;
}

static int compare_labels(const void *left, const void *right) {
    const struct hwi_known_label *a = left, *b = right;
    if (a->known_at != b->known_at) {
        return a->known_at < b->known_at ? -1 : 1;
    }
    return a->seed < b->seed ? -1 : a->seed > b->seed;
}

hw_status hwi_known_labels_open(const struct hwi_plan *plan, struct hwi_task_plan *task,
                                hw_error *error) {
    const hw_seeds *seeds = &plan->store->seeds[task->task];
    if (plan->options.peer_labels == 0 || (task->info->flags & HWI_TASK_CELL) ||
        seeds->label_times == NULL) {
        return HW_OK;
    }
    size_t bytes = ((size_t)seeds->count + 1) * sizeof *task->known_labels;
    task->known_labels = malloc(bytes);
    if (task->known_labels == NULL) {
        return hwi_no_memory(error, "the known labels of a task", bytes);
    }
    for (uint32_t i = 0; i < seeds->count; i++) {
        if (hwi_may_show_label(plan, task, seeds, i)) {
            task->known_labels[task->known_count++] =
                (struct hwi_known_label){.known_at = seeds->label_times[i], .seed = i};
        }
    }
    qsort(task->known_labels, task->known_count, sizeof *task->known_labels, compare_labels);
    return HW_OK;
}
