/*
 * Flat streams and passes over the bookstore, the league and letters: batches are the same whoever
 * makes them, blocks hold the contexts of their epoch, a position is a whole batch, and nothing
 * that ends while a block is measured hangs or leaks. Run it under ThreadSanitizer, too. What a
 * batch holds is test_flat.py's.
 */
#define _DEFAULT_SOURCE 1

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "format/file.h"
#include "headwater.h"
#include "store/store.h"
#include "support/endings.h"
#include "support/league.h"
#include "support/unit_test.h"

static hw_sampler_options flat_options(void) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .seed = 7,
        .split_seed = 3,
        .batch_size = 5,
        .sequence_length = 24,
        .max_rows = 8,
        .text_budget = 200,
        .num_threads = 3,
        .num_prefetch = 3,
        .num_prefetch_val = 1,
        .layout = HW_LAYOUT_FLAT,
        .level_block = 4,
    };
}

/* Blocks of 16 batches of 16 letters, two to an epoch: long enough that something else happens
 * while they are measured. */
static hw_sampler_options letter_options(void) {
    hw_sampler_options options = flat_options();
    options.batch_size = 16;
    options.sequence_length = 4;
    options.text_budget = 17;
    options.level_block = 16;
    return options;
}

static hw_sampler *open_sampler(void **state, const hw_sampler_options *options) {
    return fixture_sampler(store_of(state), options);
}

/* ---- the same for everybody -------------------------------------------------------------- */

static void batches_are_the_same_for_any_thread_count_and_prefetch_depth(void **state) {
    static const struct {
        uint32_t batch, block, world, rank;
        hw_shard shard;
    } settings[] = {
        {1, 1, 1, 0, HW_SHARD_FIXED},  {5, 4, 1, 0, HW_SHARD_FIXED},   {2, 3, 3, 2, HW_SHARD_DEALT},
        {19, 2, 2, 1, HW_SHARD_DEALT}, {3, 128, 2, 0, HW_SHARD_FIXED},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        hw_sampler_options options = flat_options();
        options.batch_size = settings[i].batch;
        options.level_block = settings[i].block;
        options.world_size = settings[i].world;
        options.rank = settings[i].rank;
        options.shard = settings[i].shard;
        fixture_threads_agree(store_of(state), options, HW_TRAIN);
    }
}

static void masked_cells_are_the_same_for_any_thread_count(void **state) {
    hw_sampler_options options = flat_options();
    options.mask_ratio = 0.5;
    options.text_mode = HW_TEXTS_RESIDENT;
    options.text_budget = 0;
    fixture_threads_agree(store_of(state), options, HW_TRAIN);
}

static void large_blocks_are_the_same_for_any_thread_count(void **state) {
    hw_sampler_options options = letter_options();
    options.batch_size = 200; /* vectors in parts; epochs end within batches */
    options.text_budget = 201;
    fixture_threads_agree(store_of(state), options, HW_TRAIN);
}

