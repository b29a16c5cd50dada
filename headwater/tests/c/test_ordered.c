/*
 * Tables of numbers put in order: orders worked out by hand, random ones against qsort, and what is
 * refused.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
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

#include "damage.h"
#include "ordered_desk.h"

/* ---- by hand ----------------------------------------------------------------------------- */

/* Orders the columns; the last one, which decides nothing, tells in which order rows came out. */
static void assert_order(struct desk *desk, const struct fixture_column *columns,
                         uint32_t column_count, uint64_t row_count, const struct order *order,
                         const int32_t *expected) {
    for (uint64_t chunk_rows = 0; chunk_rows <= row_count; chunk_rows++) {
        hw_ordered *rows =
            desk_put_in_order(desk, columns, column_count, row_count, chunk_rows, order);
        struct found found = found_in_rows(rows);
        assert_int_equal(found.row_count, row_count);
        for (uint64_t i = 0; i < row_count; i++) {
            assert_int_equal((int64_t)found.values[column_count - 1][i], expected[i]);
        }
        found_assert_numbered(&found);
        found_free(&found);
        hw_ordered_close(rows);
    }
}

static const int32_t places[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

static void nulls_come_first_or_last_and_ties_stay_as_they_came(void **state) {
    const int64_t keys[] = {5, 0, -3, 5, 7, 0, -3};
    const uint8_t valid[] = {1, 0, 1, 1, 1, 0, 1};
    const struct fixture_column columns[] = {{"k", "l", keys, valid}, {"p", "i", places, NULL}};
    assert_order(*state, columns, 2, ROWS(keys), &(struct order){1, {0}, {1}},
                 (int32_t[]){1, 5, 2, 6, 0, 3, 4});
    assert_order(*state, columns, 2, ROWS(keys), &(struct order){1, {0}, {0}},
                 (int32_t[]){2, 6, 0, 3, 4, 1, 5});
    assert_order(*state, columns, 2, ROWS(keys), &(struct order){1, {0}, {2}}, /* not 0 */
                 (int32_t[]){1, 5, 2, 6, 0, 3, 4});
    const int64_t rising[] = {1, 2, 3, 4};
    const uint8_t last_is_null[] = {1, 1, 1, 0};
    const struct fixture_column sorted[] = {{"k", "l", rising, last_is_null},
                                            {"p", "i", places, NULL}};
    assert_order(*state, sorted, 2, 4, &(struct order){1, {0}, {2}}, (int32_t[]){3, 0, 1, 2});
}

static void the_first_column_decides_first(void **state) {
    const int32_t one[] = {2, 1, 2, 1, 0, 2};
    const uint8_t one_valid[] = {1, 1, 1, 1, 0, 1};
    const int64_t two[] = {9, 8, 0, 8, 4, 7};
    const uint8_t two_valid[] = {1, 1, 0, 1, 1, 1};
    const struct fixture_column columns[] = {
        {"one", "i", one, one_valid}, {"two", "l", two, two_valid}, {"p", "i", places, NULL}};
    assert_order(*state, columns, 3, 6, &(struct order){2, {0, 1}, {1, 0}},
                 (int32_t[]){4, 1, 3, 5, 0, 2});
    assert_order(*state, columns, 3, 6, &(struct order){2, {1, 0}, {1, 0}},
                 (int32_t[]){2, 4, 5, 1, 3, 0});
    assert_order(*state, columns, 3, 6, &(struct order){2, {0, 1}, {0, 1}},
                 (int32_t[]){1, 3, 2, 5, 0, 4});
}

static void the_least_and_the_greatest_integers_are_in_order(void **state) {
    const int64_t wide[] = {INT64_MAX, -1, INT64_MIN, 0, INT64_MIN, 1, INT64_MAX};
    const int32_t narrow[] = {INT32_MAX, -1, INT32_MIN, 0, INT32_MIN, 1, INT32_MAX};
    const struct fixture_column columns[] = {{"k", "l", wide, NULL}, {"p", "i", places, NULL}};
    const struct fixture_column small[] = {{"k", "i", narrow, NULL}, {"p", "i", places, NULL}};
    const int32_t expected[] = {2, 4, 1, 3, 5, 0, 6};
    assert_order(*state, columns, 2, ROWS(wide), &(struct order){1, {0}, {0}}, expected);
    assert_order(*state, small, 2, ROWS(narrow), &(struct order){1, {0}, {0}}, expected);
}

/* Two keys whose distance is their step; one value and NULLs; a NULL with the greatest value. */
static void few_values_are_in_order(void **state) {
    const int64_t two[] = {INT64_MAX, INT64_MIN, INT64_MAX};
    const struct fixture_column far[] = {{"k", "l", two, NULL}, {"p", "i", places, NULL}};
    assert_order(*state, far, 2, 3, &(struct order){1, {0}, {0}}, (int32_t[]){1, 0, 2});
    const int64_t one[] = {7, 9, 7, INT64_MAX};
    const uint8_t valid[] = {1, 0, 1, 0};
    const struct fixture_column same[] = {{"k", "l", one, valid}, {"p", "i", places, NULL}};
    assert_order(*state, same, 2, 4, &(struct order){1, {0}, {1}}, (int32_t[]){1, 3, 0, 2});
    const uint8_t none[] = {0, 0, 0, 0};
    const struct fixture_column empty[] = {{"k", "l", one, none}, {"p", "i", places, NULL}};
    assert_order(*state, empty, 2, 4, &(struct order){1, {0}, {1}}, (int32_t[]){0, 1, 2, 3});
}

/* A larger key may stand first in a column of which the one before it has decided. */
static void a_column_in_order_is_still_put_behind_the_first(void **state) {
    const int64_t one[] = {2, 1, 2, 1}, two[] = {1, 2, 3, 4};
    const struct fixture_column columns[] = {
        {"one", "l", one, NULL}, {"two", "l", two, NULL}, {"p", "i", places, NULL}};
    assert_order(*state, columns, 3, 4, &(struct order){2, {0, 1}, {0, 0}},
                 (int32_t[]){1, 3, 0, 2});
}

static void rows_without_an_order_stay_as_they_came(void **state) {
    const int64_t keys[] = {3, 1, 2};
    const struct fixture_column columns[] = {{"k", "l", keys, NULL}, {"p", "i", places, NULL}};
    assert_order(*state, columns, 2, 3, &(struct order){0}, (int32_t[]){0, 1, 2});
}

static void every_format_keeps_its_values_and_its_nulls(void **state) {
    struct desk *desk = *state;
    const uint8_t flags[] = {1, 0, 1, 1}, odd[] = {0, 1, 0, 1};
    const int32_t small[] = {-7, INT32_MAX, INT32_MIN, 4};
    const int64_t large[] = {INT64_MIN, 1, 2, INT64_MAX}, keys[] = {4, 3, 2, 1};
    const double reals[] = {-0.0, 1.5, 1e300, -2};
    for (int has_nulls = 0; has_nulls < 2; has_nulls++) {
        const uint8_t *valid = has_nulls ? odd : NULL;
        const struct fixture_column columns[] = {{"b", "b", flags, valid},
                                                 {"i", "i", small, valid},
                                                 {"l", "l", large, valid},
                                                 {"g", "g", reals, valid},
                                                 {"k", "l", keys, NULL}};
        hw_ordered *rows = desk_put_in_order(desk, columns, 5, 4, 3, &(struct order){1, {4}, {0}});
        struct found found = found_in_rows(rows);
        assert_string_equal(found.formats, "bilgll");
        found_assert_numbered(&found);
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t from = 3 - i, real;
            memcpy(&real, &reals[from], sizeof real);
            const uint64_t expected[] = {flags[from], (uint64_t)(int64_t)small[from],
                                         (uint64_t)large[from], real};
            for (uint32_t c = 0; c < 4; c++) {
                assert_int_equal(found.valid[c][i], has_nulls ? odd[from] : 1);
                assert_true(!found.valid[c][i] || found.values[c][i] == expected[c]);
            }
        }
        found_free(&found);
        hw_ordered_close(rows);
    }
}

