/* A sampler as a whole: opened, asked, shut down, closed; see loader.h. */
#define _POSIX_C_SOURCE 200809L

#include "loader/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "batch/slab.h"
#include "batch/texts.h"
#include "batch/worker.h"
#include "loader/batch_seeds.h"
#include "loader/block.h"
#include "loader/jobs.h"
#include "loader/thread_pool.h"
#include "loader/threads.h"
#include "plan/open_plan.h"
#include "plan/options.h"
#include "plan/scales.h"
#include "shape/shape.h"

enum {
    LEAST_CHOSEN_PREFETCH = 3,
    SURPLUS_SLABS = 2, /* kept beyond the queues: one in the caller's hands, one in its transfer */
};
#define MOST_RAISED_BYTES ((uint64_t)1 << 30)

hw_status hwi_sampler_check_process(const hw_sampler *sampler, hw_error *error) {
    if (getpid() != sampler->pid) {
        return hwi_fail(error, HW_FORKED,
                        "the sampler was opened before this process was forked; open it after");
    }
    return HW_OK;
}

hw_status hwi_condition_init(pthread_cond_t *condition, hw_error *error) {
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (failed == 0) {
        failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) ||
                 pthread_cond_init(condition, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    return failed ? hwi_no_memory(error, "a condition", sizeof *condition) : HW_OK;
}

/* ---- statistics -------------------------------------------------------------------------- */

static uint32_t ready_count_locked(const struct hwi_stream *stream) {
    uint32_t count = 0;
    for (const struct hwi_job *job = stream->head; job != NULL; job = job->next) {
        count += job->phase == HWI_READY;
    }
    return count;
}

hw_status hw_sampler_get_stats(hw_sampler *sampler, hw_sampler_stats *wanted, hw_error *error) {
    hw_sampler_stats stats = {0};
    HW_TRY(hwi_sampler_check_process(sampler, error));
    pthread_mutex_lock(&sampler->mutex);
    const struct hwi_counters *counters = &sampler->counters;
    stats.batches = sampler->batch_count;
    stats.sequences = counters->sequences;
    stats.cells = counters->cells;
    stats.padded_cells = counters->padded_cells;
    stats.rows = counters->rows;
    stats.walk_ns = counters->walk_ns;
    stats.emit_ns = counters->emit_ns;
    stats.text_ns = counters->text_ns;
    stats.stopped_by_rows = counters->stopped_by_rows;
    stats.texts_over_budget = counters->texts_over_budget;
    stats.contexts_cut = counters->contexts_cut;
    stats.contexts_dropped = counters->contexts_dropped;
    stats.cells_cut = counters->cells_cut;
    stats.packed_cells = counters->packed_cells;
    stats.packed_sequences = counters->packed_sequences;
    stats.masked_cells = counters->masked_cells;
    stats.masked_over_limit = counters->masked_over_limit;
    stats.withheld_cells = counters->withheld_cells;
    int64_t now = hwi_now_ns();
    stats.producer_wait_ns = sampler->producer_wait_ns;
    for (uint32_t i = 0; i < sampler->thread_count; i++) {
        int64_t since = sampler->threads[i].rest_since_ns;
        stats.producer_wait_ns += since == 0 ? 0 : (uint64_t)(now - since);
    }
    stats.consumer_wait_ns = sampler->consumer_wait_ns;
    stats.elapsed_ns = (uint64_t)(now - sampler->opened_ns);
    stats.threads = sampler->thread_count;
    stats.train_queue = ready_count_locked(&sampler->endless[HW_TRAIN]);
    stats.val_queue = ready_count_locked(&sampler->endless[HW_VAL]);
    for (const struct hw_pass *pass = sampler->passes; pass != NULL; pass = pass->next) {
        stats.pass_queue += ready_count_locked(&pass->stream);
    }
    pthread_mutex_unlock(&sampler->mutex);
    hwi_pool_measure(sampler->pool, &stats.slab_count, &stats.slab_bytes);
    return HWI_GIVE(hw_sampler_stats, wanted, &stats, error);
}

/* ---- what the plan knows ----------------------------------------------------------------- */

hw_status hw_sampler_shape(const hw_sampler *sampler, hw_shape *shape, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    return HWI_GIVE(hw_shape, shape, &sampler->plan->shape, error);
}

hw_status hw_sampler_flat_shape(const hw_sampler *sampler, uint32_t task, hw_flat_shape *shape,
                                hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    uint32_t selected = 0;
    HW_TRY(hwi_stream_task(sampler->plan, task, &selected, error));
    if (sampler->plan->flat == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the layout is not 'flat'");
    }
    return HWI_GIVE(hw_flat_shape, shape, &sampler->plan->flat[selected].shape, error);
}

hw_status hw_sampler_seed_count(const hw_sampler *sampler, hw_split split, uint32_t task,
                                uint32_t *count, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    uint32_t selected = 0;
    HW_TRY(hwi_order_check_split(split, error));
    HW_TRY(hwi_stream_task(sampler->plan, task, &selected, error));
    *count = sampler->plan->tasks[selected].lists[split].count;
    return HW_OK;
}

hw_status hw_sampler_splits(const hw_sampler *sampler, uint32_t task, uint8_t *splits,
                            uint32_t count, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    uint32_t selected = 0;
    HW_TRY(hwi_stream_task(sampler->plan, task, &selected, error));
    uint32_t seed_count = sampler->plan->tasks[selected].info->seed_count;
    if (count != seed_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "task %u has %u seeds, not %u", task, seed_count,
                        count);
    }
    if (count > 0) {
        memcpy(splits, sampler->plan->tasks[selected].splits, count);
    }
    return HW_OK;
}