static void samplers_of_one_store_do_not_meet(void **state) {
    hw_sampler_options options = letter_options();
    hw_sampler *samplers[3];
    for (uint32_t i = 0; i < 3; i++) {
        options.level_block = 1 + 7 * i;
        options.num_threads = 1 + i;
        samplers[i] = open_sampler(state, &options);
    }
    for (uint64_t k = 0; k < 70; k++) {
        for (uint32_t i = 0; i < 3; i++) {
            hw_batch *batch = NULL;
            MUST(hw_sampler_batch(samplers[i], HW_TRAIN, k, &batch, &error));
            uint64_t expected = fixture_digest(batch);
            assert_true(fixture_digest(fixture_next(samplers[i], HW_TRAIN)) == expected);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        hw_sampler_close(samplers[i]);
    }
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* How often each of 512 letters is in the next `batches` batches of 16 over all ranks. */
static void count_letters(hw_sampler *const *samplers, uint32_t ranks, uint32_t batches,
                          uint32_t counts[LETTERS_COUNT]) {
    memset(counts, 0, LETTERS_COUNT * sizeof *counts);
    for (uint32_t k = 0; k < batches * ranks; k++) {
        hw_batch *batch = fixture_next(samplers[k % ranks], HW_TRAIN);
        const uint32_t *seeds = fixture_array(batch, "seed_index");
        for (uint32_t i = 0; i < 16; i++) {
            counts[seeds[i]]++;
        }
        hw_batch_release(batch);
    }
}

/* 512 letters are 32 batches of 16, or 16 of 2 ranks: each epoch has each once. */
static void an_epoch_has_every_seed_once_over_all_ranks(void **state) {
    for (uint32_t setting = 0; setting < 6; setting++) {
        uint32_t ranks = 1 + setting % 2;
        hw_sampler_options options = letter_options();
        hw_sampler *samplers[2];
        options.world_size = ranks;
        options.shard = setting < 4 ? HW_SHARD_DEALT : HW_SHARD_FIXED;
        options.level_block = 1 + 11 * (setting / 2);
        for (options.rank = 0; options.rank < ranks; options.rank++) {
            samplers[options.rank] = open_sampler(state, &options);
        }
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            uint32_t counts[LETTERS_COUNT];
            count_letters(samplers, ranks, 32 / ranks, counts);
            for (uint32_t letter = 0; letter < LETTERS_COUNT; letter++) {
                assert_int_equal(counts[letter], 1);
            }
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            hw_sampler_close(samplers[rank]);
        }
    }
}

/* ---- levelled passes --------------------------------------------------------------------- */

enum { ALONG = 8, EACH = 15, LEVELLED = ALONG * EACH };

/* The seeds of the first batches of a stream of one task, and the epoch of each; the digests of
 * these batches. */
static void read_stream(hw_sampler *sampler, uint32_t seed_count, uint32_t *seeds, uint32_t *epochs,
                        uint64_t *digests) {
    for (uint32_t k = 0; k < ALONG; k++) {
        hw_batch *batch = NULL;
        MUST(hw_sampler_batch(sampler, HW_TRAIN, k, &batch, &error));
        memcpy(seeds + k * EACH, fixture_array(batch, "seed_index"), EACH * sizeof *seeds);
        for (uint32_t i = k * EACH; i < (k + 1) * EACH; i++) {
            epochs[i] = i / seed_count;
        }
        digests[k] = fixture_digest(batch);
    }
}

/* In order, as often as the stream has them, and two more seeds in a short batch of its shape. */
static void a_levelled_pass_makes_the_batches_of_a_stream(void **state) {
    static const uint32_t tasks[] = {TASK_FORM};
    for (uint32_t threads = 0; threads < 4; threads++) {
        hw_sampler_options options = flat_options();
        options.tasks = tasks;
        options.task_count = 1;
        options.batch_size = EACH;
        options.sequence_length = 40;
        options.cell_dropout = 0.4; /* contexts of many lengths */
        options.text_budget = 600;
        options.level_block = 1;
        options.num_threads = threads + 1;
        options.num_prefetch = (int32_t)threads;
        hw_sampler *sampler = open_sampler(state, &options);
        uint32_t seed_count = 0, seeds[LEVELLED + 2] = {0}, epochs[LEVELLED + 2] = {0};
        uint64_t digests[ALONG];
        hw_pass *pass = NULL;
        hw_flat_shape shape = {.struct_bytes = sizeof shape};
        MUST(hw_sampler_seed_count(sampler, HW_TRAIN, TASK_FORM, &seed_count, &error));
        MUST(hw_sampler_flat_shape(sampler, TASK_FORM, &shape, &error));
        read_stream(sampler, seed_count, seeds, epochs, digests);
        MUST(hw_pass_open_levelled(sampler, TASK_FORM, seeds, epochs, LEVELLED + 2, &pass, &error));
        assert_int_equal(hw_pass_batch_count(pass), ALONG + 1);
        for (uint32_t k = 0; k <= ALONG; k++) {
            hw_batch *batch = NULL;
            hw_batch_sizes sizes = {.struct_bytes = sizeof sizes};
            MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
            MUST(hw_batch_get_sizes(batch, &sizes, &error));
            assert_int_equal(sizes.cells, shape.cells);
            assert_int_equal(sizes.rows, shape.rows);
            uint32_t count = *(const uint32_t *)fixture_array(batch, "num_contexts");
            assert_int_equal(count, k < ALONG ? EACH : 2);
            uint64_t digest = fixture_digest(batch);
            assert_true(k == ALONG || digest == digests[k]);
        }
        assert_int_equal(hw_pass_next(pass, -1, NULL, NULL, &(hw_batch *){NULL}, NULL), HW_END);
        hw_pass_close(pass);
        hw_sampler_stats stats = {.struct_bytes = sizeof stats};
        MUST(hw_sampler_get_stats(sampler, &stats, &error));
        assert_true(stats.contexts_cut > 0); /* else levelling would not show */
        hw_sampler_close(sampler);
    }
}

static void a_levelled_pass_without_seeds_has_one_empty_batch(void **state) {
    for (int32_t prefetch = 0; prefetch < 2; prefetch++) {
        hw_sampler_options options = flat_options();
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        hw_flat_shape shape = {.struct_bytes = sizeof shape};
        hw_batch_sizes sizes = {.struct_bytes = sizeof sizes};
        hw_pass *pass = NULL;
        hw_batch *batch = NULL;
        MUST(hw_sampler_flat_shape(sampler, TASK_PRICE, &shape, &error));
        MUST(hw_pass_open_levelled(sampler, TASK_PRICE, NULL, NULL, 0, &pass, &error));
        assert_int_equal(hw_pass_batch_count(pass), 1);
        MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error));
        MUST(hw_batch_get_sizes(batch, &sizes, &error));
        assert_int_equal(sizes.cells, shape.cells);
        assert_int_equal(*(const uint32_t *)fixture_array(batch, "num_contexts"), 0);
        hw_batch_release(batch);
        hw_pass_close(pass);
        hw_sampler_close(sampler);
    }
}

