/* Production: threads keep their workers full of sequences; see loader.h. */
#define _POSIX_C_SOURCE 200809L

#include "loader/threads.h"

#include "base/clock.h"
#include "base/error.h"
#include "batch/slab.h"
#include "batch/texts.h"
#include "batch/worker.h"
#include "loader/batch_seeds.h"
#include "loader/block.h"
#include "loader/jobs.h"

/* ---- works ------------------------------------------------------------------------------- */

/* Sequence b of a batch, for a worker. */
static struct hwi_work work_of(const hw_sampler *sampler, const struct hwi_batch_seeds *seeds,
                               hw_batch *batch, struct hwi_batch_scratch *scratch, uint32_t b) {
    struct hwi_work work = {.slab = hwi_batch_slab(batch), .scratch = scratch, .b = b};
    if (b < seeds->sequence_count) {
        work.seed = hwi_stream_seed(sampler->plan, seeds, b);
        work.is_real = 1;
    }
    return work;
}

/* Context i of the block that a job waits for, for a worker. */
static struct hwi_work measure_of(const hw_sampler *sampler, const struct hwi_job *job,
                                  uint32_t i) {
    return (struct hwi_work){.seed = hwi_block_seed(sampler->plan, job->block, i),
                             .is_real = 1,
                             .length = &job->block->lengths[i]};
}

/* Moves sequences from the claim into the worker, as far as there is room. */
static hw_status fill_worker(struct hwi_thread *thread, hw_error *error) {
    struct hwi_claim *claim = &thread->claim;
    if (claim->next == 0 && claim->end > 0) {
        HW_TRY(hwi_store_check_sizes(thread->sampler->plan->store, error)); /* once per batch */
    }
    while (claim->next < claim->end && hwi_worker_room(thread->worker) > 0) {
        struct hwi_job *job = claim->job;
        uint32_t i = claim->next++;
        struct hwi_work work = job->phase == HWI_MEASURING ? measure_of(thread->sampler, job, i)
                                                           : work_of(thread->sampler, &job->seeds,
                                                                     job->batch, job->scratch, i);
        work.owner = job;
        hwi_worker_start(thread->worker, &work);
        thread->held[thread->held_count++] = job;
    }
    return HW_OK;
}

/* Advances the worker until one of its works is finished. */
static hw_status finish_one(struct hwi_thread *thread, hw_error *error) {
    struct hwi_work work;
    HW_TRY(hwi_worker_advance(thread->worker, &work, error));
    uint32_t i = 0;
    while (thread->held[i] != work.owner) {
        i++;
    }
    thread->held[i] = thread->held[--thread->held_count];
    hwi_parts_done(thread, work.owner, 1);
    return HW_OK;
}

static void gather_claim(struct hwi_thread *thread) {
    struct hwi_claim claim = thread->claim;
    thread->claim = (struct hwi_claim){0};
    int64_t start = hwi_now_ns();
    for (uint32_t part = claim.next; part < claim.end; part++) {
        hwi_batch_gather(thread->sampler->plan, hwi_batch_slab(claim.job->batch),
                         claim.job->scratch, part);
    }
    thread->counters.text_ns += (uint64_t)(hwi_now_ns() - start);
    hwi_parts_done(thread, claim.job, claim.end - claim.next);
}

/* ---- turns ------------------------------------------------------------------------------- */

static int is_over_locked(const hw_sampler *sampler) {
    return atomic_load(&sampler->shut_down) || sampler->failure.status != HW_OK;
}

/* The oldest job that has parts to claim, of val and the passes. */
static struct hwi_job *find_other_locked(hw_sampler *sampler) {
    struct hwi_job *job = hwi_find_work_locked(sampler, &sampler->endless[HW_VAL]);
    for (struct hw_pass *pass = sampler->passes; pass != NULL && job == NULL; pass = pass->next) {
        job = hwi_find_work_locked(sampler, &pass->stream);
    }
    return job;
}

