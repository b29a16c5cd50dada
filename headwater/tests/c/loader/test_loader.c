/*
 * The loader over the bookstore database: batches are the same whoever makes them, a resumed stream
 * goes on where it stood, passes serve every seed once, and no order of closing, dropping and
 * waiting hangs. Run it under ThreadSanitizer, too.
 */
#define _DEFAULT_SOURCE 1

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "batch/slab.h"
#include "batch/texts.h"
#include "format/file.h"
#include "headwater.h"
#include "loader/jobs.h"
#include "store/store.h"
#include "support/endings.h"
#include "support/fixtures.h"
#include "support/league.h"
#include "support/read.h"
#include "support/unit_test.h"

static hw_sampler_options small_options(void) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .seed = 7,
        .split_seed = 3,
        .batch_size = 19, /* five claims, the last one short */
        .sequence_length = 24,
        .max_rows = 8,
        .text_budget = 200,
        .num_threads = 3,
        .num_prefetch = 3,
        .num_prefetch_val = 1,
    };
}

static hw_sampler *open_sampler(void **state, const hw_sampler_options *options) {
    return fixture_sampler(store_of(state), options);
}

static void batches_are_the_same_for_any_thread_count_and_prefetch_depth(void **state) {
    fixture_threads_agree(store_of(state), small_options(), HW_TRAIN);
}

/* Of the two labels that the val seed of `form` knows one is drawn: its own, or that of a peer. */
static void peers_are_the_same_for_any_thread_count(void **state) {
    hw_sampler_options options = small_options();
    options.label_rows = options.peer_labels = 1;
    options.num_prefetch_val = 3;
    fixture_threads_agree(store_of(state), options, HW_VAL);
}

static void a_position_set_while_batches_are_in_production_continues_exactly(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    uint64_t positions[2], batches = 0, later[4];
    for (int k = 0; k < 5; k++) {
        hw_batch_release(fixture_next(sampler, HW_TRAIN));
    }
    MUST(hw_sampler_get_position(sampler, HW_TRAIN, positions, &batches, &error));
    assert_int_equal(batches, 5);
    assert_true(positions[0] + positions[1] == 5 * 19);
    for (int k = 0; k < 4; k++) {
        later[k] = fixture_digest(fixture_next(sampler, HW_TRAIN));
    }
    for (int round = 0; round < 50; round++) {
        MUST(hw_sampler_set_position(sampler, HW_TRAIN, positions, batches, &error));
        for (int k = 0; k < round % 5; k++) {
            assert_true(fixture_digest(fixture_next(sampler, HW_TRAIN)) == later[k]);
        }
    }
    hw_sampler_close(sampler);
}

/* How often each seed of a task appears in one pass over the train split, over all ranks. */
static void count_seeds(void **state, uint32_t world_size, uint32_t batch_size, int32_t prefetch,
                        uint32_t counts[8]) {
    memset(counts, 0, 8 * sizeof *counts);
    for (uint32_t rank = 0; rank < world_size; rank++) {
        hw_sampler_options options = small_options();
        options.rank = rank;
        options.world_size = world_size;
        options.batch_size = batch_size;
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        hw_pass *pass = NULL;
        hw_error error = {0};
        MUST(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 2, &pass, &error));
        uint64_t expected = (4 + world_size * batch_size - 1) / (world_size * batch_size);
        assert_int_equal(hw_pass_batch_count(pass), expected);
        hw_batch *batch = NULL;
        hw_status status;
        uint64_t batches = 0;
        while ((status = hw_pass_next(pass, -1, NULL, NULL, &batch, &error)) == HW_OK) {
            const uint32_t *seeds = fixture_array(batch, "seed_index");
            uint32_t real = *(const uint32_t *)fixture_array(batch, "num_sequences");
            for (uint32_t b = 0; b < real; b++) {
                counts[seeds[b]]++;
            }
            hw_batch_release(batch);
            batches++;
        }
        assert_int_equal(status, HW_END);
        assert_int_equal(batches, expected);
        hw_pass_close(pass);
        hw_sampler_close(sampler);
    }
}