static void no_rows_and_one_row_are_in_order(void **state) {
    struct desk *desk = *state;
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){7}, NULL},
                                             {"b", "b", (uint8_t[]){1}, (uint8_t[]){0}}};
    for (uint64_t row_count = 0; row_count < 2; row_count++) {
        hw_ordered *rows =
            desk_put_in_order(desk, columns, 2, row_count, 0, &(struct order){1, {0}, {0}});
        struct found found = found_in_rows(rows);
        assert_int_equal(found.row_count, row_count);
        assert_int_equal(found.piece_count, row_count);
        assert_string_equal(found.formats, "lbl");
        found_assert_numbered(&found);
        found_free(&found);
        hw_ordered_close(rows);
    }
}

static void a_table_without_columns_has_row_numbers(void **state) {
    struct desk *desk = *state;
    hw_ordered *rows = desk_put_in_order(desk, NULL, 0, 3, 2, &(struct order){0});
    struct found found = found_in_rows(rows);
    assert_int_equal(found.row_count, 3);
    found_assert_numbered(&found);
    found_free(&found);
    hw_ordered_close(rows);
}

/* ---- many rows --------------------------------------------------------------------------- */

static struct numbers random_numbers(struct hwi_rng *rng, uint32_t row_count) {
    struct numbers table = {.row_count = row_count};
    table.column_count = 1 + hwi_rng_next(rng) % (MOST_COLUMNS - 1);
    for (uint32_t c = 0; c < table.column_count; c++) {
        numbers_fill(&table, c, hwi_rng_next(rng) % 4, rng);
    }
    return table;
}

