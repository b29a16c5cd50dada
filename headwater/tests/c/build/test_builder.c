/*
 * The builder: what it refuses, with the message, and what it counts. What comes back from a store
 * that it wrote is store/test_store.c's matter, how it is published test_publish.c's.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/format.h"
#include "store/store.h"
#include "support/bench.h"

static const uint8_t first_five[6] = {1, 1, 1, 1, 1, 0}, last_five[6] = {0, 1, 1, 1, 1, 1};

static void assert_refused(struct bench *bench, const struct fixture_column *columns,
                           uint32_t column_count, const char *message) {
    assert_int_equal(write_rows(bench, columns, column_count, 6), HW_BAD_SOURCE);
    if (strstr(bench->error.message, message) == NULL) {
        fail_msg("'%s', expected '%s'", bench->error.message, message);
    }
    /* The builder is latched: nothing can be built on half a table. */
    assert_int_equal(write_rows(bench, columns, column_count, 6), HW_BAD_ARGUMENT);
}

/* ---- what is refused --------------------------------------------------------------------- */

static void rows_out_of_time_order_are_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[TIME].values = (int64_t[]){10, 20, 20, 30, 40, 39};
    assert_refused(*state, columns, EVENT_FIELDS, "row 5 of table 'events' has time 39 after");
}

static void a_hidden_null_time_before_others_is_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[TIME].valid = last_five;
    assert_refused(*state, columns, EVENT_FIELDS, "rows without time last");
}

static void a_visible_null_time_after_others_is_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[TIME].valid = first_five;
    assert_refused(*state, columns, EVENT_FIELDS, "rows without time first");
}

static void a_value_outside_of_the_categories_is_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[COLOR].values = (const char *[]){"red", "blue", NULL, "red", "green", "blue"};
    assert_refused(*state, columns, EVENT_FIELDS, "column 'events.color' holds 'green' in row 4");
}

static void a_null_key_is_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[KEY].values = (const char *[]){"a", "b", "c", "d", NULL, "f"};
    assert_refused(*state, columns, EVENT_FIELDS, "row 4 of table 'events' has NULL in part 0");
}

static void other_arrow_formats_are_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[NUMBER].format = "L";
    assert_refused(*state, columns, EVENT_FIELDS,
                   "column 'number' of table 'events' has Arrow format 'L', expected one of 'gli'");
}

static void a_missing_column_is_refused(void **state) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_refused(*state, columns, EVENT_FIELDS - 1,
                   "stream of table 'events' has 5 columns, expected 6");
}

static int failing_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    (void)stream;
    (void)out;
    return EIO;
}

static const char *failing_reason(struct ArrowArrayStream *stream) {
    (void)stream;
    return "the disk is gone";
}

static void errors_of_the_stream_come_through(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    struct ArrowArrayStream stream;
    good_columns(columns);
    fixture_stream(&stream, columns, EVENT_FIELDS, 6, 0);
    stream.get_next = failing_next;
    stream.get_last_error = failing_reason;
    assert_int_equal(hw_builder_write_rows(bench->b, 0, &stream, &bench->error), HW_BAD_SOURCE);
    assert_non_null(strstr(bench->error.message, "the disk is gone"));
    stream.release(&stream);
}

/* Writes six events, and then the pairs (child, parent) of their own key. */
static hw_status write_pairs(struct bench *bench, const int32_t *children, const int32_t *parents,
                             uint64_t count, uint64_t null_count, uint64_t *edge_count) {
    struct ArrowArrayStream stream;
    struct fixture_column events[EVENT_FIELDS];
    const struct fixture_column pairs[] = {{"child", "i", children, NULL},
                                           {"parent", "i", parents, NULL}};
    good_columns(events);
    assert_int_equal(write_rows(bench, events, EVENT_FIELDS, 6), HW_OK);
    fixture_stream(&stream, pairs, 2, count, 2);
    hw_status status =
        hw_builder_write_edges(bench->b, 0, &stream, null_count, edge_count, &bench->error);
    stream.release(&stream);
    return status;
}

