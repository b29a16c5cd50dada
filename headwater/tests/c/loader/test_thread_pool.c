/*
 * The threads that samplers share: how many there are, that none of the samplers starves, that no
 * thread stays behind, and that neither closing on several threads nor a fork upsets them. Run it
 * under ThreadSanitizer, too.
 */
#define _GNU_SOURCE 1 /* sched_setaffinity */

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "headwater.h"
#include "support/endings.h"
#include "support/league.h"
#include "support/read.h"
#include "support/unit_test.h"

enum { RANKS = 4, PREFETCH = 6, BATCHES = 400, PATIENCE_S = 120 };

/* Train of the league's task `score`, in batches that take a while, by the threads that samplers
 * share. */
static hw_sampler_options shared_options(void) {
    static const uint32_t task = TASK_SCORE;
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.batch_size = 64;
    options.sequence_length = 24;
    options.max_rows = 8;
    options.tasks = &task;
    options.task_count = 1;
    options.num_prefetch = PREFETCH;
    return options;
}

static hw_sampler *open_rank(void **state, uint32_t rank, uint32_t num_threads) {
    hw_sampler_options options = shared_options();
    options.rank = rank;
    options.world_size = RANKS;
    options.num_threads = num_threads;
    return fixture_sampler(store_of(state), &options);
}

static uint32_t usable_cores(void) {
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    return CPU_COUNT(&cores) < 16 ? (uint32_t)CPU_COUNT(&cores) : 16;
}

/* Threads of this process. One that was joined is still listed for a moment. */
static uint32_t count_threads(void) {
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

static void wait_for_threads(uint32_t expected) {
    for (int i = 0; i < 10000 && count_threads() != expected; i++) {
        usleep(1000);
    }
    assert_int_equal(count_threads(), expected);
}

static void *do_nothing(void *argument) {
    return argument;
}

/* Threads there are without samplers; the thread sanitizer starts one of its own with the first. */
static uint32_t threads_before(void) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    pthread_join(thread, NULL);
    usleep(20000);
    return count_threads();
}

/* ---- how many there are ------------------------------------------------------------------ */

static void samplers_share_as_many_threads_as_there_are_cores(void **state) {
    uint32_t before = threads_before(), cores = usable_cores();
    hw_sampler *samplers[RANKS];
    for (int round = 0; round < 3; round++) { /* they end with the last sampler, and start again */
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            samplers[rank] = open_rank(state, rank, 0);
            assert_int_equal(stats_of(samplers[rank]).threads, cores);
        }
        wait_for_threads(before + cores);
        hw_sampler *own = open_rank(state, 0, 3);
        assert_int_equal(stats_of(own).threads, 3);
        wait_for_threads(before + cores + 3);
        hw_sampler_shutdown(own);
        wait_for_threads(before + cores);
        hw_sampler_close(own);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            hw_batch_release(fixture_next(samplers[rank], HW_TRAIN));
            hw_sampler_shutdown(samplers[rank]);
            wait_for_threads(before + (rank < RANKS - 1 ? cores : 0));
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            hw_sampler_close(samplers[rank]);
        }
    }
}

/* ---- none starves ------------------------------------------------------------------------ */

struct reader {
    hw_sampler *sampler;
    uint64_t wanted, digest;
    atomic_ullong taken;
    atomic_int *is_over;
};

static void *read_batches(void *argument) {
    struct reader *reader = argument;
    while (!atomic_load(reader->is_over) && atomic_load(&reader->taken) < reader->wanted) {
        hw_batch *batch = fixture_next(reader->sampler, HW_TRAIN);
        reader->digest = 31 * reader->digest + fixture_digest(batch);
        atomic_fetch_add(&reader->taken, 1);
    }
    return NULL;
}

/* The threads that start from here on have one core, so that there is one in the shared pool. */
static cpu_set_t take_one_core(void) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; core++) {
        if (CPU_ISSET(core, &before)) {
            CPU_SET(core, &one);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    return before;
}

static void give_cores_back(const cpu_set_t *cores) {
    assert_int_equal(sched_setaffinity(0, sizeof *cores, cores), 0);
}

/* Ranks that read as different numbers of batches get those that they get alone. */
static void ranks_read_unevenly_get_the_batches_that_they_get_alone(void **state) {
    static const uint64_t wanted[RANKS] = {BATCHES, 3, BATCHES / 8, 1};
    struct reader alone[RANKS] = {{0}}, together[RANKS] = {{0}};
    pthread_t threads[RANKS];
    atomic_int is_over = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        alone[rank] = (struct reader){.wanted = wanted[rank], .is_over = &is_over};
        alone[rank].sampler = open_rank(state, rank, 1);
        read_batches(&alone[rank]);
        hw_sampler_close(alone[rank].sampler);
        together[rank] = (struct reader){.wanted = wanted[rank], .is_over = &is_over};
        together[rank].sampler = open_rank(state, rank, 0);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(pthread_create(&threads[rank], NULL, read_batches, &together[rank]), 0);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        pthread_join(threads[rank], NULL);
        assert_int_equal(atomic_load(&together[rank].taken), wanted[rank]);
        assert_true(together[rank].digest == alone[rank].digest);
        hw_sampler_close(together[rank].sampler);
    }
}

