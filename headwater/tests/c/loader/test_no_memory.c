/* Memory that runs out (support/trials.h) where a store is opened, and batches are made. */
#define _DEFAULT_SOURCE 1

#include "support/fixtures.h"
#include "support/league.h"
#include "support/read.h"
#include "support/scarce.h"
#include "support/survey.h"
#include "support/trials.h"
#include "support/unit_test.h"

enum { PATIENCE_MS = 60000 };

/* ---- a store ------------------------------------------------------------------------------- */

struct shop {
    char *directory, *path;
    hw_store *store;
    hw_sampler_options options;
    hw_load load;
    uint64_t digest; /* of what is sampled; 0: not known yet */
};

/* Once for all trials: an open store keeps what it says of itself. */
static void describe(const hw_store *store) {
    hw_table_info info = {.struct_bytes = sizeof info};
    MUST(hw_store_table_info(store, 0, &info, &error));
}

static int open_shop(void **state) {
    struct shop *shop = calloc(1, sizeof *shop);
    assert_non_null(shop);
    shop->directory = fixture_directory();
    shop->path = fixture_path(shop->directory, "shop.hw");
    shop->store = bookstore(shop->path);
    describe(shop->store);
    *state = shop;
    return 0;
}

static int close_shop(void **state) {
    struct shop *shop = *state;
    hw_store_close(shop->store);
    fixture_remove(shop->directory);
    free(shop->path);
    free(shop);
    return 0;
}

static void open_and_verify(void *context) {
    const struct shop *shop = context;
    hw_store *store = NULL;
    uint64_t fault_count = 1;
    AGAIN(hw_store_open(shop->path, shop->load, &store, &error));
    AGAIN(hw_store_verify(store, NULL, NULL, &fault_count, &error));
    assert_int_equal(fault_count, 0);
    hw_verification found = {.struct_bytes = sizeof found};
    AGAIN(hw_store_check_files(store, HW_VERIFY_FULL, shop->directory, NULL, NULL, &found, &error));
    assert_int_equal(found.how, HW_VERIFIED_NOW);
    hw_table_info info = {.struct_bytes = sizeof info};
    AGAIN(hw_store_table_info(store, BOOKS, &info, &error));
    assert_string_equal(info.name, "books");
    hw_store_close(store);
}

static void a_store_opens_and_verifies(void **state) {
    struct shop *shop = *state;
    static const hw_load loads[] = {HW_LOAD_MMAP, HW_LOAD_RAM};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        shop->load = loads[i];
        try_all(open_and_verify, shop, 0);
    }
    /* A build is opened by its own path, too. */
    char *build = fixture_path(hw_store_directory(shop->store), "");
    char *whole = shop->path;
    shop->path = build;
    try_all(open_and_verify, shop, 0);
    shop->path = whole;
    free(build);
}

static void warm_up(void *context) {
    const struct shop *shop = context;
    AGAIN(hw_store_warm_up(shop->store, 3, &error));
}

static void pages_that_no_thread_warms_are_warmed_by_the_caller(void **state) {
    try_all(warm_up, *state, 1);
}

static void embed(void *context) {
    AGAIN(hw_hash_embed("fog", 3, FIXTURE_TEXT_DIM, context, &error));
}

static void a_text_is_embedded(void **state) {
    uint16_t vector[FIXTURE_TEXT_DIM];
    try_all(embed, vector, 0);
}

/* ---- a sampler ----------------------------------------------------------------------------- */

static uint64_t add(uint64_t hash, hw_batch *batch) {
    return 31 * hash + fixture_digest(batch);
}

static void compare(struct shop *shop, uint64_t digest) {
    shop->digest = shop->digest == 0 ? digest : shop->digest;
    assert_true(digest == shop->digest);
}

/* The task, or seed table, whose ad-hoc seeds are books. */
static uint32_t task_of_books(const struct shop *shop) {
    return shop->options.seed_tables != NULL ? counts_of(shop->store).task_count + (uint32_t)BOOKS
                                             : (uint32_t)TASK_PRICE;
}

static const uint32_t book_rows[] = {4, 7, 5};
static const int64_t book_times[] = {20 * DAY_US, INT64_MAX, 30 * DAY_US};
static const uint32_t chosen_books[] = {2, 2};