hw_status hw_sampler_target_stats(const hw_sampler *sampler, uint32_t task, hw_target_stats *stats,
                                  hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    uint32_t selected = 0;
    HW_TRY(hwi_stream_task(sampler->plan, task, &selected, error));
    hw_target_stats full = sampler->plan->tasks[selected].stats;
    if (sampler->plan->tasks[selected].info->target_stype == HW_TIMESTAMP) {
        full.column_mean = sampler->plan->time_mean_us;
        full.column_std = sampler->plan->time_std_us;
    }
    return HWI_GIVE(hw_target_stats, stats, &full, error);
}

hw_status hw_sampler_column_scale(const hw_sampler *sampler, uint32_t column, double *mean,
                                  double *std, hw_error *error) {
    HW_TRY(hwi_sampler_check_process(sampler, error));
    const struct hwi_plan *plan = sampler->plan;
    if (column >= plan->store->info->column_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column %u, expected less than %u", column,
                        plan->store->info->column_count);
    }
    *mean = *std = 0;
    if (plan->store->columns[column].stype == HW_NUMERICAL) {
        hwi_column_scale(plan, column, mean, std);
    } else if (plan->store->columns[column].stype == HW_TIMESTAMP) {
        *mean = plan->time_mean_us;
        *std = plan->time_std_us;
    }
    return HW_OK;
}

/* ---- parts of a sampler ------------------------------------------------------------------ */

/* Batches that cannot all be in memory are refused here, where the caller can lower something, and
 * not by the system when their pages are first written. */
static hw_status check_memory(const struct hwi_plan *plan, uint32_t batch_count, hw_error *error) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) {
        return HW_OK;
    }
    uint64_t memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    uint64_t bytes = plan->slab_bytes + (plan->staging != NULL ? plan->staging->slab_bytes : 0);
    if (bytes > memory_bytes / batch_count) {
        return hwi_fail(error, HW_NO_MEMORY,
                        "%u batches of %llu bytes do not fit into the %llu bytes of this machine's "
                        "memory (batch_size %u, sequence_length %u, max_rows %u, text_budget %u)",
                        batch_count, (unsigned long long)bytes, (unsigned long long)memory_bytes,
                        plan->shape.batch_size, plan->shape.sequence_length, plan->shape.max_rows,
                        plan->shape.text_budget);
    }
    return HW_OK;
}

/* The last block of each task, where calling threads make batches. */
static hw_status open_spare_blocks(hw_sampler *sampler, hw_error *error) {
    size_t count = (size_t)sampler->plan->task_count + 1;
    sampler->spare_blocks = calloc(count, sizeof *sampler->spare_blocks);
    return sampler->spare_blocks != NULL
               ? HW_OK
               : hwi_no_memory(error, "blocks", count * sizeof *sampler->spare_blocks);
}

static void drop_blocks(const hw_sampler *sampler, struct hwi_block **blocks) {
    for (uint32_t t = 0; blocks != NULL && t < sampler->plan->task_count; t++) {
        hwi_block_drop(blocks[t]);
    }
    free(blocks);
}

