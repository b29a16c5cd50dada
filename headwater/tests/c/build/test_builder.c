/*
 * The builder: what it refuses, with the message; what it counts; that equal input gives equal
 * bytes; publication. What comes back from a store that it wrote is store/test_store.c's matter.
 */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/format.h"
#include "store/store.h"
#include "support/fixtures.h"

/* ---- one table, one column of each kind -------------------------------------------------- */

/* A builder over: events(key, time) with number, category (red, blue), flag, and a foreign key to
 * itself. Tests write what they like. */
struct bench {
    char *directory;
    hw_builder *b;
    hw_error error;
};

static int open_bench_with(void **state, int64_t stats_until_us, uint8_t null_time_visible) {
    struct bench *bench = calloc(1, sizeof *bench);
    hw_builder_options options = {sizeof options, "bench", stats_until_us};
    hw_table_spec table = {.struct_bytes = sizeof table,
                           .name = "events",
                           .key_part_count = 1,
                           .temporal = 1,
                           .null_time_visible = null_time_visible};
    const hw_column_spec columns[] = {
        {.name = "at", .stype = HW_TIMESTAMP, .temporal = 1},
        {.name = "number", .stype = HW_NUMERICAL},
        {.name = "color", .stype = HW_CATEGORICAL},
        {.name = "flag", .stype = HW_BOOLEAN},
    };
    static const char *const colors[] = {"red", "blue"};
    uint32_t index = 0, key_column = 1;
    bench->directory = fixture_directory();
    char *path = fixture_path(bench->directory, ".building-bench");
    fixture_check(hw_builder_open(path, &options, &bench->b, &bench->error), &bench->error, "open");
    free(path);
    fixture_check(hw_builder_add_table(bench->b, &table, &index, &bench->error), &bench->error,
                  "table");
    for (uint32_t i = 0; i < 4; i++) {
        hw_column_spec spec = columns[i];
        spec.struct_bytes = sizeof spec;
        fixture_check(hw_builder_add_column(bench->b, 0, &spec, &index, &bench->error),
                      &bench->error, "column");
        assert_int_equal(index, i);
    }
    fixture_check(hw_builder_set_categories(bench->b, 2, colors, 2, &bench->error), &bench->error,
                  "categories");
    hw_key_spec key = {sizeof key, 0, 0, &key_column, 1};
    fixture_check(hw_builder_add_key(bench->b, &key, &index, &bench->error), &bench->error, "key");
    *state = bench;
    return 0;
}

static int open_bench(void **state) {
    return open_bench_with(state, INT64_MAX, 0);
}

static int open_bench_until_20(void **state) {
    return open_bench_with(state, 20, 0);
}

static int open_bench_null_visible(void **state) {
    return open_bench_with(state, 20, 1);
}

static int close_bench(void **state) {
    struct bench *bench = *state;
    hw_builder_close(bench->b);
    fixture_remove(bench->directory);
    free(bench);
    return 0;
}

/* Columns of a good stream of `events`, six rows; tests damage a copy. */
enum { TIME, KEY, AT, NUMBER, COLOR, FLAG, EVENT_FIELDS };
static const uint8_t first_five[6] = {1, 1, 1, 1, 1, 0}, last_five[6] = {0, 1, 1, 1, 1, 1};
static const uint8_t flags[6] = {1, 0, 1, 0, 1, 0};
static const int64_t times[6] = {10, 20, 20, 30, 40, 50};
static const double numbers[6] = {1, 3, 5, 100, 200, 300};
static const char *const keys[6] = {"a", "b", "c", "d", "e", "f"};
static const char *const color_cells[6] = {"red", "blue", NULL, "red", "red", "blue"};

static void good_columns(struct fixture_column columns[EVENT_FIELDS]) {
    columns[TIME] = (struct fixture_column){"time", "l", times, NULL};
    columns[KEY] = (struct fixture_column){"key", "u", keys, NULL};
    columns[AT] = (struct fixture_column){"at", "l", times, NULL};
    columns[NUMBER] = (struct fixture_column){"number", "g", numbers, NULL};
    columns[COLOR] = (struct fixture_column){"color", "U", color_cells, NULL};
    columns[FLAG] = (struct fixture_column){"flag", "b", flags, NULL};
}

static hw_status write_rows(struct bench *bench, const struct fixture_column *columns,
                            uint32_t column_count, uint64_t row_count) {
    struct ArrowArrayStream stream;
    fixture_stream(&stream, columns, column_count, row_count, 4);
    hw_status status = hw_builder_write_rows(bench->b, 0, &stream, &bench->error);
    stream.release(&stream);
    return status;
}

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

/* ---- publication ------------------------------------------------------------------------- */

