/*
 * Tables of numbers put in order: orders worked out by hand and random ones against qsort, and what
 * streams show, in several threads too.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <pthread.h>
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

#include "bytes.h"
#include "damage.h"
#include "fixtures.h"
#include "ordered.h"
#include "rng.h"

enum { MOST_COLUMNS = 8, PIECE_ROWS = 65536 };

struct desk {
    char *directory, *path;
    hw_error error;
};

static int open_desk(void **state) {
    struct desk *desk = calloc(1, sizeof *desk);
    assert_non_null(desk);
    desk->directory = fixture_directory();
    desk->path = fixture_path(desk->directory, "rows");
    *state = desk;
    return 0;
}

static int close_desk(void **state) {
    struct desk *desk = *state;
    unlink(desk->path);
    assert_int_equal(rmdir(desk->directory), 0); /* nothing else may have been left */
    free(desk->directory);
    free(desk->path);
    free(desk);
    return 0;
}

/* ---- orders in, rows out ----------------------------------------------------------------- */

/* Columns that decide the order, each with where its NULLs go. */
struct order {
    uint32_t count;
    uint32_t columns[MOST_COLUMNS];
    uint8_t nulls_first[MOST_COLUMNS];
};

static hw_status order_stream(struct desk *desk, struct ArrowArrayStream *stream,
                              uint32_t column_count, const struct order *order,
                              uint64_t *row_count) {
    hw_ordering ordering = {sizeof ordering, order->columns, order->nulls_first, order->count};
    desk->error = (hw_error){.message = ""};
    return hw_order_rows(desk->path, stream, column_count, &ordering, row_count, &desk->error);
}

static hw_status try_order(struct desk *desk, const struct fixture_column *columns,
                           uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                           const struct order *order) {
    struct ArrowArrayStream stream;
    uint64_t taken_count = 0;
    fixture_stream(&stream, columns, column_count, row_count, chunk_rows);
    hw_status status = order_stream(desk, &stream, column_count, order, &taken_count);
    stream.release(&stream);
    assert_true(status != HW_OK || taken_count == row_count);
    return status;
}

static hw_ordered *open_rows(struct desk *desk) {
    hw_ordered *rows = NULL;
    fixture_check(hw_ordered_open(desk->path, &rows, &desk->error), &desk->error, "open");
    return rows;
}

/* The rows of a table in an order. */
static hw_ordered *put_in_order(struct desk *desk, const struct fixture_column *columns,
                                uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                                const struct order *order) {
    fixture_check(try_order(desk, columns, column_count, row_count, chunk_rows, order),
                  &desk->error, "order");
    hw_ordered *rows = open_rows(desk);
    assert_int_equal(hw_ordered_column_count(rows), column_count + 1);
    return rows;
}

/* Columns as they were read from a stream: 64 bits of a value each, and whether there is one. */
struct found {
    uint64_t row_count, piece_count;
    uint32_t column_count;
    char formats[MOST_COLUMNS + 1];
    uint64_t *values[MOST_COLUMNS];
    uint8_t *valid[MOST_COLUMNS];
};

static void free_found(struct found *found) {
    for (uint32_t c = 0; c < MOST_COLUMNS; c++) {
        free(found->values[c]);
        free(found->valid[c]);
    }
}

static uint64_t value_at(char format, const uint8_t *values, uint64_t i) {
    switch (format) {
    case 'b':
        return (uint64_t)hwi_bit(values, i);
    case 'i':
        return (uint64_t)(int64_t)(int32_t)hwi_read_u32(values + 4 * i);
    default:
        return hwi_read_u64(values + 8 * i);
    }
}

static void read_column(struct found *found, uint32_t c, const struct ArrowArray *column) {
    uint64_t count = (uint64_t)column->length, end = found->row_count + count;
    const uint8_t *validity = column->buffers[0];
    assert_int_equal(column->n_buffers, 2);
    assert_int_equal(column->offset, 0);
    assert_true(column->null_count == (validity == NULL ? 0 : -1));
    found->values[c] = realloc(found->values[c], end * sizeof *found->values[c]);
    found->valid[c] = realloc(found->valid[c], end);
    for (uint64_t i = 0; i < count; i++) {
        found->valid[c][found->row_count + i] =
            (uint8_t)(validity == NULL || hwi_bit(validity, i) != 0);
        found->values[c][found->row_count + i] = value_at(found->formats[c], column->buffers[1], i);
    }
}

