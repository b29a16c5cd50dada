/* Plain arrays as an Arrow stream: what it hands out, how long that lives, and what is refused. */
#define _XOPEN_SOURCE 700

#include "support/bench.h"
#include "support/unit_test.h"

static const int64_t numbers[3] = {1, 2, 3};
static const char words[] = "abbccc";
static const int32_t ends[4] = {0, 1, 3, 6};
static const uint8_t all_but_the_second[1] = {5};

/* Rows 1 to 3 of a number and a text, of which the second is NULL. */
static struct ArrowArrayStream open_rows(void) {
    struct ArrowArrayStream stream;
    MUST(hw_arrays_open(3, &stream, &error));
    MUST(hw_arrays_add(&stream, "number", "l", numbers, NULL, NULL, &error));
    MUST(hw_arrays_add(&stream, "text", "u", words, ends, all_but_the_second, &error));
    return stream;
}

static void arrays_are_handed_out_as_they_lie_once(void **state) {
    struct ArrowArrayStream stream = open_rows();
    struct ArrowSchema schema;
    struct ArrowArray rows, more;
    (void)state;
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    assert_string_equal(schema.format, "+s");
    assert_int_equal(schema.n_children, 2);
    assert_string_equal(schema.children[0]->name, "number");
    assert_string_equal(schema.children[0]->format, "l");
    assert_int_equal(schema.children[0]->flags, 0);
    assert_string_equal(schema.children[1]->format, "u");
    assert_int_equal(schema.children[1]->flags, 2);
    assert_int_equal(stream.get_next(&stream, &rows), 0);
    assert_int_equal(rows.length, 3);
    assert_int_equal(rows.n_children, 2);
    assert_int_equal(rows.children[0]->n_buffers, 2);
    assert_int_equal(rows.children[0]->null_count, 0);
    assert_null(rows.children[0]->buffers[0]);
    assert_ptr_equal(rows.children[0]->buffers[1], numbers);
    assert_int_equal(rows.children[1]->n_buffers, 3);
    assert_int_equal(rows.children[1]->null_count, -1);
    assert_ptr_equal(rows.children[1]->buffers[0], all_but_the_second);
    assert_ptr_equal(rows.children[1]->buffers[1], ends);
    assert_ptr_equal(rows.children[1]->buffers[2], words);
    assert_int_equal(stream.get_next(&stream, &more), 0);
    assert_null(more.release); /* the end */
    rows.release(&rows);
    schema.release(&schema);
    stream.release(&stream);
    assert_null(stream.release);
}

/* As consumers may: children move out, and parents and the stream go before them. The sanitizer
 * sees what is read after it is freed, and what is never freed. */
static void what_was_handed_out_outlives_the_stream(void **state) {
    struct ArrowArrayStream stream = open_rows();
    struct ArrowSchema schema, field;
    struct ArrowArray rows, text;
    (void)state;
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    assert_int_equal(stream.get_next(&stream, &rows), 0);
    stream.release(&stream);
    field = *schema.children[1];
    schema.children[1]->release = NULL;
    text = *rows.children[1];
    rows.children[1]->release = NULL;
    schema.release(&schema);
    rows.release(&rows);
    assert_string_equal(field.name, "text");
    assert_memory_equal(text.buffers[2], words, sizeof words);
    field.release(&field);
    text.release(&text);
}