/* Two samplers that are read faster than the one thread makes batches, beside one whose queue is
 * full: of the two none gets more than a multiple of the other, and the third nothing. */
static void a_sampler_that_is_read_fast_leaves_turns_to_the_others(void **state) {
    cpu_set_t cores = take_one_core();
    struct reader readers[2] = {{0}};
    pthread_t threads[2];
    atomic_int is_over = 0;
    hw_sampler *full = open_rank(state, 2, 0);
    for (uint32_t i = 0; i < 2; i++) {
        readers[i] = (struct reader){.wanted = UINT64_MAX, .is_over = &is_over};
        readers[i].sampler = open_rank(state, i, 0);
    }
    give_cores_back(&cores);
    assert_int_equal(stats_of(full).threads, 1);
    for (int i = 0; i < 10000 && stats_of(full).train_queue < PREFETCH; i++) {
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_batches, &readers[i]), 0);
    }
    uint64_t taken[2] = {0, 0};
    for (int i = 0; i < PATIENCE_S * 1000 && taken[0] + taken[1] < 4 * BATCHES; i++) {
        usleep(1000);
        taken[0] = atomic_load(&readers[0].taken);
        taken[1] = atomic_load(&readers[1].taken);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        hw_sampler_close(readers[i].sampler);
    }
    assert_true(taken[0] + taken[1] >= 4 * BATCHES);
    assert_true(taken[0] >= BATCHES && taken[1] >= BATCHES);
    assert_int_equal(stats_of(full).batches, PREFETCH);
    hw_sampler_close(full);
}

/* A thread rests for a sampler while it works for another one. */
static void a_sampler_whose_queue_is_full_counts_the_rest_of_its_threads(void **state) {
    cpu_set_t cores = take_one_core();
    hw_sampler *full = open_rank(state, 0, 0), *read = open_rank(state, 1, 0);
    give_cores_back(&cores);
    for (int i = 0; i < 10000 && stats_of(full).train_queue < PREFETCH; i++) {
        usleep(1000);
    }
    uint64_t before = stats_of(full).producer_wait_ns;
    for (int i = 0; i < BATCHES; i++) {
        hw_batch_release(fixture_next(read, HW_TRAIN));
    }
    usleep(20000);
    hw_sampler_stats stats = stats_of(full);
    assert_true(stats.producer_wait_ns >= before + 20000000);
    assert_true(stats.producer_wait_ns <= stats.elapsed_ns);
    hw_sampler_shutdown(full);
    before = stats_of(full).producer_wait_ns;
    usleep(20000);
    assert_int_equal(stats_of(full).producer_wait_ns, before);
    hw_sampler_close(full);
    hw_sampler_close(read);
}

/* ---- errors ------------------------------------------------------------------------------ */

static void an_error_ends_production_of_one_sampler_and_of_no_other(void **state) {
    struct shelf *shelf = *state;
    hw_store *other = fixture_store(shelf->directory, "other.hw", league);
    hw_sampler_options options = shared_options();
    hw_sampler *good = open_rank(state, 0, 0), *bad = fixture_sampler(other, &options);
    char path[4096];
    snprintf(path, sizeof path, "%s/graph.bin", hw_store_directory(other));
    FILE *file = fopen(path, "ab"); /* grown, not truncated: the map stays whole */
    assert_non_null(file);
    fputc(0, file);
    fclose(file);
    hw_batch *batch = NULL;
    hw_error error = {0};
    hw_status status = HW_OK;
    for (int k = 0; k < 100 && status == HW_OK; k++) {
        status = hw_sampler_next(bad, HW_TRAIN, -1, NULL, NULL, &batch, &error);
        hw_batch_release(status == HW_OK ? batch : NULL);
    }
    assert_int_equal(status, HW_BAD_STORE);
    for (int k = 0; k < BATCHES; k++) {
        hw_batch_release(fixture_next(good, HW_TRAIN));
    }
    assert_int_equal(hw_sampler_next(bad, HW_TRAIN, -1, NULL, NULL, &batch, NULL), HW_BAD_STORE);
    hw_sampler_close(bad);
    hw_batch_release(fixture_next(good, HW_TRAIN));
    hw_sampler_close(good);
    hw_store_close(other);
}

