/*
 * The builder: what it refuses, with the message, and what it counts. What comes back from a store
 * that it wrote is store/test_store.c's matter, how it is published test_publish.c's.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "format/format.h"
#include "store/store.h"
#include "support/bench.h"
#include "support/unit_test.h"

static const uint8_t first_five[6] = {1, 1, 1, 1, 1, 0}, last_five[6] = {0, 1, 1, 1, 1, 1};

static void assert_said(const struct bench *bench, const char *message) {
    if (strstr(bench->error.message, message) == NULL) {
        fail_msg("'%s', expected '%s'", bench->error.message, message);
    }
}

/* Writes six good events of which one field is `other`; NULL: none. */
static void write_events(struct bench *bench, uint32_t field, const struct fixture_column *other) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    columns[field] = other == NULL ? columns[field] : *other;
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
}

/* ---- what is refused --------------------------------------------------------------------- */

/* One field of good rows that is another one, or the last, which is not there: what write_rows
 * says. */
static const struct refusal {
    uint32_t field;
    struct fixture_column bad;
    const char *message;
} refusals[] = {
    {TIME, {"time", "l", (int64_t[]){10, 20, 20, 30, 40, 39}, NULL}, "'events' has time 39 after"},
    {TIME, {"time", "l", (int64_t[]){10, 20, 20, 30, 40, 50}, last_five}, "without time last"},
    {TIME, {"time", "l", (int64_t[]){10, 20, 20, 30, 40, 50}, first_five}, "without time first"},
    {COLOR,
     {"color", "U", (const char *[]){"red", "blue", NULL, "red", "green", "blue"}, NULL},
     "column 'events.color' holds 'green' in row 4"},
    {KEY,
     {"key", "u", (const char *[]){"a", "b", "c", "d", NULL, "f"}, NULL},
     "row 4 of table 'events' has NULL in part 0"},
    {NUMBER,
     {"number", "L", (uint64_t[]){1, 3, 5, 100, 200, 300}, NULL},
     "column 'number' of table 'events' has Arrow format 'L', expected one of 'gli'"},
    {FLAG, {NULL, NULL, NULL, NULL}, "stream of table 'events' has 5 columns, expected 6"},
};

static void rows_that_do_not_fit_their_table_are_refused(void **state) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];
        struct fixture_column columns[EVENT_FIELDS];
        good_columns(columns);
        columns[refusal->field] = refusal->bad;
        uint32_t field_count = refusal->bad.name == NULL ? EVENT_FIELDS - 1 : EVENT_FIELDS;
        (void)(refusal->bad.valid == first_five ? open_bench_null_visible(state)
                                                : open_bench(state));
        struct bench *bench = *state;
        assert_int_equal(write_rows(bench, columns, field_count, 6), HW_BAD_SOURCE);
        assert_said(bench, refusal->message);
        /* The builder is latched: nothing can be built on half a table. */
        assert_int_equal(write_rows(bench, columns, field_count, 6), HW_BAD_ARGUMENT);
        close_bench(state);
    }
}

static int failing_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    return EIO;
}

static const char *failing_reason(struct ArrowArrayStream *stream) {
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
    assert_said(bench, "the disk is gone");
    stream.release(&stream);
}

/* Pairs (child, parent) of the events' own key: what write_edges says of them, or NULL. */
static const struct pairs {
    int32_t children[3], parents[3];
    uint64_t count, null_count;
    hw_status status;
    const char *message;
} pairs[] = {
    {{5, 0, 3}, {1, 5, 5}, 3, 2, HW_OK, NULL}, /* in any order */
    {{5, 0, 3}, {1, 5, 6}, 3, 2, HW_BAD_SOURCE, "holds 6 in row 2"},
    {{2, 0, 2}, {1, 2, 3}, 3, 0, HW_BAD_SOURCE, "has two parents for row 2"},
    {{6}, {0}, 1, 0, HW_BAD_SOURCE, "holds 6 in row 0"},
    {{1}, {0}, 1, 6, HW_BAD_ARGUMENT, "6 rows with a NULL key and 1 edges of 6 rows"},
};

