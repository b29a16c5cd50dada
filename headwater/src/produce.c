/* Production: threads claim runs of batches, and the last of a batch finishes it; see loader.h. */
#define _POSIX_C_SOURCE 200809L

#include "loader.h"

#include <assert.h>
#include <stdlib.h>

#include "error.h"

/* ---- jobs -------------------------------------------------------------------------------- */

void hwi_wake_everyone_locked(hw_sampler *sampler) {
    pthread_cond_broadcast(&sampler->work);
    for (int split = 0; split < HWI_ENDLESS_COUNT; split++) {
        pthread_cond_broadcast(&sampler->endless[split].ready);
    }
    for (struct hw_pass *pass = sampler->passes; pass != NULL; pass = pass->next) {
        pthread_cond_broadcast(&pass->stream.ready);
    }
}

void hwi_latch_locked(hw_sampler *sampler, hw_status status, const hw_error *error) {
    if (sampler->failure.status == HW_OK) {
        sampler->failure = *error;
        sampler->failure.status = status;
        hwi_wake_everyone_locked(sampler);
    }
}

static int is_over_locked(const hw_sampler *sampler) {
    return atomic_load(&sampler->shut_down) || sampler->failure.status != HW_OK;
}

void hwi_free_pass(struct hw_pass *pass) {
    pthread_cond_destroy(&pass->stream.ready);
    hwi_pass_plan_release(&pass->stream.pass);
    free(pass);
}

/* A job that no queue holds and no thread works on. */
static void recycle_locked(hw_sampler *sampler, struct hwi_job *job) {
    struct hwi_stream *stream = job->stream;
    hw_batch_release(job->batch);
    job->batch = NULL;
    job->stream = NULL;
    job->next = sampler->unused_jobs;
    sampler->unused_jobs = job;
    stream->job_count--;
    if (stream->closed && stream->job_count == 0) {
        hwi_free_pass((struct hw_pass *)stream);
    }
}

void hwi_drop_jobs_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    stream->head = stream->tail = NULL;
    stream->depth = 0;
    while (job != NULL) {
        struct hwi_job *next = job->next;
        job->dropped = 1;
        if (job->thread_count == 0) {
            recycle_locked(sampler, job);
        }
        job = next;
    }
}

static void free_job(struct hwi_job *job) {
    hwi_batch_scratch_close(job->scratch);
    free(job);
}

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
    return stream->depth < stream->capacity &&
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

/* Puts the stream's next batch at the end of its queue. */
static hw_status start_job_locked(hw_sampler *sampler, struct hwi_stream *stream,
                                  struct hwi_job **started, hw_error *error) {
    struct hwi_batch_seeds seeds;
    struct hwi_job *job = NULL;
    HW_TRY(hwi_next_seeds_locked(sampler, stream, &seeds, error));
    HW_TRY(take_job_locked(sampler, &job, error));
    hwi_count_started_locked(sampler, stream, &seeds);
    job->next = NULL;
    job->stream = stream;
    job->seeds = seeds;
    job->run_count = sampler->run_count;
    job->claimed_runs = job->done_runs = job->thread_count = 0;
    job->ready = job->dropped = 0;
    *(stream->tail == NULL ? &stream->head : &stream->tail->next) = job;
    stream->tail = job;
    stream->depth++;
    stream->job_count++;
    pthread_cond_broadcast(&sampler->work); /* it has more runs than one thread takes */
    *started = job;
    return HW_OK;
}

hw_batch *hwi_pop_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    hw_batch *batch = job->batch;
    stream->head = job->next;
    if (stream->head == NULL) {
        stream->tail = NULL;
    }
    stream->depth--;
    hwi_count_taken_locked(sampler, stream, &job->seeds);
    job->batch = NULL;
    assert(job->thread_count == 0); /* the last one left in the step that made it ready */
    recycle_locked(sampler, job);
    pthread_cond_broadcast(&sampler->work);
    return batch;
}

void hwi_free_unused_jobs(hw_sampler *sampler) {
    while (sampler->unused_jobs != NULL) {
        struct hwi_job *job = sampler->unused_jobs;
        sampler->unused_jobs = job->next;
        free_job(job);
    }
}

/* ---- production -------------------------------------------------------------------------- */

/* Makes sequences [first, end) of a batch. */
static hw_status make_sequences(const hw_sampler *sampler, struct hwi_worker *worker,
                                const struct hwi_batch_seeds *seeds, hw_batch *batch,
                                struct hwi_batch_scratch *scratch, uint32_t first, uint32_t end,
                                hw_error *error) {
    if (first == 0) {
        HW_TRY(hwi_store_check_sizes(sampler->plan->store, error));
    }
    struct hwi_work work = {.slab = hwi_batch_slab(batch), .scratch = scratch, .b = first};
    while (work.b < end || hwi_worker_live(worker) > 0) {
        struct hwi_work finished;
        for (; work.b < end && hwi_worker_room(worker) > 0; work.b++) {
            work.is_real = work.b < seeds->sequence_count;
            if (work.is_real) {
                work.seed = hwi_stream_seed(sampler->plan, seeds, work.b);
            }
            hwi_worker_start(worker, &work);
        }
        hw_status status = hwi_worker_advance(worker, &finished, error);
        if (status == HW_OK && atomic_load(&sampler->shut_down)) {
            status = hwi_fail(error, HW_SHUT_DOWN, "the sampler was shut down");
        }
        if (status != HW_OK) {
            hwi_worker_abandon(worker);
            return status;
        }
    }
    return HW_OK;
}

