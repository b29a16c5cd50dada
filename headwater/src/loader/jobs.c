/* Batches in production, from their start to the reader; see loader.h. */
#define _POSIX_C_SOURCE 200809L

#include "loader/jobs.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "batch/slab.h"
#include "batch/texts.h"
#include "loader/batch_seeds.h"
#include "loader/block.h"
#include "loader/thread_pool.h"

/* Sequences that one claim takes: few, so that threads share the last ones of a batch, and enough
 * that the mutex is taken once in about 100 us of a thread's time. */
enum { CLAIM_SEQUENCES = 4 };

/* ---- waking ------------------------------------------------------------------------------ */

void hwi_wake_everyone_locked(hw_sampler *sampler) {
    hwi_wake_locked(sampler, sampler->thread_count);
    for (int split = 0; split < HWI_ENDLESS_COUNT; split++) {
        pthread_cond_broadcast(&sampler->endless[split].ready);
    }
    for (struct hw_pass *pass = sampler->passes; pass != NULL; pass = pass->next) {
        pthread_cond_broadcast(&pass->stream.ready);
    }
}

void hwi_wake_locked(hw_sampler *sampler, uint32_t count) {
    if (sampler->thread_pool != NULL) {
        hwi_thread_pool_call(sampler->thread_pool, sampler, count);
    }
}

void hwi_latch_locked(hw_sampler *sampler, hw_status status, const hw_error *error) {
    if (sampler->failure.status == HW_OK) {
        sampler->failure = *error;
        sampler->failure.status = status;
        hwi_wake_everyone_locked(sampler);
    }
}

/* ---- the end of a job -------------------------------------------------------------------- */

void hwi_free_pass(struct hw_pass *pass) {
    pthread_cond_destroy(&pass->stream.ready);
    hwi_pass_plan_release(&pass->stream.pass);
    free(pass);
}

/* A job that no queue holds and no thread has a part of. */
static void recycle_locked(hw_sampler *sampler, struct hwi_job *job) {
    struct hwi_stream *stream = job->stream;
    hw_batch_release(job->batch);
    hwi_block_drop(job->block);
    job->block = NULL;
    job->batch = NULL;
    job->stream = NULL;
    job->next = sampler->unused_jobs;
    sampler->unused_jobs = job;
    stream->job_count--;
    if (stream->closed && stream->job_count == 0) {
        hwi_free_pass((struct hw_pass *)stream);
    }
}

/* 1 if the caller took the last parts away, so that what becomes of the job is its business. */
static int take_away(struct hwi_job *job, uint32_t count) {
    return count > 0 && atomic_fetch_sub(&job->pending, count) == count;
}

static void drop_locked(hw_sampler *sampler, struct hwi_job *job) {
    uint32_t unclaimed_count = job->part_count - job->claimed_count;
    job->dropped = 1;
    job->claimed_count = job->part_count;
    if (job->phase == HWI_READY || job->part_count == 0 || take_away(job, unclaimed_count)) {
        recycle_locked(sampler, job);
    }
}

void hwi_drop_jobs_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    stream->head = stream->tail = NULL;
    stream->depth = 0;
    for (uint32_t t = 0; stream->blocks != NULL && t < sampler->plan->task_count; t++) {
        hwi_block_drop(stream->blocks[t]); /* its first job may be dropped before it is levelled */
        stream->blocks[t] = NULL;
    }
    while (job != NULL) {
        struct hwi_job *next = job->next;
        drop_locked(sampler, job);
        job = next;
    }
}

void hwi_give_back_locked(hw_sampler *sampler, struct hwi_job *job, uint32_t count) {
    if (!job->dropped) {
        job->claimed_count -= count; /* nobody claims them: it is over */
    } else if (take_away(job, count)) {
        recycle_locked(sampler, job);
    }
}

static void free_job(struct hwi_job *job) {
    hwi_batch_scratch_close(job->scratch);
    free(job);
}

void hwi_free_unused_jobs(hw_sampler *sampler) {
    while (sampler->unused_jobs != NULL) {
        struct hwi_job *job = sampler->unused_jobs;
        sampler->unused_jobs = job->next;
        free_job(job);
    }
}

/* ---- its start --------------------------------------------------------------------------- */

static hw_status take_job_locked(hw_sampler *sampler, struct hwi_job **job, hw_error *error) {
    struct hwi_job *taken = sampler->unused_jobs;
    if (taken != NULL) {
        sampler->unused_jobs = taken->next;
    } else {
        taken = calloc(1, sizeof *taken);
        if (taken == NULL) {
            return hwi_no_memory(error, "a batch in production", sizeof *taken);
        }
        hw_status status = hwi_batch_scratch_open(sampler->plan, &taken->scratch, error);
        if (status != HW_OK) {
            free(taken);
            return status;
        }
    }
    hw_status status = hwi_pool_take(sampler->pool, &taken->batch, error);
    if (status != HW_OK) {
        free_job(taken);
        return status;
    }
    *job = taken;
    return HW_OK;
}