static void edges_come_in_any_order(void **state) {
    struct bench *bench = *state;
    uint64_t edge_count = 0;
    assert_int_equal(
        write_pairs(bench, (int32_t[]){5, 0, 3}, (int32_t[]){1, 5, 5}, 3, 2, &edge_count), HW_OK);
    assert_int_equal(edge_count, 3);
}

static void an_edge_out_of_range_is_refused(void **state) {
    struct bench *bench = *state;
    uint64_t edge_count = 0;
    assert_int_equal(
        write_pairs(bench, (int32_t[]){5, 0, 3}, (int32_t[]){1, 5, 6}, 3, 2, &edge_count),
        HW_BAD_SOURCE);
    assert_non_null(strstr(bench->error.message, "holds 6 in row 2"));
}

static void a_row_with_two_parents_is_refused(void **state) {
    struct bench *bench = *state;
    uint64_t edge_count = 0;
    assert_int_equal(
        write_pairs(bench, (int32_t[]){2, 0, 2}, (int32_t[]){1, 2, 3}, 3, 0, &edge_count),
        HW_BAD_SOURCE);
    assert_non_null(strstr(bench->error.message, "has two parents for row 2"));
}

static void edges_of_rows_that_are_not_there_are_refused(void **state) {
    struct bench *bench = *state;
    uint64_t edge_count = 0;
    assert_int_equal(write_pairs(bench, (int32_t[]){6}, (int32_t[]){0}, 1, 0, &edge_count),
                     HW_BAD_SOURCE);
    assert_non_null(strstr(bench->error.message, "holds 6 in row 0"));
}

static void more_null_keys_than_rows_are_refused(void **state) {
    struct bench *bench = *state;
    uint64_t edge_count = 0;
    assert_int_equal(write_pairs(bench, (int32_t[]){1}, (int32_t[]){0}, 1, 6, &edge_count),
                     HW_BAD_ARGUMENT);
    assert_non_null(strstr(bench->error.message, "6 rows with a NULL key and 1 edges of 6 rows"));
}

static void finishing_too_early_says_what_is_missing(void **state) {
    struct bench *bench = *state;
    char fingerprint[33];
    struct fixture_column columns[EVENT_FIELDS];
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_non_null(strstr(bench->error.message, "the rows of table 'events' were not written"));
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_non_null(strstr(bench->error.message, "the parents of 'events.number' were not"));
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_non_null(strstr(bench->error.message, "no embedder"));
}

static void a_duplicate_key_is_refused_at_finish(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    char fingerprint[33];
    good_columns(columns);
    columns[KEY].values = (const char *[]){"a", "b", "c", "d", "b", "f"};
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    uint16_t vectors[6 * 4] = {0};
    assert_int_equal(hw_builder_set_embedder(bench->b, "zero", 4, NULL), HW_OK);
    assert_int_equal(hw_builder_write_vectors(bench->b, HW_EMBED_COLUMNS, vectors, 4, NULL), HW_OK);
    assert_int_equal(hw_builder_write_vectors(bench->b, HW_EMBED_CATEGORIES, vectors, 2, NULL),
                     HW_OK);
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_SOURCE);
    assert_non_null(
        strstr(bench->error.message, "rows 1 and 4 of table 'events' have the same primary key"));
}

static void vectors_that_are_not_finite_are_refused(void **state) {
    struct bench *bench = *state;
    const uint16_t vectors[4] = {0x3c00, 0x3c00, 0xfe00, 0};
    assert_int_equal(hw_builder_set_embedder(bench->b, "odd", 2, NULL), HW_OK);
    assert_int_equal(
        hw_builder_write_vectors(bench->b, HW_EMBED_COLUMNS, vectors, 2, &bench->error),
        HW_BAD_SOURCE);
    assert_non_null(strstr(bench->error.message, "embedding 1 of kind 1"));
}

