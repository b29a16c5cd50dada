/*
 * The loader: threads that make batches ahead of their reader.
 *
 *     stream (train, val, each pass)               job = one batch
 *     ┌ ready ┬ gathering ┬ making ┬ making ┐      making      its sequences, by many threads
 *     head                               tail      merging     its texts, by the last of them
 *                                                  gathering   their vectors, by many threads
 *
 * A stream's queue is bounded (ready + in production), so memory is; its batches leave in order of
 * their number, so timing never shows. A thread keeps its worker full of sequences: whenever one is
 * finished it takes others of the oldest job that has any, of the first stream that wants work:
 * train, val, then passes in the order they were opened. So it goes on into the next batch while
 * the last sequences of the former are still in its worker, or in another thread's. After
 * HWI_TRAIN_TURNS batches of train one of another stream that wants work has its turn, however
 * fast train is read. The queue of val is empty until somebody asks for its first batch.
 *
 * In the flat layout the first job of a block (block.h) has a phase before these, measuring, whose
 * parts are the contexts of the block; the block's other jobs wait in that phase without parts.
 *
 * What is done in parts (sequences while making, pieces of the vectors while gathering) is claimed
 * under the mutex, a few sequences at a time, and given back without it: `pending` counts the parts
 * of a phase that are not done, and whoever takes it to 0 alone moves the job on. A job that was
 * dropped loses its unclaimed parts at once and is recycled by whoever takes `pending` to 0, so
 * never while a thread holds a part of it. When it is over, threads un-claim what they hold.
 *
 * Which seeds make batch n is batch_seeds.c's arithmetic; how a sequence is made is
 * batch/worker.c's.
 *
 *     streams.c      streams to the caller: waits, passes, positions
 *     jobs.c         batches in production: started, moved from phase to phase, dropped, recycled
 *     threads.c      what a thread does in a step of its turn: claims and works
 *     thread_pool.c  the threads, which samplers share: which of them has a turn when
 *     sampler.c      opens and closes all of it, and tells what it knows
 *
 * One mutex guards everything below that does not say otherwise; it is never held while a sequence
 * is made, memory is copied or a callback runs. Locks are taken in the order shutdown_mutex,
 * spare_mutex, mutex, and then the thread pool's or the slabs'; no thread holds the thread pool's
 * during a turn. An error in a thread is latched: production ends, every later next
 * returns it. So is one in the calling thread, but for HW_NO_MEMORY: nothing is lost, and the
 * caller may ask again.
 *
 * References to a sampler are its callers' and its open passes'. Who drops the last one shuts it
 * down and frees it, so that is never a thread of its own.
 */
#ifndef HWI_LOADER_H
#define HWI_LOADER_H

#include <pthread.h>
#include <unistd.h>

#include "base/error.h"
#include "batch/worker.h"
#include "loader/batch_seeds.h"

enum { HWI_ENDLESS_COUNT = 2 /* train, val */, HWI_TRAIN_TURNS = 7 };

enum hwi_phase { HWI_MEASURING, HWI_MAKING, HWI_MERGING, HWI_GATHERING, HWI_READY };

/* A batch that is being made, or made and waiting. */
struct hwi_job {
    struct hwi_job *next; /* in its stream's queue, or among the unused */
    struct hwi_stream *stream;
    struct hwi_batch_seeds seeds;
    struct hwi_block *block; /* of a levelled stream, else NULL */
    hw_batch *batch;
    struct hwi_batch_scratch *scratch; /* stays with the job */
    enum hwi_phase phase;
    uint32_t part_count, claimed_count; /* of the phase */
    atomic_uint pending; /* not guarded: parts of the phase that are not done, claimed or not */
    int dropped; /* no longer in the queue: recycled when nothing is pending */
};

struct hwi_stream {
    pthread_cond_t ready; /* the head is, or waiting makes no more sense */
    struct hwi_job *head, *tail;
    uint32_t depth, capacity; /* capacity 0: made in the calling thread */
    int wanted; /* of val: a batch was asked for */
    uint32_t job_count; /* of the queue, and dropped ones in production */
    uint64_t started, taken; /* batches since the position was set */
    /* endless */
    hw_split split;
    uint64_t first_batch; /* schedule slot of batch 0 */
    uint64_t *next_positions; /* [plan->task_count] of the next batch to start */
    uint64_t *taken_positions; /* [plan->task_count] of the next batch to hand out */
    struct hwi_block **blocks; /* [plan->task_count] the last one started of each, or NULL */
    /* finite */
    struct hwi_pass_plan pass; /* parts NULL: endless */
    int closed;
};

struct hw_pass {
    struct hwi_stream stream; /* first: a job's stream leads back here */
    struct hw_sampler *sampler; /* constant: a reference */
    struct hw_pass *next;
};

/* Parts [next, end) of a job's phase that a thread has claimed and not begun. */
struct hwi_claim {
    struct hwi_job *job;
    uint32_t next, end;
};

/* The context of one thread in a sampler. Members without a comment are the thread's alone, from
 * hwi_thread_pool_serve to hwi_thread_pool_dismiss. */
struct hwi_thread {
    struct hw_sampler *sampler; /* constant, as is the worker */
    struct hwi_worker *worker;
    int64_t rest_since_ns; /* guarded by the mutex: when it found nothing to do; 0: it works */
    uint64_t last_turn, answered_call; /* guarded by the thread pool's mutex */
    struct hwi_claim claim;
    struct hwi_job **held; /* [held_count] the job of each work in the worker, in any order */
    uint32_t held_count;
    struct hwi_counters counters; /* of what it did beside its worker */
};

struct hw_sampler {
    struct hwi_plan *plan; /* constant */
    struct hwi_pool *pool;
    pid_t pid; /* constant: of the process that has the threads */
    int64_t opened_ns; /* constant */
    pthread_mutex_t mutex;
    struct hwi_stream endless[HWI_ENDLESS_COUNT];
    struct hw_pass *passes;
    struct hwi_job *unused_jobs;
    uint32_t train_turns; /* batches of train since one of another stream */
    hw_error failure; /* status HW_OK: none */
    struct hwi_counters counters;
    uint64_t batch_count, producer_wait_ns, consumer_wait_ns;
    atomic_int shut_down; /* written with the mutex held */
    pthread_mutex_t shutdown_mutex; /* held by whoever shuts down, until production has ended */
    atomic_uint reference_count; /* not guarded */
    struct hwi_thread_pool *thread_pool; /* NULL: no threads, or it was shut down */
    struct hwi_thread *threads; /* constant [thread_count] */
    uint32_t thread_count; /* constant */
    /* guarded by the thread pool's mutex */
    struct hw_sampler *next_served;
    uint64_t call_count; /* of hwi_thread_pool_call */
    uint32_t inside_count; /* threads that take a turn for it */
    pthread_mutex_t spare_mutex;
    struct hwi_worker *spare; /* guarded by spare_mutex, like the scratch: batches made in the
                                 calling thread */
    struct hwi_batch_scratch *spare_scratch;
    struct hwi_block **spare_blocks; /* [plan->task_count] the last one of each, or NULL */
};

static inline int hwi_is_finite(const struct hwi_stream *stream) {
    return stream->pass.parts != NULL;
}

#endif
