/* The sample of contexts; see context_sample.h. */
#include "shape/context_sample.h"

#include <stdlib.h>

#include "base/error.h"

hw_status hwi_sample_open(const struct hwi_plan *plan, struct hwi_context_sample *sample,
                          hw_error *error) {
    *sample = (struct hwi_context_sample){.plan = plan};
    hw_status status = hwi_walk_open(plan, &sample->walk, error);
    if (status == HW_OK) {
        sample->context = hwi_walk_context(sample->walk);
        status = hwi_texts_open(plan, &sample->texts, error);
    }
    if (status == HW_OK) {
        sample->listed = calloc(plan->shape.context_length, sizeof *sample->listed);
        if (sample->listed == NULL) {
            status = hwi_no_memory(error, "the sample of contexts", plan->shape.context_length);
        }
    }
    if (status != HW_OK) {
        hwi_sample_release(sample);
    }
    return status;
}

void hwi_sample_release(struct hwi_context_sample *sample) {
    hwi_walk_close(sample->walk);
    hwi_texts_release(&sample->texts);
    free(sample->listed);
    *sample = (struct hwi_context_sample){0};
}

/* The first split in which the task has seeds; HW_TEST without any. */
static hw_split sampled_split(const struct hwi_plan *plan, uint32_t task) {
    static const hw_split before[] = {HW_TRAIN, HW_VAL};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        if (plan->tasks[task].lists[before[i]].count > 0) {
            return before[i];
        }
    }
    return HW_TEST;
}

uint32_t hwi_sample_count(const struct hwi_plan *plan, uint32_t task, uint32_t most) {
    uint32_t count = plan->tasks[task].lists[sampled_split(plan, task)].count;
    return count < most ? count : most;
}

hw_status hwi_sample_walk(struct hwi_context_sample *sample, uint32_t task, uint32_t position,
                          hw_error *error) {
    hw_split split = sampled_split(sample->plan, task);
    struct hwi_shard list = hwi_order_list(sample->plan, split, task);
    struct hwi_seed seed = hwi_order_seed(sample->plan, split, task, &list, position);
    return hwi_walk_seed(sample->walk, &seed, error);
}

uint32_t hwi_sample_texts(struct hwi_context_sample *sample) {
    return hwi_texts_list(&sample->texts, sample->context, sample->listed);
}