static void declarations_that_contradict_are_refused(void **state) {
    struct bench *bench = *state;
    hw_builder *b = bench->b;
    hw_error *error = &bench->error;
    uint32_t index = 0, far_column = 9;
    hw_table_spec table = {.struct_bytes = sizeof table, .name = "late"};
    hw_column_spec column = {.struct_bytes = sizeof column, .name = "late"};
    hw_key_spec key = {sizeof key, 0, 0, &far_column, 1};
    hw_task_spec task = {.struct_bytes = sizeof task, .name = "t", .target_column = 7};
    assert_int_equal(hw_builder_add_table(b, &table, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "after the first column"));
    assert_int_equal(hw_builder_add_column(b, 0, &column, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "out of order"));
    assert_int_equal(hw_builder_add_column(b, 3, &column, &index, error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_builder_add_key(b, &key, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "names column 9"));
    assert_int_equal(hw_builder_add_task(b, &task, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "no column of its anchor table"));
    task.target_column = UINT32_MAX;
    task.target_stype = HW_TEXT;
    assert_int_equal(hw_builder_add_task(b, &task, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "expected numerical, timestamp"));
    const char *const twice[] = {"x", "x"};
    assert_int_equal(hw_builder_set_categories(b, 2, twice, 2, error), HW_BAD_ARGUMENT);
}

/* ---- what is counted --------------------------------------------------------------------- */

static hw_column_stats stats_of(const struct bench *bench, uint32_t column) {
    hw_column_stats stats;
    assert_int_equal(hw_builder_column_stats(bench->b, column, &stats, NULL), HW_OK);
    return stats;
}

static void moments_stop_at_stats_until_and_extremes_do_not(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    hw_column_stats stats = stats_of(bench, 1);
    /* rows at 10, 20, 20: 1, 3, 5 */
    assert_float_equal(stats.mean, 3, 1e-12);
    assert_float_equal(stats.std, sqrt(8.0 / 3.0), 1e-12);
    assert_float_equal(stats.min, 1, 0);
    assert_float_equal(stats.max, 300, 0);
    assert_int_equal(stats.value_count, 6);
    assert_int_equal(stats_of(bench, 3).true_count, 3);
    assert_int_equal(stats_of(bench, 2).null_count, 1);
    assert_int_equal(stats_of(bench, 2).category_count, 2);
    assert_true(stats_of(bench, 0).min_us == 10 && stats_of(bench, 0).max_us == 50);
}

static void visible_rows_without_time_count_for_moments(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[TIME].valid = last_five;
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    assert_float_equal(stats_of(bench, 1).mean, 3, 1e-12);
}

static void hidden_rows_without_time_do_not(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[TIME].values = (int64_t[]){10, 11, 12, 13, 14, 0};
    columns[TIME].valid = first_five;
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    assert_float_equal(stats_of(bench, 1).mean, 309.0 / 5, 1e-12);
}

static void nan_and_infinity_become_null(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[NUMBER].values = (double[]){NAN, 7, INFINITY, 7, -INFINITY, 7};
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    hw_column_stats stats = stats_of(bench, 1);
    assert_int_equal(stats.null_count, 3);
    assert_int_equal(stats.value_count, 3);
    assert_float_equal(stats.mean, 7, 0);
    assert_float_equal(stats.std, 0, 0);
}

static void numbers_past_all_measure_stay_finite(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    hw_store *store = NULL;
    uint64_t fault_count = 0;
    good_columns(columns);
    columns[NUMBER].values = (double[]){-1.7e308, 1.7e308, 0, 1, -1.7e308, 1.7e308};
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    hw_column_stats stats = stats_of(bench, 1);
    assert_true(isfinite(stats.mean) && isfinite(stats.std));
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    fixture_finish(bench->b, 4, 2, bench->directory);
    assert_int_equal(hw_store_open(bench->directory, HW_LOAD_RAM, &store, NULL), HW_OK);
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    hw_store_close(store);
}

static void an_empty_table_is_a_table(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    hw_store *store = NULL;
    uint64_t fault_count = 0;
    uint32_t row = 0;
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 0), HW_OK);
    fixture_parents(bench->b, 0, NULL, 0, 0);
    fixture_finish(bench->b, 4, 2, bench->directory);
    assert_int_equal(hw_store_open(bench->directory, HW_LOAD_MMAP, &store, NULL), HW_OK);
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    assert_int_equal(hw_store_find(store, 0, "", 0, &row, NULL), HW_OK);
    assert_int_equal(row, UINT32_MAX);
    hw_store_close(store);
}