static int wants_work_locked(const hw_sampler *sampler, const struct hwi_stream *stream) {
    return stream->wanted && stream->depth < stream->capacity &&
           (hwi_is_finite(stream) ? stream->started < stream->pass.batch_count
                                  : sampler->plan->active_tasks[stream->split] > 0);
}

/* Seeds of the next batch that the stream will start. */
hw_status hwi_next_seeds_locked(const hw_sampler *sampler, const struct hwi_stream *stream,
                                struct hwi_batch_seeds *seeds, hw_error *error) {
    const struct hwi_plan *plan = sampler->plan;
    if (hwi_is_finite(stream)) {
        *seeds = hwi_stream_pass(plan, &stream->pass, stream->started);
        return HW_OK;
    }
    uint32_t task = 0;
    HW_TRY(
        hwi_order_task(plan, stream->split, stream->first_batch + stream->started, &task, error));
    return hwi_stream_endless(plan, stream->split, task, stream->next_positions[task], seeds,
                              error);
}

void hwi_count_started_locked(const hw_sampler *sampler, struct hwi_stream *stream,
                              const struct hwi_batch_seeds *seeds) {
    stream->started++;
    if (!hwi_is_finite(stream)) {
        stream->next_positions[seeds->task] += hwi_stream_step(sampler->plan);
    }
}

void hwi_count_taken_locked(const hw_sampler *sampler, struct hwi_stream *stream,
                            const struct hwi_batch_seeds *seeds) {
    stream->taken++;
    if (!hwi_is_finite(stream)) {
        stream->taken_positions[seeds->task] += hwi_stream_step(sampler->plan);
    }
}

/* Parts to claim. No thread has one of the phase before, and the mutex orders what they did. */
static void begin_phase_locked(struct hwi_job *job, enum hwi_phase phase, uint32_t part_count) {
    job->phase = phase;
    job->part_count = part_count;
    job->claimed_count = 0;
    atomic_store(&job->pending, part_count);
}

uint32_t hwi_claim_size_locked(const hw_sampler *sampler) {
    uint32_t share = sampler->plan->shape.contexts_per_batch / sampler->thread_count;
    return share < 1 ? 1 : share < CLAIM_SEQUENCES ? share : CLAIM_SEQUENCES;
}

static void begin_making_locked(const hw_sampler *sampler, struct hwi_job *job) {
    if (job->block != NULL) {
        job->seeds.levelled = hwi_block_batch(sampler->plan, job->block, &job->seeds.range);
    }
    begin_phase_locked(job, HWI_MAKING, sampler->plan->shape.contexts_per_batch);
}

/* A batch of a block that is not levelled waits for that: the first has its contexts as parts. */
static void begin_job_locked(const hw_sampler *sampler, struct hwi_job *job) {
    struct hwi_block *block = job->block;
    if (block == NULL || block->is_levelled) {
        begin_making_locked(sampler, job);
        return;
    }
    begin_phase_locked(job, HWI_MEASURING, block->is_begun ? 0 : block->context_count);
    block->is_begun = 1;
}

/* A job without seeds, with the block of those that it will have. */
static hw_status take_job_and_block_locked(hw_sampler *sampler, struct hwi_stream *stream,
                                           const struct hwi_batch_seeds *seeds,
                                           struct hwi_job **job, hw_error *error) {
    struct hwi_block *block = NULL;
    if (seeds->range.step_count > 0) {
        struct hwi_block **kept = hwi_is_finite(stream) ? NULL : &stream->blocks[seeds->task];
        HW_TRY(hwi_block_take(sampler->plan, seeds, kept, &block, error));
    }
    hw_status status = take_job_locked(sampler, job, error);
    if (status != HW_OK) {
        hwi_block_drop(block);
        return status;
    }
    (*job)->block = block;
    return HW_OK;
}

/* Puts the stream's next batch at the end of its queue. */
static hw_status start_job_locked(hw_sampler *sampler, struct hwi_stream *stream,
                                  struct hwi_job **started, hw_error *error) {
    struct hwi_batch_seeds seeds;
    struct hwi_job *job = NULL;
    HW_TRY(hwi_next_seeds_locked(sampler, stream, &seeds, error));
    HW_TRY(take_job_and_block_locked(sampler, stream, &seeds, &job, error));
    hwi_count_started_locked(sampler, stream, &seeds);
    job->next = NULL;
    job->stream = stream;
    job->seeds = seeds;
    job->dropped = 0;
    begin_job_locked(sampler, job);
    *(stream->tail == NULL ? &stream->head : &stream->tail->next) = job;
    stream->tail = job;
    stream->depth++;
    stream->job_count++;
    if (job->part_count > 0) {
        hwi_wake_locked(sampler, (job->part_count - 1) / hwi_claim_size_locked(sampler));
    }
    *started = job;
    return HW_OK;
}

struct hwi_job *hwi_find_work_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    while (job != NULL && job->claimed_count == job->part_count) {
        job = job->next;
    }
    hw_error error;
    while (job == NULL && wants_work_locked(sampler, stream)) {
        hw_status status = start_job_locked(sampler, stream, &job, &error);
        if (status != HW_OK) {
            hwi_latch_locked(sampler, status, &error);
            return NULL;
        }
        job = job->part_count > 0 ? job : NULL; /* it waits for its block */
    }
    return job;
}

