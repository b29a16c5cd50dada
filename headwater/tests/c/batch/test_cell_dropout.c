/* Cell dropout: what stays of a context of which all is dropped that may be, and that layouts and
 * threads drop the same cells. Against the reference in random worlds: test_reference.py and
 * others; how often and how independently: test_cell_dropout.py. */
#include "support/fixtures.h"
#include "support/unit_test.h"

#define NEARLY_1 (1 - 0x1p-40) /* drops on every draw */
enum { LENGTH = 64, ROWS = 8 };

static hw_sampler_options options_of(double cell_dropout) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .batch_size = 5,
        .sequence_length = LENGTH,
        .max_rows = ROWS,
        .text_budget = 200,
        .child_order = HW_CHILDREN_RECENT,
        .num_prefetch = 0,
        .cell_dropout = cell_dropout,
    };
}

/* The sequence of the first batch of train that asks about a row. */
static uint32_t sequence_about(const hw_batch *batch, uint32_t anchor) {
    const uint32_t *anchors = fixture_array(batch, "anchor_rows");
    for (uint32_t b = 0; b < 5; b++) {
        if (anchors[b] == anchor) {
            return b;
        }
    }
    fail_msg("no sequence about row %u", anchor);
    return 0;
}

static hw_batch *first_batch(hw_sampler *sampler) {
    hw_batch *batch = NULL;
    MUST(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, &error));
    return batch;
}

static void expect_cells(const hw_batch *batch, uint32_t b, const int32_t *columns,
                         uint32_t count) {
    const uint32_t *cells = fixture_array(batch, "num_cells");
    const int32_t *found = fixture_array(batch, "column_ids");
    assert_int_equal(cells[b], count);
    assert_memory_equal(found + (size_t)b * LENGTH, columns, count * sizeof *columns);
}

/* Book 4 (Fog II, day 20, its price is asked for) is the sequel of book 3; author 0 wrote both. Of
 * each row the first cell stays, and the target. */
static void the_target_and_the_first_cell_of_each_row_stay(void **state) {
    static const uint32_t price_task = TASK_PRICE;
    hw_sampler_options options = options_of(NEARLY_1);
    options.tasks = &price_task;
    options.task_count = 1;
    hw_sampler *sampler = fixture_sampler(store_of(state), &options);
    hw_batch *batch = first_batch(sampler);
    uint32_t b = sequence_about(batch, 4);
    expect_cells(batch, b, (const int32_t[]){BOOKS_ID, BOOKS_PRICE, AUTHORS_ID, BOOKS_ID}, 4);
    const uint16_t *starts = fixture_array(batch, "row_starts");
    assert_memory_equal(starts + (size_t)b * (ROWS + 1),
                        ((const uint16_t[ROWS + 1]){0, 2, 3, 4, 4, 4, 4, 4, 4}),
                        (ROWS + 1) * sizeof *starts);
    const uint8_t *is_target = fixture_array(batch, "is_target");
    const uint8_t *edges = (const uint8_t *)fixture_array(batch, "fk_adj") + b * ROWS * ROWS;
    assert_int_equal(is_target[b * LENGTH + 1], 1);
    assert_true(edges[1] && edges[2] && edges[2 * ROWS + 1]); /* and none is lost */
    const uint16_t *by_column = fixture_array(batch, "col_perm");
    assert_memory_equal(by_column + (size_t)b * LENGTH, ((const uint16_t[]){2, 0, 3, 1, 4}), 10);
    hw_batch_release(batch);
    hw_sampler_close(sampler);
}

/* Book 5 and its author, of test_masked_cells.c: 8 cells and 3. With one of each type masked, the
 * name and rating of the author are beyond that, and go. */
static void masked_cells_stay_and_those_beyond_the_most_go(void **state) {
    static const uint32_t books = BOOKS;
    hw_sampler_options options = options_of(NEARLY_1);
    options.objective = HW_OBJECTIVE_MASKED_CELLS;
    options.mask_ratio = 1;
    options.max_targets_per_type = 1;
    options.seed_tables = &books;
    options.seed_table_count = 1;
    hw_sampler *sampler = fixture_sampler(store_of(state), &options);
    hw_batch *batch = first_batch(sampler);
    uint32_t b = sequence_about(batch, 5);
    expect_cells(batch, b,
                 (const int32_t[]){BOOKS_ID, BOOKS_TITLE, BOOKS_GENRE, BOOKS_PRICE, BOOKS_IN_PRINT,
                                   AUTHORS_ID},
                 6);
    static const char *const lists[] = {"masked_text_indices", "masked_categorical_indices",
                                        "masked_numerical_indices", "masked_boolean_indices"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(((const int32_t *)fixture_array(batch, lists[i]))[b], i + 1);
    }
    hw_batch_release(batch);
    hw_sampler_close(sampler);
}

/* A draw that drops one cell of 2^32: every context goes through dropout, and stays whole. */
static void a_context_of_which_nothing_is_dropped_is_as_without(void **state) {
    for (int layout = HW_LAYOUT_DENSE; layout <= HW_LAYOUT_COMPACT; layout++) {
        uint64_t digests[2];
        for (int is_on = 0; is_on < 2; is_on++) {
            hw_sampler_options options = options_of(is_on ? 0x1p-32 : 0);
            options.layout = (hw_layout)layout;
            options.child_counts = 1;
            options.label_rows = 2;
            options.mask_ratio = 0.4;
            options.max_targets_per_type = 3;
            hw_sampler *sampler = fixture_sampler(store_of(state), &options);
            digests[is_on] = fixture_digest(first_batch(sampler));
            hw_sampler_close(sampler);
        }
        assert_true(digests[0] == digests[1]);
    }
}

static void threads_drop_the_cells_that_one_drops(void **state) {
    for (int variant = 0; variant < 4; variant++) {
        hw_sampler_options options = options_of(0.4);
        options.layout = variant & 1 ? HW_LAYOUT_COMPACT : HW_LAYOUT_DENSE;
        options.child_counts = 1;
        options.peer_labels = 2;
        if (variant < 2) {
            options.mask_ratio = 0.4;
            options.max_targets_per_type = 3;
        } else {
            options.packing = 1;
        }
        fixture_threads_agree(store_of(state), options, HW_TRAIN);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_target_and_the_first_cell_of_each_row_stay),
        cmocka_unit_test(masked_cells_stay_and_those_beyond_the_most_go),
        cmocka_unit_test(a_context_of_which_nothing_is_dropped_is_as_without),
        cmocka_unit_test(threads_drop_the_cells_that_one_drops),
    };
    return cmocka_run_group_tests(tests, open_bookstore, close_shelf);
}