static void a_pass_serves_every_seed_once_over_all_ranks(void **state) {
    for (uint32_t world_size = 1; world_size <= 5; world_size++) {
        for (uint32_t batch_size = 1; batch_size <= 5; batch_size++) {
            uint32_t counts[8];
            count_seeds(state, world_size, batch_size, (int32_t)batch_size % 3, counts);
            for (int seed = 0; seed < 4; seed++) {
                assert_int_equal(counts[seed], 1);
            }
        }
    }
}

/* ---- chosen seeds ------------------------------------------------------------------------ */

static hw_pass *open_chosen(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                            const uint32_t *epochs, uint32_t count) {
    hw_pass *pass = NULL;
    MUST(hw_pass_open_chosen(sampler, task, seeds, epochs, count, &pass, &error));
    return pass;
}

static hw_batch *only_batch(hw_pass *pass) {
    hw_batch *batch = NULL;
    assert_int_equal(hw_pass_batch_count(pass), 1);
    MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
    assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &(hw_batch *){NULL}, NULL), HW_END);
    hw_pass_close(pass);
    return batch;
}

/* The seeds of an epoch of each split, chosen in its order on any of three ranks, make its batch.
 */
static void chosen_seeds_make_the_batch_of_their_epoch_on_every_rank(void **state) {
    static const uint32_t counts[] = {4, 1, 1}, epochs[] = {3, 3, 3, 3};
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (int split = 0; split < HW_SPLIT_COUNT; split++) {
            hw_sampler_options options = small_options();
            options.child_width = 1;
            options.staleness_max_days = 2;
            options.cell_dropout = 0.3;
            hw_sampler *alone = open_sampler(state, &options);
            options.rank = rank;
            options.world_size = 3;
            options.num_prefetch = (int32_t)rank;
            hw_sampler *sampler = open_sampler(state, &options);
            hw_pass *pass = NULL;
            MUST(hw_pass_open(alone, (hw_split)split, TASK_SCORE, 3, &pass, &error));
            hw_batch *expected = only_batch(pass);
            const uint32_t *seeds = fixture_array(expected, "seed_index");
            assert_int_equal(((const uint8_t *)fixture_array(expected, "is_labelled"))[0], 1);
            pass = open_chosen(sampler, TASK_SCORE, seeds, epochs, counts[split]);
            uint64_t digest = fixture_digest(expected);
            assert_true(fixture_digest(only_batch(pass)) == digest);
            hw_sampler_close(sampler);
            hw_sampler_close(alone);
        }
    }
}

static void chosen_seeds_come_in_the_order_given_and_as_often(void **state) {
    static const uint32_t seeds[] = {5, 2, 2, 0, 1}, empty;
    hw_sampler_options options = small_options();
    options.batch_size = 2;
    options.rank = 1;
    options.world_size = 2;
    hw_sampler *sampler = open_sampler(state, &options);
    hw_pass *pass = open_chosen(sampler, TASK_SCORE, seeds, NULL, 5);
    assert_int_equal(hw_pass_batch_count(pass), 3);
    for (uint32_t k = 0; k < 3; k++) {
        hw_batch *batch = NULL;
        MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
        uint32_t count = *(const uint32_t *)fixture_array(batch, "num_sequences");
        assert_int_equal(count, k < 2 ? 2 : 1);
        assert_memory_equal(fixture_array(batch, "seed_index"), seeds + 2 * k, count * 4);
        hw_batch_release(batch);
    }
    hw_pass_close(pass);
    pass = open_chosen(sampler, TASK_SCORE, &empty, NULL, 0);
    assert_int_equal(hw_pass_batch_count(pass), 1); /* empty, so that ranks stay in step */
    hw_batch *batch = NULL;
    MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
    assert_int_equal(*(const uint32_t *)fixture_array(batch, "num_sequences"), 0);
    hw_batch_release(batch);
    assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &batch, NULL), HW_END);
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void refuse_chosen(hw_sampler *sampler, uint32_t task, uint32_t seed, const char *message) {
    uint32_t seeds[] = {0, seed};
    hw_pass *pass = NULL;
    hw_error error = {0};
    assert_int_equal(hw_pass_open_chosen(sampler, task, seeds, NULL, 2, &pass, &error),
                     HW_BAD_ARGUMENT);
    assert_null(pass);
    assert_string_equal(error.message, message);
}

