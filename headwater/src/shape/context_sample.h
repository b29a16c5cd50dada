/*
 * The sample of contexts from which the shape of batches follows (docs/reference/sampling.md,
 * "Budgets"): positions 0, 1, ... of epoch 0 of the first split of a task that has seeds, of all
 * ranks. They are walked one by one and not emitted, so that the sample needs the scratch of one
 * walk and nothing of the size of a batch.
 */
#ifndef HWI_CONTEXT_SAMPLE_H
#define HWI_CONTEXT_SAMPLE_H

#include "batch/texts.h"
#include "walk/walk.h"

/* One thread. The context is the one that was asked for last. */
struct hwi_context_sample {
    const struct hwi_plan *plan;
    struct hwi_walk *walk;
    struct hwi_context *context; /* of the walk */
    struct hwi_texts texts;
    uint32_t *listed; /* [context_length] distinct texts of the walk, by hwi_sample_texts */
};

/* By the plan's shape as it is now: context_length and max_context_rows. */
HWI_CHECK hw_status hwi_sample_open(const struct hwi_plan *plan, struct hwi_context_sample *sample,
                                    hw_error *error);
void hwi_sample_release(struct hwi_context_sample *sample);
/* Positions that a task has, at most `most`. */
uint32_t hwi_sample_count(const struct hwi_plan *plan, uint32_t task, uint32_t most);
/* Walks the context of a position that the task has. */
HWI_CHECK hw_status hwi_sample_walk(struct hwi_context_sample *sample, uint32_t task,
                                    uint32_t position, hw_error *error);
/* Lists the distinct texts of the walk; returns how many there are. */
uint32_t hwi_sample_texts(struct hwi_context_sample *sample);

#endif
