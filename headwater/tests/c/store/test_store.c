/*
 * The store read back through its accessors: bookstore and deliveries, whose contents stand as
 * tables in support/fixtures.h, and what follows from them by hand.
 */
#define _XOPEN_SOURCE 700

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "format/format.h"
#include "store/store.h"
#include "support/fixtures.h"
#include "support/read.h"
#include "support/unit_test.h"

static hw_cell cell(const hw_store *store, uint32_t row, uint32_t column) {
    hw_cell read = {.struct_bytes = sizeof read};
    MUST(hw_store_cell(store, row, column, &read, &error));
    assert_int_equal(read.column, column);
    return read;
}

static void counts_are_those_of_the_tables(void **state) {
    hw_store_counts counts = counts_of(store_of(state));
    assert_int_equal(counts.table_count, 2);
    assert_int_equal(counts.column_count, BOOKSTORE_COLUMNS);
    assert_int_equal(counts.key_count, 2);
    assert_int_equal(counts.task_count, 2);
    assert_int_equal(counts.row_count, 9);
    assert_int_equal(counts.category_count, 3);
    assert_int_equal(counts.text_count, 6);
    assert_int_equal(counts.text_dim, FIXTURE_TEXT_DIM);
    assert_int_equal(strlen(hw_store_fingerprint(store_of(state))), 32);
}

static void texts_are_numbered_by_first_appearance(void **state) {
    static const char *const texts[] = {"Ann", "Bob", "Cy", "Fog", "Fog II", ""};
    const uint32_t titles[6] = {3, 4, 0, 5, 3, UINT32_MAX};
    const hw_store *store = store_of(state);
    for (uint32_t i = 0; i < 6; i++) {
        const char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(hw_store_text(store, i, &text, &bytes, NULL), HW_OK);
        assert_int_equal(bytes, strlen(texts[i]));
        assert_memory_equal(text, texts[i], bytes);
        hw_cell title = cell(store, 3 + i, BOOKS_TITLE);
        assert_int_equal(title.is_null, titles[i] == UINT32_MAX);
        assert_true(title.is_null || title.index == titles[i]);
    }
}

static void assert_children(const hw_store *store, uint32_t row, uint32_t key,
                            const uint32_t *expected, uint32_t expected_count) {
    const uint32_t *children = NULL;
    uint32_t count = 0;
    assert_int_equal(hw_store_children(store, row, key, &children, &count, NULL), HW_OK);
    assert_int_equal(count, expected_count);
    if (count > 0) {
        assert_memory_equal(children, expected, 4 * count);
    }
}

static void parents_and_children_mirror_each_other(void **state) {
    const hw_store *store = store_of(state);
    const uint32_t authors[6] = {0, 0, 1, UINT32_MAX, 1, 0};
    const uint32_t originals[6] = {UINT32_MAX, 3, UINT32_MAX, 4, UINT32_MAX, 5};
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t parent = 0;
        assert_int_equal(hw_store_parent(store, 3 + i, BOOKS_AUTHOR, &parent, NULL), HW_OK);
        assert_int_equal(parent, authors[i]);
        assert_int_equal(hw_store_parent(store, 3 + i, BOOKS_SEQUEL, &parent, NULL), HW_OK);
        assert_int_equal(parent, originals[i]);
    }
    assert_children(store, 0, BOOKS_AUTHOR, (uint32_t[]){3, 4, 8}, 3);
    assert_children(store, 1, BOOKS_AUTHOR, (uint32_t[]){5, 7}, 2);
    assert_children(store, 2, BOOKS_AUTHOR, NULL, 0);
    assert_children(store, 3, BOOKS_SEQUEL, (uint32_t[]){4}, 1);
    assert_children(store, 4, BOOKS_SEQUEL, (uint32_t[]){6}, 1);
    assert_children(store, 5, BOOKS_SEQUEL, (uint32_t[]){8}, 1);
    assert_children(store, 8, BOOKS_SEQUEL, NULL, 0);
    assert_int_equal(store->keys[BOOKS_AUTHOR].edge_count, 5);
    assert_int_equal(store->keys[BOOKS_AUTHOR].dangling_count, 1);
    assert_int_equal(store->keys[BOOKS_SEQUEL].null_count, 3);
}