static void a_seed_that_nobody_can_choose_is_named(void **state) {
    static const int64_t days[] = {3 * DAY_US, 4 * DAY_US};
    static const uint32_t tables[] = {1};
    hw_sampler_options options = small_options();
    options.time_split = days; /* test seeds, among others, are in no split */
    hw_sampler *sampler = open_sampler(state, &options);
    refuse_chosen(sampler, TASK_SCORE, 6,
                  "seeds[1] is 6, expected less than 6, the seeds of 'score'");
    refuse_chosen(sampler, TASK_SCORE, 5,
                  "seeds[1] is 5, which is in no split of 'score': time_split leaves it out");
    refuse_chosen(sampler, 3, 0, "task 3 is not among the 3 tasks of this sampler");
    hw_sampler_close(sampler);
    options.objective = HW_OBJECTIVE_MASKED_CELLS;
    options.seed_tables = tables;
    options.seed_table_count = 1;
    sampler = open_sampler(state, &options);
    refuse_chosen(sampler, 4, 5,
                  "seeds[1] is 5, which is in no split of 'matches': it has no time, or "
                  "time_split or visible_until leaves it out");
    hw_sampler_close(sampler);
}

/* ---- passes and samplers that end -------------------------------------------------------- */

static void passes_closed_while_their_batches_are_made_leave_the_rest_alone(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    uint32_t anchors[40];
    int64_t times[40];
    for (int i = 0; i < 40; i++) {
        anchors[i] = (uint32_t)i % 3;
        times[i] = DAY_US * i;
    }
    for (int round = 0; round < 100; round++) {
        hw_pass *first = NULL, *second = NULL;
        hw_batch *batch = NULL;
        MUST(hw_pass_open_seeds(sampler, TASK_RETURNS, anchors, times, 40, &first, &error));
        MUST(hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 0, &second, &error));
        hw_pass_close(first);
        MUST(hw_pass_next(second, -1, NULL, NULL, &batch, &error));
        hw_batch_release(batch);
        hw_pass_close(second);
    }
    hw_batch_release(fixture_next(sampler, HW_TRAIN));
    hw_sampler_close(sampler);
}

static void a_batch_outlives_its_sampler_and_its_slab_returns_to_the_pool(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_batch *kept[20];
    for (int k = 0; k < 20; k++) {
        kept[k] = fixture_next(sampler, HW_TRAIN);
    }
    assert_true(stats_of(sampler).slab_count >= 20);
    for (int k = 1; k < 20; k++) {
        hw_batch_release(kept[k]);
    }
    /* kept; the queues of train (raised to what fills three workers of 16) and val; as many unused
     * ones in the pool, and 2 more */
    assert_true(stats_of(sampler).slab_count <= 1 + 2 * (4 + 1) + 2);
    hw_sampler_close(sampler);
    assert_true(*(const uint32_t *)fixture_array(kept[0], "num_sequences") == 19);
    hw_batch_release(kept[0]);
}

static void a_split_without_seeds_says_so_when_it_is_asked_for(void **state) {
    hw_sampler_options options = small_options();
    uint32_t tasks[] = {TASK_PRICE};
    options.tasks = tasks;
    options.task_count = 1;
    for (options.num_prefetch = 0; options.num_prefetch < 2; options.num_prefetch++) {
        hw_sampler *sampler = open_sampler(state, &options);
        hw_batch *batch = NULL;
        hw_pass *pass = NULL;
        hw_error error = {0};
        assert_int_equal(hw_sampler_next(sampler, HW_VAL, -1, NULL, NULL, &batch, &error),
                         HW_BAD_TASK);
        assert_non_null(strstr(error.message, "split 'val' has no seeds"));
        assert_int_equal(hw_pass_open(sampler, HW_TEST, TASK_PRICE, 0, &pass, &error), HW_BAD_TASK);
        assert_int_equal(hw_pass_open(sampler, HW_TRAIN, TASK_RETURNS, 0, &pass, &error),
                         HW_BAD_ARGUMENT);
        hw_batch_release(fixture_next(sampler, HW_TRAIN));
        hw_sampler_close(sampler);
    }
}