/* Passes closed while their batches are measured or made, and the stream as if there were none. */
static void levelled_passes_dropped_half_way_leave_the_rest_alone(void **state) {
    uint32_t seeds[80];
    for (uint32_t i = 0; i < 80; i++) {
        seeds[i] = i * 5;
    }
    for (uint32_t threads = 1; threads < 4; threads++) {
        hw_sampler_options options = letter_options();
        options.num_threads = threads;
        hw_sampler *sampler = open_sampler(state, &options);
        uint64_t expected = 0;
        for (uint32_t round = 0; round < 60; round++) {
            hw_pass *passes[2];
            for (uint32_t i = 0; i < 2; i++) {
                MUST(hw_pass_open_levelled(sampler, 0, seeds, NULL, 80, &passes[i], &error));
            }
            usleep(round % 10 * 10);
            hw_pass_close(passes[0]);
            for (uint32_t k = 0; k < round % 4; k++) {
                hw_batch *batch = NULL;
                MUST(hw_pass_next(passes[1], -1, NULL, NULL, &batch, &error));
                uint64_t digest = fixture_digest(batch);
                expected = expected == 0 ? digest : expected;
                assert_true(k > 0 || digest == expected);
            }
            if (round < 32) {
                hw_batch *batch = NULL;
                MUST(hw_sampler_batch(sampler, HW_TRAIN, round, &batch, &error));
                uint64_t digest = fixture_digest(batch);
                assert_true(fixture_digest(fixture_next(sampler, HW_TRAIN)) == digest);
            }
            hw_pass_close(passes[1]);
        }
        hw_sampler_close(sampler);
    }
}

/* ---- positions --------------------------------------------------------------------------- */

static void a_position_within_a_batch_is_refused(void **state) {
    hw_sampler_options options = flat_options();
    options.world_size = 2;
    options.shard = HW_SHARD_DEALT;
    hw_sampler *sampler = open_sampler(state, &options);
    for (uint64_t position = 0; position <= 20; position++) {
        uint64_t positions[3] = {position, 0, 0};
        hw_error error = {.message = ""};
        hw_status status = hw_sampler_set_position(sampler, HW_TRAIN, positions, 1, &error);
        assert_int_equal(status, position % 10 == 0 ? HW_OK : HW_BAD_ARGUMENT);
        assert_true(status == HW_OK || strstr(error.message, "within a batch of 10 contexts"));
    }
    hw_sampler_close(sampler);
}

