/* Masked cells: what moves from a context into the lists, and that any number of threads chooses
 * the same ones. Against the reference in random worlds: test_masked_cells.py. */
#include "support/fixtures.h"
#include "support/unit_test.h"

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

static void expect_list(const hw_batch *batch, const char *name, uint32_t b,
                        const int32_t expected[SHOWN]) {
    const int32_t *indices = fixture_array(batch, name);
    assert_memory_equal(indices + (size_t)b * SHOWN, expected, SHOWN * sizeof *expected);
}

/* Book 5 of day 20 sees its author 1, who has a later book: cells 0-7 and 8-10 are id, author_id,
 * sequel_of, title Ann, genre poetry, price NULL, in_print NULL, published; id, name Bob, rating 2,
 * which is the mean. */
static void the_values_of_a_book_and_its_author_are_in_the_lists(void **state) {
    const uint32_t table = BOOKS;
    hw_store *store = store_of(state);
    hw_sampler_options options = options_of(&table, 1);
    hw_sampler *sampler = fixture_sampler(store, &options);
    hw_batch *batch = NULL;
    uint32_t seed_count = 0, b = 0, task = 2 + BOOKS;
    MUST(hw_sampler_seed_count(sampler, HW_TRAIN, task, &seed_count, &error));
    assert_int_equal(seed_count, 5); /* book 8 has no time */
    MUST(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, &error));
    const uint32_t *anchors = fixture_array(batch, "anchor_rows");
    while (anchors[b] != 5) {
        b++;
    }
    expect_list(batch, "masked_text_indices", b, (const int32_t[SHOWN]){3, 9, -1, -1});
    expect_list(batch, "masked_categorical_indices", b, (const int32_t[SHOWN]){4, -1, -1, -1});
    expect_list(batch, "masked_numerical_indices", b, (const int32_t[SHOWN]){5, 10, -1, -1});
    expect_list(batch, "masked_boolean_indices", b, (const int32_t[SHOWN]){6, -1, -1, -1});
    expect_list(batch, "masked_timestamp_indices", b, (const int32_t[SHOWN]){-1, -1, -1, -1});
    const uint8_t *nulls = fixture_array(batch, "masked_numerical_is_null");
    const float *numbers = fixture_array(batch, "masked_numerical_values");
    assert_int_equal(nulls[b * SHOWN], 1);
    assert_int_equal(nulls[b * SHOWN + 1], 0);
    assert_true(numbers[b * SHOWN] == 0 && numbers[b * SHOWN + 1] == 0);
    assert_int_equal(
        ((const uint32_t *)fixture_array(batch, "masked_categorical_values"))[b * SHOWN], 1);
    const uint8_t *is_target = (const uint8_t *)fixture_array(batch, "is_target") + (size_t)b * 32;
    const uint32_t *texts =
        (const uint32_t *)fixture_array(batch, "text_embed_ids") + (size_t)b * 32;
    const uint8_t masked[11] = {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1};
    assert_memory_equal(is_target, masked, sizeof masked);
    assert_true(texts[3] == 0 && texts[9] == 0);
    assert_int_equal(*(const uint8_t *)fixture_array(batch, "target_stype"), 255);
    assert_int_equal(*(const uint32_t *)fixture_array(batch, "task_idx"), UINT32_MAX);
    hw_batch_release(batch);
    hw_sampler_close(sampler);
}

static void threads_mask_the_cells_that_one_masks(void **state) {
    const uint32_t tables[] = {AUTHORS, BOOKS};
    hw_store *store = store_of(state);
    for (int layout = HW_LAYOUT_DENSE; layout <= HW_LAYOUT_FLAT; layout++) {
        hw_sampler_options options = options_of(tables, 2);
        options.layout = (hw_layout)layout;
        options.mask_ratio = 0.4;
        fixture_threads_agree(store, options, HW_TRAIN);
        options.seed_tables = NULL;
        options.seed_table_count = 0;
        fixture_threads_agree(store, options, HW_TRAIN);
        options.objective = HW_OBJECTIVE_TASK;
        options.text_mode = HW_TEXTS_RESIDENT;
        options.text_budget = 0;
        fixture_threads_agree(store, options, HW_TRAIN);
    }
}

static void numbers_of_tables_are_checked(void **state) {
    const uint32_t repeated[] = {1, 1};
    hw_store *store = store_of(state);
    hw_sampler_options options = options_of(repeated, 2);
    hw_sampler *sampler = NULL;
    hw_error error = {.message = ""};
    assert_int_equal(hw_sampler_open(store, &options, &sampler, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message,
                        "seed_tables[1] is 1, expected distinct ascending numbers below 2");
    assert_null(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_of_a_book_and_its_author_are_in_the_lists),
        cmocka_unit_test(threads_mask_the_cells_that_one_masks),
        cmocka_unit_test(numbers_of_tables_are_checked),
    };
    return cmocka_run_group_tests(tests, open_bookstore, close_shelf);
}