static void whole_keys_list_the_children_of_each_parent_with_their_times(void **state) {
    const hw_store *store = store_of(state);
    uint32_t parents = 0, rows[5];
    uint64_t edges = 0, starts[7];
    int64_t times[5];
    assert_int_equal(hw_store_edge_counts(store, BOOKS_AUTHOR, &parents, &edges, NULL), HW_OK);
    assert_int_equal(parents, 3);
    assert_int_equal(edges, 5);
    assert_int_equal(hw_store_edges(store, BOOKS_AUTHOR, starts, rows, times, NULL), HW_OK);
    assert_memory_equal(starts, ((uint64_t[]){0, 3, 5, 5}), 32);
    assert_memory_equal(rows, ((uint32_t[]){3, 4, 8, 5, 7}), 20);
    /* Book 8 has no time, so it is never visible. */
    assert_memory_equal(
        times, ((int64_t[]){10 * DAY_US, 20 * DAY_US, INT64_MAX, 20 * DAY_US, 40 * DAY_US}), 40);
    assert_int_equal(hw_store_edges(store, BOOKS_SEQUEL, starts, rows, times, NULL), HW_OK);
    assert_memory_equal(starts, ((uint64_t[]){0, 1, 2, 3, 3, 3, 3}), 56);
    assert_memory_equal(rows, ((uint32_t[]){4, 6, 8}), 12);
}

static double number_of(hw_cell read) {
    return read.is_null                   ? NAN
           : read.stype == HW_CATEGORICAL ? read.index
           : read.stype == HW_TIMESTAMP   ? (double)read.time_us
           : read.stype == HW_IDENTIFIER  ? 1
                                          : read.number;
}

static void cells_and_whole_columns_are_the_numbers_of_the_tables(void **state) {
    const hw_store *store = store_of(state);
    uint32_t rows = 0;
    double found[6];
    int64_t times[6], time = 0;
    const int64_t *row_times = NULL;
    assert_int_equal(hw_store_column_rows(store, BOOKS_PRICE, &rows, NULL), HW_OK);
    assert_int_equal(rows, 6);
    const uint32_t columns[] = {BOOKS_PRICE, BOOKS_IN_PRINT, BOOKS_GENRE, BOOKS_SEQUEL_OF,
                                BOOKS_PUBLISHED};
    const double days = 86400e6,
                 expected[][6] = {{10, 20, NAN, 30, 40, 50},
                                  {1, 0, NAN, 1, 1, 0},
                                  {0, 0, 1, 2, NAN, 1},
                                  {NAN, 1, NAN, 1, NAN, 1},
                                  {10 * days, 20 * days, 20 * days, 30 * days, 40 * days, NAN}};
    for (uint32_t i = 0; i < 6; i++) {
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            assert_int_equal(hw_store_column(store, columns[c], found, times, NULL), HW_OK);
            double number = number_of(cell(store, 3 + i, columns[c]));
            assert_int_equal(isnan(found[i]), isnan(expected[c][i]));
            assert_int_equal(isnan(number), isnan(expected[c][i]));
            assert_true(isnan(number) || fabs(number - expected[c][i]) < 1e-5);
            assert_true(isnan(number) || fabs(found[i] - expected[c][i]) < 1e-5);
            assert_true(times[i] == INT64_MIN); /* with its row */
        }
        assert_int_equal(hw_store_row_time(store, 3 + i, &time, NULL), HW_OK);
        assert_true(isnan(expected[4][i]) ? time == INT64_MAX : (double)time == expected[4][i]);
        assert_int_equal(hw_store_row_times(store, BOOKS, &row_times, &rows, NULL), HW_OK);
        assert_true(row_times[i] == time);
    }
    assert_int_equal(store->tables[BOOKS].info->timed_start, 0);
    assert_int_equal(store->tables[BOOKS].info->timed_count, 5);
}

/* Ratings have mean 2, std sqrt(2/3): z = -sqrt(3/2), 0, sqrt(3/2). */
static void numbers_are_stored_by_the_moments_of_their_column(void **state) {
    const hw_store *store = store_of(state);
    assert_float_equal(store->columns[AUTHORS_RATING].mean, 2, 0);
    assert_float_equal(store->columns[AUTHORS_RATING].std, sqrt(2.0 / 3.0), 1e-15);
    float z;
    memcpy(&z, hwi_record(&store->tables[AUTHORS], 0) + store->columns[AUTHORS_RATING].lane_offset,
           sizeof z);
    assert_float_equal(z, -sqrt(1.5), 1e-7);
}

static void keys_are_found_and_only_those(void **state) {
    const hw_store *store = store_of(state);
    for (uint32_t i = 0; i < 6; i++) {
        const uint8_t key[6] = {2, 0, 0, 0, 'b', (uint8_t)('1' + i)};
        const void *found = NULL;
        size_t bytes = 0;
        uint32_t row = 0;
        assert_int_equal(hw_store_row_key(store, 3 + i, &found, &bytes, NULL), HW_OK);
        assert_int_equal(bytes, 6);
        assert_memory_equal(found, key, 6);
        assert_int_equal(hw_store_find(store, BOOKS, key, 6, &row, NULL), HW_OK);
        assert_int_equal(row, 3 + i);
        assert_int_equal(hw_store_find(store, AUTHORS, key, 6, &row, NULL), HW_OK);
        assert_int_equal(row, UINT32_MAX);
    }
}

