/*
 * The loader over the bookstore database: batches are the same whoever makes them, a resumed stream
 * goes on where it stood, passes serve every seed once, and no order of closing, dropping and
 * waiting hangs. Run it under ThreadSanitizer, too.
 */
#define _DEFAULT_SOURCE 1

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixtures.h"
#include "headwater.h"

struct shop {
    char *directory;
    hw_store *store;
};

static int open_shop(void **state) {
    struct shop *shop = calloc(1, sizeof *shop);
    shop->directory = fixture_directory();
    char *path = fixture_path(shop->directory, "shop.hw");
    shop->store = bookstore(path);
    free(path);
    *state = shop;
    return 0;
}

static int close_shop(void **state) {
    struct shop *shop = *state;
    hw_store_close(shop->store);
    fixture_remove(shop->directory);
    free(shop);
    return 0;
}

static hw_sampler_options small_options(void) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .seed = 7,
        .split_seed = 3,
        .batch_size = 19, /* three runs, the last one short */
        .sequence_length = 24,
        .max_rows = 8,
        .text_budget = 200,
        .num_threads = 3,
        .num_prefetch = 3,
        .num_prefetch_val = 1,
    };
}

static hw_sampler *open_sampler(void **state, const hw_sampler_options *options) {
    struct shop *shop = *state;
    hw_error error = {0};
    hw_sampler *sampler = NULL;
    fixture_check(hw_sampler_open(shop->store, options, &sampler, &error), &error, "open");
    return sampler;
}

static hw_batch *next(hw_sampler *sampler, hw_split split) {
    hw_error error = {0};
    hw_batch *batch = NULL;
    fixture_check(hw_sampler_next(sampler, split, -1, NULL, NULL, &batch, &error), &error, "next");
    return batch;
}

/* One hash over every array of a batch, which it releases. */
static uint64_t digest(hw_batch *batch) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = hw_batch_tensor(batch, i);
        hash = hw_hash64(tensor.data, tensor.bytes, hash);
    }
    hw_batch_release(batch);
    return hash;
}

static const void *array_of(const hw_batch *batch, const char *name) {
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = hw_batch_tensor(batch, i);
        if (strcmp(tensor.name, name) == 0) {
            return tensor.data;
        }
    }
    fail_msg("a batch has no array '%s'", name);
    return NULL;
}

enum { COMPARED = 12 };

static void batches_are_the_same_for_any_thread_count_and_prefetch_depth(void **state) {
    hw_sampler_options options = small_options();
    uint64_t expected[COMPARED];
    hw_sampler *sampler = open_sampler(state, &options);
    for (uint64_t k = 0; k < COMPARED; k++) {
        hw_batch *batch = NULL;
        hw_error error = {0};
        fixture_check(hw_sampler_batch(sampler, HW_TRAIN, k, &batch, &error), &error, "batch");
        expected[k] = digest(batch);
    }
    hw_sampler_close(sampler);
    static const struct {
        uint32_t threads;
        int32_t prefetch;
    } settings[] = {{1, 1}, {2, 3}, {8, 5}, {0, 0}, {4, 1}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        options.num_threads = settings[i].threads;
        options.num_prefetch = settings[i].prefetch;
        sampler = open_sampler(state, &options);
        for (uint64_t k = 0; k < COMPARED; k++) {
            assert_true(digest(next(sampler, HW_TRAIN)) == expected[k]);
        }
        hw_sampler_close(sampler);
    }
}

static void a_position_set_while_batches_are_in_production_continues_exactly(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    uint64_t positions[2], batches = 0, later[4];
    hw_error error = {0};
    for (int k = 0; k < 5; k++) {
        hw_batch_release(next(sampler, HW_TRAIN));
    }
    fixture_check(hw_sampler_get_position(sampler, HW_TRAIN, positions, &batches, &error), &error,
                  "get");
    assert_int_equal(batches, 5);
    assert_true(positions[0] + positions[1] == 5 * 19);
    for (int k = 0; k < 4; k++) {
        later[k] = digest(next(sampler, HW_TRAIN));
    }
    for (int round = 0; round < 50; round++) {
        fixture_check(hw_sampler_set_position(sampler, HW_TRAIN, positions, batches, &error),
                      &error, "set");
        for (int k = 0; k < round % 5; k++) {
            assert_true(digest(next(sampler, HW_TRAIN)) == later[k]);
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
        fixture_check(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 2, &pass, &error), &error,
                      "pass");
        uint64_t expected = (4 + world_size * batch_size - 1) / (world_size * batch_size);
        assert_int_equal(hw_pass_batch_count(pass), expected);
        hw_batch *batch = NULL;
        hw_status status;
        uint64_t batches = 0;
        while ((status = hw_pass_next(pass, -1, NULL, NULL, &batch, &error)) == HW_OK) {
            const uint32_t *seeds = array_of(batch, "seed_index");
            uint32_t real = *(const uint32_t *)array_of(batch, "num_sequences");
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
        hw_error error = {0};
        hw_batch *batch = NULL;
        fixture_check(hw_pass_open_seeds(sampler, TASK_RETURNS, anchors, times, 40, &first, &error),
                      &error, "seeds");
        fixture_check(hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 0, &second, &error), &error,
                      "pass");
        hw_pass_close(first);
        fixture_check(hw_pass_next(second, -1, NULL, NULL, &batch, &error), &error, "next");
        hw_batch_release(batch);
        hw_pass_close(second);
    }
    hw_batch_release(next(sampler, HW_TRAIN));
    hw_sampler_close(sampler);
}