/* ---- many rows --------------------------------------------------------------------------- */

/* 5,000 rows over several spills and key buckets: every key is found, every list is right. */
static void five_thousand_rows_keep_their_keys_and_children(void **state) {
    enum { ROWS = 5000 };
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    char(*names)[8] = calloc(ROWS, sizeof *names);
    const char **texts = calloc(ROWS, sizeof *texts), **colors = calloc(ROWS, sizeof *colors);
    int64_t *many_times = calloc(ROWS, 8), *parents = calloc(ROWS, 8);
    double *values = calloc(ROWS, 8);
    uint8_t *many_flags = calloc(ROWS, 1);
    hw_store *store = NULL;
    uint64_t fault_count = 0;
    good_columns(columns);
    for (int64_t i = 0; i < ROWS; i++) {
        snprintf(names[i], sizeof names[i], "k%d", (int)i);
        texts[i] = names[i];
        colors[i] = i % 3 ? "red" : "blue";
        many_times[i] = i / 2;
        parents[i] = i % 10 == 0 ? -1 : i % 7;
        values[i] = (double)(i * i % 97);
        many_flags[i] = i % 5 == 0;
    }
    columns[TIME].values = columns[AT].values = many_times;
    columns[KEY].values = texts;
    columns[NUMBER].values = values;
    columns[COLOR].values = colors;
    columns[FLAG].values = many_flags;
    fixture_rows(bench->b, 0, columns, EVENT_FIELDS, ROWS, 2048);
    fixture_parents(bench->b, 0, parents, ROWS, 0);
    fixture_finish(bench->b, 4, 2, bench->directory);
    assert_int_equal(hw_store_open(bench->directory, HW_LOAD_MMAP, &store, NULL), HW_OK);
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t row = 0, parent = 0;
        uint8_t key[12] = {(uint8_t)strlen(names[i])};
        memcpy(key + 4, names[i], strlen(names[i]));
        assert_int_equal(hw_store_find(store, 0, key, 4 + strlen(names[i]), &row, NULL), HW_OK);
        assert_int_equal(row, i);
        assert_int_equal(hw_store_parent(store, i, 0, &parent, NULL), HW_OK);
        assert_int_equal(parent, parents[i] < 0 ? UINT32_MAX : (uint32_t)parents[i]);
    }
    for (uint32_t p = 0; p < 7; p++) {
        const uint32_t *children = NULL;
        uint32_t count = 0, at = 0;
        assert_int_equal(hw_store_children(store, p, 0, &children, &count, NULL), HW_OK);
        for (uint32_t i = 0; i < ROWS; i++) {
            if (parents[i] == (int64_t)p) {
                assert_true(at < count && children[at] == i);
                at++;
            }
        }
        assert_int_equal(at, count);
    }
    hw_store_close(store);
    free(names), free(texts), free(colors), free(many_times), free(parents), free(values);
    free(many_flags);
}

/* ---- known later ------------------------------------------------------------------------- */

/* Table `links`: a key to itself that is known 15 us after column `said`, which is not the row's
 * time. Rows at 10, 20, 30, 40 with said 40, 10, NULL, 2^63 - 5; all point at row 0, so its list is
 * row 1 (10 + 15 = 25), row 0 (40 + 15 = 55), and rows 2, 3, known never (NULL, and no such time).
 */
