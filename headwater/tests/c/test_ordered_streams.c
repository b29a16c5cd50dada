/*
 * What streams of rows in order show, in several threads too: the columns asked for, whose parts
 * are let go of in any order.
 */
#define _XOPEN_SOURCE 700

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "ordered_desk.h"

static hw_ordered *three_rows(struct desk *desk) {
    const struct fixture_column columns[] = {{"k", "l", (int64_t[]){3, 1, 2}, NULL},
                                             {"b", "b", (uint8_t[]){1, 1, 0}, (uint8_t[]){1, 0, 1}},
                                             {"g", "g", (double[]){3, 1, 2}, NULL}};
    return desk_put_in_order(desk, columns, 3, 3, 0, &(struct order){1, {0}, {0}});
}

static void a_stream_has_the_columns_asked_for_in_their_order(void **state) {
    hw_ordered *rows = three_rows(*state);
    struct found found = found_in_columns(rows, (uint32_t[]){3, 1, 0, 0}, 4);
    assert_string_equal(found.formats, "lbll");
    const uint64_t keys[] = {1, 2, 3}, numbers[] = {0, 1, 2};
    assert_memory_equal(found.values[0], numbers, sizeof numbers);
    assert_memory_equal(found.values[2], keys, sizeof keys);
    assert_memory_equal(found.values[3], keys, sizeof keys);
    assert_memory_equal(found.valid[1], ((const uint8_t[]){0, 1, 1}), 3);
    found_free(&found);
    found = found_in_columns(rows, NULL, 0);
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
    struct numbers table = numbers_many();
    struct ArrowArrayStream stream;
    struct ArrowArray columns[3][6];
    hw_ordered *rows =
        desk_put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0});
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
    numbers_free(&table);
}

/* A stream that is let go of half-way, and one of which nothing is read. */
static void a_stream_need_not_be_read_to_its_end(void **state) {
    struct desk *desk = *state;
    struct numbers table = numbers_many();
    struct ArrowArrayStream streams[2];
    struct ArrowArray piece;
    hw_ordered *rows =
        desk_put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0});
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
    numbers_free(&table);
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
    struct numbers table = numbers_many();
    struct crew crew = {
        .rows = desk_put_in_order(desk, table.columns, 5, table.row_count, 0, &(struct order){0})};
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
    numbers_free(&table);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(a_stream_has_the_columns_asked_for_in_their_order),
        ON(a_columns_schema_outlives_that_of_the_stream),
        ON(columns_that_are_not_there_are_refused),
        ON(columns_are_released_in_any_order),
        ON(a_stream_need_not_be_read_to_its_end),
        ON(threads_read_and_release_the_same_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