static void read_schema(struct found *found, struct ArrowArrayStream *stream) {
    struct ArrowSchema schema;
    assert_int_equal(stream->get_schema(stream, &schema), 0);
    assert_string_equal(schema.format, "+s");
    found->column_count = (uint32_t)schema.n_children;
    assert_in_range(found->column_count, 0, MOST_COLUMNS);
    for (uint32_t c = 0; c < found->column_count; c++) {
        char name[16];
        snprintf(name, sizeof name, "c%u", c);
        assert_string_equal(schema.children[c]->name, name);
        assert_int_equal(schema.children[c]->flags, 2);
        found->formats[c] = schema.children[c]->format[0];
    }
    schema.release(&schema);
    assert_null(schema.release);
}

/* Reads a stream to its end and releases it. */
static struct found read_stream(struct ArrowArrayStream *stream) {
    struct found found = {0};
    struct ArrowArray piece;
    read_schema(&found, stream);
    for (;;) {
        assert_int_equal(stream->get_next(stream, &piece), 0);
        if (piece.release == NULL) {
            break;
        }
        assert_int_equal(piece.n_children, found.column_count);
        assert_in_range(piece.length, 1, PIECE_ROWS);
        for (uint32_t c = 0; c < found.column_count; c++) {
            assert_int_equal(piece.children[c]->length, piece.length);
            read_column(&found, c, piece.children[c]);
        }
        found.row_count += (uint64_t)piece.length;
        found.piece_count++;
        piece.release(&piece);
        assert_null(piece.release);
    }
    stream->release(stream);
    assert_null(stream->release);
    return found;
}

static struct found read_columns(hw_ordered *rows, const uint32_t *columns, uint32_t count) {
    struct ArrowArrayStream stream;
    hw_error error = {.message = ""};
    fixture_check(hw_ordered_stream(rows, columns, count, &stream, &error), &error, "stream");
    return read_stream(&stream);
}

static struct found read_all(hw_ordered *rows) {
    uint32_t columns[MOST_COLUMNS];
    uint32_t count = hw_ordered_column_count(rows);
    assert_in_range(count, 1, MOST_COLUMNS);
    for (uint32_t c = 0; c < count; c++) {
        columns[c] = c;
    }
    return read_columns(rows, columns, count);
}

/* The row numbers stand behind the columns. */
static void assert_numbered(const struct found *found) {
    uint32_t last = found->column_count - 1;
    assert_int_equal(found->formats[last], 'l');
    for (uint64_t i = 0; i < found->row_count; i++) {
        assert_int_equal(found->values[last][i], i);
        assert_true(found->valid[last][i]);
    }
}

/* ---- by hand ----------------------------------------------------------------------------- */

#define ROWS(array) (sizeof(array) / sizeof *(array))

/* Orders the columns; the last one, which decides nothing, tells in which order rows came out. */
static void assert_order(struct desk *desk, const struct fixture_column *columns,
                         uint32_t column_count, uint64_t row_count, const struct order *order,
                         const int32_t *expected) {
    for (uint64_t chunk_rows = 0; chunk_rows <= row_count; chunk_rows++) {
        hw_ordered *rows = put_in_order(desk, columns, column_count, row_count, chunk_rows, order);
        struct found found = read_all(rows);
        assert_int_equal(found.row_count, row_count);
        for (uint64_t i = 0; i < row_count; i++) {
            assert_int_equal((int64_t)found.values[column_count - 1][i], expected[i]);
        }
        assert_numbered(&found);
        free_found(&found);
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
        hw_ordered *rows = put_in_order(desk, columns, 5, 4, 3, &(struct order){1, {4}, {0}});
        struct found found = read_all(rows);
        assert_string_equal(found.formats, "bilgll");
        assert_numbered(&found);
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
        free_found(&found);
        hw_ordered_close(rows);
    }
}

