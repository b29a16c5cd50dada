/*
 * Sampling a store whatever its state: what damaged stores must survive. A survey opens samplers
 * with several settings, takes batches of every split, passes over the seeds and ad-hoc ones, and
 * lets go of everything; each step may fail with a status and a message, none may crash.
 */
#ifndef SURVEY_H
#define SURVEY_H

#include "headwater.h"

#define SURVEY_VARIANTS 19u

/* One of the settings; without prefetch. */
hw_sampler_options survey_options(uint32_t variant);

struct survey {
    uint64_t opened, refused; /* samplers */
    uint64_t batches, failed; /* batches */
};

/* Opens the store and samples it with one variant of the options; adds to *survey. Aborts if a
 * failure has no message, is not HW_BAD_STORE or HW_BAD_TASK, or if a batch holds an id that is out
 * of range. */
void survey_store(const char *path, uint32_t variant, struct survey *survey);

#endif
