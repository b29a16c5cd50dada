/* The threads of a sampler: claims, works, waits. */
#ifndef HWI_THREADS_H
#define HWI_THREADS_H

#include "loader/loader.h"

void *hwi_produce(void *thread); /* main function of a thread */
/* Opens the worker of calling threads, if there is none; the caller holds spare_mutex. */
HWI_CHECK hw_status hwi_spare_worker(hw_sampler *sampler, hw_error *error);
/* Makes a whole batch in the calling thread, which holds spare_mutex. Of a levelled stream it finds
 * out first which seeds the batch has. */
HWI_CHECK hw_status hwi_make_batch(hw_sampler *sampler, struct hwi_batch_seeds *seeds,
                                   hw_batch **batch, hw_error *error);

#endif
