/* The options of a sampler as data: defaults, places, ranges, words. */
#include <math.h>

#include "support/fixtures.h"
#include "support/unit_test.h"

static hw_option_field field_at(uint32_t index) {
    hw_option_field field = {.struct_bytes = sizeof field};
    assert_int_equal(hw_option_field_at(index, &field, NULL), HW_OK);
    return field;
}

static hw_option_field field_of(const char *name) {
    uint32_t index = 0;
    while (strcmp(field_at(index).name, name) != 0) {
        index++;
    }
    return field_at(index);
}

static void defaults_are_those_of_the_python_front(void **state) {
    hw_sampler_options options;
    memset(&options, 0xee, sizeof options);
    hw_sampler_options_init(&options, sizeof options);
    assert_int_equal(options.struct_bytes, sizeof options);
    assert_int_equal(options.world_size, 1);
    assert_true(options.split_ratios[0] == 0.8 && options.split_ratios[2] == 0.1);
    assert_int_equal(options.split_seed, 123);
    assert_int_equal(options.seed, 42);
    assert_int_equal(options.batch_size, 32);
    assert_int_equal(options.sequence_length, 1024);
    assert_int_equal(options.child_width, 16);
    assert_int_equal(options.num_prefetch, -1);
    assert_int_equal(options.num_prefetch_val, 1);
    assert_int_equal(options.max_rows, 0);
    assert_int_equal(options.layout, HW_LAYOUT_DENSE);
    assert_null(options.tasks);
    assert_null(options.visible_until);
}

/* A caller of an older header has room for what that knew. */
static void only_the_bytes_that_are_said_are_written(void **state) {
    hw_sampler_options options;
    memset(&options, 0xee, sizeof options);
    size_t known = offsetof(hw_sampler_options, batch_size);
    hw_sampler_options_init(&options, known);
    assert_int_equal(options.struct_bytes, known);
    assert_int_equal(options.seed, 42);
    const uint8_t *bytes = (const uint8_t *)&options;
    for (size_t i = known; i < sizeof options; i++) {
        assert_int_equal(bytes[i], 0xee);
    }
}

static void rows_are_in_the_struct_apart_and_say_what_they_are(void **state) {
    static const size_t sizes[] = {1, 4, 4, 4, 8, 8}; /* by type */
    size_t end = sizeof(size_t);
    uint32_t count = hw_option_field_count();
    assert_int_equal(count, 46);
    assert_int_equal(hw_option_field_at(count, &(hw_option_field){.struct_bytes = 8}, NULL),
                     HW_BAD_ARGUMENT);
    for (uint32_t i = 0; i < count; i++) {
        const hw_option_field read = field_at(i), *field = &read;
        assert_true(field->offset >= end); /* in the order of the struct */
        int is_list = field->type >= HW_OPTION_TIMES;
        end = field->offset + (is_list ? sizeof(void *) : field->count * sizes[field->type]);
        assert_true(end <= sizeof(hw_sampler_options));
        assert_true(field->least <= field->most && strlen(field->doc) > 8);
        uint32_t words = 0;
        while (field->words != NULL && field->words[words] != NULL) {
            words++;
        }
        assert_int_equal(words, field->type == HW_OPTION_WORD ? (uint32_t)field->most + 1 : 0);
    }
    assert_string_equal(field_of("child_order").words[HW_CHILDREN_RECENT], "recent");
    assert_string_equal(field_of("layout").words[HW_LAYOUT_COMPACT], "compact");
    assert_int_equal(field_of("split_ratios").count, 3);
    assert_true(field_of("seed").decides_contexts && !field_of("layout").decides_contexts);
}

/* The default options with one that is changed. */
#define ASSERT_REFUSED(change, said)                                                               \
    do {                                                                                           \
        hw_sampler_options options;                                                                \
        hw_sampler *sampler = NULL;                                                                \
        hw_error error = {.message = ""};                                                          \
        hw_sampler_options_init(&options, sizeof options);                                         \
        options.change;                                                                            \
        assert_int_equal(hw_sampler_open(store_of(state), &options, &sampler, &error),             \
                         HW_BAD_ARGUMENT);                                                         \
        assert_string_equal(error.message, said);                                                  \
        assert_null(sampler);                                                                      \
    } while (0)

static void values_out_of_range_are_named(void **state) {
    ASSERT_REFUSED(sequence_length = 1, "sequence_length is 1, expected 2 to 65535");
    ASSERT_REFUSED(num_prefetch = -2, "num_prefetch is -2, expected 0 to 1024");
    ASSERT_REFUSED(child_order = (hw_child_order)2, "child_order is 2, expected 0 to 1");
    ASSERT_REFUSED(mask_ratio = NAN, "mask_ratio is nan, expected 0 to 1");
    ASSERT_REFUSED(cell_dropout = -0.1, "cell_dropout is -0.1, expected 0 to 1");
    ASSERT_REFUSED(cell_dropout = 1, "cell_dropout is 1, expected less than 1");
    ASSERT_REFUSED(packing = 2, "packing is 2, expected 0 to 1");
    ASSERT_REFUSED(split_ratios[1] = -0.1, "split_ratios[1] is -0.1, expected 0 to 1");
    ASSERT_REFUSED(split_ratios[0] = 0.9, "split_ratios sum to 1.1, expected 1");
    ASSERT_REFUSED(split_ratios[0] = options.split_ratios[1] = options.split_ratios[2] = 0,
                   "split_ratios sum to 0, expected 1");
    ASSERT_REFUSED(rank = 1, "rank is 1, expected 0 to 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_python_front),
        cmocka_unit_test(only_the_bytes_that_are_said_are_written),
        cmocka_unit_test(rows_are_in_the_struct_apart_and_say_what_they_are),
        cmocka_unit_test(values_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, open_bookstore, close_shelf);
}
