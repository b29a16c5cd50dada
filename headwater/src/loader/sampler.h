/* A sampler and its process, opened and closed as one. */
#ifndef HWI_SAMPLER_H
#define HWI_SAMPLER_H

#include "loader/loader.h"

/* HW_FORKED unless the sampler's threads live in this process. */
HWI_CHECK hw_status hwi_sampler_check_process(const hw_sampler *sampler, hw_error *error);
/* Ends waits by CLOCK_MONOTONIC. */
HWI_CHECK hw_status hwi_condition_init(pthread_cond_t *condition, hw_error *error);

#endif