static uint64_t drain(hw_pass *pass, uint64_t hash) {
    hw_batch *batch = NULL;
    for (uint64_t k = 0; k < hw_pass_batch_count(pass); k++) {
        AGAIN(hw_pass_next(pass, PATIENCE_MS, NULL, NULL, &batch, &error));
        hash = add(hash, batch);
    }
    assert_int_equal(hw_pass_next(pass, PATIENCE_MS, NULL, NULL, &batch, NULL), HW_END);
    hw_pass_close(pass);
    return hash;
}

/* Batches by number, of a stream, of a stream that goes on elsewhere, of an epoch, of ad-hoc and
 * chosen seeds: everything that a sampler without threads does. */
static void sample(void *context) {
    struct shop *shop = context;
    hw_sampler *sampler = NULL;
    hw_batch *batch = NULL;
    hw_pass *pass = NULL;
    uint64_t hash = 0, positions[8], batches = 0;
    AGAIN(hw_sampler_open(shop->store, &shop->options, &sampler, &error));
    AGAIN(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error));
    hash = add(hash, batch);
    AGAIN(hw_sampler_get_position(sampler, HW_TRAIN, positions, &batches, &error));
    AGAIN(hw_sampler_batch(sampler, HW_TRAIN, 2, &batch, &error));
    hw_batch *kept = batch; /* so that the next one needs memory, too */
    AGAIN(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error));
    hash = add(hash, batch);
    hash = add(hash, kept);
    AGAIN(hw_sampler_set_position(sampler, HW_TRAIN, positions, batches, &error));
    AGAIN(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error));
    hash = add(hash, batch);
    AGAIN(hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 1, &pass, &error));
    hash = drain(pass, hash);
    AGAIN(
        hw_pass_open_seeds(sampler, task_of_books(shop), book_rows, book_times, 3, &pass, &error));
    hash = drain(pass, hash);
    AGAIN(hw_pass_open_chosen(sampler, task_of_books(shop), chosen_books, chosen_books, 2, &pass,
                              &error));
    hash = drain(pass, hash);
    if (shop->options.layout == HW_LAYOUT_FLAT) {
        AGAIN(hw_pass_open_levelled(sampler, task_of_books(shop), chosen_books, chosen_books, 2,
                                    &pass, &error));
        hash = drain(pass, hash);
    }
    hw_subgraph *subgraph = NULL;
    AGAIN(hw_sampler_subgraph(sampler, task_of_books(shop), 2, 0, 1, &subgraph, &error));
    hw_subgraph_close(subgraph);
    hw_sampler_close(sampler);
    compare(shop, hash);
}

static void a_sampler_of_any_kind_opens_and_makes_batches(void **state) {
    struct shop *shop = *state;
    /* Dense, child counts, resident, packed, packed and compact, masked cells of three kinds, flat
     * and flat with masked cells. */
    static const uint32_t variants[] = {0, 1, 9, 10, 11, 12, 13, 14, 15, 16};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        shop->options = survey_options(variants[i]);
        shop->digest = 0;
        try_all(sample, shop, 0);
    }
}

static void sample_one_batch(void *context) {
    struct shop *shop = context;
    hw_sampler *sampler = NULL;
    hw_batch *batch = NULL;
    AGAIN(hw_sampler_open(shop->store, &shop->options, &sampler, &error));
    AGAIN(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, &error));
    hw_sampler_close(sampler);
    compare(shop, add(0, batch));
}

static void sample_one_batch_of(struct shop *shop, hw_store *(*make)(const char *store_path)) {
    hw_store *books = shop->store;
    shop->store = fixture_store(shop->directory, "other.hw", make);
    shop->digest = 0;
    try_all(sample_one_batch, shop, 0);
    hw_store_close(shop->store);
    shop->store = books;
}

/* Vectors so many that a batch is on pages of its own. */
static void a_large_batch_is_made(void **state) {
    struct shop *shop = *state;
    hw_sampler_options_init(&shop->options, sizeof shop->options);
    shop->options.batch_size = 256;
    shop->options.sequence_length = 8;
    shop->options.max_rows = 2;
    shop->options.text_budget = 1200;
    shop->options.num_prefetch = shop->options.num_prefetch_val = 0;
    sample_one_batch_of(shop, letters);
}

