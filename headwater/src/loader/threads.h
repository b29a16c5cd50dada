/* What threads do for a sampler: claims and works. */
#ifndef HWI_THREADS_H
#define HWI_THREADS_H

#include "loader/loader.h"

/* A step of a thread's turn: it claims some sequences if it has none left to begin, begins those
 * and finishes as many, or gathers one part of vectors. 0: there was nothing to do. */
int hwi_take_step(struct hwi_thread *thread);
/* Gives up what the thread holds, and ends its rest. */
void hwi_leave_work_locked(struct hwi_thread *thread);
/* Opens the worker of calling threads, if there is none; the caller holds spare_mutex. */
HWI_CHECK hw_status hwi_spare_worker(hw_sampler *sampler, hw_error *error);
/* Makes a whole batch in the calling thread, which holds spare_mutex. Of a levelled stream it finds
 * out first which seeds the batch has. */
HWI_CHECK hw_status hwi_make_batch(hw_sampler *sampler, struct hwi_batch_seeds *seeds,
                                   hw_batch **batch, hw_error *error);

#endif