static hw_status make_run(const hw_sampler *sampler, struct hwi_worker *worker, struct hwi_job *job,
                          uint32_t run, hw_error *error) {
    uint32_t count = sampler->plan->shape.contexts_per_batch, first = run * HWI_RUN_SEQUENCES;
    uint32_t end = count - first < HWI_RUN_SEQUENCES ? count : first + HWI_RUN_SEQUENCES;
    return make_sequences(sampler, worker, &job->seeds, job->batch, job->scratch, first, end,
                          error);
}

/* A run of the oldest unfinished batch of a stream, which may start one for it. */
static struct hwi_job *claim_in_locked(hw_sampler *sampler, struct hwi_stream *stream) {
    struct hwi_job *job = stream->head;
    while (job != NULL && job->claimed_runs == job->run_count) {
        job = job->next;
    }
    hw_error error;
    if (job == NULL && wants_work_locked(sampler, stream)) {
        hw_status status = start_job_locked(sampler, stream, &job, &error);
        if (status != HW_OK) {
            hwi_latch_locked(sampler, status, &error);
            return NULL;
        }
    }
    return job;
}

static struct hwi_job *claim_locked(hw_sampler *sampler, uint32_t *run) {
    struct hwi_job *job = NULL;
    for (int split = 0; split < HWI_ENDLESS_COUNT && job == NULL; split++) {
        job = claim_in_locked(sampler, &sampler->endless[split]);
    }
    for (struct hw_pass *pass = sampler->passes; pass != NULL && job == NULL; pass = pass->next) {
        job = claim_in_locked(sampler, &pass->stream);
    }
    if (job != NULL) {
        *run = job->claimed_runs++;
        job->thread_count++;
    }
    return job;
}

/* Ends a thread's part in a job. The thread of its last run finishes the batch, unlocked. */
static void leave_locked(hw_sampler *sampler, struct hwi_worker *worker, struct hwi_job *job,
                         hw_status status, hw_error *error) {
    if (status == HW_OK && ++job->done_runs == job->run_count && !job->dropped) {
        pthread_mutex_unlock(&sampler->mutex);
        status = hwi_batch_finish(worker, sampler->plan, hwi_batch_slab(job->batch), job->scratch,
                                  job->seeds.task, job->seeds.sequence_count, error);
        pthread_mutex_lock(&sampler->mutex);
        if (status == HW_OK && !job->dropped) {
            job->ready = 1;
            sampler->batch_count++;
            pthread_cond_broadcast(&job->stream->ready);
        }
    }
    hwi_worker_take_counters(worker, &sampler->counters);
    job->thread_count--;
    if (job->dropped && job->thread_count == 0) {
        recycle_locked(sampler, job);
    }
    if (status != HW_OK) {
        hwi_latch_locked(sampler, status, error);
    }
}

void *hwi_produce(void *argument) {
    struct hwi_thread *thread = argument;
    hw_sampler *sampler = thread->sampler;
    pthread_mutex_lock(&sampler->mutex);
    while (!is_over_locked(sampler)) {
        uint32_t run = 0;
        struct hwi_job *job = claim_locked(sampler, &run);
        if (job == NULL) {
            if (!is_over_locked(sampler)) {
                int64_t since = hwi_now_ns();
                pthread_cond_wait(&sampler->work, &sampler->mutex);
                sampler->producer_wait_ns += (uint64_t)(hwi_now_ns() - since);
            }
            continue;
        }
        pthread_mutex_unlock(&sampler->mutex);
        hw_error error;
        hw_status status = make_run(sampler, thread->worker, job, run, &error);
        pthread_mutex_lock(&sampler->mutex);
        leave_locked(sampler, thread->worker, job, status, &error);
    }
    pthread_mutex_unlock(&sampler->mutex);
    return NULL;
}

/* Makes a whole batch in the calling thread, which holds spare_mutex. */
hw_status hwi_make_batch(hw_sampler *sampler, const struct hwi_batch_seeds *seeds, hw_batch **batch,
                         hw_error *error) {
    if (sampler->spare == NULL) {
        HW_TRY(hwi_worker_open(sampler->plan, &sampler->spare, error));
    }
    if (sampler->spare_scratch == NULL) {
        HW_TRY(hwi_batch_scratch_open(sampler->plan, &sampler->spare_scratch, error));
    }
    hw_batch *made = NULL;
    HW_TRY(hwi_pool_take(sampler->pool, &made, error));
    hw_status status = make_sequences(sampler, sampler->spare, seeds, made, sampler->spare_scratch,
                                      0, sampler->plan->shape.contexts_per_batch, error);
    if (status == HW_OK) {
        status =
            hwi_batch_finish(sampler->spare, sampler->plan, hwi_batch_slab(made),
                             sampler->spare_scratch, seeds->task, seeds->sequence_count, error);
    }
    pthread_mutex_lock(&sampler->mutex);
    hwi_worker_take_counters(sampler->spare, &sampler->counters);
    sampler->batch_count += status == HW_OK;
    pthread_mutex_unlock(&sampler->mutex);
    if (status != HW_OK) {
        hw_batch_release(made);
        return status;
    }
    *batch = made;
    return HW_OK;
}