/* ---- waiting ----------------------------------------------------------------------------- */

static void shutdown_from_another_thread_ends_every_wait(void **state) {
    for (int32_t prefetch = 0; prefetch < 3; prefetch++) {
        hw_sampler_options options = small_options();
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        ending_shutdown(sampler, 20000);
        hw_sampler_shutdown(sampler);
        hw_batch *batch = NULL;
        assert_int_equal(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, NULL), HW_SHUT_DOWN);
        hw_sampler_close(sampler);
    }
}

static int stop_at_once(void *context) {
    ++*(int *)context;
    return 1;
}

/* Batches large enough that a new one is never ready at once. */
static hw_sampler_options slow_options(void) {
    hw_sampler_options options = small_options();
    options.batch_size = 30000;
    options.text_budget = 60001;
    options.num_prefetch = 1;
    options.num_threads = 1;
    return options;
}

static void a_wait_times_out_and_can_be_interrupted(void **state) {
    hw_sampler_options options = slow_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_batch *batch = NULL;
    hw_error error = {0};
    int calls = 0;
    hw_status status = hw_sampler_next(sampler, HW_TRAIN, 0, NULL, NULL, &batch, &error);
    if (status == HW_OK) {
        hw_batch_release(batch);
    } else {
        assert_int_equal(status, HW_TIMED_OUT);
    }
    status = hw_sampler_next(sampler, HW_TRAIN, -1, stop_at_once, &calls, &batch, &error);
    if (status == HW_OK) {
        hw_batch_release(batch); /* a fast machine: ready within 100 ms */
    } else {
        assert_int_equal(status, HW_INTERRUPTED);
        assert_int_equal(calls, 1);
    }
    hw_sampler_shutdown(sampler);
    hw_sampler_close(sampler);
}

/* One of the next `most` batches of train meets the error, and so does each after it. */
static void assert_latched(hw_sampler *sampler, int most, const char *message) {
    hw_batch *batch = NULL;
    hw_error error = {0};
    hw_status status = HW_OK;
    for (int k = 0; k < most && status == HW_OK; k++) {
        status = hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error);
        if (status == HW_OK) {
            hw_batch_release(batch);
        }
    }
    assert_int_equal(status, HW_BAD_STORE);
    assert_int_equal(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error),
                     HW_BAD_STORE);
    assert_non_null(strstr(error.message, message));
}

static void an_error_of_a_thread_is_latched_for_every_stream(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_pass *pass = NULL;
    hw_error error = {0};
    MUST(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 0, &pass, &error));
    char path[4096];
    snprintf(path, sizeof path, "%s/graph.bin", hw_store_directory(store_of(state)));
    FILE *file = fopen(path, "ab"); /* grown, not truncated: the map stays whole */
    assert_non_null(file);
    fputc(0, file);
    fclose(file);
    assert_latched(sampler, 10, "graph.bin");
    hw_batch *batch = NULL;
    assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &batch, &error), HW_BAD_STORE);
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void a_forked_process_is_refused_and_may_let_go(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    ending_fork(sampler);
    hw_sampler_close(sampler);
}

/* ---- many sequences at once -------------------------------------------------------------- */

/* Batches of 256 letters of 3 cells: vectors in four parts, and a last batch that is short. */
static hw_sampler_options letter_options(void) {
    hw_sampler_options options = small_options();
    options.batch_size = 256;
    options.sequence_length = 4;
    options.text_budget = 257;
    return options;
}