static uint64_t hash_file(const char *directory, const char *name) {
    char *path = fixture_path(directory, name);
    uint8_t buffer[65536];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t size = fread(buffer, 1, sizeof buffer, stream);
    fclose(stream);
    free(path);
    return hw_hash64(buffer, size, 0);
}

static void the_same_rows_give_the_same_bytes(void **state) {
    (void)state;
    static const char *const names[] = {
        "schema.bin",
        "tables/00000.bin",
        "tables/00001.bin",
        "graph.bin",
        "tasks/00000.bin",
        "tasks/00001.bin",
        "text_embeddings.bin",
        "column_embeddings.bin",
        "categorical_embeddings.bin",
        "keys.bin",
        "texts.bin",
        "metadata.json",
    };
    char *first = fixture_directory(), *second = fixture_directory();
    hw_store *a = bookstore(first), *b = bookstore(second);
    assert_string_equal(hw_store_fingerprint(a), hw_store_fingerprint(b));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(hash_file(hw_store_directory(a), names[i]) ==
                    hash_file(hw_store_directory(b), names[i]));
    }
    assert_true(hash_file(first, "manifest.json") == hash_file(second, "manifest.json"));
    hw_store_close(a);
    hw_store_close(b);
    fixture_remove(first);
    fixture_remove(second);
}

static uint32_t count_entries(const char *path) {
    DIR *folder = opendir(path);
    uint32_t count = 0;
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 2;
}