static void no_rows_and_one_row_are_in_order(void **state) {
    struct desk *desk = *state;
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){7}, NULL},
                                             {"b", "b", (uint8_t[]){1}, (uint8_t[]){0}}};
    for (uint64_t row_count = 0; row_count < 2; row_count++) {
        hw_ordered *rows =
            put_in_order(desk, columns, 2, row_count, 0, &(struct order){1, {0}, {0}});
        struct found found = read_all(rows);
        assert_int_equal(found.row_count, row_count);
        assert_int_equal(found.piece_count, row_count);
        assert_string_equal(found.formats, "lbl");
        assert_numbered(&found);
        free_found(&found);
        hw_ordered_close(rows);
    }
}

static void a_table_without_columns_has_row_numbers(void **state) {
    struct desk *desk = *state;
    hw_ordered *rows = put_in_order(desk, NULL, 0, 3, 2, &(struct order){0});
    struct found found = read_all(rows);
    assert_int_equal(found.row_count, 3);
    assert_numbered(&found);
    free_found(&found);
    hw_ordered_close(rows);
}

/* ---- many rows --------------------------------------------------------------------------- */

/* A table of random numbers. */
struct numbers {
    uint32_t column_count, row_count;
    const char *formats[MOST_COLUMNS];
    uint64_t *values[MOST_COLUMNS]; /* as they are compared */
    void *given[MOST_COLUMNS]; /* as the format has them */
    uint8_t *valid[MOST_COLUMNS];
    struct fixture_column columns[MOST_COLUMNS];
};

/* Few values, so that ties are common; many; or far apart in steps of some size. */
static int64_t draw(struct hwi_rng *rng, uint32_t kind) {
    uint64_t wide = (uint64_t)hwi_rng_next(rng) << 32 | hwi_rng_next(rng);
    switch (kind) {
    case 0:
        return (int64_t)(wide % 5) - 2;
    case 1:
        return (int64_t)(wide % 70000) - 35000;
    case 2:
        return ((int64_t)(wide % 1000) - 500) * 86400000000;
    case 3:
        return (int64_t)(wide % 100000) * 3 << 30;
    default:
        return (int64_t)wide;
    }
}

static void fill_column(struct numbers *table, uint32_t c, uint32_t number, struct hwi_rng *rng) {
    static const char *const formats[] = {"b", "i", "l", "g"};
    char format = formats[number][0];
    uint32_t kind = hwi_rng_next(rng) % 5, nulls = hwi_rng_next(rng) % 3;
    uint32_t row_count = table->row_count;
    table->formats[c] = formats[number];
    table->values[c] = calloc(row_count + 1, 8);
    table->given[c] = calloc(row_count + 1, 8);
    table->valid[c] = calloc(row_count + 1, 1);
    for (uint32_t i = 0; i < row_count; i++) {
        int64_t value = draw(rng, kind);
        value = format == 'b' ? value & 1 : format == 'i' ? (int32_t)value : value;
        table->values[c][i] = (uint64_t)value;
        table->valid[c][i] = nulls == 0 || hwi_rng_next(rng) % (nulls == 1 ? 3 : 40) > 0;
        if (format == 'b') {
            ((uint8_t *)table->given[c])[i] = (uint8_t)value;
        } else if (format == 'i') {
            ((int32_t *)table->given[c])[i] = (int32_t)value;
        } else {
            ((int64_t *)table->given[c])[i] = value;
        }
    }
    table->columns[c] =
        (struct fixture_column){"c", table->formats[c], table->given[c], table->valid[c]};
}

static struct numbers random_numbers(struct hwi_rng *rng, uint32_t row_count) {
    struct numbers table = {.row_count = row_count};
    table.column_count = 1 + hwi_rng_next(rng) % (MOST_COLUMNS - 1);
    for (uint32_t c = 0; c < table.column_count; c++) {
        fill_column(&table, c, hwi_rng_next(rng) % 4, rng);
    }
    return table;
}

static void free_numbers(struct numbers *table) {
    for (uint32_t c = 0; c < table->column_count; c++) {
        free(table->values[c]);
        free(table->given[c]);
        free(table->valid[c]);
    }
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
    assert_numbered(found);
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
        hw_ordered *rows = put_in_order(desk, table.columns, table.column_count, table.row_count,
                                        chunk_rows, &order);
        struct found found = read_all(rows);
        assert_sorted(&table, &order, &found);
        free_found(&found);
        hw_ordered_close(rows);
        free_numbers(&table);
    }
}