static void assert_vectors(hw_store *store, const hw_batch *batch) {
    const uint8_t *found = fixture_array(batch, "text_batch_embeddings");
    const uint32_t *rows = fixture_array(batch, "anchor_rows");
    uint32_t real = *(const uint32_t *)fixture_array(batch, "num_sequences");
    uint32_t used = *(const uint32_t *)fixture_array(batch, "num_texts");
    const size_t bytes = LETTERS_TEXT_DIM * 2;
    const void *vectors;
    uint64_t count;
    MUST(hw_store_vectors(store, HW_EMBED_TEXTS, &vectors, &count, &error));
    assert_int_equal(used, real + 1);
    for (uint32_t row = 0; row < 257; row++) {
        const uint8_t zero[LETTERS_TEXT_DIM * 2] = {0};
        int is_used = row > 0 && row < used;
        const uint8_t *expected = is_used ? (const uint8_t *)vectors + rows[row - 1] * bytes : zero;
        assert_memory_equal(found + row * bytes, expected, bytes);
    }
}

/* Passes of 512 and 300 seeds: batches of 256, 256, 256 and 44 letters take turns in the slabs. */
static void vectors_gathered_in_parts_are_those_of_the_batch_and_nothing_else(void **state) {
    uint32_t anchors[300];
    int64_t times[300];
    for (uint32_t i = 0; i < 300; i++) {
        anchors[i] = 299 - i;
        times[i] = INT64_MAX;
    }
    for (uint32_t threads = 0; threads <= 8; threads = threads == 0 ? 1 : threads * 2) {
        hw_sampler_options options = letter_options();
        options.num_threads = threads;
        options.num_prefetch = threads == 0 ? 0 : 2;
        hw_sampler *sampler = open_sampler(state, &options);
        for (uint32_t round = 0; round < 6; round++) {
            hw_pass *pass = NULL;
            hw_batch *batch = NULL;
            MUST(round % 2 ? hw_pass_open_seeds(sampler, 0, anchors, times, 300, &pass, &error)
                           : hw_pass_open(sampler, HW_TRAIN, 0, round, &pass, &error));
            while (hw_pass_next(pass, -1, NULL, NULL, &batch, NULL) == HW_OK) {
                assert_vectors(store_of(state), batch);
                hw_batch_release(batch);
            }
            hw_pass_close(pass);
        }
        hw_sampler_close(sampler);
    }
}

static void large_batches_are_the_same_for_any_thread_count(void **state) {
    fixture_threads_agree(store_of(state), letter_options(), HW_TRAIN);
}

/* The first `count` letters of an epoch into a batch, up to the gathering of its vectors. */
static void make_letters(hw_sampler *sampler, struct hwi_job *job, uint32_t count) {
    const struct hwi_plan *plan = sampler->plan;
    struct hwi_shard list = hwi_order_list(plan, HW_TRAIN, 0);
    struct hwi_worker *worker = NULL;
    MUST(hwi_pool_take(sampler->pool, &job->batch, &error));
    MUST(hwi_batch_scratch_open(plan, &job->scratch, &error));
    MUST(hwi_worker_open(plan, &worker, &error));
    for (uint32_t b = 0; b < plan->shape.batch_size; b++) {
        struct hwi_work work = {.seed = hwi_order_seed(plan, HW_TRAIN, 0, &list, b % count),
                                .is_real = b < count,
                                .slab = hwi_batch_slab(job->batch),
                                .scratch = job->scratch,
                                .b = b};
        hwi_worker_start(worker, &work);
        MUST(hwi_worker_advance(worker, &work, &error));
    }
    hwi_worker_close(worker);
    job->phase = HWI_GATHERING;
    job->part_count = hwi_batch_merge(plan, hwi_batch_slab(job->batch), job->scratch, 0, count);
    atomic_store(&job->pending, job->part_count);
}

/* One of two parts of its vectors is gathered when it is dropped: what the slab's batch before left
 * behind them must still count as left. No thread runs, the test takes their steps. */