/* Up to all integer columns of the table, some of them twice. */
static struct order random_order(struct hwi_rng *rng, const struct numbers *table) {
    struct order order = {0};
    uint32_t wanted = hwi_rng_next(rng) % (table->column_count + 1);
    while (order.count < wanted) {
        uint32_t c = hwi_rng_next(rng) % table->column_count;
        if (strchr("il", table->formats[c][0]) == NULL) {
            wanted--;
            continue;
        }
        order.columns[order.count] = c;
        order.nulls_first[order.count++] = (uint8_t)(hwi_rng_next(rng) % 2);
    }
    return order;
}

/* What qsort is told. */
static const struct numbers *sorted_table;
static const struct order *sorted_order;

static int compare_rows(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    for (uint32_t k = 0; k < sorted_order->count; k++) {
        uint32_t c = sorted_order->columns[k];
        int a_null = !sorted_table->valid[c][a], b_null = !sorted_table->valid[c][b];
        if (a_null != b_null) {
            return a_null == sorted_order->nulls_first[k] ? -1 : 1;
        }
        int64_t x = (int64_t)sorted_table->values[c][a], y = (int64_t)sorted_table->values[c][b];
        if (!a_null && x != y) {
            return x < y ? -1 : 1;
        }
    }
    return a < b ? -1 : a > b;
}

static uint32_t *sort_rows(const struct numbers *table, const struct order *order) {
    uint32_t *rows = calloc(table->row_count + 1, sizeof *rows);
    for (uint32_t i = 0; i < table->row_count; i++) {
        rows[i] = i;
    }
    sorted_table = table;
    sorted_order = order;
    qsort(rows, table->row_count, sizeof *rows, compare_rows);
    return rows;
}

static void assert_sorted(const struct numbers *table, const struct order *order,
                          const struct found *found) {
    uint32_t *rows = sort_rows(table, order);
    assert_int_equal(found->row_count, table->row_count);
    assert_int_equal(found->piece_count, (table->row_count + PIECE_ROWS - 1) / PIECE_ROWS);
    for (uint32_t c = 0; c < table->column_count; c++) {
        assert_int_equal(found->formats[c], table->formats[c][0]);
        for (uint64_t i = 0; i < found->row_count; i++) {
            int is_valid = table->valid[c][rows[i]];
            if (found->valid[c][i] != is_valid ||
                (is_valid && found->values[c][i] != table->values[c][rows[i]])) {
                fail_msg("column %u of row %llu", c, (unsigned long long)i);
            }
        }
    }
    found_assert_numbered(found);
    free(rows);
}