static void seeds_carry_target_state_and_key_hash(void **state) {
    const hw_store *store = store_of(state);
    hw_seeds seeds = {.struct_bytes = sizeof seeds};
    assert_int_equal(hw_store_seeds(store, TASK_PRICE, &seeds, NULL), HW_OK);
    assert_int_equal(seeds.count, 4);
    assert_memory_equal(seeds.anchors, ((uint32_t[]){3, 4, 6, 7}), 16);
    assert_memory_equal(seeds.targets, ((double[]){10, 20, 30, 40}), 32);
    assert_memory_equal(seeds.states, "\xf0\xf0\xf0\xf0", 4);
    assert_memory_equal(seeds.positions, ((uint32_t[]){3, 2, 1, 0}), 16);
    assert_true(seeds.key_hashes[1] == hw_hash64("\x02\0\0\0b2", 6, 0));
    assert_int_equal(hw_store_seeds(store, TASK_RETURNS, &seeds, NULL), HW_OK);
    assert_memory_equal(seeds.anchors, ((uint32_t[]){0, 0, 1, 2}), 16);
    assert_memory_equal(seeds.targets, ((uint64_t[]){1, 0, 0, 0}), 32);
    /* value in train, value in val, NULL in train, unlabelled in test */
    assert_memory_equal(seeds.states, "\x00\x10\x01\x22", 4);
    assert_true(seeds.obs_times[1] == 45 * DAY_US);
}