/* Of keys of all widths, bools and NULLs: 3 pieces, the last of an odd number of rows. */
static struct numbers many_numbers(void) {
    struct hwi_rng rng = hwi_rng_make(12, 0, 0, 0);
    struct numbers table = {.row_count = 2 * PIECE_ROWS + 12345, .column_count = 5};
    for (uint32_t c = 0; c < 5; c++) {
        fill_column(&table, c, (const uint32_t[]){2, 0, 1, 3, 2}[c], &rng);
    }
    return table;
}

static const struct order many_order = {2, {2, 0}, {0, 1}};

static void more_rows_than_a_piece_are_shown_in_pieces(void **state) {
    struct desk *desk = *state;
    struct numbers table = many_numbers();
    hw_ordered *rows = put_in_order(desk, table.columns, 5, table.row_count, 100000, &many_order);
    struct found found = read_all(rows);
    assert_int_equal(found.piece_count, 3);
    assert_sorted(&table, &many_order, &found);
    free_found(&found);
    hw_ordered_close(rows);
    free_numbers(&table);
}

/* The rows of one file are the stream of the next: sorted already, and with buffers of this kind.
 */
static void rows_in_order_are_written_as_they_are(void **state) {
    struct desk *desk = *state;
    struct numbers table = many_numbers();
    struct ArrowArrayStream stream;
    uint64_t row_count = 0;
    size_t first_bytes = 0, second_bytes = 0;
    hw_ordered *rows = put_in_order(desk, table.columns, 5, table.row_count, 0, &many_order);
    uint8_t *first = damage_read_file(desk->path, &first_bytes);
    unlink(desk->path); /* what is mapped stays */
    fixture_check(hw_ordered_stream(rows, (uint32_t[]){0, 1, 2, 3, 4}, 5, &stream, &desk->error),
                  &desk->error, "stream");
    hw_ordered_close(rows);
    assert_int_equal(order_stream(desk, &stream, 5, &many_order, &row_count), HW_OK);
    stream.release(&stream);
    uint8_t *second = damage_read_file(desk->path, &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
    free_numbers(&table);
}

/* ---- streams ----------------------------------------------------------------------------- */

static hw_ordered *three_rows(struct desk *desk) {
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){3, 1, 2}, NULL},
                                             {"b", "b", (uint8_t[]){1, 1, 0}, (uint8_t[]){1, 0, 1}},
                                             {"g", "g", (double[]){3, 1, 2}, NULL}};
    return put_in_order(desk, columns, 3, 3, 0, &(struct order){1, {0}, {0}});
}

static void a_stream_has_the_columns_asked_for_in_their_order(void **state) {
    hw_ordered *rows = three_rows(*state);
    struct found found = read_columns(rows, (uint32_t[]){3, 1, 0, 0}, 4);
    assert_string_equal(found.formats, "lbll");
    const uint64_t keys[] = {1, 2, 3}, numbers[] = {0, 1, 2};
    assert_memory_equal(found.values[0], numbers, sizeof numbers);
    assert_memory_equal(found.values[2], keys, sizeof keys);
    assert_memory_equal(found.values[3], keys, sizeof keys);
    assert_memory_equal(found.valid[1], ((const uint8_t[]){0, 1, 1}), 3);
    free_found(&found);
    found = read_columns(rows, NULL, 0);
    assert_int_equal(found.row_count, 3);
    assert_int_equal(found.column_count, 0);
    hw_ordered_close(rows);
}

/* As the interface lets a consumer do that wants one of them. */
static void a_columns_schema_outlives_that_of_the_stream(void **state) {
    hw_ordered *rows = three_rows(*state);
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    assert_int_equal(hw_ordered_stream(rows, (uint32_t[]){1, 2}, 2, &stream, NULL), HW_OK);
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    struct ArrowSchema column = *schema.children[1];
    schema.children[1]->release = NULL;
    schema.release(&schema);
    stream.release(&stream);
    hw_ordered_close(rows);
    assert_string_equal(column.name, "c1");
    assert_string_equal(column.format, "g");
    column.release(&column);
    assert_null(column.release);
}