/* Claims parts of the oldest job that has any. Returns 1 if they are vectors to gather. */
static int claim_locked(struct hwi_thread *thread) {
    hw_sampler *sampler = thread->sampler;
    struct hwi_stream *train = &sampler->endless[HW_TRAIN];
    int is_turn_over = sampler->train_turns >= HWI_TRAIN_TURNS;
    struct hwi_job *job =
        is_turn_over ? find_other_locked(sampler) : hwi_find_work_locked(sampler, train);
    if (job == NULL) {
        job = is_turn_over ? hwi_find_work_locked(sampler, train) : find_other_locked(sampler);
    }
    thread->claim = (struct hwi_claim){.job = job};
    if (job == NULL) {
        return 0;
    }
    int is_gather = job->phase == HWI_GATHERING;
    uint32_t left = job->part_count - job->claimed_count;
    uint32_t most = is_gather ? 1 : hwi_claim_size_locked(sampler);
    thread->claim.next = job->claimed_count;
    job->claimed_count += left < most ? left : most;
    thread->claim.end = job->claimed_count;
    if (job->phase == HWI_MAKING && job->claimed_count == job->part_count) {
        sampler->train_turns = job->stream == train ? sampler->train_turns + 1 : 0;
    }
    return is_gather;
}

static void collect_counters_locked(struct hwi_thread *thread) {
    hwi_worker_take_counters(thread->worker, &thread->sampler->counters);
    hwi_counters_take(&thread->counters, &thread->sampler->counters);
}

/* More parts to begin, if the thread has none left. Returns 1 if they are vectors to gather. */
static int claim_more_locked(struct hwi_thread *thread) {
    return thread->claim.next == thread->claim.end && claim_locked(thread);
}

/* Works that the thread has claimed or holds. */
static hw_status work_locked(struct hwi_thread *thread, int is_gather, hw_error *error) {
    hw_sampler *sampler = thread->sampler;
    hw_status status = HW_OK;
    pthread_mutex_unlock(&sampler->mutex);
    if (is_gather) {
        gather_claim(thread);
    } else {
        do {
            status = fill_worker(thread, error);
            if (status == HW_OK) {
                status = finish_one(thread, error);
            }
        } while (status == HW_OK && thread->claim.next < thread->claim.end &&
                 !atomic_load(&sampler->shut_down));
    }
    pthread_mutex_lock(&sampler->mutex);
    collect_counters_locked(thread);
    return status;
}

static void end_rest_locked(struct hwi_thread *thread) {
    if (thread->rest_since_ns != 0) {
        thread->sampler->producer_wait_ns += (uint64_t)(hwi_now_ns() - thread->rest_since_ns);
        thread->rest_since_ns = 0;
    }
}

void hwi_leave_work_locked(struct hwi_thread *thread) {
    end_rest_locked(thread);
    if (thread->held_count > 0) {
        hwi_worker_abandon(thread->worker);
    }
    while (thread->held_count > 0) {
        hwi_give_back_locked(thread->sampler, thread->held[--thread->held_count], 1);
    }
    if (thread->claim.next < thread->claim.end) {
        hwi_give_back_locked(thread->sampler, thread->claim.job,
                             thread->claim.end - thread->claim.next);
    }
    thread->claim = (struct hwi_claim){0};
}

int hwi_take_step(struct hwi_thread *thread) {
    hw_sampler *sampler = thread->sampler;
    hw_error error;
    hw_status status = HW_OK;
    int has_work = 0;
    pthread_mutex_lock(&sampler->mutex);
    end_rest_locked(thread);
    if (!is_over_locked(sampler)) {
        int is_gather = claim_more_locked(thread);
        has_work = thread->claim.job != NULL || thread->held_count > 0;
        status = has_work ? work_locked(thread, is_gather, &error) : HW_OK;
    }
    if (status != HW_OK) {
        hwi_latch_locked(sampler, status, &error);
    }
    if (is_over_locked(sampler)) {
        hwi_leave_work_locked(thread);
        has_work = 0;
    } else if (!has_work) {
        thread->rest_since_ns = hwi_now_ns();
    }
    pthread_mutex_unlock(&sampler->mutex);
    return has_work;
}

/* ---- in the calling thread --------------------------------------------------------------- */

/* All sequences of a batch, as many at once as the worker takes. */
static hw_status make_sequences(hw_sampler *sampler, const struct hwi_batch_seeds *seeds,
                                hw_batch *batch, hw_error *error) {
    struct hwi_worker *worker = sampler->spare;
    uint32_t count = sampler->plan->shape.contexts_per_batch, started = 0;
    HW_TRY(hwi_store_check_sizes(sampler->plan->store, error));
    for (uint32_t finished = 0; finished < count; finished++) {
        while (started < count && hwi_worker_room(worker) > 0) {
            struct hwi_work work =
                work_of(sampler, seeds, batch, sampler->spare_scratch, started++);
            hwi_worker_start(worker, &work);
        }
        struct hwi_work work;
        HW_TRY(atomic_load(&sampler->shut_down)
                   ? hwi_fail(error, HW_SHUT_DOWN, "the sampler was shut down")
                   : hwi_worker_advance(worker, &work, error));
    }
    return HW_OK;
}

