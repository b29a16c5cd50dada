/*
 * Rows put in order for the tests: a folder to write them in, what is read back of them, and tables
 * of random numbers.
 */
#ifndef ORDERED_DESK_H
#define ORDERED_DESK_H

#include <stddef.h>
#include <stdint.h>

#include "fixtures.h"
#include "ordered.h"
#include "rng.h"

#define ROWS(array) (sizeof(array) / sizeof *(array))

enum { MOST_COLUMNS = 8, PIECE_ROWS = 65536 };

/* A folder and the file in it that rows are written to. */
struct desk {
    char *directory, *path;
    hw_error error;
};

/* For a test's set-up and tear-down; the second asserts that only the file was left. */
int desk_open(void **state);
int desk_close(void **state);

/* ---- orders in --------------------------------------------------------------------------- */

/* Columns that decide the order, each with where its NULLs go. */
struct order {
    uint32_t count;
    uint32_t columns[MOST_COLUMNS];
    uint8_t nulls_first[MOST_COLUMNS];
};

/* Orders the rows of a stream, which stays the caller's to release. */
hw_status desk_order_stream(struct desk *desk, struct ArrowArrayStream *stream,
                            uint32_t column_count, const struct order *order, uint64_t *row_count);

/* Orders the rows of a table, given in pieces of chunk_rows rows; 0: in one. */
hw_status desk_try_order(struct desk *desk, const struct fixture_column *columns,
                         uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                         const struct order *order);

/* What was written; the caller closes it. */
hw_ordered *desk_open_rows(struct desk *desk);

/* The rows of a table in an order; the caller closes them. */
hw_ordered *desk_put_in_order(struct desk *desk, const struct fixture_column *columns,
                              uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                              const struct order *order);

/* ---- rows out ---------------------------------------------------------------------------- */

/* Columns as they were read from a stream: 64 bits of a value each, and whether there is one. */
struct found {
    uint64_t row_count, piece_count;
    uint32_t column_count;
    char formats[MOST_COLUMNS + 1];
    uint64_t *values[MOST_COLUMNS];
    uint8_t *valid[MOST_COLUMNS];
};

/* 64 bits of the value at i of a column of this format; integers as their sign has them. */
uint64_t ordered_value(char format, const uint8_t *values, uint64_t i);

/* Reads a stream to its end and releases it; the caller frees what was found. */
struct found found_in_stream(struct ArrowArrayStream *stream);
struct found found_in_columns(hw_ordered *rows, const uint32_t *columns, uint32_t count);
struct found found_in_rows(hw_ordered *rows); /* all of their columns */
void found_free(struct found *found);

/* The row numbers stand behind the columns. */
void found_assert_numbered(const struct found *found);

/* ---- random numbers ---------------------------------------------------------------------- */

/* A table of random numbers. */
struct numbers {
    uint32_t column_count, row_count;
    const char *formats[MOST_COLUMNS];
    uint64_t *values[MOST_COLUMNS]; /* as they are compared */
    void *given[MOST_COLUMNS]; /* as the format has them */
    uint8_t *valid[MOST_COLUMNS];
    struct fixture_column columns[MOST_COLUMNS];
};

/* Fills column c of a table with row_count rows; number: of the format among b, i, l and g. */
void numbers_fill(struct numbers *table, uint32_t c, uint32_t number, struct hwi_rng *rng);

/* Of keys of all widths, bools and NULLs: 5 columns, 3 pieces, the last of an odd number of rows.
 */
struct numbers numbers_many(void);

void numbers_free(struct numbers *table);

#endif