static hw_status open_stream(hw_sampler *sampler, hw_split split, int32_t capacity,
                             hw_error *error) {
    struct hwi_stream *stream = &sampler->endless[split];
    size_t count = (size_t)sampler->plan->task_count + 1;
    stream->split = split;
    stream->wanted = split == HW_TRAIN;
    stream->capacity = (uint32_t)capacity;
    stream->next_positions = calloc(count, sizeof(uint64_t));
    stream->taken_positions = calloc(count, sizeof(uint64_t));
    stream->blocks = calloc(count, sizeof *stream->blocks);
    if (stream->next_positions == NULL || stream->taken_positions == NULL ||
        stream->blocks == NULL) {
        return hwi_no_memory(error, "the positions of a stream", count * sizeof(uint64_t));
    }
    return HW_OK;
}

/* ---- threads ----------------------------------------------------------------------------- */

/* Everything that a thread needs for this sampler. */
static hw_status open_workers(hw_sampler *sampler, hw_error *error) {
    uint32_t count = sampler->thread_count;
    sampler->threads = calloc(count, sizeof *sampler->threads);
    if (sampler->threads == NULL) {
        sampler->thread_count = 0;
        return hwi_no_memory(error, "the threads", count * sizeof *sampler->threads);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct hwi_thread *thread = &sampler->threads[i];
        thread->sampler = sampler;
        HW_TRY(hwi_worker_open(sampler->plan, &thread->worker, error));
        uint32_t room = hwi_worker_room(thread->worker);
        thread->held = calloc(room, sizeof(struct hwi_job *));
        if (thread->held == NULL) {
            return hwi_no_memory(error, "a thread", room * sizeof(struct hwi_job *));
        }
    }
    return HW_OK;
}

/*
 * Batches that the train stream may have ready or in production where the caller does not say: no
 * fewer than the sequences that fill all workers make, and one for the reader. With less, full
 * queues would leave most of many threads without work. Not more than 1 GB is added.
 */
static uint32_t chosen_prefetch(const hw_sampler *sampler) {
    const struct hwi_plan *staging = sampler->plan->staging;
    uint64_t held = 0, slab_bytes = sampler->plan->slab_bytes;
    slab_bytes += staging != NULL ? staging->slab_bytes : 0;
    for (uint32_t i = 0; i < sampler->thread_count; i++) {
        held += hwi_worker_room(sampler->threads[i].worker);
    }
    uint32_t context_count = sampler->plan->shape.contexts_per_batch;
    uint64_t needed = 1 + (held + context_count - 1) / context_count;
    uint64_t most = LEAST_CHOSEN_PREFETCH + MOST_RAISED_BYTES / (slab_bytes > 0 ? slab_bytes : 1);
    needed = needed < most ? needed : most;
    needed = needed < HWI_MAX_PREFETCH ? needed : HWI_MAX_PREFETCH;
    return needed > LEAST_CHOSEN_PREFETCH ? (uint32_t)needed : LEAST_CHOSEN_PREFETCH;
}

/* ---- open and close ---------------------------------------------------------------------- */

static hw_status init_locks(hw_sampler *sampler, hw_error *error) {
    if (pthread_mutex_init(&sampler->mutex, NULL) != 0 ||
        pthread_mutex_init(&sampler->shutdown_mutex, NULL) != 0 ||
        pthread_mutex_init(&sampler->spare_mutex, NULL) != 0) {
        return hwi_no_memory(error, "a mutex", sizeof sampler->mutex);
    }
    HW_TRY(hwi_condition_init(&sampler->endless[HW_TRAIN].ready, error));
    return hwi_condition_init(&sampler->endless[HW_VAL].ready, error);
}

/* Queues, memory and threads, by the plan. */
static hw_status open_pipeline(hw_sampler *sampler, hw_error *error) {
    const hw_sampler_options planned = sampler->plan->options;
    int is_chosen = planned.num_prefetch < 0;
    int32_t train = is_chosen ? LEAST_CHOSEN_PREFETCH : planned.num_prefetch;
    int32_t val = train == 0 ? 0 : planned.num_prefetch_val;
    HW_TRY(check_memory(sampler->plan, (uint32_t)(train + val) + 1, error));
    if (train > 0) {
        HW_TRY(
            hwi_thread_pool_open(planned.num_threads, hwi_take_step, &sampler->thread_pool, error));
        sampler->thread_count = hwi_thread_pool_size(sampler->thread_pool);
        HW_TRY(open_workers(sampler, error));
    }
    if (is_chosen) {
        train = (int32_t)chosen_prefetch(sampler);
    }
    HW_TRY(hwi_pool_open(sampler->plan, (uint32_t)(train + val) + SURPLUS_SLABS, &sampler->pool,
                         error));
    HW_TRY(open_spare_blocks(sampler, error));
    HW_TRY(open_stream(sampler, HW_TRAIN, train, error));
    HW_TRY(open_stream(sampler, HW_VAL, val, error));
    if (sampler->thread_pool != NULL) {
        hwi_thread_pool_serve(sampler->thread_pool, sampler);
    }
    return HW_OK;
}

