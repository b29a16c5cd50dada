/*
 * The loader: threads that make batches ahead of their reader.
 *
 *     stream (train, val, each pass)      job = one batch             run = 8 sequences of a job
 *     ┌ ready ┬ ready ┬ in production ┐   claimed by several threads; the one that completes the
 *     head                         tail   last run finishes the batch
 *
 * A stream's queue is bounded (ready + in production), so memory is; its batches leave in order of
 * their number, so timing never shows. A thread takes the oldest unfinished batch of the first
 * stream that wants work: train, val, then passes in the order they were opened. Which seeds make
 * batch n is stream.c's arithmetic; how a sequence is made is batch.c's.
 *
 *     loader.c    streams to the caller: waits, passes, positions
 *     produce.c   the threads: jobs, runs, finished batches
 *     sampler.c   opens and closes all of it, and tells what it knows
 *
 * One mutex guards everything below that does not say otherwise; it is never held while a sequence
 * is made, memory is copied or a callback runs. Locks are taken in the order spare_mutex, mutex,
 * the pool's. An error in a thread is latched: production ends, every later next returns it.
 */
#ifndef HWI_LOADER_H
#define HWI_LOADER_H

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "slab.h"
#include "stream.h"

enum { HWI_RUN_SEQUENCES = 8, HWI_ENDLESS_COUNT = 2 /* train, val */ };

/* A batch that is being made, or made and waiting. */
struct hwi_job {
    struct hwi_job *next; /* in its stream's queue, or among the unused */
    struct hwi_stream *stream;
    struct hwi_batch_seeds seeds;
    hw_batch *batch;
    struct hwi_batch_scratch *scratch; /* stays with the job */
    uint32_t run_count, claimed_runs, done_runs;
    uint32_t thread_count; /* threads at work on it */
    int ready;
    int dropped; /* no longer in the queue: the last thread to leave recycles it */
};

struct hwi_stream {
    pthread_cond_t ready; /* the head is, or waiting makes no more sense */
    struct hwi_job *head, *tail;
    uint32_t depth, capacity; /* capacity 0: made in the calling thread */
    uint32_t job_count; /* of the queue, and dropped ones in production */
    uint64_t started, taken; /* batches since the position was set */
    /* endless */
    hw_split split;
    uint64_t first_batch; /* schedule slot of batch 0 */
    uint64_t *next_positions; /* [plan->task_count] of the next batch to start */
    uint64_t *taken_positions; /* [plan->task_count] of the next batch to hand out */
    /* finite */
    struct hwi_pass_plan pass; /* parts NULL: endless */
    int closed;
};

struct hw_pass {
    struct hwi_stream stream; /* first: a job's stream leads back here */
    struct hw_sampler *sampler; /* NULL: was closed before this pass */
    struct hw_pass *next;
};

struct hwi_thread {
    pthread_t id;
    struct hw_sampler *sampler;
    struct hwi_worker *worker; /* this thread's alone */
};

struct hw_sampler {
    struct hwi_plan *plan; /* constant */
    struct hwi_pool *pool;
    pid_t pid; /* constant: of the process that has the threads */
    uint32_t run_count; /* constant: per batch */
    pthread_mutex_t mutex;
    pthread_cond_t work; /* there may be a run to claim, or it is over */
    struct hwi_stream endless[HWI_ENDLESS_COUNT];
    struct hw_pass *passes;
    struct hwi_job *unused_jobs;
    hw_error failure; /* status HW_OK: none */
    struct hwi_counters counters;
    uint64_t batch_count, producer_wait_ns, consumer_wait_ns;
    atomic_int shut_down; /* written with the mutex held */
    struct hwi_thread *threads; /* constant [thread_count] */
    uint32_t thread_count;
    pthread_mutex_t join_mutex;
    int joined; /* guarded by join_mutex */
    pthread_mutex_t spare_mutex;
    struct hwi_worker *spare; /* guarded by spare_mutex, like the scratch: batches made in the
                                 calling thread */
    struct hwi_batch_scratch *spare_scratch;
};

/* ---- shared by the three files ----------------------------------------------------------- */

static inline int64_t hwi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* HW_FORKED unless the sampler's threads live in this process. */
HWI_CHECK hw_status hwi_sampler_check_process(const hw_sampler *sampler, hw_error *error);
/* Ends waits by CLOCK_MONOTONIC. */
HWI_CHECK hw_status hwi_condition_init(pthread_cond_t *condition, hw_error *error);

/* produce.c */
void *hwi_produce(void *thread); /* main function of a thread */
void hwi_wake_everyone_locked(hw_sampler *sampler);
void hwi_latch_locked(hw_sampler *sampler, hw_status status, const hw_error *error);
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
/* Makes a whole batch in the calling thread, which holds spare_mutex. */
HWI_CHECK hw_status hwi_make_batch(hw_sampler *sampler, const struct hwi_batch_seeds *seeds,
                                   hw_batch **batch, hw_error *error);

static inline int hwi_is_finite(const struct hwi_stream *stream) {
    return stream->pass.parts != NULL;
}

#endif