/* ---- closing ----------------------------------------------------------------------------- */

static hw_pass *open_pass(hw_sampler *sampler) {
    hw_pass *pass = NULL;
    MUST(hw_pass_open(sampler, HW_TRAIN, TASK_SCORE, 0, &pass, &error));
    return pass;
}

static void a_pass_goes_on_without_the_callers_sampler(void **state) {
    uint32_t before = threads_before();
    hw_sampler *sampler = open_rank(state, 0, 2);
    hw_pass *first = open_pass(sampler), *second = open_pass(sampler);
    hw_batch *batches[2] = {NULL, NULL};
    hw_sampler_close(sampler);
    MUST(hw_pass_next(first, -1, NULL, NULL, &batches[0], &error));
    hw_pass_close(first);
    MUST(hw_pass_next(second, -1, NULL, NULL, &batches[1], &error));
    assert_true(fixture_digest(batches[0]) == fixture_digest(batches[1]));
    hw_pass_close(second); /* the last reference */
    wait_for_threads(before);
}

static void *close_pass(void *pass) {
    hw_pass_close(pass);
    return NULL;
}

static void *close_sampler(void *sampler) {
    hw_sampler_close(sampler);
    return NULL;
}

/* In either order, with threads of its own and shared ones. */
static void a_pass_and_its_sampler_are_closed_on_two_threads_at_once(void **state) {
    for (uint32_t round = 0; round < 200; round++) {
        hw_sampler *sampler = open_rank(state, 0, round % 3);
        hw_pass *passes[2] = {open_pass(sampler), open_pass(sampler)};
        pthread_t threads[3];
        assert_int_equal(pthread_create(&threads[0], NULL, close_pass, passes[0]), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, close_sampler, sampler), 0);
        assert_int_equal(pthread_create(&threads[2], NULL, close_pass, passes[1]), 0);
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

struct waiter {
    hw_pass *pass;
    hw_status status;
};

static void *read_pass(void *argument) {
    struct waiter *waiter = argument;
    hw_batch *batch = NULL;
    while ((waiter->status = hw_pass_next(waiter->pass, -1, NULL, NULL, &batch, NULL)) == HW_OK) {
        hw_batch_release(batch);
    }
    return NULL;
}

struct counter {
    hw_pass *pass;
    uint32_t counts[RANKS + 2]; /* by seed */
};

static void *count_seeds(void *argument) {
    struct counter *counter = argument;
    hw_batch *batch = NULL;
    while (hw_pass_next(counter->pass, -1, NULL, NULL, &batch, NULL) == HW_OK) {
        uint32_t count = *(const uint32_t *)fixture_array(batch, "num_sequences");
        const uint32_t *seeds = fixture_array(batch, "seed_index");
        for (uint32_t b = 0; b < count; b++) {
            counter->counts[seeds[b]]++;
        }
        hw_batch_release(batch);
    }
    return NULL;
}

/* Seed i of six is chosen 64 + i times. */
static void threads_that_read_one_pass_get_each_batch_once(void **state) {
    enum { SEEDS = 6, CHOSEN = 6 * 64 + 15 };
    uint32_t seeds[CHOSEN], counts[SEEDS] = {0}, chosen = 0;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        for (uint32_t k = 0; k < 64 + seed; k++) {
            seeds[chosen++] = seed;
        }
    }
    hw_sampler_options options = shared_options();
    options.batch_size = 7;
    hw_sampler *sampler = fixture_sampler(store_of(state), &options);
    struct counter counters[RANKS] = {{0}};
    pthread_t threads[RANKS];
    hw_pass *pass = NULL;
    MUST(hw_pass_open_chosen(sampler, TASK_SCORE, seeds, NULL, CHOSEN, &pass, &error));
    for (int i = 0; i < RANKS; i++) {
        counters[i].pass = pass;
        assert_int_equal(pthread_create(&threads[i], NULL, count_seeds, &counters[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        for (uint32_t seed = 0; seed < SEEDS; seed++) {
            counts[seed] += counters[i].counts[seed];
        }
    }
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        assert_int_equal(counts[seed], 64 + seed);
    }
    hw_sampler_close(sampler);
    hw_pass_close(pass);
}

/* A shutdown by whoever has a reference, while two threads read a pass of many batches. */
static void a_shutdown_ends_the_passes_of_samplers_that_others_closed(void **state) {
    enum { CHOSEN = 64 * 1000 };
    uint32_t *seeds = calloc(CHOSEN, sizeof *seeds);
    assert_non_null(seeds);
    for (int round = 0; round < 10; round++) {
        hw_sampler *sampler = open_rank(state, 0, 0), *kept = hw_sampler_retain(sampler);
        struct waiter waiters[2] = {{0}};
        pthread_t threads[2];
        hw_pass *pass = NULL;
        assert_ptr_equal(kept, sampler);
        MUST(hw_pass_open_chosen(sampler, TASK_SCORE, seeds, NULL, CHOSEN, &pass, &error));
        hw_sampler_close(sampler);
        for (int i = 0; i < 2; i++) {
            waiters[i].pass = pass;
            assert_int_equal(pthread_create(&threads[i], NULL, read_pass, &waiters[i]), 0);
        }
        usleep(1000);
        hw_sampler_shutdown(kept);
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].status, HW_SHUT_DOWN);
        }
        hw_sampler_close(kept);
        assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &(hw_batch *){NULL}, NULL),
                         HW_SHUT_DOWN);
        hw_pass_close(pass);
    }
    free(seeds);
}