static void columns_that_are_not_there_are_refused(void **state) {
    struct desk *desk = *state;
    hw_ordered *rows = three_rows(desk);
    static const uint32_t numbers[] = {4, UINT32_MAX};
    for (size_t i = 0; i < ROWS(numbers); i++) {
        struct ArrowArrayStream stream;
        assert_int_equal(
            hw_ordered_stream(rows, (uint32_t[]){0, numbers[i]}, 2, &stream, &desk->error),
            HW_BAD_ARGUMENT);
        assert_null(stream.release);
        assert_non_null(strstr(desk->error.message, "of rows in order, which have 4"));
    }
    hw_ordered_close(rows);
    hw_ordered_close(NULL);
}

/* Columns that were moved out of their pieces outlive those, the stream, the handle, the file. */
static void columns_are_released_in_any_order(void **state) {
    struct desk *desk = *state;
    struct numbers table = many_numbers();
    struct ArrowArrayStream stream;
    struct ArrowArray columns[3][6];
    hw_ordered *rows = put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0});
    fixture_check(hw_ordered_stream(rows, (uint32_t[]){0, 1, 2, 3, 4, 5}, 6, &stream, &desk->error),
                  &desk->error, "stream");
    hw_ordered_close(rows);
    for (uint32_t p = 0; p < 3; p++) {
        struct ArrowArray piece;
        assert_int_equal(stream.get_next(&stream, &piece), 0);
        for (uint32_t c = 0; c < 6; c++) {
            columns[p][c] = *piece.children[c];
            piece.children[c]->release = NULL;
        }
        piece.release(&piece);
    }
    stream.release(&stream);
    unlink(desk->path);
    for (uint32_t step = 0; step < 18; step++) {
        struct ArrowArray *column = &columns[step * 7 % 18 / 6][step * 7 % 18 % 6];
        uint64_t first = (uint64_t)(step * 7 % 18 / 6) * PIECE_ROWS;
        if (step * 7 % 18 % 6 == 5) {
            assert_int_equal(hwi_read_u64(column->buffers[1]), first);
        } else if (step * 7 % 18 % 6 == 0) {
            assert_int_equal(hwi_read_u64(column->buffers[1]), table.values[0][first]);
        }
        column->release(column);
        assert_null(column->release);
    }
    free_numbers(&table);
}

/* A stream that is let go of half-way, and one of which nothing is read. */
static void a_stream_need_not_be_read_to_its_end(void **state) {
    struct desk *desk = *state;
    struct numbers table = many_numbers();
    struct ArrowArrayStream streams[2];
    struct ArrowArray piece;
    hw_ordered *rows = put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0});
    for (uint32_t s = 0; s < 2; s++) {
        fixture_check(hw_ordered_stream(rows, (uint32_t[]){1, 5}, 2, &streams[s], &desk->error),
                      &desk->error, "stream");
    }
    hw_ordered_close(rows);
    assert_int_equal(streams[0].get_next(&streams[0], &piece), 0);
    streams[0].release(&streams[0]);
    streams[1].release(&streams[1]);
    assert_int_equal(hwi_read_u64(piece.children[1]->buffers[1]), 0);
    piece.release(&piece);
    free_numbers(&table);
}

enum { THREADS = 4, ROUNDS = 20 };

struct crew {
    hw_ordered *rows;
    pthread_barrier_t barrier;
    struct ArrowArray columns[THREADS][3][2]; /* of the pieces that each has read */
};

struct hand {
    struct crew *crew;
    uint32_t number;
    uint64_t wrong_count;
    pthread_t thread;
};

static void take_pieces(struct hand *hand) {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    hand->wrong_count +=
        hw_ordered_stream(hand->crew->rows, (uint32_t[]){5, 0}, 2, &stream, NULL) != HW_OK;
    hand->wrong_count += stream.get_schema(&stream, &schema) != 0;
    schema.release(&schema);
    for (uint32_t p = 0; p < 3; p++) {
        struct ArrowArray piece;
        hand->wrong_count += stream.get_next(&stream, &piece) != 0;
        for (uint32_t c = 0; c < 2; c++) {
            hand->crew->columns[hand->number][p][c] = *piece.children[c];
            piece.children[c]->release = NULL;
        }
        piece.release(&piece);
    }
    stream.release(&stream);
}

