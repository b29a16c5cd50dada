/* Batches in production: started, moved from phase to phase, dropped, recycled. */
#ifndef HWI_JOBS_H
#define HWI_JOBS_H

#include "loader/loader.h"

void hwi_wake_everyone_locked(hw_sampler *sampler);
/* There may be work: wakes as many sleeping threads as can share it. */
void hwi_wake_locked(hw_sampler *sampler, uint32_t count);
void hwi_latch_locked(hw_sampler *sampler, hw_status status, const hw_error *error);
/* A job of the stream with parts to claim, which may be started for it; NULL: nothing to do. */
struct hwi_job *hwi_find_work_locked(hw_sampler *sampler, struct hwi_stream *stream);
/* Sequences that one claim takes of a batch. */
uint32_t hwi_claim_size_locked(const hw_sampler *sampler);
/* The last of a batch, once its vectors are gathered. */
void hwi_finish_batch(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                      hw_batch *batch, struct hwi_batch_scratch *scratch,
                      struct hwi_counters *counters);
/* Parts of the job are done. The last one's thread merges the texts, or hands the batch over. */
void hwi_parts_done(struct hwi_thread *thread, struct hwi_job *job, uint32_t count);
/* Parts that the thread claimed are not done and never will be. */
void hwi_give_back_locked(hw_sampler *sampler, struct hwi_job *job, uint32_t count);
/* The batch of the stream's head, which is ready; production goes on. */
hw_batch *hwi_pop_locked(hw_sampler *sampler, struct hwi_stream *stream);
/* Empties a stream's queue. */
void hwi_drop_jobs_locked(hw_sampler *sampler, struct hwi_stream *stream);
void hwi_free_unused_jobs(hw_sampler *sampler);
void hwi_free_pass(hw_pass *pass);
/* Seeds of the next batch that the stream will start. */
HWI_CHECK hw_status hwi_next_seeds_locked(const hw_sampler *sampler,
                                          const struct hwi_stream *stream,
                                          struct hwi_batch_seeds *seeds, hw_error *error);
void hwi_count_started_locked(const hw_sampler *sampler, struct hwi_stream *stream,
                              const struct hwi_batch_seeds *seeds);
void hwi_count_taken_locked(const hw_sampler *sampler, struct hwi_stream *stream,
                            const struct hwi_batch_seeds *seeds);

#endif
