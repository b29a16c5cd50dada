/* Streams to the caller: waits, passes, positions; see loader.h. */
#define _POSIX_C_SOURCE 200809L

#include "loader/loader.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "loader/jobs.h"
#include "loader/pass_fill.h"
#include "loader/sampler.h"
#include "loader/threads.h"
#include "plan/tasks.h"

#define SLICE_NS (100 * (int64_t)1000000)
#define SECOND_NS ((int64_t)1000000000)

/* ---- handing out ------------------------------------------------------------------------- */

/* HW_OK if the stream has, or will have, a batch; else why not. */
static hw_status check_stream_locked(const hw_sampler *sampler, const struct hwi_stream *stream,
                                     hw_error *error) {
    if (atomic_load(&sampler->shut_down)) {
        return hwi_fail(error, HW_SHUT_DOWN, "the sampler was shut down");
    }
    if (sampler->failure.status != HW_OK) {
        return hwi_fail(error, sampler->failure.status, "%s", sampler->failure.message);
    }
    if (hwi_is_finite(stream)) {
        return stream->taken < stream->pass.batch_count
                   ? HW_OK
                   : hwi_fail(error, HW_END, "the pass has no more batches");
    }
    uint32_t task;
    return hwi_order_task(sampler->plan, stream->split, 0, &task, error);
}

static hw_status take_synchronously(hw_sampler *sampler, struct hwi_stream *stream,
                                    hw_batch **batch, hw_error *error) {
    struct hwi_batch_seeds seeds;
    pthread_mutex_lock(&sampler->spare_mutex);
    pthread_mutex_lock(&sampler->mutex);
    hw_status status = check_stream_locked(sampler, stream, error);
    if (status == HW_OK) {
        status = hwi_next_seeds_locked(sampler, stream, &seeds, error);
    }
    pthread_mutex_unlock(&sampler->mutex);
    if (status == HW_OK) {
        hw_error failure;
        status = hwi_make_batch(sampler, &seeds, batch, &failure);
        pthread_mutex_lock(&sampler->mutex);
        if (status == HW_OK) {
            hwi_count_started_locked(sampler, stream, &seeds);
            hwi_count_taken_locked(sampler, stream, &seeds);
        } else {
            hwi_fail(error, status, "%s", failure.message);
            if (status != HW_SHUT_DOWN && status != HW_NO_MEMORY) { /* the caller may ask again */
                hwi_latch_locked(sampler, status, &failure);
            }
        }
        pthread_mutex_unlock(&sampler->mutex);
    }
    pthread_mutex_unlock(&sampler->spare_mutex);
    return status;
}

/* Waits for the head up to `until_ns`, at most one slice. */
static void wait_slice_locked(hw_sampler *sampler, struct hwi_stream *stream, int64_t until_ns) {
    int64_t since = hwi_now_ns();
    int64_t end = until_ns - since < SLICE_NS ? until_ns : since + SLICE_NS;
    struct timespec time = {.tv_sec = (time_t)(end / SECOND_NS), .tv_nsec = end % SECOND_NS};
    pthread_cond_timedwait(&stream->ready, &sampler->mutex, &time);
    sampler->consumer_wait_ns += (uint64_t)(hwi_now_ns() - since);
}

static hw_status take(hw_sampler *sampler, struct hwi_stream *stream, int64_t timeout_ms,
                      hw_interrupt_callback interrupt, void *context, hw_batch **batch,
                      hw_error *error) {
    if (stream->capacity == 0) {
        return take_synchronously(sampler, stream, batch, error);
    }
    int64_t start = hwi_now_ns(), until = INT64_MAX;
    if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - start) / 1000000) {
        until = start + timeout_ms * 1000000;
    }
    int64_t next_interrupt = start + SLICE_NS;
    pthread_mutex_lock(&sampler->mutex);
    if (!stream->wanted) {
        stream->wanted = 1;
        hwi_wake_locked(sampler, sampler->thread_count);
    }
    hw_status status = check_stream_locked(sampler, stream, error);
    while (status == HW_OK && (stream->head == NULL || stream->head->phase != HWI_READY)) {
        int64_t now = hwi_now_ns();
        if (now >= until) {
            status = hwi_fail(error, HW_TIMED_OUT, "no batch was ready within %lld ms",
                              (long long)timeout_ms);
        } else if (interrupt != NULL && now >= next_interrupt) {
            pthread_mutex_unlock(&sampler->mutex);
            int stop = interrupt(context);
            pthread_mutex_lock(&sampler->mutex);
            next_interrupt = hwi_now_ns() + SLICE_NS;
            status = stop ? hwi_fail(error, HW_INTERRUPTED, "the wait for a batch was interrupted")
                          : check_stream_locked(sampler, stream, error);
        } else {
            wait_slice_locked(sampler, stream, until);
            status = check_stream_locked(sampler, stream, error);
        }
    }
    if (status == HW_OK) {
        *batch = hwi_pop_locked(sampler, stream);
    }
    pthread_mutex_unlock(&sampler->mutex);
    return status;
}