/* Lengths of the contexts of a block in the calling thread, for hwi_measure_lengths. */
struct block_seeds {
    const struct hwi_plan *plan;
    const struct hwi_block *block;
};

static struct hwi_seed block_seed_at(const void *context, uint32_t i) {
    const struct block_seeds *seeds = context;
    return hwi_block_seed(seeds->plan, seeds->block, i);
}

/* What the batch has of its block, which the caller drops; levelled first if it is a new one. */
static hw_status level_seeds(hw_sampler *sampler, struct hwi_batch_seeds *seeds,
                             struct hwi_block **taken, hw_error *error) {
    const struct hwi_plan *plan = sampler->plan;
    if (seeds->range.step_count == 0) {
        return HW_OK;
    }
    HW_TRY(hwi_block_take(plan, seeds, &sampler->spare_blocks[seeds->task], taken, error));
    struct hwi_block *block = *taken;
    if (!block->is_levelled) {
        struct block_seeds whose = {plan, block};
        hw_status status = hwi_measure_lengths(sampler->spare, block_seed_at, &whose,
                                               block->context_count, block->lengths, error);
        if (status != HW_OK) {
            hwi_worker_abandon(sampler->spare);
            return status;
        }
        HW_TRY(hwi_block_level(block, error));
        block->is_levelled = 1;
    }
    seeds->levelled = hwi_block_batch(plan, block, &seeds->range);
    return HW_OK;
}

static void gather_batch(hw_sampler *sampler, const struct hwi_batch_seeds *seeds, hw_batch *batch,
                         struct hwi_counters *counters) {
    int64_t start = hwi_now_ns();
    uint8_t *slab = hwi_batch_slab(batch);
    struct hwi_batch_scratch *scratch = sampler->spare_scratch;
    uint32_t part_count =
        hwi_batch_merge(sampler->plan, slab, scratch, seeds->task, seeds->sequence_count);
    for (uint32_t part = 0; part < part_count; part++) {
        hwi_batch_gather(sampler->plan, slab, scratch, part);
    }
    counters->text_ns += (uint64_t)(hwi_now_ns() - start);
}

hw_status hwi_spare_worker(hw_sampler *sampler, hw_error *error) {
    return sampler->spare != NULL ? HW_OK : hwi_worker_open(sampler->plan, &sampler->spare, error);
}

/* A batch whose block, if it has one, is levelled. */
static hw_status make_levelled(hw_sampler *sampler, const struct hwi_batch_seeds *seeds,
                               hw_batch **batch, hw_error *error) {
    hw_batch *made = NULL;
    HW_TRY(hwi_pool_take(sampler->pool, &made, error));
    struct hwi_counters counters = {0};
    hw_status status = make_sequences(sampler, seeds, made, error);
    if (status == HW_OK) {
        gather_batch(sampler, seeds, made, &counters);
        hwi_finish_batch(sampler->plan, seeds, made, sampler->spare_scratch, &counters);
    } else {
        hwi_worker_abandon(sampler->spare);
    }
    pthread_mutex_lock(&sampler->mutex);
    hwi_worker_take_counters(sampler->spare, &sampler->counters);
    hwi_counters_take(&counters, &sampler->counters);
    sampler->batch_count += status == HW_OK;
    pthread_mutex_unlock(&sampler->mutex);
    if (status != HW_OK) {
        hw_batch_release(made);
        return status;
    }
    *batch = made;
    return HW_OK;
}

hw_status hwi_make_batch(hw_sampler *sampler, struct hwi_batch_seeds *seeds, hw_batch **batch,
                         hw_error *error) {
    HW_TRY(hwi_spare_worker(sampler, error));
    if (sampler->spare_scratch == NULL) {
        HW_TRY(hwi_batch_scratch_open(sampler->plan, &sampler->spare_scratch, error));
    }
    struct hwi_block *block = NULL;
    hw_status status = level_seeds(sampler, seeds, &block, error);
    if (status == HW_OK) {
        status = make_levelled(sampler, seeds, batch, error);
    }
    seeds->levelled = NULL;
    hwi_block_drop(block);
    return status;
}