static void a_stream_without_rows_or_columns_ends_at_once(void **state) {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray rows;
    (void)state;
    MUST(hw_arrays_open(0, &stream, &error));
    MUST(hw_arrays_add(&stream, "text", "U", NULL, NULL, NULL, &error));
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    assert_string_equal(schema.children[0]->format, "U");
    assert_int_equal(stream.get_next(&stream, &rows), 0);
    assert_null(rows.release);
    schema.release(&schema);
    stream.release(&stream);
    MUST(hw_arrays_open(7, &stream, &error));
    stream.release(&stream);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const struct {
    const char *name, *format;
    const void *values, *offsets;
    const char *message;
} refusals[] = {
    {"a", "s", numbers, NULL, "column 'a' has Arrow format 's', expected one of 'biIlLguU'"},
    {"a", "", numbers, NULL, "column 'a' has Arrow format ''"},
    {"a", "ll", numbers, NULL, "column 'a' has Arrow format 'll'"},
    {"a", "l", NULL, NULL, "column 'a' has 3 rows and no values"},
    {"a", "u", words, NULL, "column 'a' of format 'u' has no offsets"},
    {"a", "u", NULL, ends, "column 'a' has 3 rows and no values"},
    {"a", "g", numbers, ends, "column 'a' of format 'g' has offsets, which only texts have"},
    {NULL, "l", numbers, NULL, "a column needs a stream of hw_arrays_open, a name and a format"},
    {"a", NULL, numbers, NULL, "a column needs a stream of hw_arrays_open, a name and a format"},
};

static void columns_that_cannot_be_read_are_refused(void **state) {
    struct ArrowArrayStream stream = open_rows();
    struct ArrowSchema schema;
    hw_error error;
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        assert_int_equal(hw_arrays_add(&stream, refusals[i].name, refusals[i].format,
                                       refusals[i].values, refusals[i].offsets, NULL, &error),
                         HW_BAD_ARGUMENT);
        if (strstr(error.message, refusals[i].message) == NULL) {
            fail_msg("'%s', expected '%s'", error.message, refusals[i].message);
        }
    }
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    assert_int_equal(schema.n_children, 2); /* none of them was added */
    assert_int_equal(hw_arrays_add(&stream, "late", "l", numbers, NULL, NULL, &error),
                     HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "column 'late' is added to a stream that was read already");
    schema.release(&schema);
    stream.release(&stream);
}

static void streams_of_others_are_refused(void **state) {
    struct ArrowArrayStream stream = {.release = NULL};
    (void)state;
    assert_int_equal(hw_arrays_add(&stream, "a", "l", numbers, NULL, NULL, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_arrays_add(NULL, "a", "l", numbers, NULL, NULL, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_arrays_open(1, NULL, NULL), HW_BAD_ARGUMENT);
    assert_int_equal(hw_arrays_open(UINT64_MAX, &stream, NULL), HW_BAD_ARGUMENT);
    const struct fixture_column column = {"a", "l", numbers, NULL};
    fixture_stream(&stream, &column, 1, 3, 0);
    assert_int_equal(hw_arrays_add(&stream, "a", "l", numbers, NULL, NULL, NULL), HW_BAD_ARGUMENT);
    stream.release(&stream);
}

/* ---- with the builder ------------------------------------------------------------------------ */

static void a_builder_reads_what_the_arrays_hold(void **state) {
    struct bench *bench = *state;
    struct ArrowArrayStream stream;
    static const int64_t times[3] = {10, 20, 30};
    static const double values[3] = {1, 2, 6};
    static const char colors[] = "redblue";
    static const int64_t color_ends[4] = {0, 3, 3, 7};
    static const uint8_t flags[1] = {6};
    hw_column_stats stats = {.struct_bytes = sizeof stats};
    MUST(hw_arrays_open(3, &stream, &error));
    MUST(hw_arrays_add(&stream, "time", "l", times, NULL, NULL, &error));
    MUST(hw_arrays_add(&stream, "key", "u", words, ends, NULL, &error));
    MUST(hw_arrays_add(&stream, "at", "l", times, NULL, NULL, &error));
    MUST(hw_arrays_add(&stream, "number", "g", values, NULL, NULL, &error));
    MUST(hw_arrays_add(&stream, "color", "U", colors, color_ends, all_but_the_second, &error));
    MUST(hw_arrays_add(&stream, "flag", "b", flags, NULL, NULL, &error));
    MUST(hw_builder_write_rows(bench->b, 0, &stream, &error));
    stream.release(&stream);
    MUST(hw_builder_column_stats(bench->b, 1, &stats, &error));
    assert_float_equal(stats.mean, 3, 1e-12);
    MUST(hw_builder_column_stats(bench->b, 2, &stats, &error));
    assert_int_equal(stats.null_count, 1);
    MUST(hw_builder_column_stats(bench->b, 3, &stats, &error));
    assert_int_equal(stats.true_count, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_handed_out_as_they_lie_once),
        cmocka_unit_test(what_was_handed_out_outlives_the_stream),
        cmocka_unit_test(a_stream_without_rows_or_columns_ends_at_once),
        cmocka_unit_test(columns_that_cannot_be_read_are_refused),
        cmocka_unit_test(streams_of_others_are_refused),
        ON(open_bench, a_builder_reads_what_the_arrays_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