static void publication_replaces_the_old_build(void **state) {
    (void)state;
    char *directory = fixture_directory();
    hw_store *before = bookstore(directory);
    char old[33];
    memcpy(old, hw_store_fingerprint(before), sizeof old);
    hw_store *after = deliveries(directory);
    assert_string_not_equal(hw_store_fingerprint(after), old);
    assert_int_equal(count_entries(directory), 2); /* manifest.json and one build */
    /* The open one goes on over its unlinked files. */
    uint64_t fault_count = 1;
    const char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(hw_store_text(before, 3, &text, &bytes, NULL), HW_OK);
    assert_memory_equal(text, "Fog", 3);
    assert_int_equal(hw_store_verify(before, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    hw_store_close(before);
    hw_store_close(after);
    fixture_remove(directory);
}

static void an_equal_build_is_kept_and_a_damaged_one_replaced(void **state) {
    (void)state;
    char *directory = fixture_directory();
    hw_store *store = bookstore(directory);
    uint64_t fault_count = 1;
    char *texts = fixture_path(hw_store_directory(store), "texts.bin");
    hw_store_close(store);
    hw_store_close(bookstore(directory));
    assert_int_equal(count_entries(directory), 2);
    FILE *stream = fopen(texts, "r+b");
    assert_non_null(stream);
    fseek(stream, -64, SEEK_END);
    fputc('X', stream);
    fclose(stream);
    store = bookstore(directory);
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    hw_store_close(store);
    free(texts);
    fixture_remove(directory);
}

/* ---- what is not a store's own ----------------------------------------------------------- */

static void write_file(const char *directory, const char *name, const char *text) {
    char *path = fixture_path(directory, name);
    FILE *stream = fopen(path, "wbe");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    free(path);
}

static void make_folder(const char *directory, const char *name) {
    char *path = fixture_path(directory, name);
    assert_int_equal(mkdir(path, 0777), 0);
    free(path);
}

static void assert_there(const char *directory, const char *name, const char *text) {
    char found[64] = "";
    char *path = fixture_path(directory, name);
    FILE *stream = fopen(path, "rbe");
    assert_non_null(stream);
    found[fread(found, 1, sizeof found - 1, stream)] = 0;
    fclose(stream);
    free(path);
    assert_string_equal(found, text);
}

/* They were removed: anything called by 32 hex digits was taken for an older build, and what a link
 * led to as well. */
static void publication_removes_nothing_but_builds(void **state) {
    (void)state;
    static const char foreign[] = "00112233445566778899aabbccddeeff";
    static const char alike[] = "11112233445566778899aabbccddeeff";
    static const char link_name[] = "22112233445566778899aabbccddeeff";
    char *directory = fixture_directory(), *elsewhere = fixture_directory();
    hw_store *before = bookstore(directory);
    char old[33], name[80];
    memcpy(old, hw_store_fingerprint(before), sizeof old);
    /* A folder of someone; one whose files are called as ours; a link to a build elsewhere; and a
     * true build with a file of someone in it. */
    make_folder(directory, foreign);
    write_file(directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    make_folder(directory, alike);
    write_file(directory, "11112233445566778899aabbccddeeff/schema.bin", "mine too");
    hw_store_close(bookstore(elsewhere));
    char *link_path = fixture_path(directory, link_name), *build = fixture_path(elsewhere, old);
    assert_int_equal(symlink(build, link_path), 0);
    snprintf(name, sizeof name, "%s/notes.txt", old);
    write_file(directory, name, "keep");
    hw_store *after = deliveries(directory);
    assert_string_not_equal(hw_store_fingerprint(after), old);
    assert_there(directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    assert_there(directory, "11112233445566778899aabbccddeeff/schema.bin", "mine too");
    assert_there(directory, name, "keep");
    hw_store_close(after);
    for (int i = 0; i < 2; i++) { /* the build behind the link, and the one with a note in it */
        char *path = fixture_path(i == 0 ? elsewhere : directory, old);
        uint64_t fault_count = 1;
        hw_store *store = NULL;
        assert_int_equal(hw_store_open(path, HW_LOAD_MMAP, &store, NULL), HW_OK);
        assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
        assert_int_equal(fault_count, 0);
        hw_store_close(store);
        free(path);
    }
    hw_store_close(before);
    free(link_path);
    free(build);
    fixture_remove(directory);
    fixture_remove(elsewhere);
}

/* {manifest.json, expected message}: each was replaced, status 0. */
static void a_folder_whose_manifest_is_not_a_store_s_stays(void **state) {
    static const char *const refused[][2] = {
        {"", "is not that of a store"},
        {"{}", "is not that of a store"},
        {"{\"manifest_version\": 3, \"name\": \"of a browser\"}", "is not that of a store"},
        {"{\"fingerprint\": \"00112233445566778899aabbccddeeff\"}", "is not that of a store"},
        {"{\"format_version\": 2, \"byte_order\": \"big\", \"fingerprint\": "
         "\"00112233445566778899aabbccddeeff\", \"files\": []}",
         "is not that of a store"},
        {"{\"format_version\": 99, \"byte_order\": \"little\", \"fingerprint\": "
         "\"11112233445566778899aabbccddeeff\", \"files\": []}",
         "is a store of format version 99, this headwater writes version 2"},
        {"{\"format_version\": 2, \"byte_order\": \"little\", \"fingerprint\": "
         "\"00112233445566778899aabbccddeeff\", \"files\": []}",
         "which its manifest.json names, is not a build"},
    };
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 0), HW_OK);
    fixture_parents(bench->b, 0, NULL, 0, 0);
    fixture_complete(bench->b, 4, 2);
    make_folder(bench->directory, "00112233445566778899aabbccddeeff");
    write_file(bench->directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        write_file(bench->directory, "manifest.json", refused[i][0]);
        assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error),
                         HW_BAD_STORE);
        if (strstr(bench->error.message, refused[i][1]) == NULL) {
            fail_msg("'%s', expected '%s'", bench->error.message, refused[i][1]);
        }
        assert_int_equal(count_entries(bench->directory), 3); /* with the builder's own folder */
    }
    /* A link, and what it leads to. */
    write_file(bench->directory, "of another", "mine");
    char *path = fixture_path(bench->directory, "manifest.json");
    char *other = fixture_path(bench->directory, "of another");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_BAD_STORE);
    assert_non_null(strstr(bench->error.message, "is not a regular file"));
    assert_int_equal(unlink(path), 0);
    /* Nor is one opened where the manifest is written first. */
    char *beside = fixture_path(bench->directory, ".building-bench.manifest.json");
    assert_int_equal(symlink(other, beside), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_IO);
    assert_there(bench->directory, "of another", "mine");
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_OK);
    assert_there(bench->directory, "of another", "mine");
    assert_there(bench->directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    free(path);
    free(other);
    free(beside);
}

static void an_unfinished_build_leaves_nothing(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    assert_int_equal(count_entries(bench->directory), 1);
    hw_builder_close(bench->b);
    bench->b = NULL;
    assert_int_equal(count_entries(bench->directory), 0);
}

static void a_directory_that_exists_is_not_built_in(void **state) {
    struct bench *bench = *state;
    hw_builder_options options = {sizeof options, "again", INT64_MAX};
    hw_builder *b = NULL;
    assert_int_equal(hw_builder_open(bench->directory, &options, &b, &bench->error), HW_IO);
    assert_null(b);
    assert_int_equal(count_entries(bench->directory), 1);
}

#define ON(bench, test) cmocka_unit_test_setup_teardown(test, bench, close_bench)

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
        cmocka_unit_test(the_same_rows_give_the_same_bytes),
        cmocka_unit_test(publication_replaces_the_old_build),
        cmocka_unit_test(an_equal_build_is_kept_and_a_damaged_one_replaced),
        cmocka_unit_test(publication_removes_nothing_but_builds),
        ON(open_bench, a_folder_whose_manifest_is_not_a_store_s_stays),
        ON(open_bench, an_unfinished_build_leaves_nothing),
        ON(open_bench, a_directory_that_exists_is_not_built_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