static void *open_and_close(void *state) {
    for (uint32_t round = 0; round < 40; round++) {
        hw_sampler *sampler = open_rank(state, round % RANKS, round % 4 == 3);
        hw_pass *pass = round % 2 ? open_pass(sampler) : NULL;
        for (uint32_t k = 0; k < round % 3; k++) {
            hw_batch_release(fixture_next(sampler, HW_TRAIN));
        }
        hw_sampler_close(sampler);
        hw_pass_close(pass);
    }
    return NULL;
}

static void samplers_open_and_close_on_many_threads(void **state) {
    pthread_t threads[RANKS];
    uint32_t before = threads_before();
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, state), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    wait_for_threads(before);
}

/* ---- forks ------------------------------------------------------------------------------- */

#if !defined(__SANITIZE_THREAD__) /* which lets no child of threads start some */

static uint64_t first_digest(hw_sampler *sampler) {
    hw_batch *batch = NULL;
    MUST(hw_sampler_next(sampler, HW_TRAIN, PATIENCE_S * 1000, NULL, NULL, &batch, &error));
    return fixture_digest(batch);
}

/* While another thread opens and closes samplers, so that their locks are taken at times. */
static void a_forked_child_has_threads_of_its_own(void **state) {
    pthread_t thread;
    hw_sampler *sampler = open_rank(state, 0, 0);
    ending_fork(sampler);
    assert_int_equal(pthread_create(&thread, NULL, open_and_close, state), 0);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            hw_sampler *first = open_rank(state, 1, 0), *second = open_rank(state, 1, 0);
            int is_good = first_digest(first) == first_digest(second);
            is_good &= hw_sampler_next(sampler, HW_TRAIN, 0, NULL, NULL, &(hw_batch *){NULL},
                                       NULL) == HW_FORKED;
            hw_sampler_close(first);
            hw_sampler_close(sampler);
            hw_sampler_close(second);
            is_good &= count_threads() == 1;
            _exit(is_good ? 0 : 1);
        }
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    pthread_join(thread, NULL);
    hw_batch_release(fixture_next(sampler, HW_TRAIN));
    hw_sampler_close(sampler);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samplers_share_as_many_threads_as_there_are_cores),
        cmocka_unit_test(ranks_read_unevenly_get_the_batches_that_they_get_alone),
        cmocka_unit_test(a_sampler_that_is_read_fast_leaves_turns_to_the_others),
        cmocka_unit_test(a_sampler_whose_queue_is_full_counts_the_rest_of_its_threads),
        cmocka_unit_test(an_error_ends_production_of_one_sampler_and_of_no_other),
        cmocka_unit_test(a_pass_goes_on_without_the_callers_sampler),
        cmocka_unit_test(a_pass_and_its_sampler_are_closed_on_two_threads_at_once),
        cmocka_unit_test(threads_that_read_one_pass_get_each_batch_once),
        cmocka_unit_test(a_shutdown_ends_the_passes_of_samplers_that_others_closed),
        cmocka_unit_test(samplers_open_and_close_on_many_threads),
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_forked_child_has_threads_of_its_own),
#endif
    };
    return cmocka_run_group_tests(tests, open_league, close_shelf);
}
