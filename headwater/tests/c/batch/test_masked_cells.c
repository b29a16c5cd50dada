/* Masked cells: what moves from a context into the lists, and that any number of threads chooses
 * the same ones. Against the reference in random worlds: test_masked_cells.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fixtures.h"

enum { SHOWN = 4 /* M */ };

static hw_sampler_options options_of(const uint32_t *tables, uint32_t table_count) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .batch_size = 5,
        .sequence_length = 32,
        .max_rows = 8,
        .text_budget = 200,
        .child_order = HW_CHILDREN_RECENT,
        .num_prefetch = 0,
        .objective = HW_OBJECTIVE_MASKED_CELLS,
        .mask_ratio = 1,
        .seed_tables = tables,
        .seed_table_count = table_count,
        .max_targets_per_type = SHOWN,
    };
}

static const void *array_of(const hw_batch *batch, const char *name) {
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = hw_batch_tensor(batch, i);
        if (strcmp(tensor.name, name) == 0) {
            return tensor.data;
        }
    }
    return NULL;
}

static void expect_list(const hw_batch *batch, const char *name, uint32_t b,
                        const int32_t expected[SHOWN]) {
    const int32_t *indices = array_of(batch, name);
    assert_memory_equal(indices + (size_t)b * SHOWN, expected, SHOWN * sizeof *expected);
}

/* Book 5 of day 20 sees its author 1, who has a later book: cells 0-7 and 8-10 are id, author_id,
 * sequel_of, title Ann, genre poetry, price NULL, in_print NULL, published; id, name Bob, rating 2,
 * which is the mean. */
static void the_values_of_a_book_and_its_author_are_in_the_lists(void **state) {
    (void)state;
    const uint32_t table = BOOKS;
    char *directory = fixture_directory();
    hw_store *store = fixture_store(directory, "shop.hw", bookstore);
    hw_sampler_options options = options_of(&table, 1);
    hw_sampler *sampler = NULL;
    hw_batch *batch = NULL;
    hw_error error = {.message = ""};
    uint32_t seed_count = 0, b = 0, task = 2 + BOOKS;
    fixture_check(hw_sampler_open(store, &options, &sampler, &error), &error, "open");
    fixture_check(hw_sampler_seed_count(sampler, HW_TRAIN, task, &seed_count, &error), &error,
                  "count");
    assert_int_equal(seed_count, 5); /* book 8 has no time */
    fixture_check(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, &error), &error, "batch");
    const uint32_t *anchors = array_of(batch, "anchor_rows");
    while (anchors[b] != 5) {
        b++;
    }
    expect_list(batch, "masked_text_indices", b, (const int32_t[SHOWN]){3, 9, -1, -1});
    expect_list(batch, "masked_categorical_indices", b, (const int32_t[SHOWN]){4, -1, -1, -1});
    expect_list(batch, "masked_numerical_indices", b, (const int32_t[SHOWN]){5, 10, -1, -1});
    expect_list(batch, "masked_boolean_indices", b, (const int32_t[SHOWN]){6, -1, -1, -1});
    expect_list(batch, "masked_timestamp_indices", b, (const int32_t[SHOWN]){-1, -1, -1, -1});
    const uint8_t *nulls = array_of(batch, "masked_numerical_is_null");
    const float *numbers = array_of(batch, "masked_numerical_values");
    assert_int_equal(nulls[b * SHOWN], 1);
    assert_int_equal(nulls[b * SHOWN + 1], 0);
    assert_true(numbers[b * SHOWN] == 0 && numbers[b * SHOWN + 1] == 0);
    assert_int_equal(((const uint32_t *)array_of(batch, "masked_categorical_values"))[b * SHOWN],
                     1);
    const uint8_t *is_target = (const uint8_t *)array_of(batch, "is_target") + (size_t)b * 32;
    const uint32_t *texts = (const uint32_t *)array_of(batch, "text_embed_ids") + (size_t)b * 32;
    const uint8_t masked[11] = {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1};
    assert_memory_equal(is_target, masked, sizeof masked);
    assert_true(texts[3] == 0 && texts[9] == 0);
    assert_int_equal(*(const uint8_t *)array_of(batch, "target_stype"), 255);
    assert_int_equal(*(const uint32_t *)array_of(batch, "task_idx"), UINT32_MAX);
    hw_batch_release(batch);
    hw_sampler_close(sampler);
    hw_store_close(store);
    fixture_remove(directory);
}

static uint64_t digest(hw_batch *batch) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = hw_batch_tensor(batch, i);
        hash = hw_hash64(tensor.data, tensor.bytes, hash);
    }
    hw_batch_release(batch);
    return hash;
}

static void compare_threads(hw_store *store, hw_sampler_options options) {
    enum { COMPARED = 12 };
    hw_sampler *sampler = NULL;
    hw_error error = {.message = ""};
    options.num_threads = 3;
    options.num_prefetch = 3;
    options.mask_ratio = 0.4;
    fixture_check(hw_sampler_open(store, &options, &sampler, &error), &error, "open");
    for (uint64_t k = 0; k < COMPARED; k++) {
        hw_batch *threaded = NULL, *alone = NULL;
        fixture_check(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &threaded, &error), &error,
                      "next");
        fixture_check(hw_sampler_batch(sampler, HW_TRAIN, k, &alone, &error), &error, "batch");
        assert_true(digest(threaded) == digest(alone));
    }
    hw_sampler_close(sampler);
}

static void threads_mask_the_cells_that_one_masks(void **state) {
    (void)state;
    const uint32_t tables[] = {AUTHORS, BOOKS};
    char *directory = fixture_directory();
    hw_store *store = fixture_store(directory, "shop.hw", bookstore);
    for (int layout = HW_LAYOUT_DENSE; layout <= HW_LAYOUT_COMPACT; layout++) {
        hw_sampler_options options = options_of(tables, 2);
        options.layout = (hw_layout)layout;
        compare_threads(store, options);
        options.seed_tables = NULL;
        options.seed_table_count = 0;
        compare_threads(store, options);
        options.objective = HW_OBJECTIVE_TASK;
        options.text_mode = HW_TEXTS_RESIDENT;
        options.text_budget = 0;
        compare_threads(store, options);
    }
    hw_store_close(store);
    fixture_remove(directory);
}

static void numbers_of_tables_and_columns_are_checked(void **state) {
    (void)state;
    const uint32_t repeated[] = {1, 1}, beyond = BOOKSTORE_COLUMNS;
    char *directory = fixture_directory();
    hw_store *store = fixture_store(directory, "shop.hw", bookstore);
    hw_sampler_options options = options_of(repeated, 2);
    hw_sampler *sampler = NULL;
    hw_error error = {.message = ""};
    assert_int_equal(hw_sampler_open(store, &options, &sampler, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message,
                        "seed_tables[1] is 1, expected distinct ascending numbers below 2");
    options = options_of(repeated, 1);
    options.never_masked = &beyond;
    options.never_masked_count = 1;
    assert_int_equal(hw_sampler_open(store, &options, &sampler, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "never_masked[0] is 13, expected less than 13 columns");
    assert_null(sampler);
    hw_store_close(store);
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_of_a_book_and_its_author_are_in_the_lists),
        cmocka_unit_test(threads_mask_the_cells_that_one_masks),
        cmocka_unit_test(numbers_of_tables_and_columns_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