/* What the neighbour took. */
static void check_and_release(struct hand *hand) {
    uint32_t neighbour = (hand->number + 1) % THREADS;
    for (uint32_t p = 0; p < 3; p++) {
        for (uint32_t c = 0; c < 2; c++) {
            struct ArrowArray *column = &hand->crew->columns[neighbour][p][c];
            uint64_t last = (uint64_t)column->length - 1;
            const uint8_t *values = column->buffers[1];
            if (c == 0 && hwi_read_u64(values + 8 * last) != p * (uint64_t)PIECE_ROWS + last) {
                hand->wrong_count++;
            }
            column->release(column);
        }
    }
}

static void *work(void *argument) {
    struct hand *hand = argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        take_pieces(hand);
        pthread_barrier_wait(&hand->crew->barrier);
        check_and_release(hand);
        pthread_barrier_wait(&hand->crew->barrier);
    }
    take_pieces(hand);
    pthread_barrier_wait(&hand->crew->barrier);
    check_and_release(hand); /* while the handle is closed */
    return NULL;
}

static void threads_read_and_release_the_same_rows(void **state) {
    struct desk *desk = *state;
    struct numbers table = many_numbers();
    struct crew crew = {
        .rows = put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0})};
    struct hand hands[THREADS];
    assert_int_equal(pthread_barrier_init(&crew.barrier, NULL, THREADS + 1), 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        hands[t] = (struct hand){.crew = &crew, .number = t};
        assert_int_equal(pthread_create(&hands[t].thread, NULL, work, &hands[t]), 0);
    }
    for (uint32_t meeting = 0; meeting < 2 * ROUNDS + 1; meeting++) {
        pthread_barrier_wait(&crew.barrier);
    }
    hw_ordered_close(crew.rows);
    for (uint32_t t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(hands[t].thread, NULL), 0);
        assert_int_equal(hands[t].wrong_count, 0);
    }
    pthread_barrier_destroy(&crew.barrier);
    free_numbers(&table);
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
            try_order(desk, columns, 3, 2, 0, &(struct order){2, {0, wrong[i]}, {0, 0}});
        assert_not_ordered(desk, status, HW_BAD_ARGUMENT, message);
    }
}

static void other_formats_and_numbers_of_columns_are_refused(void **state) {
    struct desk *desk = *state;
    const struct fixture_column texts[] = {{"u", "u", (const char *[]){"a", "b"}, NULL}};
    const struct fixture_column wide[] = {{"L", "L", (uint64_t[]){1, 2}, NULL}};
    struct ArrowArrayStream stream;
    uint64_t row_count = 0;
    assert_not_ordered(desk, try_order(desk, texts, 1, 2, 0, &(struct order){0}), HW_BAD_SOURCE,
                       "has Arrow format 'u', expected one of 'bilg'");
    assert_not_ordered(desk, try_order(desk, wide, 1, 2, 0, &(struct order){0}), HW_BAD_SOURCE,
                       "has Arrow format 'L', expected one of 'bilg'");
    fixture_stream(&stream, wide, 1, 2, 0);
    hw_status status = order_stream(desk, &stream, 2, &(struct order){0}, &row_count);
    assert_not_ordered(desk, status, HW_BAD_SOURCE, "has 1 columns, expected 2");
    stream.release(&stream);
    status = order_stream(desk, &stream, 2, &(struct order){0}, &row_count);
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
        hw_status status = order_stream(desk, &stream, 1, &(struct order){1, {0}, {0}}, &row_count);
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
    hw_status status = try_order(desk, &column, 1, 3, 0, &(struct order){0});
    assert_not_ordered(desk, status, HW_IO, "absent");
    free(desk->path);
    desk->path = whole;
    assert_int_equal(mkdir(desk->path, 0755), 0); /* a folder is in the way */
    assert_int_equal(try_order(desk, &column, 1, 3, 0, &(struct order){0}), HW_IO);
    assert_non_null(strstr(desk->error.message, "cannot create"));
    assert_int_equal(rmdir(desk->path), 0);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, open_desk, close_desk)

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
        ON(a_stream_has_the_columns_asked_for_in_their_order),
        ON(a_columns_schema_outlives_that_of_the_stream),
        ON(columns_that_are_not_there_are_refused),
        ON(columns_are_released_in_any_order),
        ON(a_stream_need_not_be_read_to_its_end),
        ON(threads_read_and_release_the_same_rows),
        ON(an_order_by_other_columns_is_refused),
        ON(other_formats_and_numbers_of_columns_are_refused),
        ON(a_stream_that_fails_leaves_no_file),
        ON(a_path_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