static void arguments_out_of_range_are_refused(void **state) {
    const hw_store *store = store_of(state);
    const uint32_t *children = NULL;
    const void *key = NULL;
    const char *text = NULL;
    hw_cell read = {.struct_bytes = sizeof read};
    hw_seeds seeds = {.struct_bytes = sizeof seeds};
    int64_t time;
    const int64_t *row_times = NULL;
    size_t bytes;
    uint32_t out;
    assert_int_equal(hw_store_row_table(store, 9, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_row_time(store, 9, &time, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_row_times(store, 9, &row_times, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_cell(store, 0, BOOKS_ID, &read, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_cell(store, 9, BOOKS_ID, &read, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_cell(store, 0, UINT32_MAX, &read, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_parent(store, 0, BOOKS_AUTHOR, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_children(store, 3, BOOKS_AUTHOR, &children, &out, NULL),
                     HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_children(store, 0, 2, &children, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_row_key(store, 9, &key, &bytes, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_find(store, 2, "", 0, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_text(store, 6, &text, &bytes, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_seeds(store, 2, &seeds, NULL), HW_BAD_ARGUMENT);
    uint64_t edges;
    assert_int_equal(hw_store_edge_counts(store, 2, &out, &edges, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_edges(store, 2, &edges, &out, &time, NULL), HW_BAD_ARGUMENT);
    double number;
    assert_int_equal(hw_store_column_rows(store, UINT32_MAX, &out, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_column(store, UINT32_MAX, &number, &time, NULL), HW_BAD_ARGUMENT);
}

static void a_fresh_store_has_no_faults(void **state) {
    fixture_sound(store_of(state));
    assert_int_equal(hwi_store_check_sizes(store_of(state), NULL), HW_OK);
    assert_int_equal(hw_store_warm_up(store_of(state), 3, NULL), HW_OK);
}

static void edges_known_later_are_listed_by_the_later_time(void **state) {
    const hw_store *store = store_of(state);
    const int64_t times[] = {3 * DAY_US, 4 * DAY_US, 5 * DAY_US, 9 * DAY_US, INT64_MAX};
    assert_children(store, 0, PARCELS_COURIER, (uint32_t[]){3, 5, 6, 2}, 4);
    assert_children(store, 1, PARCELS_COURIER, (uint32_t[]){4}, 1);
    assert_memory_equal(store->tables[0].child_times, times, sizeof times);
    uint64_t starts[3];
    uint32_t rows[5];
    int64_t edge_times[5], known[5];
    double weights[5];
    assert_int_equal(hw_store_edges(store, PARCELS_COURIER, starts, rows, edge_times, NULL), HW_OK);
    assert_memory_equal(rows, ((uint32_t[]){3, 5, 6, 2, 4}), sizeof rows);
    assert_memory_equal(edge_times, times, sizeof times);
    /* A weight is known two days after its row, a courier when assigned. */
    assert_int_equal(hw_store_column(store, PARCELS_WEIGHT, weights, known, NULL), HW_OK);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(known[i] == (int64_t)(i + 3) * DAY_US);
    }
    const int64_t assigned[] = {9 * DAY_US, 3 * DAY_US, INT64_MAX, 4 * DAY_US, 3 * DAY_US};
    assert_int_equal(hw_store_column(store, PARCELS_COURIER_ID, weights, known, NULL), HW_OK);
    assert_memory_equal(known, assigned, sizeof assigned);
    assert_int_equal(hw_store_column(store, PARCELS_LOST_BY, weights, known, NULL), HW_OK);
    assert_true(known[0] == INT64_MAX && known[4] == INT64_MAX);
}

static void a_key_that_is_never_known_has_no_edges(void **state) {
    const hw_store *store = store_of(state);
    uint32_t parent = 0;
    assert_int_equal(hw_store_parent(store, 2, PARCELS_LOST, &parent, NULL), HW_OK);
    assert_int_equal(parent, UINT32_MAX);
    assert_children(store, 0, PARCELS_LOST, NULL, 0);
    assert_int_equal(store->keys[PARCELS_LOST].edge_count, 0);
    assert_int_equal(cell(store, 2, PARCELS_LOST_BY).is_null, 0);
}

static void a_stored_ignored_column_keeps_its_times(void **state) {
    hw_cell assigned = cell(store_of(state), 2, PARCELS_ASSIGNED);
    assert_int_equal(assigned.stype, HW_IGNORED);
    assert_true(assigned.time_us == 9 * DAY_US);
    assert_int_equal(cell(store_of(state), 4, PARCELS_ASSIGNED).is_null, 1);
}

/* ---- many tables ------------------------------------------------------------------------- */

#define MANY_TABLES 1200u
#define FEW_DESCRIPTORS 48u

/* MANY_TABLES tables of two rows with an integer key and a number. */
static void build_many_tables(const char *store_path) {
    hw_builder *b = fixture_builder("many", store_path, INT64_MAX);
    const struct fixture_column columns[] = {{"key", "l", (int64_t[]){7, -12}, NULL},
                                             {"number", "g", (double[]){1, 2}, NULL}};
    for (uint32_t t = 0; t < MANY_TABLES; t++) {
        char name[20];
        snprintf(name, sizeof name, "table%u", t);
        fixture_table(b, (hw_table_spec){.name = name, .key_part_count = 1});
    }
    for (uint32_t t = 0; t < MANY_TABLES; t++) {
        fixture_add_column(b, t, (hw_column_spec){.name = "number", .stype = HW_NUMERICAL});
    }
    for (uint32_t t = 0; t < MANY_TABLES; t++) {
        fixture_rows(b, t, columns, 2, 2, 0);
    }
    fixture_finish(b, MANY_TABLES, 0, store_path);
    hw_builder_close(b);
}

/* Each file held a descriptor: the default limit of 1024 was met at about 1,000 tables. */
static void a_store_of_many_tables_needs_few_descriptors(void **state) {
    struct rlimit before, few;
    char *directory = fixture_directory();
    hw_error error = {.message = ""};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = FEW_DESCRIPTORS, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    build_many_tables(directory);
    hw_store *store = fixture_open(directory, HW_LOAD_MMAP);
    fixture_sound(store);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_OK);
    const char key[] = "\3\0\0\0-12"; /* an integer key is its decimal digits */
    uint32_t row = 0;
    MUST(hw_store_find(store, MANY_TABLES - 1, key, 7, &row, &error));
    assert_int_equal(row, 2 * MANY_TABLES - 1);
    hw_store_close(store);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest many_tests[] = {
        cmocka_unit_test(a_store_of_many_tables_needs_few_descriptors),
    };
    const struct CMUnitTest bookstore_tests[] = {
        cmocka_unit_test(counts_are_those_of_the_tables),
        cmocka_unit_test(texts_are_numbered_by_first_appearance),
        cmocka_unit_test(parents_and_children_mirror_each_other),
        cmocka_unit_test(whole_keys_list_the_children_of_each_parent_with_their_times),
        cmocka_unit_test(cells_and_whole_columns_are_the_numbers_of_the_tables),
        cmocka_unit_test(numbers_are_stored_by_the_moments_of_their_column),
        cmocka_unit_test(keys_are_found_and_only_those),
        cmocka_unit_test(seeds_carry_target_state_and_key_hash),
        cmocka_unit_test(arguments_out_of_range_are_refused),
        cmocka_unit_test(a_fresh_store_has_no_faults),
    };
    const struct CMUnitTest deliveries_tests[] = {
        cmocka_unit_test(edges_known_later_are_listed_by_the_later_time),
        cmocka_unit_test(a_key_that_is_never_known_has_no_edges),
        cmocka_unit_test(a_stored_ignored_column_keeps_its_times),
        cmocka_unit_test(a_fresh_store_has_no_faults),
    };
    return cmocka_run_group_tests(bookstore_tests, open_bookstore, close_shelf) +
           cmocka_run_group_tests(deliveries_tests, open_deliveries, close_shelf) +
           cmocka_run_group_tests(many_tests, NULL, NULL);
}