static void a_batch_outlives_its_sampler_and_its_slab_returns_to_the_pool(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_batch *kept[20];
    for (int k = 0; k < 20; k++) {
        kept[k] = next(sampler, HW_TRAIN);
    }
    assert_true(hw_sampler_get_stats(sampler).slab_count >= 20);
    for (int k = 1; k < 20; k++) {
        hw_batch_release(kept[k]);
    }
    /* kept, 3 + 1 queues, 2 more in the pool, and 3 that a pop may have started meanwhile */
    assert_true(hw_sampler_get_stats(sampler).slab_count <= 1 + 2 * 4 + 2);
    hw_sampler_close(sampler);
    assert_true(*(const uint32_t *)array_of(kept[0], "num_sequences") == 19);
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
        hw_batch_release(next(sampler, HW_TRAIN));
        hw_sampler_close(sampler);
    }
}

/* ---- waiting ----------------------------------------------------------------------------- */

struct waiter {
    hw_sampler *sampler;
    hw_status status;
    uint32_t taken;
};

static void *take_until_it_ends(void *argument) {
    struct waiter *waiter = argument;
    hw_batch *batch = NULL;
    while ((waiter->status = hw_sampler_next(waiter->sampler, HW_TRAIN, -1, NULL, NULL, &batch,
                                             NULL)) == HW_OK) {
        waiter->taken++;
        hw_batch_release(batch);
    }
    return NULL;
}

static void shutdown_from_another_thread_ends_every_wait(void **state) {
    for (int32_t prefetch = 0; prefetch < 3; prefetch++) {
        hw_sampler_options options = small_options();
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        struct waiter waiters[3];
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            waiters[i] = (struct waiter){.sampler = sampler};
            pthread_create(&threads[i], NULL, take_until_it_ends, &waiters[i]);
        }
        usleep(20000);
        hw_sampler_shutdown(sampler);
        hw_sampler_shutdown(sampler);
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].status, HW_SHUT_DOWN);
        }
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

static void an_error_of_a_thread_is_latched_for_every_stream(void **state) {
    struct shop *shop = *state;
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_pass *pass = NULL;
    hw_error error = {0};
    fixture_check(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 0, &pass, &error), &error, "pass");
    char path[4096];
    snprintf(path, sizeof path, "%s/graph.bin", hw_store_directory(shop->store));
    FILE *file = fopen(path, "ab"); /* grown, not truncated: the map stays whole */
    assert_non_null(file);
    fputc(0, file);
    fclose(file);
    hw_batch *batch = NULL;
    hw_status status = HW_OK;
    for (int k = 0; k < 10 && status == HW_OK; k++) {
        status = hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error);
        if (status == HW_OK) {
            hw_batch_release(batch);
        }
    }
    assert_int_equal(status, HW_BAD_STORE);
    assert_int_equal(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error),
                     HW_BAD_STORE);
    assert_non_null(strstr(error.message, "graph.bin"));
    assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &batch, &error), HW_BAD_STORE);
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void a_forked_process_is_refused_and_may_let_go(void **state) {
    hw_sampler_options options = small_options();
    hw_sampler *sampler = open_sampler(state, &options);
    hw_batch *kept = next(sampler, HW_TRAIN);
    pid_t child = fork();
    if (child == 0) {
        hw_batch *batch = NULL;
        hw_pass *pass = NULL;
        int refused =
            hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, NULL) == HW_FORKED &&
            hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, NULL) == HW_FORKED &&
            hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 0, &pass, NULL) == HW_FORKED;
        hw_batch_release(kept);
        hw_sampler_shutdown(sampler);
        hw_sampler_close(sampler);
        _exit(refused ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hw_batch_release(kept);
    hw_batch_release(next(sampler, HW_TRAIN));
    hw_sampler_close(sampler);
}

int main(void) {
#define LOADER_TEST(name) cmocka_unit_test_setup_teardown(name, open_shop, close_shop)
    const struct CMUnitTest tests[] = {
        LOADER_TEST(batches_are_the_same_for_any_thread_count_and_prefetch_depth),
        LOADER_TEST(a_position_set_while_batches_are_in_production_continues_exactly),
        LOADER_TEST(a_pass_serves_every_seed_once_over_all_ranks),
        LOADER_TEST(passes_closed_while_their_batches_are_made_leave_the_rest_alone),
        LOADER_TEST(a_batch_outlives_its_sampler_and_its_slab_returns_to_the_pool),
        LOADER_TEST(a_split_without_seeds_says_so_when_it_is_asked_for),
        LOADER_TEST(shutdown_from_another_thread_ends_every_wait),
        LOADER_TEST(a_wait_times_out_and_can_be_interrupted),
        LOADER_TEST(an_error_of_a_thread_is_latched_for_every_stream),
        LOADER_TEST(a_forked_process_is_refused_and_may_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