static void random_tables_are_as_qsort_has_them(void **state) {
    struct desk *desk = *state;
    static const uint32_t sizes[] = {2, 3, 7, 64, 65, 2048, 2049, 4097};
    for (uint32_t trial = 0; trial < 400; trial++) {
        struct hwi_rng rng = hwi_rng_make(11, trial, 0, 0);
        struct numbers table = random_numbers(&rng, sizes[trial % ROWS(sizes)]);
        struct order order = random_order(&rng, &table);
        uint64_t chunk_rows = hwi_rng_next(&rng) % 3000;
        hw_ordered *rows = desk_put_in_order(desk, table.columns, table.column_count,
                                             table.row_count, chunk_rows, &order);
        struct found found = found_in_rows(rows);
        assert_sorted(&table, &order, &found);
        found_free(&found);
        hw_ordered_close(rows);
        numbers_free(&table);
    }
}

static const struct order many_order = {2, {2, 0}, {0, 1}};

static void more_rows_than_a_piece_are_shown_in_pieces(void **state) {
    struct desk *desk = *state;
    struct numbers table = numbers_many();
    hw_ordered *rows =
        desk_put_in_order(desk, table.columns, 5, table.row_count, 100000, &many_order);
    struct found found = found_in_rows(rows);
    assert_int_equal(found.piece_count, 3);
    assert_sorted(&table, &many_order, &found);
    found_free(&found);
    hw_ordered_close(rows);
    numbers_free(&table);
}

/* The rows of one file are the stream of the next: sorted already, and with buffers of this kind.
 */
static void rows_in_order_are_written_as_they_are(void **state) {
    struct desk *desk = *state;
    struct numbers table = numbers_many();
    struct ArrowArrayStream stream;
    uint64_t row_count = 0;
    size_t first_bytes = 0, second_bytes = 0;
    hw_ordered *rows = desk_put_in_order(desk, table.columns, 5, table.row_count, 0, &many_order);
    uint8_t *first = damage_read_file(desk->path, &first_bytes);
    unlink(desk->path); /* what is mapped stays */
    fixture_check(hw_ordered_stream(rows, (uint32_t[]){0, 1, 2, 3, 4}, 5, &stream, &desk->error),
                  &desk->error, "stream");
    hw_ordered_close(rows);
    assert_int_equal(desk_order_stream(desk, &stream, 5, &many_order, &row_count), HW_OK);
    stream.release(&stream);
    uint8_t *second = damage_read_file(desk->path, &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
    numbers_free(&table);
}

/* ---- what is refused --------------------------------------------------------------------- */

static void assert_not_ordered(struct desk *desk, hw_status status, hw_status expected,
                               const char *message) {
    struct stat info;
    assert_int_equal(status, expected);
    assert_int_equal(desk->error.status, expected);
    if (strstr(desk->error.message, message) == NULL) {
        fail_msg("'%s', expected '%s'", desk->error.message, message);
    }
    assert_int_equal(stat(desk->path, &info), -1);
}

static void an_order_by_other_columns_is_refused(void **state) {
    struct desk *desk = *state;
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){3, 1}, NULL},
                                             {"b", "b", (uint8_t[]){1, 1}, NULL},
                                             {"g", "g", (double[]){3, 1}, NULL}};
    static const uint32_t wrong[] = {1, 2, 3, UINT32_MAX};
    for (size_t i = 0; i < ROWS(wrong); i++) {
        char message[100];
        snprintf(message, sizeof message, "ordered by column %u, expected one of 3 columns",
                 wrong[i]);
        hw_status status =
            desk_try_order(desk, columns, 3, 2, 0, &(struct order){2, {0, wrong[i]}, {0, 0}});
        assert_not_ordered(desk, status, HW_BAD_ARGUMENT, message);
    }
}

static void other_formats_and_numbers_of_columns_are_refused(void **state) {
    struct desk *desk = *state;
    const struct fixture_column texts[] = {{"u", "u", (const char *[]){"a", "b"}, NULL}};
    const struct fixture_column wide[] = {{"L", "L", (uint64_t[]){1, 2}, NULL}};
    struct ArrowArrayStream stream;
    uint64_t row_count = 0;
    assert_not_ordered(desk, desk_try_order(desk, texts, 1, 2, 0, &(struct order){0}),
                       HW_BAD_SOURCE, "has Arrow format 'u', expected one of 'bilg'");
    assert_not_ordered(desk, desk_try_order(desk, wide, 1, 2, 0, &(struct order){0}), HW_BAD_SOURCE,
                       "has Arrow format 'L', expected one of 'bilg'");
    fixture_stream(&stream, wide, 1, 2, 0);
    hw_status status = desk_order_stream(desk, &stream, 2, &(struct order){0}, &row_count);
    assert_not_ordered(desk, status, HW_BAD_SOURCE, "has 1 columns, expected 2");
    stream.release(&stream);
    status = desk_order_stream(desk, &stream, 2, &(struct order){0}, &row_count);
    assert_not_ordered(desk, status, HW_BAD_ARGUMENT, "missing or already released");
}

