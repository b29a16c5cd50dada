/* Seeds of a task stand in the order of (anchor, obs_time): see labels.h. */
#include "labels.h"

void hwi_labels_start(struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    const hw_seeds *seeds = &plan->store->seeds[walk->view.task->task];
    uint32_t most = plan->options.max_hops; /* label rows have two hops */
    walk->label_count = walk->label_next = 0;
    walk->labels_sought = plan->options.label_rows > 0 && !walk->view.is_cell &&
                          seeds->label_times != NULL && (most == 0 || most > 2);
    if (walk->labels_sought && walk->seed.split != HWI_SPLIT_AD_HOC && walk->seed.index > 0) {
        uint32_t before = walk->seed.index - 1;
        __builtin_prefetch(seeds->anchors + before);
        __builtin_prefetch(seeds->obs_times + before);
        __builtin_prefetch(seeds->label_times + before);
        __builtin_prefetch(seeds->states + before);
        __builtin_prefetch(walk->view.task->splits + before);
    }
}

/* The first seed of a later anchor. */
static uint32_t end_of_anchor(const hw_seeds *seeds, uint32_t anchor) {
    uint32_t low = 0, high = seeds->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (seeds->anchors[middle] <= anchor) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int is_shown(const struct hwi_walk *walk, const hw_seeds *seeds, uint32_t i) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t rule = plan->options.context_labels;
    if (rule == HW_LABELS_DEFAULT) {
        rule = walk->view.info->context_labels;
    }
    if (rule == HW_LABELS_NONE ||
        (rule != HW_LABELS_ALL && walk->view.task->splits[i] != HW_TRAIN)) {
        return 0;
    }
    return seeds->obs_times[i] < walk->seed.obs_time &&
           (seeds->states[i] & 15u) != HWI_LABEL_NONE && seeds->label_times[i] != INT64_MAX &&
           hwi_view_passes(&walk->view, seeds->label_times[i], 0);
}

void hwi_labels_find(struct hwi_walk *walk) {
    const hw_seeds *seeds = &walk->plan->store->seeds[walk->view.task->task];
    uint32_t i = walk->seed.split != HWI_SPLIT_AD_HOC ? walk->seed.index
                                                      : end_of_anchor(seeds, walk->seed.anchor);
    walk->labels_sought = 0;
    for (; i > 0 && seeds->anchors[i - 1] == walk->seed.anchor &&
           walk->label_count < walk->plan->options.label_rows;
         i--) {
        if (is_shown(walk, seeds, i - 1)) {
            walk->labels[walk->label_count++] = i - 1;
        }
    }
}
