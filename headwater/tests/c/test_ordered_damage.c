/*
 * Files of rows in order that are damaged: each is refused with a message, or what it says lies
 * within it and can be read.
 */
#define _XOPEN_SOURCE 700

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
#include "ordered_desk.h"

static void write_columns(struct desk *desk, const struct fixture_column *columns,
                          uint32_t column_count, uint64_t row_count) {
    fixture_check(desk_try_order(desk, columns, column_count, row_count, 0, &(struct order){0}),
                  &desk->error, "order");
}

static void write_three_rows(struct desk *desk) {
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){3, 1, 2}, NULL},
                                             {"b", "b", (uint8_t[]){1, 1, 0}, (uint8_t[]){1, 0, 1}},
                                             {"g", "g", (double[]){3, 1, 2}, NULL}};
    write_columns(desk, columns, 3, 3);
}

static void assert_unreadable(const char *path) {
    hw_ordered *rows = NULL;
    hw_error error = {.message = ""};
    assert_int_equal(hw_ordered_open(path, &rows, &error), HW_IO);
    assert_int_equal(error.status, HW_IO);
    assert_non_null(strstr(error.message, path));
    assert_null(rows);
}

/* What a file says of its columns must lie within it; then all of it is read. */
static void read_what_is_left(hw_ordered *rows, const uint8_t *file, size_t bytes) {
    struct hwi_ordered_header header;
    uint64_t sum = 0;
    memcpy(&header, file, sizeof header);
    assert_int_equal(header.bytes, bytes);
    assert_int_equal(hw_ordered_column_count(rows), header.column_count);
    for (uint32_t c = 0; c < header.column_count; c++) {
        struct hwi_ordered_column column;
        struct ArrowArrayStream stream;
        struct ArrowArray piece;
        memcpy(&column, file + sizeof header + c * sizeof column, sizeof column);
        uint64_t value_bits = column.format == 'b' ? 1 : column.format == 'i' ? 32 : 64;
        uint64_t value_bytes = (header.row_count * value_bits + 7) / 8;
        assert_true(column.values <= bytes);
        assert_true(value_bytes <= bytes - column.values);
        assert_true(column.validity <= bytes);
        assert_true((header.row_count + 7) / 8 <= bytes - column.validity);
        assert_int_equal(hw_ordered_stream(rows, &c, 1, &stream, NULL), HW_OK);
        while (stream.get_next(&stream, &piece) == 0 && piece.release != NULL) {
            const uint8_t *validity = piece.children[0]->buffers[0];
            for (uint64_t i = 0; i < (uint64_t)piece.length; i++) {
                sum += ordered_value((char)column.format, piece.children[0]->buffers[1], i);
                sum += validity != NULL && hwi_bit(validity, i);
            }
            piece.release(&piece);
        }
        stream.release(&stream);
    }
    volatile uint64_t kept = sum;
    (void)kept;
}

/* Opens a file of these bytes; 1 if it was accepted. */
static int open_damaged(struct desk *desk, const uint8_t *file, size_t bytes) {
    hw_ordered *rows = NULL;
    damage_write_file(desk->path, file, bytes);
    hw_status status = hw_ordered_open(desk->path, &rows, &desk->error);
    if (status == HW_OK) {
        read_what_is_left(rows, file, bytes);
        hw_ordered_close(rows);
        return 1;
    }
    assert_int_equal(status, HW_IO);
    assert_non_null(strstr(desk->error.message, "is not as it was written"));
    return 0;
}

/* Every bit and some whole bytes of the header and the columns' infos. */
static void damage_every_byte(struct desk *desk, uint32_t column_count) {
    size_t bytes = 0, head_bytes = sizeof(struct hwi_ordered_header) +
                                   (column_count + 1) * sizeof(struct hwi_ordered_column);
    uint8_t *file = damage_read_file(desk->path, &bytes);
    uint32_t refused_count = 0;
    for (size_t at = 0; at < head_bytes; at++) {
        uint8_t whole = file[at];
        for (uint32_t kind = 0; kind < 14; kind++) {
            file[at] = kind < 8 ? (uint8_t)(whole ^ 1u << kind)
                                : (uint8_t) "\0\xff"
                                            "bilg"[kind - 8];
            refused_count += !open_damaged(desk, file, bytes);
        }
        file[at] = whole;
    }
    assert_true(refused_count > 100);
    assert_int_equal(open_damaged(desk, file, bytes), 1);
    free(file);
}

/* The second one fills its page, so that what lies behind is not mapped. */
static void a_file_with_a_changed_head_is_refused_or_safe(void **state) {
    struct desk *desk = *state;
    struct stat info;
    write_three_rows(desk);
    damage_every_byte(desk, 3);
    static const int64_t keys[248];
    const struct fixture_column column = {"k", "l", keys, NULL};
    write_columns(desk, &column, 1, 248);
    assert_int_equal(stat(desk->path, &info), 0);
    assert_int_equal(info.st_size, 4096);
    damage_every_byte(desk, 1);
}

static void a_file_of_another_length_is_refused(void **state) {
    struct desk *desk = *state;
    size_t bytes = 0;
    write_three_rows(desk);
    uint8_t *file = damage_read_file(desk->path, &bytes);
    uint8_t *longer = calloc(1, bytes + 1);
    memcpy(longer, file, bytes);
    for (size_t length = 0; length < bytes; length++) {
        damage_write_file(desk->path, file, length);
        assert_unreadable(desk->path);
    }
    damage_write_file(desk->path, longer, bytes + 1);
    assert_unreadable(desk->path);
    /* Cut, and the header says so: columns that lie behind the end. */
    for (size_t length = sizeof(struct hwi_ordered_header); length < bytes; length++) {
        hwi_write_u64(file + 8, length);
        open_damaged(desk, file, length);
    }
    free(longer);
    free(file);
}

static void what_is_no_file_is_refused(void **state) {
    struct desk *desk = *state;
    assert_unreadable(desk->path);
    assert_unreadable(desk->directory);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(a_file_with_a_changed_head_is_refused_or_safe),
        ON(a_file_of_another_length_is_refused),
        ON(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