/* ---- its phases -------------------------------------------------------------------------- */

void hwi_finish_batch(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                      hw_batch *batch, struct hwi_batch_scratch *scratch,
                      struct hwi_counters *counters) {
    int64_t start = hwi_now_ns();
    struct hwi_flat_sizes flat = hwi_stream_sizes(plan, seeds);
    hw_batch_sizes sizes = hwi_batch_finish(plan, hwi_batch_slab(batch), scratch,
                                            seeds->sequence_count, &flat, counters);
    hwi_batch_set_sizes(batch, sizes);
    counters->emit_ns += (uint64_t)(hwi_now_ns() - start);
}

/* The end of the last part, by the thread that has it. Not of a job that was dropped: parts of it
 * may never have been gathered, and the slab would name fewer dirty vectors than it has. */
static void finish_job(struct hwi_thread *thread, struct hwi_job *job) {
    hwi_finish_batch(thread->sampler->plan, &job->seeds, job->batch, job->scratch,
                     &thread->counters);
}

/* Hands the batch over. */
static void finish_locked(hw_sampler *sampler, struct hwi_job *job) {
    job->phase = HWI_READY;
    sampler->batch_count++;
    if (job == job->stream->head) {
        pthread_cond_broadcast(&job->stream->ready);
    }
}

/* All sequences are there; the thread has the one part of the phase. Texts that fit into one part
 * are gathered at once. */
static void merge_locked(struct hwi_thread *thread, struct hwi_job *job) {
    hw_sampler *sampler = thread->sampler;
    begin_phase_locked(job, HWI_MERGING, 1);
    job->claimed_count = 1;
    pthread_mutex_unlock(&sampler->mutex);
    int64_t start = hwi_now_ns();
    uint8_t *slab = hwi_batch_slab(job->batch);
    uint32_t part_count = hwi_batch_merge(sampler->plan, slab, job->scratch, job->seeds.task,
                                          job->seeds.sequence_count);
    if (part_count == 1) {
        hwi_batch_gather(sampler->plan, slab, job->scratch, 0);
    }
    thread->counters.text_ns += (uint64_t)(hwi_now_ns() - start);
    if (part_count == 1) {
        finish_job(thread, job);
    }
    pthread_mutex_lock(&sampler->mutex);
    if (job->dropped) {
        recycle_locked(sampler, job);
    } else if (part_count == 1) {
        finish_locked(sampler, job);
    } else {
        begin_phase_locked(job, HWI_GATHERING, part_count);
        hwi_wake_locked(sampler, part_count - 1); /* this thread takes some */
    }
}

/* The contexts of a block are measured; the thread has the one part of the phase. Every job that
 * waits for the block can begin. */
static void level_locked(struct hwi_thread *thread, struct hwi_job *job) {
    hw_sampler *sampler = thread->sampler;
    struct hwi_block *block = job->block;
    hw_error error;
    begin_phase_locked(job, HWI_MEASURING, 1);
    job->claimed_count = 1;
    pthread_mutex_unlock(&sampler->mutex);
    hw_status status = hwi_block_level(block, &error);
    pthread_mutex_lock(&sampler->mutex);
    if (job->dropped) {
        recycle_locked(sampler, job);
    } else if (status != HW_OK) {
        job->claimed_count = 0; /* nobody claims it: it is over */
        hwi_latch_locked(sampler, status, &error);
    } else {
        block->is_levelled = 1;
        for (struct hwi_job *other = job->stream->head; other != NULL; other = other->next) {
            if (other->block == block && other->phase == HWI_MEASURING) {
                begin_making_locked(sampler, other);
            }
        }
        hwi_wake_locked(sampler, sampler->thread_count);
    }
}

void hwi_parts_done(struct hwi_thread *thread, struct hwi_job *job, uint32_t count) {
    hw_sampler *sampler = thread->sampler;
    if (!take_away(job, count)) {
        return;
    }
    pthread_mutex_lock(&sampler->mutex);
    if (!job->dropped && job->phase == HWI_GATHERING) {
        pthread_mutex_unlock(&sampler->mutex);
        finish_job(thread, job);
        pthread_mutex_lock(&sampler->mutex);
    }
    if (job->dropped) {
        recycle_locked(sampler, job);
    } else if (job->phase == HWI_MEASURING) {
        level_locked(thread, job);
    } else if (job->phase == HWI_MAKING) {
        merge_locked(thread, job);
    } else {
        finish_locked(sampler, job);
    }
    pthread_mutex_unlock(&sampler->mutex);
}

hw_batch *hwi_pop_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    hw_batch *batch = job->batch;
    stream->head = job->next;
    if (stream->head == NULL) {
        stream->tail = NULL;
    } else if (stream->head->phase == HWI_READY) {
        pthread_cond_broadcast(&stream->ready); /* it was not the head when it became ready */
    }
    stream->depth--;
    hwi_count_taken_locked(sampler, stream, &job->seeds);
    job->batch = NULL;
    recycle_locked(sampler, job);
    hwi_wake_locked(sampler, 1); /* it starts a batch, and wakes those who help */
    return batch;
}