static void a_position_set_while_a_block_is_measured_continues_exactly(void **state) {
    enum { LATER = 20 };
    hw_sampler_options options = letter_options();
    hw_sampler *sampler = open_sampler(state, &options);
    uint64_t positions[1], batches = 0, later[LATER];
    for (int k = 0; k < 5; k++) {
        hw_batch_release(fixture_next(sampler, HW_TRAIN));
    }
    MUST(hw_sampler_get_position(sampler, HW_TRAIN, positions, &batches, &error));
    assert_int_equal(positions[0], 5 * 16);
    for (int k = 0; k < LATER; k++) {
        later[k] = fixture_digest(fixture_next(sampler, HW_TRAIN));
    }
    for (uint32_t round = 0; round < 300; round++) {
        uint64_t other = UINT64_C(256) * round; /* a block that has never been measured */
        MUST(hw_sampler_set_position(sampler, HW_TRAIN, &other, batches, &error));
        usleep(round % 10 * 20);
        MUST(hw_sampler_set_position(sampler, HW_TRAIN, positions, batches, &error));
        for (uint32_t k = 0; round % 10 == 0 && k < LATER; k++) {
            assert_true(fixture_digest(fixture_next(sampler, HW_TRAIN)) == later[k]);
        }
    }
    hw_sampler_close(sampler);
}

/* ---- ends -------------------------------------------------------------------------------- */

static void a_shutdown_while_blocks_are_measured_leaves_nothing_behind(void **state) {
    for (uint32_t round = 0; round < 300; round++) {
        hw_sampler_options options = letter_options();
        options.num_threads = 1 + round % 4;
        options.num_prefetch = 1 + (int32_t)round % 3 * 9; /* up to more than a block */
        hw_sampler *sampler = open_sampler(state, &options);
        for (uint32_t k = 0; k < round % 3 * 8; k++) {
            hw_batch_release(fixture_next(sampler, HW_TRAIN));
        }
        usleep(round % 20 * 10);
        if (round % 2) {
            hw_sampler_shutdown(sampler);
        }
        hw_sampler_close(sampler);
    }
}

/* Readers of the stream, with threads and in the calling thread. */
static void a_shutdown_from_another_thread_ends_every_wait(void **state) {
    for (uint32_t round = 0; round < 60; round++) {
        hw_sampler_options options = letter_options();
        options.num_prefetch = (int32_t)round % 3;
        hw_sampler *sampler = open_sampler(state, &options);
        ending_shutdown(sampler, round * 30);
        hw_sampler_close(sampler);
    }
}

static void passes_dropped_half_way_leave_the_rest_alone(void **state) {
    hw_sampler_options options = letter_options();
    hw_sampler *sampler = open_sampler(state, &options);
    uint64_t expected = 0;
    for (uint32_t round = 0; round < 200; round++) {
        hw_pass *passes[2];
        hw_batch *batch = NULL;
        for (uint32_t i = 0; i < 2; i++) {
            MUST(hw_pass_open(sampler, HW_TRAIN, 0, i, &passes[i], &error));
        }
        hw_pass_close(passes[0]);
        for (uint32_t k = 0; k < round % 4; k++) {
            MUST(hw_pass_next(passes[1], -1, NULL, NULL, &batch, &error));
            uint64_t digest = fixture_digest(batch);
            expected = expected == 0 ? digest : expected;
            assert_true(k > 0 || digest == expected);
        }
        hw_pass_close(passes[1]);
        if (round % 16 == 0) {
            hw_batch_release(fixture_next(sampler, HW_TRAIN));
        }
    }
    hw_sampler_close(sampler);
}

static void a_forked_process_is_refused_and_may_let_go(void **state) {
    hw_sampler_options options = flat_options();
    hw_sampler *sampler = open_sampler(state, &options);
    ending_fork(sampler);
    hw_sampler_close(sampler);
}

/* ---- errors ------------------------------------------------------------------------------ */

