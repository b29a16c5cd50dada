#define _XOPEN_SOURCE 700

#include "ordered_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"

int desk_open(void **state) {
    struct desk *desk = calloc(1, sizeof *desk);
    assert_non_null(desk);
    desk->directory = fixture_directory();
    desk->path = fixture_path(desk->directory, "rows");
    *state = desk;
    return 0;
}

int desk_close(void **state) {
    struct desk *desk = *state;
    unlink(desk->path);
    assert_int_equal(rmdir(desk->directory), 0); /* nothing else may have been left */
    free(desk->directory);
    free(desk->path);
    free(desk);
    return 0;
}

hw_status desk_order_stream(struct desk *desk, struct ArrowArrayStream *stream,
                            uint32_t column_count, const struct order *order, uint64_t *row_count) {
    hw_ordering ordering = {sizeof ordering, order->columns, order->nulls_first, order->count};
    desk->error = (hw_error){.message = ""};
    return hw_order_rows(desk->path, stream, column_count, &ordering, row_count, &desk->error);
}

hw_status desk_try_order(struct desk *desk, const struct fixture_column *columns,
                         uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                         const struct order *order) {
    struct ArrowArrayStream stream;
    uint64_t taken_count = 0;
    fixture_stream(&stream, columns, column_count, row_count, chunk_rows);
    hw_status status = desk_order_stream(desk, &stream, column_count, order, &taken_count);
    stream.release(&stream);
    assert_true(status != HW_OK || taken_count == row_count);
    return status;
}

hw_ordered *desk_open_rows(struct desk *desk) {
    hw_ordered *rows = NULL;
    fixture_check(hw_ordered_open(desk->path, &rows, &desk->error), &desk->error, "open");
    return rows;
}

hw_ordered *desk_put_in_order(struct desk *desk, const struct fixture_column *columns,
                              uint32_t column_count, uint64_t row_count, uint64_t chunk_rows,
                              const struct order *order) {
    fixture_check(desk_try_order(desk, columns, column_count, row_count, chunk_rows, order),
                  &desk->error, "order");
    hw_ordered *rows = desk_open_rows(desk);
    assert_int_equal(hw_ordered_column_count(rows), column_count + 1);
    return rows;
}

void found_free(struct found *found) {
    for (uint32_t c = 0; c < MOST_COLUMNS; c++) {
        free(found->values[c]);
        free(found->valid[c]);
    }
}

uint64_t ordered_value(char format, const uint8_t *values, uint64_t i) {
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
        found->values[c][found->row_count + i] =
            ordered_value(found->formats[c], column->buffers[1], i);
    }
}

static void read_schema(struct found *found, struct ArrowArrayStream *stream) {
    struct ArrowSchema schema;
    assert_int_equal(stream->get_schema(stream, &schema), 0);
    assert_string_equal(schema.format, "+s");
    found->column_count = (uint32_t)schema.n_children;
    assert_true(found->column_count <= MOST_COLUMNS);
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

struct found found_in_stream(struct ArrowArrayStream *stream) {
    struct found found = {0};
    struct ArrowArray piece;
    read_schema(&found, stream);
    for (;;) {
        assert_int_equal(stream->get_next(stream, &piece), 0);
        if (piece.release == NULL) {
            break;
        }
        assert_int_equal(piece.n_children, found.column_count);
        assert_true(piece.length >= 1 && piece.length <= PIECE_ROWS);
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

struct found found_in_columns(hw_ordered *rows, const uint32_t *columns, uint32_t count) {
    struct ArrowArrayStream stream;
    hw_error error = {.message = ""};
    fixture_check(hw_ordered_stream(rows, columns, count, &stream, &error), &error, "stream");
    return found_in_stream(&stream);
}

struct found found_in_rows(hw_ordered *rows) {
    uint32_t columns[MOST_COLUMNS];
    uint32_t count = hw_ordered_column_count(rows);
    assert_true(count >= 1 && count <= MOST_COLUMNS);
    for (uint32_t c = 0; c < count; c++) {
        columns[c] = c;
    }
    return found_in_columns(rows, columns, count);
}

void found_assert_numbered(const struct found *found) {
    uint32_t last = found->column_count - 1;
    assert_int_equal(found->formats[last], 'l');
    for (uint64_t i = 0; i < found->row_count; i++) {
        assert_int_equal(found->values[last][i], i);
        assert_true(found->valid[last][i]);
    }
}

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

void numbers_fill(struct numbers *table, uint32_t c, uint32_t number, struct hwi_rng *rng) {
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

struct numbers numbers_many(void) {
    struct hwi_rng rng = hwi_rng_make(12, 0, 0, 0);
    struct numbers table = {.row_count = 2 * PIECE_ROWS + 12345, .column_count = 5};
    for (uint32_t c = 0; c < 5; c++) {
        numbers_fill(&table, c, (const uint32_t[]){2, 0, 1, 3, 2}[c], &rng);
    }
    return table;
}

void numbers_free(struct numbers *table) {
    for (uint32_t c = 0; c < table->column_count; c++) {
        free(table->values[c]);
        free(table->given[c]);
        free(table->valid[c]);
    }
}
