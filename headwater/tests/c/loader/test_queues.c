/*
 * The queues of train, val and passes: which of them are filled when, and that none starves. Train
 * and val of the league's task `score`; run it under ThreadSanitizer, too.
 */
#define _DEFAULT_SOURCE 1

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "headwater.h"
#include "support/league.h"
#include "support/read.h"
#include "support/unit_test.h"

enum { PREFETCH = 6, PREFETCH_VAL = 4, TRAIN_BATCHES = 4000 };

static hw_sampler *open_with(void **state, uint32_t batch_size, int32_t num_prefetch) {
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
    return fixture_sampler(store_of(state), &options);
}

static hw_sampler *open_sampler(void **state) {
    return open_with(state, 64, PREFETCH);
}

static void take(hw_sampler *sampler, hw_split split) {
    hw_batch_release(fixture_next(sampler, split));
}

static void wait_for_queues(hw_sampler *sampler, uint32_t train, uint32_t val) {
    hw_sampler_stats stats = stats_of(sampler);
    for (int i = 0; i < 10000 && (stats.train_queue != train || stats.val_queue != val); i++) {
        usleep(1000);
        stats = stats_of(sampler);
    }
    assert_int_equal(stats.train_queue, train);
    assert_int_equal(stats.val_queue, val);
}

static void val_is_made_ahead_from_the_first_batch_that_is_asked_for(void **state) {
    hw_sampler *sampler = open_sampler(state);
    wait_for_queues(sampler, PREFETCH, 0);
    usleep(20000);
    assert_int_equal(stats_of(sampler).batches, PREFETCH);
    take(sampler, HW_VAL);
    wait_for_queues(sampler, PREFETCH, PREFETCH_VAL);
    hw_sampler_close(sampler);
}

/* One sequence a batch, of which a thread holds 8. */
static void a_queue_is_as_long_as_it_is_said_to_be(void **state) {
    for (int32_t prefetch = -1; prefetch < 4; prefetch += prefetch < 0 ? 2 : 1) {
        uint32_t expected = prefetch < 0 ? 9 : (uint32_t)prefetch; /* chosen: and one to read */
        hw_sampler *sampler = open_with(state, 1, prefetch);
        for (uint32_t taken = 0; taken < 40; taken++) {
            take(sampler, HW_TRAIN);
        }
        wait_for_queues(sampler, expected, 0);
        usleep(20000);
        assert_int_equal(stats_of(sampler).batches, 40 + expected);
        hw_sampler_close(sampler);
    }
}

static void train_stays_full_while_val_is_evaluated(void **state) {
    hw_sampler *sampler = open_sampler(state);
    wait_for_queues(sampler, PREFETCH, 0);
    for (int i = 0; i < 50; i++) {
        take(sampler, HW_VAL);
        assert_int_equal(stats_of(sampler).train_queue, PREFETCH);
    }
    for (uint32_t epoch = 0; epoch < 50; epoch++) {
        hw_pass *pass = NULL;
        hw_batch *batch = NULL;
        MUST(hw_pass_open(sampler, HW_VAL, TASK_SCORE, epoch, &pass, &error));
        MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
        hw_batch_release(batch);
        hw_pass_close(pass);
        assert_int_equal(stats_of(sampler).train_queue, PREFETCH);
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
    struct reader reader = {.sampler = open_sampler(state)};
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

/* A pass with one batch has it made while nobody waits for it, and several are made in turn. */
static void passes_of_one_batch_are_made_before_they_are_asked_for(void **state) {
    enum { PASSES = 5 };
    hw_sampler *sampler = open_sampler(state);
    hw_pass *passes[PASSES];
    hw_error error = {0};
    for (uint32_t i = 0; i < PASSES; i++) {
        fixture_check(
            hw_pass_open_chosen(sampler, TASK_SCORE, &(uint32_t){i}, NULL, 1, &passes[i], &error),
            &error, "pass");
    }
    for (int i = 0; i < 10000 && stats_of(sampler).pass_queue < PASSES; i++) {
        usleep(1000);
    }
    for (uint32_t i = 0; i < PASSES; i++) {
        hw_batch *batch = NULL;
        assert_int_equal(stats_of(sampler).pass_queue, PASSES - i);
        fixture_check(hw_pass_next(passes[i], 0, NULL, NULL, &batch, &error), &error, "next");
        assert_int_equal(*(const uint32_t *)fixture_array(batch, "seed_index"), i);
        hw_batch_release(batch);
        hw_pass_close(passes[i]);
    }
    hw_sampler_close(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(val_is_made_ahead_from_the_first_batch_that_is_asked_for),
        cmocka_unit_test(a_queue_is_as_long_as_it_is_said_to_be),
        cmocka_unit_test(train_stays_full_while_val_is_evaluated),
        cmocka_unit_test(val_does_not_starve_while_train_is_waited_for),
        cmocka_unit_test(passes_of_one_batch_are_made_before_they_are_asked_for),
    };
    return cmocka_run_group_tests(tests, open_league, close_shelf);
}