/* The labels that peers are drawn from are listed when the sampler opens. */
static void a_sampler_of_peer_labels_opens(void **state) {
    struct shop *shop = *state;
    shop->options = survey_options(1);
    assert_true(shop->options.peer_labels > 0);
    sample_one_batch_of(shop, league);
}

/* ---- threads ------------------------------------------------------------------------------- */

static uint32_t wait_refused_count;

/* Adds the next batch of the pass, or of the train stream; 0 if a thread had no memory for it. Then
 * the sampler says so to everyone who waits, and goes on saying it. */
static int take(hw_sampler *sampler, hw_split split, hw_pass *pass, uint64_t *hash) {
    hw_batch *batch = NULL;
    hw_error error = {.message = ""}, later = {.message = ""};
    hw_status status =
        pass != NULL ? hw_pass_next(pass, PATIENCE_MS, NULL, NULL, &batch, &error)
                     : hw_sampler_next(sampler, HW_TRAIN, PATIENCE_MS, NULL, NULL, &batch, &error);
    if (!is_refused(status, &error)) {
        *hash = add(*hash, batch);
        return 1;
    }
    assert_int_equal(hw_sampler_next(sampler, split, PATIENCE_MS, NULL, NULL, &batch, &later),
                     status);
    assert_string_equal(later.message, error.message);
    wait_refused_count++;
    return 0;
}

static void produce(void *context) {
    struct shop *shop = context;
    hw_sampler *sampler = NULL;
    hw_pass *pass = NULL;
    hw_batch *batch = NULL;
    uint64_t hash = 0;
    int goes_on = 1;
    hw_split split = shop->options.layout == HW_LAYOUT_FLAT ? HW_TRAIN : HW_VAL; /* asked later */
    AGAIN(hw_sampler_open(shop->store, &shop->options, &sampler, &error));
    for (int k = 0; k < 4 && goes_on; k++) {
        goes_on = take(sampler, split, NULL, &hash);
    }
    AGAIN(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 0, &pass, &error));
    for (uint64_t k = 0; k < hw_pass_batch_count(pass) && goes_on; k++) {
        goes_on = take(sampler, split, pass, &hash);
    }
    /* What the caller's thread makes does not depend on the others. */
    AGAIN(hw_sampler_batch(sampler, HW_TRAIN, 1, &batch, &error));
    hw_batch_release(batch);
    hw_pass_close(pass);
    hw_sampler_close(sampler);
    if (goes_on) {
        compare(shop, hash);
    }
}

static void a_thread_without_memory_tells_whoever_waits(void **state) {
    struct shop *shop = *state;
    static const struct {
        uint32_t threads, variant;
        int32_t prefetch;
    } settings[] = {{2, 0, 2}, {0, 0, 2}, {3, 11, 1}, {1, 14, 3}, {2, 15, 3}};
    wait_refused_count = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        shop->options = survey_options(settings[i].variant);
        shop->options.seed_tables = NULL;
        shop->options.seed_table_count = 0;
        shop->options.split_ratios[0] = shop->options.split_ratios[1] = 0.5;
        shop->options.split_ratios[2] = 0;
        shop->options.num_threads = settings[i].threads;
        shop->options.num_prefetch = settings[i].prefetch;
        shop->options.num_prefetch_val = 1;
        shop->digest = 0;
        try_all(produce, shop, 1); /* what is made ahead may never be asked for */
    }
    assert_true(wait_refused_count > 0);
}

#define ON(thing, test) cmocka_unit_test_setup_teardown(test, open_##thing, close_##thing)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_embedded),
        ON(shop, a_store_opens_and_verifies),
        ON(shop, pages_that_no_thread_warms_are_warmed_by_the_caller),
        ON(shop, a_sampler_of_any_kind_opens_and_makes_batches),
        ON(shop, a_large_batch_is_made),
        ON(shop, a_sampler_of_peer_labels_opens),
        ON(shop, a_thread_without_memory_tells_whoever_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
