/* First-fit: which sequence a context goes into; and batches packed while others are made. What
 * packing copies is test_packing.py's. */
#include "batch/pack.h"
#include "support/fixtures.h"
#include "support/read.h"
#include "support/unit_test.h"

/* 10 cells and 4 rows to a sequence, of which there are three. */
static const hw_shape SMALL = {
    .batch_size = 3,
    .sequence_length = 10,
    .max_rows = 4,
    .contexts_per_sequence = 3,
};

static void a_context_goes_into_the_first_sequence_with_room(void **state) {
    struct hwi_fit fits[3] = {{0}};
    assert_int_equal(hwi_fit_add(fits, &SMALL, 6, 1), 0);
    assert_int_equal(hwi_fit_add(fits, &SMALL, 7, 1), 1); /* 6 + 7 > 10 */
    assert_int_equal(hwi_fit_add(fits, &SMALL, 4, 1), 0); /* just fits */
    assert_int_equal(hwi_fit_add(fits, &SMALL, 3, 4), 2); /* cells of 1 would do, its rows do not */
    assert_int_equal(hwi_fit_add(fits, &SMALL, 3, 3), 1);
    assert_int_equal(hwi_fit_add(fits, &SMALL, 1, 1), HWI_NONE); /* 2 has cells, but no rows */
    assert_int_equal(fits[0].cells, 10);
    assert_int_equal(fits[1].rows, 4);
    assert_int_equal(fits[2].contexts, 1);
}

static void a_sequence_holds_no_more_contexts_than_it_may(void **state) {
    struct hwi_fit fits[3] = {{0}};
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(hwi_fit_add(fits, &SMALL, 1, 1), b);
        }
    }
    assert_int_equal(hwi_fit_add(fits, &SMALL, 1, 1), HWI_NONE);
    memset(fits, 0, sizeof fits);
    assert_int_equal(hwi_fit_add(fits, &SMALL, 10, 4), 0);
}

/* 21 contexts of 2 to 24 cells into 6 sequences of 24: some are cut, some dropped. */
static void batches_packed_by_threads_are_those_packed_by_one(void **state) {
    hw_store *store = store_of(state);
    for (int variant = 0; variant < 4; variant++) {
        int is_apart = variant >= 2; /* contexts of 20 cells and 5 rows at most */
        hw_sampler_options options = {
            .struct_bytes = sizeof options,
            .split_ratios = {1, 0, 0},
            .batch_size = 6,
            .sequence_length = 24,
            .max_rows = 8,
            .text_budget = 200,
            .num_threads = 3,
            .num_prefetch = 3,
            .layout = variant % 2 ? HW_LAYOUT_COMPACT : HW_LAYOUT_DENSE,
            .attention_masks = 1,
            .packing = 1,
            .contexts_per_batch = 21,
            .context_length = is_apart ? 20 : 0,
            .max_context_rows = is_apart ? 5 : 0,
        };
        fixture_threads_agree(store, options, HW_TRAIN);
        hw_sampler *sampler = fixture_sampler(store, &options);
        for (int k = 0; k < 24; k++) {
            hw_batch_release(fixture_next(sampler, HW_TRAIN));
        }
        hw_sampler_shutdown(sampler); /* a thread adds its counters a little after its batch */
        hw_sampler_stats stats = stats_of(sampler);
        assert_true(stats.contexts_cut > 0 && stats.contexts_dropped > 0);
        assert_true(stats.sequences >= 2 * 12 * 21);
        assert_true(stats.packed_cells + stats.cells_cut <= stats.cells);
        hw_sampler_close(sampler);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_goes_into_the_first_sequence_with_room),
        cmocka_unit_test(a_sequence_holds_no_more_contexts_than_it_may),
        cmocka_unit_test_setup_teardown(batches_packed_by_threads_are_those_packed_by_one,
                                        open_bookstore, close_shelf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