hw_status hw_sampler_open(hw_store *store, const hw_sampler_options *options, hw_sampler **sampler,
                          hw_error *error) {
    hw_sampler *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a sampler", sizeof *made);
    }
    made->pid = getpid();
    atomic_init(&made->reference_count, 1);
    made->opened_ns = hwi_now_ns();
    hw_status status = init_locks(made, error);
    if (status != HW_OK) {
        free(made); /* the kinds of locks that can fail here hold nothing */
        return status;
    }
    status = hwi_plan_open(store, options, &made->plan, error);
    if (status == HW_OK) {
        status = hwi_plan_shape(made->plan, error);
    }
    if (status == HW_OK) {
        status = open_pipeline(made, error);
    }
    if (status != HW_OK) {
        hw_sampler_close(made);
        return status;
    }
    *sampler = made;
    return HW_OK;
}

/* Drops all batches in production, which no thread works on any more. */
static void end_production_locked(hw_sampler *sampler) {
    for (uint32_t i = 0; i < sampler->thread_count; i++) {
        hwi_leave_work_locked(&sampler->threads[i]);
    }
    for (int split = 0; split < HWI_ENDLESS_COUNT; split++) {
        hwi_drop_jobs_locked(sampler, &sampler->endless[split]);
    }
    for (struct hw_pass *pass = sampler->passes; pass != NULL; pass = pass->next) {
        hwi_drop_jobs_locked(sampler, &pass->stream);
    }
}

hw_sampler *hw_sampler_retain(hw_sampler *sampler) {
    atomic_fetch_add(&sampler->reference_count, 1);
    return sampler;
}

void hw_sampler_shutdown(hw_sampler *sampler) {
    if (hwi_sampler_check_process(sampler, NULL) != HW_OK) {
        return; /* the threads are the parent's */
    }
    pthread_mutex_lock(&sampler->shutdown_mutex);
    pthread_mutex_lock(&sampler->mutex);
    struct hwi_thread_pool *threads = sampler->thread_pool;
    atomic_store(&sampler->shut_down, 1);
    sampler->thread_pool = NULL;
    hwi_wake_everyone_locked(sampler);
    pthread_mutex_unlock(&sampler->mutex);
    if (threads != NULL) {
        hwi_thread_pool_dismiss(threads, sampler);
        hwi_thread_pool_close(threads);
    }
    pthread_mutex_lock(&sampler->mutex);
    end_production_locked(sampler);
    pthread_mutex_unlock(&sampler->mutex);
    pthread_mutex_unlock(&sampler->shutdown_mutex);
}

void hw_sampler_close(hw_sampler *sampler) {
    if (sampler == NULL || hwi_sampler_check_process(sampler, NULL) != HW_OK) {
        return;
    }
    if (atomic_fetch_sub(&sampler->reference_count, 1) > 1) {
        return;
    }
    hw_sampler_shutdown(sampler); /* no pass is left: each has a reference */
    hwi_free_unused_jobs(sampler);
    for (uint32_t i = 0; i < sampler->thread_count; i++) {
        hwi_worker_close(sampler->threads[i].worker);
        free(sampler->threads[i].held);
    }
    hwi_worker_close(sampler->spare);
    hwi_batch_scratch_close(sampler->spare_scratch);
    drop_blocks(sampler, sampler->spare_blocks);
    for (int split = 0; split < HWI_ENDLESS_COUNT; split++) {
        pthread_cond_destroy(&sampler->endless[split].ready);
        free(sampler->endless[split].next_positions);
        free(sampler->endless[split].taken_positions);
        drop_blocks(sampler, sampler->endless[split].blocks);
    }
    pthread_mutex_destroy(&sampler->mutex);
    pthread_mutex_destroy(&sampler->shutdown_mutex);
    pthread_mutex_destroy(&sampler->spare_mutex);
    free(sampler->threads);
    hwi_pool_close(sampler->pool);
    hwi_plan_close(sampler->plan);
    free(sampler);
}