/* The home of a match in the mapped file; returns what it was. */
static uint32_t write_home(hw_store *store, uint32_t row, uint32_t home) {
    const uint8_t *record = hwi_record(&store->tables[1], row);
    uint32_t before = UINT32_MAX;
    memcpy(&before, record, sizeof before);
    for (uint32_t i = 0; i < store->file_count; i++) {
        const struct hwi_file *file = &store->files[i];
        if (file->data != NULL && record >= file->data && record < file->data + file->bytes) {
            int fd = open(file->path, O_WRONLY);
            assert_int_equal(pwrite(fd, &home, sizeof home, record - file->data), sizeof home);
            close(fd);
            return before;
        }
    }
    fail_msg("match %u is in no file", row);
    return before;
}

static void assert_latched(hw_sampler *sampler, const char *message) {
    hw_batch *batch = NULL;
    hw_error error = {.message = ""};
    hw_status status = HW_OK;
    for (int k = 0; k < 200 && status == HW_OK; k++) {
        status = hw_sampler_next(sampler, HW_TRAIN, 10000, NULL, NULL, &batch, &error);
        if (status == HW_OK) {
            hw_batch_release(batch);
        }
    }
    for (int again = 0; again < 3; again++) {
        if (status != HW_BAD_STORE || strstr(error.message, message) == NULL) {
            fail_msg("status %d, '%s', expected '%s'", (int)status, error.message, message);
        }
        status = hw_sampler_next(sampler, HW_TRAIN, 10000, NULL, NULL, &batch, &error);
    }
}

/* Every context of task `form` sees match 2. The walk for a length meets the bad row, in a thread
 * or in the caller's; what the caller asks for once it is right again is as it was. */
static void a_bad_row_met_while_a_block_is_measured_is_latched(void **state) {
    static const uint32_t tasks[] = {TASK_FORM};
    for (int32_t prefetch = 0; prefetch < 3; prefetch++) {
        hw_sampler_options options = flat_options();
        options.tasks = tasks;
        options.task_count = 1;
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        hw_batch *batch = NULL;
        hw_error error = {.message = ""};
        MUST(hw_sampler_batch(sampler, HW_TRAIN, 4, &batch, &error));
        uint64_t expected = fixture_digest(batch);
        uint32_t home = write_home(store_of(state), 2, 99);
        assert_int_equal(hw_sampler_batch(sampler, HW_TRAIN, 1000, &batch, &error), HW_BAD_STORE);
        assert_latched(sampler, "a parent is row 99, outside table 'teams'");
        hw_pass *pass = NULL;
        assert_int_equal(hw_pass_open(sampler, HW_TRAIN, TASK_FORM, 0, &pass, &error),
                         HW_BAD_STORE);
        assert_null(pass);
        write_home(store_of(state), 2, home);
        for (int round = 0; round < 3; round++) {
            MUST(hw_sampler_batch(sampler, HW_TRAIN, 4, &batch, &error));
            assert_true(fixture_digest(batch) == expected);
        }
        hw_sampler_close(sampler);
    }
}