/* A stream of three pieces that breaks off. */
struct broken {
    struct ArrowArrayStream inner;
    int call_count, failing_call, code;
};

static int broken_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    struct broken *broken = stream->private_data;
    return broken->call_count++ == broken->failing_call
               ? broken->code
               : broken->inner.get_schema(&broken->inner, out);
}

static int broken_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct broken *broken = stream->private_data;
    return broken->call_count++ == broken->failing_call
               ? broken->code
               : broken->inner.get_next(&broken->inner, out);
}

static const char *broken_reason(struct ArrowArrayStream *stream) {
    (void)stream;
    return "the wire was cut";
}

static void release_broken(struct ArrowArrayStream *stream) {
    struct broken *broken = stream->private_data;
    broken->inner.release(&broken->inner);
    stream->release = NULL;
}

static void a_stream_that_fails_leaves_no_file(void **state) {
    struct desk *desk = *state;
    const struct fixture_column column = {"k", "l", (int64_t[]){3, 1, 2}, NULL};
    for (int call = 0; call < 5; call++) {
        struct broken broken = {.failing_call = call, .code = call % 2 == 0 ? EIO : ENOMEM};
        struct ArrowArrayStream stream = {.get_schema = broken_schema,
                                          .get_next = broken_next,
                                          .get_last_error = broken_reason,
                                          .release = release_broken,
                                          .private_data = &broken};
        uint64_t row_count = 0;
        fixture_stream(&broken.inner, &column, 1, 3, 1);
        hw_status status =
            desk_order_stream(desk, &stream, 1, &(struct order){1, {0}, {0}}, &row_count);
        assert_not_ordered(desk, status, call % 2 == 0 ? HW_BAD_SOURCE : HW_NO_MEMORY,
                           "the wire was cut");
        stream.release(&stream);
    }
}

static void a_path_that_cannot_be_written_is_told(void **state) {
    struct desk *desk = *state;
    const struct fixture_column column = {"k", "l", (int64_t[]){3, 1, 2}, NULL};
    char *whole = desk->path;
    desk->path = fixture_path(desk->directory, "absent/rows");
    hw_status status = desk_try_order(desk, &column, 1, 3, 0, &(struct order){0});
    assert_not_ordered(desk, status, HW_IO, "absent");
    free(desk->path);
    desk->path = whole;
    assert_int_equal(mkdir(desk->path, 0755), 0); /* a folder is in the way */
    assert_int_equal(desk_try_order(desk, &column, 1, 3, 0, &(struct order){0}), HW_IO);
    assert_non_null(strstr(desk->error.message, "cannot create"));
    assert_int_equal(rmdir(desk->path), 0);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(nulls_come_first_or_last_and_ties_stay_as_they_came),
        ON(the_first_column_decides_first),
        ON(the_least_and_the_greatest_integers_are_in_order),
        ON(few_values_are_in_order),
        ON(a_column_in_order_is_still_put_behind_the_first),
        ON(rows_without_an_order_stay_as_they_came),
        ON(every_format_keeps_its_values_and_its_nulls),
        ON(no_rows_and_one_row_are_in_order),
        ON(a_table_without_columns_has_row_numbers),
        ON(random_tables_are_as_qsort_has_them),
        ON(more_rows_than_a_piece_are_shown_in_pieces),
        ON(rows_in_order_are_written_as_they_are),
        ON(an_order_by_other_columns_is_refused),
        ON(other_formats_and_numbers_of_columns_are_refused),
        ON(a_stream_that_fails_leaves_no_file),
        ON(a_path_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
