/* A stream that fails says the same for ever after, and its source is asked no more. */
#include <errno.h>

#include "headwater.h"
#include "support/unit_test.h"

/* Fails at the second array, each time with other words. */
struct source {
    int asked, released;
    const char *said;
};

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    *out = (struct ArrowSchema){.format = "n"};
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct source *source = stream->private_data;
    *out = (struct ArrowArray){.length = 3};
    source->said = source->asked == 1 ? "the disk is full" : "the reader is closed";
    return source->asked++ == 0 ? 0 : EIO;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    return ((struct source *)stream->private_data)->said;
}

static void release(struct ArrowArrayStream *stream) {
    ((struct source *)stream->private_data)->released++;
    stream->release = NULL;
}

static struct ArrowArrayStream steady(struct source *source) {
    struct ArrowArrayStream stream = {get_schema, get_next, get_last_error, release, source};
    hw_error error;
    assert_int_equal(hw_steady_stream(&stream, &error), HW_OK);
    return stream;
}

static void a_failure_is_repeated(void **state) {
    struct source source = {0};
    struct ArrowArrayStream stream = steady(&source);
    struct ArrowSchema schema;
    struct ArrowArray array;
    assert_int_equal(stream.get_schema(&stream, &schema), 0);
    assert_string_equal(schema.format, "n");
    assert_int_equal(stream.get_next(&stream, &array), 0);
    assert_int_equal(array.length, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stream.get_next(&stream, &array), EIO);
        assert_string_equal(stream.get_last_error(&stream), "the disk is full");
    }
    assert_int_equal(source.asked, 2);
    stream.release(&stream);
    assert_null(stream.release);
    assert_int_equal(source.released, 1);
}

static void one_that_was_not_read_is_released_with_its_source(void **state) {
    struct source source = {.said = "nothing yet"};
    struct ArrowArrayStream stream = steady(&source);
    assert_string_equal(stream.get_last_error(&stream), "nothing yet");
    stream.release(&stream);
    assert_int_equal(source.released, 1);
}

static void the_version_of_the_library_is_that_of_the_header(void **state) {
    assert_string_equal(hw_version(), HW_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_repeated),
        cmocka_unit_test(one_that_was_not_read_is_released_with_its_source),
        cmocka_unit_test(the_version_of_the_library_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