static void edges_come_in_any_order_and_those_that_cannot_be_are_refused(void **state) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ArrowArrayStream stream;
        const struct fixture_column edges[] = {{"child", "i", pairs[i].children, NULL},
                                               {"parent", "i", pairs[i].parents, NULL}};
        uint64_t edge_count = 0;
        open_bench(state);
        struct bench *bench = *state;
        write_events(bench, 0, NULL);
        fixture_stream(&stream, edges, 2, pairs[i].count, 2);
        assert_int_equal(hw_builder_write_edges(bench->b, 0, &stream, pairs[i].null_count,
                                                &edge_count, &bench->error),
                         pairs[i].status);
        stream.release(&stream);
        if (pairs[i].message != NULL) {
            assert_said(bench, pairs[i].message);
        } else {
            assert_int_equal(edge_count, pairs[i].count);
        }
        close_bench(state);
    }
}

static void finishing_too_early_says_what_is_missing(void **state) {
    struct bench *bench = *state;
    char fingerprint[33];
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "the rows of table 'events' were not written");
    write_events(bench, 0, NULL);
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "the parents of 'events.number' were not");
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    assert_int_equal(hw_builder_finish(bench->b, NULL, 2, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "the metadata are NULL and have 2 bytes");
    assert_int_equal(hw_builder_finish(bench->b, "", 0, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "the metadata are given and have 0 bytes");
    assert_int_equal(hw_builder_finish(bench->b, NULL, 0, fingerprint, &bench->error), HW_OK);
}

static void a_duplicate_key_is_refused_at_finish(void **state) {
    struct bench *bench = *state;
    char fingerprint[33];
    write_events(
        bench, KEY,
        &(struct fixture_column){"key", "u", (const char *[]){"a", "b", "c", "d", "b", "f"}, NULL});
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    uint16_t vectors[6 * 4] = {0};
    assert_int_equal(hw_builder_set_embedder(bench->b, "zero", 4, NULL), HW_OK);
    assert_int_equal(hw_builder_write_vectors(bench->b, HW_EMBED_COLUMNS, vectors, 4, NULL), HW_OK);
    assert_int_equal(hw_builder_write_vectors(bench->b, HW_EMBED_CATEGORIES, vectors, 2, NULL),
                     HW_OK);
    assert_int_equal(hw_builder_finish(bench->b, "{}", 2, fingerprint, &bench->error),
                     HW_BAD_SOURCE);
    assert_said(bench, "rows 1 and 4 of table 'events' have the same primary key");
}

static void vectors_that_are_not_finite_are_refused(void **state) {
    struct bench *bench = *state;
    const uint16_t vectors[4] = {0x3c00, 0x3c00, 0xfe00, 0};
    assert_int_equal(hw_builder_set_embedder(bench->b, "odd", 2, NULL), HW_OK);
    assert_int_equal(
        hw_builder_write_vectors(bench->b, HW_EMBED_COLUMNS, vectors, 2, &bench->error),
        HW_BAD_SOURCE);
    assert_said(bench, "embedding 1 of kind 1");
}

static void declarations_that_contradict_are_refused(void **state) {
    struct bench *bench = *state;
    hw_builder *b = bench->b;
    hw_error *error = &bench->error;
    uint32_t index = 0, far_column = 9;
    hw_table_spec table = {.struct_bytes = sizeof table, .name = "late"};
    hw_column_spec column = {.struct_bytes = sizeof column, .name = "late"};
    hw_key_spec key = {.struct_bytes = sizeof key, .columns = &far_column, .column_count = 1};
    hw_task_spec task = {.struct_bytes = sizeof task, .name = "t", .target_column = 7};
    assert_int_equal(hw_builder_add_table(b, &table, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "after the first column"));
    assert_int_equal(hw_builder_add_column(b, 0, &column, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "out of order"));
    assert_int_equal(hw_builder_add_column(b, 3, &column, &index, error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_builder_add_key(b, &key, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "names column 9"));
    assert_int_equal(hw_builder_add_task(b, &task, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "is not a column of its anchor table"));
    task.target_column = UINT32_MAX;
    task.target_stype = HW_TEXT;
    assert_int_equal(hw_builder_add_task(b, &task, &index, error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error->message, "expected numerical, timestamp"));
    const char *const twice[] = {"x", "x"};
    assert_int_equal(hw_builder_set_categories(b, 2, twice, 2, error), HW_BAD_ARGUMENT);
}

/* ---- what is counted --------------------------------------------------------------------- */

static hw_column_stats stats_of(const struct bench *bench, uint32_t column) {
    hw_column_stats stats = {.struct_bytes = sizeof stats};
    assert_int_equal(hw_builder_column_stats(bench->b, column, &stats, NULL), HW_OK);
    return stats;
}

static void moments_stop_at_stats_until_and_extremes_do_not(void **state) {
    struct bench *bench = *state;
    write_events(bench, 0, NULL);
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
    write_events(
        bench, TIME,
        &(struct fixture_column){"time", "l", (int64_t[]){10, 20, 20, 30, 40, 50}, last_five});
    assert_float_equal(stats_of(bench, 1).mean, 3, 1e-12);
}

static void hidden_rows_without_time_do_not(void **state) {
    struct bench *bench = *state;
    write_events(
        bench, TIME,
        &(struct fixture_column){"time", "l", (int64_t[]){10, 11, 12, 13, 14, 0}, first_five});
    assert_float_equal(stats_of(bench, 1).mean, 309.0 / 5, 1e-12);
}

static void nan_and_infinity_become_null(void **state) {
    struct bench *bench = *state;
    write_events(bench, NUMBER,
                 &(struct fixture_column){"number", "g",
                                          (double[]){NAN, 7, INFINITY, 7, -INFINITY, 7}, NULL});
    hw_column_stats stats = stats_of(bench, 1);
    assert_int_equal(stats.null_count, 3);
    assert_int_equal(stats.value_count, 3);
    assert_float_equal(stats.mean, 7, 0);
    assert_float_equal(stats.std, 0, 0);
}

static void numbers_past_all_measure_stay_finite(void **state) {
    struct bench *bench = *state;
    write_events(bench, NUMBER,
                 &(struct fixture_column){
                     "number", "g", (double[]){-1.7e308, 1.7e308, 0, 1, -1.7e308, 1.7e308}, NULL});
    hw_column_stats stats = stats_of(bench, 1);
    assert_true(isfinite(stats.mean) && isfinite(stats.std));
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
    fixture_finish(bench->b, 4, 2, bench->directory);
    hw_store *store = fixture_open(bench->directory, HW_LOAD_RAM);
    fixture_sound(store);
    hw_store_close(store);
}

static void an_empty_table_is_a_table(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    uint32_t row = 0;
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 0), HW_OK);
    fixture_parents(bench->b, 0, NULL, 0, 0);
    fixture_finish(bench->b, 4, 2, bench->directory);
    hw_store *store = fixture_open(bench->directory, HW_LOAD_MMAP);
    fixture_sound(store);
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
    hw_store *store = fixture_open(bench->directory, HW_LOAD_MMAP);
    fixture_sound(store);
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
    char *store_path = fixture_path(bench->directory, "links.hw");
    hw_builder *b = fixture_builder("links", store_path, INT64_MAX);
    fixture_table(b, (hw_table_spec){.name = "links", .temporal = 1});
    for (uint32_t i = 0; i < 3; i++) {
        fixture_add_column(b, 0, specs[i]);
    }
    fixture_key(b, 0, 0, 2);
    fixture_rows(b, 0, columns, 4, 4, 0);
    fixture_parents(b, 0, (int64_t[]){0, 0, 0, 0}, 4, 0);
    fixture_finish(b, 3, 0, store_path);
    hw_builder_close(b);
    hw_store *store = fixture_open(store_path, HW_LOAD_MMAP);
    assert_memory_equal(store->tables[0].children, expected, sizeof expected);
    assert_memory_equal(store->tables[0].child_times, expected_times, sizeof expected_times);
    fixture_sound(store);
    hw_store_close(store);
    free(store_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_do_not_fit_their_table_are_refused),
        cmocka_unit_test(edges_come_in_any_order_and_those_that_cannot_be_are_refused),
        ON(open_bench, errors_of_the_stream_come_through),
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