static hw_status check_endless(hw_split split, hw_error *error) {
    if (split != HW_TRAIN && split != HW_VAL) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "split %d has no stream, expected 0 (train) or 1 (val); use a pass",
                        (int)split);
    }
    return HW_OK;
}

/* Flat batches of a stream are levelled; of another split than train they come from a pass. */
static hw_status check_levelled(const hw_sampler *sampler, hw_split split, hw_error *error) {
    return sampler->plan->flat == NULL || split == HW_TRAIN
               ? HW_OK
               : hwi_fail(error, HW_BAD_ARGUMENT,
                          "layout 'flat' has a stream of train alone, split %d needs a pass",
                          (int)split);
}

hw_status hw_sampler_next(hw_sampler *sampler, hw_split split, int64_t timeout_ms,
                          hw_interrupt_callback interrupt, void *context, hw_batch **batch,
                          hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    HW_TRY(check_endless(split, error));
    HW_TRY(check_levelled(sampler, split, error));
    return take(sampler, &sampler->endless[split], timeout_ms, interrupt, context, batch, error);
}

hw_status hw_sampler_batch(hw_sampler *sampler, hw_split split, uint64_t k, hw_batch **batch,
                           hw_error *error) {
    uint32_t task = 0;
    struct hwi_batch_seeds seeds;
    HW_TRY(hwi_sampler_check_process(sampler, error));
    HW_TRY(hwi_order_check_split(split, error));
    HW_TRY(check_levelled(sampler, split, error));
    HW_TRY(hwi_order_task(sampler->plan, split, k, &task, error));
    uint64_t before = hwi_order_task_batches(sampler->plan, split, k, task), position;
    if (hwi_mul_overflows(before, hwi_stream_step(sampler->plan), &position)) {
        position = UINT64_MAX; /* refused by the next line */
    }
    HW_TRY(hwi_stream_endless(sampler->plan, split, task, position, &seeds, error));
    pthread_mutex_lock(&sampler->spare_mutex);
    hw_status status = hwi_make_batch(sampler, &seeds, batch, error);
    pthread_mutex_unlock(&sampler->spare_mutex);
    return status;
}

/* ---- passes ------------------------------------------------------------------------------ */

/* Which seeds each flat batch of a pass has. */
static hw_status fill_batches(hw_sampler *sampler, struct hwi_pass_plan *plan, hw_error *error) {
    pthread_mutex_lock(&sampler->spare_mutex);
    hw_status status = hwi_spare_worker(sampler, error);
    if (status == HW_OK) {
        status = hwi_pass_fill(sampler->plan, sampler->spare, &sampler->shut_down, plan, error);
        if (status != HW_OK) {
            hwi_worker_abandon(sampler->spare);
        }
        pthread_mutex_lock(&sampler->mutex);
        hwi_worker_take_counters(sampler->spare, &sampler->counters);
        pthread_mutex_unlock(&sampler->mutex);
    }
    pthread_mutex_unlock(&sampler->spare_mutex);
    return status;
}

/* The pass of a plan, which it owns from here on; `status` is whether the plan was made. Flat
 * batches are filled, or levelled. */
static hw_status open_pass(hw_sampler *sampler, hw_status status, struct hwi_pass_plan *plan,
                           int is_levelled, hw_pass **pass, hw_error *error) {
    struct hw_pass *made = NULL;
    if (status == HW_OK && sampler->plan->flat != NULL && !is_levelled) {
        status = fill_batches(sampler, plan, error);
    }
    if (status == HW_OK) {
        made = calloc(1, sizeof *made);
        status = made == NULL ? hwi_no_memory(error, "a pass", sizeof *made)
                              : hwi_condition_init(&made->stream.ready, error);
    }
    if (status != HW_OK) {
        free(made);
        hwi_pass_plan_release(plan);
        return status;
    }
    made->sampler = hw_sampler_retain(sampler);
    made->stream.pass = *plan;
    made->stream.wanted = 1;
    uint32_t prefetch = sampler->endless[HW_TRAIN].capacity;
    made->stream.capacity = sampler->thread_count == 0 ? 0 : (prefetch > 0 ? prefetch : 1);
    pthread_mutex_lock(&sampler->mutex);
    struct hw_pass **last = &sampler->passes;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = made;
    hwi_wake_locked(sampler, sampler->thread_count);
    pthread_mutex_unlock(&sampler->mutex);
    *pass = made;
    return HW_OK;
}

