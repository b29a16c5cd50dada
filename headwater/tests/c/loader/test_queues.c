/*
 * The queues of train, val and passes: which of them are filled when, and that none starves. Train
 * and val of the league's task `score`; run it under ThreadSanitizer, too.
 */
#define _DEFAULT_SOURCE 1

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "headwater.h"
#include "support/league.h"

enum { PREFETCH = 6, PREFETCH_VAL = 4, TRAIN_BATCHES = 4000 };

static char *directory;
static hw_store *store;

static int open_league(void **state) {
    (void)state;
    directory = fixture_directory();
    store = fixture_store(directory, "league.hw", league);
    return 0;
}

static int close_league(void **state) {
    (void)state;
    hw_store_close(store);
    fixture_remove(directory);
    return 0;
}

static hw_sampler *open_with(uint32_t batch_size, int32_t num_prefetch) {
    static const uint32_t task = TASK_SCORE;
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.batch_size = batch_size;
    options.sequence_length = 24;
    options.max_rows = 8;
    options.tasks = &task;
    options.task_count = 1;
    options.num_threads = 1;
    options.num_prefetch = num_prefetch;
    options.num_prefetch_val = PREFETCH_VAL;
    hw_error error = {0};
    hw_sampler *sampler = NULL;
    fixture_check(hw_sampler_open(store, &options, &sampler, &error), &error, "open");
    return sampler;
}

static hw_sampler *open_sampler(void) {
    return open_with(64, PREFETCH);
}

static void take(hw_sampler *sampler, hw_split split) {
    hw_error error = {0};
    hw_batch *batch = NULL;
    fixture_check(hw_sampler_next(sampler, split, -1, NULL, NULL, &batch, &error), &error, "next");
    hw_batch_release(batch);
}

static void wait_for_queues(hw_sampler *sampler, uint32_t train, uint32_t val) {
    hw_sampler_stats stats = hw_sampler_get_stats(sampler);
    for (int i = 0; i < 10000 && (stats.train_queue != train || stats.val_queue != val); i++) {
        usleep(1000);
        stats = hw_sampler_get_stats(sampler);
    }
    assert_int_equal(stats.train_queue, train);
    assert_int_equal(stats.val_queue, val);
}

static void val_is_made_ahead_from_the_first_batch_that_is_asked_for(void **state) {
    (void)state;
    hw_sampler *sampler = open_sampler();
    wait_for_queues(sampler, PREFETCH, 0);
    usleep(20000);
    assert_int_equal(hw_sampler_get_stats(sampler).batches, PREFETCH);
    take(sampler, HW_VAL);
    wait_for_queues(sampler, PREFETCH, PREFETCH_VAL);
    hw_sampler_close(sampler);
}

/* One sequence a batch, of which a thread holds 8. */
static void a_queue_is_as_long_as_it_is_said_to_be(void **state) {
    (void)state;
    for (int32_t prefetch = -1; prefetch < 4; prefetch += prefetch < 0 ? 2 : 1) {
        uint32_t expected = prefetch < 0 ? 9 : (uint32_t)prefetch; /* chosen: and one to read */
        hw_sampler *sampler = open_with(1, prefetch);
        for (uint32_t taken = 0; taken < 40; taken++) {
            take(sampler, HW_TRAIN);
        }
        wait_for_queues(sampler, expected, 0);
        usleep(20000);
        assert_int_equal(hw_sampler_get_stats(sampler).batches, 40 + expected);
        hw_sampler_close(sampler);
    }
}

static void train_stays_full_while_val_is_evaluated(void **state) {
    (void)state;
    hw_sampler *sampler = open_sampler();
    wait_for_queues(sampler, PREFETCH, 0);
    for (int i = 0; i < 50; i++) {
        take(sampler, HW_VAL);
        assert_int_equal(hw_sampler_get_stats(sampler).train_queue, PREFETCH);
    }
    for (uint32_t epoch = 0; epoch < 50; epoch++) {
        hw_pass *pass = NULL;
        hw_batch *batch = NULL;
        hw_error error = {0};
        fixture_check(hw_pass_open(sampler, HW_VAL, TASK_SCORE, epoch, &pass, &error), &error,
                      "pass");
        fixture_check(hw_pass_next(pass, -1, NULL, NULL, &batch, &error), &error, "next");
        hw_batch_release(batch);
        hw_pass_close(pass);
        assert_int_equal(hw_sampler_get_stats(sampler).train_queue, PREFETCH);
    }
    hw_sampler_close(sampler);
}

struct reader {
    hw_sampler *sampler;
    atomic_int is_over;
    uint64_t taken;
};

static void *read_val(void *argument) {
    struct reader *reader = argument;
    while (!atomic_load(&reader->is_over)) {
        take(reader->sampler, HW_VAL);
        reader->taken++;
    }
    return NULL;
}

/* Train is read faster than one thread makes batches, so that it always wants more. One in eight is
 * val's; the reader of val may be put to sleep while its queue is full, so less is enough here. */
static void val_does_not_starve_while_train_is_waited_for(void **state) {
    (void)state;
    struct reader reader = {.sampler = open_sampler()};
    pthread_t thread;
    take(reader.sampler, HW_VAL);
    assert_int_equal(pthread_create(&thread, NULL, read_val, &reader), 0);
    for (int i = 0; i < TRAIN_BATCHES; i++) {
        take(reader.sampler, HW_TRAIN);
    }
    atomic_store(&reader.is_over, 1);
    pthread_join(thread, NULL);
    assert_true(reader.taken >= TRAIN_BATCHES / 12);
    hw_sampler_close(reader.sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(val_is_made_ahead_from_the_first_batch_that_is_asked_for),
        cmocka_unit_test(a_queue_is_as_long_as_it_is_said_to_be),
        cmocka_unit_test(train_stays_full_while_val_is_evaluated),
        cmocka_unit_test(val_does_not_starve_while_train_is_waited_for),
    };
    return cmocka_run_group_tests(tests, open_league, close_league);
}