static void a_batch_dropped_between_its_vectors_leaves_a_slab_that_is_cleared(void **state) {
    enum { SHORT = 44 };
    hw_sampler_options options = letter_options();
    options.num_prefetch = 0;
    hw_sampler *sampler = open_sampler(state, &options);
    struct hwi_stream *stream = &sampler->endless[HW_TRAIN];
    struct hwi_thread thread = {.sampler = sampler};
    struct hwi_job *job = calloc(1, sizeof *job);
    hw_batch_release(fixture_next(sampler, HW_TRAIN)); /* 256 letters, whose slab is taken again */
    make_letters(sampler, job, 128);
    assert_int_equal(job->part_count, 2);
    job->stream = stream;
    stream->head = stream->tail = job;
    stream->depth = stream->job_count = job->claimed_count = 1;
    hwi_batch_gather(sampler->plan, hwi_batch_slab(job->batch), job->scratch, 0);
    pthread_mutex_lock(&sampler->mutex);
    hwi_drop_jobs_locked(sampler, stream);
    pthread_mutex_unlock(&sampler->mutex);
    assert_int_equal(stream->job_count, 1); /* the part that a thread holds */
    hwi_parts_done(&thread, job, 1);
    assert_int_equal(stream->job_count, 0);
    uint32_t anchors[SHORT];
    int64_t times[SHORT];
    for (uint32_t i = 0; i < SHORT; i++) {
        anchors[i] = i;
        times[i] = INT64_MAX;
    }
    hw_pass *pass = NULL;
    hw_batch *batch = NULL;
    MUST(hw_pass_open_seeds(sampler, 0, anchors, times, SHORT, &pass, &error));
    MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
    assert_vectors(store_of(state), batch);
    hw_batch_release(batch);
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void a_shutdown_at_any_moment_leaves_nothing_behind(void **state) {
    for (uint32_t round = 0; round < 40; round++) {
        hw_sampler_options options = letter_options();
        options.num_threads = 1 + round % 4;
        options.num_prefetch = 1 + (int32_t)round % 3;
        hw_sampler *sampler = open_sampler(state, &options);
        hw_pass *pass = NULL;
        MUST(hw_pass_open(sampler, HW_TRAIN, 0, 0, &pass, &error));
        for (uint32_t k = 0; k < round % 3; k++) {
            hw_batch_release(fixture_next(sampler, HW_TRAIN));
        }
        usleep(round * 50);
        if (round % 2) {
            hw_pass_close(pass);
        }
        hw_sampler_shutdown(sampler);
        hw_sampler_close(sampler);
        if (round % 2 == 0) {
            hw_pass_close(pass);
        }
    }
}

/* Overwrites the text of one letter in the mapped file with a number that no text has. */
static void damage_letter(hw_store *store, uint32_t row) {
    const struct hwi_table *table = &store->tables[0];
    const uint8_t *lane = hwi_record(table, row) + store->columns[LETTERS_BODY].lane_offset;
    for (uint32_t i = 0; i < store->file_count; i++) {
        const struct hwi_file *file = &store->files[i];
        if (file->data != NULL && lane >= file->data && lane < file->data + file->bytes) {
            const uint32_t bad = 0xfffffff0u;
            int fd = open(file->path, O_WRONLY);
            assert_int_equal(pwrite(fd, &bad, sizeof bad, lane - file->data), sizeof bad);
            close(fd);
            return;
        }
    }
    fail_msg("letter %u is in no file", row);
}

/* A bad row in one of the sequences that a thread makes at once ends production for all; what was
 * given up half-way does not show in batches made later in the same memory. */
static void an_error_in_one_of_many_sequences_is_latched_and_spoils_no_memory(void **state) {
    hw_sampler_options options = letter_options();
    options.num_threads = 4;
    options.batch_size = 16;
    options.text_budget = 17;
    hw_sampler *sampler = open_sampler(state, &options);
    uint64_t good = 0, expected = 0;
    hw_error error = {0};
    for (uint64_t k = 0; k < 8 && expected == 0; k++) {
        hw_batch *batch = NULL;
        MUST(hw_sampler_batch(sampler, HW_TRAIN, k, &batch, &error));
        const uint32_t *seeds = fixture_array(batch, "seed_index");
        uint32_t bad = 0;
        for (uint32_t b = 0; b < 16; b++) {
            bad += seeds[b] == 300;
        }
        good = k;
        uint64_t hash = fixture_digest(batch);
        expected = bad ? 0 : hash;
    }
    damage_letter(store_of(state), 300);
    assert_latched(sampler, 100, "a cell holds text 4294967280"); /* two epochs are 64 */
    hw_batch *batch = NULL;
    hw_pass *pass = NULL;
    MUST(hw_pass_open(sampler, HW_TRAIN, 0, 0, &pass, &error));
    assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &batch, &error), HW_BAD_STORE);
    for (int round = 0; round < 10; round++) {
        MUST(hw_sampler_batch(sampler, HW_TRAIN, good, &batch, &error));
        assert_true(fixture_digest(batch) == expected);
    }
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void the_prefetch_that_is_chosen_keeps_all_threads_busy(void **state) {
    hw_sampler_options options = small_options();
    options.batch_size = 2;
    options.num_prefetch = -1;
    hw_sampler *sampler = open_sampler(state, &options);
    uint32_t limit = sampler->endless[HW_TRAIN].capacity;
    assert_true(limit > 3);
    for (int i = 0; i < 5000 && stats_of(sampler).train_queue < limit; i++) {
        usleep(1000);
    }
    assert_int_equal(stats_of(sampler).train_queue, limit);
    assert_int_equal(sampler->endless[HW_VAL].capacity, 1);
    hw_sampler_close(sampler);
}