/* A file that grows is noticed before anything is read of a store that may have shrunk. */
static void a_file_of_another_size_is_noticed_before_contexts_are_measured(void **state) {
    for (int32_t prefetch = 0; prefetch < 2; prefetch++) {
        hw_sampler_options options = flat_options();
        options.num_prefetch = prefetch;
        hw_sampler *sampler = open_sampler(state, &options);
        char path[4096];
        snprintf(path, sizeof path, "%s/graph.bin", hw_store_directory(store_of(state)));
        FILE *file = fopen(path, "ab");
        assert_non_null(file);
        long bytes = ftell(file);
        fputc(0, file);
        fclose(file);
        hw_pass *pass = NULL;
        hw_error error = {.message = ""};
        assert_int_equal(hw_pass_open(sampler, HW_TRAIN, TASK_PRICE, 0, &pass, &error),
                         HW_BAD_STORE);
        assert_latched(sampler, "graph.bin");
        hw_sampler_close(sampler);
        assert_int_equal(truncate(path, bytes), 0);
    }
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void what_the_flat_layout_does_not_have_is_refused(void **state) {
    static const struct {
        uint8_t packing, masks;
        hw_layout layout;
        const char *message;
    } refused[] = {
        {1, 0, HW_LAYOUT_FLAT, "packing does not go with layout 'flat'"},
        {0, 1, HW_LAYOUT_FLAT, "attention_masks does not go with layout 'flat'"},
        {0, 0, HW_LAYOUT_COMPACT, "level_block is 4, which layout 'flat' alone has"},
    };
    hw_sampler *sampler = NULL;
    hw_batch *batch = NULL;
    hw_flat_shape shape = {.struct_bytes = sizeof shape};
    hw_error error = {.message = ""};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        hw_sampler_options options = flat_options();
        options.packing = refused[i].packing;
        options.attention_masks = refused[i].masks;
        options.layout = refused[i].layout;
        assert_int_equal(hw_sampler_open(store_of(state), &options, &sampler, &error),
                         HW_BAD_ARGUMENT);
        assert_string_equal(error.message, refused[i].message);
    }
    hw_sampler_options options = flat_options();
    options.world_size = UINT32_C(1) << 31; /* 2^33 contexts: once a division by 0 */
    options.batch_size = 4;
    options.shard = HW_SHARD_DEALT;
    assert_int_equal(hw_sampler_open(store_of(state), &options, &sampler, &error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error.message, "layout 'flat' levels at most 2^31 - 1 cells together"));
    options = flat_options();
    sampler = open_sampler(state, &options);
    for (int split = HW_VAL; split <= HW_TEST; split++) {
        assert_int_equal(hw_sampler_batch(sampler, (hw_split)split, 0, &batch, &error),
                         HW_BAD_ARGUMENT);
    }
    assert_int_equal(hw_sampler_next(sampler, HW_VAL, 0, NULL, NULL, &batch, &error),
                     HW_BAD_ARGUMENT);
    assert_int_equal(hw_sampler_flat_shape(sampler, 9, &shape, &error), HW_BAD_ARGUMENT);
    MUST(hw_sampler_flat_shape(sampler, TASK_PRICE, &shape, &error));
    hw_sampler_close(sampler);
    options.layout = HW_LAYOUT_COMPACT;
    options.level_block = 0;
    sampler = open_sampler(state, &options);
    assert_int_equal(hw_sampler_flat_shape(sampler, TASK_PRICE, &shape, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "the layout is not 'flat'");
    hw_sampler_close(sampler);
}

int main(void) {
#define BOOKS_TEST(name) cmocka_unit_test_setup_teardown(name, open_bookstore, close_shelf)
#define LEAGUE_TEST(name) cmocka_unit_test_setup_teardown(name, open_league, close_shelf)
#define LETTERS_TEST(name) cmocka_unit_test_setup_teardown(name, open_letters, close_shelf)
    const struct CMUnitTest tests[] = {
        BOOKS_TEST(batches_are_the_same_for_any_thread_count_and_prefetch_depth),
        LEAGUE_TEST(masked_cells_are_the_same_for_any_thread_count),
        LETTERS_TEST(large_blocks_are_the_same_for_any_thread_count),
        LETTERS_TEST(samplers_of_one_store_do_not_meet),
        LETTERS_TEST(an_epoch_has_every_seed_once_over_all_ranks),
        LEAGUE_TEST(a_levelled_pass_makes_the_batches_of_a_stream),
        BOOKS_TEST(a_levelled_pass_without_seeds_has_one_empty_batch),
        LETTERS_TEST(levelled_passes_dropped_half_way_leave_the_rest_alone),
        BOOKS_TEST(a_position_within_a_batch_is_refused),
        LETTERS_TEST(a_position_set_while_a_block_is_measured_continues_exactly),
        LETTERS_TEST(a_shutdown_while_blocks_are_measured_leaves_nothing_behind),
        LETTERS_TEST(a_shutdown_from_another_thread_ends_every_wait),
        LETTERS_TEST(passes_dropped_half_way_leave_the_rest_alone),
        BOOKS_TEST(a_forked_process_is_refused_and_may_let_go),
        LEAGUE_TEST(a_bad_row_met_while_a_block_is_measured_is_latched),
        BOOKS_TEST(a_file_of_another_size_is_noticed_before_contexts_are_measured),
        BOOKS_TEST(what_the_flat_layout_does_not_have_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