static void a_key_known_some_time_after_a_column_is_listed_by_that(void **state) {
    struct bench *bench = *state;
    hw_builder_options options = {sizeof options, "links", INT64_MAX};
    hw_table_spec table = {.struct_bytes = sizeof table, .name = "links", .temporal = 1};
    const hw_column_spec specs[] = {
        {.name = "at", .stype = HW_TIMESTAMP, .temporal = 1},
        {.name = "said", .stype = HW_IGNORED, .stored = 1},
        {.name = "link",
         .stype = HW_IDENTIFIER,
         .known = HW_KNOWN_COLUMN,
         .known_column = 1,
         .known_offset_us = 15},
    };
    const struct fixture_column columns[] = {
        {"time", "l", (int64_t[]){10, 20, 30, 40}, NULL},
        {"at", "l", (int64_t[]){10, 20, 30, 40}, NULL},
        {"said", "l", (int64_t[]){40, 10, 0, INT64_MAX - 4}, (uint8_t[]){1, 1, 0, 1}},
        {"link", "b", (uint8_t[]){1, 1, 1, 1}, NULL},
    };
    const int64_t expected_times[] = {25, 55, INT64_MAX, INT64_MAX};
    const uint32_t expected[] = {1, 0, 2, 3};
    hw_builder *b = NULL;
    hw_store *store = NULL;
    uint64_t fault_count = 1;
    uint32_t index = 0, link = 2;
    hw_key_spec key = {sizeof key, 0, 0, &link, 1};
    char *path = fixture_path(bench->directory, ".building-links");
    char *store_path = fixture_path(bench->directory, "links.hw");
    assert_int_equal(hw_builder_open(path, &options, &b, NULL), HW_OK);
    assert_int_equal(hw_builder_add_table(b, &table, &index, NULL), HW_OK);
    for (uint32_t i = 0; i < 3; i++) {
        hw_column_spec spec = specs[i];
        spec.struct_bytes = sizeof spec;
        assert_int_equal(hw_builder_add_column(b, 0, &spec, &index, NULL), HW_OK);
    }
    assert_int_equal(hw_builder_add_key(b, &key, &index, NULL), HW_OK);
    fixture_rows(b, 0, columns, 4, 4, 0);
    fixture_parents(b, 0, (int64_t[]){0, 0, 0, 0}, 4, 0);
    fixture_finish(b, 3, 0, store_path);
    hw_builder_close(b);
    assert_int_equal(hw_store_open(store_path, HW_LOAD_MMAP, &store, NULL), HW_OK);
    assert_memory_equal(store->tables[0].children, expected, sizeof expected);
    assert_memory_equal(store->tables[0].child_times, expected_times, sizeof expected_times);
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    hw_store_close(store);
    free(path);
    free(store_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(open_bench, rows_out_of_time_order_are_refused),
        ON(open_bench, a_hidden_null_time_before_others_is_refused),
        ON(open_bench_null_visible, a_visible_null_time_after_others_is_refused),
        ON(open_bench, a_value_outside_of_the_categories_is_refused),
        ON(open_bench, a_null_key_is_refused),
        ON(open_bench, other_arrow_formats_are_refused),
        ON(open_bench, a_missing_column_is_refused),
        ON(open_bench, errors_of_the_stream_come_through),
        ON(open_bench, an_edge_out_of_range_is_refused),
        ON(open_bench, edges_come_in_any_order),
        ON(open_bench, a_row_with_two_parents_is_refused),
        ON(open_bench, edges_of_rows_that_are_not_there_are_refused),
        ON(open_bench, more_null_keys_than_rows_are_refused),
        ON(open_bench, finishing_too_early_says_what_is_missing),
        ON(open_bench, a_duplicate_key_is_refused_at_finish),
        ON(open_bench, vectors_that_are_not_finite_are_refused),
        ON(open_bench, declarations_that_contradict_are_refused),
        ON(open_bench_until_20, moments_stop_at_stats_until_and_extremes_do_not),
        ON(open_bench_null_visible, visible_rows_without_time_count_for_moments),
        ON(open_bench_until_20, hidden_rows_without_time_do_not),
        ON(open_bench, nan_and_infinity_become_null),
        ON(open_bench, numbers_past_all_measure_stay_finite),
        ON(open_bench, an_empty_table_is_a_table),
        ON(open_bench, five_thousand_rows_keep_their_keys_and_children),
        ON(open_bench, a_key_known_some_time_after_a_column_is_listed_by_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