/* ---- threads ----------------------------------------------------------------------------- */

static void time_is_accounted_for_while_threads_sleep(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_batch_release(fixture_next(sampler, HW_TRAIN));
    usleep(50000); /* the queue fills, then three threads sleep */
    hw_sampler_stats stats = stats_of(sampler);
    assert_true(stats.producer_wait_ns > 50000000);
    assert_true(stats.elapsed_ns > 50000000);
    assert_true(stats.producer_wait_ns <= 3 * stats.elapsed_ns);
    assert_true(stats.walk_ns > 0 && stats.emit_ns > 0 && stats.text_ns > 0);
    hw_sampler_close(sampler);
}

int main(void) {
#define LOADER_TEST(name) cmocka_unit_test_setup_teardown(name, open_bookstore, close_shelf)
#define LEAGUE_TEST(name) cmocka_unit_test_setup_teardown(name, open_league, close_shelf)
#define LETTERS_TEST(name) cmocka_unit_test_setup_teardown(name, open_letters, close_shelf)
    const struct CMUnitTest tests[] = {
        LOADER_TEST(batches_are_the_same_for_any_thread_count_and_prefetch_depth),
        LEAGUE_TEST(peers_are_the_same_for_any_thread_count),
        LOADER_TEST(a_position_set_while_batches_are_in_production_continues_exactly),
        LOADER_TEST(a_pass_serves_every_seed_once_over_all_ranks),
        LEAGUE_TEST(chosen_seeds_make_the_batch_of_their_epoch_on_every_rank),
        LEAGUE_TEST(chosen_seeds_come_in_the_order_given_and_as_often),
        LEAGUE_TEST(a_seed_that_nobody_can_choose_is_named),
        LOADER_TEST(passes_closed_while_their_batches_are_made_leave_the_rest_alone),
        LOADER_TEST(a_batch_outlives_its_sampler_and_its_slab_returns_to_the_pool),
        LOADER_TEST(a_split_without_seeds_says_so_when_it_is_asked_for),
        LOADER_TEST(shutdown_from_another_thread_ends_every_wait),
        LOADER_TEST(a_wait_times_out_and_can_be_interrupted),
        LOADER_TEST(an_error_of_a_thread_is_latched_for_every_stream),
        LOADER_TEST(a_forked_process_is_refused_and_may_let_go),
        LETTERS_TEST(vectors_gathered_in_parts_are_those_of_the_batch_and_nothing_else),
        LETTERS_TEST(a_batch_dropped_between_its_vectors_leaves_a_slab_that_is_cleared),
        LETTERS_TEST(large_batches_are_the_same_for_any_thread_count),
        LETTERS_TEST(a_shutdown_at_any_moment_leaves_nothing_behind),
        LETTERS_TEST(an_error_in_one_of_many_sequences_is_latched_and_spoils_no_memory),
        LOADER_TEST(the_prefetch_that_is_chosen_keeps_all_threads_busy),
        LOADER_TEST(time_is_accounted_for_while_threads_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