hw_status hw_pass_open(hw_sampler *sampler, hw_split split, uint32_t task, uint32_t index,
                       hw_pass **pass, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    struct hwi_pass_plan plan = {0};
    hw_status status = hwi_pass_plan_epoch(sampler->plan, split, task, index, &plan, error);
    return open_pass(sampler, status, &plan, 0, pass, error);
}

hw_status hw_pass_open_seeds(hw_sampler *sampler, uint32_t task, const uint32_t *anchors,
                             const int64_t *obs_times, uint32_t count, hw_pass **pass,
                             hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    struct hwi_pass_plan plan = {0};
    hw_status status =
        hwi_pass_plan_seeds(sampler->plan, task, anchors, obs_times, count, &plan, error);
    return open_pass(sampler, status, &plan, 0, pass, error);
}

static hw_status open_chosen(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                             const uint32_t *epochs, uint32_t count, int is_levelled,
                             hw_pass **pass, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    struct hwi_pass_plan plan = {0};
    hw_status status =
        hwi_pass_plan_chosen(sampler->plan, task, seeds, epochs, count, &plan, error);
    return open_pass(sampler, status, &plan, is_levelled, pass, error);
}

hw_status hw_pass_open_chosen(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                              const uint32_t *epochs, uint32_t count, hw_pass **pass,
                              hw_error *error) {
    return open_chosen(sampler, task, seeds, epochs, count, 0, pass, error);
}

hw_status hw_pass_open_levelled(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                                const uint32_t *epochs, uint32_t count, hw_pass **pass,
                                hw_error *error) {
    return open_chosen(sampler, task, seeds, epochs, count, 1, pass, error);
}

uint64_t hw_pass_batch_count(const hw_pass *pass) {
    return pass->stream.pass.batch_count;
}

hw_status hw_pass_next(hw_pass *pass, int64_t timeout_ms, hw_interrupt_callback interrupt,
                       void *context, hw_batch **batch, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(pass->sampler, error));
    return take(pass->sampler, &pass->stream, timeout_ms, interrupt, context, batch, error);
}

void hw_pass_close(hw_pass *pass) {
    if (pass == NULL) {
        return;
    }
    hw_sampler *sampler = pass->sampler;
    if (hwi_sampler_check_process(sampler, NULL) != HW_OK) {
        return; /* the parent's, and its mutex may be in any state */
    }
    pthread_mutex_lock(&sampler->mutex);
    struct hw_pass **link = &sampler->passes;
    while (*link != pass) {
        link = &(*link)->next;
    }
    *link = pass->next;
    hwi_drop_jobs_locked(sampler, &pass->stream);
    pass->stream.closed = 1;
    if (pass->stream.job_count == 0) {
        hwi_free_pass(pass);
    } /* else the last thread that works for it does */
    pthread_mutex_unlock(&sampler->mutex);
    hw_sampler_close(sampler);
}

/* ---- positions --------------------------------------------------------------------------- */

hw_status hw_sampler_get_position(hw_sampler *sampler, hw_split split, uint64_t *positions,
                                  uint64_t *batches, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    HW_TRY(check_endless(split, error));
    const struct hwi_stream *stream = &sampler->endless[split];
    pthread_mutex_lock(&sampler->mutex);
    hwi_plan_spread(sampler->plan, stream->taken_positions, positions);
    *batches = stream->first_batch + stream->taken;
    pthread_mutex_unlock(&sampler->mutex);
    return HW_OK;
}

hw_status hw_sampler_set_position(hw_sampler *sampler, hw_split split, const uint64_t *positions,
                                  uint64_t batches, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    HW_TRY(check_endless(split, error));
    const struct hwi_plan *plan = sampler->plan;
    struct hwi_stream *stream = &sampler->endless[split];
    struct hwi_batch_seeds seeds;
    for (uint32_t t = 0; t < plan->task_count; t++) {
        if (plan->tasks[t].lists[split].count > 0) {
            HW_TRY(
                hwi_stream_endless(plan, split, t, positions[plan->tasks[t].task], &seeds, error));
        }
    }
    pthread_mutex_lock(&sampler->spare_mutex); /* no batch is being made in a calling thread */
    pthread_mutex_lock(&sampler->mutex);
    hwi_drop_jobs_locked(sampler, stream);
    for (uint32_t t = 0; t < plan->task_count; t++) {
        stream->next_positions[t] = stream->taken_positions[t] = positions[plan->tasks[t].task];
    }
    stream->first_batch = batches;
    stream->started = stream->taken = 0;
    hwi_wake_locked(sampler, sampler->thread_count);
    pthread_mutex_unlock(&sampler->mutex);
    pthread_mutex_unlock(&sampler->spare_mutex);
    return HW_OK;
}
