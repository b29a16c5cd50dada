/* Which columns a sampler never masks: both ends of foreign keys, by harbours
 * (support/harbours.h), where everything else is masked. */
#include "support/harbours.h"
#include "support/unit_test.h"

/* Of each column whether one of its cells is masked, in contexts of all rows, mask_ratio 1. */
static void find_masked(hw_store *store, uint8_t is_masked[HARBOURS_COLUMNS]) {
    static const uint32_t tables[] = {COUNTRIES, SHIPS};
    hw_sampler_options options;
    hw_batch *batch = NULL;
    hw_pass *pass = NULL;
    hw_sampler_options_init(&options, sizeof options);
    options.split_ratios[0] = 1;
    options.split_ratios[1] = options.split_ratios[2] = 0;
    options.batch_size = 8;
    options.sequence_length = 64;
    options.max_rows = 8;
    options.num_prefetch = 0;
    options.objective = HW_OBJECTIVE_MASKED_CELLS;
    options.mask_ratio = 1;
    options.max_targets_per_type = 16;
    options.seed_tables = tables;
    options.seed_table_count = 2;
    hw_sampler *sampler = fixture_sampler(store, &options);
    memset(is_masked, 0, HARBOURS_COLUMNS);
    MUST(hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 0, &pass, &error));
    while (hw_pass_next(pass, -1, NULL, NULL, &batch, NULL) == HW_OK) {
        const uint8_t *is_target = fixture_array(batch, "is_target");
        const uint32_t *columns = fixture_array(batch, "column_ids");
        for (uint32_t i = 0; i < 8 * 64; i++) {
            if (is_target[i]) {
                assert_true(columns[i] < HARBOURS_COLUMNS);
                is_masked[columns[i]] = 1;
            }
        }
        hw_batch_release(batch);
    }
    hw_pass_close(pass);
    hw_sampler_close(sampler);
}

static void columns_that_keys_refer_to_are_never_masked(void **state) {
    /* code, number, area; id, flag, line, tons, built */
    static const uint8_t expected[HARBOURS_COLUMNS] = {0, 0, 1, 0, 0, 0, 1, 0};
    char *directory = fixture_directory();
    hw_store *store = harbours(directory);
    uint8_t is_masked[HARBOURS_COLUMNS];
    find_masked(store, is_masked);
    assert_memory_equal(is_masked, expected, sizeof expected);
    hw_store_close(store);
    fixture_remove(directory);
}

/* Where metadata.json refers to code alone, number is masked like any other column. */
static void what_metadata_does_not_say_is_masked(void **state) {
    static const uint8_t expected[HARBOURS_COLUMNS] = {0, 1, 1, 0, 0, 0, 1, 0};
    char *directory = fixture_directory();
    hw_store *store = harbours_described(
        directory,
        "{\"tables\": [{}, {\"foreign_keys\": [{\"references\": {\"columns\": [\"code\"]}}]}]}");
    uint8_t is_masked[HARBOURS_COLUMNS];
    find_masked(store, is_masked);
    assert_memory_equal(is_masked, expected, sizeof expected);
    hw_store_close(store);
    fixture_remove(directory);
}

static void a_document_that_contradicts_the_build_masks_nothing(void **state) {
    char *directory = fixture_directory();
    hw_store *store = harbours_described(directory, "{\"tables\": 7}");
    hw_sampler_options options;
    hw_sampler *sampler = NULL;
    hw_error error = {.message = ""};
    hw_sampler_options_init(&options, sizeof options);
    options.num_prefetch = 0;
    options.mask_ratio = 0.5;
    assert_int_equal(hw_sampler_open(store, &options, &sampler, &error), HW_BAD_STORE);
    assert_non_null(strstr(error.message, "expected an array (in '"));
    options.mask_ratio = 0; /* it does not look */
    hw_sampler_close(fixture_sampler(store, &options));
    hw_store_close(store);
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_that_keys_refer_to_are_never_masked),
        cmocka_unit_test(what_metadata_does_not_say_is_masked),
        cmocka_unit_test(a_document_that_contradicts_the_build_masks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
